/* A server as a child process: started, waited for until it says that it is ready, and stopped. None is left
 * behind: the child ends when the thread that started it does, however that comes (Linux: PR_SET_PDEATHSIG),
 * and it is in a process group of its own, so that ctrl-C reaches us only, who then stop it. */
#ifndef LOAD_CHILD_H
#define LOAD_CHILD_H

#include <quire/error.h>

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

#define CHILD_URL_BYTES 256

struct child_config {
    const char *program;             /* NULL: the program that runs now */
    const char *const *argv;         /* ended by NULL; argv[0] is what the process is called */
    double ready_s;                  /* how long it may take until it is ready; 0: an hour */
    const volatile int *interrupted; /* raised by a signal handler to give up waiting; may be NULL */
};

struct child {
    pid_t pid;                 /* 0: none runs */
    int out, log;              /* its standard output; a memory file with its standard error */
    char url[CHILD_URL_BYTES]; /* where it listens, from its line "ready URL" */
    /* once it has been stopped */
    int status;        /* as of waitpid */
    double cpu_s;      /* user and system time */
    size_t peak_bytes; /* most memory that was resident */
};

/* Starts it and waits for its line "ready URL" on standard output. Only async-signal-safe functions are
 * called between fork and exec, so the process may have threads. Errors: QUIRE_EIO (cannot be started, or
 * ended before it was ready: with the last line of its standard error), QUIRE_ELIMIT (not ready in time),
 * QUIRE_ECANCELED (interrupted); nothing is left then. On success child_stop must follow. */
int child_start(const struct child_config *config, struct child *out, struct error *err);

/* False once it has ended by itself. */
bool child_alive(struct child *c);

/* The last line that it wrote to standard error; empty if there is none. */
void child_last_words(const struct child *c, char *out, size_t cap);

/* SIGTERM to it and what it has started, and after grace_s SIGKILL; waits for its end. Nothing for a child that is not there. Returns
 * whether it ended by itself with exit code 0. */
bool child_stop(struct child *c, double grace_s);

#endif
