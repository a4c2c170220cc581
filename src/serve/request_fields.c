/* The table of request fields. Order is that of the documentation. */
#include "serve/request.h"

#include "base/error.h"
#include "serve/json_in.h"

#include <limits.h>
#include <string.h>

#define FIELD static int
#define ARGS  struct request_parser *p, const char *name, const json_t *value, struct error *err

/* Getters look a field up by name: each parser gets its value through the root object. */
static int get_float(struct request_parser *p, const char *name, double min, double max, bool open_min,
                     float *out, struct error *err) {
    return json_in_float(p->r->root, name, min, max, open_min, out, err);
}

static int get_int(struct request_parser *p, const char *name, int64_t min, int64_t max, int64_t *out,
                   struct error *err) {
    return json_in_int(p->r->root, name, min, max, out, err);
}

static int of_type(const char *name, const json_t *value, bool ok, const char *wanted, struct error *err) {
    return ok ? 0
              : error_param(err, QUIRE_EINVAL, name, "%s must be %s, not %s", name, wanted,
                            json_in_type_name(value));
}

FIELD parse_model(ARGS) {
    const json_t *s = NULL;
    int rc = json_in_string(p->r->root, name, 1, 1024, &s, err);
    if (rc) return rc;
    p->r->model = arena_strndup(&p->r->arena, json_string_value(s), json_string_length(s));
    if (!p->r->model) return error_set(err, QUIRE_ENOMEM, "out of memory while reading the request");
    if (strlen(p->r->model) != json_string_length(s))
        return error_param(err, QUIRE_EINVAL, name, "%s may not hold NUL bytes", name);
    return 0;
}

FIELD parse_temperature(ARGS) {
    return get_float(p, name, 0, 2, false, &p->r->sampling.temperature, err);
}
FIELD parse_top_p(ARGS) {
    return get_float(p, name, 0, 1, true, &p->r->sampling.top_p, err);
}
FIELD parse_min_p(ARGS) {
    return get_float(p, name, 0, 1, false, &p->r->sampling.min_p, err);
}
FIELD parse_presence(ARGS) {
    return get_float(p, name, -2, 2, false, &p->r->sampling.presence_penalty, err);
}
FIELD parse_frequency(ARGS) {
    return get_float(p, name, -2, 2, false, &p->r->sampling.frequency_penalty, err);
}
FIELD parse_repetition(ARGS) {
    return get_float(p, name, 0, 10, true, &p->r->sampling.repetition_penalty, err);
}

FIELD parse_top_k(ARGS) {
    int64_t k = 0;
    int rc = get_int(p, name, -1, INT32_MAX, &k, err);
    if (!rc) p->r->sampling.top_k = (int32_t)k;
    return rc;
}

FIELD parse_seed(ARGS) {
    int64_t seed = 0;
    int rc = get_int(p, name, INT64_MIN, INT64_MAX, &seed, err);
    p->r->sampling.seed = (uint64_t)seed;
    p->r->sampling.has_seed = true;
    return rc;
}

FIELD parse_n(ARGS) {
    int64_t n = 1;
    int rc = get_int(p, name, 1, REQUEST_MAX_CHOICES, &n, err);
    p->r->n = (size_t)n;
    return rc;
}

FIELD parse_best_of(ARGS) {
    int64_t n = 1, choices = 1;
    int rc = get_int(p, name, 1, REQUEST_MAX_CHOICES, &n, err);
    if (!rc) rc = get_int(p, "n", 1, REQUEST_MAX_CHOICES, &choices, err);
    if (!rc && n != choices)
        return error_param(err, QUIRE_EUNSUPPORTED, name,
                           "best_of is %d; only best_of equal to n is supported", (int)n);
    return rc;
}

FIELD parse_max_tokens(ARGS) {
    /* A maximum of 0 scores the prompt: only a completion that echoes has something to return then. */
    int64_t n = 0;
    bool echo = json_is_true(json_object_get(p->r->root, "echo"));
    int64_t min = p->r->kind == REQUEST_COMPLETION && echo ? 0 : 1;
    int rc = get_int(p, name, min, INT64_MAX, &n, err);
    if (rc) return rc;
    if (p->r->has_max_tokens && p->r->sampling.max_tokens != (size_t)n)
        return error_param(err, QUIRE_EINVAL, name,
                           "max_tokens and max_completion_tokens are both given and differ");
    p->r->has_max_tokens = true;
    p->r->sampling.max_tokens = (size_t)n;
    return 0;
}

