/* Divergences beside numpy's in float64 (tests/golden/eval_golden.py). */
#include "eval/kl_row.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

static float *read_logits(FILE *f, size_t n) {
    float *x = calloc(n, sizeof *x);
    assert_non_null(x);
    for (size_t i = 0; i < n; i++) assert_int_equal(fscanf(f, "%f", &x[i]), 1);
    return x;
}

static void check(const float *p, const float *q, size_t n, double kl, unsigned top_p, unsigned top_q,
                  double logprob) {
    struct kl_row *row = malloc(kl_row_bytes(n));
    assert_non_null(row);
    kl_row_encode(row, 1, p, n);
    assert_int_equal(row->top, top_p);
    assert_int_equal(row->token, 1);
    assert_true(fabs((double)row->logprob - logprob) < 1e-6 * (1 + fabs(logprob)));
    /* what 16 bits can lose: half a step in each log probability */
    struct kl_distance d = kl_row_distance(row, q, n);
    assert_int_equal(d.top, top_q);
    double lost = (double)row->step / 2 + 1e-6;
    if (fabs((double)d.kl - kl) > lost)
        fail_msg("%zu: KL %.9g, not %.9g (step %g)", n, (double)d.kl, kl, (double)row->step);
    if (kl == 0) assert_true(fabs((double)d.kl) < 1e-6);
    /* and of itself */
    d = kl_row_distance(row, p, n);
    assert_true(fabs((double)d.kl) < (double)row->step * (double)row->step + 1e-6);
    assert_int_equal(d.top, top_p);
    free(row);
}

static void divergences_are_numpys(void **state) {
    FILE *f = fopen(TEST_DATA "/eval/kl.txt", "r");
    size_t n, n_cases = 0;
    unsigned top_p, top_q;
    double kl, logprob;
    assert_non_null(f);
    for (; fscanf(f, "%zu %lf %u %u %lf", &n, &kl, &top_p, &top_q, &logprob) == 5; n_cases++) {
        float *p = read_logits(f, n), *q = read_logits(f, n);
        check(p, q, n, kl, top_p, top_q, logprob);
        free(p);
        free(q);
    }
    fclose(f);
    assert_int_equal(n_cases, 6);
}

/* Each log probability comes back within half a step, the ends exactly. */
static void codes_round(void **state) {
    enum { N = 1000 };
    float x[N];
    struct kl_row *row = malloc(kl_row_bytes(N));
    assert_non_null(row);
    for (int i = 0; i < N; i++) x[i] = (float)((i * 7919) % N) * 0.0371f - 12;
    kl_row_encode(row, 0, x, N);
    double sum = 0;
    for (int i = 0; i < N; i++) sum += exp((double)x[i]);
    for (int i = 0; i < N; i++) {
        double got = (double)row->largest - (double)row->step * row->codes[i];
        assert_true(fabs(got - ((double)x[i] - log(sum))) <= 0.5001 * (double)row->step + 2e-6);
        if (x[i] == 999 * 0.0371f - 12) assert_int_equal(row->codes[i], 0);
        if (x[i] == -12) assert_int_equal(row->codes[i], 65535);
    }
    free(row);
}

static void rows_are_whole_words(void **state) {
    assert_int_equal(kl_row_bytes(4) % 8, 0);
    assert_int_equal(kl_row_bytes(49153) % 8, 0);
    assert_true(kl_row_bytes(49153) >= sizeof(struct kl_row) + 2 * 49153);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(divergences_are_numpys),
        cmocka_unit_test(codes_round),
        cmocka_unit_test(rows_are_whole_words),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
