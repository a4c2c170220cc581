/* Expressions, assignment and calls. */
#include "text/jinja_eval.h"
#include "text/jinja_dict.h"
#include "text/jinja_filters.h"
#include "text/jinja_iter.h"
#include "text/jinja_loop.h"
#include "text/jinja_ops.h"
#include "text/jinja_tests.h"

#include <string.h>

/* Kept out of jinja_eval, so that its frame, which recursion multiplies, stays small. */
#define NOINLINE __attribute__((noinline))

static struct jinja_value *slot(struct jinja_env *env, struct jinja_ref ref) {
    for (uint32_t i = 0; i < ref.hops; i++) env = env->outer;
    return &env->slots[ref.slot];
}

struct jinja_env *jinja_env_new(struct jinja *j, struct jinja_env *outer, size_t n_slots) {
    struct jinja_env *env = jinja_alloc(j, sizeof *env + n_slots * sizeof env->slots[0]);
    if (!env) return NULL;
    env->outer = outer;
    memset(env->slots, 0, n_slots * sizeof env->slots[0]); /* zero is JINJA_MISSING */
    return env;
}

int jinja_enter_frame(struct jinja *j, struct jinja_env *env, const struct jinja_frame *f) {
    for (size_t i = 0; i < f->n_loads; i++) {
        const struct jinja_load *l = &f->loads[i];
        switch (l->kind) {
        case JINJA_LOAD_NOTHING: break;
        case JINJA_LOAD_UNDEFINED: env->slots[l->slot].type = JINJA_MISSING; break;
        case JINJA_LOAD_CONTEXT: env->slots[l->slot] = j->context[l->name]; break;
        case JINJA_LOAD_OUTER: env->slots[l->slot] = *slot(env, l->outer); break;
        }
    }
    return f->n_loads >= 16 ? jinja_steps(j, f->n_loads / 16) : 0;
}

void jinja_leave_frame(struct jinja_env *env, const struct jinja_frame *f) {
    for (size_t i = 0; i < f->n_loads; i++) env->slots[f->loads[i].slot].type = JINJA_MISSING;
}

/* ---- literals ---- */

NOINLINE static int eval_list(struct jinja *j, struct jinja_env *env, const struct jinja_node *n,
                              struct jinja_value *out) {
    struct jinja_value *items = jinja_array(j, n->list.n, sizeof *items);
    if (!items) return QUIRE_ENOMEM;
    for (size_t i = 0; i < n->list.n; i++) JINJA_TRY(jinja_eval(j, env, n->list.items[i], &items[i]));
    return jinja_list_new(j, items, n->list.n, n->kind == JINJA_N_TUPLE ? JINJA_TUPLE : JINJA_LIST, out);
}

NOINLINE static int eval_dict(struct jinja *j, struct jinja_env *env, const struct jinja_node *n,
                              struct jinja_value *out) {
    struct jinja_dict *d;
    JINJA_TRY(jinja_dict_new(j, &d));
    for (size_t i = 0; i < n->list.n; i += 2) {
        struct jinja_value key, value;
        JINJA_TRY(jinja_eval(j, env, n->list.items[i], &key));
        JINJA_TRY(jinja_eval(j, env, n->list.items[i + 1], &value));
        JINJA_TRY(jinja_dict_set(j, d, key, value));
    }
    *out = (struct jinja_value){.type = JINJA_DICT, .dict = d};
    return 0;
}

/* ---- operators ---- */

NOINLINE static int eval_binary(struct jinja *j, struct jinja_env *env, const struct jinja_node *n,
                                struct jinja_value *out) {
    struct jinja_value a, b;
    JINJA_TRY(jinja_eval(j, env, n->a, &a));
    JINJA_TRY(jinja_eval(j, env, n->b, &b));
    j->pos = n->pos;
    return jinja_binary(j, (enum jinja_op)n->op, a, b, out);
}

/* a + b + c + ...: strings are put together once, not at every +. Long sums recurse only every MAX_SUM terms.
 */
#define MAX_SUM 16

