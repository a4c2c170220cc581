#include "load/summary.h"

#include "base/error.h"
#include "load/length.h"
#include "load/saturation.h"

#include <math.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

const char *const latency_names[LATENCIES] = {"ttft", "tpot", "itl", "e2e", "lag", "longest_itl"};

static const struct limit_name {
    const char *name;
    size_t ms, q; /* offsets in struct slo */
} limit_names[] = {{"ttft", offsetof(struct slo, ttft_ms), offsetof(struct slo, ttft_q)},
                   {"tpot", offsetof(struct slo, tpot_ms), offsetof(struct slo, tpot_q)},
                   {"itl", offsetof(struct slo, itl_ms), offsetof(struct slo, itl_q)},
                   {"e2e", offsetof(struct slo, e2e_ms), offsetof(struct slo, e2e_q)},
                   {"e2el", offsetof(struct slo, e2e_ms), offsetof(struct slo, e2e_q)}};

static bool same(const char *text, size_t n, const char *name) {
    return n == strlen(name) && !memcmp(text, name, n);
}

/* "_p95" and the like, or nothing. */
static bool read_share(const char *text, size_t n, double *q) {
    static const struct {
        const char *name;
        double q;
    } shares[] = {{"", 0}, {"_p50", 0.5}, {"_p90", 0.9}, {"_p95", 0.95}, {"_p99", 0.99}};
    for (size_t i = 0; i < sizeof shares / sizeof *shares; i++) {
        *q = shares[i].q;
        if (same(text, n, shares[i].name)) return true;
    }
    return false;
}

/* One "name[_pNN]:value" of n bytes. */
static bool read_limit(const char *text, size_t n, struct slo *out) {
    size_t name = strcspn(text, ":=,"), base = strcspn(text, "_:=,");
    for (size_t i = 0; name < n && i < sizeof limit_names / sizeof *limit_names; i++) {
        const struct limit_name *l = &limit_names[i];
        double *ms = (double *)(void *)((char *)out + l->ms), *q = (double *)(void *)((char *)out + l->q);
        if (!same(text, base, l->name)) continue;
        return *ms == 0 && read_share(text + base, name - base, q) &&
               number_read(text + name + 1, n - name - 1, 0.001, 1e9, ms);
    }
    return false;
}

int slo_parse(const char *text, struct slo *out, struct error *err) {
    *out = (struct slo){0};
    for (const char *p = text;;) {
        size_t n = strcspn(p, ",");
        if (!read_limit(p, n, out))
            return error_set(
                err, QUIRE_EINVAL,
                "--slo \"%.80s\" is not like ttft:1000,tpot:50,itl:200,e2e:30000 or ttft_p95=1000 "
                "(milliseconds, each once; p50, p90, p95 or p99)",
                text);
        if (!p[n]) return 0;
        p += n + 1;
    }
}

int price_parse(const char *text, double *out, struct error *err) {
    size_t n = strlen(text), digits = strcspn(text, "/");
    bool ok = number_read(text, digits, 0.000001, 1e9, out) && (digits == n || !strcmp(text + digits, "/h"));
    return ok ? 0
              : error_set(err, QUIRE_EINVAL, "--price \"%.40s\" is not a price for an hour like 2.00/h",
                          text);
}

bool slo_any(const struct slo *s) {
    return s->ttft_ms > 0 || s->tpot_ms > 0 || s->e2e_ms > 0 || s->itl_ms > 0;
}

bool slo_told(const struct slo *s) {
    return s->ttft_q > 0 || s->tpot_q > 0 || s->e2e_q > 0 || s->itl_q > 0;
}

static double quantile_of(const struct summary_stat *s, double q) {
    if (q == 0.5) return s->p50;
    if (q == 0.9) return s->p90;
    return q == 0.99 ? s->p99 : s->p95;
}

