/* Statements, macros and loops. */
#include "text/jinja_dict.h"
#include "text/jinja_eval.h"
#include "text/jinja_iter.h"
#include "text/jinja_loop.h"
#include "text/jinja_ops.h"

#include <stdlib.h>
#include <string.h>

#define NOINLINE __attribute__((noinline))

/* ---- output ---- */

static int add_span(struct jinja *j, struct jinja_sink *sink, size_t start, size_t len) {
    struct content_span *last = sink->n_spans ? &sink->spans[sink->n_spans - 1] : NULL;
    if (last && last->start + last->len == start) {
        last->len += len;
        return 0;
    }
    if (sink->n_spans == sink->cap_spans) {
        size_t cap = sink->cap_spans ? sink->cap_spans * 2 : 32;
        struct content_span *more =
            realloc(sink->spans, cap * sizeof *more); /* at most one per byte of text */
        if (!more) return jinja_fail(j, QUIRE_ENOMEM, "out of memory");
        sink->spans = more;
        sink->cap_spans = cap;
    }
    sink->spans[sink->n_spans++] = (struct content_span){.start = start, .len = len};
    return 0;
}

static int sink_add(struct jinja *j, struct jinja_sink *sink, const struct jinja_str *s) {
    size_t start = sink->text.len;
    buf_append(&sink->text, s->data, s->len);
    if (!buf_ok(&sink->text)) {
        if (sink->text.limit_bytes && s->len > sink->text.limit_bytes - start)
            return jinja_fail(j, QUIRE_ELIMIT, "the rendering is longer than the %zu bytes allowed",
                              sink->text.limit_bytes);
        return jinja_fail(j, QUIRE_ENOMEM, "out of memory");
    }
    if (s->prov == JINJA_BY_CONTENT && s->len) return add_span(j, sink, start, s->len);
    for (size_t i = 0, end; s->prov == JINJA_MIXED && i < s->len; i = end) {
        const uint8_t *next = memchr(s->map + i, !s->map[i], s->len - i);
        end = next ? (size_t)(next - s->map) : s->len;
        if (s->map[i]) JINJA_TRY(add_span(j, sink, start + i, end - i));
    }
    return 0;
}

int jinja_emit(struct jinja *j, const struct jinja_str *s) {
    if (j->capture) {
        jinja_sb_add_str(j->capture, s);
        return j->capture->rc;
    }
    if (s->len >= 256) JINJA_TRY(jinja_steps(j, s->len / 256));
    return sink_add(j, j->sink, s);
}

/* A result that is written without being made a string first, as Jinja does for call and filter blocks. */
static int emit_result(struct jinja *j, struct jinja_value v) {
    if (v.type != JINJA_STR)
        return jinja_fail(j, QUIRE_EINVAL, "a call or filter block must give a string, not '%s'",
                          jinja_type_name(v));
    return jinja_emit(j, v.s);
}

NOINLINE static int exec_output(struct jinja *j, struct jinja_env *env, const struct jinja_node *n) {
    for (size_t i = 0; i < n->list.n; i++) {
        struct jinja_value v;
        const struct jinja_str *s;
        JINJA_TRY(jinja_eval(j, env, n->list.items[i], &v));
        JINJA_TRY(jinja_to_str(j, v, &s));
        JINJA_TRY(jinja_emit(j, s));
    }
    return 0;
}

/* Runs a body with its output going into a string. */
static int capture(struct jinja *j, struct jinja_env *env, const struct jinja_nodes *body,
                   const struct jinja_str **out) {
    struct jinja_sb b, *before = j->capture;
    jinja_sb_init(j, &b);
    j->capture = &b;
    int rc = jinja_exec(j, env, body);
    j->capture = before;
    return rc ? rc : jinja_sb_finish(&b, out);
}

/* ---- macros ---- */

