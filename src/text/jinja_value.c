#include "text/jinja_value.h"
#include "base/error.h"
#include "base/size.h"
#include "text/jinja_ast.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int jinja_fail(struct jinja *j, int code, const char *fmt, ...) {
    char text[QUIRE_ERROR_TEXT_BYTES];
    va_list args;
    va_start(args, fmt);
    vsnprintf(text, sizeof text, fmt, args);
    va_end(args);
    struct jinja_place at = jinja_template_place(j->tmpl, j->pos);
    return error_set(j->err, code, "chat template, line %zu: %s", at.line, text);
}

int jinja_fail_memory(struct jinja *j) {
    if (j->arena.limit_bytes && j->arena.used_bytes > j->arena.limit_bytes / 2)
        return jinja_fail(j, QUIRE_ELIMIT, "rendering needs more than %zu MiB of memory",
                          j->arena.limit_bytes >> 20);
    return jinja_fail(j, QUIRE_ENOMEM, "out of memory");
}

/* Memory is time too: fresh pages cost more than what is done with them. */
static int charge_memory(struct jinja *j, size_t n) {
    return jinja_steps(j, 1 + n / 64);
}

void *jinja_alloc(struct jinja *j, size_t n) {
    if (charge_memory(j, n)) return NULL;
    void *p = arena_alloc(&j->arena, n);
    if (!p) jinja_fail_memory(j);
    return p;
}

void *jinja_array(struct jinja *j, size_t n, size_t size) {
    size_t bytes;
    if (!size_mul(n, size, &bytes)) bytes = SIZE_MAX;
    if (charge_memory(j, bytes)) return NULL;
    void *p = arena_array(&j->arena, n, size);
    if (!p) jinja_fail_memory(j);
    return p;
}

int jinja_fail_steps(struct jinja *j) {
    j->steps_left = 0;
    return jinja_fail(j, QUIRE_ELIMIT, "rendering takes more steps than allowed");
}

int jinja_fail_depth(struct jinja *j) {
    return jinja_fail(j, QUIRE_ELIMIT, "nested too deeply");
}

void jinja_guard_init(struct jinja_guard *g, size_t max_depth) {
    *g = (struct jinja_guard){.max_depth = max_depth, .stack_base = (uintptr_t)__builtin_frame_address(0)};
}

int jinja_from_json(struct jinja *j, json_t *json, struct jinja_value *out) {
    switch (json_typeof(json)) {
    case JSON_OBJECT: *out = (struct jinja_value){.type = JINJA_JSON_OBJECT, .json = json}; return 0;
    case JSON_ARRAY: *out = (struct jinja_value){.type = JINJA_JSON_ARRAY, .json = json}; return 0;
    case JSON_STRING: {
        const struct jinja_str *s =
            jinja_str_wrap(j, json_string_value(json), json_string_length(json), JINJA_BY_CONTENT);
        if (!s) return QUIRE_ENOMEM;
        *out = jinja_of_str(s);
        return 0;
    }
    case JSON_INTEGER: *out = jinja_int(json_integer_value(json)); break;
    case JSON_REAL: *out = jinja_float(json_real_value(json)); break;
    case JSON_TRUE: *out = jinja_bool(true); break;
    case JSON_FALSE: *out = jinja_bool(false); break;
    case JSON_NULL: *out = jinja_none(); break;
    }
    out->content = 1;
    return 0;
}

static bool is_known_role(const char *role, size_t len) {
    static const char *const known[] = {"system",   "developer", "user",    "assistant",   "tool",
                                        "function", "model",     "ipython", "observation", "environment"};
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        if (strlen(known[i]) == len && memcmp(known[i], role, len) == 0) return true;
    return false;
}

int jinja_from_member(struct jinja *j, const char *key, size_t key_len, json_t *json,
                      struct jinja_value *out) {
    if (key_len == 4 && memcmp(key, "role", 4) == 0 && json_is_string(json) &&
        is_known_role(json_string_value(json), json_string_length(json))) {
        const struct jinja_str *s =
            jinja_str_wrap(j, json_string_value(json), json_string_length(json), JINJA_BY_TEMPLATE);
        if (!s) return QUIRE_ENOMEM;
        *out = jinja_of_str(s);
        return 0;
    }
    return jinja_from_json(j, json, out);
}

