/* What a tool that looks at a model file checks beyond what opening it does: numbers that are not finite, and
 * bytes that belong to nothing. Neither asks whether the types can be decoded. */
#ifndef WEIGHTS_CHECK_H
#define WEIGHTS_CHECK_H

#include "weights/weights.h"

struct float_faults {
    uint64_t n_nan, n_inf;
};

/* Adds the values, or the scales of blocks, that are not finite. blocks: n_blocks as the file has them, not
 * aligned. Types of integers have none. */
void check_floats(enum tensor_type type, const void *blocks, size_t n_blocks, struct float_faults *sum);

/* Every byte behind the descriptions is a tensor's or padding: zeros, fewer than the alignment.
 * QUIRE_EFORMAT names the file and the place; QUIRE_EIO, QUIRE_ENOMEM. */
int check_gaps(const struct weights *w, struct error *err);

#endif
