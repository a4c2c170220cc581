/* Byte-level BPE: GPT-2's and, with other pre-tokenizers, that of most families since. A piece is spelled in
 * an alphabet of 256 printable characters, one for each byte (Radford et al. 2019). */
#include "text/tokenizer_internal.h"

#include "text/unicode.h"

#include "base/error.h"
#include "base/size.h"

#include <stdlib.h>
#include <string.h>

/* The alphabet: bytes that are printable in Latin-1 stand for themselves, the others, in ascending order, for
 * U+0100 on. The byte that cp stands for, or -1. */
static int byte_of(uint32_t cp) {
    if ((cp >= 0x21 && cp <= 0x7e) || (cp >= 0xa1 && cp <= 0xff && cp != 0xad)) return (int)cp;
    if (cp < 0x100) return -1;
    uint32_t k = cp - 0x100;
    if (k < 0x21) return (int)k;                        /* 00 to 20 */
    if (k < 0x21 + 0x22) return (int)(k - 0x21 + 0x7f); /* 7f to a0 */
    return k == 0x43 ? 0xad : -1;
}

/* Writes the bytes that a spelling stands for to out (room for len). Returns their number, or SIZE_MAX if a
 * character is not of the alphabet. */
static size_t spelled_bytes(const char *piece, size_t len, uint8_t *out) {
    const uint8_t *s = (const uint8_t *)piece;
    size_t n = 0;
    for (size_t i = 0, step; i < len; i += step) {
        step = utf8_sequence(piece + i, len - i);
        int byte = step == 0 || step > 2 ? -1 : byte_of(unicode_decode(s + i, step));
        if (byte < 0) return SIZE_MAX;
        out[n++] = (uint8_t)byte;
    }
    return n;
}

/* --- spellings to ids, while the tokenizer is made --- */

struct spelling_slot {
    uint32_t tag, id; /* id BPE_NONE = free */
};

struct spellings {
    const struct tokenizer_spec *spec;
    struct spelling_slot *slots;
    size_t mask;
};

static uint64_t hash_spelling(const char *p, size_t n) {
    uint64_t h = n * 0x9e3779b97f4a7c15u;
    for (; n >= 8; p += 8, n -= 8) {
        uint64_t v;
        memcpy(&v, p, 8);
        h = (h ^ v) * 0xbf58476d1ce4e5b9u;
        h ^= h >> 29;
    }
    for (size_t i = 0; i < n; i++) h = (h ^ (uint8_t)p[i]) * 0x94d049bb133111ebu;
    h ^= h >> 32;
    h *= 0x9e3779b97f4a7c15u;
    return h ^ h >> 29;
}

/* Where the spelling is, or belongs. */
static struct spelling_slot *spelling_slot(const struct spellings *s, const char *p, size_t n,
                                           uint64_t hash) {
    for (size_t i = hash & s->mask;; i = (i + 1) & s->mask) {
        struct spelling_slot *slot = &s->slots[i];
        if (slot->id == BPE_NONE) return slot;
        if (slot->tag != (uint32_t)(hash >> 32)) continue;
        const struct text_span *piece = &s->spec->pieces[slot->id];
        if (piece->len == n && !memcmp(piece->data, p, n)) return slot;
    }
}

static uint32_t find_spelling(const struct spellings *s, const char *p, size_t n) {
    return spelling_slot(s, p, n, hash_spelling(p, n))->id;
}

static int collect_spellings(struct spellings *s, const struct tokenizer_spec *spec, struct error *err) {
    size_t n_slots = 16, bytes, total = 0;
    while (n_slots < 2 * spec->n_vocab) n_slots *= 2;
    if (!size_mul(n_slots, sizeof *s->slots, &bytes)) return QUIRE_ENOMEM;
    s->spec = spec;
    s->mask = n_slots - 1;
    s->slots = malloc(bytes);
    if (!s->slots) return QUIRE_ENOMEM;
    memset(s->slots, 0xff, bytes);
    for (size_t id = 0; id < spec->n_vocab; id++) {
        const struct text_span *piece = &spec->pieces[id];
        if (!size_add(total, piece->len, &total) || total > UINT32_MAX)
            return error_set(err, QUIRE_EFORMAT,
                             "tokenizer.ggml.tokens has more than 4294967295 bytes of text");
        if (spec->pipeline && piece->len == 0) continue; /* an id that has no token */
        uint64_t hash = hash_spelling(piece->data, piece->len);
        struct spelling_slot *slot = spelling_slot(s, piece->data, piece->len, hash);
        if (slot->id != BPE_NONE)
            return error_set(err, QUIRE_EFORMAT, "tokenizer.ggml.tokens[%u] and [%zu] are the same: \"%.*s\"",
                             slot->id, id, (int)size_min(piece->len, 64), piece->data);
        *slot = (struct spelling_slot){(uint32_t)(hash >> 32), (uint32_t)id};
    }
    return 0;
}

