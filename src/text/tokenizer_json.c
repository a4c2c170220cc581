#include "text/tokenizer_json.h"

#include "text/tokenizer_json_internal.h"

#include "base/error.h"
#include "base/size.h"
#include "base/utf8.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_ID = 1 << 24 };

static int wrong(struct json_loader *l, const char *what) {
    return error_set(l->err, QUIRE_EFORMAT, "tokenizer.json: %s", what);
}

static bool is(const char *a, const char *b) {
    return a && !strcmp(a, b);
}

/* --- the vocabulary --- */

struct vocab { /* what is collected before the number of ids is known */
    struct text_span *pieces;
    int32_t *types;
    uint8_t *flags;
    double *scores;
    size_t n;
};

static int check_id(struct json_loader *l, const char *where, const json_t *id, size_t *max) {
    if (!json_is_integer(id) || json_integer_value(id) < 0 || json_integer_value(id) >= MAX_ID)
        return error_set(l->err, QUIRE_EFORMAT, "tokenizer.json: an id of %s must be an integer from 0 to %d",
                         where, MAX_ID - 1);
    *max = size_max(*max, (size_t)json_integer_value(id) + 1);
    return 0;
}

/* The number of ids: one more than the highest. */
static int count_ids(struct json_loader *l, json_t *vocab, const json_t *added, size_t *n) {
    const char *key;
    json_t *value;
    size_t i;
    int rc = 0;
    if (json_is_array(vocab)) {
        *n = json_array_size(vocab);
        if (*n > MAX_ID) return wrong(l, "model.vocab is too long");
    } else if (json_is_object(vocab)) {
        json_object_foreach(vocab, key, value) if (!rc) rc = check_id(l, "model.vocab", value, n);
    } else {
        return wrong(l, "model.vocab is missing");
    }
    if (added && !json_is_array(added)) return wrong(l, "added_tokens must be a list");
    json_array_foreach(added, i, value) if (!rc) rc =
        check_id(l, "added_tokens", json_object_get(value, "id"), n);
    if (!rc && *n == 0) rc = wrong(l, "model.vocab is empty");
    return rc;
}

static int fill_object(struct json_loader *l, json_t *vocab, struct vocab *v) {
    const char *key;
    size_t len;
    json_t *value;
    json_object_keylen_foreach(vocab, key, len, value) {
        size_t id = (size_t)json_integer_value(value);
        if (v->flags[id] & IN_MODEL)
            return error_set(l->err, QUIRE_EFORMAT,
                             "tokenizer.json: model.vocab has two tokens with the id %zu", id);
        v->pieces[id] = (struct text_span){key, len};
        v->types[id] = TOKEN_NORMAL;
        v->flags[id] = IN_MODEL;
    }
    return 0;
}

/* The reference's JSON library reads a number as its digits, an integer, times or divided by a power of ten.
 * With 17 digits that is sometimes the neighbour of the nearest double, and sums of scores that would tie do
 * not. Files have the shortest digits that give the number back. */
static double as_the_reference_reads(double v) {
    char text[40];
    int precision = 0;
    if (v == 0 || !isfinite(v)) return v;
    do {
        snprintf(text, sizeof text, "%.*e", precision, fabs(v));
    } while (++precision < 17 && strtod(text, NULL) != fabs(v));
    uint64_t digits = 0;
    const char *p = text;
    for (; *p != 'e'; p++)
        if (*p != '.') digits = digits * 10 + (uint64_t)(*p - '0');
    int exponent = atoi(p + 1) - (precision - 1);
    double m = (double)digits;
    if (exponent < -300 || exponent > 300) return v;
    m = exponent < 0 ? m / pow(10, -exponent) : m * pow(10, exponent);
    return v < 0 ? -m : m;
}

