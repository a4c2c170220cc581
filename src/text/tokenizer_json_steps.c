/* Normalizers, pre-tokenizers and decoders of tokenizer.json. */
#include "text/pretok_scanners.h"
#include "text/tokenizer_json_internal.h"

#include "base/error.h"
#include "base/size.h"

#include <string.h>

/* --- reading --- */

struct text_span json_span(const json_t *string) {
    return (struct text_span){json_string_value(string), json_string_length(string)};
}

int json_read_bool(struct json_loader *l, const json_t *j, const char *key, bool fallback, bool *out) {
    const json_t *v = json_object_get(j, key);
    *out = json_is_boolean(v) ? json_is_true(v) : fallback;
    if (!v || json_is_boolean(v) || json_is_null(v)) return 0;
    return error_set(l->err, QUIRE_EFORMAT, "tokenizer.json: %s must be true or false", key);
}

int json_read_type(struct json_loader *l, const json_t *j, const char *path, const char **type) {
    *type = json_string_value(json_object_get(j, "type"));
    if (*type) return 0;
    return error_set(l->err, QUIRE_EFORMAT, "tokenizer.json: %s must be an object with a \"type\"", path);
}

int json_unsupported(struct json_loader *l, const char *path, const char *type, const char *known) {
    return error_set(l->err, QUIRE_EUNSUPPORTED,
                     "tokenizer.json: %s has the type \"%.64s\"; supported are %s", path, type, known);
}

static int wrong(struct json_loader *l, const char *path, const char *what) {
    return error_set(l->err, QUIRE_EFORMAT, "tokenizer.json: %s: %s", path, what);
}

static bool is(const char *a, const char *b) {
    return !strcmp(a, b);
}

typedef int read_one(struct json_loader *l, const json_t *j, const char *path);

/* The members of a Sequence. */
static int read_sequence(struct json_loader *l, const json_t *j, const char *key, const char *path,
                         read_one *read) {
    const json_t *list = json_object_get(j, key);
    const json_t *item;
    size_t i;
    if (!json_is_array(list)) return wrong(l, path, "a Sequence must have a list");
    json_array_foreach(list, i, item) {
        int rc = read(l, item, path);
        if (rc) return rc;
    }
    return 0;
}

/* pattern: {"String": s} or {"Regex": s}. */
static int read_pattern(struct json_loader *l, const json_t *j, const char *path, struct text_span *string,
                        struct text_span *regex) {
    const json_t *p = json_object_get(j, "pattern");
    const json_t *s = json_object_get(p, "String"), *r = json_object_get(p, "Regex");
    *string = json_span(s);
    *regex = json_span(r);
    if (json_is_string(p)) *string = json_span(p);
    if (!string->data == !regex->data) return wrong(l, path, "pattern must be a String or a Regex");
    return 0;
}

static int unknown_regex(struct json_loader *l, const char *path, struct text_span regex) {
    return error_set(
        l->err, QUIRE_EUNSUPPORTED,
        "tokenizer.json: %s has the regular expression %.*s, which is not one of those supported", path,
        (int)size_min(regex.len, 300), regex.data);
}

/* --- normalizers --- */

static int add_norm(struct json_loader *l, const char *path, struct norm_step step) {
    if (l->pipeline.n_norm == JSON_MAX_STEPS) return wrong(l, path, "more than 32 steps");
    l->norm[l->pipeline.n_norm++] = step;
    return 0;
}

static int read_replace(struct json_loader *l, const json_t *j, const char *path) {
    struct text_span string, regex, content = json_span(json_object_get(j, "content"));
    int rc = read_pattern(l, j, path, &string, &regex);
    if (rc) return rc;
    if (!content.data) return wrong(l, path, "Replace needs content");
    struct norm_step step = {.b = content};
    if (string.data) {
        if (!string.len) return wrong(l, path, "Replace of an empty string");
        step.kind = NORM_REPLACE;
        step.a = string;
    } else if (regex.len == 5 && !memcmp(regex.data, " {2,}", 5)) {
        step.kind = NORM_REPLACE_SPACES;
        step.min = 2;
    } else if (regex.len == 3 && !memcmp(regex.data, "\\s+", 3)) {
        step.kind = NORM_REPLACE_WHITE;
        step.min = 1;
    } else {
        return unknown_regex(l, path, regex);
    }
    return add_norm(l, path, step);
}

