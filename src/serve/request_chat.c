/* Chat messages and tools: every legal OpenAI shape is accepted and brought into the one shape that templates
 * expect.
 *
 * After this each message is an object with a string `role`; `content` is a string (text parts are joined
 * without a separator) or absent; nothing is null; what the model thought is there under each of its names;
 * `tool_calls[].function.arguments` is an object when its string is a JSON object (templates print it with
 * tojson), else the string as it came. */
#include "serve/request.h"

#include "base/buf.h"
#include "base/error.h"
#include "serve/json_in.h"

#include <string.h>

static int no_memory(struct error *err) {
    return error_set(err, QUIRE_ENOMEM, "out of memory while reading the request");
}

/* Text of a content array. Parts that are not text are refused by type: nothing is ever fetched. */
static int join_parts(const json_t *parts, size_t index, json_t **out, struct error *err) {
    struct buf text = BUF_INIT;
    int rc = 0;
    for (size_t i = 0; i < json_array_size(parts) && !rc; i++) {
        const json_t *part = json_array_get(parts, i);
        const json_t *type = json_object_get(part, "type"), *body = json_object_get(part, "text");
        const char *name = json_string_value(type);
        if (json_is_string(part)) {
            buf_append(&text, json_string_value(part), json_string_length(part));
        } else if (!name) {
            rc = error_param(err, QUIRE_EINVAL, "messages",
                             "messages[%zu].content[%zu] must be an object with a \"type\"", index, i);
        } else if (strcmp(name, "text") && strcmp(name, "refusal") && strcmp(name, "input_text") &&
                   strcmp(name, "output_text")) {
            rc = error_param(err, QUIRE_EUNSUPPORTED, "messages",
                             "messages[%zu].content[%zu] has type \"%.40s\"; this model takes text only, "
                             "images, audio and "
                             "files are not supported",
                             index, i, name);
        } else {
            if (!strcmp(name, "refusal")) body = json_object_get(part, "refusal");
            if (json_is_string(body))
                buf_append(&text, json_string_value(body), json_string_length(body));
            else
                rc = error_param(err, QUIRE_EINVAL, "messages",
                                 "messages[%zu].content[%zu] has no text string", index, i);
        }
    }
    if (!rc && !buf_ok(&text)) rc = no_memory(err);
    if (!rc && !(*out = json_stringn(text.data ? text.data : "", text.len))) rc = no_memory(err);
    buf_free(&text);
    return rc;
}

static int normalise_content(json_t *message, size_t index, struct error *err) {
    json_t *content = json_object_get(message, "content"), *text = NULL;
    if (json_is_string(content)) return 0;
    if (!content || json_is_null(content)) {
        /* Templates concatenate content: beside tool calls an absent one is the empty string for them. */
        return json_object_set_new(message, "content", json_string("")) ? no_memory(err) : 0;
    }
    if (!json_is_array(content))
        return error_param(err, QUIRE_EINVAL, "messages",
                           "messages[%zu].content must be a string, an array or null, not %s", index,
                           json_in_type_name(content));
    int rc = join_parts(content, index, &text, err);
    if (rc) return rc;
    return json_object_set_new(message, "content", text) ? no_memory(err) : 0;
}

/* null is "not given", as clients send back what they were sent; templates take a key for a value. */
static void drop_nulls(json_t *message) {
    const char *key;
    json_t *v;
    void *next;
    json_object_foreach_safe(message, next, key, v) {
        if (json_is_null(v)) json_object_del(message, key);
    }
}

/* What a model thought has three names. Templates read the first, GPT-OSS's the second; like transformers'
 * apply_chat_template both are given, whichever came. */
static int spread_reasoning(json_t *message, struct error *err) {
    static const char *const names[] = {"reasoning_content", "thinking", "reasoning"};
    json_t *v = NULL;
    for (size_t i = 0; i < sizeof names / sizeof *names && !v; i++) v = json_object_get(message, names[i]);
    if (!v) return 0;
    bool thinking = json_object_get(message, names[1]) != NULL;
    if (json_object_set(message, names[0], v) || (!thinking && json_object_set(message, names[1], v)))
        return no_memory(err);
    return 0;
}

static int normalise_tool_call(json_t *call, size_t index, size_t c, struct error *err) {
    json_t *function = json_object_get(call, "function"), *args = json_object_get(function, "arguments");
    if (!json_is_string(json_object_get(function, "name")))
        return error_param(err, QUIRE_EINVAL, "messages",
                           "messages[%zu].tool_calls[%zu].function.name must be a string", index, c);
    if (!args || json_is_null(args)) {
        return json_object_set_new(function, "arguments", json_object()) ? no_memory(err) : 0;
    }
    if (json_is_object(args)) return 0;
    if (!json_is_string(args))
        return error_param(err, QUIRE_EINVAL, "messages",
                           "messages[%zu].tool_calls[%zu].function.arguments must be a JSON string, not %s",
                           index, c, json_in_type_name(args));
    json_t *object = NULL;
    struct error ignored;
    if (json_in_object(json_string_value(args), json_string_length(args), &object, &ignored))
        return 0; /* stays text */
    return json_object_set_new(function, "arguments", object) ? no_memory(err) : 0;
}

