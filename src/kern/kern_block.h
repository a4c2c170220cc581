/* The block formats of weights that are multiplied as small integers, and the packed 8-bit inputs they are
 * multiplied with.
 *
 * Every format is read in blocks of 32 elements: w[i] = d * q[i] + m with small integers q, and a d and m for
 * elements 0 .. 15 and another for 16 .. 31. A *unit* is what the file stores together: one block, or 8 that
 * share half-precision factors. Formats: the GGUF specification, its quantization descriptions, and for MXFP4
 * the OCP Microscaling Formats specification 1.0. */
#ifndef KERN_KERN_BLOCK_H
#define KERN_KERN_BLOCK_H

#include "kern/kern.h"

#include <string.h>

#define KERN_BLOCK 32

struct kern_block {
    int16_t q[KERN_BLOCK]; /* -128 .. 127 */
    float d[2], m[2];      /* of each half */
};

/* Whether a format is multiplied as integers; the others are float formats. */
static inline bool kern_is_block_format(enum kern_format f) {
    return (f >= KERN_Q4_0 && f <= KERN_Q6_K) || f == KERN_IQ4_NL || f == KERN_IQ4_XS || f == KERN_MXFP4;
}

/* Blocks of a unit. */
static inline size_t kern_unit_blocks(enum kern_format f) {
    return (f >= KERN_Q2_K && f <= KERN_Q6_K) || f == KERN_IQ4_XS ? 8 : 1;
}

/* Bytes of a unit in a file. */
static inline size_t kern_unit_bytes(enum kern_format f) {
    switch (f) {
    case KERN_Q4_0:
    case KERN_IQ4_NL: return 18;
    case KERN_Q4_1: return 20;
    case KERN_Q5_0: return 22;
    case KERN_Q5_1: return 24;
    case KERN_Q8_0: return 34;
    case KERN_Q2_K: return 84;
    case KERN_Q3_K: return 110;
    case KERN_Q4_K: return 144;
    case KERN_Q5_K: return 176;
    case KERN_Q6_K: return 210;
    case KERN_IQ4_XS: return 136;
    default: return 17; /* KERN_MXFP4 */
    }
}

/* What the 4 bits of IQ4_NL and IQ4_XS mean, and those of MXFP4 (E2M1, doubled). */
#define KERN_IQ4_VALUES   -127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113
#define KERN_MXFP4_VALUES 0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12

/* Scale i (0 .. 15) of the twelve bytes of Q3_K: six bits, minus 32. */
static inline int kern_q3_k_scale(const uint8_t *s, size_t i) {
    int low = s[i % 8] >> (i < 8 ? 0 : 4) & 15, high = s[8 + i % 4] >> 2 * (i / 4) & 3;
    return (low | high << 4) - 32;
}

/* Scale of block i of an IQ4_XS unit: six bits, minus 32; high bits in bytes 2 and 3, low ones from byte 4.
 */
static inline int kern_iq4_xs_scale(const uint8_t *unit, size_t i) {
    int high = (unit[2] | unit[3] << 8) >> 2 * i & 3, low = unit[4 + i / 2] >> 4 * (i % 2) & 15;
    return (low | high << 4) - 32;
}

/* Block i of a unit as a file has it: the meaning of the formats (block_ref.c). */
void kern_block_read(struct kern_block *b, enum kern_format f, const void *unit, size_t i);

/* One block of a packed KERN_ACT_Q8 row, the same in all tables: x[i] ~ scale * q[i], |q[i]| <= 127.
 * A block that holds an infinity or NaN has scale NaN, so that every product with it is NaN; one whose
 * largest magnitude is below KERN_ACT_TINY is all zero. */
struct kern_act_block {
    int8_t q[KERN_BLOCK];
    float scale, scaled_sum;        /* scale * sum(q) */
    int32_t bias_sum, bias_half[2]; /* -128 * sum(q), and that of each half */
    int32_t words[2];               /* of each half: kern_act_words */
};

#define KERN_ACT_TINY 1e-30f

/* A half's sum in two 16-bit lanes, negative: the low one of the first two of every four q, the high one of
 * the others. */
static inline int32_t kern_act_words(int even, int odd) {
    return (int32_t)((uint32_t)(-even & 0xffff) | (uint32_t)-odd << 16);
}
static inline int kern_act_sum(int32_t words) {
    return -((int16_t)words + (words >> 16));
}

#endif
