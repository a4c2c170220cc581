/* Coming and going: cancels at every stage, slow readers, wakers, idleness, health, a storm of submissions
 * and cancels from several threads, shutting down. */
#include "util_engine.h"

#include <pthread.h>
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
    struct quire_engine *engine;
    uint32_t prompt[600];
};

static int set_up(void **state) {
    struct fixture *f = calloc(1, sizeof *f);
    uint64_t random = 1;
    assert_non_null(f);
    f->options = tiny_model_defaults();
    f->options.n_layers = 2;
    f->options.n_vocab = 300;
    f->model = test_model_make(&f->options);
    f->config = test_config(&f->model);
    f->engine = test_open(&f->config);
    for (size_t i = 0; i < 600; i++) f->prompt[i] = 3 + test_random(&random, 290);
    *state = f;
    return 0;
}

static int tear_down(void **state) {
    struct fixture *f = *state;
    test_baseline(f->engine, SIZE_MAX);
    quire_shutdown(f->engine);
    test_model_free(&f->model);
    free(f);
    return 0;
}

static void sleep_ms(long ms) {
    nanosleep(&(struct timespec){ms / 1000, ms % 1000 * 1000000}, NULL);
}

static struct quire_request long_request(struct fixture *f, size_t n_prompt, size_t max_tokens) {
    struct quire_request q = {.prompt = f->prompt, .n_prompt = n_prompt, .sampling = test_greedy(max_tokens)};
    q.sampling.ignore_eos = true;
    return q;
}

static struct quire_stream *submit(struct quire_engine *e, struct quire_request q) {
    struct quire_stream *s;
    struct error err;
    if (quire_submit(e, &q, &s, &err)) fail_msg("%s", err.text);
    return s;
}

/* Reads on to the last event. */
static enum quire_finish finish_of(struct quire_stream *s, size_t *n_tokens) {
    struct quire_event ev;
    *n_tokens = 0;
    do {
        assert_int_equal(quire_wait(s, &ev, 60000000), 1);
        *n_tokens += ev.has_token;
    } while (ev.finish == QUIRE_RUNNING);
    return ev.finish;
}

static uint64_t stat(const _Atomic uint64_t *v) {
    return atomic_load(v);
}

/* ---- cancels ---------------------------------------------------------------------------------------------
 */

static void test_cancel_while_running(void **state) {
    struct fixture *f = *state;
    struct quire_stream *s = submit(f->engine, long_request(f, 20, 1000));
    struct quire_event ev;
    size_t n;
    assert_int_equal(quire_wait(s, &ev, 60000000), 1);
    quire_cancel(s);
    quire_cancel(s); /* twice is once */
    assert_int_equal(finish_of(s, &n), QUIRE_ABORT);
    assert_int_equal(quire_poll(s, &ev), 0);
    assert_int_equal(quire_usage(s).completion_tokens, n + 1);
    quire_close(s);
    test_baseline(f->engine, 1);
    assert_int_equal(stat(&quire_stats(f->engine)->finished[QUIRE_ABORT]), 1);
}

static void test_cancel_takes_effect_within_a_step(void **state) {
    struct fixture *f = *state;
    const struct quire_stats *st = quire_stats(f->engine);
    for (int i = 0; i < 20; i++) {
        struct quire_stream *s = submit(f->engine, long_request(f, 20, 1000));
        struct quire_event ev;
        assert_int_equal(quire_wait(s, &ev, 60000000), 1);
        quire_cancel(s);
        uint64_t steps = stat(&st->steps);
        size_t n;
        assert_int_equal(finish_of(s, &n), QUIRE_ABORT);
        test_baseline(f->engine, SIZE_MAX);
        assert_true(stat(&st->steps) - steps <= 1); /* the one that was under way */
        quire_close(s);
    }
}

static void test_cancel_while_queued(void **state) {
    struct fixture *f = *state;
    struct quire_config c = f->config;
    c.max_num_seqs = 1;
    struct quire_engine *e = test_open(&c);
    struct quire_stream *first = submit(e, long_request(f, 20, 300)),
                        *second = submit(e, long_request(f, 30, 10));
    struct quire_event ev;
    size_t n;
    assert_int_equal(quire_wait(first, &ev, 60000000), 1);
    quire_cancel(second);
    assert_int_equal(finish_of(second, &n), QUIRE_ABORT);
    assert_int_equal(n, 0);
    assert_int_equal(quire_usage(second).completion_tokens, 0);
    assert_int_equal(stat(&quire_stats(e)->running), 1);
    assert_int_equal(stat(&quire_stats(e)->prompt_tokens), 20); /* the other's was never computed */
    quire_close(second);
    assert_int_equal(finish_of(first, &n), QUIRE_LENGTH);
    assert_int_equal(n, 299);
    quire_close(first);
    test_baseline(e, 2);
    quire_shutdown(e);
}

