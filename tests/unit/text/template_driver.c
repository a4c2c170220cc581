/* Renders templates read from standard input, one JSON object a line: {"template": ..., "messages": ...,
 * "tools": ..., "documents": ..., "kwargs": ..., "add_generation_prompt": ..., "bos_token": ..., "eos_token":
 * ..., "now": ...}. Writes one line each: {"text": ..., "content": [[start, len], ...]} or {"error": ...,
 * "code": ...}. For comparing with Python (tests/golden/template_fuzz.py); not run by the tests. Built by
 * hand:
 *
 *     cc -D_GNU_SOURCE -Isrc -Iinclude tests/unit/text/template_driver.c build/libquire_text.a
 * build/libquire_base.a \ -ljansson -lm -o template_driver */
#include "text/chat_template.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static json_t *render(json_t *line) {
    const char *source = json_string_value(json_object_get(line, "template"));
    size_t len = json_string_length(json_object_get(line, "template"));
    struct chat_template *t = NULL;
    struct chat_rendering r;
    struct error err = {0};
    struct chat_template_input in = {
        .messages = json_object_get(line, "messages"),
        .tools = json_object_get(line, "tools"),
        .documents = json_object_get(line, "documents"),
        .kwargs = json_object_get(line, "kwargs"),
        .add_generation_prompt = json_is_true(json_object_get(line, "add_generation_prompt")),
        .bos_token = json_string_value(json_object_get(line, "bos_token")),
        .eos_token = json_string_value(json_object_get(line, "eos_token")),
        .now_unix_s = json_integer_value(json_object_get(line, "now")),
    };
    struct timespec begin, end;
    clock_gettime(CLOCK_MONOTONIC, &begin);
    int rc = chat_template_compile(source ? source : "", len, &t, &err);
    if (!rc) rc = chat_template_render(t, &in, &r, &err);
    clock_gettime(CLOCK_MONOTONIC, &end);
    chat_template_free(t);
    long us = (end.tv_sec - begin.tv_sec) * 1000000 + (end.tv_nsec - begin.tv_nsec) / 1000;
    if (rc) return json_pack("{s:s, s:i, s:I}", "error", err.text, "code", rc, "us", (json_int_t)us);
    json_t *spans = json_array();
    for (size_t i = 0; i < r.n_content; i++)
        json_array_append_new(
            spans, json_pack("[I, I]", (json_int_t)r.content[i].start, (json_int_t)r.content[i].len));
    json_t *text = json_stringn(r.text.data, r.text.len);
    json_t *out = text ? json_pack("{s:o, s:o, s:I}", "text", text, "content", spans, "us", (json_int_t)us)
                       : json_pack("{s:s, s:i}", "error", "driver: the text is not UTF-8", "code", -99);
    chat_rendering_free(&r);
    return out;
}

int main(void) {
    char *line = NULL;
    size_t cap = 0;
    ssize_t n;
    while ((n = getline(&line, &cap, stdin)) > 0) {
        json_error_t e;
        json_t *in = json_loadb(line, (size_t)n, JSON_ALLOW_NUL, &e);
        json_t *out = in ? render(in) : json_pack("{s:s, s:i}", "error", e.text, "code", -98);
        json_dumpf(out, stdout, JSON_COMPACT);
        putchar('\n');
        fflush(stdout);
        json_decref(in);
        json_decref(out);
    }
    free(line);
    return 0;
}
