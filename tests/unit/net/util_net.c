#include "util_net.h"

#include <arpa/inet.h>
#include <errno.h>
#include <openssl/err.h>
#include <openssl/pem.h>
#include <openssl/x509.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

/* --- application --- */

static void change(struct app *app, size_t *counter) {
    pthread_mutex_lock(&app->lock);
    ++*counter;
    pthread_cond_broadcast(&app->changed);
    pthread_mutex_unlock(&app->lock);
}

static void hold(struct app *app, struct exchange *x) {
    pthread_mutex_lock(&app->lock);
    assert_true(app->n_held < sizeof app->held / sizeof *app->held);
    app->held[app->n_held++] = x;
    pthread_cond_broadcast(&app->changed);
    pthread_mutex_unlock(&app->lock);
}

static void unhold(struct app *app, struct exchange *x) {
    pthread_mutex_lock(&app->lock);
    for (size_t i = 0; i < app->n_held; i++)
        if (app->held[i] == x) {
            app->held[i] = app->held[--app->n_held];
            break;
        }
    pthread_mutex_unlock(&app->lock);
}

static void reply(struct exchange *x, const char *text) {
    assert_int_equal(exchange_reply(x, 200, "text/plain", NULL, 0, text, strlen(text), NULL), 0);
    exchange_release(x);
}

static void begin(struct exchange *x) {
    const struct http_header headers[] = {{"Cache-Control", "no-cache"}};
    assert_int_equal(exchange_stream_begin(x, 200, "text/event-stream", headers, 1, NULL), 0);
}

static void pump(struct app *app, struct exchange *x) {
    static const char block[8192] = "pump";
    while (!exchange_congested(x) && !exchange_stream_write(x, block, sizeof block)) {}
    pthread_mutex_lock(&app->lock);
    size_t pending = exchange_pending_bytes(x);
    if (pending > app->max_pending_bytes) app->max_pending_bytes = pending;
    pthread_mutex_unlock(&app->lock);
}

static void push(struct app *app, struct exchange *x) {
    static const char block[65536] = "push";
    int rc;
    while (!(rc = exchange_stream_write(x, block, sizeof block))) {}
    assert_int_equal(rc, QUIRE_ELIMIT);
    assert_true(exchange_gone(x));
    assert_int_equal(exchange_stream_write(x, block, 1), QUIRE_ECANCELED);
    change(app, &app->n_push_refused);
}

static void echo(struct exchange *x) {
    struct buf b = BUF_INIT;
    struct http1_span body = exchange_body(x);
    assert_int_equal(body.data[body.n], '\0');
    const char *query = exchange_query(x);
    buf_printf(&b, "%s %s?%s ", http_method_name(exchange_method(x)), exchange_path(x),
               query ? query : "(none)");
    buf_append(&b, body.data, body.n);
    exchange_reply(x, 200, "text/plain", NULL, 0, b.data, b.len, NULL);
    assert_int_equal(exchange_reply(x, 200, NULL, NULL, 0, NULL, 0, NULL), QUIRE_ECANCELED); /* only once */
    exchange_drop_body(x);
    assert_int_equal(exchange_body(x).n, 0);
    exchange_release(x);
    buf_free(&b);
}

static void inject(struct exchange *x) {
    const struct http_header bad[] = {{"Location", "/a\r\nSet-Cookie: b"}};
    struct error err;
    assert_int_equal(exchange_reply(x, 200, NULL, bad, 1, NULL, 0, &err), QUIRE_EINVAL);
    assert_int_equal(exchange_stream_begin(x, 200, "text/\nhtml", NULL, 0, &err), QUIRE_EINVAL);
    reply(x, "refused");
}

static void show_stats(struct exchange *x) {
    struct exchange_stats s;
    char text[256];
    exchange_stats(x, &s);
    assert_true(s.first_byte_us && s.request_us >= s.first_byte_us && !s.response_us && !s.finished_us);
    snprintf(text, sizeof text, "id %lu conn_requests %lu in %lu peer %s", (unsigned long)exchange_id(x),
             (unsigned long)s.conn_requests, (unsigned long)s.conn_bytes_in, exchange_peer(x));
    exchange_reply(x, 200, "text/plain", NULL, 0, text, strlen(text), NULL);
    exchange_stats(x, &s);
    assert_true(s.status == 200 && s.body_bytes == strlen(text) && s.finished_us >= s.response_us &&
                s.response_us);
    exchange_release(x);
}