static void test_close_without_reading(void **state) {
    struct fixture *f = *state;
    for (int i = 0; i < 50; i++) quire_close(submit(f->engine, long_request(f, 1 + (size_t)i * 10, 500)));
    quire_close(NULL);
    test_baseline(f->engine, 50);
}

static void test_cancel_after_the_end(void **state) {
    struct fixture *f = *state;
    struct quire_stream *s = submit(f->engine, long_request(f, 5, 3));
    size_t n;
    assert_int_equal(finish_of(s, &n), QUIRE_LENGTH);
    quire_cancel(s);
    quire_close(s);
    test_baseline(f->engine, 1);
    assert_int_equal(stat(&quire_stats(f->engine)->finished[QUIRE_ABORT]), 0);
}

static void test_shutdown_with_work_left(void **state) {
    struct fixture *f = *state;
    for (int round = 0; round < 5; round++) {
        struct quire_engine *e = test_open(&f->config);
        for (int i = 0; i < 20; i++) quire_close(submit(e, long_request(f, 300, 500)));
        quire_shutdown(e); /* at once: what is queued and running goes with it */
    }
}

/* ---- slow readers ----------------------------------------------------------------------------------------
 */

static void test_slow_reader_hurts_only_itself(void **state) {
    struct fixture *f = *state;
    struct quire_config c = f->config;
    c.max_num_seqs = 1;
    struct quire_engine *e = test_open(&c);
    struct test_result alone, late;
    struct quire_request q = long_request(f, 40, 900);
    test_run(f->engine, &q, 1, &f->model, &alone);
    struct quire_stream *slow = submit(e, q); /* never read until the others are through */
    for (int i = 0; i < 5; i++) {
        size_t n;
        struct quire_stream *s = submit(e, long_request(f, 10 + (size_t)i, 50));
        assert_int_equal(finish_of(s, &n), QUIRE_LENGTH);
        assert_int_equal(n, 50);
        quire_close(s);
    }
    assert_true(quire_usage(slow).completion_tokens < 900); /* bounded by its ring */
    sleep_ms(100);
    assert_true(quire_healthy(e, 50000)); /* nothing can be done, so nothing is overdue */
    late = (struct test_result){.tokens = calloc(900, sizeof(uint32_t))};
    struct quire_event ev;
    do {
        assert_int_equal(quire_wait(slow, &ev, 60000000), 1);
        late.tokens[late.n++] = ev.chosen.token;
        if (late.n % 97 == 0) sleep_ms(2); /* and stalls again */
    } while (ev.finish == QUIRE_RUNNING);
    assert_int_equal(late.n, 900);
    assert_memory_equal(late.tokens, alone.tokens, 900 * sizeof(uint32_t));
    assert_true(quire_usage(slow).preemptions >= 1);
    assert_int_equal(stat(&quire_stats(e)->prompt_tokens), 40 + 10 + 11 + 12 + 13 + 14); /* counted once */
    quire_close(slow);
    test_baseline(e, 6);
    quire_shutdown(e);
    free(late.tokens);
    test_results_free(&alone, 1);
}

static void test_slow_reader_can_leave(void **state) {
    struct fixture *f = *state;
    struct quire_stream *s = submit(f->engine, long_request(f, 40, 900));
    sleep_ms(100); /* the ring is full by now, or soon */
    size_t n;
    quire_cancel(s);
    assert_int_equal(finish_of(s, &n), QUIRE_ABORT); /* the last event has its own place */
    quire_close(s);
}

/* ---- waking ----------------------------------------------------------------------------------------------
 */

struct wakes {
    _Atomic size_t n;
};

static void count_wake(void *ctx) {
    atomic_fetch_add(&((struct wakes *)ctx)->n, 1);
}

