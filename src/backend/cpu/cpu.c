/* Opening the CPU backend: threads, kernels, scratch, and the table of operations. */
#include "backend/cpu/cpu.h"
#include "backend/cpu/cores.h"
#include "backend/cpu/places.h"

#include "base/error.h"
#include "base/size.h"

#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Partial results of attention: room for a prompt panel of a small model in one wave. */
#define PARTIAL_FLOATS ((size_t)1 << 20)

/* Buffers up to this size (norm weights, biases) share slabs with the matrices. */
#define SMALL_BUFFER_BYTES ((size_t)256 << 10)

static void carve(size_t *total, size_t *at, size_t bytes) {
    *at = *total;
    size_t next;
    if (!size_add(*total, bytes, &next) || !size_align_up(next, MEMORY_ALIGN, &next)) next = SIZE_MAX;
    *total = next;
}

static size_t widest_act(const struct kern *k, size_t width) {
    size_t most = 0;
    for (int act = 0; act < KERN_ACT_KINDS; act++)
        most = size_max(most, k->act_row_bytes((enum kern_act)act, width));
    return most;
}

/* Where everything lies in the scratch. Limits come from a model's description, which is ranged, so the sums
 * are far from overflow; saturation makes a wrong one fail at the mapping. */
static struct cpu_scratch lay_out(const struct kern *k, const struct backend_cpu_options *o,
                                  size_t n_threads) {
    struct cpu_scratch s = {.max_vocab = o->max_vocab};
    s.n_queries = size_max(ATTN_TILE_QUERIES, o->max_heads);
    s.n_parts = size_div_up(size_max(o->max_positions, 1), KERN_ATTN_PARTITION);
    s.n_partials = size_max(PARTIAL_FLOATS, o->max_heads * s.n_parts * (o->max_head_dim + 2));

    carve(&s.thread_bytes, &s.mm, kern_mm_scratch(o->max_width) * sizeof(float));
    carve(&s.thread_bytes, &s.row, size_max(o->max_width, o->max_experts) * sizeof(float));
    carve(&s.thread_bytes, &s.attn, attention_thread_bytes(s.n_queries, s.n_parts));
    carve(&s.thread_bytes, &s.sample, sample_thread_bytes(o->max_vocab));

    carve(&s.total_bytes, &s.acts, (o->max_rows + k->act_rows_over) * widest_act(k, o->max_width));
    carve(&s.total_bytes, &s.units, ATTN_MAX_UNITS * attention_unit_bytes());
    carve(&s.total_bytes, &s.counters, ATTN_MAX_COUNTERS * sizeof(_Atomic uint32_t));
    carve(&s.total_bytes, &s.partials, s.n_partials * sizeof(float));
    carve(&s.total_bytes, &s.experts, experts_bytes(o));
    carve(&s.total_bytes, &s.threads, n_threads * s.thread_bytes);
    return s;
}

static size_t resolve_threads(const struct backend_cpu_options *o) {
    return o->n_threads ? o->n_threads : cores_available();
}

size_t backend_cpu_scratch_bytes(const struct backend_cpu_options *o) {
    const struct kern *k = kern_select(o->isa_limit);
    if (!k) return 0;
    return lay_out(k, o, resolve_threads(o)).total_bytes;
}

/* ---- memory ---- */

struct populate_job {
    char *p;
    size_t bytes;
    _Atomic bool failed;
    pool_fn *fn;
    void *ctx;
};

static void populate_item(void *ctx, size_t item, size_t thread) {
    struct populate_job *j = ctx;
    size_t first = item * MEMORY_HUGE_BYTES, n = size_min(MEMORY_HUGE_BYTES, j->bytes - first);
    if (memory_populate(j->p + first, n)) atomic_store(&j->failed, true);
}

/* Where memory is not to be had, what would write to it is left out. */
static void populated_item(void *ctx, size_t item, size_t thread) {
    struct populate_job *j = ctx;
    if (!atomic_load_explicit(&j->failed, memory_order_relaxed)) j->fn(j->ctx, item, thread);
}

