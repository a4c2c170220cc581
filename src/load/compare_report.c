#include "load/load.h"

#include "base/error.h"
#include "base/files.h"
#include "base/json_out.h"
#include "load/compare.h"

#include <string.h>

struct comparison {
    struct measurement *all;
    size_t n;
    FILE *out;
    struct json_out j;
    bool by_requests, unknown; /* what the notes below the table have to say */
};

static void change_text(const struct change *c, char *text, size_t cap) {
    if (!c->known)
        snprintf(text, cap, "%s", "");
    else if (!c->interval.known)
        snprintf(text, cap, "%+.1f %%", 100 * c->share);
    else
        snprintf(text, cap, "%+.1f %% [%+.1f, %+.1f] %s%s", 100 * c->share, 100 * c->interval.low,
                 100 * c->interval.high, c->verdict, c->basis == BASIS_REQUESTS ? "*" : "");
}

static void change_json(struct json_out *j, const struct change *c) {
    static const char *const bases[] = {NULL, "repeats", "requests"};
    if (!c->known) {
        json_out_null(j);
        return;
    }
    json_out_obj(j);
    json_out_key(j, "change");
    json_out_f64(j, c->share);
    json_out_key(j, "low");
    c->interval.known ? json_out_f64(j, c->interval.low) : json_out_null(j);
    json_out_key(j, "high");
    c->interval.known ? json_out_f64(j, c->interval.high) : json_out_null(j);
    json_out_key(j, "verdict");
    json_out_str(j, c->verdict);
    json_out_key(j, "interval_over");
    json_out_str(j, bases[c->basis]);
    json_out_obj_end(j);
}

/* A row of the table; left out when no measurement has the figure. */
static int metric_row(struct comparison *c, const json_t **points, const struct compared_metric *m,
                      struct error *err) {
    double values[COMPARE_MAX];
    bool has[COMPARE_MAX], any = false;
    struct change changes[COMPARE_MAX] = {0};
    for (size_t i = 0; i < c->n; i++) {
        has[i] = metric_value(json_object_get(points[i], "summary"), m, &values[i]);
        any |= has[i];
        int rc = i && points[i] ? metric_change(points[0], points[i], m, &changes[i], err) : 0;
        if (rc) return rc;
        c->by_requests |= changes[i].basis == BASIS_REQUESTS;
        c->unknown |= changes[i].known && !changes[i].interval.known;
    }
    if (!any) return 0;
    char name[40], text[100];
    snprintf(name, sizeof name, "%s%s%s", m->name, *m->unit ? ", " : "", m->unit);
    fprintf(c->out, "  %-24s", name);
    for (size_t i = 0; i < c->n; i++) {
        if (has[i])
            fprintf(c->out, " %10.4g", m->factor * values[i]);
        else
            fprintf(c->out, " %10s", "absent");
        change_text(&changes[i], text, sizeof text);
        if (i) fprintf(c->out, "  %-44s", text);
    }
    fputc('\n', c->out);
    json_out_obj(&c->j);
    json_out_key(&c->j, "metric");
    json_out_str(&c->j, m->name);
    json_out_key(&c->j, "unit");
    json_out_str(&c->j, m->unit);
    json_out_key(&c->j, "values");
    json_out_arr(&c->j);
    for (size_t i = 0; i < c->n; i++)
        has[i] ? json_out_f64(&c->j, m->factor * values[i]) : json_out_null(&c->j);
    json_out_arr_end(&c->j);
    json_out_key(&c->j, "changes");
    json_out_arr(&c->j);
    for (size_t i = 0; i < c->n; i++) change_json(&c->j, &changes[i]);
    json_out_arr_end(&c->j);
    json_out_obj_end(&c->j);
    return 0;
}

