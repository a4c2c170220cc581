/* Words of many symbols: a megabyte of one letter is one word. The symbols form a list over their first
 * positions. The pairs wait in one bucket per rank when ranks only go up while a word is merged (struct bpe:
 * ordered), which makes the whole linear, and else in a heap by (rank, position). */
#include "text/bpe.h"

#include "base/size.h"

#include <stdlib.h>
#include <string.h>

#define NIL BPE_NONE

enum {
    MERGES_PER_SYMBOL =
        64 /* the buckets of so many ranks are made in the time that the heap loses on one symbol */
};

struct word {
    const struct bpe *bpe;
    uint32_t *id, *rank; /* [n] by position; rank of the pair that starts there, NIL = none */
    uint32_t *next, *prev;
    uint32_t n;
};

/* --- a heap --- */

struct heap {
    uint64_t *v; /* rank << 32 | position; entries whose pair has gone are passed over */
    size_t n;
};

static void heap_down(struct heap *h, size_t i) {
    uint64_t x = h->v[i];
    for (size_t child; (child = 2 * i + 1) < h->n; i = child) {
        if (child + 1 < h->n && h->v[child + 1] < h->v[child]) child++;
        if (h->v[child] >= x) break;
        h->v[i] = h->v[child];
    }
    h->v[i] = x;
}

static void heap_push(struct heap *h, uint64_t x) {
    size_t i = h->n++;
    for (; i > 0 && h->v[(i - 1) / 2] > x; i = (i - 1) / 2) h->v[i] = h->v[(i - 1) / 2];
    h->v[i] = x;
}

static void heap_pair(struct word *w, struct heap *h, uint32_t pos) {
    const struct bpe_pair_slot *p =
        w->next[pos] == NIL ? NULL : bpe_pair(w->bpe, w->id[pos], w->id[w->next[pos]]);
    w->rank[pos] = p ? p->rank : NIL;
    if (p) heap_push(h, (uint64_t)p->rank << 32 | pos);
}

/* The symbol after pos joins pos. Returns its position. */
static uint32_t join(struct word *w, uint32_t pos, uint32_t id) {
    uint32_t gone = w->next[pos], after = w->next[gone];
    w->id[pos] = id;
    w->next[pos] = after;
    if (after != NIL) w->prev[after] = pos;
    return gone;
}

static void merge_with_heap(struct word *w, uint64_t *memory) {
    struct heap h = {memory, 0};
    for (uint32_t i = 0; i + 1 < w->n; i++) heap_pair(w, &h, i);
    while (h.n) {
        uint32_t rank = (uint32_t)(h.v[0] >> 32), pos = (uint32_t)h.v[0];
        if (w->rank[pos] != rank) { /* stale */
            h.v[0] = h.v[--h.n];
            if (h.n) heap_down(&h, 0);
            continue;
        }
        h.v[0] = h.v[--h.n];
        if (h.n) heap_down(&h, 0);
        const struct bpe_pair_slot *p = bpe_pair(w->bpe, w->id[pos], w->id[w->next[pos]]);
        w->rank[join(w, pos, p->id)] = NIL;
        heap_pair(w, &h, pos);
        if (w->prev[pos] != NIL) heap_pair(w, &h, w->prev[pos]);
    }
}

/* --- buckets --- */

struct buckets {
    uint32_t *head, *tail;    /* [n_merges] first and last position of a rank's pairs */
    uint64_t *used;           /* bit per rank: not empty */
    uint32_t *after, *before; /* [n] neighbours in the bucket */
    size_t n_words;           /* of used */
};

static void bucket_add(struct word *w, struct buckets *k, uint32_t pos) {
    const struct bpe_pair_slot *p =
        w->next[pos] == NIL ? NULL : bpe_pair(w->bpe, w->id[pos], w->id[w->next[pos]]);
    w->rank[pos] = p ? p->rank : NIL;
    if (!p) return;
    uint32_t last = k->tail[p->rank];
    k->before[pos] = last;
    k->after[pos] = NIL;
    k->tail[p->rank] = pos;
    if (last == NIL) {
        k->head[p->rank] = pos;
        k->used[p->rank / 64] |= (uint64_t)1 << p->rank % 64;
    } else {
        k->after[last] = pos;
    }
}

static void bucket_remove(struct word *w, struct buckets *k, uint32_t pos) {
    uint32_t rank = w->rank[pos], before = k->before[pos], after = k->after[pos];
    if (rank == NIL) return;
    w->rank[pos] = NIL;
    if (before == NIL)
        k->head[rank] = after;
    else
        k->after[before] = after;
    if (after == NIL)
        k->tail[rank] = before;
    else
        k->before[after] = before;
    if (k->head[rank] == NIL) k->used[rank / 64] &= ~((uint64_t)1 << rank % 64);
}

/* Among equal ranks the leftmost pair goes first, which counts where pairs overlap (a symbol with itself).
 * Each bucket is in that order without sorting: what happens inside a stretch of bytes until it is one symbol
 * does not depend on what is around it, so all instances of a symbol are made in one rank's turn, from left
 * to right, and so are all pairs of two. */
