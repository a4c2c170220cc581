/* The unigram language model (Kudo 2018): of all ways to cut the text into pieces the most probable one,
 * found by Viterbi's algorithm. Sums are made as the reference makes them: SentencePiece in single precision,
 * `tokenizers` in double. */
#include "text/tokenizer_internal.h"

#include "base/error.h"
#include "base/size.h"
#include "base/utf8.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define UNK_PENALTY  10.0
#define RESET_BEYOND 100000.0F /* SentencePiece: a sum beyond it, either way, becomes 0 */

static bool is_candidate(const struct tokenizer *t, const struct tokenizer_spec *spec, size_t id) {
    return piece_is_text(t, spec, id);
}

static bool is_user_defined(const struct tokenizer *t, const struct tokenizer_spec *spec, size_t id) {
    return t->types[id] == TOKEN_USER_DEFINED && piece_scope(t, spec, id) == SPECIAL_NEVER;
}

/* SentencePiece 0.2.3 has their scores from their lengths, not from the file: never below that of another
 * piece, and more for one than for two that are as long together. Nothing is cut at them: a piece that goes
 * over one can win. */
static double user_defined_score(size_t len_bytes) {
    return (double)(float)(0.1 * ((double)len_bytes - 1));
}

static int copy_scores(struct tokenizer *t, const struct tokenizer_spec *spec, struct error *err) {
    const struct tokenizer_pipeline *p = spec->pipeline;
    double min = INFINITY;
    if (!p && !spec->scores)
        return error_set(err, QUIRE_EFORMAT,
                         "tokenizer.ggml.scores is missing; tokenizer.ggml.model t5 needs it");
    t->scores = arena_array(&t->arena, t->n_vocab, sizeof *t->scores);
    if (!t->scores) return QUIRE_ENOMEM;
    for (size_t id = 0; id < t->n_vocab; id++) {
        double v = p ? p->scores[id] : (double)spec->scores[id];
        bool counts = p ? p->flags[id] & IN_MODEL : t->types[id] == TOKEN_NORMAL;
        if (!isfinite(v) && (counts || piece_is_text(t, spec, id)))
            return error_set(err, QUIRE_EFORMAT, "%s[%zu] is not a finite number",
                             p ? "model.vocab" : "tokenizer.ggml.scores", id);
        t->scores[id] = v;
        if (counts && v < min) min = v;
    }
    if (isinf(min)) min = 0;
    t->single_precision = !p;
    t->unk_score = p ? min - UNK_PENALTY : (double)((float)min - (float)UNK_PENALTY);
    for (size_t id = 0; id < t->n_vocab && !p; id++)
        if (is_user_defined(t, spec, id))
            t->scores[id] = user_defined_score(t->spelling_offsets[id + 1] - t->spelling_offsets[id]);
    return 0;
}

static int unigram_create(struct tokenizer *t, const struct tokenizer_spec *spec, struct error *err) {
    const struct tokenizer_pipeline *p = spec->pipeline;
    int rc = pieces_init(t, spec, p ? p->piece_text : PIECE_METASPACE, err);
    if (!rc && t->unk == BPE_NONE)
        rc = error_set(err, QUIRE_EFORMAT, "%s is missing; a unigram model needs it",
                       p ? "model.unk_id" : "tokenizer.ggml.unknown_token_id");
    if (!rc) rc = copy_scores(t, spec, err);
    if (!rc) rc = pieces_trie(t, &t->trie, spec, 0, is_candidate);
    if (!rc && !p) rc = pieces_trie(t, &t->tail, spec, 0, is_user_defined);
    if (!rc)
        rc = p ? pipeline_init(t, p, err)
               : sentencepiece_norm(t, spec, t->tail.n_nodes > 1 ? &t->tail : NULL, err);
    t->fuse_unk = p ? p->fuse_unk : true;
    return rc;
}

struct node { /* the best way to the place it is at */
    union {
        double score;
        size_t next; /* later: end of the piece of the best way that starts here */
    } u;
    uint32_t start; /* where the last piece starts */
    uint32_t id;    /* BPE_NONE: no way yet */
};

