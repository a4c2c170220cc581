#include "base/error.h"
#include "base/utf8.h"
#include "text/jinja_ast.h"
#include "text/jinja_parse.h"
#include "text/jinja_scope.h"

#include <stdlib.h>
#include <string.h>

#define ARENA_CHUNK_BYTES (16 * 1024)
#define ARENA_LIMIT_BYTES (64u << 20)

struct jinja_place jinja_template_place(const struct jinja_template *t, uint32_t pos) {
    struct jinja_place at = {.line = 1, .column = 1};
    size_t end = pos < t->source_len ? pos : t->source_len, line = 0;
    for (size_t i = 0; i < end; i++)
        if (t->source[i] == '\n') at.line++, line = i + 1;
    at.column += jinja_utf8_chars(t->source + line, end - line);
    return at;
}

/* FNV-1a. Names come from one template, whose size is limited; a bad one only slows its own loading. */
static uint64_t name_hash(const char *name, size_t len) {
    uint64_t h = 14695981039346656037u;
    for (size_t i = 0; i < len; i++) h = (h ^ (unsigned char)name[i]) * 1099511628211u;
    return h ^ h >> 32;
}

/* The table cell of a name: its own, or the free one where it would go. */
static uint32_t *name_cell(const struct jinja_template *t, const char *name, size_t len) {
    for (size_t i = name_hash(name, len);; i++) {
        uint32_t *cell = &t->name_table[i & (t->name_table_cap - 1)];
        if (!*cell) return cell;
        const struct jinja_str *s = t->names[*cell - 1];
        if (s->len == len && memcmp(s->data, name, len) == 0) return cell;
    }
}

static bool grow_names(struct jinja_template *t) {
    size_t cap = t->name_table_cap ? t->name_table_cap * 2 : 64;
    const struct jinja_str **names = arena_array(&t->arena, cap / 2, sizeof *names);
    uint32_t *table = arena_array(&t->arena, cap, sizeof *table);
    if (!names || !table) return false;
    if (t->n_names) memcpy(names, t->names, t->n_names * sizeof *names);
    t->names = names;
    t->name_table = table;
    t->name_table_cap = cap;
    for (size_t i = 0; i < t->n_names; i++) *name_cell(t, names[i]->data, names[i]->len) = (uint32_t)i + 1;
    return true;
}

uint32_t jinja_template_find(const struct jinja_template *t, const char *name, size_t len) {
    uint32_t *cell = t->name_table_cap ? name_cell(t, name, len) : NULL;
    return cell && *cell ? *cell - 1 : UINT32_MAX;
}

uint32_t jinja_template_intern(struct jinja_template *t, const char *name, size_t len) {
    uint32_t found = jinja_template_find(t, name, len);
    if (found != UINT32_MAX) return found;
    if (t->n_names == t->name_table_cap / 2 && !grow_names(t)) return UINT32_MAX;
    struct jinja_str *s = arena_alloc(&t->arena, sizeof *s);
    if (!s) return UINT32_MAX;
    jinja_str_init(s, name, len, JINJA_BY_TEMPLATE);
    t->names[t->n_names++] = s;
    *name_cell(t, name, len) = (uint32_t)t->n_names;
    return (uint32_t)t->n_names - 1;
}

/* The source as the lexer wants it: \n only, without one newline at the end. */
static int read_source(struct jinja_template *t, const char *source, size_t len, struct error *err) {
    char *copy = arena_alloc(&t->arena, len + 1);
    if (!copy) return error_set(err, QUIRE_ENOMEM, "out of memory while reading the chat template");
    size_t n = 0;
    for (size_t i = 0; i < len; i++) {
        if (source[i] == '\r') {
            copy[n++] = '\n';
            i += i + 1 < len && source[i + 1] == '\n';
        } else {
            copy[n++] = source[i];
        }
    }
    copy[n] = '\0';
    t->source = copy;
    t->source_len = n;
    for (size_t i = 0; i < n;) {
        size_t step = utf8_sequence(copy + i, n - i);
        if (!step)
            return jinja_syntax_error(t, err, QUIRE_EFORMAT, (uint32_t)i, "the template is not valid UTF-8");
        i += step;
    }
    if (n && copy[n - 1] == '\n') copy[--t->source_len] = '\0';
    return 0;
}

int jinja_template_compile(const char *source, size_t len, struct jinja_template **out, struct error *err) {
    struct error own = {0};
    *out = NULL;
    if (!err) err = &own;
    if (len > JINJA_MAX_SOURCE_BYTES)
        return error_set(err, QUIRE_ELIMIT, "the chat template has %zu bytes; at most %u are allowed", len,
                         JINJA_MAX_SOURCE_BYTES);
    struct jinja_template *t = calloc(1, sizeof *t);
    if (!t) return error_set(err, QUIRE_ENOMEM, "out of memory while reading the chat template");
    arena_init(&t->arena, ARENA_CHUNK_BYTES, ARENA_LIMIT_BYTES);
    int rc = read_source(t, source, len, err);
    if (!rc) rc = jinja_parse(t, err);
    if (!rc) rc = jinja_scope(t, err);
    if (rc) {
        jinja_template_free(t);
        return err->code; /* rc may say no more than that it failed */
    }
    *out = t;
    return 0;
}

void jinja_template_free(struct jinja_template *t) {
    if (!t) return;
    arena_free(&t->arena);
    free(t);
}
