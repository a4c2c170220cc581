/* One choice: from token events to text that may be shown, with scores beside it. */
#include "serve/internal.h"

#include "base/size.h"

#include <math.h>
#include <string.h>

static bool with_special(const struct call *c) {
    return !c->request.skip_special_tokens;
}

/* ---- scores ---- */

static size_t count_chars(const char *s, size_t n) {
    size_t chars = 0;
    for (size_t i = 0; i < n; i++) chars += (s[i] & 0xC0) != 0x80;
    return chars;
}

/* A token's own bytes as valid text. */
static void token_text(const struct call *c, uint32_t id, struct buf *out) {
    size_t n;
    const uint8_t *bytes = tokenizer_bytes(c->serve->text.tokenizer, id, true, &n);
    struct detokenizer d = {0};
    detokenizer_push(&d, bytes, n, out);
    detokenizer_finish(&d, out);
}

static void put_logprob(struct json_out *j, float v) {
    json_out_key(j, "logprob");
    json_out_f64(j, isfinite(v) ? (double)v : -9999.0); /* as OpenAI: a stand-in for minus infinity */
}

static void chat_entry(const struct call *c, struct json_out *j, uint32_t id, float logprob) {
    struct buf text = BUF_INIT;
    size_t n;
    const uint8_t *bytes = tokenizer_bytes(c->serve->text.tokenizer, id, true, &n);
    token_text(c, id, &text);
    json_out_key(j, "token");
    json_out_strn(j, text.data ? text.data : "", text.len);
    put_logprob(j, logprob);
    json_out_key(j, "bytes");
    json_out_arr(j);
    for (size_t i = 0; i < n; i++) json_out_u64(j, bytes[i]);
    json_out_arr_end(j);
    buf_free(&text);
}

static void chat_logprobs(const struct call *c, struct answer *a, const struct quire_event *e) {
    struct json_out j;
    if (a->logprobs.len) buf_putc(&a->logprobs, ',');
    json_out_init(&j, &a->logprobs);
    json_out_obj(&j);
    chat_entry(c, &j, e->chosen.token, e->chosen.logprob);
    json_out_key(&j, "top_logprobs");
    json_out_arr(&j);
    for (size_t i = 0; i < e->n_top; i++) {
        json_out_obj(&j);
        chat_entry(c, &j, e->top[i].token, e->top[i].logprob);
        json_out_obj_end(&j);
    }
    json_out_arr_end(&j);
    json_out_obj_end(&j);
}

static void comma(struct buf *b) {
    if (b->len) buf_putc(b, ',');
}

static void array_str(struct buf *b, const char *s, size_t n) {
    comma(b);
    buf_putc(b, '"');
    json_out_escape(b, s ? s : "", n);
    buf_putc(b, '"');
}

/* One position of the parallel arrays of /v1/completions. logprob NULL: the first prompt token, which has
 * none. */
static void completion_logprobs(const struct call *c, struct answer *a, uint32_t id, const float *logprob,
                                const struct quire_logprob *top, size_t n_top) {
    struct json_out j;
    struct buf text = BUF_INIT;
    token_text(c, id, &text);
    array_str(&a->logprobs, text.data, text.len);
    comma(&a->offsets);
    buf_printf(&a->offsets, "%zu", a->chars);
    a->chars += count_chars(text.data, text.len);
    comma(&a->token_logprobs);
    json_out_init(&j, &a->token_logprobs);
    if (logprob)
        json_out_f64(&j, isfinite(*logprob) ? (double)*logprob : -9999.0);
    else
        json_out_null(&j);
    comma(&a->top_logprobs);
    json_out_init(&j, &a->top_logprobs);
    if (!logprob)
        json_out_null(&j);
    else
        json_out_obj(&j);
    for (size_t i = 0; logprob && i < n_top; i++) {
        buf_clear(&text);
        token_text(c, top[i].token, &text);
        json_out_key(&j, text.data ? text.data : "");
        json_out_f64(&j, isfinite(top[i].logprob) ? (double)top[i].logprob : -9999.0);
    }
    if (logprob) json_out_obj_end(&j);
    buf_free(&text);
}

/* ---- text ---- */

/* Bytes at the end of raw that may not be shown: the last `held` bytes that are not a control token's (the
 * engine matches stop strings without those). */
