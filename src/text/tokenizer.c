#include "text/tokenizer.h"

#include "text/detokenizer.h"
#include "text/tokenizer_internal.h"

#include "base/error.h"
#include "base/size.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

static const struct tokenizer_family *const families[] = {&tokenizer_bytelevel, &tokenizer_charbpe,
                                                          &tokenizer_unigram, &tokenizer_wordpiece};

#define MODELS "gpt2 (byte-level BPE), llama (SentencePiece BPE), t5 (unigram), bert (WordPiece)"

/* --- making --- */

static int find_family(const struct tokenizer_spec *spec, const struct tokenizer_family **family,
                       struct error *err) {
    if (spec->pipeline) {
        *family = spec->pipeline->family;
        return 0;
    }
    if (!spec->model.data)
        return error_set(err, QUIRE_EFORMAT, "tokenizer.ggml.model is missing; supported are " MODELS);
    for (size_t i = 0; i < sizeof families / sizeof *families; i++) {
        *family = families[i];
        const char *model = families[i]->model;
        if (strlen(model) == spec->model.len && !memcmp(model, spec->model.data, spec->model.len)) return 0;
    }
    return error_set(err, QUIRE_EUNSUPPORTED, "tokenizer.ggml.model is \"%.*s\"; supported are " MODELS,
                     (int)size_min(spec->model.len, 64), spec->model.data);
}

static int check_id(const struct tokenizer_spec *spec, const char *key, int64_t id, struct error *err) {
    if (id >= -1 && (id < 0 || (uint64_t)id < spec->n_vocab)) return 0;
    return error_set(err, QUIRE_EFORMAT, "%s is %" PRId64 "; the vocabulary has ids 0 to %zu", key, id,
                     spec->n_vocab - 1);
}

static int check_spec(const struct tokenizer_spec *spec, struct error *err) {
    if (spec->n_vocab == 0) return error_set(err, QUIRE_EFORMAT, "tokenizer.ggml.tokens is missing or empty");
    if (spec->n_vocab > INT32_MAX || spec->n_merges > INT32_MAX)
        return error_set(
            err, QUIRE_EFORMAT,
            "tokenizer.ggml.tokens has %zu and tokenizer.ggml.merges %zu entries; at most %d are supported",
            spec->n_vocab, spec->n_merges, INT32_MAX);
    int rc = check_id(spec, "tokenizer.ggml.bos_token_id", spec->bos, err);
    if (!rc) rc = check_id(spec, "tokenizer.ggml.cls_token_id", spec->cls, err);
    if (!rc) rc = check_id(spec, "tokenizer.ggml.seperator_token_id", spec->sep, err);
    if (!rc) rc = check_id(spec, "tokenizer.ggml.eos_token_id", spec->eos, err);
    if (!rc) rc = check_id(spec, "tokenizer.ggml.unknown_token_id", spec->unk, err);
    for (size_t i = 0; !rc && spec->types && i < spec->n_vocab; i++)
        if (spec->types[i] < TOKEN_NORMAL || spec->types[i] > TOKEN_BYTE)
            rc = error_set(err, QUIRE_EFORMAT,
                           "tokenizer.ggml.token_type[%zu] is %" PRId32 "; allowed are 1 to 6", i,
                           spec->types[i]);
    return rc;
}

static int by_id(const void *a, const void *b) {
    const struct special *x = *(const struct special *const *)a, *y = *(const struct special *const *)b;
    return (x->id > y->id) - (x->id < y->id);
}

static void use_template(struct tokenizer *t, const struct tokenizer_pipeline *p) {
    t->single = p->single;
    t->pair = p->pair;
    t->first_space = t->joined ? FIRST_SPACE : p->first_space;
    t->joins_marks = p->joins_marks;
}

static int index_specials(struct tokenizer *t) {
    size_t n = t->specials.n;
    t->by_id = arena_array(&t->arena, n, sizeof *t->by_id);
    if (!t->by_id) return QUIRE_ENOMEM;
    for (size_t i = 0; i < n; i++) t->by_id[i] = &t->specials.v[i];
    if (n) qsort(t->by_id, n, sizeof *t->by_id, by_id);
    return 0;
}

