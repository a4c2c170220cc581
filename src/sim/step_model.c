#include "sim/step_model.h"

#include "base/error.h"
#include "base/stats.h"
#include "sim/nnls.h"

#include <math.h>
#include <stdlib.h>

#define KNOTS 9
static const double knots[KNOTS] = {1,  2,  4,   8,  16,
                                    32, 64, 128, 256}; /* rows at which the slope may change */

const char *const step_term_names[STEP_TERMS] = {
    "step",         "rows_2",          "rows_4",           "rows_8",          "rows_16",     "rows_32",
    "rows_64",      "rows_128",        "rows_256",         "rows_more",       "decode_rows", "sequences",
    "logit_rows_8", "logit_rows_more", "prefill_attended", "decode_attended",
};

const char *const step_region_names[STEP_REGIONS] = {
    "decode, up to 8 rows", "decode, more rows", "prefill, up to 128 rows", "prefill, more rows", "mixed"};

enum step_region step_region_of(const struct quire_step *s) {
    if (!s->n_prefill_rows) return s->n_decode_rows <= 8 ? STEP_DECODE_FEW : STEP_DECODE_MANY;
    if (s->n_decode_rows) return STEP_MIXED;
    return s->n_prefill_rows <= 128 ? STEP_PREFILL_SHORT : STEP_PREFILL_LONG;
}

/* How much of [from, to) lies below v. */
static double part(double v, double from, double to) {
    return fmax(0, fmin(v, to) - from);
}

void step_terms(const struct quire_step *s, double t[STEP_TERMS]) {
    double rows = (double)(s->n_prefill_rows + s->n_decode_rows), logits = (double)s->n_logit_rows;
    size_t n = 0;
    t[n++] = 1;
    for (size_t i = 0; i < KNOTS; i++) t[n++] = part(rows, knots[i], i + 1 < KNOTS ? knots[i + 1] : INFINITY);
    t[n++] = (double)s->n_decode_rows;
    t[n++] = (double)(s->n_prefill_seqs + s->n_decode_seqs);
    t[n++] = part(logits, 0, 8);
    t[n++] = part(logits, 8, INFINITY);
    t[n++] = (double)s->prefill_attended;
    t[n++] = (double)s->decode_attended;
}

static double sum(const double *coefficients, const double *terms) {
    double v = 0;
    for (size_t i = 0; i < STEP_TERMS; i++) v += coefficients[i] * terms[i];
    return v;
}

void step_model_time(const struct step_model *m, struct quire_step *s) {
    double terms[STEP_TERMS];
    step_terms(s, terms);
    s->prepare_us = 0;
    s->forward_us = (uint64_t)fmin(STEP_MOST_US, sum(m->forward_us, terms) + 0.5);
    s->sample_us = (uint64_t)fmin(STEP_MOST_US, sum(m->rest_us, terms) + 0.5);
}

/* ---- fitting ---- */

enum which { FORWARD, REST };

struct fitting {
    const struct quire_step *steps;
    size_t n;
    double *slow, *errors, *sums; /* [n] of each step: how slow the machine was; scratch; [n + 1] scratch */
};

static double measured(const struct quire_step *s, enum which w) {
    return 1 + (double)(w == FORWARD ? s->forward_us : s->prepare_us + s->sample_us); /* a clock of 1 us */
}

/* At the machine's mean speed. */
static double corrected(const struct fitting *f, size_t i, enum which w) {
    return measured(&f->steps[i], w) / f->slow[i];
}

static double predicted(const struct fitting *f, size_t i, const double *coefficients) {
    double terms[STEP_TERMS];
    step_terms(&f->steps[i], terms);
    return sum(coefficients, terms);
}

/* The error of a step that may still count as one of the many. */
static double limit_of(double *errors, size_t n) {
    stats_sort(errors, n);
    double median = stats_quantile(errors, n, 0.5);
    return fmax(4 * median, 0.02);
}

/* Least squares of the relative error come out low where times vary, since a step that took long counts less.
 * A load takes the sum, so the sum of those within the limit is made right. */
static void balance(const struct fitting *f, enum which w, double limit, double out[STEP_TERMS]) {
    double all = 0, total = 0;
    for (size_t i = 0; i < f->n; i++) {
        double t = corrected(f, i, w), p = predicted(f, i, out);
        if (fabs(p / t - 1) > limit) continue;
        all += p;
        total += t;
    }
    for (size_t i = 0; i < STEP_TERMS && all > 0; i++) out[i] *= total / all;
}

/* Where no step had so many rows, a row more costs what it did before. */
static void extend(const struct fitting *f, double out[STEP_TERMS]) {
    double most[STEP_TERMS] = {0}, terms[STEP_TERMS];
    for (size_t i = 0; i < f->n; i++) {
        step_terms(&f->steps[i], terms);
        for (size_t k = 0; k < STEP_TERMS; k++) most[k] = fmax(most[k], terms[k]);
    }
    for (size_t k = 2; k <= KNOTS; k++)
        if (most[k] == 0) out[k] = out[k - 1];
}

