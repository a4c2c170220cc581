#include "advise/gain.h"
#include "advise/tree_impl.h"

#include "base/error.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#define BUSY      0.85 /* from here on requests come as others end, not by the clock */
#define LEAST     3    /* requests that tell of a load */
#define SLOW_MOST 50   /* times as slow as calibrated: then it is another model or machine */

static double get(const struct figures *f, enum figure which) {
    return figures_or(f, which, 0);
}

/* ---- the measured load ---- */

/* Requests that are so many milliseconds in one state, in the mean while the engine works (Little's law). */
static double by_little(const struct figures *f, double ms) {
    return get(f, F_REQUESTS) / (get(f, F_WINDOW_S) * get(f, F_BUSY)) * ms / 1000;
}

static double in_flight(const struct figures *f) {
    double ms = get(f, F_QUEUE_MS) + get(f, F_PREFILL_MS) + get(f, F_DECODE_MS);
    return fmax(1, round(fmax(get(f, F_RUNNING) + get(f, F_WAITING), by_little(f, ms))));
}

static bool is_closed(const struct figures *f) {
    return get(f, F_BUSY) >= BUSY || get(f, F_WAITING) >= 1 || by_little(f, get(f, F_QUEUE_MS)) >= 1;
}

/* False: *why says what is lacking. */
static bool load_of(const struct figures *f, double longest, struct gain_load *l, const char **why) {
    double n = get(f, F_REQUESTS), window = get(f, F_WINDOW_S);
    *l = (struct gain_load){.input = get(f, F_PROMPT_MEAN),
                            .output = fmax(1, get(f, F_OUTPUT_MEAN)),
                            .max_num_seqs = get(f, F_MAX_NUM_SEQS),
                            .max_batched_tokens = get(f, F_MAX_BATCHED_TOKENS),
                            .max_model_len = get(f, F_MAX_MODEL_LEN),
                            .max_queue = get(f, F_MAX_QUEUE),
                            .kv_tokens = get(f, F_KV_TOKENS),
                            .prefix_caching = figures_or(f, F_PREFIX_CACHING, 1) > 0,
                            .chunked_prefill = figures_or(f, F_CHUNKED_PREFILL, 1) > 0,
                            .slow = 1,
                            .weight_factor = 1,
                            .replicas = 1};
    *why = NULL;
    if (!(n >= LEAST) || !(window > 0))
        *why = "too few requests ended in this time";
    else if (!(l->input >= 1))
        *why = "the length of the prompts is not known";
    else if (!(get(f, F_BUSY) > 0))
        *why = "the time in steps is not known";
    else if (l->input + l->output > longest)
        *why = "requests are longer than those of the calibration";
    if (*why) return false;
    if (get(f, F_PROMPT_TOKENS) > 0)
        l->cached = l->input * fmin(1, get(f, F_CACHED_TOKENS) / get(f, F_PROMPT_TOKENS));
    if (is_closed(f))
        l->in_flight = in_flight(f);
    else
        l->rate = n / window;
    return true;
}

static int check(const struct figures *f, const struct gain_player *p, struct error *err) {
    int path = figures_path_rank(p->cpu_path);
    if (!f->is_quire)
        return error_set(err, QUIRE_EINVAL, "--calibration is of Quire's steps; %.150s is no Quire server",
                         f->server);
    if (f->has[F_THREADS] && get(f, F_THREADS) != (double)p->n_threads)
        return error_set(err, QUIRE_EINVAL, "%.150s was calibrated with --threads %zu, the server has %.0f",
                         p->source, p->n_threads, get(f, F_THREADS));
    if (f->has[F_PATH] && path >= 0 && (int)get(f, F_PATH) != path)
        return error_set(err, QUIRE_EINVAL,
                         "%.150s was calibrated on the CPU path %.20s, the server runs on %s", p->source,
                         p->cpu_path, figures_path_name((int)get(f, F_PATH)));
    return 0;
}

/* ---- what a verdict would change ---- */

static struct gain_load changed(const struct gain_load *l, const struct verdict_change *c) {
    struct gain_load to = *l;
    if (c->max_num_seqs > 0) to.max_num_seqs = c->max_num_seqs;
    if (c->max_batched_tokens > 0) to.max_batched_tokens = c->max_batched_tokens;
    if (c->kv_factor > 0) to.kv_tokens *= c->kv_factor;
    if (c->step_factor > 0) to.slow *= c->step_factor;
    if (c->weight_factor > 0) to.weight_factor *= c->weight_factor;
    if (c->replicas > 0) to.replicas = c->replicas;
    if (c->input_factor > 0) {
        to.input = fmax(1, to.input * c->input_factor);
        to.cached *= c->input_factor;
    }
    if (c->output_factor > 0) to.output = fmax(1, to.output * c->output_factor);
    if (c->cached_share > 0) to.cached = to.input * fmin(1, c->cached_share);
    to.prefix_caching |= c->prefix_caching;
    to.chunked_prefill |= c->chunked_prefill;
    return to;
}

