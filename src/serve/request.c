#include "serve/request.h"

#include "base/error.h"
#include "base/suggest.h"
#include "base/utf8.h"
#include "serve/json_in.h"
#include "serve/serve.h"

#include <string.h>

#define DEFAULT_COMPLETION_TOKENS 16 /* OpenAI's default for /v1/completions */

static const struct request_field *find_field(const char *name) {
    for (const struct request_field *f = request_fields; f->name; f++)
        if (!strcmp(f->name, name)) return f;
    return NULL;
}

static int unknown_field(struct request *r, const char *name, struct error *err) {
    struct suggestion s;
    utf8_printable(r->unknown_field, sizeof r->unknown_field, name, strlen(name));
    suggest_init(&s, name, strlen(name));
    for (const struct request_field *f = request_fields; f->name; f++)
        if (f->kinds & r->kind) suggest_offer(&s, f->name);
    if (s.nearest)
        return error_param(err, QUIRE_EINVAL, r->unknown_field,
                           "unknown field \"%.60s\"; did you mean \"%s\"?", name, s.nearest);
    return error_param(err, QUIRE_EINVAL, r->unknown_field, "unknown field \"%.60s\"", name);
}

static int parse_fields(struct request_parser *p, struct error *err) {
    const char *key;
    json_t *value;
    json_object_foreach(p->r->root, key, value) {
        const struct request_field *f = find_field(key);
        if (!f || !(f->kinds & p->r->kind)) return unknown_field(p->r, key, err);
        if (json_is_null(value)) continue;
        int rc = f->parse(p, f->name, value, err);
        if (rc) return rc;
    }
    return 0;
}

static int check_together(struct request *r, const struct model_sampling *model, struct error *err) {
    struct quire_sampling *s = &r->sampling;
    if (r->kind == REQUEST_COMPLETION && !r->prompts)
        return error_param(err, QUIRE_EINVAL, "prompt", "prompt is missing");
    if (r->kind == REQUEST_CHAT && !r->messages)
        return error_param(err, QUIRE_EINVAL, "messages", "messages is missing");
    if (r->kind == REQUEST_TOKENIZE && !r->messages && !r->prompts)
        return error_param(err, QUIRE_EINVAL, "prompt", "prompt or messages is missing");
    if (r->kind == REQUEST_TOKENIZE && r->messages && r->prompts)
        return error_param(err, QUIRE_EINVAL, "prompt", "give prompt or messages, not both");
    if (r->kind & REQUEST_POOLS) return request_check_pool(r, err);
    if (r->kind == REQUEST_DETOKENIZE && !r->prompts)
        return error_param(err, QUIRE_EINVAL, "tokens", "tokens is missing");
    if (r->n_prompts * r->n > REQUEST_MAX_STREAMS)
        return error_param(err, QUIRE_EINVAL, "n", "%zu prompts with n = %zu are more than %d answers",
                           r->n_prompts, r->n, REQUEST_MAX_STREAMS);
    if (r->has_max_tokens && s->min_tokens > s->max_tokens)
        return error_param(err, QUIRE_EINVAL, "min_tokens", "min_tokens is %zu, more than max_tokens %zu",
                           s->min_tokens, s->max_tokens);
    if (r->stream && s->n_prompt_logprobs >= 0)
        return error_param(err, QUIRE_EUNSUPPORTED, "prompt_logprobs",
                           "prompt_logprobs cannot be streamed; leave out \"stream\"");
    if (r->continue_final_message && r->add_generation_prompt &&
        json_object_get(r->root, "add_generation_prompt"))
        return error_param(err, QUIRE_EINVAL, "continue_final_message",
                           "continue_final_message and add_generation_prompt exclude each other");
    if (r->continue_final_message) r->add_generation_prompt = false;
    if (r->hide_tools) r->tools = NULL;
    /* Scores of an echoed prompt are prompt_logprobs under another name. */
    if (r->echo && s->n_logprobs >= 0 && s->n_prompt_logprobs < s->n_logprobs)
        s->n_prompt_logprobs = s->n_logprobs;
    if (!r->has_max_tokens && r->kind == REQUEST_COMPLETION) {
        s->max_tokens = DEFAULT_COMPLETION_TOKENS > s->min_tokens ? DEFAULT_COMPLETION_TOKENS : s->min_tokens;
        r->has_max_tokens = true;
    }
    if (model && model->max_tokens && (!r->has_max_tokens || s->max_tokens > model->max_tokens)) {
        s->max_tokens = model->max_tokens > s->min_tokens ? model->max_tokens : s->min_tokens;
        r->has_max_tokens = true;
    }
    return 0;
}

