/* Counter-based random numbers: Philox4x32-10 (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", SC'11).
 * A draw is a pure function of (seed, stream, position, index): a seed means the same thing in any batch. */
#ifndef BASE_RNG_H
#define BASE_RNG_H

#include <stdint.h>

struct rng_block {
    uint32_t v[4];
};

struct rng_block rng_philox(uint64_t key, uint32_t c0, uint32_t c1, uint32_t c2, uint32_t c3);

/* Uniform in [0, 1), 53 bits, from (seed, choice index, token position, draw index). */
double rng_uniform(uint64_t seed, uint32_t choice, uint32_t position, uint32_t draw);

#endif
