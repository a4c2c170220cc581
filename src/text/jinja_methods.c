/* Methods of everything but strings, and the lookup of all. */
#include "text/jinja_methods.h"
#include "text/jinja_dict.h"
#include "text/jinja_iter.h"
#include "text/jinja_loop.h"
#include "text/jinja_ops.h"

#include <math.h>
#include <string.h>

/* ---- dict ---- */

static int dict_get(struct jinja *j, struct jinja_value self, const struct jinja_value *arg,
                    const struct jinja_args *args, struct jinja_value *out) {
    bool found;
    JINJA_TRY(jinja_mapping_get(j, self, arg[0], out, &found));
    if (!found) *out = jinja_given(arg[1]) ? arg[1] : jinja_none();
    return 0;
}

static int view(struct jinja *j, struct jinja_value self, enum jinja_view_kind kind,
                struct jinja_value *out) {
    struct jinja_view *v = jinja_alloc(j, sizeof *v);
    if (!v) return QUIRE_ENOMEM;
    *v = (struct jinja_view){.of = self, .kind = kind};
    *out = (struct jinja_value){.type = JINJA_VIEW, .view = v};
    return 0;
}

static int dict_items(struct jinja *j, struct jinja_value self, const struct jinja_value *arg,
                      const struct jinja_args *args, struct jinja_value *out) {
    return view(j, self, JINJA_VIEW_ITEMS, out);
}
static int dict_keys(struct jinja *j, struct jinja_value self, const struct jinja_value *arg,
                     const struct jinja_args *args, struct jinja_value *out) {
    return view(j, self, JINJA_VIEW_KEYS, out);
}
static int dict_values(struct jinja *j, struct jinja_value self, const struct jinja_value *arg,
                       const struct jinja_args *args, struct jinja_value *out) {
    return view(j, self, JINJA_VIEW_VALUES, out);
}

static int dict_copy(
    struct jinja *j, struct jinja_value self, const struct jinja_value *arg, const struct jinja_args *args,
    struct jinja_value *out) { /* nothing can change it, so it is its own copy; but not the same object */
    struct jinja_dict *d;
    JINJA_TRY(jinja_dict_new(j, &d));
    JINJA_TRY(jinja_dict_update(j, d, self));
    *out = (struct jinja_value){.type = JINJA_DICT, .dict = d};
    return 0;
}

static int dict_fromkeys(struct jinja *j, struct jinja_value self, const struct jinja_value *arg,
                         const struct jinja_args *args, struct jinja_value *out) {
    struct jinja_dict *d;
    struct jinja_iter it;
    JINJA_TRY(jinja_dict_new(j, &d));
    JINJA_TRY(jinja_iter_start(j, &it, arg[0]));
    for (;;) {
        struct jinja_value key;
        bool done;
        JINJA_TRY(jinja_iter_next(j, &it, &key, &done));
        if (done) break;
        JINJA_TRY(jinja_dict_set(j, d, key, jinja_given(arg[1]) ? arg[1] : jinja_none()));
    }
    *out = (struct jinja_value){.type = JINJA_DICT, .dict = d};
    return 0;
}

/* ---- list, tuple, range ---- */

static int seq_count(struct jinja *j, struct jinja_value self, const struct jinja_value *arg,
                     const struct jinja_args *args, struct jinja_value *out) {
    struct jinja_iter it;
    int64_t n = 0;
    JINJA_TRY(jinja_iter_start(j, &it, self));
    for (;;) {
        struct jinja_value item;
        bool done, same;
        JINJA_TRY(jinja_iter_next(j, &it, &item, &done));
        if (done) break;
        JINJA_TRY(jinja_equal(j, item, arg[0], &same));
        n += same;
    }
    *out = jinja_int(n);
    return 0;
}

static int seq_index(struct jinja *j, struct jinja_value self, const struct jinja_value *arg,
                     const struct jinja_args *args, struct jinja_value *out) {
    int64_t start = 0, stop = INT64_MAX;
    size_t n;
    bool sized;
    JINJA_TRY(jinja_length(j, self, &n, &sized));
    if (jinja_given(arg[1])) JINJA_TRY(jinja_need_int(j, "the start", arg[1], &start));
    if (jinja_given(arg[2])) JINJA_TRY(jinja_need_int(j, "the stop", arg[2], &stop));
    struct jinja_indices x = jinja_slice_indices(n, true, start, true, stop, 1);
    for (size_t i = 0; i < x.n; i++) {
        struct jinja_value item;
        bool same;
        JINJA_TRY(jinja_seq_at(j, self, (size_t)x.start + i, &item));
        JINJA_TRY(jinja_equal(j, item, arg[0], &same));
        if (same) return *out = jinja_int(x.start + (int64_t)i), 0;
    }
    return jinja_fail(j, QUIRE_EINVAL, "value is not in the %s", jinja_type_name(self));
}

