/* TLS: round trips, clients that leave, and what is wrong with certificate files. */
#include "util_net.h"

#include <openssl/err.h>
#include <openssl/pem.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

static struct app app;
static SSL_CTX *client_ctx;
static char cert_path[] = "/tmp/quire-cert-XXXXXX", key_path[] = "/tmp/quire-key-XXXXXX";

static int setup(void **state) {
    make_certificate(cert_path, key_path);
    client_ctx = SSL_CTX_new(TLS_client_method());
    SSL_CTX_load_verify_locations(client_ctx, cert_path, NULL);
    SSL_CTX_set_verify(client_ctx, SSL_VERIFY_PEER, NULL); /* that it is our certificate */
    return 0;
}

static int teardown(void **state) {
    SSL_CTX_free(client_ctx);
    unlink(cert_path);
    unlink(key_path);
    return 0;
}

static void configure(void) {
    app_init(&app);
    app.config.tls_cert_file = cert_path;
    app.config.tls_key_file = key_path;
}

static int start(void **state) {
    configure();
    app.config.body_bytes = 4 << 20;
    app.config.n_loops = 2;
    app_start(&app);
    return 0;
}

static int start_hasty(void **state) {
    configure();
    app.config.head_ms = 200;
    app.config.idle_ms = 400;
    app.config.stall_ms = 400;
    app.config.linger_ms = 200;
    app_start(&app);
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
    client_open_tls(&c, &app, client_ctx);
    expect_hello(&c);
    client_close(&c);
}

static void test_round_trip(void **state) {
    enum { SIZE = 3 << 20 };
    static const int versions[] = {TLS1_2_VERSION, TLS1_3_VERSION};
    for (size_t v = 0; v < 2; v++) {
        struct client c;
        SSL_CTX_set_min_proto_version(client_ctx, versions[v]);
        SSL_CTX_set_max_proto_version(client_ctx, versions[v]);
        client_open_tls(&c, &app, client_ctx);
        for (int i = 0; i < 50; i++) expect_hello(&c);

        char *data = malloc(SIZE);
        for (size_t i = 0; i < SIZE; i++) data[i] = (char)('a' + i % 26);
        struct buf body = BUF_INIT;
        char head[96];
        snprintf(head, sizeof head, "POST /echo HTTP/1.1\r\nHost: h\r\nContent-Length: %d\r\n\r\n", SIZE);
        client_puts(&c, head);
        assert_true(client_send(&c, data, SIZE));
        assert_int_equal(client_response(&c, NULL, &body, false), 200);
        assert_int_equal(body.len, SIZE + strlen("POST /echo?(none) "));
        assert_memory_equal(body.data + body.len - SIZE, data, SIZE);
        buf_free(&body);
        free(data);

        client_get(&c, "/stream");
        assert_true(client_expect(&c, "6\r\nfirst\n\r\n"));
        app_wait(&app, &app.n_held, 1);
        app_write_held(&app, "second\n");
        assert_true(client_expect(&c, "7\r\nsecond\n\r\n"));
        app_finish_held(&app);
        assert_true(client_expect(&c, "0\r\n\r\n"));
        client_puts(&c, "GET /hello HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n");
        assert_int_equal(client_response(&c, NULL, NULL, false), 200);
        client_wait_end(&c);
        assert_int_equal(SSL_get_shutdown(c.ssl) & SSL_RECEIVED_SHUTDOWN,
                         SSL_RECEIVED_SHUTDOWN); /* a clean end */
        client_close(&c);
    }
    SSL_CTX_set_min_proto_version(client_ctx, 0);
    SSL_CTX_set_max_proto_version(client_ctx, 0);
    app_wait_stat(&app, tls_failures, 0);
    app_wait_stat(&app, connections_now, 0);
}

