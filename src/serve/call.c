/* The life of one request that needs work: parsed and submitted on a worker, delivered on its loop.
 *
 * Owned by its loop thread except between workers_submit and the post back, when the worker has it. The
 * exchange is released exactly once, in call_free. A client that leaves is noticed by `gone`: a call in the
 * hands of a worker ends when it comes back, one that runs is cancelled at once. */
#include "serve/internal.h"

#include "base/clock.h"
#include "base/error.h"
#include "base/size.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#define RETRY_AFTER_S 1
#define FLUSH_BYTES   32768

static struct call *call_of_work(struct work *w) {
    return (struct call *)((char *)w - offsetof(struct call, work));
}
static struct call *call_of_node(struct loop_node *n) {
    return (struct call *)((char *)n - offsetof(struct call, node));
}

/* ---- list of the loop ---- */

static void list_add(struct call *c) {
    c->next = c->loop->calls;
    if (c->next) c->next->prev = c;
    c->loop->calls = c;
    c->listed = true;
}

static void list_remove(struct call *c) {
    if (!c->listed) return;
    if (c->prev)
        c->prev->next = c->next;
    else
        c->loop->calls = c->next;
    if (c->next) c->next->prev = c->prev;
    c->next = c->prev = NULL;
    c->listed = false;
}

/* ---- end ---- */

static void count(struct call *c, enum serve_outcome outcome) {
    if (!c->counted) atomic_fetch_add_explicit(&c->serve->outcomes[outcome], 1, memory_order_relaxed);
    c->counted = true;
}

static void log_access(struct call *c, unsigned status) {
    if (!c->serve->config.access_log) return;
    struct exchange_stats st;
    exchange_stats(c->x, &st);
    size_t prompt = 0, cached = 0, completion = 0;
    uint64_t queue_us = 0;
    const char *reason = "-";
    for (size_t i = 0; i < c->n_answers; i++) {
        struct quire_usage u = c->answers[i].stream ? quire_usage(c->answers[i].stream) : c->answers[i].usage;
        completion += u.completion_tokens;
        cached += c->answers[i].index % c->request.n ? 0 : u.cached_tokens;
        queue_us = u.queue_us > queue_us ? u.queue_us : queue_us;
        if (response_finish_name(c->answers[i].finish)) reason = response_finish_name(c->answers[i].finish);
    }
    for (size_t i = 0; i < c->n_prompts; i++) prompt += c->prompts[i].ids.n;
    uint64_t ttft_us = c->first_token_us > st.request_us ? c->first_token_us - st.request_us : 0;
    log_write(c->serve->config.log, LOG_INFO,
              "%s %s %s %u queue_ms=%.1f ttft_ms=%.1f total_ms=%.1f prompt=%zu cached=%zu output=%zu "
              "choices=%zu reason=%s",
              exchange_peer(c->x), c->id, exchange_path(c->x), status, (double)queue_us / 1e3,
              (double)ttft_us / 1e3, (double)(clock_us() - st.request_us) / 1e3, prompt, cached, completion,
              c->n_answers, exchange_gone(c->x) ? "gone" : reason);
}

static void call_free(struct call *c) {
    list_remove(c);
    exchange_set_user(c->x, NULL);
    exchange_release(c->x);
    for (size_t i = 0; i < c->n_answers; i++) answer_free(&c->answers[i]);
    free(c->answers);
    prompt_free(c->prompts, c->n_prompts);
    if (c->parsed) request_free(&c->request);
    buf_free(&c->body);
    free(c);
}

static void reply_error(struct call *c) {
    struct buf body = BUF_INIT;
    unsigned status = c->status ? c->status : api_error_status(&c->err);
    api_error_body(&body, status, &c->err);
    count(c, api_error_outcome(status));
    route_reply(c->serve, c->x, status, "application/json", &body, status == 503 ? RETRY_AFTER_S : 0);
    log_access(c, status);
    buf_free(&body);
    call_free(c);
}

static void end_gone(struct call *c) {
    count(c, OUTCOME_GONE);
    log_access(c, 499);
    call_free(c);
}

/* ---- on the worker ---- */

