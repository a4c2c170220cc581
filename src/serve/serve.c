#include "serve/serve.h"

#include "base/clock.h"
#include "base/error.h"
#include "base/size.h"
#include "serve/internal.h"

#include <stdlib.h>
#include <string.h>

#define TICK_MS        100
#define CANCEL_MS      2000              /* after the grace time: cancelled requests are told so */
#define CONN_OUT_BYTES ((size_t)1 << 20) /* of one connection that waits for its reader */

void serve_config_init(struct serve_config *c) {
    *c = (struct serve_config){.port = 8000,
                               .n_loops = 1,
                               .n_workers = 2,
                               .max_connections = 4096,
                               .max_body_bytes = (size_t)8 << 20,
                               .max_answer_bytes = (size_t)64 << 20,
                               .max_logprobs = QUIRE_MAX_LOGPROBS,
                               .keep_alive_comment_ms = 15000,
                               .stall_ms = 30000,
                               .unhealthy_ms = 300000,
                               .version = "0"};
}

/* ---- loops ---- */

/* Engine thread, once a step: many streams of a loop make one post. */
static void wake_loop(void *ctx) {
    struct serve_loop *l = ctx;
    if (!atomic_exchange(&l->wake_posted, true)) loop_post(l->loop, &l->wake);
}

static void run_wake(struct loop *loop, struct loop_node *node) {
    struct serve_loop *l = (struct serve_loop *)((char *)node - offsetof(struct serve_loop, wake));
    (void)loop;
    atomic_store(&l->wake_posted, false); /* before looking: what comes from now on wakes again */
    serve_loop_pump(l);
}

static void tick(void *user) {
    struct serve_loop *l = user;
    serve_loop_tick(l);
    loop_timer_arm(l->timer, TICK_MS);
}

static void on_loop_start(void *user, struct loop *loop) {
    struct serve *s = user;
    struct serve_loop *l = &s->loops[loop_index(loop)];
    l->serve = s;
    l->loop = loop;
    l->wake.run = run_wake;
    l->waker = (struct quire_waker){wake_loop, l};
    l->timer = loop_timer_new(loop, tick, l);
    if (l->timer) loop_timer_arm(l->timer, TICK_MS);
}

static void on_loop_stop(void *user, struct loop *loop) {
    struct serve *s = user;
    struct serve_loop *l = &s->loops[loop_index(loop)];
    loop_timer_free(l->timer);
    l->timer = NULL;
    buf_free(&l->out);
}

static void on_request(void *user, struct exchange *x) {
    route_request(user, x);
}
static void on_gone(void *user, struct exchange *x, enum exchange_gone why) {
    call_gone(user, x, why);
}
static void on_writable(void *user, struct exchange *x) {
    call_writable(user, x);
}

static void on_refuse(void *user, unsigned status, const char *text, struct buf *body,
                      const char **content_type) {
    struct error e = {.code = status == 503 ? QUIRE_EBUSY : QUIRE_EFORMAT};
    struct serve *s = user;
    error_set(&e, e.code, "%s", text);
    api_error_body(body, status, &e);
    atomic_fetch_add_explicit(&s->outcomes[api_error_outcome(status)], 1, memory_order_relaxed);
    access_log_refused(s, status, text);
    *content_type = "application/json";
}

/* ---- start and stop ---- */

