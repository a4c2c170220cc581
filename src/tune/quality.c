/* What changes answers is looked at before it is measured: docs/eval.md defines the figures. */
#include "base/error.h"
#include "tune/state.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#define LEAST_S 5 /* a look in less time tells nothing */

bool changes_answers(const struct tune_options *o, const struct candidate *c) {
    return c->v[KNOB_DTYPE] != o->base.v[KNOB_DTYPE] || c->v[KNOB_WEIGHTS] != o->base.v[KNOB_WEIGHTS];
}

void quality_print(const struct tune_quality *q, char *out, size_t size) {
    snprintf(out, size, "perplexity %+.2f %%, KL %.4f, same top-1 %.1f %%", 100 * q->ppl_increase, q->kl,
             100 * q->top1);
}

bool quality_within(const struct tune_judge *j, const struct tune_quality *q, char *why, size_t size) {
    const struct tune_quality *most = &j->limits;
    if (!(q->ppl_increase <= most->ppl_increase))
        snprintf(why, size, "perplexity %+.2f %%, allowed is %+.2f %%", 100 * q->ppl_increase,
                 100 * most->ppl_increase);
    else if (!(q->kl <= most->kl))
        snprintf(why, size, "KL divergence %.4f nats, allowed is %g", q->kl, most->kl);
    else if (!(1 - q->top1 <= most->top1))
        snprintf(why, size, "same top-1 %.1f %%, allowed is %.1f %%", 100 * q->top1, 100 * (1 - most->top1));
    else
        return true;
    return false;
}

int quality_get(struct trials *t, const struct candidate *c, const struct tune_quality **out,
                struct error *err) {
    const struct tune_options *o = t->o;
    struct looked *l = &t->looked[t->n_looked];
    *out = NULL;
    for (size_t i = 0; i < t->n_looked; i++)
        if (t->looked[i].dtype == c->v[KNOB_DTYPE] && t->looked[i].weights == c->v[KNOB_WEIGHTS]) {
            *out = &t->looked[i].q;
            return 0;
        }
    double most_s = fmin(o->judge->most_s, trials_left_s(t) / 3); /* two looks, and a run to follow */
    if (most_s < LEAST_S && most_s < o->judge->most_s) t->spent = true;
    if (t->spent || t->n_looked == LOOKED_MAX) return 0;
    *l = (struct looked){.dtype = c->v[KNOB_DTYPE], .weights = c->v[KNOB_WEIGHTS]};
    int rc = o->judge->look(o->judge->ctx, o->weights[(size_t)l->weights], tune_dtypes[(size_t)l->dtype],
                            most_s, &l->q, err);
    if (rc) return rc;
    t->n_looked++;
    *out = &l->q;
    return state_write(t, err);
}