NOINLINE static int eval_sum(struct jinja *j, struct jinja_env *env, const struct jinja_node *n,
                             struct jinja_value *out) {
    const struct jinja_node *terms[MAX_SUM];
    size_t n_terms = 0;
    struct jinja_sb text = {.j = NULL}; /* j set: *out is what has been put together so far */
    for (; n_terms < MAX_SUM && n->kind == JINJA_N_BINARY && n->op == JINJA_OP_ADD; n = n->a)
        terms[n_terms++] = n;
    JINJA_TRY(jinja_eval(j, env, n, out));
    while (n_terms) {
        const struct jinja_node *sum = terms[--n_terms];
        struct jinja_value v;
        JINJA_TRY(jinja_eval(j, env, sum->b, &v));
        j->pos = sum->pos;
        bool plain = v.type == JINJA_STR && !v.s->markup;
        if (plain && !text.j && out->type == JINJA_STR && !out->s->markup && n_terms)
            jinja_sb_from(j, &text, out->s, v.s->len);
        if (plain && text.j) {
            jinja_sb_add_str(&text, v.s);
            continue;
        }
        if (text.j) JINJA_TRY(jinja_sb_finish(&text, &out->s));
        text.j = NULL;
        JINJA_TRY(jinja_binary(j, JINJA_OP_ADD, *out, v, out));
    }
    return text.j ? jinja_sb_finish(&text, &out->s) : 0;
}

NOINLINE static int eval_compare(struct jinja *j, struct jinja_env *env, const struct jinja_node *n,
                                 struct jinja_value *out) {
    struct jinja_value left, right;
    bool holds = true;
    JINJA_TRY(jinja_eval(j, env, n->compare.first, &left));
    for (size_t i = 0; i < n->compare.n && holds; i++) {
        JINJA_TRY(jinja_eval(j, env, n->compare.others[i], &right));
        j->pos = n->pos;
        JINJA_TRY(jinja_compare(j, (enum jinja_op)n->compare.ops[i], left, right, &holds));
        left = right;
    }
    *out = jinja_bool(holds);
    return 0;
}

#define CONCAT_ROOM 64 /* what follows the first string is not known yet */

NOINLINE static int eval_concat(struct jinja *j, struct jinja_env *env, const struct jinja_node *n,
                                struct jinja_value *out) {
    const struct jinja_str *s;
    struct jinja_sb b;
    jinja_sb_init(j, &b);
    for (size_t i = 0; i < n->list.n; i++) {
        struct jinja_value v;
        JINJA_TRY(jinja_eval(j, env, n->list.items[i], &v));
        JINJA_TRY(jinja_to_str(j, v, &s));
        if (i)
            jinja_sb_add_str(&b, s);
        else
            jinja_sb_from(j, &b, s, CONCAT_ROOM);
    }
    JINJA_TRY(jinja_sb_finish(&b, &s));
    *out = jinja_of_str(s);
    return 0;
}

NOINLINE static int eval_logic(struct jinja *j, struct jinja_env *env, const struct jinja_node *n,
                               struct jinja_value *out) {
    JINJA_TRY(jinja_eval(j, env, n->a, out));
    switch ((enum jinja_kind)n->kind) {
    case JINJA_N_AND: return jinja_truth(j, *out) ? jinja_eval(j, env, n->b, out) : 0;
    case JINJA_N_OR: return jinja_truth(j, *out) ? 0 : jinja_eval(j, env, n->b, out);
    case JINJA_N_NOT: *out = jinja_bool(!jinja_truth(j, *out)); return 0;
    default: break;
    }
    j->pos = n->pos;
    return n->kind == JINJA_N_NEG ? jinja_negate(j, *out, out) : jinja_plus(j, *out, out);
}

NOINLINE static int eval_cond(struct jinja *j, struct jinja_env *env, const struct jinja_node *n,
                              struct jinja_value *out) {
    JINJA_TRY(jinja_eval(j, env, n->a, out));
    if (jinja_truth(j, *out)) return jinja_eval(j, env, n->b, out);
    if (n->c) return jinja_eval(j, env, n->c, out);
    return jinja_undefined_hint(
        j, "an inline if-expression evaluated to false and no else section was defined", out);
}

NOINLINE static int eval_slice(struct jinja *j, struct jinja_env *env, const struct jinja_node *n,
                               struct jinja_value *out) {
    const struct jinja_node *parts[3] = {n->b->a, n->b->b, n->b->c};
    struct jinja_value object,
        v[3] = {{.type = JINJA_MISSING}, {.type = JINJA_MISSING}, {.type = JINJA_MISSING}};
    JINJA_TRY(jinja_eval(j, env, n->a, &object));
    for (int i = 0; i < 3; i++)
        if (parts[i]) JINJA_TRY(jinja_eval(j, env, parts[i], &v[i]));
    j->pos = n->pos;
    return jinja_slice(j, object, v, out);
}

