/* The tests of the template language: `x is defined`. */
#ifndef TEXT_JINJA_TESTS_H
#define TEXT_JINJA_TESTS_H

#include "text/jinja_call.h"

struct jinja_test;

const struct jinja_test *jinja_test_find(const struct jinja_str *name); /* NULL if there is none */
int jinja_test_call(struct jinja *j, const struct jinja_test *t, struct jinja_value value,
                    const struct jinja_args *args, bool *out);

#endif
