/* Clients that leave, stall, flood or dawdle: noticed, bounded, and nobody else waits. */
#include "util_net.h"

#include "base/clock.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

static struct app app;

static int start(void **state) {
    app_init(&app);
    app_start(&app);
    return 0;
}

/* Limits small enough to run into. */
static int start_hasty(void **state) {
    app_init(&app);
    app.config.head_ms = app.config.body_ms = 200;
    app.config.idle_ms = 300;
    app.config.stall_ms = 400;
    app.config.linger_ms = 200;
    app_start(&app);
    return 0;
}

static int start_patient_linger(void **state) {
    app_init(&app);
    app.config.linger_ms = 60000;
    app.config.linger_bytes = 100000;
    app_start(&app);
    return 0;
}

static int stop(void **state) {
    app_stop(&app);
    return 0;
}

static void expect_alive(void) {
    struct client c;
    struct buf body = BUF_INIT;
    client_open(&c, &app);
    client_get(&c, "/hello");
    assert_int_equal(client_response(&c, NULL, &body, false), 200);
    assert_string_equal(body.data, "hello");
    buf_free(&body);
    client_close(&c);
}

enum leave { FIN, RST, HALF, N_LEAVES };

static void leave(struct client *c, enum leave how) {
    if (how == FIN)
        client_close(c);
    else if (how == RST)
        client_reset(c);
    else
        shutdown(c->fd, SHUT_WR);
}

/* Queued or in the middle of a stream, by FIN, RST or half-close; on_gone comes once and promptly. */
static void test_leaves(void **state) {
    static const char *const paths[] = {"/wait", "/stream"};
    size_t n_gone = 0;
    for (size_t p = 0; p < 2; p++)
        for (enum leave how = FIN; how < N_LEAVES; how++) {
            struct client c;
            client_open(&c, &app);
            client_get(&c, paths[p]);
            if (p) assert_true(client_expect(&c, "first\n"));
            app_wait(&app, &app.n_held, 1);
            leave(&c, how);
            uint64_t left_us = clock_us();
            app_wait(&app, &app.n_gone, ++n_gone);
            print_message("%s: gone after %lu us\n", paths[p], (unsigned long)(clock_us() - left_us));
            assert_int_equal(app.last_gone, GONE_CLIENT);
            assert_string_equal(exchange_gone_name(app.last_gone), "client");
            if (how == HALF) client_wait_end(&c), client_close(&c);
        }
    app_wait_stat(&app, connections_now, 0);
    app_wait_stat(&app, gone, n_gone);
    assert_int_equal(app_get(&app, &app.n_held), 0);
    expect_alive();
}

/* Data of a next request waiting unread must not hide that the client left. */
static void test_leaves_behind_data(void **state) {
    for (enum leave how = FIN; how < N_LEAVES; how++) {
        for (size_t more = 1000; more <= 1000000; more *= 1000) { /* below and above pipeline_bytes */
            char *data = malloc(more);
            memset(data, 'a', more);
            size_t n_gone = app_get(&app, &app.n_gone);
            struct client c;
            client_open(&c, &app);
            client_get(&c, "/wait");
            app_wait(&app, &app.n_held, 1);
            assert_true(client_send(&c, data, more));
            leave(&c, how);
            app_wait(&app, &app.n_gone, n_gone + 1);
            if (how == HALF) client_close(&c);
            free(data);
        }
    }
    app_wait_stat(&app, connections_now, 0);
}

/* The answer is complete: a client that only shut its sending side down still gets it. */
static void test_half_close_after_request(void **state) {
    struct client c;
    struct buf body = BUF_INIT;
    client_open(&c, &app);
    client_get(&c, "/big?5000000");
    app_wait(&app, &app.n_requests, 1);
    shutdown(c.fd, SHUT_WR);
    assert_int_equal(client_response(&c, NULL, &body, false), 200);
    assert_int_equal(body.len, 5000000);
    client_wait_end(&c);
    assert_false(c.was_reset);
    buf_free(&body);
    client_close(&c);
    app_wait_stat(&app, gone, 0);
    app_wait_stat(&app, connections_now, 0);
}

static void test_leaves_within_request(void **state) {
    static const char *const begun[] = {"GET /he", "GET / HTTP/1.1\r\nHost:",
                                        "POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 1000000\r\n\r\nabc"};
    for (size_t i = 0; i < 3; i++)
        for (enum leave how = FIN; how < N_LEAVES; how++) {
            struct client c;
            client_open(&c, &app);
            client_puts(&c, begun[i]);
            usleep(2000);
            leave(&c, how);
            if (how == HALF) client_wait_end(&c), client_close(&c);
        }
    app_wait_stat(&app, connections_now, 0);
    app_wait_stat(&app, requests, 0); /* the user never knew */
    app_wait_stat(&app, gone, 0);
    app_wait_stat(&app, body_bytes_now, 0);
}

