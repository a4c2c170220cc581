/* Attention over partitions of a paged KV cache. */
#include "bench/bench.h"

#include <stdio.h>
#include <string.h>

enum { BLOCK = 16, CHUNKS = KERN_ATTN_PARTITION / BLOCK, MAX_QUERIES = 48, DIFFERENT_TOKENS = 512 };

struct attention {
    const struct kern_attn *attn;
    void (*thread_begin)(void);
    size_t head_dim, n_q, n_parts;
    char *kv;                 /* [n_parts][2][KERN_ATTN_PARTITION][head_dim] */
    float *q, *acc, *scratch; /* acc, scratch: of each thread */
};

static void attention_share(void *ctx, size_t thread, size_t n_threads) {
    const struct attention *a = ctx;
    if (a->thread_begin) a->thread_begin(); /* the limits use tiles, too */
    const void *k[CHUNKS], *v[CHUNKS];
    const float *q[MAX_QUERIES];
    float *acc[MAX_QUERIES], max[MAX_QUERIES], sum[MAX_QUERIES];
    uint16_t begin[MAX_QUERIES] = {0}, end[MAX_QUERIES];
    size_t half = KERN_ATTN_PARTITION * a->head_dim * a->attn->elem_bytes;
    for (size_t i = 0; i < a->n_q; i++) {
        q[i] = a->q + i * a->head_dim;
        acc[i] = a->acc + (thread * a->n_q + i) * a->head_dim;
        end[i] = KERN_ATTN_PARTITION;
    }
    for (size_t p = a->n_parts * thread / n_threads; p < a->n_parts * (thread + 1) / n_threads; p++) {
        for (size_t i = 0; i < CHUNKS; i++) {
            k[i] = a->kv + p * 2 * half + i * half / CHUNKS;
            v[i] = a->kv + p * 2 * half + half + i * half / CHUNKS;
        }
        a->attn->partition(
            &(struct kern_attn_job){.k = k,
                                    .v = v,
                                    .block_tokens = BLOCK,
                                    .head_dim = a->head_dim,
                                    .value_dim = a->head_dim,
                                    .q = q,
                                    .begin = begin,
                                    .end = end,
                                    .n_q = a->n_q,
                                    .scale = 0.125f,
                                    .max = max,
                                    .sum = sum,
                                    .acc = acc,
                                    .scratch = a->scratch + thread * a->n_q * KERN_ATTN_PARTITION});
    }
}

/* Random values; which of them are keys does not matter here. */
static void fill_kv(struct bench *b, struct attention *a) {
    size_t row_bytes = a->head_dim * a->attn->elem_bytes,
           bytes = a->n_parts * 2 * KERN_ATTN_PARTITION * row_bytes;
    size_t different = DIFFERENT_TOKENS * row_bytes;
    float *row = bench_carve(b, a->head_dim * sizeof *row);
    for (size_t i = 0; i < DIFFERENT_TOKENS; i++) {
        fill_floats(&b->fill, row, a->head_dim);
        a->attn->write_v(a->kv, i, row, a->head_dim);
    }
    for (size_t i = different; i < bytes; i += different) memcpy(a->kv + i, a->kv, different);
}

static double one_partition_seconds(struct attention *a) {
    size_t n_parts = a->n_parts;
    a->n_parts = 1;
    attention_share(a, 0, 1);
    double start = bench_now();
    attention_share(a, 0, 1);
    a->n_parts = n_parts;
    return bench_elapsed(start);
}

static void bench_one(struct bench *b, enum kern_kv type, size_t head_dim, size_t n_q) {
    static const char *const names[KERN_KV_TYPES] = {"attention f32", "attention f16", "attention bf16"};
    char shape[64];
    if (!bench_wanted(b, names[type])) return;
    bench_clear(b);
    struct attention a = {.attn = &b->kern->attn[type],
                          .thread_begin = b->kern->thread_begin,
                          .head_dim = head_dim,
                          .n_q = n_q};
    size_t part_bytes = 2 * KERN_ATTN_PARTITION * head_dim * a.attn->elem_bytes;
    a.n_parts = BENCH_SET_BYTES / part_bytes;
    a.kv = bench_carve(b, a.n_parts * part_bytes);
    a.q = bench_carve(b, n_q * head_dim * sizeof *a.q);
    a.acc = bench_carve(b, b->n_threads * n_q * head_dim * sizeof *a.acc);
    a.scratch = bench_carve(b, b->n_threads * n_q * KERN_ATTN_PARTITION * sizeof *a.scratch);
    fill_kv(b, &a);
    fill_floats(&b->fill, a.q, n_q * head_dim);
    size_t most = (size_t)(BENCH_ROUND_SECONDS * (double)b->n_threads / one_partition_seconds(&a));
    if (most < a.n_parts) a.n_parts = most > b->n_threads ? most : b->n_threads;
    snprintf(shape, sizeof shape, "head %zu, %zu tokens, %zu quer%s", head_dim,
             a.n_parts * KERN_ATTN_PARTITION, n_q, n_q == 1 ? "y" : "ies");
    double elems = (double)(a.n_parts * 2 * KERN_ATTN_PARTITION * head_dim);
    struct bench_row row = {.kernel = names[type],
                            .shape = shape,
                            .calls = 1,
                            .bytes = elems * (double)a.attn->elem_bytes,
                            .ops = 2.0 * elems * (double)n_q,
                            .byte_limit = LIMIT_READ_94MB,
                            .op_limit = bench_op_limit(b, a.attn->act)};
    bench_measure(b, &row, attention_share, &a);
}

/* Queries of a group that share a KV head in decoding (135M: 3 of 64, 1.5B: 6 of 128), and a tile of a
 * prompt. */
void bench_attention(struct bench *b) {
    for (int type = KERN_KV_TYPES - 1; type >= 0; type--) {
        bench_one(b, (enum kern_kv)type, 64, 3);
        bench_one(b, (enum kern_kv)type, 64, 48);
        if (type != KERN_KV_BF16 && !b->o->only) continue;
        bench_one(b, (enum kern_kv)type, 128, 6);
        bench_one(b, (enum kern_kv)type, 128, 48);
        if (b->o->only) bench_one(b, (enum kern_kv)type, 64, 1);
    }
}
