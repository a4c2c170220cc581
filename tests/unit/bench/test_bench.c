/* What measuring rests on: data that computes like a model's, and a team whose shares all run. */
#include "bench/core_share.h"
#include "bench/fill.h"
#include "bench/limits.h"
#include "bench/team.h"

#include "util/alloc_fail.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

/* Every loadable type, so also those that come later. */
static void weights_are_finite_and_of_ordinary_size(void **state) {
    size_t n_types = 0;
    for (uint32_t id = 0; id < TENSOR_TYPE_END; id++) {
        const struct tensor_type_info *type = tensor_type_info(id);
        if (!type || !type->loadable) continue;
        n_types++;
        enum { BLOCKS = 300 };
        struct fill f = {id};
        size_t n = BLOCKS * type->block_elems, bytes = BLOCKS * type->block_bytes;
        unsigned char *blocks = malloc(bytes), *again = malloc(bytes);
        float *x = malloc(n * sizeof *x);
        assert_true(blocks && again && x);
        assert_true(fill_blocks(&f, blocks, bytes, type));
        type->decode(x, blocks, BLOCKS);
        size_t differing = 0;
        for (size_t i = 0; i < BLOCKS; i++) {
            float largest = 0.0f;
            for (size_t j = 0; j < type->block_elems; j++) {
                assert_true(isfinite(x[i * type->block_elems + j]));
                largest = fmaxf(largest, fabsf(x[i * type->block_elems + j]));
            }
            assert_true(largest >= 0x1p-6f && largest <= 8.0f);
            differing += memcmp(blocks, blocks + i * type->block_bytes, type->block_bytes) != 0;
        }
        assert_true(differing > BLOCKS / 2);
        f = (struct fill){id};
        assert_true(fill_blocks(&f, again, bytes, type));
        assert_memory_equal(blocks, again, bytes);
        free(blocks);
        free(again);
        free(x);
    }
    assert_true(n_types >= 13);
}

static void floats_are_spread_evenly(void **state) {
    enum { N = 100000 };
    float *x = malloc(N * sizeof *x);
    double sum = 0.0, squares = 0.0;
    struct fill f = {7};
    assert_non_null(x);
    fill_floats(&f, x, N);
    for (size_t i = 0; i < N; i++) {
        assert_true(x[i] >= -1.0f && x[i] <= 1.0f);
        sum += (double)x[i];
        squares += (double)x[i] * (double)x[i];
    }
    assert_true(fabs(sum / N) < 0.01 &&
                fabs(squares / N - 1.0 / 3.0) < 0.01); /* of the uniform distribution */
    free(x);
}

/* A clock of 3 GHz, and 2 instructions a cycle or fewer in nine of ten slices. */
static void shares_of_cores(void **state) {
    double chained[10], independent[10];
    for (int i = 0; i < 10; i++) {
        chained[i] = 1e9;
        independent[i] = 6e9 * (i == 4 ? 1.02 : 0.1 * i); /* a slice beyond the units is a whole core */
    }
    struct core_share s = core_share_of(chained, independent, 10);
    assert_true(fabs(s.clock_hz - 3e9) < 1);
    assert_true(fabs(s.low - 0.1) < 1e-9 && fabs(s.median - 0.6) < 1e-9 && fabs(s.high - 0.9) < 1e-9);
}

struct tally {
    size_t calls[8], n_threads;
};

static void count(void *ctx, size_t thread, size_t n_threads) {
    struct tally *t = ctx;
    t->calls[thread]++; /* one thread each */
    assert_int_equal(n_threads, t->n_threads);
    volatile double x = 1.0;
    for (int i = 0; i < 100000; i++) x *= 1.0000001;
    assert_true(x > 1.0);
}

static void every_share_runs_in_every_round(void **state) {
    for (size_t n = 1; n <= 5; n += 2) {
        struct team *team;
        struct error err = {0};
        bool apart;
        struct tally t = {.n_threads = n};
        assert_int_equal(team_start(&team, n, &err), 0);
        assert_int_equal(team_threads(team), n);
        double seconds = team_seconds(team, count, &t, &apart);
        /* 100,000 dependent multiplications: at least a cycle each at 10 GHz, at most a second */
        assert_true(seconds > 1e-5 && seconds < 1.0);
        for (size_t i = 0; i < n; i++) assert_int_equal(t.calls[i], t.calls[0]);
        assert_true(t.calls[0] >= 5);
        if (n == 1) assert_false(apart);
        team_stop(team);
    }
    team_stop(NULL);
}

static void start_team(void *ctx) {
    struct team *team;
    struct error err = {0};
    if (team_start(&team, 3, &err))
        assert_true(err.code == QUIRE_ENOMEM && strlen(err.text) > 10);
    else
        team_stop(team);
}

static void a_team_that_cannot_start_says_so(void **state) {
    struct team *team;
    struct error err = {0};
    assert_true(alloc_fail_each(start_team, NULL) >= 2);
    for (size_t i = 1; i < 4; i++) {
        thread_fail_at(i);
        assert_int_equal(team_start(&team, 4, &err), QUIRE_EIO);
        assert_null(team);
        assert_non_null(strstr(err.text, "of 4"));
    }
    thread_fail_at(0);
}

static void a_machine_has_a_name(void **state) {
    char name[64] = "";
    const char *features[CPU_FEATURES + 1];
    cpu_name(name);
    assert_true(strlen(name) > 0 && name[0] != ' ');
    cpu_features(features);
    size_t n = 0;
    while (features[n]) n++;
    assert_true(n <= CPU_FEATURES);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(weights_are_finite_and_of_ordinary_size),
        cmocka_unit_test(floats_are_spread_evenly),
        cmocka_unit_test(shares_of_cores),
        cmocka_unit_test(every_share_runs_in_every_round),
        cmocka_unit_test(a_team_that_cannot_start_says_so),
        cmocka_unit_test(a_machine_has_a_name),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
