/* Which tokens of which sequences the next step computes. One rule for prefill and decode: every sequence has
 * `known` and `computed` tokens; running sequences, then waiting ones, get shares of one token budget.
 *
 * - Sequences one token behind (decodes) come first, oldest first, then running prefills, then admissions in
 * queue order (arrival, or priority and arrival). Nothing overtakes a waiting sequence that lacks memory or
 * budget.
 * - Admission needs the blocks for all known tokens, beyond what running prefills still need, and headroom
 * for growth: a block for each sequence; 4 after one preemption; 16 after two; after SCHED_PROTECT
 * preemptions all that could ever be needed, from when on the sequence is not preempted again.
 * - When memory runs out, one sequence loses its blocks and is queued at its old place: one whose reader is
 * slow, else the newest of lowest priority that is not protected, never the oldest while another is left. So
 * the oldest always progresses, and each is preempted at most SCHED_PROTECT times for want of memory.
 * - A sequence whose reader is slow (`blocked`) is not scheduled, and gives up its slot or blocks to whoever
 * wants them.
 * - A waiting sequence whose next block is being computed in this very step by another one waits for the next
 *   step, to find it in the cache; again only when it has found more since.
 *
 * Two settings are kept for measurement, to show what the rules above give (quire bench ablation):
 *
 * - static_batch: what waits is admitted together while nothing runs, however many steps its prompts take,
 * and nothing more until all of it have ended (static batching, as in Yu et al., Orca, OSDI 2022, section 2).
 * - reserve_tokens: admission takes the blocks of so many tokens at once, whatever the sequence is going to
 * need (reservation, as in Kwon et al., PagedAttention, SOSP 2023, section 2). Nothing is preempted for want
 * of memory.
 *
 * Knows no model, clock or socket. Engine thread only; allocates only in scheduler_create. */
#ifndef ENGINE_SCHEDULER_H
#define ENGINE_SCHEDULER_H

#include "engine/kv_table.h"
#include "engine/sequence.h"

#include <quire/error.h>
#include <quire/stats.h>

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define SCHED_PROTECT 3

struct scheduler_options {
    size_t max_num_seqs, max_num_batched_tokens; /* the latter no smaller than the former */
    size_t max_score_rows; /* most tokens in one step of prompts whose log probabilities are wanted */
    size_t max_model_len;
    size_t max_live;  /* sequences with the scheduler, in any state */
    bool chunked;     /* in parts of at most cache->chunk_tokens; else a prompt is scheduled whole, for which
                         the two limits above must be no smaller than max_model_len */
    bool in_one_step; /* not chunked, and every sequence ends with the step that computes it (encoders): one
                         may go beyond a lowered budget where nothing else has been planned */
    bool by_priority;
    bool static_batch;      /* for measurement */
    size_t reserve_tokens;  /* for measurement; 0: blocks are taken as they are needed */
    struct kv_cache *cache; /* outlives the scheduler */
    /* Whether a token of this sequence could not be delivered at the moment. */
    bool (*blocked)(struct sequence *s);
};

struct scheduler_counts {
    uint64_t preemptions, parkings;
    uint64_t held_steps[QUIRE_LACKS]; /* steps that left a sequence waiting, by what the first one lacked */
    uint64_t recomputed_tokens;       /* computed again after a preemption */
    uint64_t prefix_queries, prefix_hits; /* tokens, at first admissions */
};

struct scheduler;

size_t scheduler_bytes(const struct scheduler_options *o); /* what scheduler_create allocates; 0: overflow */
int scheduler_create(const struct scheduler_options *o, struct scheduler **out, struct error *err);
void scheduler_free(struct scheduler *s); /* NULL allowed; sequences must have been removed */

/* The queue. The sequence's fixed part, tokens and keys are set; it stays the caller's. */
void scheduler_add(struct scheduler *s, struct sequence *seq);
/* Takes it out wherever it is; its blocks return to the pool. */
void scheduler_remove(struct scheduler *s, struct sequence *seq);

/* At most so many tokens a step from now on: no more than max_num_batched_tokens, no less than a token for
 * each running sequence and 32 (within max_num_seqs), so that prompts go on, too. For keeping steps short; it
 * has no effect where prompts are computed whole before they go on. */
void scheduler_set_budget(struct scheduler *s, size_t n_tokens);

/* Plans a step: sets n_scheduled of what scheduler_planned lists, with blocks for those tokens in its table.
 * Returns the number of tokens; 0: nothing can be done now. */
size_t scheduler_plan(struct scheduler *s);
/* The planned sequences, n of them, in the order of their rows; valid until the next plan, add or remove. */
struct sequence *const *scheduler_planned(const struct scheduler *s, size_t *n);
/* The step is done: the planned tokens of seq are computed. */
void scheduler_commit(struct scheduler *s, struct sequence *seq);

size_t scheduler_running(const struct scheduler *s);
size_t scheduler_waiting(const struct scheduler *s); /* parked ones included */
size_t scheduler_parked(const struct scheduler *s);
/* Any sequence in any state, NULL when there is none: for taking all out at the end. */
struct sequence *scheduler_any(struct scheduler *s);
/* The next one to be admitted, NULL when none waits for more than its reader. */
struct sequence *scheduler_head(struct scheduler *s);
/* Running sequences whose reader is slow. */
size_t scheduler_blocked(const struct scheduler *s);
const struct scheduler_counts *scheduler_counts(const struct scheduler *s);

#endif
