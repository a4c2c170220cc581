/* The parameters: their flags, and the values that are tried. */
#ifndef TUNE_KNOBS_H
#define TUNE_KNOBS_H

#include "tune/tune.h"

#define LADDER_MAX 16

enum knob_kind { KNOB_NUMBER, KNOB_SWITCH, KNOB_NAME };

struct knob_row {
    const char *name; /* as the server's flag, but for concurrency and weights */
    enum knob_kind kind;
    bool simulated;       /* the simulator knows what it does, so it may rule values out */
    const double *values; /* ended by -1; NULL: 0, 1, ... for names */
};
extern const struct knob_row knob_rows[KNOBS];

/* Values around `base`, ascending, base among them; returns how many. */
size_t knob_ladder(const struct tune_options *o, enum knob k, double base, double out[LADDER_MAX]);
/* "64", "on", "0.5", "float16"; of weights the file without its folder. */
void knob_print(const struct tune_options *o, enum knob k, double v, char *out, size_t size);
/* The knobs that are searched: those of o->parameters, a list like "max-num-seqs,block-size", or all; without
 * what does not apply. QUIRE_EINVAL when one is named that cannot be tried. */
int knob_choose(const struct tune_options *o, unsigned *bits, struct error *err);
bool candidate_equal(const struct candidate *a, const struct candidate *b);
/* "max-num-seqs 64, prefix caching off": where it differs from the defaults; "as given" where it does not. */
void candidate_print(const struct tune_options *o, const struct candidate *c, char *out, size_t size);

#endif
