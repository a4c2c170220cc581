#include "text/jinja_format.h"
#include "text/jinja_dict.h"
#include "text/jinja_ops.h"
#include "text/jinja_unicode.h"

#include <math.h>
#include <string.h>

/* Text in a field of some width: align one of < > ^. */
static void add_aligned(struct jinja_sb *b, const struct jinja_str *s, char align,
                        const struct jinja_str *fill, int64_t width) {
    size_t space = width > 0 && (uint64_t)width > s->n_chars ? (size_t)width - s->n_chars : 0;
    size_t left = align == '>' ? space : align == '^' ? space / 2 : 0;
    jinja_sb_fill(b, fill, left);
    jinja_sb_add_str(b, s);
    jinja_sb_fill(b, fill, space - left);
}

static const struct jinja_str space_str = {.data = " ", .len = 1, .n_chars = 1};

/* repr() without characters beyond ASCII. */
static int ascii_repr(struct jinja *j, struct jinja_value v, const struct jinja_str **out) {
    struct jinja_sb b;
    const struct jinja_str *s;
    jinja_sb_init(j, &b);
    JINJA_TRY(jinja_repr(j, v, &b));
    JINJA_TRY(jinja_sb_finish(&b, &s));
    jinja_sb_init(j, &b);
    for (size_t i = 0, len; i < s->len && !b.rc; i += len) {
        uint32_t cp = jinja_utf8_get(s->data + i, s->len - i, &len);
        if (cp < 0x80) {
            jinja_sb_add_sub(&b, s, i, 1);
            continue;
        }
        static const char hex[] = "0123456789abcdef";
        char text[10] = {'\\', cp < 0x100 ? 'x' : cp < 0x10000 ? 'u' : 'U'};
        size_t n = cp < 0x100 ? 2 : cp < 0x10000 ? 4 : 8;
        for (size_t k = 0; k < n; k++) text[2 + k] = hex[cp >> 4 * (n - 1 - k) & 15];
        jinja_sb_add(&b, text, 2 + n, jinja_str_prov_at(s, i));
    }
    return jinja_sb_finish(&b, out);
}

/* r, a or s. */
static int convert(struct jinja *j, struct jinja_value v, char how, const struct jinja_str **out) {
    if (how == 'a') return ascii_repr(j, v, out);
    if (how != 'r') return jinja_to_str(j, v, out);
    struct jinja_sb b;
    jinja_sb_init(j, &b);
    JINJA_TRY(jinja_repr(j, v, &b));
    return jinja_sb_finish(&b, out);
}

/* ---- "..." % values ---- */

struct percent {
    struct jinja *j;
    const struct jinja_str *format;
    size_t at;
    struct jinja_value values;
    size_t used; /* positional values taken */
    bool by_key;
    bool escape;
    bool left, zero;
    int64_t width;
    struct jinja_number_format number;
    struct jinja_sb out;
};

/* What can be indexed may go unused. */
static bool is_mapping_like(struct jinja_value v) {
    return jinja_is_dict(v) || jinja_is_list(v) || v.type == JINJA_RANGE || v.type == JINJA_UNDEFINED;
}

static int next_value(struct percent *p, struct jinja_value *out) {
    size_t n = p->values.type == JINJA_TUPLE ? p->values.list->n : 1;
    if (p->used >= n) return jinja_fail(p->j, QUIRE_EINVAL, "not enough arguments for format string");
    *out = p->values.type == JINJA_TUPLE ? p->values.list->items[p->used] : p->values;
    p->used++;
    return 0;
}

static char peek(const struct percent *p) {
    return p->at < p->format->len ? p->format->data[p->at] : '\0';
}

/* A width or precision: digits or `*`. */
static int percent_number(struct percent *p, int64_t *out) {
    if (peek(p) == '*') {
        struct jinja_value v;
        p->at++;
        JINJA_TRY(next_value(p, &v));
        return jinja_need_int(p->j, "*", v, out);
    }
    for (*out = 0; peek(p) >= '0' && peek(p) <= '9'; p->at++) {
        *out = *out * 10 + (peek(p) - '0');
        if (*out > INT32_MAX)
            return jinja_fail(p->j, QUIRE_ELIMIT, "a width or precision in a format is too large");
    }
    return 0;
}

