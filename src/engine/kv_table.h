/* Block tables of sequences over the KV groups of a model, and the prefix cache: what of a token sequence is
 * in the pool already, what it still needs, and when a block may be named or given back.
 *
 * Positions [i * block_tokens, (i + 1) * block_tokens) of group g are in block blocks[g][i]. A group with a
 * window keeps only the blocks that positions from `computed` on can still see; earlier entries are 0.
 * Engine thread only; nothing allocates. */
#ifndef ENGINE_KV_TABLE_H
#define ENGINE_KV_TABLE_H

#include "backend/batch.h"
#include "base/hash.h"
#include "engine/kv_pool.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct kv_cache {
    struct kv_pool *pool;
    size_t block_tokens, n_groups;
    size_t window[BATCH_MAX_GROUPS]; /* positions attended, the own one included; 0 = all */
    size_t chunk_tokens;             /* most tokens of one sequence in one step */
    bool naming;                     /* prefix caching is on */
    uint64_t copies;                 /* partly matching blocks copied */
    /* Copies the first n_tokens slots of a block to another, in order with the forward passes. */
    void (*copy)(void *ctx, uint32_t dst, uint32_t src, size_t n_tokens);
    void *copy_ctx;
};

struct kv_table {
    uint32_t *blocks[BATCH_MAX_GROUPS]; /* [kv_table_blocks(max length)] each */
    size_t n_blocks[BATCH_MAX_GROUPS];  /* entries in use */
    size_t first[BATCH_MAX_GROUPS];     /* entries before it are 0 */
    size_t n_named;                     /* full blocks that have been offered to the pool by name */
};

/* A token sequence for look-up: keys[0] is the root key, keys[i + 1] the key of full block i. */
struct kv_tokens {
    const uint32_t *tokens;
    const struct hash128 *keys;
    size_t n_full; /* full blocks whose keys are known */
};

/* What kv_lookup found. */
struct kv_hit {
    size_t n_tokens; /* cached in all: n_blocks full blocks and n_part tokens of one more */
    size_t n_blocks, n_part;
    uint32_t part[BATCH_MAX_GROUPS]; /* source of the partial block */
    size_t n_from_free;              /* full blocks that would leave the free lists */
};

/* Entries that a table needs for n_tokens. */
size_t kv_table_blocks(size_t n_tokens, size_t block_tokens);

/* The most blocks, over all groups, that a sequence of n_tokens holds at any time. */
size_t kv_peak_blocks(const struct kv_cache *c, size_t n_tokens);

/* c->chunk_tokens as far as a pool of n_blocks allows: a window's blocks come back only after a step, so
 * steps must not be as long as the whole pool. Without windows there is no such limit. */
size_t kv_chunk_limit(const struct kv_cache *c, size_t n_blocks);

/* The longest cached prefix of at most `limit` tokens that every group has what it needs of. Writes the found
 * blocks into the empty table t but holds nothing: kv_attach must follow, or t be left unused, before the
 * pool changes. */
void kv_lookup(const struct kv_cache *c, const struct kv_tokens *seq, size_t limit, struct kv_table *t,
               struct kv_hit *hit);
/* Blocks that must be taken for a sequence of n_tokens: after this hit, or with what table t holds by now. */
size_t kv_needed_after(const struct kv_cache *c, const struct kv_hit *hit, size_t n_tokens);
size_t kv_needed(const struct kv_cache *c, const struct kv_table *t, size_t n_tokens);
/* Holds what kv_lookup found and copies the partial block. False when no block is free for the copy: then the
 * hit is cut to its full blocks. */
bool kv_attach(struct kv_cache *c, struct kv_table *t, struct kv_hit *hit);

/* Takes the blocks that are missing for positions below n_tokens: all or (false) none. */
bool kv_extend(struct kv_cache *c, struct kv_table *t, size_t n_tokens);
/* Takes kv_needed(c, t, n_tokens) blocks, or (false) none: as many as a sequence of n_tokens ever holds. */
bool kv_reserve(struct kv_cache *c, struct kv_table *t, size_t n_tokens);

/* Positions below `computed` are now in memory: counts them as filled, names blocks that became full (a block
 * that another sequence has named already replaces ours: same key, same bits) and gives back what no window
 * needs. */
void kv_advance(struct kv_cache *c, struct kv_table *t, const struct kv_tokens *seq, size_t computed);

/* Gives all blocks back, the last first, so that a prefix outlives what follows it. Leaves t empty. */
void kv_release(struct kv_cache *c, struct kv_table *t);

#endif
