/* One page that needs nothing but itself. */
#include "load/report.h"

#include "load/svg.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define CURVE_POINTS 160
#define CURVES       SVG_COLORS

static const char head[] =
    "<!doctype html><html lang=en><head><meta charset=utf-8>"
    "<meta name=viewport content='width=device-width,initial-scale=1'><meta name=color-scheme content='light "
    "dark'>"
    "<style>:root{--bg:#fbfbfa;--fg:#1c1d1f;--dim:#5d6167;--card:#fff;--edge:#e2e3e6;--slo:#b3261e;"
    "--c0:#2463c4;--c1:#c9541a;--c2:#12805c;--c3:#7d3fa8;--c4:#96700a;--c5:#b4235f}"
    "@media(prefers-color-scheme:dark){:root{--bg:#131416;--fg:#e8e9eb;--dim:#a0a4ab;--card:#1c1e21;--edge:#"
    "34373c;"
    "--slo:#ff8a80;--c0:#7fb0ff;--c1:#ff9d66;--c2:#5fd3a8;--c3:#cfa0f0;--c4:#e3c05a;--c5:#ff8fb8}}"
    "*{box-sizing:border-box}body{margin:0 auto;padding:20px 16px 48px;max-width:1320px;background:var(--bg);"
    "color:var(--fg);font:15px/1.5 system-ui,sans-serif}h1{font-size:22px;margin:0 0 "
    "4px}h2{font-size:17px;margin:28px 0 "
    "10px}p{margin:4px 0}.dim{color:var(--dim)}.warn{border-left:4px solid var(--slo);padding:4px "
    "10px;background:var(--card)"
    ";margin:8px "
    "0}.grid{display:grid;gap:14px;grid-template-columns:repeat(auto-fill,minmax(min(100%,330px),1fr))}"
    "figure{margin:0;padding:12px;background:var(--card);border:1px solid "
    "var(--edge);border-radius:8px;min-width:0}"
    "figcaption{font-weight:600;margin-bottom:6px}figcaption "
    "span{font-weight:400;color:var(--dim);font-size:13px}"
    "svg{display:block;width:100%;height:auto}.g{stroke:var(--edge);fill:none}.t,.a,.v,.st{font-size:12px;"
    "fill:var(--dim)}.v{fill:var(--fg)}.l{fill:none;stroke-width:2;stroke-linejoin:round}.w{stroke-width:7;"
    "opacity:.35}.slo{stroke:var(--"
    "slo);"
    "stroke-dasharray:5 "
    "4;stroke-width:1.5;fill:none}.st{fill:var(--slo)}.legend{display:flex;flex-wrap:wrap;gap:2px 14px;"
    "font-size:13px;margin:6px 0 0}.legend "
    "i{display:inline-block;width:10px;height:10px;border-radius:2px;margin-right:5px}"
    ".s0{stroke:var(--c0)}.s1{stroke:var(--c1)}.s2{stroke:var(--c2)}.s3{stroke:var(--c3)}.s4{stroke:var(--c4)"
    "}"
    ".s5{stroke:var(--c5)}.f0{fill:var(--c0)}.f1{fill:var(--c1)}.f2{fill:var(--c2)}.f3{fill:var(--c3)}.f4{"
    "fill:var(--c4)}"
    ".f5{fill:var(--c5)}.b0{background:var(--c0)}.b1{background:var(--c1)}.b2{background:var(--c2)}.b3{"
    "background:var(--c3)}"
    ".b4{background:var(--c4)}.b5{background:var(--c5)}.scroll{overflow-x:auto;border:1px solid var(--edge);"
    "border-radius:8px;background:var(--card)}table{border-collapse:collapse;width:100%;font-size:14px;"
    "font-variant-numeric:tabular-nums}th,td{padding:6px "
    "10px;text-align:right;white-space:nowrap;border-bottom:1px solid "
    "var(--edge)}th:first-child,td:first-child{text-align:left;position:sticky;left:0;background:var(--card)}"
    "tr:last-child td{border-bottom:0}th{color:var(--dim);font-weight:600}</style>";

void report_html_style(struct buf *out) {
    buf_puts(out, head);
}

