#include "text/jinja_scope.h"
#include "text/jinja_lex.h"
#include "text/jinja_parse.h"

#include <string.h>

/* A function under construction: hands out slots. */
struct function {
    struct function *outer;
    size_t n_slots;
};

/* What a name means in a frame. Entries of one name form a stack, innermost first. */
struct entry {
    struct entry *shadowed; /* the same name further out */
    struct frame *frame;
    struct entry *next; /* in the frame */
    uint32_t name, slot;
    enum jinja_load_kind load;
    bool stored;
};

struct frame {
    struct frame *outer;
    struct function *function;
    struct entry *entries;
    size_t n_entries;
    struct entry **stored; /* entries in the order in which they became stored */
    size_t n_stored;
    bool toplevel;
    bool in_loop; /* break and continue are possible */
    bool soft;    /* directly in an `if`: unknown filters fail only when they are reached */
};

struct scope {
    struct jinja_template *t;
    struct error *err;
    struct entry **names; /* [t->n_names] innermost entry */
    struct frame *frame;
    const struct jinja_str **blocks;
    size_t n_blocks;
    uint32_t id_loop, id_caller, id_kwargs, id_varargs, id_self, id_super;
    struct jinja_guard guard;
    size_t steps_left; /* each loop and macro looks through its whole body once more */
};

#define MAX_STEPS  5000000
#define MAX_BLOCKS 1000

static int no_memory(struct scope *s) {
    return jinja_syntax_memory(s->t, s->err);
}

static int enter(struct scope *s, uint32_t pos) {
    if (s->steps_left-- == 0)
        return jinja_syntax_error(s->t, s->err, QUIRE_ELIMIT, pos, "the template is too complex");
    if (jinja_guard_enter(&s->guard)) return 0;
    return jinja_syntax_error(s->t, s->err, QUIRE_ELIMIT, pos, "nested too deeply");
}

/* ---- what a frame knows ---- */

static struct entry *define(struct scope *s, uint32_t name, enum jinja_load_kind load) {
    struct frame *f = s->frame;
    struct entry *e = s->names[name];
    if (!e || e->frame != f) {
        e = arena_zalloc(&s->t->arena, sizeof *e);
        if (!e) return NULL;
        *e = (struct entry){.shadowed = s->names[name],
                            .frame = f,
                            .next = f->entries,
                            .name = name,
                            .slot = (uint32_t)f->function->n_slots++};
        f->entries = e;
        f->n_entries++;
        s->names[name] = e;
    }
    e->load = load;
    return e;
}

static int mark_stored(struct scope *s, struct entry *e) {
    struct frame *f = s->frame;
    if (e->stored) return 0;
    e->stored = true;
    if ((f->n_stored & (f->n_stored - 1)) == 0) {
        struct entry **more = arena_array(&s->t->arena, f->n_stored ? f->n_stored * 2 : 1, sizeof *more);
        if (!more) return no_memory(s);
        if (f->n_stored) memcpy(more, f->stored, f->n_stored * sizeof *more);
        f->stored = more;
    }
    f->stored[f->n_stored++] = e;
    return 0;
}

static int declare_param(struct scope *s, uint32_t name, uint32_t *slot) {
    struct entry *e = define(s, name, JINJA_LOAD_NOTHING);
    if (!e) return no_memory(s);
    if (slot) *slot = e->slot;
    return mark_stored(s, e);
}

static int load_name(struct scope *s, uint32_t name) {
    if (s->names[name]) return 0;
    return define(s, name, JINJA_LOAD_CONTEXT) ? 0 : no_memory(s);
}

static int store_name(struct scope *s, uint32_t name) {
    struct entry *e = s->names[name];
    if (!e || e->frame != s->frame) {
        e = define(s, name, e ? JINJA_LOAD_OUTER : JINJA_LOAD_UNDEFINED);
        if (!e) return no_memory(s);
    }
    return mark_stored(s, e);
}

static struct jinja_ref ref_of(const struct scope *s, const struct entry *e) {
    struct jinja_ref ref = {.slot = e->slot};
    for (const struct function *f = s->frame->function; f != e->frame->function; f = f->outer) ref.hops++;
    return ref;
}

/* ---- first pass over a frame: which names it loads and stores ---- */

static int see_expr(struct scope *s, const struct jinja_node *n);

static int see_list(struct scope *s, const struct jinja_nodes *list) {
    for (size_t i = 0; i < list->n; i++) JINJA_TRY(see_expr(s, list->items[i]));
    return 0;
}