static int fill_array(struct json_loader *l, const json_t *vocab, struct vocab *v) {
    const json_t *entry;
    size_t id;
    json_array_foreach(vocab, id, entry) {
        const json_t *piece = json_array_get(entry, 0), *score = json_array_get(entry, 1);
        if (!json_is_string(piece) || !json_is_number(score))
            return error_set(l->err, QUIRE_EFORMAT,
                             "tokenizer.json: model.vocab[%zu] must be a piece and its score", id);
        v->pieces[id] = json_span(piece);
        v->types[id] = TOKEN_NORMAL;
        v->flags[id] = IN_MODEL;
        v->scores[id] = as_the_reference_reads(json_number_value(score));
    }
    return 0;
}

static int fill_added(struct json_loader *l, const json_t *added, struct vocab *v) {
    static const struct {
        const char *key;
        uint8_t flag;
    } flags[] = {{"lstrip", ADDED_LSTRIP},
                 {"rstrip", ADDED_RSTRIP},
                 {"single_word", ADDED_SINGLE_WORD},
                 {"normalized", ADDED_NORMALIZED}};
    const json_t *token;
    size_t i;
    json_array_foreach(added, i, token) {
        size_t id = (size_t)json_integer_value(json_object_get(token, "id"));
        struct text_span content = json_span(json_object_get(token, "content"));
        bool special, set;
        int rc = json_read_bool(l, token, "special", false, &special);
        if (!rc && !content.data)
            rc = error_set(l->err, QUIRE_EFORMAT, "tokenizer.json: added_tokens[%zu] needs content", i);
        if (rc) return rc;
        bool same =
            v->pieces[id].len == content.len && !memcmp(v->pieces[id].data, content.data, content.len);
        if (!same && v->flags[id] & ADDED)
            return error_set(l->err, QUIRE_EFORMAT,
                             "tokenizer.json: added_tokens[%zu].id = %zu is another token's, too", i, id);
        if (!same) v->flags[id] = 0; /* it takes the id */
        v->flags[id] |= ADDED;
        v->pieces[id] = content;
        v->types[id] = special ? TOKEN_CONTROL : TOKEN_USER_DEFINED;
        for (size_t k = 0; k < sizeof flags / sizeof *flags && !rc; k++) {
            rc = json_read_bool(l, token, flags[k].key, k == 3 && !special, &set);
            if (set) v->flags[id] |= flags[k].flag;
        }
        if (rc) return rc;
    }
    return 0;
}

static int read_vocab(struct json_loader *l, json_t *model) {
    json_t *vocab = json_object_get(model, "vocab");
    const json_t *added = json_object_get(l->root, "added_tokens");
    struct vocab v = {0};
    int rc = count_ids(l, vocab, added, &v.n);
    if (rc) return rc;
    v.pieces = arena_array(&l->arena, v.n, sizeof *v.pieces);
    v.types = arena_array(&l->arena, v.n, sizeof *v.types);
    v.flags = arena_array(&l->arena, v.n, sizeof *v.flags);
    v.scores = arena_array(&l->arena, v.n, sizeof *v.scores);
    if (!v.pieces || !v.types || !v.flags || !v.scores) return QUIRE_ENOMEM;
    for (size_t i = 0; i < v.n; i++) {
        v.pieces[i] = (struct text_span){"", 0};
        v.types[i] = TOKEN_UNUSED;
    }
    rc = json_is_array(vocab) ? fill_array(l, vocab, &v) : fill_object(l, vocab, &v);
    if (!rc) rc = fill_added(l, added, &v);
    l->spec.pieces = v.pieces;
    l->spec.types = v.types;
    l->spec.n_vocab = v.n;
    l->pipeline.flags = v.flags;
    l->pipeline.scores = v.scores;
    return rc;
}

/* The id of a spelling, -1 if there is none. */
static int64_t find_id(const struct json_loader *l, struct text_span s) {
    for (size_t i = 0; i < l->spec.n_vocab; i++)
        if (l->pipeline.flags[i] && l->spec.pieces[i].len == s.len &&
            !memcmp(l->spec.pieces[i].data, s.data, s.len))
            return (int64_t)i;
    return -1;
}

/* --- the model --- */