static int read_bert(struct json_loader *l, const json_t *j, const char *path) {
    bool clean, cjk, lower, accents;
    int rc = json_read_bool(l, j, "clean_text", true, &clean);
    if (!rc) rc = json_read_bool(l, j, "handle_chinese_chars", true, &cjk);
    if (!rc) rc = json_read_bool(l, j, "lowercase", true, &lower);
    if (!rc) rc = json_read_bool(l, j, "strip_accents", lower, &accents);
    if (!rc && clean) rc = add_norm(l, path, (struct norm_step){.kind = NORM_BERT_CLEAN});
    if (!rc && cjk) rc = add_norm(l, path, (struct norm_step){.kind = NORM_BERT_CJK});
    if (!rc && accents) rc = add_norm(l, path, (struct norm_step){.kind = NORM_NFD});
    if (!rc && accents) rc = add_norm(l, path, (struct norm_step){.kind = NORM_BERT_ACCENTS});
    if (!rc && lower) rc = add_norm(l, path, (struct norm_step){.kind = NORM_LOWERCASE});
    return rc;
}

static int base64_value(char c) {
    if (c >= 'A' && c <= 'Z') return c - 'A';
    if (c >= 'a' && c <= 'z') return c - 'a' + 26;
    if (c >= '0' && c <= '9') return c - '0' + 52;
    return c == '+' ? 62 : c == '/' ? 63 : -1;
}

static int read_precompiled(struct json_loader *l, const json_t *j, const char *path) {
    struct text_span s = json_span(json_object_get(j, "precompiled_charsmap"));
    if (!s.data) return wrong(l, path, "Precompiled needs precompiled_charsmap");
    if (l->pipeline.charsmap.data) return wrong(l, path, "more than one Precompiled");
    uint8_t *out = arena_alloc(&l->arena, s.len + 1);
    size_t n = 0;
    uint32_t bits = 0;
    unsigned n_bits = 0;
    if (!out) return QUIRE_ENOMEM;
    while (s.len && s.data[s.len - 1] == '=') s.len--;
    for (size_t i = 0; i < s.len; i++) {
        int v = base64_value(s.data[i]);
        if (v < 0) return wrong(l, path, "precompiled_charsmap is not base64");
        bits = bits << 6 | (uint32_t)v;
        n_bits += 6;
        if (n_bits >= 8) {
            n_bits -= 8;
            out[n++] = (uint8_t)(bits >> n_bits);
        }
    }
    l->pipeline.charsmap = (struct text_span){(const char *)out, n};
    return add_norm(l, path, (struct norm_step){.kind = NORM_PRECOMPILED});
}

static int read_strip(struct json_loader *l, const json_t *j, const char *path) {
    struct norm_step step = {.kind = NORM_STRIP};
    int rc = json_read_bool(l, j, "strip_left", true, &step.left);
    if (!rc) rc = json_read_bool(l, j, "strip_right", true, &step.right);
    return rc ? rc : add_norm(l, path, step);
}

