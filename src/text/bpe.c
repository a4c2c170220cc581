#include "text/bpe.h"

#include "base/size.h"
#include "base/utf8.h"

#include <stdlib.h>
#include <string.h>

_Static_assert(sizeof(size_t) == 8, "table indices are the top bits of a 64-bit product");

enum {
    SHORT_WORD = 64 /* symbols up to which a scan for the best pair beats a queue */
};

static inline uint64_t load64(const uint8_t *p) {
    uint64_t v;
    memcpy(&v, p, 8);
    return v;
}

static inline uint32_t load32(const uint8_t *p) {
    uint32_t v;
    memcpy(&v, p, 4);
    return v;
}

static inline uint64_t mix(uint64_t a, uint64_t b) {
    unsigned __int128 m = (unsigned __int128)(a ^ 0x9e3779b97f4a7c15u) * (b ^ 0xbf58476d1ce4e5b9u);
    return (uint64_t)m ^ (uint64_t)(m >> 64);
}

/* Multiply-fold hash of a word. Only the vocabulary is ever in the table, so words need not be hashed in
 * secret. */
static inline uint64_t hash_word(const uint8_t *p, size_t n) {
    if (n <= 8) {
        uint64_t v;
        if (n >= 4)
            v = (uint64_t)load32(p) << 32 | load32(p + n - 4);
        else
            v = (uint64_t)p[0] << 16 | (uint64_t)p[n / 2] << 8 | p[n - 1];
        return mix(v, n);
    }
    uint64_t h = n;
    for (size_t i = 0; i + 8 < n; i += 8) h = mix(load64(p + i), h);
    return mix(load64(p + n - 8), h);
}

uint32_t bpe_find(const struct bpe *b, const uint8_t *word, size_t n) {
    if (n == 0 || n > b->max_piece_bytes) return BPE_NONE;
    uint64_t h = hash_word(word, n);
    size_t mask = SIZE_MAX >> b->word_shift;
    for (size_t i = h >> b->word_shift;; i = (i + 1) & mask) {
        const struct bpe_word_slot *s = &b->words[i];
        if (s->id == BPE_NONE) return BPE_NONE;
        if (s->tag != (uint32_t)h) continue;
        size_t start = b->offsets[s->id], len = b->offsets[s->id + 1] - start;
        if (len == n && !memcmp(b->bytes + start, word, n)) return s->id;
    }
}

/* log2 of the slots of a table that n entries fill at most by half. */
static unsigned table_bits(size_t n) {
    unsigned bits = 4;
    while (((size_t)1 << bits) < 2 * n) bits++;
    return bits;
}

static int init_pairs(struct bpe *b, const struct bpe_config *c, struct arena *arena, size_t *duplicate) {
    unsigned bits = table_bits(c->n_merges);
    size_t n_slots = (size_t)1 << bits, mask = n_slots - 1;
    struct bpe_pair_slot *slots = arena_array(arena, n_slots, sizeof *slots);
    if (!slots) return QUIRE_ENOMEM;
    memset(slots, 0xff, n_slots * sizeof *slots);
    b->pair_shift = 64 - bits;
    b->pairs = slots;
    for (size_t rank = 0; rank < c->n_merges; rank++) {
        const struct bpe_merge *m = &c->merges[rank];
        uint64_t key = (uint64_t)m->left << 32 | m->right;
        size_t i = (key * 0x9e3779b97f4a7c15u) >> b->pair_shift;
        while (slots[i].rank != BPE_NONE) {
            if (slots[i].left == m->left && slots[i].right == m->right) {
                *duplicate = rank;
                return QUIRE_EFORMAT;
            }
            i = (i + 1) & mask;
        }
        slots[i] =
            (struct bpe_pair_slot){m->left, m->right, c->ranks ? c->ranks[rank] : (uint32_t)rank, m->id};
    }
    return 0;
}