static int read_merge(struct json_loader *l, const json_t *m, size_t i, struct text_span *left,
                      struct text_span *right) {
    if (json_is_array(m) && json_array_size(m) == 2) {
        *left = json_span(json_array_get(m, 0));
        *right = json_span(json_array_get(m, 1));
        if (left->data && right->data && left->len && right->len) return 0;
    } else if (json_is_string(m)) {
        struct text_span s = json_span(m);
        const char *space = memchr(s.data, ' ', s.len);
        if (space) {
            *left = (struct text_span){s.data, (size_t)(space - s.data)};
            *right = (struct text_span){space + 1, s.len - left->len - 1};
            if (left->len && right->len && !memchr(right->data, ' ', right->len)) return 0;
        }
    }
    return error_set(l->err, QUIRE_EFORMAT, "tokenizer.json: model.merges[%zu] is not two pieces", i);
}

static int read_merges(struct json_loader *l, const json_t *model) {
    const json_t *list = json_object_get(model, "merges"), *m;
    size_t n = json_array_size(list), i;
    if (!json_is_array(list)) return wrong(l, "model.merges must be a list");
    if (n > INT32_MAX / 2) return wrong(l, "model.merges is too long");
    struct text_span *merges = arena_array(&l->arena, 2 * n, sizeof *merges);
    if (!merges) return QUIRE_ENOMEM;
    json_array_foreach(list, i, m) {
        int rc = read_merge(l, m, i, &merges[2 * i], &merges[2 * i + 1]);
        if (rc) return rc;
    }
    l->pipeline.merges = merges;
    l->spec.n_merges = n;
    return 0;
}

static int refuse_text(struct json_loader *l, const json_t *model, const char *key) {
    struct text_span s = json_span(json_object_get(model, key));
    if (!s.len) return 0;
    return error_set(l->err, QUIRE_EUNSUPPORTED,
                     "tokenizer.json: model.%s is \"%.*s\"; only an empty one is supported", key,
                     (int)size_min(s.len, 64), s.data);
}

static int read_unk(struct json_loader *l, const json_t *model) {
    struct text_span unk = json_span(json_object_get(model, "unk_token"));
    if (!unk.data) return 0;
    l->spec.unk = find_id(l, unk);
    if (l->spec.unk >= 0) return 0;
    return error_set(l->err, QUIRE_EFORMAT,
                     "tokenizer.json: model.unk_token \"%.*s\" is not in the vocabulary",
                     (int)size_min(unk.len, 64), unk.data);
}

static int read_bpe(struct json_loader *l, const json_t *model) {
    struct tokenizer_pipeline *p = &l->pipeline;
    int rc = read_merges(l, model);
    if (!rc) rc = json_read_bool(l, model, "byte_fallback", false, &p->byte_fallback);
    if (!rc) rc = json_read_bool(l, model, "fuse_unk", false, &p->fuse_unk);
    if (!rc) rc = json_read_bool(l, model, "ignore_merges", false, &p->ignore_merges);
    if (!rc) rc = refuse_text(l, model, "continuing_subword_prefix");
    if (!rc) rc = refuse_text(l, model, "end_of_word_suffix");
    if (!rc && json_number_value(json_object_get(model, "dropout")) > 0)
        rc = error_set(l->err, QUIRE_EUNSUPPORTED, "tokenizer.json: model.dropout is not supported");
    if (!rc) rc = read_unk(l, model);
    p->family = l->byte_level ? &tokenizer_bytelevel : &tokenizer_charbpe;
    return rc;
}

static int read_unigram(struct json_loader *l, const json_t *model) {
    const json_t *unk = json_object_get(model, "unk_id");
    int rc = json_read_bool(l, model, "byte_fallback", false, &l->pipeline.byte_fallback);
    if (rc) return rc;
    l->pipeline.family = &tokenizer_unigram;
    l->pipeline.fuse_unk = true;
    if (!json_is_array(json_object_get(model, "vocab")))
        return wrong(l, "model.vocab of a Unigram model must be a list");
    if (!unk || json_is_null(unk)) return 0;
    if (!json_is_integer(unk) || json_integer_value(unk) < 0 ||
        (size_t)json_integer_value(unk) >= l->spec.n_vocab)
        return wrong(l, "model.unk_id is not an id of the vocabulary");
    l->spec.unk = json_integer_value(unk);
    return 0;
}

