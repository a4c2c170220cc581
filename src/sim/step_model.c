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
    s->forward_us = (uint64_t)(sum(m->forward_us, terms) + 0.5);
    s->sample_us = (uint64_t)(sum(m->rest_us, terms) + 0.5);
}

/* ---- fitting ---- */

enum which { FORWARD, REST };

static double measured(const struct quire_step *s, enum which w) {
    return 1 + (double)(w == FORWARD ? s->forward_us : s->prepare_us + s->sample_us); /* a clock of 1 us */
}

/* The error of a step that may still count as one of the many. */
static double limit_of(double *errors, size_t n) {
    stats_sort(errors, n);
    double median = stats_quantile(errors, n, 0.5);
    return fmax(4 * median, 0.02);
}

/* Least squares of the relative error come out low where times vary, since a step that took long counts less.
 * A load takes the sum, so the sum of those within the limit is made right. */
static void balance(const struct quire_step *steps, size_t n, enum which w, double limit,
                    double out[STEP_TERMS]) {
    double predicted = 0, total = 0, terms[STEP_TERMS];
    for (size_t i = 0; i < n; i++) {
        step_terms(&steps[i], terms);
        double t = measured(&steps[i], w), p = sum(out, terms);
        if (fabs(p / t - 1) > limit) continue;
        predicted += p;
        total += t;
    }
    for (size_t i = 0; i < STEP_TERMS && predicted > 0; i++) out[i] *= total / predicted;
}

/* Where no step had so many rows, a row more costs what it did before. */
static void extend(const struct quire_step *steps, size_t n, double out[STEP_TERMS]) {
    double most[STEP_TERMS] = {0}, terms[STEP_TERMS];
    for (size_t i = 0; i < n; i++) {
        step_terms(&steps[i], terms);
        for (size_t k = 0; k < STEP_TERMS; k++) most[k] = fmax(most[k], terms[k]);
    }
    for (size_t k = 2; k <= KNOTS; k++)
        if (most[k] == 0) out[k] = out[k - 1];
}

static int fit_one(const struct quire_step *steps, size_t n, enum which w, double out[STEP_TERMS]) {
    double *errors = calloc(n, sizeof *errors), limit = INFINITY, terms[STEP_TERMS];
    struct nnls *s = calloc(1, sizeof *s);
    for (int round = 0; errors && s && round < 3; round++) {
        nnls_init(s, STEP_TERMS);
        for (size_t i = 0; i < n; i++) {
            double t = measured(&steps[i], w);
            step_terms(&steps[i], terms);
            if (round && fabs(sum(out, terms) / t - 1) > limit) continue;
            nnls_add(s, terms, t, 1 / t);
        }
        nnls_solve(s, out);
        for (size_t i = 0; i < n; i++) {
            step_terms(&steps[i], terms);
            errors[i] = fabs(sum(out, terms) / measured(&steps[i], w) - 1);
        }
        limit = limit_of(errors, n);
    }
    int rc = errors && s ? 0 : QUIRE_ENOMEM;
    if (!rc) {
        balance(steps, n, w, limit, out);
        extend(steps, n, out);
    }
    free(errors);
    free(s);
    return rc;
}

static void judge(const struct quire_step *steps, size_t n, struct step_model *m, double *errors) {
    for (int r = 0; r < STEP_REGIONS; r++) {
        struct step_fit *f = &m->fit[r];
        double predicted = 0, total = 0;
        *f = (struct step_fit){0};
        for (size_t i = 0; i < n; i++) {
            if ((int)step_region_of(&steps[i]) != r) continue;
            struct quire_step s = steps[i];
            double t = measured(&s, FORWARD) + measured(&s, REST);
            step_model_time(m, &s);
            double p = (double)(s.forward_us + s.sample_us);
            errors[f->n++] = fabs(p / t - 1);
            predicted += p;
            total += t;
        }
        if (!f->n) continue;
        stats_sort(errors, f->n);
        f->median_error = stats_quantile(errors, f->n, 0.5);
        f->p95_error = stats_quantile(errors, f->n, 0.95);
        f->bias = predicted / total - 1;
    }
}

int step_model_fit(const struct quire_step *steps, size_t n, struct step_model *out, struct error *err) {
    *out = (struct step_model){0};
    if (n < STEP_LEAST)
        return error_set(err, QUIRE_EINVAL, "%zu steps were measured, at least %d are needed for a fit", n,
                         STEP_LEAST);
    double *errors = calloc(n, sizeof *errors);
    int rc = errors ? fit_one(steps, n, FORWARD, out->forward_us) : QUIRE_ENOMEM;
    if (!rc) rc = fit_one(steps, n, REST, out->rest_us);
    if (!rc) judge(steps, n, out, errors);
    free(errors);
    return rc ? error_set(err, rc, "out of memory for a fit of %zu steps", n) : 0;
}
