/* WordPiece (Schuster and Nakajima 2012) as BERT uses it (Devlin et al. 2019): from the left the longest
 * piece, then the longest of those that go on; a word that cannot be made is unknown as a whole. */
#include "text/tokenizer_internal.h"

#include "base/error.h"
#include "base/utf8.h"

#include <string.h>

static const struct pretok_step bert_chain[] = {{.next = pretok_bert, .drop_space = true}};

/* GGUF files have a space in front of pieces that begin a word; in tokenizer.json a prefix marks the others.
 */
static bool begins_word(const struct tokenizer *t, const struct tokenizer_spec *spec, size_t id) {
    struct text_span p = piece_spelling(t, (uint32_t)id);
    if (!piece_is_text(t, spec, id)) return false;
    return spec->pipeline || (p.len > 3 && !memcmp(p.data, "\xe2\x96\x81", 3));
}

static bool goes_on(const struct tokenizer *t, const struct tokenizer_spec *spec, size_t id) {
    struct text_span p = piece_spelling(t, (uint32_t)id);
    if (!piece_is_text(t, spec, id)) return false;
    if (!spec->pipeline) return !begins_word(t, spec, id);
    struct text_span c = spec->pipeline->continuation;
    return p.len > c.len && !memcmp(p.data, c.data, c.len);
}

static int bert_norm(struct tokenizer *t, const struct tokenizer_spec *spec) {
    struct norm_step *steps = arena_array(&t->arena, 5, sizeof *steps);
    if (!steps) return QUIRE_ENOMEM;
    t->norm = steps;
    steps[t->n_norm++].kind = NORM_BERT_CLEAN;
    steps[t->n_norm++].kind = NORM_BERT_CJK;
    if (!spec->keep_accents) steps[t->n_norm++].kind = NORM_NFD;
    if (!spec->keep_accents) steps[t->n_norm++].kind = NORM_BERT_ACCENTS;
    if (!spec->keep_case) steps[t->n_norm++].kind = NORM_LOWERCASE;
    return 0;
}

static int64_t named(const struct tokenizer *t, const char *name) {
    const struct special *s = special_find(&t->specials, (const uint8_t *)name, strlen(name));
    return s ? (int64_t)s->id : -1;
}

static int wordpiece_create(struct tokenizer *t, const struct tokenizer_spec *spec, struct error *err) {
    const struct tokenizer_pipeline *p = spec->pipeline;
    int rc = pieces_init(t, spec, p ? p->piece_text : PIECE_METASPACE, err);
    if (!rc && t->unk == BPE_NONE)
        rc = error_set(err, QUIRE_EFORMAT, "%s is missing; a WordPiece model needs it",
                       p ? "model.unk_token" : "tokenizer.ggml.unknown_token_id");
    if (!rc) rc = pieces_trie(t, &t->trie, spec, p ? 0 : 3, begins_word);
    if (!rc) rc = pieces_trie(t, &t->tail, spec, p ? p->continuation.len : 0, goes_on);
    t->max_word_chars = p ? p->max_word_chars : 100;
    t->first_space = FIRST_SPACE;
    t->joins_marks = true; /* as BERT's decoder does */
    if (rc || p) return rc ? rc : pipeline_init(t, p, err);
    t->chain = bert_chain;
    t->n_chain = 1;
    int64_t cls = spec->cls >= 0 ? spec->cls : named(t, "[CLS]"),
            sep = spec->sep >= 0 ? spec->sep : named(t, "[SEP]");
    if (cls >= 0 && sep >= 0) {
        t->single = (struct token_template){{cls, TEMPLATE_FIRST, sep}, 3};
        t->pair = (struct token_template){{cls, TEMPLATE_FIRST, sep, TEMPLATE_SECOND, sep}, 5};
    }
    return bert_norm(t, spec);
}

static bool is_too_long(const struct tokenizer *t, const uint8_t *s, size_t n) {
    size_t chars = 0;
    if (n <= t->max_word_chars) return false;
    for (size_t i = 0, len; i < n && chars <= t->max_word_chars; i += len ? len : 1, chars++)
        len = utf8_sequence((const char *)s + i, n - i);
    return chars > t->max_word_chars;
}

/* Whether pieces make the word; pushes them if sink is given. */
static int make_word(const struct tokenizer *t, const uint8_t *s, size_t n, struct token_sink *sink,
                     bool *made) {
    int rc = 0;
    *made = true;
    for (size_t i = 0, len; i < n && !rc; i += len) {
        uint32_t id = trie_longest(i ? &t->tail : &t->trie, s + i, n - i, &len);
        if (id == TRIE_NONE) {
            *made = false;
            return 0;
        }
        if (sink) rc = token_sink_push(sink, id);
    }
    return rc;
}

static int wordpiece_encode_word(const struct tokenizer *t, const uint8_t *s, size_t n,
                                 struct tokenizer_scratch *scratch, struct token_sink *sink) {
    bool made = false;
    size_t len;
    uint32_t whole = trie_longest(&t->trie, s, n, &len);
    if (whole != TRIE_NONE && len == n && !is_too_long(t, s, n)) return token_sink_push(sink, whole);
    if (!is_too_long(t, s, n)) make_word(t, s, n, NULL, &made);
    return made ? make_word(t, s, n, sink, &made) : token_sink_push(sink, t->unk);
}

const struct tokenizer_family tokenizer_wordpiece = {
    .model = "bert", .create = wordpiece_create, .encode_word = wordpiece_encode_word, .find = pieces_find};
