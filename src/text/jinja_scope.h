/* Names to slots: the second half of compiling. Which variable a name means is decided here once, by the
 * rules of Jinja's own compiler (what a frame stores is its own from its start; what it only loads is the
 * nearest outer variable or, failing that, the render's). Also refuses what only shows now: unknown filters
 * and tests, break outside a loop. */
#ifndef TEXT_JINJA_SCOPE_H
#define TEXT_JINJA_SCOPE_H

#include "text/jinja_ast.h"

int jinja_scope(struct jinja_template *t, struct error *err);

#endif
