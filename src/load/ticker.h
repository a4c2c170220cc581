/* A line on the terminal while a run goes on. */
#ifndef LOAD_TICKER_H
#define LOAD_TICKER_H

#include "load/client.h"

#include <stdio.h>

#define TICKER_RECENT 256

struct ticker {
    FILE *out; /* NULL: none */
    const char *title;
    uint64_t start_us, last_us, total, n, n_failed, last_events;
    double duration_s, recent_ms[TICKER_RECENT]; /* TTFT of the latest requests */
    size_t n_recent;
};

/* total: requests, 0 when the duration decides. */
void ticker_start(struct ticker *p, FILE *out, const char *title, uint64_t total, double duration_s);
void ticker_note(struct ticker *p, const struct answer *a, uint64_t due_us);
/* At most twice a second; last: takes the line away. */
void ticker_show(struct ticker *p, size_t active, uint64_t events, bool last);

#endif
