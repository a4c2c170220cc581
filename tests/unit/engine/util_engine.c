#include "util_engine.h"

#include "model/model.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <cmocka.h>

#define WAIT_US (120u * 1000000u)

uint32_t test_random(uint64_t *state, uint32_t below) {
    uint64_t z = (*state += UINT64_C(0x9e3779b97f4a7c15)); /* SplitMix64 */
    z = (z ^ z >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ z >> 27) * UINT64_C(0x94d049bb133111eb);
    return (uint32_t)((z ^ z >> 31) >> 32) % below;
}

/* ---- models ---------------------------------------------------------------------------------------------
 */

struct quire_token_bytes test_make_bytes(size_t n_vocab) {
    uint8_t *bytes = malloc(3 * n_vocab);
    uint32_t *offsets = malloc((n_vocab + 1) * sizeof *offsets), n = 0;
    assert_non_null(bytes);
    assert_non_null(offsets);
    for (size_t i = 0; i < n_vocab; i++) {
        uint64_t seed = i;
        offsets[i] = n;
        if (i < 3) continue; /* control tokens */
        for (uint32_t k = test_random(&seed, 3) + 1; k; k--)
            bytes[n++] = (uint8_t)('a' + test_random(&seed, 4));
    }
    offsets[n_vocab] = n;
    return (struct quire_token_bytes){bytes, offsets, n_vocab};
}

static struct test_model open_file(void *data, size_t n, size_t n_vocab) {
    struct test_model m = {.data = data};
    struct error err;
    assert_non_null(m.data);
    if (weights_open_memory(m.data, n, &m.weights, &err)) fail_msg("weights: %s", err.text);
    m.bytes = test_make_bytes(n_vocab);
    return m;
}

struct test_model test_model_make(const struct tiny_model_options *o) {
    size_t n;
    void *data = tiny_model_memory(o, &n);
    return open_file(data, n, o->n_vocab);
}

struct test_model test_family_make(const char *variant, unsigned type) {
    size_t n;
    void *data = tiny_family_memory(variant, type, 5, &n);
    return open_file(data, n, 300);
}

void test_model_free(struct test_model *m) {
    weights_close(m->weights);
    free(m->data);
    free((void *)(uintptr_t)m->bytes.bytes);
    free((void *)(uintptr_t)m->bytes.offsets);
}

struct quire_config test_config(const struct test_model *m) {
    static const uint32_t stop_tokens[] = {2};
    return (struct quire_config){.weights = m->weights,
                                 .token_bytes = &m->bytes,
                                 .stop_tokens = stop_tokens,
                                 .n_stop_tokens = 1,
                                 .dtype = QUIRE_FLOAT32,
                                 .max_model_len = 1024,
                                 .max_num_seqs = 8,
                                 .max_num_batched_tokens = 256,
                                 .block_tokens = 16,
                                 .memory_share = 0.5,
                                 .kv_bytes = (uint64_t)4 << 20,
                                 .max_queue = 256,
                                 .n_threads = 1,
                                 .prefix_caching = true,
                                 .chunked_prefill = true,
                                 .seed = 7,
                                 .cache_secret = "test"};
}

uint64_t test_kv_bytes(const struct quire_config *c, const struct tiny_model_options *o, size_t n_blocks) {
    size_t elem = c->dtype == QUIRE_FLOAT32 ? 4 : 2;
    size_t page = c->block_tokens * 2 * o->n_layers * o->n_kv_heads * o->head_dim * elem;
    return (uint64_t)(n_blocks + 1) * ((page + 4095) / 4096 * 4096);
}

struct quire_engine *test_open(const struct quire_config *c) {
    struct quire_engine *e;
    struct error err;
    if (quire_open(c, &e, &err)) fail_msg("quire_open: %s", err.text);
    return e;
}

struct quire_sampling test_greedy(size_t max_tokens) {
    return (struct quire_sampling){.top_p = 1,
                                   .repetition_penalty = 1,
                                   .max_tokens = max_tokens,
                                   .n_logprobs = -1,
                                   .n_prompt_logprobs = -1};
}

