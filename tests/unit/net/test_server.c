/* Requests and responses through real sockets. */
#include "util_net.h"

#include <arpa/inet.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#define LIMIT_ANSWER "413 Content Too Large: body larger than the limit of 1048576 bytes\n"

static struct app app;

static int start(void **state) {
    app_init(&app);
    app.config.body_bytes = 1 << 20;
    app_start(&app);
    return 0;
}

static int stop(void **state) {
    app_stop(&app);
    return 0;
}

static void expect_answer(struct client *c, unsigned status, const char *text) {
    struct buf body = BUF_INIT;
    assert_int_equal(client_response(c, NULL, &body, false), status);
    assert_string_equal(body.data ? body.data : "", text);
    buf_free(&body);
}

static void test_keep_alive_1000(void **state) {
    struct client c;
    struct buf head = BUF_INIT;
    client_open(&c, &app);
    for (int i = 0; i < 1000; i++) {
        client_get(&c, "/hello");
        expect_answer(&c, 200, "hello");
    }
    client_get(&c, "/hello");
    assert_int_equal(client_response(&c, &head, NULL, false), 200);
    assert_non_null(strstr(head.data, "\r\nDate: "));
    assert_null(strstr(head.data, "Connection:"));
    app_wait_stat(&app, connections_accepted, 1);
    app_wait_stat(&app, requests, 1001);
    buf_free(&head);
    client_close(&c);
    app_wait_stat(&app, connections_now, 0);
}

static void test_methods_and_bodies(void **state) {
    struct client c;
    client_open(&c, &app);
    client_puts(&c, "GET /a%20b?c=%20 HTTP/1.1\r\nHost: h\r\n\r\n");
    expect_answer(&c, 200, "GET /a b?c=%20 ");
    client_puts(&c, "POST /p HTTP/1.1\r\nHost: h\r\nContent-Length: 5\r\n\r\n");
    usleep(20000);
    client_puts(&c, "hel");
    usleep(20000);
    client_puts(&c, "lo");
    expect_answer(&c, 200, "POST /p?(none) hello");
    client_puts(&c, "PUT /p HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: "
                    "chunked\r\n\r\n5\r\nhello\r\n7;x=y\r\n, world\r\n0\r\nT: u\r\n\r\n");
    expect_answer(&c, 200, "PUT /p?(none) hello, world");
    client_puts(&c, "OPTIONS * HTTP/1.1\r\nHost: h\r\n\r\n");
    expect_answer(&c, 200, "OPTIONS *?(none) ");
    client_puts(&c, "GET /headers HTTP/1.1\r\nHost: localhost\r\nA: b\r\na:c\r\n\r\n");
    expect_answer(&c, 200, "Host=localhost\nA=b\na=c\n");
    struct buf head = BUF_INIT;
    client_get(&c, "/204");
    assert_int_equal(client_response(&c, &head, NULL, true), 204);
    assert_null(strstr(head.data, "Content-Length"));
    client_puts(&c, "HEAD /hello HTTP/1.1\r\nHost: h\r\n\r\n");
    assert_int_equal(client_response(&c, &head, NULL, true), 200);
    assert_non_null(strstr(head.data, "Content-Length: 5\r\n"));
    client_puts(&c, "HEAD /stream HTTP/1.1\r\nHost: h\r\n\r\n");
    assert_int_equal(client_response(&c, &head, NULL, true), 200);
    app_wait(&app, &app.n_held, 1);
    app_finish_held(&app);
    client_get(&c, "/hello"); /* nothing of the HEAD's body is on the wire */
    expect_answer(&c, 200, "hello");
    client_puts(&c, "GET /hello HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n");
    assert_int_equal(client_response(&c, &head, NULL, false), 200);
    assert_non_null(strstr(head.data, "Connection: close\r\n"));
    client_wait_end(&c);
    buf_free(&head);
    client_close(&c);
}

static void test_expect_continue(void **state) {
    struct client c;
    client_open(&c, &app);
    client_puts(&c, "POST /p HTTP/1.1\r\nHost: h\r\nContent-Length: 2\r\nExpect: 100-continue\r\n\r\n");
    assert_true(client_expect(&c, "HTTP/1.1 100 Continue\r\n\r\n"));
    client_puts(&c, "ok");
    expect_answer(&c, 200, "POST /p?(none) ok");
    client_puts(&c,
                "POST /p HTTP/1.1\r\nHost: h\r\nContent-Length: 99999999\r\nExpect: 100-continue\r\n\r\n");
    expect_answer(&c, 413, LIMIT_ANSWER); /* and no 100 before */
    client_close(&c);
}

