/* Decoders and the table of types, against the gguf and ml_dtypes Python packages
 * (tests/golden/weights_decoders.py). */
#include "util/crc32.h"
#include "util_file.h"
#include "weights/half.h"
#include "weights/tensor.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static uint32_t bits_of(float v) {
    uint32_t bits;
    memcpy(&bits, &v, 4);
    return (bits & 0x7fffffff) > 0x7f800000 ? 0x7fc00000 : bits; /* which NaN it is does not matter */
}

/* Every format: the same bits, not merely close, since the order of the float operations is the same. */
static void test_decoders_match(void **state) {
    size_t n, n_formats = 0;
    uint8_t *data = file_data("decoders.bin", &n);
    for (const uint8_t *p = data; p < data + n; n_formats++) {
        uint32_t head[2];
        memcpy(head, p, sizeof head);
        const struct tensor_type_info *info = tensor_type_info(head[0]);
        assert_non_null(info);
        assert_non_null(info->decode);
        size_t n_blocks = head[1], n_elems = n_blocks * info->block_elems;
        const uint8_t *blocks = p + sizeof head, *expected = blocks + n_blocks * info->block_bytes;
        float *got = malloc(n_elems * sizeof *got);
        assert_non_null(got);
        info->decode(got, blocks, n_blocks);
        for (size_t i = 0; i < n_elems; i++) {
            float want;
            memcpy(&want, expected + i * sizeof want, sizeof want);
            if (bits_of(got[i]) != bits_of(want)) {
                fail_msg("%s block %zu element %zu: %a, expected %a", info->name, i / info->block_elems,
                         i % info->block_elems, (double)got[i], (double)want);
            }
        }
        free(got);
        p = expected + n_elems * sizeof(float);
    }
    assert_int_equal(n_formats, 21);
    free(data);
}

/* All 65,536 values of binary16. */
static void test_f16_exhaustive(void **state) {
    size_t n;
    uint8_t *text = file_data("f16.crc", &n);
    uint32_t *bits = malloc(65536 * sizeof *bits);
    assert_non_null(bits);
    for (uint32_t h = 0; h < 65536; h++) bits[h] = bits_of(half_f16_f32((uint16_t)h));
    assert_int_equal(crc32_of(bits, 65536 * sizeof *bits), strtoul((char *)text, NULL, 16));
    free(bits);
    free(text);
}

static void test_types_match(void **state) {
    size_t n, n_types = 0;
    uint8_t *text = file_data("types.txt", &n);
    for (char *line = strtok((char *)text, "\n"); line; line = strtok(NULL, "\n"), n_types++) {
        unsigned id;
        char name[32];
        size_t elems, bytes;
        assert_int_equal(sscanf(line, "%u %31s %zu %zu", &id, name, &elems, &bytes), 4);
        const struct tensor_type_info *info = tensor_type_info(id);
        assert_non_null(info);
        assert_string_equal(info->name, name);
        assert_int_equal(info->block_elems, elems);
        /* the package counts Q8_1's two binary16 numbers as float32; ggml's block has 36 bytes */
        assert_int_equal(info->block_bytes, strcmp(name, "Q8_1") ? bytes : 36);
        assert_true(info->loadable == !info->instead && (info->decode || !info->loadable));
    }
    assert_true(n_types >= 30);
    free(text);
}

static void test_removed_and_unknown(void **state) {
    static const uint32_t removed[] = {4, 5, 31, 32, 33, 36, 37, 38};
    for (size_t i = 0; i < sizeof removed / sizeof *removed; i++) {
        const struct tensor_type_info *info = tensor_type_info(removed[i]);
        assert_non_null(info);
        assert_int_equal(info->block_elems, 0);
        assert_false(info->loadable);
        assert_non_null(strstr(info->instead, "removed"));
    }
    for (uint32_t id = 43; id < 300; id++)
        if (id != TENSOR_U8 && id != TENSOR_F8_E4M3 && id != TENSOR_F8_E5M2) assert_null(tensor_type_info(id));
    assert_null(tensor_type_info(UINT32_MAX));
}

/* Rows of a tensor: row r of the last dimension counts through the middle ones. Unaligned data is fine. */
static void test_rows(void **state) {
    uint8_t raw[1 + 6 * 34] = {0};
    for (int row = 0; row < 6; row++) {
        raw[1 + row * 34 + 1] = 0x3c; /* d = 1 */
        for (int i = 0; i < 32; i++) raw[1 + row * 34 + 2 + i] = (uint8_t)(row * 20 - i);
    }
    struct tensor t = {.name = "t",
                       .type = TENSOR_Q8_0,
                       .n_dims = 3,
                       .dims = {32, 3, 2, 1},
                       .data = raw + 1,
                       .row_bytes = 34,
                       .bytes = 6 * 34};
    assert_int_equal(tensor_rows(&t), 6);
    for (int row = 0; row < 6; row++) {
        float got[32];
        tensor_row_f32(got, &t, (size_t)row);
        for (int i = 0; i < 32; i++) assert_true(got[i] == (float)(row * 20 - i));
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_decoders_match), cmocka_unit_test(test_f16_exhaustive),
        cmocka_unit_test(test_types_match),    cmocka_unit_test(test_removed_and_unknown),
        cmocka_unit_test(test_rows),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
