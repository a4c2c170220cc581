#include "engine/kv_pool.h"

#include "base/error.h"
#include "base/size.h"

#include <stdlib.h>
#include <string.h>

struct kv_block {
    struct hash128 key, parent;
    uint32_t prev, next;   /* on the free list of `retain`; 0 = end */
    uint32_t newer, older; /* keyed children of the same parent; 0 = end */
    uint32_t refs;
    uint16_t n_filled;
    uint8_t group, retain;
    bool keyed;
};

struct kv_list {
    uint32_t first, last; /* first goes first */
    size_t n;
};

/* Open addressing with linear probing over block numbers; the keys are in the blocks. At most half full. */
struct kv_index {
    uint32_t *slots; /* 0 = empty */
    size_t mask;
    bool by_parent; /* slots hold the newest child of a parent; else the block of a key */
};

struct kv_pool {
    struct kv_block *blocks; /* [n_blocks] */
    uint32_t *tokens;        /* [n_blocks][block_tokens] */
    size_t n_blocks, block_tokens;
    struct kv_list free[KV_RETAIN_CLASSES];
    struct kv_index keys, children;
    struct kv_pool_stats stats;
};

/* ---- index ----------------------------------------------------------------------------------------------
 */

static size_t index_slots(size_t n_blocks) {
    size_t n = 16;
    while (n < 2 * n_blocks) n *= 2;
    return n;
}

static size_t index_home(const struct kv_index *x, struct hash128 key, unsigned group) {
    return (size_t)(key.lo + group * UINT64_C(0x9e3779b97f4a7c15)) & x->mask; /* keys are hashes already */
}

static struct hash128 index_key(const struct kv_index *x, const struct kv_block *b) {
    return x->by_parent ? b->parent : b->key;
}

/* The slot of this key, or the empty one where it would go. */
static size_t index_slot(const struct kv_pool *p, const struct kv_index *x, struct hash128 key,
                         unsigned group) {
    size_t i = index_home(x, key, group);
    for (; x->slots[i]; i = (i + 1) & x->mask) {
        const struct kv_block *b = &p->blocks[x->slots[i]];
        if (b->group == group && hash128_equal(index_key(x, b), key)) break;
    }
    return i;
}

/* Empties a slot and moves later entries of the run back, so that no search ends early. */
static void index_remove(const struct kv_pool *p, struct kv_index *x, size_t hole) {
    for (size_t i = hole;;) {
        i = (i + 1) & x->mask;
        if (!x->slots[i]) break;
        const struct kv_block *b = &p->blocks[x->slots[i]];
        size_t home = index_home(x, index_key(x, b), b->group);
        if (((i - home) & x->mask) < ((i - hole) & x->mask)) continue; /* it would come before its home */
        x->slots[hole] = x->slots[i];
        hole = i;
    }
    x->slots[hole] = 0;
}

/* ---- free lists -----------------------------------------------------------------------------------------
 */

static void list_append(struct kv_pool *p, struct kv_list *l, uint32_t block) {
    struct kv_block *b = &p->blocks[block];
    b->prev = l->last;
    b->next = 0;
    if (l->last)
        p->blocks[l->last].next = block;
    else
        l->first = block;
    l->last = block;
    l->n++;
}

static void list_prepend(struct kv_pool *p, struct kv_list *l, uint32_t block) {
    struct kv_block *b = &p->blocks[block];
    b->prev = 0;
    b->next = l->first;
    if (l->first)
        p->blocks[l->first].prev = block;
    else
        l->last = block;
    l->first = block;
    l->n++;
}

static void list_remove(struct kv_pool *p, struct kv_list *l, uint32_t block) {
    struct kv_block *b = &p->blocks[block];
    if (b->prev)
        p->blocks[b->prev].next = b->next;
    else
        l->first = b->next;
    if (b->next)
        p->blocks[b->next].prev = b->prev;
    else
        l->last = b->prev;
    b->prev = b->next = 0;
    l->n--;
}

