/* What normalizers and pre-tokenizers of tokenizer.json ask of a code point, as the reference sees it. The
 * table is generated (scripts/gen/unicode_props.py) by putting every code point to the reference. */
#ifndef TEXT_UNICODE_PROPS_H
#define TEXT_UNICODE_PROPS_H

#include <stddef.h>
#include <stdint.h>

enum {
    PROP_WORD = 1 << 0,         /* \w of Rust's regex crate */
    PROP_PUNCT = 1 << 1,        /* punctuation, and every ASCII symbol */
    PROP_BERT_CONTROL = 1 << 2, /* goes in BERT's cleaning */
    PROP_BERT_SPACE = 1 << 3,   /* becomes a space in it */
    PROP_CJK = 1 << 4,          /* gets spaces around it */
    PROP_NONSPACING = 1 << 5,   /* an accent, for BERT */
    PROP_COMBINING = 1 << 6,    /* an accent, for StripAccents */
    PROP_EXTEND = 1 << 7,       /* belongs to the grapheme cluster of the character before */
    PROP_NMT_GONE = 1 << 8,
    PROP_NMT_SPACE = 1 << 9,
    PROP_HAN = 1 << 10,    /* \p{Han} */
    PROP_LOWER = 1 << 11,  /* is in unicode_lower */
    PROP_COMPAT = 1 << 12, /* is in unicode_compat */
    PROP_PREPEND = 1 << 13 /* begins a grapheme cluster with the character after */
};

extern const uint8_t unicode_props_stage1[0x110000 / 256];
extern const uint16_t unicode_props_stage2[];

static inline uint16_t unicode_props(uint32_t cp) {
    return unicode_props_stage2[(size_t)unicode_props_stage1[cp >> 8] * 256 + (cp & 255)];
}

struct unicode_mapping { /* cp becomes pool[at .. at + n) */
    uint32_t cp;
    uint16_t at, n;
};

/* Sorted by code point. */
extern const struct unicode_mapping unicode_lower[],
    unicode_compat[]; /* compat: full, where unlike canonical */
extern const size_t unicode_n_lower, unicode_n_compat;
extern const uint32_t unicode_lower_pool[], unicode_compat_pool[];

static inline const struct unicode_mapping *unicode_mapping_find(const struct unicode_mapping *m, size_t n,
                                                                 uint32_t cp) {
    size_t lo = 0, hi = n;
    while (lo < hi) {
        size_t mid = lo + (hi - lo) / 2;
        if (m[mid].cp == cp) return &m[mid];
        if (m[mid].cp < cp)
            lo = mid + 1;
        else
            hi = mid;
    }
    return NULL;
}

#endif
