/* The kernels' speed, as a share of what the machine can do: products at one row against memory, at many
 * against the multiply peak. */
#include "bench.h"
#include "check.h"

#include "kern/kern_block.h"
#include "weights/tensor.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_THREADS = 2 };

struct bench {
    const struct kern *kern;
    const char *only;
    struct check check; /* for random numbers */
    struct bench_limits limits[MAX_THREADS + 1];
};

static void *memory(size_t bytes) {
    void *p = aligned_alloc(64, (bytes + 63) & ~(size_t)63);
    if (!p) {
        fprintf(stderr, "kern_check: no memory for %zu bytes\n", bytes);
        exit(2);
    }
    return memset(p, 0, bytes);
}

static void report(const struct bench *b, const char *name, const char *shape, size_t n_threads,
                   double seconds, double bytes, double ops, double peak) {
    double bandwidth = b->limits[n_threads].read_bytes;
    printf("%-7s %-24s %-30s %zu thr %10.1f us %7.1f GB/s %5.1f %%  %8.1f GOP/s", b->kern->name, name, shape,
           n_threads, seconds * 1e6, bytes / seconds * 1e-9,
           bandwidth > 0 ? 100 * bytes / seconds / bandwidth : 0.0, ops / seconds * 1e-9);
    if (peak > 0) printf(" %5.1f %%", 100 * ops / seconds / peak);
    printf("\n");
    fflush(stdout);
}

static bool wanted(const struct bench *b, const char *name) {
    return !b->only || strstr(name, b->only);
}

/* ---- matrix products ---- */

struct product {
    const struct kern *kern;
    struct kern_matrix w;
    char *acts;
    size_t act_row_bytes, m, n_panels;
    float *y, *scratch[MAX_THREADS];
};

static void product_work(void *ctx, size_t thread, size_t n_threads) {
    struct product *p = ctx;
    size_t first = p->n_panels * thread / n_threads, end = p->n_panels * (thread + 1) / n_threads;
    p->w.mm->run(&p->w, p->y + first * p->w.mm->panel_rows, p->w.rows, first, end - first, p->acts,
                 p->act_row_bytes, p->m, false, p->scratch[thread]);
}

/* A small half-precision number wherever a scale may be. */
static void fill_file(struct check *c, uint8_t *dst, size_t bytes, const struct tensor_type_info *info) {
    for (size_t i = 0; i < bytes; i++) dst[i] = (uint8_t)check_random(c);
    if (info->block_elems == 1) {
        for (size_t i = info->block_bytes - 1; i < bytes; i += info->block_bytes) dst[i] = 0x2c;
        return;
    }
    static const uint8_t scale[4] = {0x12, 0x1c, 0x34, 0x1c};
    for (size_t i = 0; i < bytes; i += info->block_bytes) {
        memcpy(dst + i, scale, 4);
        memcpy(dst + i + info->block_bytes - 4, scale, 4);
    }
}

