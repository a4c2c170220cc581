/* A connection: bytes in to requests, time-outs, refusals, orderly closing. See conn_state in internal.h. */
#include "net/internal.h"

#include "base/clock.h"
#include "base/size.h"

#include <event2/buffer.h>
#include <event2/bufferevent_ssl.h>
#include <openssl/err.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

/* A drain, or a connection that never should have been, does not wait longer for its peer's last word. */
enum { SHORT_LINGER_MS = 1000, WRITE_BYTES_PER_EVENT = 65536 };

static const struct server_config *config(const struct conn *c) {
    return &c->loop->server->config;
}
static struct counters *counters(const struct conn *c) {
    return &c->loop->server->counters;
}
static struct evbuffer *input(const struct conn *c) {
    return bufferevent_get_input(c->bev);
}
static struct evbuffer *output(const struct conn *c) {
    return bufferevent_get_output(c->bev);
}

size_t conn_pending_bytes(const struct conn *c) {
    return evbuffer_get_length(output(c));
}

static void set_deadline(struct conn *c, unsigned ms) {
    c->deadline_us = clock_us() + (uint64_t)ms * 1000;
}

/* --- doing things later: never from inside a function of exchange.h --- */

static void later(struct conn *c) {
    if (c->is_due) return;
    c->is_due = true;
    c->next_due = c->loop->due;
    c->loop->due = c;
    event_active(c->loop->later, EV_TIMEOUT, 1);
}

static void not_later(struct conn *c) {
    if (!c->is_due) return;
    struct conn **at = &c->loop->due;
    while (*at != c) at = &(*at)->next_due;
    *at = c->next_due;
    c->is_due = false;
}

void conn_doom(struct conn *c, enum exchange_gone why) {
    if (c->doomed) return;
    c->doomed = true;
    c->reset = true; /* nobody waits for the rest */
    c->why = why;
    later(c);
}

/* --- closing --- */

static void on_output_change(struct evbuffer *out, const struct evbuffer_cb_info *info, void *arg);

static void drop_reader(struct conn *c) {
    free(c->reader);
    c->reader = NULL;
}

static void conn_free(struct conn *c) {
    not_later(c);
    drop_reader(c);
    if (c->prev)
        c->prev->next = c->next;
    else
        c->loop->conns = c->next;
    if (c->next) c->next->prev = c->prev;
    if (c->reset) {
        struct linger at_once = {.l_onoff = 1, .l_linger = 0};
        setsockopt(c->fd, SOL_SOCKET, SO_LINGER, &at_once, sizeof at_once);
    }
    /* A TLS bufferevent whose event callback frees it goes on to drain its output. */
    evbuffer_remove_cb(output(c), on_output_change, c);
    bufferevent_free(c->bev); /* closes the socket */
    count_sub(&counters(c)->connections_now, 1);
    free(c);
}

void conn_close(struct conn *c, enum exchange_gone why) {
    struct exchange *x = c->exchange;
    c->exchange = NULL;
    if (x && x->started && !x->chunked) c->reset = true; /* its end would look complete */
    if (x) exchange_lost(x, why);
    conn_free(c);
}

static void discard_input(struct conn *c, size_t budget_bytes) {
    if (!c->discarding) c->discard_left_bytes = budget_bytes;
    c->discarding = true;
    size_t n = evbuffer_get_length(input(c));
    evbuffer_drain(input(c), n);
    count_add(&counters(c)->bytes_in, n);
    c->bytes_in += n;
    c->discard_left_bytes -= size_min(n, c->discard_left_bytes);
}

/* All output is with the kernel: says so to the client, and waits for it to close. Closing at once, with
 * input unread or still coming, would reset the connection and could destroy the response on its way. */
static void start_linger(struct conn *c) {
    if (c->peer_ended || c->reset) {
        conn_free(c);
        return;
    }
    SSL *ssl = c->tls ? bufferevent_openssl_get_ssl(c->bev) : NULL;
    if (ssl && SSL_is_init_finished(ssl) && SSL_shutdown(ssl) < 0) ERR_clear_error();
    shutdown(c->fd, SHUT_WR);
    c->state = CONN_LINGER;
    bool brief = c->over_limit || atomic_load(&c->loop->server->draining);
    set_deadline(c, brief && config(c)->linger_ms > SHORT_LINGER_MS ? SHORT_LINGER_MS : config(c)->linger_ms);
}

