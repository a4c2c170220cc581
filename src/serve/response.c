/* The JSON of answers, in OpenAI's shapes; `stop_reason` and `prompt_logprobs` as vLLM has them. */
#include "serve/internal.h"

#include <math.h>
#include <string.h>

const char *response_finish_name(enum quire_finish f) {
    switch (f) {
    case QUIRE_STOP: return "stop";
    case QUIRE_LENGTH: return "length";
    case QUIRE_ABORT: return "abort";
    case QUIRE_FAILED: return "error";
    default: return NULL;
    }
}

static bool chat(const struct call *c) {
    return c->kind == REQUEST_CHAT;
}

static void head(const struct call *c, struct json_out *j, bool chunk) {
    json_out_obj(j);
    json_out_key(j, "id");
    json_out_str(j, c->id);
    json_out_key(j, "object");
    json_out_str(j, !chat(c) ? "text_completion" : chunk ? "chat.completion.chunk" : "chat.completion");
    json_out_key(j, "created");
    json_out_i64(j, c->created_unix_s);
    json_out_key(j, "model");
    json_out_str(j, c->request.model ? c->request.model : c->serve->config.model_names[0]);
    json_out_key(j, "system_fingerprint");
    json_out_str(j, c->serve->info->numerics_id);
}

/* ---- usage ---- */

void response_usage(const struct call *c, struct json_out *j) {
    size_t prompt = 0, cached = 0, completion = 0;
    for (size_t i = 0; i < c->n_answers; i++) {
        const struct answer *a = &c->answers[i];
        struct quire_usage u = a->stream ? quire_usage(a->stream) : a->usage;
        completion += a->n_tokens; /* the engine may be ahead of what has been delivered */
        /* A prompt is one prompt, however many choices it gets. */
        if (a->index % c->request.n) continue;
        prompt += c->prompts[a->prompt].n_tokens;
        cached += u.cached_tokens;
    }
    json_out_key(j, "usage");
    json_out_obj(j);
    json_out_key(j, "prompt_tokens");
    json_out_u64(j, prompt);
    json_out_key(j, "completion_tokens");
    json_out_u64(j, completion);
    json_out_key(j, "total_tokens");
    json_out_u64(j, prompt + completion);
    json_out_key(j, "prompt_tokens_details");
    json_out_obj(j);
    json_out_key(j, "cached_tokens");
    json_out_u64(j, cached);
    json_out_obj_end(j);
    json_out_obj_end(j);
}

/* ---- parts of a choice ---- */

static void raw_array(struct json_out *j, const char *key, const struct buf *items) {
    struct buf text = BUF_INIT;
    buf_putc(&text, '[');
    buf_append(&text, items->data, items->len);
    buf_putc(&text, ']');
    json_out_key(j, key);
    json_out_raw(j, text.data ? text.data : "", text.len);
    if (!buf_ok(&text)) j->out->failed = true;
    buf_free(&text);
}

static void logprobs(const struct call *c, const struct answer *a, struct json_out *j) {
    json_out_key(j, "logprobs");
    if (c->request.sampling.n_logprobs < 0) {
        json_out_null(j);
        return;
    }
    json_out_obj(j);
    if (chat(c)) {
        raw_array(j, "content", &a->logprobs);
    } else {
        raw_array(j, "tokens", &a->logprobs);
        raw_array(j, "token_logprobs", &a->token_logprobs);
        raw_array(j, "top_logprobs", &a->top_logprobs);
        raw_array(j, "text_offset", &a->offsets);
    }
    json_out_obj_end(j);
}

/* A stop token is a reason only if the request named it: the model's own end of sequence is not (as in vLLM).
 */
static bool asked_for(const struct request *r, int64_t token) {
    for (size_t i = 0; i < r->sampling.n_stop_token_ids; i++)
        if (r->sampling.stop_token_ids[i] == token) return true;
    return false;
}

static void finish(const struct call *c, const struct answer *a, bool ended, struct json_out *j) {
    json_out_key(j, "finish_reason");
    json_out_str(j, ended ? response_finish_name(a->finish) : NULL);
    if (!ended) return;
    json_out_key(j, "stop_reason");
    if (a->stop_reason)
        json_out_str(j, a->stop_reason);
    else if (a->finish == QUIRE_STOP && asked_for(&c->request, a->stop_token))
        json_out_i64(j, a->stop_token);
    else
        json_out_null(j);
}

/* vLLM's prompt_logprobs: null for the first token, then {id: {logprob, rank, decoded_token}}. */
static void prompt_logprobs(const struct call *c, const struct answer *a, struct json_out *j) {
    const struct token_buf *ids = &c->prompts[a->prompt].ids;
    json_out_key(j, "prompt_logprobs");
    json_out_arr(j);
    for (size_t i = 0; i < ids->n; i++) {
        size_t n = 0;
        const struct quire_logprob *scores = i && a->stream ? quire_prompt_logprobs(a->stream, i, &n) : NULL;
        if (!scores) {
            json_out_null(j);
            continue;
        }
        json_out_obj(j);
        for (size_t k = 0; k < n; k++) {
            if (k && scores[k].token == scores[0].token) continue; /* the chosen one is there already */
            char key[16];
            struct buf text = BUF_INIT;
            struct detokenizer d = {0};
            size_t len;
            const uint8_t *bytes = tokenizer_bytes(c->serve->text.tokenizer, scores[k].token, true, &len);
            detokenizer_push(&d, bytes, len, &text);
            detokenizer_finish(&d, &text);
            snprintf(key, sizeof key, "%u", scores[k].token);
            json_out_key(j, key);
            json_out_obj(j);
            json_out_key(j, "logprob");
            json_out_f64(j, isfinite(scores[k].logprob) ? (double)scores[k].logprob : -9999.0);
            json_out_key(j, "rank");
            json_out_u64(j, k ? k : scores[k].rank);
            json_out_key(j, "decoded_token");
            json_out_strn(j, text.data ? text.data : "", text.len);
            json_out_obj_end(j);
            buf_free(&text);
        }
        json_out_obj_end(j);
    }
    json_out_arr_end(j);
}