int jinja_list_new(struct jinja *j, const struct jinja_value *items, size_t n, enum jinja_type type,
                   struct jinja_value *out) {
    struct jinja_list *l = jinja_alloc(j, sizeof *l);
    if (!l) return QUIRE_ENOMEM;
    *l = (struct jinja_list){.items = items, .n = n};
    *out = (struct jinja_value){.type = (uint8_t)type, .list = l};
    return 0;
}

int jinja_pair_new(struct jinja *j, struct jinja_value a, struct jinja_value b, struct jinja_value *out) {
    struct jinja_value *items = jinja_alloc(j, 2 * sizeof *items);
    if (!items) return QUIRE_ENOMEM;
    items[0] = a;
    items[1] = b;
    return jinja_list_new(j, items, 2, JINJA_TUPLE, out);
}

int jinja_vec_push(struct jinja *j, struct jinja_vec *v, struct jinja_value item) {
    JINJA_TRY(jinja_steps(j, 1));
    if (v->n == v->cap) {
        size_t cap = v->cap ? v->cap * 2 : 8;
        struct jinja_value *items = jinja_array(j, cap, sizeof *items);
        if (!items) return QUIRE_ENOMEM;
        if (v->n) memcpy(items, v->items, v->n * sizeof *items);
        v->items = items;
        v->cap = cap;
    }
    v->items[v->n++] = item;
    return 0;
}

static int undefined_new(struct jinja *j, struct jinja_undefined u, struct jinja_value *out) {
    struct jinja_undefined *copy = jinja_alloc(j, sizeof *copy);
    if (!copy) return QUIRE_ENOMEM;
    *copy = u;
    *out = (struct jinja_value){.type = JINJA_UNDEFINED, .undefined = copy};
    return 0;
}

int jinja_undefined_name(struct jinja *j, const struct jinja_str *name, struct jinja_value *out) {
    return undefined_new(j, (struct jinja_undefined){.name = name}, out);
}

int jinja_undefined_member(struct jinja *j, struct jinja_value object, struct jinja_value key,
                           struct jinja_value *out) {
    struct jinja_undefined u = {.object_type = jinja_object_name(object), .is_key = key.type != JINJA_STR};
    if (key.type == JINJA_STR) {
        u.name = key.s;
    } else if (key.type == JINJA_INT) { /* other keys are not worth printing each time one is missed */
        JINJA_TRY(jinja_to_str(j, key, &u.name));
    }
    return undefined_new(j, u, out);
}

int jinja_undefined_unsafe(struct jinja *j, struct jinja_value object, const struct jinja_str *name,
                           struct jinja_value *out) {
    struct jinja_undefined u = {.object_type = jinja_type_name(object), .name = name, .unsafe = true};
    return undefined_new(j, u, out);
}

int jinja_undefined_hint(struct jinja *j, const char *hint, struct jinja_value *out) {
    return undefined_new(j, (struct jinja_undefined){.hint = hint}, out);
}

int jinja_fail_undefined(struct jinja *j, struct jinja_value v) {
    const struct jinja_undefined *u = v.undefined;
    if (!u || (!u->hint && !u->name && !u->object_type))
        return jinja_fail(j, QUIRE_EINVAL, "value is undefined");
    if (u->hint) return jinja_fail(j, QUIRE_EINVAL, "%s", u->hint);
    /* A key that stems from the input is not repeated: errors hold no prompt text. */
    bool show = u->name && u->name->prov == JINJA_BY_TEMPLATE && u->name->len <= 100;
    int n = show ? (int)u->name->len : 3;
    const char *name = show ? u->name->data : "...";
    if (u->unsafe)
        return jinja_fail(j, QUIRE_EINVAL, "access to attribute '%.*s' of '%s' object is unsafe", n, name,
                          u->object_type);
    if (!u->object_type) return jinja_fail(j, QUIRE_EINVAL, "'%.*s' is undefined", n, name);
    if (u->is_key) return jinja_fail(j, QUIRE_EINVAL, "%s has no element %.*s", u->object_type, n, name);
    return jinja_fail(j, QUIRE_EINVAL, "'%s' has no attribute '%.*s'", u->object_type, n, name);
}

