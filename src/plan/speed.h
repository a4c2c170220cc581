/* What can be expected of a machine: a roofline (Williams et al. 2009) of the steps of an answer. */
#ifndef PLAN_SPEED_H
#define PLAN_SPEED_H

#include "plan/forecast.h"

/* Fills f->speed from what f has; ask->speed.read_per_s 0: nothing is known of the machine. */
void speed_make(const struct forecast_ask *ask, struct forecast *f);

#endif
