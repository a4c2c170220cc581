/* From the options to what is measured: points (a workload sent in one way), each a number of times. */
#ifndef LOAD_PLAN_H
#define LOAD_PLAN_H

#include "load/load.h"
#include "load/run.h"
#include "load/summary.h"
#include "load/workload.h"

#define POINTS_MAX 64

struct point {
    char title[80];                    /* "random 512/128, 8 streams" */
    struct workload_spec spec, others[RUN_OTHERS_MAX]; /* of which sessions are in turn */
    size_t n_others;
    uint64_t salt;                     /* of the content; 0: by the point's place */
    struct arrival arrival;
    size_t concurrency, max_active;
    uint64_t n_sessions;
    double duration_s;
    struct run *runs; /* one for each repeat that was begun */
    size_t n_runs;
    struct summary all; /* of all repeats together */
    struct summary *repeats;
};

struct plan;

/* Who stands in for a server: says what it is, and performs the runs. */
struct performer {
    /* Fills model, base (both malloc'd), max_model_len and what is known besides. */
    int (*describe)(void *ctx, struct target *t, struct error *err);
    int (*perform)(void *ctx, const struct run_config *config, struct run *run, struct error *err);
    /* Says what else it knows, once all has been reported; may be NULL. */
    int (*conclude)(void *ctx, const struct plan *p, FILE *out, struct error *err);
    /* Whether the same requests are to be performed once more after these n runs of them, since another run
     * may come out otherwise; at most PERFORM_MOST times in all. May be NULL: once. */
    bool (*again)(void *ctx, const struct run *runs, size_t n);
    void *ctx;
};
#define PERFORM_MOST 16

struct plan {
    const struct load_options *o;
    const struct performer *performer; /* NULL: the server at o->url */
    struct target_config tc;
    struct target target;
    struct items items;
    struct slo slo;
    double price; /* for an hour; 0: none */
    char *extra_members;
    struct point points[POINTS_MAX];
    size_t n_points;
    int64_t created_unix_s;
    char note[3][240]; /* about the workload, for the report; empty: none */
    char ended[640];   /* why the measurement ended early; empty: it did not */
    uint64_t end_us;   /* of all runs, as run_config's; set by the caller, 0: none */
};

/* Checks the options; nothing is sent yet. */
int plan_options(const struct load_options *o, struct plan *p, struct error *err);
/* Asks the server, reads the file, makes the points and checks them against the model's context. */
int plan_points(struct plan *p, struct error *err);
/* A workload by its name, scaled, that the model's context holds; lengths of 0 are its own. */
int plan_spec(const struct plan *p, const char *workload, uint32_t input, uint32_t output,
              struct workload_spec *s, struct error *err);
void plan_free(struct plan *p);

/* ---- measure.c ---- */

/* After plan_options: points, runs and their summaries; each point's figures go to `out` (NULL: nowhere) as
 * soon as they are there. Whatever it returns, p holds what was measured. What ended a measurement early
 * (p->ended) is no error here. */
int plan_measure(struct plan *p, const volatile int *interrupted, FILE *out, struct error *err);
bool plan_measured(const struct plan *p); /* whether there is anything to report */
/* QUIRE_EIO, with the point's name and what it was told, when a point got nothing but failures. */
int plan_check_answers(const struct plan *p, struct error *err);
/* One run of one point (with a performer as often as it wants), and the point's summaries. runs and repeats
 * have room for it. */
int plan_run(struct plan *p, size_t point, size_t repeat, const volatile int *interrupted, struct error *err);

/* ---- suites.c ---- */

struct preset {
    const char *name;
    enum workload_kind kind;
    bool chat, chat_only;
    uint32_t input, output, prefix, turns, chunks, chunk_tokens;
    double think_s;
};
const struct preset *preset_find(const char *name); /* NULL: unknown */
extern const char PRESET_NAMES[];                   /* "random|chat|..." */

struct suite_row {
    const char *workload;
    uint32_t input, output;  /* 0: as the preset has it */
    uint32_t concurrency[4]; /* ended by 0 */
};
/* Rows of a suite, ended by a NULL workload; NULL for an unknown name. */
const struct suite_row *suite_find(const char *name);

#endif
