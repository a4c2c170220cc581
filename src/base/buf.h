/* A growable byte buffer with sticky failure: append freely, check buf_ok() once at the end. */
#ifndef BASE_BUF_H
#define BASE_BUF_H

#include <stdbool.h>
#include <stddef.h>

struct buf {
    char *data; /* NUL-terminated whenever non-NULL; the NUL is not counted in len */
    size_t len, cap;
    size_t limit_bytes; /* appending past it fails; 0 = no limit */
    bool failed;
};

#define BUF_INIT ((struct buf){0})

void buf_append(struct buf *b, const void *data, size_t n);
void buf_puts(struct buf *b, const char *s);
void buf_putc(struct buf *b, char c);
/* The character that text of n bytes (n > 0) begins with; for a byte that is no UTF-8, U+FFFD. Returns the bytes of
 * the text that it took. */
size_t buf_put_char(struct buf *b, const char *text, size_t n);
void buf_printf(struct buf *b, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
bool buf_reserve(struct buf *b, size_t extra); /* room for extra more bytes */
void buf_clear(struct buf *b);                 /* len = 0, failed = false, memory kept */
void buf_free(struct buf *b);
static inline bool buf_ok(const struct buf *b) { return !b->failed; }

#endif