static void page_head(const struct plan *p, struct buf *out) {
    char date[40] = "";
    time_t when = (time_t)p->created_unix_s;
    struct tm t;
    if (gmtime_r(&when, &t)) strftime(date, sizeof date, "%Y-%m-%d %H:%M UTC", &t);
    report_html_style(out);
    buf_puts(out, "<title>");
    html_text(out, p->o->label ? p->o->label : p->target.model);
    buf_puts(out, " · quire bench</title></head><body><h1>");
    html_text(out, p->o->label ? p->o->label : p->target.model);
    buf_puts(out, "</h1><p class=dim>");
    html_text(out, p->target.model);
    buf_puts(out, " at ");
    html_text(out, p->target.base);
    if (*p->target.software) {
        buf_puts(out, " (");
        html_text(out, p->target.software);
        buf_putc(out, ')');
    }
    buf_printf(out, " · %s", date);
    if (p->o->suite) buf_printf(out, " · suite %s", p->o->suite);
    if (p->o->scale != 1) buf_printf(out, " at scale %g", p->o->scale);
    if (p->o->repeat > 1) buf_printf(out, " · %lld repeats", (long long)p->o->repeat);
    buf_puts(out, "</p>");
}

static void warn(struct buf *out, const char *title, const char *text) {
    buf_puts(out, "<p class=warn>");
    if (title) {
        html_text(out, title);
        buf_puts(out, ": ");
    }
    html_text(out, text);
    buf_puts(out, "</p>");
}

static void warnings(const struct plan *p, struct buf *out) {
    char text[200];
    if (*p->ended) warn(out, NULL, p->ended);
    for (size_t i = 0; i < p->n_points; i++) {
        const struct point *k = &p->points[i];
        if (!k->n_runs) continue;
        if (*k->all.saturated) {
            warn(out, k->title, "over-saturated");
            warn(out, NULL, k->all.saturated);
        }
        report_flat(i ? &p->points[i - 1] : NULL, k, text, sizeof text);
        if (*text) warn(out, NULL, text);
        snprintf(text, sizeof text,
                 "the generator took %.0f %% of a core and waited %.0f %% of the time for one: it may be "
                 "what is measured",
                 100 * k->all.client_cpu, 100 * k->all.client_wait);
        if (k->all.generator_bound) warn(out, k->title, text);
    }
    for (int i = 0; i < 3; i++)
        if (*p->note[i]) warn(out, NULL, p->note[i]);
}

static void cell(struct buf *out, bool known, const char *format, double v) {
    buf_puts(out, "<td>");
    if (known)
        buf_printf(out, format, v); /* NOLINT: formats are ours */
    else
        buf_puts(out, "<span class=dim>absent</span>");
    buf_puts(out, "</td>");
}

static void table(const struct plan *p, struct buf *out) {
    bool slo = slo_any(&p->slo), priced = p->price > 0;
    buf_puts(out,
             "<h2>Figures</h2><div class=scroll><table><tr><th>load<th>req/s<th>output tok/s<th>total tok/s"
             "<th>TTFT P50 ms<th>TTFT P95<th>TTFT P99<th>TPOT P50 ms<th>TPOT P95<th>ITL P99 ms<th>E2E P50 "
             "ms<th>E2E P95"
             "<th>failed");
    if (slo) buf_puts(out, "<th>within SLO");
    if (priced) buf_puts(out, "<th>cost/1M out<th>cost/1M all");
    buf_puts(out, "<th>J/token<th>KV mean<th>hit rate<th>CPU</tr>");
    for (size_t i = 0; i < p->n_points; i++) {
        const struct point *k = &p->points[i];
        const struct summary *s = &k->all;
        const struct summary_stat *f = &s->ms[LATENCY_TTFT], *t = &s->ms[LATENCY_TPOT],
                                  *e = &s->ms[LATENCY_E2E];
        if (!k->n_runs) continue;
        buf_puts(out, "<tr><td>");
        html_text(out, k->title);
        buf_puts(out, "</td>");
        cell(out, true, "%.3f", s->requests_per_s);
        cell(out, true, "%.1f", s->output_per_s);
        cell(out, true, "%.1f", s->total_per_s);
        cell(out, f->n, "%.1f", f->p50);
        cell(out, f->n, "%.1f", f->p95);
        cell(out, f->n, "%.1f", f->p99);
        cell(out, t->n, "%.2f", t->p50);
        cell(out, t->n, "%.2f", t->p95);
        cell(out, s->ms[LATENCY_ITL].n, "%.2f", s->ms[LATENCY_ITL].p99);
        cell(out, e->n, "%.1f", e->p50);
        cell(out, e->n, "%.1f", e->p95);
        cell(out, true, "%.0f", (double)s->n_failed);
        if (slo) cell(out, s->n_requests, "%.1f %%", 100 * s->good_share);
        if (priced) {
            cell(out, s->cost_output > 0, "%.3g", s->cost_output);
            cell(out, s->cost_total > 0, "%.3g", s->cost_total);
        }
        cell(out, s->joules.known, "%.3g", s->joules_per_token);
        cell(out, s->kv_usage.known, "%.1f %%", 100 * s->kv_usage.mean);
        cell(out, s->hit_rate.known, "%.1f %%", 100 * s->hit_rate.value);
        cell(out, s->cpu.known, "%.0f %%", 100 * s->cpu.mean);
        buf_puts(out, "</tr>");
    }
    buf_puts(out, "</table></div>");
}

