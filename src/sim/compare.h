/* A simulation beside measurements of the same load. */
#ifndef SIM_COMPARE_H
#define SIM_COMPARE_H

#include "load/plan.h"
#include "sim/calibration.h"
#include "sim/same_speed.h"

#include <stdio.h>

#define SIM_REPORTS_MAX 16

/* A figure that a point has in both; in `unit`. */
struct sim_row {
    const char *title, *name, *unit; /* title: of the point; valid during the call */
    double measured, low, high;      /* median, least and most of the repeats, of all reports together */
    size_t n_repeats;
    double simulated;  /* median of the simulation's repeats */
    double error;      /* simulated / measured - 1; NaN when 0 was measured */
    double same_speed; /* the error when steps take as long as they took then (sim/same_speed.h); NaN: not
                          known */
};

/* Each figure of the points that have the same title in the reports of `quire bench serve --json`; paths:
 * separated by commas. load: what was simulated, for the errors at the same speed; NULL: without them.
 * QUIRE_ENOTFOUND when no point has. */
int sim_compare_rows(const struct plan *simulated, const struct sim_load *load, const char *paths,
                     void (*row)(void *ctx, const struct sim_row *row), void *ctx, struct error *err);
/* Requests that a repeat of the point had, in the first of the reports that has it; 0: none. */
int sim_compare_requests(const char *paths, const char *title, size_t *n, struct error *err);
/* Prints them. */
int sim_compare(const struct plan *simulated, const struct sim_load *load, const char *paths, FILE *out,
                struct error *err);

/* Tokens a second of each point of a report of `quire bench engine --json`, beside what the calibration says
 * of its steps; nothing of another report (*is_engine false). QUIRE_EINVAL: it was measured with other
 * kernels, threads or dtype. */
int sim_compare_engine(const struct calibration *c, const char *path, bool *is_engine,
                       void (*row)(void *ctx, const struct sim_row *row), void *ctx, struct error *err);

#endif