static void start_flush(struct conn *c) {
    c->state = CONN_FLUSH;
    c->deadline_us = 0;    /* the stall limit holds */
    c->discarding = false; /* with a new budget, from the next bytes on */
    if (!conn_pending_bytes(c)) later(c);
}

/* --- answers of the server's own --- */

const char *conn_refusal(const struct server_config *cfg, unsigned status, const char *text,
                         struct buf *body) {
    const char *type = "text/plain";
    if (cfg->callbacks.on_refuse)
        cfg->callbacks.on_refuse(cfg->user, status, text, body, &type);
    else
        buf_printf(body, "%u %s: %s\n", status, http_status_text(status), text);
    return type;
}

static void refuse(struct conn *c, unsigned status, const char *text) {
    struct buf body = BUF_INIT, head = BUF_INIT;
    char retry[16];
    snprintf(retry, sizeof retry, "%u", config(c)->retry_after_s);
    const char *type = conn_refusal(config(c), status, text, &body);
    const struct http_header headers[] = {{"Content-Type", type}, {"Retry-After", retry}};
    http1_put_head(&head, status, headers, status == 503 ? 2 : 1, NULL);
    buf_printf(&head, "Date: %s\r\nConnection: close\r\nContent-Length: %zu\r\n\r\n", loop_date(c->loop),
               body.len);

    count_add(&counters(c)->requests_refused, 1);
    if (c->exchange) exchange_free(c->exchange); /* the user does not know of it yet */
    c->exchange = NULL;
    drop_reader(c);
    if (buf_ok(&head) && buf_ok(&body) && conn_write(c, head.data, head.len))
        conn_write(c, body.data, body.len);
    buf_free(&head);
    buf_free(&body);
    start_flush(c);
}

/* --- requests --- */

static bool start_reader(struct conn *c) {
    c->reader = malloc(sizeof *c->reader);
    if (!c->reader) return false;
    http1_init(&c->reader->parser, c->reader->text, config(c)->body_bytes);
    c->reader->first_byte_us = clock_us();
    set_deadline(c, config(c)->head_ms);
    return true;
}

/* The head is complete. False: refused. */
static bool take_head(struct conn *c, bool body_has_come) {
    static const char go_on[] = "HTTP/1.1 100 Continue\r\n\r\n";
    const struct http1_head *head = &c->reader->parser.head;
    c->n_requests++;
    c->exchange = exchange_new(c, c->reader);
    if (!c->exchange) {
        refuse(c, 503, "out of memory for the request");
        return false;
    }
    if (!head->keep_alive) c->close_after = true;
    if (head->expect_continue && !body_has_come) conn_write(c, go_on, sizeof go_on - 1);
    set_deadline(c, config(c)->body_ms);
    return true;
}

static bool take_body(struct conn *c, struct http1_span fragment) {
    unsigned status = exchange_take(c->exchange, fragment);
    if (status)
        refuse(c, status, "request bodies in progress take too much memory, try again later");
    else
        set_deadline(c, config(c)->body_ms);
    return !status;
}

/* Feeds bytes to the parser up to the end of a request. Returns how many were taken; *complete when one is
 * whole. */
static size_t take(struct conn *c, const char *data, size_t n, bool *complete) {
    size_t at = 0;
    for (;;) {
        struct http1 *parser = &c->reader->parser;
        struct http1_span body;
        size_t used;
        enum http1_event event = http1_next(parser, data + at, n - at, &used, &body);
        at += used;
        switch (event) {
        case HTTP1_MORE: return at;
        case HTTP1_HEAD:
            if (!take_head(c, at < n)) return at;
            break;
        case HTTP1_BODY:
            if (!take_body(c, body)) return at;
            break;
        case HTTP1_END: *complete = true; return at;
        case HTTP1_REFUSE: refuse(c, parser->status, parser->reason); return at;
        }
    }
}

