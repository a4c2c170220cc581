#include "util/tiny_quant.h"

#include <math.h>
#include <string.h>

enum {
    F32 = 0,
    F16 = 1,
    Q4_0 = 2,
    Q4_1 = 3,
    Q8_0 = 8,
    Q2_K = 10,
    Q3_K,
    Q4_K,
    Q5_K,
    Q6_K,
    BF16 = 30,
    MXFP4 = 39
};

uint16_t tiny_f16(float v) {
    uint32_t bits;
    memcpy(&bits, &v, 4);
    uint16_t sign = (uint16_t)(bits >> 16 & 0x8000);
    bits &= 0x7fffffff;
    if (bits > 0x7f800000) return sign | 0x7e00;
    if (bits >= 0x477ff000) return sign | 0x7c00;                  /* 65520 and up round to infinity */
    int shift = bits >= 0x38800000 ? 13 : 126 - (int)(bits >> 23); /* below 2^-14: subnormal */
    if (shift > 24) return sign;
    uint32_t mantissa = shift == 13 ? bits - 0x38000000 : (bits & 0x7fffff) | 0x800000;
    uint32_t rounded = mantissa >> shift, rest = mantissa & ((1u << shift) - 1), half = 1u << (shift - 1);
    if (rest > half || (rest == half && (rounded & 1))) rounded++;
    return sign | (uint16_t)rounded;
}

uint16_t tiny_bf16(float v) {
    uint32_t bits;
    memcpy(&bits, &v, 4);
    return (uint16_t)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

static const struct {
    uint8_t type;
    uint16_t elems, bytes;
    int16_t d_at, dmin_at;  /* of random blocks; -1 = none */
    float dmin_ratio, unit; /* dmin / d, and the standard deviation of an element at d = 1 */
} FORMATS[] = {
    {F32, 1, 4, -1, -1, 0, 0},
    {F16, 1, 2, -1, -1, 0, 0},
    {BF16, 1, 2, -1, -1, 0, 0},
    {Q4_0, 32, 18, -1, -1, 0, 0},
    {Q4_1, 32, 20, -1, -1, 0, 0},
    {Q8_0, 32, 34, -1, -1, 0, 0},
    {Q2_K, 256, 84, 80, 82, 1.5f, 15.2f},
    {Q3_K, 256, 110, 108, -1, 0, 43.2f},
    {Q4_K, 256, 144, 0, 2, 7.5f, 255.6f},
    {Q5_K, 256, 176, 0, 2, 15.5f, 525.0f},
    {Q6_K, 256, 210, 208, -1, 0, 1366.0f},
    {MXFP4, 32, 17, 0, -1, 0, 2.926f}, /* d: the exponent byte */
};

static int find(unsigned type) {
    for (size_t i = 0; i < sizeof FORMATS / sizeof *FORMATS; i++) {
        if (FORMATS[i].type == type) return (int)i;
    }
    return -1;
}

bool tiny_quant_block(unsigned type, size_t *elems, size_t *bytes) {
    int i = find(type);
    if (i < 0) return false;
    *elems = FORMATS[i].elems;
    *bytes = FORMATS[i].bytes;
    return true;
}

static void put_u16(uint8_t *dst, uint16_t v) {
    dst[0] = (uint8_t)v;
    dst[1] = (uint8_t)(v >> 8);
}

static float signed_extreme(const float *x) { /* the element of greatest magnitude, the first of equals */
    float best = x[0];
    for (int i = 1; i < 32; i++) {
        if (fabsf(x[i]) > fabsf(best)) best = x[i];
    }
    return best;
}

static uint8_t nibble(float v) {
    return (uint8_t)(v > 15 ? 15 : v);
}

static void block_q4_0(uint8_t *dst, const float *x) {
    float d = signed_extreme(x) / -8, inverse = d != 0 ? 1 / d : 0;
    put_u16(dst, tiny_f16(d));
    for (int i = 0; i < 16; i++) {
        dst[2 + i] = (uint8_t)(nibble(x[i] * inverse + 8.5f) | nibble(x[i + 16] * inverse + 8.5f) << 4);
    }
}

static void block_q4_1(uint8_t *dst, const float *x) {
    float min = x[0], max = x[0];
    for (int i = 1; i < 32; i++) {
        min = fminf(min, x[i]);
        max = fmaxf(max, x[i]);
    }
    float d = (max - min) / 15, inverse = d != 0 ? 1 / d : 0;
    put_u16(dst, tiny_f16(d));
    put_u16(dst + 2, tiny_f16(min));
    for (int i = 0; i < 16; i++) {
        uint8_t low = nibble((x[i] - min) * inverse + 0.5f),
                high = nibble((x[i + 16] - min) * inverse + 0.5f);
        dst[4 + i] = (uint8_t)(low | high << 4);
    }
}

static void block_q8_0(uint8_t *dst, const float *x) {
    float d = fabsf(signed_extreme(x)) / 127, inverse = d != 0 ? 1 / d : 0;
    put_u16(dst, tiny_f16(d));
    for (int i = 0; i < 32; i++) dst[2 + i] = (uint8_t)(int8_t)roundf(x[i] * inverse);
}

void tiny_quant(void *dst, unsigned type, const float *src, size_t n) {
    uint8_t *out = dst;
    switch (type) {
    case F32: memcpy(out, src, n * 4); break;
    case F16:
        for (size_t i = 0; i < n; i++) put_u16(out + 2 * i, tiny_f16(src[i]));
        break;
    case BF16:
        for (size_t i = 0; i < n; i++) put_u16(out + 2 * i, tiny_bf16(src[i]));
        break;
    case Q4_0:
        for (size_t i = 0; i < n / 32; i++) block_q4_0(out + 18 * i, src + 32 * i);
        break;
    case Q4_1:
        for (size_t i = 0; i < n / 32; i++) block_q4_1(out + 20 * i, src + 32 * i);
        break;
    case Q8_0:
        for (size_t i = 0; i < n / 32; i++) block_q8_0(out + 34 * i, src + 32 * i);
        break;
    default: break;
    }
}

bool tiny_quant_is_random(unsigned type) {
    int i = find(type);
    return i >= 0 && FORMATS[i].d_at >= 0;
}

void tiny_quant_scale_random(uint8_t *blocks, unsigned type, size_t n_blocks, double std) {
    int f = find(type);
    float d = (float)(std / (double)FORMATS[f].unit);
    for (size_t i = 0; i < n_blocks; i++) {
        uint8_t *block = blocks + i * FORMATS[f].bytes;
        if (type == MXFP4) {
            block[0] = (uint8_t)lround(127 + log2(d));
            continue;
        }
        put_u16(block + FORMATS[f].d_at, tiny_f16(d));
        if (FORMATS[f].dmin_at >= 0) put_u16(block + FORMATS[f].dmin_at, tiny_f16(d * FORMATS[f].dmin_ratio));
    }
}
