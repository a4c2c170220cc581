/* Attention over one partition, against a double-precision softmax of K and V as stored; where it multiplies
 * rounded terms, against the C reference of just that, too. */
#include "check.h"

#include "kern/kern_half.h"
#include "kern/kern_ref.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { P = KERN_ATTN_PARTITION, MAX_Q = 20 };

struct problem {
    struct check *c;
    enum kern_kv type;
    bool rows; /* V is a part of K's row */
    size_t head_dim, value_dim, block_tokens, n_q, chunk_bytes;
    float scale, soft_cap;
    enum side side;
    struct guarded k[P / 16], v[P / 16], q[MAX_Q], scratch; /* chunks that no query attends to stay NULL */
    uint16_t begin[MAX_Q], end[MAX_Q];
    float *k_rows, *v_rows; /* [P][head_dim] as stored; the same with rows */
};

struct result {
    float max[MAX_Q], sum[MAX_Q];
    struct guarded acc[MAX_Q];
};

static const struct kern_attn *attn(const struct problem *p) {
    return p->rows ? &p->c->kern->attn_rows[p->type] : &p->c->kern->attn[p->type];
}

static bool attended(const struct problem *p, size_t slot) {
    for (size_t i = 0; i < p->n_q; i++)
        if (p->begin[i] <= slot && slot < p->end[i]) return true;
    return false;
}

static void store_slot(struct problem *p, size_t slot, const float *k, const float *v) {
    size_t chunk = slot / p->block_tokens, at = slot % p->block_tokens;
    attn(p)->write_k(p->k[chunk].data, at, p->block_tokens, k, p->head_dim);
    if (!p->rows) attn(p)->write_v(p->v[chunk].data, at, v, p->head_dim);
}

static float as_stored(float x, enum kern_kv type) {
    if (type == KERN_KV_F16) return kern_from_f16(kern_to_f16(x));
    return type == KERN_KV_BF16 ? kern_from_bf16(kern_to_bf16(x)) : x;
}

static bool same_floats(const float *a, const float *b, size_t n) {
    return same_bits(a, b, n * sizeof *a);
}

/* Chunks start as 0xff bytes, NaN in all types; only attended slots are written. */
static void fill_slots(struct problem *p, float size) {
    size_t n_chunks = P / p->block_tokens, bad = 0;
    float *read = malloc(p->head_dim * sizeof *read);
    for (size_t i = 0; i < n_chunks; i++) {
        bool used = false;
        for (size_t s = 0; s < p->block_tokens; s++) used = used || attended(p, i * p->block_tokens + s);
        if (!used) continue;
        p->k[i] = guarded_new(p->chunk_bytes, 64, p->side);
        if (!p->rows) p->v[i] = guarded_new(p->chunk_bytes, 64, p->side);
    }
    for (size_t slot = 0; slot < P; slot++) {
        if (!attended(p, slot)) continue;
        float *k = p->k_rows + slot * p->head_dim, *v = p->v_rows + slot * p->head_dim;
        check_fill(p->c, k, p->head_dim, FILL_NORMAL);
        if (!p->rows) check_fill(p->c, v, p->head_dim, FILL_NORMAL);
        for (size_t d = 0; d < p->head_dim; d++) k[d] *= size;
        store_slot(p, slot, k, v);
        for (size_t d = 0; d < p->head_dim; d++) {
            k[d] = as_stored(k[d], p->type);
            v[d] = as_stored(v[d], p->type);
        }
        attn(p)->read_k(read, p->k[slot / p->block_tokens].data, slot % p->block_tokens, p->head_dim);
        bad += !same_floats(read, k, p->head_dim);
        if (p->rows) continue;
        attn(p)->read_v(read, p->v[slot / p->block_tokens].data, slot % p->block_tokens, p->head_dim);
        bad += !same_floats(read, v, p->head_dim);
    }
    check_that(p->c, bad == 0, "%zu of the slots read back differ", bad);
    free(read);
}