static int see_args(struct scope *s, const struct jinja_call_args *args) {
    if (!args) return 0;
    JINJA_TRY(see_list(s, &args->pos));
    JINJA_TRY(see_list(s, &args->kw));
    if (args->star) JINJA_TRY(see_expr(s, args->star));
    return args->star_star ? see_expr(s, args->star_star) : 0;
}

static int see_expr_kind(struct scope *s, const struct jinja_node *n) {
    switch ((enum jinja_kind)n->kind) {
    case JINJA_N_NAME: return load_name(s, n->name.id);
    case JINJA_N_LIST:
    case JINJA_N_TUPLE:
    case JINJA_N_DICT:
    case JINJA_N_CONCAT:
    case JINJA_N_OUTPUT: return see_list(s, &n->list);
    case JINJA_N_COMPARE:
        JINJA_TRY(see_expr(s, n->compare.first));
        for (size_t i = 0; i < n->compare.n; i++) JINJA_TRY(see_expr(s, n->compare.others[i]));
        return 0;
    case JINJA_N_GETATTR: return see_expr(s, n->attr.object);
    case JINJA_N_CALL: JINJA_TRY(see_expr(s, n->call.callee)); return see_args(s, n->call.args);
    case JINJA_N_FILTER:
    case JINJA_N_TEST:
        if (n->apply.subject) JINJA_TRY(see_expr(s, n->apply.subject));
        return see_args(s, n->apply.args);
    case JINJA_N_AND:
    case JINJA_N_OR:
    case JINJA_N_NOT:
    case JINJA_N_NEG:
    case JINJA_N_POS:
    case JINJA_N_BINARY:
    case JINJA_N_COND:
    case JINJA_N_GETITEM:
    case JINJA_N_SLICE:
        if (n->a) JINJA_TRY(see_expr(s, n->a));
        if (n->b) JINJA_TRY(see_expr(s, n->b));
        return n->c ? see_expr(s, n->c) : 0;
    default: return 0;
    }
}

static int see_expr(struct scope *s, const struct jinja_node *n) {
    JINJA_TRY(enter(s, n->pos));
    JINJA_TRY(see_expr_kind(s, n));
    s->guard.depth--;
    return 0;
}

static int see_target(struct scope *s, const struct jinja_node *n, bool as_param) {
    if (n->kind == JINJA_N_TUPLE) {
        JINJA_TRY(enter(s, n->pos));
        for (size_t i = 0; i < n->list.n; i++) JINJA_TRY(see_target(s, n->list.items[i], as_param));
        s->guard.depth--;
        return 0;
    }
    if (n->kind == JINJA_N_NSREF) return load_name(s, n->nsref.id);
    return as_param ? declare_param(s, n->name.id, NULL) : store_name(s, n->name.id);
}

static int see_body(struct scope *s, const struct jinja_nodes *body);

/* A variable that some branch of an `if` stores is loaded beforehand, for the other branches' sake. */
static int see_if(struct scope *s, const struct jinja_node *n) {
    size_t before = s->frame->n_stored;
    for (size_t i = 0; i < n->cond.n; i++) {
        JINJA_TRY(see_expr(s, n->cond.branches[i].test));
        JINJA_TRY(see_body(s, &n->cond.branches[i].body));
    }
    JINJA_TRY(see_body(s, &n->cond.otherwise));
    for (size_t i = before; i < s->frame->n_stored; i++) {
        struct entry *e = s->frame->stored[i];
        e->load = e->shadowed ? JINJA_LOAD_OUTER : JINJA_LOAD_CONTEXT;
    }
    return 0;
}

static int see_stmt(struct scope *s, const struct jinja_node *n) {
    switch ((enum jinja_kind)n->kind) {
    case JINJA_N_OUTPUT: return see_list(s, &n->list);
    case JINJA_N_FOR: return see_expr(s, n->loop->iter);
    case JINJA_N_IF: return see_if(s, n);
    case JINJA_N_SET: JINJA_TRY(see_expr(s, n->set.value)); return see_target(s, n->set.target, false);
    case JINJA_N_SET_BLOCK: return see_target(s, n->set.target, false);
    case JINJA_N_MACRO: return store_name(s, n->macro.target->name.id);
    case JINJA_N_CALL_BLOCK: return n->macro.target ? see_expr(s, n->macro.target) : 0;
    case JINJA_N_FILTER_BLOCK: return see_expr(s, n->set.value);
    case JINJA_N_WITH: return see_list(s, &n->with.values);
    default: return 0;
    }
}

