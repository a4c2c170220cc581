/* Prometheus text (exposition format 0.0.4). Names and meanings under `vllm:` are vLLM's, so that its
 * dashboards and scalers work unchanged; `quire_` holds what vLLM lacks. No label ever carries a key, a user
 * or prompt text. */
#include "serve/metrics.h"

#include <inttypes.h>
#include <quire/stats.h>
#include <string.h>

void metrics_header(struct metrics *w, const char *name, const char *type, const char *help) {
    buf_printf(w->out, "# HELP %s %s\n# TYPE %s %s\n", name, help, name, type);
}

/* A label value: backslash, quote and newline are escaped. */
static void label_value(struct buf *out, const char *s) {
    for (; *s; s++) {
        if (*s == '\\' || *s == '"') buf_putc(out, '\\');
        if (*s == '\n')
            buf_puts(out, "\\n");
        else
            buf_putc(out, *s);
    }
}

static void number(struct buf *out, double v) {
    struct json_out j;
    json_out_init(&j, out);
    json_out_f64(&j, v);
}

void metrics_sample(struct metrics *w, const char *name, const char *extra, double v) {
    buf_printf(w->out, "%s{%s%s%s} ", name, w->labels.data, extra ? "," : "", extra ? extra : "");
    number(w->out, v);
    buf_putc(w->out, '\n');
}

void metrics_single(struct metrics *w, const char *name, const char *type, const char *help, double v) {
    metrics_header(w, name, type, help);
    metrics_sample(w, name, NULL, v);
}

static void histogram(struct metrics *w, const char *name, const char *help, const struct quire_hist *h) {
    uint64_t below = 0;
    metrics_header(w, name, "histogram", help);
    for (size_t i = 0; i < h->n_bounds; i++) {
        below += atomic_load_explicit(&h->counts[i], memory_order_relaxed);
        buf_printf(w->out, "%s_bucket{%s,le=\"", name, w->labels.data);
        number(w->out, h->bounds[i]);
        buf_printf(w->out, "\"} %" PRIu64 "\n", below);
    }
    /* Buckets are read one by one while steps go on: the total is their sum, so that the text is consistent
     * in itself. */
    below += atomic_load_explicit(&h->counts[h->n_bounds], memory_order_relaxed);
    buf_printf(w->out, "%s_bucket{%s,le=\"+Inf\"} %" PRIu64 "\n", name, w->labels.data, below);
    buf_printf(w->out, "%s_sum{%s} ", name, w->labels.data);
    number(w->out, atomic_load_explicit(&h->sum, memory_order_relaxed));
    buf_printf(w->out, "\n%s_count{%s} %" PRIu64 "\n", name, w->labels.data, below);
}

static double load(const _Atomic uint64_t *v) {
    return (double)atomic_load_explicit(v, memory_order_relaxed);
}

static double ratio(double a, double b) {
    return b > 0 ? a / b : 0;
}

/* ---- vLLM's ---- */

static void vllm_gauges(struct metrics *w, const struct quire_stats *st) {
    char extra[64];
    metrics_single(w, "vllm:num_requests_running", "gauge", "Requests in a batch.", load(&st->running));
    metrics_single(w, "vllm:num_requests_waiting", "gauge", "Requests queued.", load(&st->waiting));
    metrics_single(w, "vllm:kv_cache_usage_perc", "gauge", "Share of KV blocks in use, 0 to 1.",
                   ratio(load(&st->blocks_used), load(&st->blocks_total)));
    metrics_header(w, "vllm:cache_config_info", "gauge", "KV configuration.");
    snprintf(extra, sizeof extra, "block_size=\"%zu\",num_gpu_blocks=\"%zu\"", w->s->info->block_tokens,
             w->s->info->n_blocks);
    metrics_sample(w, "vllm:cache_config_info", extra, 1);
}

