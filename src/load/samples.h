/* Figures of many samples. Times are microseconds until they are shown. */
#ifndef LOAD_SAMPLES_H
#define LOAD_SAMPLES_H

#include "base/stats.h"

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

/* 95 % bootstrap interval of f(b) / f(a) - 1 by resampling each side: f is the quantile q, or the mean
 * (STATS_MEAN). Not known with fewer than two values on a side. */
#define STATS_MEAN (-1.0)

/* Sorts both. */
struct stats_interval stats_bootstrap(double *a, size_t n_a, double *b, size_t n_b, double q, uint64_t seed);

double stats_mean(const double *v, size_t n);

#endif
