/* Events of one stream on their way from the engine thread to its reader: a bounded single-producer,
 * single-consumer ring. One slot is kept for the last event, so a stream can always end. */
#ifndef ENGINE_RING_H
#define ENGINE_RING_H

#include <quire/quire.h>

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct ring_event {
    struct quire_logprob chosen;
    uint32_t held_bytes;
    uint16_t n_top;
    uint8_t has_token, finish; /* enum quire_finish */
    struct quire_logprob top[];
};

struct ring {
    uint8_t *slots; /* [capacity] of stride bytes */
    size_t stride;
    uint32_t capacity;                  /* a power of two, at least 2 */
    _Alignas(64) _Atomic uint32_t head; /* the engine's: events pushed */
    _Alignas(64) _Atomic uint32_t tail; /* the reader's: events taken */
};

/* Slots and bytes for a stream of at most max_events (the last included) with up to n_top_max alternatives
 * each. */
uint32_t ring_capacity(size_t max_events, size_t n_top_max);
size_t ring_stride(size_t n_top_max);

/* Room for one more event that is not the last. Engine. */
bool ring_has_room(const struct ring *r);
/* The slot to be filled, then pushed. Engine; only when there is room or the event is the last. */
struct ring_event *ring_slot(struct ring *r);
void ring_push(struct ring *r);

/* The oldest event or NULL; then it is given back. Reader. */
const struct ring_event *ring_front(const struct ring *r);
void ring_pop(struct ring *r);

#endif
