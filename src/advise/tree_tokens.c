/* Too many tokens? */
#include "advise/tree_impl.h"

#include <math.h>

#define LEAST_PROMPTS   5    /* prompts compared before anything is said about them */
#define LEAST_DISPLACED 0.10 /* of the tokens compared */
#define RATIO_LONG      8    /* prompt tokens computed for each output token */
#define PROMPT_LONG     512  /* tokens of a prompt that are computed */
#define ANSWER_LONG     384
#define SLOW_PREFILL_MS 1000
#define SLOW_DECODE_MS  5000

static double computed_tokens(const struct tree *t) {
    return fmax(0, fig(t, F_PROMPT_TOKENS) - fig(t, F_CACHED_TOKENS));
}

/* Share of the prompt tokens computed that are displaced, of any cause. */
static double displaced_share(const struct tree *t) {
    double all = fig(t, F_FIELD_TOKENS) + fig(t, F_CUT_TOKENS) + fig(t, F_ORDER_TOKENS);
    double computed = computed_tokens(t);
    return computed > 0 ? fmin(1, all / computed) : 0;
}

struct displacement {
    enum verdict_kind kind;
    enum figure tokens, at;
    const char *what, *attempt;
};

static const struct displacement displacements[] = {
    {VERDICT_CHANGING_FIELD, F_FIELD_TOKENS, F_FIELD_AT,
     "a field that changes stands in front of text that stays (a date, an id, a name): after about %.0f "
     "tokens "
     "prompts differ, and %.0f %% of their tokens come again behind it without a prefix hit",
     "put what changes behind what stays: move the date, id or user's name from the start of the system "
     "prompt "
     "to its end, or into the last message%s"},
    {VERDICT_CUT_HISTORY, F_CUT_TOKENS, F_CUT_AT,
     "text in front is taken out or put in (a history cut at its oldest turns): after about %.0f tokens "
     "prompts "
     "differ, and %.0f %% of their tokens have moved and come again without a prefix hit",
     "cut the history seldom and in large parts (half of it at a time), not a turn with each request%s"},
    {VERDICT_CHANGING_ORDER, F_ORDER_TOKENS, F_ORDER_AT,
     "passages come in changing order: after about %.0f tokens prompts differ, and %.0f %% of their tokens "
     "were "
     "seen before, elsewhere, and get no prefix hit",
     "send passages, tools and examples in one order (by their id, not by score), those that most requests "
     "have in common first%s"},
};

static void displaced(struct tree *t, const struct displacement *d) {
    double compared = fig(t, F_COMPARED_TOKENS), tokens = fig(t, d->tokens), computed = computed_tokens(t);
    if (fig(t, F_COMPARED_PROMPTS) < LEAST_PROMPTS || !(compared > 0)) return;
    if (tokens < LEAST_DISPLACED * compared) return;
    double share = computed > 0 ? fmin(1, tokens / computed) : 1, gain = share * t->prefill_share;
    const enum figure rests[] = {d->tokens,  F_COMPARED_TOKENS, F_COMPARED_PROMPTS,
                                 F_HIT_RATE, F_PREFILL_SHARE,   FIGURES};
    struct verdict *v = tree_say(t, d->kind, gain, rests);
    double cached = fig(t, F_PROMPT_TOKENS) > 0 ? fig(t, F_CACHED_TOKENS) / fig(t, F_PROMPT_TOKENS) : 0;
    v->change = (struct verdict_change){
        .any = true, .cached_share = fmin(1, cached + tokens / compared), .prefix_caching = true};
    bool off = known(t, F_PREFIX_CACHING) && !fig(t, F_PREFIX_CACHING);
    tree_write(v->what, d->what, fig(t, d->at), 100 * tokens / compared);
    tree_write(
        v->expected,
        "%.0f %% less work: %.0f %% of the prompt tokens computed are displaced x %.0f %% of the work that "
        "prompts are",
        100 * v->gain, 100 * share, 100 * t->prefill_share);
    tree_write(v->attempt, d->attempt, off ? "; and turn on --enable-prefix-caching" : "");
    tree_write(v->falsified,
               "the prefix hit rate does not rise by about %.0f points once the text has been moved",
               100 * tokens / compared);
    tree_waste(t, v, tokens, v->gain);
}

