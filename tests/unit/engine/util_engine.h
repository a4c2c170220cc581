/* Running requests on tiny models and keeping all that comes back, bit for bit. Failures end the test. */
#ifndef UTIL_ENGINE_H
#define UTIL_ENGINE_H

#include "util/tiny_family.h"
#include "util/tiny_model.h"
#include "weights/weights.h"

#include <quire/quire.h>
#include <quire/stats.h>

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* A model file in memory and a made-up table of token bytes: id i stands for 1 to 3 letters a to d. */
struct test_model {
    void *data;
    struct weights *weights;
    struct quire_token_bytes bytes;
};

struct test_model test_model_make(const struct tiny_model_options *o);
/* A variant of util/tiny_family.h; 300 tokens. */
struct test_model test_family_make(const char *variant, unsigned type);
struct quire_token_bytes test_make_bytes(size_t n_vocab);
void test_model_free(struct test_model *m);

/* float32, one thread, 256 blocks of 16 tokens, 8 sequences, budget 256, prefix caching and chunking on. */
struct quire_config test_config(const struct test_model *m);
/* KV bytes for so many usable blocks of the default tiny model under this configuration. */
uint64_t test_kv_bytes(const struct quire_config *c, const struct tiny_model_options *o, size_t n_blocks);
struct quire_engine *test_open(const struct quire_config *c);

/* Neutral sampling: greedy, nothing else. */
struct quire_sampling test_greedy(size_t max_tokens);

/* Everything that a request gave. */
struct test_result {
    size_t n;                           /* events with a token */
    uint32_t *tokens;                   /* [n] */
    struct quire_logprob *chosen, *top; /* [n]; [n][n_top] */
    size_t n_top;
    struct quire_logprob *prompt; /* [n_prompt][n_prompt_entries] */
    size_t n_prompt, n_prompt_entries;
    size_t held_max, trim;
    enum quire_finish finish;
    int64_t stop_token;
    char *stop_reason; /* NULL = none */
    char error[QUIRE_ERROR_TEXT_BYTES];
    char *text;                    /* bytes as a streaming client would have seen them, in the end */
    size_t text_len, streamed_len; /* of text; of what could be shown before the last event */
    struct quire_usage usage;
};

/* Submits all, then reads each to its end; closes the streams. results: [n], to be freed by
 * test_results_free. */
void test_run(struct quire_engine *e, const struct quire_request *requests, size_t n,
              const struct test_model *m, struct test_result *results);
void test_results_free(struct test_result *results, size_t n);

/* NULL when they are equal in every bit that depends on the request alone; else what differs. */
const char *test_difference(const struct test_result *a, const struct test_result *b);

/* Waits until the engine has nothing to do, then checks that nothing is left: gauges 0, no block in use,
 * finished requests add up to n_accepted (SIZE_MAX: not checked). */
void test_baseline(const struct quire_engine *e, size_t n_accepted);

/* Deterministic random numbers for tests. */
uint32_t test_random(uint64_t *state, uint32_t below);

#endif