static const struct {
    const char *type, *object;
} type_names[] = {
    [JINJA_MISSING] = {"missing", "missing"},
    [JINJA_UNDEFINED] = {"Undefined", "jinja2.runtime.Undefined object"},
    [JINJA_NONE] = {"NoneType", "None"},
    [JINJA_BOOL] = {"bool", "bool object"},
    [JINJA_INT] = {"int", "int object"},
    [JINJA_FLOAT] = {"float", "float object"},
    [JINJA_STR] = {"str", "str object"},
    [JINJA_LIST] = {"list", "list object"},
    [JINJA_TUPLE] = {"tuple", "tuple object"},
    [JINJA_DICT] = {"dict", "dict object"},
    [JINJA_JSON_ARRAY] = {"list", "list object"},
    [JINJA_JSON_OBJECT] = {"dict", "dict object"},
    [JINJA_RANGE] = {"range", "range object"},
    [JINJA_VIEW] = {"dict view", "dict view object"},
    [JINJA_ITER] = {"generator", "generator object"},
    [JINJA_NAMESPACE] = {"Namespace", "Namespace object"},
    [JINJA_MACRO] = {"Macro", "Macro object"},
    [JINJA_LOOP] = {"LoopContext", "LoopContext object"},
    [JINJA_METHOD] = {"method", "method object"},
    [JINJA_FUNCTION] = {"function", "function object"},
    [JINJA_CYCLER] = {"Cycler", "Cycler object"},
    [JINJA_JOINER] = {"Joiner", "Joiner object"},
};

const char *jinja_type_name(struct jinja_value v) {
    return type_names[v.type].type;
}

const char *jinja_object_name(struct jinja_value v) {
    return type_names[v.type].object;
}

size_t jinja_float_text(double f, char out[32]) {
    if (isnan(f)) return (size_t)snprintf(out, 32, "nan");
    if (isinf(f)) return (size_t)snprintf(out, 32, f < 0 ? "-inf" : "inf");
    char digits[40];
    int precision = 0;
    do snprintf(digits, sizeof digits, "%.*e", precision, f);
    while (precision++ < 17 && strtod(digits, NULL) != f);
    /* digits: [-]d[.ddd]e[+-]dd; the separator is whatever the locale says, so it is skipped by position. */
    const char *p = digits;
    char *o = out;
    if (*p == '-') *o++ = *p++;
    char mantissa[24];
    int n = 0;
    mantissa[n++] = *p++;
    for (; *p != 'e'; p++)
        if (*p >= '0' && *p <= '9') mantissa[n++] = *p;
    int exponent = atoi(p + 1);
    if (exponent < -4 || exponent >= 16) {
        *o++ = mantissa[0];
        if (n > 1) {
            *o++ = '.';
            memcpy(o, mantissa + 1, (size_t)n - 1);
            o += n - 1;
        }
        o += snprintf(o, (size_t)(out + 32 - o), "e%c%02d", exponent < 0 ? '-' : '+', abs(exponent));
        return (size_t)(o - out);
    }
    int point = exponent + 1; /* digits before the point */
    if (point <= 0) {
        *o++ = '0', *o++ = '.';
        for (int i = point; i < 0; i++) *o++ = '0';
        memcpy(o, mantissa, (size_t)n);
        return (size_t)(o + n - out);
    }
    for (int i = 0; i < point || i < n; i++) {
        if (i == point) *o++ = '.';
        *o++ = i < n ? mantissa[i] : '0';
    }
    if (n <= point) *o++ = '.', *o++ = '0';
    return (size_t)(o - out);
}
