#include "advise/look.h"

#include "base/error.h"
#include "load/prometheus.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* A server has one family of names. Rows for one value are summed. */
static const struct row {
    enum look_value to;
    const char *name, *label, *value; /* only where this label has this value */
} rows[] = {
    {L_FINISHED, "vllm:request_success_total", NULL, NULL},
    {L_BY_LENGTH, "vllm:request_success_total", "finished_reason", "length"},
    {L_PROMPT_TOKENS, "vllm:prompt_tokens_total", NULL, NULL},
    {L_CACHED_TOKENS, "vllm:prompt_tokens_cached_total", NULL, NULL},
    {L_OUTPUT_TOKENS, "vllm:generation_tokens_total", NULL, NULL},
    {L_PREFIX_QUERIES, "vllm:prefix_cache_queries_total", NULL, NULL},
    {L_PREFIX_QUERIES, "vllm:gpu_prefix_cache_queries_total", NULL, NULL},
    {L_PREFIX_HITS, "vllm:prefix_cache_hits_total", NULL, NULL},
    {L_PREFIX_HITS, "vllm:gpu_prefix_cache_hits_total", NULL, NULL},
    {L_PREEMPTIONS, "vllm:num_preemptions_total", NULL, NULL},
    {L_EVICTIONS, "quire_kv_block_evictions_total", NULL, NULL},
    {L_RECOMPUTED, "quire_recomputed_tokens_total", NULL, NULL},
    {L_REFUSED, "vllm:admission_rejections_total", NULL, NULL},
    {L_LEFT, "quire_requests_total", "outcome", "client_gone"},
    {L_INVALID, "quire_requests_total", "outcome", "invalid"},
    {L_FAILED, "quire_requests_total", "outcome", "failed"},
    {L_CONNECTIONS_REFUSED, "quire_connections_refused_total", NULL, NULL},
    {L_SLOW_READERS, "quire_slow_readers_total", NULL, NULL},
    {L_HELD_SEQS, "quire_held_steps_total", "lack", "max_num_seqs"},
    {L_HELD_KV, "quire_held_steps_total", "lack", "kv"},
    {L_HELD_TOKENS, "quire_held_steps_total", "lack", "max_num_batched_tokens"},
    {L_HELD_TIME, "quire_held_steps_total", "lack", "step_time"},
    {L_CPU_S, "process_cpu_seconds_total", NULL, NULL},
    {L_CPU_WAIT_S, "quire_cpu_wait_seconds_total", NULL, NULL},
    {L_THROTTLED_S, "quire_cpu_throttled_seconds_total", NULL, NULL},
    {L_MACHINE_BUSY_S, "quire_machine_cpu_seconds_total", "state", "busy"},
    {L_STEAL_S, "quire_machine_cpu_seconds_total", "state", "steal"},
    {L_DECODE_STEPS, "quire_phase_steps_total", "phase", "decode"},
    {L_DECODE_TOKENS, "quire_phase_tokens_total", "phase", "decode"},
    {L_DECODE_SQUARES, "quire_phase_tokens_squared_total", "phase", "decode"},
    {L_DECODE_S, "quire_phase_seconds_total", "phase", "decode"},
    {L_DECODE_TOKEN_S, "quire_phase_token_seconds_total", "phase", "decode"},
    {L_PREFILL_STEPS, "quire_phase_steps_total", "phase", "prefill"},
    {L_PREFILL_TOKENS, "quire_phase_tokens_total", "phase", "prefill"},
    {L_PREFILL_SQUARES, "quire_phase_tokens_squared_total", "phase", "prefill"},
    {L_PREFILL_S, "quire_phase_seconds_total", "phase", "prefill"},
    {L_PREFILL_TOKEN_S, "quire_phase_token_seconds_total", "phase", "prefill"},
    {L_COMPARED_PROMPTS, "quire_prompt_statistics_prompts_total", NULL, NULL},
    {L_COMPARED_TOKENS, "quire_prompt_statistics_tokens_total", NULL, NULL},
    {L_PREFIX_TOKENS, "quire_prompt_statistics_prefix_tokens_total", NULL, NULL},
    {L_FIELD_PROMPTS, "quire_prompt_statistics_displaced_prompts_total", "cause", "field"},
    {L_CUT_PROMPTS, "quire_prompt_statistics_displaced_prompts_total", "cause", "cut"},
    {L_ORDER_PROMPTS, "quire_prompt_statistics_displaced_prompts_total", "cause", "order"},
    {L_FIELD_TOKENS, "quire_prompt_statistics_displaced_tokens_total", "cause", "field"},
    {L_CUT_TOKENS, "quire_prompt_statistics_displaced_tokens_total", "cause", "cut"},
    {L_ORDER_TOKENS, "quire_prompt_statistics_displaced_tokens_total", "cause", "order"},
    {L_FIELD_AT, "quire_prompt_statistics_difference_tokens_total", "cause", "field"},
    {L_CUT_AT, "quire_prompt_statistics_difference_tokens_total", "cause", "cut"},
    {L_ORDER_AT, "quire_prompt_statistics_difference_tokens_total", "cause", "order"},
    {L_PROMPT_TOKENS, "sglang:prompt_tokens_total", NULL, NULL},
    {L_CACHED_TOKENS, "sglang:cached_tokens_total", NULL, NULL},
    {L_OUTPUT_TOKENS, "sglang:generation_tokens_total", NULL, NULL},
    {L_FINISHED, "sglang:num_requests_total", NULL, NULL},
    {L_PROMPT_TOKENS, "llamacpp:prompt_tokens_total", NULL, NULL},
    {L_OUTPUT_TOKENS, "llamacpp:tokens_predicted_total", NULL, NULL},
    {L_PREFILL_S, "llamacpp:prompt_seconds_total", NULL, NULL},
    {L_DECODE_S, "llamacpp:tokens_predicted_seconds_total", NULL, NULL},
    {L_RUNNING, "vllm:num_requests_running", NULL, NULL},
    {L_RUNNING, "sglang:num_running_reqs", NULL, NULL},
    {L_RUNNING, "llamacpp:requests_processing", NULL, NULL},
    {L_WAITING, "vllm:num_requests_waiting", NULL, NULL},
    {L_WAITING, "sglang:num_queue_reqs", NULL, NULL},
    {L_WAITING, "llamacpp:requests_deferred", NULL, NULL},
    {L_KV_USAGE, "vllm:kv_cache_usage_perc", NULL, NULL},
    {L_KV_USAGE, "vllm:gpu_cache_usage_perc", NULL, NULL},
    {L_KV_USAGE, "sglang:token_usage", NULL, NULL},
    {L_KV_USAGE, "llamacpp:kv_cache_usage_ratio", NULL, NULL},
    {L_BEHIND, "quire_num_requests_behind", NULL, NULL},
    {L_START_UNIX_S, "process_start_time_seconds", NULL, NULL},
    {L_CORES, "quire_cores", NULL, NULL},
    {L_THREADS, "quire_flag", "flag", "threads"},
    {L_PARAMETERS, "quire_model_parameters", NULL, NULL},
    {L_WEIGHT_BYTES, "quire_memory_plan_bytes", "row", "weights"},
    {L_KV_BYTES, "quire_memory_plan_bytes", "row", "KV blocks"},
    {L_PLAN_BYTES, "quire_memory_plan_bytes", "row", "total"},
    {L_MACHINE_BYTES, "quire_machine_memory_bytes", "state", "total"},
    {L_KV_TOKEN_BYTES, "quire_kv_bytes_per_token", NULL, NULL},
    {L_MAX_NUM_SEQS, "quire_flag", "flag", "max-num-seqs"},
    {L_MAX_BATCHED_TOKENS, "quire_flag", "flag", "max-num-batched-tokens"},
    {L_MAX_MODEL_LEN, "quire_flag", "flag", "max-model-len"},
    {L_MAX_QUEUE, "quire_flag", "flag", "max-queue"},
    {L_PREFIX_CACHING, "quire_flag", "flag", "enable-prefix-caching"},
    {L_CHUNKED_PREFILL, "quire_flag", "flag", "enable-chunked-prefill"},
};

