/* From the defaults to the best: one parameter at a time, then the matrix of the two that work together
 * (private to src/tune). */
#ifndef TUNE_SEARCH_H
#define TUNE_SEARCH_H

#include "tune/trial.h"

#define STEPS_MAX 256

enum verdict {
    VERDICT_BETTER,
    VERDICT_WORSE,
    VERDICT_SAME,
    VERDICT_RULED_OUT, /* by the simulator */
    VERDICT_UNLIKE,    /* by the quality gate: other answers than the defaults give */
    VERDICT_FAILED
};

/* A candidate beside the best so far. */
struct tune_step {
    struct candidate c;
    enum knob knob; /* that was changed */
    bool matrix;    /* a cell of the matrix */
    enum verdict verdict;
    struct figures before,
        after;             /* of the best then, and of the candidate; predicted ones where it was ruled out */
    double low, high;      /* 95 % interval of the change of goodput, as a share; both 0: none */
    struct tune_quality q; /* of candidates that change answers; 0 tokens: no look was taken */
    char why[200];         /* for people */
};

struct search {
    const struct tune_options *o;
    struct trials trials;
    struct candidate best;
    struct figures base_figures, best_figures;
    struct tune_step steps[STEPS_MAX];
    size_t n_steps;
    unsigned moved;   /* bits of the knobs that made a difference */
    bool reverted;    /* the best was not better than the defaults when both were measured again */
    bool unconfirmed; /* there was no time for it */
    struct report_files {
        FILE *config, *html; /* those that options name; NULL: in the folder, made at the end */
    } files;
    FILE *out;
};

int search_run(struct search *s, struct error *err);

/* ---- predict.c: what the simulator says; false: it says nothing ---- */
bool predict(const struct tune_options *o, const struct slo *slo, const struct candidate *c,
             struct figures *out);

/* ---- report.c ---- */
/* Files that options name are opened before anything is measured, so that a wrong path is told at once. */
int report_files_open(struct search *s, struct error *err);
int report_write(struct search *s, struct error *err);
void report_files_close(struct search *s);
void report_step(const struct search *s, const struct tune_step *step);
void report_end(const struct search *s);

#endif
