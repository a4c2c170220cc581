/* Numbers are true: counters and gauges after a known load, usage, waste; memory stays what it was; a step
 * allocates nothing; the sampling glue against a naive count. */
#include "engine/meminfo.h"
#include "engine/sampler.h"
#include "util/alloc_fail.h"
#include "util_engine.h"

#include <quire/step.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <cmocka.h>

struct fixture {
    struct tiny_model_options options;
    struct test_model model;
    struct quire_config config;
};

static int set_up(void **state) {
    struct fixture *f = calloc(1, sizeof *f);
    assert_non_null(f);
    f->options = tiny_model_defaults();
    f->options.n_layers = 2;
    f->options.n_vocab = 300;
    f->model = test_model_make(&f->options);
    f->config = test_config(&f->model);
    *state = f;
    return 0;
}

static int tear_down(void **state) {
    struct fixture *f = *state;
    test_model_free(&f->model);
    free(f);
    return 0;
}

static struct quire_request request(uint32_t *prompt, size_t n, size_t max_tokens, uint64_t seed) {
    for (size_t i = 0; i < n; i++) prompt[i] = 3 + test_random(&seed, 290);
    struct quire_request q = {.prompt = prompt, .n_prompt = n, .sampling = test_greedy(max_tokens)};
    q.sampling.ignore_eos = true;
    return q;
}

static void equal(const _Atomic uint64_t *counter, uint64_t expected) {
    assert_int_equal(atomic_load(counter), expected);
}

static uint64_t count_of(const struct quire_hist *h) {
    uint64_t n = 0;
    for (size_t i = 0; i <= h->n_bounds; i++) n += atomic_load(&h->counts[i]);
    assert_int_equal(n, atomic_load(&h->n));
    return n;
}

/* Ten requests of 7 + 5 tokens, two that are aborted, one that is refused: exact sums. */
static void test_known_load(void **state) {
    struct fixture *f = *state;
    struct quire_engine *e = test_open(&f->config);
    const struct quire_stats *st = quire_stats(e);
    static uint32_t prompts[12][40];
    struct quire_request q[10];
    struct test_result r[10];
    struct quire_stream *s;
    struct error err;
    for (uint64_t i = 0; i < 10; i++) q[i] = request(prompts[i], 7, 5, i);
    test_run(e, q, 10, &f->model, r);
    for (int i = 0; i < 10; i++) {
        const struct quire_usage *u = &r[i].usage;
        assert_int_equal(u->prompt_tokens, 7);
        assert_int_equal(u->completion_tokens, 5);
        assert_int_equal(u->preemptions, 0);
        assert_int_equal(u->first_token_us, u->queue_us + u->prefill_us);
        assert_true(u->prefill_us > 0);
    }
    test_results_free(r, 10);
    for (uint64_t i = 10; i < 12; i++) { /* aborted after the first token: their prompts were computed */
        struct quire_event ev;
        struct quire_request a = request(prompts[i], 40, 900, i);
        assert_int_equal(quire_submit(e, &a, &s, &err), 0);
        assert_int_equal(quire_wait(s, &ev, 60000000), 1);
        quire_close(s);
    }
    q[0].n_prompt = 2000;
    assert_int_equal(quire_submit(e, &q[0], &s, &err), QUIRE_ELIMIT);
    test_baseline(e, 12);
    equal(&st->finished[QUIRE_LENGTH], 10);
    equal(&st->finished[QUIRE_ABORT], 2);
    equal(&st->finished[QUIRE_STOP], 0);
    equal(&st->finished[QUIRE_FAILED], 0);
    equal(&st->prompt_tokens, 10 * 7 + 2 * 40);
    equal(&st->cached_tokens, 0);
    equal(&st->prefix_queries, 10 * 7 + 2 * 40);
    equal(&st->prefix_hits, 0);
    equal(&st->preemptions, 0);
    equal(&st->recomputed_tokens, 0);
    uint64_t generated = atomic_load(&st->generation_tokens);
    assert_true(generated >= 50 + 2);
    assert_int_equal(count_of(&st->ttft), 12);
    assert_int_equal(count_of(&st->queue), 12);
    assert_int_equal(count_of(&st->itl), generated - 12);
    const struct quire_hist *const at_end[] = {
        &st->e2e,        &st->tpot,           &st->inference,
        &st->prefill,    &st->decode,         &st->prompt_len,
        &st->max_tokens, &st->generation_len, &st->preemptions_per_request};
    for (size_t i = 0; i < sizeof at_end / sizeof *at_end; i++) assert_int_equal(count_of(at_end[i]), 10);
    assert_true(atomic_load(&st->prompt_len.sum) == 70);
    assert_true(atomic_load(&st->generation_len.sum) == 50);
    uint64_t steps = atomic_load(&st->steps);
    assert_int_equal(count_of(&st->iteration_tokens), steps);
    assert_int_equal(count_of(&st->step_forward), steps);
    /* What was computed: prompts and all generated tokens but the last of each. */
    double computed = 10 * 7 + 2 * 40 + (double)generated - 12;
    assert_true(atomic_load(&st->iteration_tokens.sum) >= computed);
    assert_true(atomic_load(&st->iteration_tokens.sum) <= computed + 2); /* an abort may come within a step */
    quire_shutdown(e);
}