int cpu_populate_run(struct cpu_backend *c, char *p, size_t bytes, size_t n_items, pool_fn *fn, void *ctx) {
    struct populate_job j = {.p = p, .fn = fn, .ctx = ctx};
    if (bytes && !size_align_up(bytes, MEMORY_PAGE_BYTES, &j.bytes)) return QUIRE_ENOMEM;
    pool_run_after(c->pool, size_div_up(j.bytes, MEMORY_HUGE_BYTES), populate_item, n_items, populated_item,
                   &j);
    return atomic_load(&j.failed) ? QUIRE_ENOMEM : 0;
}

static void cpu_buffer_free(struct backend *b, struct backend_buffer *buf) {
    if (!buf) return;
    if (buf->block.slab)
        memory_slab_free(&cpu_of(b)->slabs, buf->block);
    else
        memory_unmap(buf->data, buf->bytes);
    free(buf);
}

static struct backend_buffer *cpu_buffer_alloc(struct backend *b, size_t bytes) {
    struct backend_buffer *buf = calloc(1, sizeof *buf);
    if (!buf) return NULL;
    buf->bytes = size_max(bytes, 1);
    if (buf->bytes <= SMALL_BUFFER_BYTES) {
        buf->block = memory_slab_alloc(&cpu_of(b)->slabs, buf->bytes);
        buf->data = buf->block.data;
        if (buf->data) return buf;
    } else {
        buf->data = memory_map(buf->bytes, false);
        if (buf->data && !cpu_populate_run(cpu_of(b), buf->data, buf->bytes, 0, NULL, NULL)) return buf;
    }
    cpu_buffer_free(b, buf);
    return NULL;
}

static void cpu_upload(struct backend *b, struct backend_buffer *dst, size_t offset, const void *src,
                       size_t bytes) {
    if (bytes) memcpy((char *)dst->data + offset, src, bytes);
}

static void cpu_download(struct backend *b, void *dst, const struct backend_buffer *src, size_t offset,
                         size_t bytes) {
    if (bytes) memcpy(dst, (const char *)src->data + offset, bytes);
}

static void cpu_enter(struct backend *b) {
    places_enter(cpu_of(b)->places, 0);
}

static const char *cpu_placement(struct backend *b) {
    return places_describe(cpu_of(b)->places);
}

static void cpu_wait(struct backend *b) {}

struct host_job {
    void (*fn)(void *ctx, size_t item);
    void *ctx;
};

static void host_item(void *ctx, size_t item, size_t thread) {
    const struct host_job *j = ctx;
    j->fn(j->ctx, item);
}

static void cpu_host_run(struct backend *b, size_t n_items, void (*fn)(void *ctx, size_t item), void *ctx) {
    struct host_job j = {.fn = fn, .ctx = ctx};
    pool_run(cpu_of(b)->pool, n_items, host_item, &j);
}

struct read_job {
    void (*fn)(void *ctx, size_t row, const float *values);
    void *ctx;
    const float *x;
    size_t width;
};

static void read_item(void *ctx, size_t item, size_t thread) {
    const struct read_job *j = ctx;
    j->fn(j->ctx, item, j->x + item * j->width);
}

static void cpu_read_rows(struct backend *b, const struct backend_buffer *x, size_t n_rows, size_t width,
                          void (*fn)(void *ctx, size_t row, const float *values), void *ctx) {
    struct read_job j = {.fn = fn, .ctx = ctx, .x = cpu_f32(x), .width = width};
    pool_run(cpu_of(b)->pool, n_rows, read_item, &j);
}

static void cpu_close(struct backend *b) {
    if (!b) return;
    struct cpu_backend *c = cpu_of(b);
    pool_close(c->pool);
    memory_slabs_free(&c->slabs);
    memory_unmap(c->scratch, c->at.total_bytes);
    places_close(c->places);
    free(c);
}

