/* The rest: what works on one row of activations or logits, in a cache. Every thread has rows of its own. */
#include "bench/bench.h"

#include <math.h>
#include <stdio.h>

enum { ROUND_ELEMENTS = 1 << 18 };

struct row {
    const struct kern *kern;
    size_t n;
    float *x, *y, *w;
};

typedef void row_kernel(const struct row *r);

static void run_norm(const struct row *r) {
    r->kern->rms_norm(r->y, r->x, r->w, r->n, 1e-5f);
}
static void run_layer_norm(const struct row *r) {
    r->kern->layer_norm(r->y, r->x, r->w, r->w, r->n, 1e-5f);
}
static void run_gelu(const struct row *r) {
    r->kern->gelu(r->y, r->x, r->n);
}
static void run_swiglu(const struct row *r) {
    r->kern->swiglu(r->y, r->x, r->w, r->n);
}
static void run_rope_pairs(const struct row *r) {
    r->kern->rope(r->y, r->w, r->n, true);
}
static void run_rope_halves(const struct row *r) {
    r->kern->rope(r->y, r->w, r->n, false);
}
static void run_add(const struct row *r) {
    r->kern->add(r->y, r->x, r->n);
}
static void run_pack_q8(const struct row *r) {
    r->kern->act_pack[KERN_ACT_Q8](r->y, r->x, r->n);
}
static void run_pack_bf16(const struct row *r) {
    r->kern->act_pack[KERN_ACT_BF16](r->y, r->x, r->n);
}
static void run_scan(const struct row *r) {
    size_t at;
    bool finite;
    r->kern->logits_scan(r->x, r->n, r->y, &at, &finite);
}
static void run_log_sum_exp(const struct row *r) {
    volatile double keep = r->kern->log_sum_exp(r->x, r->n, 1.0f);
    (void)keep;
}
static void run_softmax(const struct row *r) {
    volatile double keep = r->kern->softmax_terms(r->y, r->x, r->n, 1.0f, 1.25f);
    (void)keep;
}
/* 8 partitions of a head of 128. */
static void run_combine(const struct row *r) {
    static const float max[8] = {1, 2, 3, 4, 5, 4, 3, 2}, sum[8] = {9, 8, 7, 6, 5, 4, 3, 2};
    r->kern->attn_combine(r->y, max, sum, r->x, r->n / 8, 8, -INFINITY, r->n / 8);
}

static const struct row_case {
    const char *kernel;
    row_kernel *run;
    size_t n, reads; /* elements, and floats read for each, once */
} CASES[] = {
    {"rms_norm", run_norm, 1536, 2},
    {"layer_norm", run_layer_norm, 768, 2},
    {"swiglu", run_swiglu, 8960, 2},
    {"gelu", run_gelu, 3072, 1},
    {"rope, interleaved", run_rope_pairs, 64, 2},
    {"rope, halves", run_rope_halves, 128, 2},
    {"add", run_add, 1536, 2},
    {"act_pack q8", run_pack_q8, 1536, 1},
    {"act_pack bf16", run_pack_bf16, 1536, 1},
    {"attn_combine", run_combine, 8 * 128, 1},
    {"logits_scan", run_scan, 49152, 1},
    {"log_sum_exp", run_log_sum_exp, 49152, 1},
    {"softmax_terms", run_softmax, 49152, 1},
};

struct rows_job {
    const struct row_case *c;
    struct row first; /* of thread 0 */
    size_t stride, times;
};

static void rows_share(void *ctx, size_t thread, size_t n_threads) {
    const struct rows_job *j = ctx;
    struct row r = j->first;
    (void)n_threads;
    r.x += thread * j->stride;
    r.y += thread * j->stride;
    r.w += thread * j->stride;
    for (size_t i = 0; i < j->times; i++) j->c->run(&r);
}

static void bench_case(struct bench *b, const struct row_case *c) {
    char shape[32];
    if (!bench_wanted(b, c->kernel)) return;
    bench_clear(b);
    size_t n = c->n, stride = n + 1024, all = b->n_threads * stride; /* packed rows may be a little longer */
    struct rows_job j = {.c = c, .stride = stride, .times = ROUND_ELEMENTS / n};
    j.first = (struct row){.kern = b->kern,
                           .n = n,
                           .x = bench_carve(b, all * sizeof(float)),
                           .y = bench_carve(b, all * sizeof(float)),
                           .w = bench_carve(b, all * sizeof(float))};
    fill_floats(&b->fill, j.first.x, all);
    fill_floats(&b->fill, j.first.y, all);
    /* 0.6^2 + 0.8^2 = 1: rotations whose results stay as they are in size */
    for (size_t i = 0; i < all; i++) j.first.w[i] = i % stride < n / 2 ? 0.8f : 0.6f;
    snprintf(shape, sizeof shape, "%zu", n);
    bool small = n * c->reads * sizeof(float) <= 24 << 10;
    struct bench_row row = {.kernel = c->kernel,
                            .shape = shape,
                            .calls = (double)j.times,
                            .bytes = (double)(b->n_threads * n * c->reads * sizeof(float)),
                            .byte_limit = small ? LIMIT_READ_16KB : LIMIT_READ_256KB,
                            .op_limit = LIMITS};
    bench_measure(b, &row, rows_share, &j);
}

void bench_rows(struct bench *b) {
    for (size_t i = 0; i < sizeof CASES / sizeof *CASES; i++) bench_case(b, &CASES[i]);
}
