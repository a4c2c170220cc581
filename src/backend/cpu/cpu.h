/* What the files of the CPU backend share. Operations are those of struct backend_ops; see backend.h. */
#ifndef BACKEND_CPU_CPU_H
#define BACKEND_CPU_CPU_H

#include "backend/backend.h"
#include "backend/cpu/memory.h"
#include "backend/cpu/pool.h"
#include "kern/kern.h"

struct backend_buffer {
    void *data;
    size_t bytes;
    struct memory_block block; /* slab NULL: a mapping of its own */
};

struct backend_matrix {
    struct kern_matrix m;
    struct memory_block block;
};

struct backend_kv {
    struct backend_kv_layout layout;
    const struct kern_attn *attn;
    size_t chunk_bytes[BATCH_MAX_GROUPS]; /* K or V of one layer and head of a page, padded to MEMORY_ALIGN */
    size_t page_bytes, n_pages, bytes;
    char *pages;
};

/* Scratch of all operations, sized and reserved when the backend opens. Offsets into one mapping. */
struct cpu_scratch {
    size_t acts;     /* packed inputs of a matrix product */
    size_t units;    /* attention: struct attn_unit [ATTN_MAX_UNITS] */
    size_t counters; /* attention: atomic uint32_t [ATTN_MAX_COUNTERS] */
    size_t partials; /* attention: float [n_partials] */
    size_t experts;  /* see experts.c */
    size_t threads;  /* thread t's part begins at threads + t * thread_bytes */
    size_t total_bytes;

    size_t n_partials;
    size_t n_queries; /* most query vectors of one attention job */
    size_t n_parts;   /* most partitions of a row */
    size_t max_vocab;

    size_t thread_bytes; /* the following are offsets within a thread's part */
    size_t mm;           /* float [kern_mm_scratch] */
    size_t row;          /* float [max_width] */
    size_t attn;         /* see attention.c */
    size_t sample;       /* see sample.c */
};

struct cpu_backend {
    struct backend base; /* first */
    const struct kern *kern;
    struct places *places; /* may be NULL */
    struct pool *pool;
    struct memory_slabs slabs;
    struct cpu_scratch at;
    char *scratch;
    size_t max_rows, max_width;
    struct backend_cpu_options limits;
    char numerics[1024];
};

static inline struct cpu_backend *cpu_of(struct backend *b) {
    return (struct cpu_backend *)b;
}
static inline float *cpu_f32(const struct backend_buffer *buf) {
    return buf->data;
}
static inline void *cpu_thread_scratch(const struct cpu_backend *c, size_t thread, size_t offset) {
    return c->scratch + c->at.threads + thread * c->at.thread_bytes + offset;
}

/* Bytes of scratch per thread, or of the whole, for given limits; the parts of cpu_scratch above. */
size_t attention_unit_bytes(void);
size_t attention_thread_bytes(size_t n_queries, size_t n_parts);
size_t sample_thread_bytes(size_t max_vocab);
size_t experts_bytes(const struct backend_cpu_options *o);
#define ATTN_MAX_UNITS    1024
#define ATTN_MAX_COUNTERS 16384
/* Query vectors that one job aims at: enough to reuse a partition's K and V from the nearest cache. */
#define ATTN_TILE_QUERIES 64

/* cpu.c: makes [p, p + bytes) resident on all threads, then calls fn(ctx, item) as pool_run does, with
 * threads that are done with the one going on to the other. p is page-aligned. QUIRE_ENOMEM. */
int cpu_populate_run(struct cpu_backend *c, char *p, size_t bytes, size_t n_items, pool_fn *fn, void *ctx);

/* matrix.c */
int cpu_weights_reserve(struct backend *b, size_t bytes, struct error *err);
size_t cpu_matrix_bytes(struct backend *b, const struct backend_tensor *t, enum backend_dtype dtype,
                        struct error *err);
int cpu_matrix_load(struct backend *b, const struct backend_tensor *t, enum backend_dtype dtype,
                    struct backend_matrix **out, struct error *err);
void cpu_matrix_free(struct backend *b, struct backend_matrix *m);

/* matmul.c */
void cpu_embed(struct backend *b, struct backend_buffer *y, const struct backend_matrix *table,
               const uint32_t *tokens, size_t n_rows, float scale);
void cpu_matmul(struct backend *b, struct backend_buffer *const *y, const struct backend_matrix *const *w,
                const struct backend_buffer *const *bias, size_t n_outputs, const struct backend_input *input,
                size_t n_rows, bool add);
