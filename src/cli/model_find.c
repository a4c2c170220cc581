/* From what a user types to a file or folder. */
#include "cli/cli.h"

#include "base/error.h"
#include "base/suggest.h"
#include "fetch/cache.h"
#include "fetch/hub.h"
#include "fetch/known.h"
#include "weights/weights.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

static int not_found(const char *argument, struct error *err) {
    struct buf names = BUF_INIT;
    struct suggestion s;
    struct error ignored;
    char *cache = NULL;
    suggest_init(&s, argument, strlen(argument));
    for (const struct known_model *m = known_models; m->name; m++) {
        buf_printf(&names, "%s%s", names.len ? ", " : "", m->name);
        suggest_offer(&s, m->name);
    }
    cache_folder(&cache, &ignored);
    error_param(err, QUIRE_ENOTFOUND, "model",
                "there is no model \"%.200s\": not a file or folder here, not a known name (%s, kept in "
                "%s), not a hub id (ORG/NAME)%s%s%s",
                argument, buf_ok(&names) ? names.data : "", cache ? cache : "the cache",
                s.nearest ? "; did you mean " : "", s.nearest ? s.nearest : "", s.nearest ? "?" : "");
    free(cache);
    buf_free(&names);
    return QUIRE_ENOTFOUND;
}

static struct hub_options hub_environment(void) {
    return (struct hub_options){.endpoint = getenv("HF_ENDPOINT"), .token = getenv("HF_TOKEN")};
}

/* "models/my.gguf" is meant to be here; no name on a hub ends so. */
static bool looks_like_file(const char *name) {
    size_t n = strlen(name);
    return n > 5 && !strchr(name, ':') && !strcmp(name + n - 5, ".gguf");
}

static int pull(const char *name, const struct hub_options *options, char **path, struct error *err) {
    const struct known_model *m = known_model_find(name);
    struct hub_ref ref;
    if (m) return known_model_pull(m, path, err);
    if (!hub_ref_is(name) || looks_like_file(name)) return not_found(name, err);
    int rc = hub_ref_parse(name, &ref, err);
    if (rc) return rc;
    rc = hub_pull(&ref, options, path, err);
    return rc ? error_prefix(err, "no file or folder here; asked the hub") : 0;
}

int model_pull(const char *name, char **path, struct error *err) {
    const struct hub_options options = hub_environment();
    return pull(name, &options, path, err);
}

static int find(const char *argument, const struct hub_options *options, char **path, struct error *err) {
    struct stat st;
    struct hub_ref ref;
    if (!stat(argument, &st)) {
        *path = strdup(argument);
        return *path ? 0 : error_set(err, QUIRE_ENOMEM, "out of memory");
    }
    if (errno != ENOENT && errno != ENOTDIR)
        return error_set(err, QUIRE_EIO, "the model %.200s cannot be opened: %s", argument, strerror(errno));
    if (!known_model_find(argument) && hub_ref_is(argument) && !hub_ref_parse(argument, &ref, err)) {
        int rc = hub_cached(&ref, path, err);
        if (rc || *path) return rc;
    }
    return pull(argument, options, path, err);
}

int model_find(const char *argument, char **path, struct error *err) {
    const struct hub_options options = hub_environment();
    return find(argument, &options, path, err);
}

static bool is_gguf(const char *path) {
    char magic[5] = {0};
    FILE *f = fopen(path, "rb");
    bool same = f && fread(magic, 1, 4, f) == 4 && !strcmp(magic, "GGUF");
    if (f) fclose(f);
    return same;
}

/* A beginning is enough when it says all of every tensor; what a file has after it is zeros, in which
 * nothing is described. */
static int is_described(void *ctx, const char *path, uint64_t n_bytes, struct error *err) {
    struct weights *w = NULL;
    int rc = weights_inspect(path, &w, err);
    if (!rc && weights_description_bytes(w) > n_bytes)
        rc = error_set(err, QUIRE_EFORMAT, "its description is longer than the beginning that was read");
    weights_close(w);
    return !rc ? 1 : is_gguf(path) ? 0 : rc;
}

int model_find_description(const char *argument, char **path, uint64_t *left_bytes, struct error *err) {
    struct hub_options options = hub_environment();
    options.description = true;
    options.left_bytes = left_bytes;
    options.is_enough = is_described;
    return find(argument, &options, path, err);
}
