/* Rows of a table by their names (private to src/plan). */
#ifndef PLAN_NAMES_H
#define PLAN_NAMES_H

#include <quire/error.h>

#include <stddef.h>

/* The row that `name` is of; case does not matter. name_at: the names of rows 0 ... n - 1. QUIRE_EINVAL lists
 * them all; option is what `name` was given with. */
int names_find(const char *option, const char *name, const char *(*name_at)(size_t row), size_t n,
               size_t *out, struct error *err);

#endif
