/* Filters of strings. */
#include "text/jinja_dict.h"
#include "text/jinja_filters.h"
#include "text/jinja_format.h"
#include "text/jinja_iter.h"
#include "text/jinja_json.h"
#include "text/jinja_methods.h"
#include "text/jinja_ops.h"
#include "text/jinja_unicode.h"

#include <stdio.h>
#include <string.h>

static int give(const struct jinja_str *s, struct jinja_value *out) {
    if (!s) return QUIRE_ENOMEM;
    *out = jinja_of_str(s);
    return 0;
}

/* str(): without the mark of markup. */
static int plain_str(struct jinja *j, struct jinja_value v, const struct jinja_str **out) {
    JINJA_TRY(jinja_to_str(j, v, out));
    *out = jinja_str_markup(j, *out, false);
    return *out ? 0 : QUIRE_ENOMEM;
}

static int change(struct jinja *j, struct jinja_value v, enum jinja_change how, struct jinja_value *out) {
    const struct jinja_str *s;
    JINJA_TRY(jinja_to_str(j, v, &s));
    JINJA_TRY(jinja_str_change(j, s, how, &s));
    return give(s, out);
}

int jinja_f_upper(struct jinja *j, struct jinja_value self, const struct jinja_value *arg,
                  const struct jinja_args *args, struct jinja_value *out) {
    return change(j, self, JINJA_TO_UPPER, out);
}
int jinja_f_lower(struct jinja *j, struct jinja_value self, const struct jinja_value *arg,
                  const struct jinja_args *args, struct jinja_value *out) {
    return change(j, self, JINJA_TO_LOWER, out);
}
int jinja_f_capitalize(struct jinja *j, struct jinja_value self, const struct jinja_value *arg,
                       const struct jinja_args *args, struct jinja_value *out) {
    return change(j, self, JINJA_TO_CAPITAL, out);
}

static bool separates_words(uint32_t cp) {
    return cp == '-' || cp == '(' || cp == '{' || cp == '[' || cp == '<' ||
           (jinja_unicode_props(cp) & JINJA_IS_SPACE);
}

int jinja_f_title(struct jinja *j, struct jinja_value self, const struct jinja_value *arg,
                  const struct jinja_args *args,
                  struct jinja_value *out) { /* words start behind blanks, hyphens and opening brackets */
    const struct jinja_str *s, *word;
    struct jinja_sb b;
    JINJA_TRY(jinja_to_str(j, self, &s));
    jinja_sb_init(j, &b);
    for (size_t i = 0, len; i < s->len && !b.rc;) {
        uint32_t cp = jinja_utf8_get(s->data + i, s->len - i, &len), to[3];
        if (separates_words(cp)) {
            jinja_sb_add_sub(&b, s, i, len);
            i += len;
            continue;
        }
        size_t n = jinja_unicode_map(cp, JINJA_CASE_UPPER, to), start = i + len;
        for (size_t k = 0; k < n; k++) jinja_sb_add_cp(&b, to[k], jinja_str_prov_at(s, i));
        for (i = start; i < s->len; i += len)
            if (separates_words(jinja_utf8_get(s->data + i, s->len - i, &len))) break;
        word = jinja_str_sub(j, s, start, i - start);
        if (!word) return QUIRE_ENOMEM;
        JINJA_TRY(jinja_str_change(j, word, JINJA_TO_LOWER, &word));
        jinja_sb_add_str(&b, word);
    }
    JINJA_TRY(jinja_sb_finish(&b, &s));
    return give(s, out);
}

int jinja_f_center(struct jinja *j, struct jinja_value self, const struct jinja_value *arg,
                   const struct jinja_args *args, struct jinja_value *out) {
    const struct jinja_str *s;
    int64_t width = 80;
    if (jinja_given(arg[0])) JINJA_TRY(jinja_need_int(j, "the width", arg[0], &width));
    JINJA_TRY(jinja_to_str(j, self, &s));
    bool markup = s->markup;
    JINJA_TRY(jinja_str_center(j, s, width, NULL, &s));
    return give(jinja_str_markup(j, s, markup), out);
}

int jinja_f_string(struct jinja *j, struct jinja_value self, const struct jinja_value *arg,
                   const struct jinja_args *args, struct jinja_value *out) {
    const struct jinja_str *s;
    JINJA_TRY(jinja_to_str(j, self, &s));
    return give(s, out);
}

