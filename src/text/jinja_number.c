/* Numbers from text and to text. */
#include "text/jinja_format.h"
#include "text/jinja_methods.h"
#include "text/jinja_unicode.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MAX_PRECISION 1000

/* ---- reading ---- */

static int digit_value(uint32_t cp) {
    int d = jinja_unicode_digit(cp);
    if (d >= 0) return d;
    return (cp | 32) >= 'a' && (cp | 32) <= 'z' ? (int)(cp | 32) - 'a' + 10 : 99;
}

/* "0x" and the like at p: the base it stands for, else 0. */
static int prefix_base(const char *p, size_t n) {
    if (n < 2 || p[0] != '0') return 0;
    char c = p[1] | 32;
    return c == 'x' ? 16 : c == 'o' ? 8 : c == 'b' ? 2 : 0;
}

/* Digits with single underscores between them; false if there is anything else. */
static bool read_digits(const char *p, size_t n, int base, bool underscore_first, bool negative, int64_t *out,
                        bool *overflow) {
    bool after_digit = underscore_first;
    size_t n_digits = 0;
    *out = 0;
    *overflow = false;
    for (size_t i = 0, len; i < n; i += len) {
        uint32_t cp = jinja_utf8_get(p + i, n - i, &len);
        if (cp == '_') {
            if (!after_digit) return false;
            after_digit = false;
            continue;
        }
        int d = digit_value(cp);
        if (d >= base) return false;
        after_digit = true;
        n_digits++;
        *overflow |=
            __builtin_mul_overflow(*out, base, out) || __builtin_add_overflow(*out, negative ? -d : d, out);
    }
    return n_digits && after_digit;
}

int jinja_parse_int(struct jinja *j, const struct jinja_str *s, int64_t base, int64_t *out, bool *ok) {
    bool overflow, negative = false, underscore = false;
    *ok = false;
    if (base != 0 && (base < 2 || base > 36)) return 0;
    JINJA_TRY(jinja_steps(j, s->len / 64));
    JINJA_TRY(jinja_str_strip(j, s, NULL, true, true, &s));
    const char *p = s->data, *end = s->data + s->len;
    if (p < end && (*p == '+' || *p == '-')) negative = *p++ == '-';
    int prefix = prefix_base(p, (size_t)(end - p));
    if (prefix && (base == 0 || base == prefix)) {
        p += 2;
        base = prefix;
        underscore = true;
    }
    if (base == 0) {
        base = 10;
        int64_t zero; /* no leading zeros, but for zero itself */
        if (p < end && *p == '0' &&
            !(read_digits(p, (size_t)(end - p), 10, false, false, &zero, &overflow) && !zero))
            return 0;
    }
    *ok = read_digits(p, (size_t)(end - p), (int)base, underscore, negative, out, &overflow);
    if (*ok && overflow) return jinja_fail(j, QUIRE_ELIMIT, "an integer does not fit in 64 bits");
    return 0;
}

/* [digits][.digits][e[+-]digits] with at least one digit before the exponent. */
static bool is_float_text(const char *p) {
    size_t whole = strspn(p, "0123456789"), fraction = 0;
    p += whole;
    if (*p == '.') {
        fraction = strspn(++p, "0123456789");
        p += fraction;
    }
    if (!whole && !fraction) return false;
    if ((*p | 32) == 'e') {
        p++;
        p += *p == '+' || *p == '-';
        size_t exponent = strspn(p, "0123456789");
        if (!exponent) return false;
        p += exponent;
    }
    return !*p;
}

static bool is_word(const char *p, const char *word) {
    for (; *word; p++, word++)
        if ((*p | 32) != *word) return false;
    return !*p;
}

