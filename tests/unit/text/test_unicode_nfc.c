/* NFC equals that of the reference `tokenizers` (tests/golden/tokenizer_golden.py), and stays linear. */
#include "text/unicode.h"
#include "text/unicode_nfc.h"
#include "util_tok.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static void nfc(const char *text, size_t len, struct buf *out) {
    buf_clear(out);
    unicode_nfc((const uint8_t *)text, len, out);
    assert_true(buf_ok(out));
}

static void test_golden(void **state) {
    struct tok_golden g;
    struct tok_section s = {0};
    struct buf text = BUF_INIT, out = BUF_INIT;
    size_t n_sections = 0, n_needed = 0;
    tok_golden_open(&g, "nfc.golden");
    for (; tok_golden_next(&g, &s); n_sections++) {
        uint64_t h = TOK_FNV_INIT;
        size_t n = 0, k = 0;
        while ((s.n_texts == 0 || n < s.n_texts) && tok_gen_next(&s.gen, &text)) {
            nfc(text.data, text.len, &out);
            bool same = out.len == text.len && !memcmp(out.data, text.data, out.len);
            bool needed = unicode_nfc_needed((const uint8_t *)text.data, text.len);
            assert_true(needed || same);
            n_needed += needed;
            h = tok_fnv_bytes(h, out.data, out.len);
            if (++n % s.per_digest && (s.n_texts == 0 || n < s.n_texts)) continue;
            if (n % s.per_digest) continue;
            if (h != s.digests[k]) fail_msg("%s: texts up to %zu differ", s.what, n - 1);
            k++;
            h = TOK_FNV_INIT;
        }
        if (n % s.per_digest) assert_true(h == s.digests[k++]);
        assert_int_equal(k, s.n_digests);
    }
    assert_int_equal(n_sections, 3);
    assert_true(n_needed > 1000);
    buf_free(&text);
    buf_free(&out);
    tok_golden_close(&g);
}

static void expect(const char *text, const char *want) {
    struct buf out = BUF_INIT;
    nfc(text, strlen(text), &out);
    assert_string_equal(out.data ? out.data : "", want);
    buf_free(&out);
}

static void test_examples(void **state) {
    expect("", "");
    expect("abc", "abc");
    expect("e\u0301", "\u00e9");
    expect("e\u0301e\u0301", "\u00e9\u00e9");
    expect("a\u0323\u0302", "\u1ead");
    expect("a\u0302\u0323", "\u1ead");
    expect("\u00e2\u0323", "\u1ead"); /* decomposed, reordered, composed */
    expect("\u0301e", "\u0301e");
    expect("\u1100\u1161\u11a8", "\uac01");
    expect("\uac00\u11a8", "\uac01");
    expect("\u212b", "\u00c5");
    expect("\u0958", "\u0915\u093c");     /* an exclusion */
    expect("\xff\u0301", "\xff\u0301");   /* nothing combines with a stray byte */
    expect("e\xcc\u0301", "e\xcc\u0301"); /* nor across one */
    expect("\xcc", "\xcc");
    expect("e\u0301\xe2\x82", "\u00e9\xe2\x82");
}

/* Marks in descending order of class: a sort by exchange would take hours. */
static void test_many_marks(void **state) {
    struct buf text = BUF_INIT, out = BUF_INIT;
    size_t n = 500000;
    buf_puts(&text, "q");
    for (size_t i = 0; i < n; i++) buf_puts(&text, i < n / 2 ? "\u0345" : "\u0334");
    nfc(text.data, text.len, &out);
    assert_int_equal(out.len, text.len);
    assert_memory_equal(out.data, "q\u0334\u0334", 5);
    assert_memory_equal(out.data + out.len - 4, "\u0345\u0345", 4);
    buf_free(&text);
    buf_free(&out);
}

static void test_classes(void **state) {
    static const struct {
        uint32_t cp, set;
    } in[] = {{'a', UNICODE_LETTER},      {0xaa, UNICODE_LETTER},   {0x4e00, UNICODE_LETTER},
              {0x1c8a, UNICODE_LETTER},   {'0', UNICODE_NUMBER},    {0xbd, UNICODE_NUMBER},
              {0x2160, UNICODE_NUMBER},   {' ', UNICODE_SPACE},     {0x85, UNICODE_SPACE},
              {0x3000, UNICODE_SPACE},    {0x1c, UNICODE_OTHER},    {0x200b, UNICODE_OTHER},
              {0x11de0, UNICODE_NUMERIC}, {0x11de0, UNICODE_OTHER}, {'_', UNICODE_PUNCTUATION},
              {'$', UNICODE_OTHER},       {0x301, UNICODE_MARK},    {0x10ffff, UNICODE_OTHER}};
    for (size_t i = 0; i < sizeof in / sizeof *in; i++)
        if (!(in[i].set >> (unicode_entry(in[i].cp) & 31) & 1)) fail_msg("U+%04X", in[i].cp);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_golden), cmocka_unit_test(test_examples),
                                       cmocka_unit_test(test_many_marks), cmocka_unit_test(test_classes)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
