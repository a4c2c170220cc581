/* Answers from an OpenAI-compatible server, streamed. */
#include "cli/terminal.h"

#include "base/clock.h"
#include "base/error.h"
#include "base/json_out.h"
#include "base/url.h"
#include "http/sse.h"

#include <stdlib.h>
#include <string.h>

#define MAX_REFUSAL_BYTES ((size_t)1 << 20)

struct reception {
    struct sse events;
    struct buf refusal; /* the body of an answer that is not a stream */
    struct buf *text;
    FILE *out;
    struct talk_figures *figures;
    struct error *err;
    uint64_t start_us;
    bool failed, done; /* done: the stream came to its end */
};

static size_t figure(const json_t *usage, const char *name) {
    json_int_t v = json_integer_value(json_object_get(usage, name));
    return v > 0 ? (size_t)v : 0;
}

static void take_message(void *user, const char *data, size_t n) {
    struct reception *r = user;
    json_t *root = json_loadb(data, n, 0, NULL);
    const json_t *choice = json_array_get(json_object_get(root, "choices"), 0);
    const json_t *text = json_object_get(json_object_get(choice, "delta"), "content");
    const json_t *usage = json_object_get(root, "usage");
    const char *failure = json_string_value(json_object_get(json_object_get(root, "error"), "message"));
    r->done |= n == 6 && !memcmp(data, "[DONE]", 6);
    if (failure) {
        error_set(r->err, QUIRE_EIO, "the server answers: %s", failure);
        r->failed = true;
    }
    if (json_string_length(text)) {
        if (!r->figures->first_us) r->figures->first_us = clock_us() - r->start_us;
        buf_append(r->text, json_string_value(text), json_string_length(text));
        fwrite(json_string_value(text), 1, json_string_length(text), r->out);
        fflush(r->out);
    }
    if (json_is_object(usage)) {
        r->figures->prompt_tokens = figure(usage, "prompt_tokens");
        r->figures->output_tokens = figure(usage, "completion_tokens");
        r->figures->cached_tokens = figure(json_object_get(usage, "prompt_tokens_details"), "cached_tokens");
    }
    json_decref(root);
}

static bool receive(void *user, const struct http_answer *answer, const char *data, size_t n) {
    struct reception *r = user;
    if (answer->status == 200) return sse_feed(&r->events, data, n, take_message, r);
    r->refusal.limit_bytes = MAX_REFUSAL_BYTES;
    buf_append(&r->refusal, data, n);
    return buf_ok(&r->refusal);
}

static int request_body(const struct talker *t, json_t *messages, struct buf *out, struct error *err) {
    const struct talk_options *o = t->options;
    json_t *body =
        json_pack("{s:O, s:b, s:{s:b}, s:f, s:f}", "messages", messages, "stream", 1, "stream_options",
                  "include_usage", 1, "temperature", o->temperature, "top_p", o->top_p);
    if (body && o->model) json_object_set_new(body, "model", json_string(o->model));
    if (body && o->max_tokens) json_object_set_new(body, "max_tokens", json_integer(o->max_tokens));
    if (body && o->min_p > 0) json_object_set_new(body, "min_p", json_real(o->min_p));
    if (body && o->has_seed) json_object_set_new(body, "seed", json_integer(o->engine.seed));
    if (body && o->top_k) json_object_set_new(body, "top_k", json_integer(o->top_k));
    char *text = body ? json_dumps(body, JSON_COMPACT) : NULL;
    json_decref(body);
    if (text) buf_puts(out, text);
    free(text);
    return text && buf_ok(out) ? 0 : error_set(err, QUIRE_ENOMEM, "out of memory");
}

static int judge(const struct reception *r, const struct http_answer *a, struct error *err) {
    if (a->end != HTTP_COMPLETE)
        return error_set(err, QUIRE_EIO, "no answer from the server: %s%s", a->why, http_advice(a));
    if (a->status == 200 && r->failed) return err->code;
    if (a->status == 200 && !r->done) return error_set(err, QUIRE_EIO, "the server's answer was cut short");
    if (a->status == 200) return 0;
    json_t *root = r->refusal.data ? json_loads(r->refusal.data, 0, NULL) : NULL;
    const char *text = json_string_value(json_object_get(json_object_get(root, "error"), "message"));
    error_set(err, QUIRE_EIO, "the server answers %u: %s", a->status, text ? text : "no message");
    json_decref(root);
    return QUIRE_EIO;
}

int talk_remote_open(struct talker *t, const char *url, struct error *err) {
    const struct talk_options *o = t->options;
    struct http_config config = {
        .bearer = o->api_key, .ca_cert = o->ca_cert, .insecure = o->insecure, .n_at_once = 1};
    t->answer = talk_remote;
    t->url = url;
    int rc = http_check_trust(&config, url, err);
    return rc ? rc : http_new(&config, &t->http, err);
}

int talk_remote(struct talker *t, json_t *messages, FILE *out, struct buf *text, struct talk_figures *f,
                struct error *err) {
    struct reception r = {.text = text, .out = out, .figures = f, .err = err, .start_us = clock_us()};
    struct buf body = BUF_INIT, url = BUF_INIT;
    struct http_answer answer;
    int rc = request_body(t, messages, &body, err);
    buf_append(&url, t->url, url_server_len(t->url));
    buf_puts(&url, "/v1/chat/completions");
    if (!rc && !buf_ok(&url)) rc = error_set(err, QUIRE_ENOMEM, "out of memory");
    if (!rc) {
        struct http_request q = {.url = url.data, .body = &body, .receive = receive, .user = &r};
        rc = http_perform(t->http, &q, &answer, err);
    }
    if (!rc) rc = judge(&r, &answer, err);
    f->total_us = clock_us() - r.start_us;
    buf_free(&body);
    buf_free(&url);
    buf_free(&r.events.pending);
    buf_free(&r.refusal);
    return rc;
}
