#include "sim/compare.h"

#include "base/error.h"
#include "base/stats.h"
#include "load/compare.h"
#include "load/prometheus.h"
#include "load/report.h"

#include <jansson.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define REPEATS_MAX 1024 /* of all reports together */

static const char *const shown[] = {"output",   "total",    "requests", "TTFT P50", "TTFT P95",
                                    "TPOT P50", "TPOT P95", "E2E P50",  "E2E P95",  "within SLO"};

static const struct compared_metric *metric_named(const char *name) {
    const struct compared_metric *m = compared_metrics;
    while (strcmp(m->name, name)) m++;
    return m;
}

/* ---- reports ---- */

struct reports {
    struct measurement v[SIM_REPORTS_MAX];
    size_t n;
};

static void reports_close(struct reports *r) {
    while (r->n) json_decref(r->v[--r->n].root);
}

static int reports_open(const char *paths, struct reports *r, struct error *err) {
    int rc = 0;
    *r = (struct reports){0};
    for (const char *at = paths; !rc && *at;) {
        char path[4096];
        size_t n = strcspn(at, ",");
        if (r->n == SIM_REPORTS_MAX || n >= sizeof path)
            return error_set(err, QUIRE_EINVAL, "\"%.60s\": up to %d reports can be compared with", paths,
                             SIM_REPORTS_MAX);
        snprintf(path, sizeof path, "%.*s", (int)n, at);
        rc = measurement_read(path, &r->v[r->n], err);
        r->n += !rc;
        at += n + (at[n] == ',');
    }
    return rc;
}

/* ---- values of repeats ---- */

struct values {
    double v[REPEATS_MAX];
    size_t n;
};

static void add_value(struct values *out, double v) {
    if (out->n < REPEATS_MAX) out->v[out->n++] = v;
}

/* Of each repeat; of the point where it does not tell of its repeats. */
static void of_point(const json_t *point, const struct compared_metric *m, struct values *out) {
    const json_t *repeats = json_object_get(point, "repeats"), *repeat;
    size_t i, before = out->n;
    double v;
    json_array_foreach(repeats, i, repeat) if (metric_value(json_object_get(repeat, "summary"), m, &v))
        add_value(out, v * m->factor);
    if (out->n == before && metric_value(json_object_get(point, "summary"), m, &v))
        add_value(out, v * m->factor);
}

static void of_reports(const struct reports *r, const char *title, const struct compared_metric *m,
                       struct values *out) {
    out->n = 0;
    for (size_t i = 0; i < r->n; i++) {
        const json_t *point = measurement_point(&r->v[i], title);
        if (point) of_point(point, m, out);
    }
    stats_sort(out->v, out->n);
}

static bool is_measured(const struct reports *r, const char *title) {
    for (size_t i = 0; i < r->n; i++)
        if (measurement_point(&r->v[i], title)) return true;
    return false;
}

/* ---- the server's steps ---- */

static bool seconds_in_steps(const char *page, double *out) {
    struct prometheus_sample s;
    bool any = false;
    *out = 0;
    while (page && prometheus_next(&page, &s)) {
        if (!prometheus_is(&s, "quire_phase_seconds_total")) continue;
        *out += s.value;
        any = true;
    }
    return any;
}

/* Seconds in steps for each request, of each repeat whose pages tell. */
static void steps_of_reports(const struct reports *r, const char *title, struct values *out) {
    out->n = 0;
    for (size_t k = 0; k < r->n; k++) {
        const json_t *point = measurement_point(&r->v[k], title), *repeat;
        size_t i;
        json_array_foreach(json_object_get(point, "repeats"), i, repeat) {
            const json_t *m = json_object_get(repeat, "metrics");
            double first, last,
                n = json_number_value(json_object_get(json_object_get(repeat, "summary"), "ok"));
            if (seconds_in_steps(json_string_value(json_object_get(m, "first")), &first) &&
                seconds_in_steps(json_string_value(json_object_get(m, "last")), &last) && last > first &&
                n > 0)
                add_value(out, (last - first) / n);
        }
    }
    stats_sort(out->v, out->n);
}