/* --- merges --- */

static int bad_merge(const struct tokenizer_spec *spec, size_t rank, const char *why, struct error *err) {
    if (spec->pipeline) {
        const struct text_span *p = &spec->pipeline->merges[2 * rank];
        return error_set(err, QUIRE_EFORMAT, "model.merges[%zu] \"%.*s\", \"%.*s\" %s", rank,
                         (int)size_min(p[0].len, 64), p[0].data, (int)size_min(p[1].len, 64), p[1].data, why);
    }
    const struct text_span *m = &spec->merges[rank];
    return error_set(err, QUIRE_EFORMAT, "tokenizer.ggml.merges[%zu] \"%.*s\" %s", rank,
                     (int)size_min(m->len, 64), m->data, why);
}

static bool is_mergeable(const struct tokenizer *t, uint32_t id) {
    return t->types[id] == TOKEN_NORMAL || t->types[id] == TOKEN_USER_DEFINED;
}

/* The two pieces of a merge: "left right" in GGUF files. */
static bool merge_sides(const struct tokenizer_spec *spec, size_t rank, struct text_span *left,
                        struct text_span *right) {
    if (spec->pipeline) {
        *left = spec->pipeline->merges[2 * rank];
        *right = spec->pipeline->merges[2 * rank + 1];
        return left->len && right->len;
    }
    const struct text_span m = spec->merges[rank];
    const char *space = m.len ? memchr(m.data, ' ', m.len) : NULL;
    if (!space) return false;
    *left = (struct text_span){m.data, (size_t)(space - m.data)};
    *right = (struct text_span){space + 1, m.len - left->len - 1};
    return left->len && right->len && !memchr(space + 1, ' ', right->len);
}

/* "left right" to ids. joined has room for the longest merge. */
static int resolve_merge(const struct tokenizer *t, const struct spellings *s, size_t rank, char *joined,
                         struct bpe_merge *out, struct error *err) {
    struct text_span left, right;
    if (!merge_sides(s->spec, rank, &left, &right))
        return bad_merge(s->spec, rank, "is not two pieces with a space between", err);
    memcpy(joined, left.data, left.len);
    memcpy(joined + left.len, right.data, right.len);
    out->left = find_spelling(s, left.data, left.len);
    out->right = find_spelling(s, right.data, right.len);
    out->id = find_spelling(s, joined, left.len + right.len);
    if (out->left == BPE_NONE || out->right == BPE_NONE || out->id == BPE_NONE)
        return bad_merge(s->spec, rank, "joins or makes a piece that is not in tokenizer.ggml.tokens", err);
    if (!is_mergeable(t, out->left) || !is_mergeable(t, out->right) || !is_mergeable(t, out->id))
        return bad_merge(s->spec, rank,
                         s->spec->pipeline
                             ? "joins or makes a special token"
                             : "joins or makes a token that tokenizer.ggml.token_type says is not text",
                         err);
    return 0;
}

static int resolve_merges(const struct tokenizer *t, const struct spellings *s, struct bpe_merge *merges,
                          bool *is_word, struct error *err) {
    const struct tokenizer_spec *spec = s->spec;
    size_t longest = 1;
    for (size_t i = 0; i < spec->n_merges; i++) {
        struct text_span left, right;
        if (merge_sides(spec, i, &left, &right)) longest = size_max(longest, left.len + right.len);
    }
    char *joined = malloc(longest);
    int rc = joined ? 0 : QUIRE_ENOMEM;
    for (size_t i = 0; i < spec->n_merges && !rc; i++) {
        rc = resolve_merge(t, s, i, joined, &merges[i], err);
        if (!rc) is_word[merges[i].left] = is_word[merges[i].right] = is_word[merges[i].id] = true;
    }
    free(joined);
    return rc;
}

