/* What the families share: pieces spelled as they are, special tokens, normalizers. */
#include "text/tokenizer_internal.h"

#include "base/error.h"
#include "base/size.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

static const char metaspace[] = "\xe2\x96\x81"; /* U+2581 */

/* --- special tokens --- */

/* Whether a user-defined token is spelled like a turn marker: <|...|>, with ASCII or full-width bars, or as
 * Gemma spells its turns. */
static bool is_marker(struct text_span p) {
    static const char bar[] = "\xef\xbd\x9c"; /* U+FF5C */
    static const char *const others[] = {"<start_of_turn>", "<end_of_turn>"};
    for (size_t i = 0; i < sizeof others / sizeof *others; i++)
        if (p.len == strlen(others[i]) && !memcmp(p.data, others[i], p.len)) return true;
    if (p.len >= 4 && !memcmp(p.data, "<|", 2) && !memcmp(p.data + p.len - 2, "|>", 2)) return true;
    return p.len >= 8 && p.data[0] == '<' && !memcmp(p.data + 1, bar, 3) && p.data[p.len - 1] == '>' &&
           !memcmp(p.data + p.len - 4, bar, 3);
}

static unsigned flags_of(const struct tokenizer_spec *spec, size_t id) {
    return spec->pipeline ? spec->pipeline->flags[id] : 0;
}

/* SentencePiece looks for user-defined pieces in normalized text, as its models do. */
static bool is_frozen(const struct tokenizer *t, const struct tokenizer_spec *spec, size_t id) {
    return !spec->pipeline && t->types[id] == TOKEN_USER_DEFINED && !is_marker(spec->pieces[id]) &&
           (t->family == &tokenizer_charbpe || t->family == &tokenizer_unigram);
}

enum special_scope piece_scope(const struct tokenizer *t, const struct tokenizer_spec *spec, size_t id) {
    if (spec->pipeline && !(flags_of(spec, id) & ADDED)) return SPECIAL_NEVER;
    switch (t->types[id]) {
    case TOKEN_CONTROL:
    case TOKEN_UNKNOWN: return SPECIAL_OUTSIDE;
    case TOKEN_USER_DEFINED:
        if (is_frozen(t, spec, id)) return SPECIAL_NEVER;
        return is_marker(spec->pieces[id]) ? SPECIAL_OUTSIDE : SPECIAL_ANYWHERE;
    default: return SPECIAL_NEVER;
    }
}

void special_flags(struct special *s, const struct tokenizer_spec *spec, size_t id) {
    unsigned flags = flags_of(spec, id);
    s->lstrip = flags & ADDED_LSTRIP;
    s->rstrip = flags & ADDED_RSTRIP;
    s->single_word = flags & ADDED_SINGLE_WORD;
    if (flags & ADDED_NORMALIZED) s->scope = SPECIAL_NEVER; /* it is looked for in the second set */
}

int pieces_normalized(struct tokenizer *t, const struct tokenizer_spec *spec) {
    size_t n = 0, count = 0;
    for (size_t id = 0; id < t->n_vocab; id++) count += (flags_of(spec, id) & ADDED_NORMALIZED) != 0;
    struct special *v = arena_array(&t->arena, count, sizeof *v);
    struct norm_scratch scratch = {0};
    int rc = v ? 0 : QUIRE_ENOMEM;
    for (size_t id = 0; id < t->n_vocab && !rc; id++) {
        const uint8_t *text;
        size_t len;
        if (!(flags_of(spec, id) & ADDED_NORMALIZED)) continue;
        const struct text_span piece = spec->pieces[id];
        if (!norm_run(t->norm, t->n_norm, (const uint8_t *)piece.data, piece.len, true, &scratch, &text, &len,
                      NULL))
            rc = QUIRE_ENOMEM;
        char *copy = rc ? NULL : arena_strndup(&t->arena, (const char *)text, len);
        if (!copy) {
            rc = QUIRE_ENOMEM;
            break;
        }
        struct special s = {.text = (const uint8_t *)copy, .len = (uint32_t)len, .id = (uint32_t)id};
        special_flags(&s, spec, id);
        s.scope = piece_scope(t, spec, id);
        v[n++] = s;
    }
    norm_scratch_free(&scratch);
    if (!rc) special_set_init(&t->normalized, v, n);
    return rc;
}

