/* How many tokens a chat template adds to the words of a conversation. */
#include "cli/cli.h"

#include "base/clock.h"

#include <string.h>

#define WORDS "one two three four"

static size_t count(const struct model_text *m, const char *text, size_t len, const struct chat_rendering *r) {
    struct token_buf ids = {0};
    struct error err;
    int rc = tokenizer_encode(m->tokenizer, text, len, TOKENIZE_SPECIAL, r ? r->content : NULL,
                              r ? r->n_content : 0, 0, &ids, &err);
    size_t n = rc ? 0 : ids.n;
    token_buf_free(&ids);
    return n;
}

static json_t *conversation(const char *roles) {
    json_t *messages = json_array();
    for (; *roles; roles++) {
        const char *role = *roles == 's' ? "system" : *roles == 'u' ? "user" : "assistant";
        json_array_append_new(messages, json_pack("{s:s,s:s}", "role", role, "content", WORDS));
    }
    return messages;
}

size_t template_tokens(const struct model_text *m, const char *roles) {
    struct chat_rendering r;
    struct error err;
    if (!m->chat_template) return 0;
    json_t *messages = conversation(roles);
    struct chat_template_input in = {.messages = messages,
                                     .add_generation_prompt = true,
                                     .bos_token = m->bos_token,
                                     .eos_token = m->eos_token,
                                     .now_unix_s = clock_unix_s()};
    size_t n = 0, words = strlen(roles) * count(m, WORDS, strlen(WORDS), NULL);
    if (messages && !chat_template_render(m->chat_template, &in, &r, &err)) {
        n = count(m, r.text.data, r.text.len, &r);
        chat_rendering_free(&r);
    }
    json_decref(messages);
    return n > words ? n - words : 0;
}
