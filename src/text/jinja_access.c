/* Attributes, items and slices. */
#include "text/jinja_call.h"
#include "text/jinja_dict.h"
#include "text/jinja_loop.h"
#include "text/jinja_methods.h"
#include "text/jinja_ops.h"

#include <string.h>

static bool is_dunder(const struct jinja_str *name) {
    return name->len > 4 && memcmp(name->data, "__", 2) == 0 &&
           memcmp(name->data + name->len - 2, "__", 2) == 0;
}

/* Those that Jinja's Undefined has itself; asking it for any other attribute fails. */
static bool is_own_dunder(const struct jinja_str *name) {
    static const char *const own[] = {"__class__", "__doc__",    "__init__", "__eq__",   "__ne__",
                                      "__hash__",  "__len__",    "__iter__", "__bool__", "__str__",
                                      "__repr__",  "__module__", "__slots__"};
    for (size_t i = 0; i < sizeof own / sizeof *own; i++)
        if (jinja_str_is(name, own[i])) return true;
    return false;
}

static int bind_method(struct jinja *j, struct jinja_value self, const struct jinja_method *m,
                       struct jinja_value *out) {
    struct jinja_bound *b = jinja_alloc(j, sizeof *b);
    if (!b) return QUIRE_ENOMEM;
    *b = (struct jinja_bound){.self = self, .method = m};
    *out = (struct jinja_value){.type = JINJA_METHOD, .bound = b};
    return 0;
}

static int macro_attribute(struct jinja *j, const struct jinja_macro *m, const struct jinja_str *name,
                           struct jinja_value *out, bool *found) {
    const struct jinja_macro_def *def = m->def;
    *found = true;
    if (jinja_str_is(name, "name")) {
        *out = def->name ? jinja_of_str(def->name) : jinja_none();
    } else if (jinja_str_is(name, "catch_kwargs")) {
        *out = jinja_bool(def->uses_kwargs);
    } else if (jinja_str_is(name, "catch_varargs")) {
        *out = jinja_bool(def->uses_varargs);
    } else if (jinja_str_is(name, "caller")) {
        *out = jinja_bool(def->uses_caller);
    } else if (jinja_str_is(name, "arguments")) {
        struct jinja_vec names = {0};
        for (size_t i = 0; i < def->n_params; i++)
            JINJA_TRY(jinja_vec_push(j, &names, jinja_of_str(j->tmpl->names[def->param_nodes[i]->name.id])));
        return jinja_list_new(j, names.items, names.n, JINJA_TUPLE, out);
    } else {
        *found = false;
    }
    return 0;
}

static void range_attribute(const struct jinja_range *r, const struct jinja_str *name,
                            struct jinja_value *out, bool *found) {
    *found = true;
    if (jinja_str_is(name, "start")) {
        *out = jinja_int(r->start);
    } else if (jinja_str_is(name, "stop")) {
        *out = jinja_int(r->stop);
    } else if (jinja_str_is(name, "step")) {
        *out = jinja_int(r->step);
    } else {
        *found = false;
    }
}

static void number_attribute(struct jinja_value v, const struct jinja_str *name, struct jinja_value *out,
                             bool *found) {
    bool is_int = jinja_is_int(v);
    *found = true;
    if (jinja_str_is(name, "real") || (is_int && jinja_str_is(name, "numerator"))) {
        *out = is_int ? jinja_int(jinja_as_int(v)) : v;
    } else if (jinja_str_is(name, "imag")) {
        *out = is_int ? jinja_int(0) : jinja_float(0);
    } else if (is_int && jinja_str_is(name, "denominator")) {
        *out = jinja_int(1);
    } else {
        *found = false;
    }
}

/* What Python's getattr finds; *found = false where it raises AttributeError. */
static int attribute(struct jinja *j, struct jinja_value v, const struct jinja_str *name,
                     struct jinja_value *out, bool *found) {
    bool unsafe = false;
    *found = false;
    switch ((enum jinja_type)v.type) {
    case JINJA_UNDEFINED:
        if (!is_own_dunder(name)) return jinja_fail_undefined(j, v);
        break;
    case JINJA_NAMESPACE: JINJA_TRY(jinja_mapping_get(j, v, jinja_of_str(name), out, found)); break;
    case JINJA_MACRO: JINJA_TRY(macro_attribute(j, v.macro, name, out, found)); break;
    case JINJA_LOOP: JINJA_TRY(jinja_loop_attribute(j, v.loop, name, out, found)); break;
    case JINJA_RANGE: range_attribute(v.range, name, out, found); break;
    case JINJA_BOOL:
    case JINJA_INT:
    case JINJA_FLOAT: number_attribute(v, name, out, found); break;
    case JINJA_TUPLE:
        *found = v.list->group && (jinja_str_is(name, "grouper") || jinja_str_is(name, "list"));
        if (*found) *out = v.list->items[name->data[0] == 'l'];
        break;
    case JINJA_CYCLER:
        *found = jinja_str_is(name, "current");
        if (*found) *out = v.cycler->items[v.cycler->pos];
        break;
    default: break;
    }
    if (*found) return 0;
    const struct jinja_method *m = jinja_method_find(v, name, &unsafe);
    *found = m || unsafe || is_dunder(name);
    if (m) return bind_method(j, v, m, out);
    return *found ? jinja_undefined_unsafe(j, v, name, out) : 0;
}

