/* The machine's speed, kept moment by moment and played again: against an integration in small pieces, and
 * against laws (time adds up, a round of all moments takes what they took, joining keeps the mean speed). */
#include "base/rng.h"
#include "base/stats.h"
#include "sim/step_model.h"
#include "sim/wander.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define MOMENTS 60

static void some_wander(struct wander *w, uint32_t seed) {
    *w = (struct wander){.n = MOMENTS, .moment_us = WANDER_BIN_US};
    for (size_t i = 0; i < MOMENTS; i++)
        w->slow[i] = (uint16_t)(500 + 2500 * rng_uniform(seed, (uint32_t)i, 0, 0));
}

/* Mean speed: work done in a unit of time. */
static double speed(const struct wander *w) {
    double all = 0;
    for (size_t i = 0; i < w->n; i++) all += 1000.0 / w->slow[i];
    return all / (double)w->n;
}

/* The same in pieces of 10 us. */
static double by_pieces(const struct wander *w, double at_us, double work_us) {
    double took = 0;
    for (; work_us > 0; took += 10)
        work_us -= 10 * 1000.0 / w->slow[(size_t)((at_us + took + 5) / w->moment_us) % w->n];
    return took;
}

static void test_time_of_work(void **state) {
    struct wander w;
    some_wander(&w, 1);
    double round = (double)w.n * w.moment_us;
    for (uint32_t i = 0; i < 300; i++) {
        double at = 3 * round * rng_uniform(2, i, 0, 0), work = exp(14 * rng_uniform(2, i, 1, 0));
        double took = wander_time(&w, at, work);
        assert_true(fabs(took - by_pieces(&w, at, work)) < 40);
        double part = work * rng_uniform(2, i, 2, 0), first = wander_time(&w, at, part);
        assert_true(fabs(first + wander_time(&w, at + first, work - part) - took) < 1e-6 * (at + took));
    }
    assert_true(fabs(wander_time(&w, 12345, 7 * round * speed(&w)) - 7 * round) < 1e-3);
    assert_true(fabs(wander_time(&w, 1e9, 1e15) * speed(&w) / 1e15 - 1) < 1e-6);
}

/* Without one, and with one that does not change, time is as it is. */
static void test_steady(void **state) {
    struct wander none = {0}, even = {.n = MOMENTS, .moment_us = WANDER_BIN_US};
    for (size_t i = 0; i < MOMENTS; i++) even.slow[i] = 1000;
    assert_true(wander_time(&none, 77, 4321) == 4321);
    assert_true(fabs(wander_time(&even, 77, 1e7) - 1e7) < 1e-6);
}

/* Steps of all lengths while the speed goes up and down: what was made of them takes as long for the same
 * work, and has the speeds that there were. */
static void test_made_of_steps(void **state) {
    enum { STEPS = 4000 };
    static double took[STEPS], mean[STEPS];
    struct wander w;
    double now = 0, work = 0;
    for (uint32_t i = 0; i < STEPS; i++) {
        mean[i] = 1000 + 29000 * rng_uniform(3, i, 0, 0);
        took[i] = mean[i] * (fmod(now, 4e6) < 1e6 ? 2 : 0.8);
        now += took[i];
        work += mean[i];
    }
    wander_make(took, mean, STEPS, &w);
    assert_true((double)w.n == floor(now / w.moment_us) && w.moment_us == WANDER_BIN_US);
    assert_true(fabs(wander_time(&w, 0, work * (double)w.n * w.moment_us / now) / now - 1) < 0.01);
    size_t slow = 0, fast = 0;
    for (size_t i = 0; i < w.n; i++) {
        slow += w.slow[i] >= 1990 && w.slow[i] <= 2010;
        fast += w.slow[i] >= 795 && w.slow[i] <= 805;
    }
    assert_true(slow + fast > 95 * w.n / 100);
    assert_true(fabs((double)slow / (double)w.n - 0.25) < 0.04);
}

static void test_lengths(void **state) {
    static double took[300], mean[300];
    struct wander w;
    for (size_t i = 0; i < 300; i++) took[i] = mean[i] = WANDER_BIN_US;
    wander_make(took, mean, WANDER_LEAST - 1, &w);
    assert_int_equal(w.n, 0);
    wander_make(took, mean, WANDER_LEAST, &w);
    assert_int_equal(w.n, WANDER_LEAST);
    for (size_t i = 0; i < 300; i++) took[i] = mean[i] = 20 * WANDER_BIN_US;
    wander_make(took, mean, 300, &w); /* 6000 moments: four in one */
    assert_true(w.moment_us == 4 * WANDER_BIN_US && w.n == 1500 && w.n <= WANDER_MOST);
    took[0] = 1e15;
    wander_make(took, mean, 300, &w);
    assert_true(w.n <= WANDER_MOST && w.slow[0] == WANDER_SLOWEST);
}

