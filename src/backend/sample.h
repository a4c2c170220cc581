/* Choosing the next token from a row of logits: parameters in, result out. Vectorised over the vocabulary;
 * each row is a function of its own parameters and logits only, with counter-based random numbers.
 *
 * Order: log probabilities are taken from the raw logits; then logit bias, allow mask, repetition penalty
 * (Keskar et al. 2019: positive logits divided, negative multiplied), presence and frequency penalty, bans
 * (min_tokens), then temperature, top_k, top_p (Holtzman et al. 2019), min_p (Nguyen et al. 2024), and one
 * uniform draw. Temperature 0 (anything below SAMPLE_MIN_TEMPERATURE) takes the largest, the lowest id among
 * equals. */
#ifndef BACKEND_SAMPLE_H
#define BACKEND_SAMPLE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define SAMPLE_MAX_TOP         20
#define SAMPLE_MIN_TEMPERATURE 1e-5f

struct sample_bias {
    uint32_t token;
    float bias;
};

struct sample_count {
    uint32_t token;
    uint32_t n_output; /* occurrences in the output (presence, frequency) */
    bool in_prompt;    /* repetition penalty looks at prompt and output */
};

struct sample_row {
    float temperature, top_p, min_p;
    int32_t top_k; /* <= 0: off */
    float repetition_penalty, presence_penalty, frequency_penalty;
    const struct sample_count *counts; /* distinct tokens seen; only read if a penalty is on */
    size_t n_counts;
    const struct sample_bias *bias;
    size_t n_bias;
    const uint32_t *banned; /* ids that may not be chosen */
    size_t n_banned;
    const uint32_t *allow_mask; /* bit per id, set = allowed; NULL = all */
    uint64_t seed;
    uint32_t choice, position; /* of the token to be chosen: the counter of the random draw */
    bool score_only;           /* no choice: log probability of `target` (prompt_logprobs, echo) */
    uint32_t target;
    int n_top; /* -1: no log probabilities wanted; 0 … SAMPLE_MAX_TOP */
};

struct sample_top {
    uint32_t token;
    float logprob;
};

struct sample_result {
    bool finite; /* false: NaN or infinite logits; nothing else is set */
    bool
        allowed; /* false: allow_mask and banned leave no id to choose; token, logprob and rank are not set */
    uint32_t token; /* chosen, or target */
    float logprob;  /* of token; this, rank and top only if n_top >= 0 or score_only */
    uint32_t rank;  /* 1 + number of ids with a larger logit */
    size_t n_top;
    struct sample_top top[SAMPLE_MAX_TOP]; /* most likely first; lower id first among equals */
};

#endif
