/* What each step of serving gives: a server for each row, one change a row, all under the same load and the
 * same limits.
 *
 * The load is closed-loop: sessions are in turn a question with 20 documents (rag20), an agent of eight steps
 * (agent) and a conversation (chat). For each row the number of streams is raised until fewer than a share of
 * the requests are within the limits, or more streams give no more; then all rows are measured with theirs a
 * number of times, in rounds, so that what the machine does besides falls on all of them. docs/metrics.md
 * defines the figures. What the server is is the caller's to know: a row is a command that says "ready URL"
 * (load/child.h).
 */
#ifndef LOAD_ABLATION_H
#define LOAD_ABLATION_H

#include "load/child.h"
#include "load/load.h"
#include "load/plan.h"
#include "load/samples.h"

#include <stdbool.h>
#include <stddef.h>

struct ablation_row {
    const char *name, *about; /* "+ paged KV", and what that is */
    const char *const *argv;  /* of the server, ended by NULL; our own program */
    const char *workload;     /* the RAG part: rag20, rag6 or rag3k */
    double perplexity;        /* of what it serves; 0: not known */
    char quality[160];        /* what there is to say of it */
    bool answers_stay;        /* the answers must be those of the row before, bit for bit */
};

#define ABLATION_LOADS       16
#define ABLATION_REPEATS_MAX 100 /* as --repeat allows */
#define ABLATION_PARTS       3
#define ABLATION_ITL         2.5 /* of limits: the longest ITL, times the headroom that TTFT and TPOT have */
#define ABLATION_QUESTIONS   4   /* that the limits come from */

/* The kinds of sessions; their lengths vary as those of people do. */
struct ablation_mix {
    struct workload_spec specs[ABLATION_PARTS];
    size_t n;
};

struct ablation_result {
    const struct ablation_row *row;
    struct load_options options; /* of the plan */
    char url[CHILD_URL_BYTES];   /* of the server that runs now */
    struct plan *plan;           /* its points are the loads that were tried, and the one that was measured;
                                  * NULL: the row was not begun */
    struct ablation_mix mix;
    int best;            /* the point that counts; -1: the limits did not hold with one stream */
    size_t n_repeats;    /* of it; 0: it was only tried */
    double useful_per_s; /* of it: the median of the repeats; 0: none */
    double least, most;  /* of the repeats */
    double gain, total;  /* shares of the cost that this row, and all so far, took away; NAN: not known */
    struct stats_interval gain_range, total_range; /* with 95 % */
    double server_cpu_s;                           /* of all loads together */
    size_t peak_bytes;
    bool same_answers, asked; /* as the row before; asked: whether that is known */
    char *answers;            /* what it was asked for comparison */
    char why[600];            /* why there is no figure; else empty */
};

struct ablation {
    const struct ablation_row *rows;
    size_t n_rows;
    const struct load_options
        *o;          /* slo (NULL: derived), price, scale, seed, label, repeat, files; url is not used */
    double within;   /* share of the requests that must be within the limits */
    double headroom; /* of limits that are derived: times what one request alone has */
    double answer_scale;
    double look_s; /* how long requests are sent at each load that is tried */
    size_t max_streams;
    const char *model;   /* for the report */
    const char *machine; /* likewise */
    char notes[5][300];  /* likewise; empty: none */
    /* of the run */
    char slo_text[96];
    struct ablation_result *results; /* [n_rows] */
    char ended[640];
    int64_t created_unix_s;
};

/* The sessions with this form of the questions; rag20 is the untrimmed one. answer_scale: of the answers, in
 * place of the plan's scale. */
int ablation_mix_make(const struct plan *p, const char *rag, double answer_scale, struct ablation_mix *out,
                      struct error *err);

/* True: the interval of the row's own gain is known and holds 0. */
bool ablation_no_difference(const struct stats_interval *range);

/* Runs, prints to `out`, writes the files. What was measured is reported however it ends, and no server is
 * left. */
int load_ablation(struct ablation *a, const volatile int *interrupted, FILE *out, struct error *err);

/* ---- ablation_report.c ---- */

void ablation_line(const struct ablation_result *r, FILE *out);        /* when its loads were tried */
void ablation_repeat_line(const struct ablation_result *r, FILE *out); /* after a repeat */
void ablation_table(const struct ablation *a, FILE *out);
void ablation_json(const struct ablation *a, struct buf *out);
void ablation_csv(const struct ablation *a, struct buf *out);
void ablation_html(const struct ablation *a, struct buf *out);

#endif