static const struct {
    enum look_hist to;
    const char *name;
} hists[] = {
    {H_TTFT, "vllm:time_to_first_token_seconds"},   {H_TPOT, "vllm:request_time_per_output_token_seconds"},
    {H_TPOT, "vllm:time_per_output_token_seconds"}, /* older; of tokens, not of requests */
    {H_E2E, "vllm:e2e_request_latency_seconds"},    {H_ITL, "vllm:inter_token_latency_seconds"},
    {H_QUEUE, "vllm:request_queue_time_seconds"},   {H_PREFILL, "vllm:request_prefill_time_seconds"},
    {H_DECODE, "vllm:request_decode_time_seconds"}, {H_PROMPT, "vllm:request_prompt_tokens"},
    {H_OUTPUT, "vllm:request_generation_tokens"},   {H_MAX_TOKENS, "vllm:request_params_max_tokens"},
    {H_TTFT, "sglang:time_to_first_token_seconds"}, {H_TPOT, "sglang:inter_token_latency_seconds"},
    {H_E2E, "sglang:e2e_request_latency_seconds"},
};

/* ---- a page ---- */

static void set(struct look *l, enum look_value to, double v) {
    l->has[to] = true;
    l->v[to] += v;
}

static bool take_value(const struct prometheus_sample *s, struct look *l) {
    char value[64];
    bool found = false;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        const struct row *r = &rows[i];
        if (!prometheus_is(s, r->name)) continue;
        if (r->label && (!prometheus_label(s, r->label, value, sizeof value) || strcmp(value, r->value) != 0))
            continue;
        set(l, r->to, s->value);
        found = true;
    }
    return found;
}

