/* Sampling: against a slow reference written from the definitions in sample.h, by chi-square on a tiny
 * vocabulary, by hand values for the penalties, and bit for bit the same at any thread count and in any
 * batch. */
#include "util_backend.h"

#include "backend/cpu/select.h"
#include "base/rng.h"

#include <float.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static struct sample_row plain_row(void) {
    return (struct sample_row){.temperature = 1.0f,
                               .top_p = 1.0f,
                               .repetition_penalty = 1.0f,
                               .n_top = -1,
                               .seed = 7,
                               .position = 100};
}

static void sample_rows(struct backend *b, const float *logits, size_t n_rows, size_t n,
                        const struct sample_row *rows, struct sample_result *out) {
    struct backend_buffer *buf = buffer_of(b, logits, n_rows * n);
    b->ops->sample(b, buf, n_rows, n, rows, out);
    float *after = floats_of(b, buf, n_rows * n);
    assert_memory_equal(after, logits, n_rows * n * sizeof *after); /* they stay as they are */
    free(after);
    b->ops->buffer_free(b, buf);
}

static struct sample_result sample_one(struct backend *b, const float *logits, size_t n,
                                       const struct sample_row *row) {
    struct sample_result out;
    sample_rows(b, logits, 1, n, row, &out);
    return out;
}

/* ---- a slow reference ---- */

struct candidate {
    double logit, p;
    uint32_t id;
};

static int by_logit(const void *x, const void *y) {
    const struct candidate *a = x, *b = y;
    if (a->logit != b->logit) return a->logit > b->logit ? -1 : 1;
    return a->id < b->id ? -1 : 1;
}

static void adjust(double *x, size_t n, const struct sample_row *r) {
    for (size_t i = 0; i < r->n_bias; i++) x[r->bias[i].token] += r->bias[i].bias;
    for (size_t i = 0; r->allow_mask && i < n; i++)
        if (!(r->allow_mask[i / 32] >> (i % 32) & 1)) x[i] = -INFINITY;
    for (size_t i = 0; i < r->n_counts; i++) {
        const struct sample_count *c = &r->counts[i];
        double *v = &x[c->token];
        if (c->in_prompt || c->n_output)
            *v = *v > 0 ? *v / r->repetition_penalty : *v * r->repetition_penalty;
        if (c->n_output) *v -= r->presence_penalty + (double)r->frequency_penalty * c->n_output;
    }
    for (size_t i = 0; i < r->n_banned; i++) x[r->banned[i]] = -INFINITY;
}

/* The distribution that a row draws from: p by id, 0 where cut. Also the candidates in the order they are
 * kept. */
static size_t distribution(const float *logits, size_t n, const struct sample_row *r, struct candidate *c,
                           double *p) {
    double *x = malloc(n * sizeof *x), total = 0.0;
    for (size_t i = 0; i < n; i++) x[i] = logits[i];
    adjust(x, n, r);
    for (size_t i = 0; i < n; i++) c[i] = (struct candidate){.logit = x[i], .id = (uint32_t)i};
    qsort(c, n, sizeof *c, by_logit);
    size_t kept = n;
    if (r->top_k > 0 && (size_t)r->top_k < n) kept = (size_t)r->top_k;
    while (kept && c[kept - 1].logit == -INFINITY) kept--;
    for (size_t i = 0; i < kept; i++) total += c[i].p = exp((c[i].logit - c[0].logit) / r->temperature);
    if (r->top_p < 1.0f) {
        double sum = 0.0;
        size_t k = 0;
        while (k < kept && (!k || sum < (double)r->top_p * total)) sum += c[k++].p;
        kept = k;
    }
    while (kept > 1 && c[kept - 1].p < (double)r->min_p) kept--; /* c[0].p is 1 */
    total = 0.0;
    for (size_t i = 0; i < kept; i++) total += c[i].p;
    memset(p, 0, n * sizeof *p);
    for (size_t i = 0; i < kept; i++) p[c[i].id] = c[i].p /= total;
    free(x);
    return kept;
}

/* The draw goes through the kept candidates in order: by id when only temperature and min_p cut, else by
 * logit. */