static void big(struct exchange *x) {
    size_t n = strtoul(exchange_query(x), NULL, 10);
    char *data = calloc(1, n + 1);
    exchange_reply(x, 200, "application/octet-stream", NULL, 0, data, n, NULL);
    exchange_release(x);
    free(data);
}

static void show_headers(struct exchange *x) {
    struct buf b = BUF_INIT;
    struct http_header h;
    for (size_t i = 0; i < exchange_n_headers(x); i++) {
        exchange_header_at(x, i, &h);
        buf_printf(&b, "%s=%s\n", h.name, h.value);
    }
    assert_string_equal(exchange_header(x, "HOST"), "localhost");
    assert_null(exchange_header(x, "Absent"));
    exchange_set_user(x, &b);
    assert_ptr_equal(exchange_user(x), &b);
    exchange_reply(x, 200, "text/plain", NULL, 0, b.data, b.len, NULL);
    exchange_release(x);
    buf_free(&b);
}

static void no_content(struct exchange *x) {
    assert_int_equal(exchange_reply(x, 204, NULL, NULL, 0, "a", 1, NULL), QUIRE_EINVAL);
    assert_int_equal(exchange_stream_begin(x, 204, NULL, NULL, 0, NULL), QUIRE_EINVAL);
    assert_int_equal(exchange_reply(x, 204, NULL, NULL, 0, NULL, 0, NULL), 0);
    exchange_release(x);
}

static void on_request(void *user, struct exchange *x) {
    struct app *app = user;
    const char *path = exchange_path(x);
    if (!strcmp(path, "/hello"))
        reply(x, "hello");
    else if (!strcmp(path, "/wait"))
        hold(app, x);
    else if (!strcmp(path, "/big"))
        big(x);
    else if (!strcmp(path, "/drop"))
        exchange_release(x);
    else if (!strcmp(path, "/inject"))
        inject(x);
    else if (!strcmp(path, "/stats"))
        show_stats(x);
    else if (!strcmp(path, "/stream")) {
        begin(x);
        exchange_stream_write(x, "first\n", 6);
        hold(app, x);
    } else if (!strcmp(path, "/pump")) {
        begin(x);
        hold(app, x);
        pump(app, x);
    } else if (!strcmp(path, "/push")) {
        begin(x);
        hold(app, x);
        push(app, x);
    } else if (!strcmp(path, "/headers")) {
        show_headers(x);
    } else if (!strcmp(path, "/204")) {
        no_content(x);
    } else
        echo(x);
    change(app, &app->n_requests);
}

static void on_gone(void *user, struct exchange *x, enum exchange_gone why) {
    struct app *app = user;
    assert_true(exchange_gone(x) && !exchange_finished(x));
    assert_int_equal(exchange_stream_write(x, "a", 1), QUIRE_ECANCELED);
    unhold(app, x);
    exchange_release(x);
    pthread_mutex_lock(&app->lock);
    app->last_gone = why;
    pthread_mutex_unlock(&app->lock);
    change(app, &app->n_gone);
}

static void on_writable(void *user, struct exchange *x) {
    struct app *app = user;
    assert_true(exchange_pending_bytes(x) <= app->config.soft_bytes);
    if (!strcmp(exchange_path(x), "/pump")) pump(app, x);
    change(app, &app->n_writable);
}

void app_init(struct app *app) {
    memset(app, 0, sizeof *app);
    pthread_mutex_init(&app->lock, NULL);
    pthread_cond_init(&app->changed, NULL);
    server_config_init(&app->config);
    app->config.callbacks =
        (struct server_callbacks){.on_request = on_request, .on_gone = on_gone, .on_writable = on_writable};
    app->config.user = app;
}

void app_start(struct app *app) {
    struct error err;
    if (server_start(&app->server, &app->config, &err)) fail_msg("server_start: %s", err.text);
}

