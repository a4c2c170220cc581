#include "bench/fill.h"

#include <math.h>
#include <string.h>

/* splitmix64 (Steele, Lea and Flood 2014) */
uint64_t fill_random(struct fill *f) {
    uint64_t z = f->state += 0x9e3779b97f4a7c15u;
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
    z = (z ^ z >> 27) * 0x94d049bb133111ebu;
    return z ^ z >> 31;
}

void fill_floats(struct fill *f, float *x, size_t n) {
    for (size_t i = 0; i < n; i++) x[i] = (float)((double)(int64_t)fill_random(f) * 0x1p-63);
}

enum { POOL = 64, MAX_BLOCK_BYTES = 512, MAX_BLOCK_ELEMS = 512, MAX_TRIES = 1000000 };

/* Random bytes are tried until they make a sane block: this needs no knowledge of where a format has its
 * scales. */
static bool sane_block(struct fill *f, uint8_t *block, const struct tensor_type_info *type) {
    float x[MAX_BLOCK_ELEMS];
    for (int tries = 0; tries < MAX_TRIES; tries++) {
        for (size_t i = 0; i < type->block_bytes; i++) block[i] = (uint8_t)fill_random(f);
        type->decode(x, block, 1);
        float largest = 0.0f;
        bool finite = true;
        for (size_t i = 0; i < type->block_elems; i++) {
            finite = finite && isfinite(x[i]);
            largest = fmaxf(largest, fabsf(x[i]));
        }
        if (finite && largest >= 0x1p-6f && largest <= 8.0f) return true;
    }
    return false;
}

bool fill_blocks(struct fill *f, void *dst, size_t bytes, const struct tensor_type_info *type) {
    uint8_t pool[POOL][MAX_BLOCK_BYTES], *out = dst;
    if (type->block_bytes > MAX_BLOCK_BYTES || type->block_elems > MAX_BLOCK_ELEMS) return false;
    for (size_t i = 0; i < POOL; i++)
        if (!sane_block(f, pool[i], type)) return false;
    for (size_t i = 0; i < bytes; i += type->block_bytes)
        memcpy(out + i, pool[fill_random(f) % POOL], type->block_bytes);
    return true;
}