/* ---- curves ---- */

static bool series_room(struct series *s, size_t n) {
    s->x = calloc(n + 1, sizeof *s->x);
    s->y = calloc(n + 1, sizeof *s->y);
    return s->x && s->y;
}

static void series_free(struct series *s, size_t n) {
    for (size_t i = 0; i < n; i++) {
        free(s[i].x);
        free(s[i].y);
    }
}

/* Points are chosen evenly when there are more than colours. */
static size_t nth_point(const struct plan *p, size_t curve, size_t n) {
    return n < 2 ? 0 : curve * (p->n_points - 1) / (n - 1);
}

static bool cdf_of(const struct point *k, enum latency which, struct series *s) {
    double *values = calloc(k->all.n_ok + 1, sizeof *values);
    size_t n = 0;
    if (!values || !series_room(s, CURVE_POINTS)) {
        free(values);
        return false;
    }
    for (size_t r = 0; r < k->n_runs; r++)
        for (size_t i = 0; i < k->runs[r].n; i++) {
            double v = record_ms(&k->runs[r].records[i], which);
            if (k->runs[r].records[i].outcome == OUTCOME_OK && v > 0) values[n++] = v;
        }
    stats_sort(values, n);
    s->n = n ? CURVE_POINTS : 0;
    for (size_t i = 0; i < s->n; i++) {
        s->y[i] = 100.0 * (double)i / (CURVE_POINTS - 1);
        s->x[i] = stats_quantile(values, n, s->y[i] / 100);
    }
    free(values);
    return true;
}

static void cdf(const struct plan *p, enum latency which, const char *title, struct buf *out) {
    struct series s[CURVES] = {0};
    struct chart c = {
        .title = title, .x_label = "ms", .y_label = "% of requests within", .y_max = 100, .x_log = true};
    size_t n = p->n_points < CURVES ? p->n_points : CURVES;
    for (size_t i = 0; i < n; i++) {
        const struct point *k = &p->points[nth_point(p, i, n)];
        snprintf(s[i].name, sizeof s[i].name, "%s", k->title);
        if (!cdf_of(k, which, &s[i])) out->failed = true;
    }
    if (buf_ok(out)) svg_lines(out, &c, s, n);
    series_free(s, CURVES);
}

/* One line for each workload, through its points in the order of the sweep. */
static void tradeoff(const struct plan *p, enum latency which, const char *title, double slo,
                     const char *slo_name, struct buf *out) {
    struct series s[CURVES] = {0};
    struct chart c = {
        .title = title, .x_label = "output tok/s", .y_label = "ms", .line_y = slo, .line_name = slo_name};
    size_t n = 0;
    for (size_t i = 0; i < p->n_points && buf_ok(out); i++) {
        const struct point *k = &p->points[i];
        if (!k->n_runs || !k->all.ms[which].n) continue;
        size_t w = 0;
        while (w < n && strcmp(s[w].name, k->spec.name) != 0) w++;
        if (w == CURVES) continue;
        if (w == n) {
            if (!series_room(&s[n], p->n_points)) out->failed = true;
            snprintf(s[n].name, sizeof s[n].name, "%s", k->spec.name);
            s[n++].marks = true;
        }
        if (!buf_ok(out)) break;
        s[w].x[s[w].n] = k->all.output_per_s;
        s[w].y[s[w].n++] = k->all.ms[which].p95;
    }
    if (buf_ok(out)) svg_lines(out, &c, s, n);
    series_free(s, CURVES);
}

