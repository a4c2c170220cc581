#include "sim/same_speed.h"

#include "base/error.h"

#include <stdlib.h>

#define ROUNDS 3 /* slower steps have more rows in them when requests come by the clock; then it settles */

struct speeds {
    struct sim_target target;
    struct calibration at_speed;
    const struct calibration *cal;
    struct performer inner;
    size_t n_points;
    double slow[POINTS_MAX], busy_s[POINTS_MAX]; /* busy: for each request */
};

static int describe(void *ctx, struct target *t, struct error *err) {
    struct speeds *s = ctx;
    return s->inner.describe(s->inner.ctx, t, err);
}

static int perform(void *ctx, const struct run_config *config, struct run *run, struct error *err) {
    struct speeds *s = ctx;
    size_t point = config->point;
    s->at_speed = *s->cal;
    calibration_slow(&s->at_speed, s->slow[point]);
    int rc = s->inner.perform(s->inner.ctx, config, run, err);
    s->busy_s[point] += s->target.outcome.busy_us / 1e6;
    return rc;
}

static bool again(void *ctx, const struct run *runs, size_t n) {
    struct speeds *s = ctx;
    return s->inner.again(s->inner.ctx, runs, n);
}

static int play(struct speeds *s, const struct sim_load *load, struct plan *out, struct error *err) {
    struct performer performer = {describe, perform, NULL, again, s};
    s->inner = sim_performer(&s->target);
    for (size_t i = 0; i < s->n_points; i++) s->busy_s[i] = 0;
    int rc = plan_options(load->options, out, err);
    out->performer = &performer;
    if (!rc) rc = plan_measure(out, load->interrupted, NULL, err);
    out->performer = NULL;
    if (!rc && *out->ended) rc = error_set(err, QUIRE_ECANCELED, "%s", out->ended);
    for (size_t i = 0; i < s->n_points && !rc; i++)
        s->busy_s[i] /= (double)(out->points[i].all.n_ok ? out->points[i].all.n_ok : 1);
    return rc;
}

int sim_same_speed(const struct sim_load *load, const double *step_s, size_t n_points, double *busy_s,
                   struct plan *out, struct error *err) {
    struct speeds *s = calloc(1, sizeof *s);
    int rc = s ? 0 : error_set(err, QUIRE_ENOMEM, "out of memory for a simulation");
    *out = (struct plan){0};
    if (rc) return rc;
    s->target = *load->target;
    s->cal = load->target->config.cal;
    s->target.config.cal = &s->at_speed;
    s->target.config.clock = calibration_clock(&s->at_speed);
    s->n_points = n_points;
    for (size_t i = 0; i < n_points; i++) s->slow[i] = 1;
    for (int round = 0; round <= ROUNDS && !rc; round++) {
        if (round) plan_free(out);
        *out = (struct plan){0};
        rc = play(s, load, out, err);
        for (size_t i = 0; i < n_points && !rc; i++) {
            if (!round) busy_s[i] = s->busy_s[i];
            if (step_s[i] > 0 && s->busy_s[i] > 0) s->slow[i] *= step_s[i] / s->busy_s[i];
        }
    }
    free(s);
    return rc;
}
