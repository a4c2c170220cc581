/* An open model: metadata and described tensors, whatever the container: a GGUF file, or a folder as Hugging
 * Face has it (config.json and safetensors files). Keys and tensors of a folder are translated to GGUF's, so
 * that one description serves both; see hf.h. Nothing in a model is ever executed, and every size in it has
 * been compared with the file's before anything was allocated. Immutable once open; may be read from any
 * thread.
 *
 * A file may shrink or be rewritten while it is open (a download resumed over it, a careless copy), and
 * reading mapped pages that are gone raises SIGBUS. So nothing but a tool that looks at a file and leaves
 * reads the mapping (t->data): metadata, names and strings are a private copy, read at open, and a loader
 * reads tensor data with weights_read: an error, not a signal, if the file has shrunk. */
#ifndef WEIGHTS_WEIGHTS_H
#define WEIGHTS_WEIGHTS_H

#include "weights/tensor.h"

#include <quire/error.h>

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct weights;

/* path: a .gguf file, or a folder that holds exactly one, or a folder with a config.json and safetensors
 * files (and no .gguf file). Any part of a split model
 * (...-00001-of-00003.gguf), or a folder that holds the parts of one and no other .gguf file, stands for the
 * whole: metadata and weights_path are those of the first part, tensors come in the order of parts. Parts
 * that are missing, of another split or model, or twice there are refused. Errors name the file and the key.
 * QUIRE_ENOTFOUND: no such path or no model in the folder; QUIRE_EIO; QUIRE_EFORMAT: malformed;
 * QUIRE_EUNSUPPORTED: a version, byte order or tensor type that is known but not supported; QUIRE_ELIMIT: too
 * much metadata; QUIRE_ENOMEM. */
int weights_open(const char *path, struct weights **out, struct error *err);
/* As weights_open, but takes tensor types that are known and not loadable (to look at a file, not to load
 * it). */
int weights_inspect(const char *path, struct weights **out, struct error *err);
/* The same from memory (tests, fuzzing), one whole model; data must outlive *out. */
int weights_open_memory(const void *data, size_t n, struct weights **out, struct error *err);
void weights_close(struct weights *w); /* NULL allowed */

const char *weights_path(const struct weights *w);      /* of the first file */
uint64_t weights_file_bytes(const struct weights *w);   /* sum over files */
uint64_t weights_tensor_bytes(const struct weights *w); /* sum over tensors */
/* The bytes that metadata and descriptions of tensors take at the beginning of a GGUF file: the most of all
 * files. */
uint64_t weights_description_bytes(const struct weights *w);

size_t weights_n_files(const struct weights *w); /* 1, or the parts of a split model */
const char *weights_file_path(const struct weights *w, size_t i);
uint64_t weights_bytes_of_file(const struct weights *w, size_t i);

size_t weights_n_tensors(const struct weights *w);
const struct tensor *weights_tensor_at(const struct weights *w, size_t i);      /* in file order */
const struct tensor *weights_tensor(const struct weights *w, const char *name); /* NULL if there is none */

/* The folder of a model in Hugging Face's form, else NULL. */
const char *weights_folder(const struct weights *w);
/* What was left out of a folder on purpose, one line each. */
#define WEIGHTS_MAX_NOTICES 4
size_t weights_n_notices(const struct weights *w);
const char *weights_notice(const struct weights *w, size_t i);
/* A folder of a decoder that has no matrix to make logits with: it was made for vectors. */
bool weights_headless(const struct weights *w);
/* A folder of a cross-encoder whose makers give its scores as they are, not squashed to 0 ... 1. */
bool weights_raw_scores(const struct weights *w);
/* Tokens of a text that a folder's makers have vectors made from, at most context_length; 0: not said. */
size_t weights_usual_tokens(const struct weights *w);
/* What messages call a metadata key: for a folder the key of config.json, if it comes from one. */
const char *weights_label(const struct weights *w, const char *key);
/* The same without the file: as a folder has the key or, where it has not, its family would; else the key. */
const char *weights_key_name(const struct weights *w, const char *key);
/* What messages call a tensor that is not there; in buf if it is not name. */
const char *weights_tensor_label(const struct weights *w, const char *name, char *buf, size_t size);

/* Bytes [offset, offset + n) of a tensor's data, offset + n <= t->bytes, read from the file now; whole
 * blocks. QUIRE_EIO when the file has become shorter than it was, naming the tensor. Any thread. */
int weights_read(const struct weights *w, const struct tensor *t, size_t offset, size_t n, void *dst,
                 struct error *err);

/* ---- metadata ---- */

enum meta_type {
    META_U8,
    META_I8,
    META_U16,
    META_I16,
    META_U32,
    META_I32,
    META_F32,
    META_BOOL,
    META_STRING,
    META_ARRAY,
    META_U64,
    META_I64,
    META_F64
}; /* values as in GGUF */

const char *meta_type_name(enum meta_type type); /* "u32", "string", ...; NULL for no type */

struct meta_str {
    const char *data; /* not NUL-terminated; any bytes */
    size_t len;
};

/* Array elements are read by index; strings of an array through an index built at open. */
struct meta {
    const char *key;
    enum meta_type type;            /* META_ARRAY: see elem */
    enum meta_type elem;            /* element type of an array */
    size_t n;                       /* element count of an array, else 1 */
    const void *raw;                /* little-endian scalars, or the array's elements; not aligned */
    const struct meta_str *strings; /* [n] for a string or an array of strings, else NULL */
};

size_t weights_n_meta(const struct weights *w);
const struct meta *weights_meta_at(const struct weights *w, size_t i);
const struct meta *weights_meta(const struct weights *w, const char *key); /* NULL if absent */

/* Typed getters. 0 and *out; QUIRE_ENOTFOUND when the key is absent (with *out untouched and err set);
 * QUIRE_EFORMAT naming key, type and value when it has another type or does not fit. Any integer type is
 * taken as an integer; f64 takes f32, f64 and integers. */
int weights_get_u64(const struct weights *w, const char *key, uint64_t min, uint64_t max, uint64_t *out,
                    struct error *err);
int weights_get_f64(const struct weights *w, const char *key, double *out, struct error *err); /* finite */
int weights_get_bool(const struct weights *w, const char *key, bool *out, struct error *err);
int weights_get_str(const struct weights *w, const char *key, struct meta_str *out, struct error *err);

/* Element i of an array of any integer type. */
int64_t meta_array_int(const struct meta *m, size_t i);
/* Element i of an array of any float type. */
double meta_array_float(const struct meta *m, size_t i);

#endif