static int point_table(struct comparison *c, const json_t *baseline, struct error *err) {
    const json_t *points[COMPARE_MAX] = {baseline};
    const char *title = json_string_value(json_object_get(baseline, "title"));
    int rc = 0;
    if (!title) return error_set(err, QUIRE_EFORMAT, "%.200s: a point has no \"title\"", c->all[0].path);
    bool any = false;
    for (size_t i = 1; i < c->n; i++) {
        points[i] = measurement_point(&c->all[i], title);
        any |= points[i] != NULL;
    }
    fprintf(c->out, "\n%s%s\n", title, any ? "" : ": only in the baseline");
    if (!any) return 0;
    json_out_obj(&c->j);
    json_out_key(&c->j, "title");
    json_out_str(&c->j, title);
    json_out_key(&c->j, "metrics");
    json_out_arr(&c->j);
    for (const struct compared_metric *m = compared_metrics; m->name && !rc; m++)
        rc = metric_row(c, points, m, err);
    json_out_arr_end(&c->j);
    json_out_obj_end(&c->j);
    return rc;
}

static void heading(struct comparison *c) {
    json_out_obj(&c->j);
    json_out_key(&c->j, "format");
    json_out_str(&c->j, "quire-bench-compare");
    json_out_key(&c->j, "version");
    json_out_u64(&c->j, 1);
    json_out_key(&c->j, "measurements");
    json_out_arr(&c->j);
    for (size_t i = 0; i < c->n; i++) {
        fprintf(c->out, "%s %s\n", i ? "        " : "baseline", c->all[i].label);
        json_out_str(&c->j, c->all[i].label);
    }
    json_out_arr_end(&c->j);
    json_out_key(&c->j, "points");
    json_out_arr(&c->j);
}

static void notes(const struct comparison *c) {
    fputs("\nChanges are of the baseline, in brackets their 95 % bootstrap interval; \"no difference\": it "
          "covers zero.\n",
          c->out);
    if (c->by_requests)
        fputs("* over requests, not repeats: what changes from run to run is not in it (--repeat 5 shows "
              "it).\n",
              c->out);
    if (c->unknown)
        fputs("Without brackets: fewer than 3 repeats, so there is no interval and no verdict (--repeat).\n",
              c->out);
}

static int compare_all(struct comparison *c, struct error *err) {
    const json_t *points = json_object_get(c->all[0].root, "points"), *point;
    size_t i;
    int rc = 0;
    heading(c);
    json_array_foreach(points, i, point) {
        rc = point_table(c, point, err);
        if (rc) return rc;
    }
    json_out_arr_end(&c->j);
    json_out_obj_end(&c->j);
    notes(c);
    return fflush(c->out) ? error_set(err, QUIRE_EIO, "the table cannot be written") : 0;
}

int load_compare(const char *const *paths, size_t n, const char *json, FILE *out, struct error *err) {
    struct measurement all[COMPARE_MAX] = {0};
    struct buf text = BUF_INIT;
    struct comparison c = {.all = all, .n = n, .out = out};
    FILE *file = NULL;
    if (n > COMPARE_MAX)
        return error_set(err, QUIRE_EINVAL, "%zu files are to be compared, at most %d can be", n,
                         COMPARE_MAX);
    int rc = 0;
    for (size_t i = 0; i < n && !rc; i++) {
        const struct file_option files[] = {{"--json", json}, {"a measurement", paths[i]}};
        rc = file_check_apart(files, 1, 2, err);
    }
    if (!rc) rc = file_open_result("--json", json, &file, err);
    for (size_t i = 0; i < n && !rc; i++) {
        rc = measurement_read(paths[i], &all[i], err);
        if (!rc && strcmp(all[i].format, all[0].format) != 0)
            rc = error_set(err, QUIRE_EINVAL, "%.150s is a %s, %.150s a %s: they have nothing in common",
                           paths[0], all[0].format, paths[i], all[i].format);
    }
    json_out_init(&c.j, &text);
    if (!rc) rc = compare_all(&c, err);
    if (!rc && file) {
        buf_putc(&text, '\n');
        rc = buf_ok(&text) ? file_write_result(file, "--json", json, &text, err)
                           : error_set(err, QUIRE_ENOMEM, "out of memory");
    }
    for (size_t i = 0; i < n; i++) json_decref(all[i].root);
    if (file) fclose(file);
    buf_free(&text);
    return rc;
}
