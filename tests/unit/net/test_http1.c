/* The codec against h11 (tests/golden/net_h11.py): what we accept h11 accepts, with the same meaning; what
 * h11 accepts and we refuse is listed with its reason. Every message is also fed cut into pieces: the outcome
 * must not change. */
#include "net/http1.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include <cmocka.h>

#define BODY_LIMIT 1000000

struct outcome {
    enum http1_event last; /* HTTP1_END, _REFUSE or _MORE */
    struct http1 parser;
    char text[HTTP1_HEAD_BYTES];
    struct buf body;
    size_t used;
    bool head;
};

/* Feeds raw in pieces of at most piece bytes (0: whole; SIZE_MAX: random lengths) until the message ends. */
static void feed(struct outcome *o, const char *raw, size_t n, size_t piece, uint64_t body_limit) {
    memset(o, 0, sizeof *o);
    http1_init(&o->parser, o->text, body_limit);
    assert_true(http1_idle(&o->parser));
    size_t given = 0;
    o->last = HTTP1_MORE;
    while (given < n && o->last == HTTP1_MORE) {
        size_t step = piece == 0 ? n : piece == SIZE_MAX ? 1 + (size_t)rand() % 23 : piece;
        if (step > n - given) step = n - given;
        char *exact = malloc(step); /* so that reading past the piece is seen by the sanitizer */
        memcpy(exact, raw + given, step);
        for (size_t at = 0;;) {
            size_t used;
            struct http1_span body = {0};
            o->last = http1_next(&o->parser, exact + at, step - at, &used, &body);
            at += used;
            o->used += used;
            if (o->last == HTTP1_HEAD) o->head = true;
            if (o->last == HTTP1_BODY) {
                assert_true(body.n > 0);
                buf_append(&o->body, body.data, body.n);
            }
            if (o->last != HTTP1_HEAD && o->last != HTTP1_BODY) break;
        }
        if (o->last == HTTP1_MORE) assert_int_equal(o->used, given + step);
        free(exact);
        given += step;
    }
    assert_true(n == 0 || o->last != HTTP1_MORE || !http1_idle(&o->parser));
}

static void assert_same(const struct outcome *a, const struct outcome *b) {
    assert_int_equal(a->last, b->last);
    assert_int_equal(a->used, b->used);
    assert_int_equal(a->head, b->head);
    assert_int_equal(a->parser.status, b->parser.status);
    if (a->parser.reason) assert_string_equal(a->parser.reason, b->parser.reason);
    assert_int_equal(a->body.len, b->body.len);
    if (a->body.len) assert_memory_equal(a->body.data, b->body.data, a->body.len);
    if (!a->head) return;
    assert_memory_equal(a->text, b->text, a->parser.head.text_bytes);
    assert_int_equal(a->parser.head.n_fields, b->parser.head.n_fields);
    assert_memory_equal(a->parser.head.fields, b->parser.head.fields,
                        a->parser.head.n_fields * sizeof *a->parser.head.fields);
}

static void feed_all_ways(struct outcome *o, const char *raw, size_t n, uint64_t body_limit) {
    feed(o, raw, n, 0, body_limit);
    const size_t pieces[] = {1, 2, 3, 7, SIZE_MAX, SIZE_MAX};
    for (size_t i = 0; i < sizeof pieces / sizeof *pieces; i++) {
        struct outcome *other = malloc(sizeof *other);
        feed(other, raw, n, pieces[i], body_limit);
        assert_same(o, other);
        buf_free(&other->body);
        free(other);
    }
}

/* --- h11 --- */

struct verdict {
    char name[128], method[16];
    struct buf raw, path, query, body;
    struct {
        struct buf name, value;
    } fields[400];
    size_t n_fields, rest;
    bool accept, reject, has_query;
    int http10, keep_alive, expect;
};

static void unhex(struct buf *out, const char *hex) {
    buf_clear(out);
    buf_append(out, "", 0);
    for (; hex[0] && hex[0] != ' ' && hex[0] != '\n'; hex += 2) {
        unsigned byte;
        assert_int_equal(sscanf(hex, "%2x", &byte), 1);
        buf_putc(out, (char)byte);
    }
}

