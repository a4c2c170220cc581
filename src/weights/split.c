#include "weights/split.h"
#include "base/error.h"
#include "weights/weights_impl.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/* ---- keys ---- */

static int get_u64(const struct weights *w, const char *key, const struct split_name *name, uint64_t *out,
                   struct error *err) {
    if (weights_meta(w, key)) return weights_get_u64(w, key, 0, UINT64_MAX, out, err);
    return error_set(err, QUIRE_EFORMAT, "metadata key \"%s\" is missing; by its name this is part %u of %u",
                     key, name->part, name->count);
}

static int expect_u64(const struct weights *w, const char *key, const struct split_name *name,
                      uint64_t wanted, struct error *err) {
    uint64_t value;
    int rc = get_u64(w, key, name, &value, err);
    if (!rc && value != wanted)
        rc = error_set(err, QUIRE_EFORMAT,
                       "metadata key \"%s\" is %" PRIu64 "; part %u of %u must have %" PRIu64, key, value,
                       name->part, name->count, wanted);
    return rc;
}

/* A text that a part may repeat. */
static int expect_same(const struct weights *w, const struct weights *first, const char *key,
                       struct error *err) {
    struct meta_str a, b;
    if (!weights_meta(w, key) || !weights_meta(first, key)) return QUIRE_OK;
    int rc = weights_get_str(w, key, &a, err);
    if (!rc) rc = weights_get_str(first, key, &b, err);
    if (!rc && (a.len != b.len || memcmp(a.data, b.data, a.len)))
        rc = error_set(err, QUIRE_EFORMAT,
                       "metadata key \"%s\" is \"%.*s\", but \"%.*s\" in the first part: parts of two models",
                       key, a.len > 60 ? 60 : (int)a.len, a.data, b.len > 60 ? 60 : (int)b.len, b.data);
    return rc;
}

static int check_part(const struct weights *w, const struct weights *first, const struct split_name *name,
                      struct error *err) {
    uint64_t total = 0;
    int rc = expect_u64(w, "split.count", name, name->count, err);
    if (!rc) rc = expect_u64(w, "split.no", name, name->part - 1, err);
    if (!rc) rc = expect_same(w, first, "general.architecture", err);
    if (!rc) rc = expect_same(w, first, "general.name", err);
    if (!rc) rc = get_u64(first, "split.tensors.count", name, &total, err);
    if (!rc) rc = expect_u64(w, "split.tensors.count", name, total, err);
    return rc;
}

int split_check_single(const struct weights *w, struct error *err) {
    uint64_t count = 1;
    if (!weights_meta(w, "split.count")) return QUIRE_OK;
    int rc = weights_get_u64(w, "split.count", 0, UINT64_MAX, &count, err);
    if (rc || count <= 1) return rc;
    return error_set(err, QUIRE_EUNSUPPORTED,
                     "metadata key \"split.count\" is %" PRIu64
                     ": the other parts are found by name, so it must be named ...-00001-of-%05" PRIu64
                     ".gguf",
                     count, count);
}

/* ---- joining ---- */

static bool take_tensors(struct weights *w, const struct weights *part, unsigned file) {
    for (size_t i = 0; i < part->n_tensors; i++) {
        struct tensor *t = weights_add_tensor(w);
        if (!t) return false;
        *t = part->tensors[i];
        t->file = file;
    }
    w->tensor_bytes += part->tensor_bytes;
    return true;
}

static const char *base_name(const char *path) {
    const char *slash = strrchr(path, '/');
    return slash ? slash + 1 : path;
}

/* The index is sorted, so a name that occurs twice has neighbours. */
static int name_twice(const struct weights *w, struct error *err) {
    for (size_t i = 1; i < w->n_tensors; i++) {
        const struct weights_name *a = &w->tensors_by_name[i - 1], *b = &w->tensors_by_name[i];
        if (strcmp(a->name, b->name)) continue;
        unsigned x = w->tensors[a->i].file, y = w->tensors[b->i].file;
        error_set(err, QUIRE_EFORMAT, "tensor \"%s\" is in %s too", a->name,
                  base_name(weights_file_path(w, x > y ? y : x)));
        weights_prefix(err, weights_file_path(w, x > y ? x : y));
        return QUIRE_EFORMAT;
    }
    return error_set(err, QUIRE_EINTERNAL, "%s: no tensor occurs twice", w->path);
}

static int index_all(struct weights *w, struct error *err) {
    uint64_t total;
    free(w->tensors_by_name);
    w->tensors_by_name = NULL;
    int rc = weights_index_tensors(w, err);
    if (rc == QUIRE_EFORMAT) return name_twice(w, err);
    if (!rc) rc = weights_get_u64(w, "split.tensors.count", 0, UINT64_MAX, &total, err);
    if (!rc && total != w->n_tensors)
        rc = error_set(err, QUIRE_EFORMAT,
                       "metadata key \"split.tensors.count\" is %" PRIu64
                       ", but the %zu parts hold %zu tensors",
                       total, weights_n_files(w), w->n_tensors);
    if (rc) weights_prefix(err, w->path);
    return rc;
}

static int open_part(struct weights *w, const struct split_name *name, struct error *err) {
    struct weights *part = NULL;
    char *path = split_name_of(w->path, name, name->part);
    if (!path) return error_set(err, QUIRE_ENOMEM, "out of memory");
    int rc = weights_open_one(path, w->any_type, &part, err);
    if (rc == QUIRE_ENOTFOUND) {
        rc = error_set(err, QUIRE_EFORMAT, "missing: metadata key \"split.count\" of %s is %u",
                       base_name(w->path), name->count);
        weights_prefix(err, path);
    }
    if (!rc) {
        w->others[w->n_others++] = part;
        rc = check_part(part, w, name, err);
        if (rc) weights_prefix(err, path);
    }
    if (!rc && !take_tensors(w, part, name->part - 1)) rc = error_set(err, QUIRE_ENOMEM, "out of memory");
    free(path);
    return rc;
}

int split_join(struct weights *w, const struct split_name *name, struct error *err) {
    struct split_name part = *name;
    part.part = 1;
    int rc = check_part(w, w, &part, err);
    if (rc) {
        weights_prefix(err, w->path);
        return rc;
    }
    w->others = calloc(name->count, sizeof *w->others);
    if (!w->others) return error_set(err, QUIRE_ENOMEM, "out of memory");
    for (part.part = 2; part.part <= part.count && !rc; part.part++) rc = open_part(w, &part, err);
    return rc ? rc : index_all(w, err);
}
