/* The C reference decoders of the element formats, for the table in tensor.c. dst: [n_blocks * elements of a
 * block]; src: n_blocks blocks as the file has them, not aligned. */
#ifndef WEIGHTS_DECODE_H
#define WEIGHTS_DECODE_H

#include <stddef.h>

void decode_f32(float *dst, const void *src, size_t n_blocks);
void decode_f16(float *dst, const void *src, size_t n_blocks);
void decode_bf16(float *dst, const void *src, size_t n_blocks);
void decode_f8_e4m3(float *dst, const void *src, size_t n_blocks);
void decode_f8_e5m2(float *dst, const void *src, size_t n_blocks);
void decode_q4_0(float *dst, const void *src, size_t n_blocks);
void decode_q4_1(float *dst, const void *src, size_t n_blocks);
void decode_q5_0(float *dst, const void *src, size_t n_blocks);
void decode_q5_1(float *dst, const void *src, size_t n_blocks);
void decode_q8_0(float *dst, const void *src, size_t n_blocks);
void decode_q2_k(float *dst, const void *src, size_t n_blocks);
void decode_q3_k(float *dst, const void *src, size_t n_blocks);
void decode_q4_k(float *dst, const void *src, size_t n_blocks);
void decode_q5_k(float *dst, const void *src, size_t n_blocks);
void decode_q6_k(float *dst, const void *src, size_t n_blocks);
void decode_iq4_nl(float *dst, const void *src, size_t n_blocks);
void decode_iq4_xs(float *dst, const void *src, size_t n_blocks);
void decode_mxfp4(float *dst, const void *src, size_t n_blocks);

#endif
