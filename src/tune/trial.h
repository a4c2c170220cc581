/* Runs of candidates: a server started for each, the load put on it, the figures kept in a folder, so that a
 * run that has been made is not made again (private to src/tune). */
#ifndef TUNE_TRIAL_H
#define TUNE_TRIAL_H

#include "load/plan.h"
#include "tune/tune.h"

#define TRIAL_BATCHES 10
#define TRIALS_MAX    1024

/* Figures of a run, or of a simulated one. */
struct figures {
    double good_per_s, good_share, excess; /* excess: slo_excess */
    double output_per_s, total_per_s, ttft_p50, ttft_p95, tpot_p50, tpot_p95, e2e_p95;
    size_t n_ok, n_failed;
};

struct trial {
    struct candidate c;
    unsigned repeat;
    double part; /* of the requests */
    struct figures f;
    double batches[TRIAL_BATCHES]; /* goodput in tenths of the requests: how sure it is */
    double seconds;                /* start of the server included */
    bool cut;                      /* at the end of the time, with this many of its requests: */
    double done;                   /* a share */
    char failed[200];              /* why there is no figure; else empty */
};

/* What was seen of the answers of a form of the model. */
struct looked {
    double dtype, weights; /* as in a candidate */
    struct tune_quality q;
};
#define LOOKED_MAX (TUNE_DTYPES * TUNE_WEIGHTS_MAX)

struct trials {
    const struct tune_options *o;
    struct slo slo;
    char *key;       /* what the folder's runs are of */
    struct trial *v; /* [TRIALS_MAX] */
    size_t n, n_old; /* n_old: of an earlier call */
    struct looked looked[LOOKED_MAX];
    size_t n_looked;
    /* What the search keeps for its end, measuring the best and the defaults once more. */
    double reserve_s;
    size_t reserve_runs;
    bool spent; /* budget or runs */
};

/* Reads what is in the folder, or makes it. QUIRE_EINVAL when it is of another model, load or SLO. */
int trials_open(struct trials *t, const struct tune_options *o, struct error *err);
void trials_close(struct trials *t);
/* The run of this candidate, made now unless it is there; *out NULL and t->spent when the budget does not
 * allow it, or has ended it with less than half of its requests (of the very first run: with less than
 * TRIAL_BATCHES of them). A server that does not start or loses its requests is a trial that failed, not an
 * error. */
int trials_get(struct trials *t, const struct candidate *c, unsigned repeat, double part,
               const struct trial **out, struct error *err);
/* ---- quality.c ---- */

/* Whether the candidate's answers may differ from the defaults'. */
bool changes_answers(const struct tune_options *o, const struct candidate *c);
/* What is known of them, looked at now unless it is there; *out NULL and t->spent when the time does not
 * allow it. QUIRE_ECANCELED when interrupted; other errors are of this candidate. */
int quality_get(struct trials *t, const struct candidate *c, const struct tune_quality **out,
                struct error *err);
/* Whether it is within the limits; else which is not, in `why`. */
bool quality_within(const struct tune_judge *j, const struct tune_quality *q, char *why, size_t size);
/* "perplexity +0.12 %, KL 0.0031, same top-1 97.8 %" */
void quality_print(const struct tune_quality *q, char *out, size_t size);

/* How long a run of this candidate takes: as its newest, or as the last one of any; 0: there was none. */
double trials_seconds(const struct trials *t, const struct candidate *c, double part);
double
trials_left_s(const struct trials *t); /* of the budget, less what is kept for the end; INFINITY: no end */
void figures_of(const struct summary *s, const struct slo *slo, struct figures *out);

/* Whether the load can be made, before there is a server. */
int load_check(const struct tune_options *o, struct error *err);
/* The options of the load for a candidate. streams: room for a number. */
struct load_options trial_load(const struct tune_options *o, const struct candidate *c, unsigned repeat,
                               double part, char streams[24]);

#endif
