#include "eval/ask.h"

#include "base/clock.h"
#include "base/error.h"

#include <stdlib.h>
#include <string.h>

#define WAIT_US 100000
#define FLIGHT  32 /* asks under way */

/* ---- tokens ---- */

static int render(const struct eval_local *l, const struct ask *a, struct chat_rendering *r,
                  struct error *err) {
    if (!l->chat_template)
        return error_set(err, QUIRE_EUNSUPPORTED,
                         "this model has no chat template: --chat-template FILE or --no-chat");
    json_t *messages = json_pack("[{s:s, s:s%}]", "role", "user", "content", a->prompt.data, a->prompt.len);
    struct chat_template_input in = {.messages = messages,
                                     .add_generation_prompt = true,
                                     .bos_token = l->bos_token,
                                     .eos_token = l->eos_token,
                                     .now_unix_s = clock_unix_s()};
    if (!messages) return error_set(err, QUIRE_EINVAL, "the prompt is not valid UTF-8");
    int rc = chat_template_render(l->chat_template, &in, r, err);
    json_decref(messages);
    return rc;
}

/* The continuation's tokens are those of the whole text behind as many as the prompt alone has (as
 * lm-evaluation-harness splits them). */
static int split_tokens(const struct eval_local *l, const struct buf *text, size_t n_prompt_bytes,
                        unsigned flags, const struct content_span *content, size_t n_content,
                        struct token_buf *out, size_t *n_scored, struct error *err) {
    struct token_buf prompt = {0};
    int rc = tokenizer_encode(l->tokenizer, text->data, text->len, flags, content, n_content, 0, out, err);
    *n_scored = 0;
    if (rc || text->len == n_prompt_bytes) return rc;
    size_t n_before = n_content;
    while (n_before && content[n_before - 1].start >= n_prompt_bytes) n_before--;
    rc =
        tokenizer_encode(l->tokenizer, text->data, n_prompt_bytes, flags, content, n_before, 0, &prompt, err);
    if (!rc && !prompt.n)
        rc = error_set(err, QUIRE_EINVAL, "the prompt is empty: nothing predicts its first token");
    if (!rc) *n_scored = out->n > prompt.n ? out->n - prompt.n : 1;
    token_buf_free(&prompt);
    return rc;
}

int ask_tokens(const struct eval_local *l, const struct ask *a, struct token_buf *out, size_t *n_scored,
               struct error *err) {
    struct chat_rendering r = {0};
    struct buf text = BUF_INIT;
    struct content_span *content = NULL;
    int rc = a->chat ? render(l, a, &r, err) : 0;
    if (rc) return rc;
    const struct text_span *c = &a->continuation;
    size_t n_prompt = a->chat ? r.text.len : a->prompt.len;
    buf_append(&text, a->chat ? r.text.data : a->prompt.data, n_prompt);
    buf_append(&text, c->data, c->len);
    content = calloc(r.n_content + 1, sizeof *content);
    if (!buf_ok(&text) || !content) {
        rc = error_set(err, QUIRE_ENOMEM, "out of memory for a prompt");
    } else {
        if (r.n_content) memcpy(content, r.content, r.n_content * sizeof *content);
        content[r.n_content] = (struct content_span){n_prompt, c->len};
        rc = split_tokens(l, &text, n_prompt, TOKENIZE_SPECIAL | (a->chat ? 0 : TOKENIZE_ADD), content,
                          a->chat ? r.n_content + (c->len > 0) : 0, out, n_scored, err);
    }
    if (!rc && !out->n) rc = error_set(err, QUIRE_EINVAL, "the prompt is empty");
    free(content);
    buf_free(&text);
    if (a->chat) chat_rendering_free(&r);
    return rc;
}

/* ---- running ---- */

struct flight {
    const struct eval_context *c;
    struct ask *asks;
    struct {
        struct quire_stream *stream;
        size_t ask, n_prompt, n_scored;
    } slots[FLIGHT]; /* a ring */
    size_t first, n_busy;
};

