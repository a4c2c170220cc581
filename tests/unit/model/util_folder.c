#include "util_folder.h"

#include <dirent.h>
#include <jansson.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

/* ---- the golden file ---- */

void folder_models_open(struct folder_models *f, const char *path, size_t n_rows) {
    FILE *file = fopen(path, "rb");
    assert_non_null(file);
    fseek(file, 0, SEEK_END);
    size_t n = (size_t)ftell(file);
    rewind(file);
    f->data = malloc(n);
    assert_non_null(f->data);
    assert_int_equal(fread(f->data, 1, n, file), n);
    fclose(file);
    assert_memory_equal(f->data, "QHF1", 4);
    memcpy(&f->n, f->data + 4, 4);
    f->models = calloc(f->n, sizeof *f->models);
    assert_non_null(f->models);
    const char *at = f->data + 8;
    for (uint32_t i = 0; i < f->n; i++) {
        struct folder_model *m = &f->models[i];
        memcpy(m, at, 48);
        m->config = at + 48;
        m->header = m->config + m->n_config;
        m->rows = (const float *)(const void *)(m->header + m->n_header);
        at = (const char *)(m->rows + (n_rows ? n_rows : m->n_tokens) * (1 + m->n_ids));
    }
    assert_ptr_equal(at, f->data + n);
}

void folder_models_close(struct folder_models *f) {
    free(f->models);
    free(f->data);
}

const struct folder_model *folder_model(const struct folder_models *f, const char *variant) {
    for (uint32_t i = 0; i < f->n; i++)
        if (!strcmp(f->models[i].variant, variant)) return &f->models[i];
    fail_msg("no variant %s", variant);
    return NULL;
}

uint32_t folder_token(size_t i, uint32_t n_vocab) {
    return (uint32_t)((i * i * 7 + i * 13 + 5) % n_vocab);
}

uint32_t folder_id(size_t position, size_t k, uint32_t n_vocab) {
    return (uint32_t)((position * 31 + k * 37) % n_vocab);
}

/* ---- weights ---- */

static uint64_t hash_name(const char *name) { /* FNV-1a */
    uint64_t h = 0xcbf29ce484222325u;
    for (; *name; name++) h = (h ^ (unsigned char)*name) * 0x100000001b3u;
    return h;
}

static uint64_t mix(uint64_t z) { /* SplitMix64 */
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
    z = (z ^ z >> 27) * 0x94d049bb133111ebu;
    return z ^ z >> 31;
}

/* The value has the format's mantissa: nothing is rounded. */
static uint32_t small_float(double v, int mantissa_bits, int exponent_bits) {
    int exponent, bias = (1 << (exponent_bits - 1)) - 1;
    if (v == 0) return 0;
    uint32_t sign = v < 0 ? 1u << (mantissa_bits + exponent_bits) : 0;
    double m = frexp(fabs(v), &exponent) * 2; /* v = m * 2^(exponent - 1), 1 <= m < 2 */
    int e = exponent - 1 + bias;
    double scaled = e > 0 ? ldexp(m - 1, mantissa_bits) : ldexp(m, mantissa_bits + e - 1);
    assert_true(scaled == floor(scaled) && e < 1 << exponent_bits);
    return sign | (uint32_t)(e > 0 ? e : 0) << mantissa_bits | (uint32_t)scaled;
}

static size_t put_value(uint8_t *out, const char *dtype, double v) {
    float f = (float)v;
    uint32_t bits;
    size_t n = 4;
    memcpy(&bits, &f, sizeof bits);
    if (!strcmp(dtype, "BF16")) {
        bits >>= 16;
        n = 2;
    } else if (!strcmp(dtype, "F16")) {
        bits = small_float(v, 10, 5);
        n = 2;
    } else if (!strcmp(dtype, "F8_E4M3")) {
        bits = small_float(v, 3, 4);
        n = 1;
    } else if (!strcmp(dtype, "F8_E5M2")) {
        bits = small_float(v, 2, 5);
        n = 1;
    } else if (!strcmp(dtype, "U8")) {
        bits = (uint32_t)v;
        n = 1;
    }
    for (size_t i = 0; i < n; i++) out[i] = (uint8_t)(bits >> 8 * i);
    return n;
}

