#include "tune/search.h"

#include "base/error.h"
#include "load/samples.h"
#include "tune/knobs.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define NEAR 0.03 /* shares of a limit, or of goodput, that are no difference whatever the intervals say */
#define RULED_OUT                                                                                            \
    0.85             /* a candidate that is predicted to have less of the best's goodput is not measured     \
                      */
#define FAR_OUT 1.30 /* or one that is predicted to be so far beyond the SLO while the best holds it */

/* ---- all runs of a candidate together ---- */

struct evidence {
    struct figures f; /* means */
    double batches[16 * TRIAL_BATCHES];
    size_t n_batches, n_runs;
    char failed[200];
};

static void add_run(struct evidence *e, const struct trial *r) {
    double n = (double)++e->n_runs;
    struct figures *f = &e->f;
    const struct figures *g = &r->f;
    if (*r->failed) memcpy(e->failed, r->failed, sizeof e->failed);
    f->good_per_s += (g->good_per_s - f->good_per_s) / n;
    f->good_share += (g->good_share - f->good_share) / n;
    if (n == 1 || !isfinite(g->excess))
        f->excess = g->excess;
    else if (isfinite(f->excess))
        f->excess += (g->excess - f->excess) / n;
    f->output_per_s += (g->output_per_s - f->output_per_s) / n;
    f->total_per_s += (g->total_per_s - f->total_per_s) / n;
    f->ttft_p50 += (g->ttft_p50 - f->ttft_p50) / n;
    f->ttft_p95 += (g->ttft_p95 - f->ttft_p95) / n;
    f->tpot_p50 += (g->tpot_p50 - f->tpot_p50) / n;
    f->tpot_p95 += (g->tpot_p95 - f->tpot_p95) / n;
    f->e2e_p95 += (g->e2e_p95 - f->e2e_p95) / n;
    f->n_ok += g->n_ok;
    f->n_failed += g->n_failed;
    for (int b = 0; b < TRIAL_BATCHES && e->n_batches < sizeof e->batches / sizeof *e->batches; b++)
        e->batches[e->n_batches++] = r->batches[b];
}

/* The first `runs` runs; *got is fewer when the budget is spent. */
static int collect(struct search *s, const struct candidate *c, unsigned runs, double part,
                   struct evidence *e, struct error *err) {
    *e = (struct evidence){0};
    for (unsigned i = 0; i < runs; i++) {
        const struct trial *r;
        int rc = trials_get(&s->trials, c, i, part, &r, err);
        if (rc) return rc;
        if (!r) break;
        add_run(e, r);
        if (*r->failed) break;
    }
    return 0;
}

/* ---- which is better ---- */

static bool holds(const struct figures *f) {
    return f->excess <= 1;
}

/* Holding the SLO goes before all; where both miss it, being nearer; then goodput, by its bootstrap interval.
 */
static enum verdict judge(const struct evidence *a, const struct evidence *b, struct tune_step *step) {
    struct evidence x = *a, y = *b; /* bootstrap sorts */
    step->low = step->high = 0;
    if (*b->failed) return VERDICT_FAILED;
    if (*a->failed) return holds(&b->f) ? VERDICT_BETTER : VERDICT_SAME; /* it had been well before */
    if (holds(&a->f) != holds(&b->f)) {
        double missed = holds(&a->f) ? b->f.excess : a->f.excess;
        if (missed < 1 + NEAR) return VERDICT_SAME;
        return holds(&b->f) ? VERDICT_BETTER : VERDICT_WORSE;
    }
    if (!holds(&a->f) && isfinite(a->f.excess) && fabs(b->f.excess / a->f.excess - 1) > NEAR)
        return b->f.excess < a->f.excess ? VERDICT_BETTER : VERDICT_WORSE;
    struct stats_interval i = stats_bootstrap(x.batches, x.n_batches, y.batches, y.n_batches, STATS_MEAN, 1);
    if (!i.known) return VERDICT_SAME;
    step->low = i.low;
    step->high = i.high;
    if (a->f.good_per_s > 0 && fabs(b->f.good_per_s / a->f.good_per_s - 1) < NEAR) return VERDICT_SAME;
    return i.low > 0 ? VERDICT_BETTER : i.high < 0 ? VERDICT_WORSE : VERDICT_SAME;
}

