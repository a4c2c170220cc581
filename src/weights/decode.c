/* Formats as the GGUF specification and the gguf Python package describe them, MXFP4 as the OCP Microscaling
 * Formats specification 1.0; multi-byte numbers are
 * little-endian, d, dmin and m are binary16. The order of the float operations is the package's, so that both
 * give the same bits. */
#include "weights/decode.h"
#include "weights/half.h"

#include <stdint.h>
#include <string.h>

static uint16_t load_u16(const uint8_t *p) {
    return (uint16_t)(p[0] | p[1] << 8);
}

static uint32_t load_u32(const uint8_t *p) {
    return load_u16(p) | (uint32_t)load_u16(p + 2) << 16;
}

static float load_f16(const uint8_t *p) {
    return half_f16_f32(load_u16(p));
}

void decode_f32(float *dst, const void *src, size_t n_blocks) {
    memcpy(dst, src, n_blocks * sizeof *dst);
}

void decode_f16(float *dst, const void *src, size_t n_blocks) {
    const uint8_t *p = src;
    for (size_t i = 0; i < n_blocks; i++) dst[i] = load_f16(p + 2 * i);
}

void decode_bf16(float *dst, const void *src, size_t n_blocks) {
    const uint8_t *p = src;
    for (size_t i = 0; i < n_blocks; i++) dst[i] = half_bf16_f32(load_u16(p + 2 * i));
}

/* The 8-bit floats of the OCP 8-bit floating point specification 1.0. E4M3: exponent bias 7, no infinity, all
 * ones is NaN. */
void decode_f8_e4m3(float *dst, const void *src, size_t n_blocks) {
    const uint8_t *p = src;
    for (size_t i = 0; i < n_blocks; i++) {
        uint32_t magnitude = p[i] & 0x7f, sign = p[i] >> 7;
        float v = half_bits_f32(magnitude << 20) * 0x1p120f; /* the exponent's bias is 127 there */
        if (magnitude == 0x7f) v = half_bits_f32(0x7fc00000);
        dst[i] = sign ? -v : v;
    }
}

/* E5M2: the upper byte of binary16 */
void decode_f8_e5m2(float *dst, const void *src, size_t n_blocks) {
    const uint8_t *p = src;
    for (size_t i = 0; i < n_blocks; i++) dst[i] = half_f16_f32((uint16_t)(p[i] << 8));
}

/* ---- 32 elements. A byte of q holds element j in its low and element j + 16 in its high nibble. ---- */

/* d; q[16]: d * (q - 8) */
void decode_q4_0(float *dst, const void *src, size_t n_blocks) {
    const uint8_t *p = src;
    for (; n_blocks--; p += 18, dst += 32) {
        float d = load_f16(p);
        for (int j = 0; j < 16; j++) {
            dst[j] = d * (float)((p[2 + j] & 15) - 8);
            dst[j + 16] = d * (float)((p[2 + j] >> 4) - 8);
        }
    }
}

/* d; m; q[16]: d * q + m */
void decode_q4_1(float *dst, const void *src, size_t n_blocks) {
    const uint8_t *p = src;
    for (; n_blocks--; p += 20, dst += 32) {
        float d = load_f16(p), m = load_f16(p + 2);
        for (int j = 0; j < 16; j++) {
            dst[j] = d * (float)(p[4 + j] & 15) + m;
            dst[j + 16] = d * (float)(p[4 + j] >> 4) + m;
        }
    }
}

/* d; u32 with the fifth bit of each element; q[16]: d * (q - 16) */
void decode_q5_0(float *dst, const void *src, size_t n_blocks) {
    const uint8_t *p = src;
    for (; n_blocks--; p += 22, dst += 32) {
        float d = load_f16(p);
        uint32_t high = load_u32(p + 2);
        for (int j = 0; j < 16; j++) {
            int low_q = (p[6 + j] & 15) | (int)(high >> j & 1) << 4;
            int high_q = p[6 + j] >> 4 | (int)(high >> (j + 16) & 1) << 4;
            dst[j] = d * (float)(low_q - 16);
            dst[j + 16] = d * (float)(high_q - 16);
        }
    }
}

