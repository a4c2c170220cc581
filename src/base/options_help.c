/* --help and the docs page, from the same table as the parser. */
#include "base/options_impl.h"

#include <string.h>

#define HELP_COLUMN  28
#define HELP_WIDTH   96
#define DETAIL_BYTES 768

static const char *group_of(const struct option *o) {
    return o->group ? o->group : "Options";
}

static bool group_seen(const struct option *table, const struct option *o) {
    for (; table < o; table++)
        if (!strcmp(group_of(table), group_of(o))) return true;
    return false;
}

/* Groups in the order of their first row; before and after go round a group's name. */
static void print_groups(const struct option *table, FILE *out, const char *before, const char *after,
                         void (*row)(const struct option *o, FILE *out)) {
    for (const struct option *o = table; o->name; o++) {
        if (group_seen(table, o)) continue;
        fprintf(out, "%s%s%s", before, group_of(o), after);
        for (const struct option *p = o; p->name; p++)
            if (!strcmp(group_of(p), group_of(o))) row(p, out);
        fputc('\n', out);
    }
}

static const char *metavar_of(const struct option *o) {
    if (o->metavar) return o->metavar;
    switch (o->type) {
    case OPTION_INT:
    case OPTION_FLOAT: return "N";
    default: return "VALUE";
    }
}

static int flag_text(const struct option *o, char *text, size_t cap) {
    if (options_is_switch(o))
        return snprintf(text, cap, o->type == OPTION_BOOL ? "--[no-]%s" : "--%s", o->name);
    return snprintf(text, cap, "--%s %s", o->name, metavar_of(o));
}

/* What a value may be; empty where the help says it all. */
static void allowed_text(const struct option *o, char *text, size_t cap) {
    text[0] = '\0';
    if ((o->type == OPTION_INT || o->type == OPTION_FLOAT) && (o->min != 0 || o->max != 0))
        options_range(o, text, cap);
    if (o->type == OPTION_CHOICE || o->type == OPTION_FIXED) options_choices(o->choices, text, cap);
    if (o->type == OPTION_LIST) snprintf(text, cap, "may be given several times");
}

static const char *preset_text(const struct option *o) {
    bool on = false;
    if (o->preset && o->type == OPTION_BOOL) options_bool(o->preset, &on);
    if (o->type == OPTION_BOOL) return on ? "on" : "off";
    return o->type == OPTION_FIXED ? NULL : o->preset;
}

/* The help text and, in parentheses, default, allowed values and environment variable. */
static void detail_text(const struct option *o, char *text, size_t cap) {
    char allowed[256], facts[512] = "";
    size_t n = 0;
    allowed_text(o, allowed, sizeof allowed);
    const char *preset = preset_text(o);
    if (preset) n += (size_t)snprintf(facts + n, sizeof facts - n, "; default: %.80s", preset);
    if (allowed[0])
        n += (size_t)snprintf(facts + n, sizeof facts - n, "; %s%s",
                              o->type == OPTION_FIXED ? "accepted: " : "", allowed);
    if (o->env) snprintf(facts + n, sizeof facts - n, "; environment: %.60s", o->env);
    if (facts[0])
        snprintf(text, cap, "%s (%s)", o->help, facts + 2);
    else
        snprintf(text, cap, "%s", o->help);
}

static void print_wrapped(const char *text, size_t column, FILE *out) {
    while (*text) {
        size_t word = strcspn(text, " ");
        if (column > HELP_COLUMN && column + 1 + word > HELP_WIDTH) {
            fprintf(out, "\n%*s", HELP_COLUMN, "");
            column = HELP_COLUMN;
        } else if (column > HELP_COLUMN) {
            fputc(' ', out);
            column++;
        }
        fwrite(text, 1, word, out);
        column += word;
        text += word;
        while (*text == ' ') text++;
    }
    fputc('\n', out);
}

static void help_row(const struct option *o, FILE *out) {
    char flag[128], detail[DETAIL_BYTES];
    int n = flag_text(o, flag, sizeof flag);
    detail_text(o, detail, sizeof detail);
    fprintf(out, "  %s", flag);
    if (n + 4 > HELP_COLUMN)
        fprintf(out, "\n%*s", HELP_COLUMN, "");
    else
        fprintf(out, "%*s", HELP_COLUMN - 2 - n, "");
    print_wrapped(detail, HELP_COLUMN, out);
}

void options_help(const struct option *table, FILE *out) {
    print_groups(table, out, "", ":\n", help_row);
}

/* ---- markdown ------------------------------------------------------------------------------------------ */

static void put_cell(const char *text, FILE *out) {
    for (; *text; text++) {
        if (strchr("|<>*_", *text)) fputc('\\', out);
        fputc(*text, out);
    }
}

static void markdown_row(const struct option *o, FILE *out) {
    char flag[128], allowed[256];
    flag_text(o, flag, sizeof flag);
    allowed_text(o, allowed, sizeof allowed);
    const char *preset = preset_text(o);
    fprintf(out, "| `%s` | ", flag);
    if (preset) fprintf(out, "`%s`", preset);
    fputs(" | ", out);
    put_cell(o->type == OPTION_FIXED ? "accepted for compatibility: " : "", out);
    put_cell(allowed, out);
    fputs(" | ", out);
    put_cell(o->help, out);
    if (o->env) fprintf(out, " Environment: `%s`.", o->env);
    fputs(" |\n", out);
}

void options_markdown(const struct option *table, FILE *out) {
    print_groups(table, out, "### ", "\n\n| option | default | allowed | meaning |\n|---|---|---|---|\n",
                 markdown_row);
}