int json_read_normalizer(struct json_loader *l, const json_t *j, const char *path) {
    static const struct {
        const char *type;
        enum norm_kind kind;
    } plain[] = {{"NFC", NORM_NFC},
                 {"NFD", NORM_NFD},
                 {"NFKC", NORM_NFKC},
                 {"NFKD", NORM_NFKD},
                 {"Lowercase", NORM_LOWERCASE},
                 {"StripAccents", NORM_STRIP_ACCENTS},
                 {"Nmt", NORM_NMT}};
    const char *type;
    if (!j || json_is_null(j)) return 0;
    int rc = json_read_type(l, j, path, &type);
    if (rc) return rc;
    for (size_t i = 0; i < sizeof plain / sizeof *plain; i++)
        if (is(type, plain[i].type)) return add_norm(l, path, (struct norm_step){.kind = plain[i].kind});
    if (is(type, "Sequence")) return read_sequence(l, j, "normalizers", path, json_read_normalizer);
    if (is(type, "Replace")) return read_replace(l, j, path);
    if (is(type, "BertNormalizer")) return read_bert(l, j, path);
    if (is(type, "Precompiled")) return read_precompiled(l, j, path);
    if (is(type, "Strip")) return read_strip(l, j, path);
    if (is(type, "Prepend")) {
        struct text_span a = json_span(json_object_get(j, "prepend"));
        if (!a.data) return wrong(l, path, "Prepend needs prepend");
        return add_norm(l, path, (struct norm_step){.kind = NORM_PREPEND, .a = a});
    }
    return json_unsupported(
        l, path, type,
        "Sequence, NFC, NFD, NFKC, NFKD, Lowercase, StripAccents, Nmt, Precompiled, Replace, "
        "Prepend, Strip and BertNormalizer");
}

/* --- pre-tokenizers --- */

static int add_chain(struct json_loader *l, const char *path, struct pretok_step step) {
    if (l->pipeline.n_chain == PRETOK_MAX_STEPS) return wrong(l, path, "more than 8 steps");
    l->chain[l->pipeline.n_chain++] = step;
    return 0;
}

static int add_prep(struct json_loader *l, const char *path, struct norm_step step) {
    if (l->pipeline.n_prep == JSON_MAX_STEPS) return wrong(l, path, "more than 32 steps");
    l->prep[l->pipeline.n_prep++] = step;
    return 0;
}

static int read_behavior(struct json_loader *l, const json_t *j, const char *path, enum split_behavior *out) {
    static const char *const names[] = {"Isolated", "Removed", "MergedWithPrevious", "MergedWithNext",
                                        "Contiguous"};
    const char *s = json_string_value(json_object_get(j, "behavior"));
    *out = SPLIT_ISOLATED;
    if (!s) return 0;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (is(s, names[i])) {
            *out = (enum split_behavior)i;
            return 0;
        }
    return error_set(l->err, QUIRE_EFORMAT, "tokenizer.json: %s: behavior is \"%.64s\"", path, s);
}

static int read_split(struct json_loader *l, const json_t *j, const char *path) {
    struct text_span string, regex;
    struct pretok_step step = {0};
    bool invert, total = false;
    int rc = read_pattern(l, j, path, &string, &regex);
    if (!rc) rc = read_behavior(l, j, path, &step.behavior);
    if (!rc) rc = json_read_bool(l, j, "invert", false, &invert);
    if (rc) return rc;
    if (string.data) {
        if (!string.len || invert)
            return wrong(l, path, "Split by an empty string or inverted is not supported");
        step.literal = string;
        return add_chain(l, path, step);
    }
    step.next = pretok_of_regex(regex.data, regex.len, &total);
    bool lines = false; /* $ is at each end of a line: the same only where lines have been cut apart */
    for (size_t i = 0; i < l->pipeline.n_chain; i++) lines |= l->chain[i].next == pretok_newline;
    if (!step.next || (step.next == pretok_last_space && !lines)) return unknown_regex(l, path, regex);
    /* what a total expression does not match is nothing, so removing that is isolating the matches */
    bool isolated = step.behavior == SPLIT_ISOLATED || (step.behavior == SPLIT_REMOVED && invert && total);
    if (!isolated) return wrong(l, path, "Split by this expression is supported with the behavior Isolated");
    step.behavior = SPLIT_ISOLATED;
    return add_chain(l, path, step);
}

static int read_byte_level(struct json_loader *l, const json_t *j, const char *path) {
    bool space, regex;
    int rc = json_read_bool(l, j, "add_prefix_space", true, &space);
    if (!rc) rc = json_read_bool(l, j, "use_regex", true, &regex);
    if (!rc && space && l->pipeline.n_chain)
        rc = wrong(l, path, "ByteLevel with add_prefix_space is supported as the first pre-tokenizer");
    if (!rc && space) rc = add_prep(l, path, (struct norm_step){.kind = NORM_PREFIX_SPACE});
    if (!rc && regex) rc = add_chain(l, path, (struct pretok_step){.next = pretok_gpt2});
    l->byte_level = true;
    return rc;
}

