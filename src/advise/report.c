#include "advise/report.h"

#include "advise/look.h"
#include "base/error.h"
#include "load/compare.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- reading ---- */

static bool number(const json_t *object, const char *key, double *out) {
    const json_t *v = json_object_get(object, key);
    if (!json_is_number(v)) return false;
    *out = json_number_value(v);
    return true;
}

static void put(struct figures *f, enum figure to, const json_t *object, const char *key) {
    double v;
    if (number(object, key, &v)) figures_set(f, to, v);
}

static void put_stat(struct figures *f, enum figure to, const json_t *summary, const char *stat,
                     const char *key) {
    put(f, to, json_object_get(summary, stat), key);
}

/* ---- the server's own pages ---- */

/* Counters of both pages; gauges come from the summary, since the last page is of a server that has ended. */
static int pages(const json_t *repeat, struct figures *f, struct error *err) {
    const json_t *m = json_object_get(repeat, "metrics");
    const char *first = json_string_value(json_object_get(m, "first"));
    const char *last = json_string_value(json_object_get(m, "last"));
    struct look *looks = calloc(2, sizeof *looks);
    struct look_gauges none = {0};
    double seconds = 0;
    int rc = looks ? 0 : error_set(err, QUIRE_ENOMEM, "out of memory");
    if (!rc && first && last && number(m, "seconds", &seconds) && seconds > 0) {
        look_read(first, &looks[0]);
        look_read(last, &looks[1]);
        rc = look_figures(&looks[0], &looks[1], &none, seconds, f, err);
        if (rc == QUIRE_ECANCELED) { /* started anew in between: its counters say nothing */
            *f = (struct figures){0};
            rc = 0;
        }
    }
    free(looks);
    return rc;
}

/* ---- what was measured from outside ---- */

static void from_server(const json_t *summary, struct figures *f) {
    static const struct {
        const char *range;
        enum figure mean, max;
    } ranges[] = {{"running", F_RUNNING, F_RUNNING_MAX},
                  {"waiting", F_WAITING, F_WAITING_MAX},
                  {"kv_usage", F_KV_USAGE, F_KV_USAGE_MAX}};
    const json_t *server = json_object_get(summary, "server"), *machine = json_object_get(summary, "machine");
    for (size_t i = 0; i < 3; i++) {
        put(f, ranges[i].mean, json_object_get(server, ranges[i].range), "mean");
        put(f, ranges[i].max, json_object_get(server, ranges[i].range), "max");
    }
    if (!f->has[F_HIT_RATE]) put(f, F_HIT_RATE, server, "prefix_hit_rate");
    if (!f->has[F_QUEUE_MS]) put(f, F_QUEUE_MS, server, "queue_ms_mean");
    if (!f->has[F_PREEMPTIONS]) put(f, F_PREEMPTIONS, server, "preemptions");
    put(f, F_GPU_UTILIZATION, json_object_get(machine, "gpu_utilization"), "mean");
}

/* The tokens and latencies of the requests that were sent; where the server tells no times of its parts, TTFT
 * without the queue is taken for prefill and the rest for decode. */
static void from_requests(const json_t *summary, struct figures *f) {
    double ttft, e2e, n;
    put_stat(f, F_TTFT_P95, summary, "ttft_ms", "p95");
    put_stat(f, F_TPOT_P95, summary, "tpot_ms", "p95");
    put_stat(f, F_E2E_P95, summary, "e2e_ms", "p95");
    put_stat(f, F_ITL_P99, summary, "itl_ms", "p99");
    put(f, F_REQUESTS, summary, "ok");
    put(f, F_PROMPT_TOKENS, summary, "input_tokens");
    put(f, F_OUTPUT_TOKENS, summary, "output_tokens");
    put(f, F_CACHED_TOKENS, summary, "cached_tokens");
    if (!f->has[F_WINDOW_S]) put(f, F_WINDOW_S, summary, "duration_s");
    if (number(summary, "ok", &n) && n > 0) {
        figures_set(f, F_PROMPT_MEAN, figures_or(f, F_PROMPT_TOKENS, 0) / n);
        figures_set(f, F_OUTPUT_MEAN, figures_or(f, F_OUTPUT_TOKENS, 0) / n);
    }
    if (!number(json_object_get(summary, "ttft_ms"), "mean", &ttft) ||
        !number(json_object_get(summary, "e2e_ms"), "mean", &e2e) || f->has[F_DECODE_MS])
        return;
    figures_set(f, F_PREFILL_MS, fmax(0, ttft - figures_or(f, F_QUEUE_MS, 0)));
    figures_set(f, F_DECODE_MS, fmax(0, e2e - ttft));
}

