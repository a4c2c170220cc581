#include "load/scrape.h"

#include "load/prometheus.h"

#include <stddef.h>

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

static void take(const struct prometheus_sample *s, struct scrape *out, unsigned counts[METRICS]) {
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        if (!prometheus_is(s, names[i].name)) continue;
        enum metric m = names[i].metric;
        out->has[m] = true;
        out->value[m] += s->value;
        counts[m]++;
        return;
    }
}

void scrape_read(const char *text, struct scrape *out) {
    unsigned counts[METRICS] = {0};
    struct prometheus_sample s;
    *out = (struct scrape){0};
    while (prometheus_next(&text, &s)) take(&s, out, counts);
    if (counts[METRIC_KV_USAGE]) out->value[METRIC_KV_USAGE] /= counts[METRIC_KV_USAGE];
}
