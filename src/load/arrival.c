#include "load/arrival.h"

#include "base/rng.h"
#include "load/length.h"

#include <math.h>

/* Gamma of shape k and mean 1: Marsaglia and Tsang, "A simple method for generating gamma variables" (2000);
 * a shape below 1 is one above it times a power of a uniform number. */
static double gamma_gap(const struct arrival *a, uint32_t at) {
    double k = a->burstiness < 1 ? a->burstiness + 1 : a->burstiness, d = k - 1.0 / 3, c = 1 / sqrt(9 * d),
           v = 1;
    for (uint32_t draw = 0; draw < 1000; draw += 3) {
        double x = draw_normal(rng_uniform(a->seed, 1, at, draw), rng_uniform(a->seed, 1, at, draw + 1));
        double u = rng_uniform(a->seed, 1, at, draw + 2);
        v = 1 + c * x;
        if (v <= 0) continue;
        v = v * v * v;
        if (log(1 - u) < 0.5 * x * x + d - d * v + d * log(v)) break;
    }
    double gap = d * v;
    if (a->burstiness < 1) gap *= pow(1 - rng_uniform(a->seed, 2, at, 0), 1 / a->burstiness);
    return gap / a->burstiness;
}

/* A ramp sends when the integral of its rate reaches the next whole number: rate r0 + (r1 - r0) t / T. */
static double ramp_at(const struct arrival *a, double n) {
    double slope = (a->ramp_to - a->rate) / a->ramp_s, whole = (a->rate + a->ramp_to) / 2 * a->ramp_s;
    if (n >= whole) return a->ramp_s + (n - whole) / a->ramp_to;
    if (fabs(slope) < 1e-12) return n / a->rate;
    return (sqrt(a->rate * a->rate + 2 * slope * n) - a->rate) / slope;
}

double arrival_next(struct arrival *a) {
    uint32_t i = (uint32_t)a->n++;
    switch (a->kind) {
    case ARRIVAL_POISSON: a->at_s += -log(1 - rng_uniform(a->seed, 0, i, 0)) / a->rate; break;
    case ARRIVAL_GAMMA: a->at_s += gamma_gap(a, i) / a->rate; break;
    case ARRIVAL_RAMP: a->at_s = ramp_at(a, (double)i); break;
    default: a->at_s = (double)i / a->rate;
    }
    return a->at_s;
}
