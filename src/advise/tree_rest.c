/* Weight format, speculation, what cannot be had, and more devices. */
#include "advise/tree_impl.h"

#include <math.h>

#define Q8_BITS        8.5              /* of a weight, with its scale */
#define LEAST_WEIGHTS  (48.0 * 1048576) /* what no cache near the cores holds */
#define LEAST_BYTES_MS 1e6              /* 1 GB/s: a slower step is not bound by reading weights */

/* Share of a decode step that reading the weights once is. */
static double reading_share(const struct tree *t) {
    double n = fmax(1, fig(t, F_DECODE_STEP_TOKENS)), ms = tree_step_ms(t, n);
    if (!(ms > 0)) return 0;
    if (!t->fitted && n <= 2) return 0.8; /* one or two sequences: it is nearly all */
    return t->fixed_ms / ms;
}

static void weight_format(struct tree *t) {
    double bits = fig(t, F_WEIGHT_BITS), decode = 1 - t->prefill_share, share = reading_share(t);
    double ms = fig(t, F_DECODE_STEP_MS);
    if (bits < 12 || fig(t, F_WEIGHT_BYTES) < LEAST_WEIGHTS || decode < 0.4 || share < 0.4 || !(ms > 0))
        return;
    if (!t->pressed && t->busy < 0.2) return;
    double rate = fig(t, F_WEIGHT_BYTES) / ms; /* bytes a millisecond, if a step does nothing else */
    if (rate < LEAST_BYTES_MS) return;
    static const enum figure rests[] = {
        F_WEIGHT_BITS,     F_WEIGHT_BYTES,    F_DECODE_STEP_MS, F_DECODE_STEP_TOKENS,
        F_DECODE_FIXED_MS, F_DECODE_TOKEN_MS, F_PREFILL_SHARE,  FIGURES};
    struct verdict *v = tree_say(t, VERDICT_WEIGHT_FORMAT, decode * share * (1 - Q8_BITS / bits), rests);
    v->change = (struct verdict_change){.any = true, .weight_factor = Q8_BITS / bits};
    tree_write(
        v->what,
        "decoding is bound by reading weights of %.0f bits: %.0f MiB for each step of %.1f ms (%.1f GB/s)",
        bits, fig(t, F_WEIGHT_BYTES) / 1048576, ms, rate / 1e6);
    tree_write(
        v->expected,
        "%.0f %% less work with Q8_0: answers %.0f %% of the work x reading %.0f %% of a step%s x (1 - "
        "8.5 / %.0f bits); Q4_K saves more",
        100 * v->gain, 100 * decode, 100 * share, t->fitted ? "" : " (supposed)", bits);
    tree_write(v->attempt,
               "the same model as Q8_0 or Q4_K_M (GGUF), its answers compared with `quire eval kl`");
    tree_write(v->falsified,
               "`quire bench kernels --limits` shows a memory that reads much more than %.1f GB/s",
               rate / 1e6);
}

/* k drafted tokens of which each is accepted with probability a give (1 - a^(k+1)) / (1 - a) tokens a step
 * (Leviathan et al., Fast Inference from Transformers via Speculative Decoding, 2023): 2.5 for a = 0.7, k
 * = 3. Not for Quire, which has none. */
static void speculation(struct tree *t) {
    bool missed = t->out->slo_known[1] && !t->out->slo_met[1];
    if (t->f->is_quire || !missed || !known(t, F_RUNNING) || fig(t, F_RUNNING) >= 4 || t->waiting >= 1)
        return;
    static const enum figure rests[] = {F_TPOT_P95, F_RUNNING, F_WAITING, FIGURES};
    struct verdict *v = tree_say(t, VERDICT_SPECULATION, (1 - t->prefill_share) * 0.4, rests);
    tree_write(
        v->what,
        "TPOT P95 is %.1f ms, %g are wanted, with only %.1f sequences running: there is room to verify "
        "drafted tokens",
        fig(t, F_TPOT_P95), t->w->slo.tpot_ms, fig(t, F_RUNNING));
    tree_write(v->expected,
               "%.0f %% less time: answers' share x 0.4 (2.5 tokens a step at 70 %% acceptance and 3 drafts, "
               "steps 1.5 times as long)",
               100 * v->gain);
    tree_write(v->attempt, "speculative decoding, where the server has it (vLLM: --speculative-config)");
    tree_write(v->falsified, "fewer than half of the drafted tokens are accepted");
}

