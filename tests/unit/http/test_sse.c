/* The event stream format of the WHATWG's HTML standard, as far as APIs of language models use it; cut at
 * every byte. */
#include "http/sse.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>

static void take(void *user, const char *data, size_t n) {
    struct buf *out = user;
    buf_putc(out, '<');
    buf_append(out, data, n);
    buf_putc(out, '>');
}

static void check(const char *text, const char *want) {
    size_t n = strlen(text);
    for (size_t a = 0; a <= n; a++)
        for (size_t b = a; b <= n; b++) {
            struct sse s = {0};
            struct buf out = BUF_INIT;
            assert_true(sse_feed(&s, text, a, take, &out));
            assert_true(sse_feed(&s, text + a, b - a, take, &out));
            assert_true(sse_feed(&s, text + b, n - b, take, &out));
            assert_string_equal(out.data ? out.data : "", want);
            buf_free(&out);
            buf_free(&s.pending);
        }
}

static void messages(void **state) {
    check("data: a\n\ndata:b\n\n", "<a><b>");
    check("data: a\r\n\r\ndata:  b \r\n", "<a>< b >"); /* one space is left out, and the line's end */
    check(": ping\n\nevent: x\nid: 7\nretry: 10\ndata: {\"a\": \"data: \"}\n\n", "<{\"a\": \"data: \"}>");
    check("data\n\ndata:\n\ndata: \n\ndatax: 1\n\n", ""); /* nothing in it, or no data */
    check("data: not ended", "");
    check("", "");
}

static void long_line(void **state) {
    struct sse s = {0};
    struct buf out = BUF_INIT;
    static char piece[1 << 20];
    memset(piece, 'x', sizeof piece);
    bool ok = true;
    for (size_t n = 0; n < SSE_LINE_MAX_BYTES; n += sizeof piece) {
        assert_true(ok);
        ok = sse_feed(&s, piece, sizeof piece, take, &out);
    }
    assert_true(ok); /* exactly the limit */
    assert_false(sse_feed(&s, "x", 1, take, &out));
    assert_null(out.data);
    buf_free(&s.pending);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(messages), cmocka_unit_test(long_line)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
