/* One request of the client, from sending to its end (private to client.c and stream.c). */
#ifndef LOAD_STREAM_H
#define LOAD_STREAM_H

#include "load/client.h"

#include <curl/curl.h>

struct stream {
    struct client *client;
    uint64_t *n_events; /* of the client: messages with content */
    CURL *easy;
    struct stream *next; /* of the free ones */
    bool busy;
    struct client_request request;
    struct answer answer;
    struct buf pending;              /* bytes of an unfinished line */
    struct buf whole;                /* the first bytes of an answer that is no stream */
    bool is_stream, finished, typed; /* typed: the answer's kind is known */
    char why[CURL_ERROR_SIZE];
};

/* Answers are read as they come. */
size_t stream_receive(char *data, size_t size, size_t n, void *stream);
/* Judges the answer once libcurl is done with it. */
void stream_conclude(struct stream *s, CURLcode rc);

#endif
