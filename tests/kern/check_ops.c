/* Element-wise kernels, norms and the vocabulary kernels, against double precision. */
#include "check.h"

#include "kern/kern_half.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static const size_t lengths[] = {1, 2, 7, 8, 9, 15, 16, 17, 31, 33, 63, 64, 65, 127, 576, 1000, 1536};
enum { N_LENGTHS = sizeof lengths / sizeof *lengths };

struct rows {
    struct guarded a, b, y;
    float *x1, *x2, *out;
};

static struct rows rows_new(struct check *c, size_t n, enum fill fill, enum side side) {
    struct rows r = {.a = guarded_new(n * sizeof(float), 4, side),
                     .b = guarded_new(n * sizeof(float), 4, side),
                     .y = guarded_new(n * sizeof(float), 4, side)};
    r.x1 = r.a.data;
    r.x2 = r.b.data;
    r.out = r.y.data;
    check_fill(c, r.x1, n, fill);
    check_fill(c, r.x2, n, FILL_NORMAL);
    return r;
}

static void rows_free(struct check *c, struct rows *r) {
    guarded_free(c, &r->a);
    guarded_free(c, &r->b);
    guarded_free(c, &r->y);
}

/* n outputs within `relative` of what is wanted, plus an absolute error for subnormal results. */
static void check_close(struct check *c, const float *y, const double *want, size_t n, double relative,
                        double absolute, enum fill fill) {
    size_t bad = 0, first = 0;
    for (size_t i = 0; i < n; i++)
        if (!(fabs(y[i] - want[i]) <= relative * fabs(want[i]) + absolute) && bad++ == 0) first = i;
    check_that(c, bad == 0, "n = %zu, %s: %zu wrong, first %zu: %.9g, expected %.9g", n, fill_names[fill],
               bad, first, y[first], want[first]);
}

static void check_norm(struct check *c, size_t n, enum fill fill, enum side side) {
    struct rows r = rows_new(c, n, fill, side);
    double *want = malloc(n * sizeof *want), sum = 0.0;
    float eps = 1e-5f;
    for (size_t i = 0; i < n; i++) sum += (double)r.x1[i] * r.x1[i];
    for (size_t i = 0; i < n; i++) want[i] = r.x1[i] / sqrt(sum / (double)n + eps) * r.x2[i];
    c->kern->rms_norm(r.out, r.x1, r.x2, n, eps);
    check_close(c, r.out, want, n, 5 * U, 0x1p-146,
                fill); /* three roundings to float, x / rms, times |w| < 6 */
    r.x1[check_below(c, n)] = NAN;
    c->kern->rms_norm(r.out, r.x1, r.x2, n, eps);
    size_t finite = 0;
    for (size_t i = 0; i < n; i++) finite += isfinite(r.out[i]) != 0;
    check_that(c, finite == 0, "%zu outputs of a row with NaN are finite", finite);
    free(want);
    rows_free(c, &r);
}

static void check_rope(struct check *c, size_t n_rot, bool interleaved, enum side side) {
    size_t half = n_rot / 2, bad = 0;
    struct rows r = rows_new(c, n_rot, FILL_NORMAL, side);
    float *x = r.x1, *table = r.x2, *before = malloc(n_rot * sizeof *before);
    memcpy(before, x, n_rot * sizeof *x);
    for (size_t i = 0; i < half; i++) {
        float angle = check_uniform(c, 0.0f, 100.0f);
        table[i] = cosf(angle);
        table[half + i] = sinf(angle);
    }
    c->kern->rope(x, table, n_rot, interleaved);
    for (size_t i = 0; i < half; i++) {
        size_t ia = interleaved ? 2 * i : i, ib = interleaved ? 2 * i + 1 : half + i;
        double a = before[ia], b = before[ib], cosine = table[i], sine = table[half + i];
        bad += !(fabs(x[ia] - (a * cosine - b * sine)) <= 3 * U * (fabs(a * cosine) + fabs(b * sine)));
        bad += !(fabs(x[ib] - (a * sine + b * cosine)) <= 3 * U * (fabs(a * sine) + fabs(b * cosine)));
    }
    check_that(c, bad == 0, "n_rot = %zu, interleaved %d: %zu wrong", n_rot, interleaved, bad);
    free(before);
    rows_free(c, &r);
}

