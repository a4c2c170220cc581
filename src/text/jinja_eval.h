/* Runs a compiled template. */
#ifndef TEXT_JINJA_EVAL_H
#define TEXT_JINJA_EVAL_H

#include "base/buf.h"
#include "text/jinja_call.h"
#include "text/tokenizer.h" /* struct content_span */

/* The slots of one function call, and those of the function around it. */
struct jinja_env {
    struct jinja_env *outer;
    struct jinja_value slots[];
};

/* Where a render's text goes. */
struct jinja_sink {
    struct buf text;
    struct content_span *spans;
    size_t n_spans, cap_spans;
};

/* What exec returns besides 0 and errors: a break or continue on its way to its loop. */
enum { JINJA_FLOW_BREAK = 1, JINJA_FLOW_CONTINUE = 2 };

int jinja_emit(struct jinja *j, const struct jinja_str *s);
struct jinja_env *jinja_env_new(struct jinja *j, struct jinja_env *outer,
                                size_t n_slots); /* NULL: error is set */
int jinja_enter_frame(struct jinja *j, struct jinja_env *env, const struct jinja_frame *f);
void jinja_leave_frame(struct jinja_env *env, const struct jinja_frame *f);

int jinja_eval(struct jinja *j, struct jinja_env *env, const struct jinja_node *n, struct jinja_value *out);
int jinja_eval_call(struct jinja *j, struct jinja_env *env, const struct jinja_node *n,
                    const struct jinja_value *caller, struct jinja_value *out);
int jinja_assign(struct jinja *j, struct jinja_env *env, const struct jinja_node *target,
                 struct jinja_value v);
int jinja_exec(struct jinja *j, struct jinja_env *env, const struct jinja_nodes *body);

/* The whole template, into j->sink. */
int jinja_run(struct jinja *j);

#endif
