/* Arrivals against the moments of their distributions; lengths; what is refused. */
#include "base/rng.h"
#include "load/arrival.h"
#include "load/length.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#define N 20000

/* Mean and variance of the gaps. */
static void moments(struct arrival a, double *mean, double *variance) {
    double last = 0, sum = 0, squares = 0;
    for (int i = 0; i < N; i++) {
        double at = arrival_next(&a), gap = at - last;
        assert_true(gap >= 0 && isfinite(gap));
        last = at;
        sum += gap;
        squares += gap * gap;
    }
    *mean = sum / N;
    *variance = squares / N - *mean * *mean;
}

static void random_gaps(void **state) {
    static const double shapes[] = {0.1, 0.3, 1, 2.5, 20};
    double mean, variance;
    moments((struct arrival){.kind = ARRIVAL_POISSON, .rate = 50, .seed = 3}, &mean, &variance);
    assert_true(fabs(mean * 50 - 1) < 0.03 && fabs(variance * 2500 - 1) < 0.06);
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
        struct arrival a = {.kind = ARRIVAL_GAMMA, .rate = 8, .burstiness = shapes[i], .seed = 5};
        moments(a, &mean, &variance);
        /* gamma of shape k and mean 1 has variance 1/k; four standard errors of the estimates */
        assert_true(fabs(mean * 8 - 1) < 4 / sqrt(shapes[i] * N));
        double spread = sqrt((2 + 6 / shapes[i]) / N);
        assert_true(fabs(variance * 64 * shapes[i] - 1) < 4 * spread);
    }
}

static void even_and_ramp(void **state) {
    struct arrival a = {.kind = ARRIVAL_CONSTANT, .rate = 4};
    for (int i = 0; i < 10; i++) assert_true(fabs(arrival_next(&a) - i / 4.0) < 1e-12);
    /* from 10 to 30 a second in 5 s: 10 t + 2 t^2 requests by t, and 30 a second from there */
    a = (struct arrival){.kind = ARRIVAL_RAMP, .rate = 10, .ramp_to = 30, .ramp_s = 5};
    for (int i = 0; i < 100; i++) {
        double t = arrival_next(&a);
        assert_true(fabs(10 * t + 2 * t * t - i) < 1e-9);
    }
    assert_true(fabs(arrival_next(&a) - 5) < 1e-9);
    assert_true(fabs(arrival_next(&a) - 5 - 1 / 30.0) < 1e-9);
    a = (struct arrival){.kind = ARRIVAL_RAMP, .rate = 30, .ramp_to = 10, .ramp_s = 5};
    for (int i = 0; i < 100; i++) {
        double t = arrival_next(&a);
        assert_true(fabs(30 * t - 2 * t * t - i) < 1e-9);
    }
}

static void the_seed_decides(void **state) {
    struct arrival a = {.kind = ARRIVAL_GAMMA, .rate = 1, .burstiness = 0.5, .seed = 1}, b = a, c = a;
    c.seed = 2;
    bool differs = false;
    for (int i = 0; i < 100; i++) {
        double x = arrival_next(&a);
        assert_true(x == arrival_next(&b));
        differs |= x != arrival_next(&c);
    }
    assert_true(differs);
}

static void lengths(void **state) {
    struct length l;
    struct error err = {0};
    double sum = 0, squares = 0;
    assert_int_equal(length_parse("--x", "512", &l, &err), 0);
    assert_true(l.kind == LENGTH_FIXED && length_draw(&l, 0.3, 0.9) == 512 && length_most(&l) == 512);
    assert_int_equal(length_parse("--x", "uniform:3:5", &l, &err), 0);
    assert_int_equal(length_draw(&l, 0, 0), 3);
    assert_int_equal(length_draw(&l, 0.5, 0), 4);
    assert_int_equal(length_draw(&l, 0.9999999, 0), 5);
    assert_int_equal(length_parse("--x", "normal:500:50", &l, &err), 0);
    for (int i = 0; i < N; i++) {
        double v = length_draw(&l, rng_uniform(1, 0, (uint32_t)i, 0), rng_uniform(1, 0, (uint32_t)i, 1));
        sum += v;
        squares += v * v;
    }
    assert_true(fabs(sum / N - 500) < 2 && fabs(sqrt(squares / N - sum / N * (sum / N)) - 50) < 2);
    assert_int_equal(length_parse("--x", "lognormal:100:0.5", &l, &err), 0);
    int below = 0;
    for (int i = 0; i < N; i++)
        below += length_draw(&l, rng_uniform(2, 0, (uint32_t)i, 0), rng_uniform(2, 0, (uint32_t)i, 1)) <= 100;
    assert_true(abs(below - N / 2) < N / 50); /* its median */
    assert_int_equal(length_most(&l), 800);
    l = length_scale(l, 0.001);
    assert_true(l.a == 1 && l.b == 0.5);
    static const char *const wrong[] = {
        "",          "0",         "1.5",         "-3",        "12x",
        "10000001",  "uniform:5", "uniform:5:4", "normal:5:", "lognormal:5:4.1",
        "gamma:1:2", "0x10",      "nan",         "inf",       "uniform:1:2:3",
        " 5"};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        assert_int_equal(length_parse("--x", wrong[i], &l, &err), QUIRE_EINVAL);
        assert_non_null(strstr(err.text, "--x"));
    }
}

static void number_lists(void **state) {
    double v[3];
    size_t n;
    struct error err = {0};
    assert_int_equal(numbers_parse("--r", "1,8,32", 1, 100, true, v, 3, &n, &err), 0);
    assert_true(n == 3 && v[0] == 1 && v[2] == 32);
    assert_int_equal(numbers_parse("--r", "0.5", 0.1, 100, false, v, 3, &n, &err), 0);
    static const char *const wrong[] = {"", "1,", ",1", "1,,2", "1;2", "101", "0", "1,2,3,4", "1.5"};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++)
        assert_int_equal(numbers_parse("--r", wrong[i], 1, 100, true, v, 3, &n, &err), QUIRE_EINVAL);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(random_gaps), cmocka_unit_test(even_and_ramp), cmocka_unit_test(the_seed_decides),
        cmocka_unit_test(lengths),     cmocka_unit_test(number_lists),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
