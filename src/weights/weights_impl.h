/* Inside of struct weights, for weights.c and the readers of containers. */
#ifndef WEIGHTS_WEIGHTS_IMPL_H
#define WEIGHTS_WEIGHTS_IMPL_H

#include "base/arena.h"
#include "weights/file_map.h"
#include "weights/weights.h"

struct weights_name { /* an entry of a sorted index */
    const char *name;
    size_t i;
};

struct weights {
    struct file_map map;
    char *path;
    bool any_type;      /* tensors of known types that are not loadable are taken */
    struct arena arena; /* names and string indexes */
    struct meta *metas;
    size_t n_metas, metas_cap;
    struct weights_name *metas_by_name; /* [n_metas], made by weights_index */
    struct tensor *tensors;
    size_t n_tensors, tensors_cap;
    struct weights_name *tensors_by_name;
    uint64_t tensor_bytes;
    size_t descriptions_end, alignment; /* of this file: bytes of header, metadata and descriptions */
    struct weights **others;            /* [n_others] files of a split model behind this one */
    size_t n_others;
};

/* File i of a split model; w itself is the first. */
static inline const struct weights *weights_file(const struct weights *w, size_t i) {
    return i ? w->others[i - 1] : w;
}

/* Room for one more, zeroed; NULL: out of memory. Memory grows with what has been read, not with what a
 * header claims. */
struct meta *weights_add_meta(struct weights *w);
struct tensor *weights_add_tensor(struct weights *w);

/* Each makes its index once all are added; duplicate names are refused. */
int weights_index_metas(struct weights *w, struct error *err);
int weights_index_tensors(struct weights *w, struct error *err);

/* "PATH: " in front; the end of a long path says more than its beginning. */
void weights_prefix(struct error *err, const char *path);

/* One file, whether or not it is part of a split model. Errors begin with it. */
int weights_open_one(const char *path, bool any_type, struct weights **out, struct error *err);

/* Reader of GGUF: fills everything from w->map. */
int gguf_read(struct weights *w, struct error *err);

#endif
