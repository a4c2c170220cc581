/* AVX512_BF16's instructions by AVX2, from the Intel SDM, vol. 2: found instead of src/kern's by sources that
 * are compiled with the folder above ahead. */
#ifndef TESTS_KERN_EMULATED_BF16_AVX512_H
#define TESTS_KERN_EMULATED_BF16_AVX512_H

#include "kern/vec_avx512.h"

/* Numbers below 2^-126 to zero of their sign; NaN stays. */
static inline __m256 emu_flush(__m256 x) {
    const __m256 sign = _mm256_set1_ps(-0.0f), least = _mm256_set1_ps(0x1p-126f);
    __m256 kept = _mm256_cmp_ps(_mm256_andnot_ps(sign, x), least, _CMP_NLT_UQ);
    return _mm256_and_ps(x, _mm256_or_ps(kept, sign));
}

/* Bfloat16 numbers in the upper halves of the lanes. */
static inline __m256 emu_add_product(__m256 sum, __m256i a, __m256i b) {
    __m256 x = emu_flush(_mm256_castsi256_ps(a)), y = emu_flush(_mm256_castsi256_ps(b));
    return emu_flush(_mm256_fmadd_ps(x, y, emu_flush(sum)));
}
/* VDPBF16PS: the products of the upper halves are added first. */
static inline __m256 emu_dot_bf16(__m256 a, __m256 b, __m256 sum) {
    const __m256i upper = _mm256_set1_epi32((int)0xffff0000);
    __m256i x = _mm256_castps_si256(a), y = _mm256_castps_si256(b);
    sum = emu_add_product(sum, _mm256_and_si256(x, upper), _mm256_and_si256(y, upper));
    return emu_add_product(sum, _mm256_slli_epi32(x, 16), _mm256_slli_epi32(y, 16));
}
static inline vf vf_dot_bf16(vf a, vf b, vf sum) {
    union emu x = {.f = a}, y = {.f = b}, s = {.f = sum};
    return emu_f(emu_dot_bf16(x.f2[0], y.f2[0], s.f2[0]), emu_dot_bf16(x.f2[1], y.f2[1], s.f2[1]));
}

/* VCVTNEPS2BF16, in the lower halves of 32 bits. */
static inline __m256i emu_round_bf16(__m256 x) {
    const __m256i one = _mm256_set1_epi32(1), below_half = _mm256_set1_epi32(0x7fff),
                  quiet = _mm256_set1_epi32(0x400000);
    __m256i u = _mm256_castps_si256(emu_flush(x));
    __m256i odd = _mm256_and_si256(_mm256_srli_epi32(u, 16), one);
    __m256i rounded = _mm256_add_epi32(u, _mm256_add_epi32(odd, below_half));
    __m256i nan = _mm256_castps_si256(_mm256_cmp_ps(x, x, _CMP_UNORD_Q));
    return _mm256_srli_epi32(_mm256_blendv_epi8(rounded, _mm256_or_si256(u, quiet), nan), 16);
}
static inline __m256i round_bf16_16(vf x) {
    union emu u = {.f = x};
    return emu_cvtepi32_epi16(emu_i(emu_round_bf16(u.f2[0]), emu_round_bf16(u.f2[1])));
}
static inline __m512i round_bf16_32(vf low, vf high) {
    return emu_i(round_bf16_16(low), round_bf16_16(high));
}

#endif
