/* Requests to a server in this process that does as the path says; what must be on the wire is HTTP's (RFC
 * 9110, 9112) and RFC 6750's. */
#include "http/http.h"

#include "base/clock.h"
#include "util/alloc_fail.h"

#include <arpa/inet.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/socket.h>
#include <unistd.h>
#include <cmocka.h>

/* ---- the server: a thread for each connection ---- */

#define REQUEST_MAX_BYTES 10000

static int listener;
static int port;
static _Atomic int n_connections;
static char large[200000];

static void say(int fd, const char *head, const char *body, size_t n, size_t announced) {
    char text[600];
    int k = snprintf(text, sizeof text, "HTTP/1.1 %s\r\nContent-Length: %zu\r\n\r\n", head, announced);
    (void)!write(fd, text, (size_t)k);
    if (n) (void)!write(fd, body, n);
}

/* Reads a request into `in`; false when the client has gone. */
static bool read_request(int fd, char *in, size_t size) {
    size_t n = 0, want = 0;
    for (;;) {
        ssize_t got = read(fd, in + n, size - 1 - n);
        if (got <= 0) return false;
        n += (size_t)got;
        in[n] = 0;
        char *end = strstr(in, "\r\n\r\n");
        if (!end) continue;
        char *length = strcasestr(in, "\r\nContent-Length:");
        want = (size_t)(end + 4 - in) + (length ? strtoul(length + 17, NULL, 10) : 0);
        if (n >= want) return true;
    }
}

/* False: the connection is to be closed. */
static bool answer(int fd, const char *in) {
    char head[500];
    const char *path = strchr(in, ' ') + 1;
    if (!strncmp(path, "http://", 7)) path += 7 + strcspn(path + 7, "/"); /* as a proxy is asked */
    if (!strncmp(path, "/echo", 5)) {
        say(fd, "200 OK\r\nContent-Type: text/plain; charset=utf-8", in, strlen(in), strlen(in));
    } else if (!strncmp(path, "/to?", 4)) {
        snprintf(head, sizeof head, "302 Found\r\nLocation: %.*s", (int)strcspn(path + 4, " "), path + 4);
        say(fd, head, NULL, 0, 0);
    } else if (!strncmp(path, "/none", 5)) {
        say(fd, "404 Not Found\r\nContent-Type: application/json", "{}", 2, 2);
    } else if (!strncmp(path, "/cut", 4)) {
        say(fd, "200 OK", "0123456789", 10, 100);
        return false;
    } else if (!strncmp(path, "/silent", 7)) {
        return read(fd, head, 1) > 0; /* until the client goes */
    } else if (!strncmp(path, "/part", 5)) {
        bool ranged = strstr(in, "\r\nRange: bytes=6-\r\n");
        if (ranged)
            say(fd, "206 Partial Content\r\nContent-Range: bytes 6-9/10", "6789", 4, 4);
        else
            say(fd, "200 OK", "0123456789", 10, 10);
    } else {
        say(fd, "200 OK", large, sizeof large, sizeof large);
    }
    return true;
}

static void *serve_connection(void *user) {
    int fd = (int)(intptr_t)user;
    char *in = malloc(REQUEST_MAX_BYTES);
    while (in && read_request(fd, in, REQUEST_MAX_BYTES) && answer(fd, in)) {}
    free(in);
    close(fd);
    return NULL;
}

static void *serve(void *unused) {
    for (;;) {
        pthread_t thread;
        int fd = accept(listener, NULL, NULL);
        if (fd < 0) return NULL;
        n_connections++;
        if (pthread_create(&thread, NULL, serve_connection, (void *)(intptr_t)fd) || pthread_detach(thread))
            abort();
    }
}