static void run_by(void (*partition)(const struct kern_attn_job *), struct problem *p, struct result *r,
                   size_t first, size_t n) {
    const void *k[P / 16], *v[P / 16];
    const float *q[MAX_Q];
    float *acc[MAX_Q];
    for (size_t i = 0; i < P / 16; i++) {
        k[i] = p->k[i].data;
        v[i] = p->rows ? p->k[i].data : p->v[i].data;
    }
    for (size_t i = 0; i < n; i++) {
        q[i] = p->q[first + i].data;
        acc[i] = r->acc[first + i].data;
    }
    struct kern_attn_job job = {.k = k,
                                .v = v,
                                .block_tokens = p->block_tokens,
                                .head_dim = p->head_dim,
                                .value_dim = p->value_dim,
                                .q = q,
                                .begin = p->begin + first,
                                .end = p->end + first,
                                .n_q = n,
                                .scale = p->scale,
                                .soft_cap = p->soft_cap,
                                .max = r->max + first,
                                .sum = r->sum + first,
                                .acc = acc,
                                .scratch = p->scratch.data};
    partition(&job);
}

static void run(struct problem *p, struct result *r, size_t first, size_t n) {
    run_by(attn(p)->partition, p, r, first, n);
}

static struct result result_new(const struct problem *p) {
    struct result r;
    for (size_t i = 0; i < p->n_q; i++) r.acc[i] = guarded_new(p->value_dim * sizeof(float), 4, p->side);
    return r;
}

static void result_free(struct problem *p, struct result *r) {
    for (size_t i = 0; i < p->n_q; i++) guarded_free(p->c, &r->acc[i]);
}

/* Unit roundoff of bfloat16. */
#define U_BF16 0x1p-8

static bool rounds_terms(const struct problem *p) {
    return attn(p)->act == KERN_ACT_BF16;
}

/* Bounds. A score is a sum of head_dim products, times scale, and tanh where capped (absolute error 3e-7 of
 * the cap): e_s = scale * (head_dim + 4) U sum|q k|  (+ 4e-7 cap) A term exp(s - max) then has relative error
 * below 2 e_s + 6 U, the subtraction adding U |s - max| p <= U; sums of n terms add n U. Where queries and
 * terms are rounded to bfloat16, the queries are here too, and terms have an error of U_BF16 more. */
static void check_query(struct problem *p, const struct result *r, size_t i) {
    size_t begin = p->begin[i], end = p->end[i], n = p->head_dim;
    const float *q = p->q[i].data, *acc = r->acc[i].data;
    double s[P], max = -INFINITY, e_s = 0.0, sum = 0.0;
    for (size_t t = begin; t < end; t++) {
        double dot = 0.0, size = 0.0;
        for (size_t d = 0; d < n; d++) {
            double x =
                (double)(rounds_terms(p) ? as_stored(q[d], KERN_KV_BF16) : q[d]) * p->k_rows[t * n + d];
            dot += x;
            size += fabs(x);
        }
        s[t] = dot * p->scale;
        if (p->soft_cap > 0.0f) s[t] = p->soft_cap * tanh(s[t] / p->soft_cap);
        if (s[t] > max) max = s[t];
        double error = p->scale * ((double)n + 4) * U * size + 4e-7 * p->soft_cap;
        if (error > e_s) e_s = error;
    }
    for (size_t t = begin; t < end; t++) sum += exp(s[t] - max);
    double relative = 3 * e_s + (double)(end - begin + 16) * U + (rounds_terms(p) ? 1.01 * U_BF16 : 0.0);
    check_that(p->c, fabs(r->max[i] - max) <= e_s + U * fabs(max),
               "query %zu [%zu, %zu): max %.9g, expected %.9g", i, begin, end, r->max[i], max);
    check_that(p->c, fabs(r->sum[i] - sum) <= relative * sum, "query %zu [%zu, %zu): sum %.9g, expected %.9g",
               i, begin, end, r->sum[i], sum);
    size_t bad = 0;
    for (size_t d = 0; d < p->value_dim; d++) {
        double want = 0.0, size = 0.0;
        for (size_t t = begin; t < end; t++) {
            double x = exp(s[t] - max) * p->v_rows[t * n + d];
            want += x;
            size += fabs(x);
        }
        if (!(fabs(acc[d] - want) <= relative * size)) bad++;
    }
    check_that(p->c, bad == 0, "query %zu [%zu, %zu): %zu of %zu weighted sums wrong", i, begin, end, bad,
               p->value_dim);
}

/* How far a term may be from the reference's for its error before it is rounded: mostly not at all. */
static double term_slack(const struct problem *p, double s, double max) {
    double error = 3.2e-6 + 0x1p-23 * (max - s) + 1e-6 * p->soft_cap, term = exp(s - max);
    return (double)as_stored((float)(term * (1.0 + error)), KERN_KV_BF16) -
           (double)as_stored((float)(term * (1.0 - error)), KERN_KV_BF16);
}

