#include "text/unicode_nfc.h"
#include "text/unicode.h"
#include "text/unicode_nfc_table.h"
#include "text/unicode_props.h"

#include "base/size.h"

#include <stdlib.h>
#include <string.h>

/* Hangul syllables are arithmetic (The Unicode Standard, section 3.12). */
enum {
    HANGUL_S = 0xac00,
    HANGUL_L = 0x1100,
    HANGUL_V = 0x1161,
    HANGUL_T = 0x11a7,
    N_L = 19,
    N_V = 21,
    N_T = 28,
    N_S = N_L * N_V * N_T
};

static unsigned combining_class(uint32_t cp) {
    size_t lo = 0, hi = unicode_n_ccc_ranges;
    while (lo < hi) {
        size_t mid = lo + (hi - lo) / 2;
        const struct unicode_ccc_range *r = &unicode_ccc_ranges[mid];
        if (cp < r->first)
            hi = mid;
        else if (cp >= r->first + r->n)
            lo = mid + 1;
        else
            return r->ccc;
    }
    return 0;
}

static const struct unicode_decomposition *find_decomposition(uint32_t cp) {
    size_t lo = 0, hi = unicode_n_decompositions;
    while (lo < hi) {
        size_t mid = lo + (hi - lo) / 2;
        const struct unicode_decomposition *d = &unicode_decompositions[mid];
        if (d->cp == cp) return d;
        if (d->cp < cp)
            lo = mid + 1;
        else
            hi = mid;
    }
    return NULL;
}

/* 0: the two do not combine. */
static uint32_t compose_pair(uint32_t first, uint32_t second) {
    if (first - HANGUL_L < N_L && second - HANGUL_V < N_V)
        return HANGUL_S + ((first - HANGUL_L) * N_V + (second - HANGUL_V)) * N_T;
    if (first - HANGUL_S < N_S && (first - HANGUL_S) % N_T == 0 && second - HANGUL_T - 1 < N_T - 1)
        return first + (second - HANGUL_T);
    size_t lo = 0, hi = unicode_n_compositions;
    while (lo < hi) {
        size_t mid = lo + (hi - lo) / 2;
        const struct unicode_composition *c = &unicode_compositions[mid];
        if (c->first == first && c->second == second) return c->cp;
        if (c->first < first || (c->first == first && c->second < second))
            lo = mid + 1;
        else
            hi = mid;
    }
    return 0;
}

static void push(struct unicode_cluster *c, uint32_t cp) {
    if (c->n == c->cap) {
        size_t cap = c->cap ? c->cap : 32, bytes;
        if (!size_mul(cap, 2, &cap) || !size_mul(cap, sizeof *c->v, &bytes)) goto fail;
        uint32_t *v = realloc(c->v, bytes);
        if (!v) goto fail;
        c->v = v;
        uint32_t *spare = realloc(c->spare, bytes);
        if (!spare) goto fail;
        c->spare = spare;
        c->cap = cap;
    }
    c->v[c->n++] = cp | (uint32_t)combining_class(cp) << 24;
    return;
fail:
    c->failed = true;
}

static void push_canonical(struct unicode_cluster *c, uint32_t cp) {
    if (cp - HANGUL_S < N_S) {
        uint32_t s = cp - HANGUL_S;
        push(c, HANGUL_L + s / (N_V * N_T));
        push(c, HANGUL_V + s % (N_V * N_T) / N_T);
        if (s % N_T) push(c, HANGUL_T + s % N_T);
        return;
    }
    const struct unicode_decomposition *d = find_decomposition(cp);
    if (!d) {
        push(c, cp);
        return;
    }
    for (size_t i = 0; i < d->n; i++) push(c, unicode_decomposition_pool[d->at + i]);
}

void unicode_cluster_push(struct unicode_cluster *c, uint32_t cp, bool compat) {
    const struct unicode_mapping *m = NULL;
    if (compat && unicode_props(cp) & PROP_COMPAT)
        m = unicode_mapping_find(unicode_compat, unicode_n_compat, cp);
    if (!m) {
        push_canonical(c, cp);
        return;
    }
    for (size_t i = 0; i < m->n; i++) push(c, unicode_compat_pool[m->at + i]);
}