static int read_scheme(struct json_loader *l, const json_t *j, const char *path, enum norm_prefix *out) {
    const char *s = json_string_value(json_object_get(j, "prepend_scheme"));
    bool add;
    if (!s) {
        int rc = json_read_bool(l, j, "add_prefix_space", true, &add);
        *out = add ? PREFIX_ALWAYS : PREFIX_NEVER;
        return rc;
    }
    *out = is(s, "always") ? PREFIX_ALWAYS : is(s, "first") ? PREFIX_FIRST : PREFIX_NEVER;
    if (*out == PREFIX_NEVER && !is(s, "never"))
        return wrong(l, path, "prepend_scheme must be always, first or never");
    return 0;
}

static int read_metaspace(struct json_loader *l, const json_t *j, const char *path) {
    struct text_span r = json_span(json_object_get(j, "replacement"));
    struct norm_step step = {.kind = NORM_METASPACE, .a = r};
    bool split;
    int rc = read_scheme(l, j, path, &step.prefix);
    if (!rc) rc = json_read_bool(l, j, "split", true, &split);
    if (rc) return rc;
    if (!r.len) return wrong(l, path, "Metaspace needs a replacement");
    size_t n = l->pipeline.n_chain;
    if (n == 1 && l->chain[0].next == pretok_white_split) { /* each word by itself */
        if (!split || step.prefix != PREFIX_ALWAYS)
            return wrong(l, path,
                         "Metaspace after WhitespaceSplit is supported with split and prepend_scheme always");
        step.kind = NORM_METASPACE_WORDS;
        l->pipeline.n_chain = 0;
    } else if (n) {
        return wrong(l, path, "Metaspace is supported as the first pre-tokenizer or after WhitespaceSplit");
    }
    rc = add_prep(l, path, step);
    if (!rc && split)
        rc = add_chain(l, path, (struct pretok_step){.literal = r, .behavior = SPLIT_WITH_NEXT});
    return rc;
}

static int read_punctuation(struct json_loader *l, const json_t *j, const char *path) {
    enum split_behavior b;
    int rc = read_behavior(l, j, path, &b);
    if (rc) return rc;
    if (b != SPLIT_ISOLATED && b != SPLIT_CONTIGUOUS)
        return wrong(l, path, "Punctuation is supported with the behaviors Isolated and Contiguous");
    return add_chain(
        l, path,
        (struct pretok_step){.next = b == SPLIT_ISOLATED ? pretok_punctuation : pretok_punctuation_runs});
}

static int read_digits(struct json_loader *l, const json_t *j, const char *path) {
    bool each;
    int rc = json_read_bool(l, j, "individual_digits", false, &each);
    if (rc) return rc;
    pretok_scanner *text = each ? pretok_digits : pretok_digit_runs;
    pretok_scanner *bytes = each ? pretok_byte_digits : pretok_byte_digit_runs;
    return add_chain(l, path, (struct pretok_step){.next = l->byte_level ? bytes : text});
}

/* Behind a ByteLevel a step sees a character for each byte. Of such steps those are read that mean the same there, or
 * are written for it. */
static int check_behind_bytes(struct json_loader *l, const json_t *j, const char *path, const char *type) {
    const char *regex = json_string_value(json_object_get(json_object_get(j, "pattern"), "Regex"));
    if (!l->byte_level || is(type, "Sequence") || is(type, "Digits")) return 0;
    if (is(type, "Split") && regex && is(regex, "[0-9][0-9][0-9]")) return 0;
    return wrong(l, path, "only Digits and a Split by [0-9][0-9][0-9] are supported behind a ByteLevel");
}