/* Reads requests while it may: one at a time, and none while earlier answers wait above the soft limit. */
static void read_requests(struct conn *c) {
    while (c->state == CONN_READ && conn_pending_bytes(c) <= config(c)->soft_bytes) {
        struct evbuffer_iovec piece;
        if (evbuffer_peek(input(c), -1, NULL, &piece, 1) < 1 || !piece.iov_len) return;
        if (!c->reader && !start_reader(c)) {
            conn_doom(c, GONE_MEMORY);
            return;
        }
        bool complete = false;
        size_t n = take(c, piece.iov_base, piece.iov_len, &complete);
        evbuffer_drain(input(c), n);
        count_add(&counters(c)->bytes_in, n);
        c->bytes_in += n;
        if (!complete) continue;
        drop_reader(c);
        c->state = CONN_WAIT;
        c->deadline_us = 0;
        exchange_deliver(c->exchange);
    }
}

/* Input that no request is read from. */
static void hold_input(struct conn *c) {
    const struct server_config *cfg = config(c);
    if (c->state == CONN_READ) return;
    if (c->state == CONN_WAIT) {
        if (!c->discarding && evbuffer_get_length(input(c)) <= cfg->pipeline_bytes) return;
        c->close_after = true;
        discard_input(c, cfg->flood_bytes);
        if (c->discard_left_bytes) return;
        count_add(&counters(c)->floods, 1);
        conn_doom(c, GONE_FLOOD);
        return;
    }
    discard_input(c, cfg->linger_bytes);
    if (!c->discard_left_bytes) conn_doom(c, GONE_FLOOD);
}

static void read_on(struct conn *c) {
    read_requests(c);
    hold_input(c);
}

void conn_response_done(struct conn *c) {
    c->exchange = NULL;
    if (c->close_after || c->peer_ended || atomic_load(&c->loop->server->draining)) {
        start_flush(c);
        return;
    }
    c->state = CONN_READ;
    set_deadline(c, config(c)->idle_ms);
    if (evbuffer_get_length(input(c))) later(c);
}

/* --- output --- */

bool conn_write(struct conn *c, const void *data, size_t n) {
    if (c->doomed) return false;
    if (!n || !evbuffer_add(output(c), data, n)) return true;
    conn_doom(c, GONE_MEMORY);
    return false;
}

/* Sees every byte that enters or leaves the output. */
static void on_output_change(struct evbuffer *out, const struct evbuffer_cb_info *info, void *arg) {
    struct conn *c = arg;
    if (info->n_deleted) {
        c->bytes_out += info->n_deleted;
        count_add(&counters(c)->bytes_out, info->n_deleted);
    }
    if (!evbuffer_get_length(out))
        c->output_us = 0;
    else if (info->n_deleted || !c->output_us)
        c->output_us = clock_us();
}

/* --- events --- */

static void on_read(struct bufferevent *bev, void *arg) {
    read_on(arg);
}

/* The output is at or below half the soft limit. */
static void on_write(struct bufferevent *bev, void *arg) {
    struct conn *c = arg;
    struct exchange *x = c->exchange;
    if (c->state == CONN_FLUSH && !conn_pending_bytes(c)) {
        start_linger(c);
    } else if (c->state == CONN_READ) {
        read_on(c);
    } else if (x && x->congested) {
        x->congested = false;
        if (config(c)->callbacks.on_writable) config(c)->callbacks.on_writable(config(c)->user, x);
    }
}

static void on_end(struct conn *c) {
    struct exchange *x = c->exchange;
    bool cut = x && x->started;
    c->exchange = NULL;
    c->peer_ended = true;
    drop_reader(c);
    if (x) exchange_lost(x, GONE_CLIENT);
    if (cut || c->state == CONN_LINGER || !conn_pending_bytes(c))
        conn_free(c);
    else
        start_flush(c); /* complete answers; its reading side may still be open */
}

static void on_event(struct bufferevent *bev, short what, void *arg) {
    struct conn *c = arg;
    if (what & BEV_EVENT_CONNECTED) {
        c->handshaking = false;
        if (c->state == CONN_READ) set_deadline(c, config(c)->idle_ms);
        return;
    }
    if (c->handshaking) count_add(&counters(c)->tls_failures, 1);
    if ((what & BEV_EVENT_EOF) && !c->handshaking)
        on_end(c);
    else
        conn_close(c, GONE_CLIENT);
}

