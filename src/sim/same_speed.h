/* A simulation whose steps take as long, all together, as those of a measurement took. On a machine that is
 * shared a calibration and a measurement minutes later find other speeds. A server tells the time that it
 * spent in steps, so how much slower the machine was is known, and what is left of the error is the
 * simulator's: the schedule, the shape of step times, what is around the engine. */
#ifndef SIM_SAME_SPEED_H
#define SIM_SAME_SPEED_H

#include "load/plan.h"
#include "sim/drive.h"

/* What was simulated, to do it again. */
struct sim_load {
    const struct load_options *options;
    const struct sim_target *target; /* with a calibration */
    const volatile int *interrupted;
};

/* By point of the plan. step_s: seconds that were measured in steps, for each request that was answered; 0:
 * not known, and the point is simulated as it was. busy_s: the same at the calibration's speed. Fills *out,
 * plan_free afterwards in any case. */
int sim_same_speed(const struct sim_load *load, const double *step_s, size_t n_points, double *busy_s,
                   struct plan *out, struct error *err);

#endif
