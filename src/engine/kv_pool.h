/* The pool of KV blocks: who holds which block, which free block goes next, and which block holds which
 * tokens.
 *
 * Knows block numbers, not memory: block b is page b of the backend's pool. Block 0 is the null block, never
 * handed out. Every function but kv_pool_bytes belongs to the engine thread; nothing allocates after
 * kv_pool_create. Every operation is O(1) but kv_pool_find_part, which looks at KV_PART_CANDIDATES blocks.
 *
 * A block is in one of these states (README.md has the invariants, numbered):
 *   absent  not yet resident; unknown to the free list
 *   free    no references; on the free list of its retention, keyed (still answers kv_pool_find) or not
 *   held    one reference or more; on no list
 */
#ifndef ENGINE_KV_POOL_H
#define ENGINE_KV_POOL_H

#include "base/hash.h"

#include <quire/error.h>

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct kv_pool;

/* Free blocks leave the lowest class first, least recently used first. PROVEN: keyed and hit at least once;
 * at most half of the pool, beyond which its oldest fall back to KEYED, so that a burst of one-time prompts
 * does not flush shared prefixes and old favourites do not stay for ever (segmented LRU, Karedla et al.
 * 1994). */
enum kv_retain { KV_RETAIN_NONE, KV_RETAIN_KEYED, KV_RETAIN_PROVEN, KV_RETAIN_CLASSES };

#define KV_PART_CANDIDATES 16

struct kv_pool_stats {
    size_t n_resident;               /* blocks handed over by kv_pool_grow */
    size_t n_held, n_free, n_cached; /* cached: free and keyed */
    size_t filled_tokens;            /* over held blocks; against n_held * block_tokens this is the waste */
    uint64_t allocations, evictions, reuses; /* evictions: keyed blocks taken for other use */
};

/* Bytes that kv_pool_create allocates; 0 if that overflows. */
size_t kv_pool_bytes(size_t n_blocks, size_t block_tokens);

/* n_blocks counts the null block; 2 <= n_blocks <= 2^31. block_tokens: up to 65,535. No block is resident
 * yet. */
int kv_pool_create(size_t n_blocks, size_t block_tokens, struct kv_pool **out, struct error *err);
void kv_pool_free(struct kv_pool *p); /* NULL allowed */

/* Blocks [1, n) are resident from now on (n never falls; beyond the pool's size it is cut). */
void kv_pool_grow(struct kv_pool *p, size_t n);

/* A free block with one reference, no key and nothing filled; the first to go is forgotten. 0 if none is
 * free. */
uint32_t kv_pool_take(struct kv_pool *p);
/* One more reference to a held block or to a free keyed one. */
void kv_pool_hold(struct kv_pool *p, uint32_t block);
/* One reference less. At none the block becomes free: keyed ones stay findable. */
void kv_pool_drop(struct kv_pool *p, uint32_t block);

/* The first n tokens of a held block have been computed. */
void kv_pool_fill(struct kv_pool *p, uint32_t block, size_t n);

/* Names a held, wholly filled, unkeyed block: from now on it may be found. False when another block already
 * has this key in this group (the block stays unkeyed). tokens: [block_tokens], copied. */
bool kv_pool_name(struct kv_pool *p, uint32_t block, unsigned group, struct hash128 parent,
                  struct hash128 key, const uint32_t *tokens);
/* The block of this key, in any state; 0 if there is none. Parent and tokens are compared, not only the key.
 */
uint32_t kv_pool_find(const struct kv_pool *p, unsigned group, struct hash128 parent, struct hash128 key,
                      const uint32_t *tokens);
/* Among the newest children of parent, the block that begins with most of tokens [n], n <= block_tokens.
 * *n_equal is how many; 0 and block 0 if none. */
uint32_t kv_pool_find_part(const struct kv_pool *p, unsigned group, struct hash128 parent,
                           const uint32_t *tokens, size_t n, size_t *n_equal);
/* Notes a hit: the block earns KV_RETAIN_PROVEN, and when free becomes the most recently used. */
void kv_pool_touch(struct kv_pool *p, uint32_t block);

/* Key of a keyed block. */
struct hash128 kv_pool_key(const struct kv_pool *p, uint32_t block);
const uint32_t *kv_pool_tokens(const struct kv_pool *p, uint32_t block); /* [block_tokens] of a keyed block */
uint32_t kv_pool_refs(const struct kv_pool *p, uint32_t block);
const struct kv_pool_stats *kv_pool_stats(const struct kv_pool *p);

/* Checks every invariant in O(pool); NULL if all hold, else which one does not. For tests. */
const char *kv_pool_check(const struct kv_pool *p);

#endif