static void test_cache_figures(void **state) {
    struct fixture *f = *state;
    struct quire_engine *e = test_open(&f->config);
    const struct quire_stats *st = quire_stats(e);
    uint32_t prompt[64];
    struct test_result r;
    struct quire_request q = request(prompt, 64, 1, 3);
    for (int i = 0; i < 3; i++) {
        test_run(e, &q, 1, &f->model, &r);
        test_results_free(&r, 1);
    }
    test_baseline(e, 3);
    equal(&st->prompt_tokens, 3 * 64);
    equal(&st->cached_tokens, 2 * 63);
    equal(&st->prefix_queries, 3 * 64);
    equal(&st->prefix_hits, 2 * 63);
    equal(&st->block_allocations, 4 + 2);  /* the prompt's, then a copy each */
    equal(&st->block_reuses, 2 * (3 + 1)); /* three full ones and the one that is copied */
    equal(&st->block_copies, 2);
    equal(&st->blocks_cached, 4);
    equal(&st->block_evictions, 0);
    q.skip_prefix_cache = true;
    test_run(e, &q, 1, &f->model, &r);
    test_results_free(&r, 1);
    test_baseline(e, 4);
    equal(&st->prefix_queries, 3 * 64); /* it did not ask */
    quire_shutdown(e);
}

/* Allocated but unused slots while 16 sequences of 256 ... 1,000 tokens run. */
static void test_waste(void **state) {
    struct fixture *f = *state;
    struct quire_config c = f->config;
    c.max_num_seqs = 16;
    c.kv_bytes = (uint64_t)32 << 20;
    struct quire_engine *e = test_open(&c);
    const struct quire_stats *st = quire_stats(e);
    enum { N = 16 };
    static uint32_t prompts[N][900];
    struct quire_stream *s[N];
    struct error err;
    uint64_t random = 4;
    double wasted = 0, used = 0, n_seqs = 0;
    uint64_t last = 0, n_samples = 0;
    for (uint64_t i = 0; i < N; i++) {
        struct quire_request q = request(prompts[i], 256 + test_random(&random, 500), 250, i + 50);
        assert_int_equal(quire_submit(e, &q, &s[i], &err), 0);
    }
    while (atomic_load(&st->finished[QUIRE_LENGTH]) < N) { /* rings are large enough for all 250 */
        uint64_t steps = atomic_load(&st->steps), running = atomic_load(&st->running);
        uint64_t allocated = atomic_load(&st->kv_slots_allocated), filled = atomic_load(&st->kv_slots_used);
        nanosleep(&(struct timespec){0, 50000}, NULL);
        if (steps == last || running != atomic_load(&st->running)) continue;
        last = steps;
        wasted += (double)allocated - (double)filled;
        used += (double)filled;
        n_seqs += (double)running;
        n_samples++;
    }
    printf("waste: %.2f slots a sequence, %.2f %% of the used, %llu samples\n", wasted / n_seqs,
           100 * wasted / used, (unsigned long long)n_samples);
    assert_true(n_samples > 0);
    assert_true(wasted / n_seqs <= 8.5);
    assert_true(wasted / used < 0.04);
    for (int i = 0; i < N; i++) quire_close(s[i]);
    test_baseline(e, N);
    quire_shutdown(e);
}

/* ---- memory ----------------------------------------------------------------------------------------------
 */

static void one_round(struct quire_engine *e, struct fixture *f, size_t n, uint64_t *random) {
    enum { AT_ONCE = 20 };
    static uint32_t prompts[AT_ONCE][300];
    for (size_t done = 0; done < n; done += AT_ONCE) {
        struct quire_request q[AT_ONCE];
        struct test_result r[AT_ONCE];
        for (int i = 0; i < AT_ONCE; i++) {
            q[i] = request(prompts[i], 1 + test_random(random, 60), 1 + test_random(random, 12), *random);
            q[i].sampling.n_logprobs = (int)test_random(random, 5) - 1;
            if (!test_random(random, 3)) q[i].sampling.presence_penalty = 0.5f;
        }
        test_run(e, q, AT_ONCE, &f->model, r);
        test_results_free(r, AT_ONCE);
    }
}

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
enum { N_STEADY = 200 }; /* what leaks is told otherwise */
#else
enum { N_STEADY = 2000 };
#endif