int tokenizer_create(const struct tokenizer_spec *spec, struct tokenizer **out, struct error *err) {
    *out = NULL;
    const struct tokenizer_family *family;
    int rc = find_family(spec, &family, err);
    if (!rc) rc = check_spec(spec, err);
    if (rc) return rc;
    struct arena arena;
    arena_init(&arena, 1 << 16, 0);
    struct tokenizer *t = arena_zalloc(&arena, sizeof *t);
    if (!t) return error_set(err, QUIRE_ENOMEM, "no memory for the tokenizer");
    t->arena = arena;
    t->family = family;
    t->n_vocab = spec->n_vocab;
    t->bos = spec->bos;
    t->eos = spec->eos;
    rc = family->create(t, spec, err);
    if (!rc && spec->pipeline) rc = pieces_normalized(t, spec);
    if (!rc) rc = index_specials(t);
    if (rc == QUIRE_ENOMEM) error_set(err, rc, "no memory for a tokenizer of %zu tokens", spec->n_vocab);
    if (rc) {
        tokenizer_free(t);
        return rc;
    }
    if (spec->pipeline) use_template(t, spec->pipeline);
    bool habit = (t->pretok && t->pretok->add_bos) || t->family == &tokenizer_charbpe;
    t->add_bos = spec->add_bos_unset ? habit : spec->add_bos;
    t->add_eos = spec->add_eos_unset ? t->family == &tokenizer_unigram : spec->add_eos;
    bool pairs = t->family == &tokenizer_unigram || spec->sep >= 0;
    bool roberta = !spec->pipeline && !t->pair.n && pairs && t->add_bos && t->add_eos;
    if (roberta && t->bos >= 0 && t->eos >= 0) /* Liu et al. 2019; XLM-R, Conneau et al. 2020 */
        t->pair =
            (struct token_template){{t->bos, TEMPLATE_FIRST, t->eos, t->eos, TEMPLATE_SECOND, t->eos}, 6};
    *out = t;
    return 0;
}

void tokenizer_free(struct tokenizer *t) {
    if (!t) return;
    struct arena arena = t->arena; /* t is in it */
    arena_free(&arena);
}

/* --- encoding --- */

int token_sink_grow(struct token_sink *s) {
    struct token_buf *b = s->out;
    if (b->n >= s->limit) return QUIRE_ELIMIT;
    size_t cap = b->cap ? b->cap : 32, bytes;
    if (!size_mul(cap, 2, &cap) || !size_mul(cap, sizeof *b->ids, &bytes)) return QUIRE_ENOMEM;
    uint32_t *ids = realloc(b->ids, bytes);
    if (!ids) return QUIRE_ENOMEM;
    b->ids = ids;
    b->cap = cap;
    return 0;
}

void token_buf_free(struct token_buf *b) {
    free(b->ids);
    *b = (struct token_buf){0};
}

static int check_content(const struct content_span *content, size_t n, size_t len, struct error *err) {
    size_t free_from = 0;
    for (size_t i = 0; i < n; i++) {
        if (content[i].start < free_from || content[i].start > len || content[i].len > len - content[i].start)
            return error_set(
                err, QUIRE_EINVAL,
                "content stretch %zu (%zu bytes at %zu) must follow the one before and end within the "
                "%zu bytes of text",
                i, content[i].len, content[i].start, len);
        free_from = content[i].start + content[i].len;
    }
    return 0;
}

/* One call: a text on its way to ids. */
struct encoding {
    const struct tokenizer *t;
    struct tokenizer_scratch scratch;
    struct token_sink *sink;
    const struct content_span *content;
    size_t n_content;
};

/* Normalized text without special tokens. at_start: it begins where the whole text does. */
static int encode_plain(struct encoding *e, const uint8_t *text, size_t len, bool at_start) {
    const struct tokenizer *t = e->t;
    if (t->n_prep && !norm_run(t->prep, t->n_prep, text, len, at_start, &e->scratch.prep, &text, &len, NULL))
        return QUIRE_ENOMEM;
    struct pretok_walk walk = {.steps = t->chain, .n_steps = t->n_chain, .s = text, .n = len};
    size_t start, end;
    int rc = 0;
    while (!rc && pretok_walk_next(&walk, &start, &end))
        rc = t->family->encode_word(t, text + start, end - start, &e->scratch, e->sink);
    return rc;
}

