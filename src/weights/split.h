/* Models split over several GGUF files, as gguf-split and the gguf package write them:
 * STEM-00001-of-00003.gguf and so on, numbered from 1. Metadata is in the first; each has split.no (from 0),
 * split.count and split.tensors.count (of all files). */
#ifndef WEIGHTS_SPLIT_H
#define WEIGHTS_SPLIT_H

#include "base/split_name.h"
#include "weights/weights.h"

/* A file that is not named as one of several: split.count says the same. */
int split_check_single(const struct weights *w, struct error *err);
/* Opens the parts behind w, the first, and takes their tensors over. Errors begin with the path of a part. */
int split_join(struct weights *w, const struct split_name *name, struct error *err);

#endif