static void check_swiglu(struct check *c, size_t n, enum fill fill, enum side side) {
    struct rows r = rows_new(c, n, fill, side);
    double *want = malloc(n * sizeof *want);
    size_t bad = 0;
    for (size_t i = 0; i < n; i++) {
        if (fill == FILL_WIDE) r.x1[i] = check_uniform(c, -120.0f, 120.0f);
        want[i] = r.x1[i] / (1.0 + exp(-(double)r.x1[i])) * r.x2[i];
    }
    c->kern->swiglu(r.out, r.x1, r.x2, n);
    for (size_t i = 0; i < n;
         i++) { /* exp 4 U; sum, quotient, two products; a subnormal exp is off by 2^-149 */
        double limit = 10 * U * fabs(want[i]) +
                       0x1p-148 * (1.0 + fabs((double)r.x1[i] * r.x2[i]) + fabs((double)r.x2[i]));
        bad += !(fabs(r.out[i] - want[i]) <= limit);
    }
    check_that(c, bad == 0, "n = %zu, %s: %zu wrong", n, fill_names[fill], bad);
    free(want);
    rows_free(c, &r);
}

/* The sigmoid's argument has a relative error of some units, so the sigmoid has as many times the argument.
 */
static void check_geglu(struct check *c, size_t n, enum fill fill, enum side side) {
    struct rows r = rows_new(c, n, fill, side);
    size_t bad = 0;
    for (size_t i = 0; i < n; i++)
        if (fill == FILL_WIDE) r.x1[i] = check_uniform(c, -12.0f, 12.0f);
    c->kern->geglu(r.out, r.x1, r.x2, n);
    for (size_t i = 0; i < n; i++) {
        double g = r.x1[i], z = sqrt(2.0 / acos(-1.0)) * (g + 0.044715 * g * g * g);
        double want = g / (1.0 + exp(-2.0 * z)) * r.x2[i];
        double limit = (10.0 + 12.0 * fmin(fabs(z), 60.0)) * U * fabs(want) +
                       0x1p-148 * (1.0 + fabs(g * r.x2[i]) + fabs((double)r.x2[i]));
        bad += !(fabs(r.out[i] - want) <= limit);
    }
    check_that(c, bad == 0, "n = %zu, %s: %zu wrong", n, fill_names[fill], bad);
    r.x1[check_below(c, n)] = NAN;
    c->kern->geglu(r.out, r.x1, r.x2, n);
    size_t finite = 0;
    for (size_t i = 0; i < n; i++) finite += isfinite(r.out[i]) != 0;
    check_that(c, finite + 1 == n || fill == FILL_WIDE, "%zu of %zu outputs finite with one NaN", finite, n);
    rows_free(c, &r);
}

