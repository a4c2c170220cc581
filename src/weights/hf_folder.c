/* The files of a folder: which there are, and whether they hold what the index says. */
#include "base/buf.h"
#include "base/error.h"
#include "base/size.h"
#include "weights/hf_impl.h"
#include "weights/model_path.h"

#include <dirent.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#define CONFIG           "config.json"
#define SINGLE           "model.safetensors"
#define INDEX            "model.safetensors.index.json"
#define CONFIG_MAX_BYTES ((size_t)16 << 20)
#define MAX_FILES        4096

static bool has_file(const char *folder, const char *name) {
    struct stat st;
    char path[PATH_MAX]; /* a longer one cannot be opened */
    int n = snprintf(path, sizeof path, "%s/%s", folder, name);
    return n > 0 && (size_t)n < sizeof path && !stat(path, &st);
}

static bool has_gguf(const char *folder) {
    DIR *d = opendir(folder);
    bool found = false;
    for (const struct dirent *e; d && !found && (e = readdir(d));) {
        size_t n = strlen(e->d_name);
        found = e->d_name[0] != '.' && n > 5 && !strcmp(e->d_name + n - 5, ".gguf");
    }
    if (d) closedir(d);
    return found;
}

bool hf_is_folder(const char *path) {
    struct stat st;
    return !stat(path, &st) && S_ISDIR(st.st_mode) && has_file(path, CONFIG) && !has_gguf(path);
}

int hf_read_json(const char *folder, const char *name, json_t **out, struct error *err) {
    struct file_map map = {.fd = -1};
    char *path = model_path_join(folder, name), *text = NULL;
    int rc = path ? file_map_open(&map, path, err) : error_set(err, QUIRE_ENOMEM, "out of memory");
    if (!rc && map.n > CONFIG_MAX_BYTES)
        rc = error_set(err, QUIRE_ELIMIT, "has %zu bytes; at most %zu are read", map.n, CONFIG_MAX_BYTES);
    if (!rc && !(text = malloc(map.n + 1))) rc = error_set(err, QUIRE_ENOMEM, "out of memory");
    if (!rc) rc = file_map_read(&map, 0, map.n, text, err);
    if (!rc) rc = hf_json_load(text, map.n, out, err);
    if (rc) error_prefix(err, "%s", name);
    free(text);
    free(path);
    file_map_close(&map);
    return rc;
}

static int read_object(const char *folder, const char *name, json_t **out, struct error *err) {
    int rc = hf_read_json(folder, name, out, err);
    if (rc || json_is_object(*out)) return rc;
    return error_set(err, QUIRE_EFORMAT, "%s: it must be a JSON object", name);
}

/* ---- safetensors files ---- */

static int open_file(struct weights *w, const char *name, struct error *err) {
    struct weights *file = NULL;
    char *path = model_path_join(w->path, name);
    int rc = path ? weights_map_file(path, &file, err) : error_set(err, QUIRE_ENOMEM, "out of memory");
    if (!rc) rc = safetensors_read(file, err);
    if (rc) {
        error_prefix(err, "%s", name);
        weights_close(file);
    } else {
        w->others[w->n_others++] = file;
    }
    free(path);
    return rc == QUIRE_ENOTFOUND ? err->code = QUIRE_EFORMAT : rc;
}

/* A file in the same folder, whatever an index would like. */
static bool is_plain_name(const char *name) {
    size_t n = strlen(name), suffix = strlen(".safetensors");
    return n > suffix && n < 256 && name[0] != '.' && !strchr(name, '/') &&
           !strcmp(name + n - suffix, ".safetensors");
}

struct index {
    const json_t *map; /* tensor to file */
    json_t *numbers;   /* file to its number */
    const char *files[MAX_FILES];
    size_t n;
};

static int wrong_file(const char *tensor, const json_t *v, struct error *err) {
    char *said = json_dumps(v, JSON_ENCODE_ANY | JSON_COMPACT);
    int rc = error_set(err, QUIRE_EFORMAT,
                       "weight_map: the file of tensor \"%.128s\" is %.128s; it must be the name of a "
                       ".safetensors file in the same folder",
                       tensor, said ? said : "?");
    free(said);
    return rc;
}

static int list_files(struct index *x, struct error *err) {
    const char *name;
    json_t *v;
    if (!json_object_size(x->map))
        return error_set(err, QUIRE_EFORMAT, "weight_map must be an object with tensors");
    json_object_foreach((json_t *)x->map, name, v) {
        const char *file = json_string_value(v);
        if (!file || !is_plain_name(file)) return wrong_file(name, v, err);
        if (json_object_get(x->numbers, file)) continue;
        if (x->n == MAX_FILES)
            return error_set(err, QUIRE_ELIMIT, "weight_map has more than %d files", MAX_FILES);
        if (json_object_set_new(x->numbers, file, json_integer((json_int_t)x->n)))
            return error_set(err, QUIRE_ENOMEM, "out of memory");
        x->files[x->n++] = file;
    }
    return QUIRE_OK;
}

/* Every tensor of a file is said to be in it. */
static int check_file(const struct index *x, const struct weights *file, const char *name,
                      struct error *err) {
    for (size_t i = 0; i < file->n_tensors; i++) {
        const char *t = file->tensors[i].name, *said = json_string_value(json_object_get(x->map, t));
        if (said && !strcmp(said, name)) continue;
        if (!said)
            return error_set(err, QUIRE_EFORMAT, "%s holds tensor \"%.128s\", which weight_map has not", name,
                             t);
        return error_set(err, QUIRE_EFORMAT, "tensor \"%.128s\" is in %s, but weight_map says %s", t, name,
                         said);
    }
    return QUIRE_OK;
}

