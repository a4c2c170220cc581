/* Figures of many values: sorting, quantiles, and how sure a difference of means is. */
#ifndef BASE_STATS_H
#define BASE_STATS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

void stats_sort(double *values, size_t n); /* ascending */

/* Quantile q in [0, 1] of ascending values, linear between neighbours (numpy's default): position q (n - 1).
 * 0 when n is 0. */
double stats_quantile(const double *sorted, size_t n, double q);

struct stats_interval {
    bool known; /* false: fewer than two pairs, or no memory for the resamples */
    double low, high;
};

/* One item that was measured twice. The mean of a side is sum / weight over all items. */
struct stats_pair {
    double a, b, weight; /* weight > 0 */
};

/* mean(b) - mean(a). */
double stats_difference(const struct stats_pair *pairs, size_t n);

/* Percentile bootstrap (Efron 1979) of stats_difference: items are drawn with replacement, both sides of an
 * item together, n_resamples times. share: of the resamples that lie within, for example 0.95. Draws are a
 * function of the seed (base/rng.h): resample r, draw i takes item floor(u n / 2^32) with u the word i % 4 of
 * Philox block (seed; r, i / 4). */
struct stats_interval stats_bootstrap_paired(const struct stats_pair *pairs, size_t n, size_t n_resamples,
                                             double share, uint64_t seed);

#endif
