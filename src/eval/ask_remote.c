/* Asks of an OpenAI-compatible server: /v1/completions, or /v1/chat/completions with `chat`. A continuation
 * is scored by sending prompt and continuation with echo and logprobs and asking for no answer. */
#include "eval/ask.h"

#include "base/clock.h"
#include "base/error.h"
#include "base/json_out.h"
#include "base/url.h"
#include "http/http.h"

#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#define MAX_ANSWER_BYTES ((size_t)64 << 20)
#define WAIT_US          100000

struct slot {
    size_t ask;
    struct buf url, body, answer;
    bool ended;
    struct http_answer end;
};

struct flight {
    const struct eval_context *c;
    struct ask *asks;
    struct http *http;
    struct slot *slots; /* [n] a ring */
    size_t n, first, n_busy;
};

static int no_memory(struct error *err) {
    return error_set(err, QUIRE_ENOMEM, "out of memory for a request");
}

/* ---- requests ---- */

static void put_url(struct buf *out, const char *url, const char *path) {
    buf_append(out, url, url_server_len(url));
    buf_puts(out, path);
}

static void put_prompt(struct json_out *j, const struct ask *a) {
    if (a->chat) {
        json_out_key(j, "messages");
        json_out_arr(j);
        json_out_obj(j);
        json_out_key(j, "role");
        json_out_str(j, "user");
        json_out_key(j, "content");
        json_out_strn(j, a->prompt.data, a->prompt.len);
        json_out_obj_end(j);
        json_out_arr_end(j);
        return;
    }
    struct buf whole = BUF_INIT;
    buf_append(&whole, a->prompt.data, a->prompt.len);
    buf_append(&whole, a->continuation.data, a->continuation.len);
    json_out_key(j, "prompt");
    json_out_strn(j, whole.data ? whole.data : "", whole.len);
    if (!buf_ok(&whole)) j->out->failed = true;
    buf_free(&whole);
}

static void put_body(struct buf *out, const struct eval_context *c, const struct ask *a) {
    struct json_out j;
    bool scores = a->continuation.data;
    json_out_init(&j, out);
    json_out_obj(&j);
    json_out_key(&j, "model");
    json_out_str(&j, c->remote->model);
    put_prompt(&j, a);
    json_out_key(&j, "max_tokens");
    json_out_u64(&j, scores ? 0 : a->max_tokens);
    json_out_key(&j, "temperature");
    json_out_f64(&j, scores ? 0 : a->temperature);
    if (scores) {
        json_out_key(&j, "echo");
        json_out_bool(&j, true);
        json_out_key(&j, "logprobs");
        json_out_u64(&j, 1);
    } else {
        json_out_key(&j, "seed");
        json_out_u64(&j, a->seed);
    }
    if (!scores && a->n_stop) {
        json_out_key(&j, "stop");
        json_out_arr(&j);
        for (size_t i = 0; i < a->n_stop; i++) json_out_strn(&j, a->stop[i].data, a->stop[i].len);
        json_out_arr_end(&j);
    }
    json_out_obj_end(&j);
}

static void ended(void *user, const struct http_answer *end) {
    struct slot *s = user;
    s->end = *end;
    s->ended = true;
}

static int start(struct flight *f, struct slot *s, const char *path, struct error *err) {
    put_url(&s->url, f->c->remote->url, path);
    if (!buf_ok(&s->url) || !buf_ok(&s->body)) return no_memory(err);
    s->answer.limit_bytes = MAX_ANSWER_BYTES;
    s->ended = false;
    struct http_request r = {.url = s->url.data,
                             .body = s->body.len ? &s->body : NULL,
                             .into = &s->answer,
                             .done = ended,
                             .user = s};
    return http_start(f->http, &r, err);
}

static void clear(struct slot *s) {
    buf_free(&s->url);
    buf_free(&s->body);
    buf_free(&s->answer);
    *s = (struct slot){0};
}

static int launch(struct flight *f, size_t i, struct error *err) {
    struct slot *s = &f->slots[(f->first + f->n_busy) % f->n];
    const struct ask *a = &f->asks[i];
    if (a->chat && a->continuation.data)
        return error_set(
            err, QUIRE_EUNSUPPORTED,
            "%s: a server does not score continuations of a chat; use --no-chat or a model in this process",
            a->where);
    s->ask = i;
    put_body(&s->body, f->c, a);
    int rc = start(f, s, a->chat ? "/v1/chat/completions" : "/v1/completions", err);
    if (!rc) f->n_busy++;
    return rc;
}

/* ---- answers ---- */

static int parse(struct slot *s, const char *where, json_t **root, struct error *err) {
    *root = NULL;
    if (!buf_ok(&s->answer))
        return error_set(err, QUIRE_ELIMIT, "%s: the server's answer is larger than %zu MiB", where,
                         MAX_ANSWER_BYTES >> 20);
    if (s->end.end != HTTP_COMPLETE)
        return error_set(err, QUIRE_EIO, "%s: no answer from the server: %s%s", where, s->end.why,
                         http_advice(&s->end));
    *root = json_loadb(s->answer.data ? s->answer.data : "", s->answer.len, JSON_ALLOW_NUL, NULL);
    const char *text = json_string_value(json_object_get(json_object_get(*root, "error"), "message"));
    if (s->end.status == 200 && *root) return 0;
    if (s->end.status == 200) return error_set(err, QUIRE_EIO, "%s: the server's answer is not JSON", where);
    error_set(err, QUIRE_EIO, "%s: the server answers %u: %s", where, s->end.status,
              text ? text : "no message");
    json_decref(*root);
    *root = NULL;
    return QUIRE_EIO;
}