static int find_kwarg(const struct jinja_args *args, const struct jinja_str *name, bool *used,
                      struct jinja_value *out) {
    for (size_t i = 0; i < args->n_kw; i++) {
        if (used[i] || !jinja_str_equal(args->kw[i].name, name)) continue;
        used[i] = true;
        *out = args->kw[i].value;
        return 1;
    }
    return 0;
}

/* Arguments that no parameter took: into `kwargs` and `varargs`, or an error. */
static int bind_rest(struct jinja *j, const struct jinja_macro_def *def, const struct jinja_args *args,
                     const bool *used, struct jinja_env *env) {
    struct jinja_dict *kwargs = NULL;
    if (def->uses_kwargs) JINJA_TRY(jinja_dict_new(j, &kwargs));
    for (size_t i = 0; i < args->n_kw; i++) {
        if (used[i]) continue;
        if (!kwargs)
            return jinja_fail(j, QUIRE_EINVAL, "macro '%.*s' takes no keyword argument '%.*s'",
                              def->name ? (int)def->name->len : 6, def->name ? def->name->data : "caller",
                              (int)(args->kw[i].name->len < 60 ? args->kw[i].name->len : 60),
                              args->kw[i].name->data);
        JINJA_TRY(jinja_dict_set_name(j, kwargs, args->kw[i].name, args->kw[i].value));
    }
    if (kwargs) env->slots[def->kwargs_slot] = (struct jinja_value){.type = JINJA_DICT, .dict = kwargs};
    size_t taken = args->n_pos < def->n_params ? args->n_pos : def->n_params;
    if (def->uses_varargs)
        return jinja_list_new(j, args->pos + taken, args->n_pos - taken, JINJA_TUPLE,
                              &env->slots[def->varargs_slot]);
    if (args->n_pos > def->n_params)
        return jinja_fail(j, QUIRE_EINVAL, "macro '%.*s' takes not more than %zu argument(s)",
                          def->name ? (int)def->name->len : 6, def->name ? def->name->data : "caller",
                          def->n_params);
    return 0;
}

static int bind_params(struct jinja *j, const struct jinja_macro_def *def, const struct jinja_args *args,
                       struct jinja_env *env) {
    bool *used = jinja_array(j, args->n_kw, sizeof *used), found_caller = def->has_caller_param;
    if (!used) return QUIRE_ENOMEM;
    for (size_t i = 0; i < def->n_params; i++) {
        const struct jinja_node *param = def->param_nodes[i];
        struct jinja_value *v = &env->slots[param->name.ref.slot];
        if (i < args->n_pos) {
            *v = args->pos[i];
        } else {
            find_kwarg(args, j->tmpl->names[param->name.id], used, v);
        }
    }
    if (def->uses_caller && !found_caller) {
        static const struct jinja_str name = {.data = "caller", .len = 6, .n_chars = 6};
        struct jinja_value *v = &env->slots[def->caller_slot];
        if (!find_kwarg(args, &name, used, v) || v->type == JINJA_NONE)
            JINJA_TRY(jinja_undefined_hint(j, "No caller defined", v));
    }
    return bind_rest(j, def, args, used, env);
}

static int fill_defaults(struct jinja *j, const struct jinja_macro_def *def, struct jinja_env *env) {
    size_t first = def->n_params - def->n_defaults;
    for (size_t i = 0; i < def->n_params; i++) {
        struct jinja_value *v = &env->slots[def->param_nodes[i]->name.ref.slot];
        if (v->type != JINJA_MISSING) continue;
        if (i >= first) {
            JINJA_TRY(jinja_eval(j, env, def->defaults[i - first], v));
        } else {
            JINJA_TRY(jinja_undefined_hint(j, "a parameter of the macro was not provided", v));
        }
    }
    return 0;
}

