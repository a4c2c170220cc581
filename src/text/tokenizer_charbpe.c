/* BPE over characters: SentencePiece's, whose pairs are ranked by the score of what they become (Kudo and
 * Richardson 2018), and that of tokenizer.json files, which list the pairs. */
#include "text/tokenizer_internal.h"

#include "base/error.h"
#include "base/size.h"
#include "base/utf8.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

struct merges {
    struct bpe_merge *v;
    uint32_t *ranks;
    size_t n, cap;
};

static void merges_free(struct merges *m) {
    free(m->v);
    free(m->ranks);
}

static int merges_add(struct merges *m, struct bpe_merge merge, uint32_t rank) {
    if (m->n == m->cap) {
        size_t cap = m->cap ? m->cap : 4096, bytes;
        if (!size_mul(cap, 2, &cap) || !size_mul(cap, sizeof *m->v, &bytes) || cap > INT32_MAX)
            return QUIRE_ENOMEM;
        struct bpe_merge *v = realloc(m->v, bytes);
        if (!v) return QUIRE_ENOMEM;
        m->v = v;
        uint32_t *ranks = realloc(m->ranks, cap * sizeof *ranks);
        if (!ranks) return QUIRE_ENOMEM;
        m->ranks = ranks;
        m->cap = cap;
    }
    m->v[m->n] = merge;
    m->ranks[m->n++] = rank;
    return 0;
}

/* --- pairs from scores --- */

struct scored {
    float score;
    uint32_t id;
};

static int by_score(const void *a, const void *b) {
    const struct scored *x = a, *y = b;
    return (x->score < y->score) - (x->score > y->score);
}

/* Ranks of pieces: 0 is the best score; equal scores share a rank. */
static int rank_pieces(const struct tokenizer_spec *spec, uint32_t *rank) {
    size_t bytes;
    if (!size_mul(spec->n_vocab, sizeof(struct scored), &bytes)) return QUIRE_ENOMEM;
    struct scored *v = malloc(bytes);
    if (!v) return QUIRE_ENOMEM;
    for (size_t id = 0; id < spec->n_vocab; id++) v[id] = (struct scored){spec->scores[id], (uint32_t)id};
    qsort(v, spec->n_vocab, sizeof *v, by_score);
    uint32_t r = 0;
    for (size_t i = 0; i < spec->n_vocab; i++) {
        if (i && v[i].score != v[i - 1].score) r++;
        rank[v[i].id] = r;
    }
    free(v);
    return 0;
}

/* All ways to put a piece together from two. */
static int split_pieces(const struct tokenizer *t, const struct bpe *pieces, const bool *is_word,
                        const uint32_t *rank, struct merges *m) {
    int rc = 0;
    for (uint32_t id = 0; id < t->n_vocab && !rc; id++) {
        if (!is_word[id]) continue;
        const struct text_span p = piece_spelling(t, id);
        const uint8_t *s = (const uint8_t *)p.data;
        if (bpe_find(pieces, s, p.len) != id) continue; /* the same again */
        for (size_t i = 1; i < p.len && !rc; i++) {
            if ((s[i] & 0xc0) == 0x80) continue;
            uint32_t left = bpe_find(pieces, s, i);
            uint32_t right = left == BPE_NONE ? BPE_NONE : bpe_find(pieces, s + i, p.len - i);
            if (right != BPE_NONE) rc = merges_add(m, (struct bpe_merge){left, right, id}, rank[id]);
        }
    }
    return rc;
}

static int check_scores(const struct tokenizer_spec *spec, struct error *err) {
    if (!spec->scores)
        return error_set(err, QUIRE_EFORMAT,
                         "tokenizer.ggml.scores is missing; tokenizer.ggml.model llama needs it");
    for (size_t id = 0; id < spec->n_vocab; id++)
        if (isnan(spec->scores[id]))
            return error_set(err, QUIRE_EFORMAT, "tokenizer.ggml.scores[%zu] is not a number", id);
    return 0;
}

