/* Checked size arithmetic. Every size that comes from outside goes through these: true means it fits. */
#ifndef BASE_SIZE_H
#define BASE_SIZE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

static inline bool size_add(size_t a, size_t b, size_t *out) { return !__builtin_add_overflow(a, b, out); }
static inline bool size_mul(size_t a, size_t b, size_t *out) { return !__builtin_mul_overflow(a, b, out); }

/* Rounds a up to a multiple of align, a power of two. */
static inline bool size_align_up(size_t a, size_t align, size_t *out) {
    size_t sum;
    if (!size_add(a, align - 1, &sum)) return false;
    *out = sum & ~(align - 1);
    return true;
}

static inline bool size_from_u64(uint64_t v, size_t *out) {
    *out = (size_t)v;
    return (uint64_t)*out == v;
}

static inline bool size_is_pow2(size_t v) { return v && !(v & (v - 1)); }
static inline size_t size_min(size_t a, size_t b) { return a < b ? a : b; }
static inline size_t size_max(size_t a, size_t b) { return a > b ? a : b; }
static inline size_t size_div_up(size_t a, size_t b) { return a / b + (a % b != 0); }

#endif
