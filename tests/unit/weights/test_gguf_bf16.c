/* A quantized model written as bfloat16, read back: the metadata is the same, each element the decoded one
 * rounded. */
#include "util/tiny_model.h"
#include "weights/gguf_bf16.h"
#include "weights/weights.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

static struct weights *written(const struct weights *w, FILE *f) {
    char path[64];
    struct weights *out;
    struct error err = {0};
    assert_int_equal(gguf_bf16_write(w, fileno(f), &err), 0);
    snprintf(path, sizeof path, "/proc/self/fd/%d", fileno(f));
    if (weights_open(path, &out, &err)) fail_msg("%s", err.text);
    return out;
}

static void same_meta(const struct weights *a, const struct weights *b) {
    size_t n = 0;
    for (size_t i = 0; i < weights_n_meta(a); i++) {
        const struct meta *x = weights_meta_at(a, i), *y = weights_meta(b, x->key);
        if (!strcmp(x->key, "general.file_type") || !strcmp(x->key, "general.quantization_version")) continue;
        assert_non_null(y);
        n++;
        assert_true(x->type == y->type && x->n == y->n && (x->type != META_ARRAY || x->elem == y->elem));
        enum meta_type type = x->type == META_ARRAY ? x->elem : x->type;
        for (size_t k = 0; k < x->n; k++) {
            if (type == META_STRING) {
                assert_int_equal(x->strings[k].len, y->strings[k].len);
                assert_memory_equal(x->strings[k].data, y->strings[k].data, x->strings[k].len);
            } else if (type == META_F32) {
                assert_true(meta_array_float(x, k) == meta_array_float(y, k));
            } else if (type != META_BOOL) {
                assert_true(meta_array_int(x, k) == meta_array_int(y, k));
            }
        }
    }
    assert_true(n > 10);
}

static void same_values(const struct weights *a, const struct weights *b) {
    assert_int_equal(weights_n_tensors(a), weights_n_tensors(b));
    for (size_t i = 0; i < weights_n_tensors(a); i++) {
        const struct tensor *x = weights_tensor_at(a, i), *y = weights_tensor_at(b, i);
        bool quantized = tensor_type_info(x->type)->block_elems > 1;
        float *p = calloc(x->dims[0], sizeof *p), *q = calloc(x->dims[0], sizeof *q);
        assert_string_equal(x->name, y->name);
        assert_int_equal(y->type, quantized ? TENSOR_BF16 : x->type);
        assert_memory_equal(x->dims, y->dims, sizeof x->dims);
        for (size_t r = 0; r < tensor_rows(x); r++) {
            tensor_row_f32(p, x, r);
            tensor_row_f32(q, y, r);
            for (size_t k = 0; k < x->dims[0]; k++) /* 8 significant bits, rounded to nearest */
                assert_true(quantized ? fabsf(p[k] - q[k]) <= fabsf(p[k]) * 0x1p-8f : p[k] == q[k]);
        }
        free(p);
        free(q);
    }
}

static void test_read_back(void **state) {
    static const unsigned types[] = {3, 8, 12, 14}; /* Q4_1, Q8_0, Q4_K, Q6_K */
    for (size_t i = 0; i < sizeof types / sizeof *types; i++) {
        struct tiny_model_options o = tiny_model_defaults();
        size_t n;
        struct error err = {0};
        struct weights *w;
        o.type = types[i];
        o.width = o.ff = 256;
        o.head_dim = 64;
        o.n_layers = 1;
        void *data = tiny_model_memory(&o, &n);
        FILE *f = tmpfile();
        assert_non_null(f);
        assert_int_equal(weights_open_memory(data, n, &w, &err), 0);
        assert_true(gguf_bf16_quantized(w) >= 8); /* of the layer, the embedding and the output */
        struct weights *v = written(w, f);
        same_meta(w, v);
        same_values(w, v);
        assert_int_equal(gguf_bf16_quantized(v), 0);
        weights_close(v);
        weights_close(w);
        fclose(f);
        free(data);
    }
}

static void test_full_disk(void **state) {
    struct tiny_model_options o = tiny_model_defaults();
    size_t n;
    struct error err = {0};
    struct weights *w;
    o.type = 8;
    void *data = tiny_model_memory(&o, &n);
    FILE *full = fopen("/dev/full", "wb");
    assert_int_equal(weights_open_memory(data, n, &w, &err), 0);
    if (full) {
        assert_int_equal(gguf_bf16_write(w, fileno(full), &err), QUIRE_EIO);
        assert_non_null(strstr(err.text, "No space left"));
        fclose(full);
    }
    weights_close(w);
    free(data);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_read_back),
        cmocka_unit_test(test_full_disk),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
