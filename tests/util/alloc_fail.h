/* Lets a test fail chosen allocations. Every unit test is linked with --wrap, so that malloc, calloc,
 * realloc, strdup, strndup, aligned_alloc, posix_memalign, mmap and pthread_create called from our code (not
 * from shared libraries) come through here. Counts are of the whole process; without a call below nothing
 * fails. */
#ifndef UTIL_ALLOC_FAIL_H
#define UTIL_ALLOC_FAIL_H

#include <stdbool.h>
#include <stddef.h>

void alloc_fail_at(size_t n);   /* the n-th allocation from now on fails, once (1 = the next one) */
void alloc_fail_from(size_t n); /* the n-th and all later ones fail */
size_t alloc_fail_stop(void);   /* back to normal; returns the number of allocations since the call above */
size_t alloc_fail_bytes(void);  /* bytes asked for since the last alloc_fail_at or _from, stopped or not */
bool alloc_fail_hit(void);      /* whether the last alloc_fail_at or _from, stopped or not, has failed one */

void thread_fail_at(size_t n); /* the n-th pthread_create from now on fails with EAGAIN, once; 0 = none */

/* Calls body with the first, then the second, ... allocation failing, until a run in which none failed; that
 * last run has passed with every allocation working. body undoes all that it does. Returns the number of
 * failing runs; 0 is a mistake of the test (nothing was allocated). */
size_t alloc_fail_each(void (*body)(void *ctx), void *ctx);

#endif