static int index_of(struct jinja_value key, size_t n, size_t *at) {
    int64_t i = jinja_as_int(key);
    if (i < 0) i += (int64_t)n;
    *at = (size_t)i;
    return i >= 0 && (size_t)i < n;
}

/* What Python's object[key] finds; *found = false where it raises TypeError or LookupError. */
static int item(struct jinja *j, struct jinja_value v, struct jinja_value key, struct jinja_value *out,
                bool *found) {
    size_t n, at;
    bool sized;
    *found = false;
    switch ((enum jinja_type)v.type) {
    case JINJA_UNDEFINED: return jinja_fail_undefined(j, v);
    case JINJA_DICT:
    case JINJA_JSON_OBJECT: return jinja_is_hashable(key) ? jinja_mapping_get(j, v, key, out, found) : 0;
    case JINJA_LIST:
    case JINJA_TUPLE:
    case JINJA_JSON_ARRAY:
    case JINJA_RANGE:
        if (!jinja_is_int(key)) return 0;
        JINJA_TRY(jinja_length(j, v, &n, &sized));
        *found = index_of(key, n, &at);
        return *found ? jinja_seq_at(j, v, at, out) : 0;
    case JINJA_STR: {
        if (!jinja_is_int(key)) return 0;
        *found = index_of(key, v.s->n_chars, &at);
        if (!*found) return 0;
        if (v.s->len >= 256) JINJA_TRY(jinja_steps(j, v.s->len / 256));
        size_t start = jinja_str_offset(v.s, at), end = start + 1;
        while (end < v.s->len && ((unsigned char)v.s->data[end] & 0xc0) == 0x80) end++;
        const struct jinja_str *c = jinja_str_sub(j, v.s, start, end - start);
        if (!c) return QUIRE_ENOMEM;
        *out = jinja_of_str(c);
        return 0;
    }
    default: return 0;
    }
}

int jinja_getattr(struct jinja *j, struct jinja_value object, const struct jinja_str *name,
                  struct jinja_value *out) {
    bool found;
    JINJA_TRY(attribute(j, object, name, out, &found));
    if (found) return 0;
    JINJA_TRY(item(j, object, jinja_of_str(name), out, &found));
    return found ? 0 : jinja_undefined_member(j, object, jinja_of_str(name), out);
}

int jinja_getitem(struct jinja *j, struct jinja_value object, struct jinja_value key,
                  struct jinja_value *out) {
    bool found;
    JINJA_TRY(item(j, object, key, out, &found));
    if (!found && key.type == JINJA_STR) JINJA_TRY(attribute(j, object, key.s, out, &found));
    return found ? 0 : jinja_undefined_member(j, object, key, out);
}

static int64_t clamp(int64_t i, int64_t length, int64_t low, int64_t high) {
    if (i < 0) i = i < -length ? low : i + length;
    return i < low ? low : i > high ? high : i;
}

struct jinja_indices jinja_slice_indices(size_t length, bool has_start, int64_t start, bool has_stop,
                                         int64_t stop, int64_t step) {
    int64_t n = (int64_t)length, low = step < 0 ? -1 : 0, high = step < 0 ? n - 1 : n;
    struct jinja_indices x = {.step = step};
    x.start = has_start ? clamp(start, n, low, high) : step < 0 ? high : low;
    x.stop = has_stop ? clamp(stop, n, low, high) : step < 0 ? low : high;
    /* Differences of positions within a length: no overflow; a step's magnitude as unsigned, for INT64_MIN.
     */
    uint64_t stride = step < 0 ? 0 - (uint64_t)step : (uint64_t)step;
    int64_t span = step < 0 ? x.start - x.stop : x.stop - x.start;
    if (span > 0) x.n = (size_t)(((uint64_t)span - 1) / stride + 1);
    return x;
}

