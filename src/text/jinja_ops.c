/* Arithmetic, comparison, containment. */
#include "text/jinja_ops.h"
#include "base/size.h"
#include "text/jinja_dict.h"
#include "text/jinja_format.h"
#include "text/jinja_iter.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static int type_error(struct jinja *j, const char *op, struct jinja_value a, struct jinja_value b) {
    return jinja_fail(j, QUIRE_EINVAL, "unsupported operand type(s) for %s: '%s' and '%s'", op,
                      jinja_type_name(a), jinja_type_name(b));
}

int jinja_need_int(struct jinja *j, const char *what, struct jinja_value v, int64_t *out) {
    if (v.type == JINJA_UNDEFINED) return jinja_fail_undefined(j, v);
    if (!jinja_is_int(v))
        return jinja_fail(j, QUIRE_EINVAL, "%s must be an integer, not '%s'", what, jinja_type_name(v));
    *out = jinja_as_int(v);
    return 0;
}

int jinja_need_str(struct jinja *j, const char *what, struct jinja_value v, const struct jinja_str **out) {
    if (v.type == JINJA_UNDEFINED) return jinja_fail_undefined(j, v);
    if (v.type != JINJA_STR)
        return jinja_fail(j, QUIRE_EINVAL, "%s must be a string, not '%s'", what, jinja_type_name(v));
    *out = v.s;
    return 0;
}

/* ---- comparison ---- */

/* Exact, also where the integer has no double of its own. NaN: 2. */
static int compare_int_float(int64_t i, double f) {
    if (isnan(f)) return 2;
    if (f >= 0x1p63) return -1;
    if (f < -0x1p63) return 1;
    int64_t whole = (int64_t)f;
    if (i != whole) return i < whole ? -1 : 1;
    double rest = f - (double)whole;
    return rest > 0 ? -1 : rest < 0 ? 1 : 0;
}

/* -1, 0, 1, or 2 if unordered. */
static int compare_numbers(struct jinja_value a, struct jinja_value b) {
    if (a.type == JINJA_FLOAT && b.type == JINJA_FLOAT)
        return isnan(a.f) || isnan(b.f) ? 2 : (a.f > b.f) - (a.f < b.f);
    if (a.type == JINJA_FLOAT) {
        int c = compare_int_float(jinja_as_int(b), a.f);
        return c == 2 ? 2 : -c;
    }
    if (b.type == JINJA_FLOAT) return compare_int_float(jinja_as_int(a), b.f);
    int64_t x = jinja_as_int(a), y = jinja_as_int(b);
    return (x > y) - (x < y);
}

bool jinja_same(struct jinja_value a, struct jinja_value b) {
    if (a.type != b.type) return false;
    switch ((enum jinja_type)a.type) {
    case JINJA_NONE:
    case JINJA_MISSING: return true;
    case JINJA_BOOL: return a.b == b.b;
    case JINJA_INT: return a.i == b.i;
    case JINJA_FLOAT: return memcmp(&a.f, &b.f, sizeof a.f) == 0;
    case JINJA_STR: return a.s == b.s || (a.s->data == b.s->data && a.s->len == b.s->len);
    case JINJA_METHOD: return false;
    default: return a.json == b.json; /* any pointer of the union */
    }
}

static int equal_sequences(struct jinja *j, struct jinja_value a, struct jinja_value b, bool *out) {
    size_t n, m;
    bool sized;
    JINJA_TRY(jinja_length(j, a, &n, &sized));
    JINJA_TRY(jinja_length(j, b, &m, &sized));
    *out = n == m;
    for (size_t i = 0; i < n && *out; i++) {
        struct jinja_value x, y;
        JINJA_TRY(jinja_seq_at(j, a, i, &x));
        JINJA_TRY(jinja_seq_at(j, b, i, &y));
        JINJA_TRY(jinja_equal(j, x, y, out));
    }
    return 0;
}

static int equal_mappings(struct jinja *j, struct jinja_value a, struct jinja_value b, bool *out) {
    struct jinja_cursor c = {0};
    *out = jinja_mapping_size(a) == jinja_mapping_size(b);
    while (*out) {
        struct jinja_value key, value, other;
        bool done;
        JINJA_TRY(jinja_mapping_next(j, a, &c, &key, &value, &done));
        if (done) return 0;
        JINJA_TRY(jinja_mapping_get(j, b, key, &other, out));
        if (*out) JINJA_TRY(jinja_equal(j, value, other, out));
    }
    return 0;
}

