#include "advise/figures.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

const struct figure_info figure_infos[FIGURES] = {
    [F_WINDOW_S] = {"window_s", "window", UNIT_SECONDS},
    [F_REQUESTS] = {"requests", "requests finished", UNIT_COUNT},
    [F_PROMPT_TOKENS] = {"prompt_tokens", "prompt tokens", UNIT_COUNT},
    [F_CACHED_TOKENS] = {"cached_tokens", "of these from the cache", UNIT_COUNT},
    [F_OUTPUT_TOKENS] = {"output_tokens", "output tokens", UNIT_COUNT},
    [F_PROMPT_MEAN] = {"prompt_tokens_mean", "tokens of a prompt", UNIT_COUNT},
    [F_OUTPUT_MEAN] = {"output_tokens_mean", "tokens of an answer", UNIT_COUNT},
    [F_OUTPUT_BEYOND] = {"output_beyond_256", "output beyond 256 tokens of its answer", UNIT_SHARE},
    [F_MAX_TOKENS_MEAN] = {"max_tokens_mean", "max_tokens allowed, mean", UNIT_COUNT},
    [F_LENGTH_SHARE] = {"ended_by_length", "answers ended by length", UNIT_SHARE},
    [F_LONGEST] = {"longest_tokens", "longest request (P99)", UNIT_COUNT},
    [F_TTFT_P95] = {"ttft_ms_p95", "TTFT P95", UNIT_MS},
    [F_TPOT_P95] = {"tpot_ms_p95", "TPOT P95", UNIT_MS},
    [F_E2E_P95] = {"e2e_ms_p95", "E2E P95", UNIT_MS},
    [F_ITL_P99] = {"itl_ms_p99", "ITL P99", UNIT_MS},
    [F_QUEUE_MS] = {"queue_ms_mean", "queue time, mean", UNIT_MS},
    [F_PREFILL_MS] = {"prefill_ms_mean", "prefill time, mean", UNIT_MS},
    [F_DECODE_MS] = {"decode_ms_mean", "decode time, mean", UNIT_MS},
    [F_STEPS] = {"steps", "steps", UNIT_COUNT},
    [F_BUSY] = {"busy", "time in steps", UNIT_SHARE},
    [F_UTILIZATION] = {"utilization", "utilization", UNIT_SHARE},
    [F_PREFILL_SHARE] = {"prefill_share", "prompts' share of the work", UNIT_SHARE},
    [F_DECODE_STEP_TOKENS] = {"decode_step_tokens", "tokens of a decode step", UNIT_COUNT},
    [F_DECODE_STEP_MS] = {"decode_step_ms", "decode step", UNIT_MS},
    [F_PREFILL_STEP_TOKENS] = {"prefill_step_tokens", "tokens of a step with prompts", UNIT_COUNT},
    [F_PREFILL_STEP_MS] = {"prefill_step_ms", "step with prompts", UNIT_MS},
    [F_DECODE_FIXED_MS] = {"decode_fixed_ms", "of a decode step, fixed", UNIT_MS},
    [F_DECODE_TOKEN_MS] = {"decode_token_ms", "of a decode step, each token", UNIT_MS},
    [F_STEP_FIXED_MS] = {"step_fixed_ms", "of any step, fixed", UNIT_MS},
    [F_STEP_TOKEN_MS] = {"step_token_ms", "of any step, each token", UNIT_MS},
    [F_HELD_SEQS] = {"held_by_max_num_seqs", "steps that left requests waiting for a place", UNIT_SHARE},
    [F_HELD_KV] = {"held_by_kv", "steps that left requests waiting for KV blocks", UNIT_SHARE},
    [F_HELD_TOKENS] = {"held_by_max_num_batched_tokens", "steps that left requests waiting for tokens",
                       UNIT_SHARE},
    [F_HELD_TIME] = {"held_by_step_time", "steps that left requests waiting for time", UNIT_SHARE},
    [F_RUNNING] = {"running_mean", "running, mean", UNIT_COUNT},
    [F_RUNNING_MAX] = {"running_max", "running, most", UNIT_COUNT},
    [F_WAITING] = {"waiting_mean", "waiting, mean", UNIT_COUNT},
    [F_WAITING_MAX] = {"waiting_max", "waiting, most", UNIT_COUNT},
    [F_BEHIND] = {"behind_mean", "held by slow readers, mean", UNIT_COUNT},
    [F_KV_USAGE] = {"kv_usage_mean", "KV in use, mean", UNIT_SHARE},
    [F_KV_USAGE_MAX] = {"kv_usage_max", "KV in use, most", UNIT_SHARE},
    [F_KV_TOKENS] = {"kv_tokens", "tokens that KV memory holds", UNIT_COUNT},
    [F_KV_BYTES] = {"kv_bytes", "KV memory", UNIT_BYTES},
    [F_PREEMPTIONS] = {"preemptions", "preemptions", UNIT_COUNT},
    [F_RECOMPUTED_SHARE] = {"recomputed_share", "tokens computed again", UNIT_SHARE},
    [F_HIT_RATE] = {"prefix_hit_rate", "prefix hit rate", UNIT_SHARE},
    [F_EVICTIONS] = {"evictions", "cached blocks evicted", UNIT_COUNT},
    [F_PLAN_BYTES] = {"planned_bytes", "memory planned", UNIT_BYTES},
    [F_MACHINE_BYTES] = {"machine_bytes", "memory of the machine", UNIT_BYTES},
    [F_REFUSED] = {"refused", "requests refused because the queue was full", UNIT_COUNT},
    [F_REFUSED_SHARE] = {"refused_share", "requests refused", UNIT_SHARE},
    [F_LEFT] = {"clients_gone", "requests that their clients gave up", UNIT_COUNT},
    [F_LEFT_SHARE] = {"clients_gone_share", "requests given up", UNIT_SHARE},
    [F_INVALID] = {"invalid", "requests answered 4xx", UNIT_COUNT},
    [F_INVALID_SHARE] = {"invalid_share", "requests answered 4xx", UNIT_SHARE},
    [F_FAILED] = {"failed", "requests that failed", UNIT_COUNT},
    [F_FAILED_SHARE] = {"failed_share", "requests that failed", UNIT_SHARE},
    [F_CONNECTIONS_REFUSED] = {"connections_refused", "connections refused", UNIT_COUNT},
    [F_SLOW_READERS] = {"slow_readers", "connections closed for slow readers", UNIT_COUNT},
    [F_CORES] = {"cores", "cores allowed", UNIT_COUNT},
    [F_THREADS] = {"threads", "threads", UNIT_COUNT},
    [F_CPU_USED] = {"cpu_used", "cores used", UNIT_CORES},
    [F_CPU_WAIT] = {"cpu_wait", "threads waiting for a core", UNIT_CORES},
    [F_CPU_OTHERS] = {"cpu_others", "cores used by others", UNIT_CORES},
    [F_CPU_STEAL] = {"cpu_steal", "cores stolen by the host", UNIT_CORES},
    [F_THROTTLED_SHARE] = {"throttled_share", "time throttled by the control group", UNIT_SHARE},
    [F_PATH] = {"cpu_path", "kernel path", UNIT_PATH},
    [F_PATH_BEST] = {"cpu_best", "best path of this processor", UNIT_PATH},
    [F_GPU_UTILIZATION] = {"gpu_utilization", "GPU utilization", UNIT_SHARE},
    [F_WEIGHT_BYTES] = {"weight_bytes", "weights", UNIT_BYTES},
    [F_WEIGHT_BITS] = {"weight_bits", "bits of a weight", UNIT_COUNT},
    [F_MAX_NUM_SEQS] = {"max_num_seqs", "--max-num-seqs", UNIT_COUNT},
    [F_MAX_BATCHED_TOKENS] = {"max_num_batched_tokens", "--max-num-batched-tokens", UNIT_COUNT},
    [F_MAX_MODEL_LEN] = {"max_model_len", "--max-model-len", UNIT_COUNT},
    [F_MAX_QUEUE] = {"max_queue", "--max-queue", UNIT_COUNT},
    [F_PREFIX_CACHING] = {"enable_prefix_caching", "--enable-prefix-caching", UNIT_FLAG},
    [F_CHUNKED_PREFILL] = {"enable_chunked_prefill", "--enable-chunked-prefill", UNIT_FLAG},
    [F_COMPARED_PROMPTS] = {"compared_prompts", "prompts compared", UNIT_COUNT},
    [F_COMPARED_TOKENS] = {"compared_tokens", "prompt tokens compared", UNIT_COUNT},
    [F_PREFIX_SHARE] = {"prefix_share", "prompt tokens in a prefix seen before", UNIT_SHARE},
    [F_FIELD_TOKENS] = {"field_tokens", "tokens seen before, behind a changing field", UNIT_COUNT},
    [F_CUT_TOKENS] = {"cut_tokens", "tokens seen before, moved forward", UNIT_COUNT},
    [F_ORDER_TOKENS] = {"order_tokens", "tokens seen before, in another order", UNIT_COUNT},
    [F_FIELD_AT] = {"field_at_tokens", "tokens in front of the field", UNIT_COUNT},
    [F_CUT_AT] = {"cut_at_tokens", "tokens in front of the cut", UNIT_COUNT},
    [F_ORDER_AT] = {"order_at_tokens", "tokens in front of what changes its order", UNIT_COUNT},
};