static int call_macro(struct jinja *j, const struct jinja_macro *m, const struct jinja_args *args,
                      struct jinja_value *out) {
    const struct jinja_macro_def *def = m->def;
    const struct jinja_str *s;
    struct jinja_env *env = jinja_env_new(j, m->env, def->n_slots);
    if (!env) return QUIRE_ENOMEM;
    JINJA_TRY(jinja_enter(j));
    JINJA_TRY(bind_params(j, def, args, env));
    JINJA_TRY(jinja_enter_frame(j, env, &def->frame));
    JINJA_TRY(fill_defaults(j, def, env));
    JINJA_TRY(capture(j, env, &def->body, &s));
    jinja_leave(j);
    *out = jinja_of_str(s);
    return 0;
}

static int new_macro(struct jinja *j, const struct jinja_macro_def *def, struct jinja_env *env,
                     struct jinja_value *out) {
    struct jinja_macro *m = jinja_alloc(j, sizeof *m);
    if (!m) return QUIRE_ENOMEM;
    *m = (struct jinja_macro){.def = def, .env = env};
    *out = (struct jinja_value){.type = JINJA_MACRO, .macro = m};
    return 0;
}

/* ---- for ---- */

struct loop_filter {
    const struct jinja_for *node;
    struct jinja_env *around, *env; /* env: its own slots, once it has begun */
};

/* A target's value put together again from its variables. */
static int target_value(struct jinja *j, struct jinja_env *env, const struct jinja_node *target,
                        struct jinja_value *out) {
    if (target->kind == JINJA_N_NAME) {
        *out = env->slots[target->name.ref.slot];
        return 0;
    }
    struct jinja_value *items = jinja_array(j, target->list.n, sizeof *items);
    if (!items) return QUIRE_ENOMEM;
    for (size_t i = 0; i < target->list.n; i++)
        JINJA_TRY(target_value(j, env, target->list.items[i], &items[i]));
    return jinja_list_new(j, items, target->list.n, JINJA_TUPLE, out);
}

static int next_filtered(struct jinja *j, struct jinja_iter *it, struct jinja_value *out, bool *done) {
    struct loop_filter *f = it->state;
    const struct jinja_for *node = f->node;
    if (!f->env) {
        f->env = jinja_env_new(j, f->around, node->test_slots);
        if (!f->env) return QUIRE_ENOMEM;
        JINJA_TRY(jinja_enter_frame(j, f->env, &node->test_frame));
    }
    for (;;) {
        struct jinja_value item, holds;
        JINJA_TRY(jinja_source_next(j, it, false, &item, done));
        if (*done) return 0;
        JINJA_TRY(jinja_assign(j, f->env, node->test_target, item));
        JINJA_TRY(jinja_eval(j, f->env, node->test, &holds));
        if (jinja_truth(j, holds)) return target_value(j, f->env, node->test_target, out);
    }
}

static int filter_source(struct jinja *j, struct jinja_env *env, const struct jinja_for *node,
                         struct jinja_value *source) {
    struct loop_filter *f = jinja_array(j, 1, sizeof *f);
    if (!f) return QUIRE_ENOMEM;
    *f = (struct loop_filter){.node = node, .around = env};
    return jinja_generator(j, "loop filter", *source, next_filtered, f, source);
}

/* What an ongoing loop walks: with or without its `loop` variable. */
struct walk {
    struct jinja_loop *loop; /* NULL: not used */
    struct jinja_iter it;
};

static int walk_next(struct jinja *j, struct walk *w, struct jinja_value *item, bool *done) {
    return w->loop ? jinja_loop_next(j, w->loop, item, done) : jinja_iter_next(j, &w->it, item, done);
}

/* The iterations. *finished: some iteration ran to its end, so that `else` is not due. */
static int run_iterations(struct jinja *j, struct jinja_env *env, const struct jinja_for *node,
                          struct walk *w, bool *finished) {
    *finished = false;
    for (;;) {
        struct jinja_value item;
        bool done;
        JINJA_TRY(walk_next(j, w, &item, &done));
        if (done) return 0;
        JINJA_TRY(jinja_assign(j, env, node->target, item));
        if (w->loop) env->slots[node->loop_slot] = (struct jinja_value){.type = JINJA_LOOP, .loop = w->loop};
        JINJA_TRY(jinja_enter_frame(j, env, &node->body_frame));
        int rc = jinja_exec(j, env, &node->body);
        if (rc == JINJA_FLOW_BREAK) return 0;
        if (rc == JINJA_FLOW_CONTINUE) continue;
        if (rc) return rc;
        *finished = true;
    }
}

