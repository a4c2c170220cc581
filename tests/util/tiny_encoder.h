/* Small random encoders as GGUF, without a tokenizer, named by variant: "bert" makes vectors, "cross" and
 * "xlmr" scores (with two types of tokens, and with one). Weights come from the seed and the tensor's name.
 * tests/golden/model_encoders.py runs the same files through transformers. */
#ifndef UTIL_TINY_ENCODER_H
#define UTIL_TINY_ENCODER_H

#include <stddef.h>
#include <stdint.h>

enum { TINY_ENCODER_VOCAB = 300, TINY_ENCODER_WIDTH = 96, TINY_ENCODER_CONTEXT = 1300 };

/* The file in memory, malloc'd; NULL: no such variant. type: of the matrices, GGUF's id. */
void *tiny_encoder_memory(const char *variant, unsigned type, uint64_t seed, size_t *n);
/* 0, or -1 when there is no such variant or path cannot be written. */
int tiny_encoder_write(const char *path, const char *variant, unsigned type, uint64_t seed);

#endif