static size_t characters(const char *s, size_t n) {
    size_t count = 0;
    for (size_t i = 0; i < n; i++) count += ((unsigned char)s[i] & 0xc0) != 0x80;
    return count;
}

/* The continuation's tokens are those that end behind the prompt. text_offset counts characters. */
static int take_scores(const json_t *choice, struct ask *a, struct error *err) {
    const json_t *l = json_object_get(choice, "logprobs"), *values = json_object_get(l, "token_logprobs"),
                 *offsets = json_object_get(l, "text_offset");
    size_t n = json_array_size(values), prompt = characters(a->prompt.data, a->prompt.len);
    if (!n || json_array_size(offsets) != n)
        return error_set(
            err, QUIRE_EUNSUPPORTED,
            "%s: the server does not return the log probabilities of a prompt (echo with logprobs)",
            a->where);
    size_t end = prompt + characters(a->continuation.data, a->continuation.len);
    for (size_t i = n; i-- > 0;) {
        size_t begin = (size_t)json_integer_value(json_array_get(offsets, i));
        if (end <= prompt) break;
        if (!json_is_number(json_array_get(values, i)))
            return error_set(err, QUIRE_EIO, "%s: the server gives token %zu no log probability", a->where,
                             i);
        a->logprob += json_number_value(json_array_get(values, i));
        a->n_tokens++;
        end = begin;
    }
    return 0;
}

static int take(const json_t *root, struct ask *a, struct error *err) {
    const json_t *choice = json_array_get(json_object_get(root, "choices"), 0);
    if (a->continuation.data) return take_scores(choice, a, err);
    const json_t *text = a->chat ? json_object_get(json_object_get(choice, "message"), "content")
                                 : json_object_get(choice, "text");
    if (!choice || (!json_is_string(text) && !json_is_null(text)))
        return error_set(err, QUIRE_EIO, "%s: the server's answer has no text", a->where);
    buf_append(&a->text, json_string_value(text), json_string_length(text));
    a->n_tokens =
        (size_t)json_integer_value(json_object_get(json_object_get(root, "usage"), "completion_tokens"));
    return buf_ok(&a->text) ? 0 : no_memory(err);
}

/* ---- running ---- */

static int open_flight(struct flight *f, const struct eval_context *c, struct ask *asks, size_t n,
                       struct error *err) {
    struct http_config config = c->remote->http;
    config.n_at_once = n;
    *f = (struct flight){.c = c, .asks = asks, .n = n, .slots = calloc(n, sizeof *f->slots)};
    return f->slots ? http_new(&config, &f->http, err) : no_memory(err);
}

static void close_flight(struct flight *f) {
    http_free(f->http); /* before what its requests point to */
    for (size_t i = 0; f->slots && i < f->n; i++) clear(&f->slots[i]);
    free(f->slots);
}

/* Until the oldest has ended. */
static int wait_oldest(struct flight *f, struct error *err) {
    while (!f->slots[f->first].ended) {
        int rc = http_wait(f->http, clock_us() + WAIT_US, err);
        if (rc) return rc;
        if (eval_stopped(f->c)) return EVAL_STOPPED;
    }
    return 0;
}

static int land(struct flight *f, struct error *err) {
    struct slot *s = &f->slots[f->first];
    json_t *root;
    int rc = wait_oldest(f, err);
    if (!rc) rc = parse(s, f->asks[s->ask].where, &root, err);
    if (rc) return rc;
    rc = take(root, &f->asks[s->ask], err);
    json_decref(root);
    clear(s);
    f->first = (f->first + 1) % f->n;
    f->n_busy--;
    return rc;
}

int asks_remote(const struct eval_context *c, struct ask *asks, size_t n,
                int (*done)(void *user, size_t i, struct error *err), void *user, struct error *err) {
    struct flight f;
    int rc = open_flight(&f, c, asks, c->remote->concurrency, err);
    for (size_t next = 0; !rc && (next < n || f.n_busy);) {
        if (next < n && f.n_busy < f.n) {
            rc = launch(&f, next++, err);
            continue;
        }
        size_t i = f.slots[f.first].ask;
        rc = land(&f, err);
        if (!rc) rc = done(user, i, err);
        if (!rc && i + 1 < n && eval_stopped(c)) rc = EVAL_STOPPED;
    }
    close_flight(&f);
    return rc;
}

int eval_remote_open(const struct eval_remote *r, char **model, struct error *err) {
    struct eval_context c = {.remote = r};
    struct flight f;
    json_t *root = NULL;
    *model = NULL;
    int rc = open_flight(&f, &c, NULL, 1, err);
    if (!rc) rc = start(&f, &f.slots[0], "/v1/models", err);
    if (!rc) rc = wait_oldest(&f, err);
    if (!rc) rc = parse(&f.slots[0], r->url, &root, err);
    const json_t *list = json_object_get(root, "data");
    for (size_t i = 0; !rc && i < json_array_size(list) && !*model; i++) {
        const char *id = json_string_value(json_object_get(json_array_get(list, i), "id"));
        if (id && (!r->model || !strcmp(r->model, id)) && !(*model = strdup(id))) rc = no_memory(err);
    }
    if (!rc && !*model)
        rc = r->model
                 ? error_set(err, QUIRE_ENOTFOUND, "%s: the server has no model \"%.100s\"", r->url, r->model)
                 : error_set(err, QUIRE_EIO, "%s: the server names no model", r->url);
    if (root) json_decref(root);
    close_flight(&f);
    return rc;
}