static void verdict_line(struct verdict *v, char *line) {
    char *arg = strchr(line, ' ') + 1;
    if (!strncmp(line, "raw ", 4)) {
        unhex(&v->raw, arg);
        v->accept = v->reject = v->has_query = false;
        v->n_fields = 0;
    } else if (!strncmp(line, "verdict ", 8)) {
        v->accept = !strncmp(arg, "accept", 6);
        v->reject = !strncmp(arg, "reject", 6);
    } else if (!strncmp(line, "method ", 7)) {
        snprintf(v->method, sizeof v->method, "%.*s", (int)strcspn(arg, "\n"), arg);
    } else if (!strncmp(line, "path ", 5)) {
        unhex(&v->path, arg);
    } else if (!strncmp(line, "query ", 6)) {
        unhex(&v->query, arg);
        v->has_query = true;
    } else if (!strncmp(line, "field ", 6)) {
        unhex(&v->fields[v->n_fields].name, arg);
        unhex(&v->fields[v->n_fields++].value, strchr(arg, ' ') + 1);
    } else if (!strncmp(line, "body ", 5)) {
        unhex(&v->body, arg);
    } else if (!strncmp(line, "rest ", 5)) {
        v->rest = (size_t)atoi(arg);
    } else if (!strncmp(line, "http10 ", 7)) {
        v->http10 = atoi(arg);
    } else if (!strncmp(line, "keep_alive ", 11)) {
        v->keep_alive = atoi(arg);
    } else if (!strncmp(line, "expect ", 7)) {
        v->expect = atoi(arg);
    } else {
        fail_msg("unknown line %s", line);
    }
}

/* Where we are stricter than h11, by refusal; each must occur in the corpus. */
static struct {
    const char *reason, *why;
    size_t seen;
} stricter[] = {
    {"control character or bare CR or LF in the head",
     "h11 takes bare LF as a line end and controls in values", 0},
    {"control character or bare CR or LF in a chunk line", "the same in chunk lines", 0},
    {"folded header line", "RFC 9112 5.2: obsolete, a server must refuse or repair; readers differ", 0},
    {"method not supported", "we know seven methods; others cannot have a route", 0},
    {"HTTP/1.1 and HTTP/1.0 are supported", "h11 takes any digit.digit", 0},
    {"request target is neither a path nor an http URL", "h11 does not look into the target", 0},
    {"request target \"*\" is for OPTIONS only", "RFC 9112 3.2.4", 0},
    {"malformed authority in the request target", "RFC 3986 3.2; no user part (RFC 9110 4.2.4)", 0},
    {"malformed percent escape in the path", "RFC 3986 2.1", 0},
    {"control character in the path", "%00 ends strings below us", 0},
    {"character not allowed in the path, percent-encode it", "RFC 3986 3.3", 0},
    {"character not allowed in the query", "a fragment is never sent", 0},
    {"\".\" or \"..\" segment in the path", "clients resolve them; what remains is probing", 0},
    {"malformed Host", "RFC 9112 3.2: an invalid Host is a 400", 0},
    {"Content-Length given more than once", "h11 merges equal ones", 0},
    {"Content-Length is not a number", "h11 merges \"3, 3\"", 0},
    {"both Content-Length and Transfer-Encoding", "h11 lets Transfer-Encoding win: request smuggling", 0},
    {"Transfer-Encoding in an HTTP/1.0 request", "RFC 9112 6.1: framing is faulty", 0},
    {"Expect given more than once", "single-valued", 0},
    {"Content-Type given more than once", "single-valued", 0},
    {"expectation other than \"100-continue\"", "RFC 9110 10.1.1: 417", 0},
    {"more than 64 header fields", "our limit", 0},
    {"more than 64 trailer fields", "our limit", 0},
    {"trailer field longer than 256 bytes", "our limit", 0},
    {"chunk size line longer than 256 bytes", "our limit", 0},
    {"malformed chunk size", "h11 drops blanks behind the size and stops at 20 digits", 0},
    {"field not allowed in a trailer", "RFC 9110 6.5.1", 0},
};

static bool is_stricter(const char *reason) {
    for (size_t i = 0; i < sizeof stricter / sizeof *stricter; i++)
        if (!strcmp(stricter[i].reason, reason)) return ++stricter[i].seen;
    return false;
}

