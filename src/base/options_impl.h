/* Between the options_*.c files; nobody else includes this. */
#ifndef BASE_OPTIONS_IMPL_H
#define BASE_OPTIONS_IMPL_H

#include "base/options.h"

enum options_source { OPTIONS_UNSET, OPTIONS_ENV, OPTIONS_FILE, OPTIONS_FLAG }; /* later ones win */

/* One value as it was found. */
struct given {
    size_t index; /* of the row in the table */
    enum options_source source;
    bool negated;      /* by a leading no- */
    size_t line;       /* of the config file */
    const char *name;  /* as written: flag without dashes, key or variable */
    const char *value; /* text, NUL-terminated */
};

struct options_state {
    const struct option *table;
    void *values;
    FILE *notices;
    enum options_source *sources; /* for each row, of the value that is stored now */
    struct given *flags;
    size_t n_flags;
    const char *path; /* config file */
    char *text;       /* its content, cut into strings in place */
};

#define OPTIONS_PLACE_BYTES 160

/* Where a value was found, as the start of a message: "quire.yaml:3: ", "QUIRE_PORT: " or nothing for a flag.
 */
void options_place(const struct options_state *s, const struct given *g, char place[OPTIONS_PLACE_BYTES]);

bool options_same_name(const char *given, size_t n, const char *name);
bool options_choice_has(const char *choices, const char *value, size_t n);

/* Fills g->index and g->negated from the first n bytes of g->name. */
int options_find(const struct options_state *s, struct given *g, size_t n, struct error *err);
/* Before the first value of a source: refuses a second one, drops the list of an earlier source. */
int options_begin(struct options_state *s, const struct given *g, struct error *err);
/* Checks and stores; a list grows by the value. */
int options_store(struct options_state *s, const struct given *g, struct error *err);
void options_clear(struct options_state *s, const struct option *o); /* zero, false, NULL or empty */

bool options_is_switch(const struct option *o); /* needs no value on the command line and has a --no- form */
int options_bool(const char *text, bool *out);  /* true, yes, on, 1 and their opposites */
/* What is allowed, for messages and help: "a whole number from 1 to 64"; "one of a, b". */
void options_range(const struct option *o, char *text, size_t cap);
void options_choices(const char *choices, char *text, size_t cap);

int options_file(struct options_state *s, const char *path, struct error *err);

#endif
