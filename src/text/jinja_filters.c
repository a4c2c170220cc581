/* The table of filters, and those of plain values. */
#include "text/jinja_filters.h"
#include "text/jinja_format.h"
#include "text/jinja_ops.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int f_abs(struct jinja *j, struct jinja_value self, const struct jinja_value *arg,
                 const struct jinja_args *args, struct jinja_value *out) {
    if (self.type == JINJA_FLOAT) return *out = jinja_float(fabs(self.f)), 0;
    if (self.type == JINJA_UNDEFINED) return jinja_fail_undefined(j, self);
    if (!jinja_is_int(self))
        return jinja_fail(j, QUIRE_EINVAL, "bad operand type for abs(): '%s'", jinja_type_name(self));
    *out = jinja_int(jinja_as_int(self));
    return self.type == JINJA_INT && self.i < 0 ? jinja_negate(j, self, out) : 0;
}

static int f_default(struct jinja *j, struct jinja_value self, const struct jinja_value *arg,
                     const struct jinja_args *args, struct jinja_value *out) {
    *out = self;
    if (self.type != JINJA_UNDEFINED && !(jinja_truth(j, arg[1]) && !jinja_truth(j, self))) return 0;
    if (jinja_given(arg[0])) return *out = arg[0], 0;
    const struct jinja_str *empty = jinja_str_lit(j, "");
    if (!empty) return QUIRE_ENOMEM;
    *out = jinja_of_str(empty);
    return 0;
}

/* int(v): *ok = false where Python raises TypeError or ValueError. */
static int to_int(struct jinja *j, struct jinja_value v, struct jinja_value *out, bool *ok) {
    *ok = jinja_is_int(v);
    if (*ok) *out = jinja_int(jinja_as_int(v));
    if (v.type != JINJA_FLOAT || !isfinite(v.f)) return 0;
    if (!(v.f >= -0x1p63 && v.f < 0x1p63))
        return jinja_fail(j, QUIRE_ELIMIT, "an integer does not fit in 64 bits");
    *ok = true;
    *out = jinja_int((int64_t)v.f);
    return 0;
}

static int f_int(struct jinja *j, struct jinja_value self, const struct jinja_value *arg,
                 const struct jinja_args *args, struct jinja_value *out) {
    int64_t base = 10;
    bool ok;
    if (self.type == JINJA_UNDEFINED) return jinja_fail_undefined(j, self);
    if (jinja_given(arg[1]))
        base = jinja_is_int(arg[1]) ? jinja_as_int(arg[1]) : -1; /* -1: no text is a number */
    if (self.type == JINJA_STR) {
        *out = jinja_int(0);
        JINJA_TRY(jinja_parse_int(j, self.s, base, &out->i, &ok));
        if (ok) return 0;
        double f;
        JINJA_TRY(jinja_parse_float(j, self.s, &f, &ok));
        self = ok ? jinja_float(f) : jinja_none();
    }
    JINJA_TRY(to_int(j, self, out, &ok));
    if (!ok) *out = jinja_given(arg[0]) ? arg[0] : jinja_int(0);
    return 0;
}

static int f_float(struct jinja *j, struct jinja_value self, const struct jinja_value *arg,
                   const struct jinja_args *args, struct jinja_value *out) {
    bool ok = jinja_is_number(self);
    if (self.type == JINJA_UNDEFINED) return jinja_fail_undefined(j, self);
    if (ok) return *out = jinja_float(jinja_as_float(self)), 0;
    *out = jinja_float(0);
    if (self.type == JINJA_STR) JINJA_TRY(jinja_parse_float(j, self.s, &out->f, &ok));
    if (!ok) *out = jinja_given(arg[0]) ? arg[0] : jinja_float(0);
    return 0;
}

