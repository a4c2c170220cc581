/* safetensors. Format: the README of the safetensors project.
 *
 *   u64 number of bytes of the header, the header (a JSON object), the data
 *   header: "__metadata__": an object of strings; else a tensor's name: {"dtype": "F32", "shape": [rows,
 * cols], "data_offsets": [begin, end]} in the data
 *
 * Tensors cover the data without overlaps or holes, and its end is the file's. The header is read into memory
 * of our own, of bounded size; nothing is allocated for a number that it claims. */
#include "base/error.h"
#include "base/size.h"
#include "base/utf8.h"
#include "weights/hf.h"
#include "weights/weights_impl.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define LENGTH_BYTES     8
#define HEADER_MAX_BYTES ((size_t)16 << 20)
#define NAME_MAX_BYTES   256

/* One that is not supported as a tensor may be one that is left out, so it is refused later, by its name. */
static const struct dtype {
    const char *name;
    enum tensor_type type;
} DTYPES[] = {{"F32", TENSOR_F32},
              {"F16", TENSOR_F16},
              {"BF16", TENSOR_BF16},
              {"U8", TENSOR_U8},
              {"F8_E4M3", TENSOR_F8_E4M3},
              {"F8_E5M2", TENSOR_F8_E5M2},
              {"I8", 24},
              {"I16", 25},
              {"I32", 26},
              {"I64", 27},
              {"F64", 28},
              {"BOOL", TENSOR_U8}};

static int wrong(struct error *err, const char *name, const char *what) {
    return error_set(err, QUIRE_EFORMAT, "tensor \"%.128s\": %s", name, what);
}

static int read_dtype(struct tensor *t, const json_t *entry, struct error *err) {
    const json_t *v = json_object_get(entry, "dtype");
    const char *name = json_string_value(v);
    if (!name) return wrong(err, t->name, "dtype must be a string");
    for (size_t i = 0; i < sizeof DTYPES / sizeof *DTYPES; i++) {
        if (strcmp(DTYPES[i].name, name)) continue;
        t->type = DTYPES[i].type;
        return QUIRE_OK;
    }
    return error_set(
        err, QUIRE_EUNSUPPORTED,
        "tensor \"%.128s\": dtype \"%.32s\" is not supported; F32, F16, BF16, F8_E4M3 and F8_E5M2 "
        "are",
        t->name, name);
}

/* A non-negative integer. */
static bool as_size(const json_t *v, size_t *out) {
    if (!json_is_integer(v) || json_integer_value(v) < 0) return false;
    return size_from_u64((uint64_t)json_integer_value(v), out);
}

/* The file's first dimension is the slowest; more than four are folded into that. */
static int read_shape(struct tensor *t, const json_t *entry, struct error *err) {
    const json_t *shape = json_object_get(entry, "shape");
    size_t n = json_array_size(shape), elements = 1;
    if (!json_is_array(shape)) return wrong(err, t->name, "shape must be a list");
    for (size_t i = 0; i < TENSOR_MAX_DIMS; i++) t->dims[i] = 1;
    for (size_t i = 0; i < n; i++) {
        size_t v, at = size_min(n - 1 - i, TENSOR_MAX_DIMS - 1);
        if (!as_size(json_array_get(shape, i), &v) || !v)
            return error_set(err, QUIRE_EFORMAT,
                             "tensor \"%.128s\": shape[%zu] must be an integer of at least 1", t->name, i);
        if (!size_mul(elements, v, &elements)) return wrong(err, t->name, "shape is too large");
        t->dims[at] *= v;
    }
    t->n_dims = n ? (unsigned)size_min(n, TENSOR_MAX_DIMS) : 1;
    const struct tensor_type_info *type = tensor_type_info(t->type);
    if (!size_mul(elements, type->block_bytes, &t->bytes)) return wrong(err, t->name, "shape is too large");
    t->row_bytes = t->dims[0] * type->block_bytes;
    return QUIRE_OK;
}