static int percent_key(struct percent *p, struct jinja_value *value) {
    size_t start = ++p->at, depth = 1;
    for (; p->at < p->format->len; p->at++) {
        depth += peek(p) == '(';
        if (peek(p) == ')' && --depth == 0) break;
    }
    if (p->at >= p->format->len) return jinja_fail(p->j, QUIRE_EINVAL, "incomplete format key");
    if (!jinja_is_dict(p->values)) return jinja_fail(p->j, QUIRE_EINVAL, "format requires a mapping");
    const struct jinja_str *key = jinja_str_sub(p->j, p->format, start, p->at++ - start);
    bool found;
    if (!key) return QUIRE_ENOMEM;
    JINJA_TRY(jinja_mapping_get(p->j, p->values, jinja_of_str(key), value, &found));
    p->by_key = true;
    return found ? 0 : jinja_fail(p->j, QUIRE_EINVAL, "a key of the format string is missing");
}

static int percent_text(struct percent *p, struct jinja_value v, char type, const struct jinja_str **s) {
    JINJA_TRY(convert(p->j, v, type, s));
    if (p->escape && !(v.type == JINJA_STR && v.s->markup && type == 's'))
        JINJA_TRY(jinja_escape(p->j, *s, s));
    if (p->number.precision >= 0 && (uint64_t)p->number.precision < (*s)->n_chars) {
        *s = jinja_str_sub(p->j, *s, 0, jinja_str_offset(*s, (size_t)p->number.precision));
        if (!*s) return QUIRE_ENOMEM;
    }
    return 0;
}

static int percent_char(struct percent *p, struct jinja_value v, const struct jinja_str **s) {
    char text[4];
    if (v.type == JINJA_STR && v.s->n_chars == 1) {
        *s = v.s;
        return 0;
    }
    if (!jinja_is_int(v)) return jinja_fail(p->j, QUIRE_EINVAL, "%%c requires an int or a character");
    int64_t cp = jinja_as_int(v);
    if (cp < 0 || cp > 0x10ffff || (cp >= 0xd800 && cp < 0xe000))
        return jinja_fail(p->j, QUIRE_EINVAL, "%%c is not a character");
    *s = jinja_str_copy(p->j, text, jinja_utf8_put((uint32_t)cp, text),
                        v.content ? JINJA_BY_CONTENT : JINJA_BY_TEMPLATE);
    return *s ? 0 : QUIRE_ENOMEM;
}

static int percent_numeric(struct percent *p, struct jinja_value v, char type, const struct jinja_str **s) {
    bool is_float = strchr("eEfFgG", type) != NULL;
    if (v.type == JINJA_UNDEFINED) return jinja_fail_undefined(p->j, v);
    if (!jinja_is_number(v) || (v.type == JINJA_FLOAT && strchr("oxX", type)))
        return jinja_fail(p->j, QUIRE_EINVAL, "%%%c format: a number is required, not %s", type,
                          jinja_type_name(v));
    if (v.type == JINJA_FLOAT && !is_float) {
        if (!isfinite(v.f))
            return jinja_fail(p->j, QUIRE_EINVAL, "cannot convert float %s to integer",
                              isnan(v.f) ? "NaN" : "infinity");
        if (!(v.f >= -0x1p63 && v.f < 0x1p63))
            return jinja_fail(p->j, QUIRE_ELIMIT, "an integer does not fit in 64 bits");
        uint8_t content = v.content;
        v = jinja_int((int64_t)v.f);
        v.content = content;
    }
    p->number.type = type == 'i' || type == 'u' ? 'd' : type;
    if (p->zero && !p->left) p->number.zero_width = p->width;
    return jinja_format_number(p->j, v, &p->number, s);
}