/* round(f, n) as Python: correctly rounded decimal, ties to even. */
static int round_float(struct jinja *j, double f, int64_t n, struct jinja_value *out) {
    char text[512];
    *out = jinja_float(f);
    if (!isfinite(f) || n > 323) return 0;
    if (n >= 0) {
        int len = snprintf(text, sizeof text, "%.*f", (int)n, f);
        if (len < 0 || (size_t)len >= sizeof text) return 0; /* more digits than a double has: unchanged */
    } else {
        if (n < -308) return *out = jinja_float(copysign(0, f)), 0;
        /* The digits in front of the last -n: a scientific form with that many. */
        int exponent = f != 0 ? (int)floor(log10(fabs(f))) : 0;
        snprintf(text, sizeof text, "%.17e", f);
        exponent = atoi(strchr(text, 'e') + 1);
        int keep = exponent + (int)n; /* digits behind the first one */
        if (keep < -1) return *out = jinja_float(copysign(0, f)), 0;
        if (keep == -1) { /* the first digit decides: up, down, or a tie to zero */
            double half = 5 * pow(10, -(double)n - 1), unit = pow(10, -(double)n);
            return *out = jinja_float(copysign(fabs(f) > half ? unit : 0, f)), 0;
        }
        snprintf(text, sizeof text, "%.*e", keep, f);
    }
    out->f = strtod(text, NULL);
    return isinf(out->f) ? jinja_fail(j, QUIRE_EINVAL, "rounded value too large to represent") : 0;
}

/* round(i, n) for n < 0: to a multiple of 10 ** -n, ties to even. */
static int round_int(struct jinja *j, int64_t i, int64_t n, struct jinja_value *out) {
    int64_t unit = 1;
    *out = jinja_int(n < -18 ? 0 : i);
    if (n >= 0 || n < -18) return 0;
    for (; n < 0; n++) unit *= 10;
    int64_t rest = i % unit, low = i - rest;
    if (rest < 0) {
        rest += unit;
        if (__builtin_sub_overflow(low, unit, &low))
            return jinja_fail(j, QUIRE_ELIMIT, "an integer does not fit in 64 bits");
    }
    bool up = rest > unit / 2 || (rest == unit / 2 && unit > 1 && low / unit % 2 != 0);
    if (up && __builtin_add_overflow(low, unit, &low))
        return jinja_fail(j, QUIRE_ELIMIT, "an integer does not fit in 64 bits");
    *out = jinja_int(low);
    return 0;
}

static int f_round(struct jinja *j, struct jinja_value self, const struct jinja_value *arg,
                   const struct jinja_args *args, struct jinja_value *out) {
    const struct jinja_str *method = NULL;
    int64_t n = 0;
    if (self.type == JINJA_UNDEFINED) return jinja_fail_undefined(j, self);
    if (jinja_given(arg[0])) JINJA_TRY(jinja_need_int(j, "the precision", arg[0], &n));
    if (jinja_given(arg[1])) JINJA_TRY(jinja_need_str(j, "the method", arg[1], &method));
    if (!jinja_is_number(self))
        return jinja_fail(j, QUIRE_EINVAL, "round: '%s' is no number", jinja_type_name(self));
    if (!method || jinja_str_is(method, "common"))
        return self.type == JINJA_FLOAT ? round_float(j, self.f, n, out)
                                        : round_int(j, jinja_as_int(self), n, out);
    bool up = jinja_str_is(method, "ceil");
    if (!up && !jinja_str_is(method, "floor"))
        return jinja_fail(j, QUIRE_EINVAL, "round: the method must be common, ceil or floor");
    struct jinja_value unit, scaled;
    JINJA_TRY(jinja_binary(j, JINJA_OP_POW, jinja_int(10), jinja_int(n), &unit));
    JINJA_TRY(jinja_binary(j, JINJA_OP_MUL, self, unit, &scaled));
    if (scaled.type == JINJA_FLOAT) {
        if (!isfinite(scaled.f)) return jinja_fail(j, QUIRE_EINVAL, "round: the number is not finite");
        scaled.f = up ? ceil(scaled.f) : floor(scaled.f);
        bool ok;
        JINJA_TRY(to_int(j, scaled, &scaled, &ok));
    }
    return jinja_binary(j, JINJA_OP_DIV, scaled, unit, out);
}

