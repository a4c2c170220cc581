#include "engine/doorbell.h"

#include <limits.h>
#include <linux/futex.h>
#include <stddef.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

void futex_sleep(_Atomic uint32_t *word, uint32_t value, uint64_t timeout_us) {
    struct timespec t = {(time_t)(timeout_us / 1000000u), (long)(timeout_us % 1000000u) * 1000};
    syscall(SYS_futex, word, FUTEX_WAIT_PRIVATE, value, timeout_us == UINT64_MAX ? NULL : &t, NULL, 0);
}

void futex_wake_all(_Atomic uint32_t *word) {
    syscall(SYS_futex, word, FUTEX_WAKE_PRIVATE, INT_MAX, NULL, NULL, 0);
}

void doorbell_ring(struct doorbell *d) {
    if (!atomic_exchange(&d->rung, 1)) futex_wake_all(&d->rung);
}

void doorbell_clear(struct doorbell *d) {
    atomic_exchange(&d->rung, 0);
}

void doorbell_wait(struct doorbell *d) {
    while (!atomic_exchange(&d->rung, 0)) futex_sleep(&d->rung, 0, UINT64_MAX);
}
