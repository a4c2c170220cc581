/* What everything will take, decided before anything large is taken. */
#include "base/error.h"
#include "base/size.h"
#include "engine/engine.h"
#include "engine/meminfo.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#define MIB ((double)(1 << 20))

#define MAX_SEQS     65536u
#define MAX_BATCHED  ((size_t)1 << 22)
#define MAX_QUEUE    ((size_t)1 << 24)
#define SCORE_ROWS   512u
#define LOGIT_ROWS   64u
#define LOGITS_BYTES (16u << 20)
#define FIRST_TOKENS 512u /* whose KV is there when the engine is ready: of a short prompt */

/* What the process takes besides the other rows: its program and libraries, stacks, connections, small
 * allocations and their fragmentation; and of each token its spelling, its merge, and the indices of both. It
 * follows from the model alone, so that it is the same before anything is started; tests hold what is
 * resident against it. */
#define REST_BYTES       (28u << 20)
#define REST_TOKEN_BYTES 192u
#define QUEUED_BYTES     24576u /* a waiting request of usual size: pages of its arrays, body and connection */

/* ---- configuration --------------------------------------------------------------------------------------
 */

static int check_range(const char *name, size_t v, size_t min, size_t max, struct error *err) {
    if (v >= min && v <= max) return 0;
    return error_param(err, QUIRE_EINVAL, name, "%s must be from %zu to %zu, not %zu", name, min, max, v);
}

static int check_config(const struct quire_config *c, struct error *err) {
    int rc;
    if (!c->weights) return error_set(err, QUIRE_EINVAL, "no model was given");
    if ((rc = check_range("max-num-seqs", c->max_num_seqs, 1, MAX_SEQS, err)) ||
        (rc = check_range("max-num-batched-tokens", c->max_num_batched_tokens, 1, MAX_BATCHED, err)) ||
        (rc = check_range("max-queue", c->max_queue, 0, MAX_QUEUE, err)) ||
        (rc = check_range("block-size", c->block_tokens, 16, 256, err)))
        return rc;
    if (!size_is_pow2(c->block_tokens))
        return error_param(err, QUIRE_EINVAL, "block-size",
                           "block-size must be 16, 32, 64, 128 or 256, not %zu", c->block_tokens);
    if (!c->kv_bytes && !(c->memory_share > 0 && c->memory_share <= 1))
        return error_param(err, QUIRE_EINVAL, "gpu-memory-utilization",
                           "gpu-memory-utilization must be above 0 and at most 1, not %g", c->memory_share);
    if (c->max_num_batched_tokens < c->max_num_seqs)
        return error_param(
            err, QUIRE_EINVAL, "max-num-batched-tokens",
            "max-num-batched-tokens is %zu, less than max-num-seqs %zu: every running sequence "
            "takes a token a step",
            c->max_num_batched_tokens, c->max_num_seqs);
    if (!c->chunked_prefill && c->long_prefill_threshold)
        return error_param(err, QUIRE_EINVAL, "long-prefill-token-threshold",
                           "long-prefill-token-threshold needs chunked prefill (enable-chunked-prefill)");
    return 0;
}

/* What the model is opened for; pooling types have the model's numbers. */
static int resolve_pooling(const struct quire_config *c, const struct model_spec *spec,
                           enum model_pooling *out, struct error *err) {
    *out = MODEL_POOL_NONE;
    if (c->runner == QUIRE_RUNNER_GENERATE && spec->encoder)
        return error_param(err, QUIRE_EUNSUPPORTED, "runner",
                           "%s is an encoder: it makes vectors, not text (runner pooling)", spec->family);
    if (c->runner == QUIRE_RUNNER_GENERATE && spec->headless)
        return error_param(err, QUIRE_EUNSUPPORTED, "runner",
                           "this %s model has no output matrix (lm_head): it makes vectors, not text (runner "
                           "pooling)",
                           spec->family);
    if (c->runner == QUIRE_RUNNER_GENERATE && c->pooling)
        return error_param(err, QUIRE_EINVAL, "pooling-type", "pooling-type needs runner pooling");
    if (c->runner == QUIRE_RUNNER_GENERATE) return 0;
    *out = c->pooling ? (enum model_pooling)c->pooling
                      : model_default_pooling(spec, c->runner == QUIRE_RUNNER_POOLING);
    if (*out == MODEL_POOL_RANK && spec->n_labels != 1)
        return error_param(err, QUIRE_EUNSUPPORTED, "pooling-type",
                           "pooling-type rank: the model has %zu output labels, a cross-encoder has 1",
                           spec->n_labels);
    return 0;
}

