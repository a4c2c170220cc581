/* Messages of a server: whatever jansson takes for an object whose members have the API's types, chunk_read
 * takes too and finds the same content, usage and error; anything else it may refuse, and never reads past
 * its end. */
#include "load/chunk.h"

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void require(bool holds, const char *what) {
    if (holds) return;
    fprintf(stderr, "violated: %s\n", what);
    abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

/* Escapes in a message become what jansson makes of them; where no name can have any. */
static void compare_message(const char *json, size_t size, const json_t *root, const struct chunk *k) {
    static const char start[] = "{\"error\":{\"message\":\"";
    const json_t *error = json_object_get(root, "error"), *message = json_object_get(error, "message");
    char text[1000];
    if (size < sizeof start || memcmp(json, start, sizeof start - 1) != 0) return;
    if (json_object_size(root) != 1 || json_object_size(error) != 1) return;
    if (!json_is_string(message) || json_string_length(message) > sizeof text) return;
    size_t n = chunk_unescape(k->message, k->message_bytes, text, sizeof text);
    require(n == json_string_length(message) && !memcmp(text, json_string_value(message), n), "message");
}

static void compare_usage(const json_t *root, const struct chunk *k) {
    const json_t *usage = json_object_get(root, "usage"), *v = json_object_get(usage, "prompt_tokens");
    require(k->has_usage == json_is_object(usage), "usage is there");
    if (json_is_integer(v) && json_integer_value(v) < INT64_C(1) << 40)
        require(k->prompt_tokens == json_integer_value(v), "prompt_tokens");
}

static void compare_content(const json_t *root, const struct chunk *k) {
    const json_t *choices = json_object_get(root, "choices");
    const json_t *text = json_object_get(json_array_get(choices, 0), "text");
    if (json_array_size(choices) != 1 || !json_is_string(text) || !json_string_length(text)) return;
    if (json_object_size(json_array_get(choices, 0)) != 1) return; /* only text */
    require(k->content && k->text, "text is content");
    char *quoted = malloc(k->text_bytes + 3);
    require(quoted, "memory");
    quoted[0] = '"';
    memcpy(quoted + 1, k->text, k->text_bytes);
    quoted[k->text_bytes + 1] = '"';
    json_t *again = json_loadb(quoted, k->text_bytes + 2, JSON_DECODE_ANY | JSON_ALLOW_NUL, NULL);
    require(again && json_equal(again, text), "the same text");
    json_decref(again);
    free(quoted);
}

/* After a message, one that differs in its text (by some bytes of the message) is read as it is alone. */
static void compare_next(const char *json, size_t n, const struct chunk *k) {
    struct chunk_pattern p = {.before = 0};
    struct chunk again, alone, next;
    size_t text = n < 3 ? n : 3, before = k->text ? (size_t)(k->text - json) : 0;
    require(!chunk_read_next(&p, json, n, &again) && again.text == k->text, "the same again");
    require(!chunk_read_next(&p, json, n, &again) && again.text == k->text && again.content == k->content &&
                again.text_bytes == k->text_bytes && again.prompt_tokens == k->prompt_tokens,
            "and again");
    size_t after = n - before - k->text_bytes, size = before + text + after;
    char *other = malloc(size ? size : 1);
    require(other, "memory");
    memcpy(other, json, before);
    memcpy(other + before, json + n / 2, n - n / 2 < text ? text = n - n / 2 : text);
    size = before + text + after;
    memcpy(other + before + text, json + n - after, after);
    int rc = chunk_read(other, size, &alone);
    require(chunk_read_next(&p, other, size, &next) == rc, "the same verdict");
    if (!rc)
        require(next.text == alone.text && next.text_bytes == alone.text_bytes &&
                    next.content == alone.content && next.has_usage == alone.has_usage &&
                    next.error == alone.error && !strcmp(next.finish, alone.finish),
                "the same reading");
    buf_free(&p.last);
    free(other);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n) {
    char *copy = malloc(n ? n : 1); /* so that a read past the end is seen */
    struct chunk k;
    if (!copy) return 0;
    memcpy(copy, data, n);
    int rc = chunk_read(copy, n, &k);
    json_t *root = json_loadb(copy, n, JSON_REJECT_DUPLICATES | JSON_ALLOW_NUL, NULL);
    /* names with escapes are compared as written, so only plain ones are held to jansson's reading */
    if (!rc && json_is_object(root) && !memchr(copy, '\\', n)) {
        compare_usage(root, &k);
        compare_content(root, &k);
        json_t *error = json_object_get(root, "error");
        if (json_is_object(error) || json_is_string(error)) require(k.error, "an error");
    }
    if (!rc && json_is_object(root)) compare_message(copy, n, root, &k);
    if (!rc && k.text)
        require(k.text >= copy && k.text + k.text_bytes <= copy + n, "text within the message");
    if (!rc && k.message)
        require(k.message >= copy && k.message + k.message_bytes <= copy + n, "message within");
    if (!rc) compare_next(copy, n, &k);
    json_decref(root);
    free(copy);
    return 0;
}