/* around: the slots that the loop's filter and recursive calls see; env: those of the loop itself. */
static int run_loop(struct jinja *j, struct jinja_env *env, struct jinja_env *around,
                    const struct jinja_for *node, struct jinja_value source, size_t depth0) {
    struct walk w = {.loop = NULL};
    bool finished;
    if (node->test) JINJA_TRY(filter_source(j, around, node, &source));
    if (node->extended) {
        JINJA_TRY(jinja_loop_start(j, source, depth0, &w.loop));
        w.loop->node = node->recursive ? node : NULL;
        w.loop->env = around;
    } else {
        JINJA_TRY(jinja_iter_start(j, &w.it, source));
    }
    JINJA_TRY(run_iterations(j, env, node, &w, &finished));
    jinja_leave_frame(env, &node->body_frame);
    if (finished || !node->otherwise.n) return 0;
    JINJA_TRY(jinja_enter_frame(j, env, &node->else_frame));
    int rc = jinja_exec(j, env, &node->otherwise);
    jinja_leave_frame(env, &node->else_frame);
    return rc;
}

/* A recursive loop, whose text is a value: loop(items) gives it to the template. */
static int call_loop(struct jinja *j, const struct jinja_for *node, struct jinja_env *around,
                     struct jinja_value source, size_t depth0, struct jinja_value *out) {
    struct jinja_env *env = jinja_env_new(j, around, node->n_slots);
    struct jinja_sb b, *before = j->capture;
    const struct jinja_str *s;
    if (!env) return QUIRE_ENOMEM;
    jinja_sb_init(j, &b);
    j->capture = &b;
    JINJA_TRY(jinja_enter(j));
    JINJA_TRY(run_loop(j, env, around, node, source, depth0));
    jinja_leave(j);
    j->capture = before;
    JINJA_TRY(jinja_sb_finish(&b, &s));
    *out = jinja_of_str(s);
    return 0;
}

NOINLINE static int exec_for(struct jinja *j, struct jinja_env *env, const struct jinja_node *n) {
    struct jinja_value source, text;
    JINJA_TRY(jinja_eval(j, env, n->loop->iter, &source));
    j->pos = n->pos;
    if (!n->loop->recursive) return run_loop(j, env, env, n->loop, source, 0);
    JINJA_TRY(call_loop(j, n->loop, env, source, 0, &text));
    return jinja_emit(j, text.s);
}

/* ---- calls ---- */

static int loop_called(struct jinja *j, struct jinja_loop *l, const struct jinja_args *args,
                       struct jinja_value *out) {
    struct jinja_value bound[JINJA_MAX_PARAMS];
    if (!l->node)
        return jinja_fail(j, QUIRE_EINVAL,
                          "the loop must have the 'recursive' marker to be called recursively");
    JINJA_TRY(jinja_bind(j, "loop", "iterable", args, bound));
    return call_loop(j, l->node, l->env, bound[0], l->depth0 + 1, out);
}

static int joiner_called(struct jinja *j, struct jinja_joiner *joiner, struct jinja_value *out) {
    const struct jinja_str *s = joiner->used ? joiner->separator : jinja_str_lit(j, "");
    if (!s) return QUIRE_ENOMEM;
    joiner->used = true;
    *out = jinja_of_str(s);
    return 0;
}