static void test_http10(void **state) {
    struct client c;
    client_open(&c, &app);
    client_puts(&c, "GET /hello HTTP/1.0\r\nConnection: keep-alive\r\n\r\n");
    expect_answer(&c, 200, "hello");
    client_wait_end(&c);
    client_close(&c);

    client_open(&c, &app);
    client_puts(&c, "GET /stream HTTP/1.0\r\n\r\n");
    assert_true(client_expect(&c, "\r\n\r\nfirst\n")); /* not chunked */
    app_wait(&app, &app.n_held, 1);
    app_finish_held(&app);
    client_wait_end(&c);
    assert_string_equal(c.in.data, "done");
    assert_false(c.was_reset);
    client_close(&c);
}

static void test_stream(void **state) {
    struct client c;
    client_open(&c, &app);
    client_get(&c, "/stream");
    assert_true(client_expect(&c, "Transfer-Encoding: chunked\r\n\r\n6\r\nfirst\n\r\n")); /* at once */
    app_wait(&app, &app.n_held, 1);
    app_write_held(&app, "second\n");
    assert_true(client_expect(&c, "7\r\nsecond\n\r\n"));
    app_finish_held(&app);
    assert_true(client_expect(&c, "4\r\ndone\r\n0\r\n\r\n"));
    client_get(&c, "/hello");
    expect_answer(&c, 200, "hello");
    client_close(&c);
}

static void test_pipelined(void **state) {
    struct client c;
    struct buf b = BUF_INIT;
    client_open(&c, &app);
    buf_puts(&b, "GET /wait HTTP/1.1\r\nHost: h\r\n\r\n");
    for (int i = 0; i < 500; i++) buf_printf(&b, "GET /n%d HTTP/1.1\r\nHost: h\r\n\r\n", i);
    client_send(&c, b.data, b.len);
    app_wait(&app, &app.n_held, 1);
    usleep(50000);
    assert_int_equal(app_get(&app, &app.n_requests), 1); /* one at a time */
    app_finish_held(&app);
    expect_answer(&c, 200, "done");
    for (int i = 0; i < 500; i++) {
        char text[64];
        snprintf(text, sizeof text, "GET /n%d?(none) ", i);
        expect_answer(&c, 200, text);
    }
    /* Answers that nobody reads hold back the requests behind them. */
    buf_clear(&b);
    for (int i = 0; i < 100; i++) buf_puts(&b, "GET /big?1000000 HTTP/1.1\r\nHost: h\r\n\r\n");
    client_send(&c, b.data, b.len);
    app_wait(&app, &app.n_requests, 502);
    usleep(100000);
    assert_true(app_get(&app, &app.n_requests) < 501 + 50);
    for (int i = 0; i < 100; i++) assert_int_equal(client_response(&c, NULL, NULL, false), 200);
    buf_free(&b);
    client_close(&c);
}

static void test_refusals(void **state) {
    static const struct {
        const char *raw;
        unsigned status;
    } cases[] = {
        {"GET / HTTP/1.1\r\n\r\n", 400},
        {"GET /%00 HTTP/1.1\r\nHost: h\r\n\r\n", 400},
        {"\x16\x03\x01\x02", 400},
        {"GET / HTTP/1.1\nHost: h\n\n", 400},
        {"POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 2000000\r\n\r\n", 413},
        {"POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n8000000000000000\r\n", 413},
        {"POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: gzip\r\n\r\n", 501},
        {"POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabcX", 400},
        {"GET / HTTP/3.0\r\nHost: h\r\n\r\n", 505},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct client c;
        struct buf head = BUF_INIT;
        client_open(&c, &app);
        client_puts(&c, cases[i].raw);
        assert_int_equal(client_response(&c, &head, NULL, false), cases[i].status);
        assert_non_null(strstr(head.data, "Connection: close\r\n"));
        client_wait_end(&c);
        assert_false(c.was_reset);
        buf_free(&head);
        client_close(&c);
    }
    app_wait_stat(&app, requests_refused, sizeof cases / sizeof *cases);
    app_wait_stat(&app, requests, 0);
    app_wait_stat(&app, connections_now, 0);
}