/* ---- rows ---- */

struct comparison {
    const struct plan *simulated;
    struct reports reports;
    json_t *as_it_is, *same_speed;                 /* the simulations as reports; same_speed may be NULL */
    double step_s[POINTS_MAX], busy_s[POINTS_MAX]; /* 0: not known */
    struct values values;
    void (*row)(void *ctx, const struct sim_row *row);
    void *ctx;
};

/* The median of what a simulation has. */
static bool simulated_value(json_t *root, size_t point, const struct compared_metric *m, double *out) {
    struct values *v = calloc(1, sizeof *v);
    if (v) of_point(json_array_get(json_object_get(root, "points"), point), m, v);
    bool known = v && v->n;
    if (known) {
        stats_sort(v->v, v->n);
        *out = stats_quantile(v->v, v->n, 0.5);
    }
    free(v);
    return known;
}

/* With the measured values sorted in c->values. */
static void tell(struct comparison *c, struct sim_row row, double simulated, double same_speed) {
    const struct values *v = &c->values;
    row.measured = stats_quantile(v->v, v->n, 0.5);
    row.low = v->v[0];
    row.high = v->v[v->n - 1];
    row.n_repeats = v->n;
    row.simulated = simulated;
    row.error = row.measured != 0 ? simulated / row.measured - 1 : NAN;
    row.same_speed = row.measured != 0 ? same_speed / row.measured - 1 : NAN;
    c->row(c->ctx, &row);
}

static void compare_point(struct comparison *c, size_t point) {
    const char *title = c->simulated->points[point].title;
    for (size_t i = 0; i < sizeof shown / sizeof *shown; i++) {
        const struct compared_metric *m = metric_named(shown[i]);
        double v, same = NAN;
        of_reports(&c->reports, title, m, &c->values);
        if (!c->values.n || !simulated_value(c->as_it_is, point, m, &v)) continue;
        if (c->same_speed && c->step_s[point] > 0) simulated_value(c->same_speed, point, m, &same);
        tell(c, (struct sim_row){.title = title, .name = m->name, .unit = m->unit}, v, same);
    }
    if (!c->same_speed || !(c->step_s[point] > 0)) return;
    steps_of_reports(&c->reports, title, &c->values);
    for (size_t i = 0; i < c->values.n; i++) c->values.v[i] *= 1e3;
    tell(c, (struct sim_row){.title = title, .name = "steps, request", .unit = "ms"}, 1e3 * c->busy_s[point],
         NAN);
}

static json_t *as_json(const struct plan *p) {
    struct buf text = BUF_INIT;
    report_json(p, &text);
    json_t *root = buf_ok(&text) ? json_loadb(text.data, text.len, 0, NULL) : NULL;
    buf_free(&text);
    return root;
}

/* Simulates again where a server has told the time of its steps. Warm-ups are among the steps, not among the
 * requests, so nothing is known with them. */
static int at_same_speed(struct comparison *c, const struct sim_load *load, struct error *err) {
    bool any = false;
    size_t n = c->simulated->n_points;
    if (!load || load->options->warmup) return 0;
    for (size_t i = 0; i < n; i++) {
        steps_of_reports(&c->reports, c->simulated->points[i].title, &c->values);
        c->step_s[i] = stats_quantile(c->values.v, c->values.n, 0.5);
        any |= c->values.n > 0;
    }
    struct plan *p = any ? calloc(1, sizeof *p) : NULL;
    if (!p) return any ? error_set(err, QUIRE_ENOMEM, "out of memory for a comparison") : 0;
    int rc = sim_same_speed(load, c->step_s, n, c->busy_s, p, err);
    if (!rc && !(c->same_speed = as_json(p)))
        rc = error_set(err, QUIRE_ENOMEM, "out of memory for a comparison");
    plan_free(p);
    free(p);
    return rc;
}

