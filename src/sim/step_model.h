/* How long a step of the engine takes, from what it computes: sums of non-negative terms, fitted to measured
 * steps.
 *
 * The term of the rows is piecewise linear, since batching changes what a step waits for: few rows wait for
 * the weights to come from memory, many for arithmetic. What a row costs beyond that follows from its phase,
 * from the positions that it attends to, and from whether it is taken through the vocabulary. */
#ifndef SIM_STEP_MODEL_H
#define SIM_STEP_MODEL_H

#include "sim/wander.h"

#include <quire/error.h>
#include <quire/step.h>

#include <stddef.h>

#define STEP_TERMS 16
extern const char *const step_term_names[STEP_TERMS];

enum step_region {                  /* where a fit is judged on its own */
                   STEP_DECODE_FEW, /* up to 8 rows, none of a prompt */
                   STEP_DECODE_MANY,
                   STEP_PREFILL_SHORT, /* up to 128 rows, all of prompts */
                   STEP_PREFILL_LONG,
                   STEP_MIXED,
                   STEP_REGIONS
};
extern const char *const step_region_names[STEP_REGIONS];
enum step_region step_region_of(const struct quire_step *s);

struct step_fit {
    size_t n;                       /* steps measured */
    double median_error, p95_error; /* of |predicted / measured - 1| */
    double bias;                    /* sum predicted / sum measured - 1 */
};

struct step_model {
    double forward_us[STEP_TERMS], rest_us[STEP_TERMS]; /* of each unit of a term; rest: prepare and sample */
    struct step_fit fit[STEP_REGIONS];
    /* While it was measured, steps took so many times what the model says, for seconds together: P10 and P90
     * over the steps; 0: not known */
    double slow_low, slow_high;
    struct wander wander; /* the same, moment by moment */
};

/* Terms of a step, which the coefficients multiply. */
void step_terms(const struct quire_step *s, double terms[STEP_TERMS]);

/* Fills the times of a step whose counts are set; what is neither prepare nor forward is in sample_us. At
 * most STEP_MOST_US each, whatever the coefficients are. */
#define STEP_MOST_US 1000000000000u
void step_model_time(const struct step_model *m, struct quire_step *s);

/* Least squares of the relative error with outliers left out (beyond 4 median absolute deviations, three
 * rounds). QUIRE_EINVAL with fewer than STEP_LEAST steps.
 *
 * end_us [n], ascending (NULL: not known): when each ended. The speed of a machine that is shared wanders for
 * seconds together, and would be taken for a property of what happened to run then. So times are divided by
 * how slow the steps within STEP_DRIFT_US are beside the model, in turns with fitting it; the mean stays.
 * What the steps took beside the model in the end, one after the other, is the wander. */
#define STEP_LEAST    50
#define STEP_DRIFT_US 1500000
int step_model_fit(const struct quire_step *steps, const uint64_t *end_us, size_t n, struct step_model *out,
                   struct error *err);

#endif