/* The client sends everything before it looks: the answer must still be there. */
static void test_large_body_refused(void **state) {
    enum { SIZE = 40 << 20 };
    char *data = calloc(1, SIZE);
    for (int way = 0; way < 2; way++) {
        struct client c;
        char head[128];
        client_open(&c, &app);
        snprintf(head, sizeof head, "POST /p HTTP/1.1\r\nHost: h\r\n%s%d\r\n\r\n%s",
                 way ? "Transfer-Encoding: chunked\r\nX: " : "Content-Length: ", SIZE,
                 way ? "2800000\r\n" : "");
        client_puts(&c, head);
        assert_true(client_send(&c, data, SIZE));
        expect_answer(&c, 413, LIMIT_ANSWER);
        client_wait_end(&c);
        client_close(&c);
    }
    free(data);
    app_wait_stat(&app, connections_now, 0);
}

static void test_total_body_limit(void **state) {
    struct client a, b;
    char piece[600 << 10] = "";
    client_open(&a, &app);
    client_open(&b, &app);
    const char head[] = "POST /p HTTP/1.1\r\nHost: h\r\nContent-Length: 900000\r\n\r\n";
    client_puts(&a, head);
    client_send(&a, piece, sizeof piece);
    app_wait_stat(&app, body_bytes_now, sizeof piece);
    client_puts(&b, head);
    client_send(&b, piece, sizeof piece);
    struct buf answer = BUF_INIT;
    assert_int_equal(client_response(&b, &answer, NULL, false), 503);
    assert_non_null(strstr(answer.data, "Retry-After: 1\r\n"));
    app_wait_stat(&app, body_bytes_now, sizeof piece);
    client_send(&a, piece, 900000 - sizeof piece);
    assert_int_equal(client_response(&a, NULL, NULL, false), 200);
    app_wait_stat(&app, body_bytes_now, 0);
    buf_free(&answer);
    client_close(&a);
    client_close(&b);
}

static int start_small_total(void **state) {
    app_init(&app);
    app.config.body_total_bytes = 1000000;
    app_start(&app);
    return 0;
}

static void test_odd_handlers(void **state) {
    struct client c;
    client_open(&c, &app);
    client_get(&c, "/inject");
    expect_answer(&c, 200, "refused");
    client_get(&c, "/drop");
    expect_answer(&c, 500, "500 Internal Server Error: the request was given up\n");
    client_get(&c, "/stats");
    struct buf body = BUF_INIT;
    assert_int_equal(client_response(&c, NULL, &body, false), 200);
    char expected[128];
    struct sockaddr_in me;
    socklen_t n = sizeof me;
    getsockname(c.fd, (struct sockaddr *)&me, &n);
    snprintf(expected, sizeof expected, "id 3 conn_requests 3 in %zu peer 127.0.0.1:%u",
             strlen("GET /inject HTTP/1.1\r\nHost: localhost\r\n\r\n"
                    "GET /drop HTTP/1.1\r\nHost: localhost\r\n\r\n"
                    "GET /stats HTTP/1.1\r\nHost: localhost\r\n\r\n"),
             ntohs(me.sin_port));
    assert_string_equal(body.data, expected);
    buf_free(&body);
    client_close(&c);
}

static void refuse_as_json(void *user, unsigned status, const char *text, struct buf *body,
                           const char **type) {
    *type = "application/json";
    buf_printf(body, "{\"code\":%u}", status);
}

static int start_json(void **state) {
    app_init(&app);
    app.config.callbacks.on_refuse = refuse_as_json;
    app_start(&app);
    return 0;
}

static void test_on_refuse(void **state) {
    struct client c;
    struct buf head = BUF_INIT, body = BUF_INIT;
    client_open(&c, &app);
    client_puts(&c, "NOPE / HTTP/1.1\r\n");
    assert_int_equal(client_response(&c, &head, &body, false), 501);
    assert_string_equal(body.data, "{\"code\":501}");
    assert_non_null(strstr(head.data, "Content-Type: application/json\r\n"));
    buf_free(&head);
    buf_free(&body);
    client_close(&c);
}

/* --- listening --- */

static void expect_start_error(const struct server_config *config, int code, const char *param,
                               const char *text) {
    struct server *server = NULL;
    struct error err = {0};
    assert_int_equal(server_start(&server, config, &err), code);
    assert_string_equal(err.param, param);
    if (!strstr(err.text, text)) fail_msg("\"%s\" is not in \"%s\"", text, err.text);
    assert_null(server);
}

