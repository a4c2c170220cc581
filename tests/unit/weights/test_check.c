/* What a tool that looks at a file checks: numbers that are not finite, against what the gguf package decodes
 * them to; bytes that belong to nothing. */
#include "util/gguf_build.h"
#include "util_file.h"
#include "weights/check.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

/* ---- numbers ---- */

static bool all_finite(const uint8_t *floats, size_t n) {
    for (size_t i = 0; i < n; i++) {
        float v;
        memcpy(&v, floats + i * sizeof v, sizeof v);
        if (!isfinite(v)) return false;
    }
    return true;
}

/* A block is faulty exactly if the package gets an element of it that is not finite. */
static void test_as_decoded(void **state) {
    size_t n, n_faulty = 0, n_blocks = 0;
    uint8_t *data = file_data("decoders.bin", &n);
    for (const uint8_t *p = data; p < data + n;) {
        uint32_t head[2];
        memcpy(head, p, sizeof head);
        const struct tensor_type_info *info = tensor_type_info(head[0]);
        const uint8_t *block = p + sizeof head, *floats = block + head[1] * info->block_bytes;
        for (size_t i = 0; i < head[1]; i++, n_blocks++) {
            struct float_faults f = {0};
            check_floats((enum tensor_type)head[0], block, 1, &f);
            bool finite = all_finite(floats, info->block_elems);
            /* scales that are no numbers, though the package takes them for some */
            if (head[0] == TENSOR_MXFP4 && block[0] == 255) finite = false;
            if (head[0] == TENSOR_NVFP4)
                for (size_t k = 0; k < 4; k++) finite &= (block[k] & 0x7f) != 0x7f;
            if (finite != !(f.n_nan + f.n_inf)) fail_msg("%s, block %zu", info->name, i);
            n_faulty += !finite;
            block += info->block_bytes;
            floats += info->block_elems * sizeof(float);
        }
        p = floats;
    }
    assert_true(n_faulty > 20 && n_blocks - n_faulty > 200);
    free(data);
}

struct number {
    uint32_t type;
    size_t at; /* in a block of zeros */
    uint64_t bits;
    size_t bytes;
    uint64_t n_nan, n_inf;
};

/* Types that nothing decodes, and which of the two it is. */
static void test_kinds(void **state) {
    static const struct number numbers[] = {
        {TENSOR_F32, 0, 0x7f800000, 4, 0, 1},
        {TENSOR_F32, 0, 0xff800000, 4, 0, 1},
        {TENSOR_F32, 0, 0x7f800001, 4, 1, 0},
        {TENSOR_F32, 0, 0x7f7fffff, 4, 0, 0},
        {TENSOR_F16, 0, 0x7c00, 2, 0, 1},
        {TENSOR_F16, 0, 0xfe00, 2, 1, 0},
        {TENSOR_BF16, 0, 0x7f80, 2, 0, 1},
        {TENSOR_BF16, 0, 0xffc0, 2, 1, 0},
        {TENSOR_F8_E4M3, 0, 0xff, 1, 1, 0},
        {TENSOR_F8_E4M3, 0, 0x7e, 1, 0, 0},
        {TENSOR_F8_E5M2, 0, 0x7c, 1, 0, 1},
        {TENSOR_F8_E5M2, 0, 0xfd, 1, 1, 0},
        {28, 0, 0x7ff0000000000000, 8, 0, 1}, /* F64 */
        {28, 0, 0xfff0000000000001, 8, 1, 0},
        {28, 0, 0x7fefffffffffffff, 8, 0, 0},
        {TENSOR_Q4_1, 0, 0x7c007e00, 4, 1, 1},
        {TENSOR_Q4_1, 4, 0x7c007e00, 4, 0, 0}, /* elements */
        {9, 2, 0x7c00, 2, 0, 1},               /* Q8_1 */
        {15, 0, 0x7fc00000, 4, 1, 0},          /* Q8_K */
        {16, 0, 0x7c00, 2, 0, 1},              /* IQ2_XXS */
        {16, 2, 0xffff, 2, 0, 0},
        {29, 48, 0xc0000000, 4, 0, 0}, /* IQ1_M: nibbles of 0x7c00 in bits 12 to 15 of four numbers */
        {29, 48, 0x7000c00000000000, 8, 0, 1},
        {29, 48, 0x7000c00000001000, 8, 1, 0},
        {34, 52, 0x7c00, 2, 0, 1}, /* TQ1_0 */
        {35, 64, 0x7e00, 2, 1, 0}, /* TQ2_0 */
        {40, 3, 0x7f, 1, 1, 0},    /* NVFP4 */
        {40, 4, 0xffff, 2, 0, 0},
        {24, 0, 0xff, 1, 0, 0}, /* I8 */
        {26, 0, 0x7f800000, 4, 0, 0},
    };
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++) {
        const struct number *c = &numbers[i];
        const struct tensor_type_info *info = tensor_type_info(c->type);
        struct float_faults f = {0};
        uint8_t blocks[3 * 512] = {0}; /* the second of three */
        for (size_t k = 0; k < c->bytes; k++)
            blocks[info->block_bytes + c->at + k] = (uint8_t)(c->bits >> (8 * k));
        check_floats((enum tensor_type)c->type, blocks, 3, &f);
        if (f.n_nan != c->n_nan || f.n_inf != c->n_inf)
            fail_msg("case %zu, %s: %llu NaN, %llu infinite", i, info->name, (unsigned long long)f.n_nan,
                     (unsigned long long)f.n_inf);
    }
}

