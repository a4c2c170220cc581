/* Bytes in fuzzed portions: what comes out is UTF-8, never depends on the portions, and is the bytes
 * themselves where they were well formed. */
#include "base/utf8.h"
#include "text/detokenizer.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define MUST(x) ((x) ? (void)0 : (fprintf(stderr, "line %d: %s\n", __LINE__, #x), abort()))

/* Well-formed characters, and U+FFFD for each maximal subpart, one byte at a time: table 3-7 as a list of
 * ranges. */
static void plain(const uint8_t *s, size_t n, struct buf *out) {
    static const uint8_t rows[][8] = {/* first byte, then ranges of the others */
                                      {0xc2, 0xdf, 0x80, 0xbf},
                                      {0xe0, 0xe0, 0xa0, 0xbf, 0x80, 0xbf},
                                      {0xe1, 0xec, 0x80, 0xbf, 0x80, 0xbf},
                                      {0xed, 0xed, 0x80, 0x9f, 0x80, 0xbf},
                                      {0xee, 0xef, 0x80, 0xbf, 0x80, 0xbf},
                                      {0xf0, 0xf0, 0x90, 0xbf, 0x80, 0xbf, 0x80, 0xbf},
                                      {0xf1, 0xf3, 0x80, 0xbf, 0x80, 0xbf, 0x80, 0xbf},
                                      {0xf4, 0xf4, 0x80, 0x8f, 0x80, 0xbf, 0x80, 0xbf}};
    for (size_t i = 0; i < n;) {
        if (s[i] < 0x80) {
            buf_append(out, s + i++, 1);
            continue;
        }
        size_t len = 1;
        bool whole = false;
        for (size_t r = 0; r < 8; r++) {
            if (s[i] < rows[r][0] || s[i] > rows[r][1]) continue;
            while (len < 4 && rows[r][2 * len] && i + len < n && s[i + len] >= rows[r][2 * len] &&
                   s[i + len] <= rows[r][2 * len + 1])
                len++;
            whole = len == 4 || !rows[r][2 * len];
        }
        if (whole)
            buf_append(out, s + i, len);
        else
            buf_puts(out, "\xef\xbf\xbd");
        i += len;
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    struct detokenizer d = {0};
    struct buf got = BUF_INIT, want = BUF_INIT;
    size_t n_cuts = size ? data[0] % (size / 2 + 1) : 0; /* their lengths come first, one byte each */
    const uint8_t *bytes = size ? data + 1 + n_cuts : data;
    size_t n = size ? size - 1 - n_cuts : 0, at = 0;
    for (size_t i = 0; i < n_cuts && at < n; i++) {
        size_t part = data[1 + i] % 9;
        if (part > n - at) part = n - at;
        detokenizer_push(&d, bytes + at, part, &got);
        at += part;
        for (size_t k = 0, len; k < got.len; k += len)
            MUST((len = utf8_sequence(got.data + k, got.len - k)) != 0);
        MUST(d.n_pending <= 3);
    }
    detokenizer_push(&d, bytes + at, n - at, &got);
    detokenizer_finish(&d, &got);
    plain(bytes, n, &want);
    MUST(buf_ok(&got) && buf_ok(&want) && got.len == want.len);
    MUST(got.len == 0 || !memcmp(got.data, want.data, got.len));
    buf_free(&got);
    buf_free(&want);
    return 0;
}
