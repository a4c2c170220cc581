/* Figures of `bench engine` from made steps, against sums done by hand. */
#include "bench/engine_run.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

static struct drive_step prefill(size_t rows, uint64_t attended, uint64_t us, uint64_t end) {
    struct drive_step s = {.end_us = end};
    s.step.n_prefill_rows = rows;
    s.step.n_prefill_seqs = 1;
    s.step.prefill_attended = attended;
    s.step.n_logit_rows = 1;
    s.step.prepare_us = 10;
    s.step.forward_us = us - 30;
    s.step.sample_us = 20;
    return s;
}

static struct drive_step decode(size_t seqs, uint64_t attended, uint64_t us, uint64_t end) {
    struct drive_step s = prefill(0, 0, us, end);
    s.step.n_prefill_seqs = 0;
    s.step.n_decode_rows = s.step.n_decode_seqs = s.step.n_logit_rows = seqs;
    s.step.decode_attended = attended;
    return s;
}

static bool near(double a, double b) {
    return fabs(a - b) <= 1e-9 * fabs(b);
}

static const struct engine_costs costs = {.weight_bytes = 1e6,
                                          .kv_bytes = 100,
                                          .row_ops = 2e6,
                                          .logit_ops = 5e5,
                                          .attended_ops = 40,
                                          .ops_limit = LIMIT_INT8};

static void test_prefill(void **state) {
    const struct drive_step steps[] = {
        prefill(100, 5050, 1000, 1000), /* nothing before it: its own time */
        prefill(50, 6000, 900, 2000),   /* 100 us of what is between steps */
        decode(1, 151, 500, 2600),
    };
    struct limit limits[LIMITS] = {0};
    limits[LIMIT_READ_94MB].per_s = 4e9;
    limits[LIMIT_INT8].per_s = 1e12;
    struct engine_figures f = engine_figures_of(steps, 3, false, 1, 9, &costs, limits);
    assert_int_equal(f.tokens, 150);
    assert_int_equal(f.steps, 2);
    assert_true(near(f.seconds, 2e-3) && near(f.tokens_per_s * f.seconds, 150));
    assert_true(near(f.prepare_s, 20e-6) && near(f.sample_s, 40e-6) && near(f.forward_s, 1840e-6));
    assert_true(near(f.outside_share, 1 - 1840.0 / 2000));
    double ops = 2e6 * 150 + 5e5 * 2 + 40.0 * 11050, bytes = 2 * 1e6 + 100.0 * 11050;
    assert_true(near(f.arithmetic_share, ops / 2e-3 / 1e12) && near(f.memory_share, bytes / 2e-3 / 4e9));
}

static void test_decode(void **state) {
    const struct drive_step steps[] = {
        prefill(8, 36, 1000, 1000), decode(3, 30, 500, 1500),                           /* not all four */
        decode(4, 44, 900, 2400),                                                       /* warms up */
        decode(4, 48, 400, 2800),   decode(4, 52, 600, 3450), decode(3, 40, 300, 3750), /* one has ended */
    };
    struct engine_figures f = engine_figures_of(steps, 6, true, 4, 9, &costs, NULL);
    assert_int_equal(f.tokens, 8);
    assert_int_equal(f.steps, 2);
    assert_true(near(f.seconds, 1050e-6) && near(f.tokens_per_s, 8 / 1050e-6));
    assert_true(near(f.outside_share, 1 - 940.0 / 1050));
    assert_true(f.memory_share == 0 && f.arithmetic_share == 0); /* no limits are known */
    f = engine_figures_of(steps, 6, true, 5, 9, &costs, NULL);
    assert_true(f.steps == 0 && f.tokens_per_s == 0);
    assert_int_equal(engine_figures_of(steps, 6, true, 4, 1, &costs, NULL).tokens, 4);
    /* what a step reads is not known: no share is told */
    struct engine_costs unknown = costs;
    struct limit limits[LIMITS] = {0};
    limits[LIMIT_READ_94MB].per_s = 1;
    unknown.unknown = "why";
    assert_true(engine_figures_of(steps, 6, true, 4, 9, &unknown, limits).memory_share == 0);
}

static void test_memory_limit(void **state) {
    struct limit limits[LIMITS] = {0};
    assert_int_equal(engine_memory_limit(limits, 9e9), LIMIT_READ_94MB); /* 2 GB were not read */
    limits[LIMIT_READ_2GB].per_s = 1;
    assert_int_equal(engine_memory_limit(limits, 9e9), LIMIT_READ_2GB);
    assert_int_equal(engine_memory_limit(limits, 90e6), LIMIT_READ_94MB);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_prefill),
        cmocka_unit_test(test_decode),
        cmocka_unit_test(test_memory_limit),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
