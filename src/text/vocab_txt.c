/* What is made of a vocab.txt is the tokenizer.json that transformers makes, and it is read as one. */
#include "text/vocab_txt.h"

#include "base/error.h"
#include "base/utf8.h"
#include "text/tokenizer_json.h"

#include <jansson.h>
#include <stdlib.h>
#include <string.h>

struct vocab {
    json_t *pieces, *added; /* piece to id; added_tokens of tokenizer.json */
    json_t *config;         /* NULL: none */
    struct error *err;
};

/* ---- pieces ---- */

static int add_piece(struct vocab *v, const char *line, size_t n, size_t id) {
    for (size_t i = 0, len; i < n; i += len)
        if (!(len = utf8_sequence(line + i, n - i)))
            return error_set(v->err, QUIRE_EFORMAT, "vocab.txt: line %zu is not UTF-8", id + 1);
    char *piece = strndup(line, n);
    int rc = 0;
    if (!piece || strlen(piece) != n)
        rc = piece ? error_set(v->err, QUIRE_EFORMAT, "vocab.txt: line %zu holds a NUL", id + 1)
                   : error_set(v->err, QUIRE_ENOMEM, "out of memory while reading vocab.txt");
    else if (json_object_get(v->pieces, piece))
        rc =
            error_set(v->err, QUIRE_EFORMAT, "vocab.txt: line %zu, \"%.64s\", is there twice", id + 1, piece);
    else if (json_object_set_new(v->pieces, piece, json_integer((json_int_t)id)))
        rc = error_set(v->err, QUIRE_ENOMEM, "out of memory while reading vocab.txt");
    free(piece);
    return rc;
}

/* A line is a piece, and its number the id. */
static int read_pieces(struct vocab *v, const char *s, size_t n_bytes) {
    const char *end = s + n_bytes;
    int rc = 0;
    for (size_t id = 0; s < end && !rc; id++) {
        const char *stop = memchr(s, '\n', (size_t)(end - s));
        size_t n = (size_t)((stop ? stop : end) - s);
        rc = add_piece(v, s, n && s[n - 1] == '\r' ? n - 1 : n, id);
        s = stop ? stop + 1 : end;
    }
    if (!rc && !json_object_size(v->pieces)) rc = error_set(v->err, QUIRE_EFORMAT, "vocab.txt is empty");
    return rc;
}

/* ---- special tokens ---- */

static int add_token(struct vocab *v, const char *content, json_int_t id, const json_t *said) {
    json_t *token = json_pack("{s:I, s:s, s:b, s:b, s:b, s:b, s:b}", "id", id, "content", content, "special",
                              said ? json_is_true(json_object_get(said, "special")) : 1, "normalized",
                              json_is_true(json_object_get(said, "normalized")), "single_word",
                              json_is_true(json_object_get(said, "single_word")), "lstrip",
                              json_is_true(json_object_get(said, "lstrip")), "rstrip",
                              json_is_true(json_object_get(said, "rstrip")));
    return json_array_append_new(v->added, token)
               ? error_set(v->err, QUIRE_ENOMEM, "out of memory while reading the tokenizer")
               : 0;
}

/* added_tokens_decoder of tokenizer_config.json: ids, and how each is found in text. */
static int add_said_tokens(struct vocab *v) {
    const char *id;
    json_t *token;
    json_object_foreach(json_object_get(v->config, "added_tokens_decoder"), id, token) {
        const char *content = json_string_value(json_object_get(token, "content"));
        char *end;
        long long n = strtoll(id, &end, 10);
        if (!content || *end || end == id || n < 0)
            return error_set(
                v->err, QUIRE_EFORMAT,
                "tokenizer_config.json: added_tokens_decoder[\"%.20s\"] must be an id with an object "
                "that has content",
                id);
        int rc = add_token(v, content, n, token);
        if (rc) return rc;
    }
    return 0;
}

static bool is_added(const struct vocab *v, const char *content) {
    const json_t *token;
    size_t i;
    json_array_foreach(v->added, i, token) if (!strcmp(json_string_value(json_object_get(token, "content")),
                                                       content)) return true;
    return false;
}

/* What tokenizer_config.json calls it, or BERT does. needed: refused where no line of vocab.txt is it. */
static int special(struct vocab *v, const char *key, const char *preset, bool needed, const char **out,
                   json_int_t *id) {
    const json_t *said = json_object_get(v->config, key);
    if (json_is_object(said)) said = json_object_get(said, "content");
    *out = json_is_string(said) ? json_string_value(said) : preset;
    const json_t *line = json_object_get(v->pieces, *out);
    *id = json_integer_value(line);
    if (!line)
        return needed ? error_set(v->err, QUIRE_EFORMAT, "vocab.txt has no line \"%.64s\", which %s is", *out,
                                  key)
                      : 0;
    return is_added(v, *out) ? 0 : add_token(v, *out, *id, NULL);
}

