/* The AVX-512 that the kernels use, on AVX2: SIMDe (https://github.com/simd-everywhere/simde), and here what
 * SIMDe 0.7.4 lacks, has wrong or does too slowly, written from the Intel SDM, vol. 2. Found instead of the
 * compiler's header of this name, which it includes, by sources that are compiled with this folder ahead. */
#ifndef TESTS_KERN_EMULATED_IMMINTRIN_H
#define TESTS_KERN_EMULATED_IMMINTRIN_H

#include_next <immintrin.h>

#define SIMDE_ENABLE_NATIVE_ALIASES
#include <simde/x86/avx512.h>

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

/* A vector and its halves. */
union emu {
    __m512 f;
    __m512i i;
    __m512d d;
    __m256 f2[2];
    __m256i i2[2];
    __m256d d2[2];
};

static inline __m512 emu_f(__m256 low, __m256 high) {
    return (union emu){.f2 = {low, high}}.f;
}
static inline __m512i emu_i(__m256i low, __m256i high) {
    return (union emu){.i2 = {low, high}}.i;
}

/* Bit n of a mask as all ones in lane n, of 8 lanes of 32 bits. */
static inline __m256i emu_lanes(unsigned mask) {
    const __m256i bit = _mm256_setr_epi32(1, 2, 4, 8, 16, 32, 64, 128);
    return _mm256_cmpeq_epi32(_mm256_and_si256(_mm256_set1_epi32((int)mask), bit), bit);
}

/* ---- memory: what is masked is not touched, what has to be aligned is ---- */

static inline __m512 emu_maskz_loadu_ps(__mmask16 mask, const float *p) {
    return emu_f(_mm256_maskload_ps(p, emu_lanes(mask)), _mm256_maskload_ps(p + 8, emu_lanes(mask >> 8)));
}
static inline void emu_mask_storeu_ps(float *p, __mmask16 mask, __m512 x) {
    union emu u = {.f = x};
    _mm256_maskstore_ps(p, emu_lanes(mask), u.f2[0]);
    _mm256_maskstore_ps(p + 8, emu_lanes(mask >> 8), u.f2[1]);
}
static inline __m256i emu_maskz_loadu_epi16(__mmask16 mask, const void *p) {
    uint16_t h[16];
    for (size_t n = 0; n < 16; n++) {
        h[n] = 0;
        if (mask >> n & 1) memcpy(&h[n], (const char *)p + 2 * n, 2);
    }
    __m256i x;
    memcpy(&x, h, sizeof x);
    return x;
}
static inline void emu_mask_store_halves(void *p, uint32_t mask, const void *x, size_t lanes) {
    for (size_t n = 0; n < lanes; n++)
        if (mask >> n & 1) memcpy((char *)p + 2 * n, (const char *)x + 2 * n, 2);
}
static inline void emu256_mask_storeu_epi16(void *p, __mmask16 mask, __m256i x) {
    emu_mask_store_halves(p, mask, &x, 16);
}
static inline void emu512_mask_storeu_epi16(void *p, __mmask32 mask, __m512i x) {
    emu_mask_store_halves(p, mask, &x, 32);
}

static inline void emu_demand_aligned(const void *p) {
    if ((uintptr_t)p % 64) __builtin_trap();
}
static inline __m512i emu_load_si512(const void *p) {
    emu_demand_aligned(p);
    return simde_mm512_loadu_si512(p);
}
static inline void emu_store_si512(void *p, __m512i x) {
    emu_demand_aligned(p);
    simde_mm512_storeu_si512(p, x);
}

/* ---- conversions ---- */

