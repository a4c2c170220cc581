/* The request codec must give the same messages however its bytes are cut. The input's first byte says how
 * many cut lengths follow; they are used in turn. The rest is a connection's bytes, several messages perhaps.
 */
#include "net/http1.h"

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define BODY_LIMIT 4096

struct feed {
    struct http1 parser;
    char text[HTTP1_HEAD_BYTES];
    uint64_t digest; /* of all events so far */
    size_t n_messages, body_bytes;
    bool refused;
};

static void mix(struct feed *f, const void *data, size_t n) {
    for (size_t i = 0; i < n; i++) f->digest = (f->digest ^ ((const uint8_t *)data)[i]) * 0x100000001b3u;
}

static void require(bool holds, const char *what) {
    if (holds) return;
    fprintf(stderr, "violated: %s\n", what);
    abort();
}

/* What a head promises its readers. */
static void check_head(const struct http1_head *h, const char *text) {
    const char *path = text + h->path;
    require(h->path && (*path == '/' || !strcmp(path, "*")), "a path");
    require(!strstr(path, "/../") && !strstr(path, "/./"), "no dot segment");
    require(h->n_fields <= HTTP1_MAX_FIELDS && h->text_bytes <= HTTP1_HEAD_BYTES, "limits");
    require(h->http10 || http1_field(h, text, "host"), "Host");
    require(!h->chunked || !h->content_length, "one framing");
    require(h->content_length <= BODY_LIMIT, "body limit");
    for (size_t i = 0; i < h->n_fields; i++) {
        require(text[h->fields[i].name], "a field name");
        require(!strpbrk(text + h->fields[i].value, "\r\n"), "no line end in a value");
    }
}

static void give(struct feed *f, const char *data, size_t n) {
    while (!f->refused) {
        size_t used;
        struct http1_span body = {0};
        enum http1_event e = http1_next(&f->parser, data, n, &used, &body);
        require(used <= n, "used <= n");
        data += used;
        n -= used;
        if (e == HTTP1_MORE) {
            require(!n, "all used");
            return;
        }
        if (e == HTTP1_BODY) {
            require(body.n, "no empty fragment");
            mix(f, body.data, body.n);
            f->body_bytes += body.n;
            require(f->body_bytes <= BODY_LIMIT, "body limit");
            continue;
        }
        mix(f, &e, sizeof e);
        if (e == HTTP1_HEAD) {
            check_head(&f->parser.head, f->text);
            mix(f, f->text, f->parser.head.text_bytes);
            mix(f, f->parser.head.fields, f->parser.head.n_fields * sizeof *f->parser.head.fields);
        } else if (e == HTTP1_END) {
            f->n_messages++;
            f->body_bytes = 0;
            http1_reset(&f->parser);
        } else {
            f->refused = true;
            require(f->parser.status >= 400 && f->parser.reason, "status and reason");
            mix(f, f->parser.reason, strlen(f->parser.reason));
        }
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    if (!size || size - 1 < data[0]) return 0;
    const uint8_t *cuts = data + 1;
    size_t n_cuts = data[0], n = size - 1 - n_cuts;
    const char *raw = (const char *)cuts + n_cuts;

    struct feed whole = {0}, cut = {0};
    http1_init(&whole.parser, whole.text, BODY_LIMIT);
    http1_init(&cut.parser, cut.text, BODY_LIMIT);
    give(&whole, raw, n);
    for (size_t at = 0, i = 0; at < n; i++) {
        size_t step = n_cuts ? cuts[i % n_cuts] : 1;
        if (!step) step = 1;
        if (step > n - at) step = n - at;
        char *exact = malloc(step); /* so that reading past the piece is seen */
        if (!exact) abort();
        memcpy(exact, raw + at, step);
        give(&cut, exact, step);
        free(exact);
        at += step;
    }
    require(whole.digest == cut.digest && whole.n_messages == cut.n_messages, "same events however cut");
    require(whole.refused == cut.refused && whole.parser.status == cut.parser.status, "same refusal");
    return 0;
}
