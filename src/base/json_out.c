#include "base/json_out.h"
#include "base/utf8.h"

#include <float.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void json_out_init(struct json_out *j, struct buf *out) {
    *j = (struct json_out){.out = out};
}

static void before_value(struct json_out *j) {
    if (j->after_value[j->depth]) buf_putc(j->out, ',');
    j->after_value[j->depth] = true;
}

/* Nesting too deep, or an end without a start, is a fault of the caller: the buffer is marked failed. */
static void open_level(struct json_out *j, char c) {
    before_value(j);
    buf_putc(j->out, c);
    if (j->depth == JSON_OUT_DEPTH) {
        j->out->failed = true;
        return;
    }
    j->after_value[++j->depth] = false;
}

static void close_level(struct json_out *j, char c) {
    if (j->depth == 0) {
        j->out->failed = true;
        return;
    }
    j->depth--;
    buf_putc(j->out, c);
}

void json_out_obj(struct json_out *j) {
    open_level(j, '{');
}
void json_out_obj_end(struct json_out *j) {
    close_level(j, '}');
}
void json_out_arr(struct json_out *j) {
    open_level(j, '[');
}
void json_out_arr_end(struct json_out *j) {
    close_level(j, ']');
}

static void put_quoted(struct buf *out, const char *s, size_t n) {
    buf_putc(out, '"');
    json_out_escape(out, s, n);
    buf_putc(out, '"');
}

void json_out_keyn(struct json_out *j, const char *key, size_t n) {
    before_value(j);
    put_quoted(j->out, key, n);
    buf_putc(j->out, ':');
    j->after_value[j->depth] = false; /* its value follows without a comma */
}

void json_out_key(struct json_out *j, const char *key) {
    json_out_keyn(j, key, strlen(key));
}

void json_out_strn(struct json_out *j, const char *s, size_t n) {
    before_value(j);
    put_quoted(j->out, s, n);
}

void json_out_str(struct json_out *j, const char *s) {
    if (s)
        json_out_strn(j, s, strlen(s));
    else
        json_out_null(j);
}

void json_out_raw(struct json_out *j, const char *text, size_t n) {
    before_value(j);
    buf_append(j->out, text, n);
}

void json_out_u64(struct json_out *j, uint64_t v) {
    char digits[20];
    size_t at = sizeof digits;
    do {
        digits[--at] = (char)('0' + v % 10);
    } while (v /= 10);
    json_out_raw(j, digits + at, sizeof digits - at);
}

void json_out_i64(struct json_out *j, int64_t v) {
    if (v >= 0) {
        json_out_u64(j, (uint64_t)v);
        return;
    }
    before_value(j);
    buf_putc(j->out, '-');
    j->after_value[j->depth] = false;
    json_out_u64(j, 0 - (uint64_t)v);
}

/* A locale of the host program may write the point otherwise. */
static void put_number(struct json_out *j, char *text, int n) {
    for (int i = 0; i < n; i++)
        if (!strchr("0123456789+-e", text[i])) text[i] = '.';
    json_out_raw(j, text, (size_t)n);
}

/* 15 digits survive text -> double -> text for normal numbers, so if fewer are enough, %.15g shows just
 * those; 17 are always enough. Subnormal numbers carry fewer digits and are tried from one digit on. */
void json_out_f64(struct json_out *j, double v) {
    char text[40];
    int n = 0;
    if (!isfinite(v)) {
        json_out_null(j);
        return;
    }
    for (int digits = fabs(v) < DBL_MIN ? 1 : 15; digits <= 17; digits++) {
        n = snprintf(text, sizeof text, "%.*g", digits, v);
        if (strtod(text, NULL) == v) break;
    }
    put_number(j, text, n);
}

/* Likewise from 6 to 9 digits. */
void json_out_f32(struct json_out *j, float v) {
    char text[40];
    int n = 0;
    if (!isfinite(v)) {
        json_out_null(j);
        return;
    }
    for (int digits = fabsf(v) < FLT_MIN ? 1 : 6; digits <= 9; digits++) {
        n = snprintf(text, sizeof text, "%.*g", digits, (double)v);
        if (strtof(text, NULL) == v) break;
    }
    put_number(j, text, n);
}

void json_out_bool(struct json_out *j, bool v) {
    if (v)
        json_out_raw(j, "true", 4);
    else
        json_out_raw(j, "false", 5);
}

void json_out_null(struct json_out *j) {
    json_out_raw(j, "null", 4);
}

static void escape_char(struct buf *out, unsigned char c) {
    static const char hex[] = "0123456789abcdef";
    const char *names = "\"\"\\\\\nn\rr\tt\bb\ff"; /* pairs: character, letter of its short escape */
    for (size_t i = 0; names[i]; i += 2) {
        if ((unsigned char)names[i] == c) {
            char pair[2] = {'\\', names[i + 1]};
            buf_append(out, pair, 2);
            return;
        }
    }
    char code[6] = {'\\', 'u', '0', '0', hex[c >> 4], hex[c & 15]};
    buf_append(out, code, 6);
}

void json_out_escape(struct buf *out, const char *s, size_t n) {
    size_t start = 0, i = 0; /* s[start .. i) goes out as it is */
    while (i < n) {
        unsigned char c = (unsigned char)s[i];
        size_t len = c < 0x80 ? 1 : utf8_sequence(s + i, n - i);
        if (len && c >= 0x20 && c != '"' && c != '\\' && c != 0x7f) {
            i += len;
            continue;
        }
        buf_append(out, s + start, i - start);
        if (len)
            escape_char(out, c);
        else
            buf_puts(out, UTF8_REPLACEMENT);
        start = ++i;
    }
    buf_append(out, s + start, n - start);
}

void json_out_put_str(struct json_out *j, const char *key, const char *s) {
    json_out_key(j, key);
    json_out_str(j, s);
}

void json_out_put_u64(struct json_out *j, const char *key, uint64_t v) {
    json_out_key(j, key);
    json_out_u64(j, v);
}

void json_out_put_f64(struct json_out *j, const char *key, double v) {
    json_out_key(j, key);
    json_out_f64(j, v);
}

void json_out_put_bool(struct json_out *j, const char *key, bool v) {
    json_out_key(j, key);
    json_out_bool(j, v);
}