static inline void relax(struct node *to, double score, size_t start, uint32_t id, bool single) {
    if (single) score = (double)(float)score;
    if (to->id != BPE_NONE && !(score > to->u.score)) return;
    to->u.score = score;
    to->start = (uint32_t)start;
    to->id = id;
}

static size_t char_length(const uint8_t *s, size_t n) {
    size_t len = utf8_sequence((const char *)s, n);
    return len ? len : 1;
}

/* Takes the score of the way to i from those of all places from i to last, as SentencePiece does in long
 * texts to keep its single-precision sums small: what rounding decides, is decided by it. */
static void reset_scores(struct node *nodes, size_t i, size_t last) {
    float offset = (float)nodes[i].u.score;
    for (; i <= last; i++) nodes[i].u.score = (double)((float)nodes[i].u.score - offset);
}

static void find_best(const struct tokenizer *t, const uint8_t *s, size_t n, struct node *nodes) {
    const struct trie *trie = &t->trie;
    for (size_t i = 0; i <= n; i++) nodes[i] = (struct node){.id = BPE_NONE};
    for (size_t i = 0, last = 0; i < n;) { /* last: the farthest place that has a way */
        if (t->single_precision && fabs(nodes[i].u.score) > RESET_BEYOND) reset_scores(nodes, i, last);
        size_t one = char_length(s + i, n - i);
        double till_here = nodes[i].u.score;
        bool has_one = false;
        uint32_t at = trie->root[s[i]];
        for (size_t end = i + 1; at != TRIE_NONE; end++) {
            uint32_t id = trie->value[at];
            if (id != TRIE_NONE) {
                relax(&nodes[end], t->scores[id] + till_here, i, id, t->single_precision);
                has_one |= end - i == one;
                if (end > last) last = end;
            }
            if (end >= n) break;
            at = trie_step(trie, at, s[end]);
        }
        if (!has_one) {
            relax(&nodes[i + one], t->unk_score + till_here, i, t->unk, t->single_precision);
            if (i + one > last) last = i + one;
        }
        i += one;
    }
}

static int push_unknown(const struct tokenizer *t, const uint8_t *s, size_t n, bool after_unk,
                        struct token_sink *sink) {
    bool spelled = t->byte_fallback;
    for (size_t i = 0; i < n && spelled; i++) spelled = t->fallback[s[i]] != BPE_NONE;
    if (!spelled) return after_unk && t->fuse_unk ? 0 : token_sink_push(sink, t->unk);
    int rc = 0;
    for (size_t i = 0; i < n && !rc; i++) rc = token_sink_push(sink, t->fallback[s[i]]);
    return rc;
}

static int unigram_encode_word(const struct tokenizer *t, const uint8_t *s, size_t n,
                               struct tokenizer_scratch *scratch, struct token_sink *sink) {
    struct buf *b = &scratch->nodes;
    size_t bytes;
    if (n >= UINT32_MAX) {
        sink->word_too_long = true;
        return QUIRE_ELIMIT;
    }
    buf_clear(b);
    if (!size_mul(n + 1, sizeof(struct node), &bytes) || !buf_reserve(b, bytes)) return QUIRE_ENOMEM;
    struct node *nodes = (struct node *)(void *)b->data;
    find_best(t, s, n, nodes);
    for (size_t i = n; i > 0; i = nodes[i].start) nodes[nodes[i].start].u.next = i;
    int rc = 0;
    bool after_unk = false;
    for (size_t i = 0, end; i < n && !rc; i = end) {
        end = nodes[i].u.next;
        uint32_t id = nodes[end].id;
        rc = id == t->unk ? push_unknown(t, s + i, end - i, after_unk, sink) : token_sink_push(sink, id);
        after_unk = id == t->unk;
    }
    return rc;
}

const struct tokenizer_family tokenizer_unigram = {
    .model = "t5", .create = unigram_create, .encode_word = unigram_encode_word, .find = pieces_find};
