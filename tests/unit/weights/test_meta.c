/* Metadata: what the gguf Python package wrote and read (tests/golden/weights_metadata.py), and the typed
 * getters. */
#include "util/gguf_build.h"
#include "util_file.h"
#include "weights/weights.h"

#include <inttypes.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

/* ---- round trip ---- */

static void put_value(FILE *out, const struct meta *m, size_t i) {
    enum meta_type type = m->type == META_ARRAY ? m->elem : m->type;
    struct meta as_array = *m;
    as_array.elem = type;
    if (type == META_STRING) {
        if (!m->strings[i].len) fputs("-", out);
        for (size_t j = 0; j < m->strings[i].len; j++)
            fprintf(out, "%02x", (unsigned char)m->strings[i].data[j]);
    } else if (type == META_F32) {
        float v = (float)meta_array_float(&as_array, i);
        uint32_t bits;
        memcpy(&bits, &v, 4);
        fprintf(out, "%08" PRIx32, bits);
    } else if (type == META_F64) {
        double v = meta_array_float(&as_array, i);
        uint64_t bits;
        memcpy(&bits, &v, 8);
        fprintf(out, "%016" PRIx64, bits);
    } else if (type == META_BOOL) {
        fprintf(out, "%d", ((const uint8_t *)m->raw)[i]);
    } else if (type == META_U64) {
        fprintf(out, "%" PRIu64, (uint64_t)meta_array_int(&as_array, i));
    } else {
        fprintf(out, "%" PRId64, meta_array_int(&as_array, i));
    }
}

static char *dump(const struct weights *w) {
    char *text;
    size_t n;
    FILE *out = open_memstream(&text, &n);
    for (size_t i = 0; i < weights_n_meta(w); i++) {
        const struct meta *m = weights_meta_at(w, i);
        assert_ptr_equal(weights_meta(w, m->key), m);
        const char *elem = meta_type_name(m->type == META_ARRAY ? m->elem : m->type);
        fprintf(out, "%s %s%s %zu", m->key, m->type == META_ARRAY ? "array " : "", elem, m->n);
        for (size_t j = 0; j < m->n; j++) {
            fputc(' ', out);
            put_value(out, m, j);
        }
        fputc('\n', out);
    }
    fclose(out);
    return text;
}

static void check_tensors(const struct weights *w) {
    static const struct {
        const char *name;
        enum tensor_type type;
        size_t dims[4], row_bytes, bytes;
    } expected[] = {{"first", TENSOR_F32, {4, 3, 1, 1}, 16, 48},
                    {"second", TENSOR_F16, {7, 1, 1, 1}, 14, 14},
                    {"deep", TENSOR_F32, {5, 4, 3, 2}, 20, 480}};
    assert_int_equal(weights_n_tensors(w), 3);
    assert_int_equal(weights_tensor_bytes(w), 48 + 14 + 480);
    for (size_t i = 0; i < 3; i++) {
        const struct tensor *t = weights_tensor_at(w, i);
        assert_ptr_equal(weights_tensor(w, expected[i].name), t);
        assert_string_equal(t->name, expected[i].name);
        assert_int_equal(t->type, expected[i].type);
        assert_memory_equal(t->dims, expected[i].dims, sizeof t->dims);
        assert_int_equal(t->row_bytes, expected[i].row_bytes);
        assert_int_equal(t->bytes, expected[i].bytes);
        float row[7];
        for (size_t r = 0; r < tensor_rows(t); r++) {
            tensor_row_f32(row, t, r);
            for (size_t j = 0; j < t->dims[0]; j++) assert_true(row[j] == (float)(r * t->dims[0] + j));
        }
    }
    assert_null(weights_tensor(w, "third"));
    assert_null(weights_meta(w, "absent"));
}

static void test_round_trip(void **state) {
    char path[1024];
    snprintf(path, sizeof path, "%s/weights/metadata.gguf", TEST_DATA);
    size_t n;
    char *expected = (char *)file_data("metadata.txt", &n);
    struct weights *w;
    struct error err = {0};
    assert_int_equal(weights_open(path, &w, &err), 0);
    assert_string_equal(weights_path(w), path);
    char *got = dump(w);
    assert_string_equal(got, expected);
    check_tensors(w);
    weights_close(w);
    free(got);
    free(expected);
}

