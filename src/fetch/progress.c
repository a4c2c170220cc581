#include "fetch/hub_impl.h"

#include "base/clock.h"
#include "base/gauge.h"

#include <stdio.h>
#include <unistd.h>

static double megabytes(uint64_t bytes) {
    return (double)bytes / 1e6;
}

void progress_start(struct progress *p, const char *name, uint64_t first_bytes, uint64_t total_bytes) {
    *p = (struct progress){.name = name,
                           .total_bytes = total_bytes,
                           .first_bytes = first_bytes,
                           .start_us = clock_us(),
                           .terminal = isatty(STDERR_FILENO)};
    if (!p->terminal && first_bytes)
        fprintf(stderr, "  %s: %.1f MB, going on after %.1f MB\n", name, megabytes(total_bytes),
                megabytes(first_bytes));
    else if (!p->terminal)
        fprintf(stderr, "  %s: %.1f MB\n", name, megabytes(total_bytes));
}

static void bar(const struct progress *p, uint64_t bytes, uint64_t now_us) {
    char cells[GAUGE_BYTES];
    double share = p->total_bytes ? (double)bytes / (double)p->total_bytes : 1;
    double seconds = (double)(now_us - p->start_us) / 1e6 + 1e-6;
    double rate = (double)(bytes - p->first_bytes) / seconds;
    fprintf(stderr, "\r\033[K  %-32.32s %s %3.0f %% of %.1f MB, %.1f MB/s", p->name, gauge_draw(cells, share),
            100 * share, megabytes(p->total_bytes), rate / 1e6);
    if (rate > 0 && bytes < p->total_bytes)
        fprintf(stderr, ", %.0f s left", (double)(p->total_bytes - bytes) / rate);
    fflush(stderr);
}

void progress_show(struct progress *p, uint64_t bytes) {
    uint64_t now_us = clock_us();
    if (!p->terminal || now_us - p->shown_us < 100000) return;
    p->shown_us = now_us;
    bar(p, bytes, now_us);
}

void progress_end(struct progress *p, uint64_t bytes) {
    if (!p->terminal) return;
    bar(p, bytes, clock_us());
    fputc('\n', stderr);
}
