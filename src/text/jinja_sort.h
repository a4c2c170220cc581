/* Python's sorted(): stable, with comparisons that may fail. */
#ifndef TEXT_JINJA_SORT_H
#define TEXT_JINJA_SORT_H

#include "text/jinja_value.h"

/* Sorts items[n] by keys[n] (both are reordered). reverse keeps the order of equal items, as Python does. */
int jinja_sort(struct jinja *j, struct jinja_value *items, struct jinja_value *keys, size_t n, bool reverse);

/* The keys of a mapping in order. */
int jinja_sorted_keys(struct jinja *j, struct jinja_value mapping, struct jinja_vec *out);

#endif
