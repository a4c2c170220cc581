/* Is KV memory the bottleneck? */
#include "advise/tree_impl.h"

#include <math.h>

#define GIB 1073741824.0

static double preempted_share(const struct tree *t) {
    double n = fig(t, F_PREEMPTIONS), requests = fig(t, F_REQUESTS);
    if (known(t, F_KV_USAGE_MAX) && fig(t, F_KV_USAGE_MAX) < 0.5) return 0; /* those of slow readers */
    return n > 0 ? n / fmax(n, fmax(1, requests)) : 0;
}

/* Requests wait for blocks of sequences that may become long and do not. */
static bool reserved(const struct tree *t) {
    return fig(t, F_HELD_KV) >= 0.1 && known(t, F_KV_USAGE) && fig(t, F_KV_USAGE_MAX) < 0.6 &&
           fig(t, F_MAX_TOKENS_MEAN) >= 4 * fmax(1, fig(t, F_OUTPUT_MEAN));
}

static double needed_bytes(const struct tree *t) {
    double tokens = (fmax(1, fig(t, F_RUNNING_MAX)) + fmax(t->waiting, fig(t, F_WAITING_MAX))) *
                    fmax(1, fig(t, F_PROMPT_MEAN) + fig(t, F_OUTPUT_MEAN));
    double have = fig(t, F_KV_TOKENS), bytes = fig(t, F_KV_BYTES);
    if (!(have > 0) || !(bytes > 0)) return 0;
    return fmax(2 * bytes, 1.25 * tokens / have * bytes);
}

static void pool(struct tree *t) {
    double recomputed = fig(t, F_RECOMPUTED_SHARE), preempted = preempted_share(t), held = fig(t, F_HELD_KV);
    bool full = known(t, F_HELD_KV) ? held >= 0.1 : t->waiting >= 1 && fig(t, F_KV_USAGE_MAX) >= 0.9;
    if ((!full && recomputed < 0.02 && preempted < 0.02) || reserved(t)) return;
    double n = fig(t, F_DECODE_STEP_TOKENS), most = known(t, F_MAX_NUM_SEQS) ? fig(t, F_MAX_NUM_SEQS) : 256;
    if (!(n > 0)) n = fmax(1, fig(t, F_RUNNING));
    double m = fmin(fmax(n, most), fmin(4 * n, n + t->waiting));
    double batch = full ? tree_batch_gain(t, n, m) : 0, bytes = needed_bytes(t),
           machine = fig(t, F_MACHINE_BYTES);
    double gain = fmax(0.03, 1 - (1 - batch) * (1 - recomputed));
    static const enum figure rests[] = {F_HELD_KV,     F_KV_USAGE,         F_KV_USAGE_MAX,
                                        F_PREEMPTIONS, F_RECOMPUTED_SHARE, F_WAITING,
                                        F_QUEUE_MS,    F_KV_TOKENS,        FIGURES};
    struct verdict *v = tree_say(t, VERDICT_KV_POOL, gain, rests);
    v->change = (struct verdict_change){.any = true, .kv_factor = bytes > 0 ? bytes / fig(t, F_KV_BYTES) : 2};
    tree_write(v->what,
               "KV memory is too small: at most %.0f %% full, %.0f %% of the steps left requests waiting for "
               "blocks, %.0f preemptions, %.1f %% of the tokens computed again",
               100 * fig(t, F_KV_USAGE_MAX), 100 * held, fig(t, F_PREEMPTIONS), 100 * recomputed);
    tree_write(v->expected,
               "%.0f %% less time a token: %.1f sequences a step instead of %.1f%s, and nothing computed "
               "again; 3 %% at least",
               100 * v->gain, m, n, t->fitted ? "" : " (supposed cost of a step)");
    if (bytes > 0 && machine > 0 && fig(t, F_PLAN_BYTES) - fig(t, F_KV_BYTES) + bytes > 0.95 * machine)
        tree_write(v->attempt,
                   "the machine has no more memory: shorter prompts and max_tokens, a smaller weight format, "
                   "or a second server");
    else if (bytes > 0)
        tree_write(v->attempt,
                   "--kv-cache-memory-bytes %.0fMi (now %.0fMi), or a larger --gpu-memory-utilization",
                   ceil(bytes / 1048576), fig(t, F_KV_BYTES) / 1048576);
    else
        tree_write(v->attempt,
                   "more KV memory: a larger --gpu-memory-utilization, a smaller --max-model-len, or a KV "
                   "type of fewer bits");
    tree_write(v->falsified, "requests still wait for blocks, or output tok/s stays, with twice the memory");
}

