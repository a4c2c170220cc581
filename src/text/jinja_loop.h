/* The `loop` variable. */
#ifndef TEXT_JINJA_LOOP_H
#define TEXT_JINJA_LOOP_H

#include "text/jinja_iter.h"

struct jinja_env;

struct jinja_loop {
    struct jinja_iter it;
    struct jinja_value of;
    size_t index0;                             /* SIZE_MAX before the first item */
    struct jinja_value current, before, after; /* MISSING if there is none; after: read ahead */
    bool has_length;
    size_t length;
    struct jinja_value changed; /* the tuple that changed() was last called with */
    size_t depth0;
    const struct jinja_for *node; /* recursive loops: what loop(...) runs again; else NULL */
    struct jinja_env *env;        /* the slots around it */
};

/* source: a generator or the iterable itself. */
int jinja_loop_start(struct jinja *j, struct jinja_value source, size_t depth0, struct jinja_loop **out);
int jinja_loop_next(struct jinja *j, struct jinja_loop *l, struct jinja_value *out, bool *done);
int jinja_loop_length(struct jinja *j, struct jinja_loop *l, size_t *n);
int jinja_loop_attribute(struct jinja *j, struct jinja_loop *l, const struct jinja_str *name,
                         struct jinja_value *out, bool *found);

#endif
