#include "load/report.h"

#include "base/json_out.h"

#include <math.h>
#include <string.h>

#define FORMAT_VERSION 1

static void text(struct json_out *j, const char *key, const char *v) {
    json_out_key(j, key);
    json_out_str(j, v);
}

static void number(struct json_out *j, const char *key, double v) {
    json_out_key(j, key);
    json_out_f64(j, v);
}

static void count(struct json_out *j, const char *key, uint64_t v) {
    json_out_key(j, key);
    json_out_u64(j, v);
}

static void number_or_null(struct json_out *j, const char *key, bool known, double v) {
    json_out_key(j, key);
    if (known)
        json_out_f64(j, v);
    else
        json_out_null(j);
}

static void text_or_null(struct json_out *j, const char *key, const char *v) {
    text(j, key, v && *v ? v : NULL);
}

static void stat(struct json_out *j, const char *key, const struct summary_stat *s) {
    static const char *const names[] = {"mean", "p50", "p90", "p95", "p99", "min", "max"};
    const double values[] = {s->mean, s->p50, s->p90, s->p95, s->p99, s->min, s->max};
    json_out_key(j, key);
    json_out_obj(j);
    count(j, "n", s->n);
    for (int i = 0; i < 7; i++) number_or_null(j, names[i], s->n, values[i]);
    json_out_obj_end(j);
}

static void range(struct json_out *j, const char *key, const struct range *r) {
    json_out_key(j, key);
    if (!r->known) {
        json_out_null(j);
        return;
    }
    json_out_obj(j);
    number(j, "mean", r->mean);
    number(j, "max", r->max);
    json_out_obj_end(j);
}

static void summary_server(struct json_out *j, const struct summary *s) {
    json_out_key(j, "server");
    json_out_obj(j);
    range(j, "running", &s->running);
    range(j, "waiting", &s->waiting);
    range(j, "kv_usage", &s->kv_usage);
    range(j, "memory_bytes", &s->memory_bytes);
    number_or_null(j, "prefix_hit_rate", s->hit_rate.known, s->hit_rate.value);
    number_or_null(j, "queue_ms_mean", s->queue_ms.known, s->queue_ms.value);
    number_or_null(j, "preemptions", s->preemptions.known, s->preemptions.value);
    number_or_null(j, "cpu_seconds", s->server_cpu_s.known, s->server_cpu_s.value);
    json_out_obj_end(j);
    json_out_key(j, "machine");
    json_out_obj(j);
    range(j, "cpu_utilization", &s->cpu);
    range(j, "memory_bytes", &s->machine_memory_bytes);
    range(j, "gpu_utilization", &s->gpu);
    range(j, "gpu_memory_bytes", &s->gpu_memory_bytes);
    range(j, "gpu_sm_mhz", &s->gpu_sm_mhz);
    range(j, "gpu_watts", &s->gpu_watts);
    range(j, "gpu_celsius", &s->gpu_celsius);
    number_or_null(j, "joules", s->joules.known, s->joules.value);
    text_or_null(j, "joules_from", s->joules_from);
    json_out_obj_end(j);
}