static void check_layer_norm(struct check *c, size_t n, enum fill fill, enum side side) {
    struct rows r = rows_new(c, n, fill, side);
    struct guarded bias = guarded_new(n * sizeof(float), 4, side);
    float eps = 1e-5f, *b = bias.data;
    double sum = 0.0, squares = 0.0, largest = 0.0;
    size_t bad = 0, finite = 0;
    check_fill(c, b, n, FILL_NORMAL);
    for (size_t i = 0; i < n; i++) sum += r.x1[i];
    for (size_t i = 0; i < n; i++) {
        squares += pow(r.x1[i] - sum / (double)n, 2.0);
        largest = fmax(largest, fabs(r.x1[i]));
    }
    double deviation = sqrt(squares / (double)n + eps);
    c->kern->layer_norm(r.out, r.x1, r.x2, b, n, eps);
    for (size_t i = 0; i < n; i++) { /* the mean and its difference are rounded, too */
        double d = (r.x1[i] - sum / (double)n) / deviation, want = d * r.x2[i] + b[i];
        double size = (fabs(d) + largest / deviation) * fabs(r.x2[i]) + fabs(b[i]);
        bad += !(fabs(r.out[i] - want) <= 5 * U * size + 0x1p-140);
    }
    check_that(c, bad == 0, "n = %zu, %s: %zu wrong", n, fill_names[fill], bad);
    memcpy(r.y.data, r.x1, n * sizeof(float));
    float *again = malloc(n * sizeof *again);
    c->kern->layer_norm(again, r.x1, r.x2, b, n, eps);
    c->kern->layer_norm(r.out, r.out, r.x2, b, n, eps);
    check_that(c, !memcmp(again, r.out, n * sizeof *again), "n = %zu: in place gives other bits", n);
    free(again);
    r.x1[check_below(c, n)] = NAN;
    c->kern->layer_norm(r.out, r.x1, r.x2, b, n, eps);
    for (size_t i = 0; i < n; i++) finite += isfinite(r.out[i]) != 0;
    check_that(c, finite == 0, "%zu outputs of a row with NaN are finite", finite);
    guarded_free(c, &bias);
    rows_free(c, &r);
}

/* exp(-x^2 / 2) has as many units of error as its argument has. */
static void check_gelu(struct check *c, size_t n, enum fill fill, enum side side) {
    struct rows r = rows_new(c, n, fill, side);
    size_t bad = 0;
    for (size_t i = 0; i < n; i++)
        if (fill == FILL_WIDE) r.x1[i] = check_uniform(c, -16.0f, 16.0f);
    c->kern->gelu(r.out, r.x1, n);
    for (size_t i = 0; i < n; i++) {
        double x = r.x1[i], want = 0.5 * x * erfc(-x / sqrt(2.0));
        bad += !(fabs(r.out[i] - want) <= (16.0 + 1.5 * x * x) * U * fabs(want) + 0x1p-144);
    }
    check_that(c, bad == 0, "n = %zu, %s: %zu wrong", n, fill_names[fill], bad);
    r.x1[check_below(c, n)] = NAN;
    c->kern->gelu(r.out, r.x1, n);
    size_t finite = 0;
    for (size_t i = 0; i < n; i++) finite += isfinite(r.out[i]) != 0;
    check_that(c, finite + 1 == n, "%zu of %zu outputs finite with one NaN", finite, n);
    rows_free(c, &r);
}

static void check_clamped(struct check *c, size_t n, enum fill fill, enum side side) {
    const float alpha = 1.702f, limit = 7.0f;
    struct rows r = rows_new(c, n, fill, side);
    size_t bad = 0;
    for (size_t i = 0; i < n; i++) {
        if (fill == FILL_WIDE) r.x1[i] = check_uniform(c, -40.0f, 20.0f);
        r.x2[i] *= 4.0f; /* beyond the limit, too */
    }
    c->kern->swiglu_clamped(r.out, r.x1, r.x2, n, alpha, limit);
    for (size_t i = 0; i < n; i++) {
        double g = fmin(r.x1[i], limit), u = fmax(fmin(r.x2[i], limit), -limit);
        double want = g / (1.0 + exp(-(double)alpha * g)) * (u + 1.0);
        double size = fabs(g / (1.0 + exp(-(double)alpha * g))) * (fabs(u) + 1.0);
        bad += !(fabs(r.out[i] - want) <= (12.0 + 2.0 * fabs(alpha * g)) * U * size + 0x1p-140);
    }
    check_that(c, bad == 0, "n = %zu, %s: %zu wrong", n, fill_names[fill], bad);
    rows_free(c, &r);
}

