#include "eval/bar.h"

#include "base/clock.h"
#include "base/gauge.h"

#include <stdio.h>
#include <unistd.h>

void bar_start(struct bar *b, const char *what, size_t done, size_t total) {
    *b = (struct bar){.what = what,
                      .first = done,
                      .total = total,
                      .start_us = clock_us(),
                      .terminal = isatty(STDERR_FILENO)};
}

void bar_show(struct bar *b, size_t done, const char *note) {
    uint64_t now_us = clock_us();
    if (!b->terminal || (now_us - b->shown_us < 100000 && done < b->total)) return;
    b->shown_us = now_us;
    char cells[GAUGE_BYTES];
    double share = b->total ? (double)done / (double)b->total : 1;
    fprintf(stderr, "\r\033[K  %s %zu of %zu %s", gauge_draw(cells, share), done, b->total, b->what);
    if (note && *note) fprintf(stderr, ", %s", note);
    if (done > b->first && done < b->total)
        fprintf(stderr, ", %.0f s left",
                (double)(now_us - b->start_us) / 1e6 * (double)(b->total - done) / (double)(done - b->first));
    fflush(stderr);
}

void bar_end(struct bar *b) {
    if (b->terminal) fprintf(stderr, "\r\033[K");
}
