#include "base/buf.h"
#include "base/size.h"
#include "base/utf8.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define FIRST_CAP_BYTES 64

bool buf_reserve(struct buf *b, size_t extra) {
    size_t len, need, cap;
    if (b->failed) return false;
    if (!size_add(b->len, extra, &len) || (b->limit_bytes && len > b->limit_bytes)) goto fail;
    if (!size_add(len, 1, &need)) goto fail; /* the NUL */
    if (need <= b->cap) return true;
    if (!size_mul(b->cap, 2, &cap)) cap = need;
    cap = size_max(size_max(cap, need), FIRST_CAP_BYTES);
    if (b->limit_bytes && cap - 1 > b->limit_bytes) cap = b->limit_bytes + 1;
    char *data = realloc(b->data, cap);
    if (!data) goto fail;
    data[b->len] = '\0';
    b->data = data;
    b->cap = cap;
    return true;
fail:
    b->failed = true;
    return false;
}

void buf_append(struct buf *b, const void *data, size_t n) {
    if (!buf_reserve(b, n)) return;
    if (n) memcpy(b->data + b->len, data, n);
    b->len += n;
    b->data[b->len] = '\0';
}

void buf_puts(struct buf *b, const char *s) {
    buf_append(b, s, strlen(s));
}

void buf_putc(struct buf *b, char c) {
    buf_append(b, &c, 1);
}

size_t buf_put_char(struct buf *b, const char *text, size_t n) {
    size_t len = utf8_sequence(text, n);
    if (len)
        buf_append(b, text, len);
    else
        buf_puts(b, UTF8_REPLACEMENT);
    return len ? len : 1;
}

void buf_printf(struct buf *b, const char *fmt, ...) {
    va_list args, again;
    if (b->failed) return;
    va_start(args, fmt);
    va_copy(again, args);
    size_t room = b->cap ? b->cap - b->len : 0;
    int n = vsnprintf(room ? b->data + b->len : NULL, room, fmt, args);
    if (n < 0) {
        b->failed = true;
    } else if (buf_reserve(b, (size_t)n)) {
        if ((size_t)n >= room) vsnprintf(b->data + b->len, (size_t)n + 1, fmt, again);
        b->len += (size_t)n;
    }
    if (b->failed && b->data) b->data[b->len] = '\0';
    va_end(again);
    va_end(args);
}

void buf_clear(struct buf *b) {
    b->len = 0;
    b->failed = false;
    if (b->data) b->data[0] = '\0';
}

void buf_free(struct buf *b) {
    free(b->data);
    *b = (struct buf){.limit_bytes = b->limit_bytes};
}
