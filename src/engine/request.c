/* Checking a request: everything from outside is typed, ranged and finite before the scheduler sees it. */
#include "base/error.h"
#include "base/size.h"
#include "engine/kv_table.h"
#include "engine/stream.h"

#include <math.h>

static int check_float(const char *name, float v, double min, double max, bool above_min, struct error *err) {
    if (isfinite(v) && v <= max && (above_min ? v > min : v >= min)) return 0;
    if (max > 1e30)
        return error_param(err, QUIRE_EINVAL, name, "%s must be a finite number %s %g, not %g", name,
                           above_min ? "above" : "of at least", min, (double)v);
    return error_param(err, QUIRE_EINVAL, name, "%s must be %s %g and at most %g, not %g", name,
                       above_min ? "above" : "at least", min, max, (double)v);
}

static int check_numbers(const struct quire_sampling *s, struct error *err) {
    int rc;
    if ((rc = check_float("temperature", s->temperature, 0, HUGE_VAL, false, err)) ||
        (rc = check_float("top_p", s->top_p, 0, 1, true, err)) ||
        (rc = check_float("min_p", s->min_p, 0, 1, false, err)) ||
        (rc = check_float("repetition_penalty", s->repetition_penalty, 0, HUGE_VAL, true, err)) ||
        (rc = check_float("presence_penalty", s->presence_penalty, -2, 2, false, err)) ||
        (rc = check_float("frequency_penalty", s->frequency_penalty, -2, 2, false, err)))
        return rc;
    if (s->top_k < -1)
        return error_param(err, QUIRE_EINVAL, "top_k", "top_k must be -1 or 0 (off) or at least 1, not %d",
                           (int)s->top_k);
    if (s->n_logprobs < -1 || s->n_logprobs > QUIRE_MAX_LOGPROBS)
        return error_param(err, QUIRE_EINVAL, "logprobs", "logprobs must be at most %d, not %d",
                           QUIRE_MAX_LOGPROBS, s->n_logprobs);
    if (s->n_prompt_logprobs < -1 || s->n_prompt_logprobs > QUIRE_MAX_LOGPROBS)
        return error_param(err, QUIRE_EINVAL, "prompt_logprobs", "prompt_logprobs must be at most %d, not %d",
                           QUIRE_MAX_LOGPROBS, s->n_prompt_logprobs);
    return 0;
}

static int check_scores(const struct quire_request *r, struct error *err) {
    const struct quire_sampling *s = &r->sampling;
    if (s->first_prompt_logprob >= r->n_prompt)
        return error_param(err, QUIRE_EINVAL, "first_prompt_logprob",
                           "first_prompt_logprob is %zu, the prompt has %zu tokens", s->first_prompt_logprob,
                           r->n_prompt);
    if (s->n_prompt_logprobs < 0 && (s->first_prompt_logprob || r->score_reader))
        return error_param(err, QUIRE_EINVAL,
                           s->first_prompt_logprob ? "first_prompt_logprob" : "score_reader",
                           "prompt_logprobs must be asked for");
    return 0;
}

static int check_ids(const char *name, const uint32_t *ids, size_t n, size_t n_vocab, struct error *err) {
    for (size_t i = 0; i < n; i++)
        if (ids[i] >= n_vocab)
            return error_param(err, QUIRE_EINVAL, name,
                               "%s: token id %u is not below the vocabulary size %zu", name, ids[i], n_vocab);
    return 0;
}

static int check_lists(const struct stream_limits *l, const struct quire_sampling *s, struct error *err) {
    int rc = check_ids("stop_token_ids", s->stop_token_ids, s->n_stop_token_ids, l->n_vocab, err);
    if (rc) return rc;
    if (s->n_stop_token_ids > l->n_vocab || s->n_bias > l->n_vocab)
        return error_param(err, QUIRE_EINVAL, s->n_bias > l->n_vocab ? "logit_bias" : "stop_token_ids",
                           "more entries than the %zu tokens of the vocabulary", l->n_vocab);
    for (size_t i = 0; i < s->n_bias; i++) {
        if ((rc = check_ids("logit_bias", &s->bias[i].token, 1, l->n_vocab, err))) return rc;
        if (!isfinite(s->bias[i].bias))
            return error_param(err, QUIRE_EINVAL, "logit_bias", "logit_bias of token %u must be finite",
                               s->bias[i].token);
    }
    if (s->n_stop > QUIRE_MAX_STOP_STRINGS)
        return error_param(err, QUIRE_EINVAL, "stop", "stop has %zu strings, %d are allowed", s->n_stop,
                           QUIRE_MAX_STOP_STRINGS);
    if (s->n_stop && !l->token_bytes)
        return error_param(err, QUIRE_EUNSUPPORTED, "stop", "stop strings need the model's tokenizer");
    for (size_t i = 0; i < s->n_stop; i++)
        if (!s->stop[i].len || s->stop[i].len > QUIRE_MAX_STOP_BYTES)
            return error_param(err, QUIRE_EINVAL, "stop",
                               "stop string %zu has %zu bytes, from 1 to %d are allowed", i, s->stop[i].len,
                               QUIRE_MAX_STOP_BYTES);
    return 0;
}

