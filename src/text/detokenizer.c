#include "text/detokenizer.h"

#include "base/utf8.h"

#include <stdbool.h>
#include <string.h>

static const char replacement[] = UTF8_REPLACEMENT;

/* Length of the longest prefix of s (n > 0 bytes) that begins a well-formed sequence: the maximal subpart, at
 * least 1. *incomplete: the prefix is all of s and more bytes could complete it. */
static size_t maximal_subpart(const uint8_t *s, size_t n, bool *incomplete) {
    *incomplete = false;
    if (s[0] < 0xc2 || s[0] > 0xf4) return 1;
    size_t want = s[0] < 0xe0 ? 2 : s[0] < 0xf0 ? 3 : 4;
    uint8_t low = s[0] == 0xe0 ? 0xa0 : s[0] == 0xf0 ? 0x90 : 0x80;
    uint8_t high = s[0] == 0xed ? 0x9f : s[0] == 0xf4 ? 0x8f : 0xbf;
    size_t len = 1;
    while (len < want && len < n && s[len] >= low && s[len] <= high) {
        len++;
        low = 0x80;
        high = 0xbf;
    }
    *incomplete = len == n && len < want;
    return len;
}

/* Completes or gives up the pending bytes with those that follow. Returns how many of them were used; stops
 * with n_pending = 0 or with all of them used. */
static size_t push_pending(struct detokenizer *d, const uint8_t *bytes, size_t n, struct buf *out) {
    size_t used = 0;
    while (d->n_pending && used < n) {
        d->pending[d->n_pending++] = bytes[used++];
        size_t len = utf8_sequence((const char *)d->pending, d->n_pending);
        if (len) {
            buf_append(out, d->pending, len);
            d->n_pending = 0;
            break;
        }
        bool incomplete;
        maximal_subpart(d->pending, d->n_pending, &incomplete);
        if (incomplete) continue;
        /* the byte just added breaks the sequence: it is looked at again, on its own */
        buf_puts(out, replacement);
        d->n_pending = 0;
        used--;
    }
    return used;
}

void detokenizer_push(struct detokenizer *d, const uint8_t *bytes, size_t n, struct buf *out) {
    size_t i = push_pending(d, bytes, n, out);
    size_t start = i; /* bytes[start .. i) are well formed and not yet written */
    while (i < n) {
        size_t len = bytes[i] < 0x80 ? 1 : utf8_sequence((const char *)bytes + i, n - i);
        if (len) {
            i += len;
            continue;
        }
        if (i > start) buf_append(out, bytes + start, i - start);
        bool incomplete;
        len = maximal_subpart(bytes + i, n - i, &incomplete);
        if (incomplete) {
            memcpy(d->pending, bytes + i, len);
            d->n_pending = (unsigned)len;
            return;
        }
        buf_puts(out, replacement);
        start = i += len;
    }
    if (n > start) buf_append(out, bytes + start, n - start);
}

void detokenizer_finish(struct detokenizer *d, struct buf *out) {
    if (d->n_pending) buf_puts(out, replacement);
    d->n_pending = 0;
}
