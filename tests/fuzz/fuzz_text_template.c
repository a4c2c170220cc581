/* A chat template and what it is rendered with: the template up to the first NUL, then JSON {"messages": ...,
 * "tools": ..., "documents": ..., "kwargs": ...} (a small conversation if that is not it). Whatever they are:
 * no more than the budgets, the same text twice, UTF-8, spans in order, and what the input alone can have
 * written is content. */
#include "base/utf8.h"
#include "text/chat_template.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define MUST(x) ((x) ? (void)0 : (fprintf(stderr, "line %d: %s\n", __LINE__, #x), abort()))

#define MAX_OUTPUT_BYTES 65536

static const char conversation[] =
    "{\"messages\":[{\"role\":\"system\",\"content\":\"Be ЖЖ.\"},{\"role\":\"user\",\"content\":\" Ж "
    "a<b>&'Ж' \\n x\",\"n\":3,"
    "\"l\":[1,2.5,null,true,\"Ж\",[],{}]},{\"role\":\"assistant\",\"content\":null,\"tool_calls\":[{\"id\":"
    "\"1\",\"function\":"
    "{\"name\":\"f\",\"arguments\":{\"Ж\":\"é\",\"b\":-1}}}]},{\"role\":\"Ж\",\"content\":[{\"type\":"
    "\"text\",\"text\":\"Жж\"}]}],"
    "\"tools\":[{\"type\":\"function\",\"function\":{\"name\":\"f\",\"parameters\":{\"type\":\"object\","
    "\"properties\":{}}}}],"
    "\"kwargs\":{\"s\":\"Ж %s {} "
    "ß\",\"x\":{\"a\":1,\"Ж\":[\"b\",\"a\"]},\"nums\":[3,1,2],\"e\":\"\",\"t\":true}}";

static const char *find_zhe(const char *s, size_t n) {
    return n ? memmem(s, n, "Ж", 2) : NULL;
}

static bool is_content(const struct chat_rendering *r, size_t at, size_t len) {
    for (size_t i = 0; i < r->n_content; i++)
        if (at >= r->content[i].start && at + len <= r->content[i].start + r->content[i].len) return true;
    return false;
}

static void check(const struct chat_rendering *r, bool only_input_has_zhe) {
    size_t end = 0;
    MUST(r->text.data && r->text.len <= MAX_OUTPUT_BYTES);
    for (size_t i = 0; i < r->n_content; i++) {
        MUST(r->content[i].len && (i == 0 || r->content[i].start > end));
        end = r->content[i].start + r->content[i].len;
    }
    MUST(end <= r->text.len);
    for (size_t i = 0; i < r->text.len;) {
        size_t step = utf8_sequence(r->text.data + i, r->text.len - i);
        MUST(step);
        i += step;
    }
    if (!only_input_has_zhe) return;
    const char *p = r->text.data, *last = p + r->text.len;
    for (const char *hit; (hit = find_zhe(p, (size_t)(last - p))); p = hit + 2)
        MUST(is_content(r, (size_t)(hit - r->text.data), 2));
}

static void render(const struct chat_template *t, const struct chat_template_input *in,
                   bool only_input_has_zhe) {
    struct chat_rendering a, b;
    struct error err = {0};
    int rc = chat_template_render(t, in, &a, &err);
    if (rc) {
        MUST(err.code == rc && rc != QUIRE_EINTERNAL && rc != QUIRE_ENOMEM);
        MUST(err.text[0] || rc == QUIRE_EINVAL);
        MUST(chat_template_render(t, in, &b, NULL) == rc);
        return;
    }
    check(&a, only_input_has_zhe);
    MUST(chat_template_render(t, in, &b, NULL) == 0);
    MUST(a.text.len == b.text.len && memcmp(a.text.data, b.text.data, a.text.len) == 0);
    MUST(a.n_content == b.n_content);
    chat_rendering_free(&a);
    chat_rendering_free(&b);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    const char *source = (const char *)data;
    size_t len = size ? strnlen(source, size) : 0;
    struct chat_template *t;
    struct error err = {0};
    int rc = chat_template_compile(size ? source : "", len, &t, &err);
    if (rc) {
        MUST(!t && err.code == rc && err.text[0] && rc != QUIRE_ENOMEM && rc != QUIRE_EINTERNAL);
        return 0;
    }
    json_t *j = len < size ? json_loadb(source + len + 1, size - len - 1, JSON_ALLOW_NUL, NULL) : NULL;
    if (!json_is_array(json_object_get(j, "messages"))) {
        json_decref(j);
        j = json_loads(conversation, 0, NULL);
        MUST(j);
    }
    struct chat_template_input in = {.messages = json_object_get(j, "messages"),
                                     .tools = json_object_get(j, "tools"),
                                     .documents = json_object_get(j, "documents"),
                                     .kwargs = json_object_get(j, "kwargs"),
                                     .add_generation_prompt = true,
                                     .bos_token = "<s>",
                                     .eos_token = "</s>",
                                     .now_unix_s = 1767312000,
                                     .max_steps = 20000,
                                     .max_output_bytes = MAX_OUTPUT_BYTES};
    render(t, &in, !memchr(source, '\\', len) && !find_zhe(source, len));
    json_decref(j);
    chat_template_free(t);
    return 0;
}
