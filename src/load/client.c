#include "load/client.h"

#include "base/clock.h"
#include "base/error.h"
#include "load/stream.h"

#include <stdio.h>
#include <stdlib.h>

struct client {
    struct http *http;
    struct stream *streams, *free;
    size_t n_streams;
    uint64_t n_events;
};

const char *outcome_name(enum outcome o) {
    static const char *const names[OUTCOMES] = {"ok",     "connect",   "timeout",  "cut",     "http",
                                                "stream", "malformed", "no_usage", "canceled"};
    return names[o];
}

void failure_describe(enum outcome o, unsigned status, const char *message, char *out, size_t cap) {
    if (o == OUTCOME_HTTP)
        snprintf(out, cap, "%s %u: %s", outcome_name(o), status, message);
    else
        snprintf(out, cap, "%s: %s", outcome_name(o), message);
}

int client_new(const struct client_config *config, struct client **out, struct error *err) {
    struct client *c = calloc(1, sizeof *c);
    size_t n = config->max_streams + 1; /* and one for the server's metrics */
    if (!c) return error_set(err, QUIRE_ENOMEM, "out of memory");
    struct http_config hc = config->http;
    hc.n_at_once = n;
    int rc = http_new(&hc, &c->http, err);
    if (!rc && !(c->streams = calloc(n, sizeof *c->streams)))
        rc = error_set(err, QUIRE_ENOMEM, "out of memory for %zu streams", n);
    if (rc) {
        client_free(c);
        return rc;
    }
    c->n_streams = n;
    for (size_t i = n; i-- > 0;) {
        c->streams[i].client = c;
        c->streams[i].n_events = &c->n_events;
        c->streams[i].next = c->free;
        c->free = &c->streams[i];
    }
    *out = c;
    return 0;
}

static void clear(struct stream *s) {
    buf_clear(&s->answer.text);
    s->answer = (struct answer){
        .prompt_tokens = -1, .output_tokens = -1, .cached_tokens = -1, .text = s->answer.text};
    buf_clear(&s->sse.pending);
    s->sse.begun = false;
    s->pattern.before = s->pattern.after = 0;
    buf_clear(&s->whole);
    s->is_stream = s->finished = s->typed = false;
}

static void finish(void *user, const struct http_answer *end) {
    struct stream *s = user;
    struct client *c = s->client;
    stream_conclude(s, end);
    s->busy = false;
    s->next = c->free;
    c->free = s;
    /* `done` may start a request on this very stream, which clears the answer: it gets its own. */
    struct answer answer = s->answer;
    s->answer.text = BUF_INIT;
    s->request.done(s->request.user, &answer);
    if (s->busy || s->answer.text.data)
        buf_free(&answer.text);
    else
        s->answer.text = answer.text;
}

int client_start(struct client *c, const struct client_request *r, struct error *err) {
    struct stream *s = c->free;
    if (!s) return error_set(err, QUIRE_EINTERNAL, "more requests than streams");
    clear(s);
    s->request = *r;
    s->answer.sent_us = clock_us();
    struct http_request q = {
        .url = r->url, .body = r->body, .receive = stream_receive, .done = finish, .user = s};
    int rc = http_start(c->http, &q, err);
    if (rc) return rc;
    c->free = s->next;
    s->busy = true;
    return 0;
}

int client_wait(struct client *c, uint64_t until_us, struct error *err) {
    return http_wait(c->http, until_us, err);
}

size_t client_active(const struct client *c) {
    return http_active(c->http);
}

uint64_t client_events(const struct client *c) {
    return c->n_events;
}

void client_cancel_all(struct client *c) {
    http_cancel_all(c->http);
}

void client_free(struct client *c) {
    if (!c) return;
    http_free(c->http);
    for (size_t i = 0; i < c->n_streams; i++) {
        struct stream *s = &c->streams[i];
        buf_free(&s->answer.text);
        buf_free(&s->sse.pending);
        buf_free(&s->pattern.last);
        buf_free(&s->whole);
    }
    free(c->streams);
    free(c);
}
