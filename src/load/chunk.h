/* One message of an answer in OpenAI's shape (completions or chat, streamed or whole), read without a tree
 * and without memory of its own: 100,000 of them a second must leave time for the rest. */
#ifndef LOAD_CHUNK_H
#define LOAD_CHUNK_H

#include "base/buf.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct chunk {
    bool content; /* a choice carries text, reasoning or a part of a tool call */
    const char
        *text; /* `text` or `content` of the first choice as written: JSON escapes kept; NULL if none */
    size_t text_bytes;
    char finish[16]; /* finish_reason, cut to fit; empty if none */
    bool has_usage;
    int64_t prompt_tokens, completion_tokens, cached_tokens; /* -1: not given */
    bool error;                                              /* the message is an error */
    const char *message;                                     /* its text as written */
    size_t message_bytes;
};

/* Pointers into `json`. Unknown members are skipped. Returns 0, or QUIRE_EFORMAT when it is no JSON object
 * whose members have the types that the API gives them. */
int chunk_read(const char *json, size_t n, struct chunk *out);

/* Messages of a stream most often differ in their text alone. What was read of one of them is kept, and the
 * next is compared with it byte by byte around the text: where all of that is equal, what it means is equal,
 * too. */
struct chunk_pattern {
    struct buf last;      /* the message; keep its memory with buf_clear, free it with buf_free */
    size_t before, after; /* its bytes ahead of the text and behind it; 0, 0: there is none */
    struct chunk meaning;
};

/* As chunk_read, with the same result, faster where messages are alike. */
int chunk_read_next(struct chunk_pattern *p, const char *json, size_t n, struct chunk *out);

/* The text of a JSON string as written (`text`, `message`) in out[cap], cut where it does not fit; returns
 * its bytes, without a NUL. Half a surrogate pair becomes U+FFFD. */
size_t chunk_unescape(const char *json, size_t n, char *out, size_t cap);

#endif
