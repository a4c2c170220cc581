/* Measurements as `quire bench serve --json` writes them: reading one, and two beside each other. */
#ifndef LOAD_COMPARE_H
#define LOAD_COMPARE_H

#include "load/samples.h"

#include <quire/error.h>

#include <jansson.h>
#include <stdbool.h>
#include <stdio.h>

#define COMPARE_MAX 16

enum wish { WISH_LOW, WISH_HIGH, WISH_NONE }; /* what is better */

struct compared_metric {
    const char *name, *unit;
    const char *path[3]; /* in a summary; ended by NULL */
    const char *column;  /* of the records, when its quantile q can be taken from them; else NULL */
    double q;
    enum wish wish;
    double factor; /* for display */
};
extern const struct compared_metric compared_metrics[]; /* ended by a NULL name */

struct measurement {
    const char *path, *label, *format;
    json_t *root;
};

enum basis { BASIS_NONE, BASIS_REPEATS, BASIS_REQUESTS };

struct change {
    bool known;   /* both have the figure */
    double share; /* b / a - 1 */
    struct stats_interval interval;
    enum basis basis;
    const char *verdict; /* "no difference", "better", "worse", "higher", "lower"; NULL without an interval */
};

/* *out stays valid until json_decref of its root. */
int measurement_read(const char *path, struct measurement *out, struct error *err);
const json_t *measurement_point(const struct measurement *m, const char *title);
bool metric_value(const json_t *summary, const struct compared_metric *metric, double *out);
/* point: of the baseline and of the other. */
int metric_change(const json_t *a, const json_t *b, const struct compared_metric *metric, struct change *out,
                  struct error *err);

#endif