/* Sorted by name. */
static const struct jinja_filter filters[] = {
    {{"abs", "/", f_abs}},
    {{"attr", "name", jinja_f_attr}},
    {{"batch", "linecount fill_with=", jinja_f_batch}},
    {{"capitalize", "", jinja_f_capitalize}},
    {{"center", "width=", jinja_f_center}},
    {{"count", "/", jinja_f_length}},
    {{"d", "default_value= boolean=", f_default}},
    {{"default", "default_value= boolean=", f_default}},
    {{"dictsort", "case_sensitive= by= reverse=", jinja_f_dictsort}},
    {{"e", "/", jinja_f_escape}},
    {{"escape", "/", jinja_f_escape}},
    {{"filesizeformat", "binary=", jinja_f_filesizeformat}},
    {{"first", "", jinja_f_first}},
    {{"float", "default=", f_float}},
    {{"forceescape", "", jinja_f_forceescape}},
    {{"format", NULL, jinja_f_format}},
    {{"groupby", "attribute default= case_sensitive=", jinja_f_groupby}},
    {{"indent", "width= first= blank=", jinja_f_indent}},
    {{"int", "default= base=", f_int}},
    {{"items", "", jinja_f_items}},
    {{"join", "d= attribute=", jinja_f_join}},
    {{"last", "", jinja_f_last}},
    {{"length", "/", jinja_f_length}},
    {{"list", "", jinja_f_list}},
    {{"lower", "", jinja_f_lower}},
    {{"map", NULL, jinja_f_map}},
    {{"max", "case_sensitive= attribute=", jinja_f_max}},
    {{"min", "case_sensitive= attribute=", jinja_f_min}},
    {{"reject", NULL, jinja_f_reject}},
    {{"rejectattr", NULL, jinja_f_rejectattr}},
    {{"replace", "old new count=", jinja_f_replace}},
    {{"reverse", "", jinja_f_reverse}},
    {{"round", "precision= method=", f_round}},
    {{"safe", "", jinja_f_safe}},
    {{"select", NULL, jinja_f_select}},
    {{"selectattr", NULL, jinja_f_selectattr}},
    {{"slice", "slices fill_with=", jinja_f_slice}},
    {{"sort", "reverse= case_sensitive= attribute=", jinja_f_sort}},
    {{"string", "/", jinja_f_string}},
    {{"sum", "attribute= start=", jinja_f_sum}},
    {{"title", "", jinja_f_title}},
    {{"tojson", "ensure_ascii= indent= separators= sort_keys=", jinja_f_tojson}},
    {{"trim", "chars=", jinja_f_trim}},
    {{"truncate", "length= killwords= end= leeway=", jinja_f_truncate}},
    {{"unique", "case_sensitive= attribute=", jinja_f_unique}},
    {{"upper", "", jinja_f_upper}},
    {{"urlencode", "", jinja_f_urlencode}},
    {{"wordcount", "", jinja_f_wordcount}},
    {{"wordwrap", "width= break_long_words= wrapstring= break_on_hyphens=", jinja_f_wordwrap}},
    {{"xmlattr", "autospace=", jinja_f_xmlattr}},
};

const struct jinja_filter *jinja_filter_find(const struct jinja_str *name) {
    for (size_t i = 0; i < sizeof filters / sizeof *filters; i++)
        if (jinja_str_is(name, filters[i].method.name)) return &filters[i];
    return NULL;
}

int jinja_filter_call(struct jinja *j, const struct jinja_filter *f, struct jinja_value value,
                      const struct jinja_args *args, struct jinja_value *out) {
    return jinja_call_builtin(j, &f->method, value, args, out);
}
