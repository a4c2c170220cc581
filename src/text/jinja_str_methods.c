/* Methods of strings. Names, arguments and results are those of Python's str. */
#include "text/jinja_dict.h"
#include "text/jinja_format.h"
#include "text/jinja_iter.h"
#include "text/jinja_methods.h"
#include "text/jinja_ops.h"
#include "text/jinja_unicode.h"

#include <string.h>

static int give(const struct jinja_str *s, struct jinja_value *out) {
    if (!s) return QUIRE_ENOMEM;
    *out = jinja_of_str(s);
    return 0;
}

static int push_sub(struct jinja *j, struct jinja_vec *v, const struct jinja_str *s, size_t start,
                    size_t end) {
    const struct jinja_str *part = jinja_str_sub(j, s, start, end - start);
    return part ? jinja_vec_push(j, v, jinja_of_str(part)) : QUIRE_ENOMEM;
}

static int charge(struct jinja *j, const struct jinja_str *s) {
    return s->len >= 256 ? jinja_steps(j, s->len / 256) : 0;
}

/* ---- strip, replace, pad ---- */

/* Is the character at byte i in `chars` (NULL: whitespace)? */
static bool is_stripped(const struct jinja_str *s, size_t i, size_t len, const struct jinja_str *chars) {
    if (chars) return memmem(chars->data, chars->len, s->data + i, len) != NULL;
    size_t n;
    return jinja_unicode_props(jinja_utf8_get(s->data + i, len, &n)) & JINJA_IS_SPACE;
}

int jinja_str_strip(struct jinja *j, const struct jinja_str *s, const struct jinja_str *chars, bool left,
                    bool right, const struct jinja_str **out) {
    size_t start = 0, end = s->len, len, per_char = chars ? 1 + chars->len / 64 : 0;
    while (left && start < end) {
        jinja_utf8_get(s->data + start, end - start, &len);
        if (!is_stripped(s, start, len, chars)) break;
        JINJA_TRY(jinja_steps(j, per_char));
        start += len;
    }
    while (right && end > start) {
        size_t at = end - 1;
        while (at > start && ((unsigned char)s->data[at] & 0xc0) == 0x80) at--;
        if (!is_stripped(s, at, end - at, chars)) break;
        JINJA_TRY(jinja_steps(j, per_char));
        end = at;
    }
    JINJA_TRY(jinja_steps(j, (s->len - (end - start)) / 64));
    *out = jinja_str_sub(j, s, start, end - start);
    return *out ? 0 : QUIRE_ENOMEM;
}

/* "abc".replace("", "-") is "-a-b-c-". */
static void replace_empty(struct jinja_sb *b, const struct jinja_str *s, const struct jinja_str *new_,
                          int64_t count) {
    size_t i = 0;
    for (int64_t done = 0; (count < 0 || done < count) && !b->rc; done++) {
        size_t len = 0;
        jinja_sb_add_str(b, new_);
        b->rc = b->rc ? b->rc : jinja_steps(b->j, 1);
        if (i == s->len) break;
        jinja_utf8_get(s->data + i, s->len - i, &len);
        jinja_sb_add_sub(b, s, i, len);
        i += len;
    }
    jinja_sb_add_sub(b, s, i, s->len - i);
}

int jinja_str_replace(struct jinja *j, const struct jinja_str *s, const struct jinja_str *old,
                      const struct jinja_str *new_, int64_t count, const struct jinja_str **out) {
    struct jinja_sb b;
    size_t at = 0;
    JINJA_TRY(charge(j, s));
    if (old->len && jinja_str_find(s, old, 0, s->len) < 0) {
        *out = s;
        return 0;
    }
    jinja_sb_init(j, &b);
    if (!old->len) {
        replace_empty(&b, s, new_, count);
        return jinja_sb_finish(&b, out);
    }
    for (int64_t done = 0; (count < 0 || done < count) && !b.rc; done++) {
        ptrdiff_t hit = jinja_str_find(s, old, at, s->len);
        if (hit < 0) break;
        JINJA_TRY(jinja_steps(j, 1));
        jinja_sb_add_sub(&b, s, at, (size_t)hit - at);
        jinja_sb_add_str(&b, new_);
        at = (size_t)hit + old->len;
    }
    jinja_sb_add_sub(&b, s, at, s->len - at);
    return jinja_sb_finish(&b, out);
}

