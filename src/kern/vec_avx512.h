/* The vector type of the AVX-512 table, as small inline functions; vec_avx2.h has the same names. Templates
 * (*.inc) are written on these. Included by one translation unit only. */
#ifndef KERN_VEC_AVX512_H
#define KERN_VEC_AVX512_H

#include "kern/kern.h"

#include <immintrin.h>

#define LANES 16

typedef __m512 vf;

static inline __mmask16 first_lanes(size_t n) {
    return (__mmask16)(n >= LANES ? 0xffffu : (1u << n) - 1u);
}

static inline vf vf_zero(void) {
    return _mm512_setzero_ps();
}
static inline vf vf_set(float x) {
    return _mm512_set1_ps(x);
}
static inline vf vf_load(const float *p) {
    return _mm512_loadu_ps(p);
}
static inline void vf_store(float *p, vf x) {
    _mm512_storeu_ps(p, x);
}
/* The first n lanes; the others are zero, and their memory is not touched. */
static inline vf vf_load_n(const float *p, size_t n) {
    return n >= LANES ? _mm512_loadu_ps(p) : _mm512_maskz_loadu_ps(first_lanes(n), p);
}
static inline void vf_store_n(float *p, vf x, size_t n) {
    if (n >= LANES)
        _mm512_storeu_ps(p, x);
    else
        _mm512_mask_storeu_ps(p, first_lanes(n), x);
}