double slo_excess(const struct slo *slo, const struct summary *s) {
    double most = 0;
    if (!s->n_ok) return INFINITY;
    if (slo->ttft_ms > 0) most = fmax(most, quantile_of(&s->ms[LATENCY_TTFT], slo->ttft_q) / slo->ttft_ms);
    if (slo->tpot_ms > 0) most = fmax(most, quantile_of(&s->ms[LATENCY_TPOT], slo->tpot_q) / slo->tpot_ms);
    if (slo->itl_ms > 0) most = fmax(most, quantile_of(&s->ms[LATENCY_PAUSE], slo->itl_q) / slo->itl_ms);
    if (slo->e2e_ms > 0) most = fmax(most, quantile_of(&s->ms[LATENCY_E2E], slo->e2e_q) / slo->e2e_ms);
    return most;
}

double record_ms(const struct record *k, enum latency which) {
    switch (which) {
    case LATENCY_TTFT: return k->first_us ? (double)(k->first_us - k->due_us) / 1000 : NAN;
    case LATENCY_TPOT:
        return k->output > 1 && k->first_us
                   ? (double)(k->last_us - k->first_us) / 1000 / (double)(k->output - 1)
                   : NAN;
    case LATENCY_E2E: return (double)(k->end_us - k->due_us) / 1000;
    case LATENCY_PAUSE: return k->n_events > 1 ? (double)k->longest_gap_us / 1000 : NAN;
    case LATENCY_LAG: return (double)(k->sent_us - k->due_us) / 1000;
    default: return NAN;
    }
}

bool record_good(const struct record *k, const struct slo *slo) {
    if (k->outcome != OUTCOME_OK) return false;
    double ttft = record_ms(k, LATENCY_TTFT), tpot = record_ms(k, LATENCY_TPOT);
    if (slo->ttft_ms > 0 && !(ttft <= slo->ttft_ms)) return false;
    if (slo->tpot_ms > 0 && tpot > slo->tpot_ms) return false; /* NaN: a single token is in time */
    if (slo->itl_ms > 0 && record_ms(k, LATENCY_PAUSE) > slo->itl_ms) return false; /* likewise */
    return !(slo->e2e_ms > 0) || record_ms(k, LATENCY_E2E) <= slo->e2e_ms;
}

static void count_record(const struct record *k, const struct slo *slo, struct summary *s) {
    if (k->outcome == OUTCOME_CANCELED) {
        s->n_canceled++;
        return;
    }
    s->n_requests++;
    if (k->outcome != OUTCOME_OK) {
        s->n_failed++;
        return;
    }
    s->n_ok++;
    if (record_good(k, slo)) {
        s->n_good++;
        s->useful_tokens += (double)(k->input + k->left_out + k->output);
    }
    s->input_tokens += (double)k->input;
    s->output_tokens += (double)k->output;
    s->events += k->n_events;
    if (k->cached >= 0) {
        s->cached_known = true;
        s->cached_tokens += (double)k->cached;
    }
    if (k->want_output && k->output != k->want_output) s->n_output_wrong++;
    if (k->want_input >= 0 && k->input != k->want_input) {
        s->n_input_wrong++;
        if (llabs(k->input - k->want_input) > llabs(s->input_off)) s->input_off = k->input - k->want_input;
    }
}

static void latencies(const struct run *runs, size_t n, struct summary *s) {
    double *values = calloc(s->n_ok + 1, sizeof *values);
    struct hdr *gaps = calloc(1, sizeof *gaps);
    for (int l = 0; values && l < LATENCIES; l++) {
        size_t kept = 0;
        for (size_t r = 0; r < n; r++)
            for (size_t i = 0; i < runs[r].n; i++) {
                double v = runs[r].records[i].outcome == OUTCOME_OK
                               ? record_ms(&runs[r].records[i], (enum latency)l)
                               : NAN;
                if (!isnan(v)) values[kept++] = v;
            }
        s->ms[l] = stats_of(values, kept);
    }
    for (size_t r = 0; gaps && r < n; r++)
        if (runs[r].gaps) hdr_merge(gaps, runs[r].gaps);
    if (gaps) {
        struct summary_stat *i = &s->ms[LATENCY_ITL];
        *i = hdr_stat(gaps);
        i->mean /= 1000, i->p50 /= 1000, i->p90 /= 1000, i->p95 /= 1000, i->p99 /= 1000;
        i->min /= 1000, i->max /= 1000;
    }
    free(values);
    free(gaps);
}

