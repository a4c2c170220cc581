#include "text/jinja_sort.h"
#include "text/jinja_dict.h"
#include "text/jinja_ops.h"

#include <string.h>

struct pair {
    struct jinja_value item, key;
};

/* Merge sort from runs of one; a takes precedence unless b is strictly smaller (or, reversed, strictly
 * greater). */
static int merge(struct jinja *j, const struct pair *a, size_t n_a, const struct pair *b, size_t n_b,
                 struct pair *out, bool reverse) {
    while (n_a && n_b) {
        bool b_first;
        if (reverse) {
            JINJA_TRY(jinja_compare(j, JINJA_OP_LT, a->key, b->key, &b_first));
        } else {
            JINJA_TRY(jinja_compare(j, JINJA_OP_LT, b->key, a->key, &b_first));
        }
        if (b_first) {
            *out++ = *b++;
            n_b--;
        } else {
            *out++ = *a++;
            n_a--;
        }
    }
    memcpy(out, a, n_a * sizeof *out);
    memcpy(out + n_a, b, n_b * sizeof *out);
    return 0;
}

int jinja_sort(struct jinja *j, struct jinja_value *items, struct jinja_value *keys, size_t n, bool reverse) {
    struct pair *from = jinja_array(j, n, sizeof *from), *to = jinja_array(j, n, sizeof *to);
    if (!from || !to) return QUIRE_ENOMEM;
    for (size_t i = 0; i < n; i++) from[i] = (struct pair){.item = items[i], .key = keys[i]};
    for (size_t width = 1; width < n; width *= 2) {
        JINJA_TRY(jinja_steps(j, n / 4));
        for (size_t at = 0; at < n; at += 2 * width) {
            size_t n_a = n - at < width ? n - at : width, rest = n - at - n_a,
                   n_b = rest < width ? rest : width;
            JINJA_TRY(merge(j, from + at, n_a, from + at + n_a, n_b, to + at, reverse));
        }
        struct pair *t = from;
        from = to;
        to = t;
    }
    for (size_t i = 0; i < n; i++) {
        items[i] = from[i].item;
        keys[i] = from[i].key;
    }
    return 0;
}

int jinja_sorted_keys(struct jinja *j, struct jinja_value mapping, struct jinja_vec *out) {
    struct jinja_cursor c = {0};
    for (;;) {
        struct jinja_value key, value;
        bool done;
        JINJA_TRY(jinja_mapping_next(j, mapping, &c, &key, &value, &done));
        if (done) break;
        JINJA_TRY(jinja_vec_push(j, out, key));
    }
    struct jinja_value *keys = jinja_array(j, out->n, sizeof *keys);
    if (!keys) return QUIRE_ENOMEM;
    if (out->n) memcpy(keys, out->items, out->n * sizeof *keys);
    return jinja_sort(j, out->items, keys, out->n, false);
}
