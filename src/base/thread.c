#include "base/thread.h"

#include <signal.h>

int thread_start(pthread_t *out, const char *name, size_t stack_bytes, void *(*fn)(void *), void *arg) {
    pthread_attr_t attr;
    int rc = pthread_attr_init(&attr);
    if (rc) return rc;
    if (stack_bytes) rc = pthread_attr_setstacksize(&attr, stack_bytes);
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    if (!rc) rc = pthread_create(out, &attr, fn, arg);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    pthread_attr_destroy(&attr);
    if (!rc) pthread_setname_np(*out, name);
    return rc;
}
