/* A small pool of threads for work that must not run on a loop or the engine thread: JSON, templates, tokenizing. */
#ifndef BASE_WORKERS_H
#define BASE_WORKERS_H

#include <quire/error.h>

#include <stddef.h>

struct workers;

struct work {
    struct work *next; /* the pool's while queued */
    void (*run)(struct work *work);
};

int workers_start(struct workers **out, size_t n_threads, size_t max_queued, struct error *err);
/* Never blocks. QUIRE_EBUSY when max_queued are waiting, QUIRE_ECANCELED once stopping; then run is never called. */
int workers_submit(struct workers *w, struct work *work);
void workers_stop(struct workers *w); /* runs what is queued, joins, frees; NULL allowed */

#endif
