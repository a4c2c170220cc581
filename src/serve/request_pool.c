/* Fields of requests for vectors and scores. */
#include "serve/request.h"

#include "base/error.h"
#include "serve/json_in.h"

#include <string.h>

#define ARGS struct request_parser *p, const char *name, const json_t *value, struct error *err

static int no_memory(struct error *err) {
    return error_set(err, QUIRE_ENOMEM, "out of memory while reading the request");
}

/* A text as such, or as Cohere and Jina also write it: {"text": "..."}. */
static int one_text(const char *name, size_t index, const json_t *v, struct request_prompt *out,
                    struct error *err) {
    const json_t *text = json_is_object(v) && json_object_size(v) == 1 ? json_object_get(v, "text") : v;
    if (!json_is_string(text))
        return error_param(err, QUIRE_EINVAL, name, "%s[%zu] must be a string or {\"text\": string}, not %s",
                           name, index, json_in_type_name(v));
    out->text = json_string_value(text);
    out->len = json_string_length(text);
    return 0;
}

static int text_list(ARGS, struct request_prompt **out, size_t *n) {
    bool many = json_is_array(value);
    *n = many ? json_array_size(value) : 1;
    if (!*n) return error_param(err, QUIRE_EINVAL, name, "%s is an empty array", name);
    if (*n > REQUEST_MAX_STREAMS)
        return error_param(err, QUIRE_EINVAL, name, "%s has %zu texts; at most %d are allowed in one request",
                           name, *n, REQUEST_MAX_STREAMS);
    *out = arena_array(&p->r->arena, *n, sizeof **out);
    if (!*out) return no_memory(err);
    for (size_t i = 0; i < *n; i++) {
        (*out)[i] = (struct request_prompt){0};
        int rc = one_text(name, i, many ? json_array_get(value, i) : value, &(*out)[i], err);
        if (rc) return rc;
    }
    return 0;
}

int request_parse_query(ARGS) {
    if (json_is_array(value))
        return error_param(err, QUIRE_EINVAL, name, "%s must be a string, not an array", name);
    return text_list(p, name, value, err, &p->r->queries, &p->r->n_queries);
}

int request_parse_documents(ARGS) {
    if (!json_is_array(value))
        return error_param(err, QUIRE_EINVAL, name, "%s must be an array of texts, not %s", name,
                           json_in_type_name(value));
    return text_list(p, name, value, err, &p->r->prompts, &p->r->n_prompts);
}

int request_parse_text_1(ARGS) {
    return text_list(p, name, value, err, &p->r->queries, &p->r->n_queries);
}

int request_parse_text_2(ARGS) {
    return text_list(p, name, value, err, &p->r->prompts, &p->r->n_prompts);
}

int request_parse_encoding(ARGS) {
    const char *s = json_string_value(value);
    p->r->base64 = s && !strcmp(s, "base64");
    if (p->r->base64 || (s && !strcmp(s, "float"))) return 0;
    return error_param(err, QUIRE_EINVAL, name, "%s must be \"float\" or \"base64\"", name);
}

static int get_size(struct request_parser *p, const char *name, int64_t min, size_t *out, struct error *err) {
    int64_t n = 0;
    int rc = json_in_int(p->r->root, name, min, INT32_MAX, &n, err);
    if (!rc) *out = (size_t)n;
    return rc;
}

int request_parse_dimensions(ARGS) {
    return get_size(p, name, 1, &p->r->dimensions, err);
}

int request_parse_top_n(ARGS) {
    return get_size(p, name, 0, &p->r->top_n, err);
}

/* -1: to the model's length. */
int request_parse_truncate(ARGS) {
    int64_t n = 0;
    int rc = json_in_int(p->r->root, name, -1, (int64_t)p->limits->max_model_len, &n, err);
    if (!rc && !n) rc = error_param(err, QUIRE_EINVAL, name, "%s is 0; allowed is -1 or at least 1", name);
    if (!rc) p->r->truncate_tokens = n < 0 ? 0 : (size_t)n;
    return rc;
}

int request_parse_activation(ARGS) {
    bool on = true;
    int rc = json_in_bool(p->r->root, name, &on, err);
    if (rc) return rc;
    if (p->r->activation_given && p->r->raw_vectors == on)
        return error_param(
            err, QUIRE_EINVAL, name,
            "normalize and use_activation say the same and contradict each other here; give one of them");
    p->r->activation_given = true;
    p->r->raw_vectors = !on;
    return 0;
}

int request_parse_return_documents(ARGS) {
    return json_in_bool(p->r->root, name, &p->r->return_documents, err);
}

int request_check_pool(const struct request *r, struct error *err) {
    bool rerank = r->kind == REQUEST_RERANK, score = r->kind == REQUEST_SCORE;
    if (r->kind == REQUEST_EMBEDDING && !r->prompts)
        return error_param(err, QUIRE_EINVAL, "input", "input is missing");
    if (rerank && !r->queries) return error_param(err, QUIRE_EINVAL, "query", "query is missing");
    if (rerank && !r->prompts) return error_param(err, QUIRE_EINVAL, "documents", "documents is missing");
    if (score && !r->queries) return error_param(err, QUIRE_EINVAL, "text_1", "text_1 is missing");
    if (score && !r->prompts) return error_param(err, QUIRE_EINVAL, "text_2", "text_2 is missing");
    if (score && r->n_queries != 1 && r->n_queries != r->n_prompts)
        return error_param(err, QUIRE_EINVAL, "text_1",
                           "text_1 has %zu texts and text_2 %zu; text_1 must have 1 or as many", r->n_queries,
                           r->n_prompts);
    if (r->n_queries + r->n_prompts > REQUEST_MAX_STREAMS)
        return error_param(err, QUIRE_EINVAL, rerank ? "documents" : "text_2",
                           "%zu texts; at most %d are allowed in one request", r->n_queries + r->n_prompts,
                           REQUEST_MAX_STREAMS);
    return 0;
}

const char *request_prompts_field(const struct request *r) {
    return r->kind == REQUEST_EMBEDDING ? "input"
           : r->kind == REQUEST_RERANK  ? "documents"
           : r->kind == REQUEST_SCORE   ? "text_2"
                                        : "prompt";
}
