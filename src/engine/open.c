/* Opening and shutting down an engine. */
#include "base/clock.h"
#include "base/error.h"
#include "base/size.h"
#include "base/thread.h"
#include "engine/engine.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

/* At a time. The kernel holds a lock on all mappings meanwhile, so whoever maps memory waits for a part. */
#define POPULATE_BYTES (2u << 20)
#define GIVE_WAY       9    /* times what the last part took is left to steps before the next */
#define GIVE_WAY_MS    1000 /* at most */

/* ---- KV memory --------------------------------------------------------------------------------------- */

static size_t part_pages(const struct quire_engine *e) {
    return size_max(1, POPULATE_BYTES / e->plan.page_bytes);
}

/* Steps are under way, and nobody waits to be admitted, as one without memory does. */
static bool is_busy(struct quire_engine *e) {
    return !atomic_load(&e->asleep) && !atomic_load_explicit(&e->stats.waiting, memory_order_relaxed);
}

/* Zeroing pages takes memory bandwidth and, however nice, a share of a core that a whole step waits for; in a
 * virtual machine a page may take its host's time, too. took_us: the last part. */
static void give_way(struct quire_engine *e, uint64_t took_us) {
    uint64_t most = took_us / 1000 * GIVE_WAY < GIVE_WAY_MS ? took_us / 1000 * GIVE_WAY : GIVE_WAY_MS;
    for (uint64_t ms = 0; ms < most && is_busy(e) && !atomic_load(&e->stopping); ms++)
        nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
}

static int populate(struct quire_engine *e, size_t end, struct error *err) {
    uint64_t took_us = 0;
    for (size_t first = atomic_load(&e->n_resident); first < end && !atomic_load(&e->stopping);) {
        size_t n = size_min(part_pages(e), end - first);
        give_way(e, took_us);
        uint64_t begin_us = clock_us();
        int rc = e->backend->ops->kv_populate(e->backend, e->kv, first, n, err);
        if (rc) return rc;
        took_us = clock_us() - begin_us;
        first += n;
        atomic_store(&e->n_resident, first);
        doorbell_ring(&e->bell);
    }
    return 0;
}

struct first_pages {
    struct quire_engine *e;
    struct first_error failure;
};

static void populate_part(void *ctx, size_t item) {
    struct first_pages *f = ctx;
    struct quire_engine *e = f->e;
    size_t first = item * part_pages(e), n = size_min(part_pages(e), e->plan.first_pages - first);
    struct error err = {0};
    int rc = e->backend->ops->kv_populate(e->backend, e->kv, first, n, &err);
    if (rc) first_error_note(&f->failure, rc, &err);
}

/* What the first step may fill, on all compute threads. */
static int populate_first(struct quire_engine *e, struct error *err) {
    struct first_pages f = {.e = e, .failure = {.err = err}};
    e->backend->ops->host_run(e->backend, size_div_up(e->plan.first_pages, part_pages(e)), populate_part, &f);
    if (!f.failure.status) atomic_store(&e->n_resident, e->plan.first_pages);
    return f.failure.status;
}

/* Faults the rest of the KV memory in while requests run, giving way to them unless one waits for memory. Not
 * at a lower priority: on a busy machine it would keep that lock for as long as it gets no core. */
static void *populate_main(void *arg) {
    struct quire_engine *e = arg;
    struct error err;
    if (populate(e, e->plan.n_pages, &err))
        log_write(e->log, LOG_ERROR, "%s; going on with %zu blocks", err.text,
                  atomic_load(&e->n_resident) - 1);
    atomic_store(&e->populated, true);
    doorbell_ring(&e->bell);
    return NULL;
}

/* ---- parts ----------------------------------------------------------------------------------------------
 */

static void copy_block(void *ctx, uint32_t dst, uint32_t src, size_t n_tokens) {
    struct quire_engine *e = ctx;
    e->backend->ops->kv_copy(e->backend, e->kv, dst, src, n_tokens);
}

static bool is_blocked(struct sequence *seq) {
    return stream_stalls(stream_of(seq));
}

static struct hash128 parse_id(const char *hex) {
    struct hash128 id = {0, 0};
    char half[17] = {0};
    memcpy(half, hex, strnlen(hex, 16));
    id.hi = strtoull(half, NULL, 16);
    if (strlen(hex) > 16) id.lo = strtoull(hex + 16, NULL, 16);
    return id;
}