static int resolve_length(const struct quire_config *c, const struct model_spec *spec, size_t *out,
                          struct error *err) {
    *out = c->max_model_len ? c->max_model_len : spec->context_len;
    if (*out > spec->context_len)
        return error_param(err, QUIRE_EINVAL, "max-model-len",
                           "max-model-len is %zu, the model was made for at most %zu tokens", *out,
                           spec->context_len);
    if (*out < 2)
        return error_param(err, QUIRE_EINVAL, "max-model-len", "max-model-len must be at least 2, not %zu",
                           *out);
    if (spec->encoder && c->long_prefill_threshold)
        return error_param(err, QUIRE_EINVAL, "long-prefill-token-threshold",
                           "long-prefill-token-threshold: an encoder takes a sequence in one step");
    if (spec->encoder && (c->static_batching || c->reserve_kv))
        return error_param(err, QUIRE_EINVAL, "baseline-static",
                           "baseline-static: an encoder takes a sequence in one step");
    if (spec->encoder) return 0;
    if (!c->chunked_prefill && c->max_num_batched_tokens < *out)
        return error_param(err, QUIRE_EINVAL, "max-num-batched-tokens",
                           "max-num-batched-tokens is %zu: without chunked prefill it must be at least "
                           "max-model-len %zu",
                           c->max_num_batched_tokens, *out);
    return 0;
}

static enum backend_dtype dtype_of(enum quire_dtype d) {
    return d == QUIRE_FLOAT32 ? BACKEND_F32 : d == QUIRE_FLOAT16 ? BACKEND_F16 : BACKEND_BF16;
}

static void plan_rows(struct plan *p, const struct quire_config *c, const struct quire_engine *e) {
    p->max_num_seqs = c->max_num_seqs;
    p->max_num_batched_tokens = c->max_num_batched_tokens;
    if (e->spec.encoder && p->max_num_batched_tokens < p->max_model_len) {
        p->max_num_batched_tokens = p->max_model_len;
        log_write(e->log, LOG_INFO,
                  "an encoder takes a sequence in one step: max-num-batched-tokens is raised to %zu",
                  p->max_model_len);
    }
    p->block_tokens = c->block_tokens;
    p->max_live = c->max_num_seqs + c->max_queue;
    p->chunk_tokens = p->max_num_batched_tokens;
    if (c->long_prefill_threshold) p->chunk_tokens = size_min(p->chunk_tokens, c->long_prefill_threshold);
    p->max_score_rows = p->max_num_batched_tokens;
    if (c->chunked_prefill) p->max_score_rows = size_min(p->max_score_rows, SCORE_ROWS);
    p->chunked = c->chunked_prefill && !e->spec.encoder;
    p->reserve_tokens = c->reserve_kv ? p->max_model_len : 0;
    /* Vectors of all tokens are needed, or those of earlier tokens depend on later ones: nothing is found. */
    p->caching = c->prefix_caching && !e->spec.encoder && (!p->pooling || p->pooling == MODEL_POOL_LAST);
    if (p->pooling) return; /* no logits */
    p->max_kept_rows = p->max_score_rows + p->max_num_seqs;
    size_t rows = LOGITS_BYTES / (sizeof(float) * e->spec.n_vocab);
    p->max_logit_rows = size_max(8, size_min(rows, LOGIT_ROWS));
}

static void describe_cache(struct quire_engine *e, const struct quire_config *c) {
    struct kv_cache *k = &e->cache;
    k->block_tokens = c->block_tokens;
    k->n_groups = e->spec.n_kv_groups;
    k->chunk_tokens = e->plan.chunk_tokens;
    k->naming = e->plan.caching;
    for (size_t g = 0; g < k->n_groups; g++) {
        size_t window = e->spec.kv_groups[g].window;
        k->window[g] = window < e->plan.max_model_len ? window : 0; /* no sequence is that long */
    }
}

static bool has_window(const struct kv_cache *k) {
    for (size_t g = 0; g < k->n_groups; g++)
        if (k->window[g]) return true;
    return false;
}

static void limit_chunk(struct quire_engine *e) {
    struct plan *p = &e->plan;
    if (!p->chunked) return;
    p->chunk_tokens = e->cache.chunk_tokens = kv_chunk_limit(&e->cache, p->n_pages - 1);
}

/* ---- memory ---------------------------------------------------------------------------------------------
 */

static uint64_t fixed_bytes(const struct plan_need *n) {
    return n->weights + n->activations + (n->apart ? 0 : n->buffers) + n->rest;
}

