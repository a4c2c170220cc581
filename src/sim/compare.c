#include "sim/compare.h"

#include "base/error.h"
#include "load/compare.h"
#include "load/report.h"

#include <jansson.h>
#include <math.h>
#include <string.h>

static const char *const shown[] = {"output",   "total",    "requests", "TTFT P50", "TTFT P95",
                                    "TPOT P50", "TPOT P95", "E2E P50",  "E2E P95",  "within SLO"};

static const struct compared_metric *metric_named(const char *name) {
    const struct compared_metric *m = compared_metrics;
    while (strcmp(m->name, name)) m++;
    return m;
}

struct visitor {
    void (*row)(void *ctx, const struct sim_row *row);
    void *ctx;
};

static void compare_point(const char *title, const json_t *real, const json_t *simulated,
                          const struct visitor *v) {
    for (size_t i = 0; i < sizeof shown / sizeof *shown; i++) {
        const struct compared_metric *m = metric_named(shown[i]);
        double a, b;
        if (!metric_value(json_object_get(real, "summary"), m, &a) ||
            !metric_value(json_object_get(simulated, "summary"), m, &b))
            continue;
        v->row(v->ctx, &(struct sim_row){.title = title,
                                         .name = m->name,
                                         .unit = m->unit,
                                         .measured = a * m->factor,
                                         .simulated = b * m->factor,
                                         .error = a != 0 ? b / a - 1 : NAN});
    }
}

int sim_compare_rows(const struct plan *simulated, const char *path,
                     void (*row)(void *ctx, const struct sim_row *row), void *ctx, struct error *err) {
    struct visitor v = {row, ctx};
    struct measurement m;
    struct buf text = BUF_INIT;
    size_t i, n_found = 0;
    const json_t *point;
    int rc = measurement_read(path, &m, err);
    if (rc) return rc;
    report_json(simulated, &text);
    json_t *root = buf_ok(&text) ? json_loadb(text.data, text.len, 0, NULL) : NULL;
    buf_free(&text);
    if (!root) {
        json_decref(m.root);
        return error_set(err, QUIRE_ENOMEM, "out of memory for a comparison");
    }
    json_array_foreach(json_object_get(root, "points"), i, point) {
        const char *title = json_string_value(json_object_get(point, "title"));
        const json_t *real = title ? measurement_point(&m, title) : NULL;
        if (!real) continue;
        compare_point(title, real, point, &v);
        n_found++;
    }
    json_decref(root);
    json_decref(m.root);
    if (n_found) return 0;
    return error_set(
        err, QUIRE_ENOTFOUND,
        "%.200s has none of the points that were simulated: give the options that it was measured with",
        path);
}

/* ---- as text ---- */

struct printer {
    const char *path;
    FILE *out;
    char title[80]; /* of the last row; empty: there was none */
};

static void print_row(void *ctx, const struct sim_row *r) {
    struct printer *p = ctx;
    if (!*p->title) fprintf(p->out, "\nsimulated beside %s\n", p->path);
    if (strcmp(p->title, r->title))
        fprintf(p->out, "\n%s\n  %-14s %12s %12s %9s\n", r->title, "", "measured", "simulated", "error");
    snprintf(p->title, sizeof p->title, "%s", r->title);
    fprintf(p->out, "  %-14s %12.2f %12.2f", r->name, r->measured, r->simulated);
    if (isfinite(r->error))
        fprintf(p->out, " %+8.1f %% (%s)\n", 100 * r->error, r->unit);
    else
        fprintf(p->out, " %9s   (%s)\n", "", r->unit);
}

int sim_compare(const struct plan *simulated, const char *path, FILE *out, struct error *err) {
    struct printer p = {.path = path, .out = out};
    return sim_compare_rows(simulated, path, print_row, &p, err);
}
