/* A naive model of kv_pool (arrays, linear search, no index) and a player that runs operations taken from
 * bytes on both and compares every answer. Used by the property test and the fuzz target. */
#ifndef KV_MODEL_H
#define KV_MODEL_H

#include "engine/kv_pool.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MODEL_BLOCKS = 40, MODEL_TOKENS = 4, MODEL_GROUPS = 2, MODEL_ROOTS = 3, MODEL_LETTERS = 2 };

#define MODEL_MIDDLE (~0ul / 2)

struct model_block {
    bool resident, keyed;
    unsigned refs, filled, group, retain;
    struct hash128 key, parent;
    uint32_t tokens[MODEL_TOKENS];
    unsigned long named_at, freed_at; /* order of naming; order on the free list of its class */
};

struct kv_model {
    struct kv_pool *pool;
    struct model_block blocks[MODEL_BLOCKS];
    size_t n_blocks, n_resident;
    unsigned long clock;
    unsigned long low_clock; /* falls from the middle: for what goes to the front of a list */
    size_t allocations, evictions, reuses;
    const uint8_t *bytes;
    size_t n_bytes, at;
};

#define MODEL_CHECK(cond)                                                                                    \
    do {                                                                                                     \
        if (!(cond)) {                                                                                       \
            fprintf(stderr, "%s:%d: %s (byte %zu)\n", __FILE__, __LINE__, #cond, m->at);                     \
            abort();                                                                                         \
        }                                                                                                    \
    } while (0)

static unsigned model_byte(struct kv_model *m, unsigned below) {
    unsigned v = m->at < m->n_bytes ? m->bytes[m->at] : 0;
    m->at++;
    return v % below;
}

/* A key with few distinct low halves, so that the index is full of collisions. */
static struct hash128 model_key(struct hash128 parent, const uint32_t *tokens) {
    uint64_t h = parent.hi ^ UINT64_C(0xcbf29ce484222325);
    for (int i = 0; i < MODEL_TOKENS; i++) h = (h ^ tokens[i]) * UINT64_C(0x100000001b3);
    h ^= h >> 29;
    return (struct hash128){h & 3, h};
}

static void model_free_block(struct kv_model *m, struct model_block *b) {
    b->freed_at = b->retain == KV_RETAIN_NONE ? m->low_clock-- : ++m->clock;
    for (;;) {
        size_t n = 0;
        struct model_block *oldest = NULL;
        for (size_t i = 1; i < m->n_blocks; i++) {
            struct model_block *x = &m->blocks[i];
            if (!x->resident || x->refs || x->retain != KV_RETAIN_PROVEN) continue;
            n++;
            if (!oldest || x->freed_at < oldest->freed_at) oldest = x;
        }
        if (n <= m->n_resident / 2) break;
        oldest->retain = KV_RETAIN_KEYED;
        oldest->freed_at = ++m->clock;
    }
}

static uint32_t model_take(struct kv_model *m) {
    size_t best = 0;
    for (size_t i = 1; i < m->n_blocks; i++) {
        struct model_block *b = &m->blocks[i], *c = &m->blocks[best];
        if (!b->resident || b->refs) continue;
        if (!best || b->retain < c->retain || (b->retain == c->retain && b->freed_at < c->freed_at)) best = i;
    }
    if (!best) return 0;
    struct model_block *b = &m->blocks[best];
    m->allocations++;
    m->evictions += b->keyed;
    *b = (struct model_block){.resident = true, .refs = 1};
    return (uint32_t)best;
}

static uint32_t model_find(const struct kv_model *m, unsigned group, struct hash128 parent,
                           struct hash128 key, const uint32_t *tokens) {
    for (size_t i = 1; i < m->n_blocks; i++) {
        const struct model_block *b = &m->blocks[i];
        if (b->keyed && b->group == group && hash128_equal(b->key, key) && hash128_equal(b->parent, parent) &&
            !memcmp(b->tokens, tokens, sizeof b->tokens))
            return (uint32_t)i;
    }
    return 0;
}

static uint32_t model_find_part(const struct kv_model *m, unsigned group, struct hash128 parent,
                                const uint32_t *tokens, size_t n, size_t *n_equal) {
    unsigned long before = (unsigned long)-1;
    uint32_t found = 0;
    *n_equal = 0;
    for (int c = 0; c < KV_PART_CANDIDATES; c++) {
        size_t newest = 0, equal = 0;
        for (size_t i = 1; i < m->n_blocks; i++) {
            const struct model_block *b = &m->blocks[i];
            if (b->keyed && b->group == group && hash128_equal(b->parent, parent) && b->named_at < before &&
                (!newest || b->named_at > m->blocks[newest].named_at))
                newest = i;
        }
        if (!newest) break;
        before = m->blocks[newest].named_at;
        while (equal < n && m->blocks[newest].tokens[equal] == tokens[equal]) equal++;
        if (equal > *n_equal) {
            *n_equal = equal;
            found = (uint32_t)newest;
        }
    }
    return found;
}

/* ---- operations ---- */

/* A block that satisfies `held` (1: held, 0: free and keyed), chosen by a byte; 0 if there is none. */
static uint32_t model_choose(struct kv_model *m, bool held) {
    size_t start = model_byte(m, 256) % m->n_blocks;
    for (size_t k = 0; k < m->n_blocks; k++) {
        size_t i = (start + k) % m->n_blocks;
        const struct model_block *b = &m->blocks[i];
        if (i && b->resident && (held ? b->refs > 0 : !b->refs && b->keyed)) return (uint32_t)i;
    }
    return 0;
}

static struct hash128 model_parent(struct kv_model *m) {
    unsigned which = model_byte(m, 8);
    if (which < MODEL_ROOTS) return (struct hash128){which & 1, 1000 + which};
    uint32_t b = model_choose(m, which & 1);
    return b && m->blocks[b].keyed ? m->blocks[b].key : (struct hash128){0, 1000};
}

static void model_tokens(struct kv_model *m, uint32_t *tokens) {
    unsigned bits = model_byte(m, 256);
    for (int i = 0; i < MODEL_TOKENS; i++, bits /= MODEL_LETTERS) tokens[i] = bits % MODEL_LETTERS;
}

static void model_op_name(struct kv_model *m) {
    uint32_t block = model_choose(m, true), tokens[MODEL_TOKENS];
    unsigned group = model_byte(m, MODEL_GROUPS);
    struct hash128 parent = model_parent(m);
    model_tokens(m, tokens);
    if (!block || m->blocks[block].keyed) return;
    struct model_block *b = &m->blocks[block];
    kv_pool_fill(m->pool, block, MODEL_TOKENS);
    b->filled = MODEL_TOKENS;
    struct hash128 key = model_key(parent, tokens);
    bool taken = false;
    for (size_t i = 1; i < m->n_blocks; i++)
        taken |= m->blocks[i].keyed && m->blocks[i].group == group && hash128_equal(m->blocks[i].key, key);
    MODEL_CHECK(kv_pool_name(m->pool, block, group, parent, key, tokens) == !taken);
    if (taken) return;
    b->keyed = true;
    b->group = group;
    b->key = key;
    b->parent = parent;
    b->retain = KV_RETAIN_KEYED;
    b->named_at = ++m->clock;
    memcpy(b->tokens, tokens, sizeof tokens);
}

static void model_op_find(struct kv_model *m) {
    uint32_t tokens[MODEL_TOKENS];
    size_t equal, model_equal, n = 1 + model_byte(m, MODEL_TOKENS);
    unsigned group = model_byte(m, MODEL_GROUPS);
    struct hash128 parent = model_parent(m);
    model_tokens(m, tokens);
    struct hash128 key = model_key(parent, tokens), other = {parent.lo, parent.hi + 1};
    MODEL_CHECK(kv_pool_find(m->pool, group, parent, key, tokens) ==
                model_find(m, group, parent, key, tokens));
    MODEL_CHECK(kv_pool_find(m->pool, group, other, key, tokens) == 0); /* the parent is compared */
    uint32_t wrong[MODEL_TOKENS];
    memcpy(wrong, tokens, sizeof wrong);
    wrong[n - 1] += 7;
    MODEL_CHECK(kv_pool_find(m->pool, group, parent, key, wrong) == 0); /* the tokens are compared */
    uint32_t part = kv_pool_find_part(m->pool, group, parent, tokens, n, &equal);
    MODEL_CHECK(part == model_find_part(m, group, parent, tokens, n, &model_equal) && equal == model_equal);
}

static void model_op_hold(struct kv_model *m) {
    uint32_t block = model_choose(m, model_byte(m, 2));
    if (!block) return;
    kv_pool_hold(m->pool, block);
    m->blocks[block].refs++;
}

static void model_op_drop(struct kv_model *m) {
    uint32_t block = model_choose(m, true);
    if (!block) return;
    kv_pool_drop(m->pool, block);
    if (!--m->blocks[block].refs) model_free_block(m, &m->blocks[block]);
}

static void model_op_touch(struct kv_model *m) {
    uint32_t block = model_choose(m, model_byte(m, 2));
    if (!block) return;
    struct model_block *b = &m->blocks[block];
    kv_pool_touch(m->pool, block);
    m->reuses++;
    if (!b->keyed) return;
    b->retain = KV_RETAIN_PROVEN;
    if (!b->refs) model_free_block(m, b);
}

static void model_op_grow(struct kv_model *m) {
    size_t n = m->n_resident + 1 + model_byte(m, 6);
    kv_pool_grow(m->pool, n);
    for (size_t i = m->n_resident + 1; i < n && i < m->n_blocks; i++) {
        m->blocks[i].resident = true;
        m->blocks[i].freed_at = MODEL_MIDDLE + ++m->clock; /* behind all that were freed */
        m->n_resident++;
    }
}

static void model_op(struct kv_model *m) {
    uint32_t block;
    switch (model_byte(m, 16)) {
    case 0:
    case 1:
    case 2:
        block = model_take(m);
        MODEL_CHECK(kv_pool_take(m->pool) == block);
        break;
    case 3:
    case 4: model_op_hold(m); break;
    case 5:
    case 6:
    case 7:
    case 8: model_op_drop(m); break;
    case 9:
        if ((block = model_choose(m, true)) && !m->blocks[block].keyed) {
            unsigned n = model_byte(m, MODEL_TOKENS + 1);
            kv_pool_fill(m->pool, block, n);
            if (n > m->blocks[block].filled) m->blocks[block].filled = n;
        }
        break;
    case 10:
    case 11:
    case 12: model_op_name(m); break;
    case 13: model_op_touch(m); break;
    case 14: model_op_find(m); break;
    case 15: model_op_grow(m); break;
    }
}

static void model_compare(struct kv_model *m) {
    const struct kv_pool_stats *s = kv_pool_stats(m->pool);
    const char *fault = kv_pool_check(m->pool);
    size_t held = 0, cached = 0, filled = 0;
    for (size_t i = 1; i < m->n_blocks; i++) {
        const struct model_block *b = &m->blocks[i];
        MODEL_CHECK(kv_pool_refs(m->pool, (uint32_t)i) == b->refs);
        held += b->refs > 0;
        cached += !b->refs && b->keyed;
        filled += b->refs ? b->filled : 0;
    }
    if (fault) fprintf(stderr, "%s\n", fault);
    MODEL_CHECK(!fault);
    MODEL_CHECK(s->n_held == held && s->n_cached == cached && s->filled_tokens == filled);
    MODEL_CHECK(s->n_resident == m->n_resident && s->n_free == m->n_resident - held);
    MODEL_CHECK(s->allocations == m->allocations && s->evictions == m->evictions && s->reuses == m->reuses);
}

/* Plays the operations that the bytes spell. */
static void model_play(const uint8_t *bytes, size_t n_bytes) {
    struct kv_model *m = calloc(1, sizeof *m);
    if (!m) return;
    m->bytes = bytes;
    m->n_bytes = n_bytes;
    m->low_clock = MODEL_MIDDLE;
    m->n_blocks = 2 + model_byte(m, MODEL_BLOCKS - 2);
    if (!kv_pool_create(m->n_blocks, MODEL_TOKENS, &m->pool, NULL)) {
        while (m->at < m->n_bytes) {
            model_op(m);
            model_compare(m);
        }
    }
    kv_pool_free(m->pool);
    free(m);
}

#endif