static size_t resident_kb(void) {
    long pages = 0;
    FILE *f = fopen("/proc/self/statm", "r");
    assert_int_equal(fscanf(f, "%*s %ld", &pages), 1);
    fclose(f);
    return (size_t)pages * (size_t)sysconf(_SC_PAGESIZE) / 1024;
}

/* 150 MB behind a request that is being served: never held, cut off at flood_bytes. */
static void test_flood(void **state) {
    enum { BLOCK = 1 << 20 };
    char *block = calloc(1, BLOCK);
    struct client c;
    client_open(&c, &app);
    client_get(&c, "/stream");
    app_wait(&app, &app.n_held, 1);
    size_t before_kb = resident_kb(), sent_mb = 0;
    while (sent_mb < 150 && client_send(&c, block, BLOCK)) sent_mb++;
    size_t grown_kb = resident_kb() - before_kb;
    print_message("%zu MB were sent, memory grew by %zu KB\n", sent_mb, grown_kb);
    app_wait(&app, &app.n_gone, 1);
    assert_int_equal(app.last_gone, GONE_FLOOD);
    assert_true(sent_mb < 40); /* flood_bytes and what the kernel buffers */
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
    assert_true(grown_kb < 8192);
#endif
    app_wait_stat(&app, floods, 1);
    client_close(&c);
    free(block);
    expect_alive();
}

/* Less than a flood is dropped, the running response is delivered, then the connection closes. */
static void test_excess_input(void **state) {
    size_t n = 1000000;
    char *data = calloc(1, n);
    struct client c;
    client_open(&c, &app);
    client_get(&c, "/stream");
    app_wait(&app, &app.n_held, 1);
    client_send(&c, data, n);
    usleep(50000);
    app_finish_held(&app);
    assert_true(client_expect(&c, "4\r\ndone\r\n0\r\n\r\n"));
    client_wait_end(&c);
    client_close(&c);
    free(data);
    app_wait_stat(&app, gone, 0);
}

/* --- output that nobody takes --- */

static void small_window(struct client *c) {
    int bytes = 4096;
    setsockopt(c->fd, SOL_SOCKET, SO_RCVBUF, &bytes, sizeof bytes);
}

/* A producer that respects backpressure holds little; one that does not is closed at the hard limit. */
static void test_slow_readers(void **state) {
    struct client pumped, pushed, reading;
    client_open(&pumped, &app);
    small_window(&pumped);
    client_open(&pushed, &app);
    small_window(&pushed);
    client_get(&pumped, "/pump");
    app_wait(&app, &app.n_held, 1);
    client_get(&pushed, "/push");
    app_wait(&app, &app.n_push_refused, 1);
    app_wait(&app, &app.n_gone, 1);
    assert_int_equal(app.last_gone, GONE_OVERRUN);
    app_wait_stat(&app, overruns, 1);

    expect_alive(); /* meanwhile */
    client_open(&reading, &app);
    client_get(&reading, "/pump");
    size_t got = 0;
    while (got < 20 << 20) {
        assert_true(client_fill(&reading));
        got += reading.in.len;
        buf_clear(&reading.in);
    }
    assert_true(app_get(&app, &app.n_writable) > 10);
    assert_true(app_get(&app, &app.max_pending_bytes) <= app.config.soft_bytes + 8192 + 16);
    client_close(&reading);
    app_wait(&app, &app.n_gone, 2);
    client_close(&pumped);
    app_wait(&app, &app.n_gone, 3);
    client_close(&pushed);
}

/* An event larger than the hard limit is no overrun as long as the stream was not congested. */
static void write_large(struct app *a, void *arg) {
    enum { SIZE = 3 << 20 };
    char *event = malloc(SIZE);
    memset(event, 'e', SIZE);
    event[SIZE - 1] = '\n';
    assert_int_equal(exchange_stream_write(a->held[0], event, SIZE), 0);
    assert_true(exchange_congested(a->held[0]));
    free(event);
}

static void test_large_event(void **state) {
    struct client c;
    client_open(&c, &app);
    client_get(&c, "/stream");
    app_wait(&app, &app.n_held, 1);
    app_on_loop(&app, 0, write_large, NULL);
    app_wait_stat(&app, overruns, 0);
    while (c.in.len < 3 << 20) assert_true(client_fill(&c));
    app_wait(&app, &app.n_writable, 1);
    app_finish_held(&app);
    assert_true(client_expect(&c, "done\r\n0\r\n\r\n"));
    client_close(&c);
}

static void test_stalled_reader(void **state) {
    struct client c;
    client_open(&c, &app);
    small_window(&c);
    client_get(&c, "/pump");
    app_wait(&app, &app.n_gone, 1);
    assert_int_equal(app.last_gone, GONE_STALLED);
    app_wait_stat(&app, stalls, 1);
    client_close(&c);

    client_open(&c, &app); /* a complete answer that is not taken: no on_gone, but closed as well */
    small_window(&c);
    client_get(&c, "/big?30000000");
    app_wait_stat(&app, stalls, 2);
    app_wait_stat(&app, connections_now, 0);
    app_wait_stat(&app, gone, 1);
    client_close(&c);
}

/* --- time-outs --- */