static int normalise_message(json_t *message, size_t index, struct error *err) {
    static const char *const roles[] = {"system", "developer", "user",   "assistant",
                                        "tool",   "function",  "ipython"};
    if (!json_is_object(message))
        return error_param(err, QUIRE_EINVAL, "messages", "messages[%zu] must be an object, not %s", index,
                           json_in_type_name(message));
    const json_t *role = json_object_get(message, "role");
    bool known = false;
    for (size_t i = 0; i < sizeof roles / sizeof *roles; i++)
        known |= json_is_string(role) && !strcmp(json_string_value(role), roles[i]);
    if (!known)
        return error_param(err, QUIRE_EINVAL, "messages",
                           "messages[%zu].role is %s%.40s; allowed are system, developer, user, assistant, "
                           "tool and function",
                           index, json_is_string(role) ? "" : "missing or not a string",
                           json_is_string(role) ? json_string_value(role) : "");
    json_t *calls = json_in_get(message, "tool_calls");
    if (!json_object_get(message, "content") && !calls)
        return error_param(err, QUIRE_EINVAL, "messages", "messages[%zu].content is missing", index);
    int rc = normalise_content(message, index, err);
    drop_nulls(message);
    if (!rc) rc = spread_reasoning(message, err);
    if (rc || !calls) return rc;
    if (!json_is_array(calls))
        return error_param(err, QUIRE_EINVAL, "messages", "messages[%zu].tool_calls must be an array, not %s",
                           index, json_in_type_name(calls));
    for (size_t c = 0; c < json_array_size(calls) && !rc; c++)
        rc = normalise_tool_call(json_array_get(calls, c), index, c, err);
    return rc;
}

int request_parse_messages(struct request_parser *p, const char *name, const json_t *value,
                           struct error *err) {
    if (!json_is_array(value))
        return error_param(err, QUIRE_EINVAL, name, "%s must be an array of messages, not %s", name,
                           json_in_type_name(value));
    size_t n = json_array_size(value);
    if (!n || n > REQUEST_MAX_MESSAGES)
        return error_param(err, QUIRE_EINVAL, name, "%s has %zu messages; allowed is 1 to %d", name, n,
                           REQUEST_MAX_MESSAGES);
    for (size_t i = 0; i < n; i++) {
        int rc = normalise_message(json_array_get(value, i), i, err);
        if (rc) return rc;
    }
    p->r->messages = (json_t *)value;
    return 0;
}

static int check_tool(const json_t *tool, size_t i, struct error *err) {
    const char *type = json_string_value(json_object_get(tool, "type"));
    const json_t *function = json_object_get(tool, "function");
    const json_t *name = json_object_get(function, "name"), *parameters = json_in_get(function, "parameters");
    if (!type || strcmp(type, "function"))
        return error_param(err, QUIRE_EINVAL, "tools", "tools[%zu].type must be \"function\"", i);
    if (!json_is_string(name) || !json_string_length(name) || json_string_length(name) > 256)
        return error_param(err, QUIRE_EINVAL, "tools",
                           "tools[%zu].function.name must be a string of 1 to 256 bytes", i);
    if (parameters && !json_is_object(parameters))
        return error_param(err, QUIRE_EINVAL, "tools",
                           "tools[%zu].function.parameters must be an object, not %s", i,
                           json_in_type_name(parameters));
    return 0;
}

int request_parse_tools(struct request_parser *p, const char *name, const json_t *value, struct error *err) {
    if (!json_is_array(value))
        return error_param(err, QUIRE_EINVAL, name, "%s must be an array, not %s", name,
                           json_in_type_name(value));
    if (json_array_size(value) > 1024)
        return error_param(err, QUIRE_EINVAL, name, "%s has %zu entries; at most 1024 are allowed", name,
                           json_array_size(value));
    for (size_t i = 0; i < json_array_size(value); i++) {
        int rc = check_tool(json_array_get(value, i), i, err);
        if (rc) return rc;
    }
    /* An empty list is no tools, as OpenAI's clients send it. */
    p->r->tools = json_array_size(value) ? (json_t *)value : NULL;
    return 0;
}

int request_parse_tool_choice(struct request_parser *p, const char *name, const json_t *value,
                              struct error *err) {
    const char *choice = json_string_value(value);
    p->r->hide_tools = choice && !strcmp(choice, "none");
    if (p->r->hide_tools || (choice && !strcmp(choice, "auto"))) return 0;
    if (choice && strcmp(choice, "required"))
        return error_param(err, QUIRE_EINVAL, name, "%s is \"%.40s\"; allowed are \"auto\" and \"none\"",
                           name, choice);
    return error_param(
        err, QUIRE_EUNSUPPORTED, name,
        "%s can be \"auto\" or \"none\"; a required or named call cannot be enforced by this version", name);
}

/* Variables that are the server's to set: a request may not replace them. */
int request_parse_template_kwargs(struct request_parser *p, const char *name, const json_t *value,
                                  struct error *err) {
    static const char *const reserved[] = {
        "messages",  "tools",         "documents", "add_generation_prompt", "bos_token",
        "eos_token", "chat_template", "tokenize",  "continue_final_message"};
    if (!json_is_object(value))
        return error_param(err, QUIRE_EINVAL, name, "%s must be an object, not %s", name,
                           json_in_type_name(value));
    for (size_t i = 0; i < sizeof reserved / sizeof *reserved; i++)
        if (json_object_get(value, reserved[i]))
            return error_param(err, QUIRE_EINVAL, name, "%s may not set \"%s\"", name, reserved[i]);
    p->r->template_kwargs = (json_t *)value;
    return 0;
}