void figures_set(struct figures *f, enum figure which, double v) {
    f->has[which] = v >= 0 && v <= FIGURE_MOST;
    f->v[which] = f->has[which] ? v : 0;
}

double figures_or(const struct figures *f, enum figure which, double otherwise) {
    return f->has[which] ? f->v[which] : otherwise;
}

static const char *const paths[] = {"ref", "avx2", "avx512", "amx"};
#define N_PATHS ((int)(sizeof paths / sizeof *paths))

int figures_path_rank(const char *name) {
    for (int i = 0; i < N_PATHS; i++)
        if (!strcmp(name, paths[i])) return i;
    return -1;
}

const char *figures_path_name(int rank) {
    return rank >= 0 && rank < N_PATHS ? paths[rank] : "unknown";
}

static void count_text(double v, char *out, size_t size) {
    snprintf(out, size, v != floor(v) && v < 100 ? "%.1f" : "%.0f", v);
}

void figure_text(enum figure which, double v, char *out, size_t size) {
    switch (figure_infos[which].unit) {
    case UNIT_COUNT: count_text(v, out, size); break;
    case UNIT_SHARE: snprintf(out, size, v > 0 && v < 0.1 ? "%.1f %%" : "%.0f %%", 100 * v); break;
    case UNIT_MS: snprintf(out, size, v < 100 ? "%.2f ms" : "%.0f ms", v); break;
    case UNIT_SECONDS: snprintf(out, size, "%.1f s", v); break;
    case UNIT_BYTES:
        snprintf(out, size, v < 1 << 30 ? "%.1f MiB" : "%.2f GiB",
                 v < 1 << 30 ? v / (1 << 20) : v / (1 << 30));
        break;
    case UNIT_CORES: snprintf(out, size, "%.2f", v); break;
    case UNIT_PATH: snprintf(out, size, "%s", figures_path_name((int)v)); break;
    case UNIT_FLAG: snprintf(out, size, "%s", v > 0 ? "on" : "off"); break;
    }
}
