#include "text/jinja_iter.h"
#include "text/jinja_loop.h"
#include "text/jinja_unicode.h"

/* Item i of a sequence, counted from the end when reversed. */
static int next_of_seq(struct jinja *j, struct jinja_iter *it, struct jinja_value *out, bool *done) {
    size_t n;
    bool sized;
    JINJA_TRY(jinja_length(j, it->of, &n, &sized));
    *done = it->cursor.i >= n;
    if (*done) return 0;
    size_t i = it->cursor.i++;
    return jinja_seq_at(j, it->of, it->reverse ? n - 1 - i : i, out);
}

static int next_of_str(struct jinja *j, struct jinja_iter *it, struct jinja_value *out, bool *done) {
    const struct jinja_str *s = it->of.s;
    size_t len;
    *done = it->cursor.i >= s->len;
    if (*done) return 0;
    jinja_utf8_get(s->data + it->cursor.i, s->len - it->cursor.i, &len);
    const struct jinja_str *c = jinja_str_sub(j, s, it->cursor.i, len);
    if (c) c = jinja_str_markup(j, c, false);
    if (!c) return QUIRE_ENOMEM;
    it->cursor.i += len;
    *out = jinja_of_str(c);
    return 0;
}

static int next_of_dict(struct jinja *j, struct jinja_iter *it, struct jinja_value *out, bool *done) {
    struct jinja_value key, value, of = it->of;
    enum jinja_view_kind kind = JINJA_VIEW_KEYS;
    if (of.type == JINJA_VIEW) {
        kind = of.view->kind;
        of = of.view->of;
    }
    JINJA_TRY(jinja_mapping_next(j, of, &it->cursor, &key, &value, done));
    if (*done) return 0;
    if (kind == JINJA_VIEW_ITEMS) return jinja_pair_new(j, key, value, out);
    *out = kind == JINJA_VIEW_KEYS ? key : value;
    return 0;
}

static int next_of_nothing(struct jinja *j, struct jinja_iter *it, struct jinja_value *out, bool *done) {
    *done = true;
    return 0;
}

/* A loop that is iterated goes on under the feet of its `for`. */
static int next_of_loop(struct jinja *j, struct jinja_iter *it, struct jinja_value *out, bool *done) {
    struct jinja_value item;
    JINJA_TRY(jinja_loop_next(j, it->of.loop, &item, done));
    return *done ? 0 : jinja_pair_new(j, item, it->of, out);
}

static int next_of_generator(struct jinja *j, struct jinja_iter *it, struct jinja_value *out, bool *done) {
    return jinja_iter_next(j, it->of.iter, out, done);
}

bool jinja_is_iterable(struct jinja_value v) {
    switch ((enum jinja_type)v.type) {
    case JINJA_UNDEFINED:
    case JINJA_STR:
    case JINJA_LIST:
    case JINJA_TUPLE:
    case JINJA_DICT:
    case JINJA_JSON_ARRAY:
    case JINJA_JSON_OBJECT:
    case JINJA_RANGE:
    case JINJA_VIEW:
    case JINJA_LOOP:
    case JINJA_ITER: return true;
    default: return false;
    }
}

int jinja_iter_start(struct jinja *j, struct jinja_iter *it, struct jinja_value v) {
    *it = (struct jinja_iter){.of = v};
    switch ((enum jinja_type)v.type) {
    case JINJA_LIST:
    case JINJA_TUPLE:
    case JINJA_JSON_ARRAY:
    case JINJA_RANGE: it->next = next_of_seq; return 0;
    case JINJA_STR: it->next = next_of_str; return 0;
    case JINJA_DICT:
    case JINJA_JSON_OBJECT:
    case JINJA_VIEW: it->next = next_of_dict; return 0;
    case JINJA_UNDEFINED: it->next = next_of_nothing; return 0;
    case JINJA_ITER: it->next = next_of_generator; return 0;
    case JINJA_LOOP: it->next = next_of_loop; return 0;
    default: return jinja_fail(j, QUIRE_EINVAL, "'%s' object is not iterable", jinja_type_name(v));
    }
}

int jinja_iter_next(struct jinja *j, struct jinja_iter *it, struct jinja_value *out, bool *done) {
    *done = true;
    if (it->finished) return 0;
    if (it->running) return jinja_fail(j, QUIRE_EINVAL, "generator already executing");
    JINJA_TRY(jinja_steps(j, 1));
    JINJA_TRY(jinja_enter(j));
    it->running = true;
    JINJA_TRY(it->next(j, it, out, done));
    it->running = false;
    jinja_leave(j);
    it->finished = *done;
    return 0;
}

int jinja_generator(struct jinja *j, const char *name, struct jinja_value of,
                    int (*next)(struct jinja *, struct jinja_iter *, struct jinja_value *, bool *),
                    void *state, struct jinja_value *out) {
    struct jinja_iter *it = jinja_array(j, 1, sizeof *it);
    if (!it) return QUIRE_ENOMEM;
    *it = (struct jinja_iter){.next = next, .name = name, .of = of, .state = state};
    *out = (struct jinja_value){.type = JINJA_ITER, .iter = it};
    return 0;
}

int jinja_source_next(struct jinja *j, struct jinja_iter *it, bool if_true, struct jinja_value *out,
                      bool *done) {
    if (!it->source) {
        *done = if_true && !jinja_truth(j, it->of);
        if (*done) return 0;
        struct jinja_iter *source = jinja_array(j, 1, sizeof *source);
        if (!source) return QUIRE_ENOMEM;
        JINJA_TRY(jinja_iter_start(j, source, it->of));
        it->source = source;
    }
    return jinja_iter_next(j, it->source, out, done);
}

int jinja_iter_reversed(struct jinja *j, struct jinja_value v, struct jinja_value *out) {
    struct jinja_value of = v;
    if (jinja_is_dict(v) || v.type == JINJA_VIEW) {
        struct jinja_vec items = {0};
        JINJA_TRY(jinja_collect(j, v, &items));
        JINJA_TRY(jinja_list_new(j, items.items, items.n, JINJA_LIST, &of));
    }
    JINJA_TRY(jinja_generator(j, "reversed", of, v.type == JINJA_UNDEFINED ? next_of_nothing : next_of_seq,
                              NULL, out));
    out->iter->reverse = true;
    return 0;
}

int jinja_collect(struct jinja *j, struct jinja_value v, struct jinja_vec *out) {
    struct jinja_iter it;
    JINJA_TRY(jinja_iter_start(j, &it, v));
    for (;;) {
        struct jinja_value item;
        bool done;
        JINJA_TRY(jinja_iter_next(j, &it, &item, &done));
        if (done) return 0;
        JINJA_TRY(jinja_vec_push(j, out, item));
    }
}

int jinja_unpack(struct jinja *j, struct jinja_value v, struct jinja_value *items, size_t n) {
    struct jinja_iter it;
    bool done;
    if (!jinja_is_iterable(v))
        return jinja_fail(j, QUIRE_EINVAL, "cannot unpack non-iterable %s object", jinja_type_name(v));
    JINJA_TRY(jinja_iter_start(j, &it, v));
    for (size_t i = 0; i < n; i++) {
        JINJA_TRY(jinja_iter_next(j, &it, &items[i], &done));
        if (done)
            return jinja_fail(j, QUIRE_EINVAL, "not enough values to unpack (expected %zu, got %zu)", n, i);
    }
    struct jinja_value extra;
    JINJA_TRY(jinja_iter_next(j, &it, &extra, &done));
    return done ? 0 : jinja_fail(j, QUIRE_EINVAL, "too many values to unpack (expected %zu)", n);
}
