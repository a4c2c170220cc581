/* Answers from an OpenAI-compatible server, streamed. */
#include "cli/terminal.h"

#include "base/clock.h"
#include "base/error.h"
#include "base/json_out.h"
#include "base/url.h"

#include <curl/curl.h>
#include <stdlib.h>
#include <string.h>

struct reception {
    struct buf pending; /* bytes of an unfinished line */
    struct buf whole;   /* the first bytes of the body, for an error that is not a stream */
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

static void take_message(struct reception *r, const char *line) {
    json_t *root = json_loads(line, 0, NULL);
    const json_t *choice = json_array_get(json_object_get(root, "choices"), 0);
    const json_t *text = json_object_get(json_object_get(choice, "delta"), "content");
    const json_t *usage = json_object_get(root, "usage");
    const char *failure = json_string_value(json_object_get(json_object_get(root, "error"), "message"));
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

static size_t receive(char *data, size_t size, size_t n, void *user) {
    struct reception *r = user;
    n *= size;
    if (r->whole.len < 4096) buf_append(&r->whole, data, n);
    buf_append(&r->pending, data, n);
    if (!buf_ok(&r->pending)) return 0;
    char *line = r->pending.data, *end;
    while ((end = memchr(line, '\n', (size_t)(r->pending.data + r->pending.len - line)))) {
        *end = 0;
        if (!strncmp(line, "data: {", 7)) take_message(r, line + 6);
        r->done |= !strncmp(line, "data: [DONE]", 12);
        line = end + 1;
    }
    size_t rest = (size_t)(r->pending.data + r->pending.len - line);
    memmove(r->pending.data, line, rest);
    r->pending.len = rest;
    return n;
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

static int perform(CURL *curl, struct reception *r, struct error *err) {
    char why[CURL_ERROR_SIZE] = "";
    curl_easy_setopt(curl, CURLOPT_ERRORBUFFER, why);
    CURLcode rc = curl_easy_perform(curl);
    long status = 0;
    curl_easy_getinfo(curl, CURLINFO_RESPONSE_CODE, &status);
    if (rc)
        return error_set(err, QUIRE_EIO, "no answer from the server: %s",
                         *why ? why : curl_easy_strerror(rc));
    if (status == 200 && r->failed) return err->code;
    if (status == 200 && !r->done) return error_set(err, QUIRE_EIO, "the server's answer was cut short");
    if (status == 200) return 0;
    json_t *root = r->whole.data ? json_loads(r->whole.data, 0, NULL) : NULL;
    const char *text = json_string_value(json_object_get(json_object_get(root, "error"), "message"));
    error_set(err, QUIRE_EIO, "the server answers %ld: %s", status, text ? text : "no message");
    json_decref(root);
    return QUIRE_EIO;
}

int talk_remote(struct talker *t, json_t *messages, FILE *out, struct buf *text, struct talk_figures *f,
                struct error *err) {
    struct reception r = {.text = text, .out = out, .figures = f, .err = err, .start_us = clock_us()};
    struct buf body = BUF_INIT, url = BUF_INIT, key = BUF_INIT;
    struct curl_slist *headers = curl_slist_append(NULL, "Content-Type: application/json");
    CURL *curl = curl_easy_init();
    int rc = curl && headers ? request_body(t, messages, &body, err)
                             : error_set(err, QUIRE_ENOMEM, "out of memory");
    if (!rc) {
        buf_append(&url, t->url, url_server_len(t->url));
        buf_puts(&url, "/v1/chat/completions");
        if (t->options->api_key) {
            buf_printf(&key, "Authorization: Bearer %s", t->options->api_key);
            headers = curl_slist_append(headers, key.data);
        }
        curl_easy_setopt(curl, CURLOPT_URL, url.data);
        curl_easy_setopt(curl, CURLOPT_HTTPHEADER, headers);
        curl_easy_setopt(curl, CURLOPT_POSTFIELDS, body.data);
        curl_easy_setopt(curl, CURLOPT_POSTFIELDSIZE_LARGE, (curl_off_t)body.len);
        curl_easy_setopt(curl, CURLOPT_WRITEFUNCTION, receive);
        curl_easy_setopt(curl, CURLOPT_WRITEDATA, &r);
        curl_easy_setopt(curl, CURLOPT_CONNECTTIMEOUT, 10L);
        rc = perform(curl, &r, err);
    }
    f->total_us = clock_us() - r.start_us;
    curl_easy_cleanup(curl);
    curl_slist_free_all(headers);
    buf_free(&body);
    buf_free(&url);
    buf_free(&key);
    buf_free(&r.pending);
    buf_free(&r.whole);
    return rc;
}
