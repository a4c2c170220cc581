/* The compute pool: the calling thread and n - 1 helpers share the items of one parallel region after
 * another.
 *
 * A thread takes items from its own run of them, one after the other, so that what it reads goes on where it
 * was; then from those of others. So a helper that the system has not scheduled costs nothing: the caller
 * does the work and never waits for a helper that has not begun. Helpers spin for a while between regions (a
 * decoder has some five regions a layer), then give way, then sleep: an idle pool uses no processor time. One
 * caller at a time. */
#ifndef BACKEND_CPU_POOL_H
#define BACKEND_CPU_POOL_H

#include <quire/error.h>

#include <stddef.h>

struct places;
struct pool;

/* item: 0 … n_items - 1, each exactly once, in any order. thread: 0 (the caller) … n_threads - 1. */
typedef void pool_fn(void *ctx, size_t item, size_t thread);

/* places: of as many threads, the helpers enter them; NULL: none. It must outlive the pool. */
int pool_open(size_t n_threads, struct places *places, struct pool **out, struct error *err);
void pool_close(struct pool *p); /* NULL allowed */
size_t pool_threads(const struct pool *p);

/* Returns when all items are done. A region of one item, or of a pool of one thread, runs on the caller
 * alone. */
void pool_run(struct pool *p, size_t n_items, pool_fn *fn, void *ctx);

/* The same, but n_first items of `first` come before those of fn: no item of fn begins until all of them are
 * done. For what prepares the inputs of a region: costs a good deal less than a region of its own. */
void pool_run_after(struct pool *p, size_t n_first, pool_fn *first, size_t n_items, pool_fn *fn, void *ctx);

#endif