static struct scheduler_options scheduler_options_of(struct quire_engine *e) {
    return (struct scheduler_options){.max_num_seqs = e->plan.max_num_seqs,
                                      .max_num_batched_tokens = e->plan.max_num_batched_tokens,
                                      .max_score_rows = e->plan.max_score_rows,
                                      .max_model_len = e->plan.max_model_len,
                                      .max_live = e->plan.max_live,
                                      .cache = &e->cache};
}

/* Bytes of the engine's own tables for a pool of n_pages; 0: they do not fit size_t. */
static uint64_t buffer_bytes(struct quire_engine *e, size_t n_pages) {
    struct scheduler_options o = scheduler_options_of(e);
    size_t pool = kv_pool_bytes(n_pages, e->plan.block_tokens), scheduler = scheduler_bytes(&o);
    if (!pool || !scheduler) return 0;
    /* Tokens and keys of as many running sequences as there may be, at full length. */
    uint64_t requests = (uint64_t)e->plan.max_num_seqs * e->plan.max_model_len *
                            (sizeof(uint32_t) + sizeof(struct hash128) / 16) +
                        (uint64_t)e->plan.max_live * QUEUED_BYTES;
    return (uint64_t)pool + scheduler + step_bytes(&e->plan, &e->spec) + requests;
}

static void set_row(struct quire_engine *e, size_t i, const char *name, uint64_t bytes, const char *detail) {
    e->info.memory[i].name = name;
    e->info.memory[i].bytes = bytes;
    snprintf(e->info.memory[i].detail, sizeof e->info.memory[i].detail, "%s", detail);
}

/* With windows, a token's share of the pool depends on how many come before it. */
static void describe_pool(const struct quire_engine *e, char *text, size_t size) {
    const struct plan *p = &e->plan;
    size_t n = p->n_pages - 1, one = kv_peak_blocks(&e->cache, p->max_model_len);
    int used = snprintf(text, size, "%zu blocks of %zu tokens, ", n, p->block_tokens);
    if (has_window(&e->cache))
        snprintf(text + used, size - (size_t)used, "%.1f sequences of %zu tokens", (double)n / (double)one,
                 p->max_model_len);
    else
        snprintf(text + used, size - (size_t)used, "%zu tokens", n * p->block_tokens / e->cache.n_groups);
}

static void fill_rows(struct quire_engine *e, const struct quire_config *c) {
    char text[96];
    const struct plan *p = &e->plan;
    const struct plan_need *n = &p->need;
    uint64_t kv = (uint64_t)p->n_pages * p->page_bytes;
    snprintf(text, sizeof text, "%zu tensors, file %.1f MiB", weights_n_tensors(c->weights),
             (double)weights_tensor_bytes(c->weights) / MIB);
    set_row(e, 0, "weights", n->weights, text);
    describe_pool(e, text, sizeof text);
    set_row(e, 1, "KV blocks", kv, text);
    snprintf(text, sizeof text, "%zu rows at a time, %zu rows of logits", e->backend->max_rows,
             p->max_logit_rows);
    set_row(e, 2, "activations", n->activations, text);
    snprintf(text, sizeof text, "%zu sequences, %zu tokens a step, %zu requests", p->max_num_seqs,
             p->max_num_batched_tokens, p->max_live);
    if (n->apart) snprintf(text, sizeof text, "in the host's memory: %.1f MiB", (double)n->buffers / MIB);
    set_row(e, 3, "buffers", n->apart ? 0 : n->buffers, text);
    set_row(e, 4, "rest", n->rest,
            n->apart ? "the driver's context" : "program, tokenizer, threads, connections");
    set_row(e, 5, "total", fixed_bytes(n) + kv, "resident when all is in use");
}

size_t plan_longest(const struct quire_engine *e, size_t n_pages) {
    size_t low = 0, high = e->plan.max_model_len;
    while (low < high) {
        size_t mid = low + (high - low + 1) / 2;
        if (kv_peak_blocks(&e->cache, mid) + 1 <= n_pages)
            low = mid;
        else
            high = mid - 1;
    }
    return low;
}

