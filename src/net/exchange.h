/* One request and its response, as the layer above sees them.
 *
 * Life. on_request hands an exchange over with its whole request. The user answers, now or later, with either
 * exchange_reply or exchange_stream_begin, _write ..., _end; that finishes it. If the client leaves first,
 * on_gone is called, once. In every case the user calls exchange_release exactly once, when it will not touch
 * the exchange again, before or after the client is gone; until then the pointer and the request's data stay
 * valid. So:
 *
 *     on_request -> ... finished (reply, stream_end, stream_abort) or on_gone ... -> exchange_release
 *
 * After on_gone or the end of the response, the writing functions do nothing and return QUIRE_ECANCELED: a
 * producer that learns late is harmless. Releasing without an answer gives the client a 500, releasing in the
 * middle of a stream cuts it. on_gone never comes after the response is finished, nor after the release.
 *
 * Threads. All functions are for the exchange's loop thread, except that the request's data (the section so
 * named) never changes and may be read by any thread until the release.
 *
 * on_request, on_gone and on_writable never run inside a function of this header: a failed write or an
 * overrun limit reports through on_gone later, from the loop.
 *
 * Gone means: the connection was reset or closed, also half-closed (a client that shuts down its sending side
 * and goes on reading counts as gone; its complete answers already handed over are still delivered), or a
 * limit closed it. */
#ifndef NET_EXCHANGE_H
#define NET_EXCHANGE_H

#include "net/http1.h"
#include "net/loop.h"

struct exchange;

enum exchange_gone {
    GONE_CLIENT,   /* closed, half-closed or reset by the peer, or a TLS failure */
    GONE_STALLED,  /* it took nothing for stall_ms while output was waiting */
    GONE_OVERRUN,  /* more output waited than hard_bytes */
    GONE_FLOOD,    /* it sent more than flood_bytes after its request instead of waiting */
    GONE_SHUTDOWN, /* the server's grace time ended */
    GONE_MEMORY    /* no memory for its output */
};

const char *exchange_gone_name(enum exchange_gone why); /* "client", "stalled", ... */

/* --- the request's data: any thread, until exchange_release --- */

uint64_t exchange_id(const struct exchange *x); /* 1, 2, ... in order of arrival on this server */
enum http_method exchange_method(const struct exchange *x);
const char *exchange_path(const struct exchange *x);  /* percent-decoded, from '/' on; "*" for OPTIONS * */
const char *exchange_query(const struct exchange *x); /* undecoded, without '?'; NULL if there is none */
/* Value of the first header of that name (any case), or NULL. */
const char *exchange_header(const struct exchange *x, const char *name);
size_t exchange_n_headers(const struct exchange *x);
void exchange_header_at(const struct exchange *x, size_t i, struct http_header *out);
/* Whole, contiguous, a NUL behind the last byte; n may be 0, data is never NULL. */
struct http1_span exchange_body(const struct exchange *x);
const char *exchange_peer(const struct exchange *x); /* "127.0.0.1:51034", "[::1]:51034", "unix" */
struct loop *exchange_loop(const struct exchange *x);

/* --- the response: loop thread --- */

/* The whole response. content_type may be NULL when body_n is 0. HEAD requests get the headers only. Returns
 * 0; QUIRE_EINVAL when a header or the status is not sendable (http1_put_head; nothing was sent: answer
 * again); QUIRE_ENOMEM likewise; QUIRE_ECANCELED when gone or already answered. The data are copied. */
int exchange_reply(struct exchange *x, unsigned status, const char *content_type,
                   const struct http_header *headers, size_t n_headers, const void *body, size_t body_n,
                   struct error *err);

/* Sends the head at once; the body follows in pieces (chunked; for HTTP/1.0 until the connection closes).
 * Returns as exchange_reply. */
int exchange_stream_begin(struct exchange *x, unsigned status, const char *content_type,
                          const struct http_header *headers, size_t n_headers, struct error *err);
/* Copies n bytes (0 is allowed and sends nothing). 0, or QUIRE_ECANCELED when gone, or QUIRE_ELIMIT when the
 * stream was congested and now more than hard_bytes would wait: then the connection is closed and on_gone
 * follows. */
int exchange_stream_write(struct exchange *x, const void *data, size_t n);
/* As stream_write, then the end. The exchange is finished whatever is returned. */
int exchange_stream_end(struct exchange *x, const void *data, size_t n);
/* Cuts the stream so that the client can tell it from an end; before the head was sent, as releasing.
 * Finishes it. */
void exchange_stream_abort(struct exchange *x);

/* Backpressure. True from the write that brought the waiting output above soft_bytes until on_writable. A
 * producer should stop while it holds; the hard limit is the end of those that do not. */
bool exchange_congested(const struct exchange *x);
size_t exchange_pending_bytes(const struct exchange *x); /* output not yet taken by the socket */

bool exchange_gone(const struct exchange *x);     /* on_gone was called or is due */
bool exchange_finished(const struct exchange *x); /* the response is complete or cut */

void exchange_set_user(struct exchange *x, void *user);
void *exchange_user(const struct exchange *x);

/* Times are monotonic microseconds (base/clock.h), 0 where it has not happened. */
struct exchange_stats {
    uint64_t first_byte_us;                 /* first byte of the request */
    uint64_t request_us;                    /* request complete: on_request */
    uint64_t response_us;                   /* head of the response written */
    uint64_t finished_us;                   /* response finished, or gone */
    unsigned status;                        /* of the response; 0 before */
    uint64_t body_bytes;                    /* of the response, handed over so far, without framing */
    uint64_t conn_bytes_in, conn_bytes_out; /* of the connection so far, without TLS framing */
    uint64_t conn_requests;                 /* on this connection, this one included */
};
void exchange_stats(const struct exchange *x, struct exchange_stats *out);

/* Frees the request's body early, for answers that take long; exchange_body is empty from now on. Only once
 * no other thread reads it. */
void exchange_drop_body(struct exchange *x);

void exchange_release(struct exchange *x); /* NULL allowed */

#endif