/* ---- requests -------------------------------------------------------------------------------------------
 */

static void *copy(const void *p, size_t bytes) {
    void *out = malloc(bytes ? bytes : 1);
    assert_non_null(out);
    if (bytes) memcpy(out, p, bytes);
    return out;
}

static void add_text(struct test_result *r, const struct test_model *m, const struct quire_event *ev) {
    if (ev->has_token && ev->stop_token < 0) {
        uint32_t id = ev->chosen.token;
        size_t n = m->bytes.offsets[id + 1] - m->bytes.offsets[id];
        r->text = realloc(r->text, r->text_len + n + 1);
        assert_non_null(r->text);
        memcpy(r->text + r->text_len, m->bytes.bytes + m->bytes.offsets[id], n);
        r->text_len += n;
    }
    if (ev->finish != QUIRE_RUNNING) {
        assert_true(ev->trim_bytes <= r->text_len);
        r->text_len -= ev->trim_bytes;
        assert_true(r->text_len >= r->streamed_len); /* nothing shown is taken back */
    } else {
        assert_true(ev->held_bytes <= r->text_len);
        if (r->text_len - ev->held_bytes > r->streamed_len) r->streamed_len = r->text_len - ev->held_bytes;
    }
}

static void take_prompt(struct test_result *r, const struct quire_stream *s, const struct quire_request *q) {
    size_t n;
    if (q->sampling.n_prompt_logprobs < 0) return;
    r->n_prompt = q->n_prompt;
    r->n_prompt_entries = 1 + (size_t)q->sampling.n_prompt_logprobs;
    r->prompt = calloc(r->n_prompt * r->n_prompt_entries, sizeof *r->prompt);
    assert_non_null(r->prompt);
    assert_null(quire_prompt_logprobs(s, 0, &n));
    for (size_t i = 1; i < r->n_prompt; i++) {
        const struct quire_logprob *p = quire_prompt_logprobs(s, i, &n);
        if (i < q->sampling.first_prompt_logprob) {
            assert_null(p);
            continue;
        }
        assert_non_null(p);
        assert_int_equal(n, r->n_prompt_entries);
        assert_int_equal(p[0].token, q->prompt[i]);
        memcpy(r->prompt + i * n, p, n * sizeof *p);
    }
    assert_null(quire_prompt_logprobs(s, r->n_prompt, &n));
}

static void take_event(struct test_result *r, const struct quire_stream *s, const struct quire_request *q,
                       const struct test_model *m, const struct quire_event *ev) {
    if (r->n == 0 && !r->prompt && ev->finish != QUIRE_ABORT && ev->finish != QUIRE_FAILED)
        take_prompt(r, s, q);
    add_text(r, m, ev);
    if (ev->held_bytes > r->held_max) r->held_max = ev->held_bytes;
    if (ev->has_token) {
        assert_int_equal(ev->n_top, r->n_top);
        r->tokens[r->n] = ev->chosen.token;
        r->chosen[r->n] = ev->chosen;
        memcpy(r->top + r->n * r->n_top, ev->top, r->n_top * sizeof *r->top);
        r->n++;
    }
    r->finish = ev->finish;
    if (ev->finish == QUIRE_RUNNING) return;
    r->trim = ev->trim_bytes;
    r->stop_token = ev->stop_token;
    if (ev->stop_reason) r->stop_reason = copy(ev->stop_reason, strlen(ev->stop_reason) + 1);
    if (ev->finish == QUIRE_FAILED) snprintf(r->error, sizeof r->error, "%s", ev->error->text);
}