static void assert_field(const char *ours, const struct buf *theirs) {
    assert_int_equal(strlen(ours), theirs->len);
    assert_memory_equal(ours, theirs->data, theirs->len);
}

static void compare(const struct verdict *v, const struct outcome *o) {
    const struct http1_head *h = &o->parser.head;
    if (o->last == HTTP1_MORE) {
        if (v->accept) fail_msg("%s: h11 accepts, we wait for more", v->name);
        return;
    }
    if (o->last == HTTP1_REFUSE) {
        assert_in_range(o->parser.status, 400, 505);
        if (v->accept && !is_stricter(o->parser.reason))
            fail_msg("%s: h11 accepts, we say %u %s", v->name, o->parser.status, o->parser.reason);
        return;
    }
    if (!v->accept) fail_msg("%s: we accept, h11 does not", v->name);
    assert_string_equal(http_method_name(h->method), v->method);
    assert_field(o->text + h->path, &v->path);
    assert_int_equal(h->query != 0, v->has_query);
    if (h->query) assert_field(o->text + h->query, &v->query);
    assert_int_equal(h->http10, v->http10);
    assert_int_equal(h->keep_alive, v->keep_alive);
    assert_int_equal(h->expect_continue, v->expect);
    assert_int_equal(h->n_fields, v->n_fields);
    for (size_t i = 0; i < v->n_fields; i++) {
        assert_int_equal(strcasecmp(o->text + h->fields[i].name, v->fields[i].name.data), 0);
        if (!strcmp(v->fields[i].name.data, "transfer-encoding")) /* h11 gives its value in lower case */
            assert_int_equal(strcasecmp(o->text + h->fields[i].value, v->fields[i].value.data), 0);
        else
            assert_field(o->text + h->fields[i].value, &v->fields[i].value);
    }
    assert_int_equal(o->body.len, v->body.len);
    if (v->body.len) assert_memory_equal(o->body.data, v->body.data, v->body.len);
    assert_int_equal(v->raw.len - o->used, v->rest);
}

static void judge(const struct verdict *v, size_t *n, size_t *n_accepted) {
    struct outcome *o = malloc(sizeof *o);
    feed_all_ways(o, v->raw.data, v->raw.len, BODY_LIMIT);
    compare(v, o);
    *n_accepted += o->last == HTTP1_END;
    ++*n;
    buf_free(&o->body);
    free(o);
}

static void verdict_free(struct verdict *v) {
    buf_free(&v->raw);
    buf_free(&v->path);
    buf_free(&v->query);
    buf_free(&v->body);
    for (size_t i = 0; i < sizeof v->fields / sizeof *v->fields; i++) {
        buf_free(&v->fields[i].name);
        buf_free(&v->fields[i].value);
    }
    free(v);
}

static void test_agrees_with_h11(void **state) {
    FILE *f = fopen(TEST_DATA "/net/h11.txt", "r");
    assert_non_null(f);
    struct verdict *v = calloc(1, sizeof *v);
    size_t n = 0, n_accepted = 0, cap = 0;
    char *line = NULL;
    while (getline(&line, &cap, f) > 0) {
        if (line[0] == '#') continue;
        if (strncmp(line, "case ", 5)) {
            verdict_line(v, line);
            continue;
        }
        if (v->name[0]) judge(v, &n, &n_accepted);
        snprintf(v->name, sizeof v->name, "%.*s", (int)strcspn(line + 5, "\n"), line + 5);
    }
    judge(v, &n, &n_accepted);
    print_message("%zu requests, %zu accepted by both\n", n, n_accepted);
    assert_true(n > 900 && n_accepted > 200);
    for (size_t i = 0; i < sizeof stricter / sizeof *stricter; i++)
        if (!stricter[i].seen) fail_msg("not in the corpus: %s", stricter[i].reason);
    verdict_free(v);
    free(line);
    fclose(f);
}

/* --- limits and statuses --- */

static void assert_status(const char *raw, size_t n, uint64_t body_limit, unsigned status) {
    struct outcome *o = malloc(sizeof *o);
    feed_all_ways(o, raw, n, body_limit);
    if (status && o->last != HTTP1_REFUSE) fail_msg("%.60s: not refused", raw);
    if (!status && o->last != HTTP1_END) fail_msg("%.60s: %u %s", raw, o->parser.status, o->parser.reason);
    assert_int_equal(o->parser.status, status);
    buf_free(&o->body);
    free(o);
}

