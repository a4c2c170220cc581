/* Many connections, too many connections, no descriptors, no memory, and the end. */
#include "util_net.h"

#include "base/clock.h"
#include "util/alloc_fail.h"

#include <arpa/inet.h>
#include <errno.h>
#include <event2/event.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

static struct app app;

static void start_with(size_t n_loops, size_t max_connections) {
    app_init(&app);
    app.config.n_loops = n_loops;
    app.config.max_connections = max_connections;
    app_start(&app);
}

static int start(void **state) {
    start_with(2, 4096);
    return 0;
}

static int stop(void **state) {
    app_stop(&app);
    return 0;
}

static void expect_hello(struct client *c) {
    struct buf body = BUF_INIT;
    client_get(c, "/hello");
    assert_int_equal(client_response(c, NULL, &body, false), 200);
    assert_string_equal(body.data, "hello");
    buf_free(&body);
}

static void expect_alive(void) {
    struct client c;
    client_open(&c, &app);
    expect_hello(&c);
    client_close(&c);
}

static uint64_t cpu_ms(void) {
    struct timespec t;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (uint64_t)t.tv_sec * 1000 + (uint64_t)t.tv_nsec / 1000000;
}

/* --- many --- */

enum { N_IDLE = 1000, N_STREAMS = 1000, N_EVENTS = 20 };

static void test_thousand_idle_thousand_streams(void **state) {
    struct rlimit limit;
    getrlimit(RLIMIT_NOFILE, &limit);
    limit.rlim_cur = limit.rlim_max;
    setrlimit(RLIMIT_NOFILE, &limit);
    size_t n = limit.rlim_max >= 2 * (N_IDLE + N_STREAMS) + 100 ? N_STREAMS : (limit.rlim_max - 100) / 4;
    if (n < N_STREAMS)
        print_message("only %zu of each: the hard limit of descriptors is %lu\n", n, limit.rlim_max);
    struct client *idle = calloc(n, sizeof *idle), *streams = calloc(n, sizeof *streams);
    for (size_t i = 0; i < n; i++) {
        client_open(&idle[i], &app);
        client_open(&streams[i], &app);
        client_get(&streams[i], "/stream");
    }
    app_wait(&app, &app.n_held, n);
    app_wait_stat(&app, connections_now, 2 * n);
    app_wait_stat(&app, requests_now, n);
    for (int e = 0; e < N_EVENTS; e++) app_write_held(&app, "data: event\n\n");
    expect_alive();
    for (size_t i = 0; i < n; i += 3) client_reset(&streams[i]); /* a third leaves */
    app_wait(&app, &app.n_gone, (n + 2) / 3);
    app_finish_held(&app);
    for (size_t i = 0; i < n; i++) {
        if (i % 3 == 0) continue;
        assert_true(client_expect(&streams[i], "first\n"));
        for (int e = 0; e < N_EVENTS; e++) assert_true(client_expect(&streams[i], "data: event\n\n"));
        assert_true(client_expect(&streams[i], "done\r\n0\r\n\r\n"));
        client_close(&streams[i]);
    }
    for (size_t i = 0; i < n; i++) {
        if (i % 100 == 0) expect_hello(&idle[i]);
        client_close(&idle[i]);
    }
    app_wait_stat(&app, connections_now, 0);
    free(idle);
    free(streams);
}

/* --- at random --- */

enum { N_WILD = 4, WILD_MS = 2000 };

struct wild {
    pthread_t thread;
    unsigned seed;
    size_t n_sessions;
};

/* Whatever comes to mind: good requests, bad ones, cut ones, each left in some way at some moment. Nothing is
 * expected of the answers; the server's books must balance afterwards. */