static int see_body(struct scope *s, const struct jinja_nodes *body) {
    JINJA_TRY(enter(s, 0));
    for (size_t i = 0; i < body->n; i++) JINJA_TRY(see_stmt(s, body->items[i]));
    s->guard.depth--;
    return 0;
}

/* ---- which of some names a subtree uses without setting them first, functions inside included ---- */

struct undeclared {
    uint32_t watch[3];
    size_t n_watch;
    unsigned open, used; /* bit i: watch[i] not yet set; loaded */
};

static int undeclared_body(struct scope *s, const struct jinja_nodes *body, struct undeclared *u);
static int undeclared_node(struct scope *s, const struct jinja_node *n, struct undeclared *u);

static void undeclared_name(uint32_t id, bool store, struct undeclared *u) {
    for (size_t i = 0; i < u->n_watch; i++) {
        if (u->watch[i] != id || !(u->open >> i & 1)) continue;
        if (store) {
            u->open &= ~(1u << i);
        } else {
            u->used |= 1u << i;
        }
    }
}

static int undeclared_list(struct scope *s, const struct jinja_nodes *list, struct undeclared *u) {
    for (size_t i = 0; i < list->n; i++) JINJA_TRY(undeclared_node(s, list->items[i], u));
    return 0;
}

static int undeclared_target(struct scope *s, const struct jinja_node *n, struct undeclared *u) {
    if (n->kind == JINJA_N_NAME) undeclared_name(n->name.id, true, u);
    if (n->kind != JINJA_N_TUPLE) return 0;
    JINJA_TRY(enter(s, n->pos));
    for (size_t i = 0; i < n->list.n; i++) JINJA_TRY(undeclared_target(s, n->list.items[i], u));
    s->guard.depth--;
    return 0;
}

static int undeclared_args(struct scope *s, const struct jinja_call_args *args, struct undeclared *u) {
    if (!args) return 0;
    JINJA_TRY(undeclared_list(s, &args->pos, u));
    JINJA_TRY(undeclared_list(s, &args->kw, u));
    if (args->star) JINJA_TRY(undeclared_node(s, args->star, u));
    return args->star_star ? undeclared_node(s, args->star_star, u) : 0;
}

static int undeclared_macro(struct scope *s, const struct jinja_node *n, struct undeclared *u) {
    const struct jinja_macro_def *def = n->macro.def;
    if (n->kind == JINJA_N_CALL_BLOCK && n->macro.target) JINJA_TRY(undeclared_node(s, n->macro.target, u));
    for (size_t i = 0; i < def->n_params; i++) undeclared_name(def->param_nodes[i]->name.id, true, u);
    for (size_t i = 0; i < def->n_defaults; i++) JINJA_TRY(undeclared_node(s, def->defaults[i], u));
    return undeclared_body(s, &def->body, u);
}

static int undeclared_stmt(struct scope *s, const struct jinja_node *n, struct undeclared *u) {
    switch ((enum jinja_kind)n->kind) {
    case JINJA_N_FOR:
        JINJA_TRY(undeclared_target(s, n->loop->target, u));
        JINJA_TRY(undeclared_node(s, n->loop->iter, u));
        JINJA_TRY(undeclared_body(s, &n->loop->body, u));
        JINJA_TRY(undeclared_body(s, &n->loop->otherwise, u));
        return n->loop->test ? undeclared_node(s, n->loop->test, u) : 0;
    case JINJA_N_IF:
        for (size_t i = 0; i < n->cond.n; i++) {
            JINJA_TRY(undeclared_node(s, n->cond.branches[i].test, u));
            JINJA_TRY(undeclared_body(s, &n->cond.branches[i].body, u));
        }
        return undeclared_body(s, &n->cond.otherwise, u);
    case JINJA_N_SET:
    case JINJA_N_SET_BLOCK:
        JINJA_TRY(undeclared_target(s, n->set.target, u));
        if (n->set.value) JINJA_TRY(undeclared_node(s, n->set.value, u));
        return undeclared_body(s, &n->set.body, u);
    case JINJA_N_FILTER_BLOCK:
        JINJA_TRY(undeclared_body(s, &n->set.body, u));
        return undeclared_node(s, n->set.value, u);
    case JINJA_N_MACRO:
    case JINJA_N_CALL_BLOCK: return undeclared_macro(s, n, u);
    case JINJA_N_WITH:
        for (size_t i = 0; i < n->with.targets.n; i++)
            JINJA_TRY(undeclared_target(s, n->with.targets.items[i], u));
        JINJA_TRY(undeclared_list(s, &n->with.values, u));
        return undeclared_body(s, &n->with.body, u);
    case JINJA_N_SCOPE: return undeclared_body(s, &n->with.body, u);
    default: return 0; /* a block is looked at on its own */
    }
}