static int read_wordpiece(struct json_loader *l, const json_t *model) {
    const json_t *prefix = json_object_get(model, "continuing_subword_prefix");
    const json_t *max = json_object_get(model, "max_input_chars_per_word");
    l->pipeline.family = &tokenizer_wordpiece;
    l->pipeline.continuation = json_is_string(prefix) ? json_span(prefix) : (struct text_span){"##", 2};
    l->pipeline.max_word_chars = 100;
    if (json_is_integer(max) && json_integer_value(max) >= 0)
        l->pipeline.max_word_chars = (size_t)json_integer_value(max);
    else if (max)
        return wrong(l, "model.max_input_chars_per_word must be an integer from 0");
    return read_unk(l, model);
}

static int read_model(struct json_loader *l) {
    json_t *model = json_object_get(l->root, "model");
    const char *type = json_string_value(json_object_get(model, "type"));
    if (!json_is_object(model)) return wrong(l, "model is missing");
    if (!type) /* as old files have it */
        type = json_object_get(model, "merges")                 ? "BPE"
               : json_is_array(json_object_get(model, "vocab")) ? "Unigram"
                                                                : "WordPiece";
    int rc = read_vocab(l, model);
    if (rc) return rc;
    if (is(type, "Unigram") != json_is_array(json_object_get(model, "vocab")))
        return wrong(l, "model.vocab is a list for Unigram models and an object for others");
    if (is(type, "BPE")) return read_bpe(l, model);
    if (is(type, "Unigram")) return read_unigram(l, model);
    if (is(type, "WordPiece")) return read_wordpiece(l, model);
    return json_unsupported(l, "model", type, "BPE, Unigram and WordPiece");
}

/* --- post-processors --- */

static int add_item(struct json_loader *l, struct token_template *t, int64_t item) {
    if (item >= (int64_t)l->spec.n_vocab)
        return wrong(l, "post_processor has an id that is not in the vocabulary");
    if (t->n == TEMPLATE_MAX) return wrong(l, "post_processor adds more than 16 tokens");
    t->items[t->n++] = item;
    return 0;
}

static int read_template_item(struct json_loader *l, const json_t *p, const json_t *item,
                              struct token_template *t) {
    const char *token = json_string_value(json_object_get(json_object_get(item, "SpecialToken"), "id"));
    const char *text = json_string_value(json_object_get(json_object_get(item, "Sequence"), "id"));
    if (is(text, "A")) return add_item(l, t, TEMPLATE_FIRST);
    if (is(text, "B")) return add_item(l, t, TEMPLATE_SECOND);
    const json_t *ids =
        json_object_get(json_object_get(json_object_get(p, "special_tokens"), token ? token : ""), "ids");
    const json_t *id;
    size_t i;
    if (!token || !json_is_array(ids))
        return wrong(l, "post_processor names a token that special_tokens has not");
    json_array_foreach(ids, i, id) {
        if (!json_is_integer(id) || json_integer_value(id) < 0)
            return wrong(l, "post_processor has an id that is none");
        int rc = add_item(l, t, json_integer_value(id));
        if (rc) return rc;
    }
    return 0;
}

static int read_template(struct json_loader *l, const json_t *p, const char *key, struct token_template *t) {
    const json_t *list = json_object_get(p, key), *item;
    size_t i;
    *t = (struct token_template){.n = 0};
    if (!json_is_array(list)) return wrong(l, "post_processor: TemplateProcessing needs single and pair");
    json_array_foreach(list, i, item) {
        int rc = read_template_item(l, p, item, t);
        if (rc) return rc;
    }
    return 0;
}

