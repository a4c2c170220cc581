/* HTTP/1.1 messages (RFC 9110, RFC 9112) as a pure codec: state + bytes -> events. No I/O, no allocation, no
 * clock.
 *
 * The request parser is strict on purpose: what two parsers could read differently is refused, not repaired.
 * Lines end in CRLF only; no bare CR, bare LF, NUL or other control byte in a head; no folded lines; no space
 * around a field name; Content-Length once, digits only, never beside Transfer-Encoding; Transfer-Encoding
 * exactly "chunked"; exactly one valid Host for 1.1 (none needed for 1.0). Each refusal has one status:
 *
 *   400 malformed, doubled or contradictory    414 target too long         501 unknown method or transfer
 * coding 413 body larger than the limit             417 unknown expectation     505 not HTTP/1.0 or HTTP/1.1
 *   431 head, one field or a trailer too large, too many fields
 *
 * 413 is decided as early as the sizes are known: at the head for Content-Length, at a chunk's size line
 * otherwise. HTTP/1.0 is spoken, without keep-alive and without Transfer-Encoding (400).
 *
 * The target is origin-form, absolute-form (http, https) or, for OPTIONS, "*". The path is percent-decoded
 * once, in place. Refused with 400: bad escapes, %00 and other control bytes, and any "." or ".." segment,
 * also an escaped one: clients resolve those before they send. "%2F" becomes "/" (model names contain it).
 * The query is left as sent. */
#ifndef NET_HTTP1_H
#define NET_HTTP1_H

#include "base/buf.h"

#include <quire/error.h>

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
    HTTP1_HEAD_BYTES = 16384,  /* request line and fields; each line's CRLF counts as one byte */
    HTTP1_TARGET_BYTES = 8192, /* request target */
    HTTP1_MAX_FIELDS = 64,
    HTTP1_LINE_BYTES = 256, /* a chunk's size line with extensions, or one trailer field */
    HTTP1_MAX_TRAILERS = 64
};

enum http_method { HTTP_GET, HTTP_HEAD, HTTP_POST, HTTP_PUT, HTTP_DELETE, HTTP_PATCH, HTTP_OPTIONS };

const char *http_method_name(enum http_method m); /* "GET", ... */

struct http1_field {
    uint16_t name, value; /* offsets into the text */
};

/* A parsed head. Offsets point into the text (the parser's buffer, or a copy of its first text_bytes), where
 * every piece ends in NUL; a head cannot contain NUL itself, so they are C strings. 0 means absent: offset 0
 * is the method. */
struct http1_head {
    enum http_method method;
    bool http10;          /* HTTP/1.0; else 1.1 */
    bool keep_alive;      /* the connection may be used again */
    bool expect_continue; /* the client waits for "100 Continue" */
    bool chunked;         /* the body is chunked; else it has content_length bytes, perhaps 0 */
    uint64_t content_length;
    uint16_t path;      /* decoded; "*" for OPTIONS * */
    uint16_t query;     /* what follows the first '?', as sent */
    uint16_t authority; /* host[:port]: of an absolute-form target, else of Host */
    uint16_t text_bytes;
    uint16_t n_fields;
    struct http1_field fields[HTTP1_MAX_FIELDS]; /* in order of arrival */
};

/* Value of the first field of that name (any case), or NULL. text is what the offsets point into. */
const char *http1_field(const struct http1_head *head, const char *text, const char *name);

enum http1_event {
    HTTP1_MORE,  /* all bytes were used; give more */
    HTTP1_HEAD,  /* parser->head is complete; read it before http1_reset */
    HTTP1_BODY,  /* a fragment of the body, never empty: `body` points into the given bytes */
    HTTP1_END,   /* the message is complete; call http1_reset before the next one */
    HTTP1_REFUSE /* parser->status and parser->reason say why; the parser takes nothing more */
};

struct http1 {
    struct http1_head head;
    unsigned status;    /* after HTTP1_REFUSE: the status to answer with */
    const char *reason; /* one line, valid until http1_reset */
    /* private */
    char *text; /* HTTP1_HEAD_BYTES of the caller's */
    size_t text_len, line_start, line_len, n_trailers;
    uint64_t body_limit, body_seen, chunk_left;
    int state;
    bool after_cr;
    char too_large[64]; /* the reason that tells the limit */
    char line[HTTP1_LINE_BYTES];
};

struct http1_span {
    const char *data;
    size_t n;
};

/* text: HTTP1_HEAD_BYTES bytes that outlive the parser. body_limit: largest body accepted, in bytes. */
void http1_init(struct http1 *p, char *text, uint64_t body_limit);

/* Back to the start of a message. */
void http1_reset(struct http1 *p);

/* Takes some of the n bytes (*used of them) and gives the next event. Call again with the rest until
 * HTTP1_MORE. The same events come out however the bytes are cut, except that a body may come in other
 * fragments. */
enum http1_event http1_next(struct http1 *p, const char *data, size_t n, size_t *used,
                            struct http1_span *body);

/* No byte of a message was taken since init or reset. */
bool http1_idle(const struct http1 *p);

/* --- responses --- */

struct http_header {
    const char *name, *value;
};

const char *http_status_text(unsigned status); /* "OK", ...; "Unknown" for a code not in the table */

/* Appends status line and headers, no final blank line. QUIRE_EINVAL, with nothing appended, when the status
 * is not in 200..599, a name is not a token, or a value has a control byte: nothing can be smuggled in
 * through them. Also refused are the headers that frame the message, which are the server's own: Connection,
 * Content-Length, Transfer-Encoding, Date, Trailer, Upgrade, Keep-Alive. QUIRE_ENOMEM leaves out failed. */
int http1_put_head(struct buf *out, unsigned status, const struct http_header *headers, size_t n,
                   struct error *err);
int http1_put_headers(struct buf *out, const struct http_header *headers, size_t n, struct error *err);

#endif
