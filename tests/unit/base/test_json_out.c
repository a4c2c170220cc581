#include "base/json_out.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

static void writes_nested_values(void **state) {
    struct buf b = BUF_INIT;
    struct json_out j;
    json_out_init(&j, &b);
    json_out_obj(&j);
    json_out_key(&j, "a");
    json_out_u64(&j, UINT64_MAX);
    json_out_key(&j, "b");
    json_out_arr(&j);
    json_out_i64(&j, INT64_MIN);
    json_out_i64(&j, 0);
    json_out_i64(&j, -7);
    json_out_arr(&j);
    json_out_arr_end(&j);
    json_out_obj(&j);
    json_out_obj_end(&j);
    json_out_str(&j, NULL);
    json_out_arr_end(&j);
    json_out_key(&j, "c\"");
    json_out_bool(&j, true);
    json_out_key(&j, "d");
    json_out_bool(&j, false);
    json_out_key(&j, "e");
    json_out_null(&j);
    json_out_key(&j, "f");
    json_out_raw(&j, "[1,2]", 5);
    json_out_key(&j, "g");
    json_out_strn(&j, "x\0y", 3);
    json_out_obj_end(&j);
    assert_true(buf_ok(&b));
    assert_string_equal(
        b.data, "{\"a\":18446744073709551615,\"b\":[-9223372036854775808,0,-7,[],{},null],\"c\\\"\":true,"
                "\"d\":false,\"e\":null,\"f\":[1,2],\"g\":\"x\\u0000y\"}");
    buf_free(&b);
}

static void check_escape(const char *in, size_t n, const char *want) {
    struct buf b = BUF_INIT;
    json_out_escape(&b, in, n);
    assert_string_equal(b.data, want);
    buf_free(&b);
}

static void escapes_strings(void **state) {
    check_escape("", 0, "");
    check_escape("plain /text", 11, "plain /text");
    check_escape("\"\\\b\f\n\r\t\x01\x1f\x7f", 10, "\\\"\\\\\\b\\f\\n\\r\\t\\u0001\\u001f\\u007f");
    check_escape("\xc3\xa9\xe2\x82\xac\xf0\x9f\x98\x80", 9, "\xc3\xa9\xe2\x82\xac\xf0\x9f\x98\x80");
    check_escape("a\xff"
                 "b\xc3",
                 4,
                 "a\xef\xbf\xbd"
                 "b\xef\xbf\xbd");
    check_escape("\xed\xa0\x80", 3, "\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd"); /* a surrogate */
    check_escape("\xe2\x82", 2, "\xef\xbf\xbd\xef\xbf\xbd");
}

static void put_f64(struct buf *b, double v) {
    struct json_out j;
    buf_clear(b);
    json_out_init(&j, b);
    json_out_f64(&j, v);
}

static size_t significant_digits(const char *text) {
    size_t n = 0, zeros = 0;
    bool begun = false;
    for (; *text && *text != 'e'; text++) {
        if (*text < '0' || *text > '9') continue;
        begun |= *text != '0';
        if (!begun) continue;
        n++;
        zeros = *text == '0' ? zeros + 1 : 0;
    }
    return n - zeros;
}

/* Python's repr is the shortest text; ours has as many digits and reads back to the same double. */
static void floats_are_shortest(void **state) {
    FILE *f = fopen(TEST_DATA "/base/floats.txt", "r");
    assert_non_null(f);
    struct buf b = BUF_INIT;
    unsigned long long bits;
    char want[64];
    size_t n = 0;
    for (; fscanf(f, "%llx %63s", &bits, want) == 2; n++) {
        double v;
        memcpy(&v, &bits, 8);
        put_f64(&b, v);
        double back = strtod(b.data, NULL);
        assert_memory_equal(&back, &v, 8);
        if (significant_digits(b.data) != significant_digits(want))
            fail_msg("%s, Python has %s", b.data, want);
    }
    assert_int_equal(n, 300);
    fclose(f);
    buf_free(&b);
}

static void floats_are_json(void **state) {
    static const double values[] = {0.0, -0.0, 1, 1.5, 1e300, 5e-324, -123.25};
    static const char *const texts[] = {"0", "-0", "1", "1.5", "1e+300", "5e-324", "-123.25"};
    struct buf b = BUF_INIT;
    for (size_t i = 0; i < sizeof values / sizeof values[0]; i++) {
        put_f64(&b, values[i]);
        assert_string_equal(b.data, texts[i]);
    }
    static const double none[] = {NAN, INFINITY, -INFINITY};
    for (size_t i = 0; i < 3; i++) {
        put_f64(&b, none[i]);
        assert_string_equal(b.data, "null");
    }
    buf_free(&b);
}

static void misuse_marks_the_buffer(void **state) {
    struct buf b = BUF_INIT;
    struct json_out j;
    json_out_init(&j, &b);
    for (int i = 0; i < JSON_OUT_DEPTH; i++) json_out_arr(&j);
    assert_true(buf_ok(&b));
    json_out_arr(&j);
    assert_false(buf_ok(&b));
    buf_clear(&b);
    json_out_init(&j, &b);
    json_out_obj_end(&j);
    assert_false(buf_ok(&b));
    buf_free(&b);
    b = (struct buf){.limit_bytes = 8};
    json_out_init(&j, &b);
    json_out_str(&j, "longer than eight");
    assert_false(buf_ok(&b));
    buf_free(&b);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(writes_nested_values),    cmocka_unit_test(escapes_strings),
        cmocka_unit_test(floats_are_shortest),     cmocka_unit_test(floats_are_json),
        cmocka_unit_test(misuse_marks_the_buffer),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
