#include "base/rng.h"

struct rng_block rng_philox(uint64_t key, uint32_t c0, uint32_t c1, uint32_t c2, uint32_t c3) {
    uint32_t k0 = (uint32_t)key, k1 = (uint32_t)(key >> 32);
    for (int round = 0; round < 10; round++) {
        uint64_t p0 = (uint64_t)0xd2511f53u * c0, p1 = (uint64_t)0xcd9e8d57u * c2;
        c0 = (uint32_t)(p1 >> 32) ^ c1 ^ k0;
        c2 = (uint32_t)(p0 >> 32) ^ c3 ^ k1;
        c1 = (uint32_t)p1;
        c3 = (uint32_t)p0;
        k0 += 0x9e3779b9u;
        k1 += 0xbb67ae85u;
    }
    return (struct rng_block){{c0, c1, c2, c3}};
}

double rng_uniform(uint64_t seed, uint32_t choice, uint32_t position, uint32_t draw) {
    struct rng_block b = rng_philox(seed, draw, position, choice, 0);
    uint64_t bits = (uint64_t)b.v[1] << 32 | b.v[0];
    return (double)(bits >> 11) * 0x1p-53;
}
