/* IEEE half and bfloat16 to and from float by bit arithmetic, as the processor's conversions round them. */
#ifndef KERN_KERN_HALF_H
#define KERN_KERN_HALF_H

#include <stdint.h>
#include <string.h>

static inline uint32_t kern_float_bits(float x) {
    uint32_t u;
    memcpy(&u, &x, sizeof u);
    return u;
}

static inline float kern_bits_float(uint32_t u) {
    float x;
    memcpy(&x, &u, sizeof x);
    return x;
}

static inline float kern_from_bf16(uint16_t h) {
    return kern_bits_float((uint32_t)h << 16);
}

/* Round to nearest even; NaN stays NaN (made quiet). */
static inline uint16_t kern_to_bf16(float x) {
    uint32_t u = kern_float_bits(x);
    if ((u & 0x7fffffffu) > 0x7f800000u) return (uint16_t)(u >> 16 | 0x40u);
    return (uint16_t)((u + 0x7fffu + (u >> 16 & 1u)) >> 16);
}

static inline float kern_from_f16(uint16_t h) {
    uint32_t sign = (uint32_t)(h & 0x8000u) << 16, exponent = h >> 10 & 0x1fu, mantissa = h & 0x3ffu;
    if (exponent == 0) { /* zero or subnormal: mantissa * 2^-24 */
        float x = (float)mantissa * 0x1p-24f;
        return kern_bits_float(kern_float_bits(x) | sign);
    }
    if (exponent == 31) /* infinity or NaN, made quiet */
        return kern_bits_float(sign | 0x7f800000u | mantissa << 13 | (mantissa ? 0x400000u : 0));
    return kern_bits_float(sign | (exponent + 112) << 23 | mantissa << 13);
}

/* Round to nearest even; too large becomes infinity; NaN stays NaN. */
static inline uint16_t kern_to_f16(float x) {
    uint32_t u = kern_float_bits(x), sign = u >> 16 & 0x8000u, abs = u & 0x7fffffffu;
    if (abs > 0x7f800000u) return (uint16_t)(sign | 0x7e00u | (abs >> 13 & 0x3ffu));
    if (abs >= 0x477ff000u) return (uint16_t)(sign | 0x7c00u); /* 65520 and up */
    if (abs < 0x38800000u) { /* below 2^-14: adding 0.5 rounds to multiples of 2^-24 */
        float shifted = kern_bits_float(abs) + 0.5f;
        return (uint16_t)(sign | (kern_float_bits(shifted) - 0x3f000000u));
    }
    uint32_t rounded = abs - (112u << 23);
    rounded += 0xfffu + (rounded >> 13 & 1u);
    return (uint16_t)(sign | rounded >> 13);
}

#endif
