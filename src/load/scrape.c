#include "load/scrape.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* The first name of a row that a server has counts; a server has one family. */
static const struct {
    enum metric metric;
    const char *name;
} names[] = {
    {METRIC_RUNNING, "vllm:num_requests_running"},
    {METRIC_RUNNING, "sglang:num_running_reqs"},
    {METRIC_RUNNING, "llamacpp:requests_processing"},
    {METRIC_WAITING, "vllm:num_requests_waiting"},
    {METRIC_WAITING, "sglang:num_queue_reqs"},
    {METRIC_WAITING, "llamacpp:requests_deferred"},
    {METRIC_KV_USAGE, "vllm:kv_cache_usage_perc"},
    {METRIC_KV_USAGE, "vllm:gpu_cache_usage_perc"},
    {METRIC_KV_USAGE, "sglang:token_usage"},
    {METRIC_KV_USAGE, "llamacpp:kv_cache_usage_ratio"},
    {METRIC_PREFIX_QUERIES, "vllm:prefix_cache_queries_total"},
    {METRIC_PREFIX_QUERIES, "vllm:gpu_prefix_cache_queries_total"},
    {METRIC_PREFIX_HITS, "vllm:prefix_cache_hits_total"},
    {METRIC_PREFIX_HITS, "vllm:gpu_prefix_cache_hits_total"},
    {METRIC_PREEMPTIONS, "vllm:num_preemptions_total"},
    {METRIC_QUEUE_SUM, "vllm:request_queue_time_seconds_sum"},
    {METRIC_QUEUE_COUNT, "vllm:request_queue_time_seconds_count"},
    {METRIC_CPU_SECONDS, "process_cpu_seconds_total"},
    {METRIC_MEMORY_BYTES, "process_resident_memory_bytes"},
    {METRIC_ENERGY_JOULES, "quire_package_energy_joules_total"},
};

/* The value of a sample line: behind its labels, which may hold escaped quotes and braces. */
static bool sample_value(const char *line, const char *end, double *out) {
    const char *p = line;
    if (p < end && *p == '{') {
        bool quoted = false;
        for (p++; p < end && (quoted || *p != '}'); p++) {
            if (*p == '\\' && p + 1 < end)
                p++;
            else if (*p == '"')
                quoted = !quoted;
        }
        if (p == end) return false;
        p++;
    }
    if (p == end || *p != ' ') return false;
    char *stop;
    *out = strtod(p, &stop);
    return stop > p && stop <= end && isfinite(*out);
}

static void take_line(const char *line, const char *end, struct scrape *out, unsigned counts[METRICS]) {
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        size_t n = strlen(names[i].name);
        double v;
        if ((size_t)(end - line) <= n || memcmp(line, names[i].name, n) != 0) continue;
        if ((line[n] != ' ' && line[n] != '{') || !sample_value(line + n, end, &v)) continue;
        enum metric m = names[i].metric;
        out->has[m] = true;
        out->value[m] += v;
        counts[m]++;
        return;
    }
}

void scrape_read(const char *text, struct scrape *out) {
    unsigned counts[METRICS] = {0};
    *out = (struct scrape){0};
    for (const char *p = text; *p;) {
        const char *end = strchr(p, '\n');
        if (!end) end = p + strlen(p);
        if (*p != '#') take_line(p, end, out, counts);
        p = *end ? end + 1 : end;
    }
    if (counts[METRIC_KV_USAGE]) out->value[METRIC_KV_USAGE] /= counts[METRIC_KV_USAGE];
}
