#include "load/compare.h"

#include "base/error.h"
#include "base/files.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define FILE_MAX_MIB  2048
#define REPEATS_LEAST 3 /* for an interval over repeats */

const struct compared_metric compared_metrics[] = {
    {"TTFT P50", "ms", {"ttft_ms", "p50"}, "ttft_ms", 0.50, WISH_LOW, 1},
    {"TTFT P95", "ms", {"ttft_ms", "p95"}, "ttft_ms", 0.95, WISH_LOW, 1},
    {"TPOT P50", "ms", {"tpot_ms", "p50"}, "tpot_ms", 0.50, WISH_LOW, 1},
    {"TPOT P95", "ms", {"tpot_ms", "p95"}, "tpot_ms", 0.95, WISH_LOW, 1},
    {"E2E P50", "ms", {"e2e_ms", "p50"}, "e2e_ms", 0.50, WISH_LOW, 1},
    {"E2E P95", "ms", {"e2e_ms", "p95"}, "e2e_ms", 0.95, WISH_LOW, 1},
    {"output", "tok/s", {"output_tokens_per_s"}, NULL, 0, WISH_HIGH, 1},
    {"total", "tok/s", {"total_tokens_per_s"}, NULL, 0, WISH_HIGH, 1},
    {"useful", "tok/s", {"useful_tokens_per_s"}, NULL, 0, WISH_HIGH, 1},
    {"tokens", "/s", {"tokens_per_s"}, NULL, 0, WISH_HIGH, 1},
    {"outside the model", "%", {"outside_share"}, NULL, 0, WISH_LOW, 100},
    {"requests", "/s", {"requests_per_s"}, NULL, 0, WISH_HIGH, 1},
    {"within SLO", "%", {"good_share"}, NULL, 0, WISH_HIGH, 100},
    {"GPU in use", "%", {"machine", "gpu_utilization", "mean"}, NULL, 0, WISH_NONE, 100},
    {"CPU in use", "%", {"machine", "cpu_utilization", "mean"}, NULL, 0, WISH_NONE, 100},
    {"KV in use", "%", {"server", "kv_usage", "mean"}, NULL, 0, WISH_NONE, 100},
    {"prefix hits", "%", {"server", "prefix_hit_rate"}, NULL, 0, WISH_NONE, 100},
    {"cost of 1M output", "", {"cost_per_1m_output"}, NULL, 0, WISH_LOW, 1},
    {"cost of 1M in all", "", {"cost_per_1m_total"}, NULL, 0, WISH_LOW, 1},
    {"cost of 1M useful", "", {"cost_per_1m_useful"}, NULL, 0, WISH_LOW, 1},
    {"energy", "J/token", {"joules_per_token"}, NULL, 0, WISH_LOW, 1},
    {0},
};

static bool is_known(const char *format) {
    static const char *const formats[] = {"quire-bench-serve", "quire-bench-engine", "quire-bench-ablation"};
    for (size_t i = 0; format && i < sizeof formats / sizeof *formats; i++)
        if (!strcmp(format, formats[i])) return true;
    return false;
}

int measurement_read(const char *path, struct measurement *m, struct error *err) {
    struct buf data = BUF_INIT;
    json_error_t e;
    *m = (struct measurement){.path = path};
    int rc = file_read("measurement", path, FILE_MAX_MIB, &data, err);
    if (rc) goto out;
    m->root = json_loadb(data.data ? data.data : "", data.len, JSON_REJECT_DUPLICATES, &e);
    if (!m->root) {
        rc = error_set(err, QUIRE_EFORMAT, "%.200s: line %d: not JSON: %s", path, e.line, e.text);
        goto out;
    }
    const char *format = json_string_value(json_object_get(m->root, "format"));
    json_int_t version = json_integer_value(json_object_get(m->root, "version"));
    if (!is_known(format))
        rc = error_set(
            err, QUIRE_EFORMAT,
            "%.200s is no measurement of `quire bench serve`, `engine` or `ablation` (--json)%s%.60s", path,
            format ? ": its format is " : "", format ? format : "");
    else if (version != 1)
        rc = error_set(err, QUIRE_EUNSUPPORTED, "%.200s has version %lld of the format; 1 can be read", path,
                       (long long)version);
    else if (!json_array_size(json_object_get(m->root, "points")))
        rc = error_set(err, QUIRE_EFORMAT, "%.200s has no \"points\"", path);
    const char *label = json_string_value(json_object_get(m->root, "label"));
    m->label = label ? label : path;
    m->format = format;
out:
    if (rc) {
        json_decref(m->root);
        m->root = NULL;
    }
    buf_free(&data);
    return rc;
}

