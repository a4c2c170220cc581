/* What kind of character a code point is, as the reference tokenizer sees it, and UTF-8 stepping that accepts
 * any bytes. The table is generated (scripts/gen/unicode_table.py) by putting every code point to the
 * reference; its categories are those of Unicode 16 (Oniguruma), its extra numeric ones of Unicode 17 (Rust),
 * its normalization data of Unicode 9 (the crate the reference normalizes with). */
#ifndef TEXT_UNICODE_H
#define TEXT_UNICODE_H

#include "base/utf8.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* General categories, with three of our own in place of Cs, which no well-formed text holds: CW are the
 * control characters that are white space, INVALID is a byte that is part of no character, CN_NUMERIC are
 * code points unassigned in the regex engine's version but numeric in the one that splits digits. */
enum unicode_kind {
    UNICODE_LU,
    UNICODE_LL,
    UNICODE_LT,
    UNICODE_LM,
    UNICODE_LO,
    UNICODE_MN,
    UNICODE_MC,
    UNICODE_ME,
    UNICODE_ND,
    UNICODE_NL,
    UNICODE_NO,
    UNICODE_PC,
    UNICODE_PD,
    UNICODE_PS,
    UNICODE_PE,
    UNICODE_PI,
    UNICODE_PF,
    UNICODE_PO,
    UNICODE_SM,
    UNICODE_SC,
    UNICODE_SK,
    UNICODE_SO,
    UNICODE_ZS,
    UNICODE_ZL,
    UNICODE_ZP,
    UNICODE_CC,
    UNICODE_CF,
    UNICODE_CW,
    UNICODE_CO,
    UNICODE_CN,
    UNICODE_INVALID,
    UNICODE_CN_NUMERIC
};

/* Sets of kinds, one bit each. */
#define UNICODE_BIT(kind)   ((uint32_t)1 << (kind))
#define UNICODE_RANGE(a, b) ((UNICODE_BIT(b) - UNICODE_BIT(a)) | UNICODE_BIT(b))
#define UNICODE_LETTER      UNICODE_RANGE(UNICODE_LU, UNICODE_LO)                             /* \p{L} */
#define UNICODE_MARK        UNICODE_RANGE(UNICODE_MN, UNICODE_ME)                             /* \p{M} */
#define UNICODE_NUMBER      UNICODE_RANGE(UNICODE_ND, UNICODE_NO)                             /* \p{N} */
#define UNICODE_PUNCTUATION UNICODE_RANGE(UNICODE_PC, UNICODE_PO)                             /* \p{P} */
#define UNICODE_SPACE       (UNICODE_RANGE(UNICODE_ZS, UNICODE_ZP) | UNICODE_BIT(UNICODE_CW)) /* \s */
#define UNICODE_NUMERIC     (UNICODE_NUMBER | UNICODE_BIT(UNICODE_CN_NUMERIC))                /* Digits */
#define UNICODE_OTHER       (~(UNICODE_LETTER | UNICODE_NUMBER | UNICODE_SPACE)) /* [^\s\p{L}\p{N}] */

#define UNICODE_NORMALIZE 0x80 /* table bit: may change, move or combine under NFC */

extern const uint8_t unicode_stage1[0x110000 / 256];
extern const uint8_t unicode_stage2[];

/* Table entry of a code point: enum unicode_kind, perhaps with UNICODE_NORMALIZE. */
static inline uint8_t unicode_entry(uint32_t cp) {
    return unicode_stage2[(size_t)unicode_stage1[cp >> 8] * 256 + (cp & 255)];
}

/* Code point of the well-formed sequence of len bytes at s. */
static inline uint32_t unicode_decode(const uint8_t *s, size_t len) {
    switch (len) {
    case 1: return s[0];
    case 2: return (s[0] & 0x1fu) << 6 | (s[1] & 0x3fu);
    case 3: return (s[0] & 0x0fu) << 12 | (s[1] & 0x3fu) << 6 | (s[2] & 0x3fu);
    default: return (s[0] & 0x07u) << 18 | (s[1] & 0x3fu) << 12 | (s[2] & 0x3fu) << 6 | (s[3] & 0x3fu);
    }
}

/* Table entry of the character at s, n > 0 bytes of which may be read, and its length. A byte that starts no
 * well-formed sequence is a character of its own, of kind UNICODE_INVALID. */
static inline uint8_t unicode_entry_at(const uint8_t *s, size_t n, size_t *len) {
    if (s[0] < 0x80) {
        *len = 1;
        return unicode_stage2[s[0]]; /* the first block is that of ASCII */
    }
    *len = utf8_sequence((const char *)s, n);
    if (*len) return unicode_entry(unicode_decode(s, *len));
    *len = 1;
    return UNICODE_INVALID;
}

/* Writes cp, a scalar value, as UTF-8 to out (room for 4 bytes). Returns the length. */
static inline size_t unicode_encode(uint32_t cp, uint8_t *out) {
    if (cp < 0x80) return out[0] = (uint8_t)cp, 1;
    if (cp < 0x800) return out[0] = (uint8_t)(0xc0 | cp >> 6), out[1] = (uint8_t)(0x80 | (cp & 0x3f)), 2;
    if (cp < 0x10000) {
        out[0] = (uint8_t)(0xe0 | cp >> 12);
        out[1] = (uint8_t)(0x80 | (cp >> 6 & 0x3f));
        out[2] = (uint8_t)(0x80 | (cp & 0x3f));
        return 3;
    }
    out[0] = (uint8_t)(0xf0 | cp >> 18);
    out[1] = (uint8_t)(0x80 | (cp >> 12 & 0x3f));
    out[2] = (uint8_t)(0x80 | (cp >> 6 & 0x3f));
    out[3] = (uint8_t)(0x80 | (cp & 0x3f));
    return 4;
}

#endif
