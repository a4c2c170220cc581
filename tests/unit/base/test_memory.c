/* arena, buf and size */
#include "base/arena.h"
#include "base/buf.h"
#include "base/size.h"

#include <stdlib.h>
#include <string.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

static void arena_hands_out_what_does_not_overlap(void **state) {
    struct arena a;
    unsigned char *p[500];
    arena_init(&a, 256, 0);
    for (size_t i = 0; i < 500; i++) {
        size_t n = (i * 37) % 700; /* 0, and larger than a chunk too */
        p[i] = arena_alloc(&a, n);
        assert_non_null(p[i]);
        assert_int_equal((uintptr_t)p[i] % _Alignof(max_align_t), 0);
        memset(p[i], (int)(i & 255), n);
    }
    for (size_t i = 0; i < 500; i++)
        for (size_t k = 0; k < (i * 37) % 700; k++) assert_int_equal(p[i][k], i & 255);
    arena_free(&a);
    assert_int_equal(a.used_bytes, 0);
    assert_non_null(arena_alloc(&a, 10)); /* may be used again */
    arena_free(&a);
}

static void arena_keeps_its_limit(void **state) {
    struct arena a;
    arena_init(&a, 64, 1000);
    size_t n = 0;
    while (arena_alloc(&a, 10)) n++;
    assert_in_range(n, 50, 100);
    assert_true(a.used_bytes <= 1000);
    arena_reset(&a);
    assert_int_equal(a.used_bytes, 0);
    assert_null(arena_alloc(&a, 1001));
    assert_null(arena_alloc(&a, SIZE_MAX));
    assert_null(arena_array(&a, SIZE_MAX / 2, 3));
    assert_null(arena_strndup(&a, "x", SIZE_MAX));
    assert_non_null(arena_alloc(&a, 900)); /* still usable after refusals */
    arena_free(&a);
}

static void arena_zeroes_and_copies(void **state) {
    struct arena a;
    arena_init(&a, 0, 0);
    memset(arena_alloc(&a, 512), 0xff, 512);
    arena_reset(&a);
    unsigned char *z = arena_array(&a, 64, 8);
    for (size_t i = 0; i < 512; i++) assert_int_equal(z[i], 0);
    z = arena_zalloc(&a, 100);
    for (size_t i = 0; i < 100; i++) assert_int_equal(z[i], 0);
    assert_string_equal(arena_strndup(&a, "abcdef", 3), "abc");
    assert_string_equal(arena_strndup(&a, NULL, 0), "");
    arena_free(&a);
}

static void buf_appends(void **state) {
    struct buf b = BUF_INIT;
    buf_append(&b, NULL, 0);
    assert_true(buf_ok(&b));
    buf_puts(&b, "abc");
    buf_putc(&b, 'd');
    buf_append(&b, "e\0f", 3);
    assert_int_equal(b.len, 7);
    assert_memory_equal(b.data, "abcde\0f", 8);
    for (int i = 0; i < 1000; i++) buf_printf(&b, "%d,", i);
    assert_int_equal(b.len, 7 + 10 * 2 + 90 * 3 + 900 * 4);
    assert_string_equal(b.data + b.len - 8, "998,999,");
    char *data = b.data;
    buf_clear(&b);
    assert_ptr_equal(b.data, data);
    assert_int_equal(b.len, 0);
    assert_string_equal(b.data, "");
    buf_free(&b);
    assert_null(b.data);
    buf_puts(&b, "again");
    assert_string_equal(b.data, "again");
    buf_free(&b);
}

/* Every length round the capacity: the text that just fits and the one that does not. */
static void buf_printf_grows(void **state) {
    char text[300];
    memset(text, 'z', sizeof text);
    for (int n = 0; n < 300; n++) {
        struct buf b = BUF_INIT;
        buf_putc(&b, '<');
        buf_printf(&b, "%.*s", n, text);
        buf_putc(&b, '>');
        assert_int_equal(b.len, n + 2);
        assert_int_equal(strlen(b.data), n + 2);
        assert_int_equal(b.data[n + 1], '>');
        buf_free(&b);
    }
}

static void buf_fails_once_and_stays_failed(void **state) {
    struct buf b = {.limit_bytes = 10};
    buf_puts(&b, "0123456789"); /* just fits */
    assert_true(buf_ok(&b));
    buf_putc(&b, 'x');
    assert_false(buf_ok(&b));
    assert_string_equal(b.data, "0123456789");
    buf_append(&b, "", 0);
    buf_printf(&b, "%d", 1);
    assert_false(buf_ok(&b));
    assert_int_equal(b.len, 10);
    buf_clear(&b);
    assert_true(buf_ok(&b));
    buf_printf(&b, "%s", "0123456789");
    assert_true(buf_ok(&b));
    buf_printf(&b, "%d", 1);
    assert_false(buf_ok(&b));
    assert_string_equal(b.data, "0123456789");
    buf_free(&b);
    assert_int_equal(b.limit_bytes, 10);
    assert_false(buf_reserve(&b, 11));
    buf_clear(&b);
    assert_true(buf_reserve(&b, 10));
    buf_free(&b);
    b = BUF_INIT;
    assert_false(buf_reserve(&b, SIZE_MAX));
    buf_free(&b);
}

static void sizes_are_checked(void **state) {
    size_t v = 0;
    assert_true(size_add(SIZE_MAX - 1, 1, &v));
    assert_true(v == SIZE_MAX);
    assert_false(size_add(SIZE_MAX, 1, &v));
    assert_true(size_mul(SIZE_MAX / 3, 3, &v));
    assert_false(size_mul(SIZE_MAX / 3 + 1, 3, &v));
    assert_true(size_align_up(65, 64, &v));
    assert_int_equal(v, 128);
    assert_true(size_align_up(64, 64, &v));
    assert_int_equal(v, 64);
    assert_true(size_align_up(0, 64, &v));
    assert_int_equal(v, 0);
    assert_false(size_align_up(SIZE_MAX - 10, 64, &v));
    assert_int_equal(size_div_up(0, 16), 0);
    assert_int_equal(size_div_up(16, 16), 1);
    assert_int_equal(size_div_up(17, 16), 2);
    assert_int_equal(size_div_up(SIZE_MAX, 2), SIZE_MAX / 2 + 1);
    assert_true(size_is_pow2(1) && size_is_pow2(64) && !size_is_pow2(0) && !size_is_pow2(12));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(arena_hands_out_what_does_not_overlap),
        cmocka_unit_test(arena_keeps_its_limit),
        cmocka_unit_test(arena_zeroes_and_copies),
        cmocka_unit_test(buf_appends),
        cmocka_unit_test(buf_printf_grows),
        cmocka_unit_test(buf_fails_once_and_stays_failed),
        cmocka_unit_test(sizes_are_checked),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