static void free_add(struct kv_pool *p, uint32_t block) {
    struct kv_block *b = &p->blocks[block];
    if (b->retain == KV_RETAIN_NONE)
        list_prepend(p, &p->free[KV_RETAIN_NONE], block); /* its memory is warm */
    else
        list_append(p, &p->free[b->retain], block);
    p->stats.n_free++;
    p->stats.n_cached += b->keyed;
    while (p->free[KV_RETAIN_PROVEN].n > p->stats.n_resident / 2) {
        uint32_t oldest = p->free[KV_RETAIN_PROVEN].first;
        list_remove(p, &p->free[KV_RETAIN_PROVEN], oldest);
        p->blocks[oldest].retain = KV_RETAIN_KEYED;
        list_append(p, &p->free[KV_RETAIN_KEYED], oldest);
    }
}

static void free_remove(struct kv_pool *p, uint32_t block) {
    struct kv_block *b = &p->blocks[block];
    list_remove(p, &p->free[b->retain], block);
    p->stats.n_free--;
    p->stats.n_cached -= b->keyed;
}

/* ---- life -----------------------------------------------------------------------------------------------
 */

size_t kv_pool_bytes(size_t n_blocks, size_t block_tokens) {
    size_t blocks, tokens, slots;
    if (!size_mul(n_blocks, sizeof(struct kv_block), &blocks) || !size_mul(n_blocks, block_tokens, &tokens) ||
        !size_mul(tokens, sizeof(uint32_t), &tokens) || n_blocks > SIZE_MAX / 64)
        return 0;
    slots = 2 * index_slots(n_blocks) * sizeof(uint32_t);
    size_t total = sizeof(struct kv_pool);
    if (!size_add(total, blocks, &total) || !size_add(total, tokens, &total) ||
        !size_add(total, slots, &total))
        return 0;
    return total;
}

int kv_pool_create(size_t n_blocks, size_t block_tokens, struct kv_pool **out, struct error *err) {
    *out = NULL;
    if (n_blocks < 2 || n_blocks > (size_t)1 << 31 || !block_tokens || block_tokens > UINT16_MAX ||
        !kv_pool_bytes(n_blocks, block_tokens))
        return error_set(err, QUIRE_EINVAL, "a KV pool of %zu blocks of %zu tokens is out of range", n_blocks,
                         block_tokens);
    struct kv_pool *p = calloc(1, sizeof *p);
    if (!p) goto no_memory;
    p->n_blocks = n_blocks;
    p->block_tokens = block_tokens;
    size_t n_slots = index_slots(n_blocks);
    p->blocks = calloc(n_blocks, sizeof *p->blocks);
    p->tokens = calloc(n_blocks * block_tokens, sizeof *p->tokens);
    p->keys = (struct kv_index){calloc(n_slots, sizeof(uint32_t)), n_slots - 1, false};
    p->children = (struct kv_index){calloc(n_slots, sizeof(uint32_t)), n_slots - 1, true};
    if (!p->blocks || !p->tokens || !p->keys.slots || !p->children.slots) goto no_memory;
    p->stats.n_resident = 0;
    *out = p;
    return 0;
no_memory:
    kv_pool_free(p);
    return error_set(err, QUIRE_ENOMEM, "out of memory for the table of %zu KV blocks", n_blocks);
}

void kv_pool_free(struct kv_pool *p) {
    if (!p) return;
    free(p->blocks);
    free(p->tokens);
    free(p->keys.slots);
    free(p->children.slots);
    free(p);
}

void kv_pool_grow(struct kv_pool *p, size_t n) {
    n = size_min(n, p->n_blocks);
    for (size_t b = p->stats.n_resident + 1; b < n; b++) {
        list_append(p, &p->free[KV_RETAIN_NONE], (uint32_t)b); /* behind the warm ones */
        p->stats.n_resident++;
        p->stats.n_free++;
    }
}

/* ---- references -----------------------------------------------------------------------------------------
 */