static int pad(struct jinja *j, const struct jinja_str *s, const struct jinja_str *fill, size_t left,
               size_t right, const struct jinja_str **out) {
    static const struct jinja_str space = {.data = " ", .len = 1, .n_chars = 1};
    struct jinja_sb b;
    jinja_sb_init(j, &b);
    jinja_sb_fill(&b, fill ? fill : &space, left);
    jinja_sb_add_str(&b, s);
    jinja_sb_fill(&b, fill ? fill : &space, right);
    return jinja_sb_finish(&b, out);
}

static size_t padding(const struct jinja_str *s, int64_t width) {
    return width > 0 && (uint64_t)width > s->n_chars ? (size_t)width - s->n_chars : 0;
}

int jinja_str_center(struct jinja *j, const struct jinja_str *s, int64_t width, const struct jinja_str *fill,
                     const struct jinja_str **out) {
    size_t total = padding(s, width), left = total / 2 + (total & (size_t)width & 1);
    return pad(j, s, fill, left, total - left, out);
}

static int pad_args(struct jinja *j, const struct jinja_value *arg, const struct jinja_str *s, int64_t *width,
                    const struct jinja_str **fill) {
    *fill = NULL;
    JINJA_TRY(jinja_need_int(j, "the width", arg[0], width));
    if (!jinja_given(arg[1])) return 0;
    JINJA_TRY(jinja_need_str(j, "the fill character", arg[1], fill));
    if ((*fill)->n_chars != 1)
        return jinja_fail(j, QUIRE_EINVAL, "the fill character must be exactly one character long");
    return s->markup ? jinja_escape(j, *fill, fill) : 0;
}

static int m_center(struct jinja *j, struct jinja_value self, const struct jinja_value *arg,
                    const struct jinja_args *args, struct jinja_value *out) {
    const struct jinja_str *fill, *r;
    int64_t width;
    JINJA_TRY(pad_args(j, arg, self.s, &width, &fill));
    JINJA_TRY(jinja_str_center(j, self.s, width, fill, &r));
    return give(r, out);
}

static int m_ljust(struct jinja *j, struct jinja_value self, const struct jinja_value *arg,
                   const struct jinja_args *args, struct jinja_value *out) {
    const struct jinja_str *fill, *r;
    int64_t width;
    JINJA_TRY(pad_args(j, arg, self.s, &width, &fill));
    JINJA_TRY(pad(j, self.s, fill, 0, padding(self.s, width), &r));
    return give(r, out);
}

static int m_rjust(struct jinja *j, struct jinja_value self, const struct jinja_value *arg,
                   const struct jinja_args *args, struct jinja_value *out) {
    const struct jinja_str *fill, *r;
    int64_t width;
    JINJA_TRY(pad_args(j, arg, self.s, &width, &fill));
    JINJA_TRY(pad(j, self.s, fill, padding(self.s, width), 0, &r));
    return give(r, out);
}

static int m_zfill(struct jinja *j, struct jinja_value self, const struct jinja_value *arg,
                   const struct jinja_args *args, struct jinja_value *out) {
    static const struct jinja_str zero = {.data = "0", .len = 1, .n_chars = 1};
    const struct jinja_str *s = self.s, *r;
    struct jinja_sb b;
    int64_t width;
    JINJA_TRY(jinja_need_int(j, "the width", arg[0], &width));
    size_t sign = s->len && (s->data[0] == '+' || s->data[0] == '-');
    jinja_sb_init(j, &b);
    jinja_sb_add_sub(&b, s, 0, sign);
    jinja_sb_fill(&b, &zero, padding(s, width));
    jinja_sb_add_sub(&b, s, sign, s->len - sign);
    JINJA_TRY(jinja_sb_finish(&b, &r));
    return give(r, out);
}