static void vllm_counters(struct metrics *w, const struct quire_stats *st) {
    static const char *const reasons[] = {NULL, "stop", "length", "abort", "error"};
    metrics_single(w, "vllm:prompt_tokens_total", "counter", "Prompt tokens of accepted requests, each once.",
                   load(&st->prompt_tokens));
    metrics_single(w, "vllm:prompt_tokens_cached_total", "counter",
                   "Prompt tokens found in the prefix cache.", load(&st->cached_tokens));
    metrics_single(w, "vllm:generation_tokens_total", "counter", "Generated tokens.",
                   load(&st->generation_tokens));
    metrics_single(w, "vllm:prefix_cache_queries_total", "counter", "Tokens looked up in the prefix cache.",
                   load(&st->prefix_queries));
    metrics_single(w, "vllm:prefix_cache_hits_total", "counter", "Tokens found in the prefix cache.",
                   load(&st->prefix_hits));
    metrics_single(w, "vllm:num_preemptions_total", "counter", "Preemptions.", load(&st->preemptions));
    metrics_header(w, "vllm:request_success_total", "counter", "Finished requests by reason.");
    for (size_t i = 1; i < 5; i++) {
        char extra[64];
        snprintf(extra, sizeof extra, "finished_reason=\"%s\"", reasons[i]);
        metrics_sample(w, "vllm:request_success_total", extra, load(&st->finished[i]));
    }
    metrics_header(w, "vllm:admission_rejections_total", "counter",
                   "Requests refused because the queue was full.");
    metrics_sample(w, "vllm:admission_rejections_total", "reason=\"queue_full\"",
                   load(&st->queue_rejections));
    metrics_single(w, "vllm:corrupted_requests_total", "counter",
                   "Requests failed because logits were not finite.", load(&st->nonfinite_requests));
}

static void vllm_histograms(struct metrics *w, const struct quire_stats *st) {
    histogram(w, "vllm:time_to_first_token_seconds", "From submission to the first token.", &st->ttft);
    histogram(w, "vllm:inter_token_latency_seconds", "Between two tokens of a request.", &st->itl);
    histogram(w, "vllm:e2e_request_latency_seconds", "From submission to the last token.", &st->e2e);
    histogram(w, "vllm:request_queue_time_seconds", "Waiting before the first step.", &st->queue);
    histogram(w, "vllm:request_inference_time_seconds", "From the first step to the last token.",
              &st->inference);
    histogram(w, "vllm:request_prefill_time_seconds", "From the first step to the first token.",
              &st->prefill);
    histogram(w, "vllm:request_decode_time_seconds", "From the first token to the last.", &st->decode);
    histogram(w, "vllm:request_time_per_output_token_seconds", "Mean time per output token of a request.",
              &st->tpot);
    histogram(w, "vllm:request_prompt_tokens", "Prompt tokens of a request.", &st->prompt_len);
    histogram(w, "vllm:request_generation_tokens", "Generated tokens of a request.", &st->generation_len);
    histogram(w, "vllm:request_params_max_tokens", "max_tokens of a request.", &st->max_tokens);
    histogram(w, "vllm:request_num_preemptions", "Preemptions of a request.", &st->preemptions_per_request);
    histogram(w, "vllm:iteration_tokens_total", "Tokens computed in a step.", &st->iteration_tokens);
}

/* ---- ours ---- */

static void quire_blocks(struct metrics *w, const struct quire_stats *st) {
    metrics_single(w, "quire_kv_blocks", "gauge", "KV blocks in the pool.", load(&st->blocks_total));
    metrics_single(w, "quire_kv_blocks_used", "gauge", "KV blocks referenced by sequences.",
                   load(&st->blocks_used));
    metrics_single(w, "quire_kv_blocks_cached", "gauge", "Free KV blocks that still hold a known prefix.",
                   load(&st->blocks_cached));
    metrics_single(w, "quire_kv_blocks_resident", "gauge", "KV blocks whose memory has been faulted in.",
                   load(&st->blocks_resident));
    metrics_single(w, "quire_kv_block_allocations_total", "counter", "KV blocks handed out.",
                   load(&st->block_allocations));
    metrics_single(w, "quire_kv_block_reuses_total", "counter", "KV blocks taken from the prefix cache.",
                   load(&st->block_reuses));
    metrics_single(w, "quire_kv_block_evictions_total", "counter",
                   "Cached KV blocks given to another sequence.", load(&st->block_evictions));
    metrics_single(w, "quire_kv_block_copies_total", "counter", "Partly matching KV blocks copied.",
                   load(&st->block_copies));
    metrics_single(
        w, "quire_kv_waste_ratio", "gauge", "Allocated but unused KV slots, 0 to 1.",
        ratio(load(&st->kv_slots_allocated) - load(&st->kv_slots_used), load(&st->kv_slots_allocated)));
    metrics_single(w, "quire_recomputed_tokens_total", "counter", "Tokens computed again after a preemption.",
                   load(&st->recomputed_tokens));
}