static int undeclared_expr(struct scope *s, const struct jinja_node *n, struct undeclared *u) {
    switch ((enum jinja_kind)n->kind) {
    case JINJA_N_NAME: undeclared_name(n->name.id, false, u); return 0;
    case JINJA_N_LIST:
    case JINJA_N_TUPLE:
    case JINJA_N_DICT:
    case JINJA_N_CONCAT:
    case JINJA_N_OUTPUT: return undeclared_list(s, &n->list, u);
    case JINJA_N_COMPARE:
        JINJA_TRY(undeclared_node(s, n->compare.first, u));
        for (size_t i = 0; i < n->compare.n; i++) JINJA_TRY(undeclared_node(s, n->compare.others[i], u));
        return 0;
    case JINJA_N_GETATTR: return undeclared_node(s, n->attr.object, u);
    case JINJA_N_CALL:
        JINJA_TRY(undeclared_node(s, n->call.callee, u));
        return undeclared_args(s, n->call.args, u);
    case JINJA_N_FILTER:
    case JINJA_N_TEST:
        if (n->apply.subject) JINJA_TRY(undeclared_node(s, n->apply.subject, u));
        return undeclared_args(s, n->apply.args, u);
    case JINJA_N_CONST:
    case JINJA_N_NSREF: return 0;
    case JINJA_N_AND:
    case JINJA_N_OR:
    case JINJA_N_NOT:
    case JINJA_N_NEG:
    case JINJA_N_POS:
    case JINJA_N_BINARY:
    case JINJA_N_COND:
    case JINJA_N_GETITEM:
    case JINJA_N_SLICE:
        if (n->a) JINJA_TRY(undeclared_node(s, n->a, u));
        if (n->b) JINJA_TRY(undeclared_node(s, n->b, u));
        return n->c ? undeclared_node(s, n->c, u) : 0;
    default: return undeclared_stmt(s, n, u);
    }
}

static int undeclared_node(struct scope *s, const struct jinja_node *n, struct undeclared *u) {
    JINJA_TRY(enter(s, n->pos));
    JINJA_TRY(undeclared_expr(s, n, u));
    s->guard.depth--;
    return 0;
}

static int undeclared_body(struct scope *s, const struct jinja_nodes *body, struct undeclared *u) {
    return undeclared_list(s, body, u);
}

/* ---- second pass: resolves every name, frame by frame ---- */

static int fix_body(struct scope *s, const struct jinja_nodes *body);
static int fix_expr(struct scope *s, struct jinja_node *n);

static void open_frame(struct scope *s, struct frame *f, struct function *fn) {
    *f = (struct frame){.outer = s->frame, .function = fn ? fn : s->frame->function};
    if (!fn) f->in_loop = s->frame->in_loop;
    s->frame = f;
}

/* Writes down what entering the frame loads and forgets its names. */
static int close_frame(struct scope *s, struct jinja_frame *out) {
    struct frame *f = s->frame;
    struct jinja_load *loads = arena_array(&s->t->arena, f->n_entries, sizeof *loads);
    if (!loads) return no_memory(s);
    size_t n = f->n_entries;
    for (struct entry *e = f->entries; e; e = e->next) {
        struct jinja_load *l = &loads[--n];
        *l = (struct jinja_load){.kind = e->load, .slot = e->slot, .name = e->name};
        if (e->load == JINJA_LOAD_OUTER) l->outer = ref_of(s, e->shadowed);
        s->names[e->name] = e->shadowed;
    }
    out->loads = loads;
    out->n_loads = f->n_entries;
    s->frame = f->outer;
    return 0;
}

/* For names that no pass has seen (arguments of a set block's filter): loaded like any other. */
static int resolve(struct scope *s, uint32_t name, struct jinja_ref *ref) {
    JINJA_TRY(load_name(s, name));
    *ref = ref_of(s, s->names[name]);
    return 0;
}