static void model_check(struct call *c) {
    const struct serve_config *config = &c->serve->config;
    if (!c->request.model) return;
    for (size_t i = 0; i < config->n_model_names; i++)
        if (!strcmp(c->request.model, config->model_names[i])) return;
    error_param(&c->err, QUIRE_ENOTFOUND, "model", "the model \"%.100s\" is not served here; served: %s",
                c->request.model, config->model_names[0]);
}

static int submit_answer(struct call *c, struct answer *a) {
    const struct token_prompt *p = &c->prompts[a->prompt];
    struct request *r = &c->request;
    struct quire_request q = {.prompt = p->ids.ids,
                              .n_prompt = p->ids.n,
                              .sampling = r->sampling,
                              .choice = (uint32_t)(a->index % r->n),
                              .priority = r->priority,
                              .cache_salt = r->cache_salt,
                              .skip_prefix_cache = r->skip_prefix_cache,
                              .waker = &c->loop->waker};
    if (!r->has_max_tokens) q.sampling.max_tokens = c->serve->limits.max_model_len - p->ids.n;
    return quire_submit(c->serve->engine, &q, &a->stream, &c->err);
}

static void submit_all(struct call *c) {
    size_t n = c->n_prompts * c->request.n;
    c->answers = calloc(n, sizeof *c->answers);
    if (!c->answers) {
        error_set(&c->err, QUIRE_ENOMEM, "out of memory for %zu answers", n);
        return;
    }
    for (size_t i = 0; i < n && !c->err.code; i++) {
        struct answer *a = &c->answers[i];
        *a = (struct answer){.index = i, .prompt = i / c->request.n, .stop_token = -1};
        c->n_answers = i + 1;
        if (atomic_load(&c->gone))
            error_set(&c->err, QUIRE_ECANCELED, "the client left");
        else
            submit_answer(c, a);
    }
}

static void write_tokenize(struct call *c) {
    struct json_out j;
    const struct token_buf *ids = &c->prompts[0].ids;
    json_out_init(&j, &c->body);
    json_out_obj(&j);
    json_out_key(&j, "count");
    json_out_u64(&j, ids->n);
    json_out_key(&j, "max_model_len");
    json_out_u64(&j, c->serve->limits.max_model_len);
    json_out_key(&j, "tokens");
    json_out_arr(&j);
    for (size_t i = 0; i < ids->n; i++) json_out_u64(&j, ids->ids[i]);
    json_out_arr_end(&j);
    json_out_key(&j, "token_strs");
    if (c->request.return_token_strs) {
        json_out_arr(&j);
        for (size_t i = 0; i < ids->n; i++) {
            size_t n;
            const uint8_t *bytes = tokenizer_bytes(c->serve->text.tokenizer, ids->ids[i], true, &n);
            json_out_strn(&j, (const char *)bytes, n);
        }
        json_out_arr_end(&j);
    } else {
        json_out_null(&j);
    }
    json_out_obj_end(&j);
}

static void write_detokenize(struct call *c) {
    struct buf text = BUF_INIT;
    struct detokenizer d = {0};
    struct json_out j;
    const struct token_buf *ids = &c->prompts[0].ids;
    for (size_t i = 0; i < ids->n; i++) {
        size_t n;
        const uint8_t *bytes =
            tokenizer_bytes(c->serve->text.tokenizer, ids->ids[i], !c->request.skip_special_tokens, &n);
        detokenizer_push(&d, bytes, n, &text);
    }
    detokenizer_finish(&d, &text);
    json_out_init(&j, &c->body);
    json_out_obj(&j);
    json_out_key(&j, "prompt");
    json_out_strn(&j, text.data ? text.data : "", text.len);
    json_out_obj_end(&j);
    if (!buf_ok(&text)) c->body.failed = true;
    buf_free(&text);
}

static void call_ready(struct loop *loop, struct loop_node *node);