static uint32_t expected_token(const float *logits, size_t n, const struct sample_row *r, double *margin) {
    struct candidate *c = malloc(n * sizeof *c);
    double *p = malloc(n * sizeof *p), sum = 0.0;
    size_t kept = distribution(logits, n, r, c, p);
    bool sorted = (r->top_k > 0 && (size_t)r->top_k < n) || r->top_p < 1.0f;
    double u = rng_uniform(r->seed, r->choice, r->position, 0);
    uint32_t token = 0;
    *margin = 1.0;
    for (size_t i = 0; i < (sorted ? kept : n); i++) {
        uint32_t id = sorted ? c[i].id : (uint32_t)i;
        if (p[id] == 0.0) continue;
        token = id;
        sum += p[id];
        *margin = fmin(*margin, fabs(sum - u));
        if (sum > u) break;
    }
    free(c);
    free(p);
    return token;
}

static void random_row(struct sample_row *r, uint64_t *seed, size_t n, struct sample_count *counts,
                       struct sample_bias *bias, uint32_t *banned, uint32_t *mask) {
    *r = plain_row();
    r->temperature = 0.2f + 1.5f * (float)(random_u32(seed) % 1000) / 1000.0f;
    if (random_u32(seed) % 2) r->top_k = (int32_t)(1 + random_u32(seed) % (random_u32(seed) % 2 ? n : 40));
    if (random_u32(seed) % 2) r->top_p = 0.05f + 0.9f * (float)(random_u32(seed) % 1000) / 1000.0f;
    if (random_u32(seed) % 2) r->min_p = 0.3f * (float)(random_u32(seed) % 1000) / 1000.0f;
    r->seed = random_u32(seed);
    r->choice = random_u32(seed) % 4;
    r->position = random_u32(seed) % 1000;
    if (random_u32(seed) % 2) {
        r->repetition_penalty = 0.5f + (float)(random_u32(seed) % 100) / 60.0f;
        r->presence_penalty = (float)(random_u32(seed) % 400) / 100.0f - 2.0f;
        r->frequency_penalty = (float)(random_u32(seed) % 400) / 100.0f - 2.0f;
        r->n_counts = random_u32(seed) % 20;
        for (size_t i = 0; i < r->n_counts; i++)
            counts[i] = (struct sample_count){.token = (uint32_t)(i * 3 % n),
                                              .n_output = random_u32(seed) % 3,
                                              .in_prompt = random_u32(seed) % 2};
        r->counts = counts;
    }
    if (random_u32(seed) % 2) {
        r->n_bias = random_u32(seed) % 10;
        for (size_t i = 0; i < r->n_bias; i++)
            bias[i] =
                (struct sample_bias){.token = random_u32(seed) % (uint32_t)n, .bias = 3 * random_float(seed)};
        r->bias = bias;
    }
    if (random_u32(seed) % 2) {
        r->n_banned = random_u32(seed) % 5;
        for (size_t i = 0; i < r->n_banned; i++) banned[i] = random_u32(seed) % (uint32_t)n;
        r->banned = banned;
    }
    if (random_u32(seed) % 3 == 0) {
        for (size_t i = 0; i < (n + 31) / 32; i++) mask[i] = random_u32(seed) | 1u << i % 32;
        r->allow_mask = mask;
    }
}

/* Every combination of settings, logits in all shapes (flat, peaked, many ties), against the slow reference.
 * A draw within 1e-6 of the border between two tokens may go either way: the kernels' exponentials are
 * rounded to float. */
static void agrees_with_a_slow_reference(void **state) {
    for (const char *const *path = backend_paths(); *path; path++) {
        struct backend *b = backend_start(*path, 1);
        uint64_t seed = 31;
        size_t n_close = 0, n_runs = 3000;
        for (size_t run = 0; run < n_runs; run++) {
            size_t n = 2 + random_u32(&seed) % (run % 4 ? 300 : 2900);
            float *x = random_floats(&seed, n), spread = (float)(random_u32(&seed) % 100) / 10.0f;
            for (size_t i = 0; i < n; i++) x[i] = run % 3 ? x[i] * spread : roundf(x[i] * 2.0f);
            struct sample_row r;
            struct sample_count counts[20];
            struct sample_bias bias[10];
            uint32_t banned[5], mask[100];
            random_row(&r, &seed, n, counts, bias, banned, mask);
            if (n < 60) r.n_counts = r.n_bias = r.n_banned = 0;
            double margin;
            uint32_t expected = expected_token(x, n, &r, &margin);
            struct sample_result got = sample_one(b, x, n, &r);
            assert_true(got.finite && got.allowed);
            if (got.token != expected) {
                if (margin > 1e-6)
                    fail_msg("%s: run %zu: token %u, expected %u", *path, run, got.token, expected);
                n_close++;
            }
            free(x);
        }
        assert_true(n_close < n_runs / 100);
        b->ops->close(b);
    }
}

/* ---- chi-square ---- */