static int m_expandtabs(struct jinja *j, struct jinja_value self, const struct jinja_value *arg,
                        const struct jinja_args *args, struct jinja_value *out) {
    const struct jinja_str *s = self.s, *r;
    struct jinja_str blank = {.data = " ", .len = 1, .n_chars = 1};
    struct jinja_sb b;
    int64_t size = 8, column = 0;
    if (jinja_given(arg[0])) JINJA_TRY(jinja_need_int(j, "the tab size", arg[0], &size));
    JINJA_TRY(jinja_steps(j, s->len / 32));
    jinja_sb_init(j, &b);
    for (size_t i = 0, len; i < s->len && !b.rc; i += len) {
        jinja_utf8_get(s->data + i, s->len - i, &len);
        if (s->data[i] == '\t') {
            blank.prov = jinja_str_prov_at(s, i);
            if (size > 0) {
                jinja_sb_fill(&b, &blank, (size_t)(size - column % size));
                column += size - column % size;
            }
        } else {
            jinja_sb_add_sub(&b, s, i, len);
            column = s->data[i] == '\n' || s->data[i] == '\r' ? 0 : column + 1;
        }
    }
    JINJA_TRY(jinja_sb_finish(&b, &r));
    return give(r, out);
}

static int strip_method(struct jinja *j, struct jinja_value self, const struct jinja_value *arg, bool left,
                        bool right, struct jinja_value *out) {
    const struct jinja_str *chars = NULL, *r;
    if (jinja_given_value(arg[0])) JINJA_TRY(jinja_need_str(j, "the characters to strip", arg[0], &chars));
    JINJA_TRY(jinja_str_strip(j, self.s, chars, left, right, &r));
    return give(r, out);
}

static int m_strip(struct jinja *j, struct jinja_value self, const struct jinja_value *arg,
                   const struct jinja_args *args, struct jinja_value *out) {
    return strip_method(j, self, arg, true, true, out);
}

static int m_lstrip(struct jinja *j, struct jinja_value self, const struct jinja_value *arg,
                    const struct jinja_args *args, struct jinja_value *out) {
    return strip_method(j, self, arg, true, false, out);
}

static int m_rstrip(struct jinja *j, struct jinja_value self, const struct jinja_value *arg,
                    const struct jinja_args *args, struct jinja_value *out) {
    return strip_method(j, self, arg, false, true, out);
}

static int m_replace(struct jinja *j, struct jinja_value self, const struct jinja_value *arg,
                     const struct jinja_args *args, struct jinja_value *out) {
    const struct jinja_str *old, *new_, *r;
    int64_t count = -1;
    JINJA_TRY(jinja_need_str(j, "the text to replace", arg[0], &old));
    JINJA_TRY(jinja_need_str(j, "the replacement", arg[1], &new_));
    if (jinja_given(arg[2])) JINJA_TRY(jinja_need_int(j, "the count", arg[2], &count));
    if (self.s->markup && !new_->markup) JINJA_TRY(jinja_escape(j, new_, &new_));
    JINJA_TRY(jinja_str_replace(j, self.s, old, new_, count, &r));
    return give(r, out);
}

/* ---- find, count, startswith ---- */

/* The bytes between two optional character positions; false where the start lies behind the end. */
static int byte_range(struct jinja *j, const struct jinja_str *s, const struct jinja_value *arg, size_t *from,
                      size_t *to, bool *valid) {
    int64_t n = (int64_t)s->n_chars, start = 0, end = n;
    if (jinja_given_value(arg[0])) JINJA_TRY(jinja_need_int(j, "the start", arg[0], &start));
    if (jinja_given_value(arg[1])) JINJA_TRY(jinja_need_int(j, "the end", arg[1], &end));
    if (end > n) end = n;
    if (end < 0) end = end < -n ? 0 : end + n;
    if (start < 0) start = start < -n ? 0 : start + n;
    *valid = start <= end;
    if (!*valid) return 0;
    *from = jinja_str_offset(s, (size_t)start);
    *to = jinja_str_offset(s, (size_t)end);
    return charge(j, s);
}

/* Character position of the first or last occurrence, or -1. */
static int find_method(struct jinja *j, struct jinja_value self, const struct jinja_value *arg, bool last,
                       int64_t *at) {
    const struct jinja_str *sub;
    size_t from, to;
    ptrdiff_t hit = -1;
    bool valid;
    JINJA_TRY(jinja_need_str(j, "the text to find", arg[0], &sub));
    JINJA_TRY(byte_range(j, self.s, arg + 1, &from, &to, &valid));
    if (valid && last) JINJA_TRY(jinja_str_rfind(j, self.s, sub, from, to, &hit));
    if (valid && !last) hit = jinja_str_find(self.s, sub, from, to);
    *at = hit < 0 ? -1 : (int64_t)jinja_str_index(self.s, (size_t)hit);
    return 0;
}

