#include "weights/gguf_bf16.h"

#include "base/error.h"
#include "weights/weights_impl.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define ALIGNMENT    32
#define MOSTLY_BF16  32 /* of general.file_type */
#define CHUNK_BYTES  ((size_t)1 << 20)
#define META_DROPPED 3

/* Nearest, ties to even; NaN stays one. */
static uint16_t bf16_of(float v) {
    uint32_t bits;
    memcpy(&bits, &v, sizeof bits);
    if ((bits & 0x7fffffff) > 0x7f800000) return (uint16_t)(bits >> 16 | 0x40);
    return (uint16_t)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

static bool converted(const struct tensor *t) {
    const struct tensor_type_info *info = tensor_type_info(t->type);
    return info->decode && info->block_elems > 1;
}

size_t gguf_bf16_quantized(const struct weights *w) {
    size_t n = 0;
    for (size_t i = 0; i < weights_n_tensors(w); i++) n += converted(weights_tensor_at(w, i));
    return n;
}

static uint64_t written_bytes(const struct tensor *t) {
    return converted(t) ? (uint64_t)t->dims[0] * tensor_rows(t) * 2 : t->bytes;
}

/* ---- header ---- */

static void put(FILE *f, const void *p, size_t n) {
    if (n) fwrite(p, 1, n, f);
}

static void put_u32(FILE *f, uint32_t v) {
    put(f, &v, sizeof v); /* little-endian, as is all that we run on */
}

static void put_u64(FILE *f, uint64_t v) {
    put(f, &v, sizeof v);
}

static void put_string(FILE *f, const char *s, size_t n) {
    put_u64(f, n);
    put(f, s, n);
}

/* What tells how the file was made. */
static bool dropped(const char *key) {
    static const char *const keys[META_DROPPED] = {"general.file_type", "general.quantization_version",
                                                   "general.alignment"};
    for (size_t i = 0; i < META_DROPPED; i++)
        if (!strcmp(keys[i], key)) return true;
    return !strncmp(key, "split.", 6);
}

static void put_values(FILE *f, const struct meta *m, enum meta_type type) {
    if (type == META_STRING)
        for (size_t i = 0; i < m->n; i++) put_string(f, m->strings[i].data, m->strings[i].len);
    else
        put(f, m->raw, m->n * meta_scalar_bytes(type));
}

static void put_meta(FILE *f, const struct meta *m) {
    put_string(f, m->key, strlen(m->key));
    put_u32(f, m->type);
    if (m->type == META_ARRAY) {
        put_u32(f, m->elem);
        put_u64(f, m->n);
        put_values(f, m, m->elem);
    } else {
        put_values(f, m, m->type);
    }
}

static void put_header(FILE *f, const struct weights *w) {
    size_t n_tensors = weights_n_tensors(w), n_meta = 1;
    for (size_t i = 0; i < weights_n_meta(w); i++) n_meta += !dropped(weights_meta_at(w, i)->key);
    put(f, "GGUF", 4);
    put_u32(f, 3);
    put_u64(f, n_tensors);
    put_u64(f, n_meta);
    put_string(f, "general.file_type", strlen("general.file_type"));
    put_u32(f, META_U32);
    put_u32(f, MOSTLY_BF16);
    for (size_t i = 0; i < weights_n_meta(w); i++)
        if (!dropped(weights_meta_at(w, i)->key)) put_meta(f, weights_meta_at(w, i));
    uint64_t offset = 0;
    for (size_t i = 0; i < n_tensors; i++) {
        const struct tensor *t = weights_tensor_at(w, i);
        put_string(f, t->name, strlen(t->name));
        put_u32(f, t->n_dims);
        for (unsigned d = 0; d < t->n_dims; d++) put_u64(f, t->dims[d]);
        put_u32(f, converted(t) ? TENSOR_BF16 : t->type);
        put_u64(f, offset);
        offset += (written_bytes(t) + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
    }
}

static void align(FILE *f) {
    static const char zeros[ALIGNMENT];
    long at = ftell(f);
    if (at >= 0) put(f, zeros, (size_t)(-at & (ALIGNMENT - 1)));
}

/* ---- tensors ---- */

/* Whole blocks at a time; a buffer of CHUNK_BYTES of the file, and what they decode to. */
static int put_tensor(FILE *f, const struct weights *w, const struct tensor *t, char *raw, float *values,
                      struct error *err) {
    const struct tensor_type_info *info = tensor_type_info(t->type);
    size_t block = converted(t) ? info->block_bytes : 1, most = CHUNK_BYTES / block * block;
    for (size_t at = 0; at < t->bytes;) {
        size_t n = t->bytes - at < most ? t->bytes - at : most, blocks = n / block;
        int rc = weights_read(w, t, at, n, raw, err);
        if (rc) return rc;
        at += n;
        if (!converted(t)) {
            put(f, raw, n);
            continue;
        }
        info->decode(values, raw, blocks);
        uint16_t *out = (uint16_t *)values; /* in place: behind what is still to be read */
        for (size_t i = 0; i < blocks * info->block_elems; i++) out[i] = bf16_of(values[i]);
        put(f, out, 2 * blocks * info->block_elems);
    }
    align(f);
    return 0;
}

/* The most floats that CHUNK_BYTES of any of the tensors decode to. */
static size_t most_values(const struct weights *w) {
    size_t most = 1;
    for (size_t i = 0; i < weights_n_tensors(w); i++) {
        const struct tensor_type_info *info = tensor_type_info(weights_tensor_at(w, i)->type);
        size_t n = CHUNK_BYTES / info->block_bytes * info->block_elems;
        if (n > most) most = n;
    }
    return most;
}

int gguf_bf16_write(const struct weights *w, int fd, struct error *err) {
    if (weights_folder(w))
        return error_set(err, QUIRE_EUNSUPPORTED, "%.200s is a folder; a GGUF file can be written anew",
                         weights_folder(w));
    int copy = dup(fd), rc = 0;
    FILE *f = copy < 0 ? NULL : fdopen(copy, "wb");
    char *raw = malloc(CHUNK_BYTES);
    float *values = malloc(most_values(w) * sizeof *values);
    if (!f || !raw || !values) {
        rc = error_set(err, QUIRE_ENOMEM, "out of memory to write the model as bfloat16");
        if (!f && copy >= 0) close(copy);
    } else {
        put_header(f, w);
        align(f);
        for (size_t i = 0; i < weights_n_tensors(w) && !rc && !ferror(f); i++)
            rc = put_tensor(f, w, weights_tensor_at(w, i), raw, values, err);
    }
    if (f) {
        bool bad = ferror(f);
        bad |= fclose(f) != 0;
        if (!rc && bad)
            rc = error_set(err, QUIRE_EIO, "the model cannot be written as bfloat16: %s", strerror(errno));
    }
    free(raw);
    free(values);
    return rc;
}
