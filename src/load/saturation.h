/* Whether an open loop asked for more than the server can do. */
#ifndef LOAD_SATURATION_H
#define LOAD_SATURATION_H

#include "load/summary.h"

/* Fills s->saturated when, while requests were sent, those in flight and their times to the first token both
 * grew (least squares over the time they were due, t > 4) by more than half of their means, and answers came
 * back at less than 95 % of the rate of requests; or when more than 5 % of what was due was never sent. */
void saturation_find(const struct run *runs, size_t n, struct summary *s);

#endif