int jinja_call(struct jinja *j, struct jinja_value callee, const struct jinja_args *args,
               struct jinja_value *out) {
    switch ((enum jinja_type)callee.type) {
    case JINJA_FUNCTION: return jinja_call_builtin(j, &callee.function->method, callee, args, out);
    case JINJA_METHOD: {
        struct jinja_value self = callee.bound->self;
        JINJA_TRY(jinja_call_builtin(j, callee.bound->method, self, args, out));
        if (self.type != JINJA_STR || !self.s->markup || out->type != JINJA_STR) return 0;
        out->s = jinja_str_markup(j, out->s, true);
        return out->s ? 0 : QUIRE_ENOMEM;
    }
    case JINJA_MACRO: return call_macro(j, callee.macro, args, out);
    case JINJA_LOOP: return loop_called(j, callee.loop, args, out);
    case JINJA_JOINER: return joiner_called(j, callee.joiner, out);
    case JINJA_UNDEFINED: return jinja_fail_undefined(j, callee);
    default: return jinja_fail(j, QUIRE_EINVAL, "'%s' object is not callable", jinja_type_name(callee));
    }
}

/* ---- other statements ---- */

/* Top-level assignments are variables of the render too, which blocks see. */
static void publish(struct jinja *j, const struct jinja_env *env, const struct jinja_node *target) {
    if (target->kind == JINJA_N_NAME) j->context[target->name.id] = env->slots[target->name.ref.slot];
    for (size_t i = 0; target->kind == JINJA_N_TUPLE && i < target->list.n; i++)
        publish(j, env, target->list.items[i]);
}

static int set_target(struct jinja *j, struct jinja_env *env, const struct jinja_node *n,
                      struct jinja_value v) {
    JINJA_TRY(jinja_assign(j, env, n->set.target, v));
    if (n->toplevel) publish(j, env, n->set.target);
    return 0;
}

NOINLINE static int exec_set(struct jinja *j, struct jinja_env *env, const struct jinja_node *n) {
    struct jinja_value v;
    JINJA_TRY(jinja_eval(j, env, n->set.value, &v));
    return set_target(j, env, n, v);
}

/* Set blocks and filter blocks: the text of the body, then the filters. */
NOINLINE static int exec_captured(struct jinja *j, struct jinja_env *env, const struct jinja_node *n) {
    const struct jinja_str *s;
    JINJA_TRY(jinja_enter_frame(j, env, &n->set.frame));
    JINJA_TRY(capture(j, env, &n->set.body, &s));
    struct jinja_value v = jinja_of_str(s);
    if (n->set.value) {
        j->filter_input = v;
        JINJA_TRY(jinja_eval(j, env, n->set.value, &v));
    }
    if (n->kind == JINJA_N_FILTER_BLOCK) {
        JINJA_TRY(emit_result(j, v));
    } else {
        JINJA_TRY(set_target(j, env, n, v));
    }
    jinja_leave_frame(env, &n->set.frame);
    return 0;
}

NOINLINE static int exec_if(struct jinja *j, struct jinja_env *env, const struct jinja_node *n) {
    for (size_t i = 0; i < n->cond.n; i++) {
        struct jinja_value v;
        JINJA_TRY(jinja_eval(j, env, n->cond.branches[i].test, &v));
        if (jinja_truth(j, v)) return jinja_exec(j, env, &n->cond.branches[i].body);
    }
    return jinja_exec(j, env, &n->cond.otherwise);
}

NOINLINE static int exec_macro(struct jinja *j, struct jinja_env *env, const struct jinja_node *n) {
    struct jinja_value m;
    JINJA_TRY(new_macro(j, n->macro.def, env, &m));
    JINJA_TRY(jinja_assign(j, env, n->macro.target, m));
    if (n->toplevel) publish(j, env, n->macro.target);
    return 0;
}

NOINLINE static int exec_call_block(struct jinja *j, struct jinja_env *env, const struct jinja_node *n) {
    static const struct jinja_args none;
    struct jinja_value caller, v;
    JINJA_TRY(new_macro(j, n->macro.def, env, &caller));
    if (n->macro.target) {
        JINJA_TRY(jinja_eval_call(j, env, n->macro.target, &caller, &v));
    } else {
        JINJA_TRY(jinja_call(j, caller, &none, &v));
    }
    return emit_result(j, v);
}