/* --- pieces --- */

/* The byte that "<0xNN>" stands for, or -1. */
static int byte_of(struct text_span p) {
    int v = 0;
    if (p.len != 6 || memcmp(p.data, "<0x", 3) != 0 || p.data[5] != '>') return -1;
    for (size_t i = 3; i < 5; i++) {
        char c = p.data[i];
        int digit = c >= '0' && c <= '9' ? c - '0' : c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1;
        if (digit < 0) return -1;
        v = v * 16 + digit;
    }
    return v;
}

static int copy_types(struct tokenizer *t, const struct tokenizer_spec *spec, struct error *err) {
    const struct tokenizer_pipeline *p = spec->pipeline;
    t->types = arena_alloc(&t->arena, spec->n_vocab);
    if (!t->types) return QUIRE_ENOMEM;
    memset(t->fallback, 0xff, sizeof t->fallback);
    for (size_t id = 0; id < spec->n_vocab; id++) {
        t->types[id] = spec->types ? (uint8_t)spec->types[id] : TOKEN_NORMAL;
        int byte = byte_of(spec->pieces[id]);
        if (p && p->byte_fallback && p->flags[id] & IN_MODEL && byte >= 0) t->types[id] = TOKEN_BYTE;
        if (t->types[id] == TOKEN_BYTE) {
            if (byte < 0)
                return error_set(
                    err, QUIRE_EFORMAT,
                    "tokenizer.ggml.token_type[%zu] is 6 (byte), but the token is \"%.*s\"; <0x00> to "
                    "<0xFF> are allowed",
                    id, (int)size_min(spec->pieces[id].len, 64), spec->pieces[id].data);
            t->fallback[byte] = (uint32_t)id;
            t->byte_fallback = p ? p->byte_fallback : !spec->no_byte_fallback;
        }
        bool ends = (int64_t)id == spec->bos || (int64_t)id == spec->eos;
        if (ends && t->types[id] == TOKEN_USER_DEFINED) t->types[id] = TOKEN_CONTROL;
    }
    return 0;
}

bool piece_is_text(const struct tokenizer *t, const struct tokenizer_spec *spec, size_t id) {
    if (spec->pipeline && !(spec->pipeline->flags[id] & IN_MODEL)) return false;
    return t->types[id] == TOKEN_NORMAL ||
           (t->types[id] == TOKEN_USER_DEFINED && !is_marker(spec->pieces[id]));
}

static uint8_t *put_spelling(const struct tokenizer *t, const struct tokenizer_spec *spec, size_t id,
                             uint8_t *out) {
    struct text_span p = spec->pieces[id];
    if (!is_frozen(t, spec, id)) {
        if (p.len) memcpy(out, p.data, p.len);
        return out + p.len;
    }
    for (size_t i = 0; i < p.len; i++) { /* converters write their spaces plainly */
        if (p.data[i] == ' ') {
            memcpy(out, metaspace, 3);
            out += 3;
        } else {
            *out++ = (uint8_t)p.data[i];
        }
    }
    return out;
}

static uint8_t *put_spaced(struct text_span p, uint8_t *out) {
    for (size_t i = 0; i < p.len; i++) {
        if (p.len - i >= 3 && !memcmp(p.data + i, metaspace, 3)) {
            *out++ = ' ';
            i += 2;
        } else {
            *out++ = (uint8_t)p.data[i];
        }
    }
    return out;
}