static void draws_follow_the_distribution(void **state) {
    enum { N = 12, DRAWS = 60000 };
    const float logits[N] = {0.1f, 2.0f, -1.0f, 2.0f, 0.5f, 1.2f, -3.0f, 0.0f, 1.9f, -0.2f, 0.3f, 1.0f};
    const struct {
        float temperature, top_p, min_p;
        int32_t top_k;
    } settings[] = {{1.0f, 1.0f, 0.0f, 0}, {0.5f, 1.0f, 0.0f, 0}, {1.5f, 1.0f, 0.0f, 0},
                    {1.0f, 1.0f, 0.0f, 5}, {1.0f, 0.7f, 0.0f, 0}, {1.0f, 1.0f, 0.2f, 0},
                    {0.8f, 0.9f, 0.1f, 7}, {1.0f, 0.1f, 0.0f, 0}};
    /* 1 - 1e-6 quantiles of chi-square with 0 … 11 degrees of freedom */
    const double limits[] = {0, 23.93, 27.63, 30.66, 33.38, 35.89, 38.26, 40.52, 42.70, 44.81, 46.86, 48.87};
    struct backend *b = backend_start(backend_paths()[0], 1);
    float *rows_logits = malloc(TEST_MAX_ROWS * N * sizeof *rows_logits);
    for (size_t i = 0; i < TEST_MAX_ROWS * N; i++) rows_logits[i] = logits[i % N];
    for (size_t s = 0; s < sizeof settings / sizeof settings[0]; s++) {
        struct sample_row r = plain_row(), rows[TEST_MAX_ROWS];
        struct sample_result results[TEST_MAX_ROWS];
        r.temperature = settings[s].temperature;
        r.top_p = settings[s].top_p;
        r.min_p = settings[s].min_p;
        r.top_k = settings[s].top_k;
        struct candidate c[N];
        double p[N], chi = 0.0;
        size_t kept = distribution(logits, N, &r, c, p), counts[N] = {0};
        for (size_t i = 0; i < DRAWS; i += TEST_MAX_ROWS) {
            for (size_t k = 0; k < TEST_MAX_ROWS; k++) {
                rows[k] = r;
                rows[k].seed = i / 1000;
                rows[k].position = (uint32_t)(i + k);
            }
            sample_rows(b, rows_logits, TEST_MAX_ROWS, N, rows, results);
            for (size_t k = 0; k < TEST_MAX_ROWS; k++) counts[results[k].token]++;
        }
        for (size_t i = 0; i < N; i++) {
            if (p[i] == 0.0) {
                assert_int_equal(counts[i], 0);
                continue;
            }
            double expected = p[i] * DRAWS;
            chi += (counts[i] - expected) * (counts[i] - expected) / expected;
        }
        if (chi > limits[kept - 1] + 1e-9)
            fail_msg("setting %zu: chi-square %.2f with %zu tokens", s, chi, kept);
    }
    free(rows_logits);
    b->ops->close(b);
}

/* ---- hand values ---- */

static void penalties_by_hand(void **state) {
    /* Greedy, so the penalised logits show: 2 / 1.25 = 1.6; -1 * 1.25; presence and frequency only for
     * output. */
    const float logits[] = {2.0f, 1.7f, 1.55f, -1.0f};
    struct sample_count counts[2] = {{.token = 0, .in_prompt = true}};
    struct sample_row r = plain_row();
    struct backend *b = backend_start("ref", 1);
    r.temperature = 0.0f;
    assert_int_equal(sample_one(b, logits, 4, &r).token, 0);
    r.repetition_penalty = 1.25f;
    assert_int_equal(sample_one(b, logits, 4, &r).token, 0); /* no counts */
    r.counts = counts;
    r.n_counts = 1;
    assert_int_equal(sample_one(b, logits, 4, &r).token, 1); /* 1.6 < 1.7 */
    r.repetition_penalty = 1.0f;
    r.presence_penalty = 0.5f;
    assert_int_equal(sample_one(b, logits, 4, &r).token, 0); /* in the prompt only */
    counts[0].n_output = 1;
    assert_int_equal(sample_one(b, logits, 4, &r).token, 1); /* 1.5 */
    r.presence_penalty = 0.0f;
    r.frequency_penalty = 0.1f;
    counts[0].n_output = 2;
    assert_int_equal(sample_one(b, logits, 4, &r).token, 0); /* 1.8 */
    counts[0].n_output = 4;
    assert_int_equal(sample_one(b, logits, 4, &r).token, 1); /* 1.6 */
    const float negative[] = {-1.0f, -1.1f};
    r.frequency_penalty = 0.0f;
    r.repetition_penalty = 1.25f; /* -1.25 */
    assert_int_equal(sample_one(b, negative, 2, &r).token, 1);
    b->ops->close(b);
}

