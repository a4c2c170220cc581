/* The engine behind <quire/quire.h>: one thread that owns all sequences and KV blocks, and runs steps.
 *
 *   open.c       quire_open and quire_shutdown: plan, load, threads
 *   plan.c       sizes of everything, decided before anything large is taken
 *   engine.c     the thread's loop, arrivals and departures, and the calls of quire.h that talk to it
 *   step.c       one step: batch, forward pass, sampling
 *   pace.h       how long a step may be
 *   step_shape.h what a step computes, in figures
 *   deliver.c    results to tokens, stops, events, figures
 *
 * Threads: callers (quire_submit, quire_poll, ...) touch streams, `limits` and the atomics; everything else
 * belongs to the engine thread. The population thread only makes pages resident and says how many. */
#ifndef ENGINE_ENGINE_H
#define ENGINE_ENGINE_H

#include "backend/backend.h"
#include "base/log.h"
#include "base/mpsc.h"
#include "engine/doorbell.h"
#include "engine/pace.h"
#include "engine/scheduler.h"
#include "engine/stream.h"
#include "model/model.h"

#include <quire/quire.h>
#include <quire/stats.h>

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Bytes of what is decided besides KV. */
struct plan_need {
    uint64_t weights, activations, buffers, rest;
    uint64_t taken;              /* the part that is taken already, so that `available` is without it */
    uint64_t available, allowed; /* memory there is; the part of it that may be taken */
    const char *limited_by;      /* what has no more */
    uint64_t page_bytes;         /* of a KV page and its share of the buffers */
    uint64_t room_pages;         /* that there is memory for, though fewer may be of use */
    bool apart;                  /* a device's own memory: buffers are not in it */
};

/* What plan.c decides. */
struct plan {
    size_t max_model_len, max_num_seqs, max_num_batched_tokens, block_tokens, max_live;
    size_t chunk_tokens;        /* most tokens of one sequence in one step */
    size_t max_score_rows;      /* most prompt positions scored in one step */
    size_t max_kept_rows;       /* most rows of one step whose logits are wanted */
    size_t max_logit_rows;      /* rows of one pass over the vocabulary */
    enum model_pooling pooling; /* NONE: it generates */
    bool chunked, caching;      /* prefill in parts; the prefix cache */
    size_t reserve_tokens;      /* of each sequence at admission; 0: as they are needed */
    size_t n_pages, page_bytes; /* the null page included */
    size_t first_pages;         /* resident before the engine is ready */
    struct backend_kv_layout layout;
    struct backend_cpu_options device;
    struct model_options model;
    struct plan_need need;
};

/* Where an engine would run that is only planned (outlook.h). */
struct plan_place {
    uint64_t available_bytes; /* 0: as much as this machine has now */
    uint64_t taken_bytes;     /* of available_bytes */
    const char *name;         /* of what has them, for messages */
    bool apart;               /* see plan_need */
    uint64_t context_bytes;   /* apart: what the device's driver takes, in place of the rest */
    /* A device that is asked for sizes only, and its scratch. */
    int (*open)(void *ctx, const struct backend_cpu_options *o, struct backend **out, size_t *scratch_bytes,
                struct error *err);
    void *ctx;
};

/* A row of a step whose logits are wanted. */
struct step_row {
    struct sequence *seq;
    size_t position; /* of the token whose distribution the row gives */
    bool score;      /* a prompt token is scored; else the next token is sampled */
    bool mask_failed;
};

struct step {
    struct batch batch;
    struct step_row *rows;                /* [max_kept_rows], as batch.logit_rows */
    struct sample_row *sample_rows;       /* [max_logit_rows] */
    struct sample_result *sample_results; /* [max_logit_rows] */
    size_t *masked;                       /* [max_logit_rows] rows with a constraint */
    float *vectors;                       /* [STEP_VECTORS] of the model, with pooling */
    struct quire_stream **done;           /* [max_num_seqs] ended in this step: let go at its end */
    size_t n_done;
    struct pace pace;
};

#define ENGINE_MAX_WAKERS 64
#define STEP_VECTORS      32 /* sequences whose vectors are taken at a time */

struct quire_engine {
    /* Fixed once open. */
    struct plan plan;
    struct stream_limits limits;
    struct log *log;
    const struct quire_step_reader *step_reader; /* NULL = none */
    struct quire_info info;
    struct model_spec spec;
    struct backend *backend;
    struct model *model;
    struct backend_kv *kv;

    /* The engine thread's. */
    struct kv_pool *pool;
    struct kv_cache cache;
    struct scheduler *scheduler;
    struct step step;
    const struct quire_waker *wakers[ENGINE_MAX_WAKERS]; /* due at the end of the step */
    size_t n_wakers;
    uint64_t n_arrived;
    size_t reported_waiting; /* the engine's part of stats.waiting */

    /* Shared. */
    struct mpsc arrivals, departures;
    struct doorbell bell;
    struct quire_stats stats;
    _Atomic uint64_t n_submitted;
    _Atomic size_t n_live;    /* accepted and not finished */
    _Atomic size_t n_stuck;   /* of these, waiting for slow readers; as of the last sleep */
    _Atomic uint64_t beat_us; /* the last sign of life of the engine thread */
    _Atomic bool asleep, stopping;
    _Atomic size_t n_resident; /* pages */
    _Atomic bool populated;    /* no more will come */
    bool has_thread, has_populate;
    pthread_t thread, populate_thread;
};

/* ---- plan.c ---- */

/* Checks the configuration and sizes everything; fills e->plan and the memory rows. Opens the backend on the
 * way, since sizes are its secret. place NULL: here, to be run. */
int plan_engine(struct quire_engine *e, const struct quire_config *c, const struct plan_place *place,
                struct error *err);
/* The longest sequence whose KV fits n_pages, at most max_model_len; 0: none. */
size_t plan_longest(const struct quire_engine *e, size_t n_pages);
size_t step_bytes(const struct plan *p, const struct model_spec *spec); /* of the arrays in struct step */

/* ---- engine.c ---- */

void *engine_main(void *engine); /* the thread */
void stats_init(struct quire_stats *s);
void engine_note_waker(struct quire_engine *e, const struct quire_waker *waker);

/* ---- step.c ---- */

int step_create(struct step *s, const struct plan *p, const struct model_spec *spec, struct error *err);
void step_free(struct step *s);
/* One step; false when there was nothing to do. */
bool step_run(struct quire_engine *e);

/* ---- deliver.c ---- */

void deliver_score(struct quire_engine *e, struct quire_stream *s, const struct step_row *row,
                   const struct sample_result *r);
void deliver_token(struct quire_engine *e, struct quire_stream *s, const struct step_row *row,
                   const struct sample_result *r, uint64_t now);
/* The prompt is computed and nothing was to be generated. */
void deliver_scored(struct quire_engine *e, struct quire_stream *s, uint64_t now);
/* Takes the model's vector, and scales it as was asked. */
void deliver_vector(struct quire_engine *e, struct quire_stream *s, const float *vector);
/* Ends a stream with an event that has no token. The engine lets go of it: at once, or at the end of the step
 * when it runs in one. */
void deliver_end(struct quire_engine *e, struct quire_stream *s, enum quire_finish how);
void deliver_failure(struct quire_engine *e, struct quire_stream *s, int code, const char *fmt, ...)
    __attribute__((format(printf, 4, 5)));

#endif
