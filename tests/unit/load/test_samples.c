/* Quantiles and slopes against numpy (tests/golden/load_stats.py), histogram and bootstrap against their
 * definitions. */
#include "base/rng.h"
#include "load/length.h"
#include "load/samples.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

static void close_to(double a, double b, double share) {
    assert_true(fabs(a - b) <= share * fabs(b) + 1e-9);
}
static void as_numpy(void **state) {
    FILE *f = fopen(TEST_DATA "/load/stats.txt", "r");
    char kind[20];
    int n, cases = 0;
    assert_non_null(f);
    while (fscanf(f, "%19s %d", kind, &n) == 2) {
        double x[2000], y[2000], want[7];
        bool slope = !strcmp(kind, "slope");
        for (int i = 0; i < n; i++) assert_int_equal(fscanf(f, "%lf", &x[i]), 1);
        for (int i = 0; i < n && slope; i++) assert_int_equal(fscanf(f, "%lf", &y[i]), 1);
        for (int i = 0; i < (slope ? 2 : 7); i++) assert_int_equal(fscanf(f, "%lf", &want[i]), 1);
        if (slope) {
            double b, t;
            stats_slope(x, y, (size_t)n, &b, &t);
            close_to(b, want[0], 1e-6);
            close_to(t, want[1], 1e-5);
        } else {
            struct summary_stat s = stats_of(x, (size_t)n);
            const double got[] = {s.mean, s.p50, s.p90, s.p95, s.p99, s.min, s.max};
            for (int i = 0; i < 7; i++) close_to(got[i], want[i], 1e-7);
            assert_int_equal(s.n, n);
        }
        cases++;
    }
    fclose(f);
    assert_int_equal(cases, 10);
}

static void nothing_is_no_figure(void **state) {
    struct summary_stat s = stats_of(NULL, 0);
    assert_true(s.n == 0 && s.mean == 0 && s.p99 == 0);
    struct hdr *h = calloc(1, sizeof *h);
    assert_true(hdr_quantile(h, 0.5) == 0 && hdr_stat(h).n == 0);
    double slope, t;
    stats_slope((double[]){1, 1, 1}, (double[]){1, 2, 3}, 3, &slope, &t);
    assert_true(slope == 0 && t == 0);
    free(h);
}

/* Each value alone in the histogram: the stated error, at and around every power of two. */
static void histogram_error(void **state) {
    struct hdr *h = calloc(1, sizeof *h), *sum = calloc(1, sizeof *sum);
    for (int bit = 0; bit < 40; bit++)
        for (int d = -2; d <= 2; d++) {
            uint64_t v = (UINT64_C(1) << bit) + (uint64_t)(int64_t)d;
            if ((int64_t)v < 0) continue;
            memset(h, 0, sizeof *h);
            h->n = 0;
            hdr_add(h, v);
            hdr_add(h, v + v / 100); /* a second one, so that the extremes do not bound the first */
            double got = hdr_quantile(h, 0.5);
            assert_true(fabs(got - (double)v) <= (v < 256 ? 0 : (double)v / 256));
            hdr_merge(sum, h);
        }
    assert_int_equal(sum->max, (UINT64_C(1) << 39) + 2 + ((UINT64_C(1) << 39) + 2) / 100);
    assert_true(sum->n > 380 && sum->min == 0);
    memset(h, 0, sizeof *h);
    for (uint64_t i = 1; i <= 100000; i++) hdr_add(h, i * 10);
    struct summary_stat s = hdr_stat(h);
    close_to(s.mean, 500005, 1e-9);
    close_to(s.p50, 500000, 1.0 / 256);
    close_to(s.p99, 990000, 1.0 / 256);
    assert_true(s.max == 1000000 && s.min == 10);
    free(h);
    free(sum);
}

static void bootstrap(void **state) {
    double a[40], b[40], c[40];
    for (int i = 0; i < 40; i++) {
        a[i] = 100 + i % 7;
        b[i] = 110 + i % 7;
        c[i] = 100 + (i + 3) % 7;
    }
    struct stats_interval up = stats_bootstrap(a, 40, b, 40, STATS_MEAN, 1);
    assert_true(up.known && up.low > 0.08 && up.high < 0.11 && up.low < 10 / 103.0 && up.high > 10 / 103.0);
    struct stats_interval same = stats_bootstrap(a, 40, c, 40, STATS_MEAN, 1);
    assert_true(same.known && same.low < 0 && same.high > 0);
    /* of the mean the interval is about t times the standard error of a difference */
    double width = up.high - up.low, sd = 2.0 / 103 * sqrt(2.0 / 40);
    assert_true(width > 3 * sd && width < 5 * sd);
    struct stats_interval median = stats_bootstrap(a, 40, b, 40, 0.5, 1);
    assert_true(median.known && median.low > 0.05);
    assert_false(stats_bootstrap(a, 1, b, 40, STATS_MEAN, 1).known);
    /* of many values the resamples' quantiles are drawn from their distribution: as wide as by resampling */
    static double few_a[200], few_b[200], many_a[201], many_b[201];
    static const double quantiles[] = {0.5, 0.95};
    for (int k = 0; k < 2; k++) {
        for (int i = 0; i < 201; i++) {
            many_a[i] =
                exp(draw_normal(rng_uniform(1, 0, (uint32_t)i, 0), rng_uniform(1, 0, (uint32_t)i, 1)) / 4);
            many_b[i] =
                exp(draw_normal(rng_uniform(2, 0, (uint32_t)i, 0), rng_uniform(2, 0, (uint32_t)i, 1)) / 4);
        }
        memcpy(few_a, many_a, sizeof few_a);
        memcpy(few_b, many_b, sizeof few_b);
        struct stats_interval f = stats_bootstrap(few_a, 200, few_b, 200, quantiles[k], 1);
        struct stats_interval m = stats_bootstrap(many_a, 201, many_b, 201, quantiles[k], 1);
        assert_true(fabs((f.high - f.low) / (m.high - m.low) - 1) < 0.15);
        assert_true(fabs(f.low - m.low) < 0.2 * (f.high - f.low) &&
                    fabs(f.high - m.high) < 0.2 * (f.high - f.low));
    }
    /* three repeats are wide: the extremes of all resamples */
    struct stats_interval few =
        stats_bootstrap((double[]){100, 101, 102}, 3, (double[]){101, 102, 103}, 3, STATS_MEAN, 1);
    assert_true(few.known && few.low < 0 && few.high > 0.02);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(as_numpy),
        cmocka_unit_test(nothing_is_no_figure),
        cmocka_unit_test(histogram_error),
        cmocka_unit_test(bootstrap),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