static void prompt_ids(const struct call *c, const struct answer *a, struct json_out *j) {
    json_out_key(j, "prompt_token_ids");
    json_out_arr(j);
    for (size_t i = 0; i < c->prompts[a->prompt].ids.n; i++)
        json_out_u64(j, c->prompts[a->prompt].ids.ids[i]);
    json_out_arr_end(j);
}

static const char *text_of(const struct answer *a) {
    return a->text.data ? a->text.data : "";
}

/* ---- whole ---- */

static void whole_choice(const struct call *c, const struct answer *a, struct json_out *j) {
    json_out_obj(j);
    json_out_key(j, "index");
    json_out_u64(j, a->index);
    if (chat(c)) {
        json_out_key(j, "message");
        json_out_obj(j);
        json_out_key(j, "role");
        json_out_str(j, "assistant");
        json_out_key(j, "content");
        json_out_strn(j, text_of(a), a->text.len);
        json_out_key(j, "refusal");
        json_out_null(j);
        json_out_obj_end(j);
    } else {
        json_out_key(j, "text");
        json_out_strn(j, text_of(a), a->text.len);
    }
    logprobs(c, a, j);
    finish(c, a, true, j);
    if (!chat(c) && c->request.sampling.n_prompt_logprobs >= 0) prompt_logprobs(c, a, j);
    if (!chat(c) && c->request.return_token_ids) prompt_ids(c, a, j);
    if (c->request.return_token_ids) raw_array(j, "token_ids", &a->token_ids);
    json_out_obj_end(j);
}

void response_whole(const struct call *c, struct buf *out) {
    struct json_out j;
    json_out_init(&j, out);
    head(c, &j, false);
    json_out_key(&j, "choices");
    json_out_arr(&j);
    for (size_t i = 0; i < c->n_answers; i++) whole_choice(c, &c->answers[i], &j);
    json_out_arr_end(&j);
    response_usage(c, &j);
    if (chat(c) && c->request.sampling.n_prompt_logprobs >= 0) prompt_logprobs(c, &c->answers[0], &j);
    if (chat(c) && c->request.return_token_ids) prompt_ids(c, &c->answers[0], &j);
    json_out_obj_end(&j);
}

/* ---- chunks ---- */

static void delta(const struct answer *a, bool first, bool ended, struct json_out *j) {
    json_out_key(j, "delta");
    json_out_obj(j);
    if (first) {
        json_out_key(j, "role");
        json_out_str(j, "assistant");
    }
    if (first || a->text.len || !ended) {
        json_out_key(j, "content");
        json_out_strn(j, text_of(a), a->text.len);
    }
    json_out_obj_end(j);
}

void response_chunk(const struct call *c, const struct answer *a, bool ended, struct buf *out) {
    struct json_out j;
    bool first = !a->role_sent;
    buf_puts(out, "data: ");
    json_out_init(&j, out);
    head(c, &j, true);
    json_out_key(&j, "choices");
    json_out_arr(&j);
    json_out_obj(&j);
    json_out_key(&j, "index");
    json_out_u64(&j, a->index);
    if (chat(c)) {
        delta(a, first, ended, &j);
    } else {
        json_out_key(&j, "text");
        json_out_strn(&j, text_of(a), a->text.len);
    }
    logprobs(c, a, &j);
    finish(c, a, ended, &j);
    if (!chat(c) && c->request.return_token_ids && first) prompt_ids(c, a, &j);
    if (c->request.return_token_ids) raw_array(&j, "token_ids", &a->token_ids);
    json_out_obj_end(&j);
    json_out_arr_end(&j);
    if (chat(c) && c->request.return_token_ids && first && !a->index) prompt_ids(c, a, &j);
    if (c->request.continuous_usage) {
        response_usage(c, &j);
    } else if (c->request.include_usage) {
        json_out_key(&j, "usage"); /* of the last chunk */
        json_out_null(&j);
    }
    json_out_obj_end(&j);
    buf_puts(out, "\n\n");
}

void response_usage_chunk(const struct call *c, struct buf *out) {
    struct json_out j;
    buf_puts(out, "data: ");
    json_out_init(&j, out);
    head(c, &j, true);
    json_out_key(&j, "choices");
    json_out_arr(&j);
    json_out_arr_end(&j);
    response_usage(c, &j);
    json_out_obj_end(&j);
    buf_puts(out, "\n\n");
}

void response_error_chunk(const struct error *e, unsigned status, struct buf *out) {
    buf_puts(out, "data: ");
    api_error_body(out, status, e);
    buf_puts(out, "\n\n");
}