NOINLINE static int exec_with(struct jinja *j, struct jinja_env *env, const struct jinja_node *n) {
    JINJA_TRY(jinja_enter_frame(j, env, &n->with.frame));
    for (size_t i = 0; i < n->with.targets.n; i++) {
        struct jinja_value v;
        JINJA_TRY(jinja_eval(j, env, n->with.values.items[i], &v));
        JINJA_TRY(jinja_assign(j, env, n->with.targets.items[i], v));
    }
    int rc = jinja_exec(j, env, &n->with.body);
    jinja_leave_frame(env, &n->with.frame);
    return rc;
}

NOINLINE static int exec_block(struct jinja *j, struct jinja_env *around, const struct jinja_block *b) {
    struct jinja_env *env = jinja_env_new(j, NULL, b->n_slots);
    struct jinja_value *context = NULL;
    if (!env) return QUIRE_ENOMEM;
    if (b->n_seen) { /* a copy, put back afterwards */
        context = jinja_array(j, j->tmpl->n_names, sizeof *context);
        if (!context) return QUIRE_ENOMEM;
        memcpy(context, j->context, j->tmpl->n_names * sizeof *context);
        JINJA_TRY(jinja_steps(j, j->tmpl->n_names / 16));
        for (size_t i = 0; i < b->n_seen; i++) {
            struct jinja_env *e = around;
            for (uint32_t k = 0; k < b->seen_refs[i].hops; k++) e = e->outer;
            struct jinja_value v = e->slots[b->seen_refs[i].slot];
            if (v.type != JINJA_MISSING) j->context[b->seen[i]] = v;
        }
    }
    JINJA_TRY(jinja_enter_frame(j, env, &b->frame));
    JINJA_TRY(jinja_exec(j, env, &b->body));
    if (context) memcpy(j->context, context, j->tmpl->n_names * sizeof *context);
    return 0;
}

static int exec_one(struct jinja *j, struct jinja_env *env, const struct jinja_node *n) {
    switch ((enum jinja_kind)n->kind) {
    case JINJA_N_OUTPUT: return exec_output(j, env, n);
    case JINJA_N_FOR: return exec_for(j, env, n);
    case JINJA_N_IF: return exec_if(j, env, n);
    case JINJA_N_SET: return exec_set(j, env, n);
    case JINJA_N_SET_BLOCK:
    case JINJA_N_FILTER_BLOCK: return exec_captured(j, env, n);
    case JINJA_N_MACRO: return exec_macro(j, env, n);
    case JINJA_N_CALL_BLOCK: return exec_call_block(j, env, n);
    case JINJA_N_WITH:
    case JINJA_N_SCOPE: return exec_with(j, env, n);
    case JINJA_N_BLOCK: return exec_block(j, env, n->block);
    case JINJA_N_BREAK: return JINJA_FLOW_BREAK;
    case JINJA_N_CONTINUE: return JINJA_FLOW_CONTINUE;
    default: return jinja_fail(j, QUIRE_EINTERNAL, "no statement");
    }
}

int jinja_exec(struct jinja *j, struct jinja_env *env, const struct jinja_nodes *body) {
    int rc = 0;
    if (!body->n) return 0;
    JINJA_TRY(jinja_enter(j));
    for (size_t i = 0; i < body->n && !rc; i++) {
        j->pos = body->items[i]->pos;
        rc = jinja_steps(j, 1);
        if (!rc) rc = exec_one(j, env, body->items[i]);
    }
    jinja_leave(j);
    return rc;
}

int jinja_run(struct jinja *j) {
    const struct jinja_template *t = j->tmpl;
    struct jinja_env *env = jinja_env_new(j, NULL, t->n_slots);
    if (!env) return QUIRE_ENOMEM;
    JINJA_TRY(jinja_enter_frame(j, env, &t->frame));
    return jinja_exec(j, env, &t->body);
}
