/* Threads of the program: named, and without signals, which are for the threads that expect them; but for
 * those of faults, which are the thread's own. */
#ifndef BASE_THREAD_H
#define BASE_THREAD_H

#include <pthread.h>
#include <stddef.h>

/* name: at most 15 characters, as the system's tools show it. stack_bytes: 0 = the system's. Returns 0 or an
 * error of pthread_create(3). */
int thread_start(pthread_t *out, const char *name, size_t stack_bytes, void *(*fn)(void *), void *arg);

#endif