/* --- pairs from a list --- */

static int bad_merge(const struct tokenizer_spec *spec, size_t i, const char *why, struct error *err) {
    const struct text_span l = spec->pipeline->merges[2 * i], r = spec->pipeline->merges[2 * i + 1];
    return error_set(err, QUIRE_EFORMAT, "model.merges[%zu] \"%.*s\", \"%.*s\" %s", i,
                     (int)size_min(l.len, 64), l.data, (int)size_min(r.len, 64), r.data, why);
}

static int listed_merges(const struct tokenizer_spec *spec, const struct bpe *pieces, struct merges *m,
                         struct error *err) {
    struct buf joined = BUF_INIT;
    int rc = 0;
    for (size_t i = 0; i < spec->n_merges && !rc; i++) {
        const struct text_span l = spec->pipeline->merges[2 * i], r = spec->pipeline->merges[2 * i + 1];
        buf_clear(&joined);
        buf_append(&joined, l.data, l.len);
        buf_append(&joined, r.data, r.len);
        if (!buf_ok(&joined)) {
            rc = QUIRE_ENOMEM;
            break;
        }
        struct bpe_merge merge = {bpe_find(pieces, (const uint8_t *)l.data, l.len),
                                  bpe_find(pieces, (const uint8_t *)r.data, r.len),
                                  bpe_find(pieces, (const uint8_t *)joined.data, joined.len)};
        if (merge.left == BPE_NONE || merge.right == BPE_NONE || merge.id == BPE_NONE)
            rc = bad_merge(spec, i, "joins or makes a piece that is not in model.vocab or is a special token",
                           err);
        else
            rc = merges_add(m, merge, (uint32_t)i);
    }
    buf_free(&joined);
    return rc;
}

/* --- */

/* Whether no piece has a space (U+2581) after another character, and the space is a piece: then text may be
 * cut in front of the space after another character. */
static bool can_cut(const struct tokenizer *t, const bool *is_word, const struct bpe *pieces) {
    static const uint8_t space[] = "\xe2\x96\x81";
    if (bpe_find(pieces, space, 3) == BPE_NONE) return false;
    for (uint32_t id = 0; id < t->n_vocab; id++) {
        const struct text_span p = piece_spelling(t, id);
        if (!is_word[id]) continue;
        size_t i = 0;
        while (p.len - i >= 3 && !memcmp(p.data + i, space, 3)) i += 3;
        for (; i + 3 <= p.len; i++)
            if (!memcmp(p.data + i, space, 3)) return false;
    }
    return true;
}

static bool is_frozen_piece(const struct tokenizer *t, const struct tokenizer_spec *spec, size_t id) {
    return t->types[id] == TOKEN_USER_DEFINED && piece_scope(t, spec, id) == SPECIAL_NEVER;
}

static int build(struct tokenizer *t, const struct tokenizer_spec *spec, bool *is_word, uint32_t *rank,
                 struct merges *m, struct error *err) {
    const struct tokenizer_pipeline *p = spec->pipeline;
    struct arena temp;
    struct bpe pieces;
    size_t duplicate = 0;
    struct bpe_config config = {.bytes = t->spelling,
                                .offsets = t->spelling_offsets,
                                .is_word = is_word,
                                .n_vocab = t->n_vocab,
                                .chars = true,
                                .unk = BPE_NONE};
    arena_init(&temp, 1 << 16, 0);
    for (size_t id = 0; id < t->n_vocab; id++)
        is_word[id] = p ? piece_is_text(t, spec, id) : t->types[id] == TOKEN_NORMAL;
    int rc = bpe_init(&pieces, &config, &temp, &duplicate);
    if (!rc) rc = p ? listed_merges(spec, &pieces, m, err) : rank_pieces(spec, rank);
    if (!rc && !p) rc = split_pieces(t, &pieces, is_word, rank, m);
    if (!rc) t->cut_at_spaces = can_cut(t, is_word, &pieces);
    arena_free(&temp);
    config.merges = m->v;
    config.n_merges = m->n;
    config.ranks = p ? NULL : m->ranks;
    config.fallback = t->byte_fallback ? t->fallback : NULL;
    config.unk = t->unk;
    config.fuse_unk = p ? p->fuse_unk : true;
    config.ignore_merges = p && p->ignore_merges;
    if (rc) return rc;
    rc = bpe_init(&t->bpe, &config, &t->arena, &duplicate);
    return rc == QUIRE_EFORMAT ? bad_merge(spec, duplicate, "is listed twice", err) : rc;
}