static bool gauge_of(const struct run *run, enum metric m, double factor, const char *name,
                     struct series *s) {
    if (!series_room(s, run->n_samples)) return false;
    snprintf(s->name, sizeof s->name, "%s", name);
    for (size_t i = 0; i < run->n_samples; i++) {
        const struct sample *k = &run->samples[i];
        if (m != METRICS && !k->server.has[m]) continue;
        s->x[s->n] = k->t_s;
        s->y[s->n++] = factor * (m == METRICS ? (double)k->active : k->server.value[m]);
    }
    return true;
}

static void over_time(const struct point *k, struct buf *out) {
    const struct run *run = &k->runs[0];
    char title[120];
    struct series q[3] = {0}, kv = {0};
    snprintf(title, sizeof title, "Queue: %s", k->title);
    struct chart c = {.title = title, .x_label = "seconds", .y_label = "requests"};
    bool ok = gauge_of(run, METRICS, 1, "in flight", &q[0]) &&
              gauge_of(run, METRIC_RUNNING, 1, "running", &q[1]) &&
              gauge_of(run, METRIC_WAITING, 1, "waiting", &q[2]) &&
              gauge_of(run, METRIC_KV_USAGE, 100, "KV in use", &kv);
    if (!ok) out->failed = true;
    q[0].wide = true;
    if (ok) svg_lines(out, &c, q, 3);
    snprintf(title, sizeof title, "KV: %s", k->title);
    c = (struct chart){.title = title, .x_label = "seconds", .y_label = "% of blocks in use", .y_max = 100};
    if (ok) svg_lines(out, &c, &kv, 1);
    series_free(q, 3);
    series_free(&kv, 1);
}

static void bars(const struct plan *p, struct buf *out) {
    struct bar output[POINTS_MAX], total[POINTS_MAX];
    size_t n = 0;
    for (size_t i = 0; i < p->n_points; i++) {
        const struct point *k = &p->points[i];
        if (!k->n_runs) continue;
        bool priced = p->price > 0;
        output[n] = (struct bar){k->title, priced ? k->all.cost_output : k->all.output_per_s};
        total[n++] = (struct bar){k->title, priced ? k->all.cost_total : k->all.total_per_s};
    }
    svg_bars(out, p->price > 0 ? "Cost of 1M output tokens" : "Output tokens",
             p->price > 0 ? p->o->price : "a second", output, n);
    svg_bars(out, p->price > 0 ? "Cost of 1M tokens in all" : "Tokens in all",
             p->price > 0 ? p->o->price : "a second", total, n);
}

void report_html(const struct plan *p, struct buf *out) {
    page_head(p, out);
    warnings(p, out);
    table(p, out);
    buf_puts(out, "<h2>Latency</h2><div class=grid>");
    cdf(p, LATENCY_TTFT, "Time to first token", out);
    cdf(p, LATENCY_TPOT, "Time per output token", out);
    cdf(p, LATENCY_E2E, "End to end", out);
    buf_puts(out, "</div>");
    if (p->n_points > 1) {
        buf_puts(out, "<h2>Throughput against latency</h2><div class=grid>");
        tradeoff(p, LATENCY_TTFT, "TTFT P95", p->slo.ttft_ms, "SLA: TTFT", out);
        tradeoff(p, LATENCY_TPOT, "TPOT P95", p->slo.tpot_ms, "SLA: TPOT", out);
        tradeoff(p, LATENCY_E2E, "E2E P95", p->slo.e2e_ms, "SLA: E2E", out);
        buf_puts(out, "</div>");
    }
    buf_printf(out, "<h2>%s</h2><div class=grid>", p->price > 0 ? "Cost" : "Throughput");
    bars(p, out);
    buf_puts(out, "</div><h2>Over time</h2><div class=grid>");
    for (size_t i = 0; i < p->n_points; i++)
        if (p->points[i].n_runs) over_time(&p->points[i], out);
    buf_puts(out, "</div><p class=dim>Definitions: docs/metrics.md of Quire. Latencies count from when a "
                  "request was due. "
                  "Over time: the first repeat.</p></body></html>\n");
}
