/* One choice: from token events to text that may be shown, with scores beside it. */
#include "serve/internal.h"

#include "base/size.h"

#include <math.h>
#include <string.h>

#define PROMPT_POSITIONS 32 /* scores of the prompt in one chunk of a stream */

static bool with_special(const struct call *c) {
    return !c->request.skip_special_tokens;
}

static const struct tokenizer *tokenizer_of(const struct call *c) {
    return c->serve->text.tokenizer;
}

static double finite_logprob(float v) {
    return isfinite(v) ? (double)v : -9999.0; /* as OpenAI: a stand-in for minus infinity */
}

/* A token's own bytes as valid text. */
static void token_text(const struct call *c, uint32_t id, struct buf *out) {
    size_t n;
    const uint8_t *bytes = tokenizer_bytes(tokenizer_of(c), id, true, &n);
    struct detokenizer d = {0};
    detokenizer_push(&d, bytes, n, out);
    detokenizer_finish(&d, out);
}

/* ---- scores of /v1/chat/completions ---- */

static void chat_entry(const struct call *c, struct json_out *j, uint32_t id, float logprob) {
    struct buf text = BUF_INIT;
    size_t n;
    const uint8_t *bytes = tokenizer_bytes(tokenizer_of(c), id, true, &n);
    token_text(c, id, &text);
    json_out_key(j, "token");
    json_out_strn(j, text.data ? text.data : "", text.len);
    json_out_key(j, "logprob");
    json_out_f64(j, finite_logprob(logprob));
    json_out_key(j, "bytes");
    json_out_arr(j);
    for (size_t i = 0; i < n; i++) json_out_u64(j, bytes[i]);
    json_out_arr_end(j);
    if (!buf_ok(&text)) j->out->failed = true;
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

/* ---- scores of /v1/completions ---- */

static void comma(struct buf *b) {
    if (b->len) buf_putc(b, ',');
}

/* Texts that are keys of an object already: two tokens may have the same text (parts of a character). */
struct keys {
    struct buf text;
    size_t end[QUIRE_MAX_LOGPROBS + 1], n;
};

static bool key_is_new(struct keys *k, size_t start) {
    size_t len = k->text.len - start, at = 0;
    for (size_t i = 0; i < k->n; at = k->end[i++])
        if (k->end[i] - at == len && !memcmp(k->text.data + at, k->text.data + start, len)) return false;
    return true;
}

static void put_top(const struct call *c, struct json_out *j, struct keys *k, uint32_t id, float logprob) {
    size_t start = k->text.len;
    token_text(c, id, &k->text);
    if (!buf_ok(&k->text) || k->n > QUIRE_MAX_LOGPROBS || !key_is_new(k, start)) {
        k->text.len = start;
        return;
    }
    json_out_keyn(j, k->text.data ? k->text.data + start : "", k->text.len - start);
    json_out_f64(j, finite_logprob(logprob));
    k->end[k->n++] = k->text.len;
}

static size_t count_chars(const uint8_t *s, size_t n) {
    size_t chars = 0;
    for (size_t i = 0; i < n; i++) chars += (s[i] & 0xC0) != 0x80;
    return chars;
}

struct position {
    uint32_t token;
    bool scored; /* the first prompt token is not */
    float logprob;
    const struct quire_logprob *top;
    size_t n_top;
    const uint8_t *shown; /* its bytes in the text */
    size_t n_shown;
};

/* One position of the parallel arrays; the chosen token is always among the top ones. */
static void completion_logprobs(const struct call *c, struct answer *a, const struct position *p) {
    struct json_out j;
    struct keys k = {.text = BUF_INIT};
    comma(&a->logprobs);
    json_out_init(&j, &a->logprobs);
    token_text(c, p->token, &k.text);
    json_out_strn(&j, k.text.data ? k.text.data : "", k.text.len);
    buf_clear(&k.text);

    /* The offset is that of the character that the token's first byte belongs to. */
    bool inside = p->n_shown && (p->shown[0] & 0xC0) == 0x80 && a->chars;
    comma(&a->offsets);
    buf_printf(&a->offsets, "%zu", a->chars - inside);
    a->chars += count_chars(p->shown, p->n_shown);

    comma(&a->token_logprobs);
    json_out_init(&j, &a->token_logprobs);
    comma(&a->top_logprobs);
    if (p->scored) {
        json_out_f64(&j, finite_logprob(p->logprob));
        json_out_init(&j, &a->top_logprobs);
        json_out_obj(&j);
        for (size_t i = 0; i < p->n_top; i++) put_top(c, &j, &k, p->top[i].token, p->top[i].logprob);
        put_top(c, &j, &k, p->token, p->logprob);
        json_out_obj_end(&j);
    } else {
        json_out_null(&j);
        json_out_init(&j, &a->top_logprobs);
        json_out_null(&j);
    }
    if (!buf_ok(&k.text)) a->logprobs.failed = true;
    buf_free(&k.text);
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
    const struct tokenizer *t = tokenizer_of(c);
    size_t n;
    const uint8_t *bytes = tokenizer_bytes(t, e->chosen.token, with_special(c), &n);
    /* The stop token ends the text; it is never part of it. */
    if (e->finish == QUIRE_STOP && e->stop_token >= 0) n = 0;
    buf_append(&a->raw, bytes, n);
    if (with_special(c))
        for (size_t i = 0; i < n; i++) buf_putc(&a->special, (char)tokenizer_is_control(t, e->chosen.token));
    if (c->request.sampling.n_logprobs >= 0) {
        struct position p = {e->chosen.token, true, e->chosen.logprob, e->top, e->n_top, bytes, n};
        if (c->kind == REQUEST_CHAT)
            chat_logprobs(c, a, e);
        else
            completion_logprobs(c, a, &p);
    }
    if (c->request.return_token_ids) {
        comma(&a->token_ids);
        buf_printf(&a->token_ids, "%u", e->chosen.token);
    }
    a->n_new_tokens++;
    a->n_tokens++;
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

/* Bytes of a prompt token in the echoed text. A BOS that the tokenizer added is not in it. */
static const uint8_t *prompt_bytes(const struct call *c, const struct token_prompt *p, size_t i, size_t *n) {
    const struct tokenizer *t = tokenizer_of(c);
    const uint8_t *bytes = tokenizer_bytes(t, p->ids.ids[i], p->text || with_special(c), n);
    bool added = p->text && !i && (int64_t)p->ids.ids[0] == tokenizer_bos(t) &&
                 (p->len < *n || memcmp(p->text, bytes, *n));
    if (added) *n = 0;
    return bytes;
}

static void echo_text(struct call *c, struct answer *a) {
    const struct token_prompt *p = &c->prompts[a->prompt];
    if (p->text) {
        buf_append(&a->text, p->text, p->len);
        return;
    }
    struct detokenizer d = {0};
    for (size_t i = 0; i < p->ids.n; i++) {
        size_t n;
        const uint8_t *bytes = prompt_bytes(c, p, i, &n);
        detokenizer_push(&d, bytes, n, &a->text);
    }
    detokenizer_finish(&d, &a->text);
}

/* Scores of prompt positions from..to - 1 to the arrays. */
static void echo_scores(struct call *c, struct answer *a, size_t from, size_t to) {
    const struct token_prompt *p = &c->prompts[a->prompt];
    for (size_t i = from; i < to; i++) {
        size_t n = 0;
        const struct quire_logprob *scores = i ? quire_prompt_logprobs(a->stream, i, &n) : NULL;
        struct position q = {.token = p->ids.ids[i]};
        q.shown = prompt_bytes(c, p, i, &q.n_shown);
        if (scores) {
            q.scored = true;
            q.logprob = scores[0].logprob;
            q.top = scores + 1;
            q.n_top = size_min(n - 1, (size_t)c->request.sampling.n_logprobs);
        }
        completion_logprobs(c, a, &q);
    }
}

static bool echoes_scores(const struct call *c) {
    return c->request.echo && c->request.sampling.n_logprobs >= 0;
}

bool answer_prompt(struct call *c, struct answer *a) {
    size_t n = c->prompts[a->prompt].ids.n;
    if (c->request.echo && !a->n_echoed) echo_text(c, a);
    if (!echoes_scores(c)) {
        a->n_echoed = n;
        return false;
    }
    size_t to = size_min(n, a->n_echoed + PROMPT_POSITIONS);
    echo_scores(c, a, a->n_echoed, to);
    a->n_echoed = to;
    return to < n;
}

void answer_skip_prompt(struct call *c, struct answer *a) {
    const struct token_prompt *p = &c->prompts[a->prompt];
    for (size_t i = 0; i < p->ids.n && echoes_scores(c); i++) {
        size_t n;
        const uint8_t *bytes = prompt_bytes(c, p, i, &n);
        a->chars += count_chars(bytes, n);
    }
}

/* The arrays that have one entry for each position. */
#define N_ARRAYS 4
static void arrays_of(struct answer *a, struct buf *out[N_ARRAYS]) {
    out[0] = &a->logprobs;
    out[1] = &a->token_logprobs;
    out[2] = &a->top_logprobs;
    out[3] = &a->offsets;
}

void answer_prepend_prompt(struct call *c, struct answer *a) {
    struct buf text = a->text, parts[N_ARRAYS], *arrays[N_ARRAYS];
    if (!c->request.echo) return;
    a->text = BUF_INIT;
    echo_text(c, a);
    buf_append(&a->text, text.data, text.len);
    a->text.failed |= text.failed;
    buf_free(&text);
    if (!echoes_scores(c)) return;
    arrays_of(a, arrays);
    for (size_t i = 0; i < N_ARRAYS; i++) {
        parts[i] = *arrays[i];
        *arrays[i] = BUF_INIT;
    }
    a->chars = 0;
    echo_scores(c, a, 0, c->prompts[a->prompt].ids.n);
    for (size_t i = 0; i < N_ARRAYS; i++) {
        if (parts[i].len) comma(arrays[i]);
        buf_append(arrays[i], parts[i].data, parts[i].len);
        arrays[i]->failed |= parts[i].failed;
        buf_free(&parts[i]);
    }
}

/* ---- buffers ---- */

#define N_BUFFERS 8
static void buffers_of(const struct answer *a, const struct buf *out[N_BUFFERS]) {
    const struct buf *all[N_BUFFERS] = {&a->raw,      &a->special,        &a->text,         &a->token_ids,
                                        &a->logprobs, &a->token_logprobs, &a->top_logprobs, &a->offsets};
    memcpy(out, all, sizeof all);
}

bool answer_ok(const struct answer *a) {
    const struct buf *all[N_BUFFERS];
    bool ok = true;
    buffers_of(a, all);
    for (size_t i = 0; i < N_BUFFERS; i++) ok &= buf_ok(all[i]);
    return ok;
}

size_t answer_bytes(const struct answer *a) {
    const struct buf *all[N_BUFFERS];
    size_t bytes = 0;
    buffers_of(a, all);
    for (size_t i = 0; i < N_BUFFERS; i++) bytes += all[i]->cap;
    return bytes;
}

void answer_clear(struct answer *a) {
    struct buf *arrays[N_ARRAYS];
    arrays_of(a, arrays);
    for (size_t i = 0; i < N_ARRAYS; i++) buf_clear(arrays[i]);
    buf_clear(&a->text);
    buf_clear(&a->token_ids);
    a->n_new_tokens = 0;
}

void answer_free(struct answer *a) {
    const struct buf *all[N_BUFFERS];
    quire_close(a->stream);
    a->stream = NULL;
    buffers_of(a, all);
    for (size_t i = 0; i < N_BUFFERS; i++) buf_free((struct buf *)all[i]);
}