FIELD parse_min_tokens(ARGS) {
    int64_t n = 0;
    int rc = get_int(p, name, 0, (int64_t)p->limits->max_model_len, &n, err);
    p->r->sampling.min_tokens = (size_t)n;
    return rc;
}

FIELD parse_ignore_eos(ARGS) {
    return json_in_bool(p->r->root, name, &p->r->sampling.ignore_eos, err);
}
FIELD parse_include_stop(ARGS) {
    return json_in_bool(p->r->root, name, &p->r->sampling.include_stop, err);
}
FIELD parse_echo(ARGS) {
    return json_in_bool(p->r->root, name, &p->r->echo, err);
}
FIELD parse_stream(ARGS) {
    return json_in_bool(p->r->root, name, &p->r->stream, err);
}
FIELD parse_skip_special(ARGS) {
    return json_in_bool(p->r->root, name, &p->r->skip_special_tokens, err);
}
FIELD parse_add_special(ARGS) {
    p->r->add_special_given = true;
    return json_in_bool(p->r->root, name, &p->r->add_special_tokens, err);
}
FIELD parse_token_ids_out(ARGS) {
    return json_in_bool(p->r->root, name, &p->r->return_token_ids, err);
}
FIELD parse_token_strs_out(ARGS) {
    return json_in_bool(p->r->root, name, &p->r->return_token_strs, err);
}
FIELD parse_skip_cache(ARGS) {
    return json_in_bool(p->r->root, name, &p->r->skip_prefix_cache, err);
}
FIELD parse_generation_prompt(ARGS) {
    return json_in_bool(p->r->root, name, &p->r->add_generation_prompt, err);
}
FIELD parse_continue(ARGS) {
    return json_in_bool(p->r->root, name, &p->r->continue_final_message, err);
}

FIELD parse_logprobs(ARGS) {
    int64_t n = 0;
    if (p->r->kind == REQUEST_CHAT) {
        bool on = false;
        int rc = json_in_bool(p->r->root, name, &on, err);
        if (!rc && on && p->r->sampling.n_logprobs < 0) p->r->sampling.n_logprobs = 0;
        return rc;
    }
    int rc = get_int(p, name, 0, (int64_t)p->limits->max_logprobs, &n, err);
    p->r->sampling.n_logprobs = (int)n;
    return rc;
}

FIELD parse_top_logprobs(ARGS) {
    int64_t n = 0;
    int rc = get_int(p, name, 0, (int64_t)p->limits->max_logprobs, &n, err);
    if (rc) return rc;
    if (n && !json_is_true(json_object_get(p->r->root, "logprobs")))
        return error_param(err, QUIRE_EINVAL, name, "top_logprobs needs \"logprobs\": true");
    if (n) p->r->sampling.n_logprobs = (int)n;
    return 0;
}

FIELD parse_prompt_logprobs(ARGS) {
    int64_t n = 0;
    int rc = get_int(p, name, 0, (int64_t)p->limits->max_logprobs, &n, err);
    p->r->sampling.n_prompt_logprobs = (int)n;
    return rc;
}

FIELD parse_stream_options(ARGS) {
    static const char *const known[] = {"include_usage", "continuous_usage_stats", "include_obfuscation"};
    int rc = of_type(name, value, json_is_object(value), "an object", err);
    if (rc) return rc;
    if (!json_is_true(json_object_get(p->r->root, "stream")))
        return error_param(err, QUIRE_EINVAL, name, "%s needs \"stream\": true", name);
    const char *key;
    json_t *v;
    json_object_foreach((json_t *)value, key, v) {
        bool found = false;
        for (size_t i = 0; i < sizeof known / sizeof *known; i++) found |= !strcmp(key, known[i]);
        if (!found)
            return error_param(err, QUIRE_EINVAL, name, "%s has the unknown field \"%.60s\"", name, key);
        if (!json_is_boolean(v) && !json_is_null(v))
            return error_param(err, QUIRE_EINVAL, name, "%s.%s must be true or false, not %s", name, key,
                               json_in_type_name(v));
    }
    p->r->include_usage = json_is_true(json_object_get(value, "include_usage"));
    p->r->continuous_usage = json_is_true(json_object_get(value, "continuous_usage_stats"));
    return 0;
}