static int list_copy(struct jinja *j, struct jinja_value self, const struct jinja_value *arg,
                     const struct jinja_args *args, struct jinja_value *out) {
    struct jinja_vec items = {0};
    JINJA_TRY(jinja_collect(j, self, &items));
    return jinja_list_new(j, items.items, items.n, JINJA_LIST, out);
}

/* ---- numbers ---- */

static int number_self(struct jinja *j, struct jinja_value self, const struct jinja_value *arg,
                       const struct jinja_args *args, struct jinja_value *out) {
    return jinja_plus(j, self, out);
}

static int float_is_integer(struct jinja *j, struct jinja_value self, const struct jinja_value *arg,
                            const struct jinja_args *args, struct jinja_value *out) {
    *out = jinja_bool(isfinite(self.f) && self.f == floor(self.f));
    return 0;
}

static int int_bit_length(struct jinja *j, struct jinja_value self, const struct jinja_value *arg,
                          const struct jinja_args *args, struct jinja_value *out) {
    int64_t i = jinja_as_int(self);
    uint64_t magnitude = i < 0 ? 0 - (uint64_t)i : (uint64_t)i;
    *out = jinja_int(magnitude ? 64 - __builtin_clzll(magnitude) : 0);
    return 0;
}

static int int_bit_count(struct jinja *j, struct jinja_value self, const struct jinja_value *arg,
                         const struct jinja_args *args, struct jinja_value *out) {
    int64_t i = jinja_as_int(self);
    *out = jinja_int(__builtin_popcountll(i < 0 ? 0 - (uint64_t)i : (uint64_t)i));
    return 0;
}

/* ---- loop, cycler ---- */

static int loop_cycle(struct jinja *j, struct jinja_value self, const struct jinja_value *arg,
                      const struct jinja_args *args, struct jinja_value *out) {
    if (!args->n_pos) return jinja_fail(j, QUIRE_EINVAL, "no items for cycling given");
    if (args->n_kw) return jinja_fail(j, QUIRE_EINVAL, "loop.cycle takes no keyword arguments");
    *out = args->pos[self.loop->index0 % args->n_pos];
    return 0;
}

static int loop_changed(struct jinja *j, struct jinja_value self, const struct jinja_value *arg,
                        const struct jinja_args *args, struct jinja_value *out) {
    struct jinja_value now, *items = jinja_array(j, args->n_pos, sizeof *items);
    bool same = false;
    if (!items) return QUIRE_ENOMEM;
    if (args->n_kw) return jinja_fail(j, QUIRE_EINVAL, "loop.changed takes no keyword arguments");
    if (args->n_pos) memcpy(items, args->pos, args->n_pos * sizeof *items);
    JINJA_TRY(jinja_list_new(j, items, args->n_pos, JINJA_TUPLE, &now));
    if (jinja_given(self.loop->changed)) JINJA_TRY(jinja_equal(j, self.loop->changed, now, &same));
    if (!same) self.loop->changed = now;
    *out = jinja_bool(!same);
    return 0;
}

static int cycler_next(struct jinja *j, struct jinja_value self, const struct jinja_value *arg,
                       const struct jinja_args *args, struct jinja_value *out) {
    struct jinja_cycler *c = self.cycler;
    *out = c->items[c->pos];
    c->pos = (c->pos + 1) % c->n;
    return 0;
}

static int cycler_reset(struct jinja *j, struct jinja_value self, const struct jinja_value *arg,
                        const struct jinja_args *args, struct jinja_value *out) {
    self.cycler->pos = 0;
    *out = jinja_none();
    return 0;
}

static int refused(struct jinja *j, struct jinja_value self, const struct jinja_value *arg,
                   const struct jinja_args *args, struct jinja_value *out) {
    return jinja_fail(j, QUIRE_EUNSUPPORTED, "this method is not supported");
}