NOINLINE static int eval_access(struct jinja *j, struct jinja_env *env, const struct jinja_node *n,
                                struct jinja_value *out) {
    struct jinja_value object, key;
    if (n->kind == JINJA_N_GETATTR) {
        JINJA_TRY(jinja_eval(j, env, n->attr.object, &object));
        j->pos = n->pos;
        /* A name that no type has a method of is a member, if anything. */
        if (!n->attr.reserved && jinja_is_dict(object))
            return jinja_getitem(j, object, jinja_of_str(n->attr.name), out);
        return jinja_getattr(j, object, n->attr.name, out);
    }
    if (n->b->kind == JINJA_N_SLICE) return eval_slice(j, env, n, out);
    JINJA_TRY(jinja_eval(j, env, n->a, &object));
    JINJA_TRY(jinja_eval(j, env, n->b, &key));
    j->pos = n->pos;
    return jinja_getitem(j, object, key, out);
}

/* ---- calls ---- */

/* Room for the arguments as written; *args and **kwargs make more. */
struct arguments {
    struct jinja_vec pos;
    struct jinja_kwarg *kw;
    size_t n_kw, cap_kw;
};

static int push_kwarg(struct jinja *j, struct arguments *a, const struct jinja_str *name,
                      struct jinja_value value) {
    for (size_t i = 0; i < a->n_kw; i++)
        if (jinja_str_equal(a->kw[i].name, name))
            return jinja_fail(j, QUIRE_EINVAL, "got multiple values for keyword argument '%.*s'",
                              (int)(name->len < 60 ? name->len : 60), name->data);
    JINJA_TRY(jinja_steps(j, 1 + a->n_kw));
    if (a->n_kw == a->cap_kw) {
        size_t cap = a->cap_kw ? a->cap_kw * 2 : 4;
        struct jinja_kwarg *more = jinja_array(j, cap, sizeof *more);
        if (!more) return QUIRE_ENOMEM;
        if (a->n_kw) memcpy(more, a->kw, a->n_kw * sizeof *more);
        a->kw = more;
        a->cap_kw = cap;
    }
    a->kw[a->n_kw++] = (struct jinja_kwarg){.name = name, .value = value};
    return 0;
}

static int push_double_star(struct jinja *j, struct arguments *a, struct jinja_value v) {
    struct jinja_cursor c = {0};
    if (!jinja_is_dict(v))
        return jinja_fail(j, QUIRE_EINVAL, "argument after ** must be a mapping, not %s", jinja_type_name(v));
    for (;;) {
        struct jinja_value key, value;
        bool done;
        JINJA_TRY(jinja_mapping_next(j, v, &c, &key, &value, &done));
        if (done) return 0;
        if (key.type != JINJA_STR) return jinja_fail(j, QUIRE_EINVAL, "keywords must be strings");
        JINJA_TRY(push_kwarg(j, a, key.s, value));
    }
}

NOINLINE static int eval_args(struct jinja *j, struct jinja_env *env, const struct jinja_call_args *args,
                              const struct jinja_value *caller, struct jinja_args *out) {
    struct arguments a = {0};
    struct jinja_value v;
    for (size_t i = 0; args && i < args->pos.n; i++) {
        JINJA_TRY(jinja_eval(j, env, args->pos.items[i], &v));
        JINJA_TRY(jinja_vec_push(j, &a.pos, v));
    }
    if (args && args->star) { /* Python evaluates *args before keyword values too */
        JINJA_TRY(jinja_eval(j, env, args->star, &v));
        if (!jinja_is_iterable(v))
            return jinja_fail(j, QUIRE_EINVAL, "argument after * must be an iterable, not %s",
                              jinja_type_name(v));
        JINJA_TRY(jinja_collect(j, v, &a.pos));
    }
    for (size_t i = 0; args && i < args->kw.n; i++) {
        JINJA_TRY(jinja_eval(j, env, args->kw.items[i], &v));
        JINJA_TRY(push_kwarg(j, &a, args->kw_names[i], v));
    }
    if (caller) {
        const struct jinja_str *name = jinja_str_lit(j, "caller");
        if (!name) return QUIRE_ENOMEM;
        JINJA_TRY(push_kwarg(j, &a, name, *caller));
    }
    if (args && args->star_star) {
        JINJA_TRY(jinja_eval(j, env, args->star_star, &v));
        JINJA_TRY(push_double_star(j, &a, v));
    }
    *out = (struct jinja_args){.pos = a.pos.items, .n_pos = a.pos.n, .kw = a.kw, .n_kw = a.n_kw};
    return 0;
}

int jinja_eval_call(struct jinja *j, struct jinja_env *env, const struct jinja_node *n,
                    const struct jinja_value *caller, struct jinja_value *out) {
    struct jinja_value callee;
    struct jinja_args args;
    JINJA_TRY(jinja_eval(j, env, n->call.callee, &callee));
    JINJA_TRY(eval_args(j, env, n->call.args, caller, &args));
    j->pos = n->pos;
    return jinja_call(j, callee, &args, out);
}