/* More runs of both until their intervals separate. */
static int compare(struct search *s, const struct candidate *c, struct tune_step *step, struct error *err) {
    struct evidence a, b;
    for (unsigned runs = 1; runs <= (unsigned)s->o->repeats; runs++) {
        int rc = collect(s, &s->best, runs, 1, &a, err);
        if (!rc) rc = collect(s, c, runs, 1, &b, err);
        if (rc) return rc;
        if (!b.n_runs) break; /* spent */
        step->before = a.f;
        step->after = b.f;
        step->verdict = judge(&a, &b, step);
        if (*b.failed) snprintf(step->why, sizeof step->why, "%s", b.failed);
        if (step->verdict != VERDICT_SAME || s->trials.spent) break;
    }
    return 0;
}

/* ---- the simulator's word ---- */

static bool nearly(double a, double b) {
    return fabs(a - b) <= 0.001 * fabs(a);
}

static bool ruled_out(const struct search *s, const struct candidate *c, enum knob k,
                      struct tune_step *step) {
    struct figures a, b;
    if (!knob_rows[k].simulated || !predict(s->o, &s->trials.slo, &s->best, &a) ||
        !predict(s->o, &s->trials.slo, c, &b))
        return false;
    step->before = a;
    step->after = b;
    step->verdict = VERDICT_RULED_OUT;
    if (nearly(a.good_per_s, b.good_per_s) && nearly(a.excess, b.excess) &&
        nearly(a.output_per_s, b.output_per_s)) {
        snprintf(step->why, sizeof step->why, "not measured: no difference is predicted");
        return true;
    }
    if (holds(&a) && b.excess > FAR_OUT) {
        snprintf(step->why, sizeof step->why, "not measured: predicted to be at %.2f of the SLO's limits",
                 b.excess);
        return true;
    }
    if (holds(&a) && b.good_per_s < RULED_OUT * a.good_per_s) {
        snprintf(step->why, sizeof step->why,
                 "not measured: goodput is predicted to be %.3f/s, that of the best %.3f/s", b.good_per_s,
                 a.good_per_s);
        return true;
    }
    return false;
}

/* ---- the quality gate ---- */

/* Before the load, so that nothing is measured of a server whose answers are not wanted. */
static int pass_gate(struct search *s, struct tune_step *step, bool *through, struct error *err) {
    const struct tune_quality *q;
    *through = true;
    if (!changes_answers(s->o, &step->c)) return 0;
    int rc = quality_get(&s->trials, &step->c, &q, err);
    *through = !rc && q;
    if (rc == QUIRE_ECANCELED || rc == QUIRE_ENOMEM) return rc;
    if (rc) {
        step->verdict = VERDICT_FAILED;
        snprintf(step->why, sizeof step->why, "%.*s", (int)sizeof step->why - 1, err->text);
        *err = (struct error){0};
    } else if (q) {
        step->q = *q;
        *through = quality_within(s->o->judge, q, step->why, sizeof step->why);
        if (!*through) step->verdict = VERDICT_UNLIKE;
    }
    return 0;
}

/* ---- steps ---- */

#define LONGER 1.25 /* than last time a run may take, on a machine whose speed wanders */

static double seconds_of(const struct search *s, const struct candidate *c) {
    return LONGER * trials_seconds(&s->trials, c, 1);
}

/* The best and the defaults are measured once more at the end: that time, and of `--runs` two, are not the
 * search's. */
