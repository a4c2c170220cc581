#include "text/jinja_loop.h"

int jinja_loop_start(struct jinja *j, struct jinja_value source, size_t depth0, struct jinja_loop **out) {
    struct jinja_loop *l = jinja_array(j, 1, sizeof *l);
    if (!l) return QUIRE_ENOMEM;
    *l = (struct jinja_loop){.of = source, .index0 = SIZE_MAX, .depth0 = depth0}; /* zero is JINJA_MISSING */
    *out = l;
    return jinja_iter_start(j, &l->it, source);
}

int jinja_loop_next(struct jinja *j, struct jinja_loop *l, struct jinja_value *out, bool *done) {
    *done = false;
    if (l->after.type != JINJA_MISSING) {
        *out = l->after;
        l->after.type = JINJA_MISSING;
    } else {
        JINJA_TRY(jinja_iter_next(j, &l->it, out, done));
    }
    if (*done) return 0;
    l->index0++;
    l->before = l->current;
    l->current = *out;
    return 0;
}

int jinja_loop_length(struct jinja *j, struct jinja_loop *l, size_t *n) {
    bool sized = l->has_length;
    if (!sized) JINJA_TRY(jinja_length(j, l->of, &l->length, &sized));
    if (!sized) { /* a generator: the rest is read to be counted */
        struct jinja_vec rest = {0};
        struct jinja_value list;
        for (;;) {
            struct jinja_value item;
            bool done;
            JINJA_TRY(jinja_iter_next(j, &l->it, &item, &done));
            if (done) break;
            JINJA_TRY(jinja_vec_push(j, &rest, item));
        }
        JINJA_TRY(jinja_list_new(j, rest.items, rest.n, JINJA_LIST, &list));
        JINJA_TRY(jinja_iter_start(j, &l->it, list));
        l->length = rest.n + (l->index0 + 1) + (l->after.type != JINJA_MISSING);
    }
    l->has_length = true;
    *n = l->length;
    return 0;
}

static int peek(struct jinja *j, struct jinja_loop *l, bool *has) {
    bool done = false;
    if (l->after.type == JINJA_MISSING) JINJA_TRY(jinja_iter_next(j, &l->it, &l->after, &done));
    *has = !done;
    if (done) l->after.type = JINJA_MISSING;
    return 0;
}

int jinja_loop_attribute(struct jinja *j, struct jinja_loop *l, const struct jinja_str *name,
                         struct jinja_value *out, bool *found) {
    size_t n;
    bool has;
    *found = true;
    if (jinja_str_is(name, "index")) return *out = jinja_int((int64_t)l->index0 + 1), 0;
    if (jinja_str_is(name, "index0")) return *out = jinja_int((int64_t)l->index0), 0;
    if (jinja_str_is(name, "first")) return *out = jinja_bool(l->index0 == 0), 0;
    if (jinja_str_is(name, "last")) {
        JINJA_TRY(peek(j, l, &has));
        *out = jinja_bool(!has);
        return 0;
    }
    if (jinja_str_is(name, "length") || jinja_str_is(name, "revindex") || jinja_str_is(name, "revindex0")) {
        JINJA_TRY(jinja_loop_length(j, l, &n));
        int64_t used = name->len == 6 ? 0 : (int64_t)l->index0 + (name->len == 9);
        *out = jinja_int((int64_t)n - used);
        return 0;
    }
    if (jinja_str_is(name, "depth")) return *out = jinja_int((int64_t)l->depth0 + 1), 0;
    if (jinja_str_is(name, "depth0")) return *out = jinja_int((int64_t)l->depth0), 0;
    if (jinja_str_is(name, "previtem")) {
        if (l->index0 == 0) return jinja_undefined_hint(j, "there is no previous item", out);
        *out = l->before;
        return 0;
    }
    if (jinja_str_is(name, "nextitem")) {
        JINJA_TRY(peek(j, l, &has));
        if (!has) return jinja_undefined_hint(j, "there is no next item", out);
        *out = l->after;
        return 0;
    }
    *found = false;
    return 0;
}