static void add_bucket(struct look_histogram *h, double bound, double count) {
    for (size_t i = 0; i < h->n; i++)
        if (h->bound[i] == bound) {
            h->count[i] += count; /* of another engine */
            return;
        }
    if (h->n == LOOK_MAX_BUCKETS || (h->n && bound < h->bound[h->n - 1])) return; /* they come in order */
    h->bound[h->n] = bound;
    h->count[h->n++] = count;
}

static void take_hist(const struct prometheus_sample *s, struct look *l) {
    char le[32];
    for (size_t i = 0; i < sizeof hists / sizeof *hists; i++) {
        size_t n = strlen(hists[i].name);
        struct look_histogram *h = &l->hist[hists[i].to];
        if (s->name_n <= n || memcmp(s->name, hists[i].name, n) != 0) continue;
        struct prometheus_sample part = {.name = s->name + n, .name_n = s->name_n - n};
        if (prometheus_is(&part, "_sum")) h->sum += s->value;
        if (prometheus_is(&part, "_count")) h->total += s->value;
        if (prometheus_is(&part, "_count")) h->has = true;
        if (!prometheus_is(&part, "_bucket") || !prometheus_label(s, "le", le, sizeof le)) continue;
        char *end;
        double bound = strtod(le, &end);
        if (end != le && !*end && !isnan(bound)) add_bucket(h, bound, s->value);
    }
}