static size_t held_in_raw(const struct answer *a, size_t held) {
    size_t n = 0;
    if (!a->special.len) return size_min(held, a->raw.len);
    while (held && n < a->raw.len) {
        n++;
        held -= !a->special.data[a->raw.len - n];
    }
    return n;
}

static void release_text(struct answer *a, size_t held) {
    size_t keep = held_in_raw(a, held), show = a->raw.len - keep;
    if (!show) return;
    detokenizer_push(&a->detokenizer, (const uint8_t *)a->raw.data, show, &a->text);
    memmove(a->raw.data, a->raw.data + show, keep);
    a->raw.len = keep;
    if (!a->special.len) return;
    memmove(a->special.data, a->special.data + show, keep);
    a->special.len = keep;
}

static void add_token(struct call *c, struct answer *a, const struct quire_event *e) {
    const struct tokenizer *t = c->serve->text.tokenizer;
    size_t n;
    const uint8_t *bytes = tokenizer_bytes(t, e->chosen.token, with_special(c), &n);
    /* The stop token ends the text; it is never part of it. */
    if (e->finish == QUIRE_STOP && e->stop_token >= 0) n = 0;
    buf_append(&a->raw, bytes, n);
    if (with_special(c))
        for (size_t i = 0; i < n; i++) buf_putc(&a->special, (char)tokenizer_is_control(t, e->chosen.token));
    if (c->request.sampling.n_logprobs >= 0) {
        if (c->kind == REQUEST_CHAT)
            chat_logprobs(c, a, e);
        else
            completion_logprobs(c, a, e->chosen.token, &e->chosen.logprob, e->top, e->n_top);
    }
    if (c->request.return_token_ids) {
        comma(&a->token_ids);
        buf_printf(&a->token_ids, "%u", e->chosen.token);
    }
    a->n_new_tokens++;
}

void answer_event(struct call *c, struct answer *a, const struct quire_event *e) {
    if (e->has_token) add_token(c, a, e);
    if (e->finish == QUIRE_RUNNING) {
        release_text(a, e->held_bytes);
        return;
    }
    size_t trim = held_in_raw(a, e->trim_bytes);
    a->raw.len -= trim;
    if (a->special.len) a->special.len -= trim;
    release_text(a, 0);
    detokenizer_finish(&a->detokenizer, &a->text);
    a->finish = e->finish;
    a->stop_reason = e->stop_reason;
    a->stop_token = e->stop_token;
    a->usage = quire_usage(a->stream);
}

/* ---- the prompt in front ---- */

static void echo_logprobs(struct call *c, struct answer *a, const struct token_buf *ids) {
    for (size_t i = 0; i < ids->n; i++) {
        size_t n = 0;
        const struct quire_logprob *scores = i ? quire_prompt_logprobs(a->stream, i, &n) : NULL;
        completion_logprobs(c, a, ids->ids[i], scores ? &scores[0].logprob : NULL, scores ? scores + 1 : NULL,
                            n ? n - 1 : 0);
    }
}

void answer_prompt(struct call *c, struct answer *a) {
    const struct token_prompt *p = &c->prompts[a->prompt];
    if (!c->request.echo) return;
    if (p->text) {
        buf_append(&a->text, p->text, p->len);
    } else {
        struct detokenizer d = {0};
        for (size_t i = 0; i < p->ids.n; i++) {
            size_t n;
            const uint8_t *bytes =
                tokenizer_bytes(c->serve->text.tokenizer, p->ids.ids[i], with_special(c), &n);
            detokenizer_push(&d, bytes, n, &a->text);
        }
        detokenizer_finish(&d, &a->text);
    }
    if (c->request.sampling.n_logprobs >= 0) echo_logprobs(c, a, &p->ids);
}

void answer_clear(struct answer *a) {
    buf_clear(&a->text);
    buf_clear(&a->logprobs);
    buf_clear(&a->token_logprobs);
    buf_clear(&a->top_logprobs);
    buf_clear(&a->offsets);
    buf_clear(&a->token_ids);
    a->n_new_tokens = 0;
}

void answer_free(struct answer *a) {
    struct buf *all[] = {&a->raw,          &a->special, &a->text,     &a->logprobs, &a->token_logprobs,
                         &a->top_logprobs, &a->offsets, &a->token_ids};
    quire_close(a->stream);
    a->stream = NULL;
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) buf_free(all[i]);
}