static void test_statuses(void **state) {
#define HEAD "Host: a\r\n"
    static const struct {
        const char *raw;
        unsigned status; /* 0: accepted */
    } cases[] = {
        {"GET / HTTP/1.1\r\n\r\n", 400},
        {"GET / HTTP/1.0\r\n\r\n", 0},
        {"GET / HTTP/1.1\r\n" HEAD HEAD "\r\n", 400},
        {"BREW / HTTP/1.1\r\n" HEAD "\r\n", 501},
        {"GET / HTTP/2.0\r\n", 505},
        {"GET /\r\n", 400},
        {"\r\nGET / HTTP/1.1\r\n" HEAD "\r\n", 400},
        {"GET /%00 HTTP/1.1\r\n", 400},
        {"GET /../../etc/passwd HTTP/1.1\r\n", 400},
        {"GET /v1/%2e%2e/x HTTP/1.1\r\n", 400},
        {"GET /v1/models/org%2Fname HTTP/1.1\r\n" HEAD "\r\n", 0},
        {"POST / HTTP/1.1\r\n" HEAD "Transfer-Encoding: gzip\r\n\r\n", 501},
        {"POST / HTTP/1.1\r\n" HEAD "Transfer-Encoding: chunked\r\nContent-Length: 1\r\n\r\n", 400},
        {"POST / HTTP/1.1\r\n" HEAD "Content-Length: -1\r\n\r\n", 400},
        {"POST / HTTP/1.1\r\n" HEAD "Content-Length: 10\r\n\r\n0123456789", 0},
        {"POST / HTTP/1.1\r\n" HEAD "Content-Length: 11\r\n\r\n", 413},
        {"POST / HTTP/1.1\r\n" HEAD "Content-Length: 18446744073709551617\r\n\r\n", 413},
        {"POST / HTTP/1.1\r\n" HEAD "Expect: 200-ok\r\n\r\n", 417},
        {"POST / HTTP/1.1\r\n" HEAD "Transfer-Encoding: chunked\r\n\r\nb\r\n", 413},
        {"POST / HTTP/1.1\r\n" HEAD "Transfer-Encoding: chunked\r\n\r\n5\r\n01234\r\n6\r\n", 413},
        {"POST / HTTP/1.1\r\n" HEAD "Transfer-Encoding: chunked\r\n\r\n8000000000000000\r\n", 413},
        {"POST / HTTP/1.1\r\n" HEAD "Transfer-Encoding: chunked\r\n\r\n5\r\n01234\r\n5\r\n56789\r\n0\r\n\r\n",
         0},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        assert_status(cases[i].raw, strlen(cases[i].raw), 10, cases[i].status);
}

static void test_size_limits(void **state) {
    struct buf b = BUF_INIT;
    for (size_t n = HTTP1_TARGET_BYTES - 1; n <= HTTP1_TARGET_BYTES + 1; n++) {
        buf_clear(&b);
        buf_puts(&b, "GET /");
        for (size_t i = 1; i < n; i++) buf_putc(&b, 'a');
        buf_puts(&b, " HTTP/1.1\r\nHost: a\r\n\r\n");
        assert_status(b.data, b.len, 0, n <= HTTP1_TARGET_BYTES ? 0 : 414);
    }
    buf_clear(&b);
    buf_puts(&b, "GET /");
    while (b.len < 1000000) buf_putc(&b, 'a');
    assert_status(b.data, b.len, 0, 414);

    /* 25 bytes as text: two lines and the empty one, CRLF counted as one; the field fills the rest */
    for (int over = 0; over <= 1; over++) {
        buf_clear(&b);
        buf_puts(&b, "GET / HTTP/1.1\r\nHost: a\r\nX: ");
        for (int i = 0; i < HTTP1_HEAD_BYTES - 15 - 8 - 4 - 1 + over; i++) buf_putc(&b, 'v');
        buf_puts(&b, "\r\n\r\n");
        assert_status(b.data, b.len, 0, over ? 431 : 0);
    }
    for (size_t n = 63; n <= 64; n++) {
        buf_clear(&b);
        buf_puts(&b, "GET / HTTP/1.1\r\nHost: a\r\n");
        for (size_t i = 0; i < n; i++) buf_puts(&b, "A: b\r\n");
        buf_puts(&b, "\r\n");
        assert_status(b.data, b.len, 0, n == 63 ? 0 : 431);
    }
    buf_clear(&b);
    buf_puts(&b, "GET / HTTP/1.1\r\nHost: a\r\nX: "); /* a line that never ends */
    while (b.len < 70000) buf_putc(&b, 'v');
    assert_status(b.data, b.len, 0, 431);
    buf_free(&b);
}

static void test_head_access_and_reuse(void **state) {
    static const char raw[] = "POST /a%20b?c=%20d HTTP/1.1\r\nhOsT: h:1\r\nX: one\r\nx: "
                              "two\r\nContent-Length: 2\r\n\r\nokGET / HTTP/1.0\r\n\r\n";
    char text[HTTP1_HEAD_BYTES];
    struct http1 p;
    struct http1_span body;
    size_t used, at = 0, n = sizeof raw - 1;
    http1_init(&p, text, 100);
    assert_int_equal(http1_next(&p, raw, n, &used, &body), HTTP1_HEAD);
    at += used;
    assert_string_equal(text + p.head.path, "/a b");
    assert_string_equal(text + p.head.query, "c=%20d");
    assert_string_equal(text + p.head.authority, "h:1");
    assert_string_equal(http1_field(&p.head, text, "X"), "one");
    assert_null(http1_field(&p.head, text, "Y"));
    assert_int_equal(http1_next(&p, raw + at, n - at, &used, &body), HTTP1_BODY);
    assert_int_equal(body.n, 2);
    at += used;
    assert_int_equal(http1_next(&p, raw + at, n - at, &used, &body), HTTP1_END);
    assert_int_equal(used, 0);
    assert_int_equal(http1_next(&p, raw + at, n - at, &used, &body), HTTP1_END); /* until reset */
    http1_reset(&p);
    assert_true(http1_idle(&p));
    assert_int_equal(http1_next(&p, raw + at, n - at, &used, &body), HTTP1_HEAD);
    assert_int_equal(at + used, n);
    assert_true(p.head.http10 && !p.head.keep_alive && !p.head.query && !p.head.authority);
    assert_int_equal(http1_next(&p, raw, 0, &used, &body), HTTP1_END);
}

static void test_response_head(void **state) {
    struct buf b = BUF_INIT;
    struct error err = {0};
    struct http_header h[] = {{"Content-Type", "text/plain; charset=utf-8"}, {"X-A", ""}};
    assert_int_equal(http1_put_head(&b, 200, h, 2, &err), 0);
    assert_string_equal(b.data, "HTTP/1.1 200 OK\r\nContent-Type: text/plain; charset=utf-8\r\nX-A: \r\n");
    buf_clear(&b);
    static const struct http_header bad[] = {
        {"X", "a\r\nSet-Cookie: b"},
        {"X", "a\nb"},
        {"X", "a\rb"},
        {"X", "\x01"},
        {"X", "\x7f"},
        {"X\r\nY", "a"},
        {"X Y", "a"},
        {"X:", "a"},
        {"", "a"},
        {"\xc3\xa9", "a"},
        {"Content-Length", "3"},
        {"CONNECTION", "close"},
        {"transfer-encoding", "chunked"},
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        struct http_header two[] = {{"A", "b"}, bad[i]};
        assert_int_equal(http1_put_head(&b, 200, two, 2, &err), QUIRE_EINVAL);
        assert_int_equal(b.len, 0);
        assert_null(strchr(err.text, '\n'));
    }
    const unsigned bad_status[] = {0, 99, 100, 199, 600, 1000};
    for (size_t i = 0; i < sizeof bad_status / sizeof *bad_status; i++)
        assert_int_equal(http1_put_head(&b, bad_status[i], NULL, 0, &err), QUIRE_EINVAL);
    assert_int_equal(b.len, 0);
    buf_free(&b);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_agrees_with_h11), cmocka_unit_test(test_statuses),
        cmocka_unit_test(test_size_limits),     cmocka_unit_test(test_head_access_and_reuse),
        cmocka_unit_test(test_response_head),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
