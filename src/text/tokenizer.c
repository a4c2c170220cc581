#include "text/tokenizer.h"

#include "text/tokenizer_internal.h"

#include "base/error.h"
#include "base/size.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

static const struct tokenizer_family *const families[] = {&tokenizer_bytelevel};

/* --- making --- */

static int find_family(const struct tokenizer_spec *spec, const struct tokenizer_family **family,
                       struct error *err) {
    if (!spec->model.data)
        return error_set(err, QUIRE_EFORMAT,
                         "tokenizer.ggml.model is missing; supported is gpt2 (byte-level BPE)");
    for (size_t i = 0; i < sizeof families / sizeof *families; i++) {
        *family = families[i];
        const char *model = families[i]->model;
        if (strlen(model) == spec->model.len && !memcmp(model, spec->model.data, spec->model.len)) return 0;
    }
    return error_set(err, QUIRE_EUNSUPPORTED,
                     "tokenizer.ggml.model is \"%.*s\"; supported is gpt2 (byte-level BPE)",
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
    if (!rc) rc = index_specials(t);
    if (rc == QUIRE_ENOMEM) error_set(err, rc, "no memory for a tokenizer of %zu tokens", spec->n_vocab);
    if (rc) {
        tokenizer_free(t);
        return rc;
    }
    t->add_bos = spec->add_bos_unset ? t->pretok && t->pretok->add_bos : spec->add_bos;
    t->add_eos = spec->add_eos;
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

/* Text and special tokens by turns. */
static int encode_all(const struct tokenizer *t, struct special_scan *scan, unsigned flags,
                      struct tokenizer_scratch *scratch, struct token_sink *sink) {
    size_t i = 0;
    int rc = 0;
    bool first = true;
    bool bos = (flags & TOKENIZE_ADD) && t->add_bos && t->bos >= 0;
    do {
        size_t at = i;
        const struct special *s = flags & TOKENIZE_SPECIAL ? special_next(scan, &at) : NULL;
        size_t end = s ? at : scan->len;
        bool begins_with_bos = s && at == 0 && s->id == t->bos;
        if (first && bos && !begins_with_bos) rc = token_sink_push(sink, (uint32_t)t->bos);
        first = false;
        if (!rc && end > i) rc = t->family->encode(t, scan->text + i, end - i, scratch, sink);
        if (!rc && s) rc = token_sink_push(sink, s->id);
        i = s ? at + s->len : scan->len;
    } while (!rc && i < scan->len);
    if (!rc && (flags & TOKENIZE_ADD) && t->add_eos && t->eos >= 0)
        rc = token_sink_push(sink, (uint32_t)t->eos);
    return rc;
}

int tokenizer_encode(const struct tokenizer *t, const char *text, size_t len, unsigned flags,
                     const struct content_span *content, size_t n_content, size_t max_tokens,
                     struct token_buf *out, struct error *err) {
    size_t before = out->n;
    struct token_sink sink = {.out = out, .limit = SIZE_MAX};
    struct tokenizer_scratch scratch = {0};
    if (!content) n_content = 0;
    struct special_scan scan = {.set = &t->specials,
                                .text = (const uint8_t *)text,
                                .len = len,
                                .content = content,
                                .n_content = n_content};
    int rc = check_content(content, n_content, len, err);
    if (rc) return rc;
    if (max_tokens && !size_add(before, max_tokens, &sink.limit)) sink.limit = SIZE_MAX;
    rc = encode_all(t, &scan, flags, &scratch, &sink);
    bpe_scratch_free(&scratch.bpe);
    buf_free(&scratch.text);
    if (!rc) return 0;
    out->n = before;
    if (rc == QUIRE_ENOMEM) return error_set(err, rc, "no memory to tokenize %zu bytes of text", len);
    if (sink.word_too_long)
        return error_set(
            err, rc,
            "a single word of the text has 4294967295 bytes or more; at most 4294967294 are allowed");
    return error_set(err, rc, "the text needs more than %zu tokens", max_tokens);
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
    return t->add_bos && t->bos >= 0;
}
bool tokenizer_pre_overridden(const struct tokenizer *t) {
    return t->pre_overridden;
}
const char *tokenizer_pre(const struct tokenizer *t) {
    return t->pretok ? t->pretok->name : "";
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
    const struct special *s = with_special ? special_of_id(t, id) : NULL;
    if (s) {
        *len = s->len;
        return s->text;
    }
    *len = t->offsets[id + 1] - t->offsets[id];
    return t->bytes + t->offsets[id];
}

void tokenizer_byte_table(const struct tokenizer *t, const uint8_t **bytes, const uint32_t **offsets) {
    *bytes = t->bytes;
    *offsets = t->offsets;
}
