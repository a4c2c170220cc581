#include "eval/bar.h"

#include "base/clock.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define BAR_WIDTH 24

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
    char cells[BAR_WIDTH + 1];
    size_t full = b->total ? done * BAR_WIDTH / b->total : BAR_WIDTH;
    memset(cells, '.', BAR_WIDTH);
    memset(cells, '#', full);
    cells[BAR_WIDTH] = 0;
    fprintf(stderr, "\r\033[K  [%s] %zu of %zu %s", cells, done, b->total, b->what);
    if (note && *note) fprintf(stderr, ", %s", note);
    if (done > b->first && done < b->total)
        fprintf(stderr, ", %.0f s left",
                (double)(now_us - b->start_us) / 1e6 * (double)(b->total - done) / (double)(done - b->first));
    fflush(stderr);
}

void bar_end(struct bar *b) {
    if (b->terminal) fprintf(stderr, "\r\033[K");
}