static void keep_for_the_end(struct search *s) {
    s->trials.reserve_s = seconds_of(s, &s->o->base) + seconds_of(s, &s->best);
    s->trials.reserve_runs = s->o->most_runs > 4 ? 2 : 0;
}

/* Tries a candidate; what is better becomes the best. */
static int try_candidate(struct search *s, const struct candidate *c, enum knob k, bool matrix,
                         enum verdict *verdict, struct error *err) {
    struct tune_step *step = &s->steps[s->n_steps];
    *verdict = VERDICT_SAME;
    if (s->n_steps == STEPS_MAX || s->trials.spent) return 0;
    *step = (struct tune_step){.c = *c, .knob = k, .matrix = matrix, .verdict = VERDICT_SAME};
    keep_for_the_end(s);
    bool through;
    int rc = pass_gate(s, step, &through, err);
    if (!rc && through && !ruled_out(s, c, k, step)) rc = compare(s, c, step, err);
    if (rc) return rc;
    if (step->verdict < VERDICT_RULED_OUT && !step->after.n_ok)
        return 0; /* spent before there was a figure */
    s->n_steps++;
    *verdict = step->verdict;
    if (*verdict == VERDICT_BETTER) {
        s->best = *c;
        s->best_figures = step->after;
    }
    if (*verdict == VERDICT_BETTER || *verdict == VERDICT_WORSE) s->moved |= 1u << k;
    report_step(s, step);
    return 0;
}

static size_t index_of(const double *v, size_t n, double value) {
    size_t i = 0;
    while (i + 1 < n && v[i] != value) i++;
    return i;
}

/* Whether the server would refuse it: every running sequence takes a token a step. */
static bool impossible(const struct candidate *c) {
    return c->v[KNOB_TOKENS] < c->v[KNOB_SEQS];
}

/* One way along the ladder while it gets better. A value that the simulator rules out does not end the way,
 * the next may be better; nor does one without a difference while the SLO is missed, since options that limit
 * less than the load does have none. */
static int walk_towards(struct search *s, enum knob k, int direction, bool *gained, struct error *err) {
    double v[LADDER_MAX];
    size_t n = knob_ladder(s->o, k, s->best.v[k], v), i = index_of(v, n, s->best.v[k]), n_same = 0;
    while (direction > 0 ? i + 1 < n : i > 0) {
        struct candidate c = s->best;
        enum verdict verdict;
        i = direction > 0 ? i + 1 : i - 1;
        c.v[k] = v[i];
        if (impossible(&c)) break;
        int rc = try_candidate(s, &c, k, false, &verdict, err);
        if (rc) return rc;
        if (s->trials.spent) return 0;
        *gained |= verdict == VERDICT_BETTER;
        n_same = verdict == VERDICT_SAME ? n_same + 1 : 0;
        if (verdict == VERDICT_WORSE || verdict == VERDICT_FAILED) break;
        if (n_same && (holds(&s->best_figures) || n_same > 1)) break;
    }
    return 0;
}

/* Names have no order: each beside the best so far. */
static int walk_names(struct search *s, enum knob k, struct error *err) {
    double v[LADDER_MAX], first = s->best.v[k];
    size_t n = knob_ladder(s->o, k, first, v);
    for (size_t i = 0; i < n && !s->trials.spent; i++) {
        struct candidate c = s->best;
        enum verdict verdict;
        if (v[i] == first) continue;
        c.v[k] = v[i];
        int rc = try_candidate(s, &c, k, false, &verdict, err);
        if (rc) return rc;
    }
    return 0;
}

/* Up first, or down where the SLO is missed: less at once is what helps then. The other way only without a
 * gain. */
static int walk(struct search *s, enum knob k, struct error *err) {
    if (knob_rows[k].kind == KNOB_NAME) return walk_names(s, k, err);
    int first = holds(&s->best_figures) ? 1 : -1;
    bool gained = false;
    int rc = walk_towards(s, k, first, &gained, err);
    if (!rc && !gained && !s->trials.spent) rc = walk_towards(s, k, -first, &gained, err);
    return rc;
}