void conn_continue(struct conn *c) {
    if (c->doomed)
        conn_close(c, c->why);
    else if (c->state == CONN_FLUSH && !conn_pending_bytes(c))
        start_linger(c);
    else
        read_on(c);
}

static void time_out(struct conn *c) {
    struct counters *n = counters(c);
    c->deadline_us = 0;
    if (c->state == CONN_LINGER) {
        conn_free(c);
    } else if (c->handshaking) {
        count_add(&n->tls_failures, 1);
        conn_free(c);
    } else if (!c->reader) {
        count_add(&n->idle_timeouts, 1);
        conn_close_idle(c);
    } else if (c->exchange) {
        count_add(&n->body_timeouts, 1);
        refuse(c, 408, "the request's body did not arrive in time");
    } else {
        count_add(&n->head_timeouts, 1);
        refuse(c, 408, "the request's head did not arrive in time");
    }
}

void conn_sweep(struct conn *c, uint64_t now_us) {
    if (c->output_us && now_us > c->output_us + (uint64_t)config(c)->stall_ms * 1000) {
        count_add(&counters(c)->stalls, 1);
        c->reset = true; /* the kernel need not keep what the client does not take */
        conn_close(c, GONE_STALLED);
    } else if (c->deadline_us && now_us > c->deadline_us) {
        time_out(c);
    }
}

void conn_close_idle(struct conn *c) {
    if (c->state != CONN_READ || c->reader) return;
    if (conn_pending_bytes(c))
        start_flush(c);
    else
        conn_free(c);
}

/* --- opening --- */

static struct bufferevent *new_bufferevent(struct conn *c) {
    if (!c->tls) return bufferevent_socket_new(c->loop->base, c->fd, BEV_OPT_CLOSE_ON_FREE);
    SSL *ssl = SSL_new(c->tls);
    if (!ssl) return NULL;
    struct bufferevent *bev = bufferevent_openssl_socket_new(
        c->loop->base, c->fd, ssl, BUFFEREVENT_SSL_ACCEPTING, BEV_OPT_CLOSE_ON_FREE);
    if (!bev) SSL_free(ssl);
    return bev;
}

/* Small writes leave at once. A peer that vanished without a word, which a queued request would never notice,
 * is found within a minute. */
static void set_tcp_options(int fd) {
    const int on = 1, idle_s = 30, interval_s = 10, n_probes = 3;
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof on);
    setsockopt(fd, IPPROTO_TCP, TCP_KEEPIDLE, &idle_s, sizeof idle_s);
    setsockopt(fd, IPPROTO_TCP, TCP_KEEPINTVL, &interval_s, sizeof interval_s);
    setsockopt(fd, IPPROTO_TCP, TCP_KEEPCNT, &n_probes, sizeof n_probes);
}

void conn_open(struct loop *loop, struct loop_node *arrival) {
    struct conn *c = (struct conn *)arrival;
    c->loop = loop;
    c->bev = new_bufferevent(c);
    if (!c->bev) {
        close(c->fd);
        count_sub(&counters(c)->connections_now, 1);
        free(c);
        return;
    }
    c->next = loop->conns;
    if (c->next) c->next->prev = c;
    loop->conns = c;

    if (strcmp(c->peer, "unix")) set_tcp_options(c->fd);
    bufferevent_setcb(c->bev, on_read, on_write, on_event, c);
    bufferevent_setwatermark(c->bev, EV_WRITE, config(c)->soft_bytes / 2, 0);
    bufferevent_set_max_single_write(c->bev, WRITE_BYTES_PER_EVENT);
    c->handshaking = c->tls;
    set_deadline(c, c->tls ? config(c)->head_ms : config(c)->idle_ms);
    if (!evbuffer_add_cb(output(c), on_output_change, c) || bufferevent_enable(c->bev, EV_READ | EV_WRITE)) {
        conn_free(c);
    } else if (c->over_limit) {
        refuse(c, 503, "too many connections");
    } else if (loop->draining) {
        conn_close_idle(c);
    }
}
