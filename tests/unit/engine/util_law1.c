#include "util_law1.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { N_FIRST = LAW1_REQUESTS - LAW1_SECOND, N_SHARED = 4 };

static void *keep(struct law1_model *m, size_t bytes) {
    void *p = calloc(1, bytes);
    assert_non_null(p);
    m->memory[m->n_memory++] = p;
    return p;
}

/* ---- the workload ----------------------------------------------------------------------------------------
 */

static size_t random_length(struct law1_model *m, uint64_t *random) {
    size_t kind = test_random(random, 8);
    if (kind == 0) return 1 + test_random(random, 3);
    if (kind == 1) return 16 * (1 + test_random(random, (uint32_t)(m->max_prompt / 16))); /* whole blocks */
    if (kind == 2) return 1 + test_random(random, (uint32_t)m->max_prompt);
    return 1 + test_random(random, (uint32_t)(m->max_prompt / 5));
}

static void set_prompt(struct law1_model *m, struct quire_request *q, uint32_t *const *shared,
                       uint64_t *random) {
    size_t n = random_length(m, random), common = 0;
    uint32_t *prompt = keep(m, n * sizeof *prompt);
    const uint32_t *from = shared[test_random(random, N_SHARED)];
    if (test_random(random, 3)) common = test_random(random, (uint32_t)n + 1);
    for (size_t i = 0; i < n; i++)
        prompt[i] = i < common ? from[i] : 3 + test_random(random, (uint32_t)m->n_vocab - 3);
    q->prompt = prompt;
    q->n_prompt = n;
}

static void set_stops(struct law1_model *m, struct quire_sampling *s, uint64_t *random) {
    static const char *const texts[] = {"ab", "dca", "bbcb", "a", "cdcd"};
    struct quire_str *stop = keep(m, 2 * sizeof *stop);
    for (size_t i = 0; i < 2; i++) {
        const char *text = texts[test_random(random, 5)];
        stop[i] = (struct quire_str){text, strlen(text)};
    }
    s->stop = stop;
    s->n_stop = 1 + test_random(random, 2);
    s->include_stop = test_random(random, 4) == 0;
}

static void set_sampling(struct law1_model *m, struct quire_request *q, uint64_t *random) {
    struct quire_sampling *s = &q->sampling;
    *s = test_greedy(1 + test_random(random, (uint32_t)m->max_output));
    if (test_random(random, 2)) {
        s->temperature = 0.5f + 0.01f * (float)test_random(random, 100);
        s->has_seed = true;
        s->seed = test_random(random, 5);
        if (test_random(random, 2)) s->top_k = (int32_t)test_random(random, 60);
        if (test_random(random, 2)) s->top_p = 0.5f + 0.005f * (float)test_random(random, 100);
        if (test_random(random, 3) == 0) s->min_p = 0.05f;
    }
    if (test_random(random, 3) == 0) {
        s->repetition_penalty = 1.0f + 0.01f * (float)test_random(random, 30);
        s->presence_penalty = 0.01f * (float)test_random(random, 100);
        s->frequency_penalty = -0.5f + 0.01f * (float)test_random(random, 100);
    }
    if (test_random(random, 2)) s->n_logprobs = (int)test_random(random, 6);
    if (test_random(random, 6) == 0) {
        s->n_prompt_logprobs = (int)test_random(random, 4);
        uint64_t own = q->n_prompt;
        s->first_prompt_logprob = test_random(&own, (uint32_t)q->n_prompt);
    }
    if (test_random(random, 10) == 0) s->max_tokens = 0;
    if (test_random(random, 5) == 0) s->min_tokens = test_random(random, (uint32_t)s->max_tokens + 1);
    if (test_random(random, 2)) s->ignore_eos = true;
    if (test_random(random, 4) == 0) set_stops(m, s, random);
    if (test_random(random, 5) == 0) {
        struct quire_bias *bias = keep(m, 3 * sizeof *bias);
        for (size_t i = 0; i < 3; i++)
            bias[i] = (struct quire_bias){3 + test_random(random, 60), (float)test_random(random, 20) - 10};
        s->bias = bias;
        s->n_bias = 3;
    }
    if (test_random(random, 6) == 0) q->cache_salt = "tenant";
    if (test_random(random, 12) == 0) q->skip_prefix_cache = true;
    q->priority = (int32_t)test_random(random, 3);
}

/* Every eighth request and the two behind it: three choices of one call. */
static void set_choices(struct law1_model *m) {
    for (size_t i = 0; i + 2 < N_FIRST; i += 8) {
        m->requests[i].sampling.has_seed = true;
        m->requests[i].sampling.temperature = 1;
        for (uint32_t k = 1; k < 3; k++) {
            m->requests[i + k] = m->requests[i];
            m->requests[i + k].choice = k;
        }
    }
}

static void set_second_turn(struct law1_model *m, size_t i, uint64_t *random) {
    size_t of = test_random(random, N_FIRST), n_new = 1 + test_random(random, 30);
    const struct quire_request *q = &m->requests[of];
    const struct test_result *r = &m->alone[of];
    size_t n = q->n_prompt + r->n + n_new;
    uint32_t *prompt = keep(m, n * sizeof *prompt);
    memcpy(prompt, q->prompt, q->n_prompt * sizeof *prompt);
    memcpy(prompt + q->n_prompt, r->tokens, r->n * sizeof *prompt);
    for (size_t k = n - n_new; k < n; k++) prompt[k] = 3 + test_random(random, (uint32_t)m->n_vocab - 3);
    m->requests[i].prompt = prompt;
    m->requests[i].n_prompt = n;
    set_sampling(m, &m->requests[i], random);
    m->requests[i].cache_salt = q->cache_salt;
}