/* A stretch, base bytes into the text, between those special tokens that are found before normalization. */
static int encode_stretch(struct encoding *e, const uint8_t *text, size_t len, size_t base, bool special) {
    const struct tokenizer *t = e->t;
    const struct norm_source *from = NULL;
    special = special && t->normalized.n_starts;
    bool track = (special && e->n_content && t->n_norm) || (t->tracks_start && base == 0);
    if (track && len >= UINT32_MAX) return QUIRE_ELIMIT;
    if (t->n_norm && !norm_run(t->norm, t->n_norm, text, len, base == 0, &e->scratch.norm, &text, &len,
                               track ? &from : NULL))
        return QUIRE_ENOMEM;
    bool first = base == 0 && (!from || (len && from[0].start == 0));
    if (!special) return encode_plain(e, text, len, first);
    struct special_scan scan = {.set = &t->normalized,
                                .text = text,
                                .len = len,
                                .content = e->content,
                                .n_content = e->n_content,
                                .from = from,
                                .base = base};
    struct special_match m;
    size_t done = 0;
    int rc = 0;
    while (!rc && special_next(&scan, &m)) {
        if (m.start > done) rc = encode_plain(e, text + done, m.start - done, first && done == 0);
        if (!rc) rc = token_sink_push(e->sink, m.special->id);
        done = m.end;
    }
    if (!rc && len > done) rc = encode_plain(e, text + done, len - done, first && done == 0);
    return rc;
}

/* Text and special tokens by turns. bos: put in front unless the text begins with it. */
static int encode_text(struct encoding *e, const uint8_t *text, size_t len, bool special, int64_t bos) {
    struct special_scan scan = {
        .set = &e->t->specials, .text = text, .len = len, .content = e->content, .n_content = e->n_content};
    struct special_match m;
    size_t done = 0, first = e->sink->out->n;
    bool found = special && special_next(&scan, &m), has_bos = found && m.start == 0 && m.special->id == bos;
    int rc = bos >= 0 && !has_bos ? token_sink_push(e->sink, (uint32_t)bos) : 0;
    for (; !rc && found; found = special_next(&scan, &m)) {
        if (m.start > done) rc = encode_stretch(e, text + done, m.start - done, done, special);
        if (!rc) rc = token_sink_push(e->sink, m.special->id);
        done = m.end;
    }
    if (!rc && len > done) rc = encode_stretch(e, text + done, len - done, done, special);
    struct token_buf *out = e->sink->out;
    if (!rc && bos >= 0 && !has_bos && out->n > first + 1 && out->ids[first + 1] == bos) {
        out->n--; /* found after normalization */
        memmove(out->ids + first, out->ids + first + 1, (out->n - first) * sizeof *out->ids);
    }
    return rc;
}

/* As the template says; with an empty one by the flags of BOS and EOS. */
static int encode_whole(struct encoding *e, const uint8_t *text, size_t len, unsigned flags) {
    const struct tokenizer *t = e->t;
    const struct token_template *m = &t->single;
    bool special = flags & TOKENIZE_SPECIAL, add = flags & TOKENIZE_ADD;
    if (!add) return encode_text(e, text, len, special, -1);
    int rc = 0;
    if (m->n == 0) {
        rc = encode_text(e, text, len, special, t->add_bos ? t->bos : -1);
        if (!rc && t->add_eos && t->eos >= 0) rc = token_sink_push(e->sink, (uint32_t)t->eos);
        return rc;
    }
    for (size_t i = 0; i < m->n && !rc; i++) {
        bool alone = i == 0 && m->items[0] >= 0 && m->n > 1 && m->items[1] == TEMPLATE_FIRST;
        if (alone || m->items[i] == TEMPLATE_FIRST) {
            rc = encode_text(e, text, len, special, alone ? m->items[0] : -1);
            i += alone;
        } else {
            rc = token_sink_push(e->sink, (uint32_t)m->items[i]);
        }
    }
    return rc;
}