/* Scores, which the reference leaves in scratch, have one order of additions; so have weighted sums: where no
 * term can be rounded to either side, all bits are those of the reference. */
static void check_rounded(struct problem *p, const struct result *r) {
    struct result ref = result_new(p);
    size_t n_max = 0, n_sum = 0, n_acc = 0;
    run_by(p->c->kern->isa == KERN_ISA_AMX ? ref_attn_partition_tiles : ref_attn_partition_pairs, p, &ref, 0,
           p->n_q);
    for (size_t i = 0; i < p->n_q; i++) {
        const float *s = (const float *)p->scratch.data + i * P, *acc = r->acc[i].data,
                    *want = ref.acc[i].data;
        double slack[P], sum = 0.0;
        for (size_t t = p->begin[i]; t < p->end[i]; t++) sum += slack[t] = term_slack(p, s[t], ref.max[i]);
        n_max += !(fabs(r->max[i] - ref.max[i]) <= 4e-7 * p->soft_cap);
        n_sum += !(fabs(r->sum[i] - ref.sum[i]) <= sum + P * U * ref.sum[i]);
        if (sum == 0.0 && p->soft_cap == 0.0f) {
            n_acc += !same_floats(acc, want, p->head_dim);
            continue;
        }
        for (size_t d = 0; d < p->head_dim; d++) {
            double bound = 0.0;
            for (size_t t = p->begin[i]; t < p->end[i]; t++)
                bound += (slack[t] + P * U * exp(s[t] - ref.max[i])) * fabs(p->v_rows[t * p->head_dim + d]);
            if (fabs(acc[d] - want[d]) <= bound) continue;
            n_acc++;
            break;
        }
    }
    check_that(p->c, !n_max && !n_sum && !n_acc,
               "of %zu queries %zu maxima, %zu sums, %zu weighted sums differ from the reference's", p->n_q,
               n_max, n_sum, n_acc);
    result_free(p, &ref);
}

static bool results_equal(const struct problem *p, const struct result *a, const struct result *b, size_t i) {
    return same_floats(&a->max[i], &b->max[i], 1) && same_floats(&a->sum[i], &b->sum[i], 1) &&
           same_floats(a->acc[i].data, b->acc[i].data, p->value_dim);
}

/* Each query alone, all slots it does not attend to now NaN: the same bits. */
static void check_alone(struct problem *p, const struct result *together) {
    struct result alone = result_new(p);
    float *nan = malloc(p->head_dim * sizeof *nan);
    size_t differ = 0;
    for (size_t d = 0; d < p->head_dim; d++) nan[d] = NAN;
    for (size_t i = 0; i < p->n_q; i++) {
        for (size_t slot = 0; slot < P; slot++) {
            const float *k = p->k_rows + slot * p->head_dim, *v = p->v_rows + slot * p->head_dim;
            if (!attended(p, slot)) continue;
            bool own = p->begin[i] <= slot && slot < p->end[i];
            store_slot(p, slot, own ? k : nan, own ? v : nan);
        }
        run(p, &alone, i, 1);
        differ += !results_equal(p, together, &alone, i);
    }
    check_that(p->c, differ == 0, "%zu of %zu queries differ alone, with masked slots poisoned", differ,
               p->n_q);
    free(nan);
    result_free(p, &alone);
}

/* K and V of one token become NaN: that changes nothing for queries that do not attend to it. */
static void check_poisoned(struct problem *p, const struct result *clean) {
    struct result poisoned = result_new(p);
    size_t i = check_below(p->c, p->n_q), differ = 0;
    size_t slot = p->begin[i] + check_below(p->c, p->end[i] - p->begin[i]);
    float *nan = malloc(p->head_dim * sizeof *nan);
    for (size_t d = 0; d < p->head_dim; d++) nan[d] = NAN;
    store_slot(p, slot, nan, nan);
    run(p, &poisoned, 0, p->n_q);
    for (i = 0; i < p->n_q; i++)
        if (slot < p->begin[i] || p->end[i] <= slot) differ += !results_equal(p, clean, &poisoned, i);
    check_that(p->c, differ == 0, "%zu of %zu queries differ when slot %zu, not theirs, is poisoned", differ,
               p->n_q, slot);
    store_slot(p, slot, p->k_rows + slot * p->head_dim, p->v_rows + slot * p->head_dim);
    free(nan);
    result_free(p, &poisoned);
}