static int equal_ranges(const struct jinja_range *a, const struct jinja_range *b, bool *out) {
    *out = a->n == b->n && (a->n == 0 || (a->start == b->start && (a->n == 1 || a->step == b->step)));
    return 0;
}

static int equal_deep(struct jinja *j, struct jinja_value a, struct jinja_value b, bool *out) {
    if ((jinja_is_list(a) && jinja_is_list(b)) || (a.type == JINJA_TUPLE && b.type == JINJA_TUPLE))
        return equal_sequences(j, a, b, out);
    if (jinja_is_dict(a) && jinja_is_dict(b)) return equal_mappings(j, a, b, out);
    if (a.type == JINJA_RANGE && b.type == JINJA_RANGE) return equal_ranges(a.range, b.range, out);
    *out = jinja_same(a, b);
    return 0;
}

int jinja_equal(struct jinja *j, struct jinja_value a, struct jinja_value b, bool *out) {
    JINJA_TRY(jinja_steps(j, 1));
    if (jinja_is_number(a) && jinja_is_number(b)) {
        *out = compare_numbers(a, b) == 0;
        return 0;
    }
    if (a.type == JINJA_STR && b.type == JINJA_STR) {
        *out = jinja_str_equal(a.s, b.s);
        return *out && a.s->len >= 256 ? jinja_steps(j, a.s->len / 256) : 0;
    }
    if (a.type == JINJA_UNDEFINED || b.type == JINJA_UNDEFINED) {
        *out = a.type == b.type;
        return 0;
    }
    JINJA_TRY(jinja_enter(j));
    JINJA_TRY(equal_deep(j, a, b, out));
    jinja_leave(j);
    return 0;
}

static bool order_holds(enum jinja_op op, int c) {
    if (c == 2) return false;
    switch (op) {
    case JINJA_OP_LT: return c < 0;
    case JINJA_OP_LE: return c <= 0;
    case JINJA_OP_GT: return c > 0;
    default: return c >= 0;
    }
}

static const char *order_name(enum jinja_op op) {
    return op == JINJA_OP_LT ? "<" : op == JINJA_OP_LE ? "<=" : op == JINJA_OP_GT ? ">" : ">=";
}

static int order(struct jinja *j, enum jinja_op op, struct jinja_value a, struct jinja_value b, bool *out);

/* Decided by the first items that differ, else by the lengths. */
static int order_sequences(struct jinja *j, enum jinja_op op, struct jinja_value a, struct jinja_value b,
                           bool *out) {
    size_t n, m;
    bool sized, same;
    JINJA_TRY(jinja_length(j, a, &n, &sized));
    JINJA_TRY(jinja_length(j, b, &m, &sized));
    for (size_t i = 0; i < n && i < m; i++) {
        struct jinja_value x, y;
        JINJA_TRY(jinja_seq_at(j, a, i, &x));
        JINJA_TRY(jinja_seq_at(j, b, i, &y));
        JINJA_TRY(jinja_equal(j, x, y, &same));
        if (!same) return order(j, op, x, y, out);
    }
    *out = order_holds(op, (n > m) - (n < m));
    return 0;
}

static int order(struct jinja *j, enum jinja_op op, struct jinja_value a, struct jinja_value b, bool *out) {
    JINJA_TRY(jinja_steps(j, 1));
    if (a.type == JINJA_UNDEFINED) return jinja_fail_undefined(j, a);
    if (b.type == JINJA_UNDEFINED) return jinja_fail_undefined(j, b);
    if (jinja_is_number(a) && jinja_is_number(b)) {
        *out = order_holds(op, compare_numbers(a, b));
        return 0;
    }
    if (a.type == JINJA_STR && b.type == JINJA_STR) {
        *out = order_holds(op, jinja_str_compare(a.s, b.s));
        return 0;
    }
    if ((jinja_is_list(a) && jinja_is_list(b)) || (a.type == JINJA_TUPLE && b.type == JINJA_TUPLE)) {
        JINJA_TRY(jinja_enter(j));
        JINJA_TRY(order_sequences(j, op, a, b, out));
        jinja_leave(j);
        return 0;
    }
    return jinja_fail(j, QUIRE_EINVAL, "'%s' not supported between instances of '%s' and '%s'",
                      order_name(op), jinja_type_name(a), jinja_type_name(b));
}