/* Weights of about `bytes`: a few packed panels, repeated. */
static void product_new(struct bench *b, struct product *p, enum kern_format f, size_t k, size_t bytes,
                        size_t max_m) {
    const struct tensor_type_info *info = tensor_type_info(f);
    const struct kern_mm *mm = &b->kern->mm[f];
    size_t row_bytes = k / info->block_elems * info->block_bytes, different = 64;
    *p = (struct product){.kern = b->kern, .act_row_bytes = b->kern->act_row_bytes(mm->act, k)};
    p->w = (struct kern_matrix){.mm = mm,
                                .format = f,
                                .decode = info->decode,
                                .block_elems = info->block_elems,
                                .block_bytes = info->block_bytes,
                                .k = k};
    size_t panel_bytes = mm->panel_bytes(&p->w);
    p->n_panels = bytes / panel_bytes / different * different;
    p->w.rows = p->n_panels * mm->panel_rows;
    uint8_t *file = memory(mm->panel_rows * row_bytes);
    char *panels = memory(p->n_panels * panel_bytes);
    for (size_t i = 0; i < different; i++) {
        fill_file(&b->check, file, mm->panel_rows * row_bytes, info);
        mm->pack(&p->w, panels + i * panel_bytes, file, row_bytes, mm->panel_rows);
    }
    for (size_t i = different; i < p->n_panels; i++)
        memcpy(panels + i * panel_bytes, panels + i % different * panel_bytes, panel_bytes);
    p->w.panels = panels;
    free(file);
    float *x = memory(k * sizeof *x);
    p->acts = memory(max_m * p->act_row_bytes);
    for (size_t i = 0; i < max_m; i++) {
        check_fill(&b->check, x, k, FILL_NORMAL);
        b->kern->act_pack[mm->act](p->acts + i * p->act_row_bytes, x, k);
    }
    free(x);
    p->y = memory(max_m * p->w.rows * sizeof *p->y);
    for (size_t t = 0; t < MAX_THREADS; t++) p->scratch[t] = memory(kern_mm_scratch(k) * sizeof(float));
}

static void product_free(struct product *p) {
    free((void *)p->w.panels);
    free(p->acts);
    free(p->y);
    for (size_t t = 0; t < MAX_THREADS; t++) free(p->scratch[t]);
}

static void bench_product(struct bench *b, enum kern_format f, size_t k, size_t bytes, const size_t *ms,
                          size_t n_ms) {
    struct product p;
    char shape[64];
    if (!wanted(b, b->kern->mm[f].name)) return;
    product_new(b, &p, f, k, bytes, ms[n_ms - 1]);
    for (size_t i = 0; i < n_ms; i++) {
        for (size_t t = 1; t <= MAX_THREADS; t++) {
            p.m = ms[i];
            double seconds = bench_seconds(product_work, &p, t), weights = (double)p.w.rows * (double)k;
            const struct bench_limits *l = &b->limits[t];
            snprintf(shape, sizeof shape, "%zu x %zu, m %zu", p.w.rows, k, p.m);
            report(b, b->kern->mm[f].name, shape, t, seconds,
                   (double)p.n_panels * (double)p.w.mm->panel_bytes(&p.w), 2.0 * weights * (double)p.m,
                   p.w.mm->act == KERN_ACT_Q8 ? l->int8_ops : l->fma_flops);
        }
    }
    product_free(&p);
}

static void bench_products(struct bench *b) {
    static const enum kern_format fast[] = {KERN_Q4_1, KERN_Q4_0, KERN_Q5_0, KERN_Q5_1,
                                            KERN_Q8_0, KERN_BF16, KERN_F16,  KERN_F32};
    static const enum kern_format slow[] = {KERN_Q4_K, KERN_Q6_K};
    static const size_t few[] = {1, 2, 4}, many[] = {8, 16, 32, 64, 256}, one[] = {1, 32};
    for (size_t i = 0; i < sizeof fast / sizeof *fast; i++) {
        bench_product(b, fast[i], 1536, (size_t)160 << 20, few, 3);
        bench_product(b, fast[i], 1536, (size_t)6 << 20, many, 5);
    }
    bench_product(b, KERN_Q4_1, 576, (size_t)1 << 20, many, 5);
    for (size_t i = 0; i < sizeof slow / sizeof *slow; i++)
        bench_product(b, slow[i], 1536, (size_t)6 << 20, one, 2);
}

/* ---- attention ---- */

enum { BLOCK = 16, CHUNKS = KERN_ATTN_PARTITION / BLOCK, MAX_Q = 48 };

struct attention {
    const struct kern_attn *attn;
    size_t head_dim, n_q, n_parts;
    char *kv; /* [n_parts][2][256][head_dim] */
    float *q, *acc[MAX_THREADS], *scratch[MAX_THREADS];
};

