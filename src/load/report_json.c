#include "load/report.h"

#include "load/json_member.h"

#include <math.h>
#include <string.h>

#define FORMAT_VERSION 1

static void stat(struct json_out *j, const char *key, const struct summary_stat *s) {
    static const char *const names[] = {"mean", "p50", "p90", "p95", "p99", "min", "max"};
    const double values[] = {s->mean, s->p50, s->p90, s->p95, s->p99, s->min, s->max};
    json_out_key(j, key);
    json_out_obj(j);
    json_count(j, "n", s->n);
    for (int i = 0; i < 7; i++) json_number_or_null(j, names[i], s->n, values[i]);
    json_out_obj_end(j);
}

static void range(struct json_out *j, const char *key, const struct range *r) {
    json_out_key(j, key);
    if (!r->known) {
        json_out_null(j);
        return;
    }
    json_out_obj(j);
    json_number(j, "mean", r->mean);
    json_number(j, "max", r->max);
    json_out_obj_end(j);
}

static void summary_server(struct json_out *j, const struct summary *s) {
    json_out_key(j, "server");
    json_out_obj(j);
    range(j, "running", &s->running);
    range(j, "waiting", &s->waiting);
    range(j, "kv_usage", &s->kv_usage);
    range(j, "memory_bytes", &s->memory_bytes);
    json_number_or_null(j, "prefix_hit_rate", s->hit_rate.known, s->hit_rate.value);
    json_number_or_null(j, "queue_ms_mean", s->queue_ms.known, s->queue_ms.value);
    json_number_or_null(j, "preemptions", s->preemptions.known, s->preemptions.value);
    json_number_or_null(j, "cpu_seconds", s->server_cpu_s.known, s->server_cpu_s.value);
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
    json_number_or_null(j, "joules", s->joules.known, s->joules.value);
    json_text_or_null(j, "joules_from", s->joules_from);
    json_out_obj_end(j);
}

void report_json_summary(struct json_out *j, const struct plan *p, const struct summary *s) {
    bool slo = slo_any(&p->slo), priced = p->price > 0 && s->output_tokens > 0;
    json_out_key(j, "summary");
    json_out_obj(j);
    json_count(j, "requests", s->n_requests);
    json_count(j, "ok", s->n_ok);
    json_count(j, "failed", s->n_failed);
    json_count(j, "unfinished", s->n_canceled);
    json_count(j, "unsent", s->n_unsent);
    json_number(j, "duration_s", s->duration_s);
    json_number(j, "input_tokens", s->input_tokens);
    json_number(j, "output_tokens", s->output_tokens);
    json_number_or_null(j, "cached_tokens", s->cached_known, s->cached_tokens);
    json_number(j, "messages", s->events);
    json_count(j, "input_length_wrong", s->n_input_wrong);
    json_count(j, "output_length_wrong", s->n_output_wrong);
    json_number(j, "requests_per_s", s->requests_per_s);
    json_number(j, "input_tokens_per_s", s->input_per_s);
    json_number(j, "output_tokens_per_s", s->output_per_s);
    json_number(j, "total_tokens_per_s", s->total_per_s);
    json_number_or_null(j, "offered_per_s", s->offered_per_s > 0, s->offered_per_s);
    json_number_or_null(j, "good_requests_per_s", slo, s->good_per_s);
    json_number_or_null(j, "good_share", slo, s->good_share);
    json_number(j, "useful_tokens_per_s", s->useful_per_s);
    json_number_or_null(j, "useful_tokens_per_cpu_s", s->useful_per_cpu_s > 0, s->useful_per_cpu_s);
    stat(j, "ttft_ms", &s->ms[LATENCY_TTFT]);
    stat(j, "tpot_ms", &s->ms[LATENCY_TPOT]);
    stat(j, "itl_ms", &s->ms[LATENCY_ITL]);
    stat(j, "longest_itl_ms", &s->ms[LATENCY_PAUSE]);
    stat(j, "e2e_ms", &s->ms[LATENCY_E2E]);
    stat(j, "sent_late_ms", &s->ms[LATENCY_LAG]);
    json_number_or_null(j, "cost_per_1m_output", priced, s->cost_output);
    json_number_or_null(j, "cost_per_1m_total", priced, s->cost_total);
    json_number_or_null(j, "cost_per_1m_useful", priced && s->cost_useful > 0, s->cost_useful);
    json_number_or_null(j, "joules_per_output_token", s->joules.known, s->joules_per_output);
    json_number_or_null(j, "joules_per_token", s->joules.known, s->joules_per_token);
    json_number(j, "generator_cpu", s->client_cpu);
    json_number(j, "generator_waiting", s->client_wait);
    json_out_put_bool(j, "generator_bound", s->generator_bound);
    json_text_or_null(j, "over_saturated", s->saturated);
    summary_server(j, s);
    json_out_obj_end(j);
}