static int contains(struct jinja *j, struct jinja_value item, struct jinja_value in, bool *out) {
    struct jinja_value ignored;
    *out = false;
    if (in.type == JINJA_STR) {
        if (item.type != JINJA_STR)
            return jinja_fail(j, QUIRE_EINVAL, "'in <string>' requires string as left operand, not %s",
                              jinja_type_name(item));
        if (in.s->len >= 256) JINJA_TRY(jinja_steps(j, in.s->len / 256));
        *out = jinja_str_find(in.s, item.s, 0, in.s->len) >= 0;
        return 0;
    }
    if (jinja_is_dict(in)) return jinja_mapping_get(j, in, item, &ignored, out);
    if (!jinja_is_iterable(in))
        return jinja_fail(j, QUIRE_EINVAL, "argument of type '%s' is not iterable", jinja_type_name(in));
    struct jinja_iter it;
    JINJA_TRY(jinja_iter_start(j, &it, in));
    while (!*out) {
        struct jinja_value each;
        bool done;
        JINJA_TRY(jinja_iter_next(j, &it, &each, &done));
        if (done) return 0;
        *out = jinja_same(each, item);
        if (!*out) JINJA_TRY(jinja_equal(j, each, item, out));
    }
    return 0;
}

int jinja_compare(struct jinja *j, enum jinja_op op, struct jinja_value a, struct jinja_value b, bool *out) {
    switch (op) {
    case JINJA_OP_EQ: return jinja_equal(j, a, b, out);
    case JINJA_OP_NE: JINJA_TRY(jinja_equal(j, a, b, out)); break;
    case JINJA_OP_IN: return contains(j, a, b, out);
    case JINJA_OP_NOT_IN: JINJA_TRY(contains(j, a, b, out)); break;
    default: return order(j, op, a, b, out);
    }
    *out = !*out;
    return 0;
}

/* ---- arithmetic ---- */

static int overflow(struct jinja *j) {
    return jinja_fail(j, QUIRE_ELIMIT, "the result does not fit in a 64-bit integer");
}

static int zero_division(struct jinja *j) {
    return jinja_fail(j, QUIRE_EINVAL, "division by zero");
}

static int floordiv_int(struct jinja *j, int64_t a, int64_t b, struct jinja_value *out) {
    if (b == 0) return zero_division(j);
    if (b == -1) {
        if (a == INT64_MIN) return overflow(j);
        *out = jinja_int(-a);
        return 0;
    }
    *out = jinja_int(a / b - (a % b != 0 && (a < 0) != (b < 0)));
    return 0;
}

static int mod_int(struct jinja *j, int64_t a, int64_t b, struct jinja_value *out) {
    if (b == 0) return zero_division(j);
    int64_t r = b == -1 ? 0 : a % b;
    *out = jinja_int(r != 0 && (r < 0) != (b < 0) ? r + b : r);
    return 0;
}

static int pow_int(struct jinja *j, int64_t base, int64_t exponent, struct jinja_value *out) {
    int64_t result = 1;
    for (; exponent; exponent >>= 1) {
        if (exponent & 1 && __builtin_mul_overflow(result, base, &result)) return overflow(j);
        if (exponent > 1 && __builtin_mul_overflow(base, base, &base)) return overflow(j);
    }
    *out = jinja_int(result);
    return 0;
}

static int pow_float(struct jinja *j, double a, double b, struct jinja_value *out) {
    if (a == 0 && b < 0) return jinja_fail(j, QUIRE_EINVAL, "0.0 cannot be raised to a negative power");
    if (a < 0 && isfinite(a) && isfinite(b) && b != floor(b))
        return jinja_fail(j, QUIRE_EUNSUPPORTED, "complex numbers are not supported");
    double r = pow(a, b);
    if (isinf(r) && isfinite(a) && isfinite(b))
        return jinja_fail(j, QUIRE_EINVAL, "numerical result out of range");
    *out = jinja_float(r);
    return 0;
}

/* Python's: the remainder has the divisor's sign, and a == (a // b) * b + a % b as well as can be. */
static void divmod_float(double a, double b, double *quotient, double *remainder) {
    double mod = fmod(a, b), div = (a - mod) / b;
    if (mod != 0) {
        if ((b < 0) != (mod < 0)) {
            mod += b;
            div -= 1;
        }
    } else {
        mod = copysign(0, b);
    }
    double whole = div != 0 ? floor(div) : copysign(0, a / b);
    if (div != 0 && div - whole > 0.5) whole += 1;
    *quotient = whole;
    *remainder = mod;
}

