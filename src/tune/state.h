/* The folder's file of runs (private to src/tune). */
#ifndef TUNE_STATE_H
#define TUNE_STATE_H

#include "tune/trial.h"

/* All that must be the same for runs to be comparable, as text; malloc'd, NULL when memory is out. */
char *state_key(const struct tune_options *o);
int state_read(struct trials *t, struct error *err);
int state_write(const struct trials *t, struct error *err);

#endif
