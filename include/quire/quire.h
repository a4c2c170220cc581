/* The engine's contract: open a model, submit token sequences, read tokens back, cancel, look at the figures.
 * Text, JSON and sockets are the caller's. One engine thread owns all sequences and KV memory; the functions
 * here may be called from any thread, but one stream belongs to one thread at a time. What is checked is
 * checked in quire_submit: after it returns 0 the request can fail only by name, through its last event.
 *
 * Law 1: for greedy or seeded requests and one numerics id, tokens and log probabilities depend on the
 * request alone, bit for bit. */
#ifndef QUIRE_H
#define QUIRE_H

#include <quire/error.h>

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

struct quire_engine;
struct quire_stream; /* one submitted request: made by quire_submit, ended by quire_close */
struct weights;      /* an open model file (src/weights) */
struct log;

/* ---- opening ----------------------------------------------------------------------------------------- */

/* Read-only table of the bytes that each token id stands for (special tokens: none), for stop strings. */
struct quire_token_bytes {
    const uint8_t *bytes;
    const uint32_t *offsets; /* [n_vocab + 1]; id i is bytes[offsets[i] .. offsets[i + 1]) */
    size_t n_vocab;
};

enum quire_policy { QUIRE_FCFS, QUIRE_PRIORITY };
enum quire_dtype { QUIRE_BFLOAT16, QUIRE_FLOAT16, QUIRE_FLOAT32 };

/* What a model is opened for: answers, or a vector for each prompt. */
enum quire_runner { QUIRE_RUNNER_AUTO, QUIRE_RUNNER_GENERATE, QUIRE_RUNNER_POOLING };

/* How the tokens' vectors become one: their mean, that of the first or the last token, or the first one's
 * through the head of a cross-encoder, which makes a score of it. */
enum quire_pooling {
    QUIRE_POOLING_NONE, /* in a configuration: as the model file says */
    QUIRE_POOLING_MEAN,
    QUIRE_POOLING_CLS,
    QUIRE_POOLING_LAST,
    QUIRE_POOLING_RANK
};

struct quire_config {
    const struct weights *weights;               /* must outlive the engine */
    const struct quire_token_bytes *token_bytes; /* must outlive the engine; NULL: no stop strings */
    const uint32_t *stop_tokens; /* end-of-sequence ids of the model; must outlive the engine */
    size_t n_stop_tokens;
    enum quire_runner runner; /* auto: pooling for encoders and where the file or `pooling` names a type */
    enum quire_pooling pooling;
    bool matryoshka;               /* a part of a vector is one, too: requests may ask for fewer dimensions */
    enum quire_dtype dtype;        /* activations, KV and unquantized weights */
    size_t max_model_len;          /* tokens of prompt and answer together; 0 = the model's own */
    size_t max_num_seqs;           /* sequences in one step */
    size_t max_num_batched_tokens; /* rows in one step */
    size_t long_prefill_threshold; /* most prompt tokens of one sequence in one step; 0 = no limit */
    size_t block_tokens;           /* tokens of a KV block */
    double memory_share;           /* share of the device's memory that Quire may take, (0, 1] */
    uint64_t kv_bytes;             /* KV memory; 0 = what memory_share leaves */
    size_t max_queue; /* unfinished requests beyond max_num_seqs before quire_submit says QUIRE_EBUSY */
    size_t n_threads; /* compute threads; 0 = the cores available to the process */
    const char *cpu_limit, *cpu_bind; /* highest instruction set, where threads run: backend_cpu_options */
    bool prefix_caching, chunked_prefill, static_batching, reserve_kv; /* the last two: engine/scheduler.h */
    enum quire_policy policy;
    uint64_t seed;            /* base seed of requests without one; their draws also count up */
    const char *cache_secret; /* shared secret of the KV block keys; NULL = random per process */
    struct log *log;          /* may be NULL */
    const struct quire_step_reader *step_reader; /* <quire/step.h>; must outlive the engine; NULL = none */
    bool (*progress)(void *ctx, const char *phase, double done); /* while opening; may be NULL. false: stop */
    int (*await_tokens)(void *ctx, struct error *err); /* or NULL: weights are loaded, tokens are read next */
    void *open_ctx;
};

