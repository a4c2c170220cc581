/* Lengths, truth, and values as text: str() and repr(). */
#include "text/jinja_call.h"
#include "text/jinja_dict.h"
#include "text/jinja_loop.h"
#include "text/jinja_unicode.h"
#include "text/jinja_value.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

int jinja_length(struct jinja *j, struct jinja_value v, size_t *n, bool *has) {
    *has = true;
    switch ((enum jinja_type)v.type) {
    case JINJA_UNDEFINED: *n = 0; return 0;
    case JINJA_STR: *n = v.s->n_chars; return 0;
    case JINJA_LIST:
    case JINJA_TUPLE: *n = v.list->n; return 0;
    case JINJA_JSON_ARRAY: *n = json_array_size(v.json); return 0;
    case JINJA_DICT:
    case JINJA_JSON_OBJECT: *n = jinja_mapping_size(v); return 0;
    case JINJA_RANGE: *n = v.range->n; return 0;
    case JINJA_VIEW: *n = jinja_mapping_size(v.view->of); return 0;
    case JINJA_LOOP: return jinja_loop_length(j, v.loop, n);
    default:
        *has = false;
        *n = 0;
        return 0;
    }
}

bool jinja_truth(struct jinja *j, struct jinja_value v) {
    switch ((enum jinja_type)v.type) {
    case JINJA_MISSING:
    case JINJA_UNDEFINED:
    case JINJA_NONE: return false;
    case JINJA_BOOL: return v.b;
    case JINJA_INT: return v.i != 0;
    case JINJA_FLOAT: return v.f != 0;
    case JINJA_STR: return v.s->len != 0;
    case JINJA_LIST:
    case JINJA_TUPLE: return v.list->n != 0;
    case JINJA_JSON_ARRAY: return json_array_size(v.json) != 0;
    case JINJA_DICT:
    case JINJA_JSON_OBJECT: return jinja_mapping_size(v) != 0;
    case JINJA_RANGE: return v.range->n != 0;
    case JINJA_VIEW: return jinja_mapping_size(v.view->of) != 0;
    default: return true;
    }
}

int jinja_seq_at(struct jinja *j, struct jinja_value v, size_t i, struct jinja_value *out) {
    switch ((enum jinja_type)v.type) {
    case JINJA_JSON_ARRAY: return jinja_from_json(j, json_array_get(v.json, i), out);
    case JINJA_RANGE: *out = jinja_int(v.range->start + (int64_t)i * v.range->step); return 0;
    default: *out = v.list->items[i]; return 0;
    }
}

/* "0.5", "12", "True": the text of values that are no containers; 0 if v is another. */
static size_t scalar_text(struct jinja_value v, char out[32]) {
    switch ((enum jinja_type)v.type) {
    case JINJA_NONE: return (size_t)snprintf(out, 32, "None");
    case JINJA_BOOL: return (size_t)snprintf(out, 32, v.b ? "True" : "False");
    case JINJA_INT: return (size_t)snprintf(out, 32, "%" PRId64, v.i);
    case JINJA_FLOAT: return jinja_float_text(v.f, out);
    default: return 0;
    }
}

int jinja_to_str(struct jinja *j, struct jinja_value v, const struct jinja_str **out) {
    char text[32];
    if (v.type == JINJA_STR) {
        *out = v.s;
        return 0;
    }
    if (v.type == JINJA_UNDEFINED || v.type == JINJA_MISSING) {
        *out = jinja_str_lit(j, "");
        return *out ? 0 : QUIRE_ENOMEM;
    }
    size_t n = scalar_text(v, text);
    if (n) {
        *out = jinja_str_copy(j, text, n, v.content ? JINJA_BY_CONTENT : JINJA_BY_TEMPLATE);
        return *out ? 0 : QUIRE_ENOMEM;
    }
    struct jinja_sb b;
    jinja_sb_init(j, &b);
    JINJA_TRY(jinja_repr(j, v, &b));
    return jinja_sb_finish(&b, out);
}

