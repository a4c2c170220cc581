/* AVX512_BF16's instructions. Inline assembly, so that kern_avx512.c needs no flag for what one of its tables
 * uses alone, and apart from it, so that tests can put C in their place. */
#ifndef KERN_BF16_AVX512_H
#define KERN_BF16_AVX512_H

#include "kern/vec_avx512.h"

/* Products of 2 bfloat16 numbers and their sum in each lane, as the instruction defines it: numbers below
 * 2^-126 count as zero. */
static inline vf vf_dot_bf16(vf a, vf b, vf sum) {
    __asm__("vdpbf16ps %2, %1, %0" : "+v"(sum) : "v"(a), "v"(b));
    return sum;
}

/* 32 floats to bfloat16, nearest even, less than 2^-126 to zero, NaN kept. */
static inline __m512i round_bf16_32(vf low, vf high) {
    __m512i h;
    __asm__("vcvtne2ps2bf16 %1, %2, %0" : "=v"(h) : "v"(low), "v"(high));
    return h;
}
static inline __m256i round_bf16_16(vf x) {
    __m256i h;
    __asm__("vcvtneps2bf16 %1, %0" : "=v"(h) : "v"(x));
    return h;
}

#endif