static void check_split(struct problem *p, const struct result *together) {
    struct result split = result_new(p);
    size_t differ = 0;
    for (size_t i = 0, n; i < p->n_q; i += n) {
        n = 1 + check_below(p->c, p->n_q - i);
        run(p, &split, i, n);
    }
    for (size_t i = 0; i < p->n_q; i++) differ += !results_equal(p, together, &split, i);
    check_that(p->c, differ == 0, "%zu of %zu queries differ when the call is split", differ, p->n_q);
    result_free(p, &split);
}

/* A NaN in a query reaches its sums, so that it cannot go unnoticed. */
static void check_nan(struct problem *p, struct result *r) {
    ((float *)p->q[0].data)[check_below(p->c, p->head_dim)] = NAN;
    run(p, r, 0, p->n_q);
    check_that(p->c, isnan(r->sum[0]), "NaN in a query gives the sum %g", r->sum[0]);
}

enum ranges { RANGES_CAUSAL, RANGES_RANDOM, RANGES_APART, RANGES_ONE_SLOT, RANGES_FULL, RANGES };

static void choose_ranges(struct problem *p, enum ranges kind) {
    size_t base = check_below(p->c, P - MAX_Q);
    for (size_t i = 0; i < p->n_q; i++) {
        size_t a = check_below(p->c, P), b = check_below(p->c, P), low = a < b ? a : b, high = a < b ? b : a;
        switch (kind) {
        case RANGES_CAUSAL: low = 0, high = base + i / 3; break;
        case RANGES_APART: low = i * (P / MAX_Q), high = low + check_below(p->c, P / MAX_Q); break;
        case RANGES_ONE_SLOT: high = low; break;
        case RANGES_FULL: low = 0, high = P - 1; break;
        default: break;
        }
        p->begin[i] = (uint16_t)low;
        p->end[i] = (uint16_t)(high + 1);
    }
}

/* value_dim: of K's rows; 0: V is apart. */
static void check_problem(struct check *c, enum kern_kv type, size_t head_dim, size_t value_dim,
                          size_t block_tokens, size_t n_q, enum ranges ranges, float size, float soft_cap,
                          enum side side) {
    static const char *const types[] = {"f32", "f16", "bf16"};
    char what[128];
    snprintf(what, sizeof what, "attention %s, head %zu/%zu, blocks of %zu, %zu queries, ranges %d, cap %g",
             types[type], head_dim, value_dim, block_tokens, n_q, ranges, soft_cap);
    c->what = what;
    struct problem p = {.c = c,
                        .type = type,
                        .rows = value_dim != 0,
                        .head_dim = head_dim,
                        .value_dim = value_dim ? value_dim : head_dim,
                        .block_tokens = block_tokens,
                        .n_q = n_q,
                        .scale = size / sqrtf((float)head_dim),
                        .soft_cap = soft_cap,
                        .side = side};
    p.chunk_bytes = block_tokens * head_dim * attn(&p)->elem_bytes;
    p.k_rows = calloc(P * head_dim, sizeof(float));
    p.v_rows = p.rows ? p.k_rows : calloc(P * head_dim, sizeof(float));
    choose_ranges(&p, ranges);
    fill_slots(&p, size);
    p.scratch = guarded_new(n_q * P * sizeof(float), 4, side);
    for (size_t i = 0; i < n_q; i++) {
        p.q[i] = guarded_new(head_dim * sizeof(float), 4, side);
        check_fill(c, p.q[i].data, head_dim, FILL_NORMAL);
    }
    struct result r = result_new(&p);
    run(&p, &r, 0, n_q);
    for (size_t i = 0; i < n_q; i++) check_query(&p, &r, i);
    if (rounds_terms(&p)) check_rounded(&p, &r);
    check_split(&p, &r);
    check_poisoned(&p, &r);
    check_alone(&p, &r);
    check_nan(&p, &r);

    result_free(&p, &r);
    guarded_free(c, &p.scratch);
    for (size_t i = 0; i < n_q; i++) guarded_free(c, &p.q[i]);
    for (size_t i = 0; i < P / block_tokens; i++)
        if (p.k[i].data) {
            guarded_free(c, &p.k[i]);
            if (!p.rows) guarded_free(c, &p.v[i]);
        }
    if (!p.rows) free(p.v_rows);
    free(p.k_rows);
}

/* Parts combined in order: relative error of exp(max - largest) is below 8 U + U |max - largest| exp(..) <= 9
 * U, and of the two sums n U each. A sink may be all of the largest, then U |max - largest| stands alone. */