static void repr_char(struct jinja_sb *out, const struct jinja_str *s, size_t at, size_t len, uint32_t cp,
                      char quote) {
    char text[12];
    uint8_t prov = jinja_str_prov_at(s, at);
    int n = 0;
    if (cp == (unsigned char)quote || cp == '\\') {
        n = snprintf(text, sizeof text, "\\%c", (char)cp);
    } else if (cp == '\n' || cp == '\r' || cp == '\t') {
        n = snprintf(text, sizeof text, "\\%c", cp == '\n' ? 'n' : cp == '\r' ? 'r' : 't');
    } else if (!(jinja_unicode_props(cp) & JINJA_IS_PRINTABLE)) {
        n = snprintf(text, sizeof text, cp < 0x100 ? "\\x%02x" : cp < 0x10000 ? "\\u%04x" : "\\U%08x", cp);
    }
    if (n) {
        jinja_sb_add(out, text, (size_t)n, prov);
    } else {
        jinja_sb_add_sub(out, s, at, len);
    }
}

static void repr_str(struct jinja_sb *out, const struct jinja_str *s) {
    bool single = memchr(s->data, '\'', s->len) != NULL, dbl = memchr(s->data, '"', s->len) != NULL;
    char quote = single && !dbl ? '"' : '\'';
    uint8_t prov = s->prov == JINJA_BY_CONTENT ? JINJA_BY_CONTENT : JINJA_BY_TEMPLATE;
    if (s->markup) jinja_sb_add_lit(out, "Markup(");
    jinja_sb_add(out, &quote, 1, prov);
    for (size_t i = 0, len; i < s->len; i += len) {
        uint32_t cp = jinja_utf8_get(s->data + i, s->len - i, &len);
        size_t plain = i; /* a stretch that needs no escape */
        while (cp >= ' ' && cp < 0x7f && cp != '\\' && cp != '\'' && cp != '"') {
            i++;
            if (i == s->len) break;
            cp = jinja_utf8_get(s->data + i, s->len - i, &len);
        }
        if (i > plain) jinja_sb_add_sub(out, s, plain, i - plain);
        if (i == s->len) break;
        repr_char(out, s, i, len, cp, quote);
        if (out->rc) return;
    }
    jinja_sb_add(out, &quote, 1, prov);
    if (s->markup) jinja_sb_add_lit(out, ")");
}

static int repr_sequence(struct jinja *j, struct jinja_value v, struct jinja_sb *out, uint8_t prov) {
    size_t n;
    bool sized;
    JINJA_TRY(jinja_length(j, v, &n, &sized));
    jinja_sb_add(out, v.type == JINJA_TUPLE ? "(" : "[", 1, prov);
    for (size_t i = 0; i < n; i++) {
        struct jinja_value item;
        if (i) jinja_sb_add(out, ", ", 2, prov);
        JINJA_TRY(jinja_seq_at(j, v, i, &item));
        JINJA_TRY(jinja_repr(j, item, out));
    }
    if (v.type == JINJA_TUPLE && n == 1) jinja_sb_add(out, ",", 1, prov);
    jinja_sb_add(out, v.type == JINJA_TUPLE ? ")" : "]", 1, prov);
    return out->rc;
}

static int repr_mapping(struct jinja *j, struct jinja_value v, struct jinja_sb *out, uint8_t prov) {
    struct jinja_cursor c = {0};
    jinja_sb_add(out, "{", 1, prov);
    for (;;) {
        struct jinja_value key, value;
        bool done;
        JINJA_TRY(jinja_mapping_next(j, v, &c, &key, &value, &done));
        if (done) break;
        if (c.i > 1) jinja_sb_add(out, ", ", 2, prov);
        JINJA_TRY(jinja_repr(j, key, out));
        jinja_sb_add(out, ": ", 2, prov);
        JINJA_TRY(jinja_repr(j, value, out));
    }
    jinja_sb_add(out, "}", 1, prov);
    return out->rc;
}