static int init_words(struct bpe *b, const struct bpe_config *c, struct arena *arena) {
    unsigned bits = table_bits(c->n_vocab);
    size_t n_slots = (size_t)1 << bits, mask = n_slots - 1;
    struct bpe_word_slot *slots = arena_array(arena, n_slots, sizeof *slots);
    if (!slots) return QUIRE_ENOMEM;
    memset(slots, 0xff, n_slots * sizeof *slots);
    b->word_shift = 64 - bits;
    b->words = slots;
    for (size_t id = 0; id < c->n_vocab; id++) {
        size_t len = c->offsets[id + 1] - c->offsets[id];
        if (!c->is_word[id] || len == 0) continue;
        const uint8_t *bytes = c->bytes + c->offsets[id];
        b->max_piece_bytes = size_max(b->max_piece_bytes, len);
        if (len == 1) b->byte_id[bytes[0]] = (uint32_t)id;
        uint64_t h = hash_word(bytes, len);
        size_t i = h >> b->word_shift;
        while (slots[i].id != BPE_NONE) i = (i + 1) & mask;
        slots[i] = (struct bpe_word_slot){(uint32_t)h, (uint32_t)id};
    }
    return 0;
}

/* The order that training gives: see struct bpe. Then ranks never go down while a word is merged. */
static int find_order(struct bpe *b, const struct bpe_config *c) {
    if (c->ranks) return 0; /* pairs of one rank do not come from left to right by themselves */
    uint32_t *made = calloc(c->n_vocab, sizeof *made); /* 1 + the last rank that makes the piece */
    if (!made) return QUIRE_ENOMEM;
    for (size_t r = 0; r < c->n_merges; r++) made[c->merges[r].id] = (uint32_t)r + 1;
    b->ordered = true;
    for (size_t r = 0; r < c->n_merges && b->ordered; r++)
        b->ordered = made[c->merges[r].left] <= r && made[c->merges[r].right] <= r;
    free(made);
    return 0;
}

int bpe_init(struct bpe *b, const struct bpe_config *c, struct arena *arena, size_t *duplicate) {
    *b = (struct bpe){.bytes = c->bytes,
                      .offsets = c->offsets,
                      .n_merges = c->n_merges,
                      .chars = c->chars,
                      .has_fallback = c->fallback != NULL,
                      .unk = c->unk,
                      .fuse_unk = c->fuse_unk};
    memset(b->byte_id, 0xff, sizeof b->byte_id);
    if (c->fallback) memcpy(b->fallback, c->fallback, sizeof b->fallback);
    b->lossless = c->chars && c->fallback;
    for (size_t i = 0; i < 256 && c->fallback; i++) b->lossless &= c->fallback[i] != BPE_NONE;
    b->whole = arena_alloc(arena, c->n_vocab);
    if (!b->whole) return QUIRE_ENOMEM;
    memset(b->whole, c->ignore_merges ? BPE_WHOLE : BPE_UNTRIED, c->n_vocab);
    int rc = init_pairs(b, c, arena, duplicate);
    if (!rc) rc = init_words(b, c, arena);
    return rc ? rc : find_order(b, c);
}

/* A character that has no piece. */
static size_t unknown_symbols(const struct bpe *b, const uint8_t *s, size_t len, uint32_t *ids, size_t n,
                              bool after_unk) {
    bool spelled = b->has_fallback;
    for (size_t k = 0; spelled && k < len; k++) spelled = b->fallback[s[k]] != BPE_NONE;
    if (spelled) {
        for (size_t k = 0; k < len; k++) ids[n++] = b->fallback[s[k]];
    } else if (b->unk != BPE_NONE && !(b->fuse_unk && after_unk)) {
        ids[n++] = b->unk;
    }
    return n;
}