/* Prefixes are seen again after the cache has forgotten them. */
static void cache(struct tree *t) {
    double could = fig(t, F_PREFIX_SHARE), hits = fig(t, F_HIT_RATE), missed = could - hits;
    if (!known(t, F_HIT_RATE) || fig(t, F_COMPARED_PROMPTS) < 20 || fig(t, F_EVICTIONS) < 1 || missed < 0.2)
        return;
    if (known(t, F_PREFIX_CACHING) && !fig(t, F_PREFIX_CACHING)) return;
    static const enum figure rests[] = {F_PREFIX_SHARE, F_HIT_RATE,      F_EVICTIONS,
                                        F_KV_TOKENS,    F_PREFILL_SHARE, FIGURES};
    double gain = missed / fmax(0.01, 1 - hits) * t->prefill_share;
    struct verdict *v = tree_say(t, VERDICT_CACHE_TOO_SMALL, gain, rests);
    v->change = (struct verdict_change){.any = true, .kv_factor = 2, .cached_share = could};
    tree_write(
        v->what,
        "the prefix cache forgets too early: %.0f %% of the prompt tokens stand in a prefix seen before, "
        "%.0f %% are found; %.0f blocks were evicted",
        100 * could, 100 * hits, fig(t, F_EVICTIONS));
    tree_write(v->expected,
               "%.0f %% less work: the tokens missed over those computed x %.0f %% of the work that prompts "
               "are",
               100 * v->gain, 100 * t->prefill_share);
    tree_write(v->attempt,
               "more KV memory (--kv-cache-memory-bytes, --gpu-memory-utilization); requests with the same "
               "prefix to the same server");
    tree_write(v->falsified, "the hit rate stays below %.0f %% with twice the memory",
               100 * (hits + missed / 2));
    tree_waste(t, v, missed * fig(t, F_COMPARED_TOKENS), v->gain);
}

static void say_reserved(struct tree *t) {
    static const enum figure rests[] = {F_HELD_KV,     F_KV_USAGE, F_KV_USAGE_MAX, F_MAX_TOKENS_MEAN,
                                        F_OUTPUT_MEAN, F_QUEUE_MS, FIGURES};
    double n = fmax(1, fig(t, F_DECODE_STEP_TOKENS)), m = fmin(4 * n, n + t->waiting);
    struct verdict *v = tree_say(t, VERDICT_CONTEXT_RESERVED, fmax(0.03, tree_batch_gain(t, n, m)), rests);
    tree_write(
        v->what,
        "requests wait for KV blocks that are kept for lengths that do not come: KV is at most %.0f %% "
        "full, max_tokens is %.0f in the mean, answers have %.0f",
        100 * fig(t, F_KV_USAGE_MAX), fig(t, F_MAX_TOKENS_MEAN), fig(t, F_OUTPUT_MEAN));
    tree_write(v->expected,
               "%.0f %% less time a token with %.1f sequences a step instead of %.1f; 3 %% at least",
               100 * v->gain, m, n);
    tree_write(v->attempt, "max_tokens of %.0f in the requests, or a --max-model-len nearer to what is used",
               ceil(2 * fmax(8, fig(t, F_OUTPUT_MEAN))));
    tree_write(v->falsified, "the share of steps that leave requests waiting for blocks stays at %.0f %%",
               100 * fig(t, F_HELD_KV));
}

/* Most of the machine's memory is KV memory for lengths that nobody asks for. */
static void context(struct tree *t) {
    double plan = fig(t, F_PLAN_BYTES), machine = fig(t, F_MACHINE_BYTES), kv = fig(t, F_KV_BYTES);
    double longest = fig(t, F_LONGEST), most = fig(t, F_MAX_MODEL_LEN), use = fig(t, F_KV_USAGE_MAX);
    if (reserved(t)) say_reserved(t);
    if (reserved(t) || tree_said(t, VERDICT_KV_POOL) || !known(t, F_KV_USAGE_MAX) || !(machine > 0) ||
        !(longest > 0) || fig(t, F_REQUESTS) < 5)
        return;
    if (plan < 0.6 * machine || kv < 0.5 * plan || use > 0.1 || 8 * longest > most) return;
    static const enum figure rests[] = {F_MAX_MODEL_LEN, F_LONGEST,       F_KV_USAGE_MAX, F_KV_BYTES,
                                        F_PLAN_BYTES,    F_MACHINE_BYTES, FIGURES};
    double free_bytes = kv * (1 - fmax(2 * use, 0.1));
    struct verdict *v = tree_say(t, VERDICT_CONTEXT_RESERVED, 0, rests);
    tree_write(v->what,
               "context is reserved that nobody uses: --max-model-len %.0f, the longest requests have about "
               "%.0f tokens, and of %.1f GiB of KV memory at most %.1f %% is in use",
               most, longest, kv / GIB, 100 * use);
    tree_write(v->expected, "no time, but %.1f GiB of memory: what is more than twice the most in use",
               free_bytes / GIB);
    tree_write(v->attempt, "--max-model-len %.0f, or --kv-cache-memory-bytes %.0fMi",
               ceil(2 * longest / 256) * 256, ceil((kv - free_bytes) / 1048576));
    tree_write(v->falsified, "requests are refused for their length, or KV becomes full, with it");
}

void tree_memory(struct tree *t) {
    pool(t);
    cache(t);
    context(t);
}
