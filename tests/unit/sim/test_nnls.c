/* Non-negative least squares against the conditions that define its solution (Karush, Kuhn and Tucker), and
 * the step model against times that follow from known coefficients. */
#include "base/rng.h"
#include "sim/calibrate.h"
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
        assert_int_equal(step_model_fit(steps, NULL, STEPS, &m, &err), 0);
        for (uint32_t i = 5000; i < 5300; i++) {
            struct quire_step s = some_step(i);
            double rest, forward = truth(&s, &rest);
            step_model_time(&m, &s);
            assert_true(fabs((double)s.forward_us / forward - 1) < 0.01);
            assert_true(fabs((double)s.sample_us - rest) < 2 + 0.02 * rest);
        }
    }
    assert_int_equal(step_model_fit(steps, NULL, STEP_LEAST - 1, &m, &err), QUIRE_EINVAL);
    assert_int_equal(step_model_fit(steps, NULL, STEP_LEAST, &m, &err), 0);
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
    assert_int_equal(step_model_fit(steps, NULL, 120, &m, &err), 0);
    struct quire_step s = {.n_prefill_rows = 1001, .n_prefill_seqs = 1};
    step_model_time(&m, &s);
    assert_true(fabs((double)s.forward_us / 510000 - 1) < 0.05);
}

/* Twice as slow for seconds together, and just then there are mostly prompts: what steps cost beside each
 * other is found all the same, and how much the speed changed. On a steady machine nothing is made of it. */
static void drifting(bool steady, struct step_model *m) {
    static struct quire_step steps[3 * STEPS];
    static uint64_t end_us[3 * STEPS];
    struct error err;
    double now = 0;
    for (uint32_t i = 0; i < 3 * STEPS; i++) {
        double rest, slow = 1, wave = sin(now / 1e6 * 2 * 3.14159265 / 14);
        if (!steady) slow = exp(0.35 * wave);
        steps[i] = some_step(uniform(i, 6, 0) < 0.5 + 0.3 * wave ? 3 * i + 1 : 3 * i);
        double forward = truth(&steps[i], &rest) * slow;
        steps[i].forward_us = (uint64_t)forward;
        steps[i].sample_us = (uint64_t)rest;
        now += forward + rest;
        end_us[i] = (uint64_t)now;
    }
    assert_int_equal(step_model_fit(steps, end_us, 3 * STEPS, m, &err), 0);
}

static void test_wandering_speed(void **state) {
    struct step_model m;
    double low = HUGE_VAL, high = 0;
    drifting(false, &m);
    assert_true(m.slow_low < 0.85 && m.slow_high > 1.2);
    for (uint32_t i = 9000; i < 9300; i++) {
        struct quire_step s = some_step(3 * i + i % 2);
        double rest, forward = truth(&s, &rest);
        step_model_time(&m, &s);
        low = fmin(low, (double)s.forward_us / forward);
        high = fmax(high, (double)s.forward_us / forward);
    }
    assert_true(high / low < 1.12);
    assert_true(low > 0.85 && high < 1.2);
    drifting(true, &m);
    assert_true(m.slow_low > 0.99 && m.slow_high < 1.01);
}

/* Times from a file may be anything that a number can be. */
static void test_endless_times(void **state) {
    struct step_model m;
    struct quire_step s = {.decode_attended = UINT64_MAX};
    for (size_t i = 0; i < STEP_TERMS; i++) m.forward_us[i] = m.rest_us[i] = 1e12;
    step_model_time(&m, &s);
    assert_true(s.forward_us > 0 && s.forward_us <= STEP_MOST_US && s.sample_us <= STEP_MOST_US);
}

/* A gap of 60 us between steps, 25 us for each token written out beyond the first 10; at times nothing was
 * asked. All of it takes `slow` times as long. */
static void serve_steps(struct step_log *log, size_t n, double (*slow)(double at_us)) {
    double now = 0;
    for (size_t i = 0; i < n; i++) {
        size_t rows = i < n / 2 ? 1 : 16;
        double f = slow(now), took = f * (5000 + 30 + 25 * (double)rows + 10);
        now += f * 60 + (i % 7 == 3 ? 90000 : 0) + took;
        log->steps[i] = (struct quire_step){.n_decode_rows = rows,
                                            .n_decode_seqs = rows,
                                            .n_logit_rows = rows,
                                            .forward_us = (uint64_t)(f * 5000),
                                            .sample_us = (uint64_t)(took - f * 5000)};
        log->end_us[i] = (uint64_t)now;
    }
    log->n = n;
}

static double even(double at_us) {
    return 1;
}

static double waves(double at_us) {
    return fmod(at_us, 1e6) < 6e5 ? 0.9 : 1.3;
}

static void test_served_steps(void **state) {
    static struct quire_step steps[1200];
    static uint64_t end_us[1200];
    struct step_log log = {.steps = steps, .end_us = end_us};
    struct step_model m = {.forward_us = {5000}, .rest_us = {30}};
    struct error err;
    double gap, row, speed = 0;
    serve_steps(&log, 60, even);
    assert_int_equal(calibrate_served(&log, &m, &gap, &row, &err), 0);
    assert_true(fabs(row - 25) < 0.5 && fabs(gap - 70) < 0.5);
    assert_int_equal(m.wander.n, 0); /* too short */
    log.n = 30;
    assert_int_equal(calibrate_served(&log, &m, &gap, &row, &err), 0);
    assert_true(row == 0 && fabs(gap - 95) < 0.5);
    log.n = 0;
    assert_int_equal(calibrate_served(&log, &m, &gap, &row, &err), 0);
    assert_true(row == 0 && gap == 0);
    serve_steps(&log, 1200, even);
    assert_int_equal(calibrate_served(&log, &m, &gap, &row, &err), 0);
    assert_true(m.wander.n > 100);
    for (size_t i = 0; i < m.wander.n; i++) assert_true(abs((int)m.wander.slow[i] - 1000) < 10);
    /* Slow and fast by turns, and slower than the model in all: so much is served. */
    serve_steps(&log, 1200, waves);
    assert_int_equal(calibrate_served(&log, &m, &gap, &row, &err), 0);
    for (size_t i = 0; i < m.wander.n; i++) speed += 1000.0 / m.wander.slow[i] / (double)m.wander.n;
    double took = 0, work = 0; /* the pauses are no part of it */
    for (size_t i = 0; i < log.n; i++) {
        took += (double)(steps[i].forward_us + steps[i].sample_us);
        work += 5040 + 25 * (double)steps[i].n_logit_rows;
    }
    assert_true(fabs(speed * took / work - 1) < 0.02);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_optimum),
                                       cmocka_unit_test(test_known_times),
                                       cmocka_unit_test(test_beyond_what_was_measured),
                                       cmocka_unit_test(test_wandering_speed),
                                       cmocka_unit_test(test_endless_times),
                                       cmocka_unit_test(test_served_steps)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
