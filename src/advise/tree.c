#include "advise/tree_impl.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

const char *const verdict_names[VERDICTS] = {
    [VERDICT_CHANGING_FIELD] = "changing-field",
    [VERDICT_CUT_HISTORY] = "cut-history",
    [VERDICT_CHANGING_ORDER] = "changing-order",
    [VERDICT_PREFIX_CACHE_OFF] = "prefix-cache-off",
    [VERDICT_LONG_PROMPTS] = "long-prompts",
    [VERDICT_LONG_ANSWERS] = "long-answers",
    [VERDICT_CPU_STARVED] = "cpu-starved",
    [VERDICT_CPU_PATH] = "cpu-path",
    [VERDICT_THREADS] = "threads",
    [VERDICT_BATCH_LIMIT] = "batch-limit",
    [VERDICT_TOKEN_BUDGET] = "token-budget",
    [VERDICT_CHUNKED_PREFILL_OFF] = "chunked-prefill-off",
    [VERDICT_BATCH_TOO_LARGE] = "batch-too-large",
    [VERDICT_QUEUE_LIMIT] = "queue-limit",
    [VERDICT_CONNECTION_LIMIT] = "connection-limit",
    [VERDICT_SLOW_READERS] = "slow-readers",
    [VERDICT_CLIENTS_LEAVE] = "clients-leave",
    [VERDICT_FAILING_REQUESTS] = "failing-requests",
    [VERDICT_KV_POOL] = "kv-pool",
    [VERDICT_CACHE_TOO_SMALL] = "cache-too-small",
    [VERDICT_CONTEXT_RESERVED] = "context-reserved",
    [VERDICT_WEIGHT_FORMAT] = "weight-format",
    [VERDICT_SPECULATION] = "speculation",
    [VERDICT_SLO_IMPOSSIBLE] = "slo-impossible",
    [VERDICT_MORE_DEVICES] = "more-devices",
    [VERDICT_LOW_TRAFFIC] = "low-traffic",
};

const char *const bound_names[] = {"unknown", "neither", "memory", "compute", "both"};

/* What each needs to be looked for; a verdict may use more where it is there. */
static const enum figure needs[VERDICTS][4] = {
    [VERDICT_CHANGING_FIELD] = {F_COMPARED_TOKENS, F_FIELD_TOKENS, F_PREFILL_SHARE, FIGURES},
    [VERDICT_CUT_HISTORY] = {F_COMPARED_TOKENS, F_CUT_TOKENS, F_PREFILL_SHARE, FIGURES},
    [VERDICT_CHANGING_ORDER] = {F_COMPARED_TOKENS, F_ORDER_TOKENS, F_PREFILL_SHARE, FIGURES},
    [VERDICT_PREFIX_CACHE_OFF] = {F_PREFIX_CACHING, F_PREFILL_SHARE, FIGURES},
    [VERDICT_LONG_PROMPTS] = {F_PROMPT_TOKENS, F_PREFILL_SHARE, F_REQUESTS, FIGURES},
    [VERDICT_LONG_ANSWERS] = {F_OUTPUT_MEAN, F_PREFILL_SHARE, F_OUTPUT_BEYOND, FIGURES},
    [VERDICT_CPU_STARVED] = {F_CPU_WAIT, F_CPU_OTHERS, F_CORES, FIGURES},
    [VERDICT_CPU_PATH] = {F_PATH, F_PATH_BEST, FIGURES},
    [VERDICT_THREADS] = {F_THREADS, F_CORES, FIGURES},
    [VERDICT_BATCH_LIMIT] = {F_MAX_NUM_SEQS, F_HELD_SEQS, FIGURES},
    [VERDICT_TOKEN_BUDGET] = {F_MAX_BATCHED_TOKENS, F_PREFILL_STEP_TOKENS, F_STEP_FIXED_MS, FIGURES},
    [VERDICT_CHUNKED_PREFILL_OFF] = {F_CHUNKED_PREFILL, F_PREFILL_STEP_MS, FIGURES},
    [VERDICT_BATCH_TOO_LARGE] = {F_TPOT_P95, F_DECODE_STEP_TOKENS, FIGURES},
    [VERDICT_QUEUE_LIMIT] = {F_REFUSED, F_BUSY, FIGURES},
    [VERDICT_CONNECTION_LIMIT] = {F_CONNECTIONS_REFUSED, FIGURES},
    [VERDICT_SLOW_READERS] = {F_SLOW_READERS, F_BEHIND, FIGURES},
    [VERDICT_CLIENTS_LEAVE] = {F_LEFT, F_LEFT_SHARE, FIGURES},
    [VERDICT_FAILING_REQUESTS] = {F_INVALID_SHARE, F_FAILED_SHARE, FIGURES},
    [VERDICT_KV_POOL] = {F_PREEMPTIONS, F_KV_USAGE_MAX, FIGURES},
    [VERDICT_CACHE_TOO_SMALL] = {F_PREFIX_SHARE, F_HIT_RATE, F_EVICTIONS, FIGURES},
    [VERDICT_CONTEXT_RESERVED] = {F_PLAN_BYTES, F_MACHINE_BYTES, F_LONGEST, FIGURES},
    [VERDICT_WEIGHT_FORMAT] = {F_WEIGHT_BITS, F_DECODE_STEP_MS, FIGURES},
    [VERDICT_SPECULATION] = {F_TPOT_P95, F_RUNNING, FIGURES},
    [VERDICT_SLO_IMPOSSIBLE] = {F_TPOT_P95, F_DECODE_STEP_MS, F_PREFILL_STEP_MS, FIGURES},
    [VERDICT_MORE_DEVICES] = {F_BUSY, F_WAITING, FIGURES},
    [VERDICT_LOW_TRAFFIC] = {F_BUSY, F_REQUESTS, FIGURES},
};