NOINLINE static int eval_apply(struct jinja *j, struct jinja_env *env, const struct jinja_node *n,
                               struct jinja_value *out) {
    static const struct jinja_args none;
    struct jinja_value subject = j->filter_input;
    struct jinja_args args;
    bool holds;
    if (n->apply.subject) JINJA_TRY(jinja_eval(j, env, n->apply.subject, &subject));
    if (n->apply.args) JINJA_TRY(eval_args(j, env, n->apply.args, NULL, &args));
    const struct jinja_args *given = n->apply.args ? &args : &none;
    j->pos = n->pos;
    if (n->apply.filter) return jinja_filter_call(j, n->apply.filter, subject, given, out);
    if (!n->apply.test)
        return jinja_fail(j, QUIRE_EUNSUPPORTED, "%s '%.*s' is not supported",
                          n->kind == JINJA_N_FILTER ? "filter" : "test",
                          (int)(n->apply.name->len < 60 ? n->apply.name->len : 60), n->apply.name->data);
    JINJA_TRY(jinja_test_call(j, n->apply.test, subject, given, &holds));
    *out = jinja_bool(holds);
    return 0;
}

static int eval_inner(struct jinja *j, struct jinja_env *env, const struct jinja_node *n,
                      struct jinja_value *out) {
    switch ((enum jinja_kind)n->kind) {
    case JINJA_N_LIST:
    case JINJA_N_TUPLE: return eval_list(j, env, n, out);
    case JINJA_N_DICT: return eval_dict(j, env, n, out);
    case JINJA_N_AND:
    case JINJA_N_OR:
    case JINJA_N_NOT:
    case JINJA_N_NEG:
    case JINJA_N_POS: return eval_logic(j, env, n, out);
    case JINJA_N_BINARY:
        return n->op == JINJA_OP_ADD ? eval_sum(j, env, n, out) : eval_binary(j, env, n, out);
    case JINJA_N_COMPARE: return eval_compare(j, env, n, out);
    case JINJA_N_CONCAT: return eval_concat(j, env, n, out);
    case JINJA_N_COND: return eval_cond(j, env, n, out);
    case JINJA_N_GETATTR:
    case JINJA_N_GETITEM: return eval_access(j, env, n, out);
    case JINJA_N_CALL: return jinja_eval_call(j, env, n, NULL, out);
    case JINJA_N_FILTER:
    case JINJA_N_TEST: return eval_apply(j, env, n, out);
    default: return jinja_fail(j, QUIRE_EINTERNAL, "no expression");
    }
}

int jinja_eval(struct jinja *j, struct jinja_env *env, const struct jinja_node *n, struct jinja_value *out) {
    JINJA_TRY(jinja_steps(j, 1));
    if (n->kind == JINJA_N_CONST) {
        *out = n->constant;
        return 0;
    }
    if (n->kind == JINJA_N_NAME) {
        *out = *slot(env, n->name.ref);
        return out->type == JINJA_MISSING ? jinja_undefined_name(j, j->tmpl->names[n->name.id], out) : 0;
    }
    JINJA_TRY(jinja_enter(j));
    JINJA_TRY(eval_inner(j, env, n, out));
    jinja_leave(j);
    return 0;
}

/* ---- assignment ---- */

static int assign_member(struct jinja *j, struct jinja_value object, const struct jinja_str *name,
                         struct jinja_value v) {
    if (object.type != JINJA_NAMESPACE)
        return jinja_fail(j, QUIRE_EINVAL, "cannot assign attribute on non-namespace object");
    if (name->data[0] == '_')
        return jinja_fail(j, QUIRE_EINVAL, "a namespace cannot have attributes that start with '_'");
    return jinja_dict_set_name(j, object.dict, name, v);
}

int jinja_assign(struct jinja *j, struct jinja_env *env, const struct jinja_node *target,
                 struct jinja_value v) {
    if (target->kind == JINJA_N_NAME) {
        *slot(env, target->name.ref) = v;
        return 0;
    }
    j->pos = target->pos;
    if (target->kind == JINJA_N_NSREF)
        return assign_member(j, *slot(env, target->nsref.ref), target->nsref.attr, v);
    struct jinja_value *items = jinja_array(j, target->list.n, sizeof *items);
    if (!items) return QUIRE_ENOMEM;
    JINJA_TRY(jinja_unpack(j, v, items, target->list.n));
    JINJA_TRY(jinja_enter(j));
    for (size_t i = 0; i < target->list.n; i++)
        JINJA_TRY(jinja_assign(j, env, target->list.items[i], items[i]));
    jinja_leave(j);
    return 0;
}
