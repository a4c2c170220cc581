/* `quire tune`: the options of a server with which a load gets the highest goodput under an SLO. */
#ifndef TUNE_TUNE_H
#define TUNE_TUNE_H

#include "load/load.h"
#include "sim/drive.h"

#include <quire/error.h>

#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

/* What is tried, in this order. */
enum knob {
    KNOB_CONCURRENCY, /* of the load: how many requests are let in at once */
    KNOB_SEQS,
    KNOB_TOKENS,
    KNOB_MEMORY,
    KNOB_CHUNK,
    KNOB_PREFIX,
    KNOB_BLOCK,
    KNOB_THREADS,
    KNOBS
};

/* A value for each knob, as its flag has it; of a switch 0 or 1. */
struct candidate {
    double v[KNOBS];
};

struct tune_options {
    const char *model;
    const char *
        command; /* what is started instead of `quire serve MODEL`: a program and its arguments; NULL: ours */
    const char *const *server_args; /* flags for every server, ended by NULL */
    const char *folder;             /* of the state and the runs */
    const char *parameters;         /* "max-num-seqs,..."; NULL: all */
    const char *config, *html;      /* files to write; NULL: config.yaml and report.html in the folder */
    struct load_options load;       /* workload and SLO; url is not read */
    struct candidate base;          /* the defaults */
    unsigned given;   /* bits of the knobs that were given, so that they belong to the configuration */
    bool kv_given;    /* KV memory is fixed, so its share changes nothing */
    bool open_loop;   /* the load has a rate: its concurrency is no knob */
    double budget_s;  /* no run is begun that would not fit; 0: none */
    double startup_s; /* most that a server may take to be ready */
    int64_t repeats;  /* runs of a candidate at most, while intervals do not separate */
    size_t most_runs; /* 0: no limit */
    size_t n_cores;
    const struct calibration *cal; /* NULL: nothing is simulated */
    const volatile int *interrupted;
};

/* Prints each step to out as it is done. QUIRE_ECANCELED when interrupted: what was measured is in the
 * folder, and the same call goes on from there. */
int tune_run(const struct tune_options *o, FILE *out, struct error *err);

#endif
