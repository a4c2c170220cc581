#include "fetch/hub_impl.h"

#include "base/buf.h"
#include "base/error.h"
#include "base/split_name.h"

#include <ctype.h>
#include <fnmatch.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#define DEFAULT_QUANTIZATION "Q4_K_M"

static bool matches(const char *path, const char *pattern) {
    return !fnmatch(pattern, path, FNM_PATHNAME | FNM_CASEFOLD);
}

static bool is_gguf(const char *path) {
    size_t n = strlen(path);
    return n > 5 && !strcasecmp(path + n - 5, ".gguf");
}

/* The later parts follow their first. */
static bool is_later_part(const char *path) {
    struct split_name s;
    return split_name_parse(path, &s) && s.part > 1;
}

/* Files that go with a model, but are none: vision towers, importance matrices. */
static bool is_companion(const char *path) {
    const char *base = strrchr(path, '/') ? strrchr(path, '/') + 1 : path;
    return matches(base, "*mmproj*") || matches(base, "*imatrix*");
}

/* The name says so, as a word of its own: "q4_k" is no word of "x-Q4_K_M.gguf". */
static bool says(const char *path, const char *word) {
    size_t n = strlen(word);
    for (const char *at = path; (at = strcasestr(at, word)); at++) {
        bool before = at == path || (!isalnum((unsigned char)at[-1]) && at[-1] != '_');
        bool after = !isalnum((unsigned char)at[n]) && at[n] != '_';
        if (before && after) return true;
    }
    return false;
}

static int no_memory(struct error *err) {
    return error_set(err, QUIRE_ENOMEM, "out of memory");
}

static int list_error(const struct hub_repo *repo, const char *pick, size_t n_found, struct error *err) {
    struct buf names = BUF_INIT;
    for (size_t i = 0; i < repo->n_files; i++) {
        const struct hub_file *f = &repo->files[i];
        if (is_gguf(f->path) && !is_later_part(f->path) && !is_companion(f->path))
            buf_printf(&names, "%s%s", names.len ? ", " : "", f->path);
    }
    const char *there = names.len && buf_ok(&names) ? names.data : "none";
    if (!*pick && !names.len)
        error_set(err, QUIRE_ENOTFOUND,
                  "it holds neither config.json with .safetensors files nor a .gguf file");
    else if (!*pick)
        error_set(err, QUIRE_ENOTFOUND, "it holds several .gguf files; name one after a ':': %s", there);
    else if (n_found)
        error_set(err, QUIRE_ENOTFOUND, "\"%s\" fits %zu of its .gguf files; name one of: %s", pick, n_found,
                  there);
    else
        error_set(err, QUIRE_ENOTFOUND, "\"%s\" is none of its .gguf files: %s", pick, there);
    buf_free(&names);
    return QUIRE_ENOTFOUND;
}

/* The .gguf file that pick means ("" = the only one); NULL and how many there are. */
static const struct hub_file *find_gguf(const struct hub_repo *repo, const char *pick, size_t *n_found) {
    const struct hub_file *found = NULL;
    *n_found = 0;
    for (size_t i = 0; i < repo->n_files; i++) {
        const struct hub_file *f = &repo->files[i];
        if (!is_gguf(f->path)) continue;
        if (!strcmp(f->path, pick)) {
            *n_found = 1;
            return f;
        }
        if (is_later_part(f->path) || is_companion(f->path) || (*pick && !says(f->path, pick))) continue;
        found = f;
        (*n_found)++;
    }
    return *n_found == 1 ? found : NULL;
}

static void add(struct hub_choice *out, const struct hub_file *f) {
    out->files[out->n++] = f;
}

/* The file, and where it is one of several the other parts. */
static int take_gguf(const struct hub_repo *repo, const struct hub_file *first, struct hub_choice *out,
                     struct error *err) {
    struct split_name whole, part;
    out->gguf = first->path;
    if (!split_name_parse(first->path, &whole) || !whole.count) {
        add(out, first);
        return 0;
    }
    for (size_t i = 0; i < repo->n_files; i++) {
        const char *path = repo->files[i].path;
        if (split_name_parse(path, &part) && part.stem_len == whole.stem_len && part.count == whole.count &&
            !strncmp(path, first->path, whole.stem_len))
            add(out, &repo->files[i]);
    }
    if (out->n != whole.count)
        return error_set(err, QUIRE_ENOTFOUND, "%s is one of %u parts, of which it holds %zu", first->path,
                         whole.count, out->n);
    return 0;
}

/* What a folder needs: weights in one file, or in the parts that an index names, and the small files about
 * them. */
static bool of_folder(const char *path, bool sharded) {
    static const char *const small[] = {"*.json",     "tokenizer.model", "*.jinja",
                                        "merges.txt", "vocab.txt",       "1_Pooling/config.json"};
    for (size_t i = 0; i < sizeof small / sizeof *small; i++)
        if (matches(path, small[i])) return true;
    return sharded ? matches(path, "model-*.safetensors") : matches(path, "model.safetensors");
}

static bool holds(const struct hub_repo *repo, const char *pattern) {
    for (size_t i = 0; i < repo->n_files; i++)
        if (matches(repo->files[i].path, pattern)) return true;
    return false;
}

int hub_pick(const struct hub_repo *repo, const char *pick, struct hub_choice *out, struct error *err) {
    size_t n_found = 0;
    bool sharded = holds(repo, "model.safetensors.index.json");
    *out = (struct hub_choice){.files = calloc(repo->n_files + 1, sizeof *out->files)};
    if (!out->files) return no_memory(err);
    int rc = 0;
    if (!*pick && holds(repo, "config.json") && (sharded || holds(repo, "model.safetensors"))) {
        for (size_t i = 0; i < repo->n_files; i++)
            if (of_folder(repo->files[i].path, sharded)) add(out, &repo->files[i]);
        return 0;
    }
    const struct hub_file *file = find_gguf(repo, pick, &n_found);
    if (!file && !*pick && n_found > 1) file = find_gguf(repo, DEFAULT_QUANTIZATION, &n_found);
    rc = file ? take_gguf(repo, file, out, err) : list_error(repo, pick, n_found, err);
    if (rc) hub_choice_free(out);
    return rc;
}

void hub_choice_free(struct hub_choice *choice) {
    free(choice->files);
    *choice = (struct hub_choice){0};
}
