#include "text/chat_template.h"
#include "base/error.h"
#include "base/size.h"
#include "text/jinja_eval.h"
#include "text/jinja_globals.h"

#include <stdlib.h>
#include <string.h>

#define ARENA_CHUNK_BYTES (64 * 1024)
#define MEMORY_PER_OUTPUT 8 /* bytes of working memory per byte that may be written */

struct chat_template {
    struct jinja_template *compiled;
};

int chat_template_compile(const char *source, size_t len, struct chat_template **out, struct error *err) {
    *out = NULL;
    struct chat_template *t = calloc(1, sizeof *t);
    if (!t) return error_set(err, QUIRE_ENOMEM, "out of memory while reading the chat template");
    int rc = jinja_template_compile(source, len, &t->compiled, err);
    if (rc) {
        free(t);
        return rc;
    }
    *out = t;
    return 0;
}

void chat_template_free(struct chat_template *t) {
    if (!t) return;
    jinja_template_free(t->compiled);
    free(t);
}

static int check_input(const struct chat_template_input *in, struct error *err) {
    static const char *const reserved[] = {"messages", "tools", "documents", "add_generation_prompt"};
    size_t i;
    json_t *item;
    const char *key;
    if (!json_is_array(in->messages))
        return error_param(err, QUIRE_EINVAL, "messages", "messages must be an array");
    json_array_foreach(in->messages, i, item) {
        if (!json_is_object(item))
            return error_param(err, QUIRE_EINVAL, "messages", "messages[%zu] must be an object", i);
    }
    if (in->tools && !json_is_array(in->tools) && !json_is_null(in->tools))
        return error_param(err, QUIRE_EINVAL, "tools", "tools must be an array");
    if (in->documents && !json_is_array(in->documents) && !json_is_null(in->documents))
        return error_param(err, QUIRE_EINVAL, "documents", "documents must be an array");
    if (!in->kwargs || json_is_null(in->kwargs)) return 0;
    if (!json_is_object(in->kwargs))
        return error_param(err, QUIRE_EINVAL, "chat_template_kwargs",
                           "chat_template_kwargs must be an object");
    json_object_foreach(in->kwargs, key, item) {
        bool taken = (in->bos_token && strcmp(key, "bos_token") == 0) ||
                     (in->eos_token && strcmp(key, "eos_token") == 0);
        for (i = 0; i < sizeof reserved / sizeof *reserved; i++) taken |= strcmp(key, reserved[i]) == 0;
        if (taken)
            return error_param(err, QUIRE_EINVAL, "chat_template_kwargs",
                               "chat_template_kwargs cannot set '%s'", key);
    }
    return 0;
}

static int input_json(struct jinja *j, json_t *json, struct jinja_value *out) {
    *out = jinja_none();
    return json ? jinja_from_json(j, json, out) : 0;
}

static int input_token(struct jinja *j, const char *spelling, struct jinja_value *out) {
    if (!spelling) return 0;
    const struct jinja_str *s = jinja_str_lit(j, spelling);
    if (!s) return QUIRE_ENOMEM;
    *out = jinja_of_str(s);
    return 0;
}

/* The value of a variable that the template mentions. */
static int input_variable(struct jinja *j, const struct chat_template_input *in, const struct jinja_str *name,
                          struct jinja_value *out) {
    if (jinja_str_is(name, "messages")) return input_json(j, in->messages, out);
    if (jinja_str_is(name, "tools")) return input_json(j, in->tools, out);
    if (jinja_str_is(name, "documents")) return input_json(j, in->documents, out);
    if (jinja_str_is(name, "add_generation_prompt")) return *out = jinja_bool(in->add_generation_prompt), 0;
    json_t *more = in->kwargs ? json_object_getn(in->kwargs, name->data, name->len) : NULL;
    if (more) return jinja_from_json(j, more, out);
    if (jinja_str_is(name, "bos_token")) return input_token(j, in->bos_token, out);
    if (jinja_str_is(name, "eos_token")) return input_token(j, in->eos_token, out);
    *out = jinja_global(name);
    return 0;
}

static int fill_context(struct jinja *j, const struct chat_template_input *in) {
    j->context = jinja_array(j, j->tmpl->n_names, sizeof *j->context);
    if (!j->context) return QUIRE_ENOMEM;
    for (size_t i = 0; i < j->tmpl->n_names; i++) {
        j->context[i] = (struct jinja_value){.type = JINJA_MISSING};
        JINJA_TRY(input_variable(j, in, j->tmpl->names[i], &j->context[i]));
    }
    return 0;
}

int chat_template_render(const struct chat_template *t, const struct chat_template_input *in,
                         struct chat_rendering *out, struct error *err) {
    struct error own = {0}; /* the interpreter always needs one */
    struct jinja_sink sink = {0};
    size_t max_output = in->max_output_bytes ? in->max_output_bytes : CHAT_TEMPLATE_OUTPUT_BYTES, memory;
    struct jinja j = {.err = err ? err : &own,
                      .tmpl = t->compiled,
                      .sink = &sink,
                      .steps_left = in->max_steps ? in->max_steps : CHAT_TEMPLATE_STEPS,
                      .max_string_bytes = max_output,
                      .now_unix_s = in->now_unix_s};
    *out = (struct chat_rendering){0};
    JINJA_TRY(check_input(in, err));
    if (!size_mul(size_max(max_output, 1u << 20), MEMORY_PER_OUTPUT, &memory)) memory = SIZE_MAX;
    arena_init(&j.arena, ARENA_CHUNK_BYTES, memory);
    jinja_guard_init(&j.guard, in->max_depth ? in->max_depth : CHAT_TEMPLATE_DEPTH);
    sink.text.limit_bytes = max_output;
    int rc = fill_context(&j, in);
    if (!rc) rc = jinja_run(&j);
    if (!rc && !buf_reserve(&sink.text, 0))
        rc = error_set(j.err, QUIRE_ENOMEM, "out of memory"); /* never NULL */
    arena_free(&j.arena);
    if (rc) {
        free(sink.spans);
        buf_free(&sink.text);
        return j.err->code;
    }
    *out = (struct chat_rendering){.text = sink.text, .content = sink.spans, .n_content = sink.n_spans};
    return 0;
}

void chat_rendering_free(struct chat_rendering *r) {
    buf_free(&r->text);
    free(r->content);
    *r = (struct chat_rendering){0};
}
