/* A line on the terminal while a run goes on. */
#ifndef LOAD_PROGRESS_H
#define LOAD_PROGRESS_H

#include "load/client.h"

#include <stdio.h>

#define PROGRESS_RECENT 256

struct progress {
    FILE *out; /* NULL: none */
    const char *title;
    uint64_t start_us, last_us, total, n, n_failed, last_events;
    double duration_s, recent_ms[PROGRESS_RECENT]; /* TTFT of the latest requests */
    size_t n_recent;
};

/* total: requests, 0 when the duration decides. */
void progress_start(struct progress *p, FILE *out, const char *title, uint64_t total, double duration_s);
void progress_note(struct progress *p, const struct answer *a, uint64_t due_us);
/* At most twice a second; last: takes the line away. */
void progress_show(struct progress *p, size_t active, uint64_t events, bool last);

#endif
