#include "bench/limits.h"

#include <immintrin.h>

#define UNROLL _Pragma("GCC unroll 16")

uint64_t limit_bf16_avx512(uint64_t n, float *sink) {
    __m512 sum[16];
    __m512bh x = (__m512bh)_mm512_set1_epi32(0x3a833a83), y = (__m512bh)_mm512_set1_epi32(0x3f80bf80);
    UNROLL for (int i = 0; i < 16; i++) sum[i] = _mm512_set1_ps((float)i);
    for (uint64_t r = 0; r < n; r++) {
        UNROLL for (int i = 0; i < 16; i++) sum[i] = _mm512_dpbf16_ps(sum[i], x, y);
    }
    UNROLL for (int i = 0; i < 16; i++) sink[i] = _mm512_cvtss_f32(sum[i]);
    return n * 16 * 32 * 2;
}
