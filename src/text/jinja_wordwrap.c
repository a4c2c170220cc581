/* The wordwrap filter: Python's textwrap with its defaults (whitespace at line ends dropped, tabs kept). */
#include "text/jinja_filters.h"
#include "text/jinja_methods.h"
#include "text/jinja_ops.h"
#include "text/jinja_unicode.h"

#include <string.h>

/* A line to be wrapped, as code points with their byte offsets. */
struct line {
    const struct jinja_str *s;
    uint32_t *cps;
    uint32_t *offsets; /* [n + 1] */
    size_t n;
};

/* A stretch of it that is not torn apart. */
struct chunk {
    size_t start, end;
};

static bool is_space(uint32_t cp) {
    return (cp >= 0x09 && cp <= 0x0d) || cp == ' ';
}
static bool is_word(uint32_t cp) {
    return cp == '_' || (jinja_unicode_props(cp) & (JINJA_IS_ALPHA | JINJA_IS_NUMBER));
}
static bool is_letter(uint32_t cp) { /* [^\d\W] */
    unsigned props = jinja_unicode_props(cp);
    return cp == '_' || ((props & (JINJA_IS_ALPHA | JINJA_IS_NUMBER)) && JINJA_NUMBER_LEVEL(props) != 3);
}
static bool is_word_punct(uint32_t cp) {
    return is_word(cp) || (cp && cp < 0x80 && strchr("!\"'&.,?", (int)cp));
}

static bool letter_at(const struct line *l, size_t i) {
    return i < l->n && is_letter(l->cps[i]);
}

/* An em-dash at i: two or more hyphens between words. Its end, or 0. */
static size_t dash_end(const struct line *l, size_t i, bool needs_word_before) {
    size_t end = i;
    if (needs_word_before && (i == 0 || !is_word_punct(l->cps[i - 1]))) return 0;
    while (end < l->n && l->cps[end] == '-') end++;
    return end - i >= 2 && end < l->n && is_word(l->cps[end]) ? end : 0;
}

/* Does a word that began at start end behind the hyphen at i? */
static bool breaks_after_hyphen(const struct line *l, size_t start, size_t i) {
    if (l->cps[i] != '-') return false;
    bool before =
        (i >= 2 && is_letter(l->cps[i - 1]) && is_letter(l->cps[i - 2])) ||
        (i >= 3 && is_word_punct(l->cps[i - 1]) && l->cps[i - 2] == '-' && is_letter(l->cps[i - 3]));
    size_t next = i + 1;
    if (i == start || !before || !letter_at(l, next)) return false;
    return letter_at(l, next + 1) || (next + 1 < l->n && l->cps[next + 1] == '-' && letter_at(l, next + 2));
}

static size_t chunk_end(const struct line *l, size_t start, bool hyphens) {
    size_t i = start;
    if (is_space(l->cps[i])) {
        while (i < l->n && is_space(l->cps[i])) i++;
        return i;
    }
    if (!hyphens) {
        while (i < l->n && !is_space(l->cps[i])) i++;
        return i;
    }
    size_t dash = dash_end(l, start, true);
    if (dash) return dash;
    for (i = start + 1; i < l->n && !is_space(l->cps[i]); i++) {
        if (breaks_after_hyphen(l, start, i)) return i + 1;
        if (is_word_punct(l->cps[i - 1]) && dash_end(l, i, false)) return i;
    }
    return i;
}

static int read_line(struct jinja *j, const struct jinja_str *s, struct line *l) {
    *l = (struct line){.s = s};
    l->cps = jinja_array(j, s->n_chars, sizeof *l->cps);
    l->offsets = jinja_array(j, s->n_chars + 1, sizeof *l->offsets);
    if (!l->cps || !l->offsets) return QUIRE_ENOMEM;
    for (size_t i = 0, len; i < s->len; i += len) {
        l->offsets[l->n] = (uint32_t)i;
        l->cps[l->n++] = jinja_utf8_get(s->data + i, s->len - i, &len);
    }
    l->offsets[l->n] = (uint32_t)s->len;
    return jinja_steps(j, s->n_chars / 8);
}

static bool is_blank(const struct line *l, struct chunk c) {
    for (size_t i = c.start; i < c.end; i++)
        if (!(jinja_unicode_props(l->cps[i]) & JINJA_IS_SPACE)) return false;
    return true;
}