static int fit_one(struct fitting *f, enum which w, double out[STEP_TERMS]) {
    double limit = INFINITY, terms[STEP_TERMS];
    struct nnls *s = calloc(1, sizeof *s);
    if (!s) return QUIRE_ENOMEM;
    for (int round = 0; round < 3; round++) {
        nnls_init(s, STEP_TERMS);
        for (size_t i = 0; i < f->n; i++) {
            double t = corrected(f, i, w);
            step_terms(&f->steps[i], terms);
            if (round && fabs(sum(out, terms) / t - 1) > limit) continue;
            nnls_add(s, terms, t, 1 / t);
        }
        nnls_solve(s, out);
        for (size_t i = 0; i < f->n; i++) f->errors[i] = fabs(predicted(f, i, out) / corrected(f, i, w) - 1);
        limit = limit_of(f->errors, f->n);
    }
    free(s);
    balance(f, w, limit, out);
    extend(f, out);
    return 0;
}

/* ---- the machine's speed ---- */

#define DRIFT_ROUNDS 3
#define DRIFT_MOST   3.0 /* a step that took longer by more tells nothing of those around it */

/* How slow the machine was around each step: the mean of log(measured / predicted) within STEP_DRIFT_US,
 * weighed by time; then so that the steps together take the time that they took. */
static void find_drift(struct fitting *f, const uint64_t *end_us, const double *forward_us) {
    double *log_sum = f->sums, *time_sum = f->errors, all = 0, slowed = 0;
    log_sum[0] = time_sum[0] = 0;
    for (size_t i = 0; i < f->n; i++) {
        double t = measured(&f->steps[i], FORWARD), p = fmax(1, predicted(f, i, forward_us));
        double slow = log(fmin(DRIFT_MOST, fmax(1 / DRIFT_MOST, t / p)));
        log_sum[i + 1] = log_sum[i] + slow * t;
        time_sum[i + 1] = time_sum[i] + t;
    }
    for (size_t i = 0, from = 0, to = 0; i < f->n; i++) {
        while (end_us[from] + STEP_DRIFT_US < end_us[i]) from++;
        while (to < f->n && end_us[to] <= end_us[i] + STEP_DRIFT_US) to++;
        f->slow[i] = exp((log_sum[to] - log_sum[from]) / (time_sum[to] - time_sum[from]));
        all += measured(&f->steps[i], FORWARD);
        slowed += measured(&f->steps[i], FORWARD) / f->slow[i];
    }
    for (size_t i = 0; i < f->n; i++) f->slow[i] *= slowed / all;
}

static int fit_forward(struct fitting *f, const uint64_t *end_us, struct step_model *out) {
    int rc = fit_one(f, FORWARD, out->forward_us);
    for (int round = 0; end_us && !rc && round < DRIFT_ROUNDS; round++) {
        find_drift(f, end_us, out->forward_us);
        rc = fit_one(f, FORWARD, out->forward_us);
    }
    if (rc || !end_us) return rc;
    for (size_t i = 0; i < f->n; i++) f->errors[i] = f->slow[i];
    stats_sort(f->errors, f->n);
    out->slow_low = stats_quantile(f->errors, f->n, 0.1);
    out->slow_high = stats_quantile(f->errors, f->n, 0.9);
    return 0;
}

/* Pauses between steps are left out: what is kept is the time that the machine was at work. */
static void keep_wander(struct fitting *f, struct step_model *m) {
    double *took = f->errors, *mean = f->sums;
    for (size_t i = 0; i < f->n; i++) {
        struct quire_step s = f->steps[i];
        took[i] = measured(&s, FORWARD) + measured(&s, REST);
        step_model_time(m, &s);
        mean[i] = (double)(s.forward_us + s.sample_us);
    }
    wander_make(took, mean, f->n, &m->wander);
}

static void judge(struct fitting *f, struct step_model *m) {
    for (int r = 0; r < STEP_REGIONS; r++) {
        struct step_fit *fit = &m->fit[r];
        double all = 0, total = 0;
        *fit = (struct step_fit){0};
        for (size_t i = 0; i < f->n; i++) {
            if ((int)step_region_of(&f->steps[i]) != r) continue;
            struct quire_step s = f->steps[i];
            double t = corrected(f, i, FORWARD) + corrected(f, i, REST);
            step_model_time(m, &s);
            double p = (double)(s.forward_us + s.sample_us);
            f->errors[fit->n++] = fabs(p / t - 1);
            all += p;
            total += t;
        }
        if (!fit->n) continue;
        stats_sort(f->errors, fit->n);
        fit->median_error = stats_quantile(f->errors, fit->n, 0.5);
        fit->p95_error = stats_quantile(f->errors, fit->n, 0.95);
        fit->bias = all / total - 1;
    }
}

int step_model_fit(const struct quire_step *steps, const uint64_t *end_us, size_t n, struct step_model *out,
                   struct error *err) {
    *out = (struct step_model){0};
    if (n < STEP_LEAST)
        return error_set(err, QUIRE_EINVAL, "%zu steps were measured, at least %d are needed for a fit", n,
                         STEP_LEAST);
    double *scratch = calloc(3 * (n + 1), sizeof *scratch);
    struct fitting f = {steps, n, scratch, scratch + n + 1, scratch + 2 * (n + 1)};
    for (size_t i = 0; scratch && i < n; i++) f.slow[i] = 1;
    int rc = scratch ? fit_forward(&f, end_us, out) : QUIRE_ENOMEM;
    if (!rc) rc = fit_one(&f, REST, out->rest_us);
    if (!rc) judge(&f, out);
    if (!rc && end_us) keep_wander(&f, out);
    free(scratch);
    return rc ? error_set(err, rc, "out of memory for a fit of %zu steps", n) : 0;
}
