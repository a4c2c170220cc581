/* When requests are meant to be sent, in an open loop. */
#ifndef LOAD_ARRIVAL_H
#define LOAD_ARRIVAL_H

#include <stdint.h>

enum arrival_kind {
    ARRIVAL_CLOSED,
    ARRIVAL_CONSTANT,
    ARRIVAL_POISSON,
    ARRIVAL_GAMMA,
    ARRIVAL_RAMP,
    ARRIVAL_TRACE
};

struct arrival {
    enum arrival_kind kind;
    double rate;    /* requests a second; of a ramp the first */
    double ramp_to; /* the rate that a ramp ends with, after ramp_s; it stays there */
    double ramp_s;
    double burstiness; /* shape of the gamma distribution of gaps: 1 is Poisson, below it comes in bursts */
    uint64_t seed;
    /* state */
    uint64_t n;
    double at_s;
};

/* Seconds from the start at which the next request is due; the first is due after a gap, but for constant
 * arrival (at 0). Not for closed loops and traces. */
double arrival_next(struct arrival *a);

#endif
