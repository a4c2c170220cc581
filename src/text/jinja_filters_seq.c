/* Filters of lists and other iterables. */
#include "text/jinja_dict.h"
#include "text/jinja_filters.h"
#include "text/jinja_iter.h"
#include "text/jinja_methods.h"
#include "text/jinja_ops.h"
#include "text/jinja_sort.h"
#include "text/jinja_tests.h"

#include <string.h>

/* ---- which member of an item ---- */

static bool is_digits(const struct jinja_str *s) {
    for (size_t i = 0; i < s->len; i++)
        if (s->data[i] < '0' || s->data[i] > '9') return false;
    return s->len && s->len <= 18;
}

static int add_part(struct jinja *j, struct jinja_vec *v, const struct jinja_str *s) {
    if (!is_digits(s)) return jinja_vec_push(j, v, jinja_of_str(s));
    int64_t n = 0;
    for (size_t i = 0; i < s->len; i++) n = n * 10 + (s->data[i] - '0');
    return jinja_vec_push(j, v, jinja_int(n));
}

int jinja_getter_init(struct jinja *j, struct jinja_getter *g, struct jinja_value attribute, bool lower) {
    struct jinja_vec parts = {0};
    *g = (struct jinja_getter){.lower = lower};
    if (!jinja_given_value(attribute)) return 0;
    if (attribute.type == JINJA_STR) {
        const struct jinja_str *s = attribute.s;
        size_t start = 0;
        for (size_t i = 0; i <= s->len; i++) {
            if (i < s->len && s->data[i] != '.') continue;
            const struct jinja_str *part = jinja_str_sub(j, s, start, i - start);
            if (!part) return QUIRE_ENOMEM;
            JINJA_TRY(add_part(j, &parts, part));
            start = i + 1;
        }
    } else {
        JINJA_TRY(jinja_vec_push(j, &parts, attribute));
    }
    g->parts = parts.items;
    g->n = parts.n;
    return 0;
}

int jinja_getter_get(struct jinja *j, const struct jinja_getter *g, struct jinja_value item,
                     struct jinja_value *out) {
    for (size_t i = 0; i < g->n; i++) {
        JINJA_TRY(jinja_getitem(j, item, g->parts[i], &item));
        if (item.type == JINJA_UNDEFINED && jinja_given_value(g->or_else)) item = g->or_else;
    }
    if (g->lower && item.type == JINJA_STR) {
        const struct jinja_str *s;
        JINJA_TRY(jinja_str_change(j, item.s, JINJA_TO_LOWER, &s));
        item = jinja_of_str(s);
    }
    *out = item;
    return 0;
}

/* "a,b.c": several members, as a list. */
static int multi_getter(struct jinja *j, struct jinja_value attribute, bool lower, struct jinja_getter **out,
                        size_t *n) {
    *n = 1;
    if (attribute.type == JINJA_STR)
        for (size_t i = 0; i < attribute.s->len; i++) *n += attribute.s->data[i] == ',';
    struct jinja_getter *g = jinja_array(j, *n, sizeof *g);
    if (!g) return QUIRE_ENOMEM;
    *out = g;
    if (*n == 1) return jinja_getter_init(j, g, attribute, lower);
    size_t start = 0;
    for (size_t i = 0, k = 0; i <= attribute.s->len; i++) {
        if (i < attribute.s->len && attribute.s->data[i] != ',') continue;
        const struct jinja_str *part = jinja_str_sub(j, attribute.s, start, i - start);
        if (!part) return QUIRE_ENOMEM;
        JINJA_TRY(jinja_getter_init(j, &g[k++], jinja_of_str(part), lower));
        start = i + 1;
    }
    return 0;
}

int jinja_f_attr(struct jinja *j, struct jinja_value self, const struct jinja_value *arg,
                 const struct jinja_args *args,
                 struct jinja_value *out) { /* the attribute only, never an item */
    const struct jinja_str *name;
    bool unsafe = false;
    JINJA_TRY(jinja_need_str(j, "the attribute", arg[0], &name));
    if (jinja_is_dict(self) && !jinja_method_find(self, name, &unsafe) && !unsafe)
        return jinja_undefined_member(j, self, arg[0], out);
    return jinja_getattr(j, self, name, out);
}

/* ---- generators ---- */

struct batch {
    int64_t size;
    struct jinja_value fill, pending;
};