/* One row of the memory plan, printed before the port opens. */
struct quire_memory_row {
    const char *name; /* "weights", "KV blocks", "activations", "buffers", "rest", "total" */
    uint64_t bytes;
    char detail[96];
};
#define QUIRE_MEMORY_ROWS 6

struct quire_info {
    const char *numerics_id; /* hex: hash of model file, kernel table, KV format and layout */
    const char *cpu_path;    /* "ref", "avx2", "avx512", ... */
    const char *dtype_name, *family;
    size_t n_vocab, n_threads, max_model_len, model_context_len, block_tokens, n_blocks, kv_bytes_per_token,
        max_num_seqs, max_num_batched_tokens, max_requests; /* the last: running and waiting together */
    enum quire_pooling pooling;                             /* NONE: opened to generate */
    size_t vector_floats;                                   /* of a vector; 1: a score */
    bool encoder, prefix_caching, chunked_prefill;          /* an encoder cannot generate */
    struct quire_memory_row memory[QUIRE_MEMORY_ROWS];
};

/* Plans memory, loads and repacks weights, reserves the pool, starts threads. Errors name the flag to use. */
int quire_open(const struct quire_config *config, struct quire_engine **out, struct error *err);
const struct quire_info *quire_info(const struct quire_engine *engine); /* valid until quire_shutdown */

/* Cancels what is left, joins the threads, frees everything. All streams have been closed. NULL allowed. */
void quire_shutdown(struct quire_engine *engine);

/* ---- requests ---------------------------------------------------------------------------------------- */

#define QUIRE_MAX_LOGPROBS     20
#define QUIRE_MAX_STOP_STRINGS 16
#define QUIRE_MAX_STOP_BYTES   1024 /* of one stop string */

struct quire_bias {
    uint32_t token;
    float bias;
};

/* A constraint on the output (a grammar): called on the engine's and the compute threads, never for one state
 * at the same time. mask has a bit for each token id, set = allowed; it comes cleared. */
struct quire_constraint {
    void *state;
    int (*fill_mask)(void *state, uint32_t *mask, size_t n_vocab);
    int (*accept)(void *state, uint32_t token); /* negative: the token is not allowed here */
    void (*roll_back)(void *state, size_t n_tokens);
    void *(*fork)(void *state); /* NULL when out of memory */
    void (*destroy)(void *state);
};

struct quire_str {
    const char *data;
    size_t len;
};

struct quire_sampling {
    float temperature;  /* 0 = greedy; 0 … 2 by API, anything finite and >= 0 here */
    float top_p, min_p; /* (0, 1]; [0, 1] */
    int32_t top_k;      /* 0 or -1 = off */
    float repetition_penalty, presence_penalty, frequency_penalty; /* > 0, 1 = off; [-2, 2]; [-2, 2] */
    bool has_seed;
    uint64_t seed;
    size_t max_tokens, min_tokens; /* max_tokens 0: only score the prompt; SIZE_MAX: all the room there is */
    bool ignore_eos;
    bool include_stop;           /* the matched stop string stays in the output; then nothing is ever held */
    int n_logprobs;              /* -1 = none, else the chosen token's and this many top ones */
    int n_prompt_logprobs;       /* -1 = none, else for each prompt token */
    size_t first_prompt_logprob; /* only from this position on; earlier ones may come from the prefix cache */
    const uint32_t *stop_token_ids;
    size_t n_stop_token_ids;
    const struct quire_str *stop;
    size_t n_stop;
    const struct quire_bias *bias;
    size_t n_bias;
};

/* Called on the engine thread, once after each step that gave events to streams of this waker. */
struct quire_waker {
    void (*wake)(void *ctx);
    void *ctx;
};

struct quire_request {
    const uint32_t *prompt;
    size_t n_prompt;
    struct quire_sampling sampling;
    uint32_t choice;                  /* index among the n choices of one call; part of the random key */
    int32_t priority;                 /* smaller runs first, under QUIRE_PRIORITY */
    const char *adapter, *cache_salt; /* NULL = none */
    bool skip_prefix_cache;           /* do not read from it */
    bool pool;                        /* the prompt's vector is wanted; `sampling` is not read */
    bool raw_vector;   /* as the model gives it; else scaled to length 1, a score to 1 / (1 + exp(-score)) */
    size_t dimensions; /* of the vector: so many of its first, before it is scaled; 0 = all */
    size_t n_first;    /* tokens of the first of two texts in the prompt; 0 = it is one text */
    const struct quire_constraint *constraint;     /* NULL = none; destroyed by the engine */
    const struct quire_waker *waker;               /* must outlive the engine; may be NULL */
    const struct quire_score_reader *score_reader; /* NULL = none; else include <quire/score.h> */
};

