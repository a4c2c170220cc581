/* Calls: arguments, and what they are bound to. */
#ifndef TEXT_JINJA_CALL_H
#define TEXT_JINJA_CALL_H

#include "text/jinja_ast.h"

struct jinja_kwarg {
    const struct jinja_str *name;
    struct jinja_value value;
};

struct jinja_args {
    const struct jinja_value *pos;
    size_t n_pos;
    const struct jinja_kwarg *kw;
    size_t n_kw;
};

#define JINJA_MAX_PARAMS 6

/* Binds arguments to parameters, as "a b=" (b optional) or "/a b=" (not by keyword); out gets MISSING where
 * none is given. */
int jinja_bind(struct jinja *j, const char *function, const char *params, const struct jinja_args *args,
               struct jinja_value out[JINJA_MAX_PARAMS]);

/* A filter, method or function of ours. params NULL: it takes its arguments as they come. */
typedef int jinja_builtin(struct jinja *j, struct jinja_value self, const struct jinja_value *arg,
                          const struct jinja_args *args, struct jinja_value *out);

struct jinja_method {
    const char *name, *params;
    jinja_builtin *call;
};

struct jinja_bound {
    struct jinja_value self;
    const struct jinja_method *method;
};

struct jinja_function {
    struct jinja_method method;
};

/* A macro, or what a call block passes on as `caller`. */
struct jinja_env;
struct jinja_macro {
    const struct jinja_macro_def *def;
    struct jinja_env *env; /* the slots around its definition */
};

int jinja_call_builtin(struct jinja *j, const struct jinja_method *m, struct jinja_value self,
                       const struct jinja_args *args, struct jinja_value *out);

/* callee(*args): functions, methods, macros, loops. In jinja_eval.c. */
int jinja_call(struct jinja *j, struct jinja_value callee, const struct jinja_args *args,
               struct jinja_value *out);

static inline bool jinja_given(struct jinja_value v) {
    return v.type != JINJA_MISSING;
}
static inline bool jinja_given_value(struct jinja_value v) {
    return v.type != JINJA_MISSING && v.type != JINJA_NONE;
}

#endif
