#include "backend/cpu/pool.h"
#include "backend/cpu/places.h"

#include "base/clock.h"
#include "base/error.h"
#include "base/size.h"
#include "base/thread.h"

#include <linux/futex.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

/* How long a waiting thread spins, then spins and yields, before it sleeps. A wake from sleep takes some 50
 * us. */
#define POOL_SPIN_US  20
#define POOL_YIELD_US 150

/* Kernels built without optimisation, under a sanitizer, have frames of hundreds of kilobytes. */
#define POOL_STACK_BYTES (2 * 1024 * 1024)

/* Runs that the items of a region are cut into, at most: threads share one where there are more of them. */
#define POOL_RUNS 8

struct item_run {
    _Alignas(64) _Atomic size_t next;
    size_t end;
};

/* State of regions in one word: odd while a region is open, so each region moves it by two. */
struct pool {
    size_t n_threads, n_started;
    pthread_t *threads; /* [n_threads - 1] */
    struct places *places;

    pool_fn *first, *fn;
    void *ctx;
    size_t n_first, n_runs;
    struct item_run runs[POOL_RUNS]; /* [n_runs], of fn */

    _Alignas(64) _Atomic uint32_t epoch;
    _Alignas(64) _Atomic size_t next;      /* item of first */
    _Alignas(64) _Atomic uint32_t n_done;  /* items of first */
    _Alignas(64) _Atomic uint32_t running; /* helpers that may be looking at the region */
    _Alignas(64) _Atomic uint32_t n_sleeping;
    _Atomic uint32_t caller_sleeps;
    _Atomic bool stop;
    _Atomic size_t n_named;
};

static void futex_wait(_Atomic uint32_t *word, uint32_t seen) {
    syscall(SYS_futex, (void *)word, FUTEX_WAIT_PRIVATE, seen, NULL, NULL, 0);
}

static void futex_wake(_Atomic uint32_t *word, int n) {
    syscall(SYS_futex, (void *)word, FUTEX_WAKE_PRIVATE, n, NULL, NULL, 0);
}

static inline void relax(void) {
#if defined(__x86_64__)
    __builtin_ia32_pause();
#endif
}

/* Waits actively while *word is `seen`. Returns false when patience has run out and the caller should sleep.
 */
static bool wait_actively(_Atomic uint32_t *word, uint32_t seen) {
    uint64_t start = 0;
    for (;;) {
        for (int i = 0; i < 64; i++) {
            if (atomic_load(word) != seen) return true;
            relax();
        }
        uint64_t now = clock_us();
        if (!start) start = now;
        if (now - start >= POOL_YIELD_US) return false;
        if (now - start >= POOL_SPIN_US) sched_yield();
    }
}

/* Whoever has taken an item of first is at work on it, so this ends. */
static void wait_for_first(struct pool *p) {
    uint32_t done;
    while ((done = atomic_load(&p->n_done)) < p->n_first) wait_actively(&p->n_done, done);
}

static void take_first(struct pool *p, size_t thread) {
    size_t item;
    while ((item = atomic_fetch_add_explicit(&p->next, 1, memory_order_relaxed)) < p->n_first) {
        p->first(p->ctx, item, thread);
        atomic_fetch_add(&p->n_done, 1);
    }
}

static void take_run(struct pool *p, struct item_run *run, size_t thread, bool *waited) {
    size_t item;
    if (atomic_load_explicit(&run->next, memory_order_relaxed) >= run->end) return;
    while ((item = atomic_fetch_add_explicit(&run->next, 1, memory_order_relaxed)) < run->end) {
        if (!*waited) wait_for_first(p);
        *waited = true;
        p->fn(p->ctx, item, thread);
    }
}

static void take_items(struct pool *p, size_t thread) {
    size_t own = thread * p->n_runs / p->n_threads;
    bool waited = !p->n_first;
    if (p->n_first) take_first(p, thread);
    for (size_t i = 0; i < p->n_runs; i++) take_run(p, &p->runs[(own + i) % p->n_runs], thread, &waited);
}

static void helper_wait(struct pool *p, uint32_t seen) {
    if (wait_actively(&p->epoch, seen)) return;
    while (atomic_load(&p->epoch) == seen) {
        atomic_fetch_add(&p->n_sleeping, 1);
        futex_wait(&p->epoch, seen);
        atomic_fetch_sub(&p->n_sleeping, 1);
    }
}

