/* From a checked request to token ids: chat template, then tokenizer. Runs on a worker thread. */
#include "serve/internal.h"

#include "base/error.h"
#include "base/clock.h"
#include "base/size.h"

#include <stdlib.h>
#include <string.h>

/* Prompts beyond the model's length are counted exactly up to this, so that the error tells the true number.
 */
#define COUNT_TOKENS_UP_TO ((size_t)1 << 20)

static int too_long(const struct serve *s, const struct request *r, size_t n_tokens, bool exact,
                    struct error *err) {
    const char *param = r->messages ? "messages" : "prompt";
    if (r->kind == REQUEST_TOKENIZE)
        return error_param(err, QUIRE_EINVAL, param, "the text has more than %zu tokens; no more are counted",
                           n_tokens);
    return error_param(
        err, QUIRE_ELIMIT, param,
        "the prompt has %s%zu tokens; with max_tokens %zu the model's limit is %zu in all (max_model_len)",
        exact ? "" : "more than ", n_tokens, r->has_max_tokens ? r->sampling.max_tokens : (size_t)1,
        s->limits.max_model_len);
}

static int encode(const struct serve *s, const struct request *r, const char *text, size_t len,
                  unsigned flags, const struct content_span *content, size_t n_content, struct token_buf *out,
                  struct error *err) {
    size_t limit = size_max(COUNT_TOKENS_UP_TO, s->limits.max_model_len);
    int rc = tokenizer_encode(s->text.tokenizer, text, len, flags, content, n_content, limit, out, err);
    return rc == QUIRE_ELIMIT ? too_long(s, r, limit, false, err) : rc;
}

/* ---- chat ---- */

/* The last message's text, where continue_final_message goes on: the rendering is cut right behind it, as
 * transformers' apply_chat_template does. */
static int cut_after_final(const struct request *r, struct chat_rendering *rendering, struct error *err) {
    const json_t *last = json_array_get(r->messages, json_array_size(r->messages) - 1);
    const json_t *content = json_object_get(last, "content");
    const char *text = json_string_value(content), *end = text + json_string_length(content);
    const char *start = text;
    while (start < end && strchr(" \t\r\n\v\f", *start) && *start) start++;
    const char *stop = end;
    while (stop > start && strchr(" \t\r\n\v\f", stop[-1]) && stop[-1]) stop--;
    size_t n = (size_t)(stop - start);
    struct buf *out = &rendering->text;
    for (size_t at = out->len >= n ? out->len - n + 1 : 0; n && at-- > 0;) {
        if (memcmp(out->data + at, start, n)) continue;
        size_t tail = (size_t)(end - stop);
        bool kept = out->len - at - n >= tail && !memcmp(out->data + at + n, stop, tail);
        out->len = at + n + (kept ? tail : 0);
        return 0;
    }
    return error_param(err, QUIRE_EINVAL, "continue_final_message",
                       "the final message is empty or does not appear in the rendered chat template");
}

static json_t *template_variables(const struct request *r) {
    json_t *effort = json_object_get(r->root, "reasoning_effort");
    json_t *vars = r->template_kwargs ? json_copy(r->template_kwargs) : json_object();
    if (vars && json_is_string(effort) && !json_object_get(vars, "reasoning_effort"))
        json_object_set(vars, "reasoning_effort", effort);
    return vars;
}

static void clip_content(struct chat_rendering *r) {
    while (r->n_content && r->content[r->n_content - 1].start >= r->text.len) r->n_content--;
    if (!r->n_content) return;
    struct content_span *last = &r->content[r->n_content - 1];
    last->len = size_min(last->len, r->text.len - last->start);
}

