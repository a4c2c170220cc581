/* The two 16-bit float formats as float: IEEE 754 binary16, and bfloat16 (the upper half of a float). Both
 * exact. */
#ifndef WEIGHTS_HALF_H
#define WEIGHTS_HALF_H

#include <stdint.h>
#include <string.h>

static inline float half_bits_f32(uint32_t bits) {
    float v;
    memcpy(&v, &bits, sizeof v);
    return v;
}

static inline float half_f16_f32(uint16_t h) {
    uint32_t sign = (uint32_t)(h & 0x8000) << 16, exponent = h >> 10 & 31, mantissa = h & 0x3ff;
    if (exponent == 31) return half_bits_f32(sign | 0x7f800000 | mantissa << 13);
    if (exponent) return half_bits_f32(sign | (exponent + 112) << 23 | mantissa << 13);
    float v = (float)mantissa * 0x1p-24f; /* zero and subnormals */
    return sign ? -v : v;
}

static inline float half_bf16_f32(uint16_t h) {
    return half_bits_f32((uint32_t)h << 16);
}

#endif