const json_t *measurement_point(const struct measurement *m, const char *title) {
    const json_t *points = json_object_get(m->root, "points"), *point;
    size_t i;
    json_array_foreach(points, i, point) {
        const char *name = json_string_value(json_object_get(point, "title"));
        if (name && !strcmp(name, title)) return point;
    }
    return NULL;
}

bool metric_value(const json_t *summary, const struct compared_metric *metric, double *out) {
    for (int i = 0; i < 3 && metric->path[i]; i++) summary = json_object_get(summary, metric->path[i]);
    if (!json_is_number(summary)) return false;
    *out = json_number_value(summary);
    return true;
}

struct values {
    double *v;
    size_t n;
};

/* The figure of each repeat that has it. */
static bool of_repeats(const json_t *point, const struct compared_metric *metric, struct values *out) {
    const json_t *repeats = json_object_get(point, "repeats"), *repeat;
    size_t i;
    *out = (struct values){calloc(json_array_size(repeats) + 1, sizeof *out->v), 0};
    json_array_foreach(repeats, i, repeat) if (out->v && metric_value(json_object_get(repeat, "summary"),
                                                                      metric, &out->v[out->n])) out->n++;
    return out->v;
}

/* The column of all requests that went well. */
static bool of_requests(const json_t *point, const struct compared_metric *metric, struct values *out) {
    const json_t *repeats = json_object_get(point, "repeats"), *repeat;
    size_t i, k, most = 1;
    json_array_foreach(repeats, i, repeat) most +=
        json_array_size(json_object_get(json_object_get(repeat, "records"), metric->column));
    *out = (struct values){calloc(most, sizeof *out->v), 0};
    if (!out->v) return false;
    json_array_foreach(repeats, i, repeat) {
        const json_t *records = json_object_get(repeat, "records"), *v;
        const json_t *outcomes = json_object_get(records, "outcome");
        json_array_foreach(json_object_get(records, metric->column), k, v) {
            const char *outcome = json_string_value(json_array_get(outcomes, k));
            if (json_is_number(v) && outcome && !strcmp(outcome, "ok"))
                out->v[out->n++] = json_number_value(v);
        }
    }
    return true;
}

static const char *verdict_of(const struct change *c, enum wish wish) {
    if (!c->interval.known) return NULL;
    if (c->interval.low <= 0 && c->interval.high >= 0) return "no difference";
    bool higher = c->interval.low > 0;
    if (wish == WISH_NONE) return higher ? "higher" : "lower";
    return higher == (wish == WISH_HIGH) ? "better" : "worse";
}

int metric_change(const json_t *a, const json_t *b, const struct compared_metric *metric, struct change *out,
                  struct error *err) {
    struct values x = {0}, y = {0};
    double va, vb;
    *out = (struct change){0};
    if (!metric_value(json_object_get(a, "summary"), metric, &va) ||
        !metric_value(json_object_get(b, "summary"), metric, &vb) || va == 0)
        return 0;
    out->known = true;
    out->share = vb / va - 1;
    bool ok = of_repeats(a, metric, &x) && of_repeats(b, metric, &y);
    if (ok && x.n >= REPEATS_LEAST && y.n >= REPEATS_LEAST) {
        out->interval = stats_bootstrap(x.v, x.n, y.v, y.n, STATS_MEAN, 1);
        out->basis = BASIS_REPEATS;
        out->share = stats_mean(y.v, y.n) / stats_mean(x.v, x.n) - 1; /* what the interval is of */
    } else if (ok && metric->column) {
        free(x.v);
        free(y.v);
        x = y = (struct values){0};
        ok = of_requests(a, metric, &x) && of_requests(b, metric, &y);
        if (ok) out->interval = stats_bootstrap(x.v, x.n, y.v, y.n, metric->q, 1);
        if (ok && out->interval.known) out->basis = BASIS_REQUESTS;
    }
    free(x.v);
    free(y.v);
    out->verdict = verdict_of(out, metric->wish);
    return ok ? 0 : error_set(err, QUIRE_ENOMEM, "out of memory");
}
