#include "eval/task_file.h"

#include "base/error.h"

#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#define MAX_LINE_BYTES ((size_t)16 << 20)
#define MAX_DEPTH      8
#define MAX_TOKENS     (1 << 20)

struct reader {
    struct arena *arena;
    struct task *task;
    const json_t *root;
    struct error *err;
};

static int wrong(const struct reader *r, const char *field, const char *allowed) {
    return error_set(r->err, QUIRE_EINVAL, "%s: %s must be %s", r->task->where, field, allowed);
}

static int no_memory(const struct reader *r) {
    return error_set(r->err, QUIRE_ENOMEM, "out of memory for tasks");
}

static int copy(const struct reader *r, const json_t *value, struct text_span *out) {
    size_t n = json_string_length(value);
    char *text = arena_strndup(r->arena, json_string_value(value), n);
    if (!text) return no_memory(r);
    *out = (struct text_span){text, n};
    return 0;
}

/* A string, or an array of up to `most` strings, into an arena's array. */
static int copy_list(const struct reader *r, const char *field, const json_t *value, size_t most,
                     const char *allowed, struct text_span **out, size_t *n) {
    size_t count = json_is_string(value) ? 1 : json_array_size(value);
    if (!count || count > most) return wrong(r, field, allowed);
    *out = arena_array(r->arena, count, sizeof **out);
    if (!*out) return no_memory(r);
    for (size_t i = 0; i < count; i++) {
        const json_t *item = json_is_string(value) ? value : json_array_get(value, i);
        if (!json_is_string(item)) return wrong(r, field, allowed);
        int rc = copy(r, item, &(*out)[i]);
        if (rc) return rc;
    }
    *n = count;
    return 0;
}

static int take_id(struct reader *r) {
    const json_t *v = json_object_get(r->root, "id");
    char number[32];
    if (!v) return 0;
    if (!json_is_string(v) && !json_is_integer(v)) return wrong(r, "id", "a string or an integer");
    snprintf(number, sizeof number, "%lld", (long long)json_integer_value(v));
    const char *text = json_is_string(v) ? json_string_value(v) : number;
    r->task->id = arena_strndup(r->arena, text, strlen(text));
    return r->task->id ? 0 : no_memory(r);
}

static int take_prompt(struct reader *r) {
    const json_t *v = json_object_get(r->root, "prompt");
    return json_string_length(v) ? copy(r, v, &r->task->prompt)
                                 : wrong(r, "prompt", "a string that is not empty");
}

static int take_choices(struct reader *r) {
    struct task *t = r->task;
    const json_t *v = json_object_get(r->root, "choices"), *answer = json_object_get(r->root, "answer");
    if (json_array_size(v) < 2) return wrong(r, "choices", "2 to 64 strings that are not empty");
    int rc = copy_list(r, "choices", v, TASK_MAX_CHOICES, "2 to 64 strings that are not empty", &t->choices,
                       &t->n_choices);
    for (size_t i = 0; !rc && i < t->n_choices; i++)
        if (!t->choices[i].len) rc = wrong(r, "choices", "2 to 64 strings that are not empty");
    if (rc) return rc;
    json_int_t right = json_integer_value(answer);
    if (!json_is_integer(answer) || right < 0 || (size_t)right >= t->n_choices)
        return wrong(r, "answer", "the index of the right choice, from 0");
    t->right = (size_t)right;
    if (json_object_get(r->root, "stop") || json_object_get(r->root, "max_tokens"))
        return wrong(r, "stop and max_tokens", "absent where there are choices");
    return 0;
}

static int take_answer(struct reader *r) {
    struct task *t = r->task;
    const json_t *stop = json_object_get(r->root, "stop"), *max = json_object_get(r->root, "max_tokens");
    int rc = copy_list(r, "answer", json_object_get(r->root, "answer"), TASK_MAX_ACCEPTED,
                       "a string, or up to 64 of them", &t->accepted, &t->n_accepted);
    struct text_span *strings = NULL;
    if (!rc && stop)
        rc = copy_list(r, "stop", stop, QUIRE_MAX_STOP_STRINGS, "a string, or up to 16 of them", &strings,
                       &t->n_stop);
    if (rc) return rc;
    t->stop = arena_array(r->arena, t->n_stop + 1, sizeof *t->stop);
    if (!t->stop) return no_memory(r);
    for (size_t i = 0; i < t->n_stop; i++) {
        if (!strings[i].len || strings[i].len > QUIRE_MAX_STOP_BYTES)
            return wrong(r, "stop", "strings of 1 to 1024 bytes");
        t->stop[i] = (struct quire_str){strings[i].data, strings[i].len};
    }
    if (!max) return 0;
    if (!json_is_integer(max) || json_integer_value(max) < 1 || json_integer_value(max) > MAX_TOKENS)
        return wrong(r, "max_tokens", "an integer from 1 to 1048576");
    t->max_tokens = (size_t)json_integer_value(max);
    return 0;
}

