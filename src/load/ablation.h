/* What each step of serving gives: a server for each row, one change a row, all under the same load and the
 * same limits.
 *
 * The load is closed-loop: every second session is a question with 20 documents (rag20), the others an agent
 * of eight steps (agent). For each row the number of streams is raised until fewer than a share of the
 * requests are within the limits, or more streams give no more; docs/metrics.md defines the figures. What the
 * server is is the caller's to know: a row is a command that says "ready URL" (load/child.h). */
#ifndef LOAD_ABLATION_H
#define LOAD_ABLATION_H

#include "load/load.h"
#include "load/plan.h"

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

#define ABLATION_LOADS 16

struct ablation_result {
    const struct ablation_row *row;
    struct load_options options; /* of the plan */
    struct plan *plan;           /* its points are the loads that were tried; NULL: the row was not begun */
    int best;                    /* the point that counts; -1: the limits did not hold with one stream */
    double useful_per_s;         /* of it; 0: none */
    double gain, total;  /* shares of the cost that this row, and all so far, took away; NAN: not known */
    double server_cpu_s; /* of all loads together */
    size_t peak_bytes;
    bool same_answers, asked; /* as the row before; asked: whether that is known */
    char *answers;            /* what it was asked for comparison */
    char why[600];            /* why there is no figure; else empty */
};

struct ablation {
    const struct ablation_row *rows;
    size_t n_rows;
    const struct load_options
        *o;          /* slo (NULL: from the first row), price, scale, seed, label, files; url is not used */
    double within;   /* share of the requests that must be within the limits */
    double headroom; /* of limits that come from the first row: times what one stream needs */
    size_t max_streams;
    const char *model;   /* for the report */
    const char *machine; /* likewise */
    char notes[4][300];  /* likewise; empty: none */
    /* of the run */
    char slo_text[96];
    struct ablation_result *results; /* [n_rows] */
    char ended[640];
    int64_t created_unix_s;
};

/* Runs, prints to `out`, writes the files. What was measured is reported however it ends, and no server is
 * left. */
int load_ablation(struct ablation *a, const volatile int *interrupted, FILE *out, struct error *err);

/* ---- ablation_report.c ---- */

void ablation_line(const struct ablation *a, const struct ablation_result *r,
                   FILE *out); /* when it is done */
void ablation_table(const struct ablation *a, FILE *out);
void ablation_json(const struct ablation *a, struct buf *out);
void ablation_csv(const struct ablation *a, struct buf *out);
void ablation_html(const struct ablation *a, struct buf *out);

#endif
