/* Listening sockets, and what to do when connections or descriptors run out. */
#define _GNU_SOURCE /* accept4 */
#include "net/internal.h"

#include "base/clock.h"
#include "base/error.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netdb.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

enum {
    ACCEPTS_PER_EVENT = 64,
    PORT_TRIES = 8,
    PAUSE_MS = 100,      /* no accepting when the system is short of something */
    MAX_TURNED_AWAY = 64 /* connections above the limit whose 503 is delivered with care, at once */
};

static void close_listener(struct listener *l) {
    if (l->accepting) event_free(l->accepting);
    close(l->fd);
    if (l->unix_path) unlink(l->unix_path);
    free(l->unix_path);
}

void listeners_close(struct server *s) {
    for (size_t i = 0; i < s->n_listeners; i++) close_listener(&s->listeners[i]);
    s->n_listeners = 0;
    if (s->resume) event_free(s->resume);
    s->resume = NULL;
    if (s->spare_fd >= 0) close(s->spare_fd);
    s->spare_fd = -1;
    atomic_store(&s->listening, false);
}

/* --- opening --- */

static struct listener *add_listener(struct server *s, int fd, bool tls) {
    struct listener *l = &s->listeners[s->n_listeners++];
    *l = (struct listener){.server = s, .fd = fd, .tls = tls};
    return l;
}

/* Returns a listening socket, or -1 with errno. */
static int listen_at(const struct sockaddr *address, socklen_t n, int backlog) {
    int on = 1;
    int fd = socket(address->sa_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (fd < 0) return -1;
    if (address->sa_family == AF_INET6) setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &on, sizeof on);
    if (address->sa_family != AF_UNIX) setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    if (!bind(fd, address, n) && !listen(fd, backlog)) return fd;
    int saved = errno;
    close(fd);
    errno = saved;
    return -1;
}

static uint16_t *port_of(struct sockaddr *a) {
    return a->sa_family == AF_INET6 ? &((struct sockaddr_in6 *)a)->sin6_port
                                    : &((struct sockaddr_in *)a)->sin_port;
}

static bool is_absent(int error) {
    return error == EADDRNOTAVAIL || error == EAFNOSUPPORT; /* no IPv6 here, say */
}

/* Listens on every address of the list; port 0 becomes the first one's port for all. */
static int open_addresses(struct server *s, const struct addrinfo *list, struct error *err) {
    const struct server_config *c = &s->config;
    int last = 0;
    s->port = c->port;
    for (const struct addrinfo *a = list; a && s->n_listeners < MAX_LISTENERS - 1; a = a->ai_next) {
        struct sockaddr_storage local;
        socklen_t n = sizeof local;
        *port_of(a->ai_addr) = htons(s->port);
        int fd = listen_at(a->ai_addr, a->ai_addrlen, c->backlog);
        if (fd < 0) {
            last = errno;
            if (is_absent(last)) continue;
            break;
        }
        last = 0;
        add_listener(s, fd, s->tls);
        if (!getsockname(fd, (struct sockaddr *)&local, &n))
            s->port = ntohs(*port_of((struct sockaddr *)&local));
    }
    if (s->n_listeners && (!last || is_absent(last))) return 0;
    return error_param(err, QUIRE_EIO, last == EADDRNOTAVAIL ? "host" : "port",
                       "cannot listen on %s port %u: %s", c->host ? c->host : "any address",
                       (unsigned)s->port, strerror(last));
}

static int open_tcp(struct server *s, struct error *err) {
    const struct addrinfo hints = {
        .ai_family = AF_UNSPEC, .ai_socktype = SOCK_STREAM, .ai_flags = AI_PASSIVE};
    const char *host = s->config.host;
    struct addrinfo *list;
    int rc = getaddrinfo(host, host ? NULL : "0", &hints, &list);
    if (rc)
        return error_param(err, QUIRE_EIO, "host", "cannot resolve host \"%s\": %s", host ? host : "",
                           gai_strerror(rc));
    for (int tries_left = s->config.port ? 1 : PORT_TRIES; tries_left > 0; tries_left--) {
        rc = open_addresses(s, list, err);
        if (!rc) break;
        listeners_close(s); /* the port that was free for IPv4 may be taken for IPv6: another one */
    }
    freeaddrinfo(list);
    return rc;
}