int jinja_f_safe(struct jinja *j, struct jinja_value self, const struct jinja_value *arg,
                 const struct jinja_args *args, struct jinja_value *out) {
    const struct jinja_str *s;
    JINJA_TRY(jinja_to_str(j, self, &s));
    return give(jinja_str_markup(j, s, true), out);
}

int jinja_f_escape(struct jinja *j, struct jinja_value self, const struct jinja_value *arg,
                   const struct jinja_args *args, struct jinja_value *out) {
    const struct jinja_str *s;
    JINJA_TRY(jinja_to_str(j, self, &s));
    if (!s->markup) JINJA_TRY(jinja_escape(j, s, &s));
    return give(s, out);
}

int jinja_f_forceescape(struct jinja *j, struct jinja_value self, const struct jinja_value *arg,
                        const struct jinja_args *args, struct jinja_value *out) {
    const struct jinja_str *s;
    JINJA_TRY(jinja_to_str(j, self, &s));
    JINJA_TRY(jinja_escape(j, s, &s));
    return give(s, out);
}

int jinja_f_format(struct jinja *j, struct jinja_value self, const struct jinja_value *arg,
                   const struct jinja_args *args, struct jinja_value *out) {
    const struct jinja_str *s;
    struct jinja_value values;
    JINJA_TRY(jinja_to_str(j, self, &s));
    if (args->n_pos && args->n_kw)
        return jinja_fail(j, QUIRE_EINVAL, "format: positional and keyword arguments cannot be mixed");
    if (args->n_kw) {
        struct jinja_dict *d;
        JINJA_TRY(jinja_dict_new(j, &d));
        for (size_t i = 0; i < args->n_kw; i++)
            JINJA_TRY(jinja_dict_set_name(j, d, args->kw[i].name, args->kw[i].value));
        values = (struct jinja_value){.type = JINJA_DICT, .dict = d};
    } else {
        JINJA_TRY(jinja_list_new(j, args->pos, args->n_pos, JINJA_TUPLE, &values));
    }
    return jinja_format_percent(j, s, values, out);
}

int jinja_f_replace(struct jinja *j, struct jinja_value self, const struct jinja_value *arg,
                    const struct jinja_args *args, struct jinja_value *out) {
    const struct jinja_str *s, *old, *new_;
    int64_t count = -1;
    JINJA_TRY(plain_str(j, self, &s));
    JINJA_TRY(jinja_to_str(j, arg[0], &old));
    JINJA_TRY(jinja_to_str(j, arg[1], &new_));
    if (jinja_given_value(arg[2])) JINJA_TRY(jinja_need_int(j, "the count", arg[2], &count));
    JINJA_TRY(jinja_str_replace(j, s, old, new_, count, &s));
    return give(s, out);
}

int jinja_f_trim(struct jinja *j, struct jinja_value self, const struct jinja_value *arg,
                 const struct jinja_args *args, struct jinja_value *out) {
    const struct jinja_str *s, *chars = NULL;
    JINJA_TRY(jinja_to_str(j, self, &s));
    if (jinja_given_value(arg[0])) JINJA_TRY(jinja_need_str(j, "the characters to strip", arg[0], &chars));
    JINJA_TRY(jinja_str_strip(j, s, chars, true, true, &s));
    return give(s, out);
}

int jinja_f_join(struct jinja *j, struct jinja_value self, const struct jinja_value *arg,
                 const struct jinja_args *args, struct jinja_value *out) {
    const struct jinja_str *separator, *s;
    struct jinja_getter getter;
    struct jinja_iter it;
    struct jinja_sb b;
    JINJA_TRY(jinja_to_str(j, arg[0], &separator));
    JINJA_TRY(jinja_getter_init(j, &getter, arg[1], false));
    JINJA_TRY(jinja_iter_start(j, &it, self));
    jinja_sb_init(j, &b);
    for (bool first = true;; first = false) {
        struct jinja_value item;
        bool done;
        JINJA_TRY(jinja_iter_next(j, &it, &item, &done));
        if (done) break;
        JINJA_TRY(jinja_getter_get(j, &getter, item, &item));
        JINJA_TRY(jinja_to_str(j, item, &s));
        if (!first) jinja_sb_add_str(&b, separator);
        jinja_sb_add_str(&b, s);
    }
    JINJA_TRY(jinja_sb_finish(&b, &s));
    return give(s, out);
}