/* Queued or streaming; with close_notify, with a bare FIN, with RST. */
static void test_leaves(void **state) {
    size_t n_gone = 0;
    for (int streaming = 0; streaming < 2; streaming++)
        for (int how = 0; how < 3; how++) {
            struct client c;
            client_open_tls(&c, &app, client_ctx);
            client_get(&c, streaming ? "/stream" : "/wait");
            if (streaming) assert_true(client_expect(&c, "first\n"));
            app_wait(&app, &app.n_held, 1);
            if (how == 0) SSL_shutdown(c.ssl);
            if (how == 2) client_reset(&c);
            if (how == 1) client_close(&c);
            app_wait(&app, &app.n_gone, ++n_gone);
            assert_int_equal(app.last_gone, GONE_CLIENT);
            if (how == 0) client_close(&c);
        }
    app_wait_stat(&app, connections_now, 0);
    expect_alive();
}

static void test_slow_reader(void **state) {
    struct client c;
    client_open_tls(&c, &app, client_ctx);
    client_get(&c, "/push");
    app_wait(&app, &app.n_gone, 1);
    assert_int_equal(app.last_gone, GONE_OVERRUN);
    client_close(&c);
    client_open_tls(&c, &app, client_ctx);
    client_get(&c, "/pump");
    app_wait(&app, &app.n_gone, 2);
    assert_int_equal(app.last_gone, GONE_STALLED);
    assert_true(app.max_pending_bytes <= app.config.soft_bytes + 8192 + 16);
    client_close(&c);

    client_open_tls(&c, &app, client_ctx);
    client_get(&c, "/pump");
    for (size_t got = 0; got < 5 << 20; got += c.in.len) {
        buf_clear(&c.in);
        assert_true(client_fill(&c));
    }
    assert_true(app_get(&app, &app.n_writable) > 10);
    client_close(&c);
    app_wait(&app, &app.n_gone, 3);
}

static void test_large_body_refused(void **state) {
    enum { SIZE = 20 << 20 };
    char *data = calloc(1, SIZE), head[96];
    struct client c;
    client_open_tls(&c, &app, client_ctx);
    snprintf(head, sizeof head, "POST /echo HTTP/1.1\r\nHost: h\r\nContent-Length: %d\r\n\r\n", SIZE);
    client_puts(&c, head);
    assert_true(client_send(&c, data, SIZE));
    assert_int_equal(client_response(&c, NULL, NULL, false), 413);
    client_wait_end(&c);
    client_close(&c);
    free(data);
    app_wait_stat(&app, connections_now, 0);
}

/* --- handshakes that fail --- */

static bool handshake_fails(SSL_CTX *ctx) {
    struct client c;
    client_open(&c, &app);
    c.ssl = SSL_new(ctx);
    SSL_set_fd(c.ssl, c.fd);
    bool failed = SSL_connect(c.ssl) != 1;
    ERR_clear_error();
    client_close(&c);
    return failed;
}

static void test_protocols(void **state) {
    SSL_CTX *ctx = SSL_CTX_new(TLS_client_method());
    struct client c;
    const unsigned char *chosen;
    unsigned n;
    SSL_CTX_set_alpn_protos(ctx, (const unsigned char *)"\2h2\x08http/1.1", 12);
    client_open_tls(&c, &app, ctx);
    SSL_get0_alpn_selected(c.ssl, &chosen, &n);
    assert_int_equal(n, 8);
    assert_memory_equal(chosen, "http/1.1", 8);
    client_close(&c);
    SSL_CTX_set_alpn_protos(ctx, (const unsigned char *)"\2h2", 3);
    assert_true(handshake_fails(ctx));
    SSL_CTX_free(ctx);

    ctx = SSL_CTX_new(TLS_client_method());
    SSL_CTX_set_security_level(ctx, 0); /* so that the client would */
    SSL_CTX_set_min_proto_version(ctx, TLS1_VERSION);
    SSL_CTX_set_max_proto_version(ctx, TLS1_1_VERSION);
    assert_true(handshake_fails(ctx));
    SSL_CTX_free(ctx);

    client_open(&c, &app); /* plain HTTP */
    client_get(&c, "/hello");
    client_wait_end(&c);
    assert_null(c.in.data ? strstr(c.in.data, "200 OK") : NULL);
    client_close(&c);
    app_wait_stat(&app, tls_failures, 3);
    app_wait_stat(&app, requests, 0);
    expect_alive();
}