static int fix_list(struct scope *s, const struct jinja_nodes *list) {
    for (size_t i = 0; i < list->n; i++) JINJA_TRY(fix_expr(s, list->items[i]));
    return 0;
}

static int fix_args(struct scope *s, struct jinja_call_args *args) {
    if (!args) return 0;
    JINJA_TRY(fix_list(s, &args->pos));
    JINJA_TRY(fix_list(s, &args->kw));
    if (args->star) JINJA_TRY(fix_expr(s, args->star));
    return args->star_star ? fix_expr(s, args->star_star) : 0;
}

static int fix_apply(struct scope *s, struct jinja_node *n) {
    bool known = n->kind == JINJA_N_FILTER ? n->apply.filter != NULL : n->apply.test != NULL;
    if (!known && !s->frame->soft)
        return jinja_syntax_error(s->t, s->err, QUIRE_EUNSUPPORTED, n->pos, "%s '%.*s' is not supported",
                                  n->kind == JINJA_N_FILTER ? "filter" : "test",
                                  (int)(n->apply.name->len < 60 ? n->apply.name->len : 60),
                                  n->apply.name->data);
    if (n->apply.subject) JINJA_TRY(fix_expr(s, n->apply.subject));
    return fix_args(s, n->apply.args);
}

static int fix_cond(struct scope *s, struct jinja_node *n) {
    bool soft = s->frame->soft;
    s->frame->soft = true;
    JINJA_TRY(fix_expr(s, n->a));
    JINJA_TRY(fix_expr(s, n->b));
    if (n->c) JINJA_TRY(fix_expr(s, n->c));
    s->frame->soft = soft;
    return 0;
}

static int fix_name(struct scope *s, struct jinja_node *n) {
    const struct entry *e = s->names[n->name.id];
    if ((n->name.id == s->id_self || n->name.id == s->id_super) && (!e || e->load == JINJA_LOAD_CONTEXT))
        return jinja_syntax_error(s->t, s->err, QUIRE_EUNSUPPORTED, n->pos, "'%s' is not supported",
                                  n->name.id == s->id_self ? "self" : "super");
    return resolve(s, n->name.id, &n->name.ref);
}

static int fix_expr_kind(struct scope *s, struct jinja_node *n) {
    switch ((enum jinja_kind)n->kind) {
    case JINJA_N_NAME: return fix_name(s, n);
    case JINJA_N_LIST:
    case JINJA_N_TUPLE:
    case JINJA_N_DICT:
    case JINJA_N_CONCAT: return fix_list(s, &n->list);
    case JINJA_N_COMPARE:
        JINJA_TRY(fix_expr(s, n->compare.first));
        for (size_t i = 0; i < n->compare.n; i++) JINJA_TRY(fix_expr(s, n->compare.others[i]));
        return 0;
    case JINJA_N_GETATTR: return fix_expr(s, n->attr.object);
    case JINJA_N_CALL: JINJA_TRY(fix_expr(s, n->call.callee)); return fix_args(s, n->call.args);
    case JINJA_N_FILTER:
    case JINJA_N_TEST: return fix_apply(s, n);
    case JINJA_N_COND: return fix_cond(s, n);
    case JINJA_N_AND:
    case JINJA_N_OR:
    case JINJA_N_NOT:
    case JINJA_N_NEG:
    case JINJA_N_POS:
    case JINJA_N_BINARY:
    case JINJA_N_GETITEM:
    case JINJA_N_SLICE:
        if (n->a) JINJA_TRY(fix_expr(s, n->a));
        if (n->b) JINJA_TRY(fix_expr(s, n->b));
        return n->c ? fix_expr(s, n->c) : 0;
    default: return 0;
    }
}

static int fix_expr(struct scope *s, struct jinja_node *n) {
    JINJA_TRY(enter(s, n->pos));
    JINJA_TRY(fix_expr_kind(s, n));
    s->guard.depth--;
    return 0;
}

static int fix_target(struct scope *s, struct jinja_node *n) {
    if (n->kind == JINJA_N_NSREF) return resolve(s, n->nsref.id, &n->nsref.ref);
    if (n->kind == JINJA_N_NAME) {
        n->name.ref = ref_of(s, s->names[n->name.id]);
        return 0;
    }
    JINJA_TRY(enter(s, n->pos));
    for (size_t i = 0; i < n->list.n; i++) JINJA_TRY(fix_target(s, n->list.items[i]));
    s->guard.depth--;
    return 0;
}

