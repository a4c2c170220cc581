/* A text as token-exact windows, and which tokens of each are scored. Definitions: docs/eval.md. */
#ifndef EVAL_WINDOWS_H
#define EVAL_WINDOWS_H

#include "base/hash.h"
#include "eval/eval.h"

#include <jansson.h>

/* Tokens [begin, begin + n) of the text are the prompt; those from prompt position `first` (at least 1) are
 * scored. */
struct window {
    size_t begin, n, first;
};

struct windows {
    struct token_buf tokens;
    struct window *list;
    size_t n;
    size_t context, stride;
    int64_t bos;        /* replaces the first token of each window; -1 = none */
    size_t most_scored; /* of one window */
    struct hash128 text_hash, tokenizer_hash, tokens_hash;
};

/* Where windows begin and what they score, for n_tokens of text; list: malloc'd. QUIRE_EINVAL when the text
 * is too short. */
int windows_plan(size_t n_tokens, size_t context, size_t stride, struct window **list, size_t *n,
                 struct error *err);
/* Tokenizes (special tokens of the text are text; BOS as the model says) and plans. */
int windows_make(struct windows *w, const struct tokenizer *t, const struct eval_perplexity *o,
                 struct error *err);
void windows_free(struct windows *w);

/* The prompt of a window into out [n]. */
void windows_prompt(const struct windows *w, size_t i, uint32_t *out);

/* What must be equal for results over windows to be comparable. */
json_t *windows_setup(const struct windows *w);
void hash_hex(struct hash128 h, char hex[33]);

#endif
