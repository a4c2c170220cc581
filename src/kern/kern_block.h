/* The 32-element weight blocks of GGUF (Q4_0, Q4_1, Q5_0, Q5_1, Q8_0) read as small unsigned integers.
 *
 * Every one of them is w[i] = d * (q[i] - bias) + m with unsigned q, half-precision d and m, and a bias that
 * the format fixes (m = 0 for the formats that have a bias, bias = 0 for those that have m). Formats: the
 * GGUF specification and its quantization descriptions. */
#ifndef KERN_KERN_BLOCK_H
#define KERN_KERN_BLOCK_H

#include "kern/kern.h"

#include <string.h>

#define KERN_BLOCK 32

struct kern_block {
    uint8_t q[KERN_BLOCK];
    uint16_t d, m; /* IEEE half */
};

static inline int kern_block_bias(enum kern_format format) {
    return format == KERN_Q4_0 ? 8 : format == KERN_Q5_0 ? 16 : format == KERN_Q8_0 ? 128 : 0;
}

static inline size_t kern_block_bytes(enum kern_format format) {
    switch (format) {
    case KERN_Q4_0: return 18;
    case KERN_Q4_1: return 20;
    case KERN_Q5_0: return 22;
    case KERN_Q5_1: return 24;
    default: return 34;
    }
}

/* d, then m where the format has one, then a bit 4 of each element where it has 5 bits, then the low nibbles
 * of elements i (low half of byte i) and i + 16 (high half); Q8_0 has d and 32 signed bytes. */
static inline void kern_block_read(struct kern_block *b, enum kern_format format, const uint8_t *src) {
    memcpy(&b->d, src, 2);
    src += 2;
    b->m = 0;
    if (format == KERN_Q8_0) {
        for (int i = 0; i < KERN_BLOCK; i++) b->q[i] = src[i] ^ 0x80u; /* signed byte + 128 */
        return;
    }
    if (format == KERN_Q4_1 || format == KERN_Q5_1) {
        memcpy(&b->m, src, 2);
        src += 2;
    }
    uint32_t high = 0;
    if (format == KERN_Q5_0 || format == KERN_Q5_1) {
        memcpy(&high, src, 4);
        src += 4;
    }
    for (int i = 0; i < KERN_BLOCK / 2; i++) {
        b->q[i] = (uint8_t)((src[i] & 15u) | (high >> i & 1u) << 4);
        b->q[i + 16] = (uint8_t)(src[i] >> 4 | (high >> (i + 16) & 1u) << 4);
    }
}

/* One block of a packed KERN_ACT_Q8 row, the same in all tables: x[i] ~ scale * q[i], |q[i]| <= 127.
 * A block that holds an infinity or NaN has scale NaN, so that every product with it is NaN; one whose
 * largest magnitude is below KERN_ACT_TINY is all zero. */
struct kern_act_block {
    int8_t q[KERN_BLOCK];
    float scale, scaled_sum; /* scale * sum(q) */
    int32_t bias_sum;        /* -128 * sum(q) */
};

#define KERN_ACT_TINY 1e-30f

#endif
