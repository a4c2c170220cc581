/* A submitted request: one allocation shared by its caller and the engine thread, freed by whoever lets go
 * last.
 *
 * Who touches what: fields under "fixed" are written before submission; "engine" ones by the engine thread
 * only; "reader" ones by the thread that owns the stream; the rest is atomic, or handed over through the ring
 * (written before the last event is pushed, read after it has been taken). */
#ifndef ENGINE_STREAM_H
#define ENGINE_STREAM_H

#include "base/mpsc.h"
#include "engine/ring.h"
#include "engine/sampler.h"
#include "engine/sequence.h"
#include "engine/stop.h"

#include <quire/quire.h>

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* What a request is checked against and built with; fixed once the engine is open. */
struct stream_limits {
    size_t n_vocab, max_model_len, block_tokens;
    size_t pool_blocks;           /* usable blocks */
    const struct kv_cache *cache; /* for block arithmetic only */
    const struct quire_token_bytes *token_bytes;
    const uint32_t *stop_tokens;
    size_t n_stop_tokens;
    enum quire_pooling pooling; /* NONE: requests generate; else they want a vector */
    size_t vector_floats;
    bool encoder, caching, matryoshka;
    struct hash_secret secret;
    struct hash128 numerics_id;
    uint64_t seed;
};

struct stream_times { /* clock_us(), 0 = not yet */
    _Atomic uint64_t submitted, scheduled, first_token, last_token;
};

struct quire_stream {
    /* fixed */
    struct quire_engine *engine;
    const struct quire_waker *waker;
    const struct quire_score_reader *score_reader; /* NULL = none */
    size_t first_score;                            /* first prompt position whose score is wanted */
    uint32_t *stop_ids; /* tokens that end the output: sorted */
    size_t n_stop_ids, max_tokens, n_top, n_prompt_top;
    bool want_logprobs, include_stop, has_constraint, raw_vector;
    uint32_t n_first;
    float *vector; /* [n_vector], the engine's until the last event */
    size_t n_vector;
    struct quire_constraint constraint;
    struct quire_logprob
        *scores; /* [n_prompt][1 + n_prompt_top], or NULL; the engine's until the first event */

    /* shared */
    _Atomic uint32_t refs;
    _Atomic bool cancelled, finished;
    _Atomic bool stalled;  /* the engine wants to hear when the ring has been read */
    _Atomic bool sleeping; /* quire_wait sleeps on ring.head */
    struct mpsc_node arrive, leave;
    struct ring ring;
    struct stream_times times;
    _Atomic size_t n_cached, n_output, n_preempted;

    /* handed over with the last event */
    size_t trim_bytes;
    const char *stop_reason;
    int64_t stop_token;
    bool has_vector;
    struct error error;

    /* engine */
    bool arrived, started;
    struct sequence seq;
    struct sampler sampler;
    struct stop_matcher stop;

    /* reader */
    struct quire_logprob top[QUIRE_MAX_LOGPROBS];
    bool read_first;

    _Alignas(16) uint8_t memory[];
};

/* Checks the request and copies all of it. number: how many requests came before, for the seed of one
 * without. QUIRE_EINVAL, QUIRE_ELIMIT, QUIRE_EUNSUPPORTED or QUIRE_ENOMEM; param names the field. */
int stream_create(const struct stream_limits *limits, const struct quire_request *request, uint64_t number,
                  struct quire_stream **out, struct error *err);
/* The check alone; *max_tokens: as asked for, or the room there is. */
int request_check(const struct stream_limits *limits, const struct quire_request *request, size_t *max_tokens,
                  struct error *err);

void stream_free(struct quire_stream *s); /* whatever the references; destroys the constraint */
void stream_hold(struct quire_stream *s);
void stream_drop(struct quire_stream *s); /* frees with the last reference */

static inline struct quire_stream *stream_of(struct sequence *seq) {
    return (struct quire_stream *)((char *)seq - offsetof(struct quire_stream, seq));
}
static inline const struct quire_stream *stream_of_const(const struct sequence *seq) {
    return (const struct quire_stream *)((const char *)seq - offsetof(struct quire_stream, seq));
}

/* Whether a token ends the output. */
bool stream_is_stop_id(const struct quire_stream *s, uint32_t token);

/* The reader's side of quire_poll, quire_wait, quire_prompt_logprobs and quire_usage; *drained: the engine
 * waits to hear of it. */
bool stream_poll(struct quire_stream *s, struct quire_event *event, bool *drained);
void stream_sleep(struct quire_stream *s, uint64_t timeout_us); /* until an event has come, or earlier */
struct quire_usage stream_usage(const struct quire_stream *s);

/* The engine's side: pushes an event and wakes a reader that sleeps in stream_sleep. */
void stream_publish(struct quire_stream *s);
/* True when the ring is full; from then on the reader reports when it has read. */
bool stream_stalls(struct quire_stream *s);

#endif
