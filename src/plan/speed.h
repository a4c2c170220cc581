/* What can be expected of a machine: a roofline (Williams et al. 2009) of the steps of an answer, or what a
 * player of measured steps says. */
#ifndef PLAN_SPEED_H
#define PLAN_SPEED_H

#include "plan/forecast.h"

/* Fills f->speed from what f has; without a player and a speed of the machine nothing is known. With an SLO
 * as many streams as keep to it, which is found by halving: more streams are never faster. Errors are the
 * player's, and QUIRE_EUNSUPPORTED for a model that makes vectors. */
int speed_make(const struct forecast_ask *ask, struct forecast *f, struct error *err);

#endif
