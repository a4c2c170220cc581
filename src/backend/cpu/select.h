/* Largest-first selection over keys that order logits: larger logit first, lower id first among equals. All
 * keys of a row are distinct, so a selection has one possible result. */
#ifndef BACKEND_CPU_SELECT_H
#define BACKEND_CPU_SELECT_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

/* x is not NaN. */
static inline uint64_t select_key(float x, uint32_t id) {
    float canonical = x + 0.0f; /* -0 becomes 0: they are equal */
    uint32_t bits;
    memcpy(&bits, &canonical, 4);
    bits ^= bits >> 31 ? 0xffffffffu : 0x80000000u; /* unsigned order = order of floats */
    return (uint64_t)bits << 32 | (0xffffffffu - id);
}

static inline uint32_t select_id(uint64_t key) {
    return 0xffffffffu - (uint32_t)key;
}

void select_largest(uint64_t *keys, size_t n, size_t k); /* moves the k largest to the front, in any order */
void select_sort(uint64_t *keys, size_t n);              /* largest first */

#endif
