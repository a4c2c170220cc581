#include "weights/model_path.h"
#include "base/buf.h"
#include "base/error.h"
#include "weights/split.h"

#include <dirent.h>
#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#define LISTED_MAX 8

static bool is_model_name(const char *name) {
    size_t n = strlen(name);
    return name[0] != '.' && n > 5 && !strcmp(name + n - 5, ".gguf");
}

static int is_visible(const struct dirent *e) {
    return e->d_name[0] != '.';
}
static int is_model(const struct dirent *e) {
    return is_model_name(e->d_name);
}

static char *names_list(struct dirent **entries, int n) { /* malloc'd; NULL when out of memory */
    struct buf list = BUF_INIT;
    for (int i = 0; i < n && i < LISTED_MAX; i++)
        buf_printf(&list, "%s%.80s", i ? ", " : "", entries[i]->d_name);
    if (n > LISTED_MAX) buf_printf(&list, " and %d more", n - LISTED_MAX);
    if (!n) buf_puts(&list, "nothing");
    if (!buf_ok(&list)) buf_free(&list);
    return list.data;
}

static void free_entries(struct dirent **entries, int n) {
    for (int i = 0; i < n; i++) free(entries[i]);
    free(entries);
}

/* No model, or several: says what is there. */
static int not_one(const char *path, struct dirent **models, int n_models, struct error *err) {
    struct dirent **all = NULL;
    int n = n_models ? 0 : scandir(path, &all, is_visible, alphasort);
    if (n < 0) n = 0;
    char *list = n_models ? names_list(models, n_models) : names_list(all, n);
    free_entries(all, n);
    if (!list) return error_set(err, QUIRE_ENOMEM, "out of memory");
    int rc = n_models ? error_set(err, QUIRE_ENOTFOUND,
                                  "this folder holds %d .gguf files (%s): name one of them", n_models, list)
                      : error_set(err, QUIRE_ENOTFOUND,
                                  "this folder holds no .gguf file and no config.json (it holds %s)", list);
    free(list);
    return rc;
}

/* All of one split, by their names. */
static bool are_parts(struct dirent **models, int n) {
    struct split_name first, other;
    if (n < 1 || !split_name_parse(models[0]->d_name, &first)) return false;
    for (int i = 1; i < n; i++) {
        const char *name = models[i]->d_name;
        if (!split_name_parse(name, &other) || other.stem_len != first.stem_len ||
            other.count != first.count || strncmp(name, models[0]->d_name, first.stem_len))
            return false;
    }
    return true;
}

char *model_path_join(const char *folder, const char *name) {
    struct buf path = BUF_INIT;
    size_t n = strlen(folder);
    buf_printf(&path, "%s%s%s", folder, n && folder[n - 1] == '/' ? "" : "/", name);
    if (!buf_ok(&path)) buf_free(&path);
    return path.data;
}

int model_path_resolve(const char *path, char **out, struct error *err) {
    struct stat st;
    *out = NULL;
    if (stat(path, &st)) {
        int code = errno == ENOENT || errno == ENOTDIR ? QUIRE_ENOTFOUND : QUIRE_EIO;
        return error_set(err, code, "cannot open: %s", strerror(errno));
    }
    if (!S_ISDIR(st.st_mode)) {
        *out = strdup(path);
        return *out ? QUIRE_OK : error_set(err, QUIRE_ENOMEM, "out of memory");
    }
    struct dirent **models = NULL;
    int n = scandir(path, &models, is_model, alphasort), rc;
    if (n < 0) {
        int code = errno == ENOMEM ? QUIRE_ENOMEM : QUIRE_EIO;
        return error_set(err, code, "cannot list the folder: %s", strerror(errno));
    }
    if (n == 1 || are_parts(models, n)) {
        *out = model_path_join(
            path, models[n - 1]->d_name); /* of parts the last: its number is too high if any is */
        rc = *out ? QUIRE_OK : error_set(err, QUIRE_ENOMEM, "out of memory");
    } else {
        rc = not_one(path, models, n, err);
    }
    free_entries(models, n);
    return rc;
}