static void *be_wild(void *arg) {
    static const char *const texts[] = {
        "GET /hello HTTP/1.1\r\nHost: h\r\n\r\n",
        "GET /hello HTTP/1.1\r\nHost: h\r\n\r\nGET /wait HTTP/1.1\r\nHost: h\r\n\r\n",
        "GET /wait HTTP/1.1\r\nHost: h\r\n\r\n",
        "GET /stream HTTP/1.1\r\nHost: h\r\n\r\n",
        "GET /stream HTTP/1.0\r\n\r\n",
        "HEAD /stream HTTP/1.1\r\nHost: h\r\n\r\n",
        "GET /pump HTTP/1.1\r\nHost: h\r\n\r\n",
        "GET /push HTTP/1.1\r\nHost: h\r\n\r\n",
        "GET /big?300000 HTTP/1.1\r\nHost: h\r\n\r\n",
        "GET /drop HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n",
        "POST /echo HTTP/1.1\r\nHost: h\r\nContent-Length: 20\r\n\r\nhello",
        "POST /echo HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: h\r\nX",
        "nonsense\r\n\r\n",
    };
    struct wild *w = arg;
    char in[4096];
    for (uint64_t end = clock_us() + WILD_MS * 1000; clock_us() < end; w->n_sessions++) {
        struct client c;
        client_open(&c, &app);
        const char *text = texts[(size_t)rand_r(&w->seed) % (sizeof texts / sizeof *texts)];
        size_t n = rand_r(&w->seed) % 8 ? strlen(text) : (size_t)rand_r(&w->seed) % strlen(text);
        send(c.fd, text, n, MSG_NOSIGNAL);
        for (int i = rand_r(&w->seed) % 4; i > 0; i--) recv(c.fd, in, sizeof in, MSG_DONTWAIT);
        if (rand_r(&w->seed) % 3 == 0) usleep((useconds_t)rand_r(&w->seed) % 3000);
        if (rand_r(&w->seed) % 4 == 0) shutdown(c.fd, SHUT_WR);
        if (rand_r(&w->seed) % 2)
            client_reset(&c);
        else
            client_close(&c);
    }
    return NULL;
}

static void test_wild_clients(void **state) {
    struct wild wild[N_WILD];
    size_t n_sessions = 0;
    for (unsigned i = 0; i < N_WILD; i++) {
        wild[i] = (struct wild){.seed = i + 1};
        pthread_create(&wild[i].thread, NULL, be_wild, &wild[i]);
    }
    for (uint64_t end = clock_us() + WILD_MS * 1000; clock_us() < end;) {
        app_finish_held(&app);
        usleep(1000);
    }
    for (size_t i = 0; i < N_WILD; i++) {
        pthread_join(wild[i].thread, NULL);
        n_sessions += wild[i].n_sessions;
    }
    app_finish_held(&app);
    app_wait_stat(&app, connections_now, 0);
    app_wait_stat(&app, requests_now, 0);
    app_wait_stat(&app, body_bytes_now, 0);
    expect_alive();
    print_message("%zu sessions, %zu requests, %zu gone\n", n_sessions, app.n_requests, app.n_gone);
}

/* --- too many --- */

static int start_ten(void **state) {
    start_with(1, 10);
    return 0;
}

static void test_connection_limit(void **state) {
    struct client in[10], out[200];
    for (size_t i = 0; i < 10; i++) {
        client_open(&in[i], &app);
        expect_hello(&in[i]);
    }
    size_t n_answers = 0;
    for (size_t i = 0; i < 200; i++) client_open(&out[i], &app);
    for (size_t i = 0; i < 200; i++) {
        struct buf head = BUF_INIT;
        unsigned status = client_response(&out[i], &head, NULL, false);
        assert_true(status == 503 || status == 0);
        n_answers += status == 503;
        if (status) assert_non_null(strstr(head.data, "Retry-After: 1\r\n"));
        client_wait_end(&out[i]);
        buf_free(&head);
    }
    assert_int_equal(n_answers, 200);
    app_wait_stat(&app, connections_refused, 200);
    for (size_t i = 0; i < 10; i++) expect_hello(&in[i]);
    for (size_t i = 0; i < 200; i++) client_close(&out[i]);
    for (size_t i = 0; i < 10; i++) client_close(&in[i]);
    app_wait_stat(&app, connections_now, 0);
    expect_alive();
}

/* --- no descriptors --- */