static void work_on_call(struct work *w) {
    struct call *c = call_of_work(w);
    struct http1_span body = exchange_body(c->x);
    if (!request_parse(c->kind, body.data, body.n, &c->serve->limits, &c->request, &c->err)) {
        c->parsed = true;
        model_check(c);
        if (!c->err.code) prompt_build(c->serve, &c->request, &c->prompts, &c->n_prompts, &c->err);
        if (c->err.code) goto done;
        if (c->kind == REQUEST_TOKENIZE)
            write_tokenize(c);
        else if (c->kind == REQUEST_DETOKENIZE)
            write_detokenize(c);
        else
            submit_all(c);
    }
done:
    c->node.run = call_ready;
    loop_post(c->loop->loop, &c->node);
}

static void start_call(struct serve *s, struct exchange *x, enum request_kind kind, const char *prefix) {
    struct call *c = calloc(1, sizeof *c);
    if (!c) {
        exchange_release(x); /* answers 500 */
        return;
    }
    c->serve = s;
    c->x = x;
    c->kind = kind;
    c->loop = &s->loops[loop_index(exchange_loop(x))];
    uint64_t n = atomic_fetch_add_explicit(&s->next_id, 1, memory_order_relaxed);
    snprintf(c->id, sizeof c->id, "%s-%016" PRIx64 "%08" PRIx64, prefix, s->id_prefix, n);
    exchange_set_user(x, c);
    c->work.run = work_on_call;
    if (!workers_submit(s->workers, &c->work)) return;
    error_set(&c->err, QUIRE_EBUSY, "the server is overloaded: too many requests are waiting to be read");
    reply_error(c);
}

void handle_chat(struct serve *s, struct exchange *x) {
    start_call(s, x, REQUEST_CHAT, "chatcmpl");
}
void handle_completion(struct serve *s, struct exchange *x) {
    start_call(s, x, REQUEST_COMPLETION, "cmpl");
}
void handle_tokenize(struct serve *s, struct exchange *x) {
    start_call(s, x, REQUEST_TOKENIZE, "tok");
}
void handle_detokenize(struct serve *s, struct exchange *x) {
    start_call(s, x, REQUEST_DETOKENIZE, "detok");
}

/* ---- on the loop: delivery ---- */

static void begin_stream(struct call *c) {
    struct http_header h[8] = {
        {"Cache-Control", "no-cache"}, {"X-Accel-Buffering", "no"}, {"X-Request-Id", c->id}};
    size_t n = 3 + route_cors_headers(c->serve, c->x, h + 3);
    const char *given = exchange_header(c->x, "x-request-id");
    if (given) h[2].value = given;
    exchange_stream_begin(c->x, 200, "text/event-stream; charset=utf-8", h, n, NULL);
    c->last_write_us = clock_us();
}

/* Whether what is new in an answer is worth a chunk now: text, or scores whose text is still held back. */
static bool has_news(const struct call *c, const struct answer *a) {
    return a->text.len ||
           (a->n_new_tokens && (c->request.return_token_ids || c->request.sampling.n_logprobs >= 0)) ||
           (!a->role_sent && a->n_new_tokens);
}

static void end_answer(struct call *c, struct answer *a, const struct quire_event *e) {
    if (e->finish == QUIRE_FAILED) {
        c->err = *e->error;
        if (!c->err.code) error_set(&c->err, QUIRE_EINTERNAL, "the engine failed this request");
        c->status = c->err.code == QUIRE_ECANCELED ? 503 : 500;
    } else if (e->finish == QUIRE_ABORT) {
        error_set(&c->err, QUIRE_ECANCELED, "the server is shutting down");
        c->status = 503;
    }
    if (c->streaming && !c->status) {
        /* Text and finish go in chunks of their own, as OpenAI's clients know it. */
        if (has_news(c, a)) {
            response_chunk(c, a, false, &c->loop->out);
            a->role_sent = true;
            answer_clear(a);
        }
        response_chunk(c, a, true, &c->loop->out);
        a->role_sent = true;
        answer_clear(a);
    }
    c->n_finished++;
}