static void forget(struct kv_pool *p, uint32_t block) {
    struct kv_block *b = &p->blocks[block];
    index_remove(p, &p->keys, index_slot(p, &p->keys, b->key, b->group));
    if (b->newer) {
        p->blocks[b->newer].older = b->older;
    } else { /* the index of children points here */
        size_t slot = index_slot(p, &p->children, b->parent, b->group);
        if (b->older)
            p->children.slots[slot] = b->older;
        else
            index_remove(p, &p->children, slot);
    }
    if (b->older) p->blocks[b->older].newer = b->newer;
    b->newer = b->older = 0;
    b->keyed = false;
}

uint32_t kv_pool_take(struct kv_pool *p) {
    uint32_t block = 0;
    for (int c = 0; c < KV_RETAIN_CLASSES && !block; c++) block = p->free[c].first;
    if (!block) return 0;
    struct kv_block *b = &p->blocks[block];
    free_remove(p, block);
    if (b->keyed) {
        forget(p, block);
        p->stats.evictions++;
    }
    b->retain = KV_RETAIN_NONE;
    b->refs = 1;
    b->n_filled = 0;
    p->stats.n_held++;
    p->stats.allocations++;
    return block;
}

void kv_pool_hold(struct kv_pool *p, uint32_t block) {
    struct kv_block *b = &p->blocks[block];
    if (!b->refs++) {
        free_remove(p, block);
        p->stats.n_held++;
        p->stats.filled_tokens += b->n_filled;
    }
}

void kv_pool_drop(struct kv_pool *p, uint32_t block) {
    struct kv_block *b = &p->blocks[block];
    if (--b->refs) return;
    p->stats.n_held--;
    p->stats.filled_tokens -= b->n_filled;
    free_add(p, block);
}

void kv_pool_fill(struct kv_pool *p, uint32_t block, size_t n) {
    struct kv_block *b = &p->blocks[block];
    if (n <= b->n_filled) return;
    p->stats.filled_tokens += n - b->n_filled;
    b->n_filled = (uint16_t)n;
}

/* ---- names ----------------------------------------------------------------------------------------------
 */

bool kv_pool_name(struct kv_pool *p, uint32_t block, unsigned group, struct hash128 parent,
                  struct hash128 key, const uint32_t *tokens) {
    struct kv_block *b = &p->blocks[block];
    size_t slot = index_slot(p, &p->keys, key, group);
    if (p->keys.slots[slot]) return false;
    b->key = key;
    b->parent = parent;
    b->group = (uint8_t)group;
    b->keyed = true;
    b->retain = KV_RETAIN_KEYED;
    memcpy(p->tokens + block * p->block_tokens, tokens, p->block_tokens * sizeof *tokens);
    p->keys.slots[slot] = block;
    slot = index_slot(p, &p->children, parent, group);
    b->newer = 0;
    b->older = p->children.slots[slot];
    if (b->older) p->blocks[b->older].newer = block;
    p->children.slots[slot] = block;
    return true;
}

uint32_t kv_pool_find(const struct kv_pool *p, unsigned group, struct hash128 parent, struct hash128 key,
                      const uint32_t *tokens) {
    uint32_t block = p->keys.slots[index_slot(p, &p->keys, key, group)];
    if (!block || !hash128_equal(p->blocks[block].parent, parent)) return 0;
    const uint32_t *own = p->tokens + block * p->block_tokens;
    return memcmp(own, tokens, p->block_tokens * sizeof *tokens) ? 0 : block;
}

uint32_t kv_pool_find_part(const struct kv_pool *p, unsigned group, struct hash128 parent,
                           const uint32_t *tokens, size_t n, size_t *n_equal) {
    uint32_t best = 0, block = p->children.slots[index_slot(p, &p->children, parent, group)];
    *n_equal = 0;
    for (int i = 0; block && i < KV_PART_CANDIDATES; i++, block = p->blocks[block].older) {
        const uint32_t *own = p->tokens + block * p->block_tokens;
        size_t equal = 0;
        while (equal < n && own[equal] == tokens[equal]) equal++;
        if (equal <= *n_equal) continue;
        *n_equal = equal;
        best = block;
    }
    return best;
}