/* Every tensor of the index is in its file. */
static int check_map(const struct index *x, const struct weights *w, struct error *err) {
    const char *name;
    json_t *v;
    json_object_foreach((json_t *)x->map, name, v) {
        size_t i = (size_t)json_integer_value(json_object_get(x->numbers, json_string_value(v)));
        if (!weights_tensor(w->others[i], name))
            return error_set(err, QUIRE_EFORMAT, "weight_map: tensor \"%.128s\" is not in %s", name,
                             x->files[i]);
    }
    return QUIRE_OK;
}

static int open_indexed(struct weights *w, struct error *err) {
    json_t *root = NULL;
    int rc = read_object(w->path, INDEX, &root, err);
    if (rc) {
        json_decref(root);
        return rc;
    }
    struct index *x = calloc(1, sizeof *x);
    if (!x || !(x->numbers = json_object())) rc = error_set(err, QUIRE_ENOMEM, "out of memory");
    if (!rc) {
        x->map = json_object_get(root, "weight_map");
        rc = list_files(x, err);
    }
    if (!rc && !(w->others = calloc(x->n, sizeof *w->others)))
        rc = error_set(err, QUIRE_ENOMEM, "out of memory");
    bool of_index = rc != 0;
    for (size_t i = 0; !rc && i < x->n; i++) {
        rc = open_file(w, x->files[i], err);
        if (rc) break;
        rc = check_file(x, w->others[i], x->files[i], err);
        of_index = rc != 0;
    }
    if (!rc) {
        rc = check_map(x, w, err);
        of_index = true;
    }
    if (rc && of_index) error_prefix(err, INDEX);
    if (x) json_decref(x->numbers);
    free(x);
    json_decref(root);
    return rc;
}

static int open_single(struct weights *w, struct error *err) {
    w->others = calloc(1, sizeof *w->others);
    return w->others ? open_file(w, SINGLE, err) : error_set(err, QUIRE_ENOMEM, "out of memory");
}

static int open_files(struct weights *w, struct error *err) {
    if (has_file(w->path, SINGLE)) return open_single(w, err);
    if (has_file(w->path, INDEX)) return open_indexed(w, err);
    return error_set(
        err, QUIRE_ENOTFOUND, "this folder holds neither %s nor %s%s", SINGLE, INDEX,
        has_file(w->path, "pytorch_model.bin") || has_file(w->path, "pytorch_model.bin.index.json")
            ? "; pytorch_model.bin is not read, as loading it runs code: convert it to safetensors"
            : "");
}

/* ---- opening ---- */

struct weights *hf_new_folder(const char *path, bool any_type) {
    struct weights *w = calloc(1, sizeof *w);
    if (!w) return NULL;
    w->map.fd = -1;
    w->is_folder = true;
    w->any_type = any_type;
    arena_init(&w->arena, 16384, 0);
    w->path = strdup(path);
    if (w->path) return w;
    weights_close(w);
    return NULL;
}

int hf_open(const char *folder, bool any_type, struct weights **out, struct error *err) {
    struct weights *w = hf_new_folder(folder, any_type);
    struct hf_reader r = {.w = w, .err = err};
    *out = NULL;
    if (!w) return error_set(err, QUIRE_ENOMEM, "out of memory");
    r.rc = read_object(folder, CONFIG, &r.top, err);
    if (!r.rc) hf_read_config(&r);
    if (!r.rc) hf_read_sentence(&r);
    if (!r.rc) r.rc = weights_index_metas(w, err);
    w->hf_family = r.family;
    if (!r.rc) r.rc = open_files(w, err);
    if (!r.rc) hf_read_tensors(&r);
    json_decref(r.top);
    json_decref(r.aliased);
    if (r.rc) {
        weights_prefix(err, folder);
        weights_close(w);
        return r.rc;
    }
    *out = w;
    return QUIRE_OK;
}

int hf_open_config(const char *text, size_t n, struct weights **out, struct error *err) {
    struct weights *w = hf_new_folder("memory", false);
    struct hf_reader r = {.w = w, .err = err};
    *out = NULL;
    if (!w) return error_set(err, QUIRE_ENOMEM, "out of memory");
    r.rc = hf_json_parse(text, n, &r.top, err);
    if (!r.rc) hf_read_config(&r);
    w->hf_family = r.family;
    if (!r.rc) r.rc = weights_index_metas(w, err);
    if (!r.rc) r.rc = weights_index_tensors(w, err);
    json_decref(r.top);
    json_decref(r.aliased);
    if (r.rc)
        weights_close(w);
    else
        *out = w;
    return r.rc;
}

int hf_open_tensors(const void *data, size_t n, struct weights **out, struct error *err) {
    struct weights *w = calloc(1, sizeof *w);
    *out = NULL;
    if (!w) return error_set(err, QUIRE_ENOMEM, "out of memory");
    file_map_borrow(&w->map, data, n);
    arena_init(&w->arena, 16384, 0);
    int rc = safetensors_read(w, err);
    if (!rc) rc = weights_index_metas(w, err);
    if (rc)
        weights_close(w);
    else
        *out = w;
    return rc;
}