void unicode_cluster_free(struct unicode_cluster *c) {
    free(c->v);
    free(c->spare);
}

/* Stable sort by class of a run of marks. A counting sort when it is long: linear whatever the order. */
static void sort_marks(uint32_t *v, size_t n, uint32_t *spare) {
    if (n <= 32) {
        for (size_t i = 1; i < n; i++) {
            uint32_t x = v[i];
            size_t k = i;
            for (; k > 0 && v[k - 1] >> 24 > x >> 24; k--) v[k] = v[k - 1];
            v[k] = x;
        }
        return;
    }
    size_t at[257] = {0};
    for (size_t i = 0; i < n; i++) at[(v[i] >> 24) + 1]++;
    for (size_t k = 0; k < 256; k++) at[k + 1] += at[k];
    for (size_t i = 0; i < n; i++) spare[at[v[i] >> 24]++] = v[i];
    memcpy(v, spare, n * sizeof *v);
}

void unicode_cluster_order(struct unicode_cluster *c) {
    for (size_t i = 0; i < c->n;) {
        size_t end = i;
        while (end < c->n && c->v[end] >> 24) end++;
        if (end - i > 1) sort_marks(c->v + i, end - i, c->spare);
        i = end + 1;
    }
}

/* Each character combines with the last starter unless something between them blocks it. In place. */
void unicode_cluster_compose(struct unicode_cluster *c) {
    size_t kept = 0, starter = SIZE_MAX;
    unsigned last_class = 0;
    for (size_t i = 0; i < c->n; i++) {
        unsigned class = c->v[i] >> 24;
        bool adjacent = starter != SIZE_MAX && kept == starter + 1;
        if (starter != SIZE_MAX && (adjacent || (last_class < class && last_class != 0))) {
            uint32_t cp = compose_pair(c->v[starter], c->v[i] & 0xffffff);
            if (cp) {
                c->v[starter] = cp;
                continue;
            }
        }
        if (class == 0) starter = kept;
        last_class = class;
        c->v[kept++] = c->v[i];
    }
    c->n = kept;
}

bool unicode_nfc_needed(const uint8_t *s, size_t n) {
    for (size_t i = 0, len; i < n; i += len) {
        if (s[i] < 0xcc) { /* below U+0300 nothing changes */
            len = 1;
            continue;
        }
        if (unicode_entry_at(s + i, n - i, &len) & UNICODE_NORMALIZE) return true;
    }
    return false;
}

/* From at on, the characters that belong to the one before them. Returns where they end. */
static size_t gather(const uint8_t *s, size_t at, size_t n, struct unicode_cluster *c) {
    for (size_t len; at < n; at += len) {
        if (!(unicode_entry_at(s + at, n - at, &len) & UNICODE_NORMALIZE)) break;
        push_canonical(c, unicode_decode(s + at, len));
    }
    return at;
}

void unicode_nfc(const uint8_t *s, size_t n, struct buf *out) {
    struct unicode_cluster c = {0};
    size_t done = 0;        /* bytes before it are in out */
    size_t base = SIZE_MAX; /* where the last character starts, if marks may join it */
    for (size_t i = 0, len; i < n && !c.failed; i += len) {
        uint8_t entry = unicode_entry_at(s + i, n - i, &len);
        if (!(entry & UNICODE_NORMALIZE)) {
            base = entry == UNICODE_INVALID ? SIZE_MAX : i;
            continue;
        }
        size_t start = base == SIZE_MAX ? i : base;
        buf_append(out, s + done, start - done);
        c.n = 0;
        if (start < i) push_canonical(&c, unicode_decode(s + start, i - start));
        done = gather(s, i, n, &c);
        if (c.failed) break;
        unicode_cluster_order(&c);
        unicode_cluster_compose(&c);
        for (size_t k = 0; k < c.n; k++) {
            uint8_t utf8[4];
            buf_append(out, utf8, unicode_encode(c.v[k] & 0xffffff, utf8));
        }
        base = SIZE_MAX;
        len = done - i;
    }
    if (c.failed)
        out->failed = true;
    else
        buf_append(out, s + done, n - done);
    unicode_cluster_free(&c);
}