static inline __m512i emu_cvtepu16_epi32(__m256i x) {
    return emu_i(_mm256_cvtepu16_epi32(_mm256_castsi256_si128(x)),
                 _mm256_cvtepu16_epi32(_mm256_extracti128_si256(x, 1)));
}
static inline __m512i emu_cvtepu8_epi32(__m128i x) {
    return emu_i(_mm256_cvtepu8_epi32(x), _mm256_cvtepu8_epi32(_mm_srli_si128(x, 8)));
}
/* Lower halves and lower bytes of the lanes. */
static inline __m256i emu_cvtepi32_epi16(__m512i x) {
    union emu u = {.i = x};
    const __m256i low = _mm256_set1_epi32(0xffff);
    __m256i packed = _mm256_packus_epi32(_mm256_and_si256(u.i2[0], low), _mm256_and_si256(u.i2[1], low));
    return _mm256_permute4x64_epi64(packed, 0xd8); /* packed within 128 bits: 0 2 1 3 */
}
static inline __m128i emu_cvtepi32_epi8(__m512i x) {
    __m256i h = _mm256_and_si256(emu_cvtepi32_epi16(x), _mm256_set1_epi16(0xff));
    return _mm_packus_epi16(_mm256_castsi256_si128(h), _mm256_extracti128_si256(h, 1));
}
static inline __m512 emu_cvtepi32_ps(__m512i x) {
    union emu u = {.i = x};
    return emu_f(_mm256_cvtepi32_ps(u.i2[0]), _mm256_cvtepi32_ps(u.i2[1]));
}
static inline __m512i emu_cvtps_epi32(__m512 x) {
    union emu u = {.f = x};
    return emu_i(_mm256_cvtps_epi32(u.f2[0]), _mm256_cvtps_epi32(u.f2[1]));
}
static inline __m512d emu_cvtps_pd(__m256 x) {
    return (union emu){
        .d2 = {_mm256_cvtps_pd(_mm256_castps256_ps128(x)), _mm256_cvtps_pd(_mm256_extractf128_ps(x, 1))}}
        .d;
}
static inline __m512 emu_cvtph_ps(__m256i x) {
    return emu_f(_mm256_cvtph_ps(_mm256_castsi256_si128(x)), _mm256_cvtph_ps(_mm256_extracti128_si256(x, 1)));
}
#define emu_cvtps_ph(x, rounding)                                                                            \
    __extension__({                                                                                          \
        union emu emu_u = {.f = (x)};                                                                        \
        _mm256_set_m128i(_mm256_cvtps_ph(emu_u.f2[1], (rounding)&7),                                         \
                         _mm256_cvtps_ph(emu_u.f2[0], (rounding)&7));                                        \
    })

/* ---- lanes ---- */

#define emu_permute_ps(x, order)                                                                             \
    __extension__({                                                                                          \
        union emu emu_u = {.f = (x)};                                                                        \
        emu_f(_mm256_permute_ps(emu_u.f2[0], order), _mm256_permute_ps(emu_u.f2[1], order));                 \
    })
static inline __m256 emu_extractf32x8_ps(__m512 x, int half) {
    return (union emu){.f = x}.f2[half];
}
static inline float emu_cvtss_f32(__m512 x) {
    return _mm256_cvtss_f32(emu_extractf32x8_ps(x, 0));
}
static inline __mmask16 emu256_cmpeq_epi16_mask(__m256i a, __m256i b) {
    __m256i equal = _mm256_cmpeq_epi16(a, b);
    return (__mmask16)_mm_movemask_epi8(
        _mm_packs_epi16(_mm256_castsi256_si128(equal), _mm256_extracti128_si256(equal, 1)));
}
static inline __mmask32 emu512_cmpeq_epi16_mask(__m512i a, __m512i b) {
    union emu x = {.i = a}, y = {.i = b};
    return emu256_cmpeq_epi16_mask(x.i2[0], y.i2[0]) |
           (__mmask32)emu256_cmpeq_epi16_mask(x.i2[1], y.i2[1]) << 16;
}

/* ---- arithmetic ---- */

/* Also of -0 and of NaN. */
static inline __m512 emu_abs_ps(__m512 x) {
    union emu u = {.f = x};
    const __m256 rest = _mm256_castsi256_ps(_mm256_set1_epi32(0x7fffffff));
    return emu_f(_mm256_and_ps(u.f2[0], rest), _mm256_and_ps(u.f2[1], rest));
}