static size_t char_symbols(const struct bpe *b, const uint8_t *word, size_t n_bytes, uint32_t *ids) {
    size_t n = 0;
    bool after_unk = false;
    for (size_t i = 0, len; i < n_bytes; i += len) {
        uint32_t id;
        len = 1;
        if (word[i] < 0x80) {
            id = b->byte_id[word[i]];
        } else {
            len = utf8_sequence((const char *)word + i, n_bytes - i);
            id = len ? bpe_find(b, word + i, len) : BPE_NONE;
            if (!len) len = 1; /* a stray byte */
        }
        if (id != BPE_NONE) {
            ids[n++] = id;
            after_unk = false;
            continue;
        }
        size_t before = n;
        n = unknown_symbols(b, word + i, len, ids, n, after_unk);
        after_unk = after_unk ? n == before || ids[n - 1] == b->unk : n > before && ids[n - 1] == b->unk;
    }
    return n;
}

size_t bpe_symbols(const struct bpe *b, const uint8_t *word, size_t n_bytes, uint32_t *ids) {
    size_t n = 0;
    if (b->chars) return char_symbols(b, word, n_bytes, ids);
    for (size_t i = 0; i < n_bytes; i++)
        if (b->byte_id[word[i]] != BPE_NONE) ids[n++] = b->byte_id[word[i]];
    return n;
}

/* A word of up to SHORT_WORD symbols: find the best pair, merge it, close the gap. */
static int encode_short(const struct bpe *b, const uint8_t *word, size_t n_bytes, struct token_sink *sink) {
    uint32_t ids[SHORT_WORD], ranks[SHORT_WORD], merged[SHORT_WORD];
    size_t n = bpe_symbols(b, word, n_bytes, ids);
    if (n == 0) return 0;
    for (size_t i = 0; i + 1 < n; i++) {
        const struct bpe_pair_slot *p = bpe_pair(b, ids[i], ids[i + 1]);
        ranks[i] = p ? p->rank : BPE_NONE;
        merged[i] = p ? p->id : 0;
    }
    ranks[n - 1] = BPE_NONE;
    for (;;) {
        size_t best = 0;
        for (size_t i = 1; i + 1 < n; i++)
            if (ranks[i] < ranks[best]) best = i;
        if (ranks[best] == BPE_NONE) break;
        ids[best] = merged[best];
        size_t tail = n - best - 2;
        memmove(ids + best + 1, ids + best + 2, tail * sizeof *ids);
        memmove(ranks + best + 1, ranks + best + 2, tail * sizeof *ranks);
        memmove(merged + best + 1, merged + best + 2, tail * sizeof *merged);
        n--;
        for (size_t i = best ? best - 1 : 0; i <= best; i++) {
            const struct bpe_pair_slot *p = i + 1 < n ? bpe_pair(b, ids[i], ids[i + 1]) : NULL;
            ranks[i] = p ? p->rank : BPE_NONE;
            merged[i] = p ? p->id : 0;
        }
    }
    for (size_t i = 0; i < n; i++) {
        int rc = token_sink_push(sink, ids[i]);
        if (rc) return rc;
    }
    return 0;
}

int bpe_encode(const struct bpe *b, const uint8_t *word, size_t n, struct bpe_scratch *scratch,
               struct token_sink *sink) {
    uint32_t id = bpe_find(b, word, n);
    uint8_t whole = id == BPE_NONE ? BPE_IN_PARTS : __atomic_load_n(&b->whole[id], __ATOMIC_RELAXED);
    if (whole == BPE_WHOLE) return token_sink_push(sink, id);
    size_t before = sink->out->n;
    int rc = n <= SHORT_WORD ? encode_short(b, word, n, sink) : bpe_encode_long(b, word, n, scratch, sink);
    if (rc || whole != BPE_UNTRIED) return rc;
    bool alone = sink->out->n == before + 1 && sink->out->ids[before] == id;
    __atomic_store_n(&b->whole[id], alone ? BPE_WHOLE : BPE_IN_PARTS, __ATOMIC_RELAXED);
    return 0;
}

void bpe_scratch_free(struct bpe_scratch *s) {
    free(s->symbols);
    free(s->buckets);
    *s = (struct bpe_scratch){0};
}
