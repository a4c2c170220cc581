#include "text/jinja_unicode.h"
#include "base/utf8.h"

unsigned jinja_unicode_props(uint32_t cp) {
    size_t low = 0, high = jinja_unicode_properties_n;
    while (high - low > 1) {
        size_t mid = low + (high - low) / 2;
        if (jinja_unicode_properties[mid] >> 11 <= cp) {
            low = mid;
        } else {
            high = mid;
        }
    }
    return jinja_unicode_properties[low] & 0x7ff;
}

static uint32_t map_runs(const struct jinja_case_run *runs, size_t n, uint32_t cp) {
    size_t low = 0, high = n;
    while (low < high) {
        size_t mid = low + (high - low) / 2;
        if (cp > runs[mid].last) {
            low = mid + 1;
        } else if (cp < runs[mid].first) {
            high = mid;
        } else {
            bool hit = (cp - runs[mid].first) % runs[mid].step == 0;
            return hit ? cp + (uint32_t)runs[mid].delta : cp;
        }
    }
    return cp;
}

/* Rows are sorted by code point; a code point has up to three of them. */
static const struct jinja_case_special *find_special(uint32_t cp, enum jinja_case kind) {
    size_t low = 0, high = jinja_unicode_special_n;
    while (low < high) {
        size_t mid = low + (high - low) / 2;
        if (jinja_unicode_special[mid].cp < cp) {
            low = mid + 1;
        } else {
            high = mid;
        }
    }
    for (; low < jinja_unicode_special_n && jinja_unicode_special[low].cp == cp; low++)
        if (jinja_unicode_special[low].kind == kind) return &jinja_unicode_special[low];
    return NULL;
}

size_t jinja_unicode_map(uint32_t cp, enum jinja_case kind, uint32_t out[3]) {
    if (cp < 0x80) {
        bool raise = kind == JINJA_CASE_UPPER || kind == JINJA_CASE_TITLE;
        if (raise && cp >= 'a' && cp <= 'z') cp -= 'a' - 'A';
        if (!raise && cp >= 'A' && cp <= 'Z') cp += 'a' - 'A';
        out[0] = cp;
        return 1;
    }
    const struct jinja_case_special *s = find_special(cp, kind);
    if (!s && kind == JINJA_CASE_TITLE) s = find_special(cp, JINJA_CASE_UPPER);
    if (!s && kind == JINJA_CASE_FOLD) s = find_special(cp, JINJA_CASE_LOWER);
    if (s) {
        size_t n = 0;
        while (n < 3 && s->to[n]) out[n] = s->to[n], n++;
        return n;
    }
    bool raise = kind == JINJA_CASE_UPPER || kind == JINJA_CASE_TITLE;
    out[0] = raise ? map_runs(jinja_unicode_upper, jinja_unicode_upper_n, cp)
                   : map_runs(jinja_unicode_lower, jinja_unicode_lower_n, cp);
    return 1;
}

int jinja_unicode_digit(uint32_t cp) {
    if (cp < 0x80) return cp >= '0' && cp <= '9' ? (int)(cp - '0') : -1;
    if (JINJA_NUMBER_LEVEL(jinja_unicode_props(cp)) != 3) return -1;
    /* Decimal digits come in blocks of ten, but blocks may touch (U+1D7CE..U+1D7FF), where the first one
     * starts the count. */
    uint32_t first = cp;
    while (JINJA_NUMBER_LEVEL(jinja_unicode_props(first - 1)) == 3) first--;
    return (int)((cp - first) % 10);
}

uint32_t jinja_utf8_get(const char *s, size_t n, size_t *len) {
    const unsigned char *u = (const unsigned char *)s;
    *len = utf8_sequence(s, n);
    switch (*len) {
    case 1: return u[0];
    case 2: return (uint32_t)(u[0] & 0x1f) << 6 | (u[1] & 0x3f);
    case 3: return (uint32_t)(u[0] & 0x0f) << 12 | (uint32_t)(u[1] & 0x3f) << 6 | (u[2] & 0x3f);
    case 4:
        return (uint32_t)(u[0] & 0x07) << 18 | (uint32_t)(u[1] & 0x3f) << 12 | (uint32_t)(u[2] & 0x3f) << 6 |
               (u[3] & 0x3f);
    default: *len = 1; return 0xfffd;
    }
}

size_t jinja_utf8_put(uint32_t cp, char out[4]) {
    if (cp < 0x80) {
        out[0] = (char)cp;
        return 1;
    }
    if (cp < 0x800) {
        out[0] = (char)(0xc0 | cp >> 6);
        out[1] = (char)(0x80 | (cp & 0x3f));
        return 2;
    }
    if (cp < 0x10000) {
        out[0] = (char)(0xe0 | cp >> 12);
        out[1] = (char)(0x80 | (cp >> 6 & 0x3f));
        out[2] = (char)(0x80 | (cp & 0x3f));
        return 3;
    }
    out[0] = (char)(0xf0 | cp >> 18);
    out[1] = (char)(0x80 | (cp >> 12 & 0x3f));
    out[2] = (char)(0x80 | (cp >> 6 & 0x3f));
    out[3] = (char)(0x80 | (cp & 0x3f));
    return 4;
}
