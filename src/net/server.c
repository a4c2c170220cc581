#include "net/internal.h"

#include "base/clock.h"
#include "base/error.h"

#include <signal.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_LOOPS = 256 };

void server_config_init(struct server_config *c) {
    *c = (struct server_config){
        .host = "127.0.0.1",
        .backlog = 4096,
        .n_loops = 1,
        .max_connections = 4096,
        .retry_after_s = 1,
        .body_bytes = (size_t)32 << 20,
        .body_total_bytes = (size_t)256 << 20,
        .soft_bytes = (size_t)64 << 10,
        .hard_bytes = (size_t)1 << 20,
        .pipeline_bytes = (size_t)64 << 10,
        .flood_bytes = (size_t)16 << 20,
        .linger_bytes = (size_t)64 << 20,
        .head_ms = 10000,
        .body_ms = 30000,
        .idle_ms = 60000,
        .stall_ms = 30000,
        .linger_ms = 10000,
    };
}

static int check_config(const struct server_config *c, struct error *err) {
    const struct {
        const char *name;
        size_t value;
    } positive[] = {
        {"backlog", c->backlog > 0},
        {"n_loops", c->n_loops},
        {"max_connections", c->max_connections},
        {"body_bytes", c->body_bytes},
        {"body_total_bytes", c->body_total_bytes},
        {"soft_bytes", c->soft_bytes},
        {"hard_bytes", c->hard_bytes},
        {"pipeline_bytes", c->pipeline_bytes},
        {"flood_bytes", c->flood_bytes},
        {"linger_bytes", c->linger_bytes},
        {"head_ms", c->head_ms},
        {"body_ms", c->body_ms},
        {"idle_ms", c->idle_ms},
        {"stall_ms", c->stall_ms},
        {"linger_ms", c->linger_ms},
        {"on_request", c->callbacks.on_request != NULL},
    };
    for (size_t i = 0; i < sizeof positive / sizeof *positive; i++)
        if (!positive[i].value)
            return error_param(err, QUIRE_EINVAL, positive[i].name, "server: %s must be set and positive",
                               positive[i].name);
    if (c->n_loops > MAX_LOOPS)
        return error_param(err, QUIRE_EINVAL, "n_loops", "server: n_loops is %zu, at most %d are allowed",
                           c->n_loops, MAX_LOOPS);
    if (c->hard_bytes < c->soft_bytes)
        return error_param(err, QUIRE_EINVAL, "hard_bytes", "server: hard_bytes %zu is below soft_bytes %zu",
                           c->hard_bytes, c->soft_bytes);
    if (!c->tls_cert_file != !c->tls_key_file)
        return error_param(err, QUIRE_EINVAL, c->tls_cert_file ? "tls_key_file" : "tls_cert_file",
                           "TLS needs both a certificate and a key; only the %s is given",
                           c->tls_cert_file ? "certificate" : "key");
    if (c->no_tcp && !c->unix_path)
        return error_param(err, QUIRE_EINVAL, "unix_path",
                           "server: neither TCP nor a socket path to listen on");
    return 0;
}

/* Only where the program has not decided otherwise. OpenSSL writes to sockets without MSG_NOSIGNAL. */
static void ignore_sigpipe(void) {
    struct sigaction now;
    if (!sigaction(SIGPIPE, NULL, &now) && now.sa_handler == SIG_DFL) signal(SIGPIPE, SIG_IGN);
}

int server_start(struct server **out, const struct server_config *c, struct error *err) {
    int rc = check_config(c, err);
    if (rc) return rc;
    struct server *s = calloc(1, sizeof *s);
    if (!s) return error_set(err, QUIRE_ENOMEM, "out of memory for the server");
    s->config = *c;
    s->spare_fd = -1;
    atomic_init(&s->next_id, 1);
    atomic_init(&s->drain_deadline_us, UINT64_MAX);
    s->loops = calloc(c->n_loops, sizeof *s->loops);
    if (!s->loops) {
        rc = error_set(err, QUIRE_ENOMEM, "out of memory for the server");
        goto fail;
    }
    ignore_sigpipe();
    if (c->tls_cert_file) rc = tls_context_new(&s->tls, c->tls_cert_file, c->tls_key_file, err);
    if (!rc) rc = listeners_open(s, err);
    if (rc) goto fail;
    s->config.host = s->config.unix_path = s->config.tls_cert_file = s->config.tls_key_file = NULL;

    *out = s; /* before there is a thread that may call back */
    s->n_loops = c->n_loops;
    for (size_t i = 0; i < s->n_loops; i++) s->loops[i].wake_fd = -1;
    for (size_t i = s->n_loops; i-- > 0;) { /* loop 0 last: it accepts, and the others must be there */
        rc = loop_start(&s->loops[i], s, i, err);
        if (rc) goto fail;
    }
    return 0;

fail:
    *out = NULL;
    server_free(s);
    return rc;
}

uint16_t server_port(const struct server *s) {
    return s->port;
}
size_t server_n_loops(const struct server *s) {
    return s->n_loops;
}
struct loop *server_loop(const struct server *s, size_t i) {
    return &s->loops[i];
}
bool server_draining(const struct server *s) {
    return atomic_load(&s->draining);
}

static void wake_loops(struct server *s) {
    for (size_t i = 0; i < s->n_loops; i++)
        if (s->loops[i].wake_fd >= 0) loop_wake(&s->loops[i]);
}

void server_drain(struct server *s, unsigned grace_ms) {
    uint64_t deadline_us = clock_us() + (uint64_t)grace_ms * 1000;
    uint64_t before_us = atomic_load(&s->drain_deadline_us);
    while (deadline_us < before_us &&
           !atomic_compare_exchange_weak(&s->drain_deadline_us, &before_us, deadline_us)) {}
    atomic_store(&s->draining, true);
    wake_loops(s);
}

void server_stop(struct server *s) {
    if (s->joined) return;
    s->joined = true;
    if (!server_draining(s)) server_drain(s, 0);
    atomic_store(&s->stopping, true);
    if (!s->n_loops || !s->loops[0].running) listeners_close(s); /* else loop 0 does */
    wake_loops(s);
    for (size_t i = 0; i < s->n_loops; i++) loop_join(&s->loops[i]);
}

void server_free(struct server *s) {
    if (!s) return;
    server_stop(s);
    for (size_t i = 0; i < s->n_loops; i++) loop_destroy(&s->loops[i]);
    free(s->loops);
    SSL_CTX_free(s->tls);
    free(s);
}

void server_stats(const struct server *s, struct server_stats *out) {
    const struct counters *n = &s->counters;
    *out = (struct server_stats){
        .connections_now = count_get(&n->connections_now),
        .connections_accepted = count_get(&n->connections_accepted),
        .connections_refused = count_get(&n->connections_refused),
        .requests = count_get(&n->requests),
        .requests_now = count_get(&n->requests_now),
        .requests_refused = count_get(&n->requests_refused),
        .gone = count_get(&n->gone),
        .head_timeouts = count_get(&n->head_timeouts),
        .body_timeouts = count_get(&n->body_timeouts),
        .idle_timeouts = count_get(&n->idle_timeouts),
        .stalls = count_get(&n->stalls),
        .overruns = count_get(&n->overruns),
        .floods = count_get(&n->floods),
        .tls_failures = count_get(&n->tls_failures),
        .bytes_in = count_get(&n->bytes_in),
        .bytes_out = count_get(&n->bytes_out),
        .body_bytes_now = count_get(&n->body_bytes_now),
    };
}