/* A socket file that nobody listens on any more. */
static bool is_stale(const struct sockaddr_un *a) {
    struct stat st;
    if (lstat(a->sun_path, &st) || !S_ISSOCK(st.st_mode)) return false;
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    bool stale = fd >= 0 && connect(fd, (const struct sockaddr *)a, sizeof *a) && errno == ECONNREFUSED;
    if (fd >= 0) close(fd);
    return stale;
}

static int open_unix(struct server *s, struct error *err) {
    const char *path = s->config.unix_path;
    struct sockaddr_un a = {.sun_family = AF_UNIX};
    if (!*path || strlen(path) >= sizeof a.sun_path)
        return error_param(err, QUIRE_EINVAL, "unix_path", "socket path \"%s\": 1 to %zu bytes are allowed",
                           path, sizeof a.sun_path - 1);
    strcpy(a.sun_path, path);
    int fd = listen_at((struct sockaddr *)&a, sizeof a, s->config.backlog);
    if (fd < 0 && errno == EADDRINUSE && is_stale(&a)) {
        unlink(path);
        fd = listen_at((struct sockaddr *)&a, sizeof a, s->config.backlog);
    }
    if (fd < 0)
        return error_param(err, QUIRE_EIO, "unix_path", "cannot listen on %s: %s", path, strerror(errno));
    struct listener *l = add_listener(s, fd, false);
    l->unix_path = strdup(path);
    return l->unix_path ? 0 : error_set(err, QUIRE_ENOMEM, "out of memory for a socket path");
}

static int open_spare(void) {
    return open("/dev/null", O_RDONLY | O_CLOEXEC);
}

int listeners_open(struct server *s, struct error *err) {
    int rc = s->config.no_tcp ? 0 : open_tcp(s, err);
    if (!rc && s->config.unix_path) rc = open_unix(s, err);
    if (rc) return rc;
    s->spare_fd = open_spare();
    atomic_store(&s->listening, true);
    return 0;
}

/* --- accepting --- */

static void set_peer(char *peer, const struct sockaddr_storage *a) {
    char host[INET6_ADDRSTRLEN] = "";
    if (a->ss_family == AF_INET) {
        const struct sockaddr_in *in = (const struct sockaddr_in *)a;
        inet_ntop(AF_INET, &in->sin_addr, host, sizeof host);
        snprintf(peer, PEER_BYTES, "%s:%u", host, ntohs(in->sin_port));
    } else if (a->ss_family == AF_INET6) {
        const struct sockaddr_in6 *in6 = (const struct sockaddr_in6 *)a;
        inet_ntop(AF_INET6, &in6->sin6_addr, host, sizeof host);
        snprintf(peer, PEER_BYTES, "[%s]:%u", host, ntohs(in6->sin6_port));
    } else {
        snprintf(peer, PEER_BYTES, "unix");
    }
}

/* One line in ten seconds at most: whoever is short of something is short of it thousands of times. */
static void warn_seldom(struct server *s, const char *text) {
    uint64_t now_us = clock_us();
    if (s->warned_us && now_us - s->warned_us < 10000000) return;
    s->warned_us = now_us;
    log_write(s->config.log, LOG_WARN, "%s", text);
}

/* Too many even to be turned away properly: one write that never blocks, then the end. A TLS client gets the
 * end only. */
