/* The block formats of weights, element by element. Multi-byte numbers are little-endian. */
#include "kern/kern_block.h"
#include "kern/kern_half.h"

static const int8_t IQ4_VALUES[16] = {KERN_IQ4_VALUES};
static const int8_t MXFP4_VALUES[16] = {KERN_MXFP4_VALUES};

static float load_half(const uint8_t *p) {
    return kern_from_f16((uint16_t)(p[0] | p[1] << 8));
}

/* 16 bytes: element j in the low half of byte j, element j + 16 in the high half. */
static unsigned nibble(const uint8_t *bytes, size_t j) {
    return j < 16 ? bytes[j] & 15u : bytes[j - 16] >> 4;
}

static void set_scales(struct kern_block *b, float d0, float d1, float m0, float m1) {
    b->d[0] = d0;
    b->d[1] = d1;
    b->m[0] = m0;
    b->m[1] = m1;
}

/* ---- units of one block ---- */

/* d; m where the format has it; a fifth bit of each element where it has that; 16 bytes of nibbles */
static void read_4_5_bits(struct kern_block *b, enum kern_format f, const uint8_t *p) {
    bool has_m = f == KERN_Q4_1 || f == KERN_Q5_1, has_fifth = f == KERN_Q5_0 || f == KERN_Q5_1;
    float d = load_half(p), m = has_m ? load_half(p + 2) : 0.0f;
    const uint8_t *fifth = p + (has_m ? 4 : 2), *low = fifth + (has_fifth ? 4 : 0);
    int bias = has_m ? 0 : has_fifth ? 16 : 8;
    for (size_t j = 0; j < KERN_BLOCK; j++) {
        unsigned high = has_fifth ? fifth[j / 8] >> j % 8 & 1u : 0;
        b->q[j] = (int16_t)((int)(nibble(low, j) | high << 4) - bias);
    }
    set_scales(b, d, d, m, m);
}

static void read_table(struct kern_block *b, const int8_t *values, const uint8_t *nibbles, float d) {
    for (size_t j = 0; j < KERN_BLOCK; j++) b->q[j] = values[nibble(nibbles, j)];
    set_scales(b, d, d, 0.0f, 0.0f);
}

/* The exponent byte of MXFP4, for values that are doubled: 2^(e - 128). */
static float half_power(uint8_t e) {
    return kern_bits_float(e < 2 ? 0x00200000u << e : (uint32_t)(e - 1) << 23);
}

/* ---- units of eight blocks: two halves of 128 elements, each four runs of 32 ---- */

/* scales[16]: scale in the low, minimum in the high nibble; q[64]; d; dmin */
static void read_q2_k(struct kern_block *b, const uint8_t *p, size_t i) {
    const uint8_t *scales = p + 2 * i, *q = p + 16 + i / 4 * 32;
    float d = load_half(p + 80), dmin = load_half(p + 82);
    for (size_t j = 0; j < KERN_BLOCK; j++) b->q[j] = q[j] >> 2 * (i % 4) & 3;
    set_scales(b, d * (float)(scales[0] & 15), d * (float)(scales[1] & 15), -dmin * (float)(scales[0] >> 4),
               -dmin * (float)(scales[1] >> 4));
}

/* masks[32]; q[64]; scales[12]; d */
static void read_q3_k(struct kern_block *b, const uint8_t *p, size_t i) {
    const uint8_t *q = p + 32 + i / 4 * 32;
    float d = load_half(p + 108);
    for (size_t j = 0; j < KERN_BLOCK; j++)
        b->q[j] = (int16_t)((q[j] >> 2 * (i % 4) & 3) - (p[j] >> i & 1 ? 0 : 4));
    set_scales(b, d * (float)kern_q3_k_scale(p + 96, 2 * i), d * (float)kern_q3_k_scale(p + 96, 2 * i + 1),
               0.0f, 0.0f);
}

/* d; dmin; scales[12]: six bits each of 8 scales and 8 minimums; Q5_K: a fifth bit in bit i of 32 bytes;
 * q[128]: blocks 2k and 2k + 1 are the low and high nibbles of 32 bytes */
static void read_q4_q5_k(struct kern_block *b, enum kern_format f, const uint8_t *p, size_t i) {
    const uint8_t *s = p + 4, *fifth = p + 16, *q = p + (f == KERN_Q5_K ? 48 : 16) + i / 2 * 32;
    int scale = s[i & 3] & 63, min = s[(i & 3) + 4] & 63;
    if (i >= 4) {
        scale = (s[i + 4] & 15) | s[i - 4] >> 6 << 4;
        min = s[i + 4] >> 4 | s[i] >> 6 << 4;
    }
    for (size_t j = 0; j < KERN_BLOCK; j++) {
        int high = f == KERN_Q5_K ? fifth[j] >> i & 1 : 0;
        b->q[j] = (int16_t)((q[j] >> 4 * (i % 2) & 15) | high << 4);
    }
    float d = load_half(p) * (float)scale, m = -load_half(p + 2) * (float)min;
    set_scales(b, d, d, m, m);
}

/* low[128]; high[64]; i8 scales[16]; d */
static void read_q6_k(struct kern_block *b, const uint8_t *p, size_t i) {
    const uint8_t *low = p + i / 4 * 64 + i % 2 * 32, *high = p + 128 + i / 4 * 32;
    float d = load_half(p + 208);
    for (size_t j = 0; j < KERN_BLOCK; j++) {
        int v = (low[j] >> i % 4 / 2 * 4 & 15) | (high[j] >> 2 * (i % 4) & 3) << 4;
        b->q[j] = (int16_t)(v - 32);
    }
    const uint8_t *s = p + 192 + 2 * i;
    set_scales(b, d * (float)(int8_t)s[0], d * (float)(int8_t)s[1], 0.0f, 0.0f);
}

void kern_block_read(struct kern_block *b, enum kern_format f, const void *unit, size_t i) {
    const uint8_t *p = unit;
    switch (f) {
    case KERN_Q8_0:
        for (size_t j = 0; j < KERN_BLOCK; j++) b->q[j] = (int8_t)p[2 + j];
        set_scales(b, load_half(p), load_half(p), 0.0f, 0.0f);
        break;
    case KERN_Q2_K: read_q2_k(b, p, i); break;
    case KERN_Q3_K: read_q3_k(b, p, i); break;
    case KERN_Q4_K:
    case KERN_Q5_K: read_q4_q5_k(b, f, p, i); break;
    case KERN_Q6_K: read_q6_k(b, p, i); break;
    case KERN_IQ4_NL: read_table(b, IQ4_VALUES, p + 2, load_half(p)); break;
    case KERN_IQ4_XS:
        read_table(b, IQ4_VALUES, p + 8 + 16 * i, load_half(p) * (float)kern_iq4_xs_scale(p, i));
        break;
    case KERN_MXFP4: read_table(b, MXFP4_VALUES, p + 1, half_power(p[0])); break;
    default: read_4_5_bits(b, f, p); break;
    }
}
