#include "base/hist.h"

#include <math.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

static const double bounds[] = {1, 2, 5};

static void a_bound_belongs_to_its_bucket(void **state) {
    struct quire_hist h;
    hist_init(&h, bounds, 3);
    static const double values[] = {-1, 0.5, 1, 1.0000001, 2, 5, 5.1, INFINITY, NAN};
    for (size_t i = 0; i < 7; i++) hist_add(&h, values[i]);
    assert_int_equal(h.counts[0], 3);
    assert_int_equal(h.counts[1], 2);
    assert_int_equal(h.counts[2], 1);
    assert_int_equal(h.counts[3], 1);
    assert_int_equal(h.n, 7);
    assert_true(fabs(h.sum - 13.6000001) < 1e-9);
    hist_add(&h, NAN); /* would poison the sum */
    assert_int_equal(h.n, 7);
    assert_true(isfinite(h.sum));
    hist_add(&h, INFINITY);
    assert_int_equal(h.counts[3], 2);
}

static void bounds_ascend(void **state) {
    for (size_t i = 1; i < 22; i++) assert_true(HIST_TTFT_BOUNDS[i] > HIST_TTFT_BOUNDS[i - 1]);
    for (size_t i = 1; i < 19; i++)
        assert_true(HIST_TOKEN_LATENCY_BOUNDS[i] > HIST_TOKEN_LATENCY_BOUNDS[i - 1]);
    for (size_t i = 1; i < 21; i++)
        assert_true(HIST_REQUEST_LATENCY_BOUNDS[i] > HIST_REQUEST_LATENCY_BOUNDS[i - 1]);
}

static void *add_many(void *arg) {
    for (int i = 0; i < 20000; i++) hist_add(arg, i % 8);
    return NULL;
}

static void no_update_is_lost(void **state) {
    struct quire_hist h;
    pthread_t threads[4];
    hist_init(&h, bounds, 3);
    for (size_t i = 0; i < 4; i++) assert_int_equal(pthread_create(&threads[i], NULL, add_many, &h), 0);
    for (size_t i = 0; i < 4; i++) pthread_join(threads[i], NULL);
    assert_int_equal(h.n, 80000);
    assert_int_equal(h.counts[0], 20000); /* 0, 1 */
    assert_int_equal(h.counts[1], 10000); /* 2 */
    assert_int_equal(h.counts[2], 30000); /* 3, 4, 5 */
    assert_int_equal(h.counts[3], 20000); /* 6, 7 */
    assert_true(h.sum == 80000 * 3.5);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_bound_belongs_to_its_bucket),
        cmocka_unit_test(bounds_ascend),
        cmocka_unit_test(no_update_is_lost),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
