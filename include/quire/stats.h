/* The engine's figures, read by /metrics, reports and tests at any time (relaxed atomics; each is exact).
 * Counters only rise. Durations are seconds in histograms. */
#ifndef QUIRE_STATS_H
#define QUIRE_STATS_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
#include <atomic>
#define QUIRE_ATOMIC(type) std::atomic<type>
#else
#include <stdatomic.h>
#define QUIRE_ATOMIC(type) _Atomic(type)
#endif

#define QUIRE_HIST_MAX_BUCKETS 32

struct quire_hist {
    const double *bounds; /* ascending upper bounds, static */
    size_t n_bounds;
    QUIRE_ATOMIC(uint64_t) counts[QUIRE_HIST_MAX_BUCKETS + 1]; /* not cumulative; last = above all bounds */
    QUIRE_ATOMIC(uint64_t) n;
    QUIRE_ATOMIC(double) sum;
};

/* Sums over steps of one kind: from them follow the mean step and, by least squares over rows, what of it
 * does not depend on how many tokens it computes. */
struct quire_step_sums {
    QUIRE_ATOMIC(uint64_t) steps, rows, rows_squared; /* rows: tokens computed */
    QUIRE_ATOMIC(uint64_t) us, row_us;                /* row_us: of rows x us of a step */
};

/* Why a step left requests waiting: --max-num-seqs, KV blocks, --max-num-batched-tokens, a step's length. */
enum quire_lack { QUIRE_LACK_SEQS, QUIRE_LACK_BLOCKS, QUIRE_LACK_TOKENS, QUIRE_LACK_TIME, QUIRE_LACKS };

struct quire_stats {
    /* gauges */
    QUIRE_ATOMIC(uint64_t) running, waiting, behind; /* behind: not scheduled, because the reader is slow */
    /* used: referenced; cached: free but still keyed; resident: faulted in */
    QUIRE_ATOMIC(uint64_t) blocks_total, blocks_used, blocks_cached, blocks_resident;
    QUIRE_ATOMIC(uint64_t) kv_slots_allocated, kv_slots_used; /* tokens; their difference is the waste */
    /* counters */
    QUIRE_ATOMIC(uint64_t) finished[5]; /* by enum quire_finish */
    QUIRE_ATOMIC(uint64_t) prompt_tokens, cached_tokens, generation_tokens, recomputed_tokens;
    QUIRE_ATOMIC(uint64_t) prefix_queries, prefix_hits; /* tokens asked for, tokens found */
    QUIRE_ATOMIC(uint64_t) preemptions, block_allocations, block_reuses, block_evictions, block_copies;
    QUIRE_ATOMIC(uint64_t) steps, nonfinite_requests, queue_rejections;
    QUIRE_ATOMIC(uint64_t) held_steps[QUIRE_LACKS]; /* steps that left a request waiting, by what it lacked */
    struct quire_step_sums decode_steps, prompt_steps; /* steps without rows of prompts, and with */
    /* histograms */
    struct quire_hist ttft, itl, tpot, e2e, queue, inference, prefill, decode;
    struct quire_hist prompt_len, generation_len, max_tokens, preemptions_per_request, iteration_tokens;
    struct quire_hist step_prepare, step_forward, step_sample; /* seconds of one step, by phase */
};

#endif