/* Off with prompts that share their beginnings, or (not compared) with prompts that are much of the work. */
static void cache_off(struct tree *t) {
    if (!known(t, F_PREFIX_CACHING) || fig(t, F_PREFIX_CACHING) > 0) return;
    bool compared = fig(t, F_COMPARED_PROMPTS) >= LEAST_PROMPTS;
    double shared = compared ? fig(t, F_PREFIX_SHARE) : 0.5;
    if (shared < 0.1 || (!compared && (t->prefill_share < 0.3 || fig(t, F_PROMPT_MEAN) < 64))) return;
    static const enum figure rests[] = {F_PREFIX_CACHING, F_PREFIX_SHARE, F_COMPARED_PROMPTS,
                                        F_PREFILL_SHARE,  F_PROMPT_MEAN,  FIGURES};
    struct verdict *v = tree_say(t, VERDICT_PREFIX_CACHE_OFF, shared * t->prefill_share, rests);
    v->change = (struct verdict_change){.any = true, .prefix_caching = true, .cached_share = shared};
    if (compared)
        tree_write(v->what,
                   "prefix caching is off, and %.0f %% of the prompt tokens stand in a prefix that an "
                   "earlier prompt has",
                   100 * shared);
    else
        tree_write(v->what,
                   "prefix caching is off, and prompts are %.0f %% of the work; what they share is not "
                   "known without --prompt-statistics",
                   100 * t->prefill_share);
    tree_write(v->expected,
               "%.0f %% less work: %.0f %% of the prompt tokens%s x %.0f %% of the work that prompts are",
               100 * v->gain, 100 * shared, compared ? "" : " (half is supposed)", 100 * t->prefill_share);
    tree_write(v->attempt, "--enable-prefix-caching%s",
               compared ? "" : ", or --prompt-statistics first, to see");
    tree_write(v->falsified, "vllm:prefix_cache_hits_total stays below %.0f %% of its queries with it on",
               50 * shared);
    if (compared) tree_waste(t, v, shared * fig(t, F_COMPARED_TOKENS), v->gain);
}

static void long_prompts(struct tree *t) {
    double computed = computed_tokens(t) * (1 - displaced_share(t)), output = fig(t, F_OUTPUT_TOKENS);
    double requests = fig(t, F_REQUESTS);
    if (!(requests > 0) || t->prefill_share < 0.6 || computed < RATIO_LONG * output) return;
    if (computed / requests < PROMPT_LONG) return;
    if (!t->pressed && fig(t, F_PREFILL_MS) < SLOW_PREFILL_MS) return;
    static const enum figure rests[] = {F_PROMPT_TOKENS, F_CACHED_TOKENS, F_OUTPUT_TOKENS, F_PROMPT_MEAN,
                                        F_PREFILL_SHARE, F_PREFILL_MS,    FIGURES};
    struct verdict *v = tree_say(t, VERDICT_LONG_PROMPTS, t->prefill_share / 2, rests);
    v->change = (struct verdict_change){.any = true, .input_factor = 0.5};
    tree_write(
        v->what,
        "prompts are too long: %.0f tokens of each are computed, %.0f for each token of an answer, and "
        "they are %.0f %% of the work",
        computed / requests, output > 0 ? computed / output : computed, 100 * t->prefill_share);
    tree_write(v->expected,
               "%.0f %% less work with prompts half as long: half of the %.0f %% that prompts are",
               100 * v->gain, 100 * t->prefill_share);
    tree_write(v->attempt,
               "fewer or shorter passages (RAG: 3 chunks instead of 6), shorter instructions and tool "
               "lists, histories summed up; what all requests share goes to the front, where the "
               "cache finds it");
    tree_write(v->falsified, "halving the prompts does not halve prefill time (now %.0f ms a request)",
               fig(t, F_PREFILL_MS));
    tree_waste(t, v, computed / 2, v->gain);
}

static void long_answers(struct tree *t) {
    double decode_share = 1 - t->prefill_share, mean = fig(t, F_OUTPUT_MEAN), cap = fig(t, F_MAX_TOKENS_MEAN);
    if (mean < ANSWER_LONG || decode_share < 0.6) return;
    if (!t->pressed && fig(t, F_DECODE_MS) < SLOW_DECODE_MS) return;
    double beyond = known(t, F_OUTPUT_BEYOND) ? fig(t, F_OUTPUT_BEYOND) : 1 - 256 / mean;
    if (beyond < 0.25) return;
    static const enum figure rests[] = {F_OUTPUT_MEAN,  F_OUTPUT_BEYOND, F_MAX_TOKENS_MEAN,
                                        F_LENGTH_SHARE, F_PREFILL_SHARE, F_DECODE_MS,
                                        FIGURES};
    struct verdict *v = tree_say(t, VERDICT_LONG_ANSWERS, beyond * decode_share, rests);
    v->change = (struct verdict_change){.any = true, .output_factor = fmax(0.01, 1 - beyond)};
    bool uncapped = cap >= 4 * mean || (known(t, F_MAX_MODEL_LEN) && cap >= 0.5 * fig(t, F_MAX_MODEL_LEN));
    tree_write(v->what,
               "answers are long: %.0f tokens in the mean, %.0f %% of all output is beyond the 256th token%s",
               mean, 100 * beyond,
               uncapped ? "; requests set no useful max_tokens" : "; max_tokens of the requests allow it");
    tree_write(v->expected,
               "%.0f %% less work with answers of at most 256 tokens: %.0f %% of the output x %.0f %% of "
               "the work that answers are",
               100 * v->gain, 100 * beyond, 100 * decode_share);
    tree_write(v->attempt, "\"max_tokens\": 256 in the requests%s, and a prompt that asks for short answers",
               fig(t, F_LENGTH_SHARE) > 0.3 ? " (many end only because they reach their limit)" : "");
    tree_write(v->falsified, "answers of at most 256 tokens do not lower E2E P95 in proportion");
    tree_waste(t, v, beyond * fig(t, F_OUTPUT_TOKENS), v->gain);
}

void tree_tokens(struct tree *t) {
    for (size_t i = 0; i < sizeof displacements / sizeof *displacements; i++) displaced(t, &displacements[i]);
    cache_off(t);
    long_prompts(t);
    long_answers(t);
}
