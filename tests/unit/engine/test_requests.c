/* Requests through quire.h on a tiny model: what is refused and with which words, how answers end, scores,
 * seeds, the prefix cache as a caller sees it. */
#include "util_engine.h"

#include <quire/score.h>

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define L 128u /* max_model_len here */

struct fixture {
    struct tiny_model_options options;
    struct test_model model;
    struct quire_config config;
    struct quire_engine *engine;
};

static int set_up(void **state) {
    struct fixture *f = calloc(1, sizeof *f);
    assert_non_null(f);
    f->options = tiny_model_defaults();
    f->options.n_layers = 2;
    f->options.n_vocab = 300;
    f->model = test_model_make(&f->options);
    f->config = test_config(&f->model);
    f->config.max_model_len = L;
    f->engine = test_open(&f->config);
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

static uint32_t prompt_of(uint32_t *p, size_t n, uint64_t seed) {
    for (size_t i = 0; i < n; i++) p[i] = 3 + test_random(&seed, 290);
    return p[0];
}

static struct test_result run(struct fixture *f, struct quire_request q) {
    struct test_result r;
    test_run(f->engine, &q, 1, &f->model, &r);
    return r;
}

/* ---- refusals --------------------------------------------------------------------------------------------
 */

static void refused(struct fixture *f, struct quire_request q, int code, const char *param,
                    const char *words) {
    struct quire_stream *s = (void *)1;
    struct error err = {0};
    assert_int_equal(quire_submit(f->engine, &q, &s, &err), code);
    assert_int_equal(err.code, code);
    assert_null(s);
    assert_non_null(err.param);
    assert_string_equal(err.param, param);
    if (words && !strstr(err.text, words)) fail_msg("\"%s\" lacks \"%s\"", err.text, words);
}

static void test_bad_values_are_named(void **state) {
    struct fixture *f = *state;
    static const uint32_t bad_id[] = {5, 300};
    static const struct quire_bias bad_bias[] = {{300, 1}}, nan_bias[] = {{5, __builtin_nanf("")}};
    static const struct quire_str empty[] = {{"", 0}}, many[17] = {{"a", 1}}, long_one[] = {{"x", 1025}};
    const float nan = __builtin_nanf(""), inf = __builtin_inff();
    uint32_t p[4] = {5, 6, 7, 8};
    struct quire_request good = {.prompt = p, .n_prompt = 4, .sampling = test_greedy(4)}, q;
#define REFUSED(field, value, name, words)                                                                   \
    q = good;                                                                                                \
    q.field = value;                                                                                         \
    refused(f, q, QUIRE_EINVAL, name, words)
    REFUSED(n_prompt, 0, "prompt", "no tokens");
    REFUSED(sampling.temperature, nan, "temperature", "finite");
    REFUSED(sampling.temperature, inf, "temperature", "finite");
    REFUSED(sampling.temperature, -0.1f, "temperature", "-0.1");
    REFUSED(sampling.top_p, 0, "top_p", "above 0 and at most 1");
    REFUSED(sampling.top_p, 1.5f, "top_p", "1.5");
    REFUSED(sampling.top_p, nan, "top_p", NULL);
    REFUSED(sampling.min_p, -1, "min_p", "-1");
    REFUSED(sampling.min_p, 2, "min_p", NULL);
    REFUSED(sampling.top_k, -2, "top_k", "-2");
    REFUSED(sampling.repetition_penalty, 0, "repetition_penalty", "above 0");
    REFUSED(sampling.repetition_penalty, inf, "repetition_penalty", NULL);
    REFUSED(sampling.presence_penalty, 2.1f, "presence_penalty", "2.1");
    REFUSED(sampling.frequency_penalty, -3, "frequency_penalty", "-3");
    REFUSED(sampling.n_logprobs, 21, "logprobs", "20");
    REFUSED(sampling.n_prompt_logprobs, -2, "prompt_logprobs", NULL);
    REFUSED(sampling.first_prompt_logprob, 4, "first_prompt_logprob", "4 tokens");
    REFUSED(sampling.first_prompt_logprob, 3, "first_prompt_logprob", "prompt_logprobs must be asked for");
    REFUSED(score_reader, &(struct quire_score_reader){0}, "score_reader", "prompt_logprobs");
    REFUSED(sampling.min_tokens, 5, "min_tokens", "max_tokens 4");
    q = good;
    q.prompt = bad_id;
    q.n_prompt = 2;
    refused(f, q, QUIRE_EINVAL, "prompt", "300");
    q = good;
    q.sampling.stop_token_ids = bad_id;
    q.sampling.n_stop_token_ids = 2;
    refused(f, q, QUIRE_EINVAL, "stop_token_ids", "300");
    q = good;
    q.sampling.n_bias = 1;
    q.sampling.bias = bad_bias;
    refused(f, q, QUIRE_EINVAL, "logit_bias", "300");
    q.sampling.bias = nan_bias;
    refused(f, q, QUIRE_EINVAL, "logit_bias", "finite");
    q = good;
    q.sampling.stop = empty;
    q.sampling.n_stop = 1;
    refused(f, q, QUIRE_EINVAL, "stop", "0 bytes");
    q.sampling.stop = long_one;
    refused(f, q, QUIRE_EINVAL, "stop", "1025");
    q.sampling.stop = many;
    q.sampling.n_stop = 17;
    refused(f, q, QUIRE_EINVAL, "stop", "17");
    q = good;
    q.adapter = "lora";
    refused(f, q, QUIRE_EUNSUPPORTED, "adapter", NULL);
    good.sampling.ignore_eos = true;
    struct test_result r = run(f, good); /* after all that */
    assert_int_equal(r.n, 4);
    test_results_free(&r, 1);
}

/* Prompts of L - 1, L and L + 1 tokens with every kind of max_tokens; all numbers in the text are true. */
static void test_context_limit(void **state) {
    struct fixture *f = *state;
    uint32_t p[L + 1];
    struct test_result r;
    prompt_of(p, L + 1, 1);
    struct quire_request q = {.prompt = p, .n_prompt = L - 1, .sampling = test_greedy(1)};
    q.sampling.ignore_eos = true;
    r = run(f, q);
    assert_int_equal(r.n, 1);
    assert_int_equal(r.finish, QUIRE_LENGTH);
    test_results_free(&r, 1);
    q.sampling.max_tokens = SIZE_MAX; /* the room left */
    r = run(f, q);
    assert_int_equal(r.n, 1);
    test_results_free(&r, 1);
    q.sampling.max_tokens = 2;
    refused(f, q, QUIRE_ELIMIT, "max_tokens", "127 tokens and max_tokens is 2, the context length is 128");
    q.sampling.max_tokens = L;
    refused(f, q, QUIRE_ELIMIT, "max_tokens", "max_tokens is 128");
    q.n_prompt = L;
    q.sampling.max_tokens = 1;
    refused(f, q, QUIRE_ELIMIT, "max_tokens", "128 tokens and max_tokens is 1, the context length is 128");
    q.sampling.max_tokens = SIZE_MAX;
    refused(f, q, QUIRE_ELIMIT, "prompt", "leaves no room");
    q.sampling.max_tokens = 0;
    q.sampling.n_prompt_logprobs = 0;
    r = run(f, q);
    assert_int_equal(r.n, 0);
    assert_int_equal(r.finish, QUIRE_LENGTH);
    test_results_free(&r, 1);
    q.n_prompt = L + 1;
    refused(f, q, QUIRE_ELIMIT, "prompt", "129 tokens, the context length is 128");
    q.n_prompt = 1;
    q.sampling = test_greedy(SIZE_MAX);
    q.sampling.ignore_eos = true;
    r = run(f, q);
    assert_int_equal(r.n, L - 1);
    test_results_free(&r, 1);
}

static void test_pool_limit(void **state) {
    struct fixture *f = *state;
    struct quire_config c = f->config;
    uint32_t p[L];
    c.kv_bytes = test_kv_bytes(&c, &f->options, 4); /* 64 tokens */
    struct fixture small = {.model = f->model, .engine = test_open(&c)};
    prompt_of(p, L, 2);
    struct quire_request q = {.prompt = p, .n_prompt = 60, .sampling = test_greedy(5)};
    refused(&small, q, QUIRE_ELIMIT, "max_tokens", "60 tokens and max_tokens is 5, the KV memory holds 64");
    q.n_prompt = 65;
    refused(&small, q, QUIRE_ELIMIT, "prompt", "65 tokens, the KV memory holds 64");
    q.n_prompt = 60;
    q.sampling.max_tokens = 4;
    q.sampling.ignore_eos = true;
    struct test_result r = run(&small, q);
    assert_int_equal(r.n, 4);
    test_results_free(&r, 1);
    quire_shutdown(small.engine);
}

static void test_queue_limit(void **state) {
    struct fixture *f = *state;
    struct quire_config c = f->config;
    uint32_t p[4];
    struct quire_stream *s[4];
    struct error err;
    c.max_num_seqs = 1;
    c.max_queue = 2;
    c.max_model_len = 512; /* for more tokens than a ring holds */
    struct quire_engine *e = test_open(&c);
    prompt_of(p, 4, 3);
    struct quire_request q = {.prompt = p, .n_prompt = 4, .sampling = test_greedy(400)};
    q.sampling.ignore_eos = true;
    for (int i = 0; i < 3; i++) assert_int_equal(quire_submit(e, &q, &s[i], &err), 0);
    /* The rings are not read, so none of them can finish. */
    assert_int_equal(quire_submit(e, &q, &s[3], &err), QUIRE_EBUSY);
    assert_non_null(strstr(err.text, "3 requests"));
    assert_int_equal(atomic_load(&quire_stats(e)->queue_rejections), 1);
    for (int i = 0; i < 3; i++) quire_close(s[i]);
    test_baseline(e, 3);
    assert_int_equal(quire_submit(e, &q, &s[3], &err), 0);
    quire_close(s[3]);
    test_baseline(e, 4);
    quire_shutdown(e);
}

/* ---- ends ------------------------------------------------------------------------------------------------
 */

static void test_end_of_sequence(void **state) {
    struct fixture *f = *state;
    static const struct quire_bias to_eos[] = {{2, 1000}}, to_nine[] = {{9, 1000}};
    static const uint32_t nine[] = {9};
    uint32_t p[4];
    prompt_of(p, 4, 4);
    struct quire_request q = {.prompt = p, .n_prompt = 4, .sampling = test_greedy(10)};
    q.sampling.bias = to_eos;
    q.sampling.n_bias = 1;
    struct test_result r = run(f, q);
    assert_int_equal(r.finish, QUIRE_STOP);
    assert_int_equal(r.stop_token, 2);
    assert_int_equal(r.n, 1); /* it was generated, and counts */
    assert_int_equal(r.text_len, 0);
    assert_int_equal(r.trim, 0);
    assert_null(r.stop_reason);
    test_results_free(&r, 1);
    q.sampling.min_tokens = 5;
    r = run(f, q);
    assert_int_equal(r.n, 6);
    for (size_t i = 0; i < 5; i++) assert_int_not_equal(r.tokens[i], 2);
    assert_int_equal(r.stop_token, 2);
    test_results_free(&r, 1);
    q.sampling.min_tokens = 0;
    q.sampling.ignore_eos = true;
    r = run(f, q);
    assert_int_equal(r.n, 10);
    assert_int_equal(r.finish, QUIRE_LENGTH);
    assert_int_equal(r.tokens[9], 2);
    test_results_free(&r, 1);
    q.sampling.bias = to_nine; /* a token with text: not part of the output when it stops */
    q.sampling.stop_token_ids = nine;
    q.sampling.n_stop_token_ids = 1;
    r = run(f, q);
    assert_int_equal(r.finish, QUIRE_STOP);
    assert_int_equal(r.stop_token, 9);
    assert_int_equal(r.text_len, 0);
    test_results_free(&r, 1);
}

/* Where the first stop string is complete in text, and where it begins; false if there is none. */
static bool find_stop(const char *text, size_t n, const struct quire_str *stop, size_t n_stop, size_t *begin,
                      size_t *end) {
    for (*end = 1; *end <= n; ++*end) {
        size_t longest = 0;
        for (size_t i = 0; i < n_stop; i++)
            if (stop[i].len <= *end && stop[i].len > longest &&
                !memcmp(text + *end - stop[i].len, stop[i].data, stop[i].len))
                longest = stop[i].len;
        *begin = *end - longest;
        if (longest) return true;
    }
    return false;
}

static void test_stop_strings(void **state) {
    struct fixture *f = *state;
    uint32_t p[6];
    prompt_of(p, 6, 5);
    struct quire_request q = {.prompt = p, .n_prompt = 6, .sampling = test_greedy(40)};
    q.sampling.ignore_eos = true;
    struct test_result whole = run(f, q);
    uint64_t random = 8;
    assert_true(whole.text_len > 50);
    for (int round = 0; round < 150; round++) {
        struct quire_str stop[2];
        size_t begin = 0, end = 0, n_tokens = 0, n_bytes = 0;
        for (int i = 0; i < 2; i++) {
            size_t len = 1 + test_random(&random, 9),
                   at = test_random(&random, (uint32_t)(whole.text_len - len));
            stop[i] = (struct quire_str){whole.text + at, len};
            if (!test_random(&random, 4))
                stop[i] = (struct quire_str){"abcabcabcabcx", len + 4}; /* false starts */
        }
        q.sampling.stop = stop;
        q.sampling.n_stop = 1 + test_random(&random, 2);
        q.sampling.include_stop = !test_random(&random, 3);
        bool found = find_stop(whole.text, whole.text_len, stop, q.sampling.n_stop, &begin, &end);
        struct test_result r = run(f, q);
        size_t len = !found ? whole.text_len : q.sampling.include_stop ? end : begin;
        assert_int_equal(r.finish, found ? QUIRE_STOP : QUIRE_LENGTH);
        assert_int_equal(r.text_len, len);
        assert_memory_equal(r.text, whole.text, len);
        if (q.sampling.include_stop) assert_int_equal(r.held_max, 0);
        while (found && n_bytes < end) {
            uint32_t id = whole.tokens[n_tokens++];
            n_bytes += f->model.bytes.offsets[id + 1] - f->model.bytes.offsets[id];
        }
        if (found) assert_int_equal(r.n, n_tokens); /* nothing is generated behind the stop */
        if (found) assert_int_equal(strlen(r.stop_reason), end - begin);
        test_results_free(&r, 1);
    }
    test_results_free(&whole, 1);
}

static void test_stop_string_waits_for_min_tokens(void **state) {
    struct fixture *f = *state;
    static const struct quire_str letters[] = {{"a", 1}, {"b", 1}, {"c", 1}, {"d", 1}};
    uint32_t p[6];
    prompt_of(p, 6, 6);
    struct quire_request q = {.prompt = p, .n_prompt = 6, .sampling = test_greedy(20)};
    q.sampling.ignore_eos = true;
    q.sampling.stop = letters;
    q.sampling.n_stop = 4;
    q.sampling.min_tokens = 7;
    struct test_result r = run(f, q); /* any text ends it, once allowed */
    assert_int_equal(r.n, 7);
    assert_int_equal(r.finish, QUIRE_STOP);
    test_results_free(&r, 1);
}

/* ---- scores ----------------------------------------------------------------------------------------------
 */

/* What was generated, given as a prompt, has the same log probabilities in every bit. */
static void test_prompt_scores_equal_generated_ones(void **state) {
    struct fixture *f = *state;
    uint32_t p[L];
    prompt_of(p, 20, 7);
    struct quire_request q = {.prompt = p, .n_prompt = 20, .sampling = test_greedy(30)};
    q.sampling.ignore_eos = true;
    q.sampling.temperature = 1;
    q.sampling.has_seed = true;
    q.sampling.n_logprobs = 5;
    struct test_result made = run(f, q);
    memcpy(p + 20, made.tokens, 30 * sizeof *p);
    q = (struct quire_request){.prompt = p, .n_prompt = 50, .sampling = test_greedy(0)};
    q.sampling.n_prompt_logprobs = 5;
    struct test_result scored = run(f, q);
    assert_int_equal(scored.usage.cached_tokens, 0); /* positions to be scored are computed */
    assert_int_equal(scored.usage.completion_tokens, 0);
    for (size_t i = 0; i < 30; i++) {
        const struct quire_logprob *s = scored.prompt + (20 + i) * 6;
        assert_memory_equal(&s[0], &made.chosen[i], sizeof *s);
        assert_memory_equal(&s[1], &made.top[i * 5], 5 * sizeof *s);
        assert_true(s[0].logprob <= 0 && s[0].rank >= 1);
        for (size_t k = 1; k < 5; k++) assert_true(s[k].logprob >= s[k + 1].logprob);
        if (s[0].rank <= 5) assert_int_equal(s[s[0].rank].token, s[0].token);
    }
    test_results_free(&made, 1);
    test_results_free(&scored, 1);
}

struct seen_scores {
    float logprob[L]; /* of token[position], from the logits */
    unsigned char times[L];
    const uint32_t *tokens;
};

static void see_score(void *ctx, size_t position, const float *logits, size_t n_vocab) {
    struct seen_scores *s = ctx;
    double sum = 0;
    for (size_t i = 0; i < n_vocab; i++) sum += exp(logits[i]);
    s->times[position]++;
    s->logprob[position] = (float)(logits[s->tokens[position]] - log(sum));
}

/* From a position on: what is before it may come from the prefix cache, what comes is the same in every bit,
 * and each distribution is shown once. */
static void test_scores_from_a_position(void **state) {
    struct fixture *f = *state;
    uint32_t p[60];
    prompt_of(p, 60, 21);
    struct seen_scores seen = {.tokens = p};
    const struct quire_score_reader reader = {see_score, &seen};
    struct quire_request q = {.prompt = p, .n_prompt = 60, .sampling = test_greedy(0)};
    q.sampling.n_prompt_logprobs = 2;
    struct test_result all = run(f, q);
    for (size_t first = 0; first < 60; first = first * 3 + 1) {
        memset(seen.times, 0, sizeof seen.times);
        q.sampling.first_prompt_logprob = first;
        q.score_reader = &reader;
        struct test_result some = run(f, q);
        if (first == 40) assert_true(some.usage.cached_tokens >= 32);
        for (size_t i = 1; i < 60; i++) {
            assert_int_equal(seen.times[i], i >= first);
            if (i < first) continue;
            assert_memory_equal(some.prompt + 3 * i, all.prompt + 3 * i, 3 * sizeof *all.prompt);
            assert_float_equal(seen.logprob[i], all.prompt[3 * i].logprob, 1e-4);
        }
        test_results_free(&some, 1);
    }
    test_results_free(&all, 1);
}

static void test_only_what_is_asked_for(void **state) {
    struct fixture *f = *state;
    uint32_t p[5];
    prompt_of(p, 5, 8);
    struct quire_request q = {.prompt = p, .n_prompt = 5, .sampling = test_greedy(3)};
    q.sampling.n_logprobs = 0;
    struct test_result r = run(f, q);
    assert_int_equal(r.n_top, 0);
    assert_int_equal(r.chosen[0].rank, 1); /* greedy */
    assert_true(r.chosen[0].logprob < 0);
    test_results_free(&r, 1);
    q.sampling.max_tokens = 0; /* computed, nothing asked */
    r = run(f, q);
    assert_int_equal(r.n, 0);
    assert_int_equal(r.finish, QUIRE_LENGTH);
    test_results_free(&r, 1);
}

/* ---- seeds -----------------------------------------------------------------------------------------------
 */

static void test_seeds_and_choices(void **state) {
    struct fixture *f = *state;
    uint32_t p[5];
    prompt_of(p, 5, 9);
    struct quire_request q[6];
    struct test_result r[6];
    for (int i = 0; i < 6; i++) {
        q[i] = (struct quire_request){.prompt = p, .n_prompt = 5, .sampling = test_greedy(20)};
        q[i].sampling.temperature = 1;
        q[i].sampling.ignore_eos = true;
        q[i].sampling.has_seed = i < 4;
        q[i].sampling.seed = i == 3 ? 12 : 11;
    }
    q[2].choice = 1;
    test_run(f->engine, q, 6, &f->model, r);
    assert_null(test_difference(&r[0], &r[1]));     /* the same seed */
    assert_non_null(test_difference(&r[0], &r[2])); /* another choice */
    assert_non_null(test_difference(&r[0], &r[3])); /* another seed */
    assert_non_null(test_difference(&r[4], &r[5])); /* none: each its own */
    test_results_free(r, 6);
}

/* Requests without a seed are drawn from the engine's: two engines with one seed agree, request by request.
 */
static void test_engine_seed(void **state) {
    struct fixture *f = *state;
    uint32_t p[5];
    struct test_result r[3][3];
    prompt_of(p, 5, 10);
    struct quire_request q = {.prompt = p, .n_prompt = 5, .sampling = test_greedy(20)};
    q.sampling.temperature = 1;
    q.sampling.ignore_eos = true;
    for (int i = 0; i < 3; i++) {
        struct quire_config c = f->config;
        c.seed = i < 2 ? 100 : 101;
        struct quire_engine *e = test_open(&c);
        for (int k = 0; k < 3; k++) test_run(e, &q, 1, &f->model, &r[i][k]);
        quire_shutdown(e);
    }
    for (int k = 0; k < 3; k++) {
        assert_null(test_difference(&r[0][k], &r[1][k]));
        assert_non_null(test_difference(&r[0][k], &r[2][k]));
    }
    assert_non_null(test_difference(&r[0][0], &r[0][1]));
    for (int i = 0; i < 3; i++) test_results_free(r[i], 3);
}

/* ---- prefix cache ----------------------------------------------------------------------------------------
 */

static size_t cached(struct fixture *f, struct quire_request q) {
    struct test_result r = run(f, q);
    size_t n = r.usage.cached_tokens;
    test_results_free(&r, 1);
    return n;
}

static void test_cached_tokens(void **state) {
    struct fixture *f = *state;
    uint32_t p[64];
    prompt_of(p, 64, 11);
    struct quire_request q = {.prompt = p, .n_prompt = 64, .sampling = test_greedy(2)}, t = q;
    assert_int_equal(cached(f, q), 0);
    assert_int_equal(cached(f, q), 63); /* the last token is always computed */
    t.cache_salt = "a";
    assert_int_equal(cached(f, t), 0); /* tenants do not see each other */
    assert_int_equal(cached(f, t), 63);
    t.cache_salt = "b";
    assert_int_equal(cached(f, t), 0);
    t.cache_salt = "";
    assert_int_equal(cached(f, t), 0); /* an empty salt is one */
    t.cache_salt = NULL;
    t.skip_prefix_cache = true;
    assert_int_equal(cached(f, t), 0);
    q.n_prompt = 40;
    assert_int_equal(cached(f, q), 39);
    p[39] = 4; /* 39 common tokens: two blocks and seven tokens of the third */
    assert_int_equal(cached(f, q), 39);
    p[20] = 4;
    assert_int_equal(cached(f, q), 20);
}

/* Choices of one call that come together share their prompt without an earlier request. */
static void test_choices_share_their_prompt(void **state) {
    struct fixture *f = *state;
    uint32_t p[100];
    struct quire_request q[8];
    struct test_result r[8];
    prompt_of(p, 100, 12);
    uint64_t computed = 0;
    for (uint32_t i = 0; i < 8; i++) {
        q[i] = (struct quire_request){.prompt = p, .n_prompt = 100, .sampling = test_greedy(4), .choice = i};
        q[i].sampling.temperature = 1;
    }
    test_run(f->engine, q, 8, &f->model, r);
    for (int i = 0; i < 8; i++) computed += 100 - r[i].usage.cached_tokens;
    assert_int_equal(computed, 100 + 7 * 4); /* 96 in blocks; the last, partial block is each one's own */
    test_results_free(r, 8);
}

/* ---- constraints -----------------------------------------------------------------------------------------
 */

struct only { /* allows token `next`, then next + 1, ...; none from `end` on */
    uint32_t next, end;
    int fail_at, n_filled, n_destroyed;
};

static int only_fill(void *state, uint32_t *mask, size_t n_vocab) {
    struct only *o = state;
    for (size_t i = 0; i < (n_vocab + 31) / 32; i++)
        if (mask[i]) abort(); /* it comes cleared */
    if (o->next < o->end) mask[o->next / 32] |= 1u << o->next % 32;
    return ++o->n_filled == o->fail_at ? -1 : 0;
}

static int only_accept(void *state, uint32_t token) {
    struct only *o = state;
    return token == o->next++ ? 0 : -1;
}

static void only_destroy(void *state) {
    ((struct only *)state)->n_destroyed++;
}

static void test_constraints(void **state) {
    struct fixture *f = *state;
    uint32_t p[5];
    prompt_of(p, 5, 13);
    struct only o[4] = {{20, 300, 0, 0, 0}, {40, 300, 0, 0, 0}, {60, 63, 0, 0, 0}, {80, 300, 3, 0, 0}};
    struct quire_constraint c[4];
    struct quire_request q[4];
    struct test_result r[4];
    for (int i = 0; i < 4; i++) {
        c[i] = (struct quire_constraint){
            .state = &o[i], .fill_mask = only_fill, .accept = only_accept, .destroy = only_destroy};
        q[i] = (struct quire_request){
            .prompt = p, .n_prompt = 5, .sampling = test_greedy(6), .constraint = &c[i]};
    }
    q[1].sampling.temperature = 1.5f;
    test_run(f->engine, q, 4, &f->model, r);
    for (uint32_t i = 0; i < 6; i++) {
        assert_int_equal(r[0].tokens[i], 20 + i);
        assert_int_equal(r[1].tokens[i], 40 + i);
    }
    assert_int_equal(r[2].n, 3); /* then nothing is allowed: it fails, it is not answered freely */
    assert_int_equal(r[2].finish, QUIRE_FAILED);
    assert_non_null(strstr(r[2].error, "no token is allowed"));
    assert_int_equal(r[3].n, 2);
    assert_int_equal(r[3].finish, QUIRE_FAILED);
    test_baseline(f->engine, SIZE_MAX);
    for (int i = 0; i < 4; i++) assert_int_equal(o[i].n_destroyed, 1);
    test_results_free(r, 4);
    q[0].sampling.top_p = -1; /* a refused request keeps nothing */
    refused(f, q[0], QUIRE_EINVAL, "top_p", NULL);
    assert_int_equal(o[0].n_destroyed, 1);
}

/* ---- a model that goes wrong -----------------------------------------------------------------------------
 */

static void test_nonfinite_logits_fail_one_request(void **state) {
    struct fixture *f = *state;
    struct tiny_model_options o = f->options;
    struct test_model m = test_model_make(&o);
    const struct tensor *t = weights_tensor(m.weights, "token_embd.weight");
    assert_non_null(t);
    size_t at = 77 * t->row_bytes;
    float *row = malloc(t->row_bytes);
    assert_non_null(row);
    memcpy(row, (const char *)t->data + at, t->row_bytes);
    size_t n;
    void *data = tiny_model_memory(&o, &n); /* the same bytes; poison the row of token 77 */
    char *found = memmem(data, n, row, t->row_bytes);
    assert_non_null(found);
    for (size_t i = 0; i < t->row_bytes / sizeof(float); i++)
        ((float *)(void *)found)[i] = __builtin_nanf("");
    struct weights *w;
    assert_int_equal(weights_open_memory(data, n, &w, NULL), 0);
    struct quire_config c = f->config;
    c.weights = w;
    struct quire_engine *e = test_open(&c);

    uint32_t good[20], bad[20];
    prompt_of(good, 20, 14);
    for (int i = 0; i < 20; i++) good[i] += good[i] == 77;
    memcpy(bad, good, sizeof bad);
    bad[18] = 77; /* the first block is common */
    struct quire_request q[4];
    struct test_result r[4],
        alone = run(f, (struct quire_request){.prompt = good, .n_prompt = 20, .sampling = test_greedy(10)});
    for (int i = 0; i < 4; i++)
        q[i] =
            (struct quire_request){.prompt = i & 1 ? bad : good, .n_prompt = 20, .sampling = test_greedy(10)};
    q[3].sampling.n_prompt_logprobs = 0;
    test_run(e, q, 4, &m, r);
    for (size_t i = 0; i < alone.n; i++) assert_int_not_equal(alone.tokens[i], 77);
    for (int i = 0; i < 4; i++) {
        if (i & 1) {
            assert_int_equal(r[i].finish, QUIRE_FAILED);
            assert_non_null(strstr(r[i].error, "not finite"));
            assert_int_equal(r[i].n, 0);
        } else {
            assert_null(
                test_difference(&r[i], &alone)); /* neighbours, sharers and reused blocks are unharmed */
        }
    }
    assert_int_equal(atomic_load(&quire_stats(e)->nonfinite_requests), 2);
    test_baseline(e, 4);
    test_results_free(r, 4);
    test_results_free(&alone, 1);
    quire_shutdown(e);
    weights_close(w);
    free(data);
    free(row);
    test_model_free(&m);
}

int main(void) {
    const struct CMUnitTest tests[] = {
#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
        TEST(test_bad_values_are_named),
        TEST(test_context_limit),
        TEST(test_pool_limit),
        TEST(test_queue_limit),
        TEST(test_end_of_sequence),
        TEST(test_stop_strings),
        TEST(test_stop_string_waits_for_min_tokens),
        TEST(test_prompt_scores_equal_generated_ones),
        TEST(test_scores_from_a_position),
        TEST(test_only_what_is_asked_for),
        TEST(test_seeds_and_choices),
        TEST(test_engine_seed),
        TEST(test_cached_tokens),
        TEST(test_choices_share_their_prompt),
        TEST(test_constraints),
        TEST(test_nonfinite_logits_fail_one_request),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
