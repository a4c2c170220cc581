/* Server-sent events as the APIs of language models use them: each message is one line "data: ...".
 * https://html.spec.whatwg.org/multipage/server-sent-events.html */
#ifndef HTTP_SSE_H
#define HTTP_SSE_H

#include "base/buf.h"

#define SSE_LINE_MAX_BYTES ((size_t)16 << 20)

struct sse {
    bool begun; /* past the first line, which a byte order mark may be ahead of */
    struct buf
        pending; /* bytes of an unfinished line; keep its memory with buf_clear, free it with buf_free */
};

/* Calls `message` with what each data line carries, without "data:" and a space behind it; empty ones are
 * left out, as are comments, other fields and the empty lines between events. The bytes are gone after the
 * call. False: a line is longer than SSE_LINE_MAX_BYTES, or out of memory. */
bool sse_feed(struct sse *s, const char *data, size_t n,
              void (*message)(void *user, const char *data, size_t n), void *user);

#endif
