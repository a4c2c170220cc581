#include "load/stream.h"

#include "base/clock.h"
#include "base/utf8.h"
#include "load/chunk.h"

#include <stdio.h>
#include <string.h>
#include <strings.h>

#define WHOLE_MAX_BYTES ((size_t)16 << 20)

static void fail(struct stream *s, enum outcome outcome, const char *text, size_t n) {
    char line[ANSWER_MESSAGE_BYTES];
    if (s->answer.outcome != OUTCOME_OK) return; /* the first failure is the cause */
    s->answer.outcome = outcome;
    if (n > sizeof line) n = sizeof line;
    for (size_t i = 0; i < n; i++) line[i] = (unsigned char)text[i] < 0x20 ? ' ' : text[i];
    utf8_printable(s->answer.message, sizeof s->answer.message, line, n);
}

/* With a message as the server's JSON has it. */
static void fail_json(struct stream *s, enum outcome outcome, const struct chunk *k) {
    char text[ANSWER_MESSAGE_BYTES];
    if (k->message)
        fail(s, outcome, text, chunk_unescape(k->message, k->message_bytes, text, sizeof text));
    else
        fail(s, outcome, "no message", 10);
}

static void fails(struct stream *s, enum outcome outcome, const char *text) {
    fail(s, outcome, text, strlen(text));
}

static void take_content(struct stream *s, const struct chunk *k) {
    struct answer *a = &s->answer;
    uint64_t now = clock_us();
    if (!a->first_us) {
        a->first_us = now;
    } else {
        uint64_t gap = now - a->last_us;
        if (gap > a->longest_gap_us) a->longest_gap_us = gap;
        if (s->request.gaps) hdr_add(s->request.gaps, gap);
    }
    a->last_us = now;
    a->n_events++;
    ++*s->n_events;
    if (s->request.keep_text && k->text) buf_append(&a->text, k->text, k->text_bytes);
}

static void take_message(struct stream *s, const char *json, size_t n) {
    struct chunk k;
    if (chunk_read_next(&s->pattern, json, n, &k)) {
        fail(s, OUTCOME_MALFORMED, json, n);
        return;
    }
    if (k.error) fail_json(s, OUTCOME_STREAM, &k);
    if (k.content) take_content(s, &k);
    if (*k.finish) memcpy(s->answer.finish, k.finish, sizeof k.finish);
    if (!k.has_usage) return;
    s->answer.prompt_tokens = k.prompt_tokens;
    s->answer.output_tokens = k.completion_tokens;
    s->answer.cached_tokens = k.cached_tokens;
}

static void take_data(void *user, const char *data, size_t n) {
    struct stream *s = user;
    if (s->finished) return; /* what follows the end is no part of the answer */
    if (n == 6 && !memcmp(data, "[DONE]", 6))
        s->finished = true;
    else
        take_message(s, data, n);
}

static bool is_event_stream(const char *type) {
    size_t n = strcspn(type, "; \t");
    return n == 17 && !strncasecmp(type, "text/event-stream", n);
}

static void find_type(struct stream *s, const struct http_answer *a) {
    s->answer.status = a->status;
    s->is_stream = !s->request.plain && a->status == 200 && is_event_stream(a->type);
    if (!s->request.plain && *a->encoding && strcasecmp(a->encoding, "identity") != 0) {
        char line[80];
        snprintf(line, sizeof line, "the answer is compressed (%s), which was not asked for", a->encoding);
        fails(s, OUTCOME_MALFORMED, line);
    }
    s->typed = true;
}

bool stream_receive(void *user, const struct http_answer *a, const char *data, size_t n) {
    struct stream *s = user;
    if (!s->typed) find_type(s, a);
    if (s->is_stream) return sse_feed(&s->sse, data, n, take_data, s);
    s->whole.limit_bytes = WHOLE_MAX_BYTES;
    buf_append(&s->whole, data, n);
    return buf_ok(&s->whole);
}

static void refused(struct stream *s) {
    struct chunk k;
    const char *body = s->whole.data ? s->whole.data : "";
    if (!chunk_read(body, s->whole.len, &k) && k.error && k.message)
        fail_json(s, OUTCOME_HTTP, &k);
    else
        fail(s, OUTCOME_HTTP, s->whole.len ? body : "no message", s->whole.len ? s->whole.len : 10);
}

static enum outcome outcome_of(enum http_end end) {
    switch (end) {
    case HTTP_COMPLETE: return OUTCOME_OK;
    case HTTP_CANCELED: return OUTCOME_CANCELED;
    case HTTP_TIMEOUT: return OUTCOME_TIMEOUT;
    case HTTP_CUT:
    case HTTP_STOPPED: return OUTCOME_CUT;
    default: return OUTCOME_CONNECT;
    }
}

void stream_conclude(struct stream *s, const struct http_answer *end) {
    struct answer *a = &s->answer;
    a->end_us = clock_us();
    if (!s->typed) find_type(s, end);
    char why[HTTP_WHY_BYTES + 100];
    snprintf(why, sizeof why, "%s%s", end->why, http_advice(end));
    if (end->end != HTTP_COMPLETE)
        fails(s, outcome_of(end->end), why);
    else if (a->status != 200)
        refused(s);
    if (s->request.plain) {
        struct buf swap = a->text;
        a->text = s->whole;
        s->whole = swap;
        return;
    }
    if (a->outcome != OUTCOME_OK) return;
    if (!s->is_stream)
        fails(s, OUTCOME_MALFORMED, "the answer is no event stream though one was asked for");
    else if (!s->finished && !*a->finish)
        fails(s, OUTCOME_CUT, "the stream ended without an end");
    else if (a->prompt_tokens < 0 || a->output_tokens < 0)
        fails(s, OUTCOME_NO_USAGE, "the answer has no usage, so its tokens cannot be counted");
}
