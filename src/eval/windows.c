#include "eval/windows.h"

#include "base/error.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

void hash_hex(struct hash128 h, char hex[33]) {
    snprintf(hex, 33, "%016" PRIx64 "%016" PRIx64, h.hi, h.lo);
}

/* Windows side by side; the first half of each gives the second its context (as llama-perplexity does). */
static size_t plan_halves(size_t n_tokens, size_t context, struct window *out) {
    size_t n = n_tokens / context;
    for (size_t i = 0; out && i < n; i++)
        out[i] = (struct window){.begin = i * context, .n = context, .first = context / 2 + 1};
    return n;
}

/* A window at every stride; each scores what none before it has (as in the documentation of transformers). */
static size_t plan_strides(size_t n_tokens, size_t context, size_t stride, struct window *out) {
    size_t n = 0, scored = 0;
    for (size_t begin = 0; scored < n_tokens; begin += stride) {
        size_t end = n_tokens - begin < context ? n_tokens : begin + context;
        size_t first = scored > begin ? scored - begin : 1;
        if (first < end - begin) {
            if (out) out[n] = (struct window){.begin = begin, .n = end - begin, .first = first};
            n++;
        }
        scored = end;
    }
    return n;
}

int windows_plan(size_t n_tokens, size_t context, size_t stride, struct window **list, size_t *n,
                 struct error *err) {
    size_t least = stride ? 2 : 2 * context;
    if (n_tokens < least)
        return error_set(err, QUIRE_EINVAL,
                         "the text is too short: it has %zu tokens, at least %zu are needed%s", n_tokens,
                         least, stride ? "" : " (two windows; choose a smaller --context)");
    *n = stride ? plan_strides(n_tokens, context, stride, NULL) : plan_halves(n_tokens, context, NULL);
    *list = calloc(*n, sizeof **list);
    if (!*list) return error_set(err, QUIRE_ENOMEM, "out of memory for %zu windows", *n);
    if (stride)
        plan_strides(n_tokens, context, stride, *list);
    else
        plan_halves(n_tokens, context, *list);
    return 0;
}

/* The bytes of all ids, and which are control tokens. */
int eval_tokenizer_hash(const struct tokenizer *t, struct hash128 *out, struct error *err) {
    size_t n = tokenizer_n_vocab(t);
    const uint8_t *bytes;
    const uint32_t *offsets;
    struct hash128 *parts = calloc(n + 2, sizeof *parts);
    if (!parts) return error_set(err, QUIRE_ENOMEM, "out of memory for %zu tokens", n);
    tokenizer_byte_table(t, &bytes, &offsets);
    for (size_t i = 0; i < n; i++) {
        size_t len;
        const uint8_t *spelling = tokenizer_bytes(t, (uint32_t)i, true, &len);
        parts[i] = hash128_bulk(spelling, len);
        parts[i].hi ^= tokenizer_is_control(t, (uint32_t)i);
    }
    parts[n] = hash128_bulk(tokenizer_pre(t), strlen(tokenizer_pre(t)));
    parts[n + 1] = (struct hash128){(uint64_t)tokenizer_bos(t), tokenizer_adds_bos(t)};
    *out = hash128_bulk(parts, (n + 2) * sizeof *parts);
    free(parts);
    return 0;
}

int windows_make(struct windows *w, const struct tokenizer *t, const struct eval_perplexity *o,
                 struct error *err) {
    *w = (struct windows){.context = o->context, .stride = o->stride, .bos = -1};
    if (!o->text.len) return error_set(err, QUIRE_EINVAL, "%s is empty", o->text.name);
    if (o->stride > o->context)
        return error_set(err, QUIRE_EINVAL, "--stride is %zu; allowed is up to --context %zu", o->stride,
                         o->context);
    int rc = tokenizer_encode(t, o->text.data, o->text.len, TOKENIZE_ADD, NULL, 0, 0, &w->tokens, err);
    if (!rc) rc = windows_plan(w->tokens.n, o->context, o->stride, &w->list, &w->n, err);
    if (!rc) rc = eval_tokenizer_hash(t, &w->tokenizer_hash, err);
    if (rc) {
        error_prefix(err, "%s", o->text.name);
        windows_free(w);
        return rc;
    }
    if (!o->stride && tokenizer_adds_bos(t)) w->bos = tokenizer_bos(t);
    if (o->max_windows && o->max_windows < w->n) w->n = o->max_windows;
    for (size_t i = 0; i < w->n; i++)
        if (w->list[i].n - w->list[i].first > w->most_scored)
            w->most_scored = w->list[i].n - w->list[i].first;
    w->text_hash = hash128_bulk(o->text.data, o->text.len);
    w->tokens_hash = hash128_bulk(w->tokens.ids, w->tokens.n * sizeof *w->tokens.ids);
    return 0;
}

void windows_free(struct windows *w) {
    token_buf_free(&w->tokens);
    free(w->list);
    *w = (struct windows){0};
}

void windows_prompt(const struct windows *w, size_t i, uint32_t *out) {
    memcpy(out, w->tokens.ids + w->list[i].begin, w->list[i].n * sizeof *out);
    if (w->bos >= 0) out[0] = (uint32_t)w->bos;
}

json_t *windows_setup(const struct windows *w) {
    char text[33], tokenizer[33], tokens[33];
    hash_hex(w->text_hash, text);
    hash_hex(w->tokenizer_hash, tokenizer);
    hash_hex(w->tokens_hash, tokens);
    return json_pack("{s:s, s:s, s:s, s:I, s:I, s:I}", "text", text, "tokenizer", tokenizer, "tokens", tokens,
                     "text_tokens", (json_int_t)w->tokens.n, "context", (json_int_t)w->context, "stride",
                     (json_int_t)w->stride);
}
