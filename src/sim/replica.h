/* One engine on virtual time: the engine's own scheduler, KV blocks and prefix cache; only the model's work
 * is replaced by a clock. What it decides is therefore what the engine decides, given the same times. */
#ifndef SIM_REPLICA_H
#define SIM_REPLICA_H

#include "engine/scheduler.h"
#include "sim/wander.h"

#include <quire/error.h>
#include <quire/step.h>

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* As the engine's options, in its words. */
struct sim_options {
    size_t max_num_seqs, max_num_batched_tokens, max_model_len, max_queue;
    size_t long_prefill_threshold;             /* 0: no limit */
    size_t block_tokens, n_blocks;             /* of KV, usable ones */
    size_t n_groups, window[BATCH_MAX_GROUPS]; /* as struct kv_cache */
    bool prefix_caching, chunked_prefill;
};

/* Fills prepare_us, forward_us and sample_us of a step whose counts are set. */
struct sim_clock {
    void (*time)(void *ctx, struct quire_step *step);
    void *ctx;
    const struct wander *wander; /* the speed that these are at; NULL: it does not wander */
    double wander_us;            /* where in it virtual time 0 lies */
};

/* A request. `seq` is the scheduler's. */
struct job {
    struct sequence seq;
    const uint32_t *answer; /* [n_output]; NULL: tokens are made up, one unlike the other */
    size_t n_output;        /* it ends after so many tokens, at most max_len - n_prompt */
    double arrive_us, started_us;
    bool started;
    size_t n_cached; /* found when it started */
    uint32_t salt;   /* of its answer's tokens */
    void *user;
    struct job *next;
};

/* Tokens are copied. NULL when memory is out. */
struct job *job_new(const uint32_t *prompt, size_t n_prompt, size_t max_tokens, size_t n_output,
                    size_t block_tokens);
void job_free(struct job *job);
/* What a prompt of the next turn has to repeat: the answer's token i. */
uint32_t job_answer_token(uint32_t salt, size_t i);

struct replica;

int replica_create(const struct sim_options *o, const struct sim_clock *clock, struct replica **out,
                   struct error *err);
void replica_free(struct replica *r); /* NULL allowed; frees jobs that are still with it */

/* Whether a request could ever run: else the engine would refuse it. */
bool replica_fits(const struct replica *r, size_t n_tokens);
/* At the engine's door: taken in when the next step begins. The replica's, until it has ended. False, and
 * still the caller's: the queue is full. */
bool replica_add(struct replica *r, struct job *job);

/* Between steps, at now_us: takes in what has arrived by then and plans a step. False: nothing can be done
 * now. */
bool replica_begin(struct replica *r, double now_us, double *end_us);
/* The step ends. token: for every token made, at end_us; last: the job has ended, and is the callee's to
 * free. */
void replica_end(struct replica *r, void (*token)(void *ctx, struct job *job, bool last), void *ctx);

bool replica_busy(const struct replica *r);                     /* between begin and end */
const struct quire_step *replica_step(const struct replica *r); /* the last one begun */
size_t replica_live(const struct replica *r);                   /* jobs with it, in any state */
/* When the first of the jobs that are not taken in yet is at its door; INFINITY: there is none. */
double replica_next_us(const struct replica *r);

struct replica_figures {
    size_t running, waiting;
    double kv_usage; /* share of the blocks that are held */
    uint64_t prefix_queries, prefix_hits, preemptions, steps, n_started;
    double queue_us; /* waited before the first step, summed */
    double busy_us;  /* in steps */
};
void replica_read(const struct replica *r, struct replica_figures *out);

#endif
