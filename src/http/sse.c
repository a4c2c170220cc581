#include "http/sse.h"

#include "base/utf8.h"

#include <string.h>

typedef void sse_message(void *user, const char *data, size_t n);

static void take_line(struct sse *s, const char *line, size_t n, sse_message *message, void *user) {
    size_t mark = s->begun ? 0 : utf8_mark(line, n);
    line += mark;
    n -= mark;
    s->begun = true;
    if (n && line[n - 1] == '\r') n--;
    if (n < 5 || memcmp(line, "data:", 5)) return;
    line += 5;
    n -= 5;
    if (n && *line == ' ') {
        line++;
        n--;
    }
    if (n) message(user, line, n);
}

bool sse_feed(struct sse *s, const char *data, size_t n, sse_message *message, void *user) {
    const char *end = data + n, *newline;
    s->pending.limit_bytes = SSE_LINE_MAX_BYTES;
    if (s->pending.len && (newline = memchr(data, '\n', n))) {
        buf_append(&s->pending, data, (size_t)(newline - data));
        if (!buf_ok(&s->pending)) return false;
        take_line(s, s->pending.data, s->pending.len, message, user);
        s->pending.len = 0;
        data = newline + 1;
    }
    while (!s->pending.len && (newline = memchr(data, '\n', (size_t)(end - data)))) {
        take_line(s, data, (size_t)(newline - data), message, user);
        data = newline + 1;
    }
    if (data < end) buf_append(&s->pending, data, (size_t)(end - data));
    return buf_ok(&s->pending);
}
