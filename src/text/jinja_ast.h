/* The tree of a compiled template. Made by jinja_parse, completed by jinja_scope (names become slots), walked
 * by jinja_eval; immutable from then on and shared by all renders.
 *
 * Scoping is Jinja's, which is Python's: a template, macro, call block, recursive loop, loop filter or block
 * is a function with slots of its own; functions inside see the slots of those around them (by reference).
 * Loops, `with`, set and filter blocks are frames inside a function; a frame lists what its slots are loaded
 * with each time it is entered. */
#ifndef TEXT_JINJA_AST_H
#define TEXT_JINJA_AST_H

#include "base/arena.h"
#include "text/jinja_value.h"

struct jinja_filter;
struct jinja_test;

enum jinja_kind {
    /* expressions */
    JINJA_N_CONST,
    JINJA_N_NAME,
    JINJA_N_LIST,  /* list: literal */
    JINJA_N_TUPLE, /* list: literal, or a target */
    JINJA_N_DICT,  /* list: key, value, key, value, ... */
    JINJA_N_AND,
    JINJA_N_OR,
    JINJA_N_NOT,
    JINJA_N_NEG,
    JINJA_N_POS,
    JINJA_N_BINARY,
    JINJA_N_COMPARE,
    JINJA_N_CONCAT, /* list */
    JINJA_N_COND,
    JINJA_N_GETATTR,
    JINJA_N_GETITEM,
    JINJA_N_SLICE, /* only as the argument of GETITEM; parts may be NULL */
    JINJA_N_CALL,
    JINJA_N_FILTER,
    JINJA_N_TEST,
    JINJA_N_NSREF, /* only as a target */
    /* statements */
    JINJA_N_OUTPUT, /* list */
    JINJA_N_FOR,
    JINJA_N_IF,
    JINJA_N_SET,
    JINJA_N_SET_BLOCK,
    JINJA_N_MACRO,
    JINJA_N_CALL_BLOCK, /* callee NULL: the `generation` tag */
    JINJA_N_FILTER_BLOCK,
    JINJA_N_WITH,
    JINJA_N_SCOPE,
    JINJA_N_BLOCK,
    JINJA_N_BREAK,
    JINJA_N_CONTINUE
};

enum jinja_op {
    JINJA_OP_ADD,
    JINJA_OP_SUB,
    JINJA_OP_MUL,
    JINJA_OP_DIV,
    JINJA_OP_FLOORDIV,
    JINJA_OP_MOD,
    JINJA_OP_POW,
    JINJA_OP_EQ,
    JINJA_OP_NE,
    JINJA_OP_LT,
    JINJA_OP_LE,
    JINJA_OP_GT,
    JINJA_OP_GE,
    JINJA_OP_IN,
    JINJA_OP_NOT_IN
};

struct jinja_nodes {
    struct jinja_node **items;
    size_t n;
};

/* A slot seen from some function: `hops` functions outward. */
struct jinja_ref {
    uint32_t hops, slot;
};

/* What a slot gets when its frame is entered. */
enum jinja_load_kind {
    JINJA_LOAD_NOTHING,   /* a parameter or loop variable: filled by whoever enters */
    JINJA_LOAD_UNDEFINED, /* not set yet */
    JINJA_LOAD_CONTEXT,   /* the render's variable of this name */
    JINJA_LOAD_OUTER      /* a copy of the variable of the same name outside */
};

struct jinja_load {
    enum jinja_load_kind kind;
    uint32_t slot;
    uint32_t name;          /* CONTEXT */
    struct jinja_ref outer; /* OUTER */
};

struct jinja_frame {
    const struct jinja_load *loads;
    size_t n_loads;
};

struct jinja_call_args {
    struct jinja_nodes pos;
    const struct jinja_str **kw_names;
    struct jinja_nodes kw;
    struct jinja_node *star, *star_star; /* *args and **kwargs, or NULL */
};

/* A macro or the body of a call block. */
struct jinja_macro_def {
    const struct jinja_str *name;    /* NULL: a call block */
    struct jinja_node **param_nodes; /* [n_params] NAME */
    size_t n_params;
    struct jinja_node **defaults; /* of the last n_defaults parameters */
    size_t n_defaults;
    struct jinja_nodes body;
    size_t n_slots;
    struct jinja_frame frame;
    bool has_caller_param;                       /* `caller` is among params */
    bool uses_caller, uses_kwargs, uses_varargs; /* as variables of the body */
    uint32_t caller_slot, kwargs_slot, varargs_slot;
};