static int prepare(struct serve *s, struct error *err) {
    const struct serve_config *c = &s->config;
    if (!c->n_model_names) return error_set(err, QUIRE_EINVAL, "no name to serve the model under");
    if (!hash_secret_random(&s->key_secret))
        return error_set(err, QUIRE_EIO, "the system gave no random bytes");
    struct hash128 id = hash128_sip(s->key_secret, "request ids", 11);
    s->id_prefix = id.lo;
    s->key_digests = calloc(c->n_api_keys + 1, sizeof *s->key_digests);
    s->loops = calloc(c->n_loops, sizeof *s->loops);
    if (!s->key_digests || !s->loops)
        return error_set(err, QUIRE_ENOMEM, "out of memory while starting the server");
    s->n_loops = c->n_loops;
    for (size_t i = 0; i < c->n_api_keys; i++)
        s->key_digests[i] = hash128_sip(s->key_secret, c->api_keys[i], strlen(c->api_keys[i]));
    s->info = quire_info(s->engine);
    s->limits =
        (struct request_limits){.n_vocab = size_min(s->info->n_vocab, tokenizer_n_vocab(s->text.tokenizer)),
                                .max_model_len = s->info->max_model_len,
                                .max_logprobs = c->max_logprobs,
                                .sampling = s->text.sampling,
                                .raw_scores = s->text.raw_scores && s->info->pooling == QUIRE_POOLING_RANK};
    s->started_unix_s = clock_unix_s();
    int rc = c->prompt_statistics ? prompt_stats_new(&s->prompt_stats, err) : 0;
    if (rc) return rc;
    if (s->prompt_stats)
        log_write(c->log, LOG_INFO, "prompt statistics: %.1f MiB for keyed hashes",
                  (double)prompt_stats_bytes() / (1 << 20));
    return workers_start(&s->workers, c->n_workers, c->max_connections, err);
}

static int open_port(struct serve *s, struct error *err) {
    const struct serve_config *c = &s->config;
    struct server_config n;
    server_config_init(&n);
    n.host = c->host;
    n.port = c->port;
    n.tls_cert_file = c->tls_cert_file;
    n.tls_key_file = c->tls_key_file;
    n.n_loops = c->n_loops;
    n.max_connections = c->max_connections;
    n.body_bytes = c->max_body_bytes;
    n.body_total_bytes = 4 * c->max_body_bytes;
    /* The first chunk may carry the whole prompt as token ids. */
    n.hard_bytes = size_max(CONN_OUT_BYTES, CONN_OUT_BYTES / 2 + 8 * s->limits.max_model_len);
    n.stall_ms = c->stall_ms;
    n.user = s;
    n.log = c->log;
    n.callbacks = (struct server_callbacks){.on_request = on_request,
                                            .on_gone = on_gone,
                                            .on_writable = on_writable,
                                            .on_loop_start = on_loop_start,
                                            .on_loop_stop = on_loop_stop,
                                            .on_refuse = on_refuse};
    return server_start(&s->server, &n, err);
}

int serve_start(const struct serve_config *config, const struct model_text *text, struct quire_engine *engine,
                struct serve **out, struct error *err) {
    struct serve *s = calloc(1, sizeof *s);
    if (!s) return error_set(err, QUIRE_ENOMEM, "out of memory while starting the server");
    s->config = *config;
    s->text = *text;
    s->engine = engine;
    atomic_init(&s->cancel_at_us, UINT64_MAX);
    int rc = prepare(s, err);
    if (!rc) rc = open_port(s, err);
    if (rc) {
        serve_stop(s, 0);
        serve_free(s);
        return rc;
    }
    *out = s;
    return 0;
}

uint16_t serve_port(const struct serve *s) {
    return server_port(s->server);
}

void serve_drain(struct serve *s, unsigned grace_ms) {
    uint64_t end = clock_us() + (uint64_t)grace_ms * 1000, before = atomic_load(&s->cancel_at_us);
    while (end < before && !atomic_compare_exchange_weak(&s->cancel_at_us, &before, end)) {}
    server_drain(s->server, grace_ms + CANCEL_MS);
}

void serve_stop(struct serve *s, unsigned grace_ms) {
    if (s->server) {
        serve_drain(s, grace_ms);
        server_stop(s->server); /* workers still run: they bring calls back to be released */
    }
    workers_stop(s->workers);
    s->workers = NULL;
}

void serve_print_fields(FILE *out) {
    request_print_fields(out);
}

void serve_free(struct serve *s) {
    if (!s) return;
    server_free(s->server);
    free(s->loops);
    free(s->key_digests);
    prompt_stats_free(s->prompt_stats);
    free(s);
}