/* ---- the SLO against this machine ---- */

/* Share of the time that what was said about the device would save. */
static double device_gain(const struct tree *t) {
    static const enum verdict_kind kinds[] = {VERDICT_CPU_STARVED, VERDICT_CPU_PATH, VERDICT_THREADS,
                                              VERDICT_WEIGHT_FORMAT};
    double left = 1;
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) left *= 1 - tree_gain(t, kinds[i]);
    return 1 - left;
}

struct floor {
    const char *name;
    double ms, slo;
};

/* What a request takes that is alone: the floor that no setting goes below. */
static struct floor worst_floor(const struct tree *t) {
    double token = tree_step_ms(t, 1), out = fmax(1, fig(t, F_OUTPUT_MEAN));
    double each =
        fig(t, F_PREFILL_STEP_TOKENS) > 0 ? fig(t, F_PREFILL_STEP_MS) / fig(t, F_PREFILL_STEP_TOKENS) : 0;
    double cached = fig(t, F_PROMPT_TOKENS) > 0 ? fig(t, F_CACHED_TOKENS) / fig(t, F_PROMPT_TOKENS) : 0;
    double prefill = each * fig(t, F_PROMPT_MEAN) * fmax(0, 1 - cached);
    const struct floor all[3] = {
        {"TTFT", prefill, t->out->slo_known[0] ? t->w->slo.ttft_ms : 0},
        {"TPOT", token, t->out->slo_known[1] ? t->w->slo.tpot_ms : 0},
        {"E2E", prefill + (out - 1) * token, t->out->slo_known[2] ? t->w->slo.e2e_ms : 0}};
    struct floor worst = {0};
    for (int i = 0; i < 3; i++)
        if (all[i].slo > 0 && !t->out->slo_met[i] &&
            (!worst.name || all[i].ms / all[i].slo > worst.ms / worst.slo))
            worst = all[i];
    return worst;
}

static void impossible(struct tree *t) {
    struct floor f = worst_floor(t);
    double at_best = f.ms * (1 - device_gain(t));
    if (!f.name || !(at_best > f.slo)) return;
    static const enum figure rests[] = {F_TTFT_P95,        F_TPOT_P95,       F_E2E_P95,
                                        F_PREFILL_STEP_MS, F_DECODE_STEP_MS, F_DECODE_FIXED_MS,
                                        F_DECODE_TOKEN_MS, FIGURES};
    struct verdict *v = tree_say(t, VERDICT_SLO_IMPOSSIBLE, 1 - f.slo / at_best, rests);
    tree_write(v->what,
               "the SLO cannot be met on this machine: %s of a request that is alone takes about %.1f ms at "
               "best, %g are wanted",
               f.name, at_best, f.slo);
    tree_write(v->expected,
               "%.0f %% less time is needed: a device %.1f times as fast, or that much less to do",
               100 * v->gain, at_best / f.slo);
    tree_write(v->attempt, "%s",
               f.name[1] == 'P' ? "a smaller model or weight format, or a faster memory"
                                : "shorter prompts and answers, a smaller model, or a faster machine");
    tree_write(v->falsified, "quire bench serve URL --concurrency 1 --slo ... finds requests within the SLO");
}

/* ---- more devices ---- */

static double software_gain(const struct tree *t) {
    double left = 1;
    for (size_t i = 0; i < t->out->n; i++)
        if (t->out->verdicts[i].kind != VERDICT_SLO_IMPOSSIBLE) left *= 1 - t->out->verdicts[i].gain;
    return 1 - left;
}

