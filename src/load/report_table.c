#include "load/report.h"

#include "base/utf8.h"

#include <math.h>
#include <string.h>

void report_flat(const struct point *before, const struct point *k, char *text, size_t cap) {
    *text = 0;
    if (!before || before->arrival.kind != ARRIVAL_CLOSED || k->arrival.kind != ARRIVAL_CLOSED) return;
    if (strcmp(before->spec.name, k->spec.name) != 0 || k->concurrency <= before->concurrency) return;
    double a = before->all.output_per_s, b = k->all.output_per_s;
    if (a <= 0 || b > 1.05 * a || k->all.ms[LATENCY_E2E].p50 < 1.2 * before->all.ms[LATENCY_E2E].p50) return;
    snprintf(text, cap, "%zu streams give %.1f output tok/s, %zu gave %.1f: beyond saturation",
             k->concurrency, b, before->concurrency, a);
}

static void latency_row(FILE *out, const char *name, const struct summary_stat *s) {
    if (!s->n) {
        fprintf(out, "  %-10s none\n", name);
        return;
    }
    fprintf(out, "  %-10s %10.2f %10.2f %10.2f %10.2f %10.2f %10.2f\n", name, s->mean, s->p50, s->p90, s->p95,
            s->p99, s->max);
}

static void range_row(FILE *out, const char *name, const struct range *r, double factor, const char *unit) {
    if (r->known)
        fprintf(out, "  %-22s mean %.4g%s, max %.4g%s\n", name, factor * r->mean, unit, factor * r->max,
                unit);
    else
        fprintf(out, "  %-22s absent\n", name);
}

static void total_row(FILE *out, const char *name, const struct total *t, double factor, const char *unit) {
    if (t->known)
        fprintf(out, "  %-22s %.4g%s\n", name, factor * t->value, unit);
    else
        fprintf(out, "  %-22s absent\n", name);
}

static void server_rows(const struct plan *p, const struct summary *s, FILE *out) {
    fprintf(out, "the server's own metrics\n");
    range_row(out, "running", &s->running, 1, "");
    range_row(out, "waiting", &s->waiting, 1, "");
    range_row(out, "KV in use", &s->kv_usage, 100, " %");
    total_row(out, "prefix hit rate", &s->hit_rate, 100, " %");
    total_row(out, "queue time, mean", &s->queue_ms, 1, " ms");
    total_row(out, "preemptions", &s->preemptions, 1, "");
    range_row(out, "memory", &s->memory_bytes, 1e-6, " MB");
    if (!p->target.local) return;
    fprintf(out, "this machine\n");
    range_row(out, "processors", &s->cpu, 100, " %");
    range_row(out, "memory in use", &s->machine_memory_bytes, 1e-9, " GB");
    if (s->gpu.known) {
        range_row(out, "GPU", &s->gpu, 100, " %");
        range_row(out, "GPU memory", &s->gpu_memory_bytes, 1e-9, " GB");
        range_row(out, "GPU SM clock", &s->gpu_sm_mhz, 1, " MHz");
        range_row(out, "GPU power", &s->gpu_watts, 1, " W");
        range_row(out, "GPU temperature", &s->gpu_celsius, 1, " C");
    }
    total_row(out, "energy", &s->joules, 1, " J");
}

static void cost_rows(const struct plan *p, const struct summary *s, FILE *out) {
    if (p->price > 0 && s->output_tokens > 0)
        fprintf(out, "  cost at %.4g/h          %.4g for 1M output tokens, %.4g for 1M tokens in all\n",
                p->price, s->cost_output, s->cost_total);
    if (s->joules.known && s->output_tokens > 0)
        fprintf(out, "  energy (%s)  %.3g J an output token, %.3g J a token in all\n", s->joules_from,
                s->joules_per_output, s->joules_per_token);
}