static int charbpe_create(struct tokenizer *t, const struct tokenizer_spec *spec, struct error *err) {
    const struct tokenizer_pipeline *p = spec->pipeline;
    struct merges m = {0};
    bool *is_word = calloc(spec->n_vocab, sizeof *is_word);
    uint32_t *rank = calloc(spec->n_vocab, sizeof *rank);
    int rc = is_word && rank ? 0 : QUIRE_ENOMEM;
    if (!rc && !p) rc = check_scores(spec, err);
    if (!rc) rc = pieces_init(t, spec, p ? p->piece_text : PIECE_METASPACE, err);
    if (!rc && !p) rc = pieces_trie(t, &t->trie, spec, 0, is_frozen_piece);
    if (!rc) rc = p ? pipeline_init(t, p, err) : sentencepiece_norm(t, spec, &t->trie, err);
    if (!rc) rc = build(t, spec, is_word, rank, &m, err);
    free(is_word);
    free(rank);
    merges_free(&m);
    return rc;
}

/* End of the stretch from i on that is merged by itself. */
static size_t next_cut(const uint8_t *s, size_t i, size_t n) {
    while (n - i >= 3 && !memcmp(s + i, "\xe2\x96\x81", 3)) i += 3;
    while (i < n) {
        const uint8_t *p = memchr(s + i, 0xe2, n - i);
        if (!p) return n;
        i = (size_t)(p - s);
        if (n - i >= 3 && s[i + 1] == 0x96 && s[i + 2] == 0x81) return i;
        i++;
    }
    return n;
}

static int encode_free(const struct tokenizer *t, const uint8_t *s, size_t n,
                       struct tokenizer_scratch *scratch, struct token_sink *sink) {
    int rc = 0;
    for (size_t i = 0, end; i < n && !rc; i = end) {
        end = t->cut_at_spaces ? next_cut(s, i, n) : n;
        rc = bpe_encode(&t->bpe, s + i, end - i, &scratch->bpe, sink);
    }
    return rc;
}

/* A word: its user-defined pieces, the longest ones from left to right, and what is between. */
static int charbpe_encode_word(const struct tokenizer *t, const uint8_t *s, size_t n,
                               struct tokenizer_scratch *scratch, struct token_sink *sink) {
    size_t done = 0, len;
    int rc = 0;
    if (t->trie.n_nodes <= 1) return encode_free(t, s, n, scratch, sink);
    for (size_t i = 0; i < n && !rc;) {
        uint32_t id = trie_longest(&t->trie, s + i, n - i, &len);
        if (id == TRIE_NONE) {
            i++;
            continue;
        }
        if (i > done) rc = encode_free(t, s + done, i - done, scratch, sink);
        if (!rc) rc = token_sink_push(sink, id);
        done = i += len;
    }
    return rc || done == n ? rc : encode_free(t, s + done, n - done, scratch, sink);
}

static uint32_t charbpe_find(const struct tokenizer *t, const uint8_t *bytes, size_t len) {
    return bpe_find(&t->bpe, bytes, len);
}

const struct tokenizer_family tokenizer_charbpe = {
    .model = "llama", .create = charbpe_create, .encode_word = charbpe_encode_word, .find = charbpe_find};