static int m_find(struct jinja *j, struct jinja_value self, const struct jinja_value *arg,
                  const struct jinja_args *args, struct jinja_value *out) {
    *out = jinja_int(0);
    return find_method(j, self, arg, false, &out->i);
}

static int m_rfind(struct jinja *j, struct jinja_value self, const struct jinja_value *arg,
                   const struct jinja_args *args, struct jinja_value *out) {
    *out = jinja_int(0);
    return find_method(j, self, arg, true, &out->i);
}

static int m_index(struct jinja *j, struct jinja_value self, const struct jinja_value *arg,
                   const struct jinja_args *args, struct jinja_value *out) {
    JINJA_TRY(m_find(j, self, arg, args, out));
    return out->i < 0 ? jinja_fail(j, QUIRE_EINVAL, "substring not found") : 0;
}

static int m_rindex(struct jinja *j, struct jinja_value self, const struct jinja_value *arg,
                    const struct jinja_args *args, struct jinja_value *out) {
    JINJA_TRY(m_rfind(j, self, arg, args, out));
    return out->i < 0 ? jinja_fail(j, QUIRE_EINVAL, "substring not found") : 0;
}

static int m_count(struct jinja *j, struct jinja_value self, const struct jinja_value *arg,
                   const struct jinja_args *args, struct jinja_value *out) {
    const struct jinja_str *s = self.s, *sub;
    size_t from, to;
    bool valid;
    JINJA_TRY(jinja_need_str(j, "the text to count", arg[0], &sub));
    JINJA_TRY(byte_range(j, s, arg + 1, &from, &to, &valid));
    *out = jinja_int(0);
    if (!valid) return 0;
    if (!sub->len) return *out = jinja_int((int64_t)jinja_utf8_chars(s->data + from, to - from) + 1), 0;
    for (ptrdiff_t hit; (hit = jinja_str_find(s, sub, from, to)) >= 0; from = (size_t)hit + sub->len) {
        JINJA_TRY(jinja_steps(j, 1));
        out->i++;
    }
    return 0;
}

static bool affix_matches(const struct jinja_str *s, const struct jinja_str *affix, size_t from, size_t to,
                          bool at_end) {
    if (affix->len > to - from) return false;
    return memcmp(s->data + (at_end ? to - affix->len : from), affix->data, affix->len) == 0;
}

static int affix_method(struct jinja *j, struct jinja_value self, const struct jinja_value *arg, bool at_end,
                        struct jinja_value *out) {
    size_t from, to;
    bool valid;
    const struct jinja_str *affix;
    JINJA_TRY(byte_range(j, self.s, arg + 1, &from, &to, &valid));
    *out = jinja_bool(false);
    if (arg[0].type != JINJA_TUPLE) {
        JINJA_TRY(jinja_need_str(j, at_end ? "the suffix" : "the prefix", arg[0], &affix));
        out->b = valid && affix_matches(self.s, affix, from, to, at_end);
        return 0;
    }
    for (size_t i = 0; i < arg[0].list->n && !out->b; i++) {
        JINJA_TRY(jinja_steps(j, 1));
        JINJA_TRY(jinja_need_str(j, "each of the alternatives", arg[0].list->items[i], &affix));
        out->b = valid && affix_matches(self.s, affix, from, to, at_end);
    }
    return 0;
}

static int m_startswith(struct jinja *j, struct jinja_value self, const struct jinja_value *arg,
                        const struct jinja_args *args, struct jinja_value *out) {
    return affix_method(j, self, arg, false, out);
}

static int m_endswith(struct jinja *j, struct jinja_value self, const struct jinja_value *arg,
                      const struct jinja_args *args, struct jinja_value *out) {
    return affix_method(j, self, arg, true, out);
}

static int m_removeprefix(struct jinja *j, struct jinja_value self, const struct jinja_value *arg,
                          const struct jinja_args *args, struct jinja_value *out) {
    const struct jinja_str *s = self.s, *affix;
    JINJA_TRY(jinja_need_str(j, "the prefix", arg[0], &affix));
    size_t n = affix_matches(s, affix, 0, s->len, false) ? affix->len : 0;
    return give(jinja_str_sub(j, s, n, s->len - n), out);
}