enum figure advise_missing(const struct figures *f, enum verdict_kind kind) {
    for (int i = 0; i < 4 && needs[kind][i] != FIGURES; i++)
        if (!f->has[needs[kind][i]]) return needs[kind][i];
    return FIGURES;
}

/* ---- what the parts share ---- */

struct verdict *tree_say(struct tree *t, enum verdict_kind kind, double gain, const enum figure *rests) {
    struct verdict *v = &t->out->verdicts[t->out->n++];
    *v = (struct verdict){.kind = kind, .gain = gain > 0 ? fmin(gain, 0.99) : 0};
    for (; *rests != FIGURES && v->n_rests < VERDICT_RESTS; rests++)
        if (known(t, *rests)) v->rests[v->n_rests++] = *rests;
    return v;
}

double tree_gain(const struct tree *t, enum verdict_kind kind) {
    for (size_t i = 0; i < t->out->n; i++)
        if (t->out->verdicts[i].kind == kind) return t->out->verdicts[i].gain;
    return 0;
}

bool tree_said(const struct tree *t, enum verdict_kind kind) {
    for (size_t i = 0; i < t->out->n; i++)
        if (t->out->verdicts[i].kind == kind) return true;
    return false;
}

void tree_write(char text[VERDICT_TEXT], const char *fmt, ...) {
    va_list args;
    va_start(args, fmt);
    vsnprintf(text, VERDICT_TEXT, fmt, args);
    va_end(args);
}

void tree_waste(struct tree *t, struct verdict *v, double tokens, double share) {
    double window = fig(t, F_WINDOW_S);
    if (window > 0) v->tokens_a_day = tokens / window * 86400;
    v->money_a_day = t->w->price * 24 * t->busy * fmin(1, fmax(0, share));
}

double tree_step_ms(const struct tree *t, double n) {
    return t->fixed_ms + t->token_ms * n;
}

double tree_batch_gain(const struct tree *t, double n, double m) {
    if (!(n > 0) || !(m > n) || !(tree_step_ms(t, n) > 0)) return 0;
    return 1 - tree_step_ms(t, m) / m / (tree_step_ms(t, n) / n);
}

/* ---- what the tree begins with ---- */

/* Where steps are all alike, half of the time of a step of SUPPOSED_TOKENS tokens is taken to be fixed:
 * weights are read once for all of them. */
#define SUPPOSED_TOKENS 8

static void find_step_model(struct tree *t) {
    double n = fig(t, F_DECODE_STEP_TOKENS), ms = fig(t, F_DECODE_STEP_MS);
    t->fitted = true;
    if (known(t, F_DECODE_TOKEN_MS) && known(t, F_DECODE_FIXED_MS)) {
        t->fixed_ms = fig(t, F_DECODE_FIXED_MS);
        t->token_ms = fig(t, F_DECODE_TOKEN_MS);
    } else if (ms > 0 && n > 0) {
        t->fitted = false;
        t->token_ms = ms / (n + SUPPOSED_TOKENS);
        t->fixed_ms = SUPPOSED_TOKENS * t->token_ms;
    }
}

