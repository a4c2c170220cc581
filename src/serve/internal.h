/* What the files of this folder share. Nothing outside includes it. */
#ifndef SERVE_INTERNAL_H
#define SERVE_INTERNAL_H

#include "base/buf.h"
#include "base/hash.h"
#include "base/json_out.h"
#include "base/workers.h"
#include "net/server.h"
#include "serve/request.h"
#include "serve/serve.h"
#include "text/detokenizer.h"

#include <stdatomic.h>

#define SERVE_ID_BYTES 48

/* Outcomes of requests, for quire_requests_total. */
enum serve_outcome {
    OUTCOME_OK,
    OUTCOME_INVALID,
    OUTCOME_REFUSED,
    OUTCOME_OVERLOADED,
    OUTCOME_GONE,
    OUTCOME_FAILED,
    OUTCOMES
};

struct call;

/* State of one loop thread: the calls whose events it delivers. */
struct serve_loop {
    struct serve *serve;
    struct loop *loop;
    struct call *calls;    /* list of those submitted and unfinished */
    struct loop_node wake; /* posted by the engine's waker, at most once at a time */
    atomic_bool wake_posted;
    struct quire_waker waker;
    struct loop_timer *timer; /* keep-alive comments */
    struct buf out;           /* scratch for one write */
};

struct serve {
    struct serve_config config;
    struct model_text text;
    struct quire_engine *engine;
    const struct quire_info *info;
    struct request_limits limits;
    struct server *server;
    struct workers *workers;
    struct serve_loop *loops;
    size_t n_loops;
    struct hash_secret key_secret;
    struct hash128 *key_digests; /* [config.n_api_keys] */
    int64_t started_unix_s;
    uint64_t id_prefix;
    _Atomic uint64_t next_id, outcomes[OUTCOMES];
};

/* ---- route.c ---- */
void route_request(struct serve *s, struct exchange *x);
/* Replies with CORS and request-id headers, and counts nothing. */
void route_reply(struct serve *s, struct exchange *x, unsigned status, const char *type,
                 const struct buf *body, unsigned retry_after_s);
/* Up to three headers every answer carries (CORS, Vary); returns how many. */
size_t route_cors_headers(const struct serve *s, const struct exchange *x, struct http_header out[3]);

/* ---- api_error.c ---- */
unsigned api_error_status(const struct error *e);
void api_error_body(struct buf *out, unsigned status, const struct error *e);
enum serve_outcome api_error_outcome(unsigned status);

/* ---- info.c: handlers without generation ---- */
void handle_health(struct serve *s, struct exchange *x);
void handle_models(struct serve *s, struct exchange *x);
void handle_model(struct serve *s, struct exchange *x);
void handle_version(struct serve *s, struct exchange *x);
void handle_metrics(struct serve *s, struct exchange *x);

/* ---- call.c: handlers that need a worker ---- */
void handle_chat(struct serve *s, struct exchange *x);
void handle_completion(struct serve *s, struct exchange *x);
void handle_tokenize(struct serve *s, struct exchange *x);
void handle_detokenize(struct serve *s, struct exchange *x);
void call_gone(struct serve *s, struct exchange *x, enum exchange_gone why);
void call_writable(struct serve *s, struct exchange *x);
void serve_loop_pump(struct serve_loop *l);       /* delivers what the engine has produced */
void serve_loop_keep_alive(struct serve_loop *l); /* SSE comments to silent streams */

/* ---- answer.c: one choice ---- */

struct answer {
    struct quire_stream *stream;
    size_t index;       /* of the choice in the response */
    size_t prompt;      /* which prompt of the call */
    struct buf raw;     /* output bytes not yet given to the detokenizer: those held back */
    struct buf special; /* with skip_special_tokens off: 1 for each raw byte of a control token, else empty */
    struct detokenizer detokenizer;
    struct buf text;     /* new text since the last response_chunk (stream), or all of it */
    struct buf logprobs; /* finished JSON entries, comma-separated, since the last chunk or all */
    struct buf token_logprobs, top_logprobs, offsets; /* the parallel arrays of completions */
    struct buf token_ids;
    size_t n_new_tokens;     /* in the buffers above */
    size_t chars;            /* characters of text so far, for text_offset */
    bool started, role_sent; /* the first event has come; the first chunk has left */
    enum quire_finish finish;
    const char *stop_reason;
    int64_t stop_token;
    struct quire_usage usage;
};

/* Takes one event. With streaming the caller then sends and clears text and logprobs. */
void answer_event(struct call *c, struct answer *a, const struct quire_event *e);
void answer_prompt(struct call *c, struct answer *a); /* echo and prompt scores; before the first event */
void answer_clear(struct answer *a);                  /* what a chunk has taken */
void answer_free(struct answer *a);

/* ---- prompt.c: what a worker does ---- */
struct token_prompt {
    struct token_buf ids;
    const char *text; /* for echo; NULL: made from ids */
    size_t len;
};
/* Template and tokenizer: the token ids of every prompt of the request. */
int prompt_build(const struct serve *s, struct request *r, struct token_prompt **out, size_t *n,
                 struct error *err);
void prompt_free(struct token_prompt *p, size_t n);

/* ---- call ---- */

struct call {
    struct serve *serve;
    struct exchange *x;
    struct serve_loop *loop;
    struct work work;      /* to the workers */
    struct loop_node node; /* and back */
    struct call *next, *prev;
    struct request request;
    bool parsed; /* request must be freed */
    struct token_prompt *prompts;
    size_t n_prompts;
    struct answer *answers;
    size_t n_answers, n_finished;
    struct buf body; /* of handlers without generation: the finished answer */
    struct error err;
    unsigned status; /* of a failure; 0 while none */
    atomic_bool gone;
    bool streaming, listed, counted;
    char id[SERVE_ID_BYTES];
    uint64_t last_write_us, first_token_us;
    enum request_kind kind;
};

/* ---- response.c: JSON shapes ---- */
void response_whole(const struct call *c, struct buf *out);
/* Server-sent event with what is new in an answer; finish: also its finish_reason. */
void response_chunk(const struct call *c, const struct answer *a, bool finish, struct buf *out);
void response_usage_chunk(const struct call *c, struct buf *out);
void response_error_chunk(const struct error *e, unsigned status, struct buf *out);
const char *response_finish_name(enum quire_finish f);

/* ---- metrics.c ---- */
void metrics_write(const struct serve *s, struct buf *out);

#endif
