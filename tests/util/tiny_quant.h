/* Quantizing rows of float to the formats a tiny model may have, as the gguf package does it, bit for bit. */
#ifndef UTIL_TINY_QUANT_H
#define UTIL_TINY_QUANT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

uint16_t tiny_f16(float v);  /* round to nearest even */
uint16_t tiny_bf16(float v); /* round to nearest even; v is not NaN */

/* Elements and bytes of a block; false for a format that is not made here. */
bool tiny_quant_block(unsigned type, size_t *elems, size_t *bytes);
/* n elements, whole blocks. F32, F16, BF16, Q4_0, Q4_1, Q8_0. */
void tiny_quant(void *dst, unsigned type, const float *src, size_t n);

/* K formats and MXFP4 are filled with random bits instead. */
bool tiny_quant_is_random(unsigned type);
/* Overwrites the scales of n_blocks random blocks so that elements have this standard deviation. */
void tiny_quant_scale_random(uint8_t *blocks, unsigned type, size_t n_blocks, double std);

#endif
