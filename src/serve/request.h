/* A completion or chat request from its JSON: every field typed, ranged and known, or a 400 that names it.
 *
 * The table of fields in request_fields.c is the whole list: a field outside it is refused with the nearest
 * known name, one that is known but not supported is refused with the reason, and docs/api.md is checked
 * against it. */
#ifndef SERVE_REQUEST_H
#define SERVE_REQUEST_H

#include "base/arena.h"

#include <quire/quire.h>

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

enum request_kind {
    REQUEST_COMPLETION = 1,
    REQUEST_CHAT = 2,
    REQUEST_TOKENIZE = 4,
    REQUEST_DETOKENIZE = 8,
    REQUEST_EMBEDDING = 16,
    REQUEST_RERANK = 32,
    REQUEST_SCORE = 64
};
#define REQUEST_GENERATES (REQUEST_COMPLETION | REQUEST_CHAT)
#define REQUEST_POOLS     (REQUEST_EMBEDDING | REQUEST_RERANK | REQUEST_SCORE)

#define REQUEST_MAX_CHOICES  128  /* n */
#define REQUEST_MAX_STREAMS  1024 /* prompts x n of one call */
#define REQUEST_MAX_MESSAGES 100000
#define REQUEST_MAX_STOP_IDS 128
#define REQUEST_MAX_BIAS     4096

struct model_sampling;

/* What the checks need to know of the model. */
struct request_limits {
    size_t n_vocab, max_model_len, max_logprobs;
    const struct model_sampling *sampling; /* NULL = as the API has it */
    bool raw_scores;                       /* what use_activation false asks for is the preset */
};

struct request_prompt {
    const char *text; /* NULL: ids */
    size_t len;
    uint32_t *ids;
    size_t n_ids;
};

struct request {
    enum request_kind kind;
    char unknown_field[64]; /* after a failure: what err->param names, if no field of the table */
    struct arena arena;     /* everything below that is not borrowed from root */
    json_t *root;           /* owned */
    const char *model;      /* in the arena; NULL if not given */

    /* completions, tokenize; of embeddings the input, of rerank and score the documents */
    struct request_prompt *prompts;
    size_t n_prompts;
    bool echo, add_special_tokens;
    bool add_special_given;

    /* embeddings, rerank, score */
    struct request_prompt *queries; /* 1, or one for each document */
    size_t n_queries;
    bool base64, raw_vectors, return_documents;
    bool activation_given;    /* normalize or use_activation */
    size_t dimensions, top_n; /* 0 = all */
    size_t truncate_tokens;   /* SIZE_MAX: not; 0: to the model's length */

    /* chat, tokenize */
    json_t *messages, *tools, *documents, *template_kwargs; /* messages normalised, see request_chat.c */
    bool add_generation_prompt, continue_final_message;

    bool hide_tools; /* tool_choice none */
    bool stream, include_usage, continuous_usage;
    bool skip_special_tokens, return_token_ids, return_token_strs;
    bool has_max_tokens; /* else the room left */
    size_t n;
    int32_t priority;
    const char *cache_salt;
    bool skip_prefix_cache;
    struct quire_sampling sampling; /* arrays in the arena */
};

/* Takes the body; on success *out is the caller's until request_free. After a failure nothing is to be freed,
 * and err->param may point into *out. */
int request_parse(enum request_kind kind, const char *body, size_t len, const struct request_limits *limits,
                  struct request *out, struct error *err);
void request_free(struct request *r);
/* Frees everything that only submission needs: JSON, prompts, messages, stop strings, biases, salt. The
 * model's name, the other sampling parameters and stop token ids stay. */
void request_forget(struct request *r);

/* One line for each field of the table: name, endpoints, type, what is allowed. For the docs. */
void request_print_fields(FILE *out);

/* ---- between the files of this parser ---- */

struct request_parser {
    struct request *r;
    const struct request_limits *limits;
};

struct request_field {
    const char *name;
    unsigned kinds; /* endpoints that take it */
    /* Called for every field of the table that is present and not null. */
    int (*parse)(struct request_parser *p, const char *name, const json_t *value, struct error *err);
    const char *type, *help;
};

extern const struct request_field request_fields[]; /* ended by a NULL name */

/* request_chat.c */
int request_parse_messages(struct request_parser *p, const char *name, const json_t *value,
                           struct error *err);
int request_parse_tools(struct request_parser *p, const char *name, const json_t *value, struct error *err);
int request_parse_tool_choice(struct request_parser *p, const char *name, const json_t *value,
                              struct error *err);
int request_parse_template_kwargs(struct request_parser *p, const char *name, const json_t *value,
                                  struct error *err);
/* request_prompt.c */
int request_parse_prompt(struct request_parser *p, const char *name, const json_t *value, struct error *err);
int request_parse_stop(struct request_parser *p, const char *name, const json_t *value, struct error *err);
int request_parse_stop_ids(struct request_parser *p, const char *name, const json_t *value,
                           struct error *err);
int request_parse_bias(struct request_parser *p, const char *name, const json_t *value, struct error *err);
/* request_pool.c */
int request_parse_query(struct request_parser *p, const char *name, const json_t *value, struct error *err);
int request_parse_documents(struct request_parser *p, const char *name, const json_t *value,
                            struct error *err);
int request_parse_text_1(struct request_parser *p, const char *name, const json_t *value, struct error *err);
int request_parse_text_2(struct request_parser *p, const char *name, const json_t *value, struct error *err);
int request_parse_encoding(struct request_parser *p, const char *name, const json_t *value,
                           struct error *err);
int request_parse_dimensions(struct request_parser *p, const char *name, const json_t *value,
                             struct error *err);
int request_parse_truncate(struct request_parser *p, const char *name, const json_t *value,
                           struct error *err);
int request_parse_top_n(struct request_parser *p, const char *name, const json_t *value, struct error *err);
int request_parse_activation(struct request_parser *p, const char *name, const json_t *value,
                             struct error *err);
int request_parse_return_documents(struct request_parser *p, const char *name, const json_t *value,
                                   struct error *err);
int request_check_pool(const struct request *r, struct error *err); /* fields together */
int request_parse_token_ids(struct request_parser *p, const char *name, const json_t *value, uint32_t **ids,
                            size_t *n, struct error *err);

/* The field that the prompts of a request came in, where it may have several. */
const char *request_prompts_field(const struct request *r);

#endif