/* --- bytes and specials --- */

static int copy_types(struct tokenizer *t, const struct tokenizer_spec *spec, struct error *err) {
    t->types = arena_alloc(&t->arena, spec->n_vocab);
    if (!t->types) return QUIRE_ENOMEM;
    for (size_t id = 0; id < spec->n_vocab; id++) {
        t->types[id] = spec->types ? (uint8_t)spec->types[id] : TOKEN_NORMAL;
        if (t->types[id] == TOKEN_BYTE)
            return error_set(err, QUIRE_EFORMAT,
                             "tokenizer.ggml.token_type[%zu] is 6 (byte), which a byte-level vocabulary "
                             "(tokenizer.ggml.model "
                             "gpt2) has no use for",
                             id);
        bool ends = (int64_t)id == spec->bos || (int64_t)id == spec->eos;
        if (ends && t->types[id] == TOKEN_USER_DEFINED) t->types[id] = TOKEN_CONTROL;
    }
    return 0;
}

struct layout {
    uint8_t *front, *back; /* text of tokens grows up, spellings of tokens that have no text grow down */
    struct special *specials;
    size_t n_specials;
};

/* Places the bytes of one token. Returns whether words may encode to it. */
static bool place(struct tokenizer *t, const struct tokenizer_spec *spec, size_t id, bool in_merges,
                  struct layout *l) {
    const struct text_span piece = spec->pieces[id];
    bool is_word = false;
    bool in_model = !spec->pipeline || spec->pipeline->flags[id] & IN_MODEL;
    if ((t->types[id] == TOKEN_NORMAL && in_model) || in_merges) {
        size_t n = spelled_bytes(piece.data, piece.len, l->front);
        is_word = n != SIZE_MAX;
        if (is_word) l->front += n;
    }
    if (is_word && spec->pipeline && spec->pipeline->flags[id] & ADDED) { /* it is both */
        l->back -= piece.len;
        if (piece.len) memcpy(l->back, piece.data, piece.len);
        l->specials[l->n_specials++] = (struct special){.text = l->back,
                                                        .len = (uint32_t)piece.len,
                                                        .id = (uint32_t)id,
                                                        .scope = piece_scope(t, spec, id)};
        special_flags(&l->specials[l->n_specials - 1], spec, id);
    }
    if (!is_word) { /* spelled as it is */
        bool has_text = is_mergeable(t, (uint32_t)id);
        uint8_t *text = has_text ? l->front : (l->back -= piece.len);
        if (piece.len) memcpy(text, piece.data, piece.len);
        if (has_text) l->front += piece.len;
        l->specials[l->n_specials++] = (struct special){
            .text = text, .len = (uint32_t)piece.len, .id = (uint32_t)id, .scope = piece_scope(t, spec, id)};
        special_flags(&l->specials[l->n_specials - 1], spec, id);
    }
    t->offsets[id + 1] = (uint32_t)(l->front - t->bytes);
    return is_word;
}

/* Fills in bytes, offsets and specials. is_word: on entry the pieces that merges name, on return those that
 * words may encode to. */
static int lay_out(struct tokenizer *t, const struct tokenizer_spec *spec, bool *is_word) {
    size_t total = 0, bytes;
    for (size_t id = 0; id < spec->n_vocab; id++) total += 2 * spec->pieces[id].len;
    if (!size_mul(spec->n_vocab, sizeof(struct special), &bytes)) return QUIRE_ENOMEM;
    struct layout l = {.specials = malloc(bytes)};
    l.front = t->bytes = arena_alloc(&t->arena, total);
    t->offsets = arena_array(&t->arena, spec->n_vocab + 1, sizeof *t->offsets);
    struct special *kept = NULL;
    if (!l.specials || !t->bytes || !t->offsets) goto done;
    l.back = t->bytes + total;
    for (size_t id = 0; id < spec->n_vocab; id++) is_word[id] = place(t, spec, id, is_word[id], &l);
    kept = arena_array(&t->arena, l.n_specials, sizeof *kept);
    if (!kept) goto done;
    memcpy(kept, l.specials, l.n_specials * sizeof *kept);
    special_set_init(&t->specials, kept, l.n_specials);
done:
    free(l.specials);
    return kept ? 0 : QUIRE_ENOMEM;
}