static void pump_answer(struct call *c, struct answer *a) {
    struct quire_event e;
    while (a->finish == QUIRE_RUNNING && !c->status && !(c->streaming && exchange_congested(c->x)) &&
           quire_poll(a->stream, &e)) {
        if (!c->first_token_us) c->first_token_us = clock_us();
        if (!a->started) answer_prompt(c, a);
        a->started = true;
        answer_event(c, a, &e);
        if (e.finish != QUIRE_RUNNING)
            end_answer(c, a, &e);
        else if (c->streaming && has_news(c, a)) {
            response_chunk(c, a, false, &c->loop->out);
            a->role_sent = true;
            answer_clear(a);
        }
    }
}

static void finish_whole(struct call *c) {
    struct buf body = BUF_INIT;
    response_whole(c, &body);
    count(c, buf_ok(&body) ? OUTCOME_OK : OUTCOME_FAILED);
    route_reply(c->serve, c->x, 200, "application/json", &body, 0);
    log_access(c, 200);
    buf_free(&body);
    call_free(c);
}

static void finish_stream(struct call *c) {
    struct buf *out = &c->loop->out;
    if (c->status) {
        /* Not a silent [DONE]: the client learns that the answer is not complete. */
        response_error_chunk(&c->err, c->status, out);
    } else {
        if (c->request.include_usage) response_usage_chunk(c, out);
        buf_puts(out, "data: [DONE]\n\n");
    }
    count(c, c->status ? api_error_outcome(c->status) : OUTCOME_OK);
    exchange_stream_end(c->x, out->data, out->len);
    log_access(c, c->status ? c->status : 200);
    buf_clear(out);
    call_free(c);
}

/* Hands over what has been written so far, so that congestion shows before the next choice adds to it. */
static void flush(struct call *c) {
    if (!c->loop->out.len) return;
    exchange_stream_write(c->x, c->loop->out.data, c->loop->out.len);
    buf_clear(&c->loop->out);
    c->last_write_us = clock_us();
}

/* Delivers what is there. May free the call. */
static void pump_call(struct call *c) {
    if (exchange_gone(c->x)) return; /* call_gone is due */
    buf_clear(&c->loop->out);
    for (size_t i = 0; i < c->n_answers; i++) {
        pump_answer(c, &c->answers[i]);
        if (c->loop->out.len > FLUSH_BYTES) flush(c);
    }
    if (c->status && !c->streaming) {
        reply_error(c);
    } else if (c->status || c->n_finished == c->n_answers) {
        if (c->streaming)
            finish_stream(c);
        else
            finish_whole(c);
    } else {
        flush(c);
    }
}

static void call_ready(struct loop *loop, struct loop_node *node) {
    struct call *c = call_of_node(node);
    (void)loop;
    if (atomic_load(&c->gone) || exchange_gone(c->x)) {
        end_gone(c);
    } else if (c->err.code) {
        reply_error(c);
    } else if (!c->n_answers) {
        count(c, OUTCOME_OK);
        route_reply(c->serve, c->x, 200, "application/json", &c->body, 0);
        log_access(c, 200);
        call_free(c);
    } else {
        c->streaming = c->request.stream;
        if (c->streaming) begin_stream(c);
        list_add(c);
        pump_call(c);
    }
}

void call_gone(struct serve *s, struct exchange *x, enum exchange_gone why) {
    struct call *c = exchange_user(x);
    (void)s;
    (void)why;
    if (!c) return;
    /* In a worker's hands it ends when it comes back. */
    if (!c->listed)
        atomic_store(&c->gone, true);
    else
        end_gone(c);
}

void call_writable(struct serve *s, struct exchange *x) {
    struct call *c = exchange_user(x);
    (void)s;
    if (c && c->listed) pump_call(c);
}

void serve_loop_pump(struct serve_loop *l) {
    for (struct call *c = l->calls, *next; c; c = next) {
        next = c->next;
        pump_call(c);
    }
}

void serve_loop_keep_alive(struct serve_loop *l) {
    static const char comment[] = ": keep-alive\n\n";
    uint64_t now = clock_us();
    for (struct call *c = l->calls; c; c = c->next) {
        if (!c->streaming || now - c->last_write_us < (uint64_t)l->serve->config.keep_alive_comment_ms * 1000)
            continue;
        exchange_stream_write(c->x, comment, sizeof comment - 1);
        c->last_write_us = now;
    }
}
