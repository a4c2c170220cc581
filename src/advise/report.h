/* Figures from a report of `quire bench serve --json`. */
#ifndef ADVISE_REPORT_H
#define ADVISE_REPORT_H

#include "advise/tree.h"

#include <jansson.h>
#include <quire/error.h>

struct report {
    json_t *root;
    size_t n_points;
    struct wishes wishes; /* the SLO and price that were measured with */
};

/* QUIRE_ENOTFOUND, QUIRE_EIO, QUIRE_EFORMAT, QUIRE_EUNSUPPORTED. */
int report_open(const char *path, struct report *out, struct error *err);
/* title: of the point, the report's. QUIRE_EFORMAT when the point is not as the format has it. */
int report_figures(const struct report *r, size_t point, struct figures *out, const char **title,
                   struct error *err);
void report_close(struct report *r);

#endif
