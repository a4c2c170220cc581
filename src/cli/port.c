/* Whether a port can be listened on, asked before minutes of loading. */
#include "cli/cli.h"

#include "base/error.h"

#include <errno.h>
#include <netdb.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

/* Binds, as the server will, and lets go again. Returns 0 or errno. */
static int try_address(const struct addrinfo *a) {
    int on = 1, failure = 0;
    int fd = socket(a->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd < 0) return errno == EAFNOSUPPORT ? 0 : errno;
    if (a->ai_family == AF_INET6) setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &on, sizeof on);
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    if (bind(fd, a->ai_addr, a->ai_addrlen)) failure = errno;
    close(fd);
    return failure;
}

int port_check(const char *host, uint16_t port, struct error *err) {
    const struct addrinfo hints = {
        .ai_family = AF_UNSPEC, .ai_socktype = SOCK_STREAM, .ai_flags = AI_PASSIVE};
    char text[8];
    struct addrinfo *list;
    int failure = 0;
    snprintf(text, sizeof text, "%u", port);
    int rc = getaddrinfo(host, text, &hints, &list);
    if (rc)
        return error_set(err, QUIRE_EINVAL, "--host %.200s cannot be resolved: %s", host, gai_strerror(rc));
    for (const struct addrinfo *a = list; a && !failure; a = a->ai_next) {
        failure = try_address(a);
        if (failure == EADDRNOTAVAIL && a->ai_next) failure = 0; /* the server uses those that it can */
    }
    freeaddrinfo(list);
    if (!failure) return 0;
    if (failure == EADDRINUSE)
        return error_set(err, QUIRE_EINVAL,
                         "port %u of %.200s is in use: stop what listens there, or give another --port "
                         "(0 takes a free one)",
                         port, host);
    return error_set(err, QUIRE_EINVAL, "cannot listen on --host %.200s --port %u: %s", host, port,
                     strerror(failure));
}
