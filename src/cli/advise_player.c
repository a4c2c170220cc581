#include "cli/advise_player.h"

#include "base/error.h"
#include "base/size.h"
#include "cli/bench.h"
#include "load/plan.h"
#include "sim/drive.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#define SPREAD                  0.5 /* lengths are even from 0.5 to 1.5 of their mean, where that fits */
#define LEAST                   64  /* requests that are played */
#define MOST                    2000
#define PLAYED_S                120 /* of an open loop */
#define ROUNDS                  6   /* requests of each stream of a closed loop */
#define SEED                    1
#define NOT_KNOWN(v, otherwise) ((v) > 0 ? (size_t)(v) : (size_t)(otherwise))

struct playing {
    struct load_options load;
    char streams[24], rate[32], input[48], output[48];
    struct sim_target target;
    struct calibration cal; /* at the server's speed */
    struct plan plan;
};

static struct sim_options engine_of(const struct calibration *c, const struct gain_load *l) {
    struct sim_options o = {.max_num_seqs = NOT_KNOWN(l->max_num_seqs, 64),
                            .max_num_batched_tokens = NOT_KNOWN(l->max_batched_tokens, 2048),
                            .max_model_len = c->max_model_len,
                            .max_queue = 1 << 20, /* what is refused is another question */
                            .block_tokens = c->block_tokens,
                            .n_groups = c->n_groups,
                            .prefix_caching = l->prefix_caching,
                            .chunked_prefill = l->chunked_prefill};
    if (l->max_model_len > 0) o.max_model_len = size_min(o.max_model_len, (size_t)l->max_model_len);
    o.max_num_batched_tokens = size_max(o.max_num_batched_tokens, o.max_num_seqs);
    if (!o.chunked_prefill) o.max_num_batched_tokens = size_max(o.max_num_batched_tokens, o.max_model_len);
    for (size_t g = 0; g < c->n_groups; g++) o.window[g] = c->window[g] < o.max_model_len ? c->window[g] : 0;
    size_t most = o.max_num_seqs * c->n_groups * size_div_up(o.max_model_len, o.block_tokens);
    size_t blocks = l->kv_tokens > 0 ? (size_t)(l->kv_tokens / (double)o.block_tokens) * c->n_groups : most;
    o.n_blocks = size_max(2, size_min(blocks, most));
    return o;
}

static void lengths(char *out, size_t size, double mean, double spread) {
    snprintf(out, size, "uniform:%.0f:%.0f", fmax(1, mean * (1 - spread)), fmax(1, mean * (1 + spread)));
}

static int describe_load(struct playing *g, const struct gain_load *l, double longest, struct error *err) {
    double all = l->input + l->output, spread = fmin(SPREAD, fmax(0, longest / all - 1));
    double block = (double)g->target.config.engine.block_tokens;
    double prefix = fmin(l->input - 1, round(l->cached / block) * block); /* whole blocks are found */
    double n = l->in_flight > 0 ? ROUNDS * l->in_flight : l->rate * PLAYED_S;
    snprintf(g->streams, sizeof g->streams, "%.0f", l->in_flight);
    snprintf(g->rate, sizeof g->rate, "%.6g", l->rate);
    lengths(g->input, sizeof g->input, l->input - fmax(0, prefix), spread);
    lengths(g->output, sizeof g->output, l->output, spread);
    int rc = load_option_defaults(&g->load, err);
    if (l->in_flight > 0)
        g->load.concurrency = g->streams;
    else
        g->load.rate = g->rate;
    g->load.input_tokens = g->input;
    g->load.output_tokens = g->output;
    g->load.requests = (int64_t)fmin(MOST, fmax(LEAST, n));
    g->load.seed = SEED;
    g->load.prefix_tokens = (int64_t)fmax(0, prefix);
    return rc;
}

static void read_outcome(const struct playing *g, struct gain_outcome *out) {
    const struct summary *s = &g->plan.points[0].all;
    *out = (struct gain_outcome){.requests_per_s = s->requests_per_s,
                                 .output_per_s = s->output_per_s,
                                 .ttft_p95_ms = fmax(0, s->ms[LATENCY_TTFT].p95),
                                 .tpot_p95_ms = fmax(0, s->ms[LATENCY_TPOT].p95),
                                 .itl_p99_ms = fmax(0, s->ms[LATENCY_ITL].p99),
                                 .step_s = g->target.total.busy_us / 1e6 / fmax(1, (double)s->n_ok)};
}

static int perform(struct playing *g, struct advise_player *p, const struct gain_load *l, struct error *err) {
    g->cal = p->cal;
    g->cal.steps.forward_us[0] *= l->weight_factor; /* what a step takes whatever its rows: reading weights */
    calibration_slow(&g->cal, l->slow);
    g->target = (struct sim_target){.model = p->cal.model,
                                    .config = {.engine = engine_of(&g->cal, l),
                                               .clock = calibration_clock(&g->cal),
                                               .cal = &g->cal,
                                               .fleet = {.n_replicas = (size_t)l->replicas, .routing = SIM_LEAST_LOADED}}};
    int rc = describe_load(g, l, (double)g->target.config.engine.max_model_len, err);
    if (!rc) rc = sim_measure(&g->target, &g->load, &g->plan, p->interrupted, err);
    return rc ? rc : plan_check_answers(&g->plan, err);
}

static int play(void *ctx, const struct gain_load *l, struct gain_outcome *out, struct error *err) {
    struct playing *g = calloc(1, sizeof *g);
    if (!g) return error_set(err, QUIRE_ENOMEM, "out of memory for a simulation");
    int rc = perform(g, ctx, l, err);
    if (!rc) read_outcome(g, out);
    plan_free(&g->plan);
    free(g);
    return rc ? error_prefix(err, "simulating the measured load") : 0;
}

void advise_player_init(struct advise_player *p, const char *source, const volatile int *interrupted) {
    p->player = (struct gain_player){.source = source,
                                     .cpu_path = p->cal.cpu_path,
                                     .n_threads = p->cal.n_threads,
                                     .max_model_len = (double)p->cal.max_model_len,
                                     .play = play,
                                     .ctx = p};
    p->interrupted = interrupted;
}
