/* The server under load: what it serves, and how tokens are made that it counts exactly. */
#ifndef LOAD_TARGET_H
#define LOAD_TARGET_H

#include "load/client.h"

#include <quire/error.h>

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define POOL_MAX 512

struct target {
    char *base, *url_chat, *url_completions, *url_metrics;
    char *model;
    size_t max_model_len; /* 0: the server does not tell */
    char software[96];    /* as far as it tells; else empty */
    bool local;           /* on this machine, so its devices are ours to read */

    /* Words that are one token each, and token ids, which need no tokenizer; either may be empty. */
    const char *words[POOL_MAX];
    uint32_t ids[POOL_MAX];
    size_t n_words, n_ids;
    const char *tokenizer; /* how they were counted: "/tokenize" or "usage" */
    bool takes_ids;        /* prompts may be token ids */
    /* Tokens that the server adds to one message (chat) or prompt (text, ids). known: two lengths agreed on
     * it. */
    struct added {
        int64_t tokens;
        bool known;
    } chat, text, id_prompt;
};

struct target_config {
    const char *url, *model;
    struct http_config http; /* all but n_at_once */
};

/* Asks for the models. QUIRE_EIO when it cannot be reached, QUIRE_ENOTFOUND for a model that it does not
 * serve. */
int target_open(const struct target_config *config, struct target *t, struct error *err);
/* Finds words and ids, and what the endpoint adds, by /tokenize where the server has it and by the usage of
 * tiny requests. chat: which endpoint is going to be used. */
int target_learn_tokens(const struct target_config *config, struct target *t, bool chat, struct error *err);
/* Tokens of a text by the server's /tokenize, without special ones; -1 when it has none. */
int64_t target_count(const struct target_config *config, const struct target *t, const char *text, size_t n);
void target_free(struct target *t);

/* A request before the load. The answer's text is the caller's. */
struct ask {
    const char *url;
    struct buf *body; /* NULL: GET */
    bool plain;       /* as client_request.plain */
    struct answer answer;
};

/* Sends all, a few at a time, and waits for them. */
int target_ask(const struct target_config *config, struct ask *asks, size_t n, struct error *err);
void asks_free(struct ask *asks, size_t n);

extern const char *const target_words[]; /* ended by NULL */

#endif
