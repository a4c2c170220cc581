/* Non-negative least squares against the conditions that define its solution (Karush, Kuhn and Tucker), and
 * the step model against times that follow from known coefficients. */
#include "base/rng.h"
#include "sim/nnls.h"
#include "sim/step_model.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static double uniform(uint32_t a, uint32_t b, uint32_t c) {
    return rng_uniform(7, a, b, c);
}

/* x >= 0; the gradient is 0 where x > 0 and not negative where x = 0: then, the problem being convex, x is
 * the optimum. */
static void test_optimum(void **state) {
    for (uint32_t round = 0; round < 40; round++) {
        struct nnls s;
        size_t n = 2 + round % 10, rows = 3 * n, n_zero = 0;
        double x[NNLS_MAX], a[NNLS_MAX];
        nnls_init(&s, n);
        for (uint32_t r = 0; r < rows; r++) {
            for (uint32_t i = 0; i < n; i++) a[i] = uniform(round, r, i) * (i + 1) - (round % 2 ? 0.5 : 0);
            nnls_add(&s, a, uniform(round, r, 99) - 0.3, 1 + uniform(round, r, 98));
        }
        nnls_solve(&s, x);
        for (size_t i = 0; i < n; i++) {
            double gradient = -s.atb[i], size = fabs(s.atb[i]);
            for (size_t k = 0; k < n; k++) gradient += s.ata[i][k] * x[k];
            assert_true(x[i] >= 0);
            n_zero += x[i] == 0;
            if (x[i] > 0)
                assert_true(fabs(gradient) < 1e-5 * (1 + size));
            else
                assert_true(gradient > -1e-5 * (1 + size));
        }
        if (round > 30) assert_true(n_zero < n || s.atb[0] <= 0);
    }
}

static struct quire_step some_step(uint32_t i) {
    struct quire_step s = {0};
    uint32_t kind = i % 3;
    size_t decodes = (size_t)(1 + uniform(i, 1, 0) * 100), rows = (size_t)(1 + uniform(i, 2, 0) * 400);
    if (kind != 1) {
        s.n_decode_rows = s.n_decode_seqs = decodes;
        s.decode_attended = (uint64_t)((double)decodes * (1 + uniform(i, 3, 0) * 1000));
    }
    if (kind != 0) {
        s.n_prefill_rows = rows;
        s.n_prefill_seqs = 1 + rows / 100;
        s.prefill_attended = (uint64_t)((double)rows * (1 + uniform(i, 4, 0) * 1000));
    }
    s.n_logit_rows = s.n_decode_seqs + (kind ? 1 : 0);
    return s;
}

static double truth(const struct quire_step *s, double *rest) {
    double rows = (double)(s->n_prefill_rows + s->n_decode_rows);
    *rest = 30 + 4.0 * (double)s->n_logit_rows;
    return 9000 + 100 * fmin(rows, 8) + 700 * fmax(0, rows - 8) + 40.0 * (double)s->n_decode_seqs +
           250.0 * (double)s->n_logit_rows + 0.05 * (double)s->prefill_attended +
           0.3 * (double)s->decode_attended;
}

#define STEPS 600

/* Times that the terms can express are found again, also when every tenth step was disturbed. */
static void test_known_times(void **state) {
    static struct quire_step steps[STEPS];
    struct step_model m;
    struct error err;
    for (int disturbed = 0; disturbed < 2; disturbed++) {
        for (uint32_t i = 0; i < STEPS; i++) {
            double rest, forward;
            steps[i] = some_step(i);
            forward = truth(&steps[i], &rest);
            if (disturbed && i % 10 == 0) forward *= 1.5 + uniform(i, 5, 0);
            steps[i].forward_us = (uint64_t)forward;
            steps[i].sample_us = (uint64_t)rest;
        }
        assert_int_equal(step_model_fit(steps, STEPS, &m, &err), 0);
        for (uint32_t i = 5000; i < 5300; i++) {
            struct quire_step s = some_step(i);
            double rest, forward = truth(&s, &rest);
            step_model_time(&m, &s);
            assert_true(fabs((double)s.forward_us / forward - 1) < 0.01);
            assert_true(fabs((double)s.sample_us - rest) < 2 + 0.02 * rest);
        }
    }
    assert_int_equal(step_model_fit(steps, STEP_LEAST - 1, &m, &err), QUIRE_EINVAL);
    assert_int_equal(step_model_fit(steps, STEP_LEAST, &m, &err), 0);
}

/* Steps of more rows than were measured go on at the last slope, instead of for nothing. */
static void test_beyond_what_was_measured(void **state) {
    static struct quire_step steps[120];
    struct step_model m;
    struct error err;
    for (size_t i = 0; i < 120; i++) {
        steps[i] = (struct quire_step){.n_prefill_rows = 1 + i, .n_prefill_seqs = 1};
        steps[i].forward_us = 10000 + 500 * i;
    }
    assert_int_equal(step_model_fit(steps, 120, &m, &err), 0);
    struct quire_step s = {.n_prefill_rows = 1001, .n_prefill_seqs = 1};
    step_model_time(&m, &s);
    assert_true(fabs((double)s.forward_us / 510000 - 1) < 0.05);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_optimum), cmocka_unit_test(test_known_times),
                                       cmocka_unit_test(test_beyond_what_was_measured)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
