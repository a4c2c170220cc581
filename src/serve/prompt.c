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

/* continue_final_message: the last message is rendered with a mark behind its text, and the rendering cut at
 * the mark, as transformers' apply_chat_template does. A template that strips the text strips the mark's
 * blank: then what stands before the mark is stripped, too. */
#define MARK     "QUIRE_GOES_ON_HERE "
#define MARK_LEN (sizeof MARK - 2) /* without the blank */

static const json_t *final_text(const struct request *r) {
    return json_object_get(json_array_get(r->messages, json_array_size(r->messages) - 1), "content");
}

static json_t *with_mark(const struct request *r) {
    size_t last = json_array_size(r->messages) - 1;
    struct buf text = BUF_INIT;
    buf_append(&text, json_string_value(final_text(r)), json_string_length(final_text(r)));
    buf_append(&text, MARK, MARK_LEN + 1);
    json_t *content = buf_ok(&text) ? json_stringn_nocheck(text.data, text.len) : NULL;
    json_t *message = json_copy(json_array_get(r->messages, last)), *messages = json_copy(r->messages);
    bool done = content && message && messages && !json_object_set(message, "content", content) &&
                !json_array_set(messages, last, message);
    json_decref(content);
    json_decref(message);
    buf_free(&text);
    if (done) return messages;
    json_decref(messages);
    return NULL;
}

static bool is_blank(char c) {
    return c && strchr(" \t\r\n\v\f", c);
}

/* Whether the text, without what is blank around it, has been rendered. */
static bool is_rendered(const struct buf *out, const json_t *content) {
    const char *start = json_string_value(content), *end = start + json_string_length(content);
    while (start < end && is_blank(*start)) start++;
    while (end > start && is_blank(end[-1])) end--;
    return start == end || memmem(out->data, out->len, start, (size_t)(end - start));
}

static int cut_at_mark(const struct request *r, struct buf *out, struct error *err) {
    size_t at = out->len;
    while (at-- > 0)
        if (out->len - at >= MARK_LEN && !memcmp(out->data + at, MARK, MARK_LEN)) break;
    if (at == SIZE_MAX || !is_rendered(out, final_text(r)))
        return error_param(err, QUIRE_EINVAL, "continue_final_message",
                           "the final message does not appear in the rendered chat template");
    bool kept = out->len - at > MARK_LEN && out->data[at + MARK_LEN] == ' ';
    while (!kept && at && is_blank(out->data[at - 1])) at--;
    out->len = at;
    return 0;
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
    json_t *messages = r->continue_final_message ? with_mark(r) : json_incref(r->messages);
    struct chat_template_input in = {.messages = messages,
                                     .tools = r->tools,
                                     .documents = r->documents,
                                     .kwargs = vars,
                                     .add_generation_prompt = r->add_generation_prompt,
                                     .bos_token = s->text.bos_token,
                                     .eos_token = s->text.eos_token,
                                     .now_unix_s = clock_unix_s()};
    struct chat_rendering rendering;
    int rc = vars && messages
                 ? chat_template_render(s->text.chat_template, &in, &rendering, err)
                 : error_set(err, QUIRE_ENOMEM, "out of memory while rendering the chat template");
    json_decref(messages);
    json_decref(vars);
    if (rc) {
        if (rc == QUIRE_ENOMEM) return rc;
        err->param = "messages";
        return err->code = QUIRE_EINVAL; /* the conversation does not suit the template */
    }
    if (r->continue_final_message) rc = cut_at_mark(r, &rendering.text, err);
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