static void test_slow_handshake(void **state) {
    struct client c;
    client_open(&c, &app);
    client_puts(&c, "\x16\x03\x01\x01");
    client_wait_end(&c);
    app_wait_stat(&app, tls_failures, 1);
    client_close(&c);
    client_open_tls(&c, &app, client_ctx);
    client_wait_end(&c);
    app_wait_stat(&app, idle_timeouts, 1);
    client_close(&c);
}

static void test_limit_over_tls(void **state) {
    struct client in, out;
    configure();
    app.config.max_connections = 1;
    app_start(&app);
    client_open_tls(&in, &app, client_ctx);
    expect_hello(&in);
    client_open_tls(&out, &app, client_ctx);
    assert_int_equal(client_response(&out, NULL, NULL, false), 503);
    client_close(&out);
    client_close(&in);
    app_stop(&app);
}

/* --- files --- */

static void expect_error(const char *cert, const char *key, const char *param, const char *text) {
    struct server *server = NULL;
    struct error err = {0};
    configure();
    app.config.tls_cert_file = cert;
    app.config.tls_key_file = key;
    assert_true(server_start(&server, &app.config, &err) < 0);
    assert_string_equal(err.param, param);
    if (!strstr(err.text, text)) fail_msg("\"%s\" is not in \"%s\"", text, err.text);
    print_message("%s\n", err.text);
    assert_int_equal(ERR_peek_error(), 0);
}

static void test_files(void **state) {
    char other_cert[] = "/tmp/quire-cert-XXXXXX", other_key[] = "/tmp/quire-key-XXXXXX";
    char locked_key[] = "/tmp/quire-key-XXXXXX";
    make_certificate(other_cert, other_key);
    FILE *f = fopen(key_path, "r");
    EVP_PKEY *key = PEM_read_PrivateKey(f, NULL, NULL, NULL);
    fclose(f);
    f = fdopen(mkstemp(locked_key), "w");
    PEM_write_PrivateKey(f, key, EVP_aes_128_cbc(), NULL, 0, NULL, (void *)"secret");
    fclose(f);
    EVP_PKEY_free(key);

    expect_error("/nowhere/cert.pem", key_path, "tls_cert_file", "No such file");
    expect_error(cert_path, "/nowhere/key.pem", "tls_key_file", "No such file");
    expect_error("/dev/null", key_path, "tls_cert_file", "no PEM certificate");
    expect_error(cert_path, "/dev/null", "tls_key_file", "no PEM private key");
    expect_error(cert_path, cert_path, "tls_key_file", "no PEM private key");
    expect_error(key_path, key_path, "tls_cert_file", "no PEM certificate");
    expect_error(cert_path, other_key, "tls_key_file", "does not belong");
    expect_error(cert_path, locked_key, "tls_key_file", "encrypted");
    expect_error("/tmp", key_path, "tls_cert_file", "no PEM certificate");
    unlink(other_cert);
    unlink(other_key);
    unlink(locked_key);
}

int main(void) {
#define WITH(start, test) cmocka_unit_test_setup_teardown(test, start, stop)
    const struct CMUnitTest tests[] = {
        WITH(start, test_round_trip),          WITH(start, test_leaves),
        WITH(start_hasty, test_slow_reader),   WITH(start, test_large_body_refused),
        WITH(start, test_protocols),           WITH(start_hasty, test_slow_handshake),
        cmocka_unit_test(test_limit_over_tls), cmocka_unit_test(test_files),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
