/* Opens the input as a model file in memory; whatever is accepted is walked to its last byte. */
#include "weights/weights.h"

#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void expect(int truth) {
    if (!truth) abort();
}

static volatile unsigned sink;

static void touch(const void *data, size_t n) {
    const uint8_t *p = data;
    unsigned sum = 0;
    for (size_t i = 0; i < n; i++) sum += p[i];
    sink = sum;
}

static void walk_meta(const struct weights *w, const struct meta *m) {
    uint64_t u = 7;
    double f = 7;
    bool flag;
    struct meta_str s;
    struct error err;
    expect(weights_meta(w, m->key) == m && meta_type_name(m->type));
    int rc = weights_get_u64(w, m->key, 1, 1000, &u, &err);
    expect(rc ? rc == QUIRE_EFORMAT && u == 7 && err.text[0] : u >= 1 && u <= 1000);
    rc = weights_get_f64(w, m->key, &f, &err);
    expect(rc ? rc == QUIRE_EFORMAT : isfinite(f));
    expect((weights_get_bool(w, m->key, &flag, &err) == 0) == (m->type == META_BOOL));
    expect((weights_get_str(w, m->key, &s, &err) == 0) == (m->type == META_STRING));
    for (size_t i = 0; m->strings && i < m->n; i++) touch(m->strings[i].data, m->strings[i].len);
    for (size_t i = 0; m->type == META_ARRAY && i < m->n; i++)
        sink += (unsigned)meta_array_int(m, i) + (meta_array_float(m, i) > 0);
}

static void walk_tensor(const struct weights *w, const struct tensor *t, const uint8_t *data, size_t size) {
    expect(weights_tensor(w, t->name) == t);
    const uint8_t *p = t->data;
    expect(p > data && p <= data + size && t->bytes <= (size_t)(data + size - p));
    expect(t->bytes > 0 && t->row_bytes * tensor_rows(t) == t->bytes);
    touch(p, t->bytes);
    float *row = malloc(t->dims[0] * sizeof *row);
    if (!row) return;
    tensor_row_f32(row, t, 0);
    touch(row, t->dims[0] * sizeof *row);
    tensor_row_f32(row, t, tensor_rows(t) - 1);
    touch(row, t->dims[0] * sizeof *row);
    expect(weights_read(w, t, t->bytes - t->row_bytes, t->row_bytes, row, NULL) == 0);
    free(row);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    struct weights *w = NULL;
    struct error err = {0};
    int rc = weights_open_memory(data, size, &w, &err);
    if (rc) {
        expect(rc < 0 && !w && err.code == rc && err.text[0]);
        return 0;
    }
    uint64_t bytes = 0;
    for (size_t i = 0; i < weights_n_meta(w); i++) walk_meta(w, weights_meta_at(w, i));
    for (size_t i = 0; i < weights_n_tensors(w); i++) {
        walk_tensor(w, weights_tensor_at(w, i), data, size);
        bytes += weights_tensor_at(w, i)->bytes;
    }
    expect(bytes == weights_tensor_bytes(w) && bytes <= weights_file_bytes(w));
    weights_close(w);
    return 0;
}