/* The server may count refusals itself. */
static void refusals(const json_t *repeats, struct figures *f) {
    double refused = 0, count, status;
    size_t i, k;
    const json_t *repeat, *error;
    json_array_foreach(repeats, i, repeat) json_array_foreach(json_object_get(repeat, "errors"), k, error) {
        if (number(error, "status", &status) && (status == 503 || status == 429) &&
            number(error, "count", &count))
            refused += fmax(0, count);
    }
    double all = refused + figures_or(f, F_REQUESTS, 0);
    if (f->has[F_REFUSED] || !(all > 0)) return;
    figures_set(f, F_REFUSED, refused);
    figures_set(f, F_REFUSED_SHARE, refused / all);
}

static double beyond_of(const json_t *records, double *total) {
    const json_t *outcomes = json_object_get(records, "outcome"), *v;
    double beyond = 0;
    size_t i;
    json_array_foreach(json_object_get(records, "output_tokens"), i, v) {
        const char *outcome = json_string_value(json_array_get(outcomes, i));
        if (!json_is_number(v) || !outcome || strcmp(outcome, "ok") != 0) continue;
        *total += fmax(0, json_number_value(v));
        beyond += fmax(0, json_number_value(v) - 256);
    }
    return beyond;
}

static void outputs(const json_t *repeats, struct figures *f) {
    double beyond = 0, total = 0;
    const json_t *repeat;
    size_t i;
    json_array_foreach(repeats, i, repeat) beyond += beyond_of(json_object_get(repeat, "records"), &total);
    if (total > 0) figures_set(f, F_OUTPUT_BEYOND, beyond / total);
}

int report_figures(const struct report *r, size_t point, struct figures *f, const char **title,
                   struct error *err) {
    const json_t *p = json_array_get(json_object_get(r->root, "points"), point);
    const json_t *summary = json_object_get(p, "summary"), *repeats = json_object_get(p, "repeats");
    const json_t *server = json_object_get(r->root, "server");
    const char *url = json_string_value(json_object_get(server, "url"));
    const char *software = json_string_value(json_object_get(server, "software"));
    *f = (struct figures){0};
    *title = json_string_value(json_object_get(p, "title"));
    if (!json_is_object(summary) || !json_is_array(repeats) || !*title)
        return error_set(
            err, QUIRE_EFORMAT,
            "point %zu of the report has no \"title\", \"summary\" and \"repeats\" of `quire bench "
            "serve --json`",
            point);
    int rc = 0;
    const json_t *repeat;
    size_t i;
    json_array_foreach(repeats, i, repeat) { /* the last of them that has pages */
        struct figures of_pages = {0};
        if (!rc) rc = pages(repeat, &of_pages, err);
        if (of_pages.has[F_WINDOW_S]) *f = of_pages;
    }
    if (rc) return rc;
    from_server(summary, f);
    if (!f->has[F_WINDOW_S] || json_array_size(repeats) == 1) {
        from_requests(summary, f);
        outputs(repeats, f);
    } else { /* latencies are of all repeats together, counts of the one with the pages */
        struct figures all = {0};
        static const enum figure latencies[] = {F_TTFT_P95, F_TPOT_P95, F_E2E_P95, F_ITL_P99};
        from_requests(summary, &all);
        for (size_t k = 0; k < 4; k++)
            if (all.has[latencies[k]]) figures_set(f, latencies[k], all.v[latencies[k]]);
    }
    refusals(repeats, f);
    snprintf(f->server, sizeof f->server, "%s", url ? url : "a server");
    if (!*f->software && software) snprintf(f->software, sizeof f->software, "%s", software);
    return 0;
}

/* ---- the file ---- */

int report_open(const char *path, struct report *out, struct error *err) {
    struct measurement m;
    *out = (struct report){0};
    int rc = measurement_read(path, &m, err);
    if (rc) return rc;
    out->root = m.root;
    out->n_points = json_array_size(json_object_get(m.root, "points"));
    const char *slo = json_string_value(json_object_get(m.root, "slo"));
    if (slo && slo_parse(slo, &out->wishes.slo, err)) rc = error_prefix(err, "%.200s", path);
    double price;
    if (number(m.root, "price_per_hour", &price) && price > 0 && isfinite(price)) out->wishes.price = price;
    if (rc) report_close(out);
    return rc;
}

void report_close(struct report *r) {
    json_decref(r->root);
    *r = (struct report){0};
}