static void bans_masks_and_bias(void **state) {
    const float logits[40] = {[3] = 1.0f, [35] = 2.0f};
    uint32_t banned[] = {35, 3}, mask[2] = {1u << 3 | 1u << 7, 0};
    struct sample_bias bias[] = {{.token = 9, .bias = 5.0f}, {.token = 35, .bias = -100.0f}};
    struct sample_row r = plain_row();
    struct backend *b = backend_start("ref", 1);
    r.temperature = 0.0f;
    assert_int_equal(sample_one(b, logits, 40, &r).token, 35);
    r.banned = banned;
    r.n_banned = 1;
    assert_int_equal(sample_one(b, logits, 40, &r).token, 3);
    r.n_banned = 2;
    assert_int_equal(sample_one(b, logits, 40, &r).token, 0); /* lowest id among equals */
    r.allow_mask = mask;
    assert_int_equal(sample_one(b, logits, 40, &r).token, 7);
    mask[0] = 1u << 3;
    struct sample_result none = sample_one(b, logits, 40, &r);
    assert_true(none.finite && !none.allowed);
    r.temperature = 1.0f;
    none = sample_one(b, logits, 40, &r);
    assert_true(none.finite && !none.allowed);
    r = plain_row();
    r.temperature = 1e-6f; /* counts as 0 */
    r.bias = bias;
    r.n_bias = 2;
    assert_int_equal(sample_one(b, logits, 40, &r).token, 9);
    bias[0].bias = FLT_MAX;
    const float large[10] = {[9] = FLT_MAX};
    r.temperature = 1.0f;
    r.n_bias = 1;
    assert_int_equal(sample_one(b, large, 10, &r).token, 9); /* no infinity comes of it */
    b->ops->close(b);
}

static void logits_that_are_not_finite_are_named(void **state) {
    for (const char *const *path = backend_paths(); *path; path++) {
        struct backend *b = backend_start(*path, 2);
        const float bad[] = {NAN, INFINITY, -INFINITY};
        for (size_t n = 1; n < 100; n += 7)
            for (size_t at = 0; at < n; at++)
                for (size_t kind = 0; kind < 3; kind++) {
                    float x[3][100] = {0};
                    struct sample_row rows[3] = {plain_row(), plain_row(), plain_row()};
                    struct sample_result out[3];
                    float all[300];
                    x[1][at] = bad[kind];
                    for (size_t i = 0; i < 3; i++) memcpy(all + i * n, x[i], n * sizeof(float));
                    rows[1].n_top = 5;
                    struct backend_buffer *buf = buffer_of(b, all, 3 * n);
                    b->ops->sample(b, buf, 3, n, rows, out);
                    b->ops->buffer_free(b, buf);
                    assert_true(out[0].finite && !out[1].finite && out[2].finite); /* that row alone */
                }
        b->ops->close(b);
    }
}

/* ---- log probabilities ---- */

static void log_probabilities_are_of_the_raw_logits(void **state) {
    enum { N = 1000 };
    uint64_t seed = 41;
    float *x = random_floats(&seed, N);
    for (size_t i = 0; i < N; i++) x[i] = roundf(x[i] * 8.0f) / 4.0f; /* many equal ones */
    struct candidate c[N];
    double sum = 0.0;
    for (size_t i = 0; i < N; i++) c[i] = (struct candidate){.logit = x[i], .id = (uint32_t)i};
    qsort(c, N, sizeof *c, by_logit);
    for (size_t i = 0; i < N; i++) sum += exp(x[i] - c[0].logit);
    double log_sum = log(sum) + c[0].logit;
    for (const char *const *path = backend_paths(); *path; path++) {
        struct backend *b = backend_start(*path, 1);
        for (int n_top = 0; n_top <= SAMPLE_MAX_TOP; n_top++) {
            struct sample_row r = plain_row();
            uint32_t banned[] = {c[0].id};
            r.n_top = n_top;
            r.banned = banned;
            r.n_banned = 1;
            r.temperature = 0.7f;
            r.top_k = 50;
            r.position = (uint32_t)n_top;
            if (n_top % 2) {
                r.score_only = true;
                r.target = (uint32_t)(n_top * 37 % N);
            }
            struct sample_result got = sample_one(b, x, N, &r);
            uint32_t rank = 1;
            for (size_t i = 0; i < N; i++) rank += x[i] > x[got.token];
            assert_int_equal(got.rank, rank);
            assert_true(fabs(got.logprob - (x[got.token] - log_sum)) < 1e-5);
            if (n_top % 2) assert_int_equal(got.token, r.target);
            assert_int_equal(got.n_top, n_top);
            for (int i = 0; i < n_top; i++) {
                assert_int_equal(got.top[i].token, c[i].id);
                assert_true(fabs(got.top[i].logprob - (c[i].logit - log_sum)) < 1e-5);
            }
        }
        struct sample_row r = plain_row();
        r.n_top = 20;
        assert_int_equal(sample_one(b, x, 7, &r).n_top, 7); /* no more than there are */
        b->ops->close(b);
    }
    free(x);
}

