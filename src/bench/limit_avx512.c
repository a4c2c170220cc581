#include "bench/limits.h"

#include <immintrin.h>

#define UNROLL _Pragma("GCC unroll 16")

uint64_t limit_f32_avx512(uint64_t n, float *sink) {
    __m512 sum[16], x = _mm512_set1_ps(1e-3f), y = _mm512_set1_ps(0.999f);
    UNROLL for (int i = 0; i < 16; i++) sum[i] = _mm512_set1_ps((float)i);
    for (uint64_t r = 0; r < n; r++) {
        UNROLL for (int i = 0; i < 16; i++) sum[i] = _mm512_fmadd_ps(sum[i], y, x);
    }
    UNROLL for (int i = 0; i < 16; i++) sink[i] = _mm512_cvtss_f32(sum[i]);
    return n * 16 * 16 * 2;
}

uint64_t limit_int8_avx512(uint64_t n, float *sink) {
    __m512i sum[16], x = _mm512_set1_epi8(3), y = _mm512_set1_epi8(-2);
    UNROLL for (int i = 0; i < 16; i++) sum[i] = _mm512_set1_epi32(i);
    for (uint64_t r = 0; r < n; r++) {
        UNROLL for (int i = 0; i < 16; i++) sum[i] = _mm512_dpbusd_epi32(sum[i], x, y);
    }
    UNROLL for (int i = 0; i < 16; i++) sink[i] = _mm512_cvtss_f32(_mm512_cvtepi32_ps(sum[i]));
    return n * 16 * 64 * 2;
}

static inline __attribute__((always_inline)) void read_streams(const char *src, size_t bytes, const size_t n,
                                                               float *sink) {
    __m512i sum[8];
    size_t stream = bytes / n, step = 8 / n * 64;
    UNROLL for (size_t i = 0; i < 8; i++) sum[i] = _mm512_setzero_si512();
    for (size_t j = 0; j < stream; j += step) {
        UNROLL for (size_t i = 0; i < 8; i++) {
            const char *at = src + i % n * stream + j + i / n * 64;
            sum[i] = _mm512_add_epi32(sum[i], _mm512_loadu_si512(at));
        }
    }
    UNROLL for (size_t i = 0; i < 8; i++) sink[i] = _mm512_cvtss_f32(_mm512_cvtepi32_ps(sum[i]));
}

void limit_read_avx512(const void *p, size_t bytes, bool streams, float *sink) {
    if (streams)
        read_streams(p, bytes, 4, sink);
    else
        read_streams(p, bytes, 1, sink);
}
