/* What the writers of tiny models share: seeded tensors, and the tokenizer that they all have. */
#ifndef UTIL_TINY_PARTS_H
#define UTIL_TINY_PARTS_H

#include "util/gguf_build.h"
#include "util/tiny_model.h"

/* Of o these use the seed, and the tokenizer its n_vocab and pre. Streams depend on seed and name alone. */
void tiny_add_tokenizer(struct gguf_build *b, const struct tiny_model_options *o);
/* F32; n normal elements. */
void tiny_add_vector(struct gguf_build *b, const struct tiny_model_options *o, const char *name, size_t n,
                     double mean, double std);
/* n matrices of rows x cols, one after the other; n 0: one, and the tensor has two dimensions. Rows are whole
 * blocks of the type. */
void tiny_add_matrices(struct gguf_build *b, const struct tiny_model_options *o, const char *name, size_t n,
                       size_t rows, size_t cols, double std, unsigned type);

#endif
