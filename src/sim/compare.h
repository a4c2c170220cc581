/* A simulation beside the measurement of the same load. */
#ifndef SIM_COMPARE_H
#define SIM_COMPARE_H

#include "load/plan.h"

#include <stdio.h>

/* Prints measured, simulated and error of each figure for the points that have the same title in the report
 * of `quire bench serve --json` at path. QUIRE_ENOTFOUND when none has. */
int sim_compare(const struct plan *simulated, const char *path, FILE *out, struct error *err);

#endif
