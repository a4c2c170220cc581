#include "kern/kern_half.h"
#include "kern/kern_ref.h"

#include <math.h>

static size_t elem_bytes(enum kern_kv type) {
    return type == KERN_KV_F32 ? 4 : 2;
}

static float load(const void *chunk, size_t i, enum kern_kv type) {
    uint16_t half;
    float x;
    if (type == KERN_KV_F32) {
        memcpy(&x, (const char *)chunk + 4 * i, 4);
        return x;
    }
    memcpy(&half, (const char *)chunk + 2 * i, 2);
    return type == KERN_KV_F16 ? kern_from_f16(half) : kern_from_bf16(half);
}

static void put(void *chunk, size_t i, float x, enum kern_kv type) {
    uint16_t half = type == KERN_KV_F16 ? kern_to_f16(x) : kern_to_bf16(x);
    memcpy((char *)chunk + elem_bytes(type) * i, type == KERN_KV_F32 ? (const void *)&x : &half,
           elem_bytes(type));
}

/* Element d of token `slot` in a K chunk. */
static size_t k_index(size_t slot, size_t d, size_t head_dim) {
    return (slot / KERN_KV_LANES * head_dim + d) * KERN_KV_LANES + slot % KERN_KV_LANES;
}

static void write_k(void *chunk, size_t slot, const float *k, size_t head_dim, enum kern_kv type) {
    for (size_t d = 0; d < head_dim; d++) put(chunk, k_index(slot, d, head_dim), k[d], type);
}

static void write_v(void *chunk, size_t slot, const float *v, size_t head_dim, enum kern_kv type) {
    for (size_t d = 0; d < head_dim; d++) put(chunk, slot * head_dim + d, v[d], type);
}

static void read_k(float *dst, const void *chunk, size_t slot, size_t head_dim, enum kern_kv type) {
    for (size_t d = 0; d < head_dim; d++) dst[d] = load(chunk, k_index(slot, d, head_dim), type);
}

static void read_v(float *dst, const void *chunk, size_t slot, size_t head_dim, enum kern_kv type) {
    for (size_t d = 0; d < head_dim; d++) dst[d] = load(chunk, slot * head_dim + d, type);
}

/* rows: K is in rows, of which V is a part. */
static float score(const struct kern_attn_job *job, size_t i, size_t slot, enum kern_kv type, bool rows) {
    const void *chunk = job->k[slot / job->block_tokens];
    size_t at = slot % job->block_tokens, n = job->head_dim;
    double sum = 0.0;
    for (size_t d = 0; d < n; d++)
        sum += (double)job->q[i][d] * load(chunk, rows ? at * n + d : k_index(at, d, n), type);
    double s = sum * job->scale;
    return (float)(job->soft_cap > 0.0f ? job->soft_cap * tanh(s / job->soft_cap) : s);
}

static void partition_query(const struct kern_attn_job *job, size_t i, enum kern_kv type, bool rows) {
    size_t begin = job->begin[i], end = job->end[i];
    float *p = job->scratch + i * KERN_ATTN_PARTITION, max = -INFINITY;
    double sum = 0.0;
    for (size_t t = begin; t < end; t++) {
        p[t] = score(job, i, t, type, rows);
        if (p[t] > max) max = p[t];
    }
    for (size_t t = begin; t < end; t++) {
        p[t] = (float)exp((double)p[t] - max);
        sum += p[t];
    }
    job->max[i] = max;
    job->sum[i] = (float)sum;
    for (size_t d = 0; d < job->value_dim; d++) {
        double acc = 0.0;
        for (size_t t = begin; t < end; t++) {
            size_t slot = t % job->block_tokens;
            acc += (double)p[t] * load(job->v[t / job->block_tokens], slot * job->head_dim + d, type);
        }
        job->acc[i][d] = (float)acc;
    }
}

static void partition(const struct kern_attn_job *job, enum kern_kv type, bool rows) {
    for (size_t i = 0; i < job->n_q; i++) partition_query(job, i, type, rows);
}

/* ---- pairs of bfloat16 numbers ---- */

static float flush(float x) {
    return fabsf(x) < 0x1p-126f ? copysignf(0.0f, x) : x;
}

/* A sum of products of bfloat16 numbers, pair by pair. Products are exact; numbers below 2^-126 count as
 * zero. Pairs: as VDPBF16PS (Intel SDM vol. 2) computes it, the second product is added first. Tiles: as
 * TDPBF16PS does, 16 pairs' first and second products are summed apart, each from zero, and then added. */
struct pair_sum {
    float sum, part[2];
    size_t n_pairs; /* in the parts */
};

enum { TILE_PAIRS = 16 };

