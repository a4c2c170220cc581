#include "engine/kv_table.h"

#include "base/size.h"

#include <string.h>

size_t kv_table_blocks(size_t n_tokens, size_t block_tokens) {
    return size_div_up(n_tokens, block_tokens);
}

/* The most blocks of a group that a sequence of n_tokens holds at a time. */
static size_t group_peak(const struct kv_cache *c, size_t g, size_t n_tokens) {
    size_t all = size_div_up(n_tokens, c->block_tokens);
    if (!c->window[g]) return all;
    /* A step's own positions and the window before the first of them, not aligned to blocks. */
    size_t span = c->window[g] - 1 + size_min(c->chunk_tokens, n_tokens);
    return size_min(all, size_div_up(span, c->block_tokens) + 1);
}

size_t kv_peak_blocks(const struct kv_cache *c, size_t n_tokens) {
    size_t total = 0;
    for (size_t g = 0; g < c->n_groups; g++) total += group_peak(c, g, n_tokens);
    return total;
}

size_t kv_chunk_limit(const struct kv_cache *c, size_t n_blocks) {
    bool windows = false;
    for (size_t g = 0; g < c->n_groups; g++) windows |= c->window[g] != 0;
    size_t part = n_blocks / (4 * c->n_groups) * c->block_tokens;
    return windows ? size_min(c->chunk_tokens, size_max(part, c->block_tokens)) : c->chunk_tokens;
}

/* First block that a query at position n_tokens or later can see. */
static size_t first_visible(const struct kv_cache *c, size_t g, size_t n_tokens) {
    size_t window = c->window[g];
    return window && n_tokens + 1 > window ? (n_tokens + 1 - window) / c->block_tokens : 0;
}

static uint32_t find_block(const struct kv_cache *c, const struct kv_tokens *seq, size_t g, size_t i) {
    return kv_pool_find(c->pool, (unsigned)g, seq->keys[i], seq->keys[i + 1],
                        seq->tokens + i * c->block_tokens);
}

/* The most full blocks, up to max, so that every group has those that are visible from behind them. */
static size_t lookup_full(const struct kv_cache *c, const struct kv_tokens *seq, size_t max,
                          struct kv_table *t) {
    size_t run[BATCH_MAX_GROUPS] = {0}, best = 0; /* run: consecutive blocks found that end at i */
    for (size_t i = 0; i < max; i++) {
        bool all = true;
        for (size_t g = 0; g < c->n_groups; g++) {
            uint32_t block = find_block(c, seq, g, i);
            t->blocks[g][i] = block;
            run[g] = block ? run[g] + 1 : 0;
            if (!block && !c->window[g]) return best;
            all &= run[g] >= i + 1 - first_visible(c, g, (i + 1) * c->block_tokens);
        }
        if (all) best = i + 1;
    }
    return best;
}

/* A block after the full ones that begins with some of the tokens that follow. */
static void lookup_part(const struct kv_cache *c, const struct kv_tokens *seq, size_t limit,
                        struct kv_hit *hit) {
    size_t start = hit->n_blocks * c->block_tokens, n = size_min(limit - start, c->block_tokens), n_equal;
    struct hash128 parent = seq->keys[hit->n_blocks];
    uint32_t source = kv_pool_find_part(c->pool, 0, parent, seq->tokens + start, n, &n_equal);
    if (!source) return;
    hit->part[0] = source;
    for (size_t g = 1; g < c->n_groups; g++) {
        hit->part[g] = kv_pool_find(c->pool, (unsigned)g, parent, kv_pool_key(c->pool, source),
                                    kv_pool_tokens(c->pool, source));
        if (!hit->part[g]) return;
    }
    hit->n_part = n_equal;
}

void kv_lookup(const struct kv_cache *c, const struct kv_tokens *seq, size_t limit, struct kv_table *t,
               struct kv_hit *hit) {
    memset(hit, 0, sizeof *hit);
    if (!limit || !c->naming) return;
    hit->n_blocks = lookup_full(c, seq, size_min(limit / c->block_tokens, seq->n_full), t);
    if (hit->n_blocks * c->block_tokens < limit) lookup_part(c, seq, limit, hit);
    hit->n_tokens = hit->n_blocks * c->block_tokens + hit->n_part;
    for (size_t g = 0; g < c->n_groups; g++) {
        for (size_t i = first_visible(c, g, hit->n_blocks * c->block_tokens); i < hit->n_blocks; i++)
            hit->n_from_free += !kv_pool_refs(c->pool, t->blocks[g][i]);
    }
}

static bool copy_part(struct kv_cache *c, struct kv_table *t, const struct kv_hit *hit) {
    if (kv_pool_stats(c->pool)->n_free < 2 * c->n_groups)
        return false; /* source and copy, both may be free */
    for (size_t g = 0; g < c->n_groups; g++) {
        kv_pool_touch(c->pool, hit->part[g]);
        kv_pool_hold(c->pool, hit->part[g]); /* or taking a block might take this one */
    }
    for (size_t g = 0; g < c->n_groups; g++) {
        uint32_t block = kv_pool_take(c->pool);
        c->copy(c->copy_ctx, block, hit->part[g], hit->n_part);
        kv_pool_fill(c->pool, block, hit->n_part);
        t->blocks[g][t->n_blocks[g]++] = block;
        c->copies++;
    }
    for (size_t g = 0; g < c->n_groups; g++) kv_pool_drop(c->pool, hit->part[g]);
    return true;
}

