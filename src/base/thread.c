#include "base/thread.h"

#include <signal.h>

int thread_start(pthread_t *out, const char *name, size_t stack_bytes, void *(*fn)(void *), void *arg) {
    pthread_attr_t attr;
    int rc = pthread_attr_init(&attr);
    if (rc) return rc;
    if (stack_bytes) rc = pthread_attr_setstacksize(&attr, stack_bytes);
    /* Faults are the thread's own: blocked, they would end the process past any handler. */
    static const int own[] = {SIGSEGV, SIGBUS, SIGILL, SIGFPE, SIGTRAP};
    sigset_t others, before;
    sigfillset(&others);
    for (size_t i = 0; i < sizeof own / sizeof *own; i++) sigdelset(&others, own[i]);
    pthread_sigmask(SIG_SETMASK, &others, &before);
    if (!rc) rc = pthread_create(out, &attr, fn, arg);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    pthread_attr_destroy(&attr);
    if (!rc) pthread_setname_np(*out, name);
    return rc;
}
