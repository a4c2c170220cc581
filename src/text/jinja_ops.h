/* Operators of the template language with Python's meaning. */
#ifndef TEXT_JINJA_OPS_H
#define TEXT_JINJA_OPS_H

#include "text/jinja_ast.h"

int jinja_equal(struct jinja *j, struct jinja_value a, struct jinja_value b, bool *out);
/* op: JINJA_OP_EQ .. JINJA_OP_NOT_IN. */
int jinja_compare(struct jinja *j, enum jinja_op op, struct jinja_value a, struct jinja_value b, bool *out);
bool jinja_same(struct jinja_value a, struct jinja_value b); /* `a is b` */

int jinja_binary(struct jinja *j, enum jinja_op op, struct jinja_value a, struct jinja_value b,
                 struct jinja_value *out);
int jinja_negate(struct jinja *j, struct jinja_value v, struct jinja_value *out);
int jinja_plus(struct jinja *j, struct jinja_value v, struct jinja_value *out);

/* a.name: an attribute, else an item; object[key]: an item, else an attribute; undefined if there is neither.
 */
int jinja_getattr(struct jinja *j, struct jinja_value object, const struct jinja_str *name,
                  struct jinja_value *out);
int jinja_getitem(struct jinja *j, struct jinja_value object, struct jinja_value key,
                  struct jinja_value *out);
/* object[start:stop:step]; MISSING or none: left out. */
int jinja_slice(struct jinja *j, struct jinja_value object, const struct jinja_value part[3],
                struct jinja_value *out);

/* Resolves start and stop against a length as Python's slice.indices; step != 0. */
struct jinja_indices {
    int64_t start, stop, step;
    size_t n;
};
struct jinja_indices jinja_slice_indices(size_t length, bool has_start, int64_t start, bool has_stop,
                                         int64_t stop, int64_t step);

/* An integer argument (int or bool). */
int jinja_need_int(struct jinja *j, const char *what, struct jinja_value v, int64_t *out);
int jinja_need_str(struct jinja *j, const char *what, struct jinja_value v, const struct jinja_str **out);

/* Escaped for HTML, as `escape` and markup strings do. */
int jinja_escape(struct jinja *j, const struct jinja_str *s, const struct jinja_str **out);

#endif