/* ---- running ----------------------------------------------------------------------------------------------
 */

static size_t longest(const struct law1_model *m) {
    return m->max_prompt + 2 * m->max_output + 32;
}

static struct quire_engine *open_for(struct law1_model *m, const struct law1_setup *s) {
    struct quire_config c = test_config(&m->model);
    size_t bt = s->block_tokens ? s->block_tokens : 16;
    c.dtype = m->dtype;
    c.cpu_limit = m->cpu;
    c.max_model_len = longest(m);
    c.max_num_seqs = s->max_seqs;
    c.max_num_batched_tokens = s->budget;
    c.long_prefill_threshold = s->long_prefill;
    c.block_tokens = bt;
    c.n_threads = s->n_threads;
    c.prefix_caching = s->cache;
    c.chunked_prefill = !s->unchunked;
    c.policy = s->by_priority ? QUIRE_PRIORITY : QUIRE_FCFS;
    c.static_batching = s->batch;
    c.reserve_kv = s->reserve;
    size_t blocks = s->tight ? m->tight_blocks : (longest(m) / 16 + 1) * 24;
    if (s->unchunked && blocks < longest(m) / 16 + 2) blocks = longest(m) / 16 + 2; /* of a window, too */
    size_t page = bt * m->kv_floats * (m->dtype == QUIRE_FLOAT32 ? 4 : 2);
    c.kv_bytes = (uint64_t)(blocks * 16 / bt + 1) * ((page + 4095) / 4096 * 4096);
    return test_open(&c);
}

void law1_prepare(struct law1_model *m, uint64_t seed) {
    uint64_t random = seed;
    uint32_t *shared[N_SHARED];
    for (size_t k = 0; k < N_SHARED; k++) {
        shared[k] = keep(m, m->max_prompt * sizeof(uint32_t));
        for (size_t i = 0; i < m->max_prompt; i++)
            shared[k][i] = 3 + test_random(&random, (uint32_t)m->n_vocab - 3);
    }
    for (size_t i = 0; i < N_FIRST; i++) {
        set_prompt(m, &m->requests[i], shared, &random);
        set_sampling(m, &m->requests[i], &random);
    }
    set_choices(m);
    struct law1_setup alone = {.budget = 8192, .max_seqs = 1, .n_threads = 1};
    struct quire_engine *e = open_for(m, &alone);
    for (size_t i = 0; i < LAW1_REQUESTS; i++) {
        if (i >= N_FIRST) set_second_turn(m, i, &random);
        test_run(e, &m->requests[i], 1, &m->model, &m->alone[i]);
    }
    test_baseline(e, LAW1_REQUESTS);
    quire_shutdown(e);
}

static void describe(const struct law1_model *m, const struct law1_setup *s, size_t i, const char *what) {
    fail_msg("%s %s: %s of request %zu differ (prompt %zu, budget %zu, %zu sequences, %zu threads, %zu "
             "blocks of %zu, "
             "cache %d, chunked %d, priority %d, static batch %d, reserved %d)",
             m->name, m->cpu ? m->cpu : "best", what, i, m->requests[i].n_prompt, s->budget, s->max_seqs,
             s->n_threads, s->tight ? m->tight_blocks : 0, s->block_tokens ? s->block_tokens : 16, s->cache,
             !s->unchunked, s->by_priority, s->batch, s->reserve);
}

void law1_check(struct law1_model *m, const struct law1_setup *s) {
    static struct test_result together[LAW1_REQUESTS];
    struct quire_engine *e = open_for(m, s);
    test_run(e, m->requests, N_FIRST, &m->model, together);
    test_run(e, m->requests + N_FIRST, LAW1_SECOND, &m->model, together + N_FIRST);
    for (size_t i = 0; i < LAW1_REQUESTS; i++) {
        const char *what = test_difference(&m->alone[i], &together[i]);
        if (what) describe(m, s, i, what);
    }
    test_baseline(e, LAW1_REQUESTS);
    const struct quire_stats *st = quire_stats(e);
    if (s->tight) {
        m->n_tight++;
        m->n_preemptions += atomic_load(&st->preemptions);
    }
    if (s->cache && !s->tight)
        assert_true(atomic_load(&st->prefix_hits) > 0 && atomic_load(&st->block_copies) > 0);
    if (!s->cache) assert_int_equal(atomic_load(&st->prefix_hits), 0);
    test_results_free(together, LAW1_REQUESTS);
    quire_shutdown(e);
}

void law1_free(struct law1_model *m) {
    printf("%s %s: %zu preemptions in %zu tight setups\n", m->name, m->cpu ? m->cpu : "best",
           m->n_preemptions, m->n_tight);
    if (m->n_tight > 1) assert_true(m->n_preemptions > 0);
    test_results_free(m->alone, LAW1_REQUESTS);
    for (size_t i = 0; i < m->n_memory; i++) free(m->memory[i]);
    test_model_free(&m->model);
}