void app_stop(struct app *app) {
    struct server_stats stats;
    server_stop(app->server);
    server_stats(app->server, &stats);
    assert_int_equal(stats.connections_now, 0);
    assert_int_equal(stats.requests_now, 0);
    assert_int_equal(stats.body_bytes_now, 0);
    assert_int_equal(app->n_held, 0);
    server_free(app->server);
    pthread_mutex_destroy(&app->lock);
    pthread_cond_destroy(&app->changed);
}

struct call {
    struct loop_node node;
    struct app *app;
    void (*fn)(struct app *app, void *arg);
    void *arg;
    size_t done;
};

static void run_call(struct loop *loop, struct loop_node *node) {
    struct call *call = (struct call *)node;
    call->fn(call->app, call->arg);
    change(call->app, &call->done);
}

void app_on_loop(struct app *app, size_t i, void (*fn)(struct app *app, void *arg), void *arg) {
    struct call call = {.node.run = run_call, .app = app, .fn = fn, .arg = arg};
    loop_post(server_loop(app->server, i), &call.node);
    app_wait(app, &call.done, 1);
}

struct held_call {
    struct loop *loop;
    const char *text; /* NULL: finish */
};

static void do_held(struct app *app, void *arg) {
    struct held_call *call = arg;
    struct exchange **mine = malloc(sizeof app->held);
    size_t n = 0;
    pthread_mutex_lock(&app->lock);
    for (size_t i = 0; i < app->n_held; i++)
        if (exchange_loop(app->held[i]) == call->loop) mine[n++] = app->held[i];
    pthread_mutex_unlock(&app->lock);
    for (size_t i = 0; i < n; i++) {
        if (call->text) {
            assert_int_equal(exchange_stream_write(mine[i], call->text, strlen(call->text)), 0);
            continue;
        }
        unhold(app, mine[i]);
        if (!strcmp(exchange_path(mine[i]), "/wait"))
            exchange_reply(mine[i], 200, "text/plain", NULL, 0, "done", 4, NULL);
        else
            exchange_stream_end(mine[i], "done", 4);
        assert_true(exchange_finished(mine[i]));
        exchange_release(mine[i]);
    }
    free(mine);
}

static void each_loop(struct app *app, const char *text) {
    for (size_t i = 0; i < server_n_loops(app->server); i++) {
        struct held_call call = {server_loop(app->server, i), text};
        app_on_loop(app, i, do_held, &call);
    }
}

void app_finish_held(struct app *app) {
    each_loop(app, NULL);
}
void app_write_held(struct app *app, const char *text) {
    each_loop(app, text);
}

size_t app_get(struct app *app, const size_t *counter) {
    pthread_mutex_lock(&app->lock);
    size_t value = *counter;
    pthread_mutex_unlock(&app->lock);
    return value;
}

void app_wait(struct app *app, const size_t *counter, size_t value) {
    struct timespec until;
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_sec += PATIENCE_MS / 1000;
    pthread_mutex_lock(&app->lock);
    while (*counter < value && !pthread_cond_timedwait(&app->changed, &app->lock, &until)) {}
    size_t got = *counter;
    pthread_mutex_unlock(&app->lock);
    if (got < value) fail_msg("waited for %zu, got %zu", value, got);
}

/* --- client --- */