static void encoding_free(struct encoding *e) {
    bpe_scratch_free(&e->scratch.bpe);
    norm_scratch_free(&e->scratch.norm);
    norm_scratch_free(&e->scratch.prep);
    buf_free(&e->scratch.nodes);
}

static int encoding_error(const struct token_sink *sink, int rc, size_t len, size_t max_tokens,
                          struct error *err) {
    if (rc == QUIRE_ENOMEM) return error_set(err, rc, "no memory to tokenize %zu bytes of text", len);
    if (sink->word_too_long || sink->limit == SIZE_MAX)
        return error_set(
            err, rc,
            "a single word of the text has 4294967295 bytes or more; at most 4294967294 are allowed");
    return error_set(err, rc, "the text needs more than %zu tokens", max_tokens);
}

int tokenizer_encode(const struct tokenizer *t, const char *text, size_t len, unsigned flags,
                     const struct content_span *content, size_t n_content, size_t max_tokens,
                     struct token_buf *out, struct error *err) {
    size_t before = out->n;
    struct token_sink sink = {.out = out, .limit = SIZE_MAX};
    if (!content) n_content = 0;
    struct encoding e = {.t = t, .sink = &sink, .content = content, .n_content = n_content};
    int rc = check_content(content, n_content, len, err);
    if (rc) return rc;
    if (max_tokens && !size_add(before, max_tokens, &sink.limit)) sink.limit = SIZE_MAX;
    rc = encode_whole(&e, (const uint8_t *)text, len, flags);
    encoding_free(&e);
    if (!rc) return 0;
    out->n = before;
    return encoding_error(&sink, rc, len, max_tokens, err);
}

int tokenizer_encode_pair(const struct tokenizer *t, struct text_span first, struct text_span second,
                          size_t max_tokens, struct token_buf *out, struct token_pair *pair,
                          struct error *err) {
    size_t before = out->n;
    struct token_sink sink = {.out = out, .limit = SIZE_MAX};
    struct encoding e = {.t = t, .sink = &sink};
    const struct token_template *m = &t->pair;
    if (m->n == 0)
        return error_set(err, QUIRE_EUNSUPPORTED, "the model's tokenizer says nothing about pairs of texts");
    if (max_tokens && !size_add(before, max_tokens, &sink.limit)) sink.limit = SIZE_MAX;
    int rc = 0;
    bool second_begun = false;
    *pair = (struct token_pair){0};
    for (size_t i = 0; i < m->n && !rc; i++) {
        size_t at = out->n - before;
        if (m->items[i] >= 0) {
            rc = token_sink_push(&sink, (uint32_t)m->items[i]);
        } else if (m->items[i] == TEMPLATE_FIRST) {
            rc = encode_text(&e, (const uint8_t *)first.data, first.len, false, -1);
            pair->first_at = at;
            pair->first_len = out->n - before - at;
        } else {
            second_begun = true;
            rc = encode_text(&e, (const uint8_t *)second.data, second.len, false, -1);
            pair->second_at = at;
            pair->second_len = out->n - before - at;
        }
        if (!second_begun) pair->n_first = out->n - before;
    }
    encoding_free(&e);
    if (!rc) return 0;
    out->n = before;
    return encoding_error(&sink, rc, first.len + second.len, max_tokens, err);
}

void tokenizer_n_added(const struct tokenizer *t, size_t *before, size_t *after) {
    const struct token_template *m = &t->single;
    bool seen = false;
    *before = m->n ? 0 : t->add_bos && t->bos >= 0;
    *after = m->n ? 0 : t->add_eos && t->eos >= 0;
    for (size_t i = 0; i < m->n; i++) {
        if (m->items[i] == TEMPLATE_FIRST)
            seen = true;
        else
            ++*(seen ? after : before);
    }
}

/* --- looking up --- */

size_t tokenizer_n_vocab(const struct tokenizer *t) {
    return t->n_vocab;
}
int64_t tokenizer_bos(const struct tokenizer *t) {
    return t->bos;
}
int64_t tokenizer_eos(const struct tokenizer *t) {
    return t->eos;
}
bool tokenizer_adds_bos(const struct tokenizer *t) {
    if (t->single.n) return t->bos >= 0 && t->single.items[0] == t->bos;
    return t->add_bos && t->bos >= 0;
}
bool tokenizer_pre_overridden(const struct tokenizer *t) {
    return t->pre_overridden;
}
const char *tokenizer_pre(const struct tokenizer *t) {
    return t->pretok ? t->pretok->name : t->family->model;
}