static void take_labels(const struct prometheus_sample *s, struct look *l) {
    static const struct {
        const char *label;
        enum look_value to;
    } numbers[] = {{"num_gpu_blocks", L_CACHE_BLOCKS}, {"block_size", L_CACHE_BLOCK_SIZE}};
    char value[64], *end;
    if (prometheus_is(s, "quire_build_info")) {
        l->is_quire = true;
        prometheus_label(s, "version", l->version, sizeof l->version);
        if (prometheus_label(s, "cpu_path", value, sizeof value) && figures_path_rank(value) >= 0)
            set(l, L_PATH, figures_path_rank(value));
        if (prometheus_label(s, "cpu_best", value, sizeof value) && figures_path_rank(value) >= 0)
            set(l, L_PATH_BEST, figures_path_rank(value));
    }
    if (!prometheus_is(s, "vllm:cache_config_info")) return;
    for (size_t i = 0; i < 2; i++) {
        if (!prometheus_label(s, numbers[i].label, value, sizeof value)) continue;
        double v = strtod(value, &end);
        if (end != value && !*end && isfinite(v)) set(l, numbers[i].to, v);
    }
    if (l->is_quire || !prometheus_label(s, "enable_prefix_caching", value, sizeof value)) return;
    if (!l->has[L_PREFIX_CACHING]) set(l, L_PREFIX_CACHING, !strcmp(value, "True"));
}

void look_read(const char *text, struct look *out) {
    struct prometheus_sample s;
    unsigned n_usage = 0;
    *out = (struct look){0};
    while (prometheus_next(&text, &s)) {
        double before = out->v[L_KV_USAGE];
        bool had = out->has[L_KV_USAGE];
        out->n_samples++;
        take_value(&s, out);
        take_hist(&s, out);
        take_labels(&s, out);
        n_usage += out->has[L_KV_USAGE] && (!had || out->v[L_KV_USAGE] != before);
    }
    if (n_usage > 1) out->v[L_KV_USAGE] /= n_usage;
}

/* ---- gauges of a window ---- */

static void add_gauge(struct look_gauge *g, const struct look *l, enum look_value which) {
    if (!l->has[which]) return;
    g->n++;
    g->sum += l->v[which];
    if (l->v[which] > g->max) g->max = l->v[which];
}

void look_gauges_add(struct look_gauges *g, const struct look *l) {
    add_gauge(&g->running, l, L_RUNNING);
    add_gauge(&g->waiting, l, L_WAITING);
    add_gauge(&g->kv, l, L_KV_USAGE);
    add_gauge(&g->behind, l, L_BEHIND);
}

static void put_gauge(struct figures *f, const struct look_gauge *g, enum figure mean, enum figure max) {
    if (!g->n) return;
    figures_set(f, mean, g->sum / (double)g->n);
    if (max != mean) figures_set(f, max, g->max);
}

/* ---- what happened between two looks ---- */

struct span {
    const struct look *first, *last; /* first NULL: the server's start */
    double seconds;
    struct figures *f;
};

static bool grew(const struct span *s, enum look_value which, double *out) {
    if (!s->last->has[which]) return false;
    *out = s->last->v[which] - (s->first ? s->first->v[which] : 0);
    return *out >= 0;
}

static double growth(const struct span *s, enum look_value which) {
    double v;
    return grew(s, which, &v) ? v : 0;
}

static void put(const struct span *s, enum figure to, enum look_value from) {
    double v;
    if (grew(s, from, &v)) figures_set(s->f, to, v);
}

static void put_rate(const struct span *s, enum figure to, enum look_value from) {
    double v;
    if (grew(s, from, &v)) figures_set(s->f, to, v / s->seconds);
}

static void put_ratio(const struct span *s, enum figure to, enum look_value part, double whole) {
    double v;
    if (whole > 0 && grew(s, part, &v)) figures_set(s->f, to, v / whole);
}

static struct look_histogram hist_growth(const struct span *s, enum look_hist which) {
    struct look_histogram h = s->last->hist[which];
    const struct look_histogram *a = s->first ? &s->first->hist[which] : NULL;
    if (!a || !a->has) return h;
    h.sum -= a->sum;
    h.total -= a->total;
    for (size_t i = 0; i < h.n && i < a->n; i++) h.count[i] -= a->count[i];
    return h;
}

