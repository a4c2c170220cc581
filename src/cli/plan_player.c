#include "cli/plan_player.h"

#include "base/error.h"
#include "cli/bench.h"
#include "load/plan.h"
#include "sim/compare.h"
#include "sim/drive.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- whether the calibration is of what is planned ---- */

static const char *dtype_name(enum backend_dtype dtype) {
    return dtype == BACKEND_F32 ? "float32" : dtype == BACKEND_F16 ? "float16" : "bfloat16";
}

static const char *where(const struct plan_player *p) {
    return p->player.source ? p->player.source : "--calibrate";
}

static int other_model(const struct plan_player *p, const char *what, const char *has, const char *planned,
                       struct error *err) {
    return error_set(err, QUIRE_EINVAL,
                     "%.200s is a calibration of another model (%.60s): its %s is %s, %.60s has %s", where(p),
                     p->cal.model, what, has, p->ask->model, planned);
}

static int other_count(const struct plan_player *p, const char *what, uint64_t has, uint64_t planned,
                       struct error *err) {
    char a[24], b[24];
    snprintf(a, sizeof a, "%llu", (unsigned long long)has);
    snprintf(b, sizeof b, "%llu", (unsigned long long)planned);
    return other_model(p, what, a, b, err);
}

static int match_model(const struct plan_player *p, const struct forecast *f, struct error *err) {
    const struct calibration *c = &p->cal;
    size_t token = model_kv_bytes_per_token(&f->o.spec, f->o.dtype);
    if (strcmp(c->family, f->o.spec.family))
        return other_model(p, "family", c->family, f->o.spec.family, err);
    if (strcmp(c->dtype, dtype_name(f->o.dtype)))
        return error_set(err, QUIRE_EINVAL, "%.200s was calibrated with --dtype %s, %s is planned", where(p),
                         c->dtype, dtype_name(f->o.dtype));
    if (c->kv_bytes_per_token != token)
        return other_count(p, "KV of a token in bytes", c->kv_bytes_per_token, token, err);
    if (c->n_groups != f->n_groups)
        return other_count(p, "number of kinds of KV layers", c->n_groups, f->n_groups, err);
    if (c->tensor_bytes && c->tensor_bytes != f->tensor_bytes)
        return other_count(p, "size of all tensors in bytes", c->tensor_bytes, f->tensor_bytes, err);
    return 0;
}

static int match(const struct plan_player *p, const struct forecast *f, struct error *err) {
    const struct calibration *c = &p->cal;
    int rc = match_model(p, f, err);
    if (rc) return rc;
    if (strcmp(c->cpu_path, f->o.path))
        return error_set(
            err, QUIRE_EINVAL,
            "%.200s was calibrated on the CPU path %s, %s is planned (--cpu): calibrate again for it",
            where(p), c->cpu_path, f->o.path);
    if (c->n_threads != f->o.n_threads)
        return error_set(
            err, QUIRE_EINVAL,
            "%.200s was calibrated with --threads %zu, planned is --threads %zu: calibrate again for it",
            where(p), c->n_threads, f->o.n_threads);
    if (f->o.max_model_len > c->max_model_len)
        return error_set(err, QUIRE_EINVAL, "--max-model-len is %zu, %.200s was calibrated for at most %zu",
                         f->o.max_model_len, where(p), c->max_model_len);
    return 0;
}

/* ---- a load in virtual time ---- */

struct playing {
    struct load_options load;
    char streams[24], input[24], output[24];
    size_t n_requests; /* 0: as many as `quire bench serve` sends by itself */
    struct sim_target target;
    struct plan plan;
};

static struct sim_options engine_of(const struct plan_player *p, const struct forecast *f) {
    const struct quire_config *c = p->ask->config;
    struct sim_options o = {.max_num_seqs = f->o.max_num_seqs,
                            .max_num_batched_tokens = f->o.max_num_batched_tokens,
                            .max_model_len = f->o.max_model_len,
                            .max_queue = c->max_queue,
                            .long_prefill_threshold = c->long_prefill_threshold,
                            .block_tokens = f->o.block_tokens,
                            .n_blocks = f->o.n_blocks,
                            .n_groups = f->n_groups,
                            .prefix_caching = c->prefix_caching,
                            .chunked_prefill = c->chunked_prefill};
    for (size_t g = 0; g < f->n_groups; g++) o.window[g] = f->groups[g].window;
    return o;
}

/* As `quire bench serve` has it when only lengths and streams are given. */
static int describe_load(struct playing *g, const struct plan_player *p, size_t n, struct error *err) {
    snprintf(g->streams, sizeof g->streams, "%zu", n);
    snprintf(g->input, sizeof g->input, "%zu", p->ask->n_input);
    snprintf(g->output, sizeof g->output, "%zu", p->ask->n_output);
    int rc = load_option_defaults(&g->load, err);
    g->load.concurrency = g->streams;
    g->load.input_tokens = g->input;
    g->load.output_tokens = g->output;
    g->load.slo = p->slo;
    g->load.requests = (int64_t)g->n_requests;
    return rc;
}

static int perform(struct playing *g, struct plan_player *p, const struct forecast *f, size_t n,
                   struct error *err) {
    int rc = describe_load(g, p, n, err);
    if (rc) return rc;
    g->target = (struct sim_target){.model = p->cal.model,
                                    .config = {.engine = engine_of(p, f),
                                               .clock = calibration_clock(&p->cal),
                                               .cal = &p->cal,
                                               .fleet = {.n_replicas = 1, .routing = SIM_LEAST_LOADED}}};
    rc = sim_measure(&g->target, &g->load, &g->plan, p->interrupted, err);
    if (!rc) rc = plan_check_answers(&g->plan, err);
    if (!rc && g->plan.points[0].all.n_failed)
        rc = error_set(err, QUIRE_ELIMIT,
                       "%zu of %zu requests would be refused: --max-queue is %zu, of %s streams",
                       g->plan.points[0].all.n_failed, g->plan.points[0].all.n_requests,
                       p->ask->config->max_queue, g->streams);
    return rc;
}