static void check_soft_cap(struct check *c, size_t n, enum fill fill, enum side side) {
    struct rows r = rows_new(c, n, fill, side);
    const float cap = 30.0f;
    size_t bad = 0;
    memcpy(r.out, r.x1, n * sizeof *r.out);
    c->kern->soft_cap(r.out, cap, n);
    for (size_t i = 0; i < n; i++)
        bad += !(fabs(r.out[i] - cap * tanh((double)r.x1[i] / cap)) <= 2.5e-7 * cap);
    check_that(c, bad == 0, "n = %zu, %s: %zu wrong", n, fill_names[fill], bad);
    rows_free(c, &r);
}

static void check_add_scale(struct check *c, size_t n, enum fill fill, enum side side) {
    struct rows r = rows_new(c, n, fill, side);
    double *want = malloc(n * sizeof *want);
    for (size_t i = 0; i < n; i++) want[i] = (double)r.x1[i] + r.x2[i];
    memcpy(r.out, r.x1, n * sizeof *r.out);
    c->kern->add(r.out, r.x2, n);
    check_close(c, r.out, want, n, U, 0x1p-149, fill);
    for (size_t i = 0; i < n; i++) want[i] = (double)r.x1[i] * 0.3f;
    memcpy(r.out, r.x1, n * sizeof *r.out);
    c->kern->scale(r.out, 0.3f, n);
    check_close(c, r.out, want, n, U, 0x1p-149, fill);
    free(want);
    rows_free(c, &r);
}

static void check_round(struct check *c, size_t n, enum fill fill, enum side side) {
    static const enum kern_act types[] = {KERN_ACT_F32, KERN_ACT_F16, KERN_ACT_BF16};
    struct rows r = rows_new(c, n, fill, side);
    r.x1[check_below(c, n)] = check_below(c, 2) ? NAN : -INFINITY;
    for (size_t t = 0; t < 3; t++) {
        size_t bad = 0;
        memcpy(r.out, r.x1, n * sizeof *r.out);
        c->kern->round_to(r.out, types[t], n);
        for (size_t i = 0; i < n; i++) {
            float want = types[t] == KERN_ACT_F16    ? kern_from_f16(kern_to_f16(r.x1[i]))
                         : types[t] == KERN_ACT_BF16 ? kern_from_bf16(kern_to_bf16(r.x1[i]))
                                                     : r.x1[i];
            bad += kern_float_bits(want) != kern_float_bits(r.out[i]);
        }
        check_that(c, bad == 0, "type %d, n = %zu, %s: %zu wrong", types[t], n, fill_names[fill], bad);
    }
    rows_free(c, &r);
}

/* Every half and bfloat16 there is, and floats around every half, against the compiler's own arithmetic: a
 * half is mantissa * 2^exponent, and rounding picks the nearer neighbour. */
static void check_half_conversions(struct check *c) {
    size_t bad = 0;
    for (uint32_t h = 0; h < 0x7c00; h++) {
        double value = h < 0x400 ? ldexp(h, -24) : ldexp(0x400 | (h & 0x3ff), (int)(h >> 10) - 25);
        double next = h + 1 == 0x7c00 ? 65536.0
                      : h + 1 < 0x400 ? ldexp(h + 1, -24)
                                      : ldexp(0x400 | ((h + 1) & 0x3ff), (int)((h + 1) >> 10) - 25);
        float middle = (float)((value + next) / 2); /* exact */
        bad += kern_from_f16((uint16_t)h) != (float)value ||
               kern_from_f16((uint16_t)(h | 0x8000)) != (float)-value;
        bad += kern_to_f16((float)value) != h || kern_to_f16((float)-value) != (h | 0x8000);
        bad += kern_to_f16(middle) != (h & 1 ? h + 1 : h); /* to even */
        bad += kern_to_f16(nextafterf(middle, 0.0f)) != h;
        bad += kern_to_f16(nextafterf(middle, INFINITY)) != h + 1;
    }
    check_that(c, bad == 0, "half: %zu wrong", bad);
    bad = 0;
    for (uint32_t h = 0; h < 0x7f80; h++) {
        float value = kern_bits_float(h << 16), middle = kern_bits_float(h << 16 | 0x8000);
        bad += kern_from_bf16((uint16_t)h) != value || kern_to_bf16(value) != h ||
               kern_to_bf16(-value) != (h | 0x8000);
        bad += kern_to_bf16(middle) != (h & 1 ? h + 1 : h);
        bad += kern_to_bf16(nextafterf(middle, 0.0f)) != h ||
               kern_to_bf16(nextafterf(middle, INFINITY)) != h + 1;
    }
    check_that(c, bad == 0, "bfloat16: %zu wrong", bad);
    check_that(c, isnan(kern_from_f16(kern_to_f16(NAN))) && isnan(kern_from_bf16(kern_to_bf16(NAN))),
               "NaN is lost");
}