/* Bytes of a tensor, appended. */
static void fill(FILE *file, const char *name, const char *how, const json_t *entry) {
    const char *dtype = json_string_value(json_object_get(entry, "dtype"));
    const json_t *shape = json_object_get(entry, "shape");
    int shift, mean, limit;
    size_t count = 1;
    assert_int_equal(sscanf(how, "%d %d %d", &shift, &mean, &limit), 3);
    for (size_t i = 0; i < json_array_size(shape); i++)
        count *= (size_t)json_integer_value(json_array_get(shape, i));
    uint64_t h = hash_name(name);
    for (size_t i = 0; i < count; i++) {
        uint8_t bytes[4];
        int64_t k = (int64_t)((mix(h + i * 0x9e3779b97f4a7c15u) >> 40) % (uint64_t)(2 * limit + 1)) - limit;
        double v = strcmp(dtype, "U8") ? mean + ldexp((double)k, -shift) : (double)(mean + k + limit);
        size_t n = put_value(bytes, dtype, v);
        assert_int_equal(fwrite(bytes, 1, n, file), n);
    }
}

/* ---- folders ---- */

void folder_put(const char *folder, const char *name, const void *data, size_t n) {
    char path[512];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    FILE *file = fopen(path, "wb");
    assert_non_null(file);
    assert_int_equal(fwrite(data, 1, n, file), n);
    assert_int_equal(fclose(file), 0);
}

void folder_remove(const char *folder) {
    DIR *dir = opendir(folder);
    assert_non_null(dir);
    for (struct dirent *e; (e = readdir(dir));) {
        char path[512];
        snprintf(path, sizeof path, "%s/%s", folder, e->d_name);
        if (strcmp(e->d_name, ".") && strcmp(e->d_name, "..")) unlink(path);
    }
    closedir(dir);
    assert_int_equal(rmdir(folder), 0);
}

/* Tensors i of the header with i % n_files == which. */
static void write_file(const struct folder_model *m, const json_t *header, const char *path, size_t which,
                       size_t n_files, const char *file_name, json_t *map) {
    json_t *mine = json_object(), *entry;
    const json_t *how = json_object_get(header, "__metadata__");
    const char *name;
    size_t i = 0, at = 0;
    json_object_foreach((json_t *)header, name, entry) {
        if (entry == how || i++ % n_files != which) continue;
        const json_t *offsets = json_object_get(entry, "data_offsets");
        size_t n = (size_t)(json_integer_value(json_array_get(offsets, 1)) -
                            json_integer_value(json_array_get(offsets, 0)));
        json_t *copy = json_copy(entry);
        json_object_set_new(copy, "data_offsets", json_pack("[II]", (json_int_t)at, (json_int_t)(at + n)));
        json_object_set_new(mine, name, copy);
        json_object_set_new(map, name, json_string(file_name));
        at += n;
    }
    char *text = json_dumps(mine, JSON_COMPACT);
    FILE *file = fopen(path, "wb");
    assert_true(text && file);
    uint64_t n_text = strlen(text);
    assert_int_equal(fwrite(&n_text, 1, 8, file), 8);
    assert_int_equal(fwrite(text, 1, n_text, file), n_text);
    json_object_foreach(mine, name, entry) {
        fill(file, name, json_string_value(json_object_get(how, name)), entry);
    }
    assert_int_equal(fclose(file), 0);
    free(text);
    json_decref(mine);
}

void folder_write(const struct folder_model *m, size_t n_files, char folder[FOLDER_PATH_BYTES]) {
    json_t *header = json_loadb(m->header, m->n_header, 0, NULL), *map = json_object();
    snprintf(folder, FOLDER_PATH_BYTES, "/tmp/quire-test-XXXXXX");
    assert_non_null(mkdtemp(folder));
    assert_non_null(header);
    folder_put(folder, "config.json", m->config, m->n_config);
    for (size_t i = 0; i < n_files; i++) {
        char name[64], path[512];
        snprintf(name, sizeof name, "model.safetensors");
        if (n_files > 1) snprintf(name, sizeof name, "model-%05zu-of-%05zu.safetensors", i + 1, n_files);
        snprintf(path, sizeof path, "%s/%s", folder, name);
        write_file(m, header, path, i, n_files, name, map);
    }
    if (n_files > 1) {
        json_t *index = json_pack("{s{si}sO}", "metadata", "total_size", 1, "weight_map", map);
        char *text = json_dumps(index, 0);
        folder_put(folder, "model.safetensors.index.json", text, strlen(text));
        free(text);
        json_decref(index);
    }
    json_decref(map);
    json_decref(header);
}