static uint8_t *put_text(const struct tokenizer *t, const struct tokenizer_spec *spec, size_t id,
                         enum piece_text how, uint8_t *out) {
    struct text_span p = spec->pieces[id];
    if (t->types[id] == TOKEN_BYTE && how != PIECE_JOINED) {
        *out++ = (uint8_t)byte_of(p);
        return out;
    }
    if (t->types[id] == TOKEN_CONTROL || t->types[id] == TOKEN_UNKNOWN || t->types[id] == TOKEN_UNUSED)
        return out;
    if (how == PIECE_JOINED) *out++ = ' ';
    if (how == PIECE_METASPACE) return put_spaced(p, out);
    if (how == PIECE_WORDPIECE) {
        struct text_span c = spec->pipeline->continuation;
        if (c.len && p.len >= c.len && !memcmp(p.data, c.data, c.len))
            p = (struct text_span){p.data + c.len, p.len - c.len};
        else
            *out++ = ' ';
    }
    if (p.len) memcpy(out, p.data, p.len);
    return out + p.len;
}

static int lay_out(struct tokenizer *t, const struct tokenizer_spec *spec, enum piece_text how,
                   struct error *err) {
    size_t total = 0, spelled = 0, n_specials = 0;
    for (size_t id = 0; id < spec->n_vocab; id++) {
        size_t len = spec->pieces[id].len;
        if (!size_add(total, len + 1, &total) || total > UINT32_MAX / 3)
            return error_set(err, QUIRE_EFORMAT,
                             "tokenizer.ggml.tokens has more than 1431655765 bytes of text");
        spelled += is_frozen(t, spec, id) ? 3 * len : len;
        n_specials += t->types[id] != TOKEN_NORMAL && t->types[id] != TOKEN_BYTE;
    }
    t->bytes = arena_alloc(&t->arena, total);
    t->spelling = arena_alloc(&t->arena, spelled);
    t->offsets = arena_array(&t->arena, spec->n_vocab + 1, sizeof *t->offsets);
    t->spelling_offsets = arena_array(&t->arena, spec->n_vocab + 1, sizeof *t->spelling_offsets);
    struct special *v = arena_array(&t->arena, n_specials, sizeof *v);
    if (!t->bytes || !t->spelling || !t->offsets || !t->spelling_offsets || !v) return QUIRE_ENOMEM;
    uint8_t *text = t->bytes, *spelling = t->spelling;
    n_specials = 0;
    for (size_t id = 0; id < spec->n_vocab; id++) {
        uint8_t *start = spelling;
        text = put_text(t, spec, id, how, text);
        spelling = put_spelling(t, spec, id, spelling);
        t->offsets[id + 1] = (uint32_t)(text - t->bytes);
        t->spelling_offsets[id + 1] = (uint32_t)(spelling - t->spelling);
        if (t->types[id] == TOKEN_NORMAL || t->types[id] == TOKEN_BYTE) continue;
        struct special s = {.text = start, .len = (uint32_t)(spelling - start), .id = (uint32_t)id};
        s.scope = piece_scope(t, spec, id);
        special_flags(&s, spec, id);
        v[n_specials++] = s;
    }
    special_set_init(&t->specials, v, n_specials);
    return 0;
}

int pieces_init(struct tokenizer *t, const struct tokenizer_spec *spec, enum piece_text text,
                struct error *err) {
    int rc = copy_types(t, spec, err);
    t->joined = text == PIECE_JOINED;
    t->unk = spec->unk >= 0 ? (uint32_t)spec->unk : BPE_NONE;
    if (!rc) rc = lay_out(t, spec, text, err);
    return rc;
}

uint32_t pieces_find(const struct tokenizer *t, const uint8_t *bytes, size_t len) {
    size_t found;
    uint32_t id = trie_longest(&t->trie, bytes, len, &found);
    return id != TRIE_NONE && found == len ? id : BPE_NONE;
}

struct text_span piece_spelling(const struct tokenizer *t, uint32_t id) {
    uint32_t start = t->spelling_offsets[id];
    return (struct text_span){(const char *)t->spelling + start, t->spelling_offsets[id + 1] - start};
}

