/* The engine's figures, read by /metrics, reports and tests at any time (relaxed atomics; each is exact). Counters
 * only rise. Durations are seconds in histograms. */
#ifndef QUIRE_STATS_H
#define QUIRE_STATS_H

#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>

#define QUIRE_HIST_MAX_BUCKETS 32

struct quire_hist {
    const double *bounds; /* ascending upper bounds, static */
    size_t n_bounds;
    _Atomic uint64_t counts[QUIRE_HIST_MAX_BUCKETS + 1]; /* not cumulative; last = above all bounds */
    _Atomic uint64_t n;
    _Atomic double sum;
};

struct quire_stats {
    /* gauges */
    _Atomic uint64_t running, waiting;
    _Atomic uint64_t blocks_total, blocks_used, blocks_cached, blocks_resident; /* used: referenced; cached: free
                                                                                    but still keyed; resident:
                                                                                    faulted in */
    _Atomic uint64_t kv_slots_allocated, kv_slots_used; /* tokens; their difference is the waste */
    /* counters */
    _Atomic uint64_t finished[5]; /* by enum quire_finish */
    _Atomic uint64_t prompt_tokens, cached_tokens, generation_tokens, recomputed_tokens;
    _Atomic uint64_t prefix_queries, prefix_hits; /* tokens asked for, tokens found */
    _Atomic uint64_t preemptions, block_allocations, block_reuses, block_evictions, block_copies;
    _Atomic uint64_t steps, nonfinite_requests, queue_rejections;
    /* histograms */
    struct quire_hist ttft, itl, tpot, e2e, queue, inference, prefill, decode;
    struct quire_hist prompt_len, generation_len, max_tokens, preemptions_per_request, iteration_tokens;
    struct quire_hist step_prepare, step_forward, step_sample; /* seconds of one step, by phase */
};

#endif