bool look_quantile(const struct look_histogram *h, double q, double *out) {
    double want = q * h->total, below = 0, lower = 0;
    *out = 0;
    if (!(h->total > 0) || !h->n) return false;
    for (size_t i = 0; i < h->n; i++) {
        double in = h->count[i] - below;
        if (isinf(h->bound[i])) break;
        if (in > 0 && h->count[i] >= want) {
            double part = (want - below) / in;
            *out = lower + (h->bound[i] - lower) * (part > 0 ? part : 0);
            return true;
        }
        below = h->count[i];
        lower = h->bound[i];
    }
    *out = lower;
    return false;
}

static void put_quantile(const struct span *s, enum figure to, enum look_hist from, double q, double factor) {
    struct look_histogram h = hist_growth(s, from);
    double v;
    if (!h.has || !(h.total > 0)) return;
    look_quantile(&h, q, &v);
    figures_set(s->f, to, v * factor);
}

static void put_mean(const struct span *s, enum figure to, enum look_hist from, double factor) {
    struct look_histogram h = hist_growth(s, from);
    if (h.has && h.total > 0) figures_set(s->f, to, h.sum / h.total * factor);
}

/* Share of the output that stands behind the 256th token of its answer. Buckets tell how many answers are
 * longer than a bound: the sum of what is beyond is the integral of that number (trapezoids; the endless
 * bucket by what the sum leaves). At least (mean - 256) / mean. */
static double beyond(const struct look_histogram *h, double from) {
    double within = 0, lower = 0, longer = h->total;
    for (size_t i = 0; i < h->n && !isinf(h->bound[i]) && lower < from; i++) {
        double upper = h->bound[i], above = h->total - h->count[i];
        if (upper > from) {
            above = longer + (above - longer) * (from - lower) / (upper - lower);
            upper = from;
        }
        within += (upper - lower) * (longer + above) / 2;
        lower = upper;
        longer = above;
    }
    double mean = h->sum / h->total, least = mean > from ? (mean - from) / mean : 0;
    double share = 1 - within / h->sum;
    return share < least ? least : share;
}

static void traffic(const struct span *s) {
    struct figures *f = s->f;
    double p99 = 0, out99 = 0, finished = growth(s, L_FINISHED);
    struct look_histogram prompts = hist_growth(s, H_PROMPT), outputs = hist_growth(s, H_OUTPUT);
    put(s, F_REQUESTS, L_FINISHED);
    put(s, F_PROMPT_TOKENS, L_PROMPT_TOKENS);
    put(s, F_CACHED_TOKENS, L_CACHED_TOKENS);
    put(s, F_OUTPUT_TOKENS, L_OUTPUT_TOKENS);
    put_ratio(s, F_LENGTH_SHARE, L_BY_LENGTH, finished);
    put_mean(s, F_PROMPT_MEAN, H_PROMPT, 1);
    put_mean(s, F_OUTPUT_MEAN, H_OUTPUT, 1);
    put_mean(s, F_MAX_TOKENS_MEAN, H_MAX_TOKENS, 1);
    if (finished > 0 && !f->has[F_PROMPT_MEAN]) put_ratio(s, F_PROMPT_MEAN, L_PROMPT_TOKENS, finished);
    if (finished > 0 && !f->has[F_OUTPUT_MEAN]) put_ratio(s, F_OUTPUT_MEAN, L_OUTPUT_TOKENS, finished);
    if (outputs.has && outputs.total > 0 && outputs.sum > 0)
        figures_set(f, F_OUTPUT_BEYOND, beyond(&outputs, 256));
    if (look_quantile(&prompts, 0.99, &p99) && look_quantile(&outputs, 0.99, &out99))
        figures_set(f, F_LONGEST, p99 + out99);
    if (growth(s, L_PREFIX_QUERIES) > 0) put_ratio(s, F_HIT_RATE, L_PREFIX_HITS, growth(s, L_PREFIX_QUERIES));
}

