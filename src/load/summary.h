/* The figures of runs; docs/metrics.md has the formulas. */
#ifndef LOAD_SUMMARY_H
#define LOAD_SUMMARY_H

#include "load/run.h"
#include "load/samples.h"

struct slo { /* a request is good within all that are set; milliseconds, 0: not set */
    double ttft_ms, tpot_ms, e2e_ms, itl_ms; /* itl: of a request's longest */
    double ttft_q, tpot_q, e2e_q, itl_q;     /* of the requests that have to be within; 0: it is not told */
};
/* "ttft:1000,tpot:50,itl:200,e2e:30000"; also "ttft=1000", and with the share that has to be within
 * "ttft_p95=1000" (p50, p90, p95 or p99). */
int slo_parse(const char *text, struct slo *out, struct error *err);
bool slo_any(const struct slo *s);
/* "2.00/h": of the server, for an hour */
int price_parse(const char *text, double *out, struct error *err);
bool slo_told(const struct slo *s); /* a share is told for one of them */

/* PAUSE: the longest ITL of each request */
enum latency { LATENCY_TTFT, LATENCY_TPOT, LATENCY_ITL, LATENCY_E2E, LATENCY_LAG, LATENCY_PAUSE, LATENCIES };

struct range { /* of a gauge over a run */
    bool known;
    double mean, max;
};

struct total { /* what a counter grew by */
    bool known;
    double value;
};

struct summary {
    size_t n_requests, n_ok, n_failed, n_canceled, n_good; /* requests that ended; n_good: within the SLO */
    uint64_t n_unsent;
    double duration_s, sending_s;
    double input_tokens, output_tokens, cached_tokens, events; /* of requests that went well */
    double useful_tokens; /* of those within the SLO: prompts before they were trimmed, and answers */
    bool cached_known;
    size_t n_input_wrong, n_output_wrong; /* counts that differ from what was asked */
    int64_t input_off;                    /* the largest difference */
    struct summary_stat ms[LATENCIES];    /* of requests that went well */
    double requests_per_s, input_per_s, output_per_s, total_per_s, good_per_s, good_share;
    double offered_per_s; /* of an open loop */
    double client_cpu;    /* share of one core that the generator took */
    double client_wait;   /* share of the time that it waited for one */
    /* the server's own */
    struct range running, waiting, kv_usage, server_cpu_cores, memory_bytes;
    struct total hit_rate, preemptions, queue_ms, server_cpu_s;
    /* the machine's */
    struct range cpu, machine_memory_bytes, gpu, gpu_memory_bytes, gpu_watts, gpu_celsius, gpu_sm_mhz;
    struct total joules;
    const char *joules_from; /* what measured them */
    double joules_per_output, joules_per_token;
    double useful_per_s, useful_per_cpu_s;       /* the latter of the server's processor time; 0: not told */
    double cost_output, cost_total, cost_useful; /* of a million tokens; 0 without a price or tokens */
    bool generator_bound;
    char saturated[240]; /* why it counts as over-saturated; else empty */
};

/* Of one run, or of several of the same kind together. price: for an hour, 0: none. */
void summarize(const struct run *runs, size_t n, const struct slo *slo, double price, bool open_loop,
               struct summary *out);

/* The largest of quantile / limit over the limits that are set, of requests that went well; the quantile is
 * P95 where none is told. At most 1: the SLO is held. INFINITY when nothing went well. */
double slo_excess(const struct slo *slo, const struct summary *s);

/* Each is NaN when a request does not have it (one token has no time between tokens). */
double record_ms(const struct record *k, enum latency which);
bool record_good(const struct record *k, const struct slo *slo);
extern const char *const latency_names[LATENCIES]; /* "ttft", ... */

#endif
