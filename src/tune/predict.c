#include "base/size.h"
#include "tune/search.h"

#include <stdlib.h>

static struct sim_options engine_of(const struct tune_options *o, const struct candidate *c) {
    const struct calibration *cal = o->cal;
    struct sim_options e = {.max_num_seqs = (size_t)c->v[KNOB_SEQS],
                            .max_num_batched_tokens = (size_t)c->v[KNOB_TOKENS],
                            .max_model_len = cal->max_model_len,
                            .max_queue = 1024,
                            .long_prefill_threshold = (size_t)c->v[KNOB_CHUNK],
                            .block_tokens = (size_t)c->v[KNOB_BLOCK],
                            .n_groups = cal->n_groups,
                            .prefix_caching = c->v[KNOB_PREFIX] > 0,
                            .chunked_prefill = true};
    double room = (double)(cal->n_blocks * cal->block_tokens / e.block_tokens);
    if (!o->kv_given) room *= c->v[KNOB_MEMORY] / o->base.v[KNOB_MEMORY];
    size_t most = e.max_num_seqs * e.n_groups * size_div_up(e.max_model_len, e.block_tokens);
    e.n_blocks = size_max(2, size_min((size_t)room, most));
    for (size_t g = 0; g < e.n_groups; g++) e.window[g] = cal->window[g];
    return e;
}

bool predict(const struct tune_options *o, const struct slo *slo, const struct candidate *c,
             struct figures *out) {
    struct error err = {0};
    char streams[24];
    if (!o->cal || c->v[KNOB_THREADS] != o->base.v[KNOB_THREADS] || changes_answers(o, c)) return false;
    struct load_options l = trial_load(o, c, 0, 1, streams);
    struct sim_target t = {
        .config = {.engine = engine_of(o, c), .clock = calibration_clock(o->cal), .cal = o->cal},
        .model = o->cal->model};
    t.config.fleet = (struct sim_fleet){.n_replicas = 1, .routing = SIM_LEAST_LOADED};
    struct plan *p = calloc(1, sizeof *p);
    if (!p) return false;
    int rc = sim_measure(&t, &l, p, o->interrupted, &err); /* an interruption is seen by the next run */
    if (!rc) figures_of(&p->points[0].all, slo, out);
    plan_free(p);
    free(p);
    return !rc;
}