static void latencies(const struct span *s) {
    put_quantile(s, F_TTFT_P95, H_TTFT, 0.95, 1000);
    put_quantile(s, F_TPOT_P95, H_TPOT, 0.95, 1000);
    put_quantile(s, F_E2E_P95, H_E2E, 0.95, 1000);
    put_quantile(s, F_ITL_P99, H_ITL, 0.99, 1000);
    put_mean(s, F_QUEUE_MS, H_QUEUE, 1000);
    put_mean(s, F_PREFILL_MS, H_PREFILL, 1000);
    put_mean(s, F_DECODE_MS, H_DECODE, 1000);
}

struct sums {
    double steps, tokens, squares, seconds, token_s;
};

static struct sums phase(const struct span *s, enum look_value first) {
    return (struct sums){growth(s, first), growth(s, first + 1), growth(s, first + 2), growth(s, first + 3),
                         growth(s, first + 4)};
}

/* Least squares of the time of a step over its tokens: fixed + token x n. False where the steps are too few,
 * all alike, or do not take longer with more tokens. */
static bool fit(const struct sums *m, double *fixed_s, double *token_s) {
    double spread = m->steps * m->squares - m->tokens * m->tokens;
    if (m->steps < 20 || !(spread > 0.02 * m->tokens * m->tokens)) return false;
    *token_s = (m->steps * m->token_s - m->tokens * m->seconds) / spread;
    *fixed_s = (m->seconds - *token_s * m->tokens) / m->steps;
    if (!(*token_s > 0)) return false;
    if (*fixed_s < 0) { /* through the origin then */
        *fixed_s = 0;
        *token_s = m->seconds / m->tokens;
    }
    return true;
}

static void put_fit(struct figures *f, const struct sums *m, enum figure fixed, enum figure token) {
    double a, b;
    if (!fit(m, &a, &b)) return;
    figures_set(f, fixed, 1000 * a);
    figures_set(f, token, 1000 * b);
}

static void put_phase(struct figures *f, const struct sums *m, enum figure tokens, enum figure ms) {
    if (!(m->steps > 0)) return;
    figures_set(f, tokens, m->tokens / m->steps);
    figures_set(f, ms, 1000 * m->seconds / m->steps);
}

static void held(const struct span *s, double steps) {
    put_ratio(s, F_HELD_SEQS, L_HELD_SEQS, steps);
    put_ratio(s, F_HELD_KV, L_HELD_KV, steps);
    put_ratio(s, F_HELD_TOKENS, L_HELD_TOKENS, steps);
    put_ratio(s, F_HELD_TIME, L_HELD_TIME, steps);
}

static void steps(const struct span *s) {
    struct figures *f = s->f;
    struct sums d = phase(s, L_DECODE_STEPS), p = phase(s, L_PREFILL_STEPS);
    struct sums all = {d.steps + p.steps, d.tokens + p.tokens, d.squares + p.squares, d.seconds + p.seconds,
                       d.token_s + p.token_s};
    if (!s->last->has[L_DECODE_S] || !s->last->has[L_PREFILL_S]) return;
    figures_set(f, F_BUSY, fmin(1, all.seconds / s->seconds));
    if (all.seconds > 0) figures_set(f, F_PREFILL_SHARE, p.seconds / all.seconds);
    if (!s->last->has[L_DECODE_STEPS]) return; /* llama.cpp: seconds only */
    figures_set(f, F_STEPS, all.steps);
    put_phase(f, &d, F_DECODE_STEP_TOKENS, F_DECODE_STEP_MS);
    put_phase(f, &p, F_PREFILL_STEP_TOKENS, F_PREFILL_STEP_MS);
    put_fit(f, &d, F_DECODE_FIXED_MS, F_DECODE_TOKEN_MS);
    put_fit(f, &all, F_STEP_FIXED_MS, F_STEP_TOKEN_MS);
    if (f->has[F_STEP_TOKEN_MS])
        figures_set(f, F_UTILIZATION,
                    fmin(f->v[F_BUSY], f->v[F_STEP_TOKEN_MS] / 1000 * all.tokens / s->seconds));
    held(s, all.steps);
    if (all.tokens > 0) put_ratio(s, F_RECOMPUTED_SHARE, L_RECOMPUTED, all.tokens);
}

