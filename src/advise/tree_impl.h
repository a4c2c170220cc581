/* What the parts of the tree share (private to tree*.c). */
#ifndef ADVISE_TREE_IMPL_H
#define ADVISE_TREE_IMPL_H

#include "advise/tree.h"

struct tree {
    const struct figures *f;
    const struct wishes *w;
    struct advice *out;
    double busy;               /* share of the window in steps; 0 where it is not known */
    double prefill_share;      /* of the work */
    double waiting;            /* requests, mean: as seen, or by Little's law */
    double fixed_ms, token_ms; /* of a decode step: fixed + token x sequences */
    bool fitted;               /* measured; else supposed, see docs/advise.md */
    bool pressed;              /* requests wait or are refused, or the SLO is missed */
};

static inline bool known(const struct tree *t, enum figure f) {
    return t->f->has[f];
}
/* 0 where it is not known: conditions are written so that this is never "too much". */
static inline double fig(const struct tree *t, enum figure f) {
    return t->f->has[f] ? t->f->v[f] : 0;
}

/* A verdict with a gain of `gain` (brought into 0 to 1), resting on the figures up to FIGURES. */
struct verdict *tree_say(struct tree *t, enum verdict_kind kind, double gain, const enum figure *rests);
bool tree_said(const struct tree *t, enum verdict_kind kind);
double tree_gain(const struct tree *t, enum verdict_kind kind); /* 0: it was not said */
void tree_write(char text[VERDICT_TEXT], const char *fmt, ...) __attribute__((format(printf, 2, 3)));
/* Tokens that are computed for nothing, and the share of the work that they are: what both are a day. */
void tree_waste(struct tree *t, struct verdict *v, double tokens, double share);

/* Milliseconds of a decode step of n sequences. */
double tree_step_ms(const struct tree *t, double n);
/* Share of the time of a token that more sequences in a step save: from n to m. */
double tree_batch_gain(const struct tree *t, double n, double m);

void tree_tokens(struct tree *t); /* too many tokens? */
void tree_device(struct tree *t); /* the device, its processors */
void tree_batch(struct tree *t);  /* the scheduler's limits, the queue, readers */
void tree_memory(struct tree *t); /* KV */
void tree_rest(struct tree *t);   /* format, speculation, SLO, devices */

#endif