/* Of random prompts, which share nothing, but for what a chat's template and chance give. */
static bool seen_before(const struct point *k, const struct summary *s) {
    bool random =
        k->spec.kind == WORKLOAD_RANDOM && !k->spec.prefix_tokens && !k->spec.chat && !k->n_others;
    return random && s->cached_known && s->cached_tokens > 0.1 * s->input_tokens;
}

static void warnings(const struct point *k, const struct summary *s, FILE *out) {
    bool open = k->arrival.kind != ARRIVAL_CLOSED;
    if (*s->saturated) fprintf(out, "! over-saturated: %s\n", s->saturated);
    if (s->n_unsent)
        fprintf(out, "! %llu requests were due and never sent: %zu at once are the most\n",
                (unsigned long long)s->n_unsent, k->max_active);
    if (s->generator_bound)
        fprintf(
            out,
            "! the generator took %.0f %% of a core and waited %.0f %% of the time for one: it may be what "
            "is measured\n",
            100 * s->client_cpu, 100 * s->client_wait);
    if (open && s->ms[LATENCY_LAG].p99 > 10 && !*s->saturated)
        fprintf(out,
                "! 1 %% of the requests were sent %.0f ms late or more; their latencies count from when they "
                "were due\n",
                s->ms[LATENCY_LAG].p99);
    if (s->n_input_wrong)
        fprintf(out,
                "! %zu prompts had not the length asked for, by the server's count (off by %lld at most)\n",
                s->n_input_wrong, (long long)s->input_off);
    if (seen_before(k, s))
        fprintf(
            out,
            "! %.0f %% of the prompts' tokens were cached: the server has had these prompts before (another "
            "--seed makes new ones)\n",
            100 * s->cached_tokens / s->input_tokens);
    if (s->n_output_wrong)
        fprintf(out, "! %zu answers had not the length asked for (does the server honour ignore_eos?)\n",
                s->n_output_wrong);
    if (s->events > 0 && s->output_tokens > 1.05 * s->events)
        fprintf(out, "! the server sends %.2f tokens in a message: ITL is between messages\n",
                s->output_tokens / s->events);
}

static void failure_rows(const struct point *k, FILE *out) {
    char text[FAILURE_BYTES];
    for (size_t r = 0; r < k->n_runs; r++)
        for (size_t i = 0; i < k->runs[r].n_failures; i++) {
            const struct failure *f = &k->runs[r].failures[i];
            failure_describe(f->outcome, f->status, f->example, text, sizeof text);
            fprintf(out, "! failed: %zu %s\n", f->n, text);
        }
}

/* Of the requests that ended well. */
static void figures(const struct plan *p, const struct point *k, FILE *out) {
    const struct summary *s = &k->all;
    fprintf(out, "; tokens %.0f in", s->input_tokens);
    if (s->cached_known) fprintf(out, " (%.0f cached)", s->cached_tokens);
    fprintf(out, ", %.0f out\n", s->output_tokens);
    fprintf(out, "  %.3f requests/s, %.1f output tok/s, %.1f input tok/s, %.1f total tok/s\n",
            s->requests_per_s, s->output_per_s, s->input_per_s, s->total_per_s);
    if (s->offered_per_s > 0) fprintf(out, "  offered %.3f requests/s\n", s->offered_per_s);
    if (slo_any(&p->slo))
        fprintf(out, "  goodput %.3f requests/s: %zu of %zu requests within --slo %s\n", s->good_per_s,
                s->n_good, s->n_requests, p->o->slo);
    if (slo_told(&p->slo))
        fprintf(out, "  the SLO is %s: the quantile that is worst is %.2f of its limit\n",
                slo_excess(&p->slo, s) <= 1 ? "held" : "missed", slo_excess(&p->slo, s));
    cost_rows(p, s, out);
    fprintf(out, "  %-10s %10s %10s %10s %10s %10s %10s\n", "ms", "mean", "P50", "P90", "P95", "P99", "max");
    latency_row(out, "TTFT", &s->ms[LATENCY_TTFT]);
    latency_row(out, "TPOT", &s->ms[LATENCY_TPOT]);
    latency_row(out, "ITL", &s->ms[LATENCY_ITL]);
    if (p->slo.itl_ms > 0) latency_row(out, "longest ITL", &s->ms[LATENCY_PAUSE]);
    latency_row(out, "E2E", &s->ms[LATENCY_E2E]);
    if (k->arrival.kind != ARRIVAL_CLOSED) latency_row(out, "sent late", &s->ms[LATENCY_LAG]);
}

