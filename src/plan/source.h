/* What is to be planned: a model with its weights, or a description of one. */
#ifndef PLAN_SOURCE_H
#define PLAN_SOURCE_H

#include "weights/weights.h"

#include <quire/error.h>

#include <stdbool.h>

struct plan_source {
    struct weights *origin;  /* as found */
    struct weights *weights; /* what is planned: origin, or its description in a format */
    const char *format;      /* of a description, "bf16"; NULL: as the files have it */
};

/* path: a GGUF file, a folder, or a config.json (or a folder with nothing else), which is planned as if it
 * had weights of `format`. format NULL: as they are; of a config.json bf16. Errors as weights_open. */
int plan_source_open(const char *path, const char *format, struct plan_source *out, struct error *err);
void plan_source_close(struct plan_source *s);

#endif