struct jinja_branch {
    struct jinja_node *test;
    struct jinja_nodes body;
};

struct jinja_for {
    struct jinja_node *target, *iter, *test; /* test may be NULL */
    struct jinja_nodes body, otherwise;
    bool recursive, extended; /* extended: `loop` is used */
    struct jinja_frame body_frame, else_frame, test_frame;
    uint32_t loop_slot;
    struct jinja_node *test_target; /* the target again, with the filter function's slots */
    size_t test_slots;              /* of the filter function */
    size_t n_slots;                 /* recursive: of the loop function */
};

struct jinja_node {
    uint8_t kind;  /* enum jinja_kind */
    uint8_t op;    /* enum jinja_op of BINARY */
    bool toplevel; /* SET, SET_BLOCK, MACRO: also a variable of the render */
    uint32_t pos;  /* offset in the source */
    union {
        struct jinja_value constant;
        struct {
            uint32_t id; /* index of tmpl->names */
            struct jinja_ref ref;
        } name;
        struct jinja_nodes list;
        struct {
            struct jinja_node *a, *b,
                *c; /* COND: test, then, else (NULL allowed); SLICE: start, stop, step */
        };
        struct {
            struct jinja_node *first;
            uint8_t *ops; /* [n] */
            struct jinja_node **others;
            size_t n;
        } compare;
        struct {
            struct jinja_node *object;
            const struct jinja_str *name;
            bool reserved; /* a dict may have a method of this name */
        } attr;
        struct {
            struct jinja_node *callee;
            struct jinja_call_args *args;
        } call;
        struct {
            struct jinja_node *subject; /* filter blocks: NULL innermost */
            const struct jinja_str *name;
            const struct jinja_filter *filter; /* NULL: unknown, an error once it is reached */
            const struct jinja_test *test;
            struct jinja_call_args *args;
        } apply;
        struct {
            uint32_t id;
            struct jinja_ref ref;
            const struct jinja_str *attr;
        } nsref;
        struct jinja_for *loop;
        struct {
            struct jinja_branch *branches;
            size_t n;
            struct jinja_nodes otherwise;
        } cond;
        struct {
            struct jinja_node *target, *value; /* SET; SET_BLOCK: value is the filter or NULL */
            struct jinja_nodes body;
            struct jinja_frame frame;
        } set; /* also FILTER_BLOCK: value */
        struct {
            struct jinja_macro_def *def;
            struct jinja_node *target; /* MACRO: NAME; CALL_BLOCK: the CALL */
        } macro;
        struct {
            struct jinja_nodes targets, values, body;
            struct jinja_frame frame;
        } with; /* SCOPE: no targets */
        struct jinja_block *block;
    };
};

struct jinja_block {
    const struct jinja_str *name;
    bool scoped;
    struct jinja_nodes body;
    struct jinja_frame frame;
    size_t n_slots;
    /* scoped: names that the block sees as the place where it stands does */
    uint32_t *seen;
    struct jinja_ref *seen_refs;
    size_t n_seen;
};

struct jinja_template {
    struct arena arena;
    const char *source; /* newlines normalized, one at the end removed */
    size_t source_len;
    const struct jinja_str **names; /* [n_names] all variable names */
    size_t n_names;
    uint32_t *name_table; /* hash table of the parser: name index + 1 */
    size_t name_table_cap;
    struct jinja_nodes body;
    struct jinja_frame frame;
    size_t n_slots;
    bool has_scoped_block;
};

struct jinja_place {
    size_t line, column; /* from 1; columns count code points */
};

/* Compiles (lexes, parses, resolves) a source of at most JINJA_MAX_SOURCE_BYTES. QUIRE_EFORMAT,
 * QUIRE_EUNSUPPORTED or QUIRE_ELIMIT with line and column. */
#define JINJA_MAX_SOURCE_BYTES (256u << 10)
int jinja_template_compile(const char *source, size_t len, struct jinja_template **out, struct error *err);
void jinja_template_free(struct jinja_template *t); /* NULL allowed */

struct jinja_place jinja_template_place(const struct jinja_template *t, uint32_t pos);

/* Index of a variable name in t->names, added if it is new; UINT32_MAX when memory is exhausted. Only while
 * compiling. */
uint32_t jinja_template_intern(struct jinja_template *t, const char *name, size_t len);
/* The same without adding: UINT32_MAX if the template does not mention it. */
uint32_t jinja_template_find(const struct jinja_template *t, const char *name, size_t len);

#endif