static void connect_later(struct client *c) {
    const struct timeval patience = {.tv_sec = PATIENCE_MS / 1000};
    memset(c, 0, sizeof *c);
    c->fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    setsockopt(c->fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
    assert_true(c->fd >= 0);
}

static void connect_now(struct client *c) {
    struct sockaddr_in a = {.sin_family = AF_INET, .sin_port = htons(server_port(app.server))};
    a.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    assert_int_equal(connect(c->fd, (struct sockaddr *)&a, sizeof a), 0);
}

static rlim_t set_descriptor_limit(rlim_t n) {
    struct rlimit limit;
    getrlimit(RLIMIT_NOFILE, &limit);
    rlim_t before = limit.rlim_cur;
    limit.rlim_cur = n;
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &limit), 0);
    return before;
}

static void test_no_descriptors(void **state) {
    enum { N = 60, ROOM = 10 };
    struct client c[N];
    for (size_t i = 0; i < N; i++) connect_later(&c[i]);
    int lowest_free = dup(0);
    close(lowest_free);
    rlim_t before = set_descriptor_limit((rlim_t)lowest_free + ROOM);
    size_t n_served = 0, n_refused = 0;
    for (size_t i = 0; i < N; i++) {
        connect_now(&c[i]);
        client_puts(&c[i], "GET /hello HTTP/1.1\r\nHost: h\r\n\r\n");
        unsigned status = client_response(&c[i], NULL, NULL, false);
        assert_true(status == 200 || status == 503 || status == 0); /* 0: our request met the closed socket */
        n_served += status == 200;
        n_refused += status != 200;
    }
    assert_int_equal(n_served, ROOM);
    assert_int_equal(n_refused, N - ROOM);
    uint64_t before_ms = cpu_ms();
    usleep(500000);
    assert_true(cpu_ms() - before_ms < 250); /* nothing spins */
    expect_hello(&c[0]);
    for (size_t i = 0; i < N; i++) client_close(&c[i]);
    app_wait_stat(&app, connections_now, 0);
    expect_alive();
    set_descriptor_limit(before);
}

struct grabber {
    pthread_t thread;
    atomic_bool stop;
};

/* Takes every descriptor that anybody frees. */
static void *grab(void *arg) {
    struct grabber *g = arg;
    int fds[256];
    size_t n = 0;
    while (!atomic_load(&g->stop)) {
        int fd = n < 256 ? dup(0) : -1;
        if (fd >= 0) fds[n++] = fd;
    }
    while (n) close(fds[--n]);
    return NULL;
}

static void test_spare_descriptor_is_taken(void **state) {
    struct grabber g = {0};
    struct client c[8];
    for (size_t i = 0; i < 8; i++) connect_later(&c[i]);
    int lowest_free = dup(0);
    close(lowest_free);
    rlim_t before = set_descriptor_limit((rlim_t)lowest_free + 4);
    pthread_create(&g.thread, NULL, grab, &g);
    for (size_t i = 0; i < 8; i++) {
        connect_now(&c[i]);
        usleep(20000);
    }
    uint64_t before_ms = cpu_ms();
    atomic_store(&g.stop, true);
    pthread_join(g.thread, NULL);
    set_descriptor_limit(before);
    expect_alive(); /* after at most one pause */
    assert_true(cpu_ms() - before_ms < 2000);
    for (size_t i = 0; i < 8; i++) client_close(&c[i]);
    app_wait_stat(&app, connections_now, 0);
}

/* --- no memory --- */

/* libevent allocates through these, so that its allocations fail like ours. */
static void *event_malloc(size_t n) {
    return malloc(n);
}
static void *event_realloc(void *p, size_t n) {
    return realloc(p, n);
}

static int start_once(struct error *err) {
    struct server *server = NULL;
    app_init(&app);
    app.config.n_loops = 2;
    int rc = server_start(&server, &app.config, err);
    if (rc) assert_null(server);
    server_free(server);
    return rc;
}

static void start_and_stop(void *ctx) {
    struct error err = {0};
    int rc = start_once(&err);
    if (rc) assert_true(rc == QUIRE_ENOMEM && err.text[0]);
}