static int start_server(void **state) {
    static pthread_t thread;
    struct sockaddr_in a = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t n = sizeof a;
    memset(large, 'y', sizeof large);
    listener = socket(AF_INET, SOCK_STREAM, 0);
    if (bind(listener, (struct sockaddr *)&a, n) || listen(listener, 64) ||
        getsockname(listener, (struct sockaddr *)&a, &n))
        return -1;
    port = ntohs(a.sin_port);
    return pthread_create(&thread, NULL, serve, NULL) || pthread_detach(thread);
}

/* ---- asking ---- */

static const char *url(const char *path) {
    static char text[300];
    snprintf(text, sizeof text, "http://127.0.0.1:%d%s", port, path);
    return text;
}

static struct http *open_with(struct http_config c) {
    struct http *h = NULL;
    struct error err = {0};
    if (!c.n_at_once) c.n_at_once = 1;
    if (c.timeout_s == 0) c.timeout_s = 20;
    assert_int_equal(http_new(&c, &h, &err), 0);
    return h;
}

static struct http_answer ask(struct http *h, const char *where, const struct buf *body, struct buf *into) {
    struct http_answer a;
    struct error err = {0};
    struct http_request r = {.url = where, .body = body, .into = into};
    assert_int_equal(http_perform(h, &r, &a, &err), 0);
    assert_true((a.end == HTTP_COMPLETE) == !*a.why);
    assert_null(strpbrk(a.why, "\r\n"));
    return a;
}

static void what_is_sent(void **state) {
    struct http *h = open_with((struct http_config){.bearer = "se-cret"});
    struct buf body = BUF_INIT, got = BUF_INIT;
    buf_puts(&body, "{\"a\": 1}");
    struct http_answer a = ask(h, url("/echo"), &body, &got);
    assert_true(a.end == HTTP_COMPLETE && a.status == 200);
    assert_string_equal(a.type, "text/plain; charset=utf-8");
    assert_non_null(strstr(got.data, "POST /echo HTTP/1.1\r\n"));
    assert_non_null(strstr(got.data, "\r\nContent-Type: application/json\r\n"));
    assert_non_null(strstr(got.data, "\r\nContent-Length: 8\r\n"));
    assert_non_null(strstr(got.data, "\r\nAuthorization: Bearer se-cret\r\n"));
    assert_non_null(strstr(got.data, "\r\nUser-Agent: quire\r\n"));
    assert_null(strcasestr(got.data, "\r\nExpect:"));
    assert_non_null(strstr(got.data, "\r\n\r\n{\"a\": 1}"));
    buf_clear(&got);
    ask(h, url("/echo"), NULL, &got); /* nothing of the POST is left */
    assert_non_null(strstr(got.data, "GET /echo HTTP/1.1\r\n"));
    assert_null(strcasestr(got.data, "\r\nContent-"));
    assert_null(strcasestr(got.data, "{\"a\""));
    buf_free(&body);
    buf_free(&got);
    http_free(h);
}

static void connections_are_kept(void **state) {
    struct http *h = open_with((struct http_config){0});
    int before = n_connections;
    for (int i = 0; i < 5; i++) {
        struct buf got = BUF_INIT;
        assert_int_equal(ask(h, url(i % 2 ? "/none" : "/large"), NULL, &got).status, i % 2 ? 404 : 200);
        assert_int_equal(got.len, i % 2 ? 2 : sizeof large);
        buf_free(&got);
    }
    assert_int_equal(n_connections - before, 1);
    http_free(h);
}

static bool stop_at_once(void *user, const struct http_answer *a, const char *data, size_t n) {
    assert_int_equal(a->status, 200);
    *(size_t *)user += n;
    return false;
}

