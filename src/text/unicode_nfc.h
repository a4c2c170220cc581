/* Normalization form C (Unicode Standard Annex 15), with the reference's data. Linear in its input, whatever
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

#endif
