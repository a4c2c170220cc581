#include "sim/scale.h"

#include "base/error.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

struct scaler {
    struct sim_target *t;
    const struct load_options *o;
    double good_share;
    const volatile int *interrupted;
    struct error *err;
};

/* The smallest share of good requests over all points. */
static int share_of(const struct scaler *s, const struct load_options *o, double *share, double *replica_s) {
    struct plan *p = calloc(1, sizeof *p);
    if (!p) return error_set(s->err, QUIRE_ENOMEM, "out of memory");
    *share = 1;
    int rc = sim_measure(s->t, o, p, s->interrupted, s->err);
    for (size_t i = 0; i < p->n_points && !rc; i++) *share = fmin(*share, p->points[i].all.good_share);
    *replica_s = s->t->n_runs ? s->t->total.replica_s / (double)s->t->n_runs : 0;
    plan_free(p);
    free(p);
    return rc;
}

static int fixed(const struct scaler *s, size_t n, double *share, double *replica_s) {
    s->t->config.fleet.growing = false;
    s->t->config.fleet.n_replicas = n;
    return share_of(s, s->o, share, replica_s);
}

/* Doubling, then halving the distance. */
static int find_fixed(const struct scaler *s, struct scale_answer *a) {
    size_t low = 0, high = 1;
    double share, replica_s;
    int rc;
    for (;; high *= 2) {
        if ((rc = fixed(s, high, &share, &replica_s))) return rc;
        if (share >= s->good_share) break;
        if (high == SCALE_MOST)
            return error_set(
                s->err, QUIRE_ELIMIT,
                "%d replicas hold the SLO for %.1f %% of the requests, %.1f %% are asked for: with more of "
                "them it will not be better",
                SCALE_MOST, 100 * share, 100 * s->good_share);
        low = high;
    }
    a->fixed_share = share;
    a->fixed_replica_s = replica_s;
    while (high - low > 1) {
        size_t mid = low + (high - low) / 2;
        if ((rc = fixed(s, mid, &share, &replica_s))) return rc;
        if (share < s->good_share) {
            low = mid;
            continue;
        }
        high = mid;
        a->fixed_share = share;
        a->fixed_replica_s = replica_s;
    }
    a->n_fixed = high;
    return 0;
}

/* The same requests in a closed loop on one replica, more and more at once. */
static int find_load(const struct scaler *s, struct scale_answer *a) {
    a->load = 1;
    s->t->config.fleet.growing = false;
    s->t->config.fleet.n_replicas = 1;
    for (size_t n = 1; n <= 2 * s->t->config.engine.max_num_seqs; n *= 2) {
        struct load_options o = *s->o;
        char streams[24];
        double share, replica_s;
        snprintf(streams, sizeof streams, "%zu", n);
        o.rate = NULL;
        o.arrival = "poisson";
        o.ramp_to = 0;
        o.burstiness = 1;
        o.max_concurrency = 0;
        o.duration_s = 0;
        o.concurrency = streams;
        o.requests = (int64_t)(16 + 4 * n);
        int rc = share_of(s, &o, &share, &replica_s);
        if (rc || share < s->good_share) return rc;
        a->load = n;
    }
    return 0;
}

static int find_reserve(const struct scaler *s, struct scale_answer *a) {
    struct sim_fleet *f = &s->t->config.fleet;
    f->growing = true;
    f->n_replicas = 2 * a->n_fixed + 1;
    f->load = (double)a->load;
    for (size_t reserve = 0; reserve <= a->n_fixed; reserve = reserve ? 2 * reserve : 1) {
        double share, replica_s;
        f->reserve = reserve;
        int rc = share_of(s, s->o, &share, &replica_s);
        if (rc) return rc;
        if (share < s->good_share) continue;
        a->grows = true;
        a->reserve = reserve;
        a->most_up = s->t->total.most_up;
        a->grown_share = share;
        a->grown_replica_s = replica_s;
        return 0;
    }
    return 0;
}

int sim_scale(struct sim_target *t, const struct load_options *o, double good_share,
              const volatile int *interrupted, struct scale_answer *out, struct error *err) {
    struct scaler s = {t, o, good_share, interrupted, err};
    *out = (struct scale_answer){0};
    if (!o->slo) return error_set(err, QUIRE_EINVAL, "--replicas auto needs an --slo to hold");
    int rc = find_fixed(&s, out);
    if (!rc) rc = find_load(&s, out);
    if (!rc) rc = find_reserve(&s, out);
    return rc;
}
