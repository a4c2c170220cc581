/* How to make prompts of a length that the server counts: words of one token, ids, and what the server adds.
 */
#include "load/target.h"

#include "base/error.h"
#include "base/json_out.h"

#include <jansson.h>
#include <stdlib.h>
#include <string.h>

enum dialect { DIALECT_VLLM, DIALECT_LLAMA };

static void tokenize_body(const struct target *t, enum dialect d, const char *text, size_t n,
                          struct buf *out) {
    struct json_out j;
    buf_clear(out);
    json_out_init(&j, out);
    json_out_obj(&j);
    if (d == DIALECT_VLLM) {
        json_out_key(&j, "model");
        json_out_str(&j, t->model);
    }
    json_out_key(&j, d == DIALECT_VLLM ? "prompt" : "content");
    json_out_strn(&j, text, n);
    json_out_key(&j, d == DIALECT_VLLM ? "add_special_tokens" : "add_special");
    json_out_bool(&j, false);
    json_out_obj_end(&j);
}

/* {"tokens": [ids]} as a list; NULL when there is none. The caller's. */
static json_t *tokens_of(const struct answer *a) {
    if (a->outcome != OUTCOME_OK || !a->text.data) return NULL;
    json_t *root = json_loadb(a->text.data, a->text.len, 0, NULL);
    json_t *tokens = json_object_get(root, "tokens");
    tokens = json_array_size(tokens) ? json_incref(tokens) : NULL;
    json_decref(root);
    return tokens;
}

static char *tokenize_url(const struct target *t) {
    struct buf url = BUF_INIT;
    buf_printf(&url, "%s/tokenize", t->base);
    if (buf_ok(&url)) return url.data;
    buf_free(&url);
    return NULL;
}

/* Tokens of one text, whichever dialect the server has; NULL without a tokenizer. */
static json_t *tokenize(const struct target_config *config, const struct target *t, const char *text,
                        size_t n, enum dialect *dialect) {
    char *url = tokenize_url(t);
    struct buf body = BUF_INIT;
    json_t *tokens = NULL;
    for (int d = DIALECT_VLLM; url && !tokens && d <= DIALECT_LLAMA; d++) {
        struct ask ask = {.url = url, .body = &body, .plain = true};
        tokenize_body(t, (enum dialect)d, text, n, &body);
        if (buf_ok(&body) && !target_ask(config, &ask, 1, NULL)) tokens = tokens_of(&ask.answer);
        asks_free(&ask, 1);
        *dialect = (enum dialect)d;
    }
    buf_free(&body);
    free(url);
    return tokens;
}

int64_t target_count(const struct target_config *config, const struct target *t, const char *text, size_t n) {
    enum dialect d;
    json_t *tokens = tokenize(config, t, text, n, &d);
    int64_t count = tokens ? (int64_t)json_array_size(tokens) : -1;
    json_decref(tokens);
    return count;
}

/* The ids of the words' text: all are ordinary tokens, whatever the words are cut into. */
static void keep_ids(struct target *t, const json_t *tokens) {
    const json_t *v;
    size_t i;
    json_array_foreach(tokens, i, v) {
        uint32_t id = (uint32_t)json_integer_value(v);
        bool known = !json_is_integer(v) || json_integer_value(v) < 0;
        for (size_t k = 0; k < t->n_ids && !known; k++) known = t->ids[k] == id;
        if (!known && t->n_ids < POOL_MAX) t->ids[t->n_ids++] = id;
    }
}