static void test_memory_is_steady(void **state) {
    struct fixture *f = *state;
    struct quire_engine *e = test_open(&f->config);
    uint64_t random = 6;
    one_round(e, f, 400, &random);
    while (atomic_load(&quire_stats(e)->blocks_resident) < quire_info(e)->n_blocks)
        one_round(e, f, 20, &random); /* the KV memory is still being taken */
    uint64_t before = meminfo_resident_bytes();
    one_round(e, f, N_STEADY, &random);
    uint64_t after = meminfo_resident_bytes();
    printf("resident: %.2f MiB after 400 requests, %.2f MiB after %d more\n", (double)before / (1 << 20),
           (double)after / (1 << 20), N_STEADY);
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
    assert_true(after <= before + (256 << 10));
#endif
    test_baseline(e, SIZE_MAX);
    quire_shutdown(e);
}

/* From the moment all are submitted to the last event nothing is allocated, in any thread. */
static void test_steps_allocate_nothing(void **state) {
    struct fixture *f = *state;
    struct quire_config c = f->config;
    c.n_threads = 2;
    c.kv_bytes = test_kv_bytes(&c, &f->options, 100);
    struct quire_engine *e = test_open(&c);
    enum { N = 12 };
    static uint32_t prompts[N][300];
    struct quire_stream *s[N];
    struct error err;
    struct quire_event ev;
    static const struct quire_str stop[] = {{"abcdabcd", 8}};
    uint64_t random = 7;
    for (uint64_t i = 0; i < N; i++) {
        struct quire_request q = request(prompts[i], 20 + 20 * (i % 4), 400, i % 3);
        q.sampling.stop = stop;
        q.sampling.n_stop = 1;
        q.sampling.n_logprobs = (int)test_random(&random, 5);
        q.sampling.n_prompt_logprobs = i % 4 ? -1 : 2;
        q.sampling.temperature = (float)(i % 2);
        q.sampling.top_p = 0.9f;
        q.sampling.frequency_penalty = 0.5f;
        assert_int_equal(quire_submit(e, &q, &s[i], &err), 0);
    }
    alloc_fail_at(SIZE_MAX);
    for (int i = 0; i < N; i++) {
        do {
            assert_int_equal(quire_wait(s[i], &ev, 60000000), 1);
        } while (ev.finish == QUIRE_RUNNING);
    }
    size_t n = alloc_fail_stop();
    assert_int_equal(n, 0);
    assert_true(atomic_load(&quire_stats(e)->preemptions) > 0); /* those ways were taken too */
    for (int i = 0; i < N; i++) quire_close(s[i]);
    quire_shutdown(e);
}

/* ---- sampling glue ---------------------------------------------------------------------------------------
 */

static void test_counts_against_naive(void **state) {
    enum { VOCAB = 50, N = 400 };
    struct sample_count counts[VOCAB];
    uint32_t slots[128], bans[] = {4, 9};
    size_t in_prompt[VOCAB] = {0}, in_output[VOCAB] = {0};
    uint64_t random = 8;
    assert_int_equal(sampler_slots(VOCAB), 128);
    memset(slots, 0, sizeof slots);
    struct sampler s = {.counting = true,
                        .counts = counts,
                        .slots = slots,
                        .mask = 127,
                        .bans = bans,
                        .n_bans = 2,
                        .min_tokens = 3};
    for (int i = 0; i < N; i++) {
        uint32_t token = test_random(&random, VOCAB);
        bool prompt = i < N / 8;
        sampler_note(&s, token, prompt);
        (prompt ? in_prompt : in_output)[token]++;
        struct sample_row row;
        sampler_row(&s, (size_t)i % 6, 100 + (size_t)i, &row);
        assert_int_equal(row.position, 100 + i);
        assert_int_equal(row.n_banned, i % 6 < 3 ? 2 : 0);
        size_t n_distinct = 0;
        for (size_t t = 0; t < VOCAB; t++) n_distinct += in_prompt[t] || in_output[t];
        assert_int_equal(row.n_counts, n_distinct);
        for (size_t k = 0; k < row.n_counts; k++) {
            assert_int_equal(row.counts[k].in_prompt, in_prompt[row.counts[k].token] > 0);
            assert_int_equal(row.counts[k].n_output, in_output[row.counts[k].token]);
            for (size_t j = 0; j < k; j++) assert_int_not_equal(row.counts[k].token, row.counts[j].token);
        }
    }
    s.counting = false;
    sampler_note(&s, 1, false); /* costs nothing when no penalty is on */
}