static void add_gauge(struct range *r, double v, size_t *n) {
    r->known = true;
    r->mean += (v - r->mean) / (double)++*n;
    if (v > r->max) r->max = v;
}

static void gauges(const struct run *runs, size_t n, struct summary *s) {
    static const enum metric metrics[] = {METRIC_RUNNING, METRIC_WAITING, METRIC_KV_USAGE,
                                          METRIC_MEMORY_BYTES};
    struct range *const to[] = {&s->running, &s->waiting, &s->kv_usage, &s->memory_bytes};
    size_t counts[4] = {0}, more[6] = {0};
    for (size_t r = 0; r < n; r++)
        for (size_t i = 0; i < runs[r].n_samples; i++) {
            const struct sample *k = &runs[r].samples[i];
            if (k->t_s > runs[r].duration_s) continue; /* the closing one is of an idle server */
            for (size_t m = 0; m < 4; m++)
                if (k->server.has[metrics[m]]) add_gauge(to[m], k->server.value[metrics[m]], &counts[m]);
            if (k->device.has_memory) add_gauge(&s->machine_memory_bytes, k->device.memory_bytes, &more[0]);
            if (!k->device.has_gpu) continue;
            add_gauge(&s->gpu, k->device.gpu_utilization, &more[1]);
            add_gauge(&s->gpu_memory_bytes, k->device.gpu_memory_bytes, &more[2]);
            add_gauge(&s->gpu_watts, k->device.gpu_watts, &more[3]);
            add_gauge(&s->gpu_celsius, k->device.gpu_celsius, &more[4]);
            add_gauge(&s->gpu_sm_mhz, k->device.gpu_sm_mhz, &more[5]);
        }
}

/* What a counter of the server grew by from the first sample to the last, over all runs. */
static struct total growth(const struct run *runs, size_t n, enum metric m) {
    struct total t = {0};
    for (size_t r = 0; r < n; r++) {
        const struct sample *a = NULL, *b = NULL;
        for (size_t i = 0; i < runs[r].n_samples; i++)
            if (runs[r].samples[i].server.has[m]) {
                if (!a) a = &runs[r].samples[i];
                b = &runs[r].samples[i];
            }
        if (!a || a == b || b->server.value[m] < a->server.value[m]) continue; /* it was started anew */
        t.known = true;
        t.value += b->server.value[m] - a->server.value[m];
    }
    return t;
}

static void machine(const struct run *runs, size_t n, struct summary *s) {
    double busy = 0, total = 0, joules = 0, gpu_joules = 0;
    bool energy = false, gpu = false;
    size_t n_cpu = 0;
    for (size_t r = 0; r < n; r++)
        for (size_t i = 1; i < runs[r].n_samples; i++) {
            const struct sample *a = &runs[r].samples[i - 1], *b = &runs[r].samples[i];
            double all = b->device.cpu_total_s - a->device.cpu_total_s, dt = b->t_s - a->t_s;
            if (a->device.has_cpu && b->device.has_cpu && all > 0) {
                double used = b->device.cpu_busy_s - a->device.cpu_busy_s;
                busy += used;
                total += all;
                add_gauge(&s->cpu, used / all, &n_cpu);
            }
            if (a->device.has_energy && b->device.has_energy) {
                energy = true;
                joules += b->device.energy_joules - a->device.energy_joules;
            }
            if (a->device.has_gpu && b->device.has_gpu) {
                gpu = true;
                gpu_joules += (a->device.gpu_watts + b->device.gpu_watts) / 2 * dt;
            }
        }
    if (total > 0) s->cpu.mean = busy / total; /* by time, not by sample */
    struct total server = growth(runs, n, METRIC_ENERGY_JOULES);
    if (energy || gpu) s->joules = (struct total){true, joules + gpu_joules};
    s->joules_from = energy ? gpu ? "RAPL and NVML" : "RAPL" : gpu ? "NVML" : NULL;
    if (!s->joules.known && server.known) {
        s->joules = server;
        s->joules_from = "the server's RAPL";
    }
}

