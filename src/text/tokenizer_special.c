#include "text/tokenizer_special.h"

#include "base/size.h"

#include <stdlib.h>
#include <string.h>

static int by_spelling(const void *a, const void *b) {
    const struct special *x = a, *y = b;
    int order = memcmp(x->text, y->text, size_min(x->len, y->len));
    return order ? order : (x->len > y->len) - (x->len < y->len);
}

void special_set_init(struct special_set *s, struct special *v, size_t n) {
    *s = (struct special_set){.v = v};
    for (size_t i = 0; i < n; i++)
        if (v[i].len) v[s->n++] = v[i];
    if (s->n) qsort(v, s->n, sizeof *v, by_spelling);
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
    for (; scan->at_content < scan->n_content; scan->at_content++) {
        const struct content_span *c = &scan->content[scan->at_content];
        if (c->len && c->start + c->len > pos) return c->start >= pos + len;
    }
    return true;
}

static const struct special *longest_at(struct special_scan *scan, size_t pos) {
    const struct special_set *s = scan->set;
    const uint8_t *text = scan->text + pos;
    size_t n = scan->len - pos, lo = s->first[text[0]], hi = s->first[text[0] + 1];
    const struct special *best = NULL;
    for (size_t depth = 1; lo < hi; depth++) {
        /* all of v[lo .. hi) agree with the text in depth bytes; one that ends here sorts first */
        const struct special *v = &s->v[lo];
        if (v->len == depth) {
            if (v->scope == SPECIAL_ANYWHERE || (v->scope == SPECIAL_OUTSIDE && is_outside(scan, pos, depth)))
                best = v;
            lo++;
        }
        if (depth == n) break;
        lo = lower_bound(s->v, lo, hi, depth, text[depth]);
        hi = lower_bound(s->v, lo, hi, depth, text[depth] + 1u);
    }
    return best;
}

const struct special *special_next(struct special_scan *scan, size_t *pos) {
    const struct special_set *s = scan->set;
    size_t i = *pos;
    if (s->n_starts == 0) return NULL;
    for (; i < scan->len; i++) {
        if (s->n_starts == 1) {
            const uint8_t *p = memchr(scan->text + i, s->only_start, scan->len - i);
            if (!p) return NULL;
            i = (size_t)(p - scan->text);
        } else if (!s->may_start[scan->text[i]]) {
            continue;
        }
        const struct special *best = longest_at(scan, i);
        if (best) {
            *pos = i;
            return best;
        }
    }
    return NULL;
}
