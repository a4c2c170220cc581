#include "engine/ring.h"

#include "base/size.h"

/* A reader that lags behind by this much is slow. */
#define RING_BYTES     (16 * 1024)
#define RING_MIN_SLOTS 16
#define RING_MAX_SLOTS 256

size_t ring_stride(size_t n_top_max) {
    return sizeof(struct ring_event) + n_top_max * sizeof(struct quire_logprob);
}

uint32_t ring_capacity(size_t max_events, size_t n_top_max) {
    size_t n = size_max(RING_MIN_SLOTS, size_min(RING_MAX_SLOTS, RING_BYTES / ring_stride(n_top_max)));
    n = size_min(n, max_events);
    uint32_t capacity = 2;
    while (capacity < n) capacity *= 2;
    return capacity;
}

bool ring_has_room(const struct ring *r) {
    uint32_t used = atomic_load_explicit(&r->head, memory_order_relaxed) - atomic_load(&r->tail);
    return used + 1 < r->capacity;
}

struct ring_event *ring_slot(struct ring *r) {
    uint32_t head = atomic_load_explicit(&r->head, memory_order_relaxed);
    return (struct ring_event *)(r->slots + (head & (r->capacity - 1)) * r->stride);
}

void ring_push(struct ring *r) {
    atomic_fetch_add(&r->head, 1);
}

const struct ring_event *ring_front(const struct ring *r) {
    uint32_t tail = atomic_load_explicit(&r->tail, memory_order_relaxed);
    if (atomic_load(&r->head) == tail) return NULL;
    return (const struct ring_event *)(r->slots + (tail & (r->capacity - 1)) * r->stride);
}

void ring_pop(struct ring *r) {
    atomic_fetch_add(&r->tail, 1);
}
