/* Values of the template interpreter and the state of one render.
 *
 * Values are passed by value (16 bytes) and immutable, except what Jinja lets a template change: namespaces,
 * loops, generators, cyclers and joiners. All memory is the render's arena and goes with it. Lists and
 * objects of the input stay jansson's and are read where they lie. Semantics are Python's: `1 == 1.0 ==
 * true`, dicts keep insertion order, strings are sequences of code points; integers are 64 bits and fail on
 * overflow.
 *
 * Functions that can fail return 0, or a negative code whose text is already in the render's error (JINJA_TRY
 * hands it on). */
#ifndef TEXT_JINJA_VALUE_H
#define TEXT_JINJA_VALUE_H

#include "base/arena.h"
#include "text/jinja_str.h"

#include <quire/error.h>

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum jinja_type {
    JINJA_MISSING, /* no value at all: an argument not given, a variable not set */
    JINJA_UNDEFINED,
    JINJA_NONE,
    JINJA_BOOL,
    JINJA_INT,
    JINJA_FLOAT,
    JINJA_STR,
    JINJA_LIST,
    JINJA_TUPLE,
    JINJA_DICT,
    JINJA_JSON_ARRAY,  /* a list of the input */
    JINJA_JSON_OBJECT, /* a dict of the input */
    JINJA_RANGE,
    JINJA_VIEW, /* dict.keys(), .values(), .items() */
    JINJA_ITER, /* a generator: one pass, no length */
    JINJA_NAMESPACE,
    JINJA_MACRO,
    JINJA_LOOP,
    JINJA_METHOD,   /* a method bound to its object */
    JINJA_FUNCTION, /* a global function */
    JINJA_CYCLER,
    JINJA_JOINER
};

struct jinja_list;
struct jinja_dict;
struct jinja_range;
struct jinja_view;
struct jinja_iter;
struct jinja_macro;
struct jinja_loop;
struct jinja_bound;
struct jinja_function;
struct jinja_cycler;
struct jinja_joiner;
struct jinja_undefined;

struct jinja_value {
    uint8_t type;    /* enum jinja_type */
    uint8_t content; /* a number or boolean read from the input: its digits are content when printed */
    union {
        bool b;
        int64_t i;
        double f;
        const struct jinja_str *s;
        const struct jinja_list *list; /* LIST, TUPLE */
        struct jinja_dict *dict;       /* DICT, NAMESPACE */
        json_t *json;                  /* JSON_ARRAY, JSON_OBJECT */
        const struct jinja_range *range;
        const struct jinja_view *view;
        struct jinja_iter *iter;
        const struct jinja_macro *macro;
        struct jinja_loop *loop;
        const struct jinja_bound *bound;
        const struct jinja_function *function;
        struct jinja_cycler *cycler;
        struct jinja_joiner *joiner;
        const struct jinja_undefined *undefined; /* may be NULL */
    };
};

struct jinja_list {
    const struct jinja_value *items;
    size_t n;
    bool group; /* a pair made by groupby: has .grouper and .list */
};

struct jinja_range {
    int64_t start, stop, step;
    size_t n;
};

enum jinja_view_kind { JINJA_VIEW_KEYS, JINJA_VIEW_VALUES, JINJA_VIEW_ITEMS };

struct jinja_view {
    struct jinja_value of; /* DICT or JSON_OBJECT */
    enum jinja_view_kind kind;
};

/* Why something is undefined, for the error that using it raises. */
struct jinja_undefined {
    const char *hint;             /* whole message, or NULL */
    const char *object_type;      /* "dict object"; NULL: a variable */
    const struct jinja_str *name; /* attribute, key or variable */
    bool is_key;                  /* name is the text of a key that is no string */
    bool unsafe;                  /* the attribute exists in Python but templates may not touch it */
};

struct jinja_cycler {
    const struct jinja_value *items;
    size_t n, pos;
};

struct jinja_joiner {
    const struct jinja_str *separator;
    bool used;
};

/* Bound of recursion of one thread: a count, which is deterministic, and the stack really used, which is what
 * must not run out on a small thread. */
struct jinja_guard {
    size_t depth, max_depth;
    uintptr_t stack_base;
};

/* Stack that compiling or rendering may use beyond its caller's: leaves room on a 256 KiB thread. */
#define JINJA_STACK_BYTES (128 * 1024)

void jinja_guard_init(struct jinja_guard *g, size_t max_depth);
static inline bool jinja_guard_enter(struct jinja_guard *g) {
    uintptr_t here = (uintptr_t)__builtin_frame_address(0);
    uintptr_t used = here < g->stack_base ? g->stack_base - here : here - g->stack_base;
    if (g->depth >= g->max_depth || used > JINJA_STACK_BYTES) return false;
    g->depth++;
    return true;
}

struct jinja_template;
struct jinja_sink;

struct jinja {
    struct arena arena;
    struct error *err;
    const struct jinja_template *tmpl;
    struct jinja_value *context; /* [tmpl->n_names] variables and globals; MISSING where there is none */
    struct jinja_guard guard;
    size_t steps_left;
    size_t max_string_bytes;
    struct jinja_sb *capture; /* where output goes: a set block, macro, ...; NULL: to the sink */
    struct jinja_sink *sink;
    uint32_t pos;                    /* offset in the source of what is being evaluated */
    struct jinja_value filter_input; /* what the innermost filter of a set or filter block applies to */
    int64_t now_unix_s;
};

