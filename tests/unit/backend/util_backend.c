#include "util_backend.h"

#include "kern/kern.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

const char *const *backend_paths(void) {
    static const char *paths[KERN_ISAS + 1];
    size_t n = 0;
    for (int isa = 0; isa < KERN_ISAS; isa++) {
        const struct kern *k = kern_table((enum kern_isa)isa);
        if (k) paths[n++] = k->name;
    }
    paths[n] = NULL;
    return paths;
}

struct backend *backend_start(const char *path, size_t n_threads) {
    struct backend_cpu_options o = {.n_threads = n_threads,
                                    .isa_limit = path,
                                    .max_rows = TEST_MAX_ROWS,
                                    .max_width = TEST_MAX_WIDTH,
                                    .max_positions = TEST_POSITIONS,
                                    .max_heads = 16,
                                    .max_head_dim = 128,
                                    .max_vocab = TEST_MAX_VOCAB,
                                    .max_experts = TEST_MAX_EXPERTS,
                                    .max_experts_used = TEST_MAX_EXPERTS,
                                    .max_expert_width = TEST_MAX_WIDTH};
    struct backend *b = NULL;
    struct error err = {0};
    if (backend_cpu_open(&o, &b, &err)) fail_msg("%s", err.text);
    assert_string_equal(b->path, path);
    assert_int_equal(b->n_threads, n_threads);
    return b;
}

struct backend_buffer *buffer_of(struct backend *b, const float *values, size_t n) {
    struct backend_buffer *buf = b->ops->buffer_alloc(b, n * sizeof *values);
    assert_non_null(buf);
    if (values) b->ops->upload(b, buf, 0, values, n * sizeof *values);
    return buf;
}

float *floats_of(struct backend *b, const struct backend_buffer *buf, size_t n) {
    float *out = malloc((n ? n : 1) * sizeof *out);
    assert_non_null(out);
    b->ops->wait(b);
    b->ops->download(b, out, buf, 0, n * sizeof *out);
    return out;
}

uint32_t random_u32(uint64_t *state) {
    *state = *state * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(*state >> 33) ^ (uint32_t)(*state >> 12);
}

float random_float(uint64_t *state) {
    double sum = 0.0;
    for (int i = 0; i < 4; i++) sum += random_u32(state) / 4294967296.0;
    return (float)((sum - 2.0) * 1.7);
}

float *random_floats(uint64_t *state, size_t n) {
    float *out = malloc((n ? n : 1) * sizeof *out);
    assert_non_null(out);
    for (size_t i = 0; i < n; i++) out[i] = random_float(state);
    return out;
}

float round_bf16(float x) {
    uint32_t bits;
    memcpy(&bits, &x, 4);
    bits += 0x7fff + (bits >> 16 & 1);
    bits &= 0xffff0000u;
    memcpy(&x, &bits, 4);
    return x;
}

float round_f16(float x) {
    /* 11 significant bits, exponents from -14 on; values of the tests are far from overflow. */
    int e;
    frexp(x, &e);
    double unit = ldexp(1.0, (e < -13 ? -13 : e) - 11);
    return (float)(nearbyint(x / unit) * unit);
}

float round_dtype(float x, enum backend_dtype dtype) {
    return dtype == BACKEND_F32 ? x : dtype == BACKEND_F16 ? round_f16(x) : round_bf16(x);
}

static void decode_f32(float *dst, const void *src, size_t n_blocks) {
    memcpy(dst, src, n_blocks * sizeof *dst);
}

struct backend_tensor f32_tensor(const float *data, size_t rows, size_t cols) {
    return (struct backend_tensor){.name = "test.weight",
                                   .format = 0,
                                   .decode = decode_f32,
                                   .block_elems = 1,
                                   .block_bytes = 4,
                                   .rows = rows,
                                   .cols = cols,
                                   .data = data,
                                   .row_bytes = cols * sizeof *data};
}

struct backend_matrix *load_matrix(struct backend *b, const struct backend_tensor *t,
                                   enum backend_dtype dtype) {
    struct error err = {0};
    struct backend_matrix *m = NULL;
    size_t bytes = b->ops->matrix_bytes(b, t, dtype, &err);
    if (!bytes) fail_msg("%s", err.text);
    if (b->ops->matrix_load(b, t, dtype, &m, &err)) fail_msg("%s", err.text);
    return m;
}

void assert_close(const float *a, const float *b, size_t n, double tolerance) {
    for (size_t i = 0; i < n; i++)
        if (!(fabs((double)a[i] - b[i]) <= tolerance * (1.0 + fabs(b[i]))))
            fail_msg("element %zu of %zu: %.9g, expected %.9g (tolerance %g)", i, n, a[i], b[i], tolerance);
}
