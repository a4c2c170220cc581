/* Scoring windows: many under way, results in the order of the windows. */
#ifndef EVAL_SCORE_H
#define EVAL_SCORE_H

#include "eval/bar.h"
#include "eval/results.h"
#include "eval/windows.h"

struct scored {
    size_t window, n;        /* n: tokens scored */
    double nll, nll_squares; /* sums of -log p, and of its square, in nats */
    void *rows;              /* what `read` has filled in */
};

struct score_job {
    const struct eval_context *c;
    const struct windows *w;
    struct results *items;
    size_t rows_bytes; /* memory that `read` gets for a window */
    /* Sees every scored distribution, on compute threads: `row` counts from the window's first scored token.
     * NULL = none. */
    void (*read)(void *user, void *rows, size_t window, size_t row, const float *logits, size_t n_vocab);
    /* A window is done: puts its item. */
    int (*done)(void *user, const struct scored *s, struct error *err);
    void (*note)(void *user, char *text, size_t cap); /* the figure so far, for the progress bar */
    void *user;
};

/* Scores the windows that have no item yet. enum eval_end or an error. */
int score_windows(const struct score_job *job, struct error *err);
#endif