static void summary_object(struct json_out *j, const struct plan *p, const struct summary *s) {
    bool slo = slo_any(&p->slo), priced = p->price > 0 && s->output_tokens > 0;
    json_out_key(j, "summary");
    json_out_obj(j);
    count(j, "requests", s->n_requests);
    count(j, "ok", s->n_ok);
    count(j, "failed", s->n_failed);
    count(j, "unfinished", s->n_canceled);
    count(j, "unsent", s->n_unsent);
    number(j, "duration_s", s->duration_s);
    number(j, "input_tokens", s->input_tokens);
    number(j, "output_tokens", s->output_tokens);
    number_or_null(j, "cached_tokens", s->cached_known, s->cached_tokens);
    number(j, "messages", s->events);
    count(j, "input_length_wrong", s->n_input_wrong);
    count(j, "output_length_wrong", s->n_output_wrong);
    number(j, "requests_per_s", s->requests_per_s);
    number(j, "input_tokens_per_s", s->input_per_s);
    number(j, "output_tokens_per_s", s->output_per_s);
    number(j, "total_tokens_per_s", s->total_per_s);
    number_or_null(j, "offered_per_s", s->offered_per_s > 0, s->offered_per_s);
    number_or_null(j, "good_requests_per_s", slo, s->good_per_s);
    number_or_null(j, "good_share", slo, s->good_share);
    stat(j, "ttft_ms", &s->ms[LATENCY_TTFT]);
    stat(j, "tpot_ms", &s->ms[LATENCY_TPOT]);
    stat(j, "itl_ms", &s->ms[LATENCY_ITL]);
    stat(j, "e2e_ms", &s->ms[LATENCY_E2E]);
    stat(j, "sent_late_ms", &s->ms[LATENCY_LAG]);
    number_or_null(j, "cost_per_1m_output", priced, s->cost_output);
    number_or_null(j, "cost_per_1m_total", priced, s->cost_total);
    number_or_null(j, "joules_per_output_token", s->joules.known, s->joules_per_output);
    number_or_null(j, "joules_per_token", s->joules.known, s->joules_per_token);
    number(j, "generator_cpu", s->client_cpu);
    json_out_key(j, "generator_bound");
    json_out_bool(j, s->generator_bound);
    text_or_null(j, "over_saturated", s->saturated);
    summary_server(j, s);
    json_out_obj_end(j);
}

static void failures(struct json_out *j, const struct run *run) {
    json_out_key(j, "errors");
    json_out_arr(j);
    for (size_t i = 0; i < run->n_failures; i++) {
        const struct failure *f = &run->failures[i];
        json_out_obj(j);
        text(j, "kind", outcome_name(f->outcome));
        json_out_key(j, "status");
        if (f->status)
            json_out_u64(j, f->status);
        else
            json_out_null(j);
        count(j, "count", f->n);
        text(j, "example", f->example);
        json_out_obj_end(j);
    }
    json_out_arr_end(j);
}

/* One array for each field: a tenth of the size of an object for each request. */
static void column(struct json_out *j, const char *key, const struct run *run, int which) {
    json_out_key(j, key);
    json_out_arr(j);
    for (size_t i = 0; i < run->n; i++) {
        const struct record *k = &run->records[i];
        switch (which) {
        case 0: json_out_f64(j, (double)k->due_us / 1e6); break;
        case 1: json_out_f64(j, record_ms(k, LATENCY_TTFT)); break; /* NaN: null */
        case 2: json_out_f64(j, record_ms(k, LATENCY_TPOT)); break;
        case 3: json_out_f64(j, record_ms(k, LATENCY_E2E)); break;
        case 4: json_out_f64(j, record_ms(k, LATENCY_LAG)); break;
        case 5: json_out_i64(j, k->input); break;
        case 6: json_out_i64(j, k->output); break;
        case 7: json_out_i64(j, k->cached); break;
        case 8: json_out_u64(j, k->turn); break;
        default: json_out_str(j, outcome_name((enum outcome)k->outcome));
        }
    }
    json_out_arr_end(j);
}

static void records(struct json_out *j, const struct run *run) {
    static const char *const names[] = {"due_s",        "ttft_ms",      "tpot_ms",       "e2e_ms",
                                        "sent_late_ms", "input_tokens", "output_tokens", "cached_tokens",
                                        "turn",         "outcome"};
    json_out_key(j, "records");
    json_out_obj(j);
    for (int i = 0; i < 10; i++) column(j, names[i], run, i);
    json_out_obj_end(j);
}

static void samples(struct json_out *j, const struct run *run) {
    json_out_key(j, "samples");
    json_out_arr(j);
    for (size_t i = 0; i < run->n_samples; i++) {
        const struct sample *k = &run->samples[i];
        json_out_obj(j);
        number(j, "t_s", k->t_s);
        count(j, "in_flight", k->active);
        count(j, "messages", k->events);
        number_or_null(j, "running", k->server.has[METRIC_RUNNING], k->server.value[METRIC_RUNNING]);
        number_or_null(j, "waiting", k->server.has[METRIC_WAITING], k->server.value[METRIC_WAITING]);
        number_or_null(j, "kv_usage", k->server.has[METRIC_KV_USAGE], k->server.value[METRIC_KV_USAGE]);
        json_out_obj_end(j);
    }
    json_out_arr_end(j);
}

