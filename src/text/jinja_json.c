#include "text/jinja_json.h"
#include "text/jinja_dict.h"
#include "text/jinja_sort.h"
#include "text/jinja_unicode.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

struct dumper {
    struct jinja *j;
    const struct jinja_json_options *o;
    struct jinja_sb out;
    size_t level;
    uint8_t prov; /* of what is written around the values: that of the container */
};

static int dump(struct dumper *d, struct jinja_value v);

static bool needs_escape(unsigned char c, bool ascii) {
    return c < ' ' || c == '"' || c == '\\' || (ascii && c >= 0x7f);
}

static void escape_char(struct dumper *d, uint32_t cp, uint8_t prov) {
    static const char named[] = "\"\"\\\\\bb\ff\nn\rr\tt";
    char text[16];
    int n = 0;
    for (const char *p = named; *p && !n; p += 2)
        if ((unsigned char)*p == cp) n = snprintf(text, sizeof text, "\\%c", p[1]);
    if (!n && cp >= 0x10000) {
        uint32_t high = 0xd800 + ((cp - 0x10000) >> 10), low = 0xdc00 + ((cp - 0x10000) & 0x3ff);
        n = snprintf(text, sizeof text, "\\u%04x\\u%04x", high, low);
    }
    if (!n) n = snprintf(text, sizeof text, "\\u%04x", cp);
    jinja_sb_add(&d->out, text, (size_t)n, prov);
}

static void dump_str(struct dumper *d, const struct jinja_str *s) {
    bool ascii = d->o->ensure_ascii;
    uint8_t quote = s->prov == JINJA_BY_CONTENT ? JINJA_BY_CONTENT : d->prov;
    jinja_sb_add(&d->out, "\"", 1, quote);
    for (size_t i = 0, len; i < s->len && !d->out.rc;) {
        size_t plain = i;
        while (i < s->len && !needs_escape((unsigned char)s->data[i], ascii)) i++;
        jinja_sb_add_sub(&d->out, s, plain, i - plain);
        if (i == s->len) break;
        uint32_t cp = jinja_utf8_get(s->data + i, s->len - i, &len);
        escape_char(d, cp, jinja_str_prov_at(s, i));
        i += len;
    }
    jinja_sb_add(&d->out, "\"", 1, quote);
}

static void dump_float(struct dumper *d, struct jinja_value v, uint8_t prov) {
    char text[32];
    if (isfinite(v.f)) {
        jinja_sb_add(&d->out, text, jinja_float_text(v.f, text), prov);
    } else {
        const char *name = isnan(v.f) ? "NaN" : v.f < 0 ? "-Infinity" : "Infinity";
        jinja_sb_add(&d->out, name, strlen(name), prov);
    }
}

static int dump_scalar(struct dumper *d, struct jinja_value v) {
    const struct jinja_str *s;
    uint8_t prov = v.content ? JINJA_BY_CONTENT : d->prov;
    const char *word = NULL;
    switch ((enum jinja_type)v.type) {
    case JINJA_NONE: word = "null"; break;
    case JINJA_BOOL: word = v.b ? "true" : "false"; break;
    case JINJA_FLOAT: dump_float(d, v, prov); return d->out.rc;
    case JINJA_INT:
        JINJA_TRY(jinja_to_str(d->j, v, &s));
        jinja_sb_add(&d->out, s->data, s->len, prov);
        return d->out.rc;
    default: break;
    }
    jinja_sb_add(&d->out, word, strlen(word), prov);
    return d->out.rc;
}

/* A line break and the indentation of this level. */
static void newline(struct dumper *d) {
    if (!d->o->indent) return;
    jinja_sb_add(&d->out, "\n", 1, d->prov);
    if (d->out.rc) return;
    for (size_t i = 0; i < d->level && !d->out.rc; i++) jinja_sb_add_str(&d->out, d->o->indent);
}

static void separator(struct dumper *d, const struct jinja_str *s) {
    if (d->prov == JINJA_BY_CONTENT) {
        jinja_sb_add(&d->out, s->data, s->len, d->prov);
    } else {
        jinja_sb_add_str(&d->out, s);
    }
}

