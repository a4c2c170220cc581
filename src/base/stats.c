#include "base/stats.h"

#include "base/rng.h"

#include <math.h>
#include <stdlib.h>

static int compare(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

void stats_sort(double *values, size_t n) {
    if (n) qsort(values, n, sizeof *values, compare);
}

double stats_quantile(const double *sorted, size_t n, double q) {
    if (!n) return 0;
    double at = q * (double)(n - 1), low = floor(at);
    size_t i = (size_t)low;
    if (i + 1 >= n) return sorted[n - 1];
    return sorted[i] + (at - low) * (sorted[i + 1] - sorted[i]);
}

double stats_difference(const struct stats_pair *pairs, size_t n) {
    double sum = 0, weight = 0;
    for (size_t i = 0; i < n; i++) {
        sum += pairs[i].b - pairs[i].a;
        weight += pairs[i].weight;
    }
    return weight > 0 ? sum / weight : 0;
}

static double resample(const struct stats_pair *pairs, size_t n, uint64_t seed, uint32_t number) {
    double sum = 0, weight = 0;
    for (size_t i = 0; i < n;) {
        struct rng_block block = rng_philox(seed, number, (uint32_t)(i / 4), 0, 0);
        for (unsigned k = 0; k < 4 && i < n; k++, i++) {
            const struct stats_pair *p = &pairs[(uint64_t)block.v[k] * n >> 32];
            sum += p->b - p->a;
            weight += p->weight;
        }
    }
    return sum / weight;
}

struct stats_interval stats_bootstrap_paired(const struct stats_pair *pairs, size_t n, size_t n_resamples,
                                             double share, uint64_t seed) {
    double *found = n < 2 || !n_resamples ? NULL : calloc(n_resamples, sizeof *found);
    if (!found) return (struct stats_interval){0};
    for (size_t r = 0; r < n_resamples; r++) found[r] = resample(pairs, n, seed, (uint32_t)r);
    stats_sort(found, n_resamples);
    struct stats_interval interval = {true, stats_quantile(found, n_resamples, (1 - share) / 2),
                                      stats_quantile(found, n_resamples, (1 + share) / 2)};
    free(found);
    return interval;
}