/* A penalty that forbids repetition gives outputs of distinct tokens; one that rewards it, a single token. */
static void test_penalties_take_effect(void **state) {
    struct fixture *f = *state;
    struct quire_engine *e = test_open(&f->config);
    uint32_t prompt[10];
    struct quire_request q = request(prompt, 10, 100, 9);
    struct test_result r;
    q.sampling.presence_penalty = 2;
    q.sampling.frequency_penalty = 2;
    q.sampling.repetition_penalty = 1e6f;
    test_run(e, &q, 1, &f->model, &r);
    for (size_t i = 0; i < r.n; i++) {
        for (size_t k = 0; k < i; k++) assert_int_not_equal(r.tokens[i], r.tokens[k]);
        for (size_t k = 0; k < 10; k++) assert_int_not_equal(r.tokens[i], prompt[k]);
    }
    test_results_free(&r, 1);
    q.sampling = test_greedy(100);
    q.sampling.ignore_eos = true;
    q.sampling.frequency_penalty = -2;
    test_run(e, &q, 1, &f->model, &r);
    size_t n_last = 0;
    for (size_t i = 0; i < r.n; i++) n_last += r.tokens[i] == r.tokens[99];
    assert_true(n_last > 50);
    test_results_free(&r, 1);
    test_baseline(e, 2);
    quire_shutdown(e);
}

/* ---- steps ----------------------------------------------------------------------------------------------
 */

struct step_sums {
    struct quire_step all;
    size_t n_steps, most_rows, most_running;
};

static void add_step(void *ctx, const struct quire_step *step) {
    struct step_sums *x = ctx;
    size_t rows = step->n_prefill_rows + step->n_decode_rows;
    x->n_steps++;
    x->all.n_prefill_rows += step->n_prefill_rows;
    x->all.n_decode_rows += step->n_decode_rows;
    x->all.n_decode_seqs += step->n_decode_seqs;
    x->all.prefill_attended += step->prefill_attended;
    x->all.decode_attended += step->decode_attended;
    x->all.n_logit_rows += step->n_logit_rows;
    if (rows > x->most_rows) x->most_rows = rows;
    if (step->n_running > x->most_running) x->most_running = step->n_running;
}

/* Four requests of 300 + 9 tokens, nothing shared: every token but each one's last is computed once, and sees
 * all before it and itself. */
static void test_step_figures(void **state) {
    struct fixture *f = *state;
    enum { N = 4, PROMPT = 300, TOKENS = 9 };
    struct step_sums sums = {0};
    struct quire_step_reader reader = {add_step, &sums};
    f->config.step_reader = &reader;
    struct quire_engine *e = test_open(&f->config);
    static uint32_t prompts[N][PROMPT];
    struct quire_request q[N];
    struct test_result r[N];
    for (size_t i = 0; i < N; i++) q[i] = request(prompts[i], PROMPT, TOKENS, 70 + i);
    test_run(e, q, N, &f->model, r);
    test_baseline(e, N);
    assert_int_equal(sums.n_steps, atomic_load(&quire_stats(e)->steps));
    assert_int_equal(sums.all.n_prefill_rows, N * PROMPT);
    assert_int_equal(sums.all.n_decode_rows, N * (TOKENS - 1));
    assert_int_equal(sums.all.n_decode_seqs, N * (TOKENS - 1));
    assert_int_equal(sums.all.n_logit_rows, N * TOKENS);
    size_t attended = 0;
    for (size_t p = PROMPT; p < PROMPT + TOKENS - 1; p++) attended += p + 1;
    assert_int_equal(sums.all.prefill_attended, N * (size_t)PROMPT * (PROMPT + 1) / 2);
    assert_int_equal(sums.all.decode_attended, N * attended);
    assert_true(sums.most_rows <= f->config.max_num_batched_tokens && sums.most_running <= N);
    test_results_free(r, N);
    quire_shutdown(e);
}

int main(void) {
    const struct CMUnitTest tests[] = {
#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
        TEST(test_known_load),
        TEST(test_cache_figures),
        TEST(test_waste),
        TEST(test_memory_is_steady),
        TEST(test_steps_allocate_nothing),
        cmocka_unit_test(test_counts_against_naive),
        TEST(test_penalties_take_effect),
        TEST(test_step_figures),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