static int indentation(struct jinja *j, struct jinja_value width, const struct jinja_str **out) {
    static const struct jinja_str space = {.data = " ", .len = 1, .n_chars = 1};
    int64_t n = 4;
    if (width.type == JINJA_STR) {
        *out = width.s;
        return 0;
    }
    if (jinja_given(width)) JINJA_TRY(jinja_need_int(j, "the width", width, &n));
    struct jinja_sb b;
    jinja_sb_init(j, &b);
    jinja_sb_fill(&b, &space, n > 0 ? (size_t)n : 0);
    return jinja_sb_finish(&b, out);
}

int jinja_f_indent(struct jinja *j, struct jinja_value self, const struct jinja_value *arg,
                   const struct jinja_args *args, struct jinja_value *out) {
    const struct jinja_str *s, *by, *r;
    struct jinja_vec lines = {0};
    struct jinja_sb b;
    JINJA_TRY(jinja_need_str(j, "indent: the value", self, &s));
    JINJA_TRY(indentation(j, arg[0], &by));
    bool first = jinja_truth(j, arg[1]), blank = jinja_truth(j, arg[2]);
    jinja_sb_init(j, &b); /* a newline more, so that one at the end starts a line of its own */
    jinja_sb_add_str(&b, s);
    jinja_sb_add(&b, "\n", 1, s->len ? jinja_str_prov_at(s, s->len - 1) : JINJA_BY_TEMPLATE);
    JINJA_TRY(jinja_sb_finish(&b, &r));
    JINJA_TRY(jinja_str_splitlines(j, r, false, &lines));
    jinja_sb_init(j, &b);
    if (first) jinja_sb_add_str(&b, by);
    for (size_t i = 0; i < lines.n; i++) {
        const struct jinja_str *line = lines.items[i].s;
        if (i) jinja_sb_add(&b, "\n", 1, s->prov == JINJA_BY_CONTENT ? JINJA_BY_CONTENT : JINJA_BY_TEMPLATE);
        if (i && (blank || line->len)) jinja_sb_add_str(&b, by);
        jinja_sb_add_str(&b, line);
    }
    JINJA_TRY(jinja_sb_finish(&b, &r));
    return give(jinja_str_markup(j, r, s->markup), out);
}

int jinja_f_truncate(struct jinja *j, struct jinja_value self, const struct jinja_value *arg,
                     const struct jinja_args *args, struct jinja_value *out) {
    const struct jinja_str *s, *end;
    int64_t length = 255, leeway = 5;
    ptrdiff_t space;
    size_t n;
    bool sized;
    if (jinja_given(arg[0])) JINJA_TRY(jinja_need_int(j, "the length", arg[0], &length));
    if (jinja_given(arg[2])) {
        JINJA_TRY(jinja_need_str(j, "the end", arg[2], &end));
    } else if (!(end = jinja_str_lit(j, "..."))) {
        return QUIRE_ENOMEM;
    }
    if (jinja_given_value(arg[3])) JINJA_TRY(jinja_need_int(j, "the leeway", arg[3], &leeway));
    if (length < (int64_t)end->n_chars || leeway < 0)
        return jinja_fail(j, QUIRE_EINVAL,
                          "truncate: length must be at least that of the end, leeway at least 0");
    JINJA_TRY(jinja_length(j, self, &n, &sized));
    *out = self; /* what is short enough may be of any type that has a length */
    if (sized && (length > INT64_MAX - leeway || (int64_t)n <= length + leeway)) return 0;
    JINJA_TRY(jinja_need_str(j, "truncate: the value", self, &s));
    const struct jinja_str *cut =
        jinja_str_sub(j, s, 0, jinja_str_offset(s, (size_t)(length - (int64_t)end->n_chars)));
    if (!cut) return QUIRE_ENOMEM;
    if (!jinja_truth(j, arg[1])) {
        static const struct jinja_str blank = {.data = " ", .len = 1, .n_chars = 1};
        JINJA_TRY(jinja_str_rfind(j, cut, &blank, 0, cut->len, &space));
        if (space >= 0) cut = jinja_str_sub(j, cut, 0, (size_t)space);
        if (!cut) return QUIRE_ENOMEM;
    }
    return jinja_binary(j, JINJA_OP_ADD, jinja_of_str(cut), jinja_of_str(end), out);
}