static int m_removesuffix(struct jinja *j, struct jinja_value self, const struct jinja_value *arg,
                          const struct jinja_args *args, struct jinja_value *out) {
    const struct jinja_str *s = self.s, *affix;
    JINJA_TRY(jinja_need_str(j, "the suffix", arg[0], &affix));
    size_t n = affix_matches(s, affix, 0, s->len, true) ? affix->len : 0;
    return give(jinja_str_sub(j, s, 0, s->len - n), out);
}

/* ---- split, join ---- */

/* The next stretch without whitespace from *at on; false if only whitespace is left. */
static bool next_word(const struct jinja_str *s, size_t *at, size_t *start) {
    size_t len;
    bool in_word = false;
    for (; *at < s->len; *at += len) {
        uint32_t cp = jinja_utf8_get(s->data + *at, s->len - *at, &len);
        bool space = jinja_unicode_props(cp) & JINJA_IS_SPACE;
        if (space && in_word) return true;
        if (!space && !in_word) {
            in_word = true;
            *start = *at;
        }
    }
    return in_word;
}

static int split_words(struct jinja *j, const struct jinja_str *s, int64_t max, struct jinja_vec *out) {
    size_t at = 0, start;
    JINJA_TRY(jinja_steps(j, s->len / 64));
    while (max < 0 || (int64_t)out->n < max) {
        if (!next_word(s, &at, &start)) return 0;
        JINJA_TRY(push_sub(j, out, s, start, at));
    }
    size_t end = at;
    return next_word(s, &end, &start) ? push_sub(j, out, s, start, s->len) : 0;
}

/* The same from the end, last word first. */
static int rsplit_words(struct jinja *j, const struct jinja_str *s, int64_t max, struct jinja_vec *out) {
    const struct jinja_str *rest;
    JINJA_TRY(jinja_steps(j, s->len / 64));
    JINJA_TRY(jinja_str_strip(j, s, NULL, false, true, &rest));
    while (rest->len && (max < 0 || (int64_t)out->n < max)) {
        size_t start = rest->len;
        while (start > 0) {
            size_t at = start - 1, n;
            while (at > 0 && ((unsigned char)rest->data[at] & 0xc0) == 0x80) at--;
            if (jinja_unicode_props(jinja_utf8_get(rest->data + at, start - at, &n)) & JINJA_IS_SPACE) break;
            start = at;
        }
        JINJA_TRY(push_sub(j, out, rest, start, rest->len));
        rest = jinja_str_sub(j, rest, 0, start);
        if (!rest) return QUIRE_ENOMEM;
        JINJA_TRY(jinja_str_strip(j, rest, NULL, false, true, &rest));
    }
    return rest->len ? push_sub(j, out, rest, 0, rest->len) : 0;
}

static int split_on(struct jinja *j, const struct jinja_str *s, const struct jinja_str *sep, int64_t max,
                    struct jinja_vec *out) {
    size_t at = 0;
    JINJA_TRY(charge(j, s));
    while (max < 0 || (int64_t)out->n < max) {
        ptrdiff_t hit = jinja_str_find(s, sep, at, s->len);
        if (hit < 0) break;
        JINJA_TRY(push_sub(j, out, s, at, (size_t)hit));
        at = (size_t)hit + sep->len;
    }
    return push_sub(j, out, s, at, s->len);
}

static int rsplit_on(struct jinja *j, const struct jinja_str *s, const struct jinja_str *sep, int64_t max,
                     struct jinja_vec *out) {
    size_t end = s->len;
    while (max < 0 || (int64_t)out->n < max) {
        ptrdiff_t hit;
        JINJA_TRY(jinja_str_rfind(j, s, sep, 0, end, &hit));
        if (hit < 0) break;
        JINJA_TRY(push_sub(j, out, s, (size_t)hit + sep->len, end));
        end = (size_t)hit;
    }
    return push_sub(j, out, s, 0, end);
}