/* ---- tokenizer_config.json ---- */

/* true, false, or preset where it is null or missing. */
static int flag(const struct vocab *v, const char *key, bool preset, bool *out) {
    const json_t *said = json_object_get(v->config, key);
    *out = said && !json_is_null(said) ? json_is_true(said) : preset;
    if (!said || json_is_null(said) || json_is_boolean(said)) return 0;
    return error_set(v->err, QUIRE_EFORMAT, "tokenizer_config.json: %s must be true or false", key);
}

static json_t *assemble(struct vocab *v, int *rc) {
    const char *unk = NULL, *cls = NULL, *sep = NULL, *other;
    json_int_t unk_id, cls_id = 0, sep_id = 0, id;
    bool lower = true, accents = true, cjk = true, basic = true;
    *rc = add_said_tokens(v);
    if (!*rc) *rc = special(v, "unk_token", "[UNK]", true, &unk, &unk_id);
    if (!*rc) *rc = special(v, "cls_token", "[CLS]", true, &cls, &cls_id);
    if (!*rc) *rc = special(v, "sep_token", "[SEP]", true, &sep, &sep_id);
    if (!*rc) *rc = special(v, "pad_token", "[PAD]", false, &other, &id);
    if (!*rc) *rc = special(v, "mask_token", "[MASK]", false, &other, &id);
    if (!*rc) *rc = flag(v, "do_lower_case", true, &lower);
    if (!*rc) *rc = flag(v, "strip_accents", lower, &accents);
    if (!*rc) *rc = flag(v, "tokenize_chinese_chars", true, &cjk);
    if (!*rc) *rc = flag(v, "do_basic_tokenize", true, &basic);
    if (!*rc && !basic)
        *rc = error_set(v->err, QUIRE_EUNSUPPORTED,
                        "tokenizer_config.json: do_basic_tokenize = false: not supported, only true is");
    if (*rc) return NULL;
    json_t *root = json_pack(
        "{s:s, s:O, s:{s:s, s:b, s:b, s:b, s:b}, s:{s:s}, s:{s:s, s:[s, I], s:[s, I]}, s:{s:s, s:s, s:b},"
        " s:{s:s, s:s, s:s, s:i, s:O}}",
        "version", "1.0", "added_tokens", v->added, "normalizer", "type", "BertNormalizer", "clean_text", 1,
        "handle_chinese_chars", cjk, "strip_accents", accents, "lowercase", lower, "pre_tokenizer", "type",
        "BertPreTokenizer", "post_processor", "type", "BertProcessing", "sep", sep, sep_id, "cls", cls,
        cls_id, "decoder", "type", "WordPiece", "prefix", "##", "cleanup", 1, "model", "type", "WordPiece",
        "unk_token", unk, "continuing_subword_prefix", "##", "max_input_chars_per_word", 100, "vocab",
        v->pieces);
    if (!root) *rc = error_set(v->err, QUIRE_ENOMEM, "out of memory while reading the tokenizer");
    return root;
}

static int read_config(struct vocab *v, const char *text, size_t n) {
    json_error_t e;
    if (!text) return 0;
    v->config = json_loadb(text, n, JSON_REJECT_DUPLICATES, &e);
    if (v->config && json_is_object(v->config)) return 0;
    return error_set(v->err, QUIRE_EFORMAT, "tokenizer_config.json: %s",
                     v->config ? "it must be a JSON object" : e.text);
}

int tokenizer_from_vocab(const char *text, size_t n, const char *config, size_t n_config,
                         struct tokenizer **out, struct error *err) {
    struct vocab v = {.pieces = json_object(), .added = json_array(), .err = err};
    json_t *root = NULL;
    char *json = NULL;
    *out = NULL;
    int rc = v.pieces && v.added ? read_pieces(&v, text, n)
                                 : error_set(err, QUIRE_ENOMEM, "out of memory while reading the tokenizer");
    if (!rc) rc = read_config(&v, config, n_config);
    if (!rc) root = assemble(&v, &rc);
    if (!rc && !(json = json_dumps(root, JSON_COMPACT)))
        rc = error_set(err, QUIRE_ENOMEM, "out of memory while reading the tokenizer");
    if (!rc) rc = tokenizer_from_json(json, strlen(json), NULL, 0, out, err);
    free(json);
    json_decref(root);
    json_decref(v.pieces);
    json_decref(v.added);
    json_decref(v.config);
    return rc;
}