static double saved(double before, double after) {
    return before > 0 && after > 0 ? 1 - after / before : 0;
}

/* What the gain is of: the latency that the verdict is about, the time that requests take together, or (where
 * they come by the clock) the work. */
static double gain_of(enum verdict_kind kind, const struct gain_load *l, const struct gain_outcome *before,
                      const struct gain_outcome *after, const char **of) {
    if (kind == VERDICT_BATCH_TOO_LARGE) {
        *of = "lower TPOT P95";
        return saved(before->tpot_p95_ms, after->tpot_p95_ms);
    }
    if (kind == VERDICT_CHUNKED_PREFILL_OFF) {
        *of = "lower ITL P99";
        return saved(before->itl_p99_ms, after->itl_p99_ms);
    }
    *of = l->in_flight > 0 ? "less time for the same requests" : "less work";
    return l->in_flight > 0 ? saved(after->requests_per_s, before->requests_per_s)
                            : saved(before->step_s, after->step_s);
}

static void tell(struct verdict *v, const struct gain_load *l, const struct gain_outcome *before,
                 const struct gain_outcome *after) {
    const char *of;
    double gain = gain_of(v->kind, l, before, after, &of);
    v->gain = fmin(0.99, fmax(0, gain));
    v->simulated = true;
    char share[48];
    if (gain >= 0.005)
        snprintf(share, sizeof share, "%.0f %%", 100 * v->gain);
    else
        snprintf(share, sizeof share, "no");
    tree_write(
        v->expected,
        "%s %s: %.2f instead of %.2f requests/s, %.1f instead of %.1f output tok/s, TTFT P95 %.0f "
        "instead of %.0f ms, TPOT P95 %.1f instead of %.1f, %.1f instead of %.1f ms in steps a request",
        share, of, after->requests_per_s, before->requests_per_s, after->output_per_s, before->output_per_s,
        after->ttft_p95_ms, before->ttft_p95_ms, after->tpot_p95_ms, before->tpot_p95_ms, 1e3 * after->step_s,
        1e3 * before->step_s);
}

/* ---- all of it ---- */

/* At the speed that the server's steps had: the same time in steps for each request. */
static int play_base(const struct figures *f, const struct gain_player *p, struct gain_load *l,
                     struct gain_outcome *out, struct error *err) {
    double measured = get(f, F_BUSY) * get(f, F_WINDOW_S) / get(f, F_REQUESTS);
    int rc = p->play(p->ctx, l, out, err);
    for (int round = 0; round < 3 && !rc && out->step_s > 0; round++) {
        l->slow *= measured / out->step_s;
        if (!(l->slow <= SLOW_MOST && l->slow >= 1.0 / SLOW_MOST)) return 0;
        rc = p->play(p->ctx, l, out, err);
    }
    return rc;
}

int gain_simulate(const struct figures *f, const struct gain_player *p, struct advice *a,
                  struct gain_base *base, struct error *err) {
    struct gain_outcome before = {0}, after = {0};
    const char *why = NULL;
    *base = (struct gain_base){.source = p->source};
    int rc = check(f, p, err);
    if (rc || !a->traffic) return rc;
    if (load_of(f, p->max_model_len, &base->load, &why)) rc = play_base(f, p, &base->load, &before, err);
    if (rc) return rc;
    if (!why && !(base->load.slow <= SLOW_MOST && base->load.slow >= 1.0 / SLOW_MOST))
        why = "its steps are nothing like those of the calibration";
    if (why) {
        snprintf(base->why_not, sizeof base->why_not, "%s", why);
        return 0;
    }
    base->done = true;
    base->measured_output_per_s = get(f, F_OUTPUT_TOKENS) / get(f, F_WINDOW_S);
    base->simulated_output_per_s = before.output_per_s;
    for (size_t i = 0; i < a->n && !rc; i++) {
        struct verdict *v = &a->verdicts[i];
        if (!v->change.any) continue;
        struct gain_load to = changed(&base->load, &v->change);
        rc = p->play(p->ctx, &to, &after, err);
        if (!rc) tell(v, &to, &before, &after);
    }
    advice_sort(a);
    return rc;
}