static int check_names(const struct reader *r) {
    static const char *const known[] = {"id", "prompt", "choices", "answer", "stop", "max_tokens"};
    const char *key;
    json_t *value;
    json_object_foreach((json_t *)r->root, key, value) {
        bool found = false;
        for (size_t i = 0; i < sizeof known / sizeof *known; i++) found |= !strcmp(key, known[i]);
        if (!found)
            return error_set(
                r->err, QUIRE_EINVAL,
                "%s: %.60s is not a field of a task; these are id, prompt, choices, answer, stop and "
                "max_tokens",
                r->task->where, key);
    }
    return 0;
}

/* Before the parser, which recurses. */
static bool is_deep(const char *line, size_t n) {
    size_t depth = 0;
    bool in_string = false;
    for (size_t i = 0; i < n; i++) {
        if (line[i] == '\\' && in_string)
            i++;
        else if (line[i] == '"')
            in_string = !in_string;
        else if (!in_string && (line[i] == '{' || line[i] == '[') && ++depth > MAX_DEPTH)
            return true;
        else if (!in_string && (line[i] == '}' || line[i] == ']') && depth)
            depth--;
    }
    return false;
}

static int read_task(const char *name, size_t number, const char *line, size_t n, struct task_file *f,
                     struct task *t, struct error *err) {
    char text[300];
    json_error_t e;
    struct reader r = {.arena = &f->arena, .task = t, .err = err};
    snprintf(text, sizeof text, "%.255s:%zu", name, number);
    t->where = arena_strndup(&f->arena, text, strlen(text));
    snprintf(text, sizeof text, "%zu", number);
    t->id = arena_strndup(&f->arena, text, strlen(text));
    if (!t->where || !t->id) return no_memory(&r);
    if (n > MAX_LINE_BYTES)
        return error_set(err, QUIRE_ELIMIT, "%s: the line is longer than 16 MiB", t->where);
    if (is_deep(line, n)) return error_set(err, QUIRE_EFORMAT, "%s: the line is nested too deep", t->where);
    json_t *root = json_loadb(line, n, JSON_REJECT_DUPLICATES | JSON_DECODE_ANY, &e);
    if (!root)
        return error_set(err, QUIRE_EFORMAT, "%s: the line is not valid JSON: column %d: %s", t->where,
                         e.column, e.text);
    r.root = root;
    int rc = json_is_object(root)
                 ? check_names(&r)
                 : error_set(err, QUIRE_EFORMAT, "%s: the line is not a JSON object", t->where);
    if (!rc) rc = take_id(&r);
    if (!rc) rc = take_prompt(&r);
    if (!rc) rc = json_object_get(root, "choices") ? take_choices(&r) : take_answer(&r);
    json_decref(root);
    return rc;
}

static int compare_ids(const void *a, const void *b) {
    return strcmp((*(const struct task *const *)a)->id, (*(const struct task *const *)b)->id);
}

/* Results are paired by id. */
static int check_ids(const struct task_file *f, struct error *err) {
    const struct task **sorted = calloc(f->n + 1, sizeof *sorted);
    int rc = sorted ? 0 : error_set(err, QUIRE_ENOMEM, "out of memory for tasks");
    for (size_t i = 0; !rc && i < f->n; i++) sorted[i] = &f->list[i];
    if (!rc) qsort(sorted, f->n, sizeof *sorted, compare_ids);
    for (size_t i = 1; !rc && i < f->n; i++)
        if (!strcmp(sorted[i - 1]->id, sorted[i]->id))
            rc = error_set(err, QUIRE_EINVAL, "%s and %s have the same id \"%.60s\"", sorted[i - 1]->where,
                           sorted[i]->where, sorted[i]->id);
    free(sorted);
    return rc;
}

static size_t count_lines(const char *text, size_t len) {
    size_t n = 1;
    for (size_t i = 0; i < len; i++) n += text[i] == '\n';
    return n;
}

static bool is_blank(const char *line, size_t n) {
    for (size_t i = 0; i < n; i++)
        if (line[i] != ' ' && line[i] != '\t' && line[i] != '\r') return false;
    return true;
}

int task_file_read(const char *name, const char *text, size_t len, size_t limit, struct task_file *out,
                   struct error *err) {
    *out = (struct task_file){0};
    arena_init(&out->arena, 65536, 0);
    size_t n_lines = count_lines(text, len), number = 0;
    int rc = 0;
    out->list = arena_array(&out->arena, n_lines, sizeof *out->list);
    if (!out->list) rc = error_set(err, QUIRE_ENOMEM, "out of memory for %zu tasks", n_lines);
    for (const char *line = text, *end = text + len; !rc && line < end && !(limit && out->n == limit);) {
        const char *stop = memchr(line, '\n', (size_t)(end - line));
        size_t n = stop ? (size_t)(stop - line) : (size_t)(end - line);
        number++;
        if (!is_blank(line, n) && !(rc = read_task(name, number, line, n, out, &out->list[out->n], err)))
            out->n++;
        line += n + (stop != NULL);
    }
    if (!rc && !out->n) rc = error_set(err, QUIRE_EINVAL, "%s has no tasks", name);
    if (!rc) rc = check_ids(out, err);
    if (rc) task_file_free(out);
    return rc;
}

void task_file_free(struct task_file *f) {
    arena_free(&f->arena);
    *f = (struct task_file){0};
}
