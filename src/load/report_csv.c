/* A row for each point and repeat. Absent figures are empty fields. */
#include "load/report.h"

#include <string.h>

static void text(struct buf *out, const char *s) {
    buf_putc(out, '"');
    for (size_t left = strlen(s), n; left; s += n, left -= n) {
        if (*s == '"') buf_putc(out, '"');
        n = buf_put_char(out, s, left);
    }
    buf_putc(out, '"');
}

static void number(struct buf *out, bool known, double v) {
    if (known)
        buf_printf(out, ",%.6g", v);
    else
        buf_putc(out, ',');
}

static void row(const struct plan *p, const struct point *k, size_t repeat, const struct summary *s,
                struct buf *out) {
    static const enum latency shown[] = {LATENCY_TTFT, LATENCY_TPOT, LATENCY_ITL, LATENCY_E2E};
    bool closed = k->arrival.kind == ARRIVAL_CLOSED, slo = slo_any(&p->slo);
    text(out, p->o->label ? p->o->label : "");
    buf_putc(out, ',');
    text(out, p->target.model);
    buf_putc(out, ',');
    text(out, k->title);
    buf_printf(out, ",%zu", repeat + 1);
    number(out, closed, (double)k->concurrency);
    number(out, !closed && k->arrival.kind != ARRIVAL_TRACE, k->arrival.rate);
    buf_printf(out, ",%zu,%zu,%.6f,%.0f,%.0f", s->n_ok, s->n_failed, s->duration_s, s->input_tokens,
               s->output_tokens);
    number(out, s->cached_known, s->cached_tokens);
    number(out, true, s->requests_per_s);
    number(out, true, s->output_per_s);
    number(out, true, s->total_per_s);
    number(out, slo, s->good_per_s);
    for (int l = 0; l < 4; l++) {
        const struct summary_stat *m = &s->ms[shown[l]];
        const double values[] = {m->mean, m->p50, m->p90, m->p95, m->p99, m->max};
        for (int i = 0; i < 6; i++) number(out, m->n, values[i]);
    }
    number(out, s->kv_usage.known, s->kv_usage.mean);
    number(out, s->hit_rate.known, s->hit_rate.value);
    number(out, s->cpu.known, s->cpu.mean);
    number(out, p->price > 0, s->cost_output);
    number(out, p->price > 0, s->cost_total);
    number(out, s->joules.known, s->joules_per_token);
    number(out, true, s->client_cpu);
    buf_putc(out, '\n');
}

void report_csv(const struct plan *p, struct buf *out) {
    buf_puts(out, "label,model,point,repeat,concurrency,rate,ok,failed,duration_s,input_tokens,output_tokens,"
                  "cached_tokens,requests_per_s,output_tokens_per_s,total_tokens_per_s,good_requests_per_s");
    static const char *const names[] = {"ttft", "tpot", "itl", "e2e"};
    static const char *const points[] = {"mean", "p50", "p90", "p95", "p99", "max"};
    for (int l = 0; l < 4; l++)
        for (int i = 0; i < 6; i++) buf_printf(out, ",%s_ms_%s", names[l], points[i]);
    buf_puts(out, ",kv_usage_mean,prefix_hit_rate,cpu_utilization,cost_per_1m_output,cost_per_1m_total,"
                  "joules_per_token,generator_cpu\n");
    for (size_t i = 0; i < p->n_points; i++)
        for (size_t r = 0; r < p->points[i].n_runs; r++)
            row(p, &p->points[i], r, &p->points[i].repeats[r], out);
}