/* ---- getters ---- */

static struct weights *open_built(struct gguf_build *b, uint8_t **data) {
    size_t n;
    struct weights *w;
    struct error err = {0};
    *data = gguf_build_finish(b, &n);
    int rc = weights_open_memory(*data, n, &w, &err);
    if (rc) fail_msg("%s", err.text);
    return w;
}

static void test_integers(void **state) {
    struct gguf_build b = gguf_build_new();
    uint8_t *data;
    gguf_kv(&b, "u8", 0), gguf_bytes_put(&b.kv, "\xff", 1);
    gguf_kv(&b, "i8", 1), gguf_bytes_put(&b.kv, "\xff", 1);
    gguf_kv(&b, "u16", 2), gguf_bytes_put(&b.kv, "\xff\xff", 2);
    gguf_kv(&b, "i16", 3), gguf_bytes_put(&b.kv, "\x00\x80", 2);
    gguf_kv(&b, "i32", 5), gguf_bytes_u32(&b.kv, 77);
    gguf_kv(&b, "u64", 10), gguf_bytes_u64(&b.kv, UINT64_MAX);
    gguf_kv(&b, "i64", 11), gguf_bytes_u64(&b.kv, UINT64_MAX);
    gguf_kv_f32(&b, "f32", 2);
    gguf_kv_str(&b, "text", "seven");
    gguf_kv_bool(&b, "flag", true);
    gguf_kv_array(&b, "list", 5, 2), gguf_bytes_u64(&b.kv, 0);
    struct weights *w = open_built(&b, &data);
    static const struct {
        const char *key;
        uint64_t max, value;
        int rc;
        const char *text;
    } cases[] = {
        {"u8", 255, 255, 0, ""},
        {"u16", 65535, 65535, 0, ""},
        {"i32", 100, 77, 0, ""},
        {"u64", UINT64_MAX, UINT64_MAX, 0, ""},
        {"i32", 76, 0, QUIRE_EFORMAT,
         "metadata key \"i32\" is the i32 77; an integer from 1 to 76 is allowed"},
        {"i8", 255, 0, QUIRE_EFORMAT,
         "metadata key \"i8\" is the i8 -1; an integer from 1 to 255 is allowed"},
        {"i16", 255, 0, QUIRE_EFORMAT,
         "metadata key \"i16\" is the i16 -32768; an integer from 1 to 255 is allowed"},
        {"i64", UINT64_MAX, 0, QUIRE_EFORMAT,
         "is the i64 -1; an integer from 1 to 18446744073709551615 is allowed"},
        {"u64", 9, 0, QUIRE_EFORMAT, "is the u64 18446744073709551615; an integer from 1 to 9 is allowed"},
        {"f32", 9, 0, QUIRE_EFORMAT, "is the f32 2; an integer"},
        {"text", 9, 0, QUIRE_EFORMAT, "is the string \"seven\"; an integer"},
        {"flag", 9, 0, QUIRE_EFORMAT, "is the boolean true; an integer"},
        {"list", 9, 0, QUIRE_EFORMAT, "is an array of 2 i32; an integer"},
        {"none", 9, 0, QUIRE_ENOTFOUND, "metadata key \"none\" is missing"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        uint64_t v = 4711;
        struct error err = {0};
        assert_int_equal(weights_get_u64(w, cases[i].key, 1, cases[i].max, &v, &err), cases[i].rc);
        if (!strstr(err.text, cases[i].text)) fail_msg("%s: %s", cases[i].text, err.text);
        assert_true(v == (cases[i].rc ? 4711 : cases[i].value));
    }
    weights_close(w);
    free(data);
}

static void test_other_getters(void **state) {
    struct gguf_build b = gguf_build_new();
    uint8_t *data;
    gguf_kv_f32(&b, "f32", -0.5f);
    gguf_kv(&b, "f64", 12), gguf_bytes_u64(&b.kv, 0x4009000000000000); /* 3.125 */
    gguf_kv_u32(&b, "u32", 4000000000u);
    gguf_kv_f32(&b, "nan", NAN);
    gguf_kv_f32(&b, "inf", -INFINITY);
    gguf_kv_bool(&b, "yes", true);
    gguf_kv_bool(&b, "no", false);
    gguf_kv_str(&b, "text", "abc");
    gguf_kv_str(&b, "empty", "");
    struct weights *w = open_built(&b, &data);
    struct error err = {0};
    double f;
    bool flag;
    struct meta_str s;
    assert_int_equal(weights_get_f64(w, "f32", &f, &err), 0);
    assert_true(f == -0.5);
    assert_int_equal(weights_get_f64(w, "f64", &f, &err), 0);
    assert_true(f == 3.125);
    assert_int_equal(weights_get_f64(w, "u32", &f, &err), 0);
    assert_true(f == 4e9);
    assert_int_equal(weights_get_f64(w, "nan", &f, &err), QUIRE_EFORMAT);
    assert_non_null(strstr(err.text, "metadata key \"nan\" is the f32"));
    assert_int_equal(weights_get_f64(w, "inf", &f, &err), QUIRE_EFORMAT);
    assert_non_null(strstr(err.text, "\"inf\" is the f32 -inf; a finite number is allowed"));
    assert_int_equal(weights_get_f64(w, "text", &f, &err), QUIRE_EFORMAT);
    assert_int_equal(weights_get_bool(w, "yes", &flag, &err), 0);
    assert_true(flag);
    assert_int_equal(weights_get_bool(w, "no", &flag, &err), 0);
    assert_false(flag);
    assert_int_equal(weights_get_bool(w, "u32", &flag, &err), QUIRE_EFORMAT);
    assert_int_equal(weights_get_str(w, "text", &s, &err), 0);
    assert_true(s.len == 3 && !memcmp(s.data, "abc", 3));
    assert_int_equal(weights_get_str(w, "empty", &s, &err), 0);
    assert_true(s.len == 0 && s.data);
    assert_int_equal(weights_get_str(w, "yes", &s, &err), QUIRE_EFORMAT);
    assert_int_equal(weights_get_str(w, "none", &s, &err), QUIRE_ENOTFOUND);
    weights_close(w);
    free(data);
}

/* A key that is absent is a matter for whoever reads it (tokenizer.ggml.pre among them): absent differs from
 * empty. */
static void test_absent_differs_from_empty(void **state) {
    struct gguf_build b = gguf_build_new();
    uint8_t *data;
    gguf_kv_str(&b, "tokenizer.ggml.pre", "");
    gguf_kv_array(&b, "tokenizer.ggml.tokens", 8, 0);
    gguf_kv_array(&b, "tokenizer.ggml.scores", 6, 0);
    struct weights *w = open_built(&b, &data);
    struct meta_str s;
    assert_int_equal(weights_get_str(w, "tokenizer.ggml.pre", &s, NULL), 0);
    assert_int_equal(weights_get_str(w, "tokenizer.ggml.model", &s, NULL), QUIRE_ENOTFOUND);
    const struct meta *tokens = weights_meta(w, "tokenizer.ggml.tokens");
    assert_true(tokens && tokens->n == 0 && tokens->strings && tokens->elem == META_STRING);
    assert_int_equal(weights_meta(w, "tokenizer.ggml.scores")->n, 0);
    weights_close(w);
    free(data);
}

/* Names are found whatever the number and order of entries, equal beginnings included. */
static void test_many_keys(void **state) {
    struct gguf_build b = gguf_build_new();
    uint8_t *data;
    char key[32];
    for (uint32_t i = 0; i < 5000; i++) {
        snprintf(key, sizeof key, "key.%u", i * 7919 % 5000);
        gguf_kv_u32(&b, key, i * 7919 % 5000);
    }
    struct weights *w = open_built(&b, &data);
    assert_int_equal(weights_n_meta(w), 5000);
    for (uint32_t i = 0; i < 5000; i++) {
        uint64_t v = 0;
        snprintf(key, sizeof key, "key.%u", i);
        assert_int_equal(weights_get_u64(w, key, 0, 5000, &v, NULL), 0);
        assert_int_equal(v, i);
    }
    assert_null(weights_meta(w, "key."));
    assert_null(weights_meta(w, "key.5000"));
    weights_close(w);
    free(data);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_round_trip),    cmocka_unit_test(test_integers),
        cmocka_unit_test(test_other_getters), cmocka_unit_test(test_absent_differs_from_empty),
        cmocka_unit_test(test_many_keys),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