/* ---- the matrix ---- */

struct cell {
    struct candidate c;
    struct evidence e;
    bool out;
};

/* Cells around the best, those that are measured and the best itself included. */
static size_t cells_around(const struct search *s, struct cell cells[9]) {
    double seqs[LADDER_MAX], tokens[LADDER_MAX];
    size_t n_seqs = knob_ladder(s->o, KNOB_SEQS, s->best.v[KNOB_SEQS], seqs), n = 0;
    size_t n_tokens = knob_ladder(s->o, KNOB_TOKENS, s->best.v[KNOB_TOKENS], tokens);
    size_t i = index_of(seqs, n_seqs, s->best.v[KNOB_SEQS]),
           k = index_of(tokens, n_tokens, s->best.v[KNOB_TOKENS]);
    for (size_t a = i ? i - 1 : 0; a < n_seqs && a <= i + 1; a++)
        for (size_t b = k ? k - 1 : 0; b < n_tokens && b <= k + 1; b++) {
            struct candidate c = s->best;
            c.v[KNOB_SEQS] = seqs[a];
            c.v[KNOB_TOKENS] = tokens[b];
            if (tokens[b] >= seqs[a] && !candidate_equal(&c, &s->best)) cells[n++].c = c;
        }
    return n;
}

static int by_merit(const void *a, const void *b) {
    const struct cell *x = a, *y = b;
    if (x->out != y->out) return x->out - y->out;
    if (holds(&x->e.f) != holds(&y->e.f)) return holds(&x->e.f) ? -1 : 1;
    if (!holds(&x->e.f)) return x->e.f.excess < y->e.f.excess ? -1 : x->e.f.excess > y->e.f.excess;
    return x->e.f.good_per_s > y->e.f.good_per_s ? -1 : x->e.f.good_per_s < y->e.f.good_per_s;
}

/* Successive halving (Jamieson and Talwalkar, "Non-stochastic best arm identification and hyperparameter
 * optimization", 2016): a quarter of the requests for all, half of them for the better half, and the last
 * ones against the best. */
static int matrix(struct search *s, struct error *err) {
    struct cell cells[9] = {0};
    size_t n = cells_around(s, cells), left = n;
    for (size_t i = 0; i < n; i++) {
        struct tune_step ignored = {0};
        cells[i].out = ruled_out(s, &cells[i].c, KNOB_TOKENS, &ignored);
    }
    qsort(cells, n, sizeof *cells, by_merit);
    while (left && cells[left - 1].out) left--;
    for (double part = 0.25; part < 1 && left > 2; part *= 2) {
        for (size_t i = 0; i < left; i++) {
            keep_for_the_end(s);
            int rc = collect(s, &cells[i].c, 1, part, &cells[i].e, err);
            if (rc) return rc;
            if (s->trials.spent) return 0;
            cells[i].out = *cells[i].e.failed;
        }
        qsort(cells, left, sizeof *cells, by_merit);
        left = (left + 1) / 2;
    }
    for (size_t i = 0; i < left; i++) {
        enum verdict verdict;
        int rc = try_candidate(s, &cells[i].c, KNOB_SEQS, true, &verdict, err);
        if (rc) return rc;
    }
    return 0;
}

/* ---- all ---- */

static int baseline(struct search *s, struct error *err) {
    struct evidence e;
    int rc = collect(s, &s->o->base, 1, 1, &e, err);
    if (rc) return rc;
    if (!e.n_runs) return error_set(err, QUIRE_ELIMIT, "--budget does not allow a single run");
    s->best = s->o->base;
    s->base_figures = s->best_figures = e.f;
    fprintf(s->out,
            "defaults: goodput %.3f/s, %.1f %% within, worst quantile at %.2f of its limit; TTFT P95 %.0f "
            "ms, TPOT "
            "P95 %.1f ms, %.1f output tok/s%s\n",
            e.f.good_per_s, 100 * e.f.good_share, e.f.excess, e.f.ttft_p95, e.f.tpot_p95, e.f.output_per_s,
            s->trials.spent ? "; the budget has cut this run short" : "");
    return 0;
}