/* Sums over the steps of a phase: `prefill` computes tokens of prompts (and of answers beside them), `decode`
 * of answers only. */
static const struct sum {
    const char *name, *help;
    size_t at; /* in struct quire_step_sums */
    double unit;
} sums[] = {
    {"quire_phase_steps_total", "Steps of a phase.", offsetof(struct quire_step_sums, steps), 1},
    {"quire_phase_tokens_total", "Tokens computed in steps of a phase.",
     offsetof(struct quire_step_sums, rows), 1},
    {"quire_phase_tokens_squared_total", "Squares of the tokens of each step.",
     offsetof(struct quire_step_sums, rows_squared), 1},
    {"quire_phase_seconds_total", "Time of steps of a phase.", offsetof(struct quire_step_sums, us), 1e-6},
    {"quire_phase_token_seconds_total", "Tokens of each step times its seconds.",
     offsetof(struct quire_step_sums, row_us), 1e-6},
};

static void step_sums(struct metrics *w, const struct sum *sum, const char *phase,
                      const struct quire_step_sums *of) {
    char extra[32];
    snprintf(extra, sizeof extra, "phase=\"%s\"", phase);
    metrics_sample(w, sum->name, extra,
                   load((const _Atomic uint64_t *)((const char *)of + sum->at)) * sum->unit);
}

static void held_steps(struct metrics *w, const struct quire_stats *st) {
    static const char *const lacks[QUIRE_LACKS] = {"max_num_seqs", "kv", "max_num_batched_tokens",
                                                   "step_time"};
    metrics_header(w, "quire_held_steps_total", "counter",
                   "Steps that left a request waiting, by what the first one lacked.");
    for (size_t i = 0; i < QUIRE_LACKS; i++) {
        char extra[48];
        snprintf(extra, sizeof extra, "lack=\"%s\"", lacks[i]);
        metrics_sample(w, "quire_held_steps_total", extra, load(&st->held_steps[i]));
    }
}

static void quire_steps(struct metrics *w, const struct quire_stats *st) {
    metrics_single(w, "quire_num_requests_behind", "gauge",
                   "Sequences not scheduled because their reader is slow.", load(&st->behind));
    metrics_single(w, "quire_steps_total", "counter", "Engine steps.", load(&st->steps));
    held_steps(w, st);
    for (size_t i = 0; i < sizeof sums / sizeof *sums; i++) {
        metrics_header(w, sums[i].name, "counter", sums[i].help);
        step_sums(w, &sums[i], "decode", &st->decode_steps);
        step_sums(w, &sums[i], "prefill", &st->prompt_steps);
    }
    histogram(w, "quire_step_prepare_seconds", "Scheduling and batch building of a step.", &st->step_prepare);
    histogram(w, "quire_step_forward_seconds", "Forward pass of a step.", &st->step_forward);
    histogram(w, "quire_step_sample_seconds", "Sampling and publishing of a step.", &st->step_sample);
}