/* What a thread has to do before its first product or attention. */
void cpu_begin_kernels(const struct cpu_backend *c);
/* Row i of an input: x as it is, or made in this thread's scratch. */
const float *cpu_input_row(const struct cpu_backend *c, const struct backend_input *in, size_t width,
                           size_t i, size_t thread);
/* row = activation(gate) * up; up NULL with BACKEND_GELU and BACKEND_RELU */
void cpu_activate(const struct cpu_backend *c, enum backend_activation activation, float *row,
                  const float *gate, const float *up, size_t width);
/* An item of products has weights of at least this much: below it, taking items costs more than it spreads.
 */
#define MATMUL_ITEM_BYTES       (24 * 1024)
#define MATMUL_ITEMS_PER_THREAD 4
/* Packed input rows of one item stay in the second-level cache while weights stream by. */
#define MATMUL_TILE_BYTES (192 * 1024)
/* Input elements of one item of packing. */
#define PACK_ITEM_ELEMS 4096

/* experts.c */
void cpu_experts(struct backend *b, struct backend_buffer *y, const struct backend_experts *e,
                 const struct backend_buffer *logits, const struct backend_input *input, size_t n_rows);

/* heads.c */
void cpu_matmul_heads(struct backend *b, struct backend_buffer *y, const struct backend_matrix *const *w,
                      size_t n_heads, const struct backend_buffer *x, size_t x_dim, size_t n_rows);

/* kv.c */
size_t cpu_kv_page_bytes(struct backend *b, const struct backend_kv_layout *layout);
int cpu_kv_create(struct backend *b, const struct backend_kv_layout *layout, size_t n_pages,
                  struct backend_kv **out, struct error *err);
void cpu_kv_free(struct backend *b, struct backend_kv *kv);
int cpu_kv_populate(struct backend *b, struct backend_kv *kv, size_t first, size_t n, struct error *err);
void cpu_kv_copy(struct backend *b, struct backend_kv *kv, size_t dst_page, size_t src_page, size_t n_tokens);
size_t cpu_kv_export_bytes(struct backend *b, const struct backend_kv *kv, size_t group);
void cpu_kv_export(struct backend *b, const struct backend_kv *kv, size_t group, size_t page, void *dst);
void cpu_kv_import(struct backend *b, struct backend_kv *kv, size_t group, size_t page, const void *src);

/* Chunks of a layer and head: K and V, or K alone. */
static inline size_t kv_chunks(const struct backend_kv *kv) {
    return kv->layout.rows ? 1 : 2;
}

/* K of a layer and head of a page; V, where it is apart, is kv->chunk_bytes[group] behind it. */
static inline char *kv_chunk(const struct backend_kv *kv, size_t group, size_t page, size_t layer,
                             size_t head) {
    size_t n_heads = kv->layout.groups[group].n_kv_heads;
    return kv->pages + page * kv->page_bytes +
           (layer * n_heads + head) * kv_chunks(kv) * kv->chunk_bytes[group];
}

/* rows.c */
void cpu_rope_kv_write(struct backend *b, struct backend_buffer *q, struct backend_buffer *k,
                       const struct backend_buffer *v, const struct backend_rope *rope,
                       const struct backend_attention *a, struct backend_kv *kv, const struct batch *batch,
                       size_t first_row, size_t n_rows);
void cpu_gather_rows(struct backend *b, struct backend_buffer *dst, size_t dst_row,
                     const struct backend_buffer *src, const uint32_t *rows, size_t n_rows, size_t width);

void cpu_residual(struct backend *b, struct backend_buffer *y, const struct backend_buffer *x,
                  const struct backend_residual *r, size_t n_rows, size_t width);
void cpu_normalise(struct backend *b, struct backend_buffer *y, const struct backend_norm *norm,
                   size_t n_rows, size_t width);
void cpu_sum_rows(struct backend *b, struct backend_buffer *dst, size_t dst_row,
                  const struct backend_buffer *src, size_t first_row, size_t n_rows, size_t width, bool add);
void cpu_soft_cap(struct backend *b, struct backend_buffer *y, float cap, size_t n_rows, size_t width);

/* attention.c */
void cpu_attention(struct backend *b, struct backend_buffer *y, const struct backend_buffer *q,
                   const struct backend_attention *a, const struct backend_kv *kv, const struct batch *batch,
                   size_t first_row, size_t n_rows);

/* sample.c */
void cpu_sample(struct backend *b, const struct backend_buffer *logits, size_t n_rows, size_t n_vocab,
                const struct sample_row *rows, struct sample_result *results);

#endif