static void attention_work(void *ctx, size_t thread, size_t n_threads) {
    struct attention *a = ctx;
    const void *k[CHUNKS], *v[CHUNKS];
    const float *q[MAX_Q];
    float *acc[MAX_Q], max[MAX_Q], sum[MAX_Q];
    uint16_t begin[MAX_Q] = {0}, end[MAX_Q];
    size_t half = KERN_ATTN_PARTITION * a->head_dim * a->attn->elem_bytes;
    for (size_t i = 0; i < a->n_q; i++) {
        q[i] = a->q + i * a->head_dim;
        acc[i] = a->acc[thread] + i * a->head_dim;
        end[i] = KERN_ATTN_PARTITION;
    }
    for (size_t p = a->n_parts * thread / n_threads; p < a->n_parts * (thread + 1) / n_threads; p++) {
        for (size_t i = 0; i < CHUNKS; i++) {
            k[i] = a->kv + p * 2 * half + i * half / CHUNKS;
            v[i] = a->kv + p * 2 * half + half + i * half / CHUNKS;
        }
        a->attn->partition(&(struct kern_attn_job){.k = k,
                                                   .v = v,
                                                   .block_tokens = BLOCK,
                                                   .head_dim = a->head_dim,
                                                   .q = q,
                                                   .begin = begin,
                                                   .end = end,
                                                   .n_q = a->n_q,
                                                   .scale = 0.125f,
                                                   .max = max,
                                                   .sum = sum,
                                                   .acc = acc,
                                                   .scratch = a->scratch[thread]});
    }
}

static void bench_attention(struct bench *b, enum kern_kv type, size_t head_dim, size_t n_q, size_t n_parts) {
    static const char *const names[] = {"attention f32", "attention f16", "attention bf16"};
    char shape[64];
    if (!wanted(b, names[type])) return;
    struct attention a = {.attn = &b->kern->attn[type], .head_dim = head_dim, .n_q = n_q, .n_parts = n_parts};
    size_t elems = n_parts * 2 * KERN_ATTN_PARTITION * head_dim;
    float *row = memory(head_dim * sizeof *row);
    a.kv = memory(elems * a.attn->elem_bytes);
    for (size_t i = 0; i < elems / head_dim; i++) {
        check_fill(&b->check, row, head_dim, i < 512 ? FILL_NORMAL : FILL_ONES);
        a.attn->write_v(a.kv, i, row, head_dim);
    }
    free(row);
    a.q = memory(n_q * head_dim * sizeof *a.q);
    check_fill(&b->check, a.q, n_q * head_dim, FILL_NORMAL);
    for (size_t t = 0; t < MAX_THREADS; t++) {
        a.acc[t] = memory(n_q * head_dim * sizeof(float));
        a.scratch[t] = memory(n_q * KERN_ATTN_PARTITION * sizeof(float));
    }
    snprintf(shape, sizeof shape, "head %zu, %zu tokens, %zu q", head_dim, n_parts * KERN_ATTN_PARTITION,
             n_q);
    for (size_t t = 1; t <= MAX_THREADS; t++)
        report(b, names[type], shape, t, bench_seconds(attention_work, &a, t),
               (double)(elems * a.attn->elem_bytes), 2.0 * (double)elems * (double)n_q,
               b->limits[t].fma_flops);
    free(a.kv);
    free(a.q);
    for (size_t t = 0; t < MAX_THREADS; t++) {
        free(a.acc[t]);
        free(a.scratch[t]);
    }
}

/* ---- rows ---- */

struct row_bench {
    const struct kern *kern;
    size_t n;
    float *x, *y, *w;
    volatile double sink;
};