/* The longest sequence that could ever run here, no longer than max_model_len. */
static size_t longest_fit(const struct stream_limits *l) {
    size_t low = 0, high = l->max_model_len;
    while (low < high) {
        size_t mid = low + (high - low + 1) / 2;
        if (kv_peak_blocks(l->cache, mid) <= l->pool_blocks)
            low = mid;
        else
            high = mid - 1;
    }
    return low;
}

static int check_length(const struct stream_limits *l, const struct quire_request *r, size_t *max_tokens,
                        struct error *err) {
    size_t fit = longest_fit(l), asked = r->sampling.max_tokens, total;
    const char *limit = fit < l->max_model_len ? "the KV memory holds" : "the context length is";
    const char *field = r->n_prompt > fit || asked == SIZE_MAX ? "prompt" : "max_tokens";
    if (r->n_prompt > fit || (asked == SIZE_MAX && r->n_prompt == fit))
        return error_param(err, QUIRE_ELIMIT, field, "the prompt has %zu tokens, %s %zu tokens%s",
                           r->n_prompt, limit, fit,
                           r->n_prompt == fit ? ", which leaves no room for an answer" : "");
    *max_tokens = asked == SIZE_MAX ? fit - r->n_prompt : asked;
    if (!size_add(r->n_prompt, *max_tokens, &total) || total > fit)
        return error_param(err, QUIRE_ELIMIT, field,
                           "the prompt has %zu tokens and max_tokens is %zu, %s %zu tokens in all",
                           r->n_prompt, asked, limit, fit);
    if (r->sampling.min_tokens > *max_tokens)
        return error_param(err, QUIRE_EINVAL, "min_tokens", "min_tokens is %zu, more than max_tokens %zu",
                           r->sampling.min_tokens, *max_tokens);
    return 0;
}

/* Whether the engine was opened for what is asked of it. */
static int check_purpose(const struct stream_limits *l, const struct quire_request *r, struct error *err) {
    if (!r->pool && l->pooling)
        return error_set(err, QUIRE_EUNSUPPORTED,
                         l->encoder ? "this model is an encoder: it makes vectors, not text"
                                    : "this model was opened for vectors; text needs runner generate");
    if (!r->pool) return 0;
    if (!l->pooling)
        return error_set(err, QUIRE_EUNSUPPORTED,
                         "this model was opened to generate; vectors need runner pooling");
    if (r->constraint) return error_param(err, QUIRE_EINVAL, "constraint", "a vector cannot be constrained");
    if (r->dimensions > l->vector_floats)
        return error_param(err, QUIRE_EINVAL, "dimensions", "dimensions is %zu, the model's vectors have %zu",
                           r->dimensions, l->vector_floats);
    if (r->dimensions && r->dimensions < l->vector_floats && !l->matryoshka)
        return error_param(err, QUIRE_EUNSUPPORTED, "dimensions",
                           "dimensions is %zu: the model is not known to make vectors that may be cut "
                           "(Matryoshka), so only their full size of %zu is given; --matryoshka allows it",
                           r->dimensions, l->vector_floats);
    if (r->n_first > r->n_prompt)
        return error_param(err, QUIRE_EINVAL, "n_first", "n_first is %zu, the prompt has %zu tokens",
                           r->n_first, r->n_prompt);
    return 0;
}

int request_check(const struct stream_limits *l, const struct quire_request *r, size_t *max_tokens,
                  struct error *err) {
    int rc;
    if (r->adapter)
        return error_param(err, QUIRE_EUNSUPPORTED, "adapter", "adapter: this engine has no adapters loaded");
    if ((rc = check_purpose(l, r, err))) return rc;
    if (!r->n_prompt) return error_param(err, QUIRE_EINVAL, "prompt", "the prompt has no tokens");
    if ((rc = check_length(l, r, max_tokens, err))) return rc;
    if ((rc = check_ids("prompt", r->prompt, r->n_prompt, l->n_vocab, err))) return rc;
    if ((rc = check_numbers(&r->sampling, err))) return rc;
    if ((rc = check_scores(r, err))) return rc;
    return check_lists(l, &r->sampling, err);
}
