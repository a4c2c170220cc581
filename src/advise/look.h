/* A server's /metrics at two times, as figures. Pure. */
#ifndef ADVISE_LOOK_H
#define ADVISE_LOOK_H

#include "advise/figures.h"

#include <quire/error.h>

#define LOOK_MAX_BUCKETS 48

enum look_value {
    /* counters */
    L_FINISHED,
    L_BY_LENGTH,
    L_PROMPT_TOKENS,
    L_CACHED_TOKENS,
    L_OUTPUT_TOKENS,
    L_PREFIX_QUERIES,
    L_PREFIX_HITS,
    L_PREEMPTIONS,
    L_EVICTIONS,
    L_RECOMPUTED,
    L_REFUSED,
    L_LEFT,
    L_INVALID,
    L_FAILED,
    L_CONNECTIONS_REFUSED,
    L_SLOW_READERS,
    L_HELD_SEQS,
    L_HELD_KV,
    L_HELD_TOKENS,
    L_HELD_TIME,
    L_CPU_S,
    L_CPU_WAIT_S,
    L_THROTTLED_S,
    L_MACHINE_BUSY_S,
    L_STEAL_S,
    /* of steps: two of each, decode and prefill */
    L_DECODE_STEPS,
    L_DECODE_TOKENS,
    L_DECODE_SQUARES,
    L_DECODE_S,
    L_DECODE_TOKEN_S,
    L_PREFILL_STEPS,
    L_PREFILL_TOKENS,
    L_PREFILL_SQUARES,
    L_PREFILL_S,
    L_PREFILL_TOKEN_S,
    L_COMPARED_PROMPTS,
    L_COMPARED_TOKENS,
    L_PREFIX_TOKENS,
    L_FIELD_PROMPTS,
    L_CUT_PROMPTS,
    L_ORDER_PROMPTS,
    L_FIELD_TOKENS,
    L_CUT_TOKENS,
    L_ORDER_TOKENS,
    L_FIELD_AT,
    L_CUT_AT,
    L_ORDER_AT,
    L_COUNTERS, /* how many of them there are */
    /* gauges */
    L_RUNNING = L_COUNTERS,
    L_WAITING,
    L_KV_USAGE,
    L_BEHIND,
    L_START_UNIX_S,
    L_CORES,
    L_THREADS,
    L_PARAMETERS,
    L_WEIGHT_BYTES,
    L_KV_BYTES,
    L_PLAN_BYTES,
    L_MACHINE_BYTES,
    L_KV_TOKEN_BYTES,
    L_CACHE_BLOCKS, /* of vllm:cache_config_info */
    L_CACHE_BLOCK_SIZE,
    L_MAX_NUM_SEQS,
    L_MAX_BATCHED_TOKENS,
    L_MAX_MODEL_LEN,
    L_MAX_QUEUE,
    L_PREFIX_CACHING,
    L_CHUNKED_PREFILL,
    L_PATH, /* from labels of quire_build_info */
    L_PATH_BEST,
    LOOKS
};

enum look_hist {
    H_TTFT,
    H_TPOT,
    H_E2E,
    H_ITL,
    H_QUEUE,
    H_PREFILL,
    H_DECODE,
    H_PROMPT,
    H_OUTPUT,
    H_MAX_TOKENS,
    LOOK_HISTS
};

struct look_histogram {
    size_t n;                                                /* buckets */
    double bound[LOOK_MAX_BUCKETS], count[LOOK_MAX_BUCKETS]; /* cumulative; the last bound may be infinite */
    double sum, total;
    bool has;
};

struct look {
    bool has[LOOKS];
    double v[LOOKS]; /* of several engines the sum; of shares the mean */
    struct look_histogram hist[LOOK_HISTS];
    char version[48];
    bool is_quire;
    size_t n_samples; /* that the page has; 0: no page of metrics */
};

/* text: NUL-terminated. */
void look_read(const char *text, struct look *out);

struct look_gauge { /* over the looks of a window */
    size_t n;
    double sum, max;
};
struct look_gauges {
    struct look_gauge running, waiting, kv, behind;
};
void look_gauges_add(struct look_gauges *g, const struct look *l);

/* What happened between two looks, `seconds` apart. Since the start of the server: first NULL. Returns
 * QUIRE_ECANCELED when the server was started anew in between. */
int look_figures(const struct look *first, const struct look *last, const struct look_gauges *gauges,
                 double seconds, struct figures *out, struct error *err);

/* The quantile of growth between two histograms as Prometheus' histogram_quantile has it: linear within a
 * bucket. False: nothing was added, or it lies in the last, endless bucket (then *out is its lower bound). */
bool look_quantile(const struct look_histogram *h, double q, double *out);

#endif