static void test_no_memory_at_start(void **state) {
    assert_true(alloc_fail_each(start_and_stop, NULL) > 10);
    for (size_t n = 1; n <= 2; n++) {
        struct error err = {0};
        thread_fail_at(n);
        assert_int_equal(start_once(&err), QUIRE_EIO);
        assert_non_null(strstr(err.text, "thread"));
    }
    thread_fail_at(0);
}

/* One session with plain calls (its own allocations must not be the ones that fail). */
static void session(void) {
    static const char text[] = "POST /echo HTTP/1.1\r\nHost: h\r\nContent-Length: 2\r\n\r\nok"
                               "GET /stream HTTP/1.1\r\nHost: h\r\n\r\n";
    char in[4096];
    struct client c;
    client_open(&c, &app);
    send(c.fd, text, sizeof text - 1, MSG_NOSIGNAL);
    for (size_t got = 0; got < sizeof in - 1;) {
        ssize_t n = recv(c.fd, in + got, sizeof in - 1 - got, 0);
        if (n <= 0) break;
        in[got += (size_t)n] = '\0';
        if (strstr(in, "first\n")) break;
    }
    client_close(&c);
    app_wait_stat(&app, connections_now, 0);
}

static void session_and_normal_one(void *ctx) {
    session();
    alloc_fail_stop();
    expect_alive();
}

static void test_no_memory_in_session(void **state) {
    assert_true(alloc_fail_each(session_and_normal_one, NULL) > 10);
}

/* When bufferevent_socket_new cannot register its output callback it does not say so, and output waits for
 * ever: the stall limit ends it. */
static int start_one_loop_hasty(void **state) {
    app_init(&app);
    app.config.stall_ms = 200;
    app_start(&app);
    return 0;
}

static int start_one_loop(void **state) {
    start_with(1, 100);
    return 0;
}

/* --- the end --- */

static bool refuses_connections(void) {
    struct client c;
    struct sockaddr_in a = {.sin_family = AF_INET, .sin_port = htons(server_port(app.server))};
    a.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    connect_later(&c);
    bool refused = connect(c.fd, (struct sockaddr *)&a, sizeof a) && errno == ECONNREFUSED;
    client_close(&c);
    return refused;
}

static void test_drain(void **state) {
    struct client idle, waiting, streaming, arriving;
    struct buf head = BUF_INIT;
    start(NULL);
    client_open(&idle, &app);
    expect_hello(&idle);
    client_open(&waiting, &app);
    client_get(&waiting, "/wait");
    client_open(&streaming, &app);
    client_get(&streaming, "/stream");
    app_wait(&app, &app.n_held, 2);
    client_open(&arriving, &app);
    client_puts(&arriving, "POST /p HTTP/1.1\r\nHost: h\r\nContent-Length: 2\r\n\r\n");
    usleep(20000);

    server_drain(app.server, PATIENCE_MS);
    assert_true(server_draining(app.server));
    client_wait_end(&idle); /* at once */
    for (int left_ms = PATIENCE_MS; !refuses_connections() && left_ms > 0; left_ms -= 5) usleep(5000);
    assert_true(refuses_connections());
    client_puts(&arriving, "ok"); /* what has begun may finish */
    assert_int_equal(client_response(&arriving, &head, NULL, false), 200);
    assert_non_null(strstr(head.data, "Connection: close\r\n"));
    client_wait_end(&arriving);
    app_finish_held(&app);
    assert_int_equal(client_response(&waiting, &head, NULL, false), 200);
    assert_non_null(strstr(head.data, "Connection: close\r\n"));
    client_wait_end(&waiting);
    assert_true(client_expect(&streaming, "0\r\n\r\n"));
    client_wait_end(&streaming);
    assert_int_equal(app_get(&app, &app.n_gone), 0);
    app_stop(&app);
    client_close(&idle);
    client_close(&arriving);
    client_close(&waiting);
    client_close(&streaming);
    buf_free(&head);
}