static void check_combine(struct check *c, size_t n_parts, size_t head_dim, float offset, float sink,
                          enum side side) {
    size_t stride = head_dim + check_below(c, 5), n_acc = (n_parts - 1) * stride + head_dim, bad = 0;
    struct guarded max = guarded_new(n_parts * sizeof(float), 4, side),
                   sum = guarded_new(n_parts * sizeof(float), 4, side);
    struct guarded acc = guarded_new(n_acc * sizeof(float), 4, side),
                   out = guarded_new(head_dim * sizeof(float), 4, side);
    float *m = max.data, *s = sum.data, *a = acc.data, *o = out.data;
    double largest = sink, total = 0.0;
    for (size_t i = 0; i < n_parts; i++) {
        m[i] = offset + check_uniform(c, -30.0f, 30.0f);
        s[i] = check_uniform(c, 1.0f, 256.0f);
        check_fill(c, a + i * stride, head_dim, FILL_NORMAL);
        if (m[i] > largest) largest = m[i];
    }
    for (size_t i = 0; i < n_parts; i++) total += exp(m[i] - largest) * s[i];
    if (sink > -INFINITY) total += exp(sink - largest);
    c->kern->attn_combine(o, m, s, a, stride, n_parts, sink, head_dim);
    for (size_t d = 0; d < head_dim; d++) {
        double want = 0.0, size = 0.0;
        for (size_t i = 0; i < n_parts; i++) {
            double x = exp(m[i] - largest) * a[i * stride + d] / total;
            want += x;
            size += fabs(x);
        }
        double units = 2.0 * (double)n_parts + 20.0 + (sink > -INFINITY ? 65.0 : 0.0);
        if (!(fabs(o[d] - want) <= units * U * size)) bad++;
    }
    check_that(c, bad == 0, "%zu parts, head %zu: %zu wrong", n_parts, head_dim, bad);
    guarded_free(c, &max);
    guarded_free(c, &sum);
    guarded_free(c, &acc);
    guarded_free(c, &out);
}

/* V as a part of K: the sizes of DeepSeek, whole and expanded, and some with ends that fill no vector. */
static void check_rows(struct check *c) {
    static const size_t heads[][2] = {{576, 512}, {192, 128}, {40, 32}, {24, 8}, {72, 72}, {16, 8}};
    static const size_t blocks[] = {16, 32, 64, 128, 256};
    size_t n = 0;
    for (int type = 0; type < KERN_KV_TYPES; type++)
        for (size_t h = 0; h < sizeof heads / sizeof *heads; h++)
            for (int ranges = 0; ranges < RANGES; ranges++, n++)
                check_problem(c, (enum kern_kv)type, heads[h][0], heads[h][1], blocks[n % 5],
                              1 + check_below(c, MAX_Q), (enum ranges)ranges, n % 7 == 0 ? 4.0f : 1.0f,
                              n % 4 == 0 ? 20.0f : 0.0f, (enum side)(n % SIDES));
}

void check_attn(struct check *c) {
    static const size_t heads[] = {64, 8, 16, 24, 72, 80, 96, 128, 256}, blocks[] = {16, 32, 64, 128, 256};
    size_t n = 0;
    for (int type = 0; type < KERN_KV_TYPES; type++)
        for (size_t h = 0; h < sizeof heads / sizeof *heads; h++)
            for (int ranges = 0; ranges < RANGES; ranges++, n++)
                check_problem(c, (enum kern_kv)type, heads[h], 0, blocks[n % 5], 1 + check_below(c, MAX_Q),
                              (enum ranges)ranges, n % 7 == 0 ? 4.0f : 1.0f, n % 4 == 0 ? 20.0f : 0.0f,
                              (enum side)(n % SIDES));
    for (size_t n_q = 1; n_q <= MAX_Q; n_q++)
        check_problem(c, KERN_KV_BF16, 64, 0, 16, n_q, RANGES_CAUSAL, 1.0f, 0.0f, SIDE_BACK);
    check_rows(c);
    c->what = "attn_combine";
    for (size_t parts = 1; parts <= 9; parts++)
        for (size_t h = 0; h < sizeof heads / sizeof *heads; h++)
            for (size_t sink = 0; sink < 3; sink++) { /* none, among the maxima, above them all */
                float offset = 500.0f * ((float)(parts % 3) - 1.0f);
                check_combine(c, parts, heads[h], offset,
                              sink ? offset + 35.0f * (float)(sink - 1) : -INFINITY,
                              (enum side)(parts % SIDES));
            }
}
