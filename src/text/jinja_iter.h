/* Iteration. An iterator walks a value or computes its items one by one (a generator, as map, select, unique
 * and others give): nothing is built before it is asked for. */
#ifndef TEXT_JINJA_ITER_H
#define TEXT_JINJA_ITER_H

#include "text/jinja_ast.h"
#include "text/jinja_dict.h"

struct jinja_iter {
    /* Gives the next item, or *done. */
    int (*next)(struct jinja *j, struct jinja_iter *it, struct jinja_value *out, bool *done);
    const char *name; /* of a generator, as Python prints it */
    struct jinja_value of;
    struct jinja_cursor cursor;
    struct jinja_iter *source; /* of generators: walks `of` once begun */
    void *state;               /* of generators */
    bool reverse, finished;
    bool running; /* a generator that is being asked already */
};

/* An iterator over v; fails if v cannot be iterated. A generator goes on where it stands. */
int jinja_iter_start(struct jinja *j, struct jinja_iter *it, struct jinja_value v);
int jinja_iter_next(struct jinja *j, struct jinja_iter *it, struct jinja_value *out, bool *done);
bool jinja_is_iterable(struct jinja_value v);

/* The reversed sequence of lists, tuples, ranges, dicts, views. */
int jinja_iter_reversed(struct jinja *j, struct jinja_value v, struct jinja_value *out);

/* A generator value that computes its items from those of `of` (it->of), which is looked at when the first is
 * asked for. */
int jinja_generator(struct jinja *j, const char *name, struct jinja_value of,
                    int (*next)(struct jinja *, struct jinja_iter *, struct jinja_value *, bool *),
                    void *state, struct jinja_value *out);
/* For those: the next item of it->of. if_true: a source that counts as false has no items, whatever it is. */
int jinja_source_next(struct jinja *j, struct jinja_iter *it, bool if_true, struct jinja_value *out,
                      bool *done);

/* All items as an array. */
int jinja_collect(struct jinja *j, struct jinja_value v, struct jinja_vec *out);

/* a, b = v: exactly n items. */
int jinja_unpack(struct jinja *j, struct jinja_value v, struct jinja_value *items, size_t n);

#endif