/* One conversion, whose % is taken. */
static int percent_one(struct percent *p) {
    struct jinja_value v = {.type = JINJA_MISSING};
    const struct jinja_str *s;
    p->left = p->zero = false;
    p->width = 0;
    p->number = (struct jinja_number_format){.precision = -1};
    if (peek(p) == '%') { /* only right behind the first one */
        jinja_sb_add_sub(&p->out, p->format, p->at++, 1);
        return p->out.rc;
    }
    if (peek(p) == '(') JINJA_TRY(percent_key(p, &v));
    for (; strchr("-+ #0", peek(p)) && peek(p); p->at++) {
        char c = peek(p);
        if (c == '-') p->left = true;
        if (c == '0') p->zero = true;
        if (c == '#') p->number.alternate = true;
        if (c == '+' || (c == ' ' && p->number.sign != '+')) p->number.sign = c;
    }
    JINJA_TRY(percent_number(p, &p->width));
    if (p->width < 0) {
        p->left = true;
        p->width = -p->width;
    }
    if (peek(p) == '.') {
        p->at++;
        JINJA_TRY(percent_number(p, &p->number.precision));
        if (p->number.precision < 0) p->number.precision = 0;
    }
    if (peek(p) && strchr("hlL", peek(p))) p->at++;
    if (p->at >= p->format->len) return jinja_fail(p->j, QUIRE_EINVAL, "incomplete format");
    char type = p->format->data[p->at++];
    if (!strchr("diuoxXeEfFgGcrsa", type) || !type)
        return jinja_fail(p->j, QUIRE_EINVAL, "unsupported format character at index %zu", p->at - 1);
    if (!jinja_given(v)) JINJA_TRY(next_value(p, &v));
    if (type == 's' || type == 'r' || type == 'a') {
        JINJA_TRY(percent_text(p, v, type, &s));
    } else if (type == 'c') {
        JINJA_TRY(percent_char(p, v, &s));
    } else {
        JINJA_TRY(percent_numeric(p, v, type, &s));
    }
    add_aligned(&p->out, s, p->left ? '<' : '>', &space_str, p->width);
    return p->out.rc;
}

int jinja_format_percent(struct jinja *j, const struct jinja_str *format, struct jinja_value values,
                         struct jinja_value *out) {
    struct percent p = {.j = j, .format = format, .values = values, .escape = format->markup};
    const struct jinja_str *s;
    jinja_sb_init(j, &p.out);
    while (p.at < format->len) {
        JINJA_TRY(jinja_steps(j, 1));
        const char *hit = memchr(format->data + p.at, '%', format->len - p.at);
        size_t end = hit ? (size_t)(hit - format->data) : format->len;
        jinja_sb_add_sub(&p.out, format, p.at, end - p.at);
        p.at = end + 1;
        if (hit) JINJA_TRY(percent_one(&p));
    }
    size_t n = values.type == JINJA_TUPLE ? values.list->n : 1;
    if (!p.by_key && p.used < n && !is_mapping_like(values))
        return jinja_fail(j, QUIRE_EINVAL, "not all arguments converted during string formatting");
    JINJA_TRY(jinja_sb_finish(&p.out, &s));
    s = jinja_str_markup(j, s, format->markup);
    if (!s) return QUIRE_ENOMEM;
    *out = jinja_of_str(s);
    return 0;
}

/* ---- "...".format(...) ---- */

struct braces {
    struct jinja *j;
    const struct jinja_args *args;
    const struct jinja_value *mapping;
    bool escape;
    int64_t auto_index; /* next of the automatic numbers; -1: fields are numbered by hand; -2: not decided */
};

struct spec {
    const struct jinja_str *fill;
    char align;
    int64_t width;
    struct jinja_number_format number;
};

static int parse_width(struct jinja *j, const struct jinja_str *s, size_t *at, int64_t *out) {
    for (; *at < s->len && s->data[*at] >= '0' && s->data[*at] <= '9'; ++*at) {
        *out = *out * 10 + (s->data[*at] - '0');
        if (*out > INT32_MAX)
            return jinja_fail(j, QUIRE_ELIMIT, "a width or precision in a format is too large");
    }
    return 0;
}

static bool is_align(char c) {
    return c == '<' || c == '>' || c == '^' || c == '=';
}

/* [[fill]align][sign][#][0][width][grouping][.precision][type] */
static int parse_spec(struct jinja *j, const struct jinja_str *s, struct spec *x) {
    size_t at = 0, len = 0;
    *x = (struct spec){.fill = &space_str, .number.precision = -1};
    if (s->len) jinja_utf8_get(s->data, s->len, &len);
    if (len && len < s->len && is_align(s->data[len])) {
        x->fill = jinja_str_sub(j, s, 0, len);
        if (!x->fill) return QUIRE_ENOMEM;
        x->align = s->data[len];
        at = len + 1;
    } else if (s->len && is_align(s->data[0])) {
        x->align = s->data[0];
        at = 1;
    }
    char c = at < s->len ? s->data[at] : '\0';
    if (c == '+' || c == '-' || c == ' ') {
        x->number.sign = c == '-' ? 0 : c;
        at++;
    }
    if (at < s->len && s->data[at] == '#') x->number.alternate = true, at++;
    if (at < s->len && s->data[at] == '0') {
        static const struct jinja_str zero = {.data = "0", .len = 1, .n_chars = 1};
        if (x->fill == &space_str && !(s->len && len < s->len && is_align(s->data[len]))) x->fill = &zero;
        if (!x->align) x->align = '0'; /* numbers: behind the sign; text: to the left */
        at++;
    }
    JINJA_TRY(parse_width(j, s, &at, &x->width));
    if (at < s->len && (s->data[at] == ',' || s->data[at] == '_')) x->number.grouping = s->data[at++];
    if (at < s->len && s->data[at] == '.') {
        size_t digits = ++at;
        x->number.precision = 0;
        JINJA_TRY(parse_width(j, s, &at, &x->number.precision));
        if (at == digits) return jinja_fail(j, QUIRE_EINVAL, "format specifier is missing its precision");
    }
    if (at < s->len) x->number.type = s->data[at++];
    return at == s->len ? 0 : jinja_fail(j, QUIRE_EINVAL, "invalid format specifier");
}

