/* A simulation beside the measurement of the same load. */
#ifndef SIM_COMPARE_H
#define SIM_COMPARE_H

#include "load/plan.h"
#include "sim/calibration.h"

#include <stdio.h>

/* A figure that a point has in both; in `unit`. */
struct sim_row {
    const char *title, *name, *unit; /* title: of the point; valid during the call */
    double measured, simulated;
    double error; /* simulated / measured - 1; NaN when 0 was measured */
};

/* Each figure of the points that have the same title in the report of `quire bench serve --json` at path.
 * QUIRE_ENOTFOUND when none has. */
int sim_compare_rows(const struct plan *simulated, const char *path,
                     void (*row)(void *ctx, const struct sim_row *row), void *ctx, struct error *err);
/* Prints them. */
int sim_compare(const struct plan *simulated, const char *path, FILE *out, struct error *err);

/* Tokens a second of each point of a report of `quire bench engine --json`, beside what the calibration says
 * of its steps; nothing of another report (*is_engine false). QUIRE_EINVAL: it was measured with other
 * kernels, threads or dtype. */
int sim_compare_engine(const struct calibration *c, const char *path, bool *is_engine,
                       void (*row)(void *ctx, const struct sim_row *row), void *ctx, struct error *err);

#endif
