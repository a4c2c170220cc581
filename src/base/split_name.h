/* Names of models that are split over several files: STEM-00001-of-00003.gguf and so on, numbered from 1, as
 * gguf-split and the gguf package write them. */
#ifndef BASE_SPLIT_NAME_H
#define BASE_SPLIT_NAME_H

#include <stdbool.h>
#include <stddef.h>

struct split_name {
    size_t stem_len; /* of the path: what all parts share */
    unsigned part, count;
};

/* Whether a path is named as a part; part and count may be anything from 0 to 99999. */
bool split_name_parse(const char *path, struct split_name *out);
/* The path of a part of the same model; malloc'd, NULL: out of memory. */
char *split_name_of(const char *path, const struct split_name *name, unsigned part);

#endif