static void add_parts(struct pair_sum *s) {
    s->sum = flush(flush(s->sum) + flush(s->part[0] + s->part[1]));
    s->part[0] = s->part[1] = 0.0f;
    s->n_pairs = 0;
}

static void add_pair(struct pair_sum *s, const uint16_t a[2], const uint16_t b[2], bool tiles) {
    for (int i = 1; i >= 0; i--) {
        float *sum = tiles ? &s->part[i] : &s->sum;
        *sum = flush(flush(*sum) + flush(kern_from_bf16(a[i])) * flush(kern_from_bf16(b[i])));
    }
    if (tiles && ++s->n_pairs == TILE_PAIRS) add_parts(s);
}

static float pair_total(struct pair_sum *s) {
    if (s->n_pairs) add_parts(s);
    return s->sum;
}

/* Element d of token `slot` in a K chunk, and in a V chunk. */
static size_t k_pair_index(size_t slot, size_t d, size_t head_dim) {
    return k_index(slot, d / 2, head_dim / 2) * 2 + d % 2;
}
static size_t v_pair_index(size_t slot, size_t d, size_t head_dim) {
    return (slot / 2 * head_dim + d) * 2 + slot % 2;
}

void ref_attn_write_k_pairs(void *chunk, size_t slot, size_t block_tokens, const float *k, size_t head_dim) {
    for (size_t d = 0; d < head_dim; d++) put(chunk, k_pair_index(slot, d, head_dim), k[d], KERN_KV_BF16);
}
void ref_attn_write_v_pairs(void *chunk, size_t slot, const float *v, size_t head_dim) {
    for (size_t d = 0; d < head_dim; d++) put(chunk, v_pair_index(slot, d, head_dim), v[d], KERN_KV_BF16);
}
void ref_attn_read_k_pairs(float *dst, const void *chunk, size_t slot, size_t head_dim) {
    for (size_t d = 0; d < head_dim; d++) dst[d] = load(chunk, k_pair_index(slot, d, head_dim), KERN_KV_BF16);
}
void ref_attn_read_v_pairs(float *dst, const void *chunk, size_t slot, size_t head_dim) {
    for (size_t d = 0; d < head_dim; d++) dst[d] = load(chunk, v_pair_index(slot, d, head_dim), KERN_KV_BF16);
}

static float score_pairs(const struct kern_attn_job *job, size_t i, size_t slot, bool tiles) {
    const uint16_t *k = job->k[slot / job->block_tokens];
    struct pair_sum sum = {0};
    for (size_t d = 0; d < job->head_dim; d += 2) {
        uint16_t q[2] = {kern_to_bf16(job->q[i][d]), kern_to_bf16(job->q[i][d + 1])};
        add_pair(&sum, q, k + k_pair_index(slot % job->block_tokens, d, job->head_dim), tiles);
    }
    float s = pair_total(&sum) * job->scale;
    return job->soft_cap > 0.0f ? (float)(job->soft_cap * tanh((double)s / job->soft_cap)) : s;
}

/* Element d of the weighted sum of the terms p. What the query does not attend to counts as zero. */
static float weigh_pairs(const struct kern_attn_job *job, size_t i, const uint16_t p[], size_t d,
                         bool tiles) {
    const size_t begin = job->begin[i], end = job->end[i], step = tiles ? 2 * TILE_PAIRS : 2;
    struct pair_sum sum = {0};
    for (size_t t = begin / step * step; t < end; t += 2) {
        uint16_t own[2] = {0, 0};
        const uint16_t *v = job->v[t / job->block_tokens];
        if (v) v += v_pair_index(t % job->block_tokens, d, job->head_dim);
        for (size_t h = 0; h < 2; h++)
            if (begin <= t + h && t + h < end) own[h] = v[h];
        add_pair(&sum, p + t, own, tiles);
    }
    return pair_total(&sum);
}

static void partition_query_pairs(const struct kern_attn_job *job, size_t i, bool tiles) {
    size_t begin = job->begin[i], end = job->end[i];
    float *s = job->scratch + i * KERN_ATTN_PARTITION, max = -INFINITY;
    uint16_t p[KERN_ATTN_PARTITION] = {0};
    double sum = 0.0;
    for (size_t t = begin; t < end; t++) {
        s[t] = score_pairs(job, i, t, tiles);
        if (s[t] > max) max = s[t];
    }
    for (size_t t = begin; t < end; t++) {
        p[t] = kern_to_bf16((float)exp((double)s[t] - max));
        sum += kern_from_bf16(p[t]);
    }
    job->max[i] = max;
    job->sum[i] = (float)sum;
    for (size_t d = 0; d < job->head_dim; d++) job->acc[i][d] = weigh_pairs(job, i, p, d, tiles);
}

void ref_attn_partition_pairs(const struct kern_attn_job *job) {
    for (size_t i = 0; i < job->n_q; i++) partition_query_pairs(job, i, false);
}