/* cls and sep: ["[CLS]", 101]. */
static int read_cls_sep(struct json_loader *l, const json_t *p, bool two_seps) {
    struct tokenizer_pipeline *out = &l->pipeline;
    const json_t *cls = json_array_get(json_object_get(p, "cls"), 1),
                 *sep = json_array_get(json_object_get(p, "sep"), 1);
    size_t n = 0;
    int rc = check_id(l, "post_processor", cls, &n);
    if (!rc) rc = check_id(l, "post_processor", sep, &n);
    if (!rc && n > l->spec.n_vocab) rc = wrong(l, "post_processor has an id that is not in the vocabulary");
    if (rc) return rc;
    int64_t c = json_integer_value(cls), s = json_integer_value(sep);
    out->single = (struct token_template){{c, TEMPLATE_FIRST, s}, 3};
    out->pair = two_seps ? (struct token_template){{c, TEMPLATE_FIRST, s, s, TEMPLATE_SECOND, s}, 6}
                         : (struct token_template){{c, TEMPLATE_FIRST, s, TEMPLATE_SECOND, s}, 5};
    return 0;
}

static int read_post_processor(struct json_loader *l, const json_t *p) {
    const char *type;
    const json_t *item;
    size_t i;
    if (!p || json_is_null(p)) return 0;
    int rc = json_read_type(l, p, "post_processor", &type);
    if (rc || is(type, "ByteLevel")) return rc; /* which only moves offsets */
    if (is(type, "BertProcessing")) return read_cls_sep(l, p, false);
    if (is(type, "RobertaProcessing")) return read_cls_sep(l, p, true);
    if (is(type, "TemplateProcessing")) {
        rc = read_template(l, p, "single", &l->pipeline.single);
        return rc ? rc : read_template(l, p, "pair", &l->pipeline.pair);
    }
    if (!is(type, "Sequence"))
        return json_unsupported(
            l, "post_processor", type,
            "TemplateProcessing, BertProcessing, RobertaProcessing, ByteLevel and Sequence");
    json_array_foreach(json_object_get(p, "processors"), i, item) {
        if (l->pipeline.single.n && !is(json_string_value(json_object_get(item, "type")), "ByteLevel"))
            return wrong(l, "post_processor adds tokens twice");
        if ((rc = read_post_processor(l, item))) return rc;
    }
    return 0;
}

/* --- tokenizer_config.json --- */

/* "<s>" or {"content": "<s>", ...}. */
static int read_named(struct json_loader *l, const char *key, int64_t *id) {
    const json_t *v = json_object_get(l->config, key);
    struct text_span s = json_span(json_is_object(v) ? json_object_get(v, "content") : v);
    *id = -1;
    if (!v || json_is_null(v)) return 0;
    if (!s.data) return error_set(l->err, QUIRE_EFORMAT, "tokenizer_config.json: %s must be a token", key);
    *id = find_id(l, s);
    if (*id >= 0) return 0;
    return error_set(l->err, QUIRE_EFORMAT, "tokenizer_config.json: %s \"%.*s\" is not in tokenizer.json",
                     key, (int)size_min(s.len, 64), s.data);
}

/* 1, 0, or -1 if it is not said. */
static int said(const struct json_loader *l, const char *key) {
    const json_t *v = json_object_get(l->config, key);
    return json_is_boolean(v) ? json_is_true(v) : -1;
}

/* These classes of transformers make their post-processor anew from the flags. */
static bool class_goes_by_flags(const struct json_loader *l) {
    const char *name = json_string_value(json_object_get(l->config, "tokenizer_class"));
    return name && (!strncmp(name, "LlamaTokenizer", 14) || !strncmp(name, "GemmaTokenizer", 14) ||
                    !strncmp(name, "CodeLlamaTokenizer", 18) || !strncmp(name, "CohereTokenizer", 15));
}

static void apply_flag(struct token_template *t, int64_t id, bool in_front, int flag) {
    bool has = t->n && t->items[in_front ? 0 : t->n - 1] == id;
    if (id < 0 || flag < 0 || has == (bool)flag || (flag && t->n == TEMPLATE_MAX)) return;
    if (flag && in_front) {
        memmove(t->items + 1, t->items, t->n * sizeof *t->items);
        t->items[0] = id;
    } else if (flag) {
        t->items[t->n] = id;
    } else if (in_front) {
        memmove(t->items, t->items + 1, (t->n - 1) * sizeof *t->items);
    }
    t->n = flag ? t->n + 1 : t->n - 1;
}