bool tokenizer_is_control(const struct tokenizer *t, uint32_t id) {
    return id < t->n_vocab && (t->types[id] == TOKEN_CONTROL || t->types[id] == TOKEN_UNKNOWN);
}

int64_t tokenizer_find(const struct tokenizer *t, const char *piece, size_t len) {
    const struct special *s = special_find(&t->specials, (const uint8_t *)piece, len);
    if (s) return s->id;
    uint32_t id = t->family->find(t, (const uint8_t *)piece, len);
    return id == BPE_NONE ? -1 : (int64_t)id;
}

static const struct special *special_of_id(const struct tokenizer *t, uint32_t id) {
    size_t lo = 0, hi = t->specials.n;
    while (lo < hi) {
        size_t mid = lo + (hi - lo) / 2;
        if (t->by_id[mid]->id == id) return t->by_id[mid];
        if (t->by_id[mid]->id < id)
            lo = mid + 1;
        else
            hi = mid;
    }
    return NULL;
}

const uint8_t *tokenizer_bytes(const struct tokenizer *t, uint32_t id, bool with_special, size_t *len) {
    *len = 0;
    if (id >= t->n_vocab) return t->bytes;
    *len = t->offsets[id + 1] - t->offsets[id];
    const struct special *s = with_special && !*len ? special_of_id(t, id) : NULL;
    if (!s) return t->bytes + t->offsets[id];
    *len = s->len;
    return s->text;
}

/* " ." and the like, which the reference's WordPiece decoder writes without the space. */
static bool joins(const uint8_t *s, size_t n) {
    static const char *const ends[] = {".", "?", "!", ",", "n't", "'m", "'s", "'ve", "'re"};
    for (size_t i = 0; i < sizeof ends / sizeof *ends; i++) {
        size_t len = strlen(ends[i]);
        if (n > len && *s == ' ' && !memcmp(s + 1, ends[i], len)) return true;
    }
    return false;
}

/* How many of the spaces that a token begins with are dropped; *first: whether the text begins with it. */
static size_t n_dropped(const struct tokenizer *t, uint32_t id, const uint8_t *s, size_t n, bool *first) {
    bool none = t->first_space == FIRST_KEPT || t->first_space == FIRST_AS_PIECE;
    size_t spaces = 0, most = none ? 0 : t->first_space == FIRST_SPACE ? 1 : n;
    if (t->first_space == FIRST_PIECES_SPACES && t->types[id] == TOKEN_USER_DEFINED) most = 0;
    while (spaces < n && spaces < most && s[spaces] == ' ') spaces++;
    *first = t->first_space == FIRST_SPACES && spaces == n;
    return spaces;
}

void tokenizer_decode(const struct tokenizer *t, const uint32_t *ids, size_t n, bool with_special,
                      struct buf *out) {
    struct detokenizer d = {0};
    bool first = true, words = t->family == &tokenizer_wordpiece || t->joined;
    for (size_t i = 0; i < n; i++) {
        size_t len;
        const uint8_t *s = tokenizer_bytes(t, ids[i], with_special, &len);
        if (!len) continue;
        if (first && t->first_space == FIRST_AS_PIECE) {
            struct text_span piece = piece_spelling(t, ids[i]);
            s = (const uint8_t *)piece.data;
            len = piece.len;
        }
        if (words && !first && tokenizer_is_control(t, ids[i]))
            detokenizer_push(&d, (const uint8_t *)" ", 1, out);
        size_t drop = first ? n_dropped(t, ids[i], s, len, &first) : words && t->joins_marks && joins(s, len);
        detokenizer_push(&d, s + drop, len - drop, out);
    }
    detokenizer_finish(&d, out);
}

void tokenizer_byte_table(const struct tokenizer *t, const uint8_t **bytes, const uint32_t **offsets) {
    *bytes = t->bytes;
    *offsets = t->offsets;
}
