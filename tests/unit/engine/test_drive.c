/* bench/drive.h with a real engine: the rows and attended positions that the steps tell are those that
 * arithmetic gives. */
#include "bench/drive.h"
#include "util_engine.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

struct sums {
    size_t prefill, decode, logits, prefill_seqs, decode_seqs;
    uint64_t prefill_attended, decode_attended, us;
};

static struct sums sums_of(struct drive *d) {
    struct sums s = {0};
    size_t n;
    const struct drive_step *steps = drive_steps(d, &n);
    for (size_t i = 0; i < n; i++) {
        const struct quire_step *k = &steps[i].step;
        s.prefill += k->n_prefill_rows;
        s.decode += k->n_decode_rows;
        s.logits += k->n_logit_rows;
        s.prefill_attended += k->prefill_attended;
        s.decode_attended += k->decode_attended;
        uint64_t us = k->prepare_us + k->forward_us + k->sample_us;
        /* a step lies between the ends of the one before and its own */
        if (i) assert_true(steps[i].end_us - steps[i - 1].end_us + 3 >= us);
        s.us += us;
    }
    return s;
}

struct fixture {
    struct test_model model;
    struct drive *drive;
    struct quire_engine *engine;
};

static struct fixture set_up(size_t max_steps, size_t budget) {
    struct tiny_model_options o = tiny_model_defaults();
    struct fixture f = {.model = test_model_make(&o)};
    assert_int_equal(drive_create(max_steps, &f.drive, NULL), 0);
    struct quire_config c = test_config(&f.model);
    c.max_num_batched_tokens = budget;
    c.step_reader = drive_reader(f.drive);
    f.engine = test_open(&c);
    return f;
}

static void tear_down(struct fixture *f) {
    quire_shutdown(f->engine);
    drive_free(f->drive);
    test_model_free(&f->model);
}

static void test_rows_are_those_of_the_load(void **state) {
    static const struct drive_load loads[] = {{.n_seqs = 1, .n_prompt = 1, .n_output = 1, .seed = 1},
                                              {.n_seqs = 5, .n_prompt = 37, .n_output = 9, .seed = 2},
                                              {.n_seqs = 8, .n_prompt = 120, .n_output = 2, .seed = 3},
                                              {.n_seqs = 3, .n_prompt = 16, .n_output = 30, .seed = 4}};
    struct fixture f = set_up(1000, 64);
    struct error err = {0};
    for (size_t i = 0; i < sizeof loads / sizeof *loads; i++) {
        const struct drive_load *l = &loads[i];
        if (drive_run(f.drive, f.engine, l, NULL, &err)) fail_msg("%s", err.text);
        struct sums s = sums_of(f.drive);
        size_t p = l->n_prompt, g = l->n_output - 1;
        assert_int_equal(s.prefill, l->n_seqs * p);
        assert_int_equal(s.decode, l->n_seqs * g);
        assert_int_equal(s.logits, l->n_seqs * l->n_output);
        assert_int_equal(s.prefill_attended, l->n_seqs * (p * (p + 1) / 2));
        assert_int_equal(s.decode_attended, l->n_seqs * (g * p + g * (g + 1) / 2));
    }
    tear_down(&f);
}

static void test_cached_prompts(void **state) {
    struct drive_load l = {.n_seqs = 4, .n_prompt = 100, .n_output = 3, .seed = 7};
    struct fixture f = set_up(1000, 256);
    struct error err = {0};
    assert_int_equal(drive_run(f.drive, f.engine, &l, NULL, &err), 0);
    assert_int_equal(drive_run(f.drive, f.engine, &l, NULL, &err), 0);
    assert_int_equal(sums_of(f.drive).prefill, 400); /* the same prompts, but nothing was read */
    l.cached = true;
    assert_int_equal(drive_run(f.drive, f.engine, &l, NULL, &err), 0);
    assert_int_equal(sums_of(f.drive).prefill, 16); /* 96 of 100 are whole blocks */
    assert_int_equal(sums_of(f.drive).decode, 8);
    tear_down(&f);
}

/* A prefix that all share is computed once, also by the next load with other prompts. */
static void test_shared_prefix(void **state) {
    struct drive_load l = {
        .n_seqs = 3, .n_prompt = 64 + 10, .n_output = 2, .seed = 7, .cached = true, .n_prefix = 64};
    struct fixture f = set_up(1000, 512);
    struct error err = {0};
    assert_int_equal(drive_run(f.drive, f.engine, &l, NULL, &err), 0);
    l.seed = 8;
    assert_int_equal(drive_run(f.drive, f.engine, &l, NULL, &err), 0);
    assert_int_equal(sums_of(f.drive).prefill, 3 * 10);
    tear_down(&f);
}

/* Those that come late are computed beside those that were there. */
static void test_late_ones(void **state) {
    struct drive_load l = {.n_seqs = 4,
                           .n_prompt = 20,
                           .n_output = 60,
                           .seed = 7,
                           .n_late = 2,
                           .late_prompt = 90,
                           .late_output = 5};
    struct fixture f = set_up(1000, 512);
    struct error err = {0};
    size_t n, n_mixed = 0;
    assert_int_equal(drive_run(f.drive, f.engine, &l, NULL, &err), 0);
    struct sums s = sums_of(f.drive);
    assert_int_equal(s.prefill, 4 * 20 + 2 * 90);
    assert_int_equal(s.decode, 4 * 59 + 2 * 4);
    const struct drive_step *steps = drive_steps(f.drive, &n);
    for (size_t i = 0; i < n; i++) n_mixed += steps[i].step.n_prefill_rows && steps[i].step.n_decode_rows;
    assert_true(n_mixed >= 1);
    drive_forget(f.drive);
    assert_int_equal(sums_of(f.drive).prefill, 0);
    tear_down(&f);
}

static void test_ends(void **state) {
    static const volatile int raised = 1;
    struct drive_load l = {.n_seqs = 2, .n_prompt = 20, .n_output = 50, .seed = 7},
                      too_long = {.n_seqs = 1, .n_prompt = 5000, .n_output = 1, .seed = 1};
    struct fixture f = set_up(10, 256);
    struct error err = {0};
    assert_int_equal(drive_run(f.drive, f.engine, &l, &raised, &err), QUIRE_ECANCELED);
    assert_int_equal(drive_run(f.drive, f.engine, &l, NULL, &err), QUIRE_ELIMIT); /* 50 steps */
    assert_int_equal(drive_run(f.drive, f.engine, &too_long, NULL, &err), QUIRE_ELIMIT);
    l.n_output = 5;
    assert_int_equal(drive_run(f.drive, f.engine, &l, NULL, &err), 0);
    test_baseline(f.engine, SIZE_MAX);
    tear_down(&f);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_rows_are_those_of_the_load),
        cmocka_unit_test(test_cached_prompts),
        cmocka_unit_test(test_shared_prefix),
        cmocka_unit_test(test_late_ones),
        cmocka_unit_test(test_ends),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