static int next_batch(struct jinja *j, struct jinja_iter *it, struct jinja_value *out, bool *done) {
    struct batch *b = it->state;
    struct jinja_vec row = {0};
    bool end = false;
    if (jinja_given(b->pending)) JINJA_TRY(jinja_vec_push(j, &row, b->pending));
    b->pending.type = JINJA_MISSING;
    for (;;) {
        struct jinja_value item;
        JINJA_TRY(jinja_source_next(j, it, false, &item, &end));
        if (end) break;
        if ((int64_t)row.n == b->size) {
            b->pending = item;
            break;
        }
        JINJA_TRY(jinja_vec_push(j, &row, item));
    }
    *done = end && row.n == 0;
    if (*done) return 0;
    while (end && jinja_given_value(b->fill) && (int64_t)row.n < b->size)
        JINJA_TRY(jinja_vec_push(j, &row, b->fill));
    return jinja_list_new(j, row.items, row.n, JINJA_LIST, out);
}

int jinja_f_batch(struct jinja *j, struct jinja_value self, const struct jinja_value *arg,
                  const struct jinja_args *args, struct jinja_value *out) {
    struct batch *b = jinja_array(j, 1, sizeof *b);
    if (!b) return QUIRE_ENOMEM;
    b->fill = arg[1];
    JINJA_TRY(jinja_need_int(j, "the number of items", arg[0], &b->size));
    return jinja_generator(j, "do_batch", self, next_batch, b, out);
}

struct slices {
    int64_t n, at;
    struct jinja_value fill;
    struct jinja_vec items;
    bool begun;
};

static int next_slice(struct jinja *j, struct jinja_iter *it, struct jinja_value *out, bool *done) {
    struct slices *s = it->state;
    if (!s->begun) {
        s->begun = true;
        JINJA_TRY(jinja_collect(j, it->of, &s->items));
        if (s->n == 0) return jinja_fail(j, QUIRE_EINVAL, "division by zero");
    }
    *done = s->at >= s->n;
    if (*done) return 0;
    size_t each = s->items.n / (size_t)s->n, extra = s->items.n % (size_t)s->n, at = (size_t)s->at++;
    size_t start = at * each + (at < extra ? at : extra), n = each + (at < extra);
    struct jinja_vec part = {0};
    for (size_t i = 0; i < n; i++) JINJA_TRY(jinja_vec_push(j, &part, s->items.items[start + i]));
    if (jinja_given_value(s->fill) && at >= extra) JINJA_TRY(jinja_vec_push(j, &part, s->fill));
    return jinja_list_new(j, part.items, part.n, JINJA_LIST, out);
}

int jinja_f_slice(struct jinja *j, struct jinja_value self, const struct jinja_value *arg,
                  const struct jinja_args *args, struct jinja_value *out) {
    struct slices *s = jinja_array(j, 1, sizeof *s);
    if (!s) return QUIRE_ENOMEM;
    s->fill = arg[1];
    JINJA_TRY(jinja_need_int(j, "the number of slices", arg[0], &s->n));
    return jinja_generator(j, "sync_do_slice", self, next_slice, s, out);
}

struct unique {
    struct jinja_getter getter;
    struct jinja_dict *seen;
};

static int next_unique(struct jinja *j, struct jinja_iter *it, struct jinja_value *out, bool *done) {
    struct unique *u = it->state;
    for (;;) {
        struct jinja_value key, *known;
        JINJA_TRY(jinja_source_next(j, it, false, out, done));
        if (*done) return 0;
        JINJA_TRY(jinja_getter_get(j, &u->getter, *out, &key));
        JINJA_TRY(jinja_dict_get(j, u->seen, key, &known));
        if (known) continue;
        return jinja_dict_set(j, u->seen, key, jinja_none());
    }
}

int jinja_f_unique(struct jinja *j, struct jinja_value self, const struct jinja_value *arg,
                   const struct jinja_args *args, struct jinja_value *out) {
    struct unique *u = jinja_array(j, 1, sizeof *u);
    if (!u) return QUIRE_ENOMEM;
    JINJA_TRY(jinja_getter_init(j, &u->getter, arg[1], !jinja_truth(j, arg[0])));
    JINJA_TRY(jinja_dict_new(j, &u->seen));
    return jinja_generator(j, "sync_do_unique", self, next_unique, u, out);
}