/* Each byte of a is multiplied alone: two products would not fit 16 bits. */
static inline __m256i emu_dpbusd_8(__m256i sum, __m256i a, __m256i b) {
    const __m256i even = _mm256_set1_epi16(0xff), ones = _mm256_set1_epi16(1);
    __m256i x = _mm256_maddubs_epi16(_mm256_and_si256(a, even), b);
    __m256i y = _mm256_maddubs_epi16(_mm256_andnot_si256(even, a), b);
    return _mm256_add_epi32(sum, _mm256_add_epi32(_mm256_madd_epi16(x, ones), _mm256_madd_epi16(y, ones)));
}
static inline __m512i emu_dpbusd_epi32(__m512i sum, __m512i a, __m512i b) {
    union emu s = {.i = sum}, x = {.i = a}, y = {.i = b};
    return emu_i(emu_dpbusd_8(s.i2[0], x.i2[0], y.i2[0]), emu_dpbusd_8(s.i2[1], x.i2[1], y.i2[1]));
}

/* x - floor(x), rounded down as well; zero of an infinity. */
static inline __m256 emu_reduce_down_8(__m256 x) {
    const __m256 sign = _mm256_set1_ps(-0.0f), infinity = _mm256_set1_ps(__builtin_inff());
    __m256 whole = _mm256_floor_ps(x), rest = _mm256_sub_ps(x, whole);
    __m256 error = _mm256_sub_ps(x, _mm256_add_ps(rest, whole)); /* exact: |whole| >= |x| or rest is */
    __m256i less = _mm256_castps_si256(_mm256_cmp_ps(error, _mm256_setzero_ps(), _CMP_LT_OQ));
    rest = _mm256_castsi256_ps(_mm256_add_epi32(_mm256_castps_si256(rest), less));
    __m256 infinite = _mm256_cmp_ps(_mm256_andnot_ps(sign, x), infinity, _CMP_EQ_OQ);
    return _mm256_andnot_ps(infinite, rest);
}
static inline __m512 emu_reduce_down(__m512 x) {
    union emu u = {.f = x};
    return emu_f(emu_reduce_down_8(u.f2[0]), emu_reduce_down_8(u.f2[1]));
}
#define emu_reduce_ps(x, how)                                                                                \
    __extension__({                                                                                          \
        _Static_assert((how) == (_MM_FROUND_TO_NEG_INF | _MM_FROUND_NO_EXC), "only this is written");        \
        emu_reduce_down(x);                                                                                  \
    })

/* a * 2^floor(b) with one rounding. In double the product is exact, where |b| is so large that it matters no
 * more. */
static inline __m128 emu_scalef_4(__m128 a, __m128 b) {
    const __m128d most = _mm_set1_pd(400.0), least = _mm_set1_pd(-400.0);
    __m128 r = a;
    for (int half = 0; half < 2; half++) {
        __m128d x = _mm_cvtps_pd(half ? _mm_movehl_ps(a, a) : a);
        __m128d n = _mm_floor_pd(_mm_cvtps_pd(half ? _mm_movehl_ps(b, b) : b));
        n = _mm_max_pd(_mm_min_pd(n, most), least); /* of NaN anything: see below */
        __m128i e = _mm_add_epi32(_mm_cvtpd_epi32(n), _mm_set1_epi32(1023));
        __m128d power = _mm_castsi128_pd(_mm_slli_epi64(_mm_cvtepu32_epi64(e), 52));
        __m128 y = _mm_cvtpd_ps(_mm_mul_pd(x, power));
        r = half ? _mm_movelh_ps(r, y) : y;
    }
    return r;
}
static inline __m256 emu_scalef_8(__m256 a, __m256 b) {
    const __m256 infinity = _mm256_set1_ps(__builtin_inff()), sign = _mm256_set1_ps(-0.0f);
    __m256 r = _mm256_set_m128(emu_scalef_4(_mm256_extractf128_ps(a, 1), _mm256_extractf128_ps(b, 1)),
                               emu_scalef_4(_mm256_castps256_ps128(a), _mm256_castps256_ps128(b)));
    __m256 size = _mm256_andnot_ps(sign, a), b_nan = _mm256_cmp_ps(b, b, _CMP_UNORD_Q);
    __m256 a_nan = _mm256_cmp_ps(a, a, _CMP_UNORD_Q);
    __m256 up = _mm256_cmp_ps(b, infinity, _CMP_EQ_OQ);
    __m256 down = _mm256_cmp_ps(b, _mm256_or_ps(infinity, sign), _CMP_EQ_OQ);
    __m256 zero = _mm256_cmp_ps(a, _mm256_setzero_ps(), _CMP_EQ_OQ),
           infinite = _mm256_cmp_ps(size, infinity, 0);
    /* 0 * inf; a NaN counts as a number here */
    __m256 invalid = _mm256_or_ps(_mm256_and_ps(up, zero), _mm256_and_ps(down, infinite));
    r = _mm256_blendv_ps(r, _mm256_or_ps(infinity, _mm256_and_ps(a, sign)), up);
    r = _mm256_blendv_ps(r, _mm256_and_ps(a, sign), down);
    r = _mm256_blendv_ps(r, _mm256_andnot_ps(sign, r), _mm256_and_ps(a_nan, _mm256_or_ps(up, down)));
    r = _mm256_blendv_ps(r, _mm256_set1_ps(__builtin_nanf("")), invalid);
    return _mm256_blendv_ps(r, _mm256_add_ps(a, b), b_nan);
}
static inline __m512 emu_scalef_ps(__m512 a, __m512 b) {
    union emu x = {.f = a}, n = {.f = b};
    return emu_f(emu_scalef_8(x.f2[0], n.f2[0]), emu_scalef_8(x.f2[1], n.f2[1]));
}