static void quire_requests(struct metrics *w) {
    static const char *const names[OUTCOMES] = {"ok",         "invalid",     "unauthorized",
                                                "overloaded", "client_gone", "failed"};
    metrics_header(w, "quire_requests_total", "counter", "HTTP requests that name work, by outcome.");
    for (size_t i = 0; i < OUTCOMES; i++) {
        char extra[64];
        snprintf(extra, sizeof extra, "outcome=\"%s\"", names[i]);
        metrics_sample(w, "quire_requests_total", extra, load(&w->s->outcomes[i]));
    }
    struct server_stats n;
    server_stats(w->s->server, &n);
    metrics_single(w, "quire_connections", "gauge", "Open connections.", (double)n.connections_now);
    metrics_single(w, "quire_connections_total", "counter", "Connections accepted.",
                   (double)n.connections_accepted);
    metrics_single(w, "quire_connections_refused_total", "counter",
                   "Connections refused: too many, or no descriptor.", (double)n.connections_refused);
    metrics_single(w, "quire_received_bytes_total", "counter", "Bytes received.", (double)n.bytes_in);
    metrics_single(w, "quire_sent_bytes_total", "counter", "Bytes sent.", (double)n.bytes_out);
    metrics_single(w, "quire_slow_readers_total", "counter",
                   "Connections closed because their reader was too slow.", (double)(n.stalls + n.overruns));
    metrics_single(w, "quire_answer_bytes", "gauge", "Memory of unfinished whole answers and prompt scores.",
                   (double)atomic_load_explicit(&w->s->held_bytes, memory_order_relaxed));
}

static void quire_prompts(struct metrics *w) {
    static const char *const causes[PROMPT_CAUSES] = {"field", "cut", "order"};
    struct prompt_figures f;
    prompt_stats_read(w->s->prompt_stats, &f);
    metrics_single(w, "quire_prompt_statistics_prompts_total", "counter",
                   "Prompts compared by --prompt-statistics.", (double)f.prompts);
    metrics_single(w, "quire_prompt_statistics_tokens_total", "counter", "Tokens of these prompts.",
                   (double)f.tokens);
    metrics_single(w, "quire_prompt_statistics_prefix_tokens_total", "counter",
                   "Of these, in a prefix that an earlier prompt has.", (double)f.prefix_tokens);
    static const char *const names[3] = {"quire_prompt_statistics_displaced_prompts_total",
                                         "quire_prompt_statistics_displaced_tokens_total",
                                         "quire_prompt_statistics_difference_tokens_total"};
    static const char *const helps[3] = {
        "Prompts with text of an earlier one behind text that differs.",
        "Tokens of earlier prompts that come again behind text that differs.",
        "Tokens in front of the first difference, summed over displaced prompts."};
    for (size_t k = 0; k < 3; k++) {
        const uint64_t *of = k == 0 ? f.displaced_prompts : k == 1 ? f.displaced_tokens : f.difference_tokens;
        metrics_header(w, names[k], "counter", helps[k]);
        for (size_t i = 0; i < PROMPT_CAUSES; i++) {
            char extra[32];
            snprintf(extra, sizeof extra, "cause=\"%s\"", causes[i]);
            metrics_sample(w, names[k], extra, (double)of[i]);
        }
    }
}

static void build_info(struct metrics *w) {
    struct buf extra = BUF_INIT;
    buf_puts(&extra, "version=\"");
    label_value(&extra, w->s->config.version);
    buf_printf(&extra, "\",numerics_id=\"%s\",cpu_path=\"%s\",cpu_best=\"%s\",dtype=\"%s\"",
               w->s->info->numerics_id, w->s->info->cpu_path,
               w->s->config.cpu_best ? w->s->config.cpu_best : w->s->info->cpu_path, w->s->info->dtype_name);
    metrics_header(w, "quire_build_info", "gauge", "What is running.");
    metrics_sample(w, "quire_build_info", buf_ok(&extra) ? extra.data : NULL, 1);
    buf_free(&extra);
}

void metrics_write(struct serve *s, struct buf *out) {
    struct metrics w = {.s = s, .out = out};
    const struct quire_stats *st = quire_stats(s->engine);
    buf_puts(&w.labels, "model_name=\"");
    label_value(&w.labels, s->config.model_names[0]);
    buf_puts(&w.labels, "\",engine=\"0\"");
    if (buf_ok(&w.labels)) {
        vllm_gauges(&w, st);
        vllm_counters(&w, st);
        vllm_histograms(&w, st);
        quire_blocks(&w, st);
        quire_steps(&w, st);
        quire_requests(&w);
        quire_prompts(&w);
        metrics_config(&w);
        metrics_process(&w);
        build_info(&w);
    } else {
        out->failed = true;
    }
    buf_free(&w.labels);
}