static int next_item_pair(struct jinja *j, struct jinja_iter *it, struct jinja_value *out, bool *done) {
    struct jinja_value key, value;
    *done = it->of.type == JINJA_UNDEFINED;
    if (*done) return 0;
    if (!jinja_is_dict(it->of))
        return jinja_fail(j, QUIRE_EINVAL, "items: a mapping is needed, not '%s'", jinja_type_name(it->of));
    JINJA_TRY(jinja_mapping_next(j, it->of, &it->cursor, &key, &value, done));
    return *done ? 0 : jinja_pair_new(j, key, value, out);
}

int jinja_f_items(struct jinja *j, struct jinja_value self, const struct jinja_value *arg,
                  const struct jinja_args *args, struct jinja_value *out) {
    return jinja_generator(j, "do_items", self, next_item_pair, NULL, out);
}

/* What map, select and reject apply to each item: a filter or test of that name, or a member. Looked up when
 * the first item is asked for. */
struct applied {
    struct jinja_args args; /* as given */
    bool begun, by_attribute, negate;
    bool has_getter;
    struct jinja_getter getter;
    const struct jinja_filter *filter;
    const struct jinja_test *test;
    struct jinja_args rest;
};

static int begin_map(struct jinja *j, struct applied *a) {
    const struct jinja_value *attribute = NULL;
    for (size_t i = 0; i < a->args.n_kw && !a->args.n_pos; i++)
        if (jinja_str_is(a->args.kw[i].name, "attribute")) attribute = &a->args.kw[i].value;
    if (attribute) {
        JINJA_TRY(jinja_getter_init(j, &a->getter, *attribute, false));
        a->has_getter = true;
        for (size_t i = 0; i < a->args.n_kw; i++) {
            const struct jinja_str *name = a->args.kw[i].name;
            if (jinja_str_is(name, "default")) {
                a->getter.or_else = a->args.kw[i].value;
            } else if (!jinja_str_is(name, "attribute")) {
                return jinja_fail(j, QUIRE_EINVAL, "map: unexpected keyword argument '%.*s'",
                                  (int)(name->len < 60 ? name->len : 60), name->data);
            }
        }
        return 0;
    }
    if (!a->args.n_pos) return jinja_fail(j, QUIRE_EINVAL, "map requires a filter argument");
    const struct jinja_str *name;
    JINJA_TRY(jinja_need_str(j, "map: the name of a filter", a->args.pos[0], &name));
    a->filter = jinja_filter_find(name);
    if (!a->filter) return jinja_fail(j, QUIRE_EUNSUPPORTED, "map: there is no filter of this name");
    a->rest = (struct jinja_args){a->args.pos + 1, a->args.n_pos - 1, a->args.kw, a->args.n_kw};
    return 0;
}

static int next_mapped(struct jinja *j, struct jinja_iter *it, struct jinja_value *out, bool *done) {
    struct applied *a = it->state;
    struct jinja_value item;
    if (!a->begun && jinja_truth(j, it->of)) {
        a->begun = true;
        JINJA_TRY(begin_map(j, a));
    }
    JINJA_TRY(jinja_source_next(j, it, true, &item, done));
    if (*done) return 0;
    if (a->has_getter) return jinja_getter_get(j, &a->getter, item, out);
    return jinja_filter_call(j, a->filter, item, &a->rest, out);
}

static int begin_select(struct jinja *j, struct applied *a) {
    size_t at = 0;
    if (a->by_attribute) {
        if (!a->args.n_pos) return jinja_fail(j, QUIRE_EINVAL, "missing parameter for attribute name");
        JINJA_TRY(jinja_getter_init(j, &a->getter, a->args.pos[at++], false));
    }
    if (at == a->args.n_pos) return 0;
    const struct jinja_str *name;
    JINJA_TRY(jinja_need_str(j, "the name of a test", a->args.pos[at++], &name));
    a->test = jinja_test_find(name);
    if (!a->test) return jinja_fail(j, QUIRE_EUNSUPPORTED, "there is no test of this name");
    a->rest = (struct jinja_args){a->args.pos + at, a->args.n_pos - at, a->args.kw, a->args.n_kw};
    return 0;
}

static int next_selected(struct jinja *j, struct jinja_iter *it, struct jinja_value *out, bool *done) {
    struct applied *a = it->state;
    if (!a->begun && jinja_truth(j, it->of)) {
        a->begun = true;
        JINJA_TRY(begin_select(j, a));
    }
    for (;;) {
        struct jinja_value member;
        bool holds;
        JINJA_TRY(jinja_source_next(j, it, true, out, done));
        if (*done) return 0;
        JINJA_TRY(jinja_getter_get(j, &a->getter, *out, &member));
        holds = jinja_truth(j, member);
        if (a->test) JINJA_TRY(jinja_test_call(j, a->test, member, &a->rest, &holds));
        if (holds != a->negate) return 0;
    }
}