static int too_large(const struct quire_engine *e, const struct quire_config *c, struct error *err) {
    const struct plan *p = &e->plan;
    const struct plan_need *n = &p->need;
    size_t one = kv_peak_blocks(&e->cache, p->max_model_len) + 1;
    uint64_t allowed = n->allowed, fixed = fixed_bytes(n) - n->taken, kv = (uint64_t)one * p->page_bytes,
             need = fixed + kv;
    size_t fit = plan_longest(e, (size_t)n->room_pages);
    if (fit >= 2)
        return error_param(
            err, QUIRE_ENOMEM, "max-model-len",
            "the model with KV for one sequence of %zu tokens needs %.1f MiB, %.1f MiB more than "
            "the %.1f MiB it may take (%g of what %s has available): use --max-model-len %zu or "
            "less, or raise --gpu-memory-utilization",
            p->max_model_len, (double)need / MIB, (double)(need - allowed) / MIB, (double)allowed / MIB,
            c->memory_share, n->limited_by, fit);
    return error_param(
        err, QUIRE_ENOMEM, "gpu-memory-utilization",
        "the model needs %.1f MiB without KV, %.1f MiB more than the %.1f MiB it may take (%g of "
        "what %s has available): free memory, raise --gpu-memory-utilization or use a smaller model",
        (double)fixed / MIB, (double)(fixed > allowed ? fixed - allowed : need - allowed) / MIB,
        (double)allowed / MIB, c->memory_share, n->limited_by);
}

/* The most pages that can be in use: those of full sequences, or where each is computed in one step those of
 * a step. */
static size_t most_pages(const struct quire_engine *e) {
    const struct plan *p = &e->plan;
    size_t one = kv_peak_blocks(&e->cache, p->max_model_len), most;
    if (!size_mul(one, p->max_num_seqs, &most) || most >= (size_t)1 << 31) most = ((size_t)1 << 31) - 1;
    if (e->spec.encoder) most = size_min(most, p->max_num_batched_tokens / p->block_tokens + p->max_num_seqs);
    return size_max(most, one);
}

/* As many pages as the memory share leaves, no more than can be in use. */
static int size_pool(struct quire_engine *e, const struct quire_config *c, struct error *err) {
    struct plan *p = &e->plan;
    struct plan_need *n = &p->need;
    size_t one = kv_peak_blocks(&e->cache, p->max_model_len), most = most_pages(e);
    uint64_t fixed = fixed_bytes(n) - n->taken;
    /* The pool's own tables grow with it: a page costs its bytes and its share of them. */
    n->page_bytes = p->page_bytes;
    if (!n->apart) n->page_bytes += (buffer_bytes(e, most + 1) - n->buffers) / (most + 1) + 1;
    n->room_pages = n->allowed > fixed ? (n->allowed - fixed) / n->page_bytes : 0;
    if (n->room_pages < one + 1) return too_large(e, c, err);
    p->n_pages = (size_t)(n->room_pages < most + 1 ? n->room_pages : most + 1);
    return 0;
}

static int given_pool(struct quire_engine *e, const struct quire_config *c, struct error *err) {
    struct plan *p = &e->plan;
    struct plan_need *n = &p->need;
    uint64_t pages = c->kv_bytes / p->page_bytes, fixed = fixed_bytes(n) - n->taken;
    n->page_bytes = p->page_bytes;
    n->room_pages = pages;
    if (pages < 2 || pages > (uint64_t)1 << 31)
        return error_param(err, QUIRE_EINVAL, "kv-cache-memory-bytes",
                           "kv-cache-memory-bytes is %" PRIu64 ": at least %zu (two blocks) %s", c->kv_bytes,
                           2 * p->page_bytes,
                           pages < 2 ? "are needed" : "and fewer than 2^31 blocks are allowed");
    if (fixed + c->kv_bytes > n->available)
        return error_param(
            err, QUIRE_ENOMEM, "kv-cache-memory-bytes",
            "KV of %.1f MiB and the rest of %.1f MiB are %.1f MiB more than %s has available: use "
            "--kv-cache-memory-bytes %" PRIu64 " or less",
            (double)c->kv_bytes / MIB, (double)fixed / MIB,
            ((double)(fixed + c->kv_bytes) - (double)n->available) / MIB, n->limited_by,
            n->available > fixed ? n->available - fixed : 0);
    p->n_pages = (size_t)pages;
    return 0;
}

/* What there is, and what of it this process has. */
static int read_memory(const struct plan_place *place, size_t scratch, struct plan_need *n,
                       struct error *err) {
    if (place && place->available_bytes) {
        n->available = place->available_bytes;
        n->limited_by = place->name;
        n->taken = place->taken_bytes;
        return 0;
    }
    struct meminfo m;
    if (meminfo_read("", &m))
        return error_set(err, QUIRE_EIO, "cannot read from /proc/meminfo how much memory is available");
    n->available = m.available_bytes;
    n->limited_by = m.limited_by;
    uint64_t resident = meminfo_resident_bytes(); /* the backend's scratch is in it */
    n->taken = resident < n->rest + scratch ? resident : n->rest + scratch;
    return 0;
}