static void test_slow_requests(void **state) {
    struct client c;
    client_open(&c, &app);
    client_puts(&c, "GET / HTTP/1.1\r\nHost: h\r\nX: ");
    assert_int_equal(client_response(&c, NULL, NULL, false), 408); /* a line that never ends */
    client_wait_end(&c);
    client_close(&c);

    client_open(&c, &app);
    bool open = true;
    for (int i = 0; i < 200 && open; i++) { /* a byte at a time does not extend the head's time */
        open = client_puts(&c, i ? "x" : "GET /");
        usleep(10000);
        struct server_stats s;
        server_stats(app.server, &s);
        if (s.head_timeouts == 2) break;
    }
    app_wait_stat(&app, head_timeouts, 2);
    client_close(&c);

    client_open(&c, &app);
    client_puts(&c, "POST /p HTTP/1.1\r\nHost: h\r\nContent-Length: 5\r\n\r\nhe");
    assert_int_equal(client_response(&c, NULL, NULL, false), 408);
    app_wait_stat(&app, body_timeouts, 1);
    client_close(&c);

    client_open(&c, &app); /* a slow but steady body is fine */
    client_puts(&c, "POST /p HTTP/1.1\r\nHost: h\r\nContent-Length: 8\r\n\r\n");
    for (int i = 0; i < 8; i++) {
        usleep(50000);
        client_puts(&c, "x");
    }
    assert_int_equal(client_response(&c, NULL, NULL, false), 200);
    client_wait_end(&c); /* and then idles */
    app_wait_stat(&app, idle_timeouts, 1);
    client_close(&c);

    client_open(&c, &app); /* never says anything */
    client_wait_end(&c);
    assert_int_equal(c.in.len, 0);
    app_wait_stat(&app, idle_timeouts, 2);
    client_close(&c);

    client_open(&c, &app); /* none of these limits holds while the server is the one to act */
    client_get(&c, "/wait");
    app_wait(&app, &app.n_held, 1);
    usleep(1000000);
    app_finish_held(&app);
    assert_int_equal(client_response(&c, NULL, NULL, false), 200);
    client_close(&c);
}

static void test_linger_is_bounded(void **state) {
    enum { BLOCK = 65536 };
    char block[BLOCK] = "";
    struct client c;
    client_open(&c, &app);
    client_puts(&c, "POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 100000000000\r\n\r\n");
    size_t sent = 0;
    while (sent < (size_t)1 << 30 && client_send(&c, block, BLOCK)) sent += BLOCK;
    assert_true(sent < (size_t)1 << 30);
    client_close(&c);
    app_wait_stat(&app, connections_now, 0);
}

static void test_linger_ends(void **state) {
    struct client c;
    client_open(&c, &app);
    client_puts(&c, "GET /hello HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n");
    app_wait_stat(&app, requests, 1);
    app_wait_stat(&app, connections_now, 0); /* though the client never closes */
    client_close(&c);
}

/* --- cut streams --- */

static void abort_held(struct app *a, void *arg) {
    struct exchange *x = a->held[0];
    a->n_held = 0;
    exchange_stream_abort(x);
    assert_true(exchange_finished(x) && !exchange_gone(x));
    exchange_release(x);
}

static void test_abort(void **state) {
    struct client c;
    client_open(&c, &app);
    client_get(&c, "/stream");
    assert_true(client_expect(&c, "first\n"));
    app_wait(&app, &app.n_held, 1);
    app_on_loop(&app, 0, abort_held, NULL);
    client_wait_end(&c);
    assert_null(strstr(c.in.data, "0\r\n\r\n")); /* no last chunk */
    client_close(&c);

    client_open(&c, &app); /* without chunks only a reset tells */
    client_puts(&c, "GET /stream HTTP/1.0\r\n\r\n");
    assert_true(client_expect(&c, "first\n"));
    app_wait(&app, &app.n_held, 1);
    app_on_loop(&app, 0, abort_held, NULL);
    client_wait_end(&c);
    assert_true(c.was_reset);
    client_close(&c);

    client_open(&c, &app);
    client_get(&c, "/wait");
    app_wait(&app, &app.n_held, 1);
    app_on_loop(&app, 0, abort_held, NULL);
    assert_int_equal(client_response(&c, NULL, NULL, false), 500);
    client_close(&c);
}

int main(void) {
#define WITH(setup, test) cmocka_unit_test_setup_teardown(test, setup, stop)
    const struct CMUnitTest tests[] = {
        WITH(start, test_leaves),
        WITH(start, test_leaves_behind_data),
        WITH(start, test_half_close_after_request),
        WITH(start, test_leaves_within_request),
        WITH(start, test_flood),
        WITH(start, test_excess_input),
        WITH(start, test_slow_readers),
        WITH(start, test_large_event),
        WITH(start_hasty, test_stalled_reader),
        WITH(start_hasty, test_slow_requests),
        WITH(start_patient_linger, test_linger_is_bounded),
        WITH(start_hasty, test_linger_ends),
        WITH(start, test_abort),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
