/* The scheduler's limits, the queue, and who is waited for. */
#include "advise/tree_impl.h"

#include <math.h>

#define STEP_MS                                                                                              \
    200 /* a step that long keeps everyone else waiting: what --enable-chunked-prefill aims at               \
         */

/* Sequences of a step that keep the SLO of a token. */
static double allowed_by_slo(const struct tree *t) {
    double slo = t->w->slo.tpot_ms;
    if (!(slo > 0) || !(t->token_ms > 0)) return HUGE_VAL;
    return fmax(0, floor((slo - t->fixed_ms) / t->token_ms));
}

/* Sequences that a step could have if nobody had to wait or was refused. */
static double wanted(const struct tree *t, double n) {
    double refused = fmin(0.9, fig(t, F_REFUSED_SHARE));
    return fmin(n + fmax(t->waiting, n * refused / (1 - refused)), 4 * n);
}

static void batch_limit(struct tree *t) {
    double most = fig(t, F_MAX_NUM_SEQS), n = fig(t, F_DECODE_STEP_TOKENS);
    bool full =
        fig(t, F_HELD_SEQS) >= 0.1 || (fig(t, F_REFUSED_SHARE) >= 0.01 && fig(t, F_RUNNING) >= 0.7 * most);
    if (!known(t, F_MAX_NUM_SEQS) || !full) return;
    if (!(n > 0)) n = fmax(1, fig(t, F_RUNNING));
    double m = fmin(wanted(t, n), allowed_by_slo(t));
    double gain = tree_batch_gain(t, n, m);
    if (gain < 0.05) return;
    static const enum figure rests[] = {F_HELD_SEQS,       F_MAX_NUM_SEQS, F_RUNNING,
                                        F_WAITING,         F_QUEUE_MS,     F_DECODE_FIXED_MS,
                                        F_DECODE_TOKEN_MS, F_KV_USAGE_MAX, FIGURES};
    double flag = ceil(fmax(most + 1, most * m / n));
    struct verdict *v = tree_say(t, VERDICT_BATCH_LIMIT, gain, rests);
    v->change = (struct verdict_change){.any = true, .max_num_seqs = flag};
    tree_write(
        v->what,
        "--max-num-seqs %.0f is too low: %.0f %% of the steps left requests waiting for a place, with KV at "
        "most %.0f %% full",
        most, 100 * fig(t, F_HELD_SEQS), 100 * fig(t, F_KV_USAGE_MAX));
    tree_write(v->expected,
               "%.0f %% less time a token with %.1f sequences a step instead of %.1f: a step takes %.2f ms + "
               "%.2f ms "
               "for each%s",
               100 * v->gain, m, n, t->fixed_ms, t->token_ms,
               t->fitted ? "" : " (supposed: all steps were alike)");
    tree_write(v->attempt, "--max-num-seqs %.0f", flag);
    tree_write(v->falsified, "output tok/s does not rise by %.0f %% under the same load",
               100 * (1 / (1 - v->gain) - 1));
}

/* Prompts in parts so small that the fixed part of a step is paid too often. */
static void token_budget(struct tree *t) {
    double budget = fig(t, F_MAX_BATCHED_TOKENS), rows = fig(t, F_PREFILL_STEP_TOKENS);
    if (!known(t, F_MAX_BATCHED_TOKENS) || budget >= 1024 || rows < fmax(1, 0.7 * budget)) return;
    if (known(t, F_CHUNKED_PREFILL) && !fig(t, F_CHUNKED_PREFILL)) return;
    bool fitted = known(t, F_STEP_FIXED_MS) && fig(t, F_STEP_FIXED_MS) > 0;
    double token = fitted ? fig(t, F_STEP_TOKEN_MS) : fig(t, F_PREFILL_STEP_MS) / (rows + 16);
    double fixed = fitted ? fig(t, F_STEP_FIXED_MS) : 16 * token;
    if (!(token > 0)) return;
    double better = fmax(rows, fmin(2048, fmax((STEP_MS - fixed) / token, 2 * budget)));
    double gain = t->prefill_share * (1 - (fixed / better + token) / (fixed / rows + token));
    if (gain < 0.04) return;
    static const enum figure rests[] = {
        F_MAX_BATCHED_TOKENS, F_PREFILL_STEP_TOKENS, F_PREFILL_STEP_MS, F_STEP_FIXED_MS,
        F_STEP_TOKEN_MS,      F_HELD_TOKENS,         F_PREFILL_SHARE,   FIGURES};
    struct verdict *v = tree_say(t, VERDICT_TOKEN_BUDGET, gain, rests);
    v->change = (struct verdict_change){.any = true, .max_batched_tokens = 2048};
    tree_write(
        v->what,
        "--max-num-batched-tokens %.0f is too low: steps with prompts have %.0f tokens, and pay %.2f ms "
        "each whatever they compute",
        budget, rows, fixed);
    tree_write(v->expected,
               "%.0f %% less work: with %.0f tokens a step, %.3f instead of %.3f ms a token%s, x %.0f %% of "
               "the work that prompts are",
               100 * v->gain, better, fixed / better + token, fixed / rows + token,
               fitted ? "" : " (supposed)", 100 * t->prefill_share);
    tree_write(v->attempt, "--max-num-batched-tokens 2048 (steps are kept to about 200 ms anyway)");
    tree_write(v->falsified, "prompt tokens a second do not rise");
}