static void how_it_ends(void **state) {
    struct http *h = open_with((struct http_config){0}),
                *hasty = open_with((struct http_config){.timeout_s = 0.3});
    struct buf got = BUF_INIT, small = {.limit_bytes = sizeof large - 1},
               exact = {.limit_bytes = sizeof large};
    struct error err = {0};
    struct http_answer a;
    size_t n = 0;
    char gone[60];
    int fd = socket(AF_INET, SOCK_STREAM, 0); /* a port that nobody listens on */
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t size = sizeof address;
    assert_int_equal(bind(fd, (struct sockaddr *)&address, size), 0);
    assert_int_equal(getsockname(fd, (struct sockaddr *)&address, &size), 0);
    snprintf(gone, sizeof gone, "http://127.0.0.1:%d/", ntohs(address.sin_port));
    assert_int_equal(ask(h, gone, NULL, &got).end, HTTP_CONNECT);
    close(fd);
    assert_int_equal(ask(h, "ftp://127.0.0.1/", NULL, &got).end, HTTP_URL);
    assert_int_equal(ask(h, "file:///etc/passwd", NULL, &got).end, HTTP_URL);
    assert_int_equal(ask(h, "http://", NULL, &got).end, HTTP_URL);
    assert_int_equal(got.len, 0);
    a = ask(h, url("/cut"), NULL, &got);
    assert_true(a.end == HTTP_CUT && a.status == 200 && got.len == 10);
    a = ask(hasty, url("/silent"), NULL, &got);
    assert_true(a.end == HTTP_TIMEOUT && a.status == 0);
    assert_int_equal(ask(h, url("/large"), NULL, &exact).end, HTTP_COMPLETE);
    assert_int_equal(ask(h, url("/large"), NULL, &small).end, HTTP_STOPPED);
    assert_false(buf_ok(&small));
    struct http_request r = {.url = url("/large"), .receive = stop_at_once, .user = &n};
    assert_int_equal(http_perform(h, &r, &a, &err), 0);
    assert_true(a.end == HTTP_STOPPED && n > 0 && n < sizeof large);
    buf_free(&got);
    buf_free(&small);
    buf_free(&exact);
    http_free(hasty);
    http_free(h);
}

static void nothing_comes(void **state) {
    struct http *h = open_with((struct http_config){.stall_s = 1});
    uint64_t start = clock_us();
    assert_int_equal(ask(h, url("/silent"), NULL, NULL).end, HTTP_TIMEOUT);
    assert_true(clock_us() - start >= 900000);
    http_free(h);
}

static void redirections(void **state) {
    struct buf got = BUF_INIT;
    char way[300], other[200];
    struct http *h = open_with((struct http_config){.bearer = "se-cret", .redirects = 2});
    snprintf(way, sizeof way, "%s", url("/to?/to?/echo"));
    assert_int_equal(ask(h, way, NULL, &got).status, 200);
    assert_non_null(strstr(got.data, "Bearer se-cret"));
    buf_clear(&got);
    snprintf(other, sizeof other, "http://127.0.0.1:%d/to?http://localhost:%d/echo", port, port);
    assert_int_equal(ask(h, other, NULL, &got).status, 200);
    assert_null(strstr(got.data, "se-cret")); /* another host */
    assert_int_equal(ask(h, url("/to?/to?/to?/echo"), NULL, &got).end, HTTP_URL);
    assert_int_equal(ask(h, url("/to?file:///etc/passwd"), NULL, &got).end, HTTP_URL);
    http_free(h);
    h = open_with((struct http_config){0});
    assert_int_equal(ask(h, way, NULL, &got).status, 302); /* not followed unless asked */
    buf_free(&got);
    http_free(h);
}

static void the_rest_of_a_file(void **state) {
    struct http *h = open_with((struct http_config){0});
    struct error err = {0};
    struct http_answer a;
    struct buf got = BUF_INIT;
    struct http_request r = {.url = url("/part"), .from_bytes = 6, .into = &got};
    assert_int_equal(http_perform(h, &r, &a, &err), 0);
    assert_int_equal(a.status, 206);
    assert_string_equal(got.data, "6789");
    buf_clear(&got);
    r.from_bytes = 0;
    assert_int_equal(http_perform(h, &r, &a, &err), 0);
    assert_int_equal(a.status, 200);
    assert_string_equal(got.data, "0123456789");
    buf_free(&got);
    http_free(h);
}

