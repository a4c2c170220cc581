/* What the files of this folder share. Nothing outside includes it. */
#ifndef SERVE_INTERNAL_H
#define SERVE_INTERNAL_H

#include "base/buf.h"
#include "base/hash.h"
#include "base/json_out.h"
#include "base/workers.h"
#include "net/server.h"
#include "serve/prompt_stats.h"
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
    _Atomic size_t held_bytes;         /* of config.max_answer_bytes */
    struct prompt_stats *prompt_stats; /* NULL: not asked for */
    _Atomic uint64_t cpu_wait_us;      /* the most that /metrics has shown */
    _Atomic uint64_t cancel_at_us;     /* end of the grace time of a drain; UINT64_MAX: none */
};

/* ---- route.c ---- */
void route_request(struct serve *s, struct exchange *x);
/* Replies with CORS and request-id headers; counts and logs nothing. id: of the answer, if the client gave
 * none. */
void route_reply(struct serve *s, struct exchange *x, unsigned status, const char *type,
                 const struct buf *body, const char *id);
/* Headers that every answer carries: CORS, Vary, X-Request-Id. Returns how many. */
#define ROUTE_HEADERS 4
size_t route_headers(const struct serve *s, const struct exchange *x, const char *id,
                     struct http_header out[ROUTE_HEADERS]);

/* ---- access_log.c: one line for each request ---- */
void access_log(const struct serve *s, const struct exchange *x, unsigned status);
void access_log_call(const struct call *c, unsigned status);
void access_log_refused(const struct serve *s, unsigned status, const char *why); /* it had no exchange */

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
void handle_embedding(struct serve *s, struct exchange *x);
void handle_rerank(struct serve *s, struct exchange *x);
void handle_score(struct serve *s, struct exchange *x);
void handle_tokenize(struct serve *s, struct exchange *x);
void handle_detokenize(struct serve *s, struct exchange *x);
void call_gone(struct serve *s, struct exchange *x, enum exchange_gone why);
void call_writable(struct serve *s, struct exchange *x);
void serve_loop_pump(struct serve_loop *l); /* delivers what the engine has produced */
void serve_loop_tick(struct serve_loop *l); /* comments to silent streams; the end of a drain */

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
    size_t n_new_tokens;      /* in the buffers above */
    size_t n_tokens;          /* taken so far: what usage counts */
    size_t n_echoed;          /* prompt positions that are in the stream */
    size_t chars;             /* characters of text so far, for text_offset */
    struct quire_event event; /* if has_event: taken from the engine, waits for the prompt before it */
    bool has_event, started, role_sent; /* started: the prompt is done; role_sent: the first chunk has left */
    enum quire_finish finish;
    const char *stop_reason;
    int64_t stop_token;
    struct quire_usage usage;
};

/* Takes one event. With streaming the caller then sends and clears text and logprobs. */
void answer_event(struct call *c, struct answer *a, const struct quire_event *e);
/* Echo, once the first event has come and before it is taken. A stream gets it in pieces: true while more is
 * due; a whole answer skips it now and has it put in front when it is rendered. */
bool answer_prompt(struct call *c, struct answer *a);
void answer_skip_prompt(struct call *c, struct answer *a);
void answer_prepend_prompt(struct call *c, struct answer *a);
bool answer_ok(const struct answer *a);      /* no buffer has failed */
size_t answer_bytes(const struct answer *a); /* of its buffers */
void answer_clear(struct answer *a);         /* what a chunk has taken */
void answer_free(struct answer *a);

/* ---- prompt.c: what a worker does ---- */
struct token_prompt {
    struct token_buf ids; /* freed after submission where nobody will show them */
    size_t n_tokens;
    const char *text; /* for echo; NULL: made from ids */
    size_t len;
    size_t n_first; /* of two texts: ids of the first; 0 = one text */
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
    size_t n_prompts,
        n_queries; /* of the prompts, those in front whose vectors are compared with the rest's */
    struct answer *answers;
    size_t n_answers, n_finished;
    struct buf body; /* of handlers without generation: the finished answer */
    struct error err;
    unsigned status; /* of a failure; 0 while none */
    atomic_bool gone;
    bool streaming, listed, counted, cancelled;
    char id[SERVE_ID_BYTES];
    int64_t created_unix_s;
    uint64_t last_write_us, first_token_us;
    size_t held_bytes, score_bytes; /* its part of serve.held_bytes; of that, for scores of the prompt */
    enum request_kind kind;
};

/* Sets the call's part of the memory for answers; false, with nothing changed, when that is not there. */
bool call_hold(struct call *c, size_t bytes);

/* ---- call_work.c: the worker's side ---- */
void call_work(struct call *c);   /* parse, template, tokens, submission or the finished answer in body */
void call_render(struct call *c); /* the whole answer into body */

/* ---- vectors.c: embeddings, rerank, score ---- */
/* Whether the engine was opened for requests of this kind. */
int vectors_purpose(const struct serve *s, enum request_kind kind, struct error *err);
/* Prompts from the request: the input, the pairs of a cross-encoder, or else queries and then documents. */
int vectors_prompts(struct call *c);
/* Memory of a vector in the engine and as JSON. */
size_t vectors_bytes(const struct call *c);
void vectors_response(const struct call *c, struct buf *out);

/* ---- response.c: JSON shapes ---- */
void response_usage(const struct call *c, struct json_out *j);
void response_whole(const struct call *c, struct buf *out);
/* Server-sent event with what is new in an answer; finish: also its finish_reason. */
void response_chunk(const struct call *c, const struct answer *a, bool finish, struct buf *out);
void response_usage_chunk(const struct call *c, struct buf *out);
void response_error_chunk(const struct error *e, unsigned status, struct buf *out);
const char *response_finish_name(enum quire_finish f);

/* ---- metrics.c ---- */
void metrics_write(struct serve *s, struct buf *out);

#endif