/* exp through softmax_terms with max 0: within 1.1 ulp, of the smallest normal number below it. */
static void check_exp(struct check *c) {
    enum { N = 4096 };
    static float x[N], p[N];
    double worst = 0.0;
    float at = 0.0f;
    for (int round = 0; round < 150; round++) {
        for (size_t i = 0; i < N; i++)
            x[i] = round < 90    ? check_uniform(c, -104.0f, 88.7f)
                   : round < 120 ? check_uniform(c, -1.0f, 1.0f)
                                 : check_uniform(c, -30.0f, 0.0f);
        c->kern->softmax_terms(p, x, N, 0.0f, 1.0f);
        for (size_t i = 0; i < N; i++) {
            double want = exp((double)x[i]);
            int exponent;
            frexp(want, &exponent);
            double error = fabs(p[i] - want) / ldexp(1.0, exponent > -125 ? exponent - 24 : -149);
            if (error > worst) worst = error, at = x[i];
        }
    }
    check_that(c, worst <= 1.1, "exp: error of %.3f ulp at %.9g", worst, at);
    static const float special[] = {-INFINITY, 0.0f, 89.0f, 1000.0f, -105.0f, -1000.0f, INFINITY, NAN};
    c->kern->softmax_terms(p, special, 8, 0.0f, 1.0f);
    check_that(c,
               p[0] == 0.0f && p[1] == 1.0f && isinf(p[2]) && isinf(p[3]) && p[4] == 0.0f && p[5] == 0.0f &&
                   isinf(p[6]) && isnan(p[7]),
               "exp of special values: %g %g %g %g %g %g %g %g", p[0], p[1], p[2], p[3], p[4], p[5], p[6],
               p[7]);
}

static void check_scan(struct check *c, size_t n, enum side side) {
    struct guarded g = guarded_new(n * sizeof(float), 4, side);
    float *x = g.data, max, want = -INFINITY;
    size_t at, first = 0;
    bool finite;
    for (size_t i = 0; i < n; i++) x[i] = (float)(int)check_below(c, n) - 5.0f; /* with ties */
    for (size_t i = 0; i < n; i++)
        if (x[i] > want) want = x[i], first = i;
    c->kern->logits_scan(x, n, &max, &at, &finite);
    check_that(c, max == want && at == first && finite,
               "n = %zu: max %g at %zu, expected %g at %zu, finite %d", n, max, at, want, first, finite);

    static const float bad_values[] = {NAN, INFINITY, -INFINITY};
    for (int i = 0; i < 3; i++) {
        size_t j = check_below(c, n);
        float kept = x[j];
        x[j] = bad_values[i];
        c->kern->logits_scan(x, n, &max, &at, &finite);
        check_that(c, !finite, "n = %zu: %g at %zu passes as finite", n, bad_values[i], j);
        check_that(c, !isnan(max) && at < n && (x[at] == max || isinf(max)), "n = %zu: max %g at %zu", n, max,
                   at);
        x[j] = kept;
    }
    for (size_t i = 0; i < n; i++) x[i] = i % 2 ? NAN : -INFINITY;
    c->kern->logits_scan(x, n, &max, &at, &finite);
    check_that(c, max == -INFINITY && at == 0 && !finite, "n = %zu, none finite: max %g at %zu", n, max, at);
    guarded_free(c, &g);
}