static int split_method(struct jinja *j, struct jinja_value self, const struct jinja_value *arg,
                        bool from_end, struct jinja_value *out) {
    const struct jinja_str *sep = NULL;
    struct jinja_vec parts = {0};
    int64_t max = -1;
    if (jinja_given_value(arg[0])) JINJA_TRY(jinja_need_str(j, "the separator", arg[0], &sep));
    if (jinja_given(arg[1])) JINJA_TRY(jinja_need_int(j, "maxsplit", arg[1], &max));
    if (sep && !sep->len) return jinja_fail(j, QUIRE_EINVAL, "empty separator");
    if (!from_end) {
        JINJA_TRY(sep ? split_on(j, self.s, sep, max, &parts) : split_words(j, self.s, max, &parts));
        return jinja_list_new(j, parts.items, parts.n, JINJA_LIST, out);
    }
    JINJA_TRY(sep ? rsplit_on(j, self.s, sep, max, &parts) : rsplit_words(j, self.s, max, &parts));
    for (size_t a = 0, b = parts.n; a + 1 < b; a++) {
        struct jinja_value t = parts.items[a];
        parts.items[a] = parts.items[--b];
        parts.items[b] = t;
    }
    return jinja_list_new(j, parts.items, parts.n, JINJA_LIST, out);
}

static int m_split(struct jinja *j, struct jinja_value self, const struct jinja_value *arg,
                   const struct jinja_args *args, struct jinja_value *out) {
    return split_method(j, self, arg, false, out);
}

static int m_rsplit(struct jinja *j, struct jinja_value self, const struct jinja_value *arg,
                    const struct jinja_args *args, struct jinja_value *out) {
    return split_method(j, self, arg, true, out);
}

static bool is_line_end(uint32_t cp) {
    return (cp >= 0x0a && cp <= 0x0d) || (cp >= 0x1c && cp <= 0x1e) || cp == 0x85 || cp == 0x2028 ||
           cp == 0x2029;
}

int jinja_str_splitlines(struct jinja *j, const struct jinja_str *s, bool keep_ends, struct jinja_vec *out) {
    size_t start = 0;
    JINJA_TRY(jinja_steps(j, s->len / 64));
    for (size_t i = 0, len; i < s->len; i += len) {
        uint32_t cp = jinja_utf8_get(s->data + i, s->len - i, &len);
        if (!is_line_end(cp)) continue;
        if (cp == '\r' && i + 1 < s->len && s->data[i + 1] == '\n') len = 2;
        JINJA_TRY(push_sub(j, out, s, start, keep_ends ? i + len : i));
        start = i + len;
    }
    return start < s->len ? push_sub(j, out, s, start, s->len) : 0;
}

static int m_splitlines(struct jinja *j, struct jinja_value self, const struct jinja_value *arg,
                        const struct jinja_args *args, struct jinja_value *out) {
    struct jinja_vec lines = {0};
    int64_t keep = 0;
    if (jinja_given(arg[0])) JINJA_TRY(jinja_need_int(j, "keepends", arg[0], &keep));
    JINJA_TRY(jinja_str_splitlines(j, self.s, keep != 0, &lines));
    return jinja_list_new(j, lines.items, lines.n, JINJA_LIST, out);
}

static int partition_method(struct jinja *j, struct jinja_value self, const struct jinja_value *arg,
                            bool last, struct jinja_value *out) {
    const struct jinja_str *s = self.s, *sep;
    struct jinja_vec parts = {0};
    ptrdiff_t hit;
    JINJA_TRY(jinja_need_str(j, "the separator", arg[0], &sep));
    if (!sep->len) return jinja_fail(j, QUIRE_EINVAL, "empty separator");
    JINJA_TRY(charge(j, s));
    hit = jinja_str_find(s, sep, 0, s->len);
    if (last) JINJA_TRY(jinja_str_rfind(j, s, sep, 0, s->len, &hit));
    size_t left = hit >= 0 ? (size_t)hit : last ? 0 : s->len;
    size_t right = hit >= 0 ? left + sep->len : left;
    JINJA_TRY(push_sub(j, &parts, s, 0, left));
    JINJA_TRY(push_sub(j, &parts, s, left, right));
    JINJA_TRY(push_sub(j, &parts, s, right, s->len));
    return jinja_list_new(j, parts.items, parts.n, JINJA_TUPLE, out);
}