static int apply_each(struct jinja *j, struct jinja_value self, const struct jinja_args *args,
                      const char *name,
                      int (*next)(struct jinja *, struct jinja_iter *, struct jinja_value *, bool *),
                      bool by_attribute, bool negate, struct jinja_value *out) {
    struct applied *a = jinja_array(j, 1, sizeof *a);
    if (!a) return QUIRE_ENOMEM;
    a->args = *args;
    a->by_attribute = by_attribute;
    a->negate = negate;
    return jinja_generator(j, name, self, next, a, out);
}

int jinja_f_map(struct jinja *j, struct jinja_value self, const struct jinja_value *arg,
                const struct jinja_args *args, struct jinja_value *out) {
    return apply_each(j, self, args, "sync_do_map", next_mapped, false, false, out);
}
int jinja_f_select(struct jinja *j, struct jinja_value self, const struct jinja_value *arg,
                   const struct jinja_args *args, struct jinja_value *out) {
    return apply_each(j, self, args, "sync_do_select", next_selected, false, false, out);
}
int jinja_f_reject(struct jinja *j, struct jinja_value self, const struct jinja_value *arg,
                   const struct jinja_args *args, struct jinja_value *out) {
    return apply_each(j, self, args, "sync_do_reject", next_selected, false, true, out);
}
int jinja_f_selectattr(struct jinja *j, struct jinja_value self, const struct jinja_value *arg,
                       const struct jinja_args *args, struct jinja_value *out) {
    return apply_each(j, self, args, "sync_do_selectattr", next_selected, true, false, out);
}
int jinja_f_rejectattr(struct jinja *j, struct jinja_value self, const struct jinja_value *arg,
                       const struct jinja_args *args, struct jinja_value *out) {
    return apply_each(j, self, args, "sync_do_rejectattr", next_selected, true, true, out);
}

/* ---- order ---- */

int jinja_f_sort(struct jinja *j, struct jinja_value self, const struct jinja_value *arg,
                 const struct jinja_args *args, struct jinja_value *out) {
    struct jinja_vec items = {0};
    struct jinja_getter *getters;
    size_t n;
    int64_t reverse = 0;
    if (jinja_given(arg[0])) JINJA_TRY(jinja_need_int(j, "sort: reverse", arg[0], &reverse));
    JINJA_TRY(multi_getter(j, arg[2], !jinja_truth(j, arg[1]), &getters, &n));
    JINJA_TRY(jinja_collect(j, self, &items));
    struct jinja_value *keys = jinja_array(j, items.n, sizeof *keys);
    if (!keys) return QUIRE_ENOMEM;
    for (size_t i = 0; i < items.n; i++) {
        struct jinja_value *members = jinja_array(j, n, sizeof *members);
        if (!members) return QUIRE_ENOMEM;
        for (size_t k = 0; k < n; k++)
            JINJA_TRY(jinja_getter_get(j, &getters[k], items.items[i], &members[k]));
        JINJA_TRY(jinja_list_new(j, members, n, JINJA_LIST, &keys[i]));
    }
    JINJA_TRY(jinja_sort(j, items.items, keys, items.n, reverse != 0));
    return jinja_list_new(j, items.items, items.n, JINJA_LIST, out);
}