/* data: the file's, n bytes. */
static int read_offsets(struct tensor *t, const json_t *entry, const uint8_t *data, size_t n,
                        struct error *err) {
    const json_t *v = json_object_get(entry, "data_offsets");
    size_t begin, end;
    if (json_array_size(v) != 2 || !as_size(json_array_get(v, 0), &begin) ||
        !as_size(json_array_get(v, 1), &end))
        return wrong(err, t->name, "data_offsets must be two non-negative integers");
    if (begin > end || end > n)
        return error_set(
            err, QUIRE_EFORMAT,
            "tensor \"%.128s\": data_offsets [%zu, %zu] do not lie within the %zu bytes of data (is "
            "the file complete?)",
            t->name, begin, end, n);
    if (end - begin != t->bytes)
        return error_set(
            err, QUIRE_EFORMAT,
            "tensor \"%.128s\": data_offsets [%zu, %zu] are %zu bytes, but its shape takes %zu as %s",
            t->name, begin, end, end - begin, t->bytes, json_string_value(json_object_get(entry, "dtype")));
    t->data = data + begin;
    return QUIRE_OK;
}

/* Names are looked up and printed. */
static int check_name(const char *name, struct error *err) {
    size_t n = strlen(name);
    if (!n || n > NAME_MAX_BYTES)
        return error_set(err, QUIRE_EFORMAT, "a tensor's name has %zu bytes; 1 to %d are allowed", n,
                         NAME_MAX_BYTES);
    for (size_t i = 0; i < n; i++)
        if ((unsigned char)name[i] < 0x20 || name[i] == 0x7f)
            return wrong(err, name, "its name has a control character");
    return QUIRE_OK;
}

static int read_tensor(struct weights *w, const char *name, const json_t *entry, size_t data_start,
                       struct error *err) {
    int rc = check_name(name, err);
    if (rc) return rc;
    struct tensor *t = weights_add_tensor(w);
    if (!t || !(t->name = arena_strndup(&w->arena, name, strlen(name))))
        return error_set(err, QUIRE_ENOMEM, "out of memory");
    if (!json_is_object(entry)) return wrong(err, name, "its description must be an object");
    const char *key;
    json_t *v;
    json_object_foreach((json_t *)entry, key, v) {
        if (strcmp(key, "dtype") && strcmp(key, "shape") && strcmp(key, "data_offsets"))
            return error_set(err, QUIRE_EFORMAT, "tensor \"%.128s\": the key \"%.32s\" is unknown", name,
                             key);
    }
    rc = read_dtype(t, entry, err);
    if (!rc) rc = read_shape(t, entry, err);
    if (!rc) rc = read_offsets(t, entry, w->map.base + data_start, w->map.n - data_start, err);
    w->tensor_bytes += rc ? 0 : t->bytes; /* wraps only where tensors overlap, which is refused */
    return rc;
}

static int by_address(const void *a, const void *b) {
    const struct tensor *x = *(const struct tensor *const *)a, *y = *(const struct tensor *const *)b;
    return x->data < y->data ? -1 : x->data > y->data;
}

static int check_cover(struct weights *w, size_t data_start, struct error *err) {
    const struct tensor **sorted = calloc(w->n_tensors + 1, sizeof *sorted);
    const uint8_t *at = w->map.base + data_start, *end = w->map.base + w->map.n;
    int rc = sorted ? 0 : error_set(err, QUIRE_ENOMEM, "out of memory");
    for (size_t i = 0; i < w->n_tensors && !rc; i++) sorted[i] = &w->tensors[i];
    if (!rc && w->n_tensors) qsort(sorted, w->n_tensors, sizeof *sorted, by_address);
    for (size_t i = 0; i < w->n_tensors && !rc; i++) {
        const struct tensor *t = sorted[i];
        const uint8_t *begin = t->data;
        if (begin < at)
            rc = error_set(err, QUIRE_EFORMAT, "tensors \"%.128s\" and \"%.128s\" overlap in the file",
                           sorted[i ? i - 1 : 0]->name, t->name);
        else if (begin > at)
            rc = error_set(err, QUIRE_EFORMAT,
                           "the %zu bytes in front of tensor \"%.128s\" belong to no tensor",
                           (size_t)(begin - at), t->name);
        at = begin + t->bytes;
    }
    if (!rc && at != end)
        rc = error_set(err, QUIRE_EFORMAT, "the last %zu bytes of the file belong to no tensor",
                       (size_t)(end - at));
    free(sorted);
    return rc;
}

