/* Many streamed requests from one thread, and what became of each. */
#ifndef LOAD_CLIENT_H
#define LOAD_CLIENT_H

#include "base/buf.h"
#include "http/http.h"
#include "load/samples.h"

#include <quire/error.h>

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* How a request ended. */
enum outcome {
    OUTCOME_OK,
    OUTCOME_CONNECT,   /* no connection */
    OUTCOME_TIMEOUT,   /* --timeout */
    OUTCOME_CUT,       /* the connection or the stream ended before the answer did */
    OUTCOME_HTTP,      /* a status other than 200 */
    OUTCOME_STREAM,    /* the server reported an error within the stream */
    OUTCOME_MALFORMED, /* not the API's JSON */
    OUTCOME_NO_USAGE,  /* an answer without token counts: nothing to count by */
    OUTCOME_CANCELED,  /* by us, when the run was ended early; no error */
    OUTCOMES
};

const char *outcome_name(enum outcome o); /* "connect", "timeout", ... */

#define ANSWER_MESSAGE_BYTES 200
#define FAILURE_BYTES        (ANSWER_MESSAGE_BYTES + 40)

/* "http 400: the server's message" in out[cap]. */
void failure_describe(enum outcome o, unsigned status, const char *message, char *out, size_t cap);

/* What became of a request. Times are clock_us(). */
struct answer {
    enum outcome outcome;
    unsigned status;                    /* HTTP, 0 if none */
    char message[ANSWER_MESSAGE_BYTES]; /* of a failure */
    char finish[16];
    uint64_t sent_us, first_us, last_us, end_us;         /* first, last: messages with content; 0 if none */
    uint32_t n_events;                                   /* messages with content */
    uint64_t longest_gap_us;                             /* between two of them */
    int64_t prompt_tokens, output_tokens, cached_tokens; /* the server's usage; -1: not told */
    struct buf text; /* the answer with its JSON escapes, if it was asked for */
};

struct client;
struct client_request {
    const char *url;  /* kept by the caller until the answer */
    struct buf *body; /* POST; NULL: GET. Kept by the caller until the answer. */
    bool plain;       /* the body is wanted as it is, in answer.text (/metrics); else a stream of messages */
    bool keep_text;
    struct hdr *gaps; /* gets the times between messages with content; may be NULL */
    /* From client_wait. The answer's text is the client's and gone afterwards. */
    void (*done)(void *user, struct answer *answer);
    void *user;
};

struct client_config {
    struct http_config http; /* all but n_at_once */
    size_t max_streams;      /* at once */
};

/* Raises the process's limit of open files when it must. */
int client_new(const struct client_config *config, struct client **out, struct error *err);
int client_start(struct client *c, const struct client_request *r, struct error *err);
/* Sends and receives until until_us, or until `done` was called at least once. */
int client_wait(struct client *c, uint64_t until_us, struct error *err);
size_t client_active(const struct client *c);
uint64_t client_events(const struct client *c); /* messages with content so far */
/* Ends every request in flight with OUTCOME_CANCELED; `done` is called for each. */
void client_cancel_all(struct client *c);
void client_free(struct client *c);

#endif