/* d; m; u32 with the fifth bit of each element; q[16]: d * q + m */
void decode_q5_1(float *dst, const void *src, size_t n_blocks) {
    const uint8_t *p = src;
    for (; n_blocks--; p += 24, dst += 32) {
        float d = load_f16(p), m = load_f16(p + 2);
        uint32_t high = load_u32(p + 4);
        for (int j = 0; j < 16; j++) {
            int low_q = (p[8 + j] & 15) | (int)(high >> j & 1) << 4;
            int high_q = p[8 + j] >> 4 | (int)(high >> (j + 16) & 1) << 4;
            dst[j] = d * (float)low_q + m;
            dst[j + 16] = d * (float)high_q + m;
        }
    }
}

/* d; i8 q[32]: d * q */
void decode_q8_0(float *dst, const void *src, size_t n_blocks) {
    const uint8_t *p = src;
    for (; n_blocks--; p += 34, dst += 32) {
        float d = load_f16(p);
        for (int j = 0; j < 32; j++) dst[j] = d * (float)(int8_t)p[2 + j];
    }
}

/* What the four bits of IQ4_NL and IQ4_XS mean, and those of MXFP4 (E2M1, doubled). */
static const int8_t IQ4_VALUES[16] = {-127, -104, -83, -65, -49, -35, -22, -10,
                                      1,    13,   25,  38,  53,  69,  89,  113};
static const int8_t MXFP4_VALUES[16] = {0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12};

/* q[16]: d * values[q] */
static void decode_table(float *dst, const uint8_t *q, const int8_t *values, float d) {
    for (int j = 0; j < 16; j++) {
        dst[j] = d * (float)values[q[j] & 15];
        dst[j + 16] = d * (float)values[q[j] >> 4];
    }
}

/* d; q[16] */
void decode_iq4_nl(float *dst, const void *src, size_t n_blocks) {
    const uint8_t *p = src;
    for (; n_blocks--; p += 18, dst += 32) decode_table(dst, p + 2, IQ4_VALUES, load_f16(p));
}

/* u8 exponent; q[16]; the doubled values are multiplied by 2^(exponent - 128) */
void decode_mxfp4(float *dst, const void *src, size_t n_blocks) {
    const uint8_t *p = src;
    for (; n_blocks--; p += 17, dst += 32)
        decode_table(dst, p + 1, MXFP4_VALUES,
                     half_bits_f32(p[0] < 2 ? 0x00200000u << p[0] : (uint32_t)(p[0] - 1) << 23));
}

/* ---- 256 elements: two halves of 128, each four runs of 32 ---- */

/* u8 scales[16] (low nibble: scale, high nibble: min, of 16 elements); q[64], 2 bits an element; d; dmin:
 * d * scale * q - dmin * min. Run k of a half is bits 2k, 2k + 1 of that half's 32 bytes. */
void decode_q2_k(float *dst, const void *src, size_t n_blocks) {
    const uint8_t *p = src;
    for (; n_blocks--; p += 84, dst += 256) {
        const uint8_t *scales = p, *q = p + 16;
        float d = load_f16(p + 80), dmin = load_f16(p + 82);
        for (int i = 0; i < 256; i++) {
            int half = i / 128, run = i / 32 % 4, l = i % 32;
            float scale = d * (float)(scales[i / 16] & 15), min = dmin * (float)(scales[i / 16] >> 4);
            dst[i] = scale * (float)(q[half * 32 + l] >> 2 * run & 3) - min;
        }
    }
}

/* Bit masks[32]: bit b of byte l belongs to element 32 * b + l; q[64] as in Q2_K; scales[12]: sixteen 6-bit
 * numbers, low four bits in the nibbles of bytes 0..7, high two in bytes 8..11; d: d * (scale - 32) * (q -
 * (bit ? 0 : 4)). */
void decode_q3_k(float *dst, const void *src, size_t n_blocks) {
    const uint8_t *p = src;
    for (; n_blocks--; p += 110, dst += 256) {
        const uint8_t *masks = p, *q = p + 32, *packed = p + 96;
        float d = load_f16(p + 108), scales[16];
        for (int s = 0; s < 16; s++) {
            int low = packed[s % 8] >> (s < 8 ? 0 : 4) & 15, high = packed[8 + s % 4] >> 2 * (s / 4) & 3;
            scales[s] = d * (float)((low | high << 4) - 32);
        }
        for (int i = 0; i < 256; i++) {
            int half = i / 128, run = i / 32 % 4, l = i % 32;
            int v = (q[half * 32 + l] >> 2 * run & 3) - (masks[l] >> (i / 32) & 1 ? 0 : 4);
            dst[i] = scales[i / 16] * (float)v;
        }
    }
}

