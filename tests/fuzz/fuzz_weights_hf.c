/* The input is a config.json; or, behind a NUL, one and a safetensors file, which make a folder. Whatever is
 * accepted is read to its last byte. */
#include "weights/hf.h"

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void expect(int truth) {
    if (!truth) abort();
}

static void walk(struct weights *w) {
    struct error err;
    for (size_t i = 0; i < weights_n_meta(w); i++) {
        const struct meta *m = weights_meta_at(w, i);
        expect(weights_meta(w, m->key) == m && weights_label(w, m->key)[0]);
        for (size_t k = 0; m->type == META_ARRAY && k < m->n; k++) expect(((const uint8_t *)m->raw)[k] <= 1);
    }
    for (size_t i = 0; i < weights_n_tensors(w); i++) {
        const struct tensor *t = weights_tensor_at(w, i);
        uint8_t *copy = malloc(t->bytes);
        char name[256];
        expect(weights_tensor(w, t->name) == t && t->row_bytes * tensor_rows(t) == t->bytes);
        expect(weights_tensor_label(w, t->name, name, sizeof name)[0]);
        expect(copy && weights_read(w, t, 0, t->bytes, copy, &err) == 0);
        free(copy);
    }
}

static void put(const char *folder, const char *name, const uint8_t *data, size_t n) {
    char path[256];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    FILE *f = fopen(path, "wb");
    expect(f && fwrite(data, 1, n, f) == n && !fclose(f));
}

static void as_folder(const uint8_t *config, size_t n_config, const uint8_t *tensors, size_t n_tensors) {
    char folder[64], path[256];
    struct weights *w;
    struct error err = {0};
    snprintf(folder, sizeof folder, "/tmp/quire-fuzz-%d", (int)getpid());
    mkdir(folder, 0700);
    put(folder, "config.json", config, n_config);
    put(folder, "model.safetensors", tensors, n_tensors);
    int rc = weights_inspect(folder, &w, &err);
    if (rc)
        expect(rc < 0 && !w && err.code == rc && err.text[0]);
    else
        walk(w);
    weights_close(w);
    snprintf(path, sizeof path, "%s/config.json", folder);
    unlink(path);
    snprintf(path, sizeof path, "%s/model.safetensors", folder);
    unlink(path);
    rmdir(folder);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    struct weights *w;
    struct error err = {0};
    const uint8_t *end = memchr(data, 0, size);
    if (end) {
        as_folder(data, (size_t)(end - data), end + 1, size - (size_t)(end - data) - 1);
        return 0;
    }
    int rc = hf_open_config((const char *)data, size, &w, &err);
    if (rc)
        expect(rc < 0 && !w && err.code == rc && err.text[0]);
    else
        walk(w);
    weights_close(w);
    return 0;
}