FIELD parse_priority(ARGS) {
    int64_t n = 0;
    int rc = get_int(p, name, INT32_MIN, INT32_MAX, &n, err);
    p->r->priority = (int32_t)n;
    return rc;
}

FIELD parse_cache_salt(ARGS) {
    const json_t *s = NULL;
    int rc = json_in_string(p->r->root, name, 1, 1024, &s, err);
    if (rc) return rc;
    if (strlen(json_string_value(s)) != json_string_length(s))
        return error_param(err, QUIRE_EINVAL, name, "%s may not hold NUL bytes", name);
    p->r->cache_salt = json_string_value(s);
    return 0;
}

FIELD parse_documents(ARGS) {
    if (p->r->kind == REQUEST_RERANK) return request_parse_documents(p, name, value, err);
    int rc = of_type(name, value, json_is_array(value), "an array", err);
    if (rc) return rc;
    p->r->documents = (json_t *)value;
    return 0;
}

FIELD parse_response_format(ARGS) {
    const char *type = json_string_value(json_object_get(value, "type"));
    if (type && !strcmp(type, "text")) return 0;
    return error_param(err, type && strncmp(type, "json_", 5) == 0 ? QUIRE_EUNSUPPORTED : QUIRE_EINVAL, name,
                       "%s.type must be \"text\"; JSON output cannot be enforced by this version", name);
}

FIELD parse_modalities(ARGS) {
    bool ok = json_is_array(value);
    for (size_t i = 0; ok && i < json_array_size(value); i++) {
        const char *s = json_string_value(json_array_get(value, i));
        ok = s && !strcmp(s, "text");
    }
    return ok ? 0 : error_param(err, QUIRE_EUNSUPPORTED, name, "%s can only be [\"text\"]", name);
}

FIELD parse_only_true(ARGS) {
    return json_is_true(value) ? 0 : error_param(err, QUIRE_EUNSUPPORTED, name, "%s can only be true", name);
}

FIELD parse_only_false(ARGS) {
    return json_is_false(value) ? 0
                                : error_param(err, QUIRE_EUNSUPPORTED, name, "%s can only be false", name);
}

FIELD parse_reasoning_effort(ARGS) {
    const char *s = json_string_value(value);
    static const char *const allowed[] = {"none", "minimal", "low", "medium", "high", "xhigh", "max"};
    for (size_t i = 0; s && i < sizeof allowed / sizeof *allowed; i++)
        if (!strcmp(s, allowed[i])) return 0; /* read from root by the template call */
    return error_param(err, QUIRE_EINVAL, name, "%s must be none, minimal, low, medium, high, xhigh or max",
                       name);
}

FIELD ignore_string(ARGS) {
    return of_type(name, value, json_is_string(value), "a string", err);
}
FIELD ignore_bool(ARGS) {
    return of_type(name, value, json_is_boolean(value), "true or false", err);
}
FIELD ignore_object(ARGS) {
    return of_type(name, value, json_is_object(value), "an object", err);
}

FIELD refuse_template(ARGS) {
    return error_param(err, QUIRE_EUNSUPPORTED, name,
                       "%s in a request is refused; the operator sets it with --chat-template FILE", name);
}

FIELD refuse_constraint(ARGS) {
    return error_param(err, QUIRE_EUNSUPPORTED, name,
                       "%s: constrained output is not supported by this version", name);
}

FIELD refuse(ARGS) {
    return error_param(err, QUIRE_EUNSUPPORTED, name, "%s is not supported by this version", name);
}

FIELD refuse_functions(ARGS) {
    return error_param(err, QUIRE_EUNSUPPORTED, name, "%s is not supported: use tools and tool_choice", name);
}

FIELD parse_tokens(ARGS) {
    int rc = of_type(name, value, json_is_array(value), "an array of token ids", err);
    if (rc) return rc;
    p->r->prompts = arena_array(&p->r->arena, 1, sizeof *p->r->prompts);
    if (!p->r->prompts) return error_set(err, QUIRE_ENOMEM, "out of memory while reading the request");
    p->r->n_prompts = 1;
    return request_parse_token_ids(p, name, value, &p->r->prompts[0].ids, &p->r->prompts[0].n_ids, err);
}

#define GEN   REQUEST_GENERATES
#define POOL  REQUEST_POOLS
#define CHATS (REQUEST_CHAT | REQUEST_TOKENIZE)
#define ALL   (GEN | REQUEST_TOKENIZE | REQUEST_DETOKENIZE | POOL)

