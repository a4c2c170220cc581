/* Text to checked values. */
#include "base/error.h"
#include "base/options_impl.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

void options_place(const struct options_state *s, const struct given *g, char place[OPTIONS_PLACE_BYTES]) {
    place[0] = '\0';
    if (g->source == OPTIONS_FILE) snprintf(place, OPTIONS_PLACE_BYTES, "%.120s:%zu: ", s->path, g->line);
    if (g->source == OPTIONS_ENV)
        snprintf(place, OPTIONS_PLACE_BYTES, "environment variable %.120s: ", g->name);
}

bool options_choice_has(const char *choices, const char *value, size_t n) {
    while (choices && *choices) {
        size_t len = strcspn(choices, "|");
        if (len == n && !memcmp(choices, value, n)) return true;
        choices += len + (choices[len] == '|');
    }
    return false;
}

static int bad_value(const struct options_state *s, const struct given *g, int code, const char *allowed,
                     struct error *err) {
    const struct option *o = &s->table[g->index];
    char place[OPTIONS_PLACE_BYTES];
    options_place(s, g, place);
    return error_param(err, code, o->name, "%s%s%s: \"%.100s\" is not allowed (%s)", place,
                       g->source == OPTIONS_FLAG ? "--" : "", o->name, g->value, allowed);
}

bool options_is_switch(const struct option *o) {
    return o->type == OPTION_BOOL ||
           (o->type == OPTION_FIXED &&
            (options_choice_has(o->choices, "true", 4) || options_choice_has(o->choices, "false", 5)));
}

int options_bool(const char *text, bool *out) {
    static const char *const words[] = {"true", "yes", "on", "1", "false", "no", "off", "0"};
    for (size_t i = 0; i < 8; i++) {
        if (strcmp(text, words[i])) continue;
        *out = i < 4;
        return QUIRE_OK;
    }
    return QUIRE_EINVAL;
}

/* ---- numbers ------------------------------------------------------------------------------------------- */

/* Factor of a suffix; 0 = unknown. */
static int64_t suffix_factor(const char *suffix) {
    static const struct {
        char text[3];
        int64_t factor;
    } rows[] = {{"", 1},        {"k", 1000},    {"m", 1000000},  {"g", 1000000000}, {"K", 1 << 10},
                {"M", 1 << 20}, {"G", 1 << 30}, {"Ki", 1 << 10}, {"Mi", 1 << 20},   {"Gi", 1 << 30}};
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++)
        if (!strcmp(suffix, rows[i].text)) return rows[i].factor;
    return 0;
}

/* "-12", "8K", "1.5k": digits, a fraction if the factor makes it a whole number, a suffix. */
static int parse_int(const char *text, int64_t *out) {
    const char *p = text + (*text == '-' || *text == '+');
    uint64_t v = 0, scale = 1; /* the number is v / scale */
    size_t n_digits = strspn(p, "0123456789"), n_fraction = 0;
    for (size_t i = 0; i < n_digits; i++)
        if (__builtin_mul_overflow(v, 10u, &v) || __builtin_add_overflow(v, (uint64_t)(*p++ - '0'), &v))
            return QUIRE_ELIMIT;
    if (n_digits && *p == '.') {
        n_fraction = strspn(++p, "0123456789");
        if (n_fraction == 0 || n_fraction > 9) return QUIRE_EINVAL;
        for (size_t i = 0; i < n_fraction; i++, scale *= 10)
            if (__builtin_mul_overflow(v, 10u, &v) || __builtin_add_overflow(v, (uint64_t)(*p++ - '0'), &v))
                return QUIRE_ELIMIT;
    }
    int64_t factor = suffix_factor(p);
    if (n_digits == 0 || factor == 0 || (n_fraction && !*p)) return QUIRE_EINVAL;
    if (__builtin_mul_overflow(v, (uint64_t)factor, &v)) return QUIRE_ELIMIT;
    if (v % scale) return QUIRE_EINVAL;
    v /= scale;
    if (v > INT64_MAX) return QUIRE_ELIMIT;
    *out = *text == '-' ? -(int64_t)v : (int64_t)v;
    return QUIRE_OK;
}

static int parse_float(const char *text, double *out) {
    char *end;
    if (!*text || strspn(text, "0123456789+-.eE") != strlen(text))
        return QUIRE_EINVAL; /* no nan, inf, hex, space */
    *out = strtod(text, &end);
    return *end || !isfinite(*out) ? QUIRE_EINVAL : QUIRE_OK;
}

void options_range(const struct option *o, char *text, size_t cap) {
    const char *kind = o->type == OPTION_INT ? "a whole number" : "a number";
    bool any = o->min == 0 && o->max == 0;
    bool open_above = o->max >= 1e15, open_below = o->min <= -1e15; /* "no limit" as tables write it */
    if (any || (open_above && open_below))
        snprintf(text, cap, "%s", kind);
    else if (open_above)
        snprintf(text, cap, "%s, at least %.15g", kind, o->min);
    else if (open_below)
        snprintf(text, cap, "%s, at most %.15g", kind, o->max);
    else
        snprintf(text, cap, "%s from %.15g to %.15g", kind, o->min, o->max);
}