static int check_metadata(const json_t *metadata, struct error *err) {
    const char *key;
    json_t *v;
    if (!json_is_object(metadata)) return error_set(err, QUIRE_EFORMAT, "__metadata__ must be an object");
    json_object_foreach((json_t *)metadata, key, v) {
        if (!json_is_string(v))
            return error_set(err, QUIRE_EFORMAT, "__metadata__: \"%.64s\" must be a string", key);
    }
    return QUIRE_OK;
}

static const char *what_else(const uint8_t *p) { /* 8 bytes may be read */
    static const struct {
        const char *magic, *what;
    } kinds[] = {{"GGUF", "a GGUF file: name it .gguf"},
                 {"PK\x03\x04", "a zip archive, perhaps of PyTorch weights"},
                 {"version ", "a Git LFS pointer: fetch the file it stands for"},
                 {"<!DOCTYP", "a web page: the download went wrong"},
                 {"<html", "a web page: the download went wrong"}};
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
        if (!memcmp(p, kinds[i].magic, strlen(kinds[i].magic))) return kinds[i].what;
    return NULL;
}

/* Bytes of the header, and where the data begins. */
static int read_length(const struct weights *w, size_t *n_header, size_t *data_start, struct error *err) {
    uint8_t bytes[LENGTH_BYTES];
    uint64_t n = 0;
    if (w->map.n < LENGTH_BYTES + 2)
        return error_set(err, QUIRE_EFORMAT, "not a safetensors file: it has %zu bytes", w->map.n);
    int rc = file_map_read(&w->map, 0, LENGTH_BYTES, bytes, err);
    if (rc) return rc;
    const char *what = what_else(bytes);
    if (what) return error_set(err, QUIRE_EFORMAT, "not a safetensors file: it looks like %s", what);
    for (size_t i = 0; i < LENGTH_BYTES; i++) n |= (uint64_t)bytes[i] << (8 * i);
    if (n < 2 || n > w->map.n - LENGTH_BYTES)
        return error_set(err, QUIRE_EFORMAT,
                         "its header takes %" PRIu64 " bytes, and the file has %zu (is it complete?)", n,
                         w->map.n);
    if (n > HEADER_MAX_BYTES)
        return error_set(err, QUIRE_ELIMIT, "its header takes %" PRIu64 " bytes; at most %zu are read", n,
                         HEADER_MAX_BYTES);
    *n_header = (size_t)n;
    *data_start = LENGTH_BYTES + (size_t)n;
    return QUIRE_OK;
}

static int read_header(struct weights *w, size_t *data_start, json_t **out, struct error *err) {
    size_t n = 0;
    int rc = read_length(w, &n, data_start, err);
    if (rc) return rc;
    char *text = malloc(n);
    if (!text) return error_set(err, QUIRE_ENOMEM, "out of memory");
    rc = file_map_read(&w->map, LENGTH_BYTES, n, text, err);
    if (!rc) rc = hf_json_parse(text, n, out, err);
    if (rc == QUIRE_EFORMAT) error_prefix(err, "its header");
    free(text);
    return rc;
}

int safetensors_read(struct weights *w, struct error *err) {
    json_t *header = NULL, *entry;
    const char *name;
    size_t data_start = 0;
    int rc = read_header(w, &data_start, &header, err);
    if (!rc) {
        json_object_foreach(header, name, entry) {
            rc = strcmp(name, "__metadata__") ? read_tensor(w, name, entry, data_start, err)
                                              : check_metadata(entry, err);
            if (rc) break;
        }
    }
    json_decref(header);
    if (!rc) rc = weights_index_tensors(w, err);
    if (!rc) rc = check_cover(w, data_start, err);
    return rc;
}
