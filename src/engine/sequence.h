/* A sequence: what the engine computes for one request. All of it follows from the request and the tokens so
 * far, so a sequence can lose its KV blocks at any step and go on later. Engine thread only, once submitted.
 */
#ifndef ENGINE_SEQUENCE_H
#define ENGINE_SEQUENCE_H

#include "base/hash.h"
#include "engine/kv_table.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum sequence_state {
    SEQUENCE_NEW,     /* not with the scheduler */
    SEQUENCE_WAITING, /* in the queue */
    SEQUENCE_PARKED,  /* preempted because its reader is slow; waits for the reader, then in the queue */
    SEQUENCE_RUNNING  /* holds a slot and KV blocks */
};

struct sequence {
    /* Fixed by the request. */
    size_t n_prompt, max_len; /* max_len: prompt and the longest output */
    int32_t priority;
    bool read_cache;   /* may take KV from the prefix cache */
    bool score_prompt; /* log probabilities of the prompt are wanted: its positions are computed, not found */

    /* Tokens. Position i of the model's input is tokens[i]; the last known one may not be computed yet. */
    uint32_t *tokens;     /* [max_len], the prompt first */
    size_t n_known;       /* prompt and output so far */
    size_t n_computed;    /* leading tokens whose K and V are in memory; < n_known while work is left */
    size_t n_scored;      /* leading prompt positions whose log probabilities are known, or not wanted */
    struct hash128 *keys; /* [1 + max_len / block_tokens]: root, then full blocks of known tokens */
    size_t n_full;        /* block keys known */

    /* The scheduler's. */
    enum sequence_state state;
    uint64_t arrival;
    size_t place;           /* index in the queue, the parked or the running list */
    size_t slot;            /* while running */
    struct kv_table *table; /* of the slot, while running */
    size_t n_scheduled;     /* tokens of this step */
    size_t n_cached;        /* found in the prefix cache when last admitted */
    size_t n_lost;          /* computed when last preempted, not yet computed again */
    size_t waited_for;      /* 1 + the last block that another sequence's computation was awaited for */
    unsigned n_preempted;   /* for want of memory */
    unsigned n_parked;      /* for a slow reader */
    bool admitted_before;
};

static inline size_t sequence_left(const struct sequence *s) {
    return s->n_known - s->n_computed;
}

/* Computes the keys of full blocks of known tokens that have none yet; keys[0] is set. */
void sequence_name_blocks(struct sequence *s, struct hash_secret secret, size_t block_tokens);
/* One more known token, n_known < max_len. */
void sequence_append(struct sequence *s, uint32_t token, struct hash_secret secret, size_t block_tokens);

static inline struct kv_tokens sequence_tokens(const struct sequence *s) {
    return (struct kv_tokens){s->tokens, s->keys, s->n_full};
}

#endif