static const struct backend_ops CPU_OPS = {
    .close = cpu_close,
    .buffer_alloc = cpu_buffer_alloc,
    .buffer_free = cpu_buffer_free,
    .upload = cpu_upload,
    .download = cpu_download,
    .enter = cpu_enter,
    .placement = cpu_placement,
    .wait = cpu_wait,
    .host_run = cpu_host_run,
    .read_rows = cpu_read_rows,
    .matrix_bytes = cpu_matrix_bytes,
    .weights_reserve = cpu_weights_reserve,
    .matrix_load = cpu_matrix_load,
    .matrix_free = cpu_matrix_free,
    .kv_page_bytes = cpu_kv_page_bytes,
    .kv_create = cpu_kv_create,
    .kv_free = cpu_kv_free,
    .kv_populate = cpu_kv_populate,
    .kv_copy = cpu_kv_copy,
    .kv_export_bytes = cpu_kv_export_bytes,
    .kv_export = cpu_kv_export,
    .kv_import = cpu_kv_import,
    .embed = cpu_embed,
    .matmul = cpu_matmul,
    .matmul_heads = cpu_matmul_heads,
    .experts = cpu_experts,
    .residual = cpu_residual,
    .normalise = cpu_normalise,
    .sum_rows = cpu_sum_rows,
    .soft_cap = cpu_soft_cap,
    .rope_kv_write = cpu_rope_kv_write,
    .attention = cpu_attention,
    .gather_rows = cpu_gather_rows,
    .sample = cpu_sample,
};

/* ---- opening ---- */

/* Names of what decides bits: the table, the partition of softmax sums, each KV type's attention, each
 * format's product family. */
static void describe_numerics(struct cpu_backend *c) {
    const struct kern_attn *attn = c->kern->attn; /* that of rows is float32 arithmetic in every table */
    size_t n = (size_t)snprintf(c->numerics, sizeof c->numerics, "cpu %s attention/%d %s, %s, %s",
                                c->kern->name, KERN_ATTN_PARTITION, attn[KERN_KV_F32].name,
                                attn[KERN_KV_F16].name, attn[KERN_KV_BF16].name);
    for (int f = 0; f < KERN_FORMAT_END && n < sizeof c->numerics; f++)
        if (c->kern->mm[f].run)
            n += (size_t)snprintf(c->numerics + n, sizeof c->numerics - n, "; %d=%s", f, c->kern->mm[f].name);
}

int backend_cpu_open(const struct backend_cpu_options *o, struct backend **out, struct error *err) {
    const struct kern *k = kern_select(o->isa_limit);
    if (!k)
        return error_param(err, QUIRE_EINVAL, "QUIRE_CPU",
                           "QUIRE_CPU=%s: unknown; allowed: ref, avx2, avx512, amx",
                           o->isa_limit ? o->isa_limit : "");
    enum places_bind bind;
    if (!places_bind_of(o->bind, &bind))
        return error_param(err, QUIRE_EINVAL, "cpu-bind", "cpu-bind %s: unknown; allowed: node, core, none",
                           o->bind);
    struct cpu_backend *c = calloc(1, sizeof *c);
    if (!c) return error_set(err, QUIRE_ENOMEM, "compute device: out of memory");
    size_t n_threads = resolve_threads(o);
    c->kern = k;
    c->max_rows = o->max_rows;
    c->max_width = o->max_width;
    c->limits = *o;
    c->at = lay_out(k, o, n_threads);
    describe_numerics(c);
    c->base = (struct backend){
        .ops = &CPU_OPS, .name = "cpu", .path = k->name, .n_threads = n_threads, .max_rows = o->max_rows};
    *out = &c->base;
    if (o->sizes_only) return 0;
    c->places = c->slabs.places = places_open(bind, n_threads);
    int rc = pool_open(n_threads, c->places, &c->pool, err);
    if (!rc) c->scratch = memory_map(c->at.total_bytes, false);
    if (!rc && (!c->scratch || cpu_populate_run(c, c->scratch, c->at.total_bytes, 0, NULL, NULL)))
        rc = error_set(err, QUIRE_ENOMEM, "compute device: no memory for %zu bytes of scratch",
                       c->at.total_bytes);
    if (rc) {
        cpu_close(&c->base);
        *out = NULL;
    }
    return rc;
}

const char *backend_numerics(const struct backend *b) {
    return ((const struct cpu_backend *)b)->numerics;
}