static void test_one_wake_a_step(void **state) {
    struct fixture *f = *state;
    struct wakes wakes = {0};
    struct quire_waker waker = {count_wake, &wakes};
    struct quire_config c = f->config;
    struct quire_engine *e = test_open(&c);
    struct quire_stream *s[8];
    for (int i = 0; i < 8; i++) {
        struct quire_request q = long_request(f, 10, 20);
        q.waker = &waker;
        s[i] = submit(e, q);
    }
    for (int i = 0; i < 8; i++) {
        size_t n;
        finish_of(s[i], &n);
        assert_int_equal(n, 20);
        quire_close(s[i]);
    }
    test_baseline(e, 8);
    uint64_t steps = stat(&quire_stats(e)->steps);
    quire_shutdown(e);
    assert_true(atomic_load(&wakes.n) >= 20);
    assert_true(atomic_load(&wakes.n) <= steps); /* 160 events, not 160 wakes */
}

static void test_wait_times_out(void **state) {
    struct fixture *f = *state;
    struct quire_config c = f->config;
    c.max_num_seqs = 1;
    struct quire_engine *e = test_open(&c);
    struct quire_stream *first = submit(e, long_request(f, 10, 1000)),
                        *second = submit(e, long_request(f, 10, 10));
    struct quire_event ev;
    struct timespec a, b;
    quire_cancel(second);
    size_t n;
    finish_of(second, &n);
    clock_gettime(CLOCK_MONOTONIC, &a);
    assert_int_equal(quire_wait(second, &ev, 30000), 0);
    clock_gettime(CLOCK_MONOTONIC, &b);
    assert_true((b.tv_sec - a.tv_sec) * 1000 + (b.tv_nsec - a.tv_nsec) / 1000000 >= 29);
    quire_close(first);
    quire_close(second);
    test_baseline(e, 2);
    quire_shutdown(e);
}

