/* One table of options gives the parser, the range checks, --help, the config file and the docs page.
 *
 * A table is an array of struct option ended by a row whose name is NULL; values are stored into a caller's struct
 * at `offset`. Names are written without dashes ("max-num-seqs"); on the command line "--max_num_seqs" is the same,
 * "--name value" and "--name=value" too, and a boolean has its "--no-name". */
#ifndef BASE_OPTIONS_H
#define BASE_OPTIONS_H

#include <quire/error.h>

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

enum option_type {
    OPTION_BOOL,   /* bool */
    OPTION_INT,    /* int64_t; suffixes k, m, g (powers of 1000) and K, M, G, Ki, Mi, Gi (powers of 1024) */
    OPTION_FLOAT,  /* double, finite */
    OPTION_STRING, /* const char *; points into argv or the config file's memory */
    OPTION_LIST,   /* struct option_list: may be given several times */
    OPTION_CHOICE, /* const char *; one of `choices` */
    OPTION_FIXED   /* accepted for compatibility when its value is `fixed` (see below), else refused; stores nothing */
};

#define OPTION_LIST_MAX 16

struct option_list {
    size_t n;
    const char *items[OPTION_LIST_MAX];
};

struct option {
    const char *name;
    enum option_type type;
    size_t offset;
    const char *group;   /* heading in --help and the docs page */
    const char *metavar; /* "N", "FILE", ...; NULL for booleans */
    const char *preset;  /* default, parsed like a given value; NULL = zero, false, NULL or empty */
    double min, max;     /* allowed range of OPTION_INT and OPTION_FLOAT; both 0 = any */
    const char *choices; /* OPTION_CHOICE: "fcfs|priority"; OPTION_FIXED: the accepted values "1" or "true|false" */
    const char *env;     /* environment variable that gives the value when no flag does, NULL if none */
    const char *help;    /* one or two sentences */
};

struct options_state; /* remembers which were given, where, and owns the config file's text */

/* Fills *values from defaults, environment, config file (`--config FILE`, if the table has it) and arguments, later
 * ones winning; a list is replaced as a whole. argv has no program name; positional arguments are left in
 * argv[0..*n_positional), and so is everything after "--". "-h" is "--help". An empty variable counts as not set.
 * Unknown names are refused with the nearest known one; the same option twice in one place (unless a list) is
 * refused. On success *state must be freed after the values are no longer used. notices (may be NULL) gets one line
 * for each OPTION_FIXED given. Errors: QUIRE_EINVAL, QUIRE_EUNSUPPORTED (a value of OPTION_FIXED), QUIRE_ELIMIT, and
 * QUIRE_ENOTFOUND, QUIRE_EIO, QUIRE_EFORMAT of the config file.
 *
 * The config file is a flat mapping in a subset of YAML: "key: value", "key: [a, b]" or "key:" and "- a" lines for
 * lists, 'single' and "double" quotes, comments. What the subset does not have is refused with its line. */
int options_parse(const struct option *table, int argc, char **argv, int *n_positional, void *values, FILE *notices,
                  struct options_state **state, struct error *err);
bool options_given(const struct options_state *state, const char *name); /* by flag, file or environment */
void options_free(struct options_state *state);

void options_help(const struct option *table, FILE *out);
void options_markdown(const struct option *table, FILE *out);

#endif
