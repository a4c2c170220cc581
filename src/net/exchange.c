#include "net/internal.h"

#include "base/clock.h"
#include "base/error.h"
#include "base/size.h"

#include <stdlib.h>
#include <string.h>

/* Room for a body at first; more as it comes, so that a Content-Length alone reserves little. */
enum { FIRST_BODY_BYTES = 65536 };

const char *exchange_gone_name(enum exchange_gone why) {
    static const char *const names[] = {"client", "stalled", "overrun", "flood", "shutdown", "memory"};
    return names[why];
}

static struct counters *counters(const struct exchange *x) {
    return &x->loop->server->counters;
}

/* --- before the user has it --- */

struct exchange *exchange_new(struct conn *c, const struct reader *r) {
    const struct http1_head *head = &r->parser.head;
    struct exchange *x = malloc(sizeof *x + head->text_bytes);
    if (!x) return NULL;
    *x = (struct exchange){.conn = c, .loop = c->loop, .head = *head};
    memcpy(x->text, r->text, head->text_bytes);
    memcpy(x->peer, c->peer, sizeof x->peer);
    x->id = atomic_fetch_add(&c->loop->server->next_id, 1);
    x->stats.first_byte_us = r->first_byte_us;
    if (head->content_length && !buf_reserve(&x->body, size_min(head->content_length, FIRST_BODY_BYTES))) {
        free(x);
        return NULL;
    }
    c->loop->n_exchanges++;
    return x;
}

unsigned exchange_take(struct exchange *x, struct http1_span fragment) {
    uint64_t held = atomic_fetch_add(&counters(x)->body_bytes_now, fragment.n) + fragment.n;
    buf_append(&x->body, fragment.data, fragment.n);
    if (buf_ok(&x->body) && held <= x->loop->server->config.body_total_bytes) return 0;
    if (!buf_ok(&x->body)) count_sub(&counters(x)->body_bytes_now, fragment.n); /* not part of body.len */
    return 503;
}

void exchange_deliver(struct exchange *x) {
    const struct server_config *cfg = &x->loop->server->config;
    x->delivered = true;
    x->stats.request_us = clock_us();
    x->stats.conn_requests = x->conn->n_requests;
    count_add(&counters(x)->requests, 1);
    count_add(&counters(x)->requests_now, 1);
    cfg->callbacks.on_request(cfg->user, x);
}

void exchange_drop_body(struct exchange *x) {
    count_sub(&counters(x)->body_bytes_now, x->body.len);
    buf_free(&x->body);
}

void exchange_free(struct exchange *x) {
    exchange_drop_body(x);
    x->loop->n_exchanges--;
    free(x);
}

/* --- the end --- */

static void detach(struct exchange *x) {
    x->stats.finished_us = clock_us();
    x->stats.conn_bytes_in = x->conn->bytes_in;
    x->stats.conn_bytes_out = x->conn->bytes_out;
    x->conn = NULL;
    if (x->delivered) count_sub(&counters(x)->requests_now, 1);
}

void exchange_lost(struct exchange *x, enum exchange_gone why) {
    const struct server_config *cfg = &x->loop->server->config;
    detach(x);
    x->gone = true;
    if (!x->delivered) {
        exchange_free(x);
        return;
    }
    count_add(&counters(x)->gone, 1);
    if (cfg->callbacks.on_gone) cfg->callbacks.on_gone(cfg->user, x, why);
}

static void finish(struct exchange *x) {
    struct conn *c = x->conn;
    x->finished = true;
    detach(x);
    conn_response_done(c);
}

/* --- the request's data --- */

uint64_t exchange_id(const struct exchange *x) {
    return x->id;
}
enum http_method exchange_method(const struct exchange *x) {
    return x->head.method;
}
const char *exchange_path(const struct exchange *x) {
    return x->text + x->head.path;
}
const char *exchange_query(const struct exchange *x) {
    return x->head.query ? x->text + x->head.query : NULL;
}
const char *exchange_header(const struct exchange *x, const char *name) {
    return http1_field(&x->head, x->text, name);
}
size_t exchange_n_headers(const struct exchange *x) {
    return x->head.n_fields;
}
void exchange_header_at(const struct exchange *x, size_t i, struct http_header *out) {
    out->name = x->text + x->head.fields[i].name;
    out->value = x->text + x->head.fields[i].value;
}
struct http1_span exchange_body(const struct exchange *x) {
    return (struct http1_span){.data = x->body.data ? x->body.data : "", .n = x->body.len};
}
const char *exchange_peer(const struct exchange *x) {
    return x->peer;
}
struct loop *exchange_loop(const struct exchange *x) {
    return x->loop;
}

void exchange_set_user(struct exchange *x, void *user) {
    x->user = user;
}
void *exchange_user(const struct exchange *x) {
    return x->user;
}

void exchange_stats(const struct exchange *x, struct exchange_stats *out) {
    *out = x->stats;
    if (!x->conn) return;
    out->conn_bytes_in = x->conn->bytes_in;
    out->conn_bytes_out = x->conn->bytes_out;
}

/* --- the response --- */

static bool can_answer(const struct exchange *x) {
    return x->conn && !x->conn->doomed && !x->started;
}
static bool can_stream(const struct exchange *x) {
    return x->conn && !x->conn->doomed && x->started;
}

bool exchange_gone(const struct exchange *x) {
    return x->gone || (x->conn && x->conn->doomed);
}
bool exchange_finished(const struct exchange *x) {
    return x->finished;
}
bool exchange_congested(const struct exchange *x) {
    return x->congested;
}
size_t exchange_pending_bytes(const struct exchange *x) {
    return x->conn ? conn_pending_bytes(x->conn) : 0;
}

