/* Waking one sleeping thread from many (Linux futex). Ringing while nobody sleeps is remembered. */
#ifndef ENGINE_DOORBELL_H
#define ENGINE_DOORBELL_H

#include <stdatomic.h>
#include <stdint.h>

struct doorbell {
    _Atomic uint32_t rung;
};

void doorbell_ring(struct doorbell *d); /* any thread */
/* The owner: forgets earlier rings. What was written before such a ring is visible afterwards. */
void doorbell_clear(struct doorbell *d);
void doorbell_wait(struct doorbell *d); /* the owner: returns once rung, and clears */

/* Sleeps while *word equals value, up to timeout_us; may return early. */
void futex_sleep(_Atomic uint32_t *word, uint32_t value, uint64_t timeout_us);
void futex_wake_all(_Atomic uint32_t *word);

#endif