static void failures(struct json_out *j, const struct run *run) {
    json_out_key(j, "errors");
    json_out_arr(j);
    for (size_t i = 0; i < run->n_failures; i++) {
        const struct failure *f = &run->failures[i];
        json_out_obj(j);
        json_text(j, "kind", outcome_name(f->outcome));
        json_out_key(j, "status");
        if (f->status)
            json_out_u64(j, f->status);
        else
            json_out_null(j);
        json_count(j, "count", f->n);
        json_text(j, "example", f->example);
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
        case 9: json_out_f64(j, record_ms(k, LATENCY_PAUSE)); break;
        default: json_out_str(j, outcome_name((enum outcome)k->outcome));
        }
    }
    json_out_arr_end(j);
}

/* Of which workload each request was, where there are several. */
static void parts(struct json_out *j, const struct point *k, const struct run *run) {
    json_out_key(j, "workload");
    json_out_arr(j);
    for (size_t i = 0; i < run->n; i++) {
        uint8_t part = run->records[i].part;
        json_out_str(j, part ? k->others[part - 1].name : k->spec.name);
    }
    json_out_arr_end(j);
}

static void records(struct json_out *j, const struct point *k, const struct run *run) {
    static const char *const names[] = {"due_s",        "ttft_ms",        "tpot_ms",       "e2e_ms",
                                        "sent_late_ms", "input_tokens",   "output_tokens", "cached_tokens",
                                        "turn",         "longest_itl_ms", "outcome"};
    json_out_key(j, "records");
    json_out_obj(j);
    for (int i = 0; i < 11; i++) column(j, names[i], run, i);
    if (k->n_others) parts(j, k, run);
    json_out_obj_end(j);
}

static void samples(struct json_out *j, const struct run *run) {
    json_out_key(j, "samples");
    json_out_arr(j);
    for (size_t i = 0; i < run->n_samples; i++) {
        const struct sample *k = &run->samples[i];
        json_out_obj(j);
        json_number(j, "t_s", k->t_s);
        json_count(j, "in_flight", k->active);
        json_count(j, "messages", k->events);
        json_number_or_null(j, "running", k->server.has[METRIC_RUNNING], k->server.value[METRIC_RUNNING]);
        json_number_or_null(j, "waiting", k->server.has[METRIC_WAITING], k->server.value[METRIC_WAITING]);
        json_number_or_null(j, "kv_usage", k->server.has[METRIC_KV_USAGE], k->server.value[METRIC_KV_USAGE]);
        json_out_obj_end(j);
    }
    json_out_arr_end(j);
}

/* A page without its comments. */
static void page(struct json_out *j, const char *key, const struct run_page *page) {
    struct buf lines = BUF_INIT;
    for (const char *p = page->text, *end; *p; p = *end ? end + 1 : end) {
        end = strchr(p, '\n');
        if (!end) end = p + strlen(p);
        if (*p != '#') buf_append(&lines, p, (size_t)(end - p) + (*end != 0));
    }
    json_out_key(j, key);
    json_out_strn(j, lines.data ? lines.data : "", lines.len);
    if (!buf_ok(&lines)) j->out->failed = true;
    buf_free(&lines);
}