static int set_limits(struct quire_engine *e, const struct quire_config *c, struct error *err) {
    struct stream_limits *l = &e->limits;
    *l = (struct stream_limits){.n_vocab = e->spec.n_vocab,
                                .max_model_len = e->plan.max_model_len,
                                .block_tokens = e->plan.block_tokens,
                                .pool_blocks = e->plan.n_pages - 1,
                                .cache = &e->cache,
                                .token_bytes = c->token_bytes,
                                .stop_tokens = c->stop_tokens,
                                .n_stop_tokens = c->n_stop_tokens,
                                .pooling = (enum quire_pooling)e->plan.pooling,
                                .vector_floats = model_vector_floats(&e->spec, e->plan.pooling),
                                .encoder = e->spec.encoder,
                                .caching = e->plan.caching,
                                .matryoshka = c->matryoshka,
                                .numerics_id = parse_id(model_numerics_id(e->model)),
                                .seed = c->seed};
    for (size_t i = 0; i < c->n_stop_tokens; i++)
        if (c->stop_tokens[i] >= e->spec.n_vocab)
            return error_set(err, QUIRE_EINVAL, "stop token %u is not below the vocabulary size %zu",
                             c->stop_tokens[i], e->spec.n_vocab);
    if (c->cache_secret)
        l->secret = hash_secret_from_text(c->cache_secret, strlen(c->cache_secret));
    else if (!hash_secret_random(&l->secret))
        return error_set(err, QUIRE_EIO, "the kernel gives no random numbers");
    return 0;
}

static int create_parts(struct quire_engine *e, const struct quire_config *c, struct error *err) {
    struct plan *p = &e->plan;
    int rc = e->backend->ops->kv_create(e->backend, &p->layout, p->n_pages, &e->kv, err);
    if (rc) return rc;
    if ((rc = kv_pool_create(p->n_pages, p->block_tokens, &e->pool, err))) return rc;
    e->cache.pool = e->pool;
    e->cache.copy = copy_block;
    e->cache.copy_ctx = e;
    struct scheduler_options o = {.max_num_seqs = p->max_num_seqs,
                                  .max_num_batched_tokens = p->max_num_batched_tokens,
                                  .max_score_rows = p->max_score_rows,
                                  .max_model_len = p->max_model_len,
                                  .max_live = p->max_live,
                                  .chunked = p->chunked,
                                  .in_one_step = e->spec.encoder,
                                  .by_priority = c->policy == QUIRE_PRIORITY,
                                  .static_batch = c->static_batching,
                                  .reserve_tokens = p->reserve_tokens,
                                  .cache = &e->cache,
                                  .blocked = is_blocked};
    if ((rc = scheduler_create(&o, &e->scheduler, err))) return rc;
    if ((rc = step_create(&e->step, p, &e->spec, err))) return rc;
    return set_limits(e, c, err);
}

static void fill_info(struct quire_engine *e, const struct quire_config *c) {
    static const char *const dtypes[] = {
        [QUIRE_BFLOAT16] = "bfloat16", [QUIRE_FLOAT16] = "float16", [QUIRE_FLOAT32] = "float32"};
    struct quire_info *i = &e->info; /* memory rows are there already */
    i->numerics_id = model_numerics_id(e->model);
    i->cpu_path = e->backend->path;
    i->dtype_name = dtypes[c->dtype];
    i->family = e->spec.family;
    i->n_vocab = e->spec.n_vocab;
    i->n_threads = e->backend->n_threads;
    i->max_model_len = e->plan.max_model_len;
    i->model_context_len = e->spec.context_len;
    i->block_tokens = e->plan.block_tokens;
    i->n_blocks = e->plan.n_pages - 1;
    i->max_requests = e->plan.max_live;
    i->max_num_seqs = e->plan.max_num_seqs;
    i->max_num_batched_tokens = e->plan.max_num_batched_tokens;
    i->prefix_caching = e->plan.caching;
    i->chunked_prefill = e->plan.chunked;
    i->kv_bytes_per_token = model_kv_bytes_per_token(&e->spec, e->plan.model.dtype);
    i->pooling = e->limits.pooling;
    i->vector_floats = e->limits.vector_floats;
    i->encoder = e->spec.encoder;
    atomic_store(&e->stats.blocks_total, i->n_blocks);
}

