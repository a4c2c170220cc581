/* Figures of many samples. Times are microseconds until they are shown. */
#ifndef LOAD_STATS_H
#define LOAD_STATS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Quantile q in [0, 1] of ascending values, linear between neighbours (numpy's default): position q (n - 1).
 */
double stats_quantile(const double *sorted, size_t n, double q);
void stats_sort(double *values, size_t n);

struct summary_stat {
    size_t n;
    double mean, p50, p90, p95, p99, min, max; /* all 0 when n is 0 */
};

/* Sorts the values. */
struct summary_stat stats_of(double *values, size_t n);

/* A histogram for values too many to keep: 128 steps to each power of two, so a quantile, told as the middle
 * of its step, is off by at most 1/256 (0.4 %). Values below 256 us are exact; above 2^40 us they count as
 * 2^40. */
#define HDR_STEPS 128
#define HDR_SLOTS (HDR_STEPS * 35)

struct hdr {
    uint64_t counts[HDR_SLOTS];
    uint64_t n, min, max;
    double sum;
};

void hdr_add(struct hdr *h, uint64_t us);
void hdr_merge(struct hdr *into, const struct hdr *from);
double hdr_quantile(const struct hdr *h, double q); /* nearest rank; 0 when empty */
struct summary_stat hdr_stat(const struct hdr *h);

/* Least squares of y over x: the slope and its t value (0 for fewer than 3 points or no spread). */
void stats_slope(const double *x, const double *y, size_t n, double *slope, double *t);

/* 95 % bootstrap interval of the difference mean(b) - mean(a), as a share of mean(a), by resampling each
 * side. */
struct interval {
    bool known;
    double low, high;
};

/* statistic over a resample; scratch holds n values and may be reordered */
typedef double stats_statistic(double *scratch, size_t n, double q);
stats_statistic stats_mean, stats_at; /* stats_at: the quantile q */

struct interval stats_bootstrap(const double *a, size_t n_a, const double *b, size_t n_b, stats_statistic *f,
                                double q, uint64_t seed);

#endif