/* QUIRE_EBUSY: when another has ended. */
static int launch(struct flight *f, size_t i, struct error *err) {
    const struct ask *a = &f->asks[i];
    struct token_buf ids = {0};
    size_t n_scored, at = (f->first + f->n_busy) % FLIGHT;
    int rc = ask_tokens(f->c->local, a, &ids, &n_scored, err);
    if (!rc) {
        struct quire_request q = {.prompt = ids.ids,
                                  .n_prompt = ids.n,
                                  .sampling = {.temperature = (float)a->temperature,
                                               .top_p = 1,
                                               .repetition_penalty = 1,
                                               .has_seed = true,
                                               .seed = a->seed,
                                               .max_tokens = n_scored ? 0 : a->max_tokens,
                                               .n_logprobs = -1,
                                               .n_prompt_logprobs = n_scored ? 0 : -1,
                                               .first_prompt_logprob = n_scored ? ids.n - n_scored : 0,
                                               .stop = n_scored ? NULL : a->stop,
                                               .n_stop = n_scored ? 0 : a->n_stop}};
        rc = quire_submit(f->c->local->engine, &q, &f->slots[at].stream, err);
    }
    if (!rc) {
        f->slots[at].ask = i;
        f->slots[at].n_prompt = ids.n;
        f->slots[at].n_scored = n_scored;
        f->n_busy++;
    } else if (rc != QUIRE_EBUSY) {
        error_prefix(err, "%s", a->where);
    }
    token_buf_free(&ids);
    return rc;
}

static int take_scores(const struct quire_stream *s, size_t n_prompt, size_t n_scored, struct ask *a,
                       struct error *err) {
    for (size_t i = n_prompt - n_scored; i < n_prompt; i++) {
        size_t n;
        const struct quire_logprob *p = quire_prompt_logprobs(s, i, &n);
        if (!p) return error_set(err, QUIRE_ECANCELED, "%s: the engine stopped", a->where);
        a->logprob += (double)p->logprob;
    }
    a->n_tokens = n_scored;
    return 0;
}

static int land(struct flight *f, struct error *err) {
    struct quire_stream *s = f->slots[f->first].stream;
    struct ask *a = &f->asks[f->slots[f->first].ask];
    struct quire_event e = {0};
    while (e.finish == QUIRE_RUNNING) {
        bool got = quire_wait(s, &e, WAIT_US);
        if (e.finish == QUIRE_RUNNING && eval_stopped(f->c)) return EVAL_STOPPED;
        if (!got || !e.has_token || (e.finish == QUIRE_STOP && e.stop_token >= 0)) continue;
        size_t n;
        const uint8_t *bytes = tokenizer_bytes(f->c->local->tokenizer, e.chosen.token, false, &n);
        buf_append(&a->text, bytes, n);
        a->n_tokens++;
    }
    if (e.finish == QUIRE_FAILED) {
        *err = *e.error;
        return error_prefix(err, "%s", a->where);
    }
    if (e.finish == QUIRE_ABORT) return error_set(err, QUIRE_ECANCELED, "%s: the engine stopped", a->where);
    int rc = 0;
    if (f->slots[f->first].n_scored)
        rc = take_scores(s, f->slots[f->first].n_prompt, f->slots[f->first].n_scored, a, err);
    else
        a->text.len -= e.trim_bytes < a->text.len ? e.trim_bytes : a->text.len;
    if (!rc && !buf_ok(&a->text)) rc = error_set(err, QUIRE_ENOMEM, "out of memory for an answer");
    quire_close(s);
    f->slots[f->first].stream = NULL;
    f->first = (f->first + 1) % FLIGHT;
    f->n_busy--;
    return rc;
}

int asks_local(const struct eval_context *c, struct ask *asks, size_t n,
               int (*done)(void *user, size_t i, struct error *err), void *user, struct error *err) {
    struct flight f = {.c = c, .asks = asks};
    int rc = 0;
    for (size_t next = 0; !rc && (next < n || f.n_busy);) {
        if (next < n && f.n_busy < FLIGHT) {
            rc = launch(&f, next, err);
            if (!rc) next++;
            if (rc != QUIRE_EBUSY || !f.n_busy) continue;
        }
        size_t i = f.slots[f.first].ask;
        rc = land(&f, err);
        if (!rc) rc = done(user, i, err);
        if (!rc && i + 1 < n && eval_stopped(c)) rc = EVAL_STOPPED;
    }
    for (size_t i = 0; i < FLIGHT; i++) quire_close(f.slots[i].stream);
    return rc;
}

int asks_answer(const struct eval_context *c, struct ask *asks, size_t n,
                int (*done)(void *user, size_t i, struct error *err), void *user, struct error *err) {
    return c->local ? asks_local(c, asks, n, done, user, err) : asks_remote(c, asks, n, done, user, err);
}
