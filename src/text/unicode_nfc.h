/* Normalization (form C and, for text/normalize.c, the parts that the other forms are made of;
 * Unicode Standard Annex 15), with the reference's data. Linear in its input, whatever
 * it holds: also a megabyte of combining marks. */
#ifndef TEXT_UNICODE_NFC_H
#define TEXT_UNICODE_NFC_H

#include "base/buf.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* False: the text is in NFC already. True: it may not be. Ordinary text is seldom true. */
bool unicode_nfc_needed(const uint8_t *s, size_t n);

/* Appends the text in NFC. Bytes that are not UTF-8 are kept; nothing combines across them. Failure of memory
 * is out's sticky failure. */
void unicode_nfc(const uint8_t *s, size_t n, struct buf *out);

/* Characters that may be put in order and composed together. Zero at first. */
struct unicode_cluster {
    uint32_t *v, *spare; /* a code point in the low 24 bits, its combining class above */
    size_t n, cap;
    bool failed; /* no memory */
};

/* Adds the decomposition of cp, the compatibility one if compat. */
void unicode_cluster_push(struct unicode_cluster *c, uint32_t cp, bool compat);
void unicode_cluster_order(struct unicode_cluster *c);
void unicode_cluster_compose(struct unicode_cluster *c); /* after ordering */
void unicode_cluster_free(struct unicode_cluster *c);

#endif