static void *helper_main(void *arg) {
    struct pool *p = arg;
    size_t thread = 1 + atomic_fetch_add(&p->n_named, 1);
    places_enter(p->places, thread);

    uint32_t seen = 0;
    for (;;) {
        helper_wait(p, seen);
        /* Announced before the state is read: once the caller has closed the region and then sees no one
         * running, no helper can be in it. */
        atomic_fetch_add(&p->running, 1);
        uint32_t epoch = atomic_load(&p->epoch);
        /* Read after the epoch: whoever has seen the last one, and would wait for another, knows it was. */
        bool stop = atomic_load(&p->stop);
        if (epoch & 1) take_items(p, thread);
        if (atomic_fetch_sub(&p->running, 1) == 1 && atomic_load(&p->caller_sleeps))
            futex_wake(&p->running, 1);
        if (stop) return NULL;
        seen = epoch;
    }
}

static void wait_for_helpers(struct pool *p) {
    uint32_t running;
    while ((running = atomic_load(&p->running))) {
        if (wait_actively(&p->running, running)) continue;
        atomic_store(&p->caller_sleeps, 1);
        futex_wait(&p->running, running);
        atomic_store(&p->caller_sleeps, 0);
    }
}

void pool_run(struct pool *p, size_t n_items, pool_fn *fn, void *ctx) {
    pool_run_after(p, 0, NULL, n_items, fn, ctx);
}

static void cut_runs(struct pool *p, size_t n_items) {
    p->n_runs = size_min(size_min(p->n_threads, POOL_RUNS), n_items);
    for (size_t i = 0; i < p->n_runs; i++) {
        p->runs[i].end = n_items * (i + 1) / p->n_runs;
        atomic_store_explicit(&p->runs[i].next, n_items * i / p->n_runs, memory_order_relaxed);
    }
}

void pool_run_after(struct pool *p, size_t n_first, pool_fn *first, size_t n_items, pool_fn *fn, void *ctx) {
    if ((n_first <= 1 && n_items <= 1) || p->n_threads == 1) {
        for (size_t i = 0; i < n_first; i++) first(ctx, i, 0);
        for (size_t i = 0; i < n_items; i++) fn(ctx, i, 0);
        return;
    }
    p->first = first;
    p->fn = fn;
    p->ctx = ctx;
    p->n_first = n_first;
    cut_runs(p, n_items);
    atomic_store_explicit(&p->n_done, 0, memory_order_relaxed);
    atomic_store_explicit(&p->next, 0, memory_order_relaxed);
    atomic_fetch_add(&p->epoch, 1);
    if (atomic_load(&p->n_sleeping)) {
        size_t n_wake = size_min(n_first + n_items - 1, p->n_threads - 1);
        futex_wake(&p->epoch, (int)n_wake);
    }
    take_items(p, 0);
    atomic_fetch_add(&p->epoch, 1);
    wait_for_helpers(p);
}

static int start_helpers(struct pool *p, struct error *err) {
    int rc = 0;
    while (p->n_started < p->n_threads - 1 && !rc) {
        char name[16];
        snprintf(name, sizeof name, "quire-cpu-%u", (unsigned)((p->n_started + 1) % 10000));
        rc = thread_start(&p->threads[p->n_started], name, POOL_STACK_BYTES, helper_main, p);
        if (!rc) p->n_started++;
    }
    if (!rc) return 0;
    return error_set(err, QUIRE_ENOMEM, "compute threads: could not start thread %zu of %zu: %s",
                     p->n_started + 2, p->n_threads, strerror(rc));
}

int pool_open(size_t n_threads, struct places *places, struct pool **out, struct error *err) {
    size_t bytes;
    if (!n_threads || !size_mul(n_threads, sizeof(pthread_t), &bytes))
        return error_set(err, QUIRE_EINVAL, "compute threads: %zu is not a usable number", n_threads);
    struct pool *p = aligned_alloc(64, sizeof *p);
    if (!p) return error_set(err, QUIRE_ENOMEM, "compute threads: out of memory");
    memset(p, 0, sizeof *p);
    p->n_threads = n_threads;
    p->places = places;
    p->threads = malloc(bytes);
    if (!p->threads) {
        free(p);
        return error_set(err, QUIRE_ENOMEM, "compute threads: out of memory");
    }
    int rc = start_helpers(p, err);
    if (rc) {
        pool_close(p);
        return rc;
    }
    *out = p;
    return 0;
}

void pool_close(struct pool *p) {
    if (!p) return;
    atomic_store(&p->stop, true);
    atomic_fetch_add(&p->epoch, 2);
    futex_wake(&p->epoch, INT32_MAX);
    for (size_t i = 0; i < p->n_started; i++) pthread_join(p->threads[i], NULL);
    free(p->threads);
    free(p);
}

size_t pool_threads(const struct pool *p) {
    return p->n_threads;
}