static bool assigns_loop(const struct scope *s, const struct jinja_node *n) {
    if (n->kind == JINJA_N_NAME) return n->name.id == s->id_loop;
    for (size_t i = 0; n->kind == JINJA_N_TUPLE && i < n->list.n; i++)
        if (assigns_loop(s, n->list.items[i])) return true;
    return false;
}

static int check_loop_name(struct scope *s, const struct jinja_node *target) {
    bool inside = false; /* any loop around, up to the template */
    for (const struct frame *f = s->frame; f && !inside; f = f->outer) inside = f->in_loop;
    if (!inside || !assigns_loop(s, target)) return 0;
    return jinja_syntax_error(s->t, s->err, QUIRE_EFORMAT, target->pos,
                              "'loop' cannot be assigned to in a loop");
}

static int fix_loop_test(struct scope *s, struct jinja_for *f) {
    struct function fn = {.outer = s->frame->function};
    struct frame frame;
    open_frame(s, &frame, &fn);
    JINJA_TRY(see_target(s, f->test_target, true));
    JINJA_TRY(see_expr(s, f->test));
    JINJA_TRY(fix_target(s, f->test_target));
    JINJA_TRY(fix_expr(s, f->test));
    JINJA_TRY(close_frame(s, &f->test_frame));
    f->test_slots = fn.n_slots;
    return 0;
}

static int fix_for(struct scope *s, struct jinja_for *f) {
    struct undeclared u = {.watch = {s->id_loop}, .n_watch = 1, .open = 1};
    JINJA_TRY(undeclared_body(s, &f->body, &u));
    f->extended = f->recursive || u.used || s->t->has_scoped_block;
    JINJA_TRY(fix_expr(s, f->iter));
    if (f->test) JINJA_TRY(fix_loop_test(s, f));

    struct function fn = {.outer = s->frame->function};
    struct frame frame;
    open_frame(s, &frame, f->recursive ? &fn : NULL);
    frame.in_loop = true;
    JINJA_TRY(check_loop_name(s, f->target));
    if (f->extended) JINJA_TRY(declare_param(s, s->id_loop, &f->loop_slot));
    JINJA_TRY(see_target(s, f->target, true));
    JINJA_TRY(see_body(s, &f->body));
    JINJA_TRY(fix_target(s, f->target));
    JINJA_TRY(fix_body(s, &f->body));
    JINJA_TRY(close_frame(s, &f->body_frame));

    if (f->otherwise.n) {
        open_frame(s, &frame, f->recursive ? &fn : NULL);
        JINJA_TRY(see_body(s, &f->otherwise));
        JINJA_TRY(fix_body(s, &f->otherwise));
        JINJA_TRY(close_frame(s, &f->else_frame));
    }
    f->n_slots = fn.n_slots;
    return 0;
}

static int fix_if(struct scope *s, struct jinja_node *n) {
    struct frame *f = s->frame;
    bool soft = f->soft;
    f->soft = true;
    for (size_t i = 0; i < n->cond.n; i++) {
        JINJA_TRY(fix_expr(s, n->cond.branches[i].test));
        JINJA_TRY(fix_body(s, &n->cond.branches[i].body));
    }
    JINJA_TRY(fix_body(s, &n->cond.otherwise));
    f->soft = soft;
    return 0;
}

