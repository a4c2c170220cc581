/* What each knob would give: the same plan with one thing changed, a row each. */
#ifndef PLAN_KNOBS_H
#define PLAN_KNOBS_H

#include "plan/forecast.h"

/* Fills f->knobs; f is otherwise complete. weights: those that are planned, to be described in other formats.
 */
int knobs_make(const struct forecast_ask *ask, struct forecast *f, struct error *err);

/* What would make n sequences of max_model_len fit, in f->advice: each by itself, 0 or NULL where it cannot.
 */
void knobs_advise(const struct forecast_ask *ask, struct forecast *f, size_t n);

#endif