/* Keeps the words of which eight, each after a space, are eight tokens more than none. */
static int keep_words(const struct target_config *config, struct target *t, enum dialect d, size_t n_words,
                      struct error *err) {
    char *url = tokenize_url(t);
    struct ask *asks = calloc(n_words, sizeof *asks);
    struct buf *bodies = calloc(n_words, sizeof *bodies), text = BUF_INIT;
    int rc = url && asks && bodies ? 0 : error_set(err, QUIRE_ENOMEM, "out of memory");
    for (size_t i = 0; !rc && i < n_words; i++) {
        buf_clear(&text);
        buf_puts(&text, target_words[0]);
        for (int k = 0; k < 8; k++) buf_printf(&text, " %s", target_words[i]);
        tokenize_body(t, d, text.data, text.len, &bodies[i]);
        asks[i] = (struct ask){.url = url, .body = &bodies[i], .plain = true};
        if (!buf_ok(&text) || !buf_ok(&bodies[i])) rc = error_set(err, QUIRE_ENOMEM, "out of memory");
    }
    if (!rc) rc = target_ask(config, asks, n_words, err);
    for (size_t i = 0; !rc && i < n_words; i++) {
        json_t *tokens = tokens_of(&asks[i].answer);
        if (json_array_size(tokens) == 9) t->words[t->n_words++] = target_words[i];
        json_decref(tokens);
    }
    for (size_t i = 0; i < n_words && asks && bodies; i++) {
        buf_free(&asks[i].answer.text);
        buf_free(&bodies[i]);
    }
    buf_free(&text);
    free(asks);
    free(bodies);
    free(url);
    return rc;
}

enum shape { SHAPE_CHAT, SHAPE_TEXT, SHAPE_IDS };

/* A request for one token, with n words: `word` again and again, or (NULL) the pool's in turn. */
static void probe_body(const struct target *t, enum shape shape, const char *word, size_t n,
                       struct buf *out) {
    struct json_out j;
    struct buf text = BUF_INIT;
    buf_clear(out);
    json_out_init(&j, out);
    json_out_obj(&j);
    json_out_key(&j, "model");
    json_out_str(&j, t->model);
    json_out_key(&j, "max_tokens");
    json_out_u64(&j, 1);
    json_out_key(&j, "stream");
    json_out_bool(&j, true);
    json_out_key(&j, "stream_options");
    json_out_raw(&j, "{\"include_usage\":true}", 22);
    for (size_t i = 0; i < n && shape != SHAPE_IDS; i++)
        buf_printf(&text, "%s%s", i ? " " : "", word ? i ? word : target_words[0] : t->words[i % t->n_words]);
    json_out_key(&j, shape == SHAPE_CHAT ? "messages" : "prompt");
    if (shape == SHAPE_IDS) {
        json_out_arr(&j);
        for (size_t i = 0; i < n; i++) json_out_u64(&j, t->ids[i % t->n_ids]);
        json_out_arr_end(&j);
    } else if (shape == SHAPE_TEXT) {
        json_out_strn(&j, text.data, text.len);
    } else {
        json_out_arr(&j);
        json_out_obj(&j);
        json_out_key(&j, "role");
        json_out_str(&j, "user");
        json_out_key(&j, "content");
        json_out_strn(&j, text.data, text.len);
        json_out_obj_end(&j);
        json_out_arr_end(&j);
    }
    json_out_obj_end(&j);
    if (!buf_ok(&text)) out->failed = true;
    buf_free(&text);
}

static const char *probe_url(const struct target *t, enum shape shape) {
    return shape == SHAPE_CHAT ? t->url_chat : t->url_completions;
}

static int probe_failed(const struct target *t, enum shape shape, const struct answer *a, struct error *err) {
    if (a->outcome == OUTCOME_HTTP)
        return error_set(err, QUIRE_EIO, "%.150s answers %u: %s", probe_url(t, shape), a->status, a->message);
    return error_set(err, QUIRE_EIO, "%.150s: %s", probe_url(t, shape), a->message);
}

/* Two lengths: what the server adds is the same for both when every word is one token. */
static int learn_added(const struct target_config *config, const struct target *t, enum shape shape,
                       struct added *added, struct error *err) {
    struct buf bodies[2] = {0};
    struct ask asks[2] = {0};
    size_t lengths[2] = {8, 24};
    int64_t over[2] = {0};
    for (int i = 0; i < 2; i++) {
        probe_body(t, shape, NULL, lengths[i], &bodies[i]);
        asks[i] = (struct ask){.url = probe_url(t, shape), .body = &bodies[i]};
    }
    int rc = buf_ok(&bodies[0]) && buf_ok(&bodies[1]) ? target_ask(config, asks, 2, err)
                                                      : error_set(err, QUIRE_ENOMEM, "out of memory");
    for (int i = 0; i < 2 && !rc; i++) {
        if (asks[i].answer.outcome != OUTCOME_OK) rc = probe_failed(t, shape, &asks[i].answer, err);
        over[i] = asks[i].answer.prompt_tokens - (int64_t)lengths[i];
    }
    if (!rc) *added = (struct added){over[1], over[0] == over[1] && over[0] >= 0};
    asks_free(asks, 2);
    buf_free(&bodies[0]);
    buf_free(&bodies[1]);
    return rc;
}

