/* What any x86-64 has: SSE2. */
#include "bench/limits.h"

#include <emmintrin.h>

#define UNROLL _Pragma("GCC unroll 16")

uint64_t limit_f32_base(uint64_t n, float *sink) {
    __m128 sum[12], x = _mm_set1_ps(1e-3f), y = _mm_set1_ps(0.999f);
    UNROLL for (int i = 0; i < 12; i++) sum[i] = _mm_set1_ps((float)i);
    for (uint64_t r = 0; r < n; r++) {
        UNROLL for (int i = 0; i < 12; i++) sum[i] = _mm_add_ps(_mm_mul_ps(sum[i], y), x);
    }
    UNROLL for (int i = 0; i < 12; i++) sink[i] = _mm_cvtss_f32(sum[i]);
    return n * 12 * 4 * 2;
}

/* pmaddwd and the paddd that takes it in, on bytes widened before. */
uint64_t limit_int8_base(uint64_t n, float *sink) {
    __m128i sum[12], x = _mm_set1_epi16(3);
    UNROLL for (int i = 0; i < 12; i++) sum[i] = _mm_set1_epi32(i);
    for (uint64_t r = 0; r < n; r++) {
        UNROLL for (int i = 0; i < 12; i++) sum[i] =
            _mm_add_epi32(sum[i], _mm_madd_epi16(x, sum[(i + 1) % 12]));
    }
    UNROLL for (int i = 0; i < 12; i++) sink[i] = (float)_mm_cvtsi128_si32(sum[i]);
    return n * 12 * 8 * 2;
}

static inline __attribute__((always_inline)) void read_streams(const char *src, size_t bytes, const size_t n,
                                                               float *sink) {
    __m128i sum[8];
    size_t stream = bytes / n, step = 8 / n * 16;
    UNROLL for (size_t i = 0; i < 8; i++) sum[i] = _mm_setzero_si128();
    for (size_t j = 0; j < stream; j += step) {
        UNROLL for (size_t i = 0; i < 8; i++) {
            const char *at = src + i % n * stream + j + i / n * 16;
            sum[i] = _mm_add_epi32(sum[i], _mm_loadu_si128((const void *)(at)));
        }
    }
    UNROLL for (size_t i = 0; i < 8; i++) sink[i] = (float)_mm_cvtsi128_si32(sum[i]);
}

void limit_read_base(const void *p, size_t bytes, bool streams, float *sink) {
    if (streams)
        read_streams(p, bytes, 4, sink);
    else
        read_streams(p, bytes, 1, sink);
}