static int fix_macro_body(struct scope *s, struct jinja_node *n) {
    struct jinja_macro_def *def = n->macro.def;
    struct function fn = {.outer = s->frame->function};
    struct frame frame;
    open_frame(s, &frame, &fn);
    for (size_t i = 0; i < def->n_params; i++)
        JINJA_TRY(declare_param(s, def->param_nodes[i]->name.id, NULL));
    for (size_t i = 0; i < def->n_defaults; i++) JINJA_TRY(see_expr(s, def->defaults[i]));
    JINJA_TRY(see_body(s, &def->body));

    struct undeclared u = {.watch = {s->id_caller, s->id_kwargs, s->id_varargs}, .n_watch = 3, .open = 7};
    JINJA_TRY(undeclared_body(s, &def->body, &u));
    bool own[3] = {false, false, false}; /* a parameter of that name */
    for (size_t i = 0; i < def->n_params; i++)
        for (int w = 0; w < 3; w++) own[w] = own[w] || def->param_nodes[i]->name.id == u.watch[w];
    def->uses_caller = u.used & 1;
    def->uses_kwargs = (u.used & 2) && !own[1];
    def->uses_varargs = (u.used & 4) && !own[2];
    if (def->uses_caller && own[0]) {
        size_t i = 0;
        while (def->param_nodes[i]->name.id != s->id_caller) i++;
        if (i < def->n_params - def->n_defaults)
            return jinja_syntax_error(s->t, s->err, QUIRE_EFORMAT, n->pos,
                                      "the parameter 'caller' must be left out or be given a default");
    } else if (def->uses_caller) {
        JINJA_TRY(declare_param(s, s->id_caller, &def->caller_slot));
    }
    if (def->uses_kwargs) JINJA_TRY(declare_param(s, s->id_kwargs, &def->kwargs_slot));
    if (def->uses_varargs) JINJA_TRY(declare_param(s, s->id_varargs, &def->varargs_slot));

    for (size_t i = 0; i < def->n_params; i++) JINJA_TRY(fix_target(s, def->param_nodes[i]));
    for (size_t i = 0; i < def->n_defaults; i++) JINJA_TRY(fix_expr(s, def->defaults[i]));
    JINJA_TRY(fix_body(s, &def->body));
    JINJA_TRY(close_frame(s, &def->frame));
    def->n_slots = fn.n_slots;
    return 0;
}

static int fix_macro(struct scope *s, struct jinja_node *n) {
    JINJA_TRY(fix_macro_body(s, n));
    if (n->kind == JINJA_N_CALL_BLOCK) return n->macro.target ? fix_expr(s, n->macro.target) : 0;
    n->toplevel = s->frame->toplevel;
    return fix_target(s, n->macro.target);
}

static int fix_set(struct scope *s, struct jinja_node *n) {
    JINJA_TRY(check_loop_name(s, n->set.target));
    n->toplevel = s->frame->toplevel;
    if (n->kind == JINJA_N_SET) {
        JINJA_TRY(fix_target(s, n->set.target));
        return fix_expr(s, n->set.value);
    }
    struct frame frame;
    open_frame(s, &frame, NULL);
    JINJA_TRY(see_body(s, &n->set.body));
    if (n->set.value) JINJA_TRY(see_expr(s, n->set.value));
    JINJA_TRY(fix_body(s, &n->set.body));
    if (n->set.value) JINJA_TRY(fix_expr(s, n->set.value));
    JINJA_TRY(close_frame(s, &n->set.frame));
    return fix_target(s, n->set.target);
}

static int fix_filter_block(struct scope *s, struct jinja_node *n) {
    struct frame frame;
    open_frame(s, &frame, NULL);
    JINJA_TRY(see_body(s, &n->set.body));
    JINJA_TRY(see_expr(s, n->set.value));
    JINJA_TRY(fix_body(s, &n->set.body));
    JINJA_TRY(fix_expr(s, n->set.value));
    return close_frame(s, &n->set.frame);
}

static int fix_with(struct scope *s, struct jinja_node *n) {
    struct frame frame;
    JINJA_TRY(fix_list(s, &n->with.values));
    open_frame(s, &frame, NULL);
    for (size_t i = 0; i < n->with.targets.n; i++) JINJA_TRY(see_target(s, n->with.targets.items[i], true));
    JINJA_TRY(see_body(s, &n->with.body));
    for (size_t i = 0; i < n->with.targets.n; i++) JINJA_TRY(fix_target(s, n->with.targets.items[i]));
    JINJA_TRY(fix_body(s, &n->with.body));
    return close_frame(s, &n->with.frame);
}

/* A scoped block sees every variable that is set where it stands. */
static int list_seen(struct scope *s, struct jinja_block *b) {
    size_t n = 0;
    for (size_t id = 0; id < s->t->n_names; id++) n += s->names[id] && s->names[id]->stored;
    b->seen = arena_array(&s->t->arena, n, sizeof *b->seen);
    b->seen_refs = arena_array(&s->t->arena, n, sizeof *b->seen_refs);
    if (!b->seen || !b->seen_refs) return no_memory(s);
    for (size_t id = 0; id < s->t->n_names; id++) {
        if (!s->names[id] || !s->names[id]->stored) continue;
        b->seen[b->n_seen] = (uint32_t)id;
        b->seen_refs[b->n_seen++] = ref_of(s, s->names[id]);
    }
    return 0;
}