/* Other ends than an answer, each as a share of all requests that came to one. */
static void ends(const struct span *s) {
    static const struct {
        enum look_value from;
        enum figure n, share;
    } kinds[] = {{L_LEFT, F_LEFT, F_LEFT_SHARE},
                 {L_INVALID, F_INVALID, F_INVALID_SHARE},
                 {L_FAILED, F_FAILED, F_FAILED_SHARE}};
    double all = growth(s, L_FINISHED);
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) all += growth(s, kinds[i].from);
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        put(s, kinds[i].n, kinds[i].from);
        if (all > 0) put_ratio(s, kinds[i].share, kinds[i].from, all);
    }
}

static void refusals(const struct span *s) {
    double refused = growth(s, L_REFUSED), all = refused + growth(s, L_FINISHED);
    put(s, F_REFUSED, L_REFUSED);
    if (all > 0) put_ratio(s, F_REFUSED_SHARE, L_REFUSED, all);
    ends(s);
    put(s, F_CONNECTIONS_REFUSED, L_CONNECTIONS_REFUSED);
    put(s, F_SLOW_READERS, L_SLOW_READERS);
    put(s, F_PREEMPTIONS, L_PREEMPTIONS);
    put(s, F_EVICTIONS, L_EVICTIONS);
}

static void processors(const struct span *s) {
    double used, busy;
    put_rate(s, F_CPU_USED, L_CPU_S);
    put_rate(s, F_THROTTLED_SHARE, L_THROTTLED_S);
    if (!s->first) return; /* the machine counts since it was started, threads since they were */
    put_rate(s, F_CPU_WAIT, L_CPU_WAIT_S);
    put_rate(s, F_CPU_STEAL, L_STEAL_S);
    if (grew(s, L_CPU_S, &used) && grew(s, L_MACHINE_BUSY_S, &busy))
        figures_set(s->f, F_CPU_OTHERS, busy > used ? (busy - used) / s->seconds : 0);
}

static void settings(const struct span *s) {
    static const struct {
        enum figure to;
        enum look_value from;
    } same[] = {
        {F_CORES, L_CORES},
        {F_THREADS, L_THREADS},
        {F_WEIGHT_BYTES, L_WEIGHT_BYTES},
        {F_KV_BYTES, L_KV_BYTES},
        {F_PLAN_BYTES, L_PLAN_BYTES},
        {F_MACHINE_BYTES, L_MACHINE_BYTES},
        {F_MAX_NUM_SEQS, L_MAX_NUM_SEQS},
        {F_MAX_BATCHED_TOKENS, L_MAX_BATCHED_TOKENS},
        {F_MAX_MODEL_LEN, L_MAX_MODEL_LEN},
        {F_MAX_QUEUE, L_MAX_QUEUE},
        {F_PREFIX_CACHING, L_PREFIX_CACHING},
        {F_CHUNKED_PREFILL, L_CHUNKED_PREFILL},
        {F_PATH, L_PATH},
        {F_PATH_BEST, L_PATH_BEST},
    };
    const struct look *l = s->last;
    for (size_t i = 0; i < sizeof same / sizeof *same; i++)
        if (l->has[same[i].from]) figures_set(s->f, same[i].to, l->v[same[i].from]);
    if (l->has[L_PARAMETERS] && l->v[L_PARAMETERS] > 0 && l->has[L_WEIGHT_BYTES])
        figures_set(s->f, F_WEIGHT_BITS, 8 * l->v[L_WEIGHT_BYTES] / l->v[L_PARAMETERS]);
    if (l->has[L_KV_BYTES] && l->has[L_KV_TOKEN_BYTES] && l->v[L_KV_TOKEN_BYTES] > 0)
        figures_set(s->f, F_KV_TOKENS, l->v[L_KV_BYTES] / l->v[L_KV_TOKEN_BYTES]);
    else if (l->has[L_CACHE_BLOCKS] && l->has[L_CACHE_BLOCK_SIZE])
        figures_set(s->f, F_KV_TOKENS, l->v[L_CACHE_BLOCKS] * l->v[L_CACHE_BLOCK_SIZE]);
}

