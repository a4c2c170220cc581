/* The numerics id: a hash of everything that decides bits. */
#include "model/model_impl.h"

void model_digest_add(struct model_digest *d, size_t first, const void *rows, size_t bytes) {
    struct {
        uint64_t first;
        struct hash128 h;
    } named = {first, hash128_bulk(rows, bytes)};
    struct hash128 h = hash128_bulk(&named, sizeof named);
    atomic_fetch_add_explicit(&d->hi, h.hi, memory_order_relaxed);
    atomic_fetch_add_explicit(&d->lo, h.lo, memory_order_relaxed);
}
