#include "load/samples.h"

#include "base/rng.h"
#include "load/length.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

struct summary_stat stats_of(double *values, size_t n) {
    struct summary_stat s = {.n = n};
    if (!n) return s;
    stats_sort(values, n);
    double sum = 0;
    for (size_t i = 0; i < n; i++) sum += values[i];
    s.mean = sum / (double)n;
    s.p50 = stats_quantile(values, n, 0.50);
    s.p90 = stats_quantile(values, n, 0.90);
    s.p95 = stats_quantile(values, n, 0.95);
    s.p99 = stats_quantile(values, n, 0.99);
    s.min = values[0];
    s.max = values[n - 1];
    return s;
}

/* Values below 2 HDR_STEPS have a slot each; from there, each power of two has HDR_STEPS slots of 2^level us.
 */
static size_t hdr_slot(uint64_t us) {
    if (us > UINT64_C(1) << 40) us = UINT64_C(1) << 40;
    if (us < 2 * HDR_STEPS) return (size_t)us;
    unsigned level = 63u - (unsigned)__builtin_clzll(us) - 7u; /* us >> level is in [128, 256) */
    return HDR_STEPS * (size_t)(level + 1) + ((size_t)(us >> level) - HDR_STEPS);
}

static double hdr_value(size_t slot) {
    if (slot < 2 * HDR_STEPS) return (double)slot;
    size_t level = slot / HDR_STEPS - 1, step = slot % HDR_STEPS + HDR_STEPS;
    return ((double)step + 0.5) * (double)(UINT64_C(1) << level) - 0.5;
}

void hdr_add(struct hdr *h, uint64_t us) {
    h->counts[hdr_slot(us)]++;
    if (!h->n || us < h->min) h->min = us;
    if (us > h->max) h->max = us;
    h->n++;
    h->sum += (double)us;
}

void hdr_merge(struct hdr *into, const struct hdr *from) {
    if (!from->n) return;
    for (size_t i = 0; i < HDR_SLOTS; i++) into->counts[i] += from->counts[i];
    if (!into->n || from->min < into->min) into->min = from->min;
    if (from->max > into->max) into->max = from->max;
    into->n += from->n;
    into->sum += from->sum;
}

double hdr_quantile(const struct hdr *h, double q) {
    if (!h->n) return 0;
    uint64_t rank = (uint64_t)ceil(q * (double)h->n), seen = 0;
    if (!rank) rank = 1;
    for (size_t i = 0; i < HDR_SLOTS; i++) {
        seen += h->counts[i];
        if (seen >= rank) return fmin(fmax(hdr_value(i), (double)h->min), (double)h->max);
    }
    return (double)h->max;
}

struct summary_stat hdr_stat(const struct hdr *h) {
    struct summary_stat s = {.n = (size_t)h->n};
    if (!h->n) return s;
    s.mean = h->sum / (double)h->n;
    s.p50 = hdr_quantile(h, 0.50);
    s.p90 = hdr_quantile(h, 0.90);
    s.p95 = hdr_quantile(h, 0.95);
    s.p99 = hdr_quantile(h, 0.99);
    s.min = (double)h->min;
    s.max = (double)h->max;
    return s;
}

void stats_slope(const double *x, const double *y, size_t n, double *slope, double *t) {
    double mx = 0, my = 0, sxx = 0, sxy = 0, residual = 0;
    *slope = *t = 0;
    if (n < 3) return;
    for (size_t i = 0; i < n; i++) {
        mx += x[i] / (double)n;
        my += y[i] / (double)n;
    }
    for (size_t i = 0; i < n; i++) {
        sxx += (x[i] - mx) * (x[i] - mx);
        sxy += (x[i] - mx) * (y[i] - my);
    }
    if (sxx <= 0) return;
    *slope = sxy / sxx;
    for (size_t i = 0; i < n; i++) {
        double e = y[i] - my - *slope * (x[i] - mx);
        residual += e * e;
    }
    double error = sqrt(residual / (double)(n - 2) / sxx);
    *t = error > 0 ? *slope / error : *slope > 0 ? INFINITY : *slope < 0 ? -INFINITY : 0;
}

double stats_mean(const double *v, size_t n) {
    double sum = 0;
    for (size_t i = 0; i < n; i++) sum += v[i];
    return n ? sum / (double)n : 0;
}

#define ROUNDS      2000
#define LARGE_COUNT 200

struct side {
    const double *sorted;
    size_t n;
    double *scratch; /* n */
    uint32_t index;  /* 0 or 1 */
};

/* A quantile of a resample is the value at an order statistic of uniform positions, whose distribution (a
 * beta) is as good as normal for many values; so they need not be drawn and sorted one by one. */
static double resample_large(const struct side *s, double q, uint64_t seed, uint32_t round) {
    double z = draw_normal(rng_uniform(seed, s->index, round, 0), rng_uniform(seed, s->index, round, 1));
    double at = q + z * sqrt(q * (1 - q) / (double)s->n);
    return stats_quantile(s->sorted, s->n, at < 0 ? 0 : at > 1 ? 1 : at);
}

static double resample(const struct side *s, double q, uint64_t seed, uint32_t round) {
    if (q >= 0 && s->n > LARGE_COUNT) return resample_large(s, q, seed, round);
    for (size_t i = 0; i < s->n; i++)
        s->scratch[i] = s->sorted[(size_t)(rng_uniform(seed, s->index, round, (uint32_t)i) * (double)s->n)];
    if (q < 0) return stats_mean(s->scratch, s->n);
    stats_sort(s->scratch, s->n);
    return stats_quantile(s->scratch, s->n, q);
}

/* A percentile interval of few samples is too narrow: Hesterberg's expanded one ("What teachers should know
 * about the bootstrap", 2015) goes out to the tail beyond sqrt(n / (n - 1)) times Student's t. The t value by
 * Fisher's expansion from the normal one. */
static double tail(size_t n) {
    double z = 1.959964, f = (double)n - 1, z2 = z * z;
    double t = z + z * (z2 + 1) / (4 * f) + z * (5 * z2 * z2 + 16 * z2 + 3) / (96 * f * f) +
               z * (3 * z2 * z2 * z2 + 19 * z2 * z2 + 17 * z2 - 15) / (384 * f * f * f);
    return erfc(sqrt((double)n / f) * t / sqrt(2)) / 2;
}

struct stats_interval stats_bootstrap(double *a, size_t n_a, double *b, size_t n_b, double q, uint64_t seed) {
    struct stats_interval out = {0};
    double change[ROUNDS];
    size_t kept = 0;
    if (n_a < 2 || n_b < 2) return out;
    double *scratch = calloc(n_a > n_b ? n_a : n_b, sizeof *scratch);
    if (!scratch) return out;
    stats_sort(a, n_a);
    stats_sort(b, n_b);
    struct side x = {a, n_a, scratch, 0}, y = {b, n_b, scratch, 1};
    for (uint32_t r = 0; r < ROUNDS; r++) {
        double before = resample(&x, q, seed, r), after = resample(&y, q, seed, r);
        if (before > 0) change[kept++] = after / before - 1;
    }
    free(scratch);
    if (!kept) return out;
    double beyond = tail(n_a < n_b ? n_a : n_b);
    stats_sort(change, kept);
    return (struct stats_interval){true, stats_quantile(change, kept, beyond),
                                   stats_quantile(change, kept, 1 - beyond)};
}
