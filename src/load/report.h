/* The plan's figures for people and programs. */
#ifndef LOAD_REPORT_H
#define LOAD_REPORT_H

#include "base/buf.h"
#include "base/json_out.h"
#include "load/plan.h"

/* What one point gave, as soon as it is done; and a row for each point when all are. */
void report_point(const struct plan *p, const struct point *k, FILE *out);
void report_table(const struct plan *p, FILE *out);
/* docs/bench.md says what the fields are. */
void report_json(const struct plan *p, struct buf *out);
void report_csv(const struct plan *p, struct buf *out);
void report_html(const struct plan *p, struct buf *out);

/* Parts that reports of more than one kind have. */
void report_json_summary(struct json_out *j, const struct plan *p, const struct summary *s);
void report_json_point(struct json_out *j, const struct plan *p, const struct point *k);
void report_html_style(struct buf *out); /* up to the title */

/* Whether more load gave no more throughput: what to say of this point beside the one before; else "". */
void report_flat(const struct point *before, const struct point *k, char *text, size_t cap);

#endif