/* Where to cut a word that is longer than a line: behind its last hyphen that fits, if there is one. */
static size_t long_word_cut(const struct line *l, struct chunk c, size_t space, bool hyphens) {
    size_t cut = c.start + space < c.end ? c.start + space : c.end;
    if (!hyphens || c.end - c.start <= space) return cut;
    size_t i = cut;
    while (i > c.start && l->cps[i - 1] != '-') i--;
    if (i <= c.start + 1) return cut;
    for (size_t k = c.start; k < i - 1; k++)
        if (l->cps[k] != '-') return i;
    return cut;
}

struct wrapper {
    struct jinja *j;
    size_t width;
    bool break_words, hyphens;
    struct jinja_vec *out;
};

static int wrap_line(struct wrapper *w, const struct line *l) {
    size_t at = 0, n_lines = 0;
    while (at < l->n) {
        size_t start = at, used = 0, last = at; /* last: start of the last chunk on this line */
        struct chunk c = {at, chunk_end(l, at, w->hyphens)};
        JINJA_TRY(jinja_steps(w->j, 1 + (c.end - c.start) / 16));
        if (n_lines && is_blank(l, c)) {
            start = at = c.end;
            if (at == l->n) break;
            c = (struct chunk){at, chunk_end(l, at, w->hyphens)};
        }
        while (used + (c.end - c.start) <= w->width) {
            used += c.end - c.start;
            last = at;
            at = c.end;
            if (at == l->n) break;
            c = (struct chunk){at, chunk_end(l, at, w->hyphens)};
            JINJA_TRY(jinja_steps(w->j, 1 + (c.end - c.start) / 16));
        }
        if (at < l->n && c.end - c.start > w->width && (w->break_words || at == start)) {
            last = at;
            at = w->break_words ? long_word_cut(l, c, w->width - used, w->hyphens) : c.end;
        }
        size_t end = at;
        if (at > start && is_blank(l, (struct chunk){last, at})) end = last;
        if (end == start) continue;
        const struct jinja_str *part =
            jinja_str_sub(w->j, l->s, l->offsets[start], l->offsets[end] - l->offsets[start]);
        if (!part) return QUIRE_ENOMEM;
        JINJA_TRY(jinja_vec_push(w->j, w->out, jinja_of_str(part)));
        n_lines++;
    }
    return 0;
}

int jinja_f_wordwrap(struct jinja *j, struct jinja_value self, const struct jinja_value *arg,
                     const struct jinja_args *args, struct jinja_value *out) {
    const struct jinja_str *s, *newline = NULL;
    struct jinja_vec lines = {0};
    struct jinja_sb b;
    int64_t width = 79;
    JINJA_TRY(jinja_need_str(j, "wordwrap: the value", self, &s));
    if (jinja_given(arg[0])) JINJA_TRY(jinja_need_int(j, "the width", arg[0], &width));
    if (jinja_given_value(arg[2])) JINJA_TRY(jinja_need_str(j, "the wrap string", arg[2], &newline));
    if (!newline && !(newline = jinja_str_lit(j, "\n"))) return QUIRE_ENOMEM;
    JINJA_TRY(jinja_str_splitlines(j, s, false, &lines));
    if (width <= 0 && lines.n) return jinja_fail(j, QUIRE_EINVAL, "wordwrap: invalid width (must be > 0)");
    jinja_sb_init(j, &b);
    for (size_t i = 0; i < lines.n; i++) {
        struct jinja_vec parts = {0};
        struct wrapper w = {.j = j,
                            .width = (size_t)width,
                            .break_words = !jinja_given(arg[1]) || jinja_truth(j, arg[1]),
                            .hyphens = !jinja_given(arg[3]) || jinja_truth(j, arg[3]),
                            .out = &parts};
        struct line l;
        JINJA_TRY(read_line(j, lines.items[i].s, &l));
        JINJA_TRY(wrap_line(&w, &l));
        if (i) jinja_sb_add_str(&b, newline);
        for (size_t k = 0; k < parts.n; k++) {
            if (k) jinja_sb_add_str(&b, newline);
            jinja_sb_add_str(&b, parts.items[k].s);
        }
    }
    JINJA_TRY(jinja_sb_finish(&b, &s));
    *out = jinja_of_str(s);
    return 0;
}