int json_read_pre_tokenizer(struct json_loader *l, const json_t *j, const char *path) {
    const char *type;
    if (!j || json_is_null(j)) return 0;
    int rc = json_read_type(l, j, path, &type);
    if (!rc) rc = check_behind_bytes(l, j, path, type);
    if (rc) return rc;
    if (is(type, "Sequence")) return read_sequence(l, j, "pretokenizers", path, json_read_pre_tokenizer);
    if (is(type, "Split")) return read_split(l, j, path);
    if (is(type, "ByteLevel")) return read_byte_level(l, j, path);
    if (is(type, "Metaspace")) return read_metaspace(l, j, path);
    if (is(type, "Punctuation")) return read_punctuation(l, j, path);
    if (is(type, "Digits")) return read_digits(l, j, path);
    if (is(type, "WhitespaceSplit"))
        return add_chain(l, path, (struct pretok_step){.next = pretok_white_split, .drop_space = true});
    if (is(type, "Whitespace"))
        return add_chain(l, path, (struct pretok_step){.next = pretok_words, .drop_space = true});
    if (is(type, "BertPreTokenizer"))
        return add_chain(l, path, (struct pretok_step){.next = pretok_bert, .drop_space = true});
    return json_unsupported(
        l, path, type,
        "Sequence, Split, ByteLevel, Metaspace, Digits, Punctuation, Whitespace, WhitespaceSplit and "
        "BertPreTokenizer");
}

/* --- decoders --- */

static int read_replace_decoder(struct json_loader *l, const json_t *j, const char *path) {
    struct text_span string, regex, content = json_span(json_object_get(j, "content"));
    int rc = read_pattern(l, j, path, &string, &regex);
    if (rc) return rc;
    bool spaces = string.len == 3 && !memcmp(string.data, "\xe2\x96\x81", 3) && content.len == 1 &&
                  *content.data == ' ';
    if (!spaces) return wrong(l, path, "Replace is supported for U+2581 by a space");
    l->pipeline.piece_text = PIECE_METASPACE;
    return 0;
}

static int read_strip_decoder(struct json_loader *l, const json_t *j, const char *path) {
    struct text_span content = json_span(json_object_get(j, "content"));
    json_int_t start = json_integer_value(json_object_get(j, "start"));
    json_int_t stop = json_integer_value(json_object_get(j, "stop"));
    if (content.len != 1 || *content.data != ' ' || start < 0 || start > 1 || stop != 0)
        return wrong(l, path, "Strip is supported for at most one space at the start");
    l->pipeline.first_space = start ? FIRST_SPACE : FIRST_KEPT;
    return 0;
}

int json_read_decoder(struct json_loader *l, const json_t *j, const char *path) {
    const char *type;
    if (!j || json_is_null(j)) return 0;
    int rc = json_read_type(l, j, path, &type);
    if (rc) return rc;
    if (is(type, "Sequence")) return read_sequence(l, j, "decoders", path, json_read_decoder);
    if (is(type, "Replace")) return read_replace_decoder(l, j, path);
    if (is(type, "Strip")) return read_strip_decoder(l, j, path);
    if (is(type, "ByteFallback") || is(type, "Fuse")) return 0; /* how bytes become text here */
    if (is(type, "ByteLevel")) {
        l->pipeline.piece_text = PIECE_ALPHABET;
        return 0;
    }
    if (is(type, "WordPiece")) {
        l->pipeline.piece_text = PIECE_WORDPIECE;
        l->pipeline.first_space = FIRST_AS_PIECE;
        return json_read_bool(l, j, "cleanup", true, &l->pipeline.joins_marks);
    }
    if (is(type, "Metaspace")) {
        enum norm_prefix prefix;
        rc = read_scheme(l, j, path, &prefix);
        l->pipeline.piece_text = PIECE_METASPACE;
        l->pipeline.first_space = prefix == PREFIX_NEVER ? FIRST_KEPT : FIRST_PIECES_SPACES;
        return rc;
    }
    return json_unsupported(
        l, path, type, "Sequence, ByteLevel, ByteFallback, Fuse, Replace, Strip, Metaspace and WordPiece");
}
