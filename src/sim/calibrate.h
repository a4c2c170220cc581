/* One minute of measuring an engine: designed mixes of prompts and answers, and the time of every step. */
#ifndef SIM_CALIBRATE_H
#define SIM_CALIBRATE_H

#include "bench/drive.h"
#include "sim/calibration.h"

#include <quire/quire.h>
#include <quire/step.h>

#include <stdio.h>

/* The steps of all mixes, in order. */
struct step_log {
    struct quire_step *steps; /* [n] */
    uint64_t *end_us;         /* [n] as struct drive_step has it */
    size_t n, cap;
    double share; /* of the mixes that the engine's limits allow, how many were run to their end */
};
void step_log_free(struct step_log *log);
/* Puts the drive's steps behind those that are there. */
int step_log_keep(struct step_log *log, struct drive *d, struct error *err);

struct calibrate_options {
    double seconds; /* the mixes are gone through again until then; each once if limit_s allows it */
    double limit_s; /* when it ends in any case: a busy machine may need minutes */
    FILE *progress; /* NULL: none */
    const volatile int *interrupted;
    /* Called after some mixes, so that what is measured there had the machine in the same moments; its time
     * does not count. NULL: not called. */
    int (*between)(void *ctx, struct error *err);
    void *ctx;
};

#define CALIBRATE_MOST_STEPS 4096 /* of a mix: what the drive needs room for */

/* Runs the mixes that the engine's limits allow: decodes of 1 to max_num_seqs sequences with short and long
 * contexts, prompts of many lengths, prompts that come while others are decoded. They are short, and each
 * round has another order, so that moments at which the machine is slow fall on all of them alike. d: the
 * engine's step reader. log begins zeroed. */
int calibrate_run(struct drive *d, struct quire_engine *e, size_t max_num_seqs,
                  const struct calibrate_options *o, struct step_log *log, struct error *err);

/* What steps took that a server of this process wrote out to a client on the same machine: gap_us, row_us as a
 * calibration has them (time between two steps counts while there is work), and how they wandered beside the
 * model and these two, which becomes m's wander where there are enough of them. A client and a server that
 * share cores with the steps make more of it than the machine alone. */
int calibrate_served(const struct step_log *served, struct step_model *m, double *gap_us, double *row_us,
                     struct error *err);

#endif