static inline vf vf_add(vf a, vf b) {
    return _mm512_add_ps(a, b);
}
static inline vf vf_sub(vf a, vf b) {
    return _mm512_sub_ps(a, b);
}
static inline vf vf_mul(vf a, vf b) {
    return _mm512_mul_ps(a, b);
}
static inline vf vf_div(vf a, vf b) {
    return _mm512_div_ps(a, b);
}
static inline vf vf_fma(vf a, vf b, vf c) { /* a * b + c */
    return _mm512_fmadd_ps(a, b, c);
}
static inline vf vf_fnma(vf a, vf b, vf c) { /* c - a * b */
    return _mm512_fnmadd_ps(a, b, c);
}
/* Where either is NaN the result is b. */
static inline vf vf_max(vf a, vf b) {
    return _mm512_max_ps(a, b);
}
static inline vf vf_min(vf a, vf b) {
    return _mm512_min_ps(a, b);
}
static inline vf vf_abs(vf x) {
    return _mm512_abs_ps(x);
}
static inline vf vf_xor(vf a, vf b) {
    return _mm512_xor_ps(a, b);
}
static inline vf vf_round(vf x) {
    return _mm512_roundscale_ps(x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
}
/* x * 2^n for integral n, rounded once where the result is subnormal. */
static inline vf vf_ldexp(vf x, vf n) {
    return _mm512_scalef_ps(x, n);
}

/* Lane masks, one bit a lane. */
static inline uint32_t vf_less(vf a, vf b) {
    return _mm512_cmp_ps_mask(a, b, _CMP_LT_OQ);
}
static inline uint32_t vf_equal(vf a, vf b) {
    return _mm512_cmp_ps_mask(a, b, _CMP_EQ_OQ);
}
/* Lanes [begin, end) of x, `other` elsewhere. */
static inline vf vf_keep(vf x, size_t begin, size_t end, vf other) {
    return _mm512_mask_mov_ps(other, first_lanes(end) & (__mmask16)~first_lanes(begin), x);
}
static inline vf vf_select_less(vf a, vf b, vf yes, vf no) { /* a < b ? yes : no */
    return _mm512_mask_blend_ps(_mm512_cmp_ps_mask(a, b, _CMP_LT_OQ), no, yes);
}

/* Pairs (2i, 2i + 1): exchanged; one element of p for each pair. */
static inline vf vf_even_signs(void) { /* the sign bit in even lanes */
    return _mm512_castsi512_ps(_mm512_set1_epi64(0x80000000));
}
static inline vf vf_swap_pairs(vf x) {
    return _mm512_permute_ps(x, 0xb1);
}
static inline vf vf_load_pairs(const float *p, size_t n) {
    const __m512i index = _mm512_setr_epi32(0, 0, 1, 1, 2, 2, 3, 3, 4, 4, 5, 5, 6, 6, 7, 7);
    return _mm512_permutexvar_ps(index, vf_load_n(p, n));
}

/* Halves are added until one is left: the order of every horizontal sum here. */
static inline float vf_sum(vf x) {
    __m256 a = _mm256_add_ps(_mm512_castps512_ps256(x), _mm512_extractf32x8_ps(x, 1));
    __m128 b = _mm_add_ps(_mm256_castps256_ps128(a), _mm256_extractf128_ps(a, 1));
    b = _mm_add_ps(b, _mm_movehl_ps(b, b));
    return _mm_cvtss_f32(_mm_add_ss(b, _mm_movehdup_ps(b)));
}
static inline float vf_largest(vf x) {
    __m256 a = _mm256_max_ps(_mm512_castps512_ps256(x), _mm512_extractf32x8_ps(x, 1));
    __m128 b = _mm_max_ps(_mm256_castps256_ps128(a), _mm256_extractf128_ps(a, 1));
    b = _mm_max_ps(b, _mm_movehl_ps(b, b));
    return _mm_cvtss_f32(_mm_max_ss(b, _mm_movehdup_ps(b)));
}
static inline float vf_first(vf x) {
    return _mm512_cvtss_f32(x);
}

/* Sums in double, a fixed lane for each float lane. */
struct vd {
    __m512d low, high;
};
static inline struct vd vd_zero(void) {
    return (struct vd){_mm512_setzero_pd(), _mm512_setzero_pd()};
}
static inline struct vd vd_add(struct vd s, vf x) {
    s.low = _mm512_add_pd(s.low, _mm512_cvtps_pd(_mm512_castps512_ps256(x)));
    s.high = _mm512_add_pd(s.high, _mm512_cvtps_pd(_mm512_extractf32x8_ps(x, 1)));
    return s;
}
static inline struct vd vd_add_square(struct vd s, vf x) {
    __m512d low = _mm512_cvtps_pd(_mm512_castps512_ps256(x)),
            high = _mm512_cvtps_pd(_mm512_extractf32x8_ps(x, 1));
    s.low = _mm512_fmadd_pd(low, low, s.low);
    s.high = _mm512_fmadd_pd(high, high, s.high);
    return s;
}
static inline double vd_sum(struct vd s) {
    __m512d x = _mm512_add_pd(s.low, s.high);
    __m256d a = _mm256_add_pd(_mm512_castpd512_pd256(x), _mm512_extractf64x4_pd(x, 1));
    __m128d b = _mm_add_pd(_mm256_castpd256_pd128(a), _mm256_extractf128_pd(a, 1));
    return _mm_cvtsd_f64(_mm_add_sd(b, _mm_unpackhi_pd(b, b)));
}

/* ---- 16-bit types ---- */

static inline vf widen_bf16(__m256i h) {
    return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(h), 16));
}
/* Round to nearest even, NaN kept; see kern_to_bf16. */
static inline __m512i round_bf16(vf x) { /* in the upper halves */
    __m512i u = _mm512_castps_si512(x);
    __m512i odd = _mm512_and_si512(_mm512_srli_epi32(u, 16), _mm512_set1_epi32(1));
    __m512i rounded = _mm512_add_epi32(u, _mm512_add_epi32(odd, _mm512_set1_epi32(0x7fff)));
    __mmask16 nan = _mm512_cmp_ps_mask(x, x, _CMP_UNORD_Q);
    return _mm512_mask_or_epi32(rounded, nan, u, _mm512_set1_epi32(0x400000));
}
static inline vf vf_round_bf16(vf x) {
    return _mm512_castsi512_ps(_mm512_and_si512(round_bf16(x), _mm512_set1_epi32((int)0xffff0000)));
}
static inline vf vf_round_f16(vf x) {
    return _mm512_cvtph_ps(_mm512_cvtps_ph(x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
}

/* n elements from index i of an array in a KV type. */
static inline vf vf_load_kv(const void *p, size_t i, size_t n, enum kern_kv type) {
    if (type == KERN_KV_F32) return vf_load_n((const float *)p + i, n);
    const uint16_t *src = (const uint16_t *)p + i;
    __m256i h =
        n >= LANES ? _mm256_loadu_si256((const void *)src) : _mm256_maskz_loadu_epi16(first_lanes(n), src);
    return type == KERN_KV_F16 ? _mm512_cvtph_ps(h) : widen_bf16(h);
}
static inline void vf_store_kv(void *p, size_t i, vf x, size_t n, enum kern_kv type) {
    if (type == KERN_KV_F32) {
        vf_store_n((float *)p + i, x, n);
        return;
    }
    __m256i h = type == KERN_KV_F16 ? _mm512_cvtps_ph(x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC)
                                    : _mm512_cvtepi32_epi16(_mm512_srli_epi32(round_bf16(x), 16));
    _mm256_mask_storeu_epi16((uint16_t *)p + i, first_lanes(n), h);
}

/* 2 * LANES elements as two vectors, in order. */
static inline void vf_load_kv_two(vf *x, const void *p, enum kern_kv type) {
    x[0] = vf_load_kv(p, 0, LANES, type);
    x[1] = vf_load_kv(p, LANES, LANES, type);
}
static inline void vf_load_two(vf *x, const float *p, enum kern_kv type) {
    x[0] = vf_load(p);
    x[1] = vf_load(p + LANES);
}
static inline void vf_store_two(float *p, const vf *x, enum kern_kv type) {
    vf_store(p, x[0]);
    vf_store(p + LANES, x[1]);
}

/* 16 floats times a factor, within [-127, 127], as bytes: nearest even. Returns kern_act_words of them. */
static inline int32_t vf_store_i8(int8_t *p, const float *x, vf factor) {
    __m128i b = _mm512_cvtepi32_epi8(_mm512_cvtps_epi32(vf_mul(vf_load(x), factor)));
    _mm_storeu_si128((void *)p, b);
    __m128i words = _mm_maddubs_epi16(_mm_set1_epi8(1), b); /* even, odd, even .. */
    words = _mm_add_epi16(words, _mm_shuffle_epi32(words, 0x4e));
    words = _mm_add_epi16(words, _mm_shuffle_epi32(words, 0xb1));
    return _mm_cvtsi128_si32(_mm_sub_epi16(_mm_setzero_si128(), words));
}

#endif