static const struct jinja_method dict_methods[] = {
    {"get", "/key default=", dict_get},
    {"items", "/", dict_items},
    {"keys", "/", dict_keys},
    {"values", "/", dict_values},
    {"copy", "/", dict_copy},
    {"fromkeys", "/iterable value=", dict_fromkeys},
    {0},
};
static const struct jinja_method list_methods[] = {{"count", "/value", seq_count},
                                                   {"index", "/value start= stop=", seq_index},
                                                   {"copy", "/", list_copy},
                                                   {0}};
static const struct jinja_method tuple_methods[] = {
    {"count", "/value", seq_count}, {"index", "/value start= stop=", seq_index}, {0}};
static const struct jinja_method range_methods[] = {
    {"count", "/value", seq_count}, {"index", "/value", seq_index}, {0}};
static const struct jinja_method int_methods[] = {
    {"bit_length", "/", int_bit_length},
    {"bit_count", "/", int_bit_count},
    {"conjugate", "/", number_self},
    {"as_integer_ratio", NULL, refused},
    {"to_bytes", NULL, refused},
    {"from_bytes", NULL, refused},
    {0},
};
static const struct jinja_method float_methods[] = {
    {"is_integer", "/", float_is_integer},
    {"conjugate", "/", number_self},
    {"as_integer_ratio", NULL, refused},
    {"hex", NULL, refused},
    {"fromhex", NULL, refused},
    {0},
};
static const struct jinja_method loop_methods[] = {
    {"cycle", NULL, loop_cycle}, {"changed", NULL, loop_changed}, {0}};
static const struct jinja_method cycler_methods[] = {
    {"next", "/", cycler_next}, {"reset", "/", cycler_reset}, {0}};
static const struct jinja_method dict_function_methods[] = {{"fromkeys", "/iterable value=", dict_fromkeys},
                                                            {0}};

static const char *const dict_mutators[] = {"clear", "pop", "popitem", "setdefault", "update", NULL};
static const char *const list_mutators[] = {"append", "clear",  "pop",    "reverse", "insert",
                                            "sort",   "extend", "remove", NULL};

static const struct jinja_method *find_in(const struct jinja_method *m, const struct jinja_str *name) {
    for (; m->name; m++)
        if (jinja_str_is(name, m->name)) return m;
    return NULL;
}

static const struct jinja_method *find_str_method(const struct jinja_str *name) {
    size_t low = 0, high = jinja_str_methods_n;
    while (low < high) {
        size_t mid = low + (high - low) / 2;
        const char *have = jinja_str_methods[mid].name;
        size_t len = strlen(have);
        int c = memcmp(name->data, have, name->len < len ? name->len : len);
        if (!c) c = (name->len > len) - (name->len < len);
        if (!c) return &jinja_str_methods[mid];
        if (c < 0) {
            high = mid;
        } else {
            low = mid + 1;
        }
    }
    return NULL;
}

bool jinja_is_dict_attribute(const struct jinja_str *name) {
    bool known = find_in(dict_methods, name) || (name->len > 2 && memcmp(name->data, "__", 2) == 0);
    for (const char *const *m = dict_mutators; *m && !known; m++) known = jinja_str_is(name, *m);
    return known;
}

const struct jinja_method *jinja_method_find(struct jinja_value self, const struct jinja_str *name,
                                             bool *unsafe) {
    const char *const *mutators = NULL;
    const struct jinja_method *m = NULL;
    switch ((enum jinja_type)self.type) {
    case JINJA_STR: return find_str_method(name);
    case JINJA_DICT:
    case JINJA_JSON_OBJECT:
        m = find_in(dict_methods, name);
        mutators = dict_mutators;
        break;
    case JINJA_LIST:
    case JINJA_JSON_ARRAY:
        m = find_in(list_methods, name);
        mutators = list_mutators;
        break;
    case JINJA_TUPLE: return find_in(tuple_methods, name);
    case JINJA_RANGE: return find_in(range_methods, name);
    case JINJA_BOOL:
    case JINJA_INT: return find_in(int_methods, name);
    case JINJA_FLOAT: return find_in(float_methods, name);
    case JINJA_LOOP: return find_in(loop_methods, name);
    case JINJA_CYCLER: return find_in(cycler_methods, name);
    case JINJA_FUNCTION:
        return strcmp(self.function->method.name, "dict") == 0 ? find_in(dict_function_methods, name) : NULL;
    default: return NULL;
    }
    for (; mutators && *mutators && !m && !*unsafe; mutators++) *unsafe = jinja_str_is(name, *mutators);
    return m;
}