void report_point(const struct plan *p, const struct point *k, FILE *out) {
    const struct summary *s = &k->all;
    char model[200], software[200]; /* a server may call them anything, also what moves a cursor */
    utf8_printable(model, sizeof model, p->target.model, strlen(p->target.model));
    utf8_printable(software, sizeof software, p->target.software, strlen(p->target.software));
    fprintf(out, "\n%s: %s (%s%s%s)\n", k->title, model, p->target.base, *software ? ", " : "", software);
    fprintf(out, "  requests %zu ok, %zu failed", s->n_ok, s->n_failed);
    if (s->n_canceled) fprintf(out, ", %zu unfinished", s->n_canceled);
    fprintf(out, " in %.2f s", s->duration_s);
    if (k->n_runs > 1) fprintf(out, " (%zu runs)", k->n_runs);
    if (s->n_ok)
        figures(p, k, out);
    else
        fprintf(out, "\n");
    server_rows(p, s, out);
    fprintf(out, "the generator took %.1f %% of a core\n", 100 * s->client_cpu);
    failure_rows(k, out);
    warnings(k, s, out);
    fflush(out);
}

static void table_head(const struct plan *p, FILE *out) {
    fprintf(out, "\n%-32s %8s %9s %9s %9s %9s %8s %8s %9s %6s", "", "req/s", "out tok/s", "tok/s", "TTFT P50",
            "TTFT P95", "TPOT P50", "TPOT P95", "E2E P95", "failed");
    if (slo_any(&p->slo)) fprintf(out, " %7s", "good");
    if (p->price > 0) fprintf(out, " %9s %9s", "/1M out", "/1M all");
    fprintf(out, " %8s\n", "J/token");
}

void report_table(const struct plan *p, FILE *out) {
    char flat[160];
    if (p->n_points > 1) table_head(p, out);
    for (size_t i = 0; i < p->n_points && p->n_points > 1; i++) {
        const struct point *k = &p->points[i];
        const struct summary *s = &k->all;
        if (!k->n_runs) continue;
        fprintf(out, "%-32s %8.3f %9.1f %9.1f %9.1f %9.1f %8.2f %8.2f %9.1f %6zu", k->title,
                s->requests_per_s, s->output_per_s, s->total_per_s, s->ms[LATENCY_TTFT].p50,
                s->ms[LATENCY_TTFT].p95, s->ms[LATENCY_TPOT].p50, s->ms[LATENCY_TPOT].p95,
                s->ms[LATENCY_E2E].p95, s->n_failed);
        if (slo_any(&p->slo)) fprintf(out, " %5.0f %%", 100 * s->good_share);
        if (p->price > 0) fprintf(out, " %9.3g %9.3g", s->cost_output, s->cost_total);
        if (s->joules.known)
            fprintf(out, " %8.3g\n", s->joules_per_token);
        else
            fprintf(out, " %8s\n", "absent");
    }
    for (size_t i = 0; i < p->n_points; i++) {
        if (!p->points[i].n_runs) continue;
        if (p->n_points > 1 && *p->points[i].all.saturated)
            fprintf(out, "! %s: over-saturated\n", p->points[i].title);
        report_flat(i ? &p->points[i - 1] : NULL, &p->points[i], flat, sizeof flat);
        if (*flat) fprintf(out, "! %s\n", flat);
    }
    for (int i = 0; i < 3; i++)
        if (*p->note[i]) fprintf(out, "note: %s\n", p->note[i]);
    fflush(out);
}