static double cpu_seconds(void) {
    struct timespec t;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static void test_idle_costs_nothing(void **state) {
    struct fixture *f = *state;
    size_t n;
    struct quire_stream *s = submit(f->engine, long_request(f, 10, 5));
    finish_of(s, &n);
    quire_close(s);
    test_baseline(f->engine, 1);
    /* Population ends and spinning compute threads go to sleep, on a busy machine later than on an idle one.
     * A thread that went on spinning would take the whole of each window. */
    double used = 1;
    for (int i = 0; i < 60 && used > 0.05; i++) {
        double before = cpu_seconds();
        sleep_ms(500);
        used = cpu_seconds() - before;
    }
    assert_true(used <= 0.05);
    assert_true(quire_healthy(f->engine, 1000));
}

/* ---- health ----------------------------------------------------------------------------------------------
 */

static int slow_fill(void *state, uint32_t *mask, size_t n_vocab) {
    sleep_ms(400);
    mask[0] = 0xf8;
    return 0;
}

static int any_accept(void *state, uint32_t token) {
    return 0;
}

static void test_health_notices_a_stuck_step(void **state) {
    struct fixture *f = *state;
    struct quire_constraint c = {.fill_mask = slow_fill, .accept = any_accept};
    struct quire_request q = long_request(f, 5, 1);
    sleep_ms(150); /* idle for longer than the limit below: not a sign of trouble */
    assert_true(quire_healthy(f->engine, 100000));
    q.constraint = &c;
    struct quire_stream *s = submit(f->engine, q);
    assert_true(quire_healthy(f->engine, 100000));
    sleep_ms(250);
    assert_false(quire_healthy(f->engine, 100000));
    assert_true(quire_healthy(f->engine, 10000000));
    size_t n;
    finish_of(s, &n);
    quire_close(s);
    test_baseline(f->engine, 1);
    assert_true(quire_healthy(f->engine, 100000));
}

/* ---- storm -----------------------------------------------------------------------------------------------
 */

#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
enum { STORM_EACH = 300 };
#else
enum { STORM_EACH = 1000 };
#endif
enum { STORM_THREADS = 4 };

struct storm {
    struct fixture *f;
    uint64_t random;
    size_t n_accepted, n_refused, n_finished;
};

/* Submits, reads a little or all or nothing, cancels, closes: in any order that a server might. */
static void *storm_thread(void *arg) {
    struct storm *t = arg;
    enum { OPEN = 12 };
    struct quire_stream *open[OPEN] = {0};
    struct quire_event ev;
    for (int i = 0; i < STORM_EACH; i++) {
        size_t k = test_random(&t->random, OPEN);
        if (open[k]) {
            switch (test_random(&t->random, 4)) {
            case 0: quire_cancel(open[k]); break;
            case 1: quire_wait(open[k], &ev, 2000); break;
            default:
                while (quire_poll(open[k], &ev) && ev.finish == QUIRE_RUNNING) {}
            }
            quire_usage(open[k]);
            quire_close(open[k]);
            open[k] = NULL;
        }
        struct quire_request q =
            long_request(t->f, 1 + test_random(&t->random, 120), 1 + test_random(&t->random, 60));
        struct error err;
        q.cache_salt = test_random(&t->random, 3) ? NULL : "x";
        q.sampling.n_logprobs = (int)test_random(&t->random, 4) - 1;
        if (quire_submit(t->f->engine, &q, &open[k], &err)) {
            t->n_refused++;
            nanosleep(&(struct timespec){0, 500000}, NULL);
        } else {
            t->n_accepted++;
        }
        if (open[k] && !test_random(&t->random, 3)) quire_cancel(open[k]);
    }
    for (int k = 0; k < OPEN; k++) quire_close(open[k]);
    return NULL;
}

static void test_storm_of_cancels(void **state) {
    struct fixture *f = *state;
    struct quire_config c = f->config;
    c.max_queue = 30; /* refusals too */
    c.n_threads = 2;
    c.kv_bytes = test_kv_bytes(&c, &f->options, 40); /* and preemptions */
    struct quire_engine *first = f->engine;
    f->engine = test_open(&c);
    pthread_t threads[STORM_THREADS];
    struct storm storms[STORM_THREADS];
    size_t n_accepted = 0;
    for (int i = 0; i < STORM_THREADS; i++) {
        storms[i] = (struct storm){.f = f, .random = (uint64_t)i * 77};
        assert_int_equal(pthread_create(&threads[i], NULL, storm_thread, &storms[i]), 0);
    }
    for (int i = 0; i < STORM_THREADS; i++) {
        pthread_join(threads[i], NULL);
        n_accepted += storms[i].n_accepted;
    }
    test_baseline(f->engine, n_accepted);
    printf("storm: %zu accepted, %llu finished, %llu aborted\n", n_accepted,
           (unsigned long long)stat(&quire_stats(f->engine)->finished[QUIRE_LENGTH]),
           (unsigned long long)stat(&quire_stats(f->engine)->finished[QUIRE_ABORT]));
    quire_shutdown(f->engine);
    f->engine = first;
}

/* ---- tenants ---------------------------------------------------------------------------------------------
 */

enum { TENANT_WORK = 24, TENANT_THREADS = 8, TENANT_TOKENS = 90 };

struct tenants {
    struct fixture *f;
    uint32_t prompts[TENANT_WORK][TENANT_TOKENS];
    struct quire_request requests[TENANT_WORK];
    struct test_result alone[TENANT_WORK];
};

struct tenant_thread {
    struct tenants *t;
    uint64_t random;
    const char *difference;
};

static void *tenant_main(void *arg) {
    struct tenant_thread *a = arg;
    for (int i = 0; i < STORM_EACH / 4; i++) {
        size_t k = test_random(&a->random, TENANT_WORK);
        struct test_result r;
        test_run(a->t->f->engine, &a->t->requests[k], 1, &a->t->f->model, &r);
        const char *difference = test_difference(&r, &a->t->alone[k]);
        if (difference) a->difference = difference;
        test_results_free(&r, 1);
    }
    return NULL;
}

/* Two tenants with different system prompts and long equal parts behind them, eight clients, a cache so small
 * that blocks are evicted all the time: every answer is that of a run without the cache. */
static void test_tenants_do_not_leak(void **state) {
    struct fixture *f = *state;
    static struct tenants t;
    struct quire_engine *first = f->engine;
    struct quire_config c = f->config;
    t.f = f;
    for (size_t k = 0; k < TENANT_WORK; k++) {
        memcpy(t.prompts[k], f->prompt + 90 * (k / 2 % 3), sizeof t.prompts[k]);
        for (size_t i = 0; i < 16; i++) t.prompts[k][i] = 3 + (uint32_t)((k % 2 * 37 + i * 11) % 290);
        t.prompts[k][TENANT_TOKENS - 1] = 3 + (uint32_t)k;
        t.requests[k] = (struct quire_request){.prompt = t.prompts[k],
                                               .n_prompt = TENANT_TOKENS,
                                               .sampling = test_greedy(8),
                                               .cache_salt = k % 2 ? "b" : "a"};
        if (k >= TENANT_WORK / 2) t.requests[k].cache_salt = NULL; /* and without salts */
        t.requests[k].sampling.n_logprobs = 2;
    }
    c.prefix_caching = false;
    f->engine = test_open(&c);
    for (size_t k = 0; k < TENANT_WORK; k++) test_run(f->engine, &t.requests[k], 1, &f->model, &t.alone[k]);
    quire_shutdown(f->engine);
    c.prefix_caching = true;
    c.kv_bytes = test_kv_bytes(&c, &f->options, 20);
    f->engine = test_open(&c);
    pthread_t threads[TENANT_THREADS];
    struct tenant_thread args[TENANT_THREADS];
    for (uint64_t i = 0; i < TENANT_THREADS; i++) {
        args[i] = (struct tenant_thread){&t, i, NULL};
        assert_int_equal(pthread_create(&threads[i], NULL, tenant_main, &args[i]), 0);
    }
    for (int i = 0; i < TENANT_THREADS; i++) pthread_join(threads[i], NULL);
    for (int i = 0; i < TENANT_THREADS; i++)
        if (args[i].difference) fail_msg("%s", args[i].difference);
    const struct quire_stats *st = quire_stats(f->engine);
    printf("tenants: %llu evictions, %llu of %llu tokens found\n",
           (unsigned long long)stat(&st->block_evictions), (unsigned long long)stat(&st->prefix_hits),
           (unsigned long long)stat(&st->prefix_queries));
    assert_true(stat(&st->block_evictions) > 0 && stat(&st->prefix_hits) > 0);
    test_baseline(f->engine, TENANT_THREADS * (STORM_EACH / 4));
    quire_shutdown(f->engine);
    f->engine = first;
    test_results_free(t.alone, TENANT_WORK);
}

/* ---- preemption ------------------------------------------------------------------------------------------
 */

/* KV for 2,000 tokens, 20 requests of 900 + 900, shortened to about a fifth: all finish, equal to each alone.
 */
static void test_preempted_requests_finish_alike(void **state) {
    struct fixture *f = *state;
    struct quire_config c = f->config;
    enum { N = 20, TOKENS = 180 };
    static struct test_result alone[N], together[N];
    static uint32_t prompts[N][TOKENS];
    struct quire_request q[N];
    uint64_t random = 5;
    size_t n_preempted = 0;
    for (int i = 0; i < N; i++) {
        for (int k = 0; k < TOKENS; k++) prompts[i][k] = 3 + test_random(&random, 290);
        q[i] = long_request(f, TOKENS, TOKENS);
        q[i].prompt = prompts[i];
        q[i].sampling.n_logprobs = 1;
        test_run(f->engine, &q[i], 1, &f->model, &alone[i]);
    }
    c.kv_bytes = test_kv_bytes(&c, &f->options, 30); /* 480 tokens */
    struct quire_engine *e = test_open(&c);
    test_run(e, q, N, &f->model, together);
    for (int i = 0; i < N; i++) {
        const char *difference = test_difference(&alone[i], &together[i]);
        if (difference) fail_msg("request %d: %s", i, difference);
        assert_true(together[i].usage.preemptions < 5);
        n_preempted += together[i].usage.preemptions;
    }
    assert_true(n_preempted > 0);
    assert_int_equal(stat(&quire_stats(e)->preemptions), n_preempted);
    assert_int_equal(stat(&quire_stats(e)->prompt_tokens), N * TOKENS);
    assert_int_equal(stat(&quire_stats(e)->generation_tokens), N * TOKENS);
    test_baseline(e, N);
    quire_shutdown(e);
    test_results_free(alone, N);
    test_results_free(together, N);
}

int main(void) {
    const struct CMUnitTest tests[] = {
#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
        TEST(test_cancel_while_running),
        TEST(test_cancel_takes_effect_within_a_step),
        TEST(test_cancel_while_queued),
        TEST(test_close_without_reading),
        TEST(test_cancel_after_the_end),
        TEST(test_shutdown_with_work_left),
        TEST(test_slow_reader_hurts_only_itself),
        TEST(test_slow_reader_can_leave),
        TEST(test_one_wake_a_step),
        TEST(test_wait_times_out),
        TEST(test_idle_costs_nothing),
        TEST(test_health_notices_a_stuck_step),
        TEST(test_storm_of_cancels),
        TEST(test_tenants_do_not_leak),
        TEST(test_preempted_requests_finish_alike),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
