/* How the speed of a machine wanders. A calibration keeps how slow its steps were beside the model, one moment
 * after the other; a simulation plays these moments again, each run from another one on. So slow moments come
 * as often, are as slow, and last as long as they did: the circular block bootstrap (Politis and Romano, "A
 * circular block-resampling procedure for stationary data", 1992) with one block for each run. */
#ifndef SIM_WANDER_H
#define SIM_WANDER_H

#include <stddef.h>
#include <stdint.h>

#define WANDER_MOST   2048
#define WANDER_LEAST  40    /* moments: fewer tell nothing */
#define WANDER_BIN_US 50000 /* times a power of two: of a moment */

struct wander {
    size_t n; /* moments; 0: not known */
    double moment_us;
    /* In this moment steps took so many thousandths of what the model says, from WANDER_FASTEST to
     * WANDER_SLOWEST */
    uint16_t slow[WANDER_MOST];
};
#define WANDER_FASTEST 20
#define WANDER_SLOWEST 50000

/* From steps that followed each other: what they took, and what they would at the mean speed [n]. With less
 * than WANDER_LEAST moments nothing is known. */
void wander_make(const double *took_us, const double *mean_us, size_t n, struct wander *out);

/* Puts the moments of another time behind those of *to; level: that time's mean speed as a share of that
 * which *to is beside. Moments become longer where there is no room for all. */
void wander_join(struct wander *to, const struct wander *other, double level);

/* How long it takes what takes work_us at the mean speed, from at_us on; after the last moment comes the
 * first. */
double wander_time(const struct wander *w, double at_us, double work_us);

/* Where run `draw` (from 1) of a seed begins, on server `member`: draws are even over all moments (golden
 * ratio), servers anywhere. */
double wander_start_us(const struct wander *w, uint64_t seed, uint64_t draw, uint32_t member);

#endif