static bool in_range(const struct option *o, double v) {
    return (o->min == 0 && o->max == 0) || (v >= o->min && v <= o->max);
}

static int store_number(struct options_state *s, const struct given *g, void *slot, struct error *err) {
    const struct option *o = &s->table[g->index];
    char allowed[128];
    int64_t whole = 0;
    double real = 0;
    int code = o->type == OPTION_INT ? parse_int(g->value, &whole) : parse_float(g->value, &real);
    if (code == QUIRE_OK && in_range(o, o->type == OPTION_INT ? (double)whole : real)) {
        if (o->type == OPTION_INT)
            *(int64_t *)slot = whole;
        else
            *(double *)slot = real;
        return QUIRE_OK;
    }
    options_range(o, allowed, sizeof allowed);
    return bad_value(s, g, QUIRE_EINVAL, allowed, err);
}

/* ---- the rest ------------------------------------------------------------------------------------------ */

/* "a|b|c" as "one of a, b, c". */
void options_choices(const char *choices, char *text, size_t cap) {
    size_t used = (size_t)snprintf(text, cap, strchr(choices, '|') ? "one of " : "");
    for (; *choices && used + 1 < cap; choices++) {
        const char *piece = *choices == '|' ? ", " : (char[2]){*choices, '\0'};
        used += (size_t)snprintf(text + used, cap - used, "%s", piece);
    }
}

static int store_choice(struct options_state *s, const struct given *g, const char **slot,
                        struct error *err) {
    const struct option *o = &s->table[g->index];
    char allowed[256];
    if (options_choice_has(o->choices, g->value, strlen(g->value))) {
        *slot = g->value;
        return QUIRE_OK;
    }
    options_choices(o->choices, allowed, sizeof allowed);
    return bad_value(s, g, QUIRE_EINVAL, allowed, err);
}

static int check_fixed(struct options_state *s, const struct given *g, struct error *err) {
    const struct option *o = &s->table[g->index];
    const char *value = g->value;
    char allowed[256];
    bool on;
    if (options_is_switch(o) && options_bool(value, &on) == QUIRE_OK) value = on ? "true" : "false";
    if (options_choice_has(o->choices, value, strlen(value))) {
        if (s->notices)
            fprintf(s->notices, "--%s %s is accepted for compatibility and changes nothing: %s\n", o->name,
                    value, o->help);
        return QUIRE_OK;
    }
    options_choices(o->choices, allowed, sizeof allowed);
    return bad_value(s, g, QUIRE_EUNSUPPORTED, allowed, err);
}

void options_clear(struct options_state *s, const struct option *o) {
    void *slot = (char *)s->values + o->offset;
    switch (o->type) {
    case OPTION_BOOL: *(bool *)slot = false; break;
    case OPTION_INT: *(int64_t *)slot = 0; break;
    case OPTION_FLOAT: *(double *)slot = 0; break;
    case OPTION_STRING:
    case OPTION_CHOICE: *(const char **)slot = NULL; break;
    case OPTION_LIST: *(struct option_list *)slot = (struct option_list){0}; break;
    case OPTION_FIXED: break;
    }
}

static int list_add(struct options_state *s, const struct given *g, struct error *err) {
    const struct option *o = &s->table[g->index];
    struct option_list *list = (struct option_list *)((char *)s->values + o->offset);
    char place[OPTIONS_PLACE_BYTES];
    if (list->n < OPTION_LIST_MAX) {
        list->items[list->n++] = g->value;
        return QUIRE_OK;
    }
    options_place(s, g, place);
    return error_param(err, QUIRE_ELIMIT, o->name, "%s%s%s: more than %d values", place,
                       g->source == OPTIONS_FLAG ? "--" : "", o->name, OPTION_LIST_MAX);
}

static int store(struct options_state *s, const struct given *g, struct error *err) {
    const struct option *o = &s->table[g->index];
    void *slot = (char *)s->values + o->offset;
    switch (o->type) {
    case OPTION_BOOL:
        if (options_bool(g->value, slot) == QUIRE_OK) return QUIRE_OK;
        return bad_value(s, g, QUIRE_EINVAL, "true or false", err);
    case OPTION_INT:
    case OPTION_FLOAT: return store_number(s, g, slot, err);
    case OPTION_STRING: *(const char **)slot = g->value; return QUIRE_OK;
    case OPTION_LIST: return list_add(s, g, err);
    case OPTION_CHOICE: return store_choice(s, g, slot, err);
    case OPTION_FIXED: return check_fixed(s, g, err);
    }
    return error_param(err, QUIRE_EINTERNAL, o->name, "%s: unknown option type %d", o->name, (int)o->type);
}

int options_store(struct options_state *s, const struct given *g, struct error *err) {
    struct given plain = *g;
    bool on;
    if (g->negated && options_bool(g->value, &on) == QUIRE_OK) plain.value = on ? "false" : "true";
    return store(s, &plain, err);
}
