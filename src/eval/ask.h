/* Questions to a model in this process or to a server: how likely a continuation is, or an answer as text. */
#ifndef EVAL_ASK_H
#define EVAL_ASK_H

#include "base/buf.h"
#include "eval/eval.h"

struct ask {
    const char *where;       /* what it is of, for messages */
    struct text_span prompt; /* text; with `chat` a user's message, put through the chat template */
    bool chat;
    struct text_span continuation; /* to be scored; data NULL: an answer is generated */
    size_t max_tokens;
    const struct quire_str *stop; /* [n_stop] strings that end an answer and are no part of it */
    size_t n_stop;
    double temperature;
    uint64_t seed;

    /* What came back. */
    double logprob;  /* of the continuation: sum over its tokens, nats */
    size_t n_tokens; /* of the continuation, or of the answer */
    struct buf text; /* the answer */
};

/* Answers all, several under way at a time; done is called for each in order and may free what it likes of
 * the ask. enum eval_end or an error; then the others were not asked. */
int asks_answer(const struct eval_context *c, struct ask *asks, size_t n,
                int (*done)(void *user, size_t i, struct error *err), void *user, struct error *err);

/* The two kinds of it. */
int asks_local(const struct eval_context *c, struct ask *asks, size_t n,
               int (*done)(void *user, size_t i, struct error *err), void *user, struct error *err);
int asks_remote(const struct eval_context *c, struct ask *asks, size_t n,
                int (*done)(void *user, size_t i, struct error *err), void *user, struct error *err);

/* Tokens of an ask's prompt in this process (chat template and BOS included) into *out; *n_scored: how many
 * last ones are the continuation's. */
int ask_tokens(const struct eval_local *l, const struct ask *a, struct token_buf *out, size_t *n_scored,
               struct error *err);

static inline bool eval_stopped(const struct eval_context *c) {
    return c->stopped && c->stopped(c->stopped_ctx);
}

#endif
