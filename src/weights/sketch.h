/* A model without its weights: metadata, and tensors that are described but hold nothing, to be planned for.
 * weights_read of such a tensor must not be called. */
#ifndef WEIGHTS_SKETCH_H
#define WEIGHTS_SKETCH_H

#include "weights/weights.h"

/* The metadata of another model, which must stay open, and of its tensors those that were made from metadata
 * (divisors of rotations). The caller adds the others, then ends it. */
int sketch_begin(const struct weights *like, struct weights **out, struct error *err);
/* dims: unused ones are 1. QUIRE_EUNSUPPORTED: rows that are not whole blocks of the type. */
int sketch_add(struct weights *w, const char *name, enum tensor_type type, const size_t dims[TENSOR_MAX_DIMS],
               struct error *err);
int sketch_end(struct weights *w, struct error *err);

/* A config.json alone, of a folder as Hugging Face has it, with what sentence-transformers puts beside it.
 * There are no tensors but those made from metadata. Errors as weights_open. */
int sketch_config(const char *path, struct weights **out, struct error *err);
/* Whether by that config.json the model has a tensor that not all of its family have (GGUF's name). */
bool sketch_expects(const struct weights *config, const char *name);
/* Rows of the tensors of encoders that only their shape says: token types, labels. */
size_t sketch_token_types(const struct weights *config);
size_t sketch_labels(const struct weights *config);

#endif