void kv_pool_touch(struct kv_pool *p, uint32_t block) {
    struct kv_block *b = &p->blocks[block];
    p->stats.reuses++;
    if (!b->keyed) return;
    bool is_free = !b->refs;
    if (is_free) free_remove(p, block);
    b->retain = KV_RETAIN_PROVEN;
    if (is_free) free_add(p, block);
}

struct hash128 kv_pool_key(const struct kv_pool *p, uint32_t block) {
    return p->blocks[block].key;
}

const uint32_t *kv_pool_tokens(const struct kv_pool *p, uint32_t block) {
    return p->tokens + block * p->block_tokens;
}

uint32_t kv_pool_refs(const struct kv_pool *p, uint32_t block) {
    return p->blocks[block].refs;
}

const struct kv_pool_stats *kv_pool_stats(const struct kv_pool *p) {
    return &p->stats;
}

/* ---- checking -------------------------------------------------------------------------------------------
 */

static const char *check_lists(const struct kv_pool *p) {
    size_t n_free = 0, n_cached = 0;
    for (int c = 0; c < KV_RETAIN_CLASSES; c++) {
        size_t n = 0;
        uint32_t before = 0;
        for (uint32_t i = p->free[c].first; i; before = i, i = p->blocks[i].next) {
            const struct kv_block *b = &p->blocks[i];
            if (i > p->stats.n_resident) return "an absent block is on a free list";
            if (b->refs) return "a held block is on a free list";
            if (b->retain != c) return "a block is on the list of another class";
            if (b->keyed != (c != KV_RETAIN_NONE)) return "class and key disagree";
            if (b->prev != before) return "a free list is not linked both ways";
            if (++n > p->stats.n_resident) return "a free list has a cycle";
            n_cached += b->keyed;
        }
        if (p->free[c].last != before || p->free[c].n != n) return "a free list has the wrong end or length";
        n_free += n;
    }
    if (p->free[KV_RETAIN_PROVEN].n > p->stats.n_resident / 2) return "too many proven blocks";
    if (n_free != p->stats.n_free || n_cached != p->stats.n_cached) return "free or cached count is wrong";
    return NULL;
}

static const char *check_blocks(const struct kv_pool *p) {
    size_t n_held = 0, n_keyed = 0, filled = 0, n_heads = 0, in_keys = 0, in_children = 0;
    for (size_t i = 1; i < p->n_blocks; i++) {
        const struct kv_block *b = &p->blocks[i];
        if (i > p->stats.n_resident && (b->refs || b->keyed)) return "an absent block is in use";
        if (b->refs) {
            n_held++;
            filled += b->n_filled;
        }
        if (b->n_filled > p->block_tokens) return "a block is more than full";
        if (!b->keyed) continue;
        n_keyed++;
        if (b->n_filled != p->block_tokens) return "a keyed block is not full";
        if (p->keys.slots[index_slot(p, &p->keys, b->key, b->group)] != i)
            return "a keyed block is not indexed";
        uint32_t head = p->children.slots[index_slot(p, &p->children, b->parent, b->group)];
        if (!b->newer) {
            n_heads++;
            if (head != i) return "a newest child is not indexed";
        } else if (p->blocks[b->newer].older != i) {
            return "siblings are not linked both ways";
        }
    }
    for (size_t i = 0; i <= p->keys.mask; i++) {
        in_keys += p->keys.slots[i] != 0;
        in_children += p->children.slots[i] != 0;
    }
    if (in_keys != n_keyed || in_children != n_heads) return "an index has entries too many";
    if (n_held != p->stats.n_held || filled != p->stats.filled_tokens) return "held or filled count is wrong";
    if (n_held + p->stats.n_free != p->stats.n_resident) return "a block is neither held nor free";
    return NULL;
}

const char *kv_pool_check(const struct kv_pool *p) {
    const struct kv_block *null = &p->blocks[0];
    if (null->refs || null->keyed || null->next || null->prev) return "the null block is in use";
    const char *fault = check_lists(p);
    return fault ? fault : check_blocks(p);
}