static int start_threads(struct quire_engine *e, struct error *err) {
    int status = thread_start(&e->thread, "quire-engine", 0, engine_main, e);
    e->has_thread = !status;
    if (!status) {
        status = thread_start(&e->populate_thread, "quire-populate", 0, populate_main, e);
        e->has_populate = !status;
    }
    return status ? error_set(err, QUIRE_EIO, "cannot start the engine's threads: %s", strerror(status)) : 0;
}

/* ---- open and shut down ---------------------------------------------------------------------------------
 */

static bool progress(const struct quire_config *c, const char *phase, double done) {
    return !c->progress || c->progress(c->open_ctx, phase, done);
}

static bool load_progress(void *ctx, double done) {
    return progress(ctx, "loading weights", done);
}

/* What opening has taken, for those who ask why a start is slow. */
static void log_start(struct quire_engine *e, const struct quire_config *c, const uint64_t at_us[5]) {
    double ms[4];
    for (size_t i = 0; i < 4; i++) ms[i] = (double)(at_us[i + 1] - at_us[i]) / 1e3;
    log_write(e->log, LOG_DEBUG,
              "start: plan and threads %.0f ms, weights %.0f ms (%.0f MB at %.2f GB/s), waiting for the "
              "tokenizer, pool and buffers %.0f ms, first KV pages %.0f ms",
              ms[0], ms[1], (double)weights_tensor_bytes(c->weights) / 1e6,
              (double)weights_tensor_bytes(c->weights) / 1e6 / ms[1], ms[2], ms[3]);
    const char *placement = e->backend->ops->placement(e->backend);
    if (*placement) log_write(e->log, LOG_INFO, "%s", placement);
}

static int open_parts(struct quire_engine *e, const struct quire_config *c, struct error *err) {
    uint64_t at_us[5] = {clock_us()};
    int rc = plan_engine(e, c, NULL, err);
    if (rc) return rc;
    at_us[1] = clock_us();
    struct model_options o = e->plan.model;
    o.progress = load_progress;
    o.progress_ctx = (void *)(uintptr_t)c;
    if ((rc = model_load(c->weights, &e->spec, e->backend, &o, &e->model, err))) return rc;
    at_us[2] = clock_us();
    if (c->await_tokens && (rc = c->await_tokens(c->open_ctx, err))) return rc;
    if ((rc = create_parts(e, c, err))) return rc;
    at_us[3] = clock_us();
    if (!progress(c, "reserving KV memory", 0))
        return error_set(err, QUIRE_ECANCELED, "opening was given up");
    if ((rc = populate_first(e, err))) return rc;
    progress(c, "reserving KV memory", 1);
    at_us[4] = clock_us();
    log_start(e, c, at_us);
    fill_info(e, c);
    atomic_store(&e->beat_us, clock_us());
    return start_threads(e, err);
}

int quire_open(const struct quire_config *config, struct quire_engine **out, struct error *err) {
    *out = NULL;
    struct quire_engine *e = calloc(1, sizeof *e);
    if (!e) return error_set(err, QUIRE_ENOMEM, "out of memory for the engine");
    e->log = config->log;
    e->step_reader = config->step_reader;
    stats_init(&e->stats);
    mpsc_init(&e->arrivals);
    mpsc_init(&e->departures);
    int rc = open_parts(e, config, err);
    if (rc) {
        quire_shutdown(e);
        return rc;
    }
    *out = e;
    return 0;
}

void quire_shutdown(struct quire_engine *e) {
    if (!e) return;
    atomic_store(&e->stopping, true);
    doorbell_ring(&e->bell);
    if (e->has_populate) pthread_join(e->populate_thread, NULL);
    if (e->has_thread) pthread_join(e->thread, NULL);
    step_free(&e->step);
    scheduler_free(e->scheduler);
    kv_pool_free(e->pool);
    if (e->kv) e->backend->ops->kv_free(e->backend, e->kv);
    model_free(e->model);
    if (e->backend) e->backend->ops->close(e->backend);
    free(e);
}