int jinja_parse_float(struct jinja *j, const struct jinja_str *s, double *out, bool *ok) {
    *ok = false;
    JINJA_TRY(jinja_steps(j, s->len / 64));
    JINJA_TRY(jinja_str_strip(j, s, NULL, true, true, &s));
    char *text = jinja_alloc(j, s->len + 1);
    if (!text) return QUIRE_ENOMEM;
    size_t n = 0;
    bool after_digit = false;
    for (size_t i = 0, len; i < s->len; i += len) {
        uint32_t cp = jinja_utf8_get(s->data + i, s->len - i, &len), next = 0;
        size_t ignored;
        if (i + len < s->len) next = jinja_utf8_get(s->data + i + len, s->len - i - len, &ignored);
        int d = jinja_unicode_digit(cp);
        if (cp == '_' && after_digit && jinja_unicode_digit(next) >= 0) continue;
        if (d < 0 && (cp == 0 || cp >= 0x80)) return 0;
        text[n++] = d >= 0 ? (char)('0' + d) : (char)cp;
        after_digit = d >= 0;
    }
    text[n] = '\0';
    const char *p = text + (*text == '+' || *text == '-');
    if (is_word(p, "inf") || is_word(p, "infinity")) {
        *out = INFINITY;
    } else if (is_word(p, "nan")) {
        *out = NAN;
    } else if (is_float_text(p)) {
        *out = strtod(p, NULL);
    } else {
        return 0;
    }
    if (*text == '-') *out = -*out;
    *ok = true;
    return 0;
}

/* ---- writing ---- */

/* The parts of a number: sign, prefix, whole digits, the rest. */
struct parts {
    char sign;
    char prefix[3];
    const char *whole;
    size_t n_whole;
    const char *rest;
};

static void digits_of(uint64_t magnitude, int base, bool upper, int64_t min, char out[80]) {
    char reversed[80];
    int n = 0;
    do reversed[n++] = (upper ? "0123456789ABCDEF" : "0123456789abcdef")[magnitude % (unsigned)base];
    while (magnitude /= (unsigned)base);
    while (n < min && n < 79) reversed[n++] = '0';
    for (int i = 0; i < n; i++) out[i] = reversed[n - 1 - i];
    out[n] = '\0';
}

/* Type 0 with a precision is %g that keeps a ".0" and counts that digit. */
static void float_general(double magnitude, int precision, char *out, size_t cap) {
    precision = precision ? precision : 1;
    snprintf(out, cap, "%.*e", precision - 1, magnitude);
    int exponent = atoi(strchr(out, 'e') + 1);
    if (exponent + 1 > precision - 1 || exponent < -4) {
        char *e = strchr(out, 'e'), *last = e;
        if (memchr(out, '.', (size_t)(e - out))) {
            while (last[-1] == '0') last--;
            if (last[-1] == '.') last--;
        }
        memmove(last, e, strlen(e) + 1);
        return;
    }
    snprintf(out, cap, "%.*g", precision, magnitude);
    if (!strchr(out, '.')) strcat(out, ".0");
}

static void float_text(double magnitude, const struct jinja_number_format *f, char *out, size_t cap) {
    int precision = f->precision < 0 ? 6 : (int)f->precision;
    char spec[8], type = f->type == '%' ? 'f' : f->type;
    if (f->type == '%') magnitude *= 100;
    if (!isfinite(magnitude)) {
        bool upper = type == 'E' || type == 'F' || type == 'G';
        snprintf(out, cap, "%s", isnan(magnitude) ? (upper ? "NAN" : "nan") : upper ? "INF" : "inf");
    } else if (!type && f->precision < 0) {
        out[jinja_float_text(magnitude, out)] = '\0';
    } else if (!type) {
        float_general(magnitude, precision, out, cap - 2);
    } else {
        snprintf(spec, sizeof spec, f->alternate ? "%%#.*%c" : "%%.*%c", type);
        snprintf(out, cap, spec, precision, magnitude);
    }
    if (f->type == '%') strcat(out, "%");
}