static void turn_away(struct server *s, int fd, bool tls) {
    char answer[160];
    int n = snprintf(answer, sizeof answer,
                     "HTTP/1.1 503 Service Unavailable\r\nRetry-After: %u\r\nConnection: "
                     "close\r\nContent-Length: 0\r\n\r\n",
                     s->config.retry_after_s);
    count_add(&s->counters.connections_refused, 1);
    if (!tls) send(fd, answer, (size_t)n, MSG_NOSIGNAL | MSG_DONTWAIT);
    close(fd);
}

static void hand_over(struct listener *l, int fd, const struct sockaddr_storage *peer) {
    struct server *s = l->server;
    uint64_t now = count_get(&s->counters.connections_now);
    struct conn *c = now < s->config.max_connections + MAX_TURNED_AWAY ? calloc(1, sizeof *c) : NULL;
    if (!c) {
        turn_away(s, fd, l->tls);
        return;
    }
    c->over_limit = now >= s->config.max_connections;
    if (c->over_limit) warn_seldom(s, "connection limit reached: new connections get 503");
    count_add(c->over_limit ? &s->counters.connections_refused : &s->counters.connections_accepted, 1);
    count_add(&s->counters.connections_now, 1);
    c->fd = fd;
    c->tls = l->tls ? s->tls : NULL;
    c->arrival.run = conn_open;
    set_peer(c->peer, peer);
    struct loop *loop = &s->loops[s->next_loop++ % s->n_loops];
    if (loop->index == 0)
        conn_open(loop, &c->arrival);
    else
        loop_post(loop, &c->arrival);
}

static void pause_accepting(struct server *s) {
    const struct timeval tv = {.tv_usec = PAUSE_MS * 1000};
    for (size_t i = 0; i < s->n_listeners; i++) event_del(s->listeners[i].accepting);
    event_add(s->resume, &tv);
}

static void on_resume(evutil_socket_t fd, short what, void *arg) {
    struct server *s = arg;
    if (s->spare_fd < 0) s->spare_fd = open_spare();
    for (size_t i = 0; i < s->n_listeners; i++) event_add(s->listeners[i].accepting, NULL);
}

/* No descriptor is left. Connections wait in the backlog and would wake us without end: the spare descriptor
 * is given up for a moment so that one can be accepted and told. Returns as accept4; what was accepted is
 * done with. */
static int accept_with_spare(struct listener *l) {
    struct server *s = l->server;
    warn_seldom(s, "no file descriptor left (see ulimit -n): new connections get 503");
    errno = EMFILE;
    if (s->spare_fd < 0) return -1;
    close(s->spare_fd);
    int fd = accept4(l->fd, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
    int why = errno;
    if (fd >= 0) turn_away(s, fd, l->tls);
    s->spare_fd = open_spare();
    errno = why;
    return fd;
}

static void on_accept(evutil_socket_t listening_fd, short what, void *arg) {
    struct listener *l = arg;
    for (int i = 0; i < ACCEPTS_PER_EVENT; i++) {
        struct sockaddr_storage peer = {0};
        socklen_t n = sizeof peer;
        int fd = accept4(listening_fd, (struct sockaddr *)&peer, &n, SOCK_NONBLOCK | SOCK_CLOEXEC);
        if (fd >= 0) {
            hand_over(l, fd, &peer);
            continue;
        }
        if ((errno == EMFILE || errno == ENFILE) && accept_with_spare(l) >= 0) continue;
        if (errno == EAGAIN) return;
        if (errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM) {
            pause_accepting(l->server);
            return;
        } /* else that connection failed before we had it: the next one */
    }
}

int listeners_accept(struct server *s, struct error *err) {
    s->resume = event_new(s->loops[0].base, -1, 0, on_resume, s);
    bool ok = s->resume;
    for (size_t i = 0; ok && i < s->n_listeners; i++) {
        struct listener *l = &s->listeners[i];
        l->accepting = event_new(s->loops[0].base, l->fd, EV_READ | EV_PERSIST, on_accept, l);
        ok = l->accepting && !event_add(l->accepting, NULL);
    }
    return ok ? 0 : error_set(err, QUIRE_ENOMEM, "out of memory for listening");
}