/* Everything pointed to but constraint->state and waker is copied. On success *out is the caller's until
 * quire_close. On failure nothing is kept (nor is the constraint destroyed): QUIRE_EINVAL or QUIRE_ELIMIT
 * (with err->param = the field), QUIRE_EUNSUPPORTED, QUIRE_EBUSY, QUIRE_ENOMEM, QUIRE_ECANCELED. */
int quire_submit(struct quire_engine *engine, const struct quire_request *request, struct quire_stream **out,
                 struct error *err);

enum quire_finish {
    QUIRE_RUNNING = 0,
    QUIRE_STOP,   /* end-of-sequence, stop token or stop string; the vector is there */
    QUIRE_LENGTH, /* max_tokens or max_model_len */
    QUIRE_ABORT,  /* cancelled, or the engine is stopping */
    QUIRE_FAILED  /* see error */
};

struct quire_logprob {
    uint32_t token;
    float logprob; /* natural log of the model's own distribution, before penalties and temperature */
    uint32_t rank; /* 1 = most likely; only set for the chosen token */
};

struct quire_event {
    bool has_token;                  /* a generated token; false for a pure finish */
    struct quire_logprob chosen;     /* token; logprob and rank when asked for */
    const struct quire_logprob *top; /* [n_top], most likely first; valid until the next quire_poll */
    size_t n_top;
    size_t held_bytes;        /* this many last bytes of the output so far may turn out to be a stop string */
    enum quire_finish finish; /* not QUIRE_RUNNING: this is the last event */
    size_t trim_bytes;        /* on the last event: the output ends this many bytes earlier */
    const char *stop_reason;  /* on QUIRE_STOP: the stop string matched (owned by the stream), else NULL */
    int64_t stop_token; /* on QUIRE_STOP by id: that token, else -1. has_token and chosen then describe it and
                           it counts in usage, but its bytes are no part of the output (nor of trim_bytes) */
    const struct error *error; /* on QUIRE_FAILED; owned by the stream */
};

/* The next event, if there is one: 1 and *event filled, or 0. Never blocks. */
int quire_poll(struct quire_stream *stream, struct quire_event *event);
/* As quire_poll, but waits for an event up to timeout_us. For callers without a loop. */
int quire_wait(struct quire_stream *stream, struct quire_event *event, uint64_t timeout_us);

/* Scores of prompt tokens 1 … n_prompt - 1 (the first has none), complete once the first event has come
 * (unless that is an abort or failure): [0] is the prompt token itself, [1 .. *n) the top list. NULL if not
 * asked for, as positions before first_prompt_logprob are not. */
const struct quire_logprob *quire_prompt_logprobs(const struct quire_stream *stream, size_t position,
                                                  size_t *n);

/* The stream's vector, once the last event of a request for one has come and is QUIRE_STOP; else NULL. */
const float *quire_vector(const struct quire_stream *stream, size_t *n);

struct quire_usage {
    size_t prompt_tokens, cached_tokens, completion_tokens, preemptions;
    uint64_t queue_us, prefill_us, decode_us, first_token_us; /* durations; first_token_us from submission */
};
/* True figures so far; final once the last event has been read. */
struct quire_usage quire_usage(const struct quire_stream *stream);

void quire_cancel(struct quire_stream *stream); /* any thread; takes effect within one step */
void quire_close(struct quire_stream *stream);  /* cancels if still running and frees; NULL allowed */

/* ---- figures ----------------------------------------------------------------------------------------- */

struct quire_stats; /* include <quire/stats.h>: counters, gauges, histograms for /metrics */
const struct quire_stats *quire_stats(const struct quire_engine *engine);

/* False when work is queued or running and no step has finished for limit_us. */
bool quire_healthy(const struct quire_engine *engine, uint64_t limit_us);

#ifdef __cplusplus
}
#endif

#endif
