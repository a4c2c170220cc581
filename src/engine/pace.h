/* How many rows a step may have. A step is the time that a cancel, a new request and the next token of
 * everyone else have to wait, so prompts are computed in parts that take about PACE_STEP_US, though not in
 * parts so small that weights are read for few rows. By law 1 this changes no answer. Pure: whoever runs
 * steps, on whatever clock, asks here. */
#ifndef ENGINE_PACE_H
#define ENGINE_PACE_H

#include "base/size.h"

#include <stddef.h>
#include <stdint.h>

#define PACE_STEP_US  200000
#define PACE_MIN_ROWS 128 /* the least that a step may have */
#define PACE_RATED    128 /* rows from which a step tells the speed of prefill; no more than the line above */

struct pace {
    double rows_per_us; /* of recent steps with many rows; 0 = not known yet */
};

/* The most rows of the next step, at most max_rows unless that is less than PACE_MIN_ROWS. */
static inline size_t pace_budget(const struct pace *p, size_t max_rows) {
    double rows = p->rows_per_us * PACE_STEP_US;
    size_t n = rows > 0 && rows < (double)max_rows ? (size_t)rows : max_rows;
    if (rows <= 0) n = 2 * PACE_MIN_ROWS;
    return size_max(n, PACE_MIN_ROWS);
}

/* A step of n_rows took forward_us in the model, its passes over the vocabulary included. */
static inline void pace_note(struct pace *p, size_t n_rows, uint64_t forward_us) {
    if (n_rows < PACE_RATED) return;
    double speed = (double)n_rows / (double)(forward_us + 1);
    p->rows_per_us = p->rows_per_us > 0 ? 0.5 * (p->rows_per_us + speed) : speed;
}

#endif
