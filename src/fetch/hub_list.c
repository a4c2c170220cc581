#include "fetch/hub_impl.h"

#include "base/error.h"

#include <jansson.h>
#include <stdlib.h>
#include <string.h>

static bool hex_of(const json_t *value, size_t min, size_t max, char out[DIGEST_HEX_BYTES]) {
    const char *s = json_string_value(value);
    size_t n = json_string_length(value);
    if (!s || n < min || n > max || n >= DIGEST_HEX_BYTES || strspn(s, "0123456789abcdef") != n) return false;
    memcpy(out, s, n + 1);
    return true;
}

/* Relative, of plain names, and so short that the cache can hold it. */
static bool path_is_safe(const char *path, size_t n) {
    if (!n || n > 512 || strlen(path) != n || path[0] == '/') return false;
    for (const char *part = path;; part++) {
        size_t len = strcspn(part, "/");
        if (!len || len > 240 || !strncmp(part, ".", len) || !strncmp(part, "..", len)) return false;
        for (size_t i = 0; i < len; i++)
            if ((unsigned char)part[i] < ' ' || part[i] == 127 || part[i] == '\\') return false;
        part += len;
        if (!*part) return true;
    }
}

static int take_file(const json_t *entry, struct hub_file *out, struct error *err) {
    const json_t *name = json_object_get(entry, "rfilename"), *size = json_object_get(entry, "size");
    const json_t *lfs = json_object_get(entry, "lfs");
    const char *path = json_string_value(name);
    if (!path) return error_set(err, QUIRE_EFORMAT, "the hub's list has a file without a name (rfilename)");
    if (!path_is_safe(path, json_string_length(name)))
        return error_set(err, QUIRE_EFORMAT, "the hub's list has a file \"%.200s\": not a safe relative path",
                         path);
    if (!json_is_integer(size) || json_integer_value(size) < 0)
        return error_set(err, QUIRE_EFORMAT, "the hub's list gives no size for %s", path);
    out->bytes = (uint64_t)json_integer_value(size);
    out->kind = json_is_object(lfs) ? DIGEST_SHA256 : DIGEST_GIT_BLOB;
    bool known = out->kind == DIGEST_SHA256 ? hex_of(json_object_get(lfs, "sha256"), 64, 64, out->digest)
                                            : hex_of(json_object_get(entry, "blobId"), 40, 40, out->digest);
    if (!known)
        return error_set(err, QUIRE_EFORMAT, "the hub's list gives no %s for %s",
                         out->kind == DIGEST_SHA256 ? "SHA-256 (lfs.sha256)" : "hash (blobId)", path);
    out->path = strdup(path);
    return out->path ? 0 : error_set(err, QUIRE_ENOMEM, "out of memory");
}

static int take_repo(const json_t *root, struct hub_repo *out, struct error *err) {
    const json_t *list = json_object_get(root, "siblings");
    if (!hex_of(json_object_get(root, "sha"), 7, 64, out->commit))
        return error_set(err, QUIRE_EFORMAT, "the hub's list names no commit (sha)");
    size_t n = json_array_size(list);
    if (!json_is_array(list) || !n || n > HUB_LIST_MAX_FILES)
        return error_set(err, QUIRE_EFORMAT,
                         "the hub's list of files (siblings) has %zu entries, allowed are 1 to %d", n,
                         HUB_LIST_MAX_FILES);
    if (!(out->files = calloc(n, sizeof *out->files))) return error_set(err, QUIRE_ENOMEM, "out of memory");
    int rc = 0;
    for (; !rc && out->n_files < n; out->n_files++)
        rc = take_file(json_array_get(list, out->n_files), &out->files[out->n_files], err);
    return rc;
}

int hub_list_parse(const char *json, size_t len, struct hub_repo *out, struct error *err) {
    json_error_t why;
    *out = (struct hub_repo){0};
    json_t *root = json_loadb(json, len, JSON_REJECT_DUPLICATES, &why);
    int rc =
        root ? take_repo(root, out, err)
             : error_set(err, QUIRE_EFORMAT, "the hub's list is not JSON: line %d: %s", why.line, why.text);
    json_decref(root);
    if (rc) hub_list_free(out);
    return rc;
}

void hub_list_free(struct hub_repo *repo) {
    for (size_t i = 0; i < repo->n_files; i++) free(repo->files[i].path);
    free(repo->files);
    *repo = (struct hub_repo){0};
}