int jinja_f_dictsort(struct jinja *j, struct jinja_value self, const struct jinja_value *arg,
                     const struct jinja_args *args, struct jinja_value *out) {
    struct jinja_vec pairs = {0};
    struct jinja_cursor c = {0};
    const struct jinja_str *by = NULL;
    struct jinja_getter lower = {.lower = !jinja_truth(j, arg[0])};
    if (jinja_given(arg[1])) JINJA_TRY(jinja_need_str(j, "dictsort: by", arg[1], &by));
    bool by_value = by && jinja_str_is(by, "value");
    int64_t reverse = 0;
    if (jinja_given(arg[2])) JINJA_TRY(jinja_need_int(j, "dictsort: reverse", arg[2], &reverse));
    if (by && !by_value && !jinja_str_is(by, "key"))
        return jinja_fail(j, QUIRE_EINVAL, "dictsort sorts by either \"key\" or \"value\"");
    if (self.type == JINJA_UNDEFINED) return jinja_fail_undefined(j, self);
    if (!jinja_is_dict(self))
        return jinja_fail(j, QUIRE_EINVAL, "dictsort needs a dict, not '%s'", jinja_type_name(self));
    struct jinja_value *keys = jinja_array(j, jinja_mapping_size(self), sizeof *keys);
    if (!keys) return QUIRE_ENOMEM;
    for (;;) {
        struct jinja_value key, value, pair;
        bool done;
        JINJA_TRY(jinja_mapping_next(j, self, &c, &key, &value, &done));
        if (done) break;
        JINJA_TRY(jinja_pair_new(j, key, value, &pair));
        JINJA_TRY(jinja_getter_get(j, &lower, by_value ? value : key, &keys[pairs.n]));
        JINJA_TRY(jinja_vec_push(j, &pairs, pair));
    }
    JINJA_TRY(jinja_sort(j, pairs.items, keys, pairs.n, reverse != 0));
    return jinja_list_new(j, pairs.items, pairs.n, JINJA_LIST, out);
}

static int extreme(struct jinja *j, struct jinja_value self, const struct jinja_value *arg, enum jinja_op op,
                   struct jinja_value *out) {
    struct jinja_iter it;
    struct jinja_getter getter;
    struct jinja_value best, item, key;
    bool done, better;
    JINJA_TRY(jinja_iter_start(j, &it, self));
    JINJA_TRY(jinja_iter_next(j, &it, out, &done));
    if (done) return jinja_undefined_hint(j, "No aggregated item, sequence was empty.", out);
    JINJA_TRY(jinja_getter_init(j, &getter, arg[1], !jinja_truth(j, arg[0])));
    JINJA_TRY(jinja_getter_get(j, &getter, *out, &best));
    for (;;) {
        JINJA_TRY(jinja_iter_next(j, &it, &item, &done));
        if (done) return 0;
        JINJA_TRY(jinja_getter_get(j, &getter, item, &key));
        JINJA_TRY(jinja_compare(j, op, key, best, &better));
        if (!better) continue;
        best = key;
        *out = item;
    }
}

int jinja_f_max(struct jinja *j, struct jinja_value self, const struct jinja_value *arg,
                const struct jinja_args *args, struct jinja_value *out) {
    return extreme(j, self, arg, JINJA_OP_GT, out);
}
int jinja_f_min(struct jinja *j, struct jinja_value self, const struct jinja_value *arg,
                const struct jinja_args *args, struct jinja_value *out) {
    return extreme(j, self, arg, JINJA_OP_LT, out);
}

static int push_group(struct jinja *j, struct jinja_vec *groups, const struct jinja_getter *getter,
                      const struct jinja_value *items, size_t n) {
    struct jinja_value *pair = jinja_array(j, 2, sizeof *pair);
    struct jinja_list *tuple = jinja_array(j, 1, sizeof *tuple);
    if (!pair || !tuple) return QUIRE_ENOMEM;
    JINJA_TRY(jinja_getter_get(j, getter, items[0], &pair[0])); /* in the first item's own case */
    JINJA_TRY(jinja_list_new(j, items, n, JINJA_LIST, &pair[1]));
    *tuple = (struct jinja_list){.items = pair, .n = 2, .group = true};
    return jinja_vec_push(j, groups, (struct jinja_value){.type = JINJA_TUPLE, .list = tuple});
}

int jinja_f_groupby(struct jinja *j, struct jinja_value self, const struct jinja_value *arg,
                    const struct jinja_args *args, struct jinja_value *out) {
    struct jinja_vec items = {0}, groups = {0};
    struct jinja_getter getter, plain;
    JINJA_TRY(jinja_getter_init(j, &getter, arg[0], !jinja_truth(j, arg[2])));
    getter.or_else = arg[1];
    plain = getter;
    plain.lower = false;
    JINJA_TRY(jinja_collect(j, self, &items));
    struct jinja_value *keys = jinja_array(j, items.n, sizeof *keys);
    if (!keys) return QUIRE_ENOMEM;
    for (size_t i = 0; i < items.n; i++) JINJA_TRY(jinja_getter_get(j, &getter, items.items[i], &keys[i]));
    JINJA_TRY(jinja_sort(j, items.items, keys, items.n, false));
    for (size_t start = 0, end; start < items.n; start = end) {
        bool same = true;
        for (end = start + 1; end < items.n; end++) {
            JINJA_TRY(jinja_equal(j, keys[start], keys[end], &same));
            if (!same) break;
        }
        JINJA_TRY(push_group(j, &groups, &plain, items.items + start, end - start));
    }
    return jinja_list_new(j, groups.items, groups.n, JINJA_LIST, out);
}

