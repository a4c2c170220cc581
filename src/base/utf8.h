/* Well-formed UTF-8 (Unicode 15, table 3-7): no surrogates, no overlong forms, nothing above U+10FFFF. */
#ifndef BASE_UTF8_H
#define BASE_UTF8_H

#include <stddef.h>
#include <stdint.h>

/* Length (1 to 4) of the well-formed sequence that starts at s, of which n bytes may be read; 0 if there is
 * none. */
static inline size_t utf8_sequence(const char *s, size_t n) {
    const unsigned char *u = (const unsigned char *)s;
    if (n == 0) return 0;
    if (u[0] < 0x80) return 1;
    if (u[0] < 0xc2 || u[0] > 0xf4) return 0;
    size_t len = u[0] < 0xe0 ? 2 : u[0] < 0xf0 ? 3 : 4;
    if (n < len) return 0;
    unsigned char low = u[0] == 0xe0 ? 0xa0 : u[0] == 0xf0 ? 0x90 : 0x80;
    unsigned char high = u[0] == 0xed ? 0x9f : u[0] == 0xf4 ? 0x8f : 0xbf;
    if (u[1] < low || u[1] > high) return 0;
    for (size_t i = 2; i < len; i++)
        if ((u[i] & 0xc0) != 0x80) return 0;
    return len;
}

#define UTF8_REPLACEMENT "\xef\xbf\xbd" /* U+FFFD */

/* Bytes of the byte order mark that a text begins with: 3 or 0. */
static inline size_t utf8_mark(const char *s, size_t n) {
    return n >= 3 && s[0] == '\xef' && s[1] == '\xbb' && s[2] == '\xbf' ? 3 : 0;
}

/* Copies text for a terminal or a log line: control characters and bytes that are not UTF-8 become \xNN.
 * Writes at most cap - 1 bytes and a NUL (cap >= 1), never half a character or escape. Returns the bytes
 * written. */
size_t utf8_printable(char *out, size_t cap, const char *text, size_t n);

#endif
