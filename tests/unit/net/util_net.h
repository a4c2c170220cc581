/* A server with a small application, and blocking clients, for the tests of src/net. */
#ifndef UTIL_NET_H
#define UTIL_NET_H

#include "base/buf.h"
#include "net/server.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>

#include <cmocka.h>

#include <openssl/ssl.h>
#include <pthread.h>

enum { PATIENCE_MS = 20000 }; /* for what must happen; failing only when something hangs */

/* What the application does is in the path:
 *   /hello        200 "hello"
 *   /echo         200 "METHOD path?query body"
 *   /big?N        200 with N bytes
 *   /wait         holds the exchange
 *   /stream       begins a stream, writes "first\n", holds the exchange
 *   /pump         begins a stream and keeps writing, pausing while congested
 *   /push         begins a stream and writes 64 KiB blocks until refused
 *   /drop         releases without an answer
 *   /inject       tries to answer with a header that has a line end; 200 "refused" if it could not
 *   /stats        200 with exchange_stats
 *   /headers      200 with the request's headers, one a line
 *   /204          204 */
struct app {
    struct server *server;
    struct server_config config; /* change before app_start */
    pthread_mutex_t lock;
    pthread_cond_t changed;
    struct exchange *held[4096]; /* not yet answered */
    size_t n_held, n_requests, n_gone, n_writable, n_push_refused, max_pending_bytes;
    enum exchange_gone last_gone;
};

void app_init(struct app *app);
void app_start(struct app *app);
void app_stop(struct app *app); /* and checks that nothing is left */

/* Runs fn on loop i and waits for it. */
void app_on_loop(struct app *app, size_t i, void (*fn)(struct app *app, void *arg), void *arg);
/* Answers "done" to everything held: reply, or the end of the stream. */
void app_finish_held(struct app *app);
/* Writes to every held stream (from its loop), all in one batch. */
void app_write_held(struct app *app, const char *text);

size_t app_get(struct app *app, const size_t *counter);
/* Waits until *counter >= value; fails the test if it never is. */
void app_wait(struct app *app, const size_t *counter, size_t value);
/* Waits until a figure of server_stats is `value`. */
#define app_wait_stat(app, field, value)                                                                     \
    do {                                                                                                     \
        struct server_stats stats_;                                                                          \
        int left_ = PATIENCE_MS;                                                                             \
        for (server_stats((app)->server, &stats_); stats_.field != (value) && left_ > 0; left_ -= 5) {       \
            usleep(5000);                                                                                    \
            server_stats((app)->server, &stats_);                                                            \
        }                                                                                                    \
        assert_int_equal(stats_.field, (value));                                                             \
    } while (0)

/* --- client --- */

struct client {
    int fd;
    SSL *ssl;      /* NULL: plain */
    struct buf in; /* received, not yet consumed */
    bool ended;    /* EOF or reset */
    bool was_reset;
};

void client_open(struct client *c, const struct app *app);
void client_open_tls(struct client *c, const struct app *app, SSL_CTX *ctx);
bool client_send(struct client *c, const void *data, size_t n); /* false: the server closed */
bool client_puts(struct client *c, const char *text);
void client_get(struct client *c, const char *path); /* sends a GET */
bool client_fill(struct client *c);                  /* receives some; false at the end */
/* Waits until the text has come and consumes up to its end; false if the connection ends before. */
bool client_expect(struct client *c, const char *text);
/* Receives a whole response with Content-Length (or none, if no_body). Returns its status; 0 at the end. The
 * head is left in head (may be NULL) and the body in body (may be NULL). */
unsigned client_response(struct client *c, struct buf *head, struct buf *body, bool no_body);
void client_wait_end(struct client *c); /* reads until the server closes */
void client_close(struct client *c);    /* FIN */
void client_reset(struct client *c);    /* RST */

/* Writes a self-signed certificate and its key into files; names made with mkstemp. */
void make_certificate(char *cert_path, char *key_path);

#endif