static int use_pretok(struct tokenizer *t, const struct pretok *p) {
    static const struct norm_step nfc = {.kind = NORM_NFC};
    t->pretok = p;
    t->chain = p->steps;
    t->n_chain = p->n_steps;
    t->norm = &nfc;
    t->n_norm = p->nfc;
    return 0;
}

static int find_pretok(struct tokenizer *t, const struct tokenizer_spec *spec, struct error *err) {
    const struct pretok *found;
    if (spec->pipeline) return pipeline_init(t, spec->pipeline, err);
    if (spec->pre_override) {
        found = pretok_find(spec->pre_override, strlen(spec->pre_override));
        t->pre_overridden = true;
        if (found) return use_pretok(t, found);
        return error_param(err, QUIRE_EINVAL, "--tokenizer-pre",
                           "--tokenizer-pre %.64s is unknown; known are %s", spec->pre_override,
                           pretok_known_names());
    }
    if (!spec->pre.data)
        return error_set(err, QUIRE_EUNSUPPORTED,
                         "tokenizer.ggml.pre is missing: the file does not say how its tokenizer splits "
                         "text; if you know, say "
                         "--tokenizer-pre NAME with one of %s",
                         pretok_known_names());
    found = pretok_find(spec->pre.data, spec->pre.len);
    if (found) return use_pretok(t, found);
    return error_set(
        err, QUIRE_EUNSUPPORTED,
        "tokenizer.ggml.pre is \"%.*s\", which is unknown; known are %s; --tokenizer-pre NAME overrides it",
        (int)size_min(spec->pre.len, 64), spec->pre.data, pretok_known_names());
}

static int build_bpe(struct tokenizer *t, const struct tokenizer_spec *spec, const struct bpe_merge *merges,
                     const bool *is_word, struct error *err) {
    struct bpe_config config = {.bytes = t->bytes,
                                .offsets = t->offsets,
                                .is_word = is_word,
                                .n_vocab = spec->n_vocab,
                                .merges = merges,
                                .n_merges = spec->n_merges,
                                .ignore_merges =
                                    spec->pipeline ? spec->pipeline->ignore_merges : t->pretok->ignore_merges,
                                .unk = BPE_NONE};
    size_t duplicate;
    int rc = bpe_init(&t->bpe, &config, &t->arena, &duplicate);
    return rc == QUIRE_EFORMAT ? bad_merge(spec, duplicate, "is listed twice", err) : rc;
}

static int bytelevel_create(struct tokenizer *t, const struct tokenizer_spec *spec, struct error *err) {
    struct spellings spellings = {0};
    struct bpe_merge *merges = NULL;
    bool *is_word = NULL;
    int rc = find_pretok(t, spec, err);
    if (!rc && spec->n_merges == 0 && !spec->pipeline)
        rc = error_set(err, QUIRE_EFORMAT,
                       "tokenizer.ggml.merges is missing or empty; tokenizer.ggml.model gpt2 needs it");
    if (!rc) rc = copy_types(t, spec, err);
    if (!rc) rc = collect_spellings(&spellings, spec, err);
    if (rc) goto done;
    merges = calloc(spec->n_merges, sizeof *merges);
    is_word = calloc(spec->n_vocab, sizeof *is_word);
    rc = merges && is_word ? resolve_merges(t, &spellings, merges, is_word, err) : QUIRE_ENOMEM;
    if (!rc) rc = lay_out(t, spec, is_word);
    if (!rc) rc = build_bpe(t, spec, merges, is_word, err);
done:
    free(spellings.slots);
    free(merges);
    free(is_word);
    return rc;
}

static int bytelevel_encode_word(const struct tokenizer *t, const uint8_t *s, size_t n,
                                 struct tokenizer_scratch *scratch, struct token_sink *sink) {
    return bpe_encode(&t->bpe, s, n, &scratch->bpe, sink);
}

static uint32_t bytelevel_find(const struct tokenizer *t, const uint8_t *bytes, size_t len) {
    return bpe_find(&t->bpe, bytes, len);
}

const struct tokenizer_family tokenizer_bytelevel = {.model = "gpt2",
                                                     .create = bytelevel_create,
                                                     .encode_word = bytelevel_encode_word,
                                                     .find = bytelevel_find};