static int dump_list(struct dumper *d, struct jinja_value v) {
    size_t n;
    bool sized;
    JINJA_TRY(jinja_length(d->j, v, &n, &sized));
    jinja_sb_add(&d->out, "[", 1, d->prov);
    d->level++;
    for (size_t i = 0; i < n; i++) {
        struct jinja_value item;
        if (i) separator(d, d->o->item_separator);
        newline(d);
        JINJA_TRY(jinja_seq_at(d->j, v, i, &item));
        JINJA_TRY(dump(d, item));
    }
    d->level--;
    if (n) newline(d);
    jinja_sb_add(&d->out, "]", 1, d->prov);
    return d->out.rc;
}

/* Keys of other types become strings as json.dumps writes them. */
static int dump_key(struct dumper *d, struct jinja_value key) {
    if (key.type == JINJA_STR) {
        dump_str(d, key.s);
        return d->out.rc;
    }
    if (!jinja_is_number(key) && key.type != JINJA_NONE)
        return jinja_fail(d->j, QUIRE_EINVAL, "tojson: keys must be str, int, float, bool or None, not %s",
                          jinja_type_name(key));
    jinja_sb_add(&d->out, "\"", 1, d->prov);
    JINJA_TRY(dump_scalar(d, key));
    jinja_sb_add(&d->out, "\"", 1, d->prov);
    return d->out.rc;
}

static int dump_dict(struct dumper *d, struct jinja_value v) {
    struct jinja_vec pairs = {0};
    struct jinja_cursor c = {0};
    struct jinja_value key, value;
    size_t n = jinja_mapping_size(v);
    bool done, sort = d->o->sort_keys && n > 1;
    if (sort) JINJA_TRY(jinja_sorted_keys(d->j, v, &pairs));
    jinja_sb_add(&d->out, "{", 1, d->prov);
    d->level++;
    for (size_t i = 0; i < n; i++) {
        if (i) separator(d, d->o->item_separator);
        newline(d);
        if (sort) {
            bool found;
            key = pairs.items[i];
            JINJA_TRY(jinja_mapping_get(d->j, v, key, &value, &found));
        } else {
            JINJA_TRY(jinja_mapping_next(d->j, v, &c, &key, &value, &done));
        }
        JINJA_TRY(dump_key(d, key));
        separator(d, d->o->key_separator);
        JINJA_TRY(dump(d, value));
    }
    d->level--;
    if (n) newline(d);
    jinja_sb_add(&d->out, "}", 1, d->prov);
    return d->out.rc;
}

static int dump_container(struct dumper *d, struct jinja_value v) {
    uint8_t before = d->prov;
    bool input = v.type == JINJA_JSON_ARRAY || v.type == JINJA_JSON_OBJECT;
    d->prov = input ? JINJA_BY_CONTENT : JINJA_BY_TEMPLATE;
    JINJA_TRY(jinja_enter(d->j));
    JINJA_TRY(jinja_is_dict(v) ? dump_dict(d, v) : dump_list(d, v));
    jinja_leave(d->j);
    d->prov = before;
    return 0;
}

static int dump(struct dumper *d, struct jinja_value v) {
    JINJA_TRY(jinja_steps(d->j, 1));
    switch ((enum jinja_type)v.type) {
    case JINJA_STR: dump_str(d, v.s); return d->out.rc;
    case JINJA_NONE:
    case JINJA_BOOL:
    case JINJA_INT:
    case JINJA_FLOAT: return dump_scalar(d, v);
    case JINJA_LIST:
    case JINJA_TUPLE:
    case JINJA_JSON_ARRAY:
    case JINJA_DICT:
    case JINJA_JSON_OBJECT: return dump_container(d, v);
    default:
        return jinja_fail(d->j, QUIRE_EINVAL, "tojson: an object of type %s cannot be written as JSON",
                          jinja_type_name(v));
    }
}

int jinja_json_dump(struct jinja *j, struct jinja_value v, const struct jinja_json_options *options,
                    const struct jinja_str **out) {
    struct dumper d = {.j = j, .o = options, .prov = JINJA_BY_TEMPLATE};
    jinja_sb_init(j, &d.out);
    JINJA_TRY(dump(&d, v));
    return jinja_sb_finish(&d.out, out);
}