static void norm_work(void *ctx, size_t thread, size_t n_threads) {
    struct row_bench *r = ctx;
    for (int i = 0; i < 100; i++) r->kern->rms_norm(r->y, r->x, r->w, r->n, 1e-5f);
}
static void swiglu_work(void *ctx, size_t thread, size_t n_threads) {
    struct row_bench *r = ctx;
    for (int i = 0; i < 100; i++) r->kern->swiglu(r->y, r->x, r->w, r->n);
}
static void rope_work(void *ctx, size_t thread, size_t n_threads) {
    struct row_bench *r = ctx;
    for (int i = 0; i < 100; i++) r->kern->rope(r->y, r->w, r->n, true);
}
static void pack_work(void *ctx, size_t thread, size_t n_threads) {
    struct row_bench *r = ctx;
    for (int i = 0; i < 100; i++) r->kern->act_pack[KERN_ACT_Q8](r->y, r->x, r->n);
}
static void scan_work(void *ctx, size_t thread, size_t n_threads) {
    struct row_bench *r = ctx;
    float max;
    size_t at;
    bool finite;
    for (int i = 0; i < 100; i++) r->kern->logits_scan(r->x, r->n, &max, &at, &finite);
    r->sink = max;
}
static void lse_work(void *ctx, size_t thread, size_t n_threads) {
    struct row_bench *r = ctx;
    for (int i = 0; i < 100; i++) r->sink = r->kern->log_sum_exp(r->x, r->n, 5.0f);
}
static void softmax_work(void *ctx, size_t thread, size_t n_threads) {
    struct row_bench *r = ctx;
    for (int i = 0; i < 100; i++) r->sink = r->kern->softmax_terms(r->y, r->x, r->n, 5.0f, 1.25f);
}

static void bench_row(struct bench *b, const char *name, bench_work *work, size_t n,
                      double bytes_per_element) {
    char shape[32];
    if (!wanted(b, name)) return;
    struct row_bench r = {
        .kern = b->kern, .n = n, .x = memory(n * 4), .y = memory(n * 4), .w = memory(n * 4)};
    check_fill(&b->check, r.x, n, FILL_NORMAL);
    check_fill(&b->check, r.w, n, FILL_NORMAL);
    for (size_t i = 0; i < n; i++) r.w[i] = work == rope_work ? (i < n / 2 ? 0.8f : 0.6f) : r.w[i];
    snprintf(shape, sizeof shape, "%zu", n);
    report(b, name, shape, 1, bench_seconds(work, &r, 1) / 100, (double)n * bytes_per_element, (double)n,
           0.0);
    free(r.x);
    free(r.y);
    free(r.w);
}

void bench_table(const struct kern *kern, const char *only_kernel) {
    struct bench b = {.kern = kern, .only = only_kernel, .check = {.kern = kern, .rng = 1}};
    for (size_t t = 1; t <= MAX_THREADS; t++) {
        b.limits[t] = bench_limits(kern->isa, t);
        printf("%-7s limits, %zu thr: read %.1f GB/s, f32 %.1f GFLOP/s, int8 %.1f GOP/s\n", kern->name, t,
               b.limits[t].read_bytes * 1e-9, b.limits[t].fma_flops * 1e-9, b.limits[t].int8_ops * 1e-9);
    }
    bench_products(&b);
    for (int type = 0; type < KERN_KV_TYPES; type++) {
        bench_attention(&b, (enum kern_kv)type, 64, 1, 1024);
        bench_attention(&b, (enum kern_kv)type, 64, 3, 1024);
        bench_attention(&b, (enum kern_kv)type, 64, 48, 16);
    }
    bench_attention(&b, KERN_KV_BF16, 128, 4, 512);
    bench_row(&b, "rms_norm", norm_work, 576, 12);
    bench_row(&b, "swiglu", swiglu_work, 1536, 12);
    bench_row(&b, "rope interleaved", rope_work, 64, 12);
    bench_row(&b, "act_pack q8", pack_work, 1536, 4);
    bench_row(&b, "logits_scan", scan_work, 49152, 4);
    bench_row(&b, "log_sum_exp", lse_work, 49152, 4);
    bench_row(&b, "softmax_terms", softmax_work, 49152, 8);
}
