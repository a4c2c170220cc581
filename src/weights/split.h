/* Models split over several GGUF files, as gguf-split and the gguf package write them:
 * STEM-00001-of-00003.gguf and so on, numbered from 1. Metadata is in the first; each has split.no (from 0),
 * split.count and split.tensors.count (of all files). */
#ifndef WEIGHTS_SPLIT_H
#define WEIGHTS_SPLIT_H

#include "weights/weights.h"

struct split_name {
    size_t stem_len; /* of the path: what all parts share */
    unsigned part, count;
};

/* Whether a path is named as a part; part and count may be anything from 0 to 99999. */
bool split_name_parse(const char *path, struct split_name *out);
/* The path of a part of the same model; malloc'd, NULL: out of memory. */
char *split_name_of(const char *path, const struct split_name *name, unsigned part);

/* A file that is not named as one of several: split.count says the same. */
int split_check_single(const struct weights *w, struct error *err);
/* Opens the parts behind w, the first, and takes their tensors over. Errors begin with the path of a part. */
int split_join(struct weights *w, const struct split_name *name, struct error *err);

#endif