/* Whole prompts in one step: everyone else stands still meanwhile. */
static void chunked_off(struct tree *t) {
    double step = fig(t, F_PREFILL_STEP_MS), decode = fig(t, F_DECODE_STEP_MS), itl = fig(t, F_ITL_P99);
    if (!known(t, F_CHUNKED_PREFILL) || fig(t, F_CHUNKED_PREFILL) > 0 || !(decode > 0)) return;
    if (!(fig(t, F_OUTPUT_TOKENS) > 0) || step < 3 * decode || step < STEP_MS / 2.0) return;
    static const enum figure rests[] = {F_CHUNKED_PREFILL,
                                        F_PREFILL_STEP_MS,
                                        F_PREFILL_STEP_TOKENS,
                                        F_DECODE_STEP_MS,
                                        F_ITL_P99,
                                        F_PREFILL_SHARE,
                                        FIGURES};
    double gain = t->prefill_share * fmax(0.25, 1 - STEP_MS / step);
    struct verdict *v = tree_say(t, VERDICT_CHUNKED_PREFILL_OFF, gain, rests);
    v->change = (struct verdict_change){.any = true, .chunked_prefill = true};
    tree_write(v->what,
               "chunked prefill is off: a step with a prompt takes %.0f ms, in which running answers get one "
               "token; a decode step takes %.1f ms (ITL P99 %.0f ms)",
               step, decode, itl);
    tree_write(v->expected,
               "answers stand still for %.0f %% less of the time: prompts' share of the work x (1 - 200 ms "
               "/ step with prompts), a quarter of it at least",
               100 * v->gain);
    tree_write(v->attempt, "--enable-chunked-prefill (the default)");
    tree_write(v->falsified, "ITL P99 stays above %.0f ms", fmax(STEP_MS, 2 * decode));
}

/* The SLO of a token is missed, although a smaller step would keep it. */
static void batch_too_large(struct tree *t) {
    double slo = t->w->slo.tpot_ms, n = fig(t, F_DECODE_STEP_TOKENS), allowed = allowed_by_slo(t);
    if (!t->out->slo_known[1] || t->out->slo_met[1] || n < 2) return;
    if (allowed < 1 || allowed >= floor(n) || tree_said(t, VERDICT_BATCH_LIMIT)) return;
    static const enum figure rests[] = {
        F_TPOT_P95,        F_DECODE_STEP_TOKENS, F_DECODE_STEP_MS, F_DECODE_FIXED_MS,
        F_DECODE_TOKEN_MS, F_MAX_NUM_SEQS,       FIGURES};
    struct verdict *v =
        tree_say(t, VERDICT_BATCH_TOO_LARGE, 1 - tree_step_ms(t, allowed) / tree_step_ms(t, n), rests);
    v->change = (struct verdict_change){.any = true, .max_num_seqs = allowed};
    tree_write(v->what,
               "too many sequences share a step for the SLO: TPOT P95 is %.1f ms, %g are wanted, with %.1f "
               "sequences a step",
               fig(t, F_TPOT_P95), slo, n);
    tree_write(v->expected,
               "TPOT %.0f %% lower: %.2f ms + %.2f ms for each of %.0f sequences%s; others wait meanwhile",
               100 * v->gain, t->fixed_ms, t->token_ms, allowed, t->fitted ? "" : " (supposed)");
    tree_write(v->attempt, "--max-num-seqs %.0f", allowed);
    tree_write(v->falsified, "TPOT P95 stays above %g ms with it", slo);
}

static void queue_limit(struct tree *t) {
    double share = fig(t, F_REFUSED_SHARE);
    if (!known(t, F_BUSY) || share < 0.01 || fig(t, F_REFUSED) < 3) return;
    if (t->busy >= 0.85) return; /* it has enough to do: a longer queue would only wait longer */
    static const enum figure rests[] = {F_REFUSED,      F_REFUSED_SHARE, F_BUSY, F_MAX_QUEUE,
                                        F_MAX_NUM_SEQS, F_RUNNING,       FIGURES};
    struct verdict *v = tree_say(t, VERDICT_QUEUE_LIMIT, share, rests);
    tree_write(v->what,
               "%.0f %% of the requests are refused because the queue is full, while the device is idle %.0f "
               "%% of the time: bursts do not fit --max-queue",
               100 * share, 100 * (1 - t->busy));
    tree_write(v->expected, "%.0f %% more of the requests answered: those refused", 100 * share);
    tree_write(v->attempt, "--max-queue %.0f", fmax(64, 4 * fig(t, F_MAX_QUEUE)));
    tree_write(v->falsified, "quire_requests_total{outcome=\"overloaded\"} goes on rising with it");
}

