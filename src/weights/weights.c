#include "weights/weights_impl.h"
#include "base/error.h"
#include "base/size.h"
#include "weights/hf.h"
#include "weights/model_path.h"
#include "weights/split.h"

#include <stdlib.h>
#include <string.h>

/* ---- open and close ---- */

void weights_prefix(struct error *err, const char *path) {
    size_t n = strlen(path);
    error_prefix(err, "%s%s", n > 200 ? "..." : "", n > 200 ? path + n - 200 : path);
}

int weights_map_file(const char *path, struct weights **out, struct error *err) {
    *out = NULL;
    struct weights *w = calloc(1, sizeof *w);
    if (!w) return error_set(err, QUIRE_ENOMEM, "out of memory");
    w->map.fd = -1;
    arena_init(&w->arena, 16384, 0);
    w->path = strdup(path);
    int rc = w->path ? file_map_open(&w->map, path, err) : error_set(err, QUIRE_ENOMEM, "out of memory");
    if (rc)
        weights_close(w);
    else
        *out = w;
    return rc;
}

int weights_open_one(const char *path, bool any_type, struct weights **out, struct error *err) {
    int rc = weights_map_file(path, out, err);
    if (!rc) {
        (*out)->any_type = any_type;
        rc = gguf_read(*out, err);
    }
    if (rc) {
        weights_prefix(err, path);
        weights_close(*out);
        *out = NULL;
    }
    return rc;
}

/* path: one of the parts; the first has the metadata. */
static int open_split(const char *path, const struct split_name *name, bool any_type, struct weights **out,
                      struct error *err) {
    if (!name->part || name->part > name->count) {
        error_set(err, QUIRE_EFORMAT, "by its name this is part %u of %u; parts are numbered 1 to %u",
                  name->part, name->count, name->count);
        weights_prefix(err, path);
        return QUIRE_EFORMAT;
    }
    char *first = split_name_of(path, name, 1);
    if (!first) return error_set(err, QUIRE_ENOMEM, "out of memory");
    int rc = weights_open_one(first, any_type, out, err);
    if (rc == QUIRE_ENOTFOUND && name->part > 1) {
        rc = error_set(err, QUIRE_EFORMAT, "missing: the metadata of a split model is in its first part");
        weights_prefix(err, first);
    }
    if (!rc) rc = split_join(*out, name, err);
    free(first);
    return rc;
}

static int open_file(const char *path, bool any_type, struct weights **out, struct error *err) {
    struct split_name name;
    char *file = NULL;
    *out = NULL;
    if (hf_is_folder(path)) return hf_open(path, any_type, out, err);
    int rc = model_path_resolve(path, &file, err);
    if (rc) {
        weights_prefix(err, path);
        return rc;
    }
    if (split_name_parse(file, &name) && name.count != 1) {
        rc = open_split(file, &name, any_type, out, err);
    } else {
        rc = weights_open_one(file, any_type, out, err);
        if (!rc && (rc = split_check_single(*out, err))) weights_prefix(err, file);
    }
    if (!rc && (rc = gguf_join_scales(*out, err))) weights_prefix(err, file);
    if (rc) {
        weights_close(*out);
        *out = NULL;
    }
    free(file);
    return rc;
}

int weights_open(const char *path, struct weights **out, struct error *err) {
    return open_file(path, false, out, err);
}

int weights_inspect(const char *path, struct weights **out, struct error *err) {
    return open_file(path, true, out, err);
}

int weights_open_memory(const void *data, size_t n, struct weights **out, struct error *err) {
    *out = NULL;
    struct weights *w = calloc(1, sizeof *w);
    if (!w) return error_set(err, QUIRE_ENOMEM, "out of memory");
    file_map_borrow(&w->map, data, n);
    arena_init(&w->arena, 16384, 0);
    int rc = gguf_read(w, err);
    if (!rc) rc = split_check_single(w, err);
    if (!rc) rc = gguf_join_scales(w, err);
    if (rc) {
        error_prefix(err, "memory");
        weights_close(w);
        return rc;
    }
    *out = w;
    return QUIRE_OK;
}

void weights_close(struct weights *w) {
    if (!w) return;
    for (size_t i = 0; i < w->n_others; i++) weights_close(w->others[i]);
    free(w->others);
    free(w->labels);
    file_map_close(&w->map);
    arena_free(&w->arena);
    free(w->metas);
    free(w->metas_by_name);
    free(w->tensors);
    free(w->tensors_by_name);
    free(w->path);
    free(w);
}

/* ---- filling ---- */

static bool grow(void **items, size_t *cap, size_t n, size_t item_bytes) {
    if (n < *cap) return true;
    size_t more, bytes;
    if (!size_add(n, n / 2 + 16, &more) || !size_mul(more, item_bytes, &bytes)) return false;
    void *p = realloc(*items, bytes);
    if (!p) return false;
    *items = p;
    *cap = more;
    return true;
}

struct meta *weights_add_meta(struct weights *w) {
    void *items = w->metas;
    if (!grow(&items, &w->metas_cap, w->n_metas, sizeof *w->metas)) return NULL;
    w->metas = items;
    struct meta *m = &w->metas[w->n_metas++];
    *m = (struct meta){0};
    return m;
}

struct tensor *weights_add_tensor(struct weights *w) {
    void *items = w->tensors;
    if (!grow(&items, &w->tensors_cap, w->n_tensors, sizeof *w->tensors)) return NULL;
    w->tensors = items;
    struct tensor *t = &w->tensors[w->n_tensors++];
    *t = (struct tensor){0};
    return t;
}

/* Sorted rather than hashed: no file can choose names that make it slow. */
static int by_name(const void *a, const void *b) {
    const struct weights_name *x = a, *y = b;
    return strcmp(x->name, y->name);
}