/* Without /tokenize: a word is one token when 16 more of it are 16 more in the usage. */
#define USAGE_WORDS 64

static int learn_words_by_usage(const struct target_config *config, struct target *t, bool chat,
                                struct error *err) {
    struct ask asks[2 * USAGE_WORDS] = {0};
    struct buf bodies[2 * USAGE_WORDS] = {0};
    enum shape shape = chat ? SHAPE_CHAT : SHAPE_TEXT;
    bool whole = true;
    for (size_t i = 0; i < 2 * USAGE_WORDS; i++) {
        probe_body(t, shape, target_words[i / 2], i % 2 ? 24 : 8, &bodies[i]);
        asks[i] = (struct ask){.url = probe_url(t, shape), .body = &bodies[i]};
        whole &= buf_ok(&bodies[i]);
    }
    /* one first, so that a server that refuses is not asked 128 times */
    int rc = whole ? target_ask(config, asks, 1, err) : error_set(err, QUIRE_ENOMEM, "out of memory");
    if (!rc && asks[0].answer.outcome != OUTCOME_OK) rc = probe_failed(t, shape, &asks[0].answer, err);
    if (!rc) rc = target_ask(config, asks + 1, 2 * USAGE_WORDS - 1, err);
    for (size_t i = 0; i < USAGE_WORDS && !rc; i++) {
        const struct answer *few = &asks[2 * i].answer, *many = &asks[2 * i + 1].answer;
        if (few->outcome == OUTCOME_OK && many->outcome == OUTCOME_OK &&
            many->prompt_tokens == few->prompt_tokens + 16)
            t->words[t->n_words++] = target_words[i];
    }
    asks_free(asks, 2 * USAGE_WORDS);
    for (size_t i = 0; i < 2 * USAGE_WORDS; i++) buf_free(&bodies[i]);
    return rc;
}

#define POOL_MIN 16

static int learn_words(const struct target_config *config, struct target *t, bool chat, struct error *err) {
    struct buf all = BUF_INIT;
    enum dialect dialect = DIALECT_VLLM;
    size_t n = 0;
    int rc = 0;
    for (; target_words[n]; n++) buf_printf(&all, "%s%s", n ? " " : "", target_words[n]);
    if (!buf_ok(&all)) return error_set(err, QUIRE_ENOMEM, "out of memory");
    json_t *tokens = tokenize(config, t, all.data, all.len, &dialect);
    buf_free(&all);
    t->tokenizer = tokens ? "/tokenize" : "usage";
    if (!tokens) {
        rc = learn_words_by_usage(config, t, chat, err);
    } else {
        keep_ids(t, tokens);
        rc = keep_words(config, t, dialect, n, err);
    }
    json_decref(tokens);
    return rc;
}

int target_learn_tokens(const struct target_config *config, struct target *t, bool chat, struct error *err) {
    int rc = learn_words(config, t, chat, err);
    if (rc) return rc;
    if (t->n_ids < POOL_MIN) t->n_ids = 0;
    if (t->n_words < POOL_MIN) t->n_words = 0;
    if (t->n_ids && !chat) /* refused by some servers, and no fault then */
        t->takes_ids = !learn_added(config, t, SHAPE_IDS, &t->id_prompt, NULL) && t->id_prompt.known;
    if (!t->n_words && (chat || !t->takes_ids)) /* messages are made of words */
        return error_set(
            err, QUIRE_EUNSUPPORTED,
            "prompts of exact length cannot be made: fewer than %d of the words that are tried are "
            "one token for this server%s",
            POOL_MIN, chat ? " (--endpoint completions may take token ids)" : "");
    if (!t->n_words) return 0;
    if (chat) return learn_added(config, t, SHAPE_CHAT, &t->chat, err);
    return t->takes_ids ? 0 : learn_added(config, t, SHAPE_TEXT, &t->text, err);
}