static struct playing *playing_new(struct error *err) {
    struct playing *g = calloc(1, sizeof *g);
    if (!g) error_set(err, QUIRE_ENOMEM, "out of memory for a simulation");
    return g;
}

static void playing_free(struct playing *g) {
    plan_free(&g->plan);
    free(g);
}

static int play(void *ctx, const struct forecast *f, size_t n, struct forecast_speed *out,
                struct error *err) {
    struct plan_player *p = ctx;
    int rc = match(p, f, err);
    struct playing *g = rc ? NULL : playing_new(err);
    if (!g) return rc ? rc : QUIRE_ENOMEM;
    rc = perform(g, p, f, n, err);
    if (!rc) {
        const struct summary *s = &g->plan.points[0].all;
        const struct summary_stat *ttft = &s->ms[LATENCY_TTFT], *tpot = &s->ms[LATENCY_TPOT];
        *out =
            (struct forecast_speed){.streams = n,
                                    .within_slo = !slo_any(&g->plan.slo) || slo_excess(&g->plan.slo, s) <= 1,
                                    .ttft_s = fmax(0, ttft->p50) / 1e3,
                                    .tpot_s = fmax(0, tpot->p50) / 1e3,
                                    .ttft_p95_s = fmax(0, ttft->p95) / 1e3,
                                    .tpot_p95_s = fmax(0, tpot->p95) / 1e3,
                                    .requests_per_s = s->requests_per_s,
                                    .output_per_s = s->output_per_s,
                                    .total_per_s = s->total_per_s};
    }
    playing_free(g);
    return rc;
}

/* ---- beside a measurement ---- */

static void keep_row(void *ctx, const struct sim_row *r) {
    struct forecast *f = ctx;
    if (f->n_checks == FORECAST_MAX_CHECKS) return;
    struct forecast_check *c = &f->checks[f->n_checks++];
    *c = (struct forecast_check){.unit = r->unit,
                                 .measured = r->measured,
                                 .low = r->low,
                                 .high = r->high,
                                 .n_repeats = r->n_repeats,
                                 .expected = r->simulated,
                                 .error = r->error,
                                 .same_speed = r->same_speed};
    snprintf(c->name, sizeof c->name, "%s", r->name);
}

/* The forecast's load, as long as it was measured: at the beginning all streams come at once, which counts
 * less the longer it lasts. */
static int as_many_requests(struct playing *g, struct plan_player *p, const struct forecast *f,
                            const char *report, struct error *err) {
    size_t n;
    int rc = sim_compare_requests(report, g->plan.points[0].title, &n, err);
    if (rc || !n || n == g->plan.points[0].all.n_requests) return rc;
    plan_free(&g->plan);
    g->plan = (struct plan){0};
    g->n_requests = n;
    return perform(g, p, f, f->speed.streams, err);
}

static int check_load(struct plan_player *p, const char *report, struct forecast *f, struct error *err) {
    struct playing *g = playing_new(err);
    if (!g) return QUIRE_ENOMEM;
    int rc = perform(g, p, f, f->speed.streams, err);
    if (!rc) rc = as_many_requests(g, p, f, report, err);
    struct sim_load load = {&g->load, &g->target, p->interrupted};
    if (!rc) rc = sim_compare_rows(&g->plan, &load, report, keep_row, f, err);
    if (rc == QUIRE_ENOTFOUND)
        rc = error_set(err, rc,
                       "--check %.200s has no \"%s\" of `quire bench serve`, which is what is forecast",
                       report, g->plan.points[0].title);
    playing_free(g);
    return rc;
}

int plan_player_check(struct plan_player *p, const char *report, struct forecast *f, struct error *err) {
    bool is_engine = false;
    int rc = strchr(report, ',') ? 0 : sim_compare_engine(&p->cal, report, &is_engine, keep_row, f, err);
    if (!rc && !is_engine) rc = check_load(p, report, f, err);
    if (!rc && !f->n_checks)
        rc = error_set(err, QUIRE_ENOTFOUND, "--check %.200s has nothing that is forecast", report);
    if (!rc) f->checked = report;
    return rc;
}

/* ---- opening ---- */

/* The regions that were measured, at their worst. */
static void read_fit(struct plan_player *p) {
    for (int r = 0; r < STEP_REGIONS; r++) {
        const struct step_fit *fit = &p->cal.steps.fit[r];
        if (!fit->n) continue;
        p->player.n_steps += fit->n;
        p->player.median_error = fmax(p->player.median_error, fit->median_error);
        p->player.p95_error = fmax(p->player.p95_error, fit->p95_error);
    }
}

void plan_player_init(struct plan_player *p, const char *file, const struct forecast_ask *ask,
                      const char *slo, const volatile int *interrupted) {
    p->player = (struct forecast_player){.play = play,
                                         .ctx = p,
                                         .source = file,
                                         .model = p->cal.model,
                                         .cpu_path = p->cal.cpu_path,
                                         .n_threads = p->cal.n_threads};
    p->ask = ask;
    p->slo = slo;
    p->interrupted = interrupted;
    read_fit(p);
}