static void prompts(const struct span *s) {
    static const struct {
        enum look_value tokens, prompts, at;
        enum figure to, place;
    } causes[] = {{L_FIELD_TOKENS, L_FIELD_PROMPTS, L_FIELD_AT, F_FIELD_TOKENS, F_FIELD_AT},
                  {L_CUT_TOKENS, L_CUT_PROMPTS, L_CUT_AT, F_CUT_TOKENS, F_CUT_AT},
                  {L_ORDER_TOKENS, L_ORDER_PROMPTS, L_ORDER_AT, F_ORDER_TOKENS, F_ORDER_AT}};
    double tokens = growth(s, L_COMPARED_TOKENS);
    if (!(tokens > 0)) return; /* it is off, or nobody asked */
    put(s, F_COMPARED_PROMPTS, L_COMPARED_PROMPTS);
    put(s, F_COMPARED_TOKENS, L_COMPARED_TOKENS);
    put_ratio(s, F_PREFIX_SHARE, L_PREFIX_TOKENS, tokens);
    for (size_t i = 0; i < 3; i++) {
        double n = growth(s, causes[i].prompts);
        put(s, causes[i].to, causes[i].tokens);
        if (n > 0) put_ratio(s, causes[i].place, causes[i].at, n);
    }
}

/* A counter that fell: the server was started anew. */
static bool restarted(const struct look *a, const struct look *b) {
    if (a->has[L_START_UNIX_S] && b->has[L_START_UNIX_S] && a->v[L_START_UNIX_S] != b->v[L_START_UNIX_S])
        return true;
    for (int i = 0; i < L_COUNTERS; i++)
        if (i != L_CPU_WAIT_S && i != L_MACHINE_BUSY_S && a->has[i] && b->has[i] && b->v[i] < a->v[i])
            return true;
    return false;
}

int look_figures(const struct look *first, const struct look *last, const struct look_gauges *gauges,
                 double seconds, struct figures *out, struct error *err) {
    struct span s = {first, last, seconds, out};
    *out = (struct figures){.is_quire = last->is_quire};
    if (!(seconds > 0))
        return error_set(err, QUIRE_EINVAL,
                         "the window of the metrics is %g seconds: it must be longer than 0", seconds);
    if (first && restarted(first, last))
        return error_set(err, QUIRE_ECANCELED,
                         "the server was started anew within the window: its counters fell");
    snprintf(out->software, sizeof out->software, "%s%s%s", last->is_quire ? "quire" : "",
             *last->version ? " " : "", last->version);
    figures_set(out, F_WINDOW_S, seconds);
    traffic(&s);
    latencies(&s);
    steps(&s);
    refusals(&s);
    processors(&s);
    settings(&s);
    prompts(&s);
    put_gauge(out, &gauges->running, F_RUNNING, F_RUNNING_MAX);
    put_gauge(out, &gauges->waiting, F_WAITING, F_WAITING_MAX);
    put_gauge(out, &gauges->kv, F_KV_USAGE, F_KV_USAGE_MAX);
    put_gauge(out, &gauges->behind, F_BEHIND, F_BEHIND);
    return 0;
}
