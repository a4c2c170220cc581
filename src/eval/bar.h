/* A progress bar on a terminal; nothing elsewhere. */
#ifndef EVAL_BAR_H
#define EVAL_BAR_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct bar {
    const char *what; /* "windows" */
    size_t first, total;
    uint64_t start_us, shown_us;
    bool terminal;
};

void bar_start(struct bar *b, const char *what, size_t done, size_t total);
void bar_show(struct bar *b, size_t done, const char *note); /* note: the figure so far, or NULL */
void bar_end(struct bar *b);                                 /* wipes it */

#endif
