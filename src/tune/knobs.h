/* The parameters: their flags, and the values that are tried. */
#ifndef TUNE_KNOBS_H
#define TUNE_KNOBS_H

#include "tune/tune.h"

#define LADDER_MAX 16

struct knob_row {
    const char *name; /* as the server's flag, but for concurrency */
    bool is_switch;
    bool simulated;       /* the simulator knows what it does, so it may rule values out */
    const double *values; /* ended by -1 */
};
extern const struct knob_row knob_rows[KNOBS];

/* Values around `base`, ascending, base among them; returns how many. */
size_t knob_ladder(enum knob k, double base, size_t n_cores, double out[LADDER_MAX]);
void knob_print(enum knob k, double v, char *out, size_t size); /* "64", "on", "0.5" */
/* The knobs of a list like "max-num-seqs,block-size" as bits; NULL: all. */
int knob_parse(const char *list, unsigned *bits, struct error *err);
bool candidate_equal(const struct candidate *a, const struct candidate *b);
/* "max-num-seqs 64, prefix caching off": where it differs from base; "as given" where it does not. */
void candidate_print(const struct candidate *c, const struct candidate *base, char *out, size_t size);

#endif
