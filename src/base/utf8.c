#include "base/utf8.h"

#include <string.h>

/* C0, DEL and the C1 range (U+0080 to U+009F, which some terminals obey). */
static int is_control(const char *s, size_t len) {
    const unsigned char *u = (const unsigned char *)s;
    return len == 1 ? u[0] < 0x20 || u[0] == 0x7f : len == 2 && u[0] == 0xc2 && u[1] < 0xa0;
}

size_t utf8_printable(char *out, size_t cap, const char *text, size_t n) {
    static const char hex[] = "0123456789abcdef";
    size_t used = 0;
    for (size_t i = 0; i < n;) {
        size_t len = utf8_sequence(text + i, n - i);
        if (len && !is_control(text + i, len)) {
            if (len > cap - 1 - used) break;
            memcpy(out + used, text + i, len);
            used += len;
            i += len;
            continue;
        }
        if (cap - 1 - used < 4) break;
        unsigned char byte = (unsigned char)text[i++];
        out[used++] = '\\';
        out[used++] = 'x';
        out[used++] = hex[byte >> 4];
        out[used++] = hex[byte & 15];
    }
    out[used] = '\0';
    return used;
}
