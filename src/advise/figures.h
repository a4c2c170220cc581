/* What is known of a server over a time: the figures that verdicts rest on. Every figure is either known or
 * not; docs/advise.md says what each is and where it comes from. */
#ifndef ADVISE_FIGURES_H
#define ADVISE_FIGURES_H

#include <stdbool.h>
#include <stddef.h>

enum figure {
    /* the traffic of the window */
    F_WINDOW_S,
    F_REQUESTS,
    F_PROMPT_TOKENS,
    F_CACHED_TOKENS,
    F_OUTPUT_TOKENS,
    F_PROMPT_MEAN,
    F_OUTPUT_MEAN,
    F_OUTPUT_BEYOND,
    F_MAX_TOKENS_MEAN,
    F_LENGTH_SHARE,
    F_LONGEST,
    /* latencies, milliseconds */
    F_TTFT_P95,
    F_TPOT_P95,
    F_E2E_P95,
    F_ITL_P99,
    F_QUEUE_MS,
    F_PREFILL_MS,
    F_DECODE_MS,
    /* steps */
    F_STEPS,
    F_BUSY,
    F_UTILIZATION,
    F_PREFILL_SHARE,
    F_DECODE_STEP_TOKENS,
    F_DECODE_STEP_MS,
    F_PREFILL_STEP_TOKENS,
    F_PREFILL_STEP_MS,
    F_DECODE_FIXED_MS,
    F_DECODE_TOKEN_MS,
    F_STEP_FIXED_MS,
    F_STEP_TOKEN_MS,
    F_HELD_SEQS,
    F_HELD_KV,
    F_HELD_TOKENS,
    F_HELD_TIME,
    /* sequences and memory */
    F_RUNNING,
    F_RUNNING_MAX,
    F_WAITING,
    F_WAITING_MAX,
    F_BEHIND,
    F_KV_USAGE,
    F_KV_USAGE_MAX,
    F_KV_TOKENS,
    F_KV_BYTES,
    F_PREEMPTIONS,
    F_RECOMPUTED_SHARE,
    F_HIT_RATE,
    F_EVICTIONS,
    F_PLAN_BYTES,
    F_MACHINE_BYTES,
    /* refusals */
    F_REFUSED,
    F_REFUSED_SHARE,
    F_LEFT, /* whose clients had gone */
    F_LEFT_SHARE,
    F_INVALID, /* 4xx; share: of all */
    F_INVALID_SHARE,
    F_FAILED, /* 5xx but for a full queue */
    F_FAILED_SHARE,
    F_CONNECTIONS_REFUSED,
    F_SLOW_READERS,
    /* processors */
    F_CORES,
    F_THREADS,
    F_CPU_USED,
    F_CPU_WAIT,
    F_CPU_OTHERS,
    F_CPU_STEAL,
    F_THROTTLED_SHARE,
    F_PATH,
    F_PATH_BEST,
    F_GPU_UTILIZATION,
    /* the model */
    F_WEIGHT_BYTES,
    F_WEIGHT_BITS,
    /* flags in effect */
    F_MAX_NUM_SEQS,
    F_MAX_BATCHED_TOKENS,
    F_MAX_MODEL_LEN,
    F_MAX_QUEUE,
    F_PREFIX_CACHING,
    F_CHUNKED_PREFILL,
    /* --prompt-statistics */
    F_COMPARED_PROMPTS,
    F_COMPARED_TOKENS,
    F_PREFIX_SHARE,
    F_FIELD_TOKENS,
    F_CUT_TOKENS,
    F_ORDER_TOKENS,
    F_FIELD_AT,
    F_CUT_AT,
    F_ORDER_AT,
    FIGURES
};

enum figure_unit {
    UNIT_COUNT,
    UNIT_SHARE,
    UNIT_MS,
    UNIT_SECONDS,
    UNIT_BYTES,
    UNIT_CORES,
    UNIT_PATH,
    UNIT_FLAG
};

struct figure_info {
    const char *key;  /* in JSON */
    const char *name; /* in sentences */
    enum figure_unit unit;
};
extern const struct figure_info figure_infos[FIGURES];

#define FIGURES_NAME_BYTES 160

struct figures {
    bool has[FIGURES];
    double v[FIGURES];               /* 0 to FIGURE_MOST where known */
    char server[FIGURES_NAME_BYTES]; /* where they come from */
    char software[64];               /* "quire 0.1.0"; empty: not told */
    bool is_quire;
};

/* Takes what is not negative and at most FIGURE_MOST, and leaves the rest unknown. */
#define FIGURE_MOST 1e18
void figures_set(struct figures *f, enum figure which, double v);
/* The value, or `otherwise` where it is not known. */
double figures_or(const struct figures *f, enum figure which, double otherwise);

/* Names of instruction sets in the order of their speed; -1: not one of them. */
int figures_path_rank(const char *name);
const char *figures_path_name(int rank);

/* "12.3 ms", "45 %", "avx2"; for people. */
void figure_text(enum figure which, double v, char *out, size_t size);

#endif
