/* Parsing. The values' types are in options_value.c, the config file in options_file.c, the help in
 * options_help.c. */
#include "base/error.h"
#include "base/options_impl.h"
#include "base/suggest.h"

#include <stdlib.h>
#include <string.h>

bool options_same_name(const char *given, size_t n, const char *name) {
    for (size_t i = 0; i < n; i++) {
        char c = given[i] == '_' ? '-' : given[i];
        if (!name[i] || c != (name[i] == '_' ? '-' : name[i])) return false;
    }
    return name[n] == '\0';
}

static size_t table_size(const struct option *table) {
    size_t n = 0;
    while (table[n].name) n++;
    return n;
}

/* ---- names --------------------------------------------------------------------------------------------- */

/* The nearest name of the table; NULL if none is near. switches: only those that have a --no- form. */
static const char *nearest(const struct option *table, const char *name, size_t n, bool switches) {
    struct suggestion s;
    suggest_init(&s, name, n);
    for (; table->name; table++)
        if (!switches || options_is_switch(table)) suggest_offer(&s, table->name);
    return s.nearest;
}

static bool starts_with_no(const char *name, size_t n) {
    return n > 3 && !strncmp(name, "no", 2) && (name[2] == '-' || name[2] == '_');
}

static int unknown_name(const struct options_state *s, const struct given *from, size_t n,
                        struct error *err) {
    const char *dashes = from->source == OPTIONS_FLAG ? "--" : "", *no = "";
    const char *name = from->name, *near = NULL;
    bool negated = starts_with_no(name, n);
    if (negated) near = nearest(s->table, name + 3, n - 3, true);
    if (near) no = "no-";
    if (!near) near = nearest(s->table, name, n, false);
    if (!near && negated) near = nearest(s->table, name + 3, n - 3, false); /* has no --no- form */
    char place[OPTIONS_PLACE_BYTES];
    options_place(s, from, place);
    if (near)
        return error_set(err, QUIRE_EINVAL, "%sunknown option %s%.*s (did you mean %s%s%s?)", place, dashes,
                         (int)(n < 100 ? n : 100), name, dashes, no, near);
    return error_set(err, QUIRE_EINVAL, "%sunknown option %s%.*s (--help lists all)", place, dashes,
                     (int)(n < 100 ? n : 100), name);
}

int options_find(const struct options_state *s, struct given *g, size_t n, struct error *err) {
    const struct option *t = s->table;
    for (size_t i = 0; t[i].name; i++) {
        g->index = i;
        g->negated = false;
        if (options_same_name(g->name, n, t[i].name)) return QUIRE_OK;
        bool no = starts_with_no(g->name, n);
        if (!no || !options_is_switch(&t[i]) || !options_same_name(g->name + 3, n - 3, t[i].name)) continue;
        g->negated = true;
        return QUIRE_OK;
    }
    return unknown_name(s, g, n, err);
}

/* ---- values from one source ---------------------------------------------------------------------------- */

int options_begin(struct options_state *s, const struct given *g, struct error *err) {
    const struct option *o = &s->table[g->index];
    char place[OPTIONS_PLACE_BYTES];
    bool again = s->sources[g->index] == g->source && g->source != OPTIONS_UNSET;
    if (again && o->type == OPTION_LIST && g->source == OPTIONS_FLAG) return QUIRE_OK;
    if (again) {
        options_place(s, g, place);
        return error_param(err, QUIRE_EINVAL, o->name, "%s%s%s is given twice", place,
                           g->source == OPTIONS_FLAG ? "--" : "", o->name);
    }
    s->sources[g->index] = g->source;
    if (o->type == OPTION_LIST) options_clear(s, o);
    return QUIRE_OK;
}

static int take(struct options_state *s, const struct given *g, struct error *err) {
    int code = options_begin(s, g, err);
    return code < 0 ? code : options_store(s, g, err);
}

static int take_presets(struct options_state *s, struct error *err) {
    for (size_t i = 0; s->table[i].name; i++) {
        const struct option *o = &s->table[i];
        if (o->type == OPTION_FIXED) continue;
        struct given g = {.index = i, .source = OPTIONS_UNSET, .name = o->name, .value = o->preset};
        options_clear(s, o);
        int code = o->preset ? take(s, &g, err) : QUIRE_OK;
        if (code < 0) return code;
    }
    return QUIRE_OK;
}

/* An empty variable counts as not set. */
static int take_environment(struct options_state *s, struct error *err) {
    for (size_t i = 0; s->table[i].name; i++) {
        const char *value = s->table[i].env ? getenv(s->table[i].env) : NULL;
        if (!value || !*value) continue;
        struct given g = {.index = i, .source = OPTIONS_ENV, .name = s->table[i].env, .value = value};
        int code = take(s, &g, err);
        if (code < 0) return code;
    }
    return QUIRE_OK;
}