static void connection_limit(struct tree *t) {
    double refused = fig(t, F_CONNECTIONS_REFUSED);
    if (refused < 1) return;
    static const enum figure rests[] = {F_CONNECTIONS_REFUSED, F_REQUESTS, F_BUSY, FIGURES};
    struct verdict *v =
        tree_say(t, VERDICT_CONNECTION_LIMIT, refused / (refused + fig(t, F_REQUESTS)), rests);
    tree_write(v->what,
               "%.0f connections were refused: there were more than --max-connections, or no descriptor was "
               "left",
               refused);
    tree_write(v->expected, "%.0f %% more answered: connections refused over these and requests",
               100 * v->gain);
    tree_write(v->attempt, "a larger --max-connections and `ulimit -n`; clients that keep their connections");
    tree_write(v->falsified, "quire_connections_refused_total goes on rising with it");
}

static void slow_readers(struct tree *t) {
    double behind = fig(t, F_BEHIND), closed = fig(t, F_SLOW_READERS), running = fig(t, F_RUNNING);
    if (closed < 1 && (behind < 0.3 || behind < 0.1 * (running + t->waiting))) return;
    double gain = fmax(0.02, behind > 0 ? behind / fmax(behind, running + t->waiting) : 0);
    static const enum figure rests[] = {F_BEHIND,  F_SLOW_READERS, F_RUNNING,
                                        F_WAITING, F_KV_USAGE_MAX, FIGURES};
    struct verdict *v = tree_say(t, VERDICT_SLOW_READERS, gain, rests);
    tree_write(v->what,
               "clients read their answers too slowly: %.1f sequences stand still for them in the mean, %.0f "
               "connections were closed",
               behind, closed);
    tree_write(v->expected,
               "%.0f %% of the sequences' places and KV are free again: those that stand still, 2 %% at "
               "least",
               100 * v->gain);
    tree_write(v->attempt,
               "at the clients: read streams at once and in a thread of their own; no proxy that stops "
               "reading; smaller answers (no logprobs)");
    tree_write(v->falsified,
               "quire_num_requests_behind stays above 0 with a client on the server's own machine");
}

/* What was computed for those who did not wait for it is lost. */
static void clients_leave(struct tree *t) {
    double share = fig(t, F_LEFT_SHARE);
    if (share < 0.1 || fig(t, F_LEFT) < 3) return;
    static const enum figure rests[] = {F_LEFT,     F_LEFT_SHARE, F_REQUESTS, F_TTFT_P95,
                                        F_QUEUE_MS, F_E2E_P95,    F_WAITING,  FIGURES};
    struct verdict *v = tree_say(t, VERDICT_CLIENTS_LEAVE, share, rests);
    tree_write(v->what,
               "%.0f %% of the requests are given up by their clients before the answer has ended", 100 * share);
    tree_write(v->expected, "%.0f %% more of the requests answered, and what is computed for them not lost",
               100 * share);
    tree_write(v->attempt,
               "a longer time limit in the clients, or in the proxy before the server; streamed answers; where "
               "requests wait, fewer at once or what is said here about the queue");
    tree_write(v->falsified, "quire_requests_total{outcome=\"client_gone\"} rises as fast with it");
}

static void failing(struct tree *t) {
    double invalid = fig(t, F_INVALID_SHARE), failed = fig(t, F_FAILED_SHARE);
    if (invalid < 0.1 || fig(t, F_INVALID) < 3) invalid = 0;
    if (failed < 0.01 || fig(t, F_FAILED) < 1) failed = 0;
    if (!(invalid + failed > 0)) return;
    static const enum figure rests[] = {F_INVALID,      F_INVALID_SHARE, F_FAILED,
                                        F_FAILED_SHARE, F_REQUESTS,      FIGURES};
    struct verdict *v = tree_say(t, VERDICT_FAILING_REQUESTS, invalid + failed, rests);
    tree_write(v->what,
               "%.0f %% of the requests are answered 4xx (they cannot be served as they are), %.0f %% fail (5xx)",
               100 * fig(t, F_INVALID_SHARE), 100 * fig(t, F_FAILED_SHARE));
    tree_write(v->expected, "%.0f %% more of the requests answered: those refused or failed", 100 * v->gain);
    tree_write(v->attempt, "%s",
               failed > 0 ? "the server's log: it names what failed; clients should not repeat at once"
                          : "read one of the answers: error.message and error.param name the field and what is "
                            "allowed (often prompt and max_tokens beyond --max-model-len)");
    tree_write(v->falsified, "quire_requests_total{outcome=\"invalid\"} and \"failed\" rise as fast with it");
}

void tree_batch(struct tree *t) {
    batch_limit(t);
    token_budget(t);
    chunked_off(t);
    batch_too_large(t);
    queue_limit(t);
    connection_limit(t);
    slow_readers(t);
    clients_leave(t);
    failing(t);
}
