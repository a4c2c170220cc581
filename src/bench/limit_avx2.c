#include "bench/limits.h"

#include <immintrin.h>

#define UNROLL _Pragma("GCC unroll 16")

uint64_t limit_f32_avx2(uint64_t n, float *sink) {
    __m256 sum[12], x = _mm256_set1_ps(1e-3f), y = _mm256_set1_ps(0.999f);
    UNROLL for (int i = 0; i < 12; i++) sum[i] = _mm256_set1_ps((float)i);
    for (uint64_t r = 0; r < n; r++) {
        UNROLL for (int i = 0; i < 12; i++) sum[i] = _mm256_fmadd_ps(sum[i], y, x);
    }
    UNROLL for (int i = 0; i < 12; i++) sink[i] = _mm256_cvtss_f32(sum[i]);
    return n * 12 * 8 * 2;
}

/* vpmaddubsw and the vpaddw that takes it in: the least that 8-bit products need. No product waits for a sum.
 */
uint64_t limit_int8_avx2(uint64_t n, float *sink) {
    __m256i sum[8], x = _mm256_set1_epi8(3), y = _mm256_set1_epi8(5);
    UNROLL for (int i = 0; i < 8; i++) sum[i] = _mm256_set1_epi16((short)i);
    for (uint64_t r = 0; r < n; r++) {
        UNROLL for (int i = 0; i < 8; i++) {
            __asm__("" : "+x"(x)); /* another product each time, as far as the compiler knows */
            sum[i] = _mm256_add_epi16(sum[i], _mm256_maddubs_epi16(x, y));
        }
    }
    UNROLL for (int i = 0; i < 8; i++) sink[i] = (float)_mm256_extract_epi16(sum[i], 0);
    return n * 8 * 32 * 2;
}

static inline __attribute__((always_inline)) void read_streams(const char *src, size_t bytes, const size_t n,
                                                               float *sink) {
    __m256i sum[8];
    size_t stream = bytes / n, step = 8 / n * 32;
    UNROLL for (size_t i = 0; i < 8; i++) sum[i] = _mm256_setzero_si256();
    for (size_t j = 0; j < stream; j += step) {
        UNROLL for (size_t i = 0; i < 8; i++) {
            const char *at = src + i % n * stream + j + i / n * 32;
            sum[i] = _mm256_add_epi32(sum[i], _mm256_loadu_si256((const void *)(at)));
        }
    }
    UNROLL for (size_t i = 0; i < 8; i++) sink[i] = (float)_mm256_extract_epi32(sum[i], 0);
}

void limit_read_avx2(const void *p, size_t bytes, bool streams, float *sink) {
    if (streams)
        read_streams(p, bytes, 4, sink);
    else
        read_streams(p, bytes, 1, sink);
}
