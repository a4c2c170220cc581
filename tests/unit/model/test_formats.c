/* Weight formats that have a decoder and no products of their own are kept as --dtype: a model in such a
 * format gives the bits of the model that has the decoded numbers, also where scales lie beside (NVFP4). */
#include "util_session.h"

#include "bench/fill.h"
#include "util/gguf_build.h"
#include "util/tiny_model.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { N_TOKENS = 40 };

/* A matrix of layers in another format, and what its elements are. */
struct form {
    enum tensor_type type;
    bool scales, decoded; /* decoded: float32 elements, scales multiplied in */
};

static bool is_matrix(const struct tensor *t) {
    return t->n_dims == 2 && !strncmp(t->name, "blk.", 4);
}

static void put_scale(struct gguf_build *b, const struct tensor *t, const char *end, float value) {
    char name[80];
    uint64_t one = 1;
    snprintf(name, sizeof name, "%.*s%s", (int)(strlen(t->name) - strlen(".weight")), t->name, end);
    gguf_tensor(b, name, TENSOR_F32, 1, &one, &value, sizeof value);
}

/* The same blocks whatever the form: they are made from the tensor's place. */
static void put_matrix(struct gguf_build *b, const struct tensor *t, size_t place, const struct form *f) {
    const struct tensor_type_info *type = tensor_type_info(f->type);
    struct fill fill = {place};
    size_t n = t->dims[0] * t->dims[1], bytes = n / type->block_elems * type->block_bytes;
    float scale = f->scales ? 0.03f + 0.001f * (float)place : 1.0f, *values = malloc(n * sizeof *values);
    void *blocks = malloc(bytes);
    uint64_t dims[2] = {t->dims[0], t->dims[1]};
    assert_true(values && blocks);
    assert_true(fill_blocks(&fill, blocks, bytes, type));
    type->decode(values, blocks, n / type->block_elems);
    for (size_t i = 0; i < n; i++) values[i] *= scale;
    if (f->decoded) {
        gguf_tensor(b, t->name, TENSOR_F32, 2, dims, values, n * sizeof *values);
    } else {
        gguf_tensor(b, t->name, (uint32_t)f->type, 2, dims, blocks, bytes);
        if (f->scales) put_scale(b, t, ".scale", scale);
        if (f->scales) put_scale(b, t, ".input_scale", 7.0f);
    }
    free(values);
    free(blocks);
}

static uint8_t *rewrite(const struct weights *w, const struct form *f, size_t *n) {
    struct gguf_build b = gguf_build_new();
    session_copy_metadata(&b, w);
    for (size_t i = 0; i < weights_n_tensors(w); i++) {
        const struct tensor *t = weights_tensor_at(w, i);
        uint64_t dims[2] = {t->dims[0], t->dims[1]};
        if (is_matrix(t))
            put_matrix(&b, t, i, f);
        else
            gguf_tensor(&b, t->name, (uint32_t)t->type, t->n_dims, dims, t->data, t->bytes);
    }
    return gguf_build_finish(&b, n);
}

static void *tiny(struct weights **w) {
    struct tiny_model_options o = tiny_model_defaults();
    struct error err = {0};
    size_t n;
    o.width = o.ff = 256;
    o.n_heads = 8;
    void *file = tiny_model_memory(&o, &n);
    assert_non_null(file);
    if (weights_open_memory(file, n, w, &err)) fail_msg("%s", err.text);
    return file;
}

/* logits: malloc'd [N_TOKENS][n_vocab]; *n floats. */
static float *logits_of(const struct weights *like, const struct form *f, const char *path,
                        enum backend_dtype dtype, size_t *n) {
    struct session s;
    struct weights *w;
    struct error err = {0};
    uint32_t tokens[N_TOKENS];
    size_t bytes;
    uint8_t *file = rewrite(like, f, &bytes);
    if (weights_open_memory(file, bytes, &w, &err)) fail_msg("%s", err.text);
    session_open(&s, w,
                 &(struct session_options){.path = path, .n_threads = 2, .dtype = dtype, .n_pages = 8});
    for (uint32_t i = 0; i < N_TOKENS; i++) tokens[i] = (i * 37 + 11) % (uint32_t)s.spec->n_vocab;
    *n = N_TOKENS * s.spec->n_vocab;
    float *logits = malloc(*n * sizeof *logits);
    assert_non_null(logits);
    session_run(&s, tokens, N_TOKENS, 17, logits);
    session_close(&s);
    weights_close(w);
    free(file);
    return logits;
}

static void decoded_formats_compute_as_floats(void **state) {
    static const struct form forms[] = {{TENSOR_TQ1_0, false, false},
                                        {TENSOR_TQ2_0, false, false},
                                        {TENSOR_NVFP4, false, false},
                                        {TENSOR_NVFP4, true, false}};
    static const char *const paths[] = {"ref", "avx2", "avx512", "amx"};
    struct weights *like;
    void *file = tiny(&like);
    for (size_t p = 0; p < sizeof paths / sizeof *paths; p++) {
        if (!session_has_path(paths[p])) print_message("SKIPPED: no %s on this machine\n", paths[p]);
        for (size_t i = 0; session_has_path(paths[p]) && i < sizeof forms / sizeof *forms; i++)
            for (enum backend_dtype dtype = BACKEND_BF16; dtype <= BACKEND_F32; dtype++) {
                struct form decoded = forms[i];
                size_t n, n_decoded;
                decoded.decoded = true;
                float *x = logits_of(like, &forms[i], paths[p], dtype, &n);
                float *y = logits_of(like, &decoded, paths[p], dtype, &n_decoded);
                assert_int_equal(n, n_decoded);
                assert_memory_equal(x, y, n * sizeof *x);
                assert_true(x[0] != x[1]); /* something was computed */
                free(x);
                free(y);
            }
    }
    weights_close(like);
    free(file);
}

/* A scale that has no fitting shape is a defect of the file. */
static void scales_are_checked(void **state) {
    struct gguf_build b = gguf_build_new();
    uint64_t dims[2] = {64, 1}, two = 2;
    uint8_t block[36] = {0};
    float values[2] = {1.0f, 1.0f};
    struct weights *w;
    struct error err = {0};
    size_t n;
    gguf_kv_str(&b, "general.architecture", "llama");
    gguf_tensor(&b, "blk.0.ffn_up.weight", TENSOR_NVFP4, 2, dims, block, sizeof block);
    gguf_tensor(&b, "blk.0.ffn_up.scale", TENSOR_F32, 1, &two, values, sizeof values);
    uint8_t *file = gguf_build_finish(&b, &n);
    assert_int_equal(weights_open_memory(file, n, &w, &err), QUIRE_EFORMAT);
    assert_non_null(strstr(err.text, "blk.0.ffn_up.scale"));
    assert_non_null(strstr(err.text, "must be F32, one number"));
    free(file);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(decoded_formats_compute_as_floats),
                                       cmocka_unit_test(scales_are_checked)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