/* A block is a function that knows nothing of the place where it stands but the render's variables. */
static int fix_block(struct scope *s, struct jinja_node *n) {
    struct jinja_block *b = n->block;
    for (size_t i = 0; i < s->n_blocks; i++)
        if (jinja_str_equal(s->blocks[i], b->name))
            return jinja_syntax_error(s->t, s->err, QUIRE_EFORMAT, n->pos, "block '%.*s' is defined twice",
                                      (int)(b->name->len < 60 ? b->name->len : 60), b->name->data);
    if (s->n_blocks == MAX_BLOCKS)
        return jinja_syntax_error(s->t, s->err, QUIRE_ELIMIT, n->pos, "more than %d blocks", MAX_BLOCKS);
    const struct jinja_str **more = arena_array(&s->t->arena, s->n_blocks + 1, sizeof *more);
    if (!more) return no_memory(s);
    if (s->n_blocks) memcpy(more, s->blocks, s->n_blocks * sizeof *more);
    s->blocks = more;
    s->blocks[s->n_blocks++] = b->name;
    if (b->scoped) JINJA_TRY(list_seen(s, b));

    struct entry **names = arena_array(&s->t->arena, s->t->n_names, sizeof *names);
    if (!names) return no_memory(s);
    struct entry **around = s->names;
    struct frame *outer = s->frame, frame;
    struct function fn = {0};
    s->names = names;
    s->frame = NULL;
    open_frame(s, &frame, &fn);
    JINJA_TRY(see_body(s, &b->body));
    JINJA_TRY(fix_body(s, &b->body));
    JINJA_TRY(close_frame(s, &b->frame));
    b->n_slots = fn.n_slots;
    s->names = around;
    s->frame = outer;
    return 0;
}

static int fix_stmt(struct scope *s, struct jinja_node *n) {
    switch ((enum jinja_kind)n->kind) {
    case JINJA_N_OUTPUT: return fix_list(s, &n->list);
    case JINJA_N_FOR: return fix_for(s, n->loop);
    case JINJA_N_IF: return fix_if(s, n);
    case JINJA_N_SET:
    case JINJA_N_SET_BLOCK: return fix_set(s, n);
    case JINJA_N_MACRO:
    case JINJA_N_CALL_BLOCK: return fix_macro(s, n);
    case JINJA_N_FILTER_BLOCK: return fix_filter_block(s, n);
    case JINJA_N_WITH:
    case JINJA_N_SCOPE: return fix_with(s, n);
    case JINJA_N_BLOCK: return fix_block(s, n);
    case JINJA_N_BREAK:
    case JINJA_N_CONTINUE:
        if (s->frame->in_loop) return 0;
        return jinja_syntax_error(s->t, s->err, QUIRE_EFORMAT, n->pos, "'%s' outside a loop",
                                  n->kind == JINJA_N_BREAK ? "break" : "continue");
    default: return 0;
    }
}

static int fix_body(struct scope *s, const struct jinja_nodes *body) {
    JINJA_TRY(enter(s, 0));
    for (size_t i = 0; i < body->n; i++) JINJA_TRY(fix_stmt(s, body->items[i]));
    s->guard.depth--;
    return 0;
}

int jinja_scope(struct jinja_template *t, struct error *err) {
    struct scope s = {.t = t, .err = err, .steps_left = MAX_STEPS};
    static const char *const special[] = {"loop", "caller", "kwargs", "varargs", "self", "super"};
    uint32_t *ids[] = {&s.id_loop, &s.id_caller, &s.id_kwargs, &s.id_varargs, &s.id_self, &s.id_super};
    jinja_guard_init(&s.guard, 4 * JINJA_MAX_NESTING);
    for (size_t i = 0; i < sizeof ids / sizeof *ids; i++) {
        *ids[i] = jinja_template_intern(t, special[i], strlen(special[i]));
        if (*ids[i] == UINT32_MAX) return no_memory(&s);
    }
    s.names = arena_array(&t->arena, t->n_names, sizeof *s.names);
    if (!s.names) return no_memory(&s);

    struct function fn = {0};
    struct frame frame;
    open_frame(&s, &frame, &fn);
    frame.toplevel = true;
    JINJA_TRY(see_body(&s, &t->body));
    JINJA_TRY(fix_body(&s, &t->body));
    JINJA_TRY(close_frame(&s, &t->frame));
    t->n_slots = fn.n_slots;
    return 0;
}