static int m_partition(struct jinja *j, struct jinja_value self, const struct jinja_value *arg,
                       const struct jinja_args *args, struct jinja_value *out) {
    return partition_method(j, self, arg, false, out);
}

static int m_rpartition(struct jinja *j, struct jinja_value self, const struct jinja_value *arg,
                        const struct jinja_args *args, struct jinja_value *out) {
    return partition_method(j, self, arg, true, out);
}

static int m_join(struct jinja *j, struct jinja_value self, const struct jinja_value *arg,
                  const struct jinja_args *args, struct jinja_value *out) {
    const struct jinja_str *r;
    struct jinja_iter it;
    struct jinja_sb b;
    jinja_sb_init(j, &b);
    JINJA_TRY(jinja_iter_start(j, &it, arg[0]));
    for (bool first = true;; first = false) {
        struct jinja_value item;
        bool done;
        JINJA_TRY(jinja_iter_next(j, &it, &item, &done));
        if (done) break;
        if (item.type != JINJA_STR && !self.s->markup)
            return jinja_fail(j, QUIRE_EINVAL, "join needs strings, found '%s'", jinja_type_name(item));
        JINJA_TRY(jinja_to_str(j, item, &r));
        if (self.s->markup && !r->markup) JINJA_TRY(jinja_escape(j, r, &r));
        if (!first) jinja_sb_add_str(&b, self.s);
        jinja_sb_add_str(&b, r);
    }
    JINJA_TRY(jinja_sb_finish(&b, &r));
    return give(r, out);
}

/* ---- case and predicates ---- */

static int change(struct jinja *j, struct jinja_value self, enum jinja_change how, struct jinja_value *out) {
    const struct jinja_str *r;
    JINJA_TRY(jinja_str_change(j, self.s, how, &r));
    return give(r, out);
}

#define CHANGE_METHOD(name, how)                                                                             \
    static int name(struct jinja *j, struct jinja_value self, const struct jinja_value *arg,                 \
                    const struct jinja_args *args, struct jinja_value *out) {                                \
        return change(j, self, how, out);                                                                    \
    }
CHANGE_METHOD(m_upper, JINJA_TO_UPPER)
CHANGE_METHOD(m_lower, JINJA_TO_LOWER)
CHANGE_METHOD(m_title, JINJA_TO_TITLE)
CHANGE_METHOD(m_casefold, JINJA_TO_FOLD)
CHANGE_METHOD(m_capitalize, JINJA_TO_CAPITAL)
CHANGE_METHOD(m_swapcase, JINJA_TO_SWAPPED)

static bool all_numbers(const struct jinja_str *s, unsigned level) {
    for (size_t i = 0, len; i < s->len; i += len)
        if (JINJA_NUMBER_LEVEL(jinja_unicode_props(jinja_utf8_get(s->data + i, s->len - i, &len))) < level)
            return false;
    return s->len != 0;
}

static bool is_title(const struct jinja_str *s) {
    bool cased = false, after_cased = false;
    for (size_t i = 0, len; i < s->len; i += len) {
        unsigned props = jinja_unicode_props(jinja_utf8_get(s->data + i, s->len - i, &len));
        bool high = props & (JINJA_IS_UPPER | JINJA_IS_TITLE), low = props & JINJA_IS_LOWER;
        if ((high && after_cased) || (low && !after_cased)) return false;
        after_cased = high || low;
        cased |= after_cased;
    }
    return cased;
}

static bool is_identifier(const struct jinja_str *s) {
    size_t len;
    if (!s->len) return false;
    uint32_t first = jinja_utf8_get(s->data, s->len, &len);
    return (jinja_unicode_props(first) & JINJA_IS_ID_START) && jinja_str_all(s, JINJA_IS_ID, true);
}

#define PREDICATE_METHOD(name, condition)                                                                    \
    static int name(struct jinja *j, struct jinja_value self, const struct jinja_value *arg,                 \
                    const struct jinja_args *args, struct jinja_value *out) {                                \
        const struct jinja_str *s = self.s;                                                                  \
        *out = jinja_bool(condition);                                                                        \
        return jinja_steps(j, s->len / 64);                                                                  \
    }
