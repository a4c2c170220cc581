#include "plan/speed.h"

#include "base/error.h"
#include "base/size.h"

#include <math.h>

/* Bytes of weights that a step of n rows reads: of routed experts those that rows have chosen, which for
 * independent choices is 1 - (1 - used / all)^n of them. */
static double weight_bytes(const struct forecast *f, double n_rows) {
    const struct model_experts *e = &f->o.spec.experts;
    double all = (double)f->n_params, routed = (double)f->n_params_routed, touched = 1;
    if (e->n) touched = 1 - pow(1 - (double)e->n_used / (double)e->n, n_rows);
    double read = all - routed + routed * touched;
    if (!f->o.spec.tied_output && !f->o.spec.headless) /* of the embedding only rows */
        read -= (double)f->o.spec.n_vocab * (double)f->o.spec.n_embd;
    return (double)f->o.weights_bytes * read / all;
}

/* KV that a token at this position reads. */
static double kv_read(const struct forecast *f, double position) {
    double bytes = 0;
    for (size_t g = 0; g < f->n_groups; g++) {
        double window = (double)f->groups[g].window;
        bytes += (double)f->groups[g].token_bytes * (window && window < position ? window : position);
    }
    return bytes;
}

/* Operations of a row: two for each parameter it meets, and four for each element of the heads of every
 * earlier position. */
static double ops_of_row(const struct forecast *f, double positions) {
    double ops = 2 * ((double)f->n_params_used);
    for (size_t g = 0; g < f->n_groups; g++) {
        const struct forecast_group *k = &f->groups[g];
        double window = (double)k->window, seen = window && window < positions ? window : positions;
        ops += 4 * seen * (double)k->n_layers * (double)k->n_heads * (double)k->head_dim;
    }
    return ops;
}

static double longest_of(double read_bytes, double ops, const struct forecast_machine *m) {
    return fmax(read_bytes / (m->read_per_s * m->read_share), ops / (m->ops_per_s * m->ops_share));
}

static double decode_s(const struct forecast_ask *ask, const struct forecast *f, double n) {
    double position = (double)ask->n_input + (double)ask->n_output / 2;
    return longest_of(weight_bytes(f, n) + n * kv_read(f, position), n * ops_of_row(f, position),
                      &ask->machine);
}

static double prefill_s(const struct forecast_ask *ask, const struct forecast *f) {
    double n = (double)ask->n_input;
    return longest_of(weight_bytes(f, n) + kv_read(f, n), n * ops_of_row(f, n / 2), &ask->machine);
}

/* n streams, each of which asks again when its answer has ended: while one lives, the prompts of all are
 * computed once. */
static void closed_loop(const struct forecast_ask *ask, const struct forecast *f, double n,
                        struct forecast_speed *s) {
    double step = decode_s(ask, f, n), prompt = prefill_s(ask, f), output = (double)ask->n_output;
    double life = output * step + n * prompt;
    s->ttft_s = prompt + step;
    s->tpot_s = step + (n - 1) * prompt / output;
    s->requests_per_s = n / life;
    s->output_per_s = s->requests_per_s * output;
    s->total_per_s = s->requests_per_s * (output + (double)ask->n_input);
}

static bool within(const struct forecast_ask *ask, const struct forecast_speed *s) {
    return (!(ask->slo_ttft_s > 0) || s->ttft_s <= ask->slo_ttft_s) &&
           (!(ask->slo_tpot_s > 0) || s->tpot_s <= ask->slo_tpot_s);
}

static int expect(const struct forecast_ask *ask, const struct forecast *f, size_t n,
                  struct forecast_speed *s, struct error *err) {
    *s = (struct forecast_speed){.streams = n};
    if (ask->player) return ask->player->play(ask->player->ctx, f, n, s, err);
    closed_loop(ask, f, (double)n, s);
    s->within_slo = within(ask, s);
    return 0;
}

/* The most streams within the SLO, of at most `most`; one where even that is not. */
static int find_streams(const struct forecast_ask *ask, const struct forecast *f, size_t most,
                        struct forecast_speed *s, struct error *err) {
    size_t low = 1, high = most;
    int rc = expect(ask, f, most, s, err);
    if (rc || s->within_slo || most == 1) return rc;
    rc = expect(ask, f, 1, s, err);
    while (!rc && s->within_slo && high - low > 1) { /* low is within, and in *s; high is not */
        size_t mid = low + (high - low) / 2;
        struct forecast_speed v;
        rc = expect(ask, f, mid, &v, err);
        if (rc || !v.within_slo) {
            high = mid;
            continue;
        }
        low = mid;
        *s = v;
    }
    return rc;
}

int speed_make(const struct forecast_ask *ask, struct forecast *f, struct error *err) {
    struct forecast_speed *s = &f->speed;
    *s = (struct forecast_speed){0};
    bool vectors = f->o.spec.encoder || f->o.pooling;
    if (ask->player && vectors)
        return error_set(err, QUIRE_EUNSUPPORTED,
                         "%.200s makes vectors; --calibration and --calibrate are for text", ask->model);
    if ((!ask->player && !(ask->machine.read_per_s > 0)) || f->refusal.code || f->o.spec.encoder) return 0;
    size_t blocks = outlook_blocks(&f->o, size_min(ask->n_input + ask->n_output, f->o.max_model_len));
    size_t most = size_min(f->concurrency, f->o.n_blocks / size_max(blocks, 1));
    if (!most) return 0;
    int rc = find_streams(ask, f, most, s, err);
    if (rc) return rc;
    s->known = true;
    if (ask->rate > 0) s->replicas = ceil(ask->rate / s->requests_per_s - 1e-9);
    if (!(ask->price_per_hour > 0)) return 0;
    s->cost_output = ask->price_per_hour / 3600 / s->output_per_s * 1e6;
    s->cost_total = ask->price_per_hour / 3600 / s->total_per_s * 1e6;
    return 0;
}