/* ---- by the names of the compiler's ---- */

#undef _mm256_cmpeq_epi16_mask
#undef _mm256_mask_storeu_epi16
#undef _mm256_maskz_loadu_epi16
#undef _mm512_abs_ps
#undef _mm512_cmpeq_epi16_mask
#undef _mm512_cvtepi32_epi16
#undef _mm512_cvtepi32_epi8
#undef _mm512_cvtepi32_ps
#undef _mm512_cvtepu16_epi32
#undef _mm512_cvtepu8_epi32
#undef _mm512_cvtph_ps
#undef _mm512_cvtps_epi32
#undef _mm512_cvtps_pd
#undef _mm512_cvtps_ph
#undef _mm512_cvtss_f32
#undef _mm512_dpbusd_epi32
#undef _mm512_extractf32x8_ps
#undef _mm512_load_si512
#undef _mm512_mask_storeu_epi16
#undef _mm512_mask_storeu_ps
#undef _mm512_maskz_loadu_ps
#undef _mm512_permute_ps
#undef _mm512_reduce_ps
#undef _mm512_scalef_ps
#undef _mm512_store_si512
#define _mm256_cmpeq_epi16_mask  emu256_cmpeq_epi16_mask
#define _mm256_mask_storeu_epi16 emu256_mask_storeu_epi16
#define _mm256_maskz_loadu_epi16 emu_maskz_loadu_epi16
#define _mm512_abs_ps            emu_abs_ps
#define _mm512_cmpeq_epi16_mask  emu512_cmpeq_epi16_mask
#define _mm512_cvtepi32_epi16    emu_cvtepi32_epi16
#define _mm512_cvtepi32_epi8     emu_cvtepi32_epi8
#define _mm512_cvtepi32_ps       emu_cvtepi32_ps
#define _mm512_cvtepu16_epi32    emu_cvtepu16_epi32
#define _mm512_cvtepu8_epi32     emu_cvtepu8_epi32
#define _mm512_cvtph_ps          emu_cvtph_ps
#define _mm512_cvtps_epi32       emu_cvtps_epi32
#define _mm512_cvtps_pd          emu_cvtps_pd
#define _mm512_cvtps_ph          emu_cvtps_ph
#define _mm512_cvtss_f32         emu_cvtss_f32
#define _mm512_dpbusd_epi32      emu_dpbusd_epi32
#define _mm512_extractf32x8_ps   emu_extractf32x8_ps
#define _mm512_load_si512        emu_load_si512
#define _mm512_mask_storeu_epi16 emu512_mask_storeu_epi16
#define _mm512_mask_storeu_ps    emu_mask_storeu_ps
#define _mm512_maskz_loadu_ps    emu_maskz_loadu_ps
#define _mm512_permute_ps        emu_permute_ps
#define _mm512_reduce_ps         emu_reduce_ps
#define _mm512_scalef_ps         emu_scalef_ps
#define _mm512_store_si512       emu_store_si512

#endif