static int unknown_type(struct jinja *j, const struct spec *x, struct jinja_value v) {
    return jinja_fail(j, QUIRE_EINVAL, "format code '%c' does not suit an object of type '%s'",
                      x->number.type ? x->number.type : '?', jinja_type_name(v));
}

static int format_text(struct jinja *j, struct spec *x, const struct jinja_str *s,
                       const struct jinja_str **out) {
    struct jinja_sb b;
    if (x->number.type && x->number.type != 's') return unknown_type(j, x, jinja_of_str(s));
    if (x->number.sign || x->number.alternate || x->number.grouping || x->align == '=')
        return jinja_fail(j, QUIRE_EINVAL,
                          "sign, '#', ',' and '=' are not allowed in a string's format specifier");
    if (x->number.precision >= 0 && (uint64_t)x->number.precision < s->n_chars) {
        s = jinja_str_sub(j, s, 0, jinja_str_offset(s, (size_t)x->number.precision));
        if (!s) return QUIRE_ENOMEM;
    }
    jinja_sb_init(j, &b);
    add_aligned(&b, s, x->align == '0' || !x->align ? '<' : x->align, x->fill, x->width);
    return jinja_sb_finish(&b, out);
}

static int check_int_spec(struct jinja *j, const struct spec *x, struct jinja_value v) {
    const struct jinja_number_format *f = &x->number;
    if (!strchr("bcdoxXn", f->type ? f->type : 'd')) return unknown_type(j, x, v);
    if (f->precision >= 0)
        return jinja_fail(j, QUIRE_EINVAL, "precision not allowed in an integer's format specifier");
    if (f->grouping == ',' && f->type && f->type != 'd')
        return jinja_fail(j, QUIRE_EINVAL, "',' is not allowed with '%c'", f->type);
    if (f->grouping && (f->type == 'n' || f->type == 'c'))
        return jinja_fail(j, QUIRE_EINVAL, "'%c' is not allowed with '%c'", f->grouping, f->type);
    if (f->type == 'c' && (f->sign || f->alternate))
        return jinja_fail(j, QUIRE_EINVAL, "sign and '#' are not allowed with 'c'");
    return 0;
}

static int format_numeric(struct jinja *j, struct spec *x, struct jinja_value v,
                          const struct jinja_str **out) {
    struct jinja_number_format *f = &x->number;
    const struct jinja_str *s;
    struct jinja_sb b;
    bool as_float = v.type == JINJA_FLOAT || (f->type && strchr("eEfFgG%", f->type));
    if (!as_float) JINJA_TRY(check_int_spec(j, x, v));
    if (as_float && !strchr("eEfFgGn%", f->type ? f->type : 'f')) return unknown_type(j, x, v);
    if (as_float && f->type == 'n' && f->grouping)
        return jinja_fail(j, QUIRE_EINVAL, "'%c' is not allowed with 'n'", f->grouping);
    if (f->type == 'n') f->type = as_float ? 'g' : 'd';
    if (!f->type && !as_float) f->type = 'd';
    if (f->type == 'c') {
        struct percent p = {.j = j};
        JINJA_TRY(percent_char(&p, v, &s));
    } else {
        bool zeros = x->align == '0' || (x->align == '=' && x->fill->len == 1 && x->fill->data[0] == '0');
        if (zeros) f->zero_width = x->width;
        JINJA_TRY(jinja_format_number(j, v, f, &s));
    }
    jinja_sb_init(j, &b);
    if (x->align == '=' && s->len && strchr("+- ", s->data[0]) && s->n_chars < (uint64_t)x->width) {
        jinja_sb_add_sub(&b, s, 0, 1);
        s = jinja_str_sub(j, s, 1, s->len - 1);
        if (!s) return QUIRE_ENOMEM;
        x->width--;
    }
    char align = x->align == '<' || x->align == '^' ? x->align : '>';
    add_aligned(&b, s, align, x->fill, x->width);
    return jinja_sb_finish(&b, out);
}