/* ---- the command line ---------------------------------------------------------------------------------- */

static int flag_value(struct options_state *s, struct given *g, int argc, char **argv, int *at,
                      struct error *err) {
    const struct option *o = &s->table[g->index];
    if (g->value) {
        if (!g->negated) return QUIRE_OK;
        return error_param(err, QUIRE_EINVAL, o->name, "--no-%s takes no value", o->name);
    }
    if (options_is_switch(o)) {
        g->value = "true"; /* negated: see options_store */
        return QUIRE_OK;
    }
    if (*at + 1 < argc && strncmp(argv[*at + 1], "--", 2)) {
        g->value = argv[++*at];
        return QUIRE_OK;
    }
    return error_param(err, QUIRE_EINVAL, o->name, "--%s needs a value%s%s%s", o->name,
                       o->metavar ? " (" : "", o->metavar ? o->metavar : "", o->metavar ? ")" : "");
}

/* Splits argv into s->flags and positional arguments, which move to its front. */
static int read_flags(struct options_state *s, int argc, char **argv, int *n_positional, struct error *err) {
    bool only_positional = false;
    *n_positional = 0;
    for (int i = 0; i < argc; i++) {
        char *arg = argv[i];
        if (only_positional || arg[0] != '-' || !arg[1]) {
            argv[(*n_positional)++] = arg;
            continue;
        }
        if (!strcmp(arg, "--")) {
            only_positional = true;
            continue;
        }
        if (!strcmp(arg, "-h")) arg = "--help";
        if (arg[1] != '-')
            return error_set(err, QUIRE_EINVAL, "unknown option %.100s (options start with two dashes)", arg);
        const char *equals = strchr(arg, '=');
        struct given *g = &s->flags[s->n_flags];
        *g = (struct given){.source = OPTIONS_FLAG, .name = arg + 2, .value = equals ? equals + 1 : NULL};
        int code = options_find(s, g, equals ? (size_t)(equals - g->name) : strlen(g->name), err);
        if (code == QUIRE_OK) code = flag_value(s, g, argc, argv, &i, err);
        if (code < 0) return code;
        s->n_flags++;
    }
    return QUIRE_OK;
}

/* The file that --config names, or its environment variable. */
static const char *config_path(const struct options_state *s) {
    const char *path = NULL;
    for (size_t i = 0; s->table[i].name; i++) {
        if (strcmp(s->table[i].name, "config")) continue;
        if (s->table[i].env) path = getenv(s->table[i].env);
        for (size_t f = 0; f < s->n_flags; f++)
            if (s->flags[f].index == i) path = s->flags[f].value;
    }
    return path && *path ? path : NULL;
}

static int take_all(struct options_state *s, struct error *err) {
    const char *path = config_path(s);
    int code = take_presets(s, err);
    if (code == QUIRE_OK) code = take_environment(s, err);
    if (code == QUIRE_OK && path) code = options_file(s, path, err);
    for (size_t f = 0; code == QUIRE_OK && f < s->n_flags; f++) code = take(s, &s->flags[f], err);
    return code;
}

int options_parse(const struct option *table, int argc, char **argv, int *n_positional, void *values,
                  FILE *notices, struct options_state **state, struct error *err) {
    struct options_state *s = calloc(1, sizeof *s);
    int code = QUIRE_ENOMEM;
    *state = NULL;
    *n_positional = 0;
    if (!s) goto no_memory;
    s->table = table;
    s->values = values;
    s->notices = notices;
    s->sources = calloc(table_size(table) + 1, sizeof *s->sources);
    s->flags = calloc((size_t)argc + 1, sizeof *s->flags);
    if (!s->sources || !s->flags) goto no_memory;
    code = read_flags(s, argc, argv, n_positional, err);
    if (code == QUIRE_OK) code = take_all(s, err);
    if (code < 0) goto fail;
    *state = s;
    return QUIRE_OK;
no_memory:
    error_set(err, QUIRE_ENOMEM, "out of memory while reading the options");
fail:
    options_free(s);
    return code;
}

bool options_given(const struct options_state *state, const char *name) {
    for (size_t i = 0; state->table[i].name; i++)
        if (!strcmp(state->table[i].name, name)) return state->sources[i] != OPTIONS_UNSET;
    return false;
}

void options_free(struct options_state *state) {
    if (!state) return;
    free(state->flags);
    free(state->sources);
    free(state->text);
    free(state);
}
