/* What a worker thread does for a call: JSON, template, tokens, submission; and large answers. */
#include "serve/internal.h"

#include "base/error.h"
#include "base/size.h"

#include <malloc.h>
#include <stdlib.h>
#include <string.h>

/* Memory of one scored prompt token with its alternatives, in the engine and as JSON. */
#define SCORE_BYTES 92

#define TRIM_BODY_BYTES ((size_t)1 << 20)

static void model_check(struct call *c) {
    const struct serve_config *config = &c->serve->config;
    if (!c->request.model) return;
    for (size_t i = 0; i < config->n_model_names; i++)
        if (!strcmp(c->request.model, config->model_names[i])) return;
    error_param(&c->err, QUIRE_ENOTFOUND, "model", "the model \"%.100s\" is not served here; served: %s",
                c->request.model, config->model_names[0]);
}

/* ---- submission ---- */

static int hold_vectors(struct call *c) {
    size_t each = vectors_bytes(c), limit = c->serve->config.max_answer_bytes;
    if (c->n_prompts > limit / each)
        return error_param(&c->err, QUIRE_EINVAL, c->kind == REQUEST_EMBEDDING ? "input" : "documents",
                           "%zu texts are too many for one request; at most %zu are allowed here",
                           c->n_prompts, limit / each);
    c->score_bytes = c->n_prompts * each;
    if (call_hold(c, c->score_bytes)) return 0;
    return error_set(&c->err, QUIRE_EBUSY, "too many answers with vectors are unfinished");
}

/* Scores of a prompt are kept until the answer is finished: their memory is promised before the engine is
 * asked. */
static int hold_scores(struct call *c) {
    const struct request *r = &c->request;
    size_t limit = c->serve->config.max_answer_bytes, bytes = 0, positions = 0;
    if (r->kind & REQUEST_POOLS) return hold_vectors(c);
    if (r->sampling.n_prompt_logprobs < 0) return 0;
    for (size_t i = 0; i < c->n_prompts; i++) positions += c->prompts[i].ids.n * r->n;
    bytes = positions * (1 + (size_t)r->sampling.n_prompt_logprobs) * SCORE_BYTES;
    if (bytes > limit)
        return error_param(&c->err, QUIRE_EINVAL, r->echo ? "logprobs" : "prompt_logprobs",
                           "%zu prompt tokens with %d log probabilities each are too many for one request; "
                           "at most %zu in all are allowed",
                           positions, r->sampling.n_prompt_logprobs, limit / SCORE_BYTES);
    c->score_bytes = bytes;
    if (call_hold(c, bytes)) return 0;
    return error_set(&c->err, QUIRE_EBUSY, "too many answers with prompt scores are unfinished");
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
                              .pool = r->kind & REQUEST_POOLS,
                              .raw_vector = r->raw_vectors,
                              .dimensions = r->dimensions,
                              .n_first = p->n_first,
                              .waker = &c->loop->waker};
    if (!r->has_max_tokens) q.sampling.max_tokens = SIZE_MAX; /* the room there is */
    int rc = quire_submit(c->serve->engine, &q, &a->stream, &c->err);
    if (rc && c->err.param && r->messages && !strcmp(c->err.param, "prompt")) c->err.param = "messages";
    return rc;
}

/* The engine has copied what it needs. */
static void forget(struct call *c) {
    const struct request *r = &c->request;
    bool shows_ids = r->sampling.n_prompt_logprobs >= 0 || r->return_token_ids;
    if (r->echo || (r->kind == REQUEST_RERANK && r->return_documents)) return;
    request_forget(&c->request);
    for (size_t i = 0; i < c->n_prompts; i++) {
        c->prompts[i].text = NULL;
        if (!shows_ids) token_buf_free(&c->prompts[i].ids);
    }
}

/* Once each, however many answers to it are wanted. */
static void note_prompts(const struct call *c) {
    if (c->kind & REQUEST_POOLS) return;
    for (size_t i = 0; i < c->n_prompts; i++)
        prompt_stats_note(c->serve->prompt_stats, c->prompts[i].ids.ids, c->prompts[i].ids.n,
                          c->request.cache_salt);
}

static void submit_all(struct call *c) {
    size_t n = c->n_prompts * c->request.n;
    size_t room = c->serve->info->max_requests;
    if (n > room) {
        error_param(
            &c->err, QUIRE_EINVAL, c->n_prompts > 1 ? request_prompts_field(&c->request) : "n",
            "%zu answers are more than the %zu requests that this server holds at once (--max-num-seqs and "
            "--max-queue)",
            n, room);
        return;
    }
    if (hold_scores(c)) return;
    note_prompts(c);
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
    forget(c);
}

/* ---- answers without generation ---- */

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
    struct buf text = {.limit_bytes = c->serve->config.max_answer_bytes};
    struct json_out j;
    const struct token_buf *ids = &c->prompts[0].ids;
    tokenizer_decode(c->serve->text.tokenizer, ids->ids, ids->n, !c->request.skip_special_tokens, &text);
    json_out_init(&j, &c->body);
    json_out_obj(&j);
    json_out_key(&j, "prompt");
    json_out_strn(&j, text.data ? text.data : "", text.len);
    json_out_obj_end(&j);
    if (!buf_ok(&text))
        error_param(&c->err, QUIRE_EINVAL, "tokens", "the text of these tokens is longer than %zu bytes",
                    text.limit_bytes);
    buf_free(&text);
}

static void work(struct call *c, struct http1_span body) {
    if (vectors_purpose(c->serve, c->kind, &c->err)) return;
    if (request_parse(c->kind, body.data, body.n, &c->serve->limits, &c->request, &c->err)) return;
    c->parsed = true;
    model_check(c);
    if (!c->err.code && c->kind & REQUEST_POOLS)
        vectors_prompts(c);
    else if (!c->err.code)
        prompt_build(c->serve, &c->request, &c->prompts, &c->n_prompts, &c->err);
    if (c->err.code) return;
    if (c->kind == REQUEST_TOKENIZE)
        write_tokenize(c);
    else if (c->kind == REQUEST_DETOKENIZE)
        write_detokenize(c);
    else
        submit_all(c);
}

void call_work(struct call *c) {
    struct http1_span body = exchange_body(c->x);
    work(c, body);
    /* The many small pieces that a large body was parsed into are free by now, but still the heap's. */
    if (body.n >= TRIM_BODY_BYTES) malloc_trim(0);
}

void call_render(struct call *c) {
    bool ok = true;
    for (size_t i = 0; i < c->n_answers; i++) {
        answer_prepend_prompt(c, &c->answers[i]);
        ok &= answer_ok(&c->answers[i]);
    }
    if (c->kind & REQUEST_POOLS)
        vectors_response(c, &c->body);
    else
        response_whole(c, &c->body);
    if (!ok) c->body.failed = true;
}
