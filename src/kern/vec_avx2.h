/* The vector type of the AVX2 table; see vec_avx512.h. Included by one translation unit only. */
#ifndef KERN_VEC_AVX2_H
#define KERN_VEC_AVX2_H

#include "kern/kern.h"

#include <immintrin.h>

#define LANES 8

typedef __m256 vf;

static inline __m256i lane_index(void) {
    return _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
}
static inline __m256i first_lanes(size_t n) {
    return _mm256_cmpgt_epi32(_mm256_set1_epi32(n >= LANES ? LANES : (int)n), lane_index());
}

static inline vf vf_zero(void) {
    return _mm256_setzero_ps();
}
static inline vf vf_set(float x) {
    return _mm256_set1_ps(x);
}
static inline vf vf_load(const float *p) {
    return _mm256_loadu_ps(p);
}
static inline void vf_store(float *p, vf x) {
    _mm256_storeu_ps(p, x);
}
static inline vf vf_load_n(const float *p, size_t n) {
    return n >= LANES ? _mm256_loadu_ps(p) : _mm256_maskload_ps(p, first_lanes(n));
}
static inline void vf_store_n(float *p, vf x, size_t n) {
    if (n >= LANES)
        _mm256_storeu_ps(p, x);
    else
        _mm256_maskstore_ps(p, first_lanes(n), x);
}

static inline vf vf_add(vf a, vf b) {
    return _mm256_add_ps(a, b);
}
static inline vf vf_sub(vf a, vf b) {
    return _mm256_sub_ps(a, b);
}
static inline vf vf_mul(vf a, vf b) {
    return _mm256_mul_ps(a, b);
}
static inline vf vf_div(vf a, vf b) {
    return _mm256_div_ps(a, b);
}
static inline vf vf_fma(vf a, vf b, vf c) { /* a * b + c */
    return _mm256_fmadd_ps(a, b, c);
}
static inline vf vf_fnma(vf a, vf b, vf c) { /* c - a * b */
    return _mm256_fnmadd_ps(a, b, c);
}
static inline vf vf_max(vf a, vf b) {
    return _mm256_max_ps(a, b);
}
static inline vf vf_min(vf a, vf b) {
    return _mm256_min_ps(a, b);
}
static inline vf vf_abs(vf x) {
    return _mm256_and_ps(x, _mm256_castsi256_ps(_mm256_set1_epi32(0x7fffffff)));
}
static inline vf vf_xor(vf a, vf b) {
    return _mm256_xor_ps(a, b);
}
static inline vf vf_round(vf x) {
    return _mm256_round_ps(x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
}
static inline vf power_of_two(__m256i n) { /* -126 <= n <= 127 */
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_add_epi32(n, _mm256_set1_epi32(127)), 23));
}
/* In two steps, so that n may be from -252 to 254: only the second can round. */
static inline vf vf_ldexp(vf x, vf n) {
    __m256i whole = _mm256_cvtps_epi32(n), half = _mm256_srai_epi32(whole, 1);
    return vf_mul(vf_mul(x, power_of_two(half)), power_of_two(_mm256_sub_epi32(whole, half)));
}

static inline uint32_t vf_less(vf a, vf b) {
    return (uint32_t)_mm256_movemask_ps(_mm256_cmp_ps(a, b, _CMP_LT_OQ));
}
static inline uint32_t vf_equal(vf a, vf b) {
    return (uint32_t)_mm256_movemask_ps(_mm256_cmp_ps(a, b, _CMP_EQ_OQ));
}
static inline vf vf_keep(vf x, size_t begin, size_t end, vf other) {
    __m256i keep = _mm256_andnot_si256(first_lanes(begin), first_lanes(end));
    return _mm256_blendv_ps(other, x, _mm256_castsi256_ps(keep));
}
static inline vf vf_select_less(vf a, vf b, vf yes, vf no) {
    return _mm256_blendv_ps(no, yes, _mm256_cmp_ps(a, b, _CMP_LT_OQ));
}