/* One number in an array, at each place. */
static void test_arrays(void **state) {
    static const struct {
        enum tensor_type type;
        uint32_t nan, largest;
    } kinds[] = {
        {TENSOR_F32, 0xffc00000, 0x7f7fffff}, {TENSOR_F16, 0x7c01, 0xfbff}, {TENSOR_BF16, 0xff81, 0x7f7f}};
    for (size_t k = 0; k < 3; k++) {
        size_t bytes = kinds[k].type == TENSOR_F32 ? 4 : 2;
        for (size_t n = 1; n < 20; n++)
            for (size_t at = 0; at <= n; at++) { /* n: nowhere */
                uint8_t raw[1 + 20 * 4];
                struct float_faults f = {0};
                for (size_t i = 0; i < n; i++)
                    memcpy(raw + 1 + i * bytes, i == at ? &kinds[k].nan : &kinds[k].largest, bytes);
                check_floats(kinds[k].type, raw + 1, n, &f);
                assert_int_equal(f.n_nan, at < n);
                assert_int_equal(f.n_inf, 0);
            }
    }
}

/* ---- gaps ---- */

static char folder[FILE_FOLDER_BYTES];

static void expect_gap(const uint8_t *data, size_t n, const char *text) {
    const char *path = file_put(folder, "gap.gguf", data, n);
    struct weights *w;
    struct error err = {0};
    assert_int_equal(weights_open(path, &w, &err), 0);
    int rc = check_gaps(w, &err);
    if (rc != (text ? QUIRE_EFORMAT : 0) || (text && !strstr(err.text, text)))
        fail_msg("%d (%s), expected %s", rc, err.text, text);
    if (text) assert_true(!strncmp(err.text, path, strlen(path)));
    weights_close(w);
}

static void test_gaps(void **state) {
    static const float ten[10] = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10};
    uint64_t dims = 10;
    size_t n;
    file_folder_make(folder);
    struct gguf_build b = gguf_build_new();
    gguf_tensor(&b, "first", 0, 1, &dims, ten, sizeof ten);
    gguf_tensor(&b, "second", 0, 1, &dims, ten, sizeof ten);
    uint8_t *data = gguf_build_finish(&b, &n);
    size_t second = n - 64, first = second - 64; /* 40 bytes each, and padding */
    expect_gap(data, n, NULL);
    expect_gap(data, second + 40, NULL); /* an end that is not padded */
    data[first + 40] = 7;
    expect_gap(data, n, "in the padding after tensor \"first\", is 0x07; padding is 0");
    data[first + 40] = 0;
    data[n - 1] = 1;
    expect_gap(data, n, "in the padding after tensor \"second\", is 0x01; padding is 0");
    data[n - 1] = 0;
    data = realloc(data, n + 8);
    assert_non_null(data);
    memset(data + n, 0, 8);
    expect_gap(data, n + 7, NULL);
    expect_gap(data, n + 8, "32 bytes at offset");
    free(data);
    b = gguf_build_new();
    b.data.n = 0;
    gguf_bytes_zeros(&b.data, 32); /* before the first tensor */
    gguf_tensor(&b, "late", 0, 1, &dims, ten, sizeof ten);
    data = gguf_build_finish(&b, &n);
    expect_gap(data, n, "after the tensor descriptions, belong to no tensor");
    free(data);
    file_folder_remove(folder);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_as_decoded),
        cmocka_unit_test(test_kinds),
        cmocka_unit_test(test_arrays),
        cmocka_unit_test(test_gaps),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