static int read_config(struct json_loader *l) {
    struct tokenizer_spec *s = &l->spec;
    struct token_template *t = &l->pipeline.single;
    int bos = said(l, "add_bos_token"), eos = said(l, "add_eos_token");
    int rc = read_named(l, "bos_token", &s->bos);
    if (!rc) rc = read_named(l, "eos_token", &s->eos);
    if (rc) return rc;
    bool by_flags = class_goes_by_flags(l);
    if (t->n == 0) {
        s->add_bos = bos > 0;
        s->add_eos = eos > 0;
        return 0;
    }
    apply_flag(t, s->bos, true, bos == 0 && !by_flags ? -1 : bos);
    apply_flag(t, s->eos, false, eos == 0 && !by_flags ? -1 : eos);
    return 0;
}

/* --- */

static int load(struct json_loader *l, struct tokenizer **out) {
    struct tokenizer_pipeline *p = &l->pipeline;
    const json_t *decoder = json_object_get(l->root, "decoder");
    l->spec.bos = l->spec.eos = l->spec.unk = l->spec.cls = l->spec.sep = -1;
    if (!json_is_object(l->root)) return wrong(l, "it must hold an object");
    int rc = json_read_normalizer(l, json_object_get(l->root, "normalizer"), "normalizer");
    if (!rc) rc = json_read_pre_tokenizer(l, json_object_get(l->root, "pre_tokenizer"), "pre_tokenizer");
    if (!rc) rc = json_read_decoder(l, decoder, "decoder");
    if (!decoder || json_is_null(decoder)) p->piece_text = PIECE_JOINED;
    if (!rc) rc = read_model(l);
    if (!rc) rc = read_post_processor(l, json_object_get(l->root, "post_processor"));
    if (!rc) rc = read_config(l);
    if (rc) return rc;
    p->norm = l->norm;
    p->prep = l->prep;
    p->chain = l->chain;
    l->spec.pipeline = p;
    rc = tokenizer_create(&l->spec, out, l->err);
    if (rc) error_prefix(l->err, "tokenizer.json");
    return rc;
}

static json_t *parse(const char *text, size_t n, const char *name, struct error *err) {
    json_error_t e;
    if (utf8_mark(text, n)) {
        error_set(err, QUIRE_EFORMAT, "%s begins with a byte order mark, which JSON has not; remove it",
                  name);
        return NULL;
    }
    json_t *j = json_loadb(text, n, JSON_ALLOW_NUL, &e);
    if (!j) error_set(err, QUIRE_EFORMAT, "%s: line %d: %s", name, e.line, e.text);
    return j;
}

int tokenizer_from_json(const char *json, size_t n, const char *config, size_t n_config,
                        struct tokenizer **out, struct error *err) {
    struct json_loader *l;
    struct arena arena;
    *out = NULL;
    arena_init(&arena, 1 << 16, 0);
    l = arena_zalloc(&arena, sizeof *l);
    if (!l) return error_set(err, QUIRE_ENOMEM, "no memory for tokenizer.json");
    l->err = err;
    arena_init(&l->arena, 1 << 16, 0);
    int rc = 0;
    l->root = parse(json, n, "tokenizer.json", err);
    if (!l->root) rc = QUIRE_EFORMAT;
    if (!rc && config) {
        l->config = parse(config, n_config, "tokenizer_config.json", err);
        if (!l->config) rc = QUIRE_EFORMAT;
    }
    if (!rc) rc = load(l, out);
    if (rc == QUIRE_ENOMEM) error_set(err, rc, "no memory for tokenizer.json");
    json_decref(l->root);
    json_decref(l->config);
    arena_free(&l->arena);
    arena_free(&arena);
    return rc;
}
