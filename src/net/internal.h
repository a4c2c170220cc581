/* What the files of this folder share. Users of the layer include net/server.h.
 *
 * Ownership: the server owns its loops, a loop its connections. A connection has at most one exchange, from
 * the head of a request until the response is finished or the client is gone; the exchange itself belongs to
 * the user from on_request to exchange_release. Whichever goes first clears the pointer in the other.
 * Everything below a loop is touched by its thread only; what threads share is atomic. */
#ifndef NET_INTERNAL_H
#define NET_INTERNAL_H

#include "base/buf.h"
#include "net/server.h"

#include <event2/bufferevent.h>
#include <event2/event.h>
#include <openssl/ssl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <time.h>

enum { PEER_BYTES = 56, DATE_BYTES = 40 };

/* One each for server_stats. */
struct counters {
    atomic_uint_fast64_t connections_now, connections_accepted, connections_refused;
    atomic_uint_fast64_t requests, requests_now, requests_refused, gone;
    atomic_uint_fast64_t head_timeouts, body_timeouts, idle_timeouts, stalls, overruns, floods, tls_failures;
    atomic_uint_fast64_t bytes_in, bytes_out, body_bytes_now;
};

static inline void count_add(atomic_uint_fast64_t *c, uint64_t n) {
    atomic_fetch_add_explicit(c, n, memory_order_relaxed);
}
static inline void count_sub(atomic_uint_fast64_t *c, uint64_t n) {
    atomic_fetch_sub_explicit(c, n, memory_order_relaxed);
}
static inline uint64_t count_get(const atomic_uint_fast64_t *c) {
    return atomic_load_explicit(c, memory_order_relaxed);
}

/* --- loop.c --- */

struct loop {
    struct server *server;
    size_t index;
    pthread_t thread;
    bool running; /* the thread exists */
    struct event_base *base;

    struct mpsc posted;
    atomic_bool woken; /* wake_fd was written and not read since */
    int wake_fd;
    struct event *wake, *sweep, *later;

    struct conn *conns; /* all of this loop, doubly linked */
    struct conn *due;   /* those with something to do once the current callback has returned */
    size_t n_exchanges; /* not yet released */
    bool draining;      /* has done its part of server_drain */

    struct buf scratch; /* for the head of a response */
    char date[DATE_BYTES];
    time_t date_unix_s;
};

int loop_start(struct loop *loop, struct server *server, size_t index, struct error *err);
void loop_wake(struct loop *loop); /* any thread: look for posts and for a drain */
void loop_join(struct loop *loop); /* waits for the thread; it ends when the server stops and all is closed */
void loop_destroy(struct loop *loop);     /* after loop_join */
const char *loop_date(struct loop *loop); /* value of a Date header */

/* --- conn.c --- */

enum conn_state {
    CONN_READ,  /* a request is awaited or arriving */
    CONN_WAIT,  /* the user has it; the response is not finished */
    CONN_FLUSH, /* the last response is on its way out; then linger and close */
    CONN_LINGER /* our side is shut down; waiting for the client to close, so that it can read the response */
};

/* Only while a request arrives. */
struct reader {
    struct http1 parser;
    uint64_t first_byte_us;
    char text[HTTP1_HEAD_BYTES];
};

struct conn {
    struct loop_node arrival; /* from the accepting loop to the owning one; first, so that it is the conn */
    struct loop *loop;
    struct conn *prev, *next;
    struct conn *next_due;
    bool is_due;

    int fd;
    SSL_CTX *tls; /* NULL: plain */
    struct bufferevent *bev;
    struct reader *reader;
    struct exchange *exchange;

    enum conn_state state;
    bool over_limit;  /* accepted only to be told so */
    bool handshaking; /* TLS */
    bool close_after; /* no further request on this connection */
    bool peer_ended;  /* EOF: deliver what is complete, then close */
    bool reset;       /* close by RST, so that a cut HTTP/1.0 stream does not look complete */
    bool doomed;      /* to be closed for the reason why */
    enum exchange_gone why;

    uint64_t deadline_us;      /* of the current state; 0: none */
    uint64_t output_us;        /* since when output waits without progress; 0: none waits */
    size_t discard_left_bytes; /* once input is thrown away */
    bool discarding;
    uint64_t bytes_in, bytes_out, n_requests;
    char peer[PEER_BYTES];
};

void conn_open(struct loop *loop, struct loop_node *arrival); /* run of conn.arrival */
void conn_continue(struct conn *c);                           /* for connections that were due */
void conn_sweep(struct conn *c, uint64_t now_us);             /* time-outs; may free c */
void conn_close_idle(struct conn *c);                         /* drain: closes it if no request has begun */
void conn_close(struct conn *c, enum exchange_gone why); /* now; on_gone if a response is pending; frees c */

/* Body of an answer of the server's own, and its type (static): by on_refuse, or plain text. */
const char *conn_refusal(const struct server_config *cfg, unsigned status, const char *text,
                         struct buf *body);

/* For exchange.c: never call back, never free c. */
bool conn_write(struct conn *c, const void *data, size_t n); /* false: no memory, c is doomed */
size_t conn_pending_bytes(const struct conn *c);
void conn_doom(struct conn *c, enum exchange_gone why);
void conn_response_done(struct conn *c); /* the exchange is finished: next request, or flush and close */

/* --- exchange.c --- */

struct exchange {
    struct conn *conn; /* NULL once finished or gone */
    struct loop *loop;
    void *user;
    uint64_t id;
    bool delivered; /* to on_request */
    bool started;   /* the response's head was written */
    bool finished, gone, congested;
    bool chunked; /* the response */
    struct exchange_stats stats;
    char peer[PEER_BYTES];
    struct buf body;
    struct http1_head head;
    char text[]; /* head.text_bytes */
};

/* From a complete head. NULL: no memory. */
struct exchange *exchange_new(struct conn *c, const struct reader *r);
/* Appends to the request's body. 0, or the status to refuse the request with. */
unsigned exchange_take(struct exchange *x, struct http1_span fragment);
void exchange_deliver(struct exchange *x); /* calls on_request; x may be freed on return */
/* The connection closes: on_gone. x may be freed on return. */
void exchange_lost(struct exchange *x, enum exchange_gone why);
void exchange_free(struct exchange *x);

/* --- listener.c --- */

struct listener {
    struct server *server;
    int fd;
    bool tls;
    char *unix_path; /* to remove at the end */
    struct event *accepting;
};

int listeners_open(struct server *s, struct error *err);   /* binds and listens */
int listeners_accept(struct server *s, struct error *err); /* on loop 0, before it runs */
void listeners_close(struct server *s); /* loop 0, or before it runs; may be called twice */

/* --- tls.c --- */

int tls_context_new(SSL_CTX **out, const char *cert_file, const char *key_file, struct error *err);

/* --- server.c --- */

enum { MAX_LISTENERS = 16 };

struct server {
    struct server_config config; /* its strings are not kept: NULL */
    SSL_CTX *tls;
    struct listener listeners[MAX_LISTENERS];
    size_t n_listeners;
    int spare_fd;          /* given up for a moment when descriptors run out */
    struct event *resume;  /* accepts again after such a shortage */
    uint64_t warned_us;    /* when the log was last told; loop 0's */
    size_t next_loop;      /* round robin; loop 0's */
    atomic_bool listening; /* connections may still be posted to loops */
    uint16_t port;

    struct loop *loops;
    size_t n_loops;
    atomic_bool draining, stopping;
    atomic_uint_fast64_t drain_deadline_us;
    bool joined;

    atomic_uint_fast64_t next_id;
    struct counters counters;
};

#endif