static int sort_names(struct weights_name *names, size_t n, const char *what, struct error *err) {
    if (n) qsort(names, n, sizeof *names, by_name);
    for (size_t i = 1; i < n; i++) {
        if (!strcmp(names[i - 1].name, names[i].name)) {
            return error_set(err, QUIRE_EFORMAT, "%s \"%.64s\" occurs more than once", what, names[i].name);
        }
    }
    return QUIRE_OK;
}

int weights_index_metas(struct weights *w, struct error *err) {
    w->metas_by_name = calloc(w->n_metas + 1, sizeof *w->metas_by_name);
    if (!w->metas_by_name) return error_set(err, QUIRE_ENOMEM, "out of memory");
    for (size_t i = 0; i < w->n_metas; i++) w->metas_by_name[i] = (struct weights_name){w->metas[i].key, i};
    return sort_names(w->metas_by_name, w->n_metas, "metadata key", err);
}

int weights_index_tensors(struct weights *w, struct error *err) {
    w->tensors_by_name = calloc(w->n_tensors + 1, sizeof *w->tensors_by_name);
    if (!w->tensors_by_name) return error_set(err, QUIRE_ENOMEM, "out of memory");
    for (size_t i = 0; i < w->n_tensors; i++) {
        w->tensors_by_name[i] = (struct weights_name){w->tensors[i].name, i};
    }
    return sort_names(w->tensors_by_name, w->n_tensors, "tensor", err);
}

/* ---- reading ---- */

static const struct weights_name *find(const struct weights_name *names, size_t n, const char *name) {
    struct weights_name wanted = {name, 0};
    return n ? bsearch(&wanted, names, n, sizeof *names, by_name) : NULL;
}

const char *weights_path(const struct weights *w) {
    return w->path ? w->path : "memory";
}
uint64_t weights_file_bytes(const struct weights *w) {
    uint64_t bytes = 0;
    for (size_t i = 0; i < weights_n_files(w); i++) bytes += weights_file(w, i)->map.n;
    return bytes;
}
size_t weights_n_files(const struct weights *w) {
    return w->n_others + !w->is_folder;
}
const char *weights_file_path(const struct weights *w, size_t i) {
    return weights_path(weights_file(w, i));
}
uint64_t weights_bytes_of_file(const struct weights *w, size_t i) {
    return weights_file(w, i)->map.n;
}
uint64_t weights_description_bytes(const struct weights *w) {
    uint64_t most = w->descriptions_end;
    for (size_t i = 0; i < w->n_others; i++)
        if (w->others[i]->descriptions_end > most) most = w->others[i]->descriptions_end;
    return most;
}

uint64_t weights_tensor_bytes(const struct weights *w) {
    return w->tensor_bytes;
}

size_t weights_n_tensors(const struct weights *w) {
    return w->n_tensors;
}
const struct tensor *weights_tensor_at(const struct weights *w, size_t i) {
    return &w->tensors[i];
}

const struct tensor *weights_tensor(const struct weights *w, const char *name) {
    const struct weights_name *found = find(w->tensors_by_name, w->n_tensors, name);
    return found ? &w->tensors[found->i] : NULL;
}

int weights_read(const struct weights *w, const struct tensor *t, size_t offset, size_t n, void *dst,
                 struct error *err) {
    int rc = QUIRE_OK;
    if (t->file == TENSOR_IN_MEMORY) {
        memcpy(dst, (const uint8_t *)t->data + offset, n);
    } else if (t->parts) {
        rc = pieces_read(w, t, offset, n, dst, err);
    } else {
        const struct file_map *map = &weights_file(w, t->file)->map;
        size_t at = (size_t)((const uint8_t *)t->data - map->base);
        rc = file_map_read(map, at + offset, n, dst, err);
    }
    if (rc) {
        const struct weights *file = weights_file(w, t->file);
        error_prefix(err, "%s: tensor \"%s\"", weights_path(file), tensor_label(t));
    }
    return rc;
}

const char *weights_folder(const struct weights *w) {
    return w->is_folder ? w->path : NULL;
}
size_t weights_n_notices(const struct weights *w) {
    return w->n_notices;
}
const char *weights_notice(const struct weights *w, size_t i) {
    return w->notices[i];
}

bool weights_headless(const struct weights *w) {
    return w->headless;
}
bool weights_raw_scores(const struct weights *w) {
    return w->raw_scores;
}
size_t weights_usual_tokens(const struct weights *w) {
    return w->usual_tokens;
}

const char *weights_tensor_label(const struct weights *w, const char *name, char *buf, size_t size) {
    const char *theirs = w->is_folder ? hf_tensor_name(w, name, buf, size) : NULL;
    return theirs ? theirs : name;
}

const char *weights_label(const struct weights *w, const char *key) {
    for (size_t i = 0; i < w->n_labels; i++)
        if (!strcmp(w->labels[i].key, key)) return w->labels[i].label;
    return key;
}

const char *weights_key_name(const struct weights *w, const char *key) {
    const char *label = weights_label(w, key), *name = w->hf_family ? hf_key_name(w->hf_family, key) : NULL;
    const char *file = label != key ? strstr(label, ": ") : NULL;
    return file ? file + 2 : name ? name : key;
}

size_t weights_n_meta(const struct weights *w) {
    return w->n_metas;
}
const struct meta *weights_meta_at(const struct weights *w, size_t i) {
    return &w->metas[i];
}

const struct meta *weights_meta(const struct weights *w, const char *key) {
    const struct weights_name *found = find(w->metas_by_name, w->n_metas, key);
    return found ? &w->metas[found->i] : NULL;
}
