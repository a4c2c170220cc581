#include "plan/source.h"

#include "base/error.h"
#include "plan/weight_format.h"
#include "weights/hf.h"
#include "weights/sketch.h"

#include <dirent.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

static bool ends_with(const char *text, const char *end) {
    size_t n = strlen(text), m = strlen(end);
    return n > m && !strcmp(text + n - m, end);
}

static bool has_weights(const char *folder) {
    DIR *d = opendir(folder);
    bool found = false;
    for (const struct dirent *e; d && !found && (e = readdir(d));)
        found = ends_with(e->d_name, ".safetensors") || ends_with(e->d_name, ".safetensors.index.json");
    if (d) closedir(d);
    return found;
}

/* The config.json to be read alone, in buf; NULL: there is more. */
static const char *bare_config(const char *path, char buf[PATH_MAX]) {
    struct stat st;
    if (!stat(path, &st) && S_ISREG(st.st_mode) && ends_with(path, ".json")) return path;
    if (!hf_is_folder(path) || has_weights(path)) return NULL;
    int n = snprintf(buf, PATH_MAX, "%s/config.json", path);
    return n > 0 && n < PATH_MAX ? buf : NULL;
}

static int open_weights(const char *path, const struct weight_format *f, struct plan_source *out,
                        struct error *err) {
    struct model_spec spec;
    int rc = weights_open(path, &out->origin, err);
    out->weights = out->origin;
    if (rc || !f) return rc;
    rc = model_spec_read(out->origin, &spec, err);
    return rc ? rc : weight_format_apply(f, out->origin, &spec, &out->weights, err);
}

int plan_source_open(const char *path, const char *format, struct plan_source *out, struct error *err) {
    char buf[PATH_MAX];
    const struct weight_format *f = NULL;
    *out = (struct plan_source){0};
    int rc = format ? weight_format_find(format, &f, err) : 0;
    if (rc) return rc;
    const char *config = bare_config(path, buf);
    if (config) {
        if (!f) rc = weight_format_find("bf16", &f, err);
        if (!rc) rc = sketch_config(config, &out->origin, err);
        if (!rc) rc = weight_format_draft(f, out->origin, &out->weights, err);
    } else {
        rc = open_weights(path, f, out, err);
    }
    if (f) out->format = weight_format_name(f);
    if (rc) plan_source_close(out);
    return rc;
}

void plan_source_close(struct plan_source *s) {
    if (s->weights != s->origin) weights_close(s->weights);
    weights_close(s->origin);
    *s = (struct plan_source){0};
}