/* Builds everything but the framing in the loop's scratch buffer. */
static int build_head(struct exchange *x, unsigned status, const char *content_type,
                      const struct http_header *headers, size_t n_headers, struct error *err) {
    struct loop *loop = x->loop;
    struct buf *b = &loop->scratch;
    if (!can_answer(x)) return error_set(err, QUIRE_ECANCELED, "the client is gone or has its answer");
    buf_clear(b);
    int rc = http1_put_head(b, status, headers, n_headers, err);
    if (!rc && content_type) {
        const struct http_header type = {"Content-Type", content_type};
        rc = http1_put_headers(b, &type, 1, err);
    }
    if (rc) return rc;
    buf_printf(b, "Date: %s\r\n", loop_date(loop));
    if (x->conn->close_after || atomic_load(&loop->server->draining)) buf_puts(b, "Connection: close\r\n");
    return 0;
}

static int send_head(struct exchange *x, unsigned status, struct error *err) {
    struct buf *b = &x->loop->scratch;
    buf_puts(b, "\r\n");
    if (!buf_ok(b)) return error_set(err, QUIRE_ENOMEM, "out of memory for a response head");
    x->started = true;
    x->stats.status = status;
    x->stats.response_us = clock_us();
    return conn_write(x->conn, b->data, b->len) ? 0
                                                : error_set(err, QUIRE_ECANCELED, "out of memory for output");
}

/* RFC 9110, section 6.4.1 */
static bool has_no_body(unsigned status) {
    return status == 204 || status == 304;
}

int exchange_reply(struct exchange *x, unsigned status, const char *content_type,
                   const struct http_header *headers, size_t n_headers, const void *body, size_t body_n,
                   struct error *err) {
    if (has_no_body(status) && body_n)
        return error_set(err, QUIRE_EINVAL, "a response with status %u has no body", status);
    int rc = build_head(x, status, content_type, headers, n_headers, err);
    if (rc) return rc;
    if (!has_no_body(status)) buf_printf(&x->loop->scratch, "Content-Length: %zu\r\n", body_n);
    rc = send_head(x, status, err);
    if (rc) return rc;
    x->stats.body_bytes = body_n;
    if (x->head.method != HTTP_HEAD && !conn_write(x->conn, body, body_n))
        return error_set(err, QUIRE_ECANCELED, "out of memory for output");
    finish(x);
    return 0;
}

int exchange_stream_begin(struct exchange *x, unsigned status, const char *content_type,
                          const struct http_header *headers, size_t n_headers, struct error *err) {
    if (has_no_body(status))
        return error_set(err, QUIRE_EINVAL, "a response with status %u has no body", status);
    int rc = build_head(x, status, content_type, headers, n_headers, err);
    if (rc) return rc;
    x->chunked = !x->head.http10;
    if (x->chunked) buf_puts(&x->loop->scratch, "Transfer-Encoding: chunked\r\n");
    return send_head(x, status, err);
}

static bool write_chunk(struct exchange *x, const void *data, size_t n) {
    char size[24];
    if (!x->chunked) return conn_write(x->conn, data, n);
    int size_n = snprintf(size, sizeof size, "%zx\r\n", n);
    return conn_write(x->conn, size, (size_t)size_n) && conn_write(x->conn, data, n) &&
           conn_write(x->conn, "\r\n", 2);
}

int exchange_stream_write(struct exchange *x, const void *data, size_t n) {
    const struct server_config *cfg = &x->loop->server->config;
    if (!can_stream(x)) return QUIRE_ECANCELED;
    if (!n) return 0;
    x->stats.body_bytes += n;
    if (x->head.method == HTTP_HEAD) return 0;
    /* One large event is no overrun: only a producer that goes on against the soft limit meets the hard one.
     */
    size_t before = conn_pending_bytes(x->conn), waiting;
    if (!size_add(before, n, &waiting) || (before > cfg->soft_bytes && waiting > cfg->hard_bytes)) {
        count_add(&counters(x)->overruns, 1);
        conn_doom(x->conn, GONE_OVERRUN);
        return QUIRE_ELIMIT;
    }
    if (!write_chunk(x, data, n)) return QUIRE_ECANCELED;
    if (waiting > cfg->soft_bytes) x->congested = true;
    return 0;
}

int exchange_stream_end(struct exchange *x, const void *data, size_t n) {
    int rc = exchange_stream_write(x, data, n);
    if (!x->conn || !x->started) return rc;
    if (!rc && x->chunked && x->head.method != HTTP_HEAD && !conn_write(x->conn, "0\r\n\r\n", 5))
        rc = QUIRE_ECANCELED;
    finish(x);
    return rc;
}

static void answer_500(struct exchange *x) {
    struct buf body = BUF_INIT;
    const char *type = conn_refusal(&x->loop->server->config, 500, "the request was given up", &body);
    int rc = exchange_reply(x, 500, type, NULL, 0, body.data, body.len, NULL);
    buf_free(&body);
    if (!rc || !x->conn) return;
    conn_doom(x->conn, GONE_MEMORY); /* not even that could be sent */
    finish(x);
}

void exchange_stream_abort(struct exchange *x) {
    if (!x->conn) return;
    if (!x->started) {
        answer_500(x);
        return;
    }
    x->conn->close_after = true;
    if (!x->chunked) x->conn->reset = true; /* only so can it be told from an end */
    finish(x);
}

void exchange_release(struct exchange *x) {
    if (!x) return;
    exchange_stream_abort(x);
    exchange_free(x);
}
