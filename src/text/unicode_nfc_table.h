/* The generated data behind unicode_nfc.c. All arrays are sorted by code point. */
#ifndef TEXT_UNICODE_NFC_TABLE_H
#define TEXT_UNICODE_NFC_TABLE_H

#include <stddef.h>
#include <stdint.h>

struct unicode_ccc_range { /* n code points from first on have this canonical combining class */
    uint32_t first;
    uint8_t n, ccc;
};

struct unicode_decomposition { /* full canonical decomposition: pool[at .. at + n) */
    uint32_t cp;
    uint16_t at, n;
};

struct unicode_composition { /* first + second is composed to cp (exclusions are not listed) */
    uint32_t first, second, cp;
};

extern const struct unicode_ccc_range unicode_ccc_ranges[];
extern const size_t unicode_n_ccc_ranges;
extern const struct unicode_decomposition unicode_decompositions[];
extern const size_t unicode_n_decompositions;
extern const uint32_t unicode_decomposition_pool[];
extern const struct unicode_composition unicode_compositions[];
extern const size_t unicode_n_compositions;

#endif
