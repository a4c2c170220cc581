/* Golden data: tests/golden/eval_golden.py (numpy). */
#include "base/stats.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#define MAX 128

static void check_quantile(FILE *f) {
    double q, want, values[MAX];
    size_t n;
    assert_int_equal(fscanf(f, "%lf %lf %zu", &q, &want, &n), 3);
    assert_true(n <= MAX);
    for (size_t i = 0; i < n; i++) assert_int_equal(fscanf(f, "%lf", &values[i]), 1);
    stats_sort(values, n);
    double got = stats_quantile(values, n, q);
    if (fabs(got - want) > 1e-12 * fabs(want))
        fail_msg("quantile %g of %zu: %.17g, not %.17g", q, n, got, want);
}

static void check_paired(FILE *f) {
    unsigned long seed;
    size_t n_resamples, n;
    double difference, low, high;
    struct stats_pair pairs[MAX];
    assert_int_equal(fscanf(f, "%lu %zu %lf %lf %lf %zu", &seed, &n_resamples, &difference, &low, &high, &n),
                     6);
    assert_true(n <= MAX);
    for (size_t i = 0; i < n; i++)
        assert_int_equal(fscanf(f, "%lf %lf %lf", &pairs[i].a, &pairs[i].b, &pairs[i].weight), 3);
    assert_true(fabs(stats_difference(pairs, n) - difference) < 1e-12);
    struct stats_interval got = stats_bootstrap_paired(pairs, n, n_resamples, 0.95, seed);
    assert_true(got.known);
    if (fabs(got.low - low) > 1e-12 || fabs(got.high - high) > 1e-12)
        fail_msg("%zu pairs: %.17g ... %.17g, not %.17g ... %.17g", n, got.low, got.high, low, high);
    struct stats_interval other = stats_bootstrap_paired(pairs, n, n_resamples, 0.95, seed + 1);
    if (n > 2) assert_true(other.low != got.low);
}

static void figures_are_numpys(void **state) {
    FILE *f = fopen(TEST_DATA "/base/stats.txt", "r");
    char what[16];
    size_t n = 0;
    assert_non_null(f);
    for (; fscanf(f, "%15s", what) == 1; n++) {
        if (!strcmp(what, "quantile"))
            check_quantile(f);
        else
            check_paired(f);
    }
    fclose(f);
    assert_int_equal(n, 33);
}

static void what_cannot_be_told_is_not(void **state) {
    struct stats_pair one = {1, 2, 3};
    assert_false(stats_bootstrap_paired(&one, 1, 1000, 0.95, 1).known);
    assert_false(stats_bootstrap_paired(&one, 0, 1000, 0.95, 1).known);
    assert_true(stats_quantile(NULL, 0, 0.5) == 0);
    assert_true(stats_difference(NULL, 0) == 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(figures_are_numpys),
        cmocka_unit_test(what_cannot_be_told_is_not),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