/* Blocks to be taken by a group that has n_entries and holds n_held of them. */
static size_t group_needed(const struct kv_cache *c, size_t g, size_t n_entries, size_t n_held,
                           size_t n_tokens) {
    size_t want = size_div_up(n_tokens, c->block_tokens), peak = group_peak(c, g, n_tokens);
    if (want <= n_entries || peak <= n_held) return 0;
    return size_min(want - n_entries, peak - n_held);
}

size_t kv_needed(const struct kv_cache *c, const struct kv_table *t, size_t n_tokens) {
    size_t total = 0;
    for (size_t g = 0; g < c->n_groups; g++)
        total += group_needed(c, g, t->n_blocks[g], t->n_blocks[g] - t->first[g], n_tokens);
    return total;
}

size_t kv_needed_after(const struct kv_cache *c, const struct kv_hit *hit, size_t n_tokens) {
    size_t total = 0;
    for (size_t g = 0; g < c->n_groups; g++) {
        size_t first = size_min(first_visible(c, g, hit->n_blocks * c->block_tokens), hit->n_blocks);
        total += group_needed(c, g, hit->n_blocks, hit->n_blocks - first, n_tokens);
    }
    return total;
}

bool kv_attach(struct kv_cache *c, struct kv_table *t, struct kv_hit *hit) {
    for (size_t g = 0; g < c->n_groups; g++) {
        t->first[g] = size_min(first_visible(c, g, hit->n_blocks * c->block_tokens), hit->n_blocks);
        memset(t->blocks[g], 0, t->first[g] * sizeof *t->blocks[g]);
        for (size_t i = t->first[g]; i < hit->n_blocks; i++) {
            kv_pool_touch(c->pool, t->blocks[g][i]);
            kv_pool_hold(c->pool, t->blocks[g][i]);
        }
        t->n_blocks[g] = hit->n_blocks;
    }
    t->n_named = hit->n_blocks;
    if (!hit->n_part || copy_part(c, t, hit)) return true;
    hit->n_tokens -= hit->n_part;
    hit->n_part = 0;
    return false;
}

bool kv_extend(struct kv_cache *c, struct kv_table *t, size_t n_tokens) {
    size_t want = size_div_up(n_tokens, c->block_tokens), missing = 0;
    for (size_t g = 0; g < c->n_groups; g++) missing += want > t->n_blocks[g] ? want - t->n_blocks[g] : 0;
    if (missing > kv_pool_stats(c->pool)->n_free) return false;
    for (size_t g = 0; g < c->n_groups; g++) {
        while (t->n_blocks[g] < want) t->blocks[g][t->n_blocks[g]++] = kv_pool_take(c->pool);
    }
    return true;
}

bool kv_reserve(struct kv_cache *c, struct kv_table *t, size_t n_tokens) {
    if (kv_needed(c, t, n_tokens) > kv_pool_stats(c->pool)->n_free) return false;
    for (size_t g = 0; g < c->n_groups; g++) {
        size_t n = group_needed(c, g, t->n_blocks[g], t->n_blocks[g] - t->first[g], n_tokens);
        for (; n; n--) t->blocks[g][t->n_blocks[g]++] = kv_pool_take(c->pool);
    }
    return true;
}

static void name_block(struct kv_cache *c, struct kv_table *t, const struct kv_tokens *seq, size_t g,
                       size_t i) {
    uint32_t block = t->blocks[g][i];
    if (!block) return;
    if (kv_pool_name(c->pool, block, (unsigned)g, seq->keys[i], seq->keys[i + 1],
                     seq->tokens + i * c->block_tokens))
        return;
    uint32_t same = find_block(c, seq, g, i);
    if (!same || same == block) return;
    kv_pool_hold(c->pool, same);
    kv_pool_drop(c->pool, block);
    t->blocks[g][i] = same;
}

void kv_advance(struct kv_cache *c, struct kv_table *t, const struct kv_tokens *seq, size_t computed) {
    size_t bt = c->block_tokens, n_full = computed / bt;
    for (size_t g = 0; g < c->n_groups; g++) {
        for (size_t i = size_max(t->n_named, t->first[g]); i < n_full; i++)
            kv_pool_fill(c->pool, t->blocks[g][i], bt);
        if (computed % bt) kv_pool_fill(c->pool, t->blocks[g][n_full], computed % bt);
        for (size_t i = t->n_named; c->naming && i < size_min(n_full, seq->n_full); i++)
            name_block(c, t, seq, g, i);
        for (; t->first[g] < first_visible(c, g, computed) && t->first[g] < t->n_blocks[g]; t->first[g]++) {
            kv_pool_drop(c->pool, t->blocks[g][t->first[g]]);
            t->blocks[g][t->first[g]] = 0;
        }
    }
    t->n_named = n_full;
}

void kv_release(struct kv_cache *c, struct kv_table *t) {
    for (size_t g = 0; g < c->n_groups; g++) {
        while (t->n_blocks[g] > t->first[g]) kv_pool_drop(c->pool, t->blocks[g][--t->n_blocks[g]]);
        t->n_blocks[g] = t->first[g] = 0;
    }
    t->n_named = 0;
}