static void test_start_errors(void **state) {
    struct server_config c = app.config;
    c.port = server_port(app.server);
    expect_start_error(&c, QUIRE_EIO, "port", "already in use");
    c = app.config;
    c.host = "no such host";
    expect_start_error(&c, QUIRE_EIO, "host", "cannot resolve host \"no such host\"");
    c.host = "192.0.2.1"; /* reserved for documentation: not ours */
    expect_start_error(&c, QUIRE_EIO, "host", "192.0.2.1");
    c = app.config;
    c.tls_cert_file = "cert.pem";
    expect_start_error(&c, QUIRE_EINVAL, "tls_key_file", "both");
    c = app.config;
    c.head_ms = 0;
    expect_start_error(&c, QUIRE_EINVAL, "head_ms", "positive");
    c = app.config;
    c.unix_path = "/dev/null";
    expect_start_error(&c, QUIRE_EIO, "unix_path", "in use");
    char long_path[200];
    memset(long_path, 'a', sizeof long_path - 1);
    long_path[sizeof long_path - 1] = '\0';
    c.unix_path = long_path;
    expect_start_error(&c, QUIRE_EINVAL, "unix_path", "1 to 107 bytes");
    c.unix_path = "";
    expect_start_error(&c, QUIRE_EINVAL, "unix_path", "1 to 107 bytes");
    c.unix_path = NULL;
    c.no_tcp = true;
    expect_start_error(&c, QUIRE_EINVAL, "unix_path", "neither");
    c = app.config;
    c.n_loops = 257;
    expect_start_error(&c, QUIRE_EINVAL, "n_loops", "at most 256");
    c = app.config;
    c.hard_bytes = 5;
    expect_start_error(&c, QUIRE_EINVAL, "hard_bytes", "below");
    c = app.config;
    c.callbacks.on_request = NULL;
    expect_start_error(&c, QUIRE_EINVAL, "on_request", "must be set");
}

static void test_all_addresses_and_unix(void **state) {
    char path[] = "/tmp/quire-test-XXXXXX";
    assert_non_null(mkdtemp(path));
    char socket_path[64];
    snprintf(socket_path, sizeof socket_path, "%s/s", path);
    for (int round = 0; round < 2; round++) {
        app_init(&app);
        app.config.host = NULL;
        app.config.unix_path = socket_path;
        app.config.n_loops = 2;
        app_start(&app);
        struct client c;
        client_open(&c, &app);
        client_get(&c, "/hello");
        expect_answer(&c, 200, "hello");
        client_close(&c);

        struct sockaddr_un a = {.sun_family = AF_UNIX};
        strcpy(a.sun_path, socket_path);
        c.fd = socket(AF_UNIX, SOCK_STREAM, 0);
        assert_int_equal(connect(c.fd, (struct sockaddr *)&a, sizeof a), 0);
        client_get(&c, "/stats");
        assert_true(client_expect(&c, "peer unix"));
        client_close(&c);
        app_stop(&app);
        struct stat st;
        assert_int_not_equal(stat(socket_path, &st), 0); /* removed */

        /* A socket file that a killed process left behind is no obstacle for the second round. */
        int stale = socket(AF_UNIX, SOCK_STREAM, 0);
        if (!round) assert_int_equal(bind(stale, (struct sockaddr *)&a, sizeof a), 0);
        close(stale);
    }
    rmdir(path);
}

static void test_ipv6(void **state) {
    struct server_config config;
    struct error err;
    app_init(&app);
    app.config.host = "::1";
    config = app.config;
    if (server_start(&app.server, &config, &err)) {
        print_message("no IPv6 here: %s\n", err.text);
        skip();
    }
    struct sockaddr_in6 a = {.sin6_family = AF_INET6, .sin6_addr = IN6ADDR_LOOPBACK_INIT};
    a.sin6_port = htons(server_port(app.server));
    struct client c = {.fd = socket(AF_INET6, SOCK_STREAM, 0)};
    assert_int_equal(connect(c.fd, (struct sockaddr *)&a, sizeof a), 0);
    client_get(&c, "/stats");
    assert_true(client_expect(&c, "peer [::1]:"));
    client_close(&c);
    app_stop(&app);
}

/* --- posts and timers --- */

struct ticker {
    struct loop_timer *timer;
    size_t ticks;
};

static void on_tick(void *user) {
    struct ticker *t = user;
    if (++t->ticks < 3) {
        loop_timer_arm(t->timer, 5);
        return;
    }
    loop_timer_free(t->timer); /* from its own fire */
    t->timer = NULL;
}

static void start_ticker(struct app *a, void *arg) {
    struct ticker *t = arg;
    t->timer = loop_timer_new(server_loop(a->server, 0), on_tick, t);
    loop_timer_arm(t->timer, 1000000);
    loop_timer_disarm(t->timer);
    loop_timer_arm(t->timer, 5);
}

static void read_ticks(struct app *a, void *arg) {
    *(size_t *)((void **)arg)[1] = ((struct ticker *)((void **)arg)[0])->ticks;
}

