/* What a measurement found, item by item (window, task, cell): in memory, in a journal beside the result file
 * so that an interrupted run can go on, and in the result file.
 *
 * The journal, FILE.partial, has a line of JSON with `kind`, `model` and `setup`, then one for each item:
 * {"i": index, "v": [a number for each column], "d": [details]}. It is taken up only when its first line is
 * the same. The result file is described in docs/eval.md. */
#ifndef EVAL_RESULTS_H
#define EVAL_RESULTS_H

#include "base/json_out.h"
#include "eval/eval.h"

#include <jansson.h>

#define ITEMS_MAX_COLUMNS 6

struct item {
    const char *id;
    bool done;
    double values[ITEMS_MAX_COLUMNS];
    float *detail; /* [n_detail] more figures, for the summary; owned; NULL = none */
    size_t n_detail;
};

struct results {
    const char *kind;
    const char *const *columns; /* [n_columns] names of the values */
    size_t n_columns;
    json_t *model; /* strings that say what was measured; owned */
    json_t *setup; /* what must be equal for two results to be comparable; owned */
    struct item *items;
    size_t n, n_done;
    const char *json; /* the context's */
    char *partial;    /* path of the journal */
    FILE *journal;
    char (*ids)[24]; /* where ids are numbers */
};

/* n items, ids 0 ... n - 1 unless the caller sets others. Takes model and setup (either may be NULL: out of
 * memory). With a result file: checks that it can be written, reads the journal if c->resume, and starts it.
 */
int results_open(struct results *s, const struct eval_context *c, const char *kind,
                 const char *const *columns, size_t n_columns, size_t n, json_t *model, json_t *setup,
                 struct error *err);
/* Item i has its values: counts it and writes it down. detail: malloc'd, taken over. */
int results_put(struct results *s, size_t i, const double *values, float *detail, size_t n_detail,
                struct error *err);
double results_sum(const struct results *s, size_t column); /* over the items that are done */
/* The end of a run that returned rc: with items, writes the result file if there is to be one, and drops the
 * journal when all are done; without any, leaves no file. Returns rc, or the error of writing where rc was
 * none. summary: adds fields to an open object. */
int results_end(struct results *s, int rc,
                void (*summary)(const struct results *s, struct json_out *j, void *ctx), void *ctx,
                struct error *err);
void results_free(struct results *s);

/* The strings of a model in this process or of a server. */
json_t *results_model(const struct eval_context *c);

#endif
