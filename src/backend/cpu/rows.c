/* Operations that treat each row by itself. */
#include "backend/cpu/cpu.h"

#include "base/size.h"

#include <math.h>
#include <string.h>

/* Elements of one item: less is not worth handing to another thread. */
#define ROWS_ITEM_ELEMS 8192

struct rows_job;
typedef void rows_fn(const struct rows_job *j, size_t row, size_t thread);

struct rows_job {
    const struct cpu_backend *c;
    rows_fn *fn;
    size_t n_rows, rows_per_item, width;
    float *y;
    const float *a;
    const uint32_t *rows;
    const void *more;
};

static void run_rows(void *ctx, size_t item, size_t thread) {
    const struct rows_job *j = ctx;
    size_t first = item * j->rows_per_item, end = size_min(first + j->rows_per_item, j->n_rows);
    for (size_t i = first; i < end; i++) j->fn(j, i, thread);
}

static void spread(struct rows_job *j, struct backend *b, rows_fn *fn, size_t n_rows, size_t elems_per_row) {
    j->c = cpu_of(b);
    j->fn = fn;
    j->n_rows = n_rows;
    j->rows_per_item = size_max(ROWS_ITEM_ELEMS / size_max(elems_per_row, 1), 1);
    pool_run(j->c->pool, size_div_up(n_rows, j->rows_per_item), run_rows, j);
}

static void gather_row(const struct rows_job *j, size_t i, size_t thread) {
    memcpy(j->y + i * j->width, j->a + j->rows[i] * j->width, j->width * sizeof(float));
}

void cpu_gather_rows(struct backend *b, struct backend_buffer *dst, size_t dst_row,
                     const struct backend_buffer *src, const uint32_t *rows, size_t n_rows, size_t width) {
    struct rows_job j = {
        .y = cpu_f32(dst) + dst_row * width, .a = cpu_f32(src), .rows = rows, .width = width};
    spread(&j, b, gather_row, n_rows, width);
}

static void residual_row(const struct rows_job *j, size_t i, size_t thread) {
    const struct backend_residual *r = j->more;
    float *row = cpu_thread_scratch(j->c, thread, j->c->at.row), scale = r->scale;
    const float *x = j->a + i * j->width;
    if (r->gate) scale = (float)(scale / (1.0 + exp(-(double)cpu_f32(r->gate)[i])));
    if (r->norm)
        j->c->kern->rms_norm(row, x, cpu_f32(r->norm), j->width, r->norm_eps);
    else if (scale != 1.0f)
        memcpy(row, x, j->width * sizeof *row);
    if (scale != 1.0f) j->c->kern->scale(row, scale, j->width);
    j->c->kern->add(j->y + i * j->width, r->norm || scale != 1.0f ? row : x, j->width);
}

void cpu_residual(struct backend *b, struct backend_buffer *y, const struct backend_buffer *x,
                  const struct backend_residual *r, size_t n_rows, size_t width) {
    struct rows_job j = {.y = cpu_f32(y), .a = cpu_f32(x), .more = r, .width = width};
    spread(&j, b, residual_row, n_rows, width);
}

static void normalise_row(const struct rows_job *j, size_t i, size_t thread) {
    const struct backend_norm *n = j->more;
    float *y = j->y + i * j->width;
    if (n->bias)
        j->c->kern->layer_norm(y, y, cpu_f32(n->weight), cpu_f32(n->bias), j->width, n->eps);
    else
        j->c->kern->rms_norm(y, y, cpu_f32(n->weight), j->width, n->eps);
}

void cpu_normalise(struct backend *b, struct backend_buffer *y, const struct backend_norm *norm,
                   size_t n_rows, size_t width) {
    struct rows_job j = {.y = cpu_f32(y), .more = norm, .width = width};
    spread(&j, b, normalise_row, n_rows, width);
}

/* Columns of one item. */
#define SUM_WIDTH 64

struct sum_job {
    const struct kern *kern;
    float *dst;
    const float *src;
    size_t n_rows, width;
    bool add;
};

static void sum_columns(void *ctx, size_t item, size_t thread) {
    const struct sum_job *j = ctx;
    size_t first = item * SUM_WIDTH, n = size_min(SUM_WIDTH, j->width - first);
    float *dst = j->dst + first;
    if (!j->add) memset(dst, 0, n * sizeof *dst);
    for (size_t i = 0; i < j->n_rows; i++) j->kern->add(dst, j->src + i * j->width + first, n);
}