static void test_timer(void **state) {
    struct ticker t = {0};
    size_t ticks = 0;
    void *both[] = {&t, &ticks};
    app_on_loop(&app, 0, start_ticker, &t);
    for (int left_ms = PATIENCE_MS; ticks < 3 && left_ms > 0; left_ms -= 5) {
        usleep(5000);
        app_on_loop(&app, 0, read_ticks, both);
    }
    assert_int_equal(ticks, 3);
}

enum { N_PRODUCERS = 4, N_POSTS = 20000 };

struct post {
    struct loop_node node;
    size_t producer, number;
};

static size_t next_number[N_PRODUCERS], n_run; /* the loop's, read after the join */

static void run_post(struct loop *loop, struct loop_node *node) {
    struct post *p = (struct post *)node;
    assert_int_equal(p->number, next_number[p->producer]++);
    n_run++;
}

static void *produce(void *arg) {
    struct post *posts = arg;
    for (size_t i = 0; i < N_POSTS; i++) loop_post(server_loop(app.server, 0), &posts[i].node);
    return NULL;
}

static void nothing(struct app *a, void *arg) {}

static void test_posts(void **state) {
    pthread_t threads[N_PRODUCERS];
    struct post *posts = calloc(N_PRODUCERS * N_POSTS, sizeof *posts);
    for (size_t p = 0; p < N_PRODUCERS; p++) {
        for (size_t i = 0; i < N_POSTS; i++)
            posts[p * N_POSTS + i] = (struct post){.node.run = run_post, .producer = p, .number = i};
        pthread_create(&threads[p], NULL, produce, &posts[p * N_POSTS]);
    }
    for (size_t p = 0; p < N_PRODUCERS; p++) pthread_join(threads[p], NULL);
    app_on_loop(&app, 0, nothing, NULL);
    assert_int_equal(loop_index(server_loop(app.server, 0)), 0);
    assert_int_equal(loop_count(server_loop(app.server, 0)), 1);
    assert_int_equal(n_run, N_PRODUCERS * N_POSTS); /* all, in the order of each producer */
    free(posts);
}

/* One node, posted by many threads at any time: never lost, never run with an old count. */
static struct loop_node shared_node;
static atomic_size_t n_shared_posts, n_seen;
static size_t n_shared_runs;

static void run_shared(struct loop *loop, struct loop_node *node) {
    atomic_store(&n_seen, atomic_load(&n_shared_posts));
    n_shared_runs++;
}

static void *post_shared(void *arg) {
    for (size_t i = 0; i < N_POSTS; i++) {
        atomic_fetch_add(&n_shared_posts, 1);
        loop_post(server_loop(app.server, 0), &shared_node);
    }
    return NULL;
}

static void test_posting_one_node(void **state) {
    pthread_t threads[N_PRODUCERS];
    shared_node.run = run_shared;
    for (size_t p = 0; p < N_PRODUCERS; p++) pthread_create(&threads[p], NULL, post_shared, NULL);
    for (size_t p = 0; p < N_PRODUCERS; p++) pthread_join(threads[p], NULL);
    app_on_loop(&app, 0, nothing, NULL);
    assert_int_equal(atomic_load(&n_seen), N_PRODUCERS * N_POSTS);
    print_message("%d posts, %zu runs\n", N_PRODUCERS * N_POSTS, n_shared_runs);
    assert_in_range(n_shared_runs, 1, N_PRODUCERS * N_POSTS);
}

int main(void) {
#define WITH_SERVER(test) cmocka_unit_test_setup_teardown(test, start, stop)
    const struct CMUnitTest tests[] = {
        WITH_SERVER(test_keep_alive_1000),
        WITH_SERVER(test_methods_and_bodies),
        WITH_SERVER(test_expect_continue),
        WITH_SERVER(test_http10),
        WITH_SERVER(test_stream),
        WITH_SERVER(test_pipelined),
        WITH_SERVER(test_refusals),
        WITH_SERVER(test_large_body_refused),
        cmocka_unit_test_setup_teardown(test_total_body_limit, start_small_total, stop),
        WITH_SERVER(test_odd_handlers),
        cmocka_unit_test_setup_teardown(test_on_refuse, start_json, stop),
        WITH_SERVER(test_start_errors),
        cmocka_unit_test(test_all_addresses_and_unix),
        cmocka_unit_test(test_ipv6),
        WITH_SERVER(test_timer),
        WITH_SERVER(test_posts),
        WITH_SERVER(test_posting_one_node),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