/* ---- law 1 ---- */

static void a_row_is_alone(void **state) {
    enum { N = 2500, ROWS = 24 };
    uint64_t seed = 51;
    float *x = random_floats(&seed, ROWS * N);
    struct sample_row rows[ROWS];
    struct sample_count counts[ROWS][20];
    struct sample_bias bias[ROWS][10];
    uint32_t banned[ROWS][5], mask[ROWS][100];
    for (size_t i = 0; i < ROWS; i++) {
        random_row(&rows[i], &seed, N, counts[i], bias[i], banned[i], mask[i]);
        rows[i].n_top = (int)(i % 22) - 1;
    }
    for (const char *const *path = backend_paths(); *path; path++) {
        struct sample_result alone[ROWS], together[ROWS];
        memset(alone, 0, sizeof alone);
        struct backend *one = backend_start(*path, 1);
        for (size_t i = 0; i < ROWS; i++) alone[i] = sample_one(one, x + i * N, N, &rows[i]);
        one->ops->close(one);
        for (size_t threads = 1; threads <= 4; threads++) {
            struct backend *b = backend_start(*path, threads);
            memset(together, 0, sizeof together);
            sample_rows(b, x, ROWS, N, rows, together);
            for (size_t i = 0; i < ROWS; i++) {
                assert_int_equal(together[i].token, alone[i].token);
                assert_int_equal(together[i].rank, alone[i].rank);
                assert_memory_equal(&together[i].logprob, &alone[i].logprob, sizeof(float));
                assert_memory_equal(together[i].top, alone[i].top, sizeof alone[i].top);
            }
            b->ops->close(b);
        }
    }
    free(x);
}

/* ---- selection ---- */

static int descending(const void *x, const void *y) {
    uint64_t a = *(const uint64_t *)x, b = *(const uint64_t *)y;
    return a > b ? -1 : a < b;
}

static void selection(void **state) {
    uint64_t seed = 61;
    enum { MAX = 3000 };
    uint64_t *keys = malloc(MAX * sizeof *keys), *copy = malloc(MAX * sizeof *copy);
    for (size_t run = 0; run < 400; run++) {
        size_t n = run < 40 ? run : random_u32(&seed) % MAX, k = n ? random_u32(&seed) % (n + 1) : 0;
        for (size_t i = 0; i < n; i++) {
            float v = run % 5 == 0   ? 1.0f /* equal logits: order by id alone */
                      : run % 5 == 1 ? (float)i
                      : run % 5 == 2 ? -(float)i
                      : run % 5 == 3 ? (float)(i % 3)
                                     : random_float(&seed);
            copy[i] = keys[i] = select_key(v, (uint32_t)i);
            assert_int_equal(select_id(keys[i]), i);
        }
        qsort(copy, n, sizeof *copy, descending);
        select_largest(keys, n, k);
        qsort(keys, k, sizeof *keys, descending);
        assert_memory_equal(keys, copy, k * sizeof *keys);
        select_sort(keys, n);
        assert_memory_equal(keys, copy, n * sizeof *keys);
    }
    assert_true(select_key(-0.0f, 1) > select_key(0.0f, 2));
    assert_true(select_key(FLT_MAX, 9) > select_key(FLT_MIN, 0));
    assert_true(select_key(-FLT_MIN, 9) > select_key(-FLT_MAX, 0));
    free(keys);
    free(copy);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(agrees_with_a_slow_reference),
        cmocka_unit_test(draws_follow_the_distribution),
        cmocka_unit_test(penalties_by_hand),
        cmocka_unit_test(bans_masks_and_bias),
        cmocka_unit_test(logits_that_are_not_finite_are_named),
        cmocka_unit_test(log_probabilities_are_of_the_raw_logits),
        cmocka_unit_test(a_row_is_alone),
        cmocka_unit_test(selection),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