static void pages(struct json_out *j, const struct run *run) {
    json_out_key(j, "metrics");
    if (!run->last_page.text) {
        json_out_null(j);
        return;
    }
    json_out_obj(j);
    json_out_put_f64(j, "seconds", run->last_page.t_s - run->first_page.t_s);
    page(j, "first", &run->first_page);
    page(j, "last", &run->last_page);
    json_out_obj_end(j);
}

static void length(struct json_out *j, const char *key, const struct length *l) {
    static const char *const names[] = {"fixed", "uniform", "normal", "lognormal"};
    json_out_key(j, key);
    json_out_obj(j);
    json_text(j, "kind", names[l->kind]);
    json_number(j, "a", l->a);
    json_number_or_null(j, "b", l->kind != LENGTH_FIXED, l->b);
    json_out_obj_end(j);
}

static void point_settings(struct json_out *j, const struct point *k) {
    static const char *const arrivals[] = {"closed", "constant", "poisson", "gamma", "ramp", "trace"};
    const struct workload_spec *w = &k->spec;
    bool closed = k->arrival.kind == ARRIVAL_CLOSED, file = w->kind >= WORKLOAD_SHAREGPT;
    json_text(j, "title", k->title);
    json_text(j, "workload", w->name);
    json_text(j, "endpoint", w->chat ? "chat" : "completions");
    if (!file) {
        length(j, "input", &w->input);
        length(j, "output", &w->output);
    }
    json_count(j, "prefix_tokens", w->prefix_tokens);
    json_count(j, "prefix_groups", w->prefix_groups);
    json_count(j, "turns", w->turns);
    json_text(j, "arrival", arrivals[k->arrival.kind]);
    json_number_or_null(j, "concurrency", closed, (double)k->concurrency);
    json_number_or_null(j, "rate", !closed && k->arrival.kind != ARRIVAL_TRACE, k->arrival.rate);
    json_number_or_null(j, "ramp_to", k->arrival.kind == ARRIVAL_RAMP, k->arrival.ramp_to);
    json_number_or_null(j, "burstiness", k->arrival.kind == ARRIVAL_GAMMA, k->arrival.burstiness);
    json_number_or_null(j, "max_concurrency", !closed, (double)k->max_active);
}

void report_json_point(struct json_out *j, const struct plan *p, const struct point *k) {
    json_out_obj(j);
    point_settings(j, k);
    report_json_summary(j, p, &k->all);
    json_out_key(j, "repeats");
    json_out_arr(j);
    for (size_t r = 0; r < k->n_runs; r++) {
        json_out_obj(j);
        report_json_summary(j, p, &k->repeats[r]);
        failures(j, &k->runs[r]);
        if (p->o->records) records(j, k, &k->runs[r]);
        samples(j, &k->runs[r]);
        pages(j, &k->runs[r]);
        json_out_obj_end(j);
    }
    json_out_arr_end(j);
    json_out_obj_end(j);
}

static void head(struct json_out *j, const struct plan *p) {
    const struct target *t = &p->target;
    json_text(j, "format", "quire-bench-serve");
    json_count(j, "version", FORMAT_VERSION);
    json_out_key(j, "created");
    json_out_i64(j, p->created_unix_s);
    json_text_or_null(j, "label", p->o->label);
    json_out_key(j, "server");
    json_out_obj(j);
    json_text(j, "url", t->base);
    json_text(j, "model", t->model);
    json_text_or_null(j, "software", t->software);
    json_number_or_null(j, "max_model_len", t->max_model_len, (double)t->max_model_len);
    json_text_or_null(j, "tokens_by", t->tokenizer);
    json_out_obj_end(j);
    json_out_key(j, "seed");
    json_out_i64(j, p->o->seed);
    json_number(j, "scale", p->o->scale);
    json_text_or_null(j, "suite", p->o->suite);
    json_text_or_null(j, "slo", p->o->slo);
    json_number_or_null(j, "price_per_hour", p->price > 0, p->price);
    json_text_or_null(j, "ended_early", p->ended);
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
        if (p->points[i].n_runs) report_json_point(&j, p, &p->points[i]);
    json_out_arr_end(&j);
    json_out_obj_end(&j);
    buf_putc(out, '\n');
}
