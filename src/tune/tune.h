/* `quire tune`: the options of a server with which a load gets the highest goodput under an SLO. */
#ifndef TUNE_TUNE_H
#define TUNE_TUNE_H

#include "load/load.h"
#include "sim/drive.h"

#include <quire/error.h>

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

/* What is tried, in this order. The last two change answers, so they pass a quality gate first. */
enum knob {
    KNOB_CONCURRENCY, /* of the load: how many requests are let in at once */
    KNOB_SEQS,
    KNOB_TOKENS,
    KNOB_MEMORY,
    KNOB_CHUNK,
    KNOB_PREFIX,
    KNOB_BLOCK,
    KNOB_THREADS,
    KNOB_DTYPE,   /* an index into tune_dtypes */
    KNOB_WEIGHTS, /* an index into tune_options.weights */
    KNOBS
};

#define TUNE_DTYPES 3
extern const char *const tune_dtypes[TUNE_DTYPES];

/* A value for each knob, as its flag has it; of a switch 0 or 1. */
struct candidate {
    double v[KNOBS];
};

/* How far a candidate's answers are from those of the defaults, over a text. */
struct tune_quality {
    size_t tokens;                 /* that were scored */
    double ppl_increase, kl, top1; /* a share; nats, mean; share of equal first choices */
};

/* Who looks at answers. `most_s` bounds each of the two looks that may be needed: at the defaults, and at the
 * candidate. QUIRE_ECANCELED when interrupted. */
struct tune_judge {
    int (*look)(void *ctx, const char *weights, const char *dtype, double most_s, struct tune_quality *out,
                struct error *err);
    void *ctx;
    struct tune_quality limits; /* increases; top1: by how much it may fall short of 1 */
    double most_s;
};

#define TUNE_WEIGHTS_MAX 9 /* the model and 8 more */

struct tune_options {
    const char *model;
    const char *const *weights; /* [n_weights] forms of the model, itself first */
    size_t n_weights;
    const char *
        command; /* what is started instead of `quire serve MODEL`: a program and its arguments; NULL: ours */
    const char *const *server_args; /* flags for every server, ended by NULL */
    const char *folder;             /* of the state and the runs */
    const char *parameters;         /* "max-num-seqs,..."; NULL: all */
    const char *config, *html;      /* files to write; NULL: config.yaml and report.html in the folder */
    struct load_options load;       /* workload and SLO; url is not read */
    struct candidate base;          /* the defaults */
    unsigned given;    /* bits of the knobs that were given, so that they belong to the configuration */
    bool kv_given;     /* KV memory is fixed, so its share changes nothing */
    bool open_loop;    /* the load has a rate: its concurrency is no knob */
    uint64_t start_us; /* clock_us() from which the budget counts */
    double budget_s;   /* of everything; 0: none */
    double startup_s;  /* most that a server may take to be ready */
    int64_t repeats;   /* runs of a candidate at most, while intervals do not separate */
    size_t most_runs;  /* 0: no limit */
    size_t n_cores;
    const struct calibration *cal;  /* NULL: nothing is simulated */
    const struct tune_judge *judge; /* NULL: what changes answers is not tried */
    const volatile int *interrupted;
};

/* The folder, made where it is not there, and locked: *lock is to be closed in the end. QUIRE_EINVAL,
 * QUIRE_EIO; QUIRE_EBUSY while another search has it. */
int tune_folder_open(const char *folder, int *lock, struct error *err);

/* Whether load, folder and files can be used, before a model is opened for anything. */
int tune_check(const struct tune_options *o, struct error *err);

/* Prints each step to out as it is done. QUIRE_ECANCELED when interrupted: what was measured is in the
 * folder, and the same call goes on from there. */
int tune_run(const struct tune_options *o, FILE *out, struct error *err);

#endif