static void set_defaults(struct request *r, const struct model_sampling *model) {
    r->n = 1;
    r->add_special_tokens = r->kind != REQUEST_CHAT;
    r->skip_special_tokens = true;
    r->add_generation_prompt = true;
    r->return_documents = true;
    r->truncate_tokens = SIZE_MAX;
    r->sampling = (struct quire_sampling){
        .temperature = 1, .top_p = 1, .repetition_penalty = 1, .n_logprobs = -1, .n_prompt_logprobs = -1};
    if (!model) return;
    r->sampling.temperature = model->temperature;
    r->sampling.top_p = model->top_p;
    r->sampling.min_p = model->min_p;
    r->sampling.top_k = model->top_k;
    r->sampling.repetition_penalty = model->repetition_penalty;
}

int request_parse(enum request_kind kind, const char *body, size_t len, const struct request_limits *limits,
                  struct request *out, struct error *err) {
    *out = (struct request){.kind = kind};
    arena_init(&out->arena, 4096, 0);
    set_defaults(out, limits->sampling);
    out->raw_vectors = limits->raw_scores;
    struct request_parser p = {out, limits};
    int rc = json_in_object(body, len, &out->root, err);
    if (!rc) rc = parse_fields(&p, err);
    if (!rc) rc = check_together(out, limits->sampling, err);
    if (rc) {
        json_decref(out->root);
        arena_free(&out->arena);
        out->root = NULL;
    }
    return rc;
}

/* Moves what is still needed to an arena of its own. Without memory for it, all stays where it is. */
static void shrink(struct request *r) {
    struct quire_sampling *s = &r->sampling;
    struct arena kept;
    arena_init(&kept, 256, 0);
    char *model = r->model ? arena_strndup(&kept, r->model, strlen(r->model)) : NULL;
    uint32_t *ids = arena_array(&kept, s->n_stop_token_ids, sizeof *ids);
    if ((r->model && !model) || !ids) {
        arena_free(&kept);
        return;
    }
    if (s->n_stop_token_ids) memcpy(ids, s->stop_token_ids, s->n_stop_token_ids * sizeof *ids);
    arena_free(&r->arena);
    r->arena = kept;
    r->model = model;
    s->stop_token_ids = ids;
}

void request_forget(struct request *r) {
    json_decref(r->root);
    r->root = r->messages = r->tools = r->documents = r->template_kwargs = NULL;
    r->prompts = r->queries = NULL;
    r->cache_salt = NULL;
    r->sampling.stop = NULL;
    r->sampling.bias = NULL;
    r->n_prompts = r->n_queries = r->sampling.n_stop = r->sampling.n_bias = 0;
    shrink(r);
}

void request_free(struct request *r) {
    json_decref(r->root);
    arena_free(&r->arena);
    *r = (struct request){0};
}

void request_print_fields(FILE *out) {
    static const struct {
        unsigned kind;
        const char *name;
    } kinds[] = {{REQUEST_COMPLETION, "completions"},
                 {REQUEST_CHAT, "chat"},
                 {REQUEST_TOKENIZE, "tokenize"},
                 {REQUEST_DETOKENIZE, "detokenize"},
                 {REQUEST_EMBEDDING, "embeddings"},
                 {REQUEST_RERANK, "rerank"},
                 {REQUEST_SCORE, "score"}};
    fprintf(out, "| field | of | type | allowed |\n|---|---|---|---|\n");
    for (const struct request_field *f = request_fields; f->name; f++) {
        fprintf(out, "| `%s` |", f->name);
        for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
            if (f->kinds & kinds[i].kind) fprintf(out, " %s", kinds[i].name);
        fprintf(out, " | %s | %s |\n", f->type, f->help);
    }
}
