#include "base/error.h"
#include "base/utf8.h"

#include <string.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

static void sets_text_and_code(void **state) {
    struct error err = {0};
    assert_int_equal(error_set(&err, QUIRE_EINVAL, "temperature: %g is above %d", 2.5, 2), QUIRE_EINVAL);
    assert_int_equal(err.code, QUIRE_EINVAL);
    assert_null(err.param);
    assert_string_equal(err.text, "temperature: 2.5 is above 2");
    assert_int_equal(error_param(&err, QUIRE_ELIMIT, "max_tokens", "too many"), QUIRE_ELIMIT);
    assert_string_equal(err.param, "max_tokens");
    error_set(&err, QUIRE_EIO, "other");
    assert_null(err.param);
    assert_int_equal(error_set(NULL, QUIRE_ENOMEM, "no place for %s", "this"), QUIRE_ENOMEM);
}

static void escapes_what_a_terminal_obeys(void **state) {
    struct error err;
    error_set(&err, QUIRE_EINVAL, "a%sb", "\n\x1b[31m\x7f\t");
    assert_string_equal(err.text, "a\\x0a\\x1b[31m\\x7f\\x09b");
    error_set(&err, QUIRE_EINVAL, "%s", "caf\xc3\xa9 \xe2\x82\xac \xf0\x9f\x98\x80"); /* valid UTF-8 stays */
    assert_string_equal(err.text, "caf\xc3\xa9 \xe2\x82\xac \xf0\x9f\x98\x80");
    error_set(&err, QUIRE_EINVAL, "%s",
              "\xc3(\xff\xed\xa0\x80\xc0\x80\xc2\x85"); /* half, bad, surrogate, overlong, C1 */
    assert_string_equal(err.text, "\\xc3(\\xff\\xed\\xa0\\x80\\xc0\\x80\\xc2\\x85");
}

static void truncates_between_characters(void **state) {
    struct error err;
    char text[3000], euros[3001] = "";
    memset(text, 'x', sizeof text - 1);
    text[sizeof text - 1] = '\0';
    error_set(&err, QUIRE_EINVAL, "%s", text);
    assert_int_equal(strlen(err.text), QUIRE_ERROR_TEXT_BYTES - 1);
    for (size_t shift = 0; shift < 4; shift++) {
        euros[0] = '\0';
        memset(euros, 'y', shift);
        for (size_t i = 0; i < 900; i++) memcpy(euros + shift + 3 * i, "\xe2\x82\xac", 4);
        error_set(&err, QUIRE_EINVAL, "%s", euros);
        size_t len = strlen(err.text);
        assert_true(len > QUIRE_ERROR_TEXT_BYTES - 4 && (len - shift) % 3 == 0);
        memset(text, 1, 200);
        text[200] = '\0';
        error_set(&err, QUIRE_EINVAL, "%.*s%s", (int)shift, "yyyy", text);
        assert_int_equal((strlen(err.text) - shift) % 4, 0); /* no half escape */
    }
}

static void prefixes(void **state) {
    struct error err;
    error_param(&err, QUIRE_EFORMAT, "model", "bad\nmagic");
    assert_int_equal(error_prefix(&err, "model.gguf, tensor %d", 3), QUIRE_EFORMAT);
    assert_string_equal(err.text, "model.gguf, tensor 3: bad\\x0amagic"); /* escaped once */
    assert_string_equal(err.param, "model");
    error_set(&err, QUIRE_EINVAL, "[%s]", err.text); /* an argument may be the old text */
    assert_string_equal(err.text, "[model.gguf, tensor 3: bad\\x0amagic]");
    assert_int_equal(error_prefix(NULL, "x"), QUIRE_OK);
    char text[600];
    memset(text, 'x', sizeof text - 1);
    text[sizeof text - 1] = '\0';
    for (int i = 0; i < 5; i++) error_prefix(&err, "%s", text);
    assert_int_equal(strlen(err.text), QUIRE_ERROR_TEXT_BYTES - 1);
}

static void names(void **state) {
    for (int code = QUIRE_EINTERNAL; code <= 0; code++) {
        assert_string_not_equal(error_name(code), "unknown error");
        for (int other = QUIRE_EINTERNAL; other < code; other++)
            assert_string_not_equal(error_name(code), error_name(other));
    }
    assert_string_equal(error_name(-99), "unknown error");
}

/* Against a decoder that works bit by bit and then checks the value (Unicode 15, D92). */
static int slow_sequence(const unsigned char *s, size_t n) {
    static const uint32_t least[] = {0, 0, 0x80, 0x800, 0x10000};
    int len = s[0] < 0x80             ? 1
              : (s[0] & 0xe0) == 0xc0 ? 2
              : (s[0] & 0xf0) == 0xe0 ? 3
              : (s[0] & 0xf8) == 0xf0 ? 4
                                      : 0;
    if (!len || (size_t)len > n) return 0;
    uint32_t v = len == 1 ? s[0] : s[0] & (0x7fu >> len);
    for (int i = 1; i < len; i++) {
        if ((s[i] & 0xc0) != 0x80) return 0;
        v = v << 6 | (s[i] & 0x3f);
    }
    return v < least[len] || v > 0x10ffff || (v >= 0xd800 && v < 0xe000) ? 0 : len;
}

static void utf8_agrees_with_the_slow_decoder(void **state) {
    static const unsigned char tails[] = {0x00, 0x41, 0x7f, 0x80, 0x8f, 0x90, 0x9f, 0xa0, 0xbf, 0xc0, 0xff};
    const size_t n_tails = sizeof tails;
    for (unsigned first = 0; first < 256; first++) {
        for (unsigned second = 0; second < 256; second++) {
            for (size_t t = 0; t < n_tails * n_tails; t++) {
                unsigned char s[4] = {(unsigned char)first, (unsigned char)second, tails[t / n_tails],
                                      tails[t % n_tails]};
                for (size_t n = 1; n <= 4; n++)
                    if (slow_sequence(s, n) != (int)utf8_sequence((char *)s, n))
                        fail_msg("%02x %02x %02x %02x of %zu", s[0], s[1], s[2], s[3], n);
            }
        }
    }
    assert_int_equal(utf8_sequence("", 0), 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sets_text_and_code),
        cmocka_unit_test(escapes_what_a_terminal_obeys),
        cmocka_unit_test(truncates_between_characters),
        cmocka_unit_test(prefixes),
        cmocka_unit_test(names),
        cmocka_unit_test(utf8_agrees_with_the_slow_decoder),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