static inline vf vf_even_signs(void) {
    return _mm256_castsi256_ps(_mm256_set1_epi64x(0x80000000));
}
static inline vf vf_swap_pairs(vf x) {
    return _mm256_permute_ps(x, 0xb1);
}
static inline vf vf_load_pairs(const float *p, size_t n) {
    return _mm256_permutevar8x32_ps(vf_load_n(p, n), _mm256_setr_epi32(0, 0, 1, 1, 2, 2, 3, 3));
}

static inline float vf_sum(vf x) {
    __m128 b = _mm_add_ps(_mm256_castps256_ps128(x), _mm256_extractf128_ps(x, 1));
    b = _mm_add_ps(b, _mm_movehl_ps(b, b));
    return _mm_cvtss_f32(_mm_add_ss(b, _mm_movehdup_ps(b)));
}
static inline float vf_largest(vf x) {
    __m128 b = _mm_max_ps(_mm256_castps256_ps128(x), _mm256_extractf128_ps(x, 1));
    b = _mm_max_ps(b, _mm_movehl_ps(b, b));
    return _mm_cvtss_f32(_mm_max_ss(b, _mm_movehdup_ps(b)));
}
static inline float vf_first(vf x) {
    return _mm256_cvtss_f32(x);
}

struct vd {
    __m256d low, high;
};
static inline struct vd vd_zero(void) {
    return (struct vd){_mm256_setzero_pd(), _mm256_setzero_pd()};
}
static inline struct vd vd_add(struct vd s, vf x) {
    s.low = _mm256_add_pd(s.low, _mm256_cvtps_pd(_mm256_castps256_ps128(x)));
    s.high = _mm256_add_pd(s.high, _mm256_cvtps_pd(_mm256_extractf128_ps(x, 1)));
    return s;
}
static inline struct vd vd_add_square(struct vd s, vf x) {
    __m256d low = _mm256_cvtps_pd(_mm256_castps256_ps128(x)),
            high = _mm256_cvtps_pd(_mm256_extractf128_ps(x, 1));
    s.low = _mm256_fmadd_pd(low, low, s.low);
    s.high = _mm256_fmadd_pd(high, high, s.high);
    return s;
}
static inline double vd_sum(struct vd s) {
    __m256d x = _mm256_add_pd(s.low, s.high);
    __m128d b = _mm_add_pd(_mm256_castpd256_pd128(x), _mm256_extractf128_pd(x, 1));
    return _mm_cvtsd_f64(_mm_add_sd(b, _mm_unpackhi_pd(b, b)));
}

/* ---- 16-bit types ---- */

