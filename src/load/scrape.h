/* The server's own metrics: Prometheus text under the names of vLLM (and Quire), SGLang or llama.cpp. */
#ifndef LOAD_SCRAPE_H
#define LOAD_SCRAPE_H

#include <stdbool.h>
#include <stddef.h>

enum metric {
    METRIC_RUNNING,
    METRIC_WAITING,
    METRIC_KV_USAGE, /* 0 to 1 */
    METRIC_PREFIX_QUERIES,
    METRIC_PREFIX_HITS,
    METRIC_PREEMPTIONS,
    METRIC_QUEUE_SUM,
    METRIC_QUEUE_COUNT,
    METRIC_CPU_SECONDS,
    METRIC_MEMORY_BYTES,
    METRIC_ENERGY_JOULES,
    METRICS
};

struct scrape {
    bool has[METRICS];
    double value[METRICS]; /* of several engines the sum, of ratios the mean */
};

/* Lines that are not understood are no figures of ours. text is NUL-terminated. */
void scrape_read(const char *text, struct scrape *out);

#endif