const struct request_field request_fields[] = {
    {"model", ALL, parse_model, "string", "one of the served names; the first one if absent"},
    {"prompt", REQUEST_COMPLETION | REQUEST_TOKENIZE, request_parse_prompt,
     "string, ids or arrays of them (completions); string (tokenize)", "not empty; at most 1024 prompts x n"},
    {"input", REQUEST_EMBEDDING, request_parse_prompt, "string, ids or arrays of them", "up to 1024"},
    {"query", REQUEST_RERANK, request_parse_query, "string", "what the documents are ranked for"},
    {"text_1", REQUEST_SCORE, request_parse_text_1, "string or array", "1 text, or as many as text_2"},
    {"text_2", REQUEST_SCORE, request_parse_text_2, "string or array", "up to 1023 texts"},
    {"messages", CHATS, request_parse_messages, "array",
     "roles system, developer, user, assistant, tool, function"},
    {"tokens", REQUEST_DETOKENIZE, parse_tokens, "array of ids", "ids of the vocabulary"},
    {"max_tokens", GEN, parse_max_tokens, "integer",
     ">= 1 (0 with echo); prompt and maximum together within max_model_len; default: 16 for completions, the "
     "room left for chat"},
    {"max_completion_tokens", GEN, parse_max_tokens, "integer", "the same as max_tokens"},
    {"min_tokens", GEN, parse_min_tokens, "integer", "0 to max_tokens"},
    {"temperature", GEN, parse_temperature, "number", "0 to 2; 0 is greedy; default 1"},
    {"top_p", GEN, parse_top_p, "number", "more than 0, to 1"},
    {"top_k", GEN, parse_top_k, "integer", ">= 1; 0 or -1 is off"},
    {"min_p", GEN, parse_min_p, "number", "0 to 1"},
    {"seed", GEN, parse_seed, "integer", "64 bit; the same seed gives the same answer, whatever else runs"},
    {"n", GEN, parse_n, "integer", "1 to 128"},
    {"best_of", REQUEST_COMPLETION, parse_best_of, "integer", "only equal to n"},
    {"stop", GEN, request_parse_stop, "string or array", "up to 16 of up to 1024 bytes"},
    {"stop_token_ids", GEN, request_parse_stop_ids, "array of ids", "up to 128"},
    {"ignore_eos", GEN, parse_ignore_eos, "boolean", "go on past the end-of-sequence token"},
    {"include_stop_str_in_output", GEN, parse_include_stop, "boolean", "keep the matched stop string"},
    {"repetition_penalty", GEN, parse_repetition, "number", "more than 0, to 10; 1 is off"},
    {"presence_penalty", GEN, parse_presence, "number", "-2 to 2"},
    {"frequency_penalty", GEN, parse_frequency, "number", "-2 to 2"},
    {"logit_bias", GEN, request_parse_bias, "object", "token id to -100 … 100, up to 4096 entries"},
    {"logprobs", GEN, parse_logprobs, "integer (completions); boolean (chat)", "0 to 20"},
    {"top_logprobs", REQUEST_CHAT, parse_top_logprobs, "integer", "0 to 20, with logprobs true"},
    {"prompt_logprobs", GEN, parse_prompt_logprobs, "integer", "0 to 20; not with stream"},
    {"echo", REQUEST_COMPLETION, parse_echo, "boolean", "put the prompt in front of the answer"},
    {"stream", GEN, parse_stream, "boolean", "server-sent events"},
    {"stream_options", GEN, parse_stream_options, "object",
     "include_usage, continuous_usage_stats; with stream true"},
    {"priority", GEN | POOL, parse_priority, "integer",
     "lower runs first under --scheduling-policy priority"},
    {"cache_salt", GEN | POOL, parse_cache_salt, "string",
     "1 to 1024 bytes; prefixes are only shared under one salt"},
    {"skip_reading_prefix_cache", GEN, parse_skip_cache, "boolean", "compute the whole prompt"},
    {"add_special_tokens", REQUEST_COMPLETION | CHATS | REQUEST_EMBEDDING, parse_add_special, "boolean",
     "add BOS as the model file says; default true, for chat false"},
    {"skip_special_tokens", GEN | REQUEST_DETOKENIZE, parse_skip_special, "boolean", "default true"},
    {"return_token_ids", GEN, parse_token_ids_out, "boolean",
     "add prompt_token_ids and token_ids to the answer"},
    {"return_token_strs", REQUEST_TOKENIZE, parse_token_strs_out, "boolean", "add the text of each token"},
    {"add_generation_prompt", CHATS, parse_generation_prompt, "boolean", "default true"},
    {"continue_final_message", CHATS, parse_continue, "boolean",
     "go on with the last message instead of a new one"},
    {"chat_template_kwargs", CHATS, request_parse_template_kwargs, "object",
     "further variables for the chat template"},
    {"documents", CHATS | REQUEST_RERANK, parse_documents, "array",
     "for templates that take documents; of rerank up to 1023 strings or {\"text\": string}"},
    {"encoding_format", REQUEST_EMBEDDING, request_parse_encoding, "string",
     "float, or base64: of little-endian 32-bit floats; default float"},
    {"dimensions", REQUEST_EMBEDDING, request_parse_dimensions, "integer",
     "the vector's size; a smaller one only with --matryoshka"},
    {"truncate_prompt_tokens", POOL, request_parse_truncate, "integer",
     "texts are cut to so many tokens; -1 is max_model_len; longer ones are refused if absent"},
    {"top_n", REQUEST_RERANK, request_parse_top_n, "integer", "best so many; 0 (default) is all"},
    {"return_documents", REQUEST_RERANK, request_parse_return_documents, "boolean",
     "the text in each result; default true"},
    {"use_activation", POOL, request_parse_activation, "boolean",
     "vectors of length 1, scores from 0 to 1 (default true, but as a cross-encoder's folder says); false "
     "gives the "
     "model's own numbers"},
    {"normalize", REQUEST_EMBEDDING, request_parse_activation, "boolean", "the same as use_activation"},
    {"tools", CHATS, request_parse_tools, "array",
     "shown to the model; calls come back as text in this version"},
    {"tool_choice", REQUEST_CHAT, request_parse_tool_choice, "string",
     "auto, or none: the tools are not shown"},
    {"parallel_tool_calls", REQUEST_CHAT, ignore_bool, "boolean",
     "no call is parsed in this version, so there is never more than one"},
    {"reasoning_effort", REQUEST_CHAT, parse_reasoning_effort, "string", "given to the chat template"},
    {"response_format", GEN, parse_response_format, "object", "only {\"type\": \"text\"}"},
    {"modalities", REQUEST_CHAT, parse_modalities, "array", "only [\"text\"]"},
    {"spaces_between_special_tokens", GEN, parse_only_true, "boolean", "only true"},
    {"use_beam_search", GEN, parse_only_false, "boolean", "only false"},
    {"user", GEN | POOL, ignore_string, "string", "no effect"},
    {"metadata", GEN, ignore_object, "object", "no effect"},
    {"store", GEN, ignore_bool, "boolean", "no effect: nothing is stored"},
    {"service_tier", GEN, ignore_string, "string", "no effect"},
    {"safety_identifier", GEN, ignore_string, "string", "no effect"},
    {"prompt_cache_key", GEN, ignore_string, "string", "no effect: prefixes are found by content"},
    {"chat_template", CHATS, refuse_template, "", "refused"},
    {"guided_json", GEN, refuse_constraint, "", "refused"},
    {"guided_regex", GEN, refuse_constraint, "", "refused"},
    {"guided_choice", GEN, refuse_constraint, "", "refused"},
    {"guided_grammar", GEN, refuse_constraint, "", "refused"},
    {"structured_outputs", GEN, refuse_constraint, "", "refused"},
    {"grammar", GEN, refuse_constraint, "", "refused"},
    {"json_schema", GEN, refuse_constraint, "", "refused"},
    {"suffix", REQUEST_COMPLETION, refuse, "", "refused"},
    {"functions", REQUEST_CHAT, refuse_functions, "", "refused: use tools"},
    {"function_call", REQUEST_CHAT, refuse_functions, "", "refused: use tool_choice"},
    {"audio", REQUEST_CHAT, refuse, "", "refused"},
    {"prediction", REQUEST_CHAT, refuse, "", "refused"},
    {"web_search_options", REQUEST_CHAT, refuse, "", "refused"},
    {"allowed_token_ids", GEN, refuse, "", "refused"},
    {"bad_words", GEN, refuse, "", "refused"},
    {NULL, 0, NULL, NULL, NULL},
};
