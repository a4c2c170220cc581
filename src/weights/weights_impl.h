/* Inside of struct weights, for weights.c and the readers of containers. */
#ifndef WEIGHTS_WEIGHTS_IMPL_H
#define WEIGHTS_WEIGHTS_IMPL_H

#include "base/arena.h"
#include "base/buf.h"
#include "weights/file_map.h"
#include "weights/weights.h"

struct hf_family;

/* What a config.json alone says of the tensors that there are. */
struct weights_config_facts {
    bool tied, bare; /* no output matrix: the embedding is it; there is none */
    bool qkv_bias, out_bias, mlp_bias;
    size_t token_types, labels;
};

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
    struct weights **others; /* [n_others] files of a split model behind this one; of a folder: all */
    size_t n_others;

    const struct hf_family *hf_family;
    bool is_folder; /* of Hugging Face: path is the folder's, map is empty, and names are translated */
    struct weights_label *labels; /* [n_labels] what config.json calls the keys */
    size_t n_labels;
    const char *notices[WEIGHTS_MAX_NOTICES];
    size_t n_notices;
    bool headless, raw_scores; /* see weights.h */
    size_t usual_tokens;
    struct weights_config_facts facts; /* sketch.h */
};

struct weights_label {
    const char *key, *label;
};

/* File i of a model in several; of a split GGUF w itself is the first. */
static inline const struct weights *weights_file(const struct weights *w, size_t i) {
    return w->is_folder ? w->others[i] : i ? w->others[i - 1] : w;
}

/* Room for one more, zeroed; NULL: out of memory. Memory grows with what has been read, not with what a
 * header claims. */
struct meta *weights_add_meta(struct weights *w);
struct tensor *weights_add_tensor(struct weights *w);

/* Bytes of a scalar; 0 for strings, arrays and what is no type. */
size_t meta_scalar_bytes(uint32_t type);

/* Each makes its index once all are added; duplicate names are refused. */
int weights_index_metas(struct weights *w, struct error *err);
int weights_index_tensors(struct weights *w, struct error *err);

/* "PATH: " in front; the end of a long path says more than its beginning. */
void weights_prefix(struct error *err, const char *path);

/* One file, whether or not it is part of a split model. Errors begin with it. */
int weights_open_one(const char *path, bool any_type, struct weights **out, struct error *err);

/* A file whose contents are still to be read: path and map are set. */
int weights_map_file(const char *path, struct weights **out, struct error *err);

/* Reader of GGUF: fills everything from w->map. */
int gguf_read(struct weights *w, struct error *err);
/* Once all tensors of all files are known: which are scales of others. Errors name the tensor. */
int gguf_join_scales(struct weights *w, struct error *err);
/* Reader of safetensors: fills the tensors from w->map, named as in the file, and their index. */
int safetensors_read(struct weights *w, struct error *err);

/* Fewest columns of a block with a scale, unless it is a whole row. */
#define PIECES_MIN_BLOCK 16

/* Bytes [offset, offset + n) of a tensor in parts; of PIECES_MXFP4 whole blocks. */
int pieces_read(const struct weights *w, const struct tensor *t, size_t offset, size_t n, void *dst,
                struct error *err);

#endif