/* The mean speed of both is the mean of their speeds; levels slow them; where there is no room, moments
 * become longer. */
static void test_joined(void **state) {
    struct wander a, b, both;
    some_wander(&a, 4);
    some_wander(&b, 5);
    both = a;
    wander_join(&both, &b, 1);
    assert_int_equal(both.n, 2 * MOMENTS);
    assert_true(fabs(speed(&both) - (speed(&a) + speed(&b)) / 2) < 1e-9);
    both = a;
    wander_join(&both, &b, 2);
    assert_true(fabs(speed(&both) - (speed(&a) + speed(&b) / 2) / 2) < 1e-3);
    b.moment_us *= 4; /* a quarter of a's moments beside them */
    both = a;
    wander_join(&both, &b, 1);
    assert_true(both.moment_us == b.moment_us && both.n == MOMENTS / 4 + MOMENTS);
    assert_true(fabs(speed(&both) - (speed(&a) / 4 + speed(&b)) / 1.25) < 1e-3);
    both = (struct wander){0};
    for (int i = 0; i < 100; i++) wander_join(&both, &a, 1);
    assert_true(both.n <= WANDER_MOST && both.n > WANDER_MOST / 4);
    assert_true(fabs(speed(&both) / speed(&a) - 1) < 0.01);
}

/* The runs of a seed begin all over the moments, servers at other ones. */
static void test_starts(void **state) {
    struct wander w;
    some_wander(&w, 6);
    double round = (double)w.n * w.moment_us, starts[16];
    for (uint64_t i = 0; i < 16; i++) {
        starts[i] = wander_start_us(&w, 9, i + 1, 0);
        assert_true(starts[i] >= 0 && starts[i] < round);
        assert_true(starts[i] == wander_start_us(&w, 9, i + 1, 0));
        assert_true(starts[i] != wander_start_us(&w, 9, i + 1, 1));
        assert_true(starts[i] != wander_start_us(&w, 10, i + 1, 0));
    }
    stats_sort(starts, 16);
    for (size_t i = 0; i + 1 < 16; i++) assert_true(starts[i + 1] - starts[i] < 0.15 * round);
}

/* A fit keeps the wander: steps that followed the machine's speed, played again, have its quantiles. */
static void test_of_a_fit(void **state) {
    enum { STEPS = 3000 };
    static struct quire_step steps[STEPS];
    static uint64_t end_us[STEPS];
    static double slows[STEPS], again[STEPS];
    struct step_model m;
    struct error err;
    double now = 0;
    for (uint32_t i = 0; i < STEPS; i++) {
        struct quire_step *s = &steps[i];
        s->n_decode_rows = s->n_decode_seqs = s->n_logit_rows = 1 + i % 16;
        s->decode_attended = 100;
        slows[i] = fmod(now, 3e6) < 3e5 ? 1.5 : 0.95;
        s->forward_us = (uint64_t)((5000 + 1000 * (double)s->n_decode_rows) * slows[i]);
        s->sample_us = (uint64_t)(100 * slows[i]);
        now += (double)(s->forward_us + s->sample_us);
        end_us[i] = (uint64_t)now;
    }
    assert_int_equal(step_model_fit(steps, end_us, STEPS, &m, &err), 0);
    assert_true(m.wander.n >= WANDER_LEAST);
    now = 0;
    for (uint32_t i = 0; i < STEPS; i++) {
        again[i] = wander_time(&m.wander, now, 10000) / 10000;
        now += 10000 * again[i];
    }
    double level = 0, level_again = 0;
    for (uint32_t i = 0; i < STEPS; i++) {
        level += slows[i] / STEPS;
        level_again += again[i] / STEPS;
    }
    stats_sort(slows, STEPS);
    stats_sort(again, STEPS);
    for (double q = 0.02; q < 1; q += 0.12) /* at 0.92 to 0.95 lies the edge */
        if (q < 0.9 || q > 0.97)
            assert_true(fabs(stats_quantile(again, STEPS, q) / level_again /
                             (stats_quantile(slows, STEPS, q) / level) - 1) < 0.06);
    assert_true(fabs(stats_quantile(again, STEPS, 0.98) / stats_quantile(again, STEPS, 0.5) - 1.5 / 0.95) < 0.1);
    assert_int_equal(step_model_fit(steps, NULL, STEPS, &m, &err), 0);
    assert_int_equal(m.wander.n, 0); /* without their times nothing follows another */
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_time_of_work), cmocka_unit_test(test_steady),
        cmocka_unit_test(test_made_of_steps), cmocka_unit_test(test_lengths),
        cmocka_unit_test(test_joined),       cmocka_unit_test(test_starts),
        cmocka_unit_test(test_of_a_fit),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