static int compare(struct comparison *c, const struct sim_load *load, const char *paths, struct error *err) {
    size_t n_found = 0;
    int rc = reports_open(paths, &c->reports, err);
    if (!rc && !(c->as_it_is = as_json(c->simulated)))
        rc = error_set(err, QUIRE_ENOMEM, "out of memory for a comparison");
    if (!rc) rc = at_same_speed(c, load, err);
    for (size_t i = 0; i < c->simulated->n_points && !rc; i++) {
        if (!is_measured(&c->reports, c->simulated->points[i].title)) continue;
        compare_point(c, i);
        n_found++;
    }
    if (!rc && !n_found)
        rc = error_set(err, QUIRE_ENOTFOUND,
                       "%.200s has none of the points that were simulated: give the options that it was "
                       "measured with",
                       paths);
    return rc;
}

int sim_compare_rows(const struct plan *simulated, const struct sim_load *load, const char *paths,
                     void (*row)(void *ctx, const struct sim_row *row), void *ctx, struct error *err) {
    struct comparison *c = calloc(1, sizeof *c);
    if (!c) return error_set(err, QUIRE_ENOMEM, "out of memory for a comparison");
    c->simulated = simulated;
    c->row = row;
    c->ctx = ctx;
    int rc = compare(c, load, paths, err);
    reports_close(&c->reports);
    json_decref(c->as_it_is);
    json_decref(c->same_speed);
    free(c);
    return rc;
}

int sim_compare_requests(const char *paths, const char *title, size_t *n, struct error *err) {
    struct reports *r = calloc(1, sizeof *r);
    *n = 0;
    int rc = r ? reports_open(paths, r, err) : error_set(err, QUIRE_ENOMEM, "out of memory for a comparison");
    for (size_t i = 0; !rc && !*n && i < r->n; i++) {
        const json_t *point = measurement_point(&r->v[i], title);
        const json_t *repeat = json_array_get(json_object_get(point, "repeats"), 0);
        json_int_t requests =
            json_integer_value(json_object_get(json_object_get(repeat, "summary"), "requests"));
        if (requests > 0) *n = (size_t)requests;
    }
    if (r) reports_close(r);
    free(r);
    return rc;
}

/* ---- as text ---- */

struct printer {
    const char *paths;
    FILE *out;
    char title[80]; /* of the last row; empty: there was none */
};

static void print_error(FILE *out, double error) {
    if (isfinite(error))
        fprintf(out, " %+8.1f %%", 100 * error);
    else
        fprintf(out, " %9s  ", "");
}

static void print_row(void *ctx, const struct sim_row *r) {
    struct printer *p = ctx;
    char spread[48] = "";
    if (!*p->title)
        fprintf(p->out,
                "\nsimulated beside %s\nmeasured: the median of the repeats, and the least and the most of "
                "them; same speed: the error with steps as long in all as they were then\n",
                p->paths);
    if (strcmp(p->title, r->title))
        fprintf(p->out, "\n%s\n  %-14s %12s %24s %12s %10s %10s\n", r->title, "", "measured", "of repeats",
                "simulated", "error", "same speed");
    snprintf(p->title, sizeof p->title, "%s", r->title);
    if (r->n_repeats > 1) snprintf(spread, sizeof spread, "%zu: %.2f to %.2f", r->n_repeats, r->low, r->high);
    fprintf(p->out, "  %-14s %12.2f %24s %12.2f", r->name, r->measured, spread, r->simulated);
    print_error(p->out, r->error);
    print_error(p->out, r->same_speed);
    fprintf(p->out, " (%s)\n", r->unit);
}

int sim_compare(const struct plan *simulated, const struct sim_load *load, const char *paths, FILE *out,
                struct error *err) {
    struct printer p = {.paths = paths, .out = out};
    return sim_compare_rows(simulated, load, paths, print_row, &p, err);
}
