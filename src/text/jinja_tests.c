#include "text/jinja_tests.h"
#include "text/jinja_filters.h"
#include "text/jinja_iter.h"
#include "text/jinja_methods.h"
#include "text/jinja_ops.h"

struct jinja_test {
    const char *name, *params;
    int (*call)(struct jinja *j, struct jinja_value v, const struct jinja_value *arg, bool *out);
    enum jinja_op op; /* comparisons: call is NULL */
};

#define TEST_TYPE(name, condition)                                                                           \
    static int name(struct jinja *j, struct jinja_value v, const struct jinja_value *arg, bool *out) {       \
        *out = (condition);                                                                                  \
        return 0;                                                                                            \
    }

TEST_TYPE(t_defined, v.type != JINJA_UNDEFINED)
TEST_TYPE(t_undefined, v.type == JINJA_UNDEFINED)
TEST_TYPE(t_none, v.type == JINJA_NONE)
TEST_TYPE(t_boolean, v.type == JINJA_BOOL)
TEST_TYPE(t_true, v.type == JINJA_BOOL && v.b)
TEST_TYPE(t_false, v.type == JINJA_BOOL && !v.b)
TEST_TYPE(t_integer, v.type == JINJA_INT)
TEST_TYPE(t_float, v.type == JINJA_FLOAT)
TEST_TYPE(t_number, jinja_is_number(v))
TEST_TYPE(t_string, v.type == JINJA_STR)
TEST_TYPE(t_mapping, jinja_is_dict(v))
TEST_TYPE(t_iterable, jinja_is_iterable(v))
TEST_TYPE(t_escaped, v.type == JINJA_STR && v.s->markup)
TEST_TYPE(t_sameas, jinja_same(v, arg[0]))
TEST_TYPE(t_callable, v.type == JINJA_MACRO || v.type == JINJA_LOOP || v.type == JINJA_METHOD ||
                          v.type == JINJA_FUNCTION || v.type == JINJA_JOINER || v.type == JINJA_UNDEFINED)

static int t_sequence(struct jinja *j, struct jinja_value v, const struct jinja_value *arg,
                      bool *out) { /* has a length and can be indexed */
    switch ((enum jinja_type)v.type) {
    case JINJA_UNDEFINED:
    case JINJA_STR:
    case JINJA_LIST:
    case JINJA_TUPLE:
    case JINJA_DICT:
    case JINJA_JSON_ARRAY:
    case JINJA_JSON_OBJECT:
    case JINJA_RANGE: *out = true; break;
    default: *out = false; break;
    }
    return 0;
}

static int remainder_is(struct jinja *j, struct jinja_value v, struct jinja_value by, int64_t wanted,
                        bool *out) {
    struct jinja_value r;
    JINJA_TRY(jinja_binary(j, JINJA_OP_MOD, v, by, &r));
    return jinja_equal(j, r, jinja_int(wanted), out);
}

static int t_odd(struct jinja *j, struct jinja_value v, const struct jinja_value *arg, bool *out) {
    return remainder_is(j, v, jinja_int(2), 1, out);
}
static int t_even(struct jinja *j, struct jinja_value v, const struct jinja_value *arg, bool *out) {
    return remainder_is(j, v, jinja_int(2), 0, out);
}
static int t_divisibleby(struct jinja *j, struct jinja_value v, const struct jinja_value *arg, bool *out) {
    return remainder_is(j, v, arg[0], 0, out);
}

static int is_cased(struct jinja *j, struct jinja_value v, bool upper, bool *out) {
    const struct jinja_str *s;
    JINJA_TRY(jinja_to_str(j, v, &s));
    *out = jinja_str_is_cased(s, upper);
    return jinja_steps(j, s->len / 64);
}

static int t_lower(struct jinja *j, struct jinja_value v, const struct jinja_value *arg, bool *out) {
    return is_cased(j, v, false, out);
}
static int t_upper(struct jinja *j, struct jinja_value v, const struct jinja_value *arg, bool *out) {
    return is_cased(j, v, true, out);
}

static int t_filter(struct jinja *j, struct jinja_value v, const struct jinja_value *arg, bool *out) {
    *out = v.type == JINJA_STR && jinja_filter_find(v.s);
    return 0;
}

static int t_test(struct jinja *j, struct jinja_value v, const struct jinja_value *arg, bool *out) {
    *out = v.type == JINJA_STR && jinja_test_find(v.s);
    return 0;
}

static const struct jinja_test tests[] = {
    {"defined", "", t_defined, 0},
    {"undefined", "", t_undefined, 0},
    {"none", "", t_none, 0},
    {"string", "", t_string, 0},
    {"mapping", "", t_mapping, 0},
    {"iterable", "", t_iterable, 0},
    {"sequence", "", t_sequence, 0},
    {"true", "", t_true, 0},
    {"false", "", t_false, 0},
    {"boolean", "", t_boolean, 0},
    {"number", "", t_number, 0},
    {"integer", "", t_integer, 0},
    {"float", "", t_float, 0},
    {"odd", "", t_odd, 0},
    {"even", "", t_even, 0},
    {"divisibleby", "num", t_divisibleby, 0},
    {"lower", "", t_lower, 0},
    {"upper", "", t_upper, 0},
    {"callable", "/", t_callable, 0},
    {"sameas", "other", t_sameas, 0},
    {"escaped", "", t_escaped, 0},
    {"filter", "", t_filter, 0},
    {"test", "", t_test, 0},
    {"in", "seq", NULL, JINJA_OP_IN},
    {"==", "/other", NULL, JINJA_OP_EQ},
    {"eq", "/other", NULL, JINJA_OP_EQ},
    {"equalto", "/other", NULL, JINJA_OP_EQ},
    {"!=", "/other", NULL, JINJA_OP_NE},
    {"ne", "/other", NULL, JINJA_OP_NE},
    {">", "/other", NULL, JINJA_OP_GT},
    {"gt", "/other", NULL, JINJA_OP_GT},
    {"greaterthan", "/other", NULL, JINJA_OP_GT},
    {">=", "/other", NULL, JINJA_OP_GE},
    {"ge", "/other", NULL, JINJA_OP_GE},
    {"<", "/other", NULL, JINJA_OP_LT},
    {"lt", "/other", NULL, JINJA_OP_LT},
    {"lessthan", "/other", NULL, JINJA_OP_LT},
    {"<=", "/other", NULL, JINJA_OP_LE},
    {"le", "/other", NULL, JINJA_OP_LE},
};

const struct jinja_test *jinja_test_find(const struct jinja_str *name) {
    for (size_t i = 0; i < sizeof tests / sizeof *tests; i++)
        if (jinja_str_is(name, tests[i].name)) return &tests[i];
    return NULL;
}

int jinja_test_call(struct jinja *j, const struct jinja_test *t, struct jinja_value value,
                    const struct jinja_args *args, bool *out) {
    struct jinja_value bound[JINJA_MAX_PARAMS];
    JINJA_TRY(jinja_bind(j, t->name, t->params, args, bound));
    return t->call ? t->call(j, value, bound, out) : jinja_compare(j, t->op, value, bound[0], out);
}
