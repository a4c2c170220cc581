/* HTTP requests on libcurl: one, or thousands at once, from one thread. Nothing here is shared between
 * threads.
 *
 * Rules that hold for all: http and https only; certificates are checked unless told otherwise; proxies are
 * those of the environment (http_proxy, https_proxy, all_proxy, no_proxy), but none for this machine;
 * connections are kept for the next request; a bearer token is not sent on to the host of a redirection. */
#ifndef HTTP_HTTP_H
#define HTTP_HTTP_H

#include "base/buf.h"

#include <quire/error.h>

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* How a request ended. */
enum http_end {
    HTTP_COMPLETE,  /* an answer of whatever status */
    HTTP_URL,       /* not a URL of http or https, or redirected to what is none, or too often */
    HTTP_NAME,      /* no such host */
    HTTP_CONNECT,   /* no connection, or no TLS on it */
    HTTP_UNTRUSTED, /* the certificate is not accepted */
    HTTP_TIMEOUT,   /* timeout_s, or nothing came for stall_s */
    HTTP_CUT,       /* the connection ended before the answer did, or what came is no HTTP */
    HTTP_STOPPED,   /* by `receive`, or `into` is full */
    HTTP_CANCELED,  /* by http_cancel_all */
};

#define HTTP_WHY_BYTES 256

struct http_answer {
    enum http_end end;
    unsigned status;          /* 0: none came */
    char type[64];            /* Content-Type, cut to fit; "" if none */
    char encoding[16];        /* Content-Encoding, likewise; none is asked for, and none is undone here */
    char why[HTTP_WHY_BYTES]; /* one line about an end other than HTTP_COMPLETE; else "" */
};

struct http_request {
    const char *url;        /* kept by the caller until the end, as is the body */
    const struct buf *body; /* JSON to POST; NULL: GET */
    uint64_t from_bytes;    /* the answer is wanted from there on (status 206) */
    uint64_t to_bytes;      /* and up to there; 0: to its end */
    struct buf *into;       /* gets the body, up to its limit_bytes; or */
    /* gets the parts of it as they come; status and type are known then. False ends the request. */
    bool (*receive)(void *user, const struct http_answer *answer, const char *data, size_t n);
    /* At the end, from http_wait or http_cancel_all; may start others. NULL: not called. */
    void (*done)(void *user, const struct http_answer *answer);
    void *user;
};

struct http_config {
    const char *bearer;  /* token; NULL: none */
    const char *ca_cert; /* file of the authorities that are trusted, PEM; NULL: those of the system */
    bool insecure;       /* any certificate will do */
    double timeout_s;    /* of a request; 0: none */
    unsigned stall_s;    /* of a request during which nothing comes; 0: none */
    unsigned redirects;  /* that are followed, never from https to http */
    size_t n_at_once;    /* most requests */
};

struct http;

/* Raises the process's limit of open files when it must. The config's strings are copied. QUIRE_ENOTFOUND:
 * ca_cert cannot be read. */
int http_new(const struct http_config *config, struct http **out, struct error *err);
int http_start(struct http *h, const struct http_request *r, struct error *err);
/* Sends and receives until until_us (clock_us), or until a request has ended. */
int http_wait(struct http *h, uint64_t until_us, struct error *err);
/* One request to its end. Returns 0 for any answer, also one that did not come. */
int http_perform(struct http *h, const struct http_request *r, struct http_answer *answer, struct error *err);
size_t http_active(const struct http *h);
/* Ends every request under way with HTTP_CANCELED. */
void http_cancel_all(struct http *h);
/* Requests under way are dropped without `done`. */
void http_free(struct http *h);

/* QUIRE_EINVAL when a command's --ca-cert and --insecure contradict each other, or have no effect on its URL.
 */
int http_check_trust(const struct http_config *config, const char *url, struct error *err);

/* What a user can do about an end, to be put behind `why`; "" for most. For commands with --ca-cert and
 * --insecure. */
const char *http_advice(const struct http_answer *answer);

#endif