static bool within(double ms, double limit) {
    return !(limit > 0) || ms <= limit;
}

static void judge_slo(struct tree *t) {
    static const enum figure which[3] = {F_TTFT_P95, F_TPOT_P95, F_E2E_P95};
    const double limits[3] = {t->w->slo.ttft_ms, t->w->slo.tpot_ms, t->w->slo.e2e_ms};
    for (int i = 0; i < 3; i++) {
        t->out->slo_known[i] = limits[i] > 0 && known(t, which[i]);
        t->out->slo_met[i] = t->out->slo_known[i] && within(fig(t, which[i]), limits[i]);
        t->pressed |= t->out->slo_known[i] && !t->out->slo_met[i];
    }
}

/* Little's law: mean number in the queue = arrivals a second x mean time in it. */
static double queued(const struct tree *t) {
    double by_time = 0, window = fig(t, F_WINDOW_S);
    if (window > 0) by_time = fig(t, F_QUEUE_MS) / 1000 * fig(t, F_REQUESTS) / window;
    return fmax(fig(t, F_WAITING), by_time);
}

#define FULL_MEMORY  0.90
#define FULL_COMPUTE 0.85

static enum bound bound_of(const struct tree *t) {
    bool gpu = known(t, F_GPU_UTILIZATION), memory, compute;
    if ((!known(t, F_KV_USAGE_MAX) && fig(t, F_HELD_KV) < 0.2) || (!gpu && !known(t, F_BUSY)))
        return BOUND_UNKNOWN;
    double use = gpu                       ? fig(t, F_GPU_UTILIZATION)
                 : known(t, F_UTILIZATION) ? fig(t, F_UTILIZATION)
                                           : fig(t, F_BUSY);
    memory = fig(t, F_KV_USAGE_MAX) >= FULL_MEMORY || fig(t, F_HELD_KV) >= 0.2;
    compute = use >= FULL_COMPUTE || (fig(t, F_BUSY) >= FULL_COMPUTE && !memory && t->waiting >= 1);
    return memory && compute ? BOUND_BOTH : memory ? BOUND_MEMORY : compute ? BOUND_COMPUTE : BOUND_NEITHER;
}

/* Of the work; where steps are not told, of the time of requests. */
static double share_of_prefill(const struct tree *t) {
    double both = fig(t, F_PREFILL_MS) + fig(t, F_DECODE_MS);
    if (known(t, F_PREFILL_SHARE)) return fig(t, F_PREFILL_SHARE);
    return both > 0 ? fig(t, F_PREFILL_MS) / both : 0;
}

void advice_sort(struct advice *a) {
    for (size_t i = 1; i < a->n; i++) {
        struct verdict v = a->verdicts[i];
        size_t k = i;
        for (; k && a->verdicts[k - 1].gain < v.gain; k--) a->verdicts[k] = a->verdicts[k - 1];
        a->verdicts[k] = v;
    }
}

void advise(const struct figures *f, const struct wishes *w, struct advice *out) {
    struct tree t = {.f = f, .w = w, .out = out};
    *out = (struct advice){0};
    for (int k = 0; k < VERDICTS; k++) out->unseen[k] = advise_missing(f, (enum verdict_kind)k) != FIGURES;
    t.busy = fig(&t, F_BUSY);
    t.prefill_share = share_of_prefill(&t);
    t.waiting = queued(&t);
    out->traffic = fig(&t, F_REQUESTS) > 0 || fig(&t, F_STEPS) > 0 || fig(&t, F_RUNNING_MAX) > 0 ||
                   t.waiting > 0 || fig(&t, F_REFUSED) > 0 || fig(&t, F_CONNECTIONS_REFUSED) > 0 || fig(&t, F_LEFT) > 0 ||
                   fig(&t, F_INVALID) > 0 || fig(&t, F_FAILED) > 0;
    if (!out->traffic) return;
    find_step_model(&t);
    judge_slo(&t);
    t.pressed |= t.waiting >= 1 || fig(&t, F_REFUSED_SHARE) >= 0.01 || fig(&t, F_HELD_SEQS) >= 0.1 ||
                 fig(&t, F_HELD_KV) >= 0.1;
    out->bound = bound_of(&t);
    tree_tokens(&t);
    tree_device(&t);
    tree_batch(&t);
    tree_memory(&t);
    tree_rest(&t);
    advice_sort(out); /* equal ones in the order of the tree */
}