static int format_value(struct braces *f, struct jinja_value v, const struct jinja_str *spec,
                        const struct jinja_str **out) {
    struct jinja *j = f->j;
    struct spec x;
    if (f->escape && v.type == JINJA_STR && v.s->markup) {
        if (spec->len) return jinja_fail(j, QUIRE_EINVAL, "unsupported format specification for markup");
        *out = v.s;
        return 0;
    }
    if (!spec->len) {
        JINJA_TRY(jinja_to_str(j, v, out));
    } else {
        JINJA_TRY(parse_spec(j, spec, &x));
        if (v.type == JINJA_STR) {
            JINJA_TRY(format_text(j, &x, v.s, out));
        } else if (jinja_is_number(v)) {
            JINJA_TRY(format_numeric(j, &x, v, out));
        } else {
            return jinja_fail(j, QUIRE_EINVAL, "unsupported format string passed to %s.__format__",
                              jinja_type_name(v));
        }
    }
    return f->escape ? jinja_escape(j, *out, out) : 0;
}

static int lookup(struct braces *f, const struct jinja_str *name, struct jinja_value *out) {
    int64_t index = 0;
    bool is_index = name->len > 0, found = false;
    for (size_t i = 0; i < name->len; i++) {
        if (name->data[i] < '0' || name->data[i] > '9') is_index = false;
        if (is_index && index < INT32_MAX) index = index * 10 + (name->data[i] - '0');
    }
    if (is_index || !name->len) {
        if (is_index ? f->auto_index >= 0 : f->auto_index == -1)
            return jinja_fail(f->j, QUIRE_EINVAL, "automatic and manual field numbers are mixed in a format");
        if (!is_index) index = f->auto_index < 0 ? 0 : f->auto_index;
        f->auto_index = is_index ? -1 : index + 1;
        if ((uint64_t)index >= f->args->n_pos)
            return jinja_fail(f->j, QUIRE_EINVAL, "the format's positional argument %lld is missing",
                              (long long)index);
        *out = f->args->pos[index];
        return 0;
    }
    if (f->mapping) {
        if (!jinja_is_dict(*f->mapping)) return jinja_fail(f->j, QUIRE_EINVAL, "format_map needs a dict");
        JINJA_TRY(jinja_mapping_get(f->j, *f->mapping, jinja_of_str(name), out, &found));
    }
    for (size_t i = 0; i < f->args->n_kw && !found; i++) {
        found = jinja_str_equal(f->args->kw[i].name, name);
        if (found) *out = f->args->kw[i].value;
    }
    return found ? 0 : jinja_fail(f->j, QUIRE_EINVAL, "a name in the format has no value");
}

/* name(.attribute | [key])* */
static int get_field(struct braces *f, const struct jinja_str *field, struct jinja_value *out) {
    struct jinja *j = f->j;
    size_t at = 0;
    while (at < field->len && field->data[at] != '.' && field->data[at] != '[') at++;
    const struct jinja_str *name = jinja_str_sub(j, field, 0, at);
    if (!name) return QUIRE_ENOMEM;
    JINJA_TRY(lookup(f, name, out));
    while (at < field->len) {
        bool key = field->data[at++] == '[';
        size_t start = at;
        while (at < field->len &&
               (key ? field->data[at] != ']' : field->data[at] != '.' && field->data[at] != '['))
            at++;
        if (at == start) return jinja_fail(j, QUIRE_EINVAL, "empty attribute in format string");
        name = jinja_str_sub(j, field, start, at - start);
        if (!name) return QUIRE_ENOMEM;
        if (!key) {
            JINJA_TRY(jinja_getattr(j, *out, name, out));
            continue;
        }
        if (at == field->len) return jinja_fail(j, QUIRE_EINVAL, "missing ']' in format string");
        at++;
        if (at < field->len && field->data[at] != '.' && field->data[at] != '[')
            return jinja_fail(j, QUIRE_EINVAL, "only '.' or '[' may follow ']' in a format field");
        struct jinja_value index = jinja_of_str(name);
        bool digits = true;
        for (size_t i = 0; i < name->len; i++) digits &= name->data[i] >= '0' && name->data[i] <= '9';
        if (digits) {
            bool ok;
            index = jinja_int(0);
            JINJA_TRY(jinja_parse_int(j, name, 10, &index.i, &ok));
        }
        JINJA_TRY(jinja_getitem(j, *out, index, out));
    }
    return 0;
}