static void merge_rank(struct word *w, struct buckets *k, uint32_t rank) {
    uint32_t pos = k->head[rank];
    uint32_t id = bpe_pair(w->bpe, w->id[pos], w->id[w->next[pos]])->id;
    while ((pos = k->head[rank]) != NIL) {
        bucket_remove(w, k, pos);
        bucket_remove(w, k, w->next[pos]);
        join(w, pos, id);
        bucket_add(w, k, pos);
        if (w->prev[pos] == NIL) continue;
        bucket_remove(w, k, w->prev[pos]);
        bucket_add(w, k, w->prev[pos]);
    }
}

static void merge_with_buckets(struct word *w, struct buckets *k) {
    for (uint32_t i = 0; i + 1 < w->n; i++) bucket_add(w, k, i);
    for (size_t i = 0; i < k->n_words; i++)
        while (k->used[i]) merge_rank(w, k, (uint32_t)(i * 64 + (size_t)__builtin_ctzll(k->used[i])));
}

/* --- */

/* At least n elements at s->symbols. */
static int reserve_symbols(struct bpe_scratch *s, size_t n) {
    size_t bytes;
    if (n <= s->symbols_cap) return 0;
    if (!size_mul(n, sizeof *s->symbols, &bytes)) return QUIRE_ENOMEM;
    free(s->symbols); /* nothing in it is kept */
    s->symbols_cap = 0;
    s->symbols = malloc(bytes);
    if (!s->symbols) return QUIRE_ENOMEM;
    s->symbols_cap = n;
    return 0;
}

/* Buckets are made once for all words: each word leaves them empty. */
static int reserve_buckets(const struct bpe *b, struct bpe_scratch *s, struct buckets *k) {
    size_t n = b->n_merges;
    k->n_words = n / 64 + 1;
    if (!s->buckets) {
        size_t bytes;
        if (!size_mul(n, 2 * sizeof(uint32_t), &bytes) ||
            !size_add(bytes, k->n_words * sizeof(uint64_t), &bytes))
            return QUIRE_ENOMEM;
        s->buckets = malloc(bytes);
        if (!s->buckets) return QUIRE_ENOMEM;
        memset(s->buckets, 0, k->n_words * sizeof(uint64_t));
        memset(s->buckets + 2 * k->n_words, 0xff, 2 * n * sizeof(uint32_t));
    }
    k->used = (uint64_t *)(void *)s->buckets;
    k->head = s->buckets + 2 * k->n_words;
    k->tail = k->head + n;
    return 0;
}

/* Whether n symbols are more than the sink can still take, however long the pieces. */
static bool exceeds(const struct bpe *b, size_t n, const struct token_sink *sink) {
    size_t most;
    if (sink->limit == SIZE_MAX) return false;
    return size_mul(sink->limit - sink->out->n, b->max_piece_bytes, &most) && n > most;
}

int bpe_encode_long(const struct bpe *b, const uint8_t *word, size_t n_bytes, struct bpe_scratch *scratch,
                    struct token_sink *sink) {
    struct word w = {.bpe = b};
    struct buckets k;
    size_t n = n_bytes; /* symbols, at most */
    if (!b->chars) {
        n = 0;
        for (size_t i = 0; i < n_bytes; i++) n += b->byte_id[word[i]] != BPE_NONE;
    }
    if (n == 0) return 0;
    if ((!b->chars || b->lossless) && exceeds(b, n, sink)) return QUIRE_ELIMIT;
    if (n >= NIL) {
        sink->word_too_long = true;
        return QUIRE_ELIMIT;
    }
    /* four arrays, then two more or a heap of at most two entries a symbol */
    bool bucketed = b->ordered && n >= b->n_merges / MERGES_PER_SYMBOL - scratch->n_heaped;
    if (!bucketed && b->ordered) scratch->n_heaped += n;
    int rc = reserve_symbols(scratch, (bucketed ? 6 : 8) * n);
    if (!rc && bucketed) rc = reserve_buckets(b, scratch, &k);
    if (rc) return rc;
    uint32_t *extra = scratch->symbols; /* first: the heap's entries are aligned to 8 */
    w.id = extra + (bucketed ? 2 : 4) * n;
    w.rank = w.id + n;
    w.next = w.rank + n;
    w.prev = w.next + n;
    w.n = (uint32_t)bpe_symbols(b, word, n_bytes, w.id);
    if (w.n == 0) return 0;
    for (uint32_t i = 0; i < w.n; i++) {
        w.next[i] = i + 1 < w.n ? i + 1 : NIL;
        w.prev[i] = i ? i - 1 : NIL;
        w.rank[i] = NIL;
    }
    if (bucketed) {
        k.after = extra;
        k.before = extra + n;
        merge_with_buckets(&w, &k);
    } else {
        merge_with_heap(&w, (uint64_t *)(void *)extra);
    }
    for (uint32_t i = 0; i != NIL && !rc; i = w.next[i]) rc = token_sink_push(sink, w.id[i]);
    return rc;
}
