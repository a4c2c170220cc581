/* `quire bench engine`: prefill and decode of an engine in this process, at batch sizes and context lengths,
 * beside what the machine could do. */
#ifndef BENCH_ENGINE_RUN_H
#define BENCH_ENGINE_RUN_H

#include "base/buf.h"
#include "bench/drive.h"
#include "bench/limits.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

/* What a step takes at least; a multiply and an add are 2 operations. */
struct engine_costs {
    double weight_bytes;                     /* of the matrices that every step reads */
    double kv_bytes;                         /* of a position, K and V, all layers */
    double row_ops, logit_ops, attended_ops; /* of a row; of a row's logits; of a position attended */
    enum bench_limit ops_limit;              /* which arithmetic the products use */
    const char *unknown; /* why shares of limits cannot be told (experts, windows); NULL: they can */
};

struct engine_figures {
    size_t tokens, steps;
    double seconds; /* from step to step, so that what lies between them is in it */
    double tokens_per_s;
    double prepare_s, forward_s, sample_s;
    double outside_share;                  /* of seconds: all but the model's forward passes */
    double memory_share, arithmetic_share; /* of the limits; 0: not known */
};

/* Of the steps of a run that are all prefill, or all decode with `batch` sequences; the first such decode
 * step warms up. At most `most` decode steps count. Zeros when there are none. limits: measured, or NULL. */
struct engine_figures engine_figures_of(const struct drive_step *steps, size_t n, bool decode, size_t batch,
                                        size_t most, const struct engine_costs *costs,
                                        const struct limit *limits);

#define ENGINE_REPEATS_MAX 100
#define ENGINE_POINTS_MAX  128

struct engine_point {
    bool decode;
    size_t batch, context;
    struct engine_figures all; /* medians over the repeats; tokens, steps and seconds of all together */
    double low, high;          /* of tokens_per_s */
    struct engine_figures repeats[ENGINE_REPEATS_MAX];
    size_t n;
};

struct engine_run {
    struct quire_engine *engine;
    struct drive *drive; /* whose reader the engine has */
    struct engine_costs costs;
    struct limit limits[LIMITS]; /* engine_limits */
    const double *batches, *contexts;
    size_t n_batches, n_contexts;
    bool chosen;   /* these were asked for; else what does not fit, or takes too long, is left out */
    size_t tokens; /* of an answer */
    size_t repeats;
    size_t max_num_seqs, n_kv_groups;
    uint64_t seed;
    const char *model, *label;
    const volatile int *interrupted;
    FILE *out, *progress; /* progress: NULL: none */
    /* of the run */
    struct engine_point points[ENGINE_POINTS_MAX];
    size_t n_points;
    char note[240], ended[160];
    int64_t created_unix_s;
};

/* Some seconds. 2 GB are read when so much is available. Errors: QUIRE_ENOMEM,
 * QUIRE_EIO. */
int engine_limits(const struct kern *kern, const char *cpu_limit, size_t n_threads, uint64_t available_bytes,
                  struct limit limits[LIMITS], struct error *err);

/* Refuses what was asked for and the engine cannot hold, by its number. */
int engine_check(const struct engine_run *r, struct error *err);
/* After engine_check; prints the table. An interruption is no error: r->ended. */
int engine_run(struct engine_run *r, struct error *err);

/* ---- engine_report.c ---- */

void engine_title(const struct engine_point *k, char *text, size_t cap);
void engine_head(FILE *out);
void engine_line(const struct engine_run *r, const struct engine_point *k, FILE *out);
void engine_json(const struct engine_run *r, struct buf *out);
/* The memory limit that steps of so many bytes are held against. */
enum bench_limit engine_memory_limit(const struct limit *limits, double bytes);

#endif