#define JINJA_TRY(call)                                                                                      \
    do {                                                                                                     \
        int try_rc_ = (call);                                                                                \
        if (try_rc_) return try_rc_;                                                                         \
    } while (0)

/* Sets the error "chat template, line N: ..." and returns code. */
int jinja_fail(struct jinja *j, int code, const char *fmt, ...) __attribute__((format(printf, 3, 4)));
int jinja_fail_memory(struct jinja *j);

void *jinja_alloc(struct jinja *j, size_t n);              /* NULL: the error is set */
void *jinja_array(struct jinja *j, size_t n, size_t size); /* zeroed; NULL: the error is set */
int jinja_fail_steps(struct jinja *j);
int jinja_fail_depth(struct jinja *j);

/* Takes n steps from the budget. */
static inline int jinja_steps(struct jinja *j, size_t n) {
    if (n > j->steps_left) return jinja_fail_steps(j);
    j->steps_left -= n;
    return 0;
}
/* One level deeper; jinja_leave if it gives 0. */
static inline int jinja_enter(struct jinja *j) {
    return jinja_guard_enter(&j->guard) ? 0 : jinja_fail_depth(j);
}
static inline void jinja_leave(struct jinja *j) {
    j->guard.depth--;
}

static inline struct jinja_value jinja_none(void) {
    return (struct jinja_value){.type = JINJA_NONE};
}
static inline struct jinja_value jinja_bool(bool b) {
    return (struct jinja_value){.type = JINJA_BOOL, .b = b};
}
static inline struct jinja_value jinja_int(int64_t i) {
    return (struct jinja_value){.type = JINJA_INT, .i = i};
}
static inline struct jinja_value jinja_float(double f) {
    return (struct jinja_value){.type = JINJA_FLOAT, .f = f};
}
static inline struct jinja_value jinja_of_str(const struct jinja_str *s) {
    return (struct jinja_value){.type = JINJA_STR, .s = s};
}
int jinja_from_json(struct jinja *j, json_t *json, struct jinja_value *out);

/* The member of an object of the input. A `role` that is one of the API's own words counts as the template's
 * text, so that templates which spell a token around it ("<|" + role + "|>") work; nothing else can be
 * smuggled in by it. */
int jinja_from_member(struct jinja *j, const char *key, size_t key_len, json_t *json,
                      struct jinja_value *out);

/* items are kept, not copied. */
int jinja_list_new(struct jinja *j, const struct jinja_value *items, size_t n, enum jinja_type type,
                   struct jinja_value *out);
int jinja_pair_new(struct jinja *j, struct jinja_value a, struct jinja_value b, struct jinja_value *out);

/* A growing array of values. */
struct jinja_vec {
    struct jinja_value *items;
    size_t n, cap;
};
int jinja_vec_push(struct jinja *j, struct jinja_vec *v, struct jinja_value item);

/* Undefined values. key: the name looked up in object. */
int jinja_undefined_name(struct jinja *j, const struct jinja_str *name, struct jinja_value *out);
int jinja_undefined_member(struct jinja *j, struct jinja_value object, struct jinja_value key,
                           struct jinja_value *out);
int jinja_undefined_unsafe(struct jinja *j, struct jinja_value object, const struct jinja_str *name,
                           struct jinja_value *out);
int jinja_undefined_hint(struct jinja *j, const char *hint, struct jinja_value *out); /* hint: static */
int jinja_fail_undefined(struct jinja *j, struct jinja_value v); /* the error of using v */

const char *jinja_type_name(struct jinja_value v); /* "int", "dict", ... */
const char *
jinja_object_name(struct jinja_value v); /* "dict object", "None", ... as Jinja's messages have it */

static inline bool jinja_is_int(struct jinja_value v) {
    return v.type == JINJA_INT || v.type == JINJA_BOOL;
}
static inline bool jinja_is_number(struct jinja_value v) {
    return jinja_is_int(v) || v.type == JINJA_FLOAT;
}
static inline int64_t jinja_as_int(struct jinja_value v) {
    return v.type == JINJA_BOOL ? v.b : v.i;
}
static inline double jinja_as_float(struct jinja_value v) {
    return v.type == JINJA_FLOAT ? v.f : (double)jinja_as_int(v);
}
static inline bool jinja_is_list(struct jinja_value v) {
    return v.type == JINJA_LIST || v.type == JINJA_JSON_ARRAY;
}
static inline bool jinja_is_dict(struct jinja_value v) {
    return v.type == JINJA_DICT || v.type == JINJA_JSON_OBJECT;
}

/* len(v) of sized types; *has = false for the others. */
int jinja_length(struct jinja *j, struct jinja_value v, size_t *n, bool *has);
bool jinja_truth(struct jinja *j, struct jinja_value v);

/* Item i < length of a list, tuple, input array or range. */
int jinja_seq_at(struct jinja *j, struct jinja_value v, size_t i, struct jinja_value *out);

/* str(v) and repr(v). */
int jinja_to_str(struct jinja *j, struct jinja_value v, const struct jinja_str **out);
int jinja_repr(struct jinja *j, struct jinja_value v, struct jinja_sb *out);

/* Shortest text that reads back to the same double, as Python's repr writes it, without a NUL. Returns its
 * length. */
size_t jinja_float_text(double f, char out[32]);

#endif
