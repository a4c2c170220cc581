/* The runs of a plan, one after the other. */
#include "load/plan.h"

#include "base/error.h"
#include "load/report.h"

#include <stdlib.h>
#include <unistd.h>

static int run_point(struct plan *p, size_t i, size_t repeat, const volatile int *interrupted,
                     struct error *err) {
    const struct load_options *o = p->o;
    struct point *k = &p->points[i];
    char title[120];
    snprintf(title, sizeof title, o->repeat > 1 ? "%s (%zu of %lld)" : "%s", k->title, repeat + 1,
             (long long)o->repeat);
    struct run_config c = {.target = &p->target,
                           .spec = &k->spec,
                           .others = k->others,
                           .n_others = k->n_others,
                           .items = p->items.n ? &p->items : NULL,
                           .arrival = k->arrival,
                           .concurrency = k->concurrency,
                           .max_active = k->max_active,
                           .n_sessions = k->n_sessions,
                           .duration_s = k->duration_s,
                           .warmup = (size_t)o->warmup,
                           .point = i,
                           .salt = k->salt ? k->salt : 1 + i + POINTS_MAX * repeat,
                           .time_scale = o->time_scale,
                           .interval_s = o->interval_s,
                           .http = p->tc.http,
                           .progress = o->progress && isatty(STDERR_FILENO) ? stderr : NULL,
                           .title = title,
                           .interrupted = interrupted,
                           .end_us = p->end_us};
    c.arrival.seed += repeat;
    if (c.n_sessions == 0 && k->arrival.kind == ARRIVAL_TRACE && c.duration_s <= 0) c.n_sessions = p->items.n;
    struct run *run = &k->runs[k->n_runs++];
    int rc =
        p->performer ? p->performer->perform(p->performer->ctx, &c, run, err) : run_perform(&c, run, err);
    if (rc) return rc;
    if (run->lost)
        snprintf(p->ended, sizeof p->ended, "%s, after %zu requests of \"%s\"", run->why, run->n, title);
    else if (run->interrupted)
        snprintf(p->ended, sizeof p->ended, "interrupted in \"%s\"", title);
    return 0;
}

static bool again(const struct plan *p, const struct point *k, size_t n) {
    const struct performer *v = p->performer;
    return v && v->again && n < PERFORM_MOST && v->again(v->ctx, k->runs + k->n_runs - n, n);
}

static void sum_up(struct plan *p, struct point *k) {
    bool open = k->arrival.kind != ARRIVAL_CLOSED;
    summarize(k->runs, k->n_runs, &p->slo, p->price, open, &k->all);
    for (size_t r = 0; r < k->n_runs; r++) summarize(&k->runs[r], 1, &p->slo, p->price, open, &k->repeats[r]);
}

int plan_run(struct plan *p, size_t point, size_t repeat, const volatile int *interrupted,
             struct error *err) {
    size_t n = 0;
    int rc;
    do rc = run_point(p, point, repeat, interrupted, err);
    while (!rc && !*p->ended && again(p, &p->points[point], ++n));
    sum_up(p, &p->points[point]);
    return rc;
}

/* Repeats go round the points, so that a disturbance does not fall on one of them alone. */
static int measure(struct plan *p, const volatile int *interrupted, FILE *out, struct error *err) {
    size_t repeats = (size_t)p->o->repeat, most = repeats * (p->performer ? PERFORM_MOST : 1);
    int rc = 0;
    for (size_t i = 0; i < p->n_points; i++) {
        p->points[i].runs = calloc(most, sizeof *p->points[i].runs);
        p->points[i].repeats = calloc(most, sizeof *p->points[i].repeats);
        if (!p->points[i].runs || !p->points[i].repeats) return error_set(err, QUIRE_ENOMEM, "out of memory");
    }
    for (size_t r = 0; r < repeats && !rc && !*p->ended; r++)
        for (size_t i = 0; i < p->n_points && !rc && !*p->ended; i++) {
            rc = plan_run(p, i, r, interrupted, err);
            if (out && (r + 1 == repeats || rc || *p->ended)) report_point(p, &p->points[i], out);
        }
    return rc;
}

bool plan_measured(const struct plan *p) {
    for (size_t i = 0; i < p->n_points; i++)
        for (size_t r = 0; r < p->points[i].n_runs; r++)
            if (p->points[i].runs[r].n) return true;
    return false;
}

int plan_check_answers(const struct plan *p, struct error *err) {
    char text[FAILURE_BYTES];
    for (size_t i = 0; i < p->n_points; i++) {
        const struct point *k = &p->points[i];
        size_t r = 0;
        while (r < k->n_runs && !k->runs[r].n_failures) r++;
        if (r == k->n_runs || k->all.n_ok) continue;
        const struct failure *f = &k->runs[r].failures[0];
        failure_describe(f->outcome, f->status, f->example, text, sizeof text);
        return error_set(err, QUIRE_EIO, "\"%s\": none of %zu requests was answered: %s", k->title,
                         k->all.n_failed, text);
    }
    return 0;
}

int plan_measure(struct plan *p, const volatile int *interrupted, FILE *out, struct error *err) {
    int rc = plan_points(p, err);
    return rc ? rc : measure(p, interrupted, out, err);
}