int jinja_f_wordcount(struct jinja *j, struct jinja_value self, const struct jinja_value *arg,
                      const struct jinja_args *args, struct jinja_value *out) {
    const struct jinja_str *s;
    int64_t n = 0;
    bool in_word = false;
    JINJA_TRY(jinja_to_str(j, self, &s));
    JINJA_TRY(jinja_steps(j, s->len / 32));
    for (size_t i = 0, len; i < s->len; i += len) {
        uint32_t cp = jinja_utf8_get(s->data + i, s->len - i, &len);
        bool word = cp == '_' || (jinja_unicode_props(cp) & (JINJA_IS_ALPHA | JINJA_IS_NUMBER));
        n += word && !in_word;
        in_word = word;
    }
    *out = jinja_int(n);
    return 0;
}

int jinja_f_filesizeformat(struct jinja *j, struct jinja_value self, const struct jinja_value *arg,
                           const struct jinja_args *args, struct jinja_value *out) {
    static const char prefixes[] = "kMGTPEZY";
    struct jinja_value n = self;
    bool binary = jinja_truth(j, arg[0]), ok = jinja_is_number(self);
    char text[64];
    if (self.type == JINJA_UNDEFINED) return jinja_fail_undefined(j, self);
    n = jinja_float(ok ? jinja_as_float(self) : 0);
    if (self.type == JINJA_STR) JINJA_TRY(jinja_parse_float(j, self.s, &n.f, &ok));
    if (!ok) return jinja_fail(j, QUIRE_EINVAL, "filesizeformat needs a number");
    double base = binary ? 1024 : 1000, unit = base;
    if (n.f == 1) {
        snprintf(text, sizeof text, "1 Byte");
    } else if (n.f < base) {
        snprintf(text, sizeof text, "%.0f Bytes", n.f < 0 ? -__builtin_floor(-n.f) : __builtin_floor(n.f));
        if (strcmp(text, "-0 Bytes") == 0) snprintf(text, sizeof text, "0 Bytes");
    } else {
        size_t i = 0;
        do unit *= base;
        while (n.f >= unit && ++i < 8);
        i = i < 8 ? i : 7;
        double shown = base * n.f / unit;
        snprintf(text, sizeof text, binary ? "%.1f %ciB" : "%.1f %cB", shown,
                 binary && prefixes[i] == 'k' ? 'K' : prefixes[i]);
    }
    return give(jinja_str_copy(j, text, strlen(text), self.content ? JINJA_BY_CONTENT : JINJA_BY_TEMPLATE),
                out);
}

static void quote_url(struct jinja_sb *b, const struct jinja_str *s, bool query) {
    for (size_t i = 0; i < s->len && !b->rc; i++) {
        unsigned char c = (unsigned char)s->data[i];
        uint8_t prov = jinja_str_prov_at(s, i);
        char hex[4];
        bool safe = ((c | 32) >= 'a' && (c | 32) <= 'z') || (c >= '0' && c <= '9') || strchr("_.-~", c) ||
                    (c == '/' && !query);
        if (c && safe) {
            jinja_sb_add_sub(b, s, i, 1);
        } else if (c == ' ' && query) {
            jinja_sb_add(b, "+", 1, prov);
        } else {
            snprintf(hex, sizeof hex, "%%%02X", c);
            jinja_sb_add(b, hex, 3, prov);
        }
    }
}

