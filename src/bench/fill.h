/* Data to compute with: weights of any format, inputs. Always the same for the same seed. */
#ifndef BENCH_FILL_H
#define BENCH_FILL_H

#include "weights/tensor.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct fill {
    uint64_t state; /* the seed at first */
};

uint64_t fill_random(struct fill *f);

/* Uniform in [-1, 1). */
void fill_floats(struct fill *f, float *x, size_t n);

/* Weights as a file has them: a whole number of blocks of a decodable type, whose values are finite and whose
 * largest magnitude is between 2^-6 and 8 in each block. false if no such block was found. */
bool fill_blocks(struct fill *f, void *dst, size_t bytes, const struct tensor_type_info *type);

#endif
