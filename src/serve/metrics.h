/* Prometheus text, written by metrics.c (engine, requests) and metrics_machine.c (process, machine). */
#ifndef SERVE_METRICS_H
#define SERVE_METRICS_H

#include "serve/internal.h"

struct metrics {
    struct serve *s;
    struct buf *out;
    struct buf labels; /* model_name="...",engine="0" */
};

void metrics_header(struct metrics *w, const char *name, const char *type, const char *help);
void metrics_sample(struct metrics *w, const char *name, const char *extra,
                    double v); /* extra: more labels, or NULL */
void metrics_single(struct metrics *w, const char *name, const char *type, const char *help, double v);

/* ---- metrics_machine.c ---- */
void metrics_config(struct metrics *w);  /* flags in effect, sizes */
void metrics_process(struct metrics *w); /* what the process takes, and what the machine gives it */

#endif