static int slice_str(struct jinja *j, const struct jinja_str *s, const struct jinja_indices *x,
                     struct jinja_value *out) {
    const struct jinja_str *r;
    if (s->len >= 256) JINJA_TRY(jinja_steps(j, s->len / 256));
    if (x->step == 1 || x->n <= 1) {
        size_t start = jinja_str_offset(s, (size_t)(x->n ? x->start : 0));
        size_t end = jinja_str_offset(s, (size_t)(x->n ? x->start : 0) + x->n);
        r = jinja_str_sub(j, s, start, end - start);
        if (!r) return QUIRE_ENOMEM;
        *out = jinja_of_str(r);
        return 0;
    }
    struct jinja_sb b;
    jinja_sb_init(j, &b);
    JINJA_TRY(jinja_steps(j, s->n_chars / 64));
    size_t at = jinja_str_offset(s, (size_t)x->start);
    for (size_t i = 0; i < x->n && !b.rc; i++) {
        size_t end = at + 1;
        while (end < s->len && ((unsigned char)s->data[end] & 0xc0) == 0x80) end++;
        jinja_sb_add_sub(&b, s, at, end - at);
        if (i + 1 == x->n) break;
        for (int64_t k = 0; k < x->step; k++) do
                at++;
            while (at < s->len && ((unsigned char)s->data[at] & 0xc0) == 0x80);
        for (int64_t k = 0; k > x->step; k--) do
                at--;
            while (((unsigned char)s->data[at] & 0xc0) == 0x80);
    }
    JINJA_TRY(jinja_sb_finish(&b, &r));
    r = jinja_str_markup(j, r, s->markup);
    if (!r) return QUIRE_ENOMEM;
    *out = jinja_of_str(r);
    return 0;
}

static int slice_range(struct jinja *j, const struct jinja_range *r, const struct jinja_indices *x,
                       struct jinja_value *out) {
    struct jinja_range *s = jinja_alloc(j, sizeof *s);
    if (!s) return QUIRE_ENOMEM;
    if (__builtin_mul_overflow(r->step, x->step, &s->step) ||
        __builtin_mul_overflow(x->start, r->step, &s->start) ||
        __builtin_add_overflow(s->start, r->start, &s->start) ||
        __builtin_mul_overflow(x->stop, r->step, &s->stop) ||
        __builtin_add_overflow(s->stop, r->start, &s->stop))
        return jinja_fail(j, QUIRE_ELIMIT, "the slice of a range does not fit in 64-bit integers");
    s->n = x->n;
    *out = (struct jinja_value){.type = JINJA_RANGE, .range = s};
    return 0;
}

int jinja_slice(struct jinja *j, struct jinja_value object, const struct jinja_value part[3],
                struct jinja_value *out) {
    int64_t v[3] = {0, 0, 1};
    size_t n;
    bool sized, has[3];
    if (object.type == JINJA_UNDEFINED) return jinja_fail_undefined(j, object);
    for (int i = 0; i < 3; i++) {
        has[i] = jinja_given_value(part[i]);
        if (has[i]) JINJA_TRY(jinja_need_int(j, "a slice index", part[i], &v[i]));
    }
    bool is_seq = jinja_is_list(object) || object.type == JINJA_TUPLE;
    if (!is_seq && object.type != JINJA_STR && object.type != JINJA_RANGE)
        return jinja_fail(j, QUIRE_EINVAL, "'%s' object cannot be sliced", jinja_type_name(object));
    if (v[2] == 0) return jinja_fail(j, QUIRE_EINVAL, "slice step cannot be zero");
    JINJA_TRY(jinja_length(j, object, &n, &sized));
    struct jinja_indices x = jinja_slice_indices(n, has[0], v[0], has[1], v[1], v[2]);
    if (object.type == JINJA_STR) return slice_str(j, object.s, &x, out);
    if (object.type == JINJA_RANGE) return slice_range(j, object.range, &x, out);
    enum jinja_type type = object.type == JINJA_TUPLE ? JINJA_TUPLE : JINJA_LIST;
    if (x.step == 1 && object.type != JINJA_JSON_ARRAY)
        return jinja_list_new(j, object.list->items + (x.n ? x.start : 0), x.n, type, out);
    JINJA_TRY(jinja_steps(j, x.n));
    struct jinja_value *items = jinja_array(j, x.n, sizeof *items);
    if (!items) return QUIRE_ENOMEM;
    int64_t at = x.start;
    for (size_t i = 0; i < x.n; i++, at += i < x.n ? x.step : 0)
        JINJA_TRY(jinja_seq_at(j, object, (size_t)at, &items[i]));
    return jinja_list_new(j, items, x.n, type, out);
}
