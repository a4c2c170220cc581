/* Functions that every template may call: range, dict, namespace, cycler, joiner, raise_exception,
 * strftime_now. */
#ifndef TEXT_JINJA_GLOBALS_H
#define TEXT_JINJA_GLOBALS_H

#include "text/jinja_call.h"

/* MISSING if there is no global of this name. */
struct jinja_value jinja_global(const struct jinja_str *name);

#endif
