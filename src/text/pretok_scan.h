/* What scanners are made of. Internal to the pre-tokenizers. */
#ifndef TEXT_PRETOK_SCAN_H
#define TEXT_PRETOK_SCAN_H

#include "text/unicode.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Kind of the character at s[i], i < n, and its length. */
static inline unsigned kind_at(const uint8_t *s, size_t i, size_t n, size_t *len) {
    return unicode_entry_at(s + i, n - i, len) & 31u;
}

static inline bool is(unsigned kind, uint32_t set) {
    return set >> kind & 1;
}

/* Whether a character of the set starts at i. */
static inline bool at(const uint8_t *s, size_t i, size_t n, uint32_t set) {
    size_t len;
    return i < n && is(kind_at(s, i, n, &len), set);
}

/* End of the run of characters of the set from i on. */
static inline size_t run(const uint8_t *s, size_t i, size_t n, uint32_t set) {
    for (size_t len; i < n && is(kind_at(s, i, n, &len), set); i += len) {}
    return i;
}

static inline bool is_newline(uint8_t c) {
    return c == '\r' || c == '\n';
}

/* A run of white space from i on. */
struct space_run {
    size_t end;
    size_t last;          /* where its last character starts */
    size_t after_newline; /* end of its last CR or LF; 0 = none */
};

static inline struct space_run space_run(const uint8_t *s, size_t i, size_t n) {
    struct space_run r = {i, i, 0};
    for (size_t len; r.end < n && is(kind_at(s, r.end, n, &len), UNICODE_SPACE); r.end += len) {
        r.last = r.end;
        if (is_newline(s[r.end])) r.after_newline = r.end + 1;
    }
    return r;
}

/* \s+(?!\S)|\s+ : all of the run at the end of the text, else all but its last character, if that leaves any.
 */
static inline size_t split_spaces(struct space_run r, size_t i, bool at_end) {
    return at_end || r.last == i ? r.end : r.last;
}

#endif