/* ---- ends, length, sum ---- */

int jinja_f_first(struct jinja *j, struct jinja_value self, const struct jinja_value *arg,
                  const struct jinja_args *args, struct jinja_value *out) {
    struct jinja_iter it;
    bool done;
    JINJA_TRY(jinja_iter_start(j, &it, self));
    JINJA_TRY(jinja_iter_next(j, &it, out, &done));
    return done ? jinja_undefined_hint(j, "No first item, sequence was empty.", out) : 0;
}

int jinja_f_last(struct jinja *j, struct jinja_value self, const struct jinja_value *arg,
                 const struct jinja_args *args, struct jinja_value *out) {
    size_t n;
    bool sized;
    if (self.type == JINJA_ITER || self.type == JINJA_LOOP || !jinja_is_iterable(self))
        return jinja_fail(j, QUIRE_EINVAL, "'%s' object is not reversible", jinja_type_name(self));
    JINJA_TRY(jinja_length(j, self, &n, &sized));
    if (n == 0) return jinja_undefined_hint(j, "No last item, sequence was empty.", out);
    if (self.type == JINJA_STR) return jinja_getitem(j, self, jinja_int(-1), out);
    if (!jinja_is_dict(self) && self.type != JINJA_VIEW) return jinja_seq_at(j, self, n - 1, out);
    struct jinja_vec items = {0};
    JINJA_TRY(jinja_collect(j, self, &items));
    *out = items.items[n - 1];
    return 0;
}

int jinja_f_length(struct jinja *j, struct jinja_value self, const struct jinja_value *arg,
                   const struct jinja_args *args, struct jinja_value *out) {
    size_t n;
    bool sized;
    JINJA_TRY(jinja_length(j, self, &n, &sized));
    if (!sized) return jinja_fail(j, QUIRE_EINVAL, "object of type '%s' has no len()", jinja_type_name(self));
    *out = jinja_int((int64_t)n);
    return 0;
}

int jinja_f_list(struct jinja *j, struct jinja_value self, const struct jinja_value *arg,
                 const struct jinja_args *args, struct jinja_value *out) {
    struct jinja_vec items = {0};
    JINJA_TRY(jinja_collect(j, self, &items));
    return jinja_list_new(j, items.items, items.n, JINJA_LIST, out);
}

int jinja_f_reverse(struct jinja *j, struct jinja_value self, const struct jinja_value *arg,
                    const struct jinja_args *args, struct jinja_value *out) {
    if (self.type == JINJA_STR) {
        struct jinja_value part[3] = {{.type = JINJA_MISSING}, {.type = JINJA_MISSING}, jinja_int(-1)};
        return jinja_slice(j, self, part, out);
    }
    if (self.type != JINJA_ITER && self.type != JINJA_LOOP && jinja_is_iterable(self))
        return jinja_iter_reversed(j, self, out);
    struct jinja_vec items = {0};
    JINJA_TRY(jinja_collect(j, self, &items));
    for (size_t a = 0, b = items.n; a + 1 < b; a++) {
        struct jinja_value t = items.items[a];
        items.items[a] = items.items[--b];
        items.items[b] = t;
    }
    return jinja_list_new(j, items.items, items.n, JINJA_LIST, out);
}

int jinja_f_sum(struct jinja *j, struct jinja_value self, const struct jinja_value *arg,
                const struct jinja_args *args, struct jinja_value *out) {
    struct jinja_iter it;
    struct jinja_getter getter;
    bool done;
    *out = jinja_given(arg[1]) ? arg[1] : jinja_int(0);
    if (out->type == JINJA_STR) return jinja_fail(j, QUIRE_EINVAL, "sum cannot add strings: use join");
    JINJA_TRY(jinja_getter_init(j, &getter, arg[0], false));
    JINJA_TRY(jinja_iter_start(j, &it, self));
    for (;;) {
        struct jinja_value item;
        JINJA_TRY(jinja_iter_next(j, &it, &item, &done));
        if (done) return 0;
        JINJA_TRY(jinja_getter_get(j, &getter, item, &item));
        JINJA_TRY(jinja_binary(j, JINJA_OP_ADD, *out, item, out));
    }
}