static void server(const struct run *runs, size_t n, struct summary *s) {
    struct total queries = growth(runs, n, METRIC_PREFIX_QUERIES), hits = growth(runs, n, METRIC_PREFIX_HITS);
    struct total waited = growth(runs, n, METRIC_QUEUE_SUM), count = growth(runs, n, METRIC_QUEUE_COUNT);
    if (queries.known && hits.known && queries.value > 0)
        s->hit_rate = (struct total){true, hits.value / queries.value};
    if (waited.known && count.known && count.value > 0)
        s->queue_ms = (struct total){true, 1000 * waited.value / count.value};
    s->preemptions = growth(runs, n, METRIC_PREEMPTIONS);
    s->server_cpu_s = growth(runs, n, METRIC_CPU_SECONDS);
    if (s->server_cpu_s.known && s->duration_s > 0)
        s->server_cpu_cores = (struct range){true, s->server_cpu_s.value / s->duration_s, 0};
}

#define GENERATOR_BUSY 0.7 /* of the time it ran or wanted to */

void summarize(const struct run *runs, size_t n, const struct slo *slo, double price, bool open_loop,
               struct summary *s) {
    double cpu = 0, wait = 0;
    *s = (struct summary){0};
    for (size_t r = 0; r < n; r++) {
        for (size_t i = 0; i < runs[r].n; i++) count_record(&runs[r].records[i], slo, s);
        s->duration_s += runs[r].duration_s;
        s->sending_s += runs[r].sending_s;
        s->n_unsent += runs[r].n_unsent;
        cpu += runs[r].client_cpu_s;
        wait += runs[r].client_wait_s;
    }
    latencies(runs, n, s);
    gauges(runs, n, s);
    server(runs, n, s);
    machine(runs, n, s);
    if (s->duration_s > 0) {
        double d = s->duration_s;
        s->requests_per_s = (double)s->n_ok / d;
        s->input_per_s = s->input_tokens / d;
        s->output_per_s = s->output_tokens / d;
        s->total_per_s = (s->input_tokens + s->output_tokens) / d;
        s->good_per_s = (double)s->n_good / d;
        s->useful_per_s = s->useful_tokens / d;
        s->client_cpu = cpu / d;
        s->client_wait = wait / d;
    }
    if (s->server_cpu_s.known && s->server_cpu_s.value > 0)
        s->useful_per_cpu_s = s->useful_tokens / s->server_cpu_s.value;
    if (s->n_requests) s->good_share = (double)s->n_good / (double)s->n_requests;
    if (open_loop && s->sending_s > 0)
        s->offered_per_s = (double)(s->n_requests + s->n_canceled + s->n_unsent) / s->sending_s;
    double tokens = s->input_tokens + s->output_tokens;
    if (price > 0 && s->output_per_s > 0) s->cost_output = price / 3600 / s->output_per_s * 1e6;
    if (price > 0 && s->useful_per_s > 0) s->cost_useful = price / 3600 / s->useful_per_s * 1e6;
    if (price > 0 && s->total_per_s > 0) s->cost_total = price / 3600 / s->total_per_s * 1e6;
    if (s->joules.known && s->output_tokens > 0) {
        s->joules_per_output = s->joules.value / s->output_tokens;
        s->joules_per_token = s->joules.value / tokens;
    }
    s->generator_bound = s->client_cpu + s->client_wait > GENERATOR_BUSY;
    if (open_loop) saturation_find(runs, n, s);
}
