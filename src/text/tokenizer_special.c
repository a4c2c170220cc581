#include "text/tokenizer_special.h"

#include "base/size.h"
#include "text/unicode.h"
#include "text/unicode_props.h"

#include <stdlib.h>
#include <string.h>

static int by_spelling(const void *a, const void *b) {
    const struct special *x = a, *y = b;
    int order = memcmp(x->text, y->text, size_min(x->len, y->len));
    return order ? order : (x->len > y->len) - (x->len < y->len);
}

static int by_spelling_and_id(const void *a, const void *b) {
    const struct special *x = a, *y = b;
    int order = by_spelling(x, y);
    return order ? order : (x->id > y->id) - (x->id < y->id);
}

void special_set_init(struct special_set *s, struct special *v, size_t n) {
    *s = (struct special_set){.v = v};
    for (size_t i = 0; i < n; i++)
        if (v[i].len) v[s->n++] = v[i];
    if (s->n) qsort(v, s->n, sizeof *v, by_spelling_and_id);
    size_t i = 0;
    for (size_t b = 0; b < 256; b++) {
        s->first[b] = i;
        for (; i < s->n && v[i].text[0] == b; i++)
            if (v[i].scope != SPECIAL_NEVER) s->may_start[b] = true;
        if (!s->may_start[b]) continue;
        s->only_start = (uint8_t)b;
        s->n_starts++;
    }
    s->first[256] = s->n;
}

/* First of v[lo .. hi), all longer than depth and equal before it, whose byte there is at least c. */
static size_t lower_bound(const struct special *v, size_t lo, size_t hi, size_t depth, unsigned c) {
    while (lo < hi) {
        size_t mid = lo + (hi - lo) / 2;
        if (v[mid].text[depth] < c)
            lo = mid + 1;
        else
            hi = mid;
    }
    return lo;
}

const struct special *special_find(const struct special_set *s, const uint8_t *text, size_t len) {
    size_t lo = 0, hi = s->n;
    struct special key = {.text = text, .len = (uint32_t)len};
    if (len == 0 || len > UINT32_MAX) return NULL;
    while (lo < hi) {
        size_t mid = lo + (hi - lo) / 2;
        int order = by_spelling(&s->v[mid], &key);
        if (order == 0) return &s->v[mid];
        if (order < 0)
            lo = mid + 1;
        else
            hi = mid;
    }
    return NULL;
}

/* Whether [pos, pos + len) is free of content. */
static bool is_outside(struct special_scan *scan, size_t pos, size_t len) {
    size_t start = scan->base + (scan->from ? scan->from[pos].start : pos);
    size_t end = scan->base + (scan->from ? scan->from[pos + len - 1].end : pos + len);
    for (; scan->at_content < scan->n_content; scan->at_content++) {
        const struct content_span *c = &scan->content[scan->at_content];
        if (c->len && c->start + c->len > start) return c->start >= end;
    }
    return true;
}

static const struct special *longest_at(struct special_scan *scan, size_t pos) {
    const struct special_set *s = scan->set;
    const uint8_t *text = scan->text + pos;
    size_t n = scan->len - pos, lo = s->first[text[0]], hi = s->first[text[0] + 1];
    const struct special *best = NULL;
    for (size_t depth = 1; lo < hi; depth++) {
        /* all of v[lo .. hi) agree with the text in depth bytes; those that end here sort first, and of
         * several (a normalizer can make spellings equal) the lowest id is taken */
        const struct special *here = NULL;
        for (; lo < hi && s->v[lo].len == depth; lo++) {
            const struct special *v = &s->v[lo];
            bool found =
                v->scope == SPECIAL_ANYWHERE || (v->scope == SPECIAL_OUTSIDE && is_outside(scan, pos, depth));
            if (found && !here) here = v;
        }
        if (here) best = here;
        if (depth == n) break;
        lo = lower_bound(s->v, lo, hi, depth, text[depth]);
        hi = lower_bound(s->v, lo, hi, depth, text[depth] + 1u);
    }
    return best;
}

/* Where the character before i starts; i > 0. */
static size_t char_before(const uint8_t *s, size_t i) {
    for (size_t len = 1; len <= 4 && len <= i; len++)
        if (utf8_sequence((const char *)s + i - len, len) == len) return i - len;
    return i - 1;
}

static uint32_t char_between(const uint8_t *s, size_t i, size_t n, size_t *len) {
    *len = utf8_sequence((const char *)s + i, n - i);
    if (*len) return unicode_decode(s + i, *len);
    *len = 1;
    return UINT32_MAX;
}

static bool is_white(uint32_t cp) {
    return cp != UINT32_MAX && (UNICODE_SPACE >> (unicode_entry(cp) & 31) & 1);
}

static bool is_word(uint32_t cp) {
    return cp != UINT32_MAX && unicode_props(cp) & PROP_WORD;
}

static bool stands_alone(const struct special_scan *scan, size_t start, size_t end) {
    size_t len;
    if (start) {
        size_t before = char_before(scan->text, start);
        if (is_word(char_between(scan->text, before, start, &len))) return false;
    }
    return end == scan->len || !is_word(char_between(scan->text, end, scan->len, &len));
}

static void take_space(const struct special_scan *scan, struct special_match *m) {
    size_t len;
    while (m->special->lstrip && m->start > scan->taken) {
        size_t before = char_before(scan->text, m->start);
        if (before < scan->taken || !is_white(char_between(scan->text, before, m->start, &len))) break;
        m->start = before;
    }
    while (m->special->rstrip && m->end < scan->len &&
           is_white(char_between(scan->text, m->end, scan->len, &len)))
        m->end += len;
}

bool special_next(struct special_scan *scan, struct special_match *m) {
    const struct special_set *s = scan->set;
    if (s->n_starts == 0) return false;
    for (size_t i = scan->pos; i < scan->len; i++) {
        if (s->n_starts == 1) {
            const uint8_t *p = memchr(scan->text + i, s->only_start, scan->len - i);
            if (!p) break;
            i = (size_t)(p - scan->text);
        } else if (!s->may_start[scan->text[i]]) {
            continue;
        }
        const struct special *best = longest_at(scan, i);
        if (!best) continue;
        scan->pos = i + best->len;
        if (best->single_word && !stands_alone(scan, i, i + best->len)) {
            i = scan->pos - 1;
            continue;
        }
        *m = (struct special_match){best, i, scan->pos};
        if (best->lstrip || best->rstrip) take_space(scan, m);
        scan->taken = m->end;
        return true;
    }
    scan->pos = scan->len;
    return false;
}