/* As seen, or where nobody looked in between by Little's law: arrivals a second x mean time at work. */
static double running_mean(const struct tree *t) {
    double ms = fig(t, F_PREFILL_MS) + fig(t, F_DECODE_MS), window = fig(t, F_WINDOW_S);
    if (known(t, F_RUNNING) || !(window > 0)) return fig(t, F_RUNNING);
    return ms / 1000 * fig(t, F_REQUESTS) / window;
}

/* The device is busy, and there is more to do than it can: that and nothing else is left. */
static void more_devices(struct tree *t) {
    double running = fmax(1, running_mean(t)), refused = fmin(0.9, fig(t, F_REFUSED_SHARE));
    double load = fmax(1 + t->waiting / running, 1 / (1 - refused));
    bool missed = false, busy = known(t, F_BUSY) ? t->busy >= 0.85 : fig(t, F_GPU_UTILIZATION) >= 0.85;
    for (int i = 0; i < 3; i++) missed |= t->out->slo_known[i] && !t->out->slo_met[i];
    if (missed) load = fmax(load, 1.5);
    if (!busy || (load < 1.25 && t->waiting < 1) || tree_said(t, VERDICT_SLO_IMPOSSIBLE)) return;
    double need = 1 - 1 / load;
    if (software_gain(t) >= need) return; /* what was said before is enough */
    static const enum figure rests[] = {F_BUSY,     F_UTILIZATION,   F_RUNNING,      F_WAITING,
                                        F_QUEUE_MS, F_REFUSED_SHARE, F_KV_USAGE_MAX, FIGURES};
    struct verdict *v = tree_say(t, VERDICT_MORE_DEVICES, need - software_gain(t), rests);
    double servers = fmax(2, ceil(load * (1 - software_gain(t)) - 0.01));
    v->change = (struct verdict_change){.any = true, .replicas = fmin(servers, 64)};
    tree_write(
        v->what,
        "the device is full: in steps %.0f %% of the time, with %.1f requests waiting behind %.1f that run",
        100 * t->busy, t->waiting, running);
    tree_write(
        v->expected,
        "the load is %.2f times what one device does (1 + waiting / running, or by refusals or the SLO)",
        load);
    if (t->w->price > 0)
        tree_write(v->attempt,
                   "%.0f servers of this kind (%.2f a day each), or a larger one; or fewer requests at once",
                   servers, 24 * t->w->price);
    else
        tree_write(v->attempt, "%.0f servers of this kind, or a larger one; or fewer requests at once",
                   servers);
    tree_write(v->falsified, "requests still wait with so many");
}

static void low_traffic(struct tree *t) {
    if (!known(t, F_BUSY) || t->busy >= 0.05 || t->pressed || t->waiting >= 0.5 || t->out->n) return;
    static const enum figure rests[] = {F_BUSY, F_REQUESTS, F_RUNNING_MAX, FIGURES};
    struct verdict *v = tree_say(t, VERDICT_LOW_TRAFFIC, 0, rests);
    tree_write(v->what, "there is little to do: %.0f requests in %.0f s, in steps %.1f %% of the time",
               fig(t, F_REQUESTS), fig(t, F_WINDOW_S), 100 * t->busy);
    if (t->w->price > 0)
        tree_write(v->expected, "no setting makes a difference; %.2f of %.2f a day are for idle time",
                   24 * t->w->price * (1 - t->busy), 24 * t->w->price);
    else
        tree_write(v->expected, "no setting makes a difference; %.0f %% of the machine's time is unused",
                   100 * (1 - t->busy));
    tree_write(v->attempt, "a smaller machine, several models on one, or no server while nobody asks");
    tree_write(v->falsified, "a longer --window, or one at another time of day, finds it busy");
    v->money_a_day = 24 * t->w->price * (1 - t->busy);
}

void tree_rest(struct tree *t) {
    weight_format(t);
    speculation(t);
    impossible(t);
    more_devices(t);
    low_traffic(t);
}
