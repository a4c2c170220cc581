/* An HTTP server: listening sockets, connections, limits, time-outs, TLS, orderly shutdown. It knows bytes
 * and HTTP messages only; what a request means is its user's business. Start here; then net/exchange.h and
 * net/loop.h.
 *
 * n_loops threads own the connections, each its share for life (assigned round robin); loop 0 also accepts.
 * On every connection one request is handled at a time: requests that a client pipelines wait, unparsed, in
 * at most pipeline_bytes. What exceeds that is thrown away, the connection closes after its current response,
 * and beyond flood_bytes at once. The socket is read all the time, so that a client that leaves is noticed at
 * once, queued or running, whatever it still had in flight. */
#ifndef NET_SERVER_H
#define NET_SERVER_H

#include "base/log.h"
#include "net/exchange.h"
#include "net/loop.h"

struct server;

/* All on a loop thread. Only on_request is required (a server that never streams or waits needs no more). */
struct server_callbacks {
    void (*on_request)(void *user, struct exchange *x);
    void (*on_gone)(void *user, struct exchange *x, enum exchange_gone why);
    void (*on_writable)(void *user, struct exchange *x); /* drained to soft_bytes / 2 after being congested */
    /* Around each loop's life, for the user's state per loop. */
    void (*on_loop_start)(void *user, struct loop *loop);
    void (*on_loop_stop)(void *user, struct loop *loop);
    /* Writes the body of an answer that the server gives by itself (a request refused by the codec, 408, 503)
     * and sets its type, a static string. text says what was wrong, one line. Default: text/plain. */
    void (*on_refuse)(void *user, unsigned status, const char *text, struct buf *body,
                      const char **content_type);
};

struct server_config {
    const char *host;      /* name or address; NULL: all IPv4 and IPv6 addresses */
    uint16_t port;         /* 0: a free one, see server_port */
    bool no_tcp;           /* unix_path only */
    const char *unix_path; /* also listen here; NULL: not. Only a stale socket file is replaced */
    /* PEM files, certificate chain and key without a passphrase; both or neither. For TCP only. */
    const char *tls_cert_file, *tls_key_file;
    int backlog;
    size_t n_loops;
    size_t max_connections; /* beyond: 503, Retry-After, close */
    unsigned retry_after_s;

    size_t body_bytes;             /* largest request body; beyond: 413 */
    size_t body_total_bytes;       /* of all request bodies held at once; beyond: 503 */
    size_t soft_bytes, hard_bytes; /* waiting output of a stream: congested above soft, closed above hard */
    size_t pipeline_bytes;         /* input kept while a response is pending */
    size_t flood_bytes;            /* input thrown away beyond that before the connection is closed */
    size_t linger_bytes; /* input thrown away after a last response, so that the client can read it */
    unsigned head_ms;    /* TLS handshake; first to last byte of a head; then 408 */
    unsigned body_ms;    /* silence within a body; then 408 */
    unsigned idle_ms;    /* between requests, and before the first */
    unsigned stall_ms;   /* output waits and the client takes none */
    unsigned linger_ms;  /* for the client to close after a last response */

    struct server_callbacks callbacks;
    void *user;      /* handed to the callbacks */
    struct log *log; /* may be NULL */
};

/* The limits of the project's HTTP rules, one loop, 127.0.0.1, a free port. Set the callbacks. */
void server_config_init(struct server_config *c);

/* Listens and starts the loops; on return connections are being served, and callbacks may have come (*out is set
 * before the first). Errors name the flag-like field
 * (host, port, unix_path, tls_cert_file, tls_key_file, ...) and the cause. SIGPIPE is ignored from now on if
 * it had its default. The config is copied; its strings need not outlive the call, the log must. */
int server_start(struct server **out, const struct server_config *c, struct error *err);

uint16_t server_port(const struct server *s); /* the actual TCP port; 0 without TCP */
size_t server_n_loops(const struct server *s);
struct loop *server_loop(const struct server *s, size_t i);

/* Any thread, never blocks. Stops accepting, closes idle connections at once, lets requests that have begun
 * finish (their connections close after the response), and closes what is left after grace_ms:
 * on_gone(GONE_SHUTDOWN). A second call may only shorten the time. */
void server_drain(struct server *s, unsigned grace_ms);
bool server_draining(const struct server *s);

/* Not from a loop thread. Drains (with no grace unless server_drain was called before), waits until every
 * connection is closed and every exchange released, stops the threads. Whatever makes the user release its
 * exchanges must still run. */
void server_stop(struct server *s);
void server_free(struct server *s); /* stops if need be; NULL allowed */

/* Sums since the start, except where "now". Any thread. */
struct server_stats {
    uint64_t connections_now;
    uint64_t connections_accepted; /* and served */
    uint64_t connections_refused;  /* max_connections reached, or no descriptor left */
    uint64_t requests;             /* handed to on_request */
    uint64_t requests_now;         /* handed over, neither finished nor gone */
    uint64_t requests_refused;     /* answered with 4xx or 5xx by the server itself */
    uint64_t gone;                 /* on_gone, for whatever reason */
    uint64_t head_timeouts, body_timeouts, idle_timeouts, stalls, overruns, floods;
    uint64_t tls_failures; /* handshakes that did not complete */
    uint64_t bytes_in, bytes_out;
    uint64_t body_bytes_now; /* request bodies held */
};
void server_stats(const struct server *s, struct server_stats *out);

#endif