void client_open(struct client *c, const struct app *app) {
    struct sockaddr_in a = {.sin_family = AF_INET, .sin_port = htons(server_port(app->server))};
    const struct timeval patience = {.tv_sec = PATIENCE_MS / 1000};
    a.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    memset(c, 0, sizeof *c);
    c->fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_true(c->fd >= 0);
    setsockopt(c->fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
    setsockopt(c->fd, SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof patience);
    if (connect(c->fd, (struct sockaddr *)&a, sizeof a)) fail_msg("connect: %s", strerror(errno));
}

void client_open_tls(struct client *c, const struct app *app, SSL_CTX *ctx) {
    client_open(c, app);
    c->ssl = SSL_new(ctx);
    SSL_set_fd(c->ssl, c->fd);
    if (SSL_connect(c->ssl) != 1) fail_msg("TLS: %s", ERR_reason_error_string(ERR_peek_last_error()));
}

bool client_send(struct client *c, const void *data, size_t n) {
    for (const char *at = data; n;) {
        ssize_t sent =
            c->ssl ? SSL_write(c->ssl, at, n < 65536 ? (int)n : 65536) : send(c->fd, at, n, MSG_NOSIGNAL);
        if (sent <= 0) return false;
        at += sent;
        n -= (size_t)sent;
    }
    return true;
}

bool client_puts(struct client *c, const char *text) {
    return client_send(c, text, strlen(text));
}

void client_get(struct client *c, const char *path) {
    char text[512];
    snprintf(text, sizeof text, "GET %s HTTP/1.1\r\nHost: localhost\r\n\r\n", path);
    assert_true(client_puts(c, text));
}

bool client_fill(struct client *c) {
    char piece[65536];
    if (c->ended) return false;
    ssize_t n = c->ssl ? SSL_read(c->ssl, piece, sizeof piece) : recv(c->fd, piece, sizeof piece, 0);
    if (n < 0 && !c->ssl && (errno == EAGAIN || errno == EWOULDBLOCK))
        fail_msg("waited too long for the server");
    if (n > 0)
        buf_append(&c->in, piece, (size_t)n);
    else
        c->ended = true;
    c->was_reset = n < 0;
    return n > 0;
}

static void consume(struct client *c, size_t n) {
    memmove(c->in.data, c->in.data + n, c->in.len - n + 1);
    c->in.len -= n;
}

bool client_expect(struct client *c, const char *text) {
    for (;;) {
        char *at = c->in.data ? strstr(c->in.data, text) : NULL;
        if (at) {
            consume(c, (size_t)(at - c->in.data) + strlen(text));
            return true;
        }
        if (!client_fill(c)) return false;
    }
}

unsigned client_response(struct client *c, struct buf *head, struct buf *body, bool no_body) {
    char *end;
    while (!c->in.data || !(end = strstr(c->in.data, "\r\n\r\n")))
        if (!client_fill(c)) return 0;
    size_t head_n = (size_t)(end - c->in.data) + 4, body_n = 0;
    unsigned status = (unsigned)atoi(c->in.data + sizeof "HTTP/1.1");
    const char *length = strstr(c->in.data, "Content-Length: ");
    if (length && length < end && !no_body) body_n = strtoul(length + 16, NULL, 10);
    while (c->in.len < head_n + body_n)
        if (!client_fill(c)) fail_msg("the response is cut");
    if (head) buf_clear(head), buf_append(head, c->in.data, head_n);
    if (body) buf_clear(body), buf_append(body, c->in.data + head_n, body_n);
    consume(c, head_n + body_n);
    return status;
}

void client_wait_end(struct client *c) {
    while (client_fill(c)) {}
}

void client_close(struct client *c) {
    if (c->ssl) SSL_free(c->ssl);
    if (c->fd >= 0) close(c->fd);
    buf_free(&c->in);
    *c = (struct client){.fd = -1};
}

void client_reset(struct client *c) {
    const struct linger at_once = {.l_onoff = 1};
    setsockopt(c->fd, SOL_SOCKET, SO_LINGER, &at_once, sizeof at_once);
    client_close(c);
}

/* --- certificate --- */

static FILE *temporary(char *path) {
    int fd = mkstemp(path);
    assert_true(fd >= 0);
    return fdopen(fd, "w");
}

void make_certificate(char *cert_path, char *key_path) {
    EVP_PKEY *key = EVP_EC_gen("P-256");
    X509 *cert = X509_new();
    ASN1_INTEGER_set(X509_get_serialNumber(cert), 1);
    X509_set_version(cert, 2);
    X509_gmtime_adj(X509_getm_notBefore(cert), -3600);
    X509_gmtime_adj(X509_getm_notAfter(cert), 86400);
    X509_set_pubkey(cert, key);
    X509_NAME *name = X509_get_subject_name(cert);
    X509_NAME_add_entry_by_txt(name, "CN", MBSTRING_ASC, (const unsigned char *)"localhost", -1, -1, 0);
    X509_set_issuer_name(cert, name);
    assert_true(X509_sign(cert, key, EVP_sha256()) > 0);
    FILE *f = temporary(cert_path);
    PEM_write_X509(f, cert);
    fclose(f);
    f = temporary(key_path);
    PEM_write_PrivateKey(f, key, NULL, NULL, 0, NULL, NULL);
    fclose(f);
    X509_free(cert);
    EVP_PKEY_free(key);
}