static size_t group_size(char type) {
    return type == 'b' || type == 'o' || type == 'x' || type == 'X' ? 4 : 3;
}

static size_t grouped_length(size_t n_digits, size_t group) {
    return n_digits + (n_digits - 1) / group;
}

static int assemble(struct jinja *j, const struct parts *p, const struct jinja_number_format *f, uint8_t prov,
                    const struct jinja_str **out) {
    struct jinja_sb b;
    size_t group = group_size(f->type), fixed = (p->sign != 0) + strlen(p->prefix) + strlen(p->rest);
    size_t width = f->zero_width > 0 ? (size_t)f->zero_width : 0, n = p->n_whole;
    if (width > j->max_string_bytes)
        return jinja_fail(j, QUIRE_ELIMIT,
                          "a number would be wider than the %zu bytes that a render may write",
                          j->max_string_bytes);
    if (!f->grouping && width > fixed + n) n = width - fixed;
    if (f->grouping)
        while (n && fixed + grouped_length(n, group) < width) n++;
    jinja_sb_init(j, &b);
    if (p->sign) jinja_sb_add(&b, &p->sign, 1, prov);
    jinja_sb_add(&b, p->prefix, strlen(p->prefix), prov);
    for (size_t i = 0; i < n && !b.rc; i++) {
        size_t left = n - i;
        if (f->grouping && i && left % group == 0) jinja_sb_add(&b, &f->grouping, 1, prov);
        jinja_sb_add(&b, left > p->n_whole ? "0" : p->whole + (p->n_whole - left), 1, prov);
    }
    jinja_sb_add(&b, p->rest, strlen(p->rest), prov);
    return jinja_sb_finish(&b, out);
}

static int format_float(struct jinja *j, struct jinja_value v, const struct jinja_number_format *f,
                        const struct jinja_str **out) {
    if (f->precision > MAX_PRECISION)
        return jinja_fail(j, QUIRE_ELIMIT, "a precision of at most %d is supported", MAX_PRECISION);
    double d = jinja_as_float(v);
    size_t cap = 400 + (size_t)(f->precision > 0 ? f->precision : 0);
    char *text = jinja_alloc(j, cap);
    if (!text) return QUIRE_ENOMEM;
    bool negative = signbit(d) && !isnan(d);
    float_text(fabs(d), f, text, cap - 2);
    for (char *c = text; *c; c++) /* a decimal separator of the locale is a point here */
        if (*c == ',') *c = '.';
    struct parts p = {.sign = negative ? '-' : f->sign, .whole = text};
    p.n_whole = strspn(text, "0123456789");
    p.rest = text + p.n_whole;
    return assemble(j, &p, f, v.content ? JINJA_BY_CONTENT : JINJA_BY_TEMPLATE, out);
}

int jinja_format_number(struct jinja *j, struct jinja_value v, const struct jinja_number_format *f,
                        const struct jinja_str **out) {
    char digits[80];
    struct parts p = {.rest = ""};
    int base = 10;
    switch (f->type) {
    case 'b': base = 2; break;
    case 'o': base = 8; break;
    case 'x':
    case 'X': base = 16; break;
    case 'd': break;
    default:
        if (f->type || v.type == JINJA_FLOAT) return format_float(j, v, f, out);
    }
    if (f->precision >= 79)
        return jinja_fail(j, QUIRE_ELIMIT, "a precision of at most 78 digits is supported");
    int64_t i = jinja_as_int(v);
    digits_of(i < 0 ? 0 - (uint64_t)i : (uint64_t)i, base, f->type == 'X', f->precision, digits);
    p.sign = i < 0 ? '-' : f->sign;
    if (f->alternate && base != 10) snprintf(p.prefix, sizeof p.prefix, "0%c", f->type);
    p.whole = digits;
    p.n_whole = strlen(digits);
    return assemble(j, &p, f, v.content ? JINJA_BY_CONTENT : JINJA_BY_TEMPLATE, out);
}