static int repr_view(struct jinja *j, const struct jinja_view *v, struct jinja_sb *out) {
    static const char *const names[] = {"dict_keys([", "dict_values([", "dict_items(["};
    struct jinja_cursor c = {0};
    jinja_sb_add_lit(out, names[v->kind]);
    for (;;) {
        struct jinja_value key, value;
        bool done;
        JINJA_TRY(jinja_mapping_next(j, v->of, &c, &key, &value, &done));
        if (done) break;
        if (c.i > 1) jinja_sb_add_lit(out, ", ");
        if (v->kind == JINJA_VIEW_ITEMS) jinja_sb_add_lit(out, "(");
        if (v->kind != JINJA_VIEW_VALUES) JINJA_TRY(jinja_repr(j, key, out));
        if (v->kind == JINJA_VIEW_ITEMS) jinja_sb_add_lit(out, ", ");
        if (v->kind != JINJA_VIEW_KEYS) JINJA_TRY(jinja_repr(j, value, out));
        if (v->kind == JINJA_VIEW_ITEMS) jinja_sb_add_lit(out, ")");
    }
    jinja_sb_add_lit(out, "])");
    return out->rc;
}

/* Objects that Python prints with their address, which differs from run to run there; here it is left out. */
static int repr_object(struct jinja *j, struct jinja_value v, struct jinja_sb *out) {
    char text[80];
    size_t n;
    switch ((enum jinja_type)v.type) {
    case JINJA_RANGE:
        snprintf(text, sizeof text,
                 v.range->step == 1 ? "range(%" PRId64 ", %" PRId64 ")"
                                    : "range(%" PRId64 ", %" PRId64 ", %" PRId64 ")",
                 v.range->start, v.range->stop, v.range->step);
        break;
    case JINJA_MACRO:
        if (!v.macro->def->name) {
            snprintf(text, sizeof text, "<Macro anonymous>");
            break;
        }
        jinja_sb_add_lit(out, "<Macro ");
        repr_str(out, v.macro->def->name);
        jinja_sb_add_lit(out, ">");
        return out->rc;
    case JINJA_LOOP:
        JINJA_TRY(jinja_loop_length(j, v.loop, &n));
        snprintf(text, sizeof text, "<LoopContext %zu/%zu>", v.loop->index0 + 1, n);
        break;
    case JINJA_ITER: snprintf(text, sizeof text, "<generator object %s>", v.iter->name); break;
    case JINJA_METHOD: snprintf(text, sizeof text, "<built-in method %s>", v.bound->method->name); break;
    case JINJA_FUNCTION: snprintf(text, sizeof text, "<function %s>", v.function->method.name); break;
    default: snprintf(text, sizeof text, "<%s object>", jinja_type_name(v)); break;
    }
    jinja_sb_add_lit(out, text);
    return out->rc;
}

int jinja_repr(struct jinja *j, struct jinja_value v, struct jinja_sb *out) {
    char text[32];
    int rc = 0;
    JINJA_TRY(jinja_steps(j, 1));
    size_t n = scalar_text(v, text);
    if (n) {
        jinja_sb_add(out, text, n, v.content ? JINJA_BY_CONTENT : JINJA_BY_TEMPLATE);
        return out->rc;
    }
    JINJA_TRY(jinja_enter(j));
    switch ((enum jinja_type)v.type) {
    case JINJA_UNDEFINED: jinja_sb_add_lit(out, "Undefined"); break;
    case JINJA_STR: repr_str(out, v.s); break;
    case JINJA_LIST:
    case JINJA_TUPLE: rc = repr_sequence(j, v, out, JINJA_BY_TEMPLATE); break;
    case JINJA_JSON_ARRAY: rc = repr_sequence(j, v, out, JINJA_BY_CONTENT); break;
    case JINJA_DICT: rc = repr_mapping(j, v, out, JINJA_BY_TEMPLATE); break;
    case JINJA_JSON_OBJECT: rc = repr_mapping(j, v, out, JINJA_BY_CONTENT); break;
    case JINJA_NAMESPACE:
        jinja_sb_add_lit(out, "<Namespace ");
        rc = repr_mapping(j, v, out, JINJA_BY_TEMPLATE);
        jinja_sb_add_lit(out, ">");
        break;
    case JINJA_VIEW: rc = repr_view(j, v.view, out); break;
    default: rc = repr_object(j, v, out); break;
    }
    jinja_leave(j);
    return rc ? rc : out->rc;
}