static int binary_int(struct jinja *j, enum jinja_op op, int64_t a, int64_t b, struct jinja_value *out) {
    int64_t r = 0;
    bool over = false;
    switch (op) {
    case JINJA_OP_ADD: over = __builtin_add_overflow(a, b, &r); break;
    case JINJA_OP_SUB: over = __builtin_sub_overflow(a, b, &r); break;
    case JINJA_OP_MUL: over = __builtin_mul_overflow(a, b, &r); break;
    case JINJA_OP_FLOORDIV: return floordiv_int(j, a, b, out);
    case JINJA_OP_MOD: return mod_int(j, a, b, out);
    case JINJA_OP_POW: return b < 0 ? pow_float(j, (double)a, (double)b, out) : pow_int(j, a, b, out);
    default: /* division */
        if (b == 0) return zero_division(j);
        bool exact = llabs(a) <= 1ll << 53 && llabs(b) <= 1ll << 53; /* so that it is rounded once only */
        *out = jinja_float(exact ? (double)a / (double)b : (double)((long double)a / (long double)b));
        return 0;
    }
    if (over) return overflow(j);
    *out = jinja_int(r);
    return 0;
}

static int binary_float(struct jinja *j, enum jinja_op op, double a, double b, struct jinja_value *out) {
    double q, r;
    switch (op) {
    case JINJA_OP_ADD: *out = jinja_float(a + b); return 0;
    case JINJA_OP_SUB: *out = jinja_float(a - b); return 0;
    case JINJA_OP_MUL: *out = jinja_float(a * b); return 0;
    case JINJA_OP_POW: return pow_float(j, a, b, out);
    default: break;
    }
    if (b == 0) return zero_division(j);
    divmod_float(a, b, &q, &r);
    *out = jinja_float(op == JINJA_OP_DIV ? a / b : op == JINJA_OP_MOD ? r : q);
    return 0;
}

int jinja_escape(struct jinja *j, const struct jinja_str *s, const struct jinja_str **out) {
    struct jinja_sb b;
    jinja_sb_init(j, &b);
    size_t start = 0;
    for (size_t i = 0; i < s->len; i++) {
        const char *to;
        switch (s->data[i]) {
        case '&': to = "&amp;"; break;
        case '<': to = "&lt;"; break;
        case '>': to = "&gt;"; break;
        case '\'': to = "&#39;"; break;
        case '"': to = "&#34;"; break;
        default: continue;
        }
        jinja_sb_add_sub(&b, s, start, i - start);
        jinja_sb_add(&b, to, strlen(to), jinja_str_prov_at(s, i));
        start = i + 1;
    }
    jinja_sb_add_sub(&b, s, start, s->len - start);
    JINJA_TRY(jinja_sb_finish(&b, out));
    *out = jinja_str_markup(j, *out, true);
    return *out ? 0 : QUIRE_ENOMEM;
}

static int add_strings(struct jinja *j, const struct jinja_str *a, const struct jinja_str *b,
                       struct jinja_value *out) {
    bool markup = a->markup || b->markup;
    if (markup && !a->markup) JINJA_TRY(jinja_escape(j, a, &a));
    if (markup && !b->markup) JINJA_TRY(jinja_escape(j, b, &b));
    if (!markup && !a->len) return *out = jinja_of_str(b), 0;
    if (!markup && !b->len) return *out = jinja_of_str(a), 0;
    struct jinja_sb sb;
    const struct jinja_str *s;
    jinja_sb_from(j, &sb, a, b->len);
    jinja_sb_add_str(&sb, b);
    JINJA_TRY(jinja_sb_finish(&sb, &s));
    s = jinja_str_markup(j, s, markup);
    if (!s) return QUIRE_ENOMEM;
    *out = jinja_of_str(s);
    return 0;
}

static int add_sequences(struct jinja *j, struct jinja_value a, struct jinja_value b,
                         struct jinja_value *out) {
    size_t n, m;
    bool sized;
    JINJA_TRY(jinja_length(j, a, &n, &sized));
    JINJA_TRY(jinja_length(j, b, &m, &sized));
    JINJA_TRY(jinja_steps(j, n + m));
    struct jinja_value *items = jinja_array(j, n + m, sizeof *items);
    if (!items) return QUIRE_ENOMEM;
    for (size_t i = 0; i < n; i++) JINJA_TRY(jinja_seq_at(j, a, i, &items[i]));
    for (size_t i = 0; i < m; i++) JINJA_TRY(jinja_seq_at(j, b, i, &items[n + i]));
    return jinja_list_new(j, items, n + m, a.type == JINJA_TUPLE ? JINJA_TUPLE : JINJA_LIST, out);
}