/* A term has relative error 4 U and U |x - max| and, times the inverse temperature, U |..| more from rounding
 * its argument. */
static void check_softmax(struct check *c, size_t n, float inv_temperature, enum side side) {
    struct rows r = rows_new(c, n, FILL_NORMAL, side);
    float max = -INFINITY;
    for (size_t i = 0; i < n; i++) {
        r.x1[i] *= 6.0f;
        if (check_below(c, 9) == 0 && i > 0) r.x1[i] = -INFINITY;
        if (r.x1[i] > max) max = r.x1[i];
    }
    double sum = 0.0, plain = 0.0, error = 0.0, plain_error = 0.0;
    size_t bad = 0;
    double got = c->kern->softmax_terms(r.out, r.x1, n, max, inv_temperature);
    for (size_t i = 0; i < n; i++) {
        double x = (double)r.x1[i] - max, p = exp(x * inv_temperature);
        double limit = isinf(x) ? 0.0 : p * U * (4.0 + 2.0 * fabs(x * inv_temperature)) + 0x1p-149;
        bad += !(fabs(r.out[i] - p) <= limit);
        sum += p;
        error += limit;
        plain += exp(x);
        plain_error += isinf(x) ? 0.0 : exp(x) * U * (4.0 + fabs(x));
    }
    check_that(c, bad == 0, "softmax_terms, n = %zu: %zu wrong", n, bad);
    check_that(c, fabs(got - sum) <= error + 1e-13 * sum, "softmax_terms, n = %zu: sum %.15g, expected %.15g",
               n, got, sum);
    double lse = c->kern->log_sum_exp(r.x1, n, max), want = log(plain) + max;
    check_that(c, fabs(lse - want) <= 1.01 * plain_error / plain + 1e-14 * (1.0 + fabs(want)),
               "log_sum_exp, n = %zu: %.15g, expected %.15g", n, lse, want);
    rows_free(c, &r);
}

void check_ops(struct check *c) {
    for (size_t i = 0; i < N_LENGTHS; i++) {
        enum side side = (enum side)(i % SIDES);
        for (int fill = 0; fill < FILLS; fill++) {
            c->what = "rms_norm";
            check_norm(c, lengths[i], (enum fill)fill, side);
            c->what = "swiglu";
            check_swiglu(c, lengths[i], (enum fill)fill, side);
            c->what = "layer_norm";
            check_layer_norm(c, lengths[i], (enum fill)fill, side);
            c->what = "gelu";
            check_gelu(c, lengths[i], (enum fill)fill, side);
            c->what = "geglu";
            check_geglu(c, lengths[i], (enum fill)fill, side);
            c->what = "swiglu_clamped";
            check_clamped(c, lengths[i], (enum fill)fill, side);
            c->what = "soft_cap";
            check_soft_cap(c, lengths[i], (enum fill)fill, side);
            c->what = "add, scale";
            check_add_scale(c, lengths[i], (enum fill)fill, side);
            c->what = "round_to";
            check_round(c, lengths[i], (enum fill)fill, side);
        }
        c->what = "rope";
        check_rope(c, 2 * lengths[i], false, side);
        check_rope(c, 2 * lengths[i], true, side);
        c->what = "vocabulary";
        check_scan(c, lengths[i], side);
        check_softmax(c, lengths[i], 1.0f, side);
        check_softmax(c, lengths[i], 1.43f, side);
    }
    c->what = "vocabulary";
    check_scan(c, 49152, SIDE_BACK);
    check_softmax(c, 49153, 0.7f, SIDE_BACK);
    c->what = "exp";
    check_exp(c);
    c->what = "conversions";
    check_half_conversions(c);
}