int pieces_trie(struct tokenizer *t, struct trie *out, const struct tokenizer_spec *spec, size_t skip,
                bool (*pick)(const struct tokenizer *t, const struct tokenizer_spec *spec, size_t id)) {
    size_t n = 0, bytes;
    if (!size_mul(spec->n_vocab, sizeof(struct trie_entry), &bytes)) return QUIRE_ENOMEM;
    struct trie_entry *entries = malloc(bytes);
    if (!entries) return QUIRE_ENOMEM;
    for (size_t id = 0; id < spec->n_vocab; id++) {
        struct text_span p = piece_spelling(t, (uint32_t)id);
        if (p.len > skip && pick(t, spec, id))
            entries[n++] =
                (struct trie_entry){(const uint8_t *)p.data + skip, (uint32_t)(p.len - skip), (uint32_t)id};
    }
    int rc = trie_init(out, entries, n, &t->arena);
    free(entries);
    return rc;
}

/* --- normalizers --- */

static int copy_span(struct tokenizer *t, struct text_span *s) {
    if (!s->data) return 0;
    char *copy = arena_strndup(&t->arena, s->data, s->len);
    s->data = copy;
    return copy ? 0 : QUIRE_ENOMEM;
}

static int copy_steps(struct tokenizer *t, const struct norm_step *steps, size_t n,
                      const struct norm_step **out) {
    struct norm_step *copy = arena_array(&t->arena, n, sizeof *copy);
    int rc = copy ? 0 : QUIRE_ENOMEM;
    for (size_t i = 0; i < n && !rc; i++) {
        copy[i] = steps[i];
        rc = copy_span(t, &copy[i].a);
        if (!rc) rc = copy_span(t, &copy[i].b);
        if (copy[i].kind == NORM_PRECOMPILED) copy[i].charsmap = &t->charsmap;
    }
    *out = copy;
    return rc;
}

int pipeline_init(struct tokenizer *t, const struct tokenizer_pipeline *p, struct error *err) {
    int rc = copy_steps(t, p->norm, p->n_norm, &t->norm);
    if (!rc) rc = copy_steps(t, p->prep, p->n_prep, &t->prep);
    if (!rc) rc = charsmap_init(&t->charsmap, p->charsmap.data, p->charsmap.len, &t->arena, err);
    struct pretok_step *chain = rc ? NULL : arena_array(&t->arena, p->n_chain, sizeof *chain);
    if (!rc && !chain) rc = QUIRE_ENOMEM;
    for (size_t i = 0; i < p->n_chain && !rc; i++) {
        chain[i] = p->chain[i];
        rc = copy_span(t, &chain[i].literal);
    }
    t->n_norm = p->n_norm;
    t->n_prep = p->n_prep;
    bool first = false, drops = false;
    for (size_t i = 0; i < p->n_prep; i++) first |= p->prep[i].prefix == PREFIX_FIRST;
    for (size_t i = 0; i < p->n_norm; i++)
        drops |= p->norm[i].kind >= NORM_STRIP_ACCENTS && p->norm[i].kind != NORM_PREPEND &&
                 p->norm[i].kind != NORM_REPLACE;
    t->tracks_start = first && drops;
    t->chain = chain;
    t->n_chain = p->n_chain;
    return rc;
}

int sentencepiece_norm(struct tokenizer *t, const struct tokenizer_spec *spec, const struct trie *keep,
                       struct error *err) {
    struct norm_step *step = arena_array(&t->arena, 1, sizeof *step);
    if (!step) return QUIRE_ENOMEM;
    *step = (struct norm_step){.kind = NORM_SENTENCEPIECE,
                               .prefix = spec->no_space_prefix ? PREFIX_NEVER : PREFIX_ALWAYS,
                               .squeeze = spec->squeeze_spaces,
                               .suffix = spec->space_suffix,
                               .charsmap = &t->charsmap,
                               .keep = keep};
    t->norm = step;
    t->n_norm = 1;
    t->first_space = spec->squeeze_spaces ? FIRST_SPACES : spec->no_space_prefix ? FIRST_KEPT : FIRST_SPACE;
    int rc = charsmap_init(&t->charsmap, spec->charsmap.data, spec->charsmap.len, &t->arena, err);
    if (rc == QUIRE_EFORMAT) error_prefix(err, "tokenizer.ggml");
    return rc;
}