PREDICATE_METHOD(m_isalnum, jinja_str_all(s, JINJA_IS_ALPHA | JINJA_IS_NUMBER, false))
PREDICATE_METHOD(m_isalpha, jinja_str_all(s, JINJA_IS_ALPHA, false))
PREDICATE_METHOD(m_isascii, jinja_str_ascii(s))
PREDICATE_METHOD(m_isdecimal, all_numbers(s, 3))
PREDICATE_METHOD(m_isdigit, all_numbers(s, 2))
PREDICATE_METHOD(m_isnumeric, all_numbers(s, 1))
PREDICATE_METHOD(m_isidentifier, is_identifier(s))
PREDICATE_METHOD(m_islower, jinja_str_is_cased(s, false))
PREDICATE_METHOD(m_isupper, jinja_str_is_cased(s, true))
PREDICATE_METHOD(m_isspace, jinja_str_all(s, JINJA_IS_SPACE, false))
PREDICATE_METHOD(m_isprintable, !s->len || jinja_str_all(s, JINJA_IS_PRINTABLE, false))
PREDICATE_METHOD(m_istitle, is_title(s))

static int m_format(struct jinja *j, struct jinja_value self, const struct jinja_value *arg,
                    const struct jinja_args *args, struct jinja_value *out) {
    return jinja_format_braces(j, self.s, args, NULL, out);
}

static int m_format_map(struct jinja *j, struct jinja_value self, const struct jinja_value *arg,
                        const struct jinja_args *args, struct jinja_value *out) {
    static const struct jinja_args none;
    return jinja_format_braces(j, self.s, &none, &arg[0], out);
}

static int m_refused(struct jinja *j, struct jinja_value self, const struct jinja_value *arg,
                     const struct jinja_args *args, struct jinja_value *out) {
    return jinja_fail(j, QUIRE_EUNSUPPORTED, "str.encode, str.translate and str.maketrans are not supported");
}

const struct jinja_method jinja_str_methods[] = {
    {"capitalize", "/", m_capitalize},
    {"casefold", "/", m_casefold},
    {"center", "/width fillchar=", m_center},
    {"count", "/sub start= end=", m_count},
    {"encode", NULL, m_refused},
    {"endswith", "/suffix start= end=", m_endswith},
    {"expandtabs", "tabsize=", m_expandtabs},
    {"find", "/sub start= end=", m_find},
    {"format", NULL, m_format},
    {"format_map", "/mapping", m_format_map},
    {"index", "/sub start= end=", m_index},
    {"isalnum", "/", m_isalnum},
    {"isalpha", "/", m_isalpha},
    {"isascii", "/", m_isascii},
    {"isdecimal", "/", m_isdecimal},
    {"isdigit", "/", m_isdigit},
    {"isidentifier", "/", m_isidentifier},
    {"islower", "/", m_islower},
    {"isnumeric", "/", m_isnumeric},
    {"isprintable", "/", m_isprintable},
    {"isspace", "/", m_isspace},
    {"istitle", "/", m_istitle},
    {"isupper", "/", m_isupper},
    {"join", "/iterable", m_join},
    {"ljust", "/width fillchar=", m_ljust},
    {"lower", "/", m_lower},
    {"lstrip", "/chars=", m_lstrip},
    {"maketrans", NULL, m_refused},
    {"partition", "/sep", m_partition},
    {"removeprefix", "/prefix", m_removeprefix},
    {"removesuffix", "/suffix", m_removesuffix},
    {"replace", "/old new count=", m_replace},
    {"rfind", "/sub start= end=", m_rfind},
    {"rindex", "/sub start= end=", m_rindex},
    {"rjust", "/width fillchar=", m_rjust},
    {"rpartition", "/sep", m_rpartition},
    {"rsplit", "sep= maxsplit=", m_rsplit},
    {"rstrip", "/chars=", m_rstrip},
    {"split", "sep= maxsplit=", m_split},
    {"splitlines", "keepends=", m_splitlines},
    {"startswith", "/prefix start= end=", m_startswith},
    {"strip", "/chars=", m_strip},
    {"swapcase", "/", m_swapcase},
    {"title", "/", m_title},
    {"translate", NULL, m_refused},
    {"upper", "/", m_upper},
    {"zfill", "/width", m_zfill},
};
const size_t jinja_str_methods_n = sizeof jinja_str_methods / sizeof *jinja_str_methods;