/* Scale and min j (0..7) of the twelve bytes of Q4_K and Q5_K: six bits each. */
static void scale_min(const uint8_t *s, int j, int *scale, int *min) {
    if (j < 4) {
        *scale = s[j] & 63;
        *min = s[j + 4] & 63;
    } else {
        *scale = (s[j + 4] & 15) | s[j - 4] >> 6 << 4;
        *min = s[j + 4] >> 4 | s[j] >> 6 << 4;
    }
}

/* d; dmin; scales[12]; q[128]: eight runs of 32; runs 2k and 2k + 1 are the low and high nibbles of 32 bytes:
 * d * scale * q - dmin * min */
void decode_q4_k(float *dst, const void *src, size_t n_blocks) {
    const uint8_t *p = src;
    for (; n_blocks--; p += 144, dst += 256) {
        float d = load_f16(p), dmin = load_f16(p + 2);
        for (int run = 0; run < 8; run++) {
            const uint8_t *q = p + 16 + run / 2 * 32;
            int scale, min, shift = run % 2 * 4;
            scale_min(p + 4, run, &scale, &min);
            float a = d * (float)scale, b = dmin * (float)min;
            for (int l = 0; l < 32; l++) dst[run * 32 + l] = a * (float)(q[l] >> shift & 15) - b;
        }
    }
}

/* As Q4_K, with a fifth bit of element 32 * run + l in bit `run` of high[l]: d; dmin; scales[12]; high[32];
 * q[128] */
void decode_q5_k(float *dst, const void *src, size_t n_blocks) {
    const uint8_t *p = src;
    for (; n_blocks--; p += 176, dst += 256) {
        const uint8_t *high = p + 16;
        float d = load_f16(p), dmin = load_f16(p + 2);
        for (int run = 0; run < 8; run++) {
            const uint8_t *q = p + 48 + run / 2 * 32;
            int scale, min, shift = run % 2 * 4;
            scale_min(p + 4, run, &scale, &min);
            float a = d * (float)scale, b = dmin * (float)min;
            for (int l = 0; l < 32; l++) {
                int v = (q[l] >> shift & 15) | (high[l] >> run & 1) << 4;
                dst[run * 32 + l] = a * (float)v - b;
            }
        }
    }
}

/* low[128]; high[64]; i8 scales[16]; d: d * scale * (q - 32). Of a half's 64 low bytes, runs 0 and 1 are the
 * low and runs 2 and 3 the high nibbles; its 32 high bytes hold two bits for each run. */
void decode_q6_k(float *dst, const void *src, size_t n_blocks) {
    const uint8_t *p = src;
    for (; n_blocks--; p += 210, dst += 256) {
        const uint8_t *low = p, *high = p + 128, *scales = p + 192;
        float d = load_f16(p + 208);
        for (int i = 0; i < 256; i++) {
            int half = i / 128, run = i / 32 % 4, l = i % 32;
            int low_q = low[half * 64 + run % 2 * 32 + l] >> run / 2 * 4 & 15;
            int v = (low_q | (high[half * 32 + l] >> 2 * run & 3) << 4) - 32;
            dst[i] = d * (float)(int8_t)scales[i / 16] * (float)v;
        }
    }
}

/* d; u16 with the high two bits of eight scales; their low nibbles[4]; q[128]: eight runs of 32, each as in
 * IQ4_NL: d * (scale - 32) * values[q] */
void decode_iq4_xs(float *dst, const void *src, size_t n_blocks) {
    const uint8_t *p = src;
    for (; n_blocks--; p += 136, dst += 256) {
        float d = load_f16(p);
        for (int run = 0; run < 8; run++) {
            int low = p[4 + run / 2] >> run % 2 * 4 & 15, high = load_u16(p + 2) >> 2 * run & 3;
            decode_table(dst + run * 32, p + 8 + run * 16, IQ4_VALUES, d * (float)((low | high << 4) - 32));
        }
    }
}