static int build_chat(const struct serve *s, struct request *r, struct token_prompt *out, struct error *err) {
    if (!s->text.chat_template)
        return error_param(
            err, QUIRE_EUNSUPPORTED, "messages",
            "this model has no chat template; the operator can give one with --chat-template FILE");
    json_t *vars = template_variables(r);
    if (!vars) return error_set(err, QUIRE_ENOMEM, "out of memory while rendering the chat template");
    struct chat_template_input in = {.messages = r->messages,
                                     .tools = r->tools,
                                     .documents = r->documents,
                                     .kwargs = vars,
                                     .add_generation_prompt = r->add_generation_prompt,
                                     .bos_token = s->text.bos_token,
                                     .eos_token = s->text.eos_token,
                                     .now_unix_s = clock_unix_s()};
    struct chat_rendering rendering;
    int rc = chat_template_render(s->text.chat_template, &in, &rendering, err);
    json_decref(vars);
    if (rc) {
        if (rc == QUIRE_ENOMEM) return rc;
        err->param = "messages";
        return err->code = QUIRE_EINVAL; /* the conversation does not suit the template */
    }
    if (r->continue_final_message) rc = cut_after_final(r, &rendering, err);
    clip_content(&rendering);
    /* Templates write BOS themselves: more is added only where the request says so. */
    bool add = r->add_special_given && r->add_special_tokens;
    unsigned flags = TOKENIZE_SPECIAL | (add ? TOKENIZE_ADD : 0);
    if (!rc)
        rc = encode(s, r, rendering.text.data ? rendering.text.data : "", rendering.text.len, flags,
                    rendering.content, rendering.n_content, &out->ids, err);
    chat_rendering_free(&rendering);
    return rc;
}

/* ---- completions ---- */

static int copy_ids(const struct request_prompt *p, struct token_buf *out, struct error *err) {
    out->ids = malloc(p->n_ids * sizeof *out->ids);
    if (!out->ids) return error_set(err, QUIRE_ENOMEM, "out of memory while reading the prompt");
    memcpy(out->ids, p->ids, p->n_ids * sizeof *out->ids);
    out->n = out->cap = p->n_ids;
    return 0;
}

static int build_text(const struct serve *s, const struct request *r, const struct request_prompt *p,
                      struct token_prompt *out, struct error *err) {
    out->text = p->text;
    out->len = p->len;
    if (!p->text) return copy_ids(p, &out->ids, err);
    unsigned flags = TOKENIZE_SPECIAL | (r->add_special_tokens ? TOKENIZE_ADD : 0);
    return encode(s, r, p->text, p->len, flags, NULL, 0, &out->ids, err);
}

static int check_length(const struct serve *s, const struct request *r, size_t n, struct error *err) {
    size_t want;
    if (!n)
        return error_param(err, QUIRE_EINVAL, r->messages ? "messages" : "prompt",
                           "%s is empty: it must give at least one token",
                           r->messages ? "the rendered chat" : "prompt");
    size_t max_tokens = r->has_max_tokens ? r->sampling.max_tokens : 1;
    if (!size_add(n, max_tokens, &want) || want > s->limits.max_model_len)
        return too_long(s, r, n, true, err);
    return 0;
}

int prompt_build(const struct serve *s, struct request *r, struct token_prompt **out, size_t *n,
                 struct error *err) {
    size_t count = r->messages ? 1 : r->n_prompts;
    bool generates = r->kind & (REQUEST_CHAT | REQUEST_COMPLETION);
    struct token_prompt *prompts = calloc(count, sizeof *prompts);
    if (!prompts) return error_set(err, QUIRE_ENOMEM, "out of memory while reading the prompt");
    int rc = 0;
    for (size_t i = 0; i < count && !rc; i++) {
        rc = r->messages ? build_chat(s, r, &prompts[i], err)
                         : build_text(s, r, &r->prompts[i], &prompts[i], err);
        prompts[i].n_tokens = prompts[i].ids.n;
        if (!rc && generates) rc = check_length(s, r, prompts[i].n_tokens, err);
    }
    if (rc) {
        prompt_free(prompts, count);
        return rc;
    }
    *out = prompts;
    *n = count;
    return 0;
}

void prompt_free(struct token_prompt *p, size_t n) {
    for (size_t i = 0; p && i < n; i++) token_buf_free(&p[i].ids);
    free(p);
}