static int plan_memory(struct quire_engine *e, const struct quire_config *c, const struct plan_place *place,
                       size_t scratch, struct error *err) {
    struct plan *p = &e->plan;
    struct plan_need *n = &p->need;
    struct model_memory model;
    int rc = model_memory_plan(c->weights, &e->spec, e->backend, &p->model, &model, err);
    if (rc) return rc;
    *n = (struct plan_need){.weights = model.weights_bytes,
                            .activations = model.activation_bytes + scratch,
                            .rest = REST_BYTES + (uint64_t)e->spec.n_vocab * REST_TOKEN_BYTES,
                            .apart = place && place->apart};
    if (n->apart) n->rest = place->context_bytes;
    n->buffers = buffer_bytes(e, 2);
    if (!n->buffers) return error_set(err, QUIRE_ELIMIT, "these limits need more memory than there can be");
    if ((rc = read_memory(place, scratch, n, err))) return rc;
    n->allowed = (uint64_t)((double)n->available * (c->kv_bytes ? 1.0 : c->memory_share));
    rc = c->kv_bytes ? given_pool(e, c, err) : size_pool(e, c, err);
    if (rc) return rc;
    limit_chunk(e);
    n->buffers = buffer_bytes(e, p->n_pages);
    if (!n->buffers) return error_set(err, QUIRE_ELIMIT, "these limits need more memory than there can be");
    p->first_pages =
        size_min(p->n_pages, kv_peak_blocks(&e->cache, size_min(p->chunk_tokens, FIRST_TOKENS)) + 1);
    fill_rows(e, c);
    size_t fit = plan_longest(e, p->n_pages);
    if (fit < p->max_model_len && p->reserve_tokens)
        return error_param(
            err, QUIRE_EINVAL, "baseline-static",
            "baseline-static reserve takes KV for max-model-len %zu tokens a sequence, the memory "
            "holds %zu: use --max-model-len %zu or less",
            p->max_model_len, fit, fit);
    if (fit < p->max_model_len)
        log_write(e->log, LOG_WARN,
                  "KV memory holds %zu tokens, less than max-model-len %zu: longer requests will be refused",
                  fit, p->max_model_len);
    return 0;
}

static int open_device(const struct plan_place *place, const struct backend_cpu_options *o,
                       struct backend **out, size_t *scratch, struct error *err) {
    if (place) return place->open(place->ctx, o, out, scratch, err);
    *scratch = backend_cpu_scratch_bytes(o);
    return backend_cpu_open(o, out, err);
}

int plan_engine(struct quire_engine *e, const struct quire_config *c, const struct plan_place *place,
                struct error *err) {
    struct plan *p = &e->plan;
    size_t scratch;
    int rc = check_config(c, err);
    if (rc) return rc;
    if ((rc = model_spec_read(c->weights, &e->spec, err))) return rc;
    if ((rc = resolve_pooling(c, &e->spec, &p->pooling, err))) return rc;
    if ((rc = resolve_length(c, &e->spec, &p->max_model_len, err))) return rc;
    plan_rows(p, c, e);
    describe_cache(e, c);
    p->device = model_cpu_options(&e->spec, p->max_model_len, p->max_num_batched_tokens);
    p->device.n_threads = c->n_threads;
    p->device.isa_limit = c->cpu_limit;
    p->device.bind = c->cpu_bind;
    if (p->pooling) p->device.max_vocab = 0; /* nothing is sampled */
    if ((rc = open_device(place, &p->device, &e->backend, &scratch, err))) return rc;
    p->max_logit_rows = size_min(p->max_logit_rows, e->backend->max_rows);
    p->model = (struct model_options){.dtype = dtype_of(c->dtype),
                                      .max_model_len = p->max_model_len,
                                      .max_logit_rows = p->max_logit_rows,
                                      .max_kept_rows = p->max_kept_rows,
                                      .pooling = p->pooling,
                                      .max_pool_rows = p->pooling ? p->max_num_seqs : 0};
    p->layout = model_kv_layout(&e->spec, p->block_tokens, p->model.dtype);
    p->page_bytes = e->backend->ops->kv_page_bytes(e->backend, &p->layout);
    if (!p->page_bytes)
        return error_set(err, QUIRE_ELIMIT,
                         "device %s has no layout for KV blocks of %zu tokens and heads of %zu",
                         e->backend->name, p->block_tokens, e->spec.head_dim);
    return plan_memory(e, c, place, scratch, err);
}
