/* The life of one request that needs work: parsed and submitted on a worker, delivered on its loop.
 *
 * Owned by its loop thread except between workers_submit and the post back, when the worker has it (then it
 * is not in the loop's list). The exchange is released exactly once, in call_free. A client that leaves is
 * noticed by `gone`: a call in the hands of a worker ends when it comes back, one that runs is cancelled at
 * once. */
#include "serve/internal.h"

#include "base/clock.h"
#include "base/error.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#define FLUSH_BYTES 32768
#define RENDER_INLINE_BYTES                                                                                  \
    65536 /* larger answers are made into JSON on a worker: the loop has other clients */

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

bool call_hold(struct call *c, size_t bytes) {
    _Atomic size_t *held = &c->serve->held_bytes;
    if (bytes > c->held_bytes) {
        size_t more = bytes - c->held_bytes, now = atomic_fetch_add(held, more) + more;
        if (now > c->serve->config.max_answer_bytes) {
            atomic_fetch_sub(held, more);
            return false;
        }
    } else {
        atomic_fetch_sub(held, c->held_bytes - bytes);
    }
    c->held_bytes = bytes;
    return true;
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
    call_hold(c, 0);
    free(c);
}

static void reply_error(struct call *c) {
    struct buf body = BUF_INIT;
    unsigned status = c->status ? c->status : api_error_status(&c->err);
    api_error_body(&body, status, &c->err);
    count(c, api_error_outcome(status));
    route_reply(c->serve, c->x, status, "application/json", &body, c->id);
    access_log_call(c, status);
    buf_free(&body);
    call_free(c);
}

static void end_gone(struct call *c) {
    count(c, OUTCOME_GONE);
    access_log_call(c, 499);
    call_free(c);
}

/* The answer that is in c->body. */
static void reply_body(struct call *c) {
    unsigned status = buf_ok(&c->body) ? 200 : 500;
    count(c, api_error_outcome(status));
    route_reply(c->serve, c->x, status, "application/json", &c->body, c->id);
    access_log_call(c, status);
    call_free(c);
}

/* ---- to a worker and back ---- */

static void call_ready(struct loop *loop, struct loop_node *node);

static void give_back(struct call *c, void (*run)(struct loop *, struct loop_node *)) {
    c->node.run = run;
    loop_post(c->loop->loop, &c->node);
}

