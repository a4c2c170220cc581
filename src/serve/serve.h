/* The HTTP API in front of an engine: routes, keys, validation, answers, metrics.
 *
 * A request's way: loop thread (route, key) -> worker thread (JSON, template, tokens, quire_submit) -> engine
 * -> loop thread (bytes, JSON, SSE). It sees the engine through <quire/quire.h> only, and the model's text
 * through struct model_text, which whoever opened the model file hands over. */
#ifndef SERVE_SERVE_H
#define SERVE_SERVE_H

#include "base/log.h"
#include "text/chat_template.h"
#include "text/tokenizer.h"

#include <quire/quire.h>

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

/* What a model's makers would have requests sampled with that say nothing else. */
struct model_sampling {
    float temperature, top_p, min_p, repetition_penalty;
    int32_t top_k;
    size_t max_tokens; /* no answer is longer, whatever a request says; 0 = no limit */
};

/* What serving needs of a model besides the engine. Immutable; outlives the server. */
struct model_text {
    const struct tokenizer *tokenizer;
    const struct chat_template
        *chat_template;                    /* NULL: chat requests are refused with the flag that gives one */
    const char *bos_token, *eos_token;     /* spellings, NULL = none */
    const struct model_sampling *sampling; /* NULL = as the API has it */
    bool raw_scores; /* requests that say nothing else get a cross-encoder's scores as they are */
};

struct serve_config {
    const char *host; /* NULL: all addresses */
    uint16_t port;    /* 0: a free one */
    const char *tls_cert_file, *tls_key_file;
    const char *const *model_names; /* first one is the name in answers */
    size_t n_model_names;
    const char *const *api_keys; /* none: no key is asked for */
    size_t n_api_keys;
    const char *const *allowed_origins; /* CORS; none: no header is sent. "*": any */
    size_t n_allowed_origins;
    size_t n_loops, n_workers;
    size_t max_connections, max_body_bytes;
    size_t max_logprobs;
    size_t max_answer_bytes; /* of all unfinished answers that are not streamed, and of prompt scores */
    unsigned keep_alive_comment_ms; /* an SSE comment after this silence */
    unsigned stall_ms;              /* a reader that takes nothing for this long is closed */
    unsigned unhealthy_ms;          /* /health fails when work is due and no step has ended for this long */
    bool access_log;
    bool prompt_statistics; /* keyed hashes of prompts are kept and compared (prompt_stats.h) */
    /* For /metrics only: the best kernel table of the processor, the cores that the process may use, and the
     * elements of all tensors. */
    const char *cpu_best;
    size_t n_cores;
    uint64_t n_parameters;
    const char *version;
    struct log *log;
};

void serve_config_init(struct serve_config *c);

struct serve;

/* On return the port is open. Everything in config is copied or must outlive the server: strings are not
 * copied. */
int serve_start(const struct serve_config *config, const struct model_text *text, struct quire_engine *engine,
                struct serve **out, struct error *err);
uint16_t serve_port(const struct serve *s);
/* Stops accepting, lets what runs finish for grace_ms, cancels the rest (streams end with an error, others
 * are answered 503). Then the engine has no stream of ours left, but it may still be in a waker: shut it down
 * before serve_free. */
void serve_stop(struct serve *s, unsigned grace_ms);
void serve_free(struct serve *s); /* NULL allowed */
/* Any thread, once or more: starts the drain of serve_stop without waiting for it. */
void serve_drain(struct serve *s, unsigned grace_ms);

/* For the docs, as Markdown tables: routes; request fields. */
void serve_print_routes(FILE *out);
void serve_print_fields(FILE *out);

#endif