static void read_all(struct quire_stream *s, const struct quire_request *q, const struct test_model *m,
                     struct test_result *r) {
    struct quire_event ev;
    size_t max = q->sampling.max_tokens == SIZE_MAX ? 8192 : q->sampling.max_tokens;
    *r = (struct test_result){.n_top = q->sampling.n_logprobs > 0 ? (size_t)q->sampling.n_logprobs : 0,
                              .stop_token = -1};
    r->tokens = calloc(max + 1, sizeof *r->tokens);
    r->chosen = calloc(max + 1, sizeof *r->chosen);
    r->top = calloc((max + 1) * (r->n_top + 1), sizeof *r->top);
    assert_true(r->tokens && r->chosen && r->top);
    do {
        if (!quire_wait(s, &ev, WAIT_US)) fail_msg("no event for %u s", WAIT_US / 1000000);
        take_event(r, s, q, m, &ev);
    } while (ev.finish == QUIRE_RUNNING);
    assert_int_equal(quire_poll(s, &ev), 0);
    r->usage = quire_usage(s);
    assert_int_equal(r->usage.prompt_tokens, q->n_prompt);
    assert_int_equal(r->usage.completion_tokens, r->n);
    quire_close(s);
}

void test_run(struct quire_engine *e, const struct quire_request *requests, size_t n,
              const struct test_model *m, struct test_result *results) {
    struct quire_stream **streams = calloc(n, sizeof *streams);
    struct error err;
    assert_non_null(streams);
    for (size_t i = 0; i < n; i++)
        if (quire_submit(e, &requests[i], &streams[i], &err)) fail_msg("request %zu: %s", i, err.text);
    for (size_t i = 0; i < n; i++) read_all(streams[i], &requests[i], m, &results[i]);
    free(streams);
}

void test_results_free(struct test_result *results, size_t n) {
    for (size_t i = 0; i < n; i++) {
        free(results[i].tokens);
        free(results[i].chosen);
        free(results[i].top);
        free(results[i].prompt);
        free(results[i].text);
        free(results[i].stop_reason);
    }
}

const char *test_difference(const struct test_result *a, const struct test_result *b) {
    if (a->n != b->n) return "number of tokens";
    if (a->n && memcmp(a->tokens, b->tokens, a->n * sizeof *a->tokens)) return "tokens";
    if (a->n && memcmp(a->chosen, b->chosen, a->n * sizeof *a->chosen)) return "log probabilities";
    if (a->n_top != b->n_top) return "number of alternatives";
    if (a->n && a->n_top && memcmp(a->top, b->top, a->n * a->n_top * sizeof *a->top)) return "alternatives";
    size_t np = a->n_prompt * a->n_prompt_entries;
    if (np != b->n_prompt * b->n_prompt_entries) return "number of prompt scores";
    if (np && memcmp(a->prompt, b->prompt, np * sizeof *a->prompt)) return "prompt scores";
    if (a->finish != b->finish) return "finish reason";
    if (a->trim != b->trim || a->held_max != b->held_max || a->stop_token != b->stop_token) return "stop";
    return a->text_len == b->text_len && (!a->text_len || !memcmp(a->text, b->text, a->text_len)) ? NULL
                                                                                                  : "text";
}

void test_baseline(const struct quire_engine *e, size_t n_accepted) {
    const struct quire_stats *s = quire_stats(e);
    uint64_t left = 1;
    for (int i = 0; i < 5000 && left; i++) {
        left = atomic_load(&s->running) + atomic_load(&s->waiting) + atomic_load(&s->blocks_used) +
               atomic_load(&s->kv_slots_allocated) + atomic_load(&s->kv_slots_used);
        if (left) nanosleep(&(struct timespec){0, 1000000}, NULL);
    }
    assert_int_equal(atomic_load(&s->running), 0);
    assert_int_equal(atomic_load(&s->waiting), 0);
    assert_int_equal(atomic_load(&s->blocks_used), 0);
    assert_int_equal(atomic_load(&s->kv_slots_allocated), 0);
    assert_int_equal(atomic_load(&s->kv_slots_used), 0);
    uint64_t finished = 0;
    for (int i = 0; i < 5; i++) finished += atomic_load(&s->finished[i]);
    if (n_accepted != SIZE_MAX) assert_int_equal(finished, n_accepted);
}