static void test_drain_by_force(void **state) {
    struct client c[20];
    start(NULL);
    for (size_t i = 0; i < 20; i++) {
        client_open(&c[i], &app);
        client_get(&c[i], i % 2 ? "/wait" : "/stream");
    }
    app_wait(&app, &app.n_held, 20);
    server_drain(app.server, PATIENCE_MS);
    server_drain(app.server, 100); /* may only shorten */
    server_drain(app.server, PATIENCE_MS);
    app_wait(&app, &app.n_gone, 20);
    assert_int_equal(app.last_gone, GONE_SHUTDOWN);
    for (size_t i = 0; i < 20; i++) {
        client_wait_end(&c[i]);
        client_close(&c[i]);
    }
    app_stop(&app);
}

/* An answer already handed over is still delivered. */
static void test_drain_delivers(void **state) {
    struct client c;
    struct buf body = BUF_INIT;
    start(NULL);
    client_open(&c, &app);
    client_get(&c, "/big?30000000");
    app_wait(&app, &app.n_requests, 1);
    server_drain(app.server, PATIENCE_MS);
    usleep(50000);
    assert_int_equal(client_response(&c, NULL, &body, false), 200);
    assert_int_equal(body.len, 30000000);
    client_wait_end(&c);
    app_stop(&app);
    client_close(&c);
    buf_free(&body);
}

/* Closed by force while its own closing is already due. */
static void overrun_and_drain(struct app *a, void *arg) {
    static const char block[65536] = "";
    while (!exchange_stream_write(a->held[0], block, sizeof block)) {}
    server_drain(a->server, 0);
}

static void test_closed_twice(void **state) {
    struct client c;
    start_with(1, 100);
    client_open(&c, &app);
    client_get(&c, "/stream");
    app_wait(&app, &app.n_held, 1);
    app_on_loop(&app, 0, overrun_and_drain, NULL);
    app_wait(&app, &app.n_gone, 1);
    client_wait_end(&c);
    client_close(&c);
    app_stop(&app);
}

/* A user that still works on an exchange after the client was cut off: the stop waits for it. */
static struct exchange *kept;

static void keep_on_gone(void *user, struct exchange *x, enum exchange_gone why) {
    kept = x;
}

static void release_kept(struct loop *loop, struct loop_node *node) {
    exchange_release(kept);
}

static void *stop_server(void *arg) {
    server_stop(app.server);
    return NULL;
}

static void test_stop_waits_for_release(void **state) {
    struct client c;
    pthread_t stopper;
    struct loop_node node = {.run = release_kept};
    app_init(&app);
    app.config.callbacks.on_gone = keep_on_gone;
    app_start(&app);
    client_open(&c, &app);
    client_get(&c, "/wait");
    app_wait(&app, &app.n_held, 1);
    pthread_create(&stopper, NULL, stop_server, NULL);
    client_wait_end(&c); /* cut */
    usleep(100000);
    assert_string_equal(exchange_path(app.held[0]), "/wait"); /* still there */
    app.n_held = 0;
    loop_post(server_loop(app.server, 0), &node);
    pthread_join(stopper, NULL);
    loop_post(server_loop(app.server, 0), &node); /* never run, harmless */
    app_stop(&app);
    client_close(&c);
}

int main(void) {
    event_set_mem_functions(event_malloc, event_realloc, free);
#define WITH(setup, test) cmocka_unit_test_setup_teardown(test, setup, stop)
    const struct CMUnitTest tests[] = {
        WITH(start, test_thousand_idle_thousand_streams),
        WITH(start, test_wild_clients),
        WITH(start_ten, test_connection_limit),
        WITH(start_one_loop, test_no_descriptors),
        WITH(start_one_loop, test_spare_descriptor_is_taken),
        cmocka_unit_test(test_no_memory_at_start),
        WITH(start_one_loop_hasty, test_no_memory_in_session),
        cmocka_unit_test(test_drain),
        cmocka_unit_test(test_drain_by_force),
        cmocka_unit_test(test_stop_waits_for_release),
        cmocka_unit_test(test_drain_delivers),
        cmocka_unit_test(test_closed_twice),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