/* One of the two last runs: in the time that was kept for it. */
static int once_more(struct search *s, const struct candidate *c, double keep_s, const struct trial **out,
                     struct error *err) {
    bool spent = s->trials.spent;
    s->trials.spent = false;
    s->trials.reserve_s = keep_s;
    s->trials.reserve_runs = 0;
    int rc =
        trials_get(&s->trials, c, (unsigned)s->o->repeats, 1, out, err); /* a number that no other run has */
    s->trials.spent |= spent;
    return rc;
}

/* The many that were tried make the best one's luck likely: it and the defaults are measured once more, with
 * prompts of their own. If it is not better then, the defaults stay. */
static int confirm(struct search *s, struct error *err) {
    struct evidence a = {0}, b = {0};
    struct tune_step step = {0};
    const struct trial *x = NULL, *y = NULL;
    if (candidate_equal(&s->best, &s->o->base)) return 0;
    int rc = once_more(s, &s->o->base, seconds_of(s, &s->best), &x, err);
    if (!rc && x) rc = once_more(s, &s->best, 0, &y, err);
    s->unconfirmed = !x || !y;
    if (rc || s->unconfirmed) return rc;
    add_run(&a, x);
    add_run(&b, y);
    enum verdict v = judge(&a, &b, &step);
    s->base_figures = a.f;
    s->best_figures = b.f;
    s->reverted = v == VERDICT_WORSE || v == VERDICT_FAILED;
    if (!s->reverted) return 0;
    s->best = s->o->base;
    s->best_figures = a.f;
    return 0;
}

int search_run(struct search *s, struct error *err) {
    unsigned bits;
    int rc = knob_choose(s->o, &bits, err);
    if (!rc) rc = baseline(s, err);
    for (int k = 0; k < KNOBS && !rc && !s->trials.spent; k++) {
        if (bits & 1u << k) rc = walk(s, (enum knob)k, err);
    }
    unsigned both = 1u << KNOB_SEQS | 1u << KNOB_TOKENS;
    if (!rc && !s->trials.spent && (s->moved & both) == both) rc = matrix(s, err);
    return rc ? rc : confirm(s, err);
}

int tune_check(const struct tune_options *o, struct error *err) {
    struct search *s = calloc(1, sizeof *s);
    if (!s) return error_set(err, QUIRE_ENOMEM, "out of memory");
    s->o = o;
    int rc = load_check(o, err);
    if (!rc) rc = trials_open(&s->trials, o, err);
    if (!rc) rc = report_files_open(s, err);
    report_files_close(s);
    trials_close(&s->trials);
    free(s);
    return rc;
}

int tune_run(const struct tune_options *o, FILE *out, struct error *err) {
    struct search *s = calloc(1, sizeof *s);
    if (!s) return error_set(err, QUIRE_ENOMEM, "out of memory");
    s->o = o;
    s->out = out;
    int rc = trials_open(&s->trials, o, err);
    if (!rc) rc = report_files_open(s, err);
    if (!rc && s->trials.n_old) fprintf(out, "%zu runs are in %s already\n", s->trials.n_old, o->folder);
    if (!rc) rc = search_run(s, err);
    if (!rc) {
        report_end(s);
        rc = report_write(s, err);
    } else if (rc == QUIRE_ECANCELED) {
        rc = error_set(err, rc,
                       "interrupted: %zu runs are kept in %.200s, the same command goes on from there",
                       s->trials.n, o->folder);
    }
    report_files_close(s);
    trials_close(&s->trials);
    free(s);
    return rc;
}