static int repeat(struct jinja *j, struct jinja_value v, int64_t times, struct jinja_value *out) {
    size_t n, total, count = times > 0 ? (size_t)times : 0;
    bool sized;
    if (v.type == JINJA_STR) {
        struct jinja_sb b;
        const struct jinja_str *s;
        jinja_sb_init(j, &b);
        jinja_sb_fill(&b, v.s, count);
        JINJA_TRY(jinja_sb_finish(&b, &s));
        s = jinja_str_markup(j, s, v.s->markup);
        if (!s) return QUIRE_ENOMEM;
        *out = jinja_of_str(s);
        return 0;
    }
    JINJA_TRY(jinja_length(j, v, &n, &sized));
    if (!size_mul(n, count, &total)) total = SIZE_MAX;
    JINJA_TRY(jinja_steps(j, total)); /* refused before anything is built */
    struct jinja_value *items = jinja_array(j, total, sizeof *items);
    if (!items) return QUIRE_ENOMEM;
    for (size_t i = 0; i < total; i++) JINJA_TRY(jinja_seq_at(j, v, i % n, &items[i]));
    return jinja_list_new(j, items, total, v.type == JINJA_TUPLE ? JINJA_TUPLE : JINJA_LIST, out);
}

static bool is_repeatable(struct jinja_value v) {
    return v.type == JINJA_STR || jinja_is_list(v) || v.type == JINJA_TUPLE;
}

int jinja_binary(struct jinja *j, enum jinja_op op, struct jinja_value a, struct jinja_value b,
                 struct jinja_value *out) {
    static const char *const names[] = {"+", "-", "*", "/", "//", "%", "**"};
    if (op == JINJA_OP_MOD && a.type == JINJA_STR) return jinja_format_percent(j, a.s, b, out);
    if (jinja_is_int(a) && jinja_is_int(b)) return binary_int(j, op, jinja_as_int(a), jinja_as_int(b), out);
    if (jinja_is_number(a) && jinja_is_number(b))
        return binary_float(j, op, jinja_as_float(a), jinja_as_float(b), out);
    if (a.type == JINJA_UNDEFINED) return jinja_fail_undefined(j, a);
    if (op == JINJA_OP_ADD) {
        if (a.type == JINJA_STR && b.type == JINJA_STR) return add_strings(j, a.s, b.s, out);
        if ((jinja_is_list(a) && jinja_is_list(b)) || (a.type == JINJA_TUPLE && b.type == JINJA_TUPLE))
            return add_sequences(j, a, b, out);
    }
    if (op == JINJA_OP_MUL && is_repeatable(a) && jinja_is_int(b)) return repeat(j, a, jinja_as_int(b), out);
    if (op == JINJA_OP_MUL && is_repeatable(b) && jinja_is_int(a)) return repeat(j, b, jinja_as_int(a), out);
    if (b.type == JINJA_UNDEFINED) return jinja_fail_undefined(j, b);
    return type_error(j, names[op], a, b);
}

int jinja_negate(struct jinja *j, struct jinja_value v, struct jinja_value *out) {
    if (v.type == JINJA_FLOAT) return *out = jinja_float(-v.f), 0;
    if (v.type == JINJA_UNDEFINED) return jinja_fail_undefined(j, v);
    if (!jinja_is_int(v))
        return jinja_fail(j, QUIRE_EINVAL, "bad operand type for unary -: '%s'", jinja_type_name(v));
    if (jinja_as_int(v) == INT64_MIN) return overflow(j);
    *out = jinja_int(-jinja_as_int(v));
    return 0;
}

int jinja_plus(struct jinja *j, struct jinja_value v, struct jinja_value *out) {
    if (v.type == JINJA_UNDEFINED) return jinja_fail_undefined(j, v);
    if (!jinja_is_number(v))
        return jinja_fail(j, QUIRE_EINVAL, "bad operand type for unary +: '%s'", jinja_type_name(v));
    *out = v.type == JINJA_FLOAT ? v : jinja_int(jinja_as_int(v));
    return 0;
}