void cpu_sum_rows(struct backend *b, struct backend_buffer *dst, size_t dst_row,
                  const struct backend_buffer *src, size_t first_row, size_t n_rows, size_t width, bool add) {
    struct sum_job j = {.kern = cpu_of(b)->kern,
                        .dst = cpu_f32(dst) + dst_row * width,
                        .src = cpu_f32(src) + first_row * width,
                        .n_rows = n_rows,
                        .width = width,
                        .add = add};
    pool_run(cpu_of(b)->pool, size_div_up(width, SUM_WIDTH), sum_columns, &j);
}

static void soft_cap_row(const struct rows_job *j, size_t i, size_t thread) {
    j->c->kern->soft_cap(j->y + i * j->width, *(const float *)j->more, j->width);
}

void cpu_soft_cap(struct backend *b, struct backend_buffer *y, float cap, size_t n_rows, size_t width) {
    struct rows_job j = {.y = cpu_f32(y), .more = &cap, .width = width};
    spread(&j, b, soft_cap_row, n_rows, width);
}

struct rope_more {
    float *q, *k;
    const float *v;
    const struct backend_rope *rope;
    const struct backend_attention *a;
    const struct backend_kv *kv;
    const struct batch *batch;
    size_t first_row;
};

/* n_heads heads of `dim` elements. */
static void rotate_heads(const struct rows_job *j, float *x, size_t n_heads, size_t dim,
                         const struct backend_buffer *norm, const float *cos_sin) {
    const struct rope_more *r = j->more;
    const struct kern *k = j->c->kern;
    size_t first = r->rope->behind ? dim - r->rope->n_rot : 0, n_norm = first ? first : dim;
    if (norm && r->rope->norm_rows) k->rms_norm(x, x, cpu_f32(norm), n_heads * dim, r->rope->norm_eps);
    for (size_t h = 0; h < n_heads; h++, x += dim) {
        if (norm && !r->rope->norm_rows) k->rms_norm(x, x, cpu_f32(norm), n_norm, r->rope->norm_eps);
        if (cos_sin) k->rope(x + first, cos_sin, r->rope->n_rot, r->rope->interleaved);
    }
}

/* 1 for the first positions. */
static float temperature_at(const struct backend_rope *r, size_t position) {
    if (r->temperature == 0.0f) return 1.0f;
    return (float)(1.0 + (double)r->temperature * log1p((double)(position / r->temperature_step)));
}

static void rope_row(const struct rows_job *j, size_t i, size_t thread) {
    const struct rope_more *r = j->more;
    const struct backend_attention *a = r->a;
    const struct backend_kv *kv = r->kv;
    size_t position = r->batch->position[r->first_row + i];
    const float *cos_sin = r->rope->table ? cpu_f32(r->rope->table) + position * r->rope->n_rot : NULL;
    size_t q_dim = r->rope->q_dim ? r->rope->q_dim : a->head_dim, kv_row = a->n_kv_heads * a->head_dim;
    float *q = r->q + i * a->n_heads * q_dim, *k = r->k + i * kv_row;
    float temperature = temperature_at(r->rope, position);
    rotate_heads(j, q, a->n_heads, q_dim, r->rope->q_norm, cos_sin);
    if (temperature != 1.0f) j->c->kern->scale(q, temperature, a->n_heads * q_dim);
    rotate_heads(j, k, a->n_kv_heads, a->head_dim, r->rope->k_norm, cos_sin);

    size_t block_tokens = kv->layout.block_tokens, slot = position % block_tokens;
    size_t page = r->batch->seqs[r->batch->seq[r->first_row + i]].table[a->group][position / block_tokens];
    if (!page) return; /* the null page holds nothing */
    for (size_t h = 0; h < a->n_kv_heads; h++) {
        char *chunk = kv_chunk(kv, a->group, page, a->layer, h);
        kv->attn->write_k(chunk, slot, block_tokens, k + h * a->head_dim, a->head_dim);
        if (kv->layout.rows) continue;
        kv->attn->write_v(chunk + kv->chunk_bytes[a->group], slot, r->v + i * kv_row + h * a->head_dim,
                          a->head_dim);
    }
}

void cpu_rope_kv_write(struct backend *b, struct backend_buffer *q, struct backend_buffer *k,
                       const struct backend_buffer *v, const struct backend_rope *rope,
                       const struct backend_attention *a, struct backend_kv *kv, const struct batch *batch,
                       size_t first_row, size_t n_rows) {
    struct rope_more more = {.q = cpu_f32(q),
                             .k = cpu_f32(k),
                             .v = v ? cpu_f32(v) : NULL,
                             .rope = rope,
                             .a = a,
                             .kv = kv,
                             .batch = batch,
                             .first_row = first_row};
    struct rows_job j = {.more = &more};
    spread(&j, b, rope_row, n_rows, (a->n_heads + 2 * a->n_kv_heads) * a->head_dim);
}
