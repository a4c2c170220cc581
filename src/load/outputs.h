/* The files of a report: opened before anything is measured, so that a name that cannot be written is refused
 * at once, and written when all is known. */
#ifndef LOAD_OUTPUTS_H
#define LOAD_OUTPUTS_H

#include "base/buf.h"
#include "load/load.h"

#include <quire/error.h>

#include <stdio.h>

struct outputs {
    FILE *json, *csv, *html; /* NULL: not asked for */
};

/* What goes into those that are asked for. */
struct output_texts {
    struct buf json, csv, html;
};
#define OUTPUT_TEXTS_INIT                                                                                    \
    { BUF_INIT, BUF_INIT, BUF_INIT }

/* By the names in o. outputs_close afterwards in any case. */
int outputs_open(struct outputs *f, const struct load_options *o, struct error *err);
/* Frees the texts. */
int outputs_write(const struct outputs *f, const struct load_options *o, struct output_texts *t,
                  struct error *err);
void outputs_close(struct outputs *f);

#endif
