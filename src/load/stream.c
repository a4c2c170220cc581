#include "load/stream.h"

#include "base/clock.h"
#include "load/chunk.h"

#include <stdio.h>
#include <string.h>

#define WHOLE_MAX_BYTES ((size_t)16 << 20)

static void fail(struct stream *s, enum outcome outcome, const char *text, size_t n) {
    if (s->answer.outcome != OUTCOME_OK) return; /* the first failure is the cause */
    s->answer.outcome = outcome;
    if (n >= ANSWER_MESSAGE_BYTES) n = ANSWER_MESSAGE_BYTES - 1;
    while (n && ((unsigned char)text[n] & 0xc0) == 0x80) n--; /* not within a character */
    memcpy(s->answer.message, text, n);
    s->answer.message[n] = 0;
    for (char *p = s->answer.message; *p; p++)
        if ((unsigned char)*p < 0x20 || *p == 0x7f) *p = ' ';
}

static void fails(struct stream *s, enum outcome outcome, const char *text) {
    fail(s, outcome, text, strlen(text));
}

static void take_content(struct stream *s, const struct chunk *k) {
    struct answer *a = &s->answer;
    uint64_t now = clock_us();
    if (!a->first_us)
        a->first_us = now;
    else if (s->request.gaps)
        hdr_add(s->request.gaps, now - a->last_us);
    a->last_us = now;
    a->n_events++;
    ++*s->n_events;
    if (s->request.keep_text && k->text) buf_append(&a->text, k->text, k->text_bytes);
}

static void take_message(struct stream *s, const char *json, size_t n) {
    struct chunk k;
    if (chunk_read(json, n, &k)) {
        fail(s, OUTCOME_MALFORMED, json, n);
        return;
    }
    if (k.error)
        fail(s, OUTCOME_STREAM, k.message ? k.message : "no message", k.message ? k.message_bytes : 10);
    if (k.content) take_content(s, &k);
    if (*k.finish) memcpy(s->answer.finish, k.finish, sizeof k.finish);
    if (!k.has_usage) return;
    s->answer.prompt_tokens = k.prompt_tokens;
    s->answer.output_tokens = k.completion_tokens;
    s->answer.cached_tokens = k.cached_tokens;
}

/* A line of server-sent events. Comments, other fields and the empty line between events tell nothing here:
 * the API puts each message into one data line. */
static void take_line(struct stream *s, const char *line, size_t n) {
    if (n && line[n - 1] == '\r') n--;
    if (n < 5 || memcmp(line, "data:", 5)) return;
    line += 5;
    n -= 5;
    if (n && *line == ' ') {
        line++;
        n--;
    }
    if (n == 6 && !memcmp(line, "[DONE]", 6))
        s->finished = true;
    else if (n)
        take_message(s, line, n);
}

static void take_lines(struct stream *s, const char *data, size_t n) {
    const char *end = data + n, *newline;
    if (s->pending.len && (newline = memchr(data, '\n', n))) {
        buf_append(&s->pending, data, (size_t)(newline - data));
        if (buf_ok(&s->pending)) take_line(s, s->pending.data, s->pending.len);
        s->pending.len = 0;
        data = newline + 1;
    }
    while (!s->pending.len && (newline = memchr(data, '\n', (size_t)(end - data)))) {
        take_line(s, data, (size_t)(newline - data));
        data = newline + 1;
    }
    if (data < end) buf_append(&s->pending, data, (size_t)(end - data));
}

static void find_type(struct stream *s) {
    const char *type = NULL;
    long status = 0;
    curl_easy_getinfo(s->easy, CURLINFO_RESPONSE_CODE, &status);
    curl_easy_getinfo(s->easy, CURLINFO_CONTENT_TYPE, &type);
    s->answer.status = (unsigned)status;
    s->is_stream = !s->request.plain && status == 200 && type && !strncmp(type, "text/event-stream", 17);
    s->typed = true;
}

size_t stream_receive(char *data, size_t size, size_t n, void *user) {
    struct stream *s = user;
    n *= size;
    if (!s->typed) find_type(s);
    if (s->is_stream) {
        take_lines(s, data, n);
        return buf_ok(&s->pending) ? n : 0;
    }
    if (!buf_reserve(&s->whole, n) || s->whole.len + n > WHOLE_MAX_BYTES) return 0;
    buf_append(&s->whole, data, n);
    return n;
}

static void refused(struct stream *s) {
    struct chunk k;
    const char *body = s->whole.data ? s->whole.data : "";
    if (!chunk_read(body, s->whole.len, &k) && k.error && k.message)
        fail(s, OUTCOME_HTTP, k.message, k.message_bytes);
    else
        fail(s, OUTCOME_HTTP, s->whole.len ? body : "no message", s->whole.len ? s->whole.len : 10);
}

void stream_conclude(struct stream *s, CURLcode rc) {
    struct answer *a = &s->answer;
    a->end_us = clock_us();
    if (!s->typed) find_type(s);
    const char *why = *s->why ? s->why : curl_easy_strerror(rc);
    if (rc == CURLE_OPERATION_TIMEDOUT)
        fails(s, OUTCOME_TIMEOUT, why);
    else if (rc == CURLE_COULDNT_CONNECT || rc == CURLE_COULDNT_RESOLVE_HOST ||
             rc == CURLE_COULDNT_RESOLVE_PROXY || rc == CURLE_SSL_CONNECT_ERROR ||
             rc == CURLE_PEER_FAILED_VERIFICATION)
        fails(s, OUTCOME_CONNECT, why);
    else if (rc)
        fails(s, OUTCOME_CUT, why);
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