static void work_on_call(struct work *w) {
    struct call *c = call_of_work(w);
    call_work(c);
    give_back(c, call_ready);
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
    c->created_unix_s = clock_unix_s();
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
void handle_embedding(struct serve *s, struct exchange *x) {
    start_call(s, x, REQUEST_EMBEDDING, "embd");
}
void handle_rerank(struct serve *s, struct exchange *x) {
    start_call(s, x, REQUEST_RERANK, "rerank");
}
void handle_score(struct serve *s, struct exchange *x) {
    start_call(s, x, REQUEST_SCORE, "score");
}
void handle_tokenize(struct serve *s, struct exchange *x) {
    start_call(s, x, REQUEST_TOKENIZE, "tok");
}
void handle_detokenize(struct serve *s, struct exchange *x) {
    start_call(s, x, REQUEST_DETOKENIZE, "detok");
}

/* ---- on the loop: delivery ---- */

static void begin_stream(struct call *c) {
    struct http_header h[2 + ROUTE_HEADERS] = {{"Cache-Control", "no-cache"}, {"X-Accel-Buffering", "no"}};
    size_t n = 2 + route_headers(c->serve, c->x, c->id, h + 2);
    exchange_stream_begin(c->x, 200, "text/event-stream; charset=utf-8", h, n, NULL);
    c->last_write_us = clock_us();
}

/* Hands over what has been written so far, so that congestion shows before more is added. */
static void flush(struct call *c) {
    struct buf *out = &c->loop->out;
    if (!out->len) return;
    exchange_stream_write(c->x, out->data, out->len);
    buf_clear(out);
    c->last_write_us = clock_us();
}

static void fail(struct call *c, unsigned status, int code, const char *text) {
    error_set(&c->err, code, "%s", text);
    c->status = status;
}

static void put_chunk(struct call *c, struct answer *a, bool end) {
    bool ok = answer_ok(a);
    response_chunk(c, a, end, &c->loop->out);
    a->role_sent = true;
    answer_clear(a);
    if (!ok || !buf_ok(&c->loop->out)) {
        buf_clear(&c->loop->out);
        fail(c, 500, QUIRE_ENOMEM, "out of memory while writing the answer");
    } else if (c->loop->out.len > FLUSH_BYTES) {
        flush(c);
    }
}

/* Whether what is new in an answer is worth a chunk now: text, or scores whose text is still held back. */
static bool has_news(const struct answer *a) {
    return a->text.len || a->logprobs.len || a->token_ids.len || (!a->role_sent && a->n_new_tokens);
}

static void end_answer(struct call *c, struct answer *a, const struct quire_event *e) {
    c->n_finished++;
    if (e->finish == QUIRE_ABORT) {
        fail(c, 503, QUIRE_ECANCELED, "the server is shutting down");
    } else if (e->finish == QUIRE_FAILED) {
        c->err = *e->error;
        c->status = c->err.code == QUIRE_ECANCELED ? 503 : 500;
    } else if (c->streaming) {
        /* Text and finish go in chunks of their own, as OpenAI's clients know it. */
        if (has_news(a)) put_chunk(c, a, false);
        put_chunk(c, a, true);
    }
}

/* The prompt in front of the first event. False: not all of it could be handed over yet. */
static bool pump_prompt(struct call *c, struct answer *a) {
    bool failed = a->event.finish == QUIRE_ABORT || a->event.finish == QUIRE_FAILED;
    if (a->started || failed) return true;
    if (!c->streaming) {
        answer_skip_prompt(c, a);
    } else {
        for (bool more = true; more;) {
            if (exchange_congested(c->x) || c->status) return false;
            more = answer_prompt(c, a);
            if (more) put_chunk(c, a, false); /* the last piece goes with the first token */
        }
    }
    a->started = true;
    return true;
}

static void pump_answer(struct call *c, struct answer *a) {
    struct quire_event e;
    while (a->finish == QUIRE_RUNNING && !c->status && !(c->streaming && exchange_congested(c->x)) &&
           (a->has_event || quire_poll(a->stream, &a->event))) {
        if (!c->first_token_us) c->first_token_us = clock_us();
        a->has_event = true;
        if (!pump_prompt(c, a)) return;
        a->has_event = false;
        e = a->event;
        answer_event(c, a, &e);
        if (e.finish != QUIRE_RUNNING)
            end_answer(c, a, &e);
        else if (c->streaming && has_news(a))
            put_chunk(c, a, false);
    }
}

static void call_rendered(struct loop *loop, struct loop_node *node) {
    struct call *c = call_of_node(node);
    (void)loop;
    if (atomic_load(&c->gone) || exchange_gone(c->x))
        end_gone(c);
    else
        reply_body(c);
}

static void work_on_answer(struct work *w) {
    struct call *c = call_of_work(w);
    call_render(c);
    give_back(c, call_rendered);
}

static void finish_whole(struct call *c) {
    bool large = c->held_bytes > RENDER_INLINE_BYTES; /* scores of the prompt count, too */
    list_remove(c);
    c->work.run = work_on_answer;
    if (large && !workers_submit(c->serve->workers, &c->work)) return;
    call_render(c);
    reply_body(c);
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
    if (buf_ok(out))
        exchange_stream_end(c->x, out->data, out->len);
    else
        exchange_stream_abort(c->x);
    access_log_call(c, c->status ? c->status : 200);
    buf_clear(out);
    call_free(c);
}

/* What a whole answer has grown to. */
static void hold_answers(struct call *c) {
    size_t bytes = c->score_bytes;
    for (size_t i = 0; i < c->n_answers; i++) bytes += answer_bytes(&c->answers[i]);
    if (bytes > c->held_bytes && !call_hold(c, bytes))
        fail(c, 503, QUIRE_EBUSY,
             "unfinished answers take too much memory here; ask for fewer or shorter ones, or stream them");
}

/* Delivers what there is. May free the call. */
static void pump_call(struct call *c) {
    if (exchange_gone(c->x)) return; /* call_gone is due */
    buf_clear(&c->loop->out);
    for (size_t i = 0; i < c->n_answers; i++) pump_answer(c, &c->answers[i]);
    if (!c->streaming) hold_answers(c);
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
    exchange_drop_body(c->x);
    if (atomic_load(&c->gone) || exchange_gone(c->x)) {
        end_gone(c);
    } else if (c->err.code) {
        reply_error(c);
    } else if (!c->n_answers) {
        reply_body(c);
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

/* Streams get their cancellation as an error, whole answers as a 503. */
static void cancel(struct call *c) {
    for (size_t i = 0; i < c->n_answers && !c->cancelled; i++) quire_cancel(c->answers[i].stream);
    c->cancelled = true;
}

void serve_loop_tick(struct serve_loop *l) {
    static const char comment[] = ": keep-alive\n\n";
    uint64_t now = clock_us(), silence_us = (uint64_t)l->serve->config.keep_alive_comment_ms * 1000;
    bool end = now >= atomic_load(&l->serve->cancel_at_us);
    for (struct call *c = l->calls; c; c = c->next) {
        if (end) cancel(c);
        if (!c->streaming || now - c->last_write_us < silence_us || exchange_congested(c->x)) continue;
        exchange_stream_write(c->x, comment, sizeof comment - 1);
        c->last_write_us = now;
    }
}