static inline vf widen_bf16(__m128i h) {
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(h), 16));
}
static inline __m256i round_bf16(vf x) { /* in the upper halves */
    __m256i u = _mm256_castps_si256(x);
    __m256i odd = _mm256_and_si256(_mm256_srli_epi32(u, 16), _mm256_set1_epi32(1));
    __m256i rounded = _mm256_add_epi32(u, _mm256_add_epi32(odd, _mm256_set1_epi32(0x7fff)));
    __m256i quiet = _mm256_or_si256(u, _mm256_set1_epi32(0x400000));
    __m256i nan = _mm256_castps_si256(_mm256_cmp_ps(x, x, _CMP_UNORD_Q));
    return _mm256_blendv_epi8(rounded, quiet, nan);
}
static inline vf vf_round_bf16(vf x) {
    return _mm256_castsi256_ps(_mm256_and_si256(round_bf16(x), _mm256_set1_epi32((int)0xffff0000)));
}
static inline vf vf_round_f16(vf x) {
    return _mm256_cvtph_ps(_mm256_cvtps_ph(x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
}

/* n elements from index i of an array in a KV type. A head is a multiple of 8, so n is never less than LANES.
 */
static inline vf vf_load_kv(const void *p, size_t i, size_t n, enum kern_kv type) {
    (void)n;
    if (type == KERN_KV_F32) return vf_load((const float *)p + i);
    __m128i h = _mm_loadu_si128((const void *)((const uint16_t *)p + i));
    return type == KERN_KV_F16 ? _mm256_cvtph_ps(h) : widen_bf16(h);
}
/* 2 * LANES elements as two vectors, in the order that costs least: for bfloat16 the even ones and the odd
 * ones. vf_load_two and vf_store_two do the same with floats. */
static inline void vf_load_kv_two(vf *x, const void *p, enum kern_kv type) {
    if (type != KERN_KV_BF16) {
        x[0] = vf_load_kv(p, 0, LANES, type);
        x[1] = vf_load_kv(p, LANES, LANES, type);
        return;
    }
    __m256i h = _mm256_loadu_si256(p);
    x[0] = _mm256_castsi256_ps(_mm256_slli_epi32(h, 16));
    x[1] = _mm256_castsi256_ps(_mm256_and_si256(h, _mm256_set1_epi32((int)0xffff0000)));
}
static inline void vf_load_two(vf *x, const float *p, enum kern_kv type) {
    vf low = vf_load(p), high = vf_load(p + LANES);
    if (type != KERN_KV_BF16) {
        x[0] = low;
        x[1] = high;
        return;
    }
    vf a = _mm256_permute2f128_ps(low, high, 0x20), b = _mm256_permute2f128_ps(low, high, 0x31);
    x[0] = _mm256_shuffle_ps(a, b, 0x88);
    x[1] = _mm256_shuffle_ps(a, b, 0xdd);
}
static inline void vf_store_two(float *p, const vf *x, enum kern_kv type) {
    vf low = x[0], high = x[1];
    if (type == KERN_KV_BF16) {
        vf a = _mm256_unpacklo_ps(x[0], x[1]), b = _mm256_unpackhi_ps(x[0], x[1]);
        low = _mm256_permute2f128_ps(a, b, 0x20);
        high = _mm256_permute2f128_ps(a, b, 0x31);
    }
    vf_store(p, low);
    vf_store(p + LANES, high);
}
static inline void vf_store_kv(void *p, size_t i, vf x, size_t n, enum kern_kv type) {
    (void)n;
    if (type == KERN_KV_F32) {
        vf_store((float *)p + i, x);
        return;
    }
    __m256i high = _mm256_srli_epi32(round_bf16(x), 16);
    __m128i h = type == KERN_KV_F16
                    ? _mm256_cvtps_ph(x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC)
                    : _mm_packus_epi32(_mm256_castsi256_si128(high), _mm256_extracti128_si256(high, 1));
    _mm_storeu_si128((void *)((uint16_t *)p + i), h);
}
/* 16 floats times a factor, within [-127, 127], as bytes: nearest even. Returns kern_act_words of them. */
static inline int32_t vf_store_i8(int8_t *p, const float *x, vf factor) {
    __m256i low = _mm256_cvtps_epi32(vf_mul(vf_load(x), factor));
    __m256i high = _mm256_cvtps_epi32(vf_mul(vf_load(x + LANES), factor));
    __m256i h = _mm256_permute4x64_epi64(_mm256_packs_epi32(low, high), 0xd8);
    __m128i b = _mm_packs_epi16(_mm256_castsi256_si128(h), _mm256_extracti128_si256(h, 1));
    _mm_storeu_si128((void *)p, b);
    __m128i words = _mm_maddubs_epi16(_mm_set1_epi8(1), b); /* even, odd, even .. */
    words = _mm_add_epi16(words, _mm_shuffle_epi32(words, 0x4e));
    words = _mm_add_epi16(words, _mm_shuffle_epi32(words, 0xb1));
    return _mm_cvtsi128_si32(_mm_sub_epi16(_mm_setzero_si128(), words));
}

#endif
