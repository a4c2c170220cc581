/* One request of the client, from sending to its end (private to client.c and stream.c). */
#ifndef LOAD_STREAM_H
#define LOAD_STREAM_H

#include "http/sse.h"
#include "load/chunk.h"
#include "load/client.h"

struct stream {
    struct client *client;
    uint64_t *n_events;  /* of the client: messages with content */
    struct stream *next; /* of the free ones */
    bool busy;
    struct client_request request;
    struct answer answer;
    struct sse sse;
    struct chunk_pattern pattern;
    struct buf whole;                /* an answer that is no stream */
    bool is_stream, finished, typed; /* typed: the answer's kind is known */
};

/* As http_request.receive: answers are read as they come. */
bool stream_receive(void *stream, const struct http_answer *answer, const char *data, size_t n);
/* Judges the answer at its end. */
void stream_conclude(struct stream *s, const struct http_answer *end);

#endif