static int expand(struct braces *f, const struct jinja_str *s, int depth, const struct jinja_str **out);

/* The replacement field between start and end (its braces excluded). */
static int add_field(struct braces *f, const struct jinja_str *s, size_t start, size_t end, int depth,
                     struct jinja_sb *b) {
    struct jinja *j = f->j;
    const struct jinja_str *field, *spec, *text;
    struct jinja_value v;
    char conversion = 0;
    size_t at = start;
    bool in_key = false;
    for (; at < end && (in_key || (s->data[at] != '!' && s->data[at] != ':')); at++) {
        if (s->data[at] == '[') in_key = true;
        if (s->data[at] == ']') in_key = false;
    }
    field = jinja_str_sub(j, s, start, at - start);
    if (!field) return QUIRE_ENOMEM;
    if (memchr(field->data, '{', field->len))
        return jinja_fail(j, QUIRE_EINVAL, "unexpected '{' in field name");
    if (at < end && s->data[at] == '!') {
        if (at + 1 >= end || (at + 2 < end && s->data[at + 2] != ':'))
            return jinja_fail(j, QUIRE_EINVAL, "malformed conversion in a format field");
        conversion = s->data[at + 1];
        at += 2;
    }
    if (conversion && !strchr("rsa", conversion))
        return jinja_fail(j, QUIRE_EINVAL, "unknown conversion specifier in a format");
    JINJA_TRY(get_field(f, field, &v));
    if (conversion) {
        JINJA_TRY(convert(j, v, conversion, &text));
        text = jinja_str_markup(j, text, false);
        if (!text) return QUIRE_ENOMEM;
        v = jinja_of_str(text);
    }
    at += at < end; /* the colon */
    spec = jinja_str_sub(j, s, at, end - at);
    if (!spec) return QUIRE_ENOMEM;
    JINJA_TRY(expand(f, spec, depth - 1, &spec));
    JINJA_TRY(format_value(f, v, spec, &text));
    jinja_sb_add_str(b, text);
    return b->rc;
}

static int expand(struct braces *f, const struct jinja_str *s, int depth, const struct jinja_str **out) {
    struct jinja *j = f->j;
    struct jinja_sb b;
    if (depth < 0) return jinja_fail(j, QUIRE_EINVAL, "format fields are nested too deeply");
    jinja_sb_init(j, &b);
    for (size_t i = 0; i < s->len;) {
        size_t start = i;
        JINJA_TRY(jinja_steps(j, 1));
        while (i < s->len && s->data[i] != '{' && s->data[i] != '}') i++;
        jinja_sb_add_sub(&b, s, start, i - start);
        if (i == s->len) break;
        if (i + 1 < s->len && s->data[i + 1] == s->data[i]) {
            jinja_sb_add_sub(&b, s, i, 1);
            i += 2;
            continue;
        }
        if (s->data[i] == '}') return jinja_fail(j, QUIRE_EINVAL, "single '}' encountered in format string");
        size_t field = ++i, nested = 1;
        for (bool in_key = false; i < s->len; i++) {
            if (s->data[i] == '[') in_key = true; /* Python: braces inside [...] belong to the key */
            if (s->data[i] == ']') in_key = false;
            if (in_key) continue;
            nested += s->data[i] == '{';
            if (s->data[i] == '}' && --nested == 0) break;
        }
        if (i == s->len) return jinja_fail(j, QUIRE_EINVAL, "expected '}' before end of format string");
        JINJA_TRY(add_field(f, s, field, i, depth, &b));
        i++;
    }
    return jinja_sb_finish(&b, out);
}

int jinja_format_braces(struct jinja *j, const struct jinja_str *format, const struct jinja_args *args,
                        const struct jinja_value *mapping, struct jinja_value *out) {
    struct braces f = {.j = j, .args = args, .mapping = mapping, .escape = format->markup, .auto_index = -2};
    const struct jinja_str *s;
    JINJA_TRY(expand(&f, format, 2, &s));
    s = jinja_str_markup(j, s, format->markup);
    if (!s) return QUIRE_ENOMEM;
    *out = jinja_of_str(s);
    return 0;
}
