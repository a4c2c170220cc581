/* One minute of measuring an engine: designed mixes of prompts and answers, and the time of every step. */
#ifndef SIM_CALIBRATE_H
#define SIM_CALIBRATE_H

#include "sim/calibration.h"

#include <quire/quire.h>
#include <quire/step.h>

#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>

/* Every step of an engine, for quire_config.step_reader: &log->reader. */
struct step_log {
    struct quire_step_reader reader;
    struct quire_step *steps; /* [cap]; those beyond are not kept */
    size_t cap;
    _Atomic size_t n;
};

int step_log_open(struct step_log *log, size_t cap, struct error *err);
void step_log_close(struct step_log *log);

struct calibrate_options {
    double seconds; /* the mixes are gone through again until then; each once at least */
    FILE *progress; /* NULL: none */
    const volatile int *interrupted;
};

/* Runs the mixes that the engine's limits allow: decodes of 1 to max_num_seqs sequences with short and long
 * contexts, prompts of many lengths, prompts that come while others are decoded. */
int calibrate_run(struct quire_engine *e, size_t max_num_seqs, const struct calibrate_options *o,
                  struct error *err);

#endif