/* The environment's proxy is asked for other hosts, never for this machine. */
static void proxies(void **state) {
    char proxy[60];
    struct buf got = BUF_INIT;
    snprintf(proxy, sizeof proxy, "http://127.0.0.1:%d", port);
    setenv("http_proxy", proxy, 1);
    struct http *h = open_with((struct http_config){0});
    assert_int_equal(ask(h, "http://host.invalid/echo", NULL, &got).status, 200);
    assert_non_null(strstr(got.data, "GET http://host.invalid/echo HTTP/1.1"));
    buf_clear(&got);
    setenv("http_proxy", "http://127.0.0.1:1", 1);
    assert_int_equal(ask(h, url("/echo"), NULL, &got).status, 200);
    unsetenv("http_proxy");
    buf_free(&got);
    http_free(h);
}

struct one {
    struct http *http;
    enum http_end end;
    int n_ended, n_more;
};

static void again(void *user, const struct http_answer *a) {
    struct one *o = user;
    struct error err = {0};
    struct http_request r = {.url = url("/none"), .done = again, .user = o};
    o->end = a->end;
    o->n_ended++;
    if (o->n_more-- > 0) assert_int_equal(http_start(o->http, &r, &err), 0);
}

static void several_at_once(void **state) {
    struct http *h = open_with((struct http_config){.n_at_once = 2});
    struct error err = {0};
    struct one a = {.http = h, .n_more = 9}, b = {.http = h};
    struct http_request r = {.url = url("/none"), .done = again, .user = &a};
    assert_int_equal(http_start(h, &r, &err), 0);
    while (http_active(h)) assert_int_equal(http_wait(h, clock_us() + 1000000, &err), 0);
    assert_int_equal(a.n_ended, 10);
    assert_int_equal(a.end, HTTP_COMPLETE);
    /* two are held by the server; a third is a mistake; all that are left are told */
    struct http_request held = {.url = url("/silent"), .done = again, .user = &b};
    assert_int_equal(http_start(h, &held, &err), 0);
    assert_int_equal(http_start(h, &held, &err), 0);
    assert_int_equal(http_start(h, &held, &err), QUIRE_EINTERNAL);
    http_cancel_all(h);
    assert_int_equal(b.n_ended, 2);
    assert_int_equal(b.end, HTTP_CANCELED);
    assert_int_equal(http_active(h), 0);
    http_start(h, &held, &err);
    http_free(h); /* dropped */
    assert_int_equal(b.n_ended, 2);
}

static void no_authorities(void **state) {
    struct http_config c = {.ca_cert = "/none/such.pem", .n_at_once = 1};
    struct http *h = NULL;
    struct error err = {0};
    assert_int_equal(http_new(&c, &h, &err), QUIRE_ENOTFOUND);
    assert_non_null(strstr(err.text, "/none/such.pem"));
    assert_null(h);
}

static void short_of_memory(void *unused) {
    struct http_config c = {.bearer = "x", .ca_cert = "/dev/null", .n_at_once = 3};
    struct http *h = NULL;
    struct error err = {0};
    int rc = http_new(&c, &h, &err);
    assert_true(!rc == !!h);
    if (rc) assert_int_equal(rc, QUIRE_ENOMEM);
    http_free(h);
}

static void memory(void **state) {
    assert_int_equal(alloc_fail_each(short_of_memory, NULL), 4);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_is_sent),   cmocka_unit_test(connections_are_kept),
        cmocka_unit_test(how_it_ends),    cmocka_unit_test(nothing_comes),
        cmocka_unit_test(redirections),   cmocka_unit_test(the_rest_of_a_file),
        cmocka_unit_test(proxies),        cmocka_unit_test(several_at_once),
        cmocka_unit_test(no_authorities), cmocka_unit_test(memory),
    };
    return cmocka_run_group_tests(tests, start_server, NULL);
}