int jinja_f_urlencode(struct jinja *j, struct jinja_value self, const struct jinja_value *arg,
                      const struct jinja_args *args, struct jinja_value *out) {
    const struct jinja_str *s;
    struct jinja_iter it;
    struct jinja_sb b;
    jinja_sb_init(j, &b);
    if (self.type == JINJA_STR || !jinja_is_iterable(self)) {
        JINJA_TRY(jinja_to_str(j, self, &s));
        JINJA_TRY(jinja_steps(j, s->len / 16));
        quote_url(&b, s, false);
        JINJA_TRY(jinja_sb_finish(&b, &s));
        return give(s, out);
    }
    if (jinja_is_dict(self)) JINJA_TRY(jinja_f_items(j, self, arg, args, &self));
    JINJA_TRY(jinja_iter_start(j, &it, self));
    for (bool first = true;; first = false) {
        struct jinja_value item, pair[2];
        bool done;
        JINJA_TRY(jinja_iter_next(j, &it, &item, &done));
        if (done) break;
        JINJA_TRY(jinja_unpack(j, item, pair, 2));
        if (!first) jinja_sb_add_lit(&b, "&");
        for (int i = 0; i < 2; i++) {
            JINJA_TRY(jinja_to_str(j, pair[i], &s));
            JINJA_TRY(jinja_steps(j, s->len / 16));
            quote_url(&b, s, true);
            if (i == 0) jinja_sb_add_lit(&b, "=");
        }
    }
    JINJA_TRY(jinja_sb_finish(&b, &s));
    return give(s, out);
}

int jinja_f_xmlattr(struct jinja *j, struct jinja_value self, const struct jinja_value *arg,
                    const struct jinja_args *args, struct jinja_value *out) {
    const struct jinja_str *s;
    struct jinja_cursor c = {0};
    struct jinja_sb b;
    bool any = false, autospace = !jinja_given(arg[0]) || jinja_truth(j, arg[0]);
    if (self.type == JINJA_UNDEFINED) return jinja_fail_undefined(j, self);
    if (!jinja_is_dict(self))
        return jinja_fail(j, QUIRE_EINVAL, "xmlattr needs a dict, not '%s'", jinja_type_name(self));
    jinja_sb_init(j, &b);
    for (;;) {
        struct jinja_value key, value;
        bool done;
        JINJA_TRY(jinja_mapping_next(j, self, &c, &key, &value, &done));
        if (done) break;
        if (value.type == JINJA_NONE || value.type == JINJA_UNDEFINED) continue;
        JINJA_TRY(jinja_need_str(j, "xmlattr: an attribute name", key, &s));
        for (size_t i = 0; i < s->len; i++)
            if (!s->data[i] || strchr(" \t\n\r\f\v/>=", s->data[i]))
                if (s->data[i])
                    return jinja_fail(j, QUIRE_EINVAL, "xmlattr: invalid character in an attribute name");
        if (any || autospace) jinja_sb_add_lit(&b, " ");
        any = true;
        JINJA_TRY(jinja_f_escape(j, key, arg, args, &key));
        JINJA_TRY(jinja_f_escape(j, value, arg, args, &value));
        jinja_sb_add_str(&b, key.s);
        jinja_sb_add_lit(&b, "=\"");
        jinja_sb_add_str(&b, value.s);
        jinja_sb_add_lit(&b, "\"");
    }
    JINJA_TRY(jinja_sb_finish(&b, &s));
    return give(s, out);
}

static int json_separators(struct jinja *j, struct jinja_value v, struct jinja_json_options *o) {
    struct jinja_value pair[2];
    if (!jinja_given_value(v)) return 0;
    JINJA_TRY(jinja_unpack(j, v, pair, 2));
    JINJA_TRY(jinja_need_str(j, "tojson: a separator", pair[0], &o->item_separator));
    return jinja_need_str(j, "tojson: a separator", pair[1], &o->key_separator);
}

int jinja_f_tojson(struct jinja *j, struct jinja_value self, const struct jinja_value *arg,
                   const struct jinja_args *args, struct jinja_value *out) {
    const struct jinja_str *s;
    struct jinja_json_options o = {.ensure_ascii = jinja_truth(j, arg[0]),
                                   .sort_keys = jinja_truth(j, arg[3])};
    bool indented = jinja_given_value(arg[1]);
    if (indented) JINJA_TRY(indentation(j, arg[1], &o.indent));
    o.item_separator = jinja_str_lit(j, indented ? "," : ", ");
    o.key_separator = jinja_str_lit(j, ": ");
    if (!o.item_separator || !o.key_separator) return QUIRE_ENOMEM;
    JINJA_TRY(json_separators(j, arg[2], &o));
    JINJA_TRY(jinja_json_dump(j, self, &o, &s));
    return give(s, out);
}