void ref_attn_partition_tiles(const struct kern_attn_job *job) {
    for (size_t i = 0; i < job->n_q; i++) partition_query_pairs(job, i, true);
}

/* ---- the entries ---- */

void ref_attn_combine(float *out, const float *max, const float *sum, const float *acc, size_t stride,
                      size_t n_parts, float sink, size_t head_dim) {
    float largest = sink;
    for (size_t i = 0; i < n_parts; i++) largest = max[i] > largest ? max[i] : largest;
    double total = 0.0;
    for (size_t i = 0; i < n_parts; i++) total += exp((double)max[i] - largest) * sum[i];
    if (sink > -INFINITY) total += exp((double)sink - largest);
    for (size_t d = 0; d < head_dim; d++) {
        double x = 0.0;
        for (size_t i = 0; i < n_parts; i++) x += exp((double)max[i] - largest) * acc[i * stride + d];
        out[d] = (float)(x / total);
    }
}

void ref_attn_write_k_f32(void *chunk, size_t slot, size_t block_tokens, const float *k, size_t head_dim) {
    write_k(chunk, slot, k, head_dim, KERN_KV_F32);
}
void ref_attn_write_k_f16(void *chunk, size_t slot, size_t block_tokens, const float *k, size_t head_dim) {
    write_k(chunk, slot, k, head_dim, KERN_KV_F16);
}
void ref_attn_write_k_bf16(void *chunk, size_t slot, size_t block_tokens, const float *k, size_t head_dim) {
    write_k(chunk, slot, k, head_dim, KERN_KV_BF16);
}
void ref_attn_write_v_f32(void *chunk, size_t slot, const float *v, size_t head_dim) {
    write_v(chunk, slot, v, head_dim, KERN_KV_F32);
}
void ref_attn_write_v_f16(void *chunk, size_t slot, const float *v, size_t head_dim) {
    write_v(chunk, slot, v, head_dim, KERN_KV_F16);
}
void ref_attn_write_v_bf16(void *chunk, size_t slot, const float *v, size_t head_dim) {
    write_v(chunk, slot, v, head_dim, KERN_KV_BF16);
}
void ref_attn_read_k_f32(float *dst, const void *chunk, size_t slot, size_t head_dim) {
    read_k(dst, chunk, slot, head_dim, KERN_KV_F32);
}
void ref_attn_read_k_f16(float *dst, const void *chunk, size_t slot, size_t head_dim) {
    read_k(dst, chunk, slot, head_dim, KERN_KV_F16);
}
void ref_attn_read_k_bf16(float *dst, const void *chunk, size_t slot, size_t head_dim) {
    read_k(dst, chunk, slot, head_dim, KERN_KV_BF16);
}
void ref_attn_read_v_f32(float *dst, const void *chunk, size_t slot, size_t head_dim) {
    read_v(dst, chunk, slot, head_dim, KERN_KV_F32);
}
void ref_attn_read_v_f16(float *dst, const void *chunk, size_t slot, size_t head_dim) {
    read_v(dst, chunk, slot, head_dim, KERN_KV_F16);
}
void ref_attn_read_v_bf16(float *dst, const void *chunk, size_t slot, size_t head_dim) {
    read_v(dst, chunk, slot, head_dim, KERN_KV_BF16);
}
void ref_attn_partition_f32(const struct kern_attn_job *job) {
    partition(job, KERN_KV_F32, false);
}
void ref_attn_write_row_f32(void *chunk, size_t slot, size_t block_tokens, const float *k, size_t head_dim) {
    write_v(chunk, slot, k, head_dim, KERN_KV_F32);
}
void ref_attn_partition_rows_f32(const struct kern_attn_job *job) {
    partition(job, KERN_KV_F32, true);
}
void ref_attn_partition_f16(const struct kern_attn_job *job) {
    partition(job, KERN_KV_F16, false);
}
void ref_attn_write_row_f16(void *chunk, size_t slot, size_t block_tokens, const float *k, size_t head_dim) {
    write_v(chunk, slot, k, head_dim, KERN_KV_F16);
}
void ref_attn_partition_rows_f16(const struct kern_attn_job *job) {
    partition(job, KERN_KV_F16, true);
}
void ref_attn_partition_bf16(const struct kern_attn_job *job) {
    partition(job, KERN_KV_BF16, false);
}
void ref_attn_write_row_bf16(void *chunk, size_t slot, size_t block_tokens, const float *k, size_t head_dim) {
    write_v(chunk, slot, k, head_dim, KERN_KV_BF16);
}
void ref_attn_partition_rows_bf16(const struct kern_attn_job *job) {
    partition(job, KERN_KV_BF16, true);
}
