/* Equal to Python's bytes.decode("utf-8", errors="replace") (tests/golden/tokenizer_golden.py), however
 * split. */
#include "base/utf8.h"
#include "text/detokenizer.h"
#include "util_tok.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static void whole(const char *bytes, size_t n, struct buf *out) {
    struct detokenizer d = {0};
    detokenizer_push(&d, (const uint8_t *)bytes, n, out);
    detokenizer_finish(&d, out);
    assert_true(buf_ok(out));
}

static void expect(const char *bytes, size_t n, const char *want) {
    struct buf out = BUF_INIT;
    whole(bytes, n, &out);
    assert_int_equal(out.len, strlen(want));
    if (out.len) assert_memory_equal(out.data, want, out.len);
    buf_free(&out);
}

static void test_examples(void **state) {
    expect("", 0, "");
    expect("plain", 5, "plain");
    expect("\xf0\x9f\x91\xa9\xe2\x80\x8d", 7, "\U0001f469\u200d");
    expect("\xf0\x9f\x91", 3, "\ufffd");
    expect("\xf0\x9f\x91"
           "a",
           4,
           "\ufffd"
           "a");
    expect("\xf0\x9f\xf0\x9f\x91\xa9", 6, "\ufffd\U0001f469");
    expect("\xed\xa0\x80", 3, "\ufffd\ufffd\ufffd"); /* a surrogate */
    expect("\xc0\x80\xf5\xff", 4, "\ufffd\ufffd\ufffd\ufffd");
    expect("\xe0\x80\x80", 3, "\ufffd\ufffd\ufffd"); /* overlong */
    expect("\xef\xbf\xbd", 3, "\ufffd");             /* a genuine one */
    expect("\xf4\x90\x80\x80", 4, "\ufffd\ufffd\ufffd\ufffd");
}

static bool is_utf8(const struct buf *b) {
    for (size_t i = 0, len; i < b->len; i += len)
        if (!(len = utf8_sequence(b->data + i, b->len - i))) return false;
    return true;
}

/* After every push all that came out is whole characters and a prefix of the whole; held back is no more than
 * 3 bytes. */
static void check_split(const struct buf *bytes, const struct buf *want, uint64_t *state, struct buf *out) {
    struct detokenizer d = {0};
    buf_clear(out);
    for (size_t at = 0; at < bytes->len;) {
        size_t n = 1 + tok_below(state, bytes->len - at < 7 ? bytes->len - at : 7);
        detokenizer_push(&d, (const uint8_t *)bytes->data + at, n, out);
        at += n;
        assert_true(d.n_pending <= 3);
        assert_true(is_utf8(out));
        assert_true(out->len <= want->len && (out->len == 0 || !memcmp(out->data, want->data, out->len)));
    }
    detokenizer_finish(&d, out);
    assert_int_equal(d.n_pending, 0);
    assert_int_equal(out->len, want->len);
    if (want->len) assert_memory_equal(out->data, want->data, want->len);
}

static void test_golden(void **state) {
    struct tok_golden g;
    struct tok_section s = {0};
    struct buf bytes = BUF_INIT, want = BUF_INIT, out = BUF_INIT;
    uint64_t split_state = 1;
    tok_golden_open(&g, "detokenizer.golden");
    assert_true(tok_golden_next(&g, &s));
    uint64_t h = TOK_FNV_INIT;
    for (size_t n = 1; n <= s.n_texts; n++) {
        tok_gen_next(&s.gen, &bytes);
        buf_clear(&want);
        whole(bytes.data, bytes.len, &want);
        h = tok_fnv_bytes(h, want.data, want.len);
        check_split(&bytes, &want, &split_state, &out);
        if (n % s.per_digest) continue;
        if (h != s.digests[n / s.per_digest - 1]) fail_msg("texts up to %zu differ", n - 1);
        h = TOK_FNV_INIT;
    }
    assert_int_equal(s.n_digests, s.n_texts / s.per_digest);
    assert_false(tok_golden_next(&g, &s));
    buf_free(&bytes);
    buf_free(&want);
    buf_free(&out);
    tok_golden_close(&g);
}

/* Every way to cut one hard string in pieces. */
static void test_every_split(void **state) {
    static const char bytes[] = "a\xf0\x9f\x91\xa9\xe2\x80\xc3\xa9\xed\xa0\xf4\x8f\xbf\xbf\xf1";
    size_t n = sizeof bytes - 1;
    struct buf want = BUF_INIT, out = BUF_INIT;
    whole(bytes, n, &want);
    for (uint32_t cuts = 0; cuts < 1u << (n - 1); cuts++) {
        struct detokenizer d = {0};
        buf_clear(&out);
        size_t start = 0;
        for (size_t i = 1; i <= n; i++) {
            if (i < n && !(cuts >> (i - 1) & 1)) continue;
            detokenizer_push(&d, (const uint8_t *)bytes + start, i - start, &out);
            detokenizer_push(&d, (const uint8_t *)bytes, 0, &out);
            start = i;
        }
        detokenizer_finish(&d, &out);
        assert_int_equal(out.len, want.len);
        assert_memory_equal(out.data, want.data, want.len);
    }
    buf_free(&want);
    buf_free(&out);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_examples), cmocka_unit_test(test_golden),
                                       cmocka_unit_test(test_every_split)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