static void length(struct json_out *j, const char *key, const struct length *l) {
    static const char *const names[] = {"fixed", "uniform", "normal", "lognormal"};
    json_out_key(j, key);
    json_out_obj(j);
    text(j, "kind", names[l->kind]);
    number(j, "a", l->a);
    number_or_null(j, "b", l->kind != LENGTH_FIXED, l->b);
    json_out_obj_end(j);
}

static void point_settings(struct json_out *j, const struct point *k) {
    static const char *const arrivals[] = {"closed", "constant", "poisson", "gamma", "ramp", "trace"};
    const struct workload_spec *w = &k->spec;
    bool closed = k->arrival.kind == ARRIVAL_CLOSED, file = w->kind >= WORKLOAD_SHAREGPT;
    text(j, "title", k->title);
    text(j, "workload", w->name);
    text(j, "endpoint", w->chat ? "chat" : "completions");
    if (!file) {
        length(j, "input", &w->input);
        length(j, "output", &w->output);
    }
    count(j, "prefix_tokens", w->prefix_tokens);
    count(j, "prefix_groups", w->prefix_groups);
    count(j, "turns", w->turns);
    text(j, "arrival", arrivals[k->arrival.kind]);
    number_or_null(j, "concurrency", closed, (double)k->concurrency);
    number_or_null(j, "rate", !closed && k->arrival.kind != ARRIVAL_TRACE, k->arrival.rate);
    number_or_null(j, "ramp_to", k->arrival.kind == ARRIVAL_RAMP, k->arrival.ramp_to);
    number_or_null(j, "burstiness", k->arrival.kind == ARRIVAL_GAMMA, k->arrival.burstiness);
    number_or_null(j, "max_concurrency", !closed, (double)k->max_active);
}

static void point(struct json_out *j, const struct plan *p, const struct point *k) {
    json_out_obj(j);
    point_settings(j, k);
    summary_object(j, p, &k->all);
    json_out_key(j, "repeats");
    json_out_arr(j);
    for (size_t r = 0; r < k->n_runs; r++) {
        json_out_obj(j);
        summary_object(j, p, &k->repeats[r]);
        failures(j, &k->runs[r]);
        if (p->o->records) records(j, &k->runs[r]);
        samples(j, &k->runs[r]);
        json_out_obj_end(j);
    }
    json_out_arr_end(j);
    json_out_obj_end(j);
}

static void head(struct json_out *j, const struct plan *p) {
    const struct target *t = &p->target;
    text(j, "format", "quire-bench-serve");
    count(j, "version", FORMAT_VERSION);
    json_out_key(j, "created");
    json_out_i64(j, p->created_unix_s);
    text_or_null(j, "label", p->o->label);
    json_out_key(j, "server");
    json_out_obj(j);
    text(j, "url", t->base);
    text(j, "model", t->model);
    text_or_null(j, "software", t->software);
    number_or_null(j, "max_model_len", t->max_model_len, (double)t->max_model_len);
    text_or_null(j, "tokens_by", t->tokenizer);
    json_out_obj_end(j);
    json_out_key(j, "seed");
    json_out_i64(j, p->o->seed);
    number(j, "scale", p->o->scale);
    text_or_null(j, "suite", p->o->suite);
    text_or_null(j, "slo", p->o->slo);
    number_or_null(j, "price_per_hour", p->price > 0, p->price);
    text_or_null(j, "ended_early", p->ended);
    json_out_key(j, "notes");
    json_out_arr(j);
    for (int i = 0; i < 3; i++)
        if (*p->note[i]) json_out_str(j, p->note[i]);
    json_out_arr_end(j);
}

void report_json(const struct plan *p, struct buf *out) {
    struct json_out j;
    json_out_init(&j, out);
    json_out_obj(&j);
    head(&j, p);
    json_out_key(&j, "points");
    json_out_arr(&j);
    for (size_t i = 0; i < p->n_points; i++)
        if (p->points[i].n_runs) point(&j, p, &p->points[i]);
    json_out_arr_end(&j);
    json_out_obj_end(&j);
    buf_putc(out, '\n');
}
