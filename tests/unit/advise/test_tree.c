/* The tree as a function of figures: planted causes are named, healthy servers are left alone, and whatever
 * the figures are, what is said is finite, in order and free of contradictions. */
#include "advise/show.h"

#include <jansson.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

struct setting {
    enum figure figure;
    double v;
};

static void put(struct figures *f, const struct setting *s, size_t n) {
    for (size_t i = 0; i < n; i++) figures_set(f, s[i].figure, s[i].v);
}

#define PUT(f, ...)                                                                                          \
    do {                                                                                                     \
        const struct setting settings[] = {__VA_ARGS__};                                                     \
        put(f, settings, sizeof settings / sizeof *settings);                                                \
    } while (0)

/* Two cores, a quantized model of 135M, chat with a shared system prompt: half of the time in steps. */
static struct figures healthy(void) {
    struct figures f = {.server = "http://x", .software = "quire", .is_quire = true};
    PUT(&f, {F_WINDOW_S, 60}, {F_REQUESTS, 120}, {F_PROMPT_TOKENS, 36000}, {F_CACHED_TOKENS, 18000},
        {F_OUTPUT_TOKENS, 12000}, {F_PROMPT_MEAN, 300}, {F_OUTPUT_MEAN, 100}, {F_OUTPUT_BEYOND, 0.05},
        {F_MAX_TOKENS_MEAN, 256}, {F_LENGTH_SHARE, 0.1}, {F_LONGEST, 900});
    PUT(&f, {F_TTFT_P95, 180}, {F_TPOT_P95, 14}, {F_E2E_P95, 2000}, {F_ITL_P99, 60}, {F_QUEUE_MS, 3},
        {F_PREFILL_MS, 90}, {F_DECODE_MS, 1300}, {F_STEPS, 4000}, {F_BUSY, 0.55}, {F_UTILIZATION, 0.3},
        {F_PREFILL_SHARE, 0.3}, {F_DECODE_STEP_TOKENS, 3}, {F_DECODE_STEP_MS, 10},
        {F_PREFILL_STEP_TOKENS, 160}, {F_PREFILL_STEP_MS, 90}, {F_DECODE_FIXED_MS, 6},
        {F_DECODE_TOKEN_MS, 1.3}, {F_STEP_FIXED_MS, 6}, {F_STEP_TOKEN_MS, 0.55}, {F_HELD_SEQS, 0},
        {F_HELD_KV, 0}, {F_HELD_TOKENS, 0}, {F_HELD_TIME, 0.01});
    PUT(&f, {F_RUNNING, 3}, {F_RUNNING_MAX, 8}, {F_WAITING, 0.1}, {F_WAITING_MAX, 2}, {F_BEHIND, 0},
        {F_KV_USAGE, 0.1}, {F_KV_USAGE_MAX, 0.3}, {F_KV_TOKENS, 23000}, {F_KV_BYTES, 536e6},
        {F_PREEMPTIONS, 0}, {F_RECOMPUTED_SHARE, 0}, {F_HIT_RATE, 0.5}, {F_EVICTIONS, 0},
        {F_PLAN_BYTES, 733e6}, {F_MACHINE_BYTES, 16e9}, {F_REFUSED, 0}, {F_REFUSED_SHARE, 0},
        {F_CONNECTIONS_REFUSED, 0}, {F_SLOW_READERS, 0});
    PUT(&f, {F_CORES, 2}, {F_THREADS, 2}, {F_CPU_USED, 1.1}, {F_CPU_WAIT, 0.05}, {F_CPU_OTHERS, 0.1},
        {F_CPU_STEAL, 0}, {F_THROTTLED_SHARE, 0}, {F_PATH, 1}, {F_PATH_BEST, 1}, {F_WEIGHT_BYTES, 96e6},
        {F_WEIGHT_BITS, 5}, {F_MAX_NUM_SEQS, 64}, {F_MAX_BATCHED_TOKENS, 2048}, {F_MAX_MODEL_LEN, 8192},
        {F_MAX_QUEUE, 1024}, {F_PREFIX_CACHING, 1}, {F_CHUNKED_PREFILL, 1}, {F_COMPARED_PROMPTS, 120},
        {F_COMPARED_TOKENS, 36000}, {F_PREFIX_SHARE, 0.5}, {F_FIELD_TOKENS, 0}, {F_CUT_TOKENS, 0},
        {F_ORDER_TOKENS, 0});
    return f;
}

static struct advice judge(const struct figures *f, const struct wishes *w) {
    static const struct wishes nothing;
    struct advice a;
    advise(f, w ? w : &nothing, &a);
    return a;
}

static const struct verdict *find(const struct advice *a, enum verdict_kind kind) {
    for (size_t i = 0; i < a->n; i++)
        if (a->verdicts[i].kind == kind) return &a->verdicts[i];
    return NULL;
}

static void print(const struct advice *a) {
    for (size_t i = 0; i < a->n; i++)
        print_message("  %s %.2f: %s\n", verdict_names[a->verdicts[i].kind], a->verdicts[i].gain,
                      a->verdicts[i].what);
}

/* ---- planted causes ---- */

struct situation {
    const char *name;
    enum verdict_kind kind;
    struct setting changed[12]; /* ended by window 0 */
    struct wishes wishes;
};

#define END                                                                                                  \
    { F_WINDOW_S, 0 }

static const struct situation planted[] = {
    {"oversized prompts",
     VERDICT_LONG_PROMPTS,
     {{F_PROMPT_TOKENS, 360000},
      {F_CACHED_TOKENS, 6000},
      {F_PROMPT_MEAN, 3000},
      {F_PREFILL_SHARE, 0.85},
      {F_PREFILL_MS, 2500},
      {F_OUTPUT_TOKENS, 6000},
      {F_BUSY, 0.9},
      {F_COMPARED_TOKENS, 360000},
      END},
     {{0, 0, 0, 0, 0, 0, 0, 0}, 0}},
    {"timestamp first in the system prompt",
     VERDICT_CHANGING_FIELD,
     {{F_CACHED_TOKENS, 0},
      {F_HIT_RATE, 0},
      {F_FIELD_TOKENS, 22000},
      {F_FIELD_AT, 0},
      {F_PREFIX_SHARE, 0.02},
      END},
     {{0, 0, 0, 0, 0, 0, 0, 0}, 0}},
    {"user name after 32 tokens, low load",
     VERDICT_CHANGING_FIELD,
     {{F_CACHED_TOKENS, 3000},
      {F_HIT_RATE, 0.1},
      {F_FIELD_TOKENS, 9000},
      {F_FIELD_AT, 32},
      {F_BUSY, 0.1},
      END},
     {{0, 0, 0, 0, 0, 0, 0, 0}, 2.0}},
    {"history cut at its front",
     VERDICT_CUT_HISTORY,
     {{F_CUT_TOKENS, 20000}, {F_CUT_AT, 128}, END},
     {{0, 0, 0, 0, 0, 0, 0, 0}, 0}},
    {"passages in changing order",
     VERDICT_CHANGING_ORDER,
     {{F_ORDER_TOKENS, 12000}, {F_ORDER_AT, 64}, END},
     {{0, 0, 0, 0, 0, 0, 0, 0}, 0}},
    {"pool too small: preemptions",
     VERDICT_KV_POOL,
     {{F_KV_USAGE, 0.95},
      {F_KV_USAGE_MAX, 1},
      {F_PREEMPTIONS, 40},
      {F_RECOMPUTED_SHARE, 0.2},
      {F_HELD_KV, 0.8},
      {F_WAITING, 4},
      {F_BUSY, 0.98},
      END},
     {{0, 0, 0, 0, 0, 0, 0, 0}, 0}},
    {"pool too small: only waiting",
     VERDICT_KV_POOL,
     {{F_KV_USAGE, 0.93}, {F_KV_USAGE_MAX, 0.97}, {F_HELD_KV, 0.5}, {F_WAITING, 6}, {F_BUSY, 0.97}, END},
     {{0, 0, 0, 0, 0, 0, 0, 0}, 0}},
    {"cache too small",
     VERDICT_CACHE_TOO_SMALL,
     {{F_PREFIX_SHARE, 0.8}, {F_HIT_RATE, 0.2}, {F_EVICTIONS, 900}, END},
     {{0, 0, 0, 0, 0, 0, 0, 0}, 0}},
    {"batch limit too low",
     VERDICT_BATCH_LIMIT,
     {{F_MAX_NUM_SEQS, 2},
      {F_DECODE_STEP_TOKENS, 1.9},
      {F_DECODE_STEP_MS, 8.5},
      {F_HELD_SEQS, 0.9},
      {F_WAITING, 6},
      {F_RUNNING, 2},
      {F_RUNNING_MAX, 2},
      {F_QUEUE_MS, 900},
      {F_BUSY, 0.98},
      END},
     {{0, 0, 0, 0, 0, 0, 0, 0}, 0}},
    {"one sequence at a time, and no queue",
     VERDICT_BATCH_LIMIT,
     {{F_MAX_NUM_SEQS, 1},
      {F_MAX_QUEUE, 0},
      {F_DECODE_STEP_TOKENS, 1},
      {F_REFUSED, 200},
      {F_REFUSED_SHARE, 0.6},
      {F_RUNNING, 1},
      {F_RUNNING_MAX, 1},
      {F_BUSY, 0.97},
      END},
     {{0, 0, 0, 0, 0, 0, 0, 0}, 0}},
    {"starved by others",
     VERDICT_CPU_STARVED,
     {{F_CPU_WAIT, 1.1}, {F_CPU_USED, 0.7}, {F_CPU_OTHERS, 1.2}, END},
     {{0, 0, 0, 0, 0, 0, 0, 0}, 0}},
    {"throttled by its group",
     VERDICT_CPU_STARVED,
     {{F_THROTTLED_SHARE, 0.4}, END},
     {{0, 0, 0, 0, 0, 0, 0, 0}, 0}},
    {"cores stolen by the host",
     VERDICT_CPU_STARVED,
     {{F_CPU_STEAL, 0.6}, END},
     {{0, 0, 0, 0, 0, 0, 0, 0}, 0}},
    {"one thread",
     VERDICT_THREADS,
     {{F_THREADS, 1}, {F_CORES, 8}, {F_CPU_USED, 0.9}, {F_BUSY, 0.9}, END},
     {{0, 0, 0, 0, 0, 0, 0, 0}, 0}},
    {"more threads than cores",
     VERDICT_THREADS,
     {{F_THREADS, 5}, {F_CPU_WAIT, 1.5}, {F_BUSY, 0.9}, END},
     {{0, 0, 0, 0, 0, 0, 0, 0}, 0}},
    {"reference kernels", VERDICT_CPU_PATH, {{F_PATH, 0}, {F_BUSY, 0.9}, END}, {{0, 0, 0, 0, 0, 0, 0, 0}, 0}},
    {"AVX2 where AMX is",
     VERDICT_CPU_PATH,
     {{F_PATH_BEST, 3}, {F_BUSY, 0.3}, END},
     {{0, 0, 0, 0, 0, 0, 0, 0}, 0}},
    {"TPOT that no setting gives",
     VERDICT_SLO_IMPOSSIBLE,
     {{F_TPOT_P95, 14}, {F_BUSY, 0.5}, END},
     {{0, 2, 0, 0, 0, 0, 0, 0}, 0}},
    {"TTFT that no setting gives",
     VERDICT_SLO_IMPOSSIBLE,
     {{F_TTFT_P95, 900}, {F_PROMPT_MEAN, 1500}, {F_CACHED_TOKENS, 0}, END},
     {{100, 0, 0, 0, 0, 0, 0, 0}, 0}},
    {"too many in a step for the SLO",
     VERDICT_BATCH_TOO_LARGE,
     {{F_TPOT_P95, 60}, {F_DECODE_STEP_TOKENS, 30}, {F_DECODE_STEP_MS, 45}, {F_BUSY, 0.99}, END},
     {{0, 20, 0, 0, 0, 0, 0, 0}, 0}},
    {"answers without a cap",
     VERDICT_LONG_ANSWERS,
     {{F_OUTPUT_MEAN, 900},
      {F_OUTPUT_TOKENS, 108000},
      {F_OUTPUT_BEYOND, 0.7},
      {F_MAX_TOKENS_MEAN, 7800},
      {F_DECODE_MS, 9000},
      {F_PREFILL_SHARE, 0.05},
      {F_BUSY, 0.95},
      END},
     {{0, 0, 0, 0, 0, 0, 0, 0}, 0}},
    {"answers that all end by their length",
     VERDICT_LONG_ANSWERS,
     {{F_OUTPUT_MEAN, 600},
      {F_OUTPUT_TOKENS, 72000},
      {F_OUTPUT_BEYOND, 0.57},
      {F_MAX_TOKENS_MEAN, 600},
      {F_LENGTH_SHARE, 1},
      {F_DECODE_MS, 7000},
      {F_PREFILL_SHARE, 0.1},
      END},
     {{0, 0, 0, 0, 0, 0, 0, 0}, 0}},
    {"prefix caching off, compared",
     VERDICT_PREFIX_CACHE_OFF,
     {{F_PREFIX_CACHING, 0},
      {F_CACHED_TOKENS, 0},
      {F_HIT_RATE, 0},
      {F_PREFIX_SHARE, 0.8},
      {F_PREFILL_SHARE, 0.6},
      END},
     {{0, 0, 0, 0, 0, 0, 0, 0}, 0}},
    {"chunked prefill off",
     VERDICT_CHUNKED_PREFILL_OFF,
     {{F_CHUNKED_PREFILL, 0},
      {F_PREFILL_STEP_MS, 1400},
      {F_PREFILL_STEP_TOKENS, 2000},
      {F_ITL_P99, 1400},
      {F_MAX_BATCHED_TOKENS, 8192},
      END},
     {{0, 0, 0, 0, 0, 0, 0, 0}, 0}},
    {"token budget too low",
     VERDICT_TOKEN_BUDGET,
     {{F_MAX_BATCHED_TOKENS, 16},
      {F_MAX_NUM_SEQS, 8},
      {F_PREFILL_STEP_TOKENS, 16},
      {F_PREFILL_STEP_MS, 14},
      {F_PREFILL_SHARE, 0.7},
      {F_HELD_TOKENS, 0.3},
      END},
     {{0, 0, 0, 0, 0, 0, 0, 0}, 0}},
    {"float32 weights, one stream",
     VERDICT_WEIGHT_FORMAT,
     {{F_WEIGHT_BITS, 32},
      {F_WEIGHT_BYTES, 540e6},
      {F_DECODE_STEP_TOKENS, 1},
      {F_DECODE_STEP_MS, 45},
      {F_BUSY, 0.9},
      {F_DECODE_FIXED_MS, 40},
      {F_DECODE_TOKEN_MS, 5},
      {F_PREFILL_SHARE, 0.1},
      END},
     {{0, 0, 0, 0, 0, 0, 0, 0}, 0}},
    {"bfloat16 weights",
     VERDICT_WEIGHT_FORMAT,
     {{F_WEIGHT_BITS, 16},
      {F_WEIGHT_BYTES, 3e9},
      {F_DECODE_STEP_MS, 110},
      {F_DECODE_FIXED_MS, 80},
      {F_DECODE_TOKEN_MS, 10},
      {F_PREFILL_SHARE, 0.3},
      END},
     {{0, 0, 0, 0, 0, 0, 0, 0}, 0}},
    {"readers behind",
     VERDICT_SLOW_READERS,
     {{F_BEHIND, 2}, {F_RUNNING, 3}, {F_BUSY, 0.3}, END},
     {{0, 0, 0, 0, 0, 0, 0, 0}, 0}},
    {"readers closed", VERDICT_SLOW_READERS, {{F_SLOW_READERS, 3}, END}, {{0, 0, 0, 0, 0, 0, 0, 0}, 0}},
    {"refusing while idle",
     VERDICT_QUEUE_LIMIT,
     {{F_MAX_QUEUE, 0}, {F_REFUSED, 60}, {F_REFUSED_SHARE, 0.33}, {F_BUSY, 0.35}, END},
     {{0, 0, 0, 0, 0, 0, 0, 0}, 0}},
    {"clients with short time limits",
     VERDICT_CLIENTS_LEAVE,
     {{F_LEFT, 40}, {F_LEFT_SHARE, 0.4}, {F_TTFT_P95, 3000}, END},
     {{0, 0, 0, 0, 0, 0, 0, 0}, 0}},
    {"a field that is refused",
     VERDICT_FAILING_REQUESTS,
     {{F_INVALID, 50}, {F_INVALID_SHARE, 0.5}, {F_FAILED, 0}, {F_FAILED_SHARE, 0}, END},
     {{0, 0, 0, 0, 0, 0, 0, 0}, 0}},
    {"requests that fail",
     VERDICT_FAILING_REQUESTS,
     {{F_INVALID, 0}, {F_INVALID_SHARE, 0}, {F_FAILED, 4}, {F_FAILED_SHARE, 0.02}, END},
     {{0, 0, 0, 0, 0, 0, 0, 0}, 0}},
    {"connections refused",
     VERDICT_CONNECTION_LIMIT,
     {{F_CONNECTIONS_REFUSED, 30}, END},
     {{0, 0, 0, 0, 0, 0, 0, 0}, 0}},
    {"context that nobody uses",
     VERDICT_CONTEXT_RESERVED,
     {{F_MAX_MODEL_LEN, 131072},
      {F_LONGEST, 1500},
      {F_KV_BYTES, 12e9},
      {F_PLAN_BYTES, 13e9},
      {F_KV_USAGE_MAX, 0.02},
      {F_KV_USAGE, 0.01},
      END},
     {{0, 0, 0, 0, 0, 0, 0, 0}, 0}},
    {"blocks kept for lengths that do not come",
     VERDICT_CONTEXT_RESERVED,
     {{F_HELD_KV, 0.6},
      {F_KV_USAGE, 0.3},
      {F_KV_USAGE_MAX, 0.5},
      {F_MAX_TOKENS_MEAN, 7900},
      {F_WAITING, 5},
      END},
     {{0, 0, 0, 0, 0, 0, 0, 0}, 0}},
    {"full, and nothing else is wrong",
     VERDICT_MORE_DEVICES,
     {{F_BUSY, 0.99},
      {F_UTILIZATION, 0.9},
      {F_WAITING, 80},
      {F_RUNNING, 60},
      {F_DECODE_STEP_TOKENS, 60},
      {F_HELD_TIME, 0.9},
      {F_QUEUE_MS, 20000},
      END},
     {{0, 0, 0, 0, 0, 0, 0, 0}, 0}},
    {"low traffic",
     VERDICT_LOW_TRAFFIC,
     {{F_BUSY, 0.01}, {F_UTILIZATION, 0.01}, {F_REQUESTS, 2}, {F_RUNNING, 0.02}, {F_RUNNING_MAX, 1}, END},
     {{0, 0, 0, 0, 0, 0, 0, 0}, 2.0}},
};

static void causes_are_named(void **state) {
    for (size_t i = 0; i < sizeof planted / sizeof *planted; i++) {
        const struct situation *s = &planted[i];
        struct figures f = healthy();
        for (const struct setting *c = s->changed; c->figure != F_WINDOW_S; c++)
            figures_set(&f, c->figure, c->v);
        struct advice a = judge(&f, &s->wishes);
        if (!a.n || a.verdicts[0].kind != s->kind) {
            print_message("%s:\n", s->name);
            print(&a);
            fail();
        }
        const struct verdict *v = &a.verdicts[0];
        assert_true(*v->what && *v->expected && *v->attempt && *v->falsified && v->n_rests);
        if (s->wishes.price > 0) assert_true(v->money_a_day > 0);
    }
}

/* ---- healthy servers ---- */

static void healthy_servers_are_left_alone(void **state) {
    static const struct {
        const char *name;
        struct setting changed[12];
        struct wishes wishes;
    } servers[] = {
        {"as it is", {END}, {{0, 0, 0, 0, 0, 0, 0, 0}, 0}},
        {"with an SLO that is kept, and a price", {END}, {{1000, 50, 5000, 0, 0, 0, 0, 0}, 2}},
        {"busy, and nobody waits",
         {{F_BUSY, 0.99}, {F_UTILIZATION, 0.7}, {F_RUNNING, 8}, {F_DECODE_STEP_TOKENS, 7}, END},
         {{0, 0, 0, 0, 0, 0, 0, 0}, 0}},
        {"bursts that wait shortly",
         {{F_WAITING, 0.4}, {F_WAITING_MAX, 6}, {F_HELD_TIME, 0.2}, {F_QUEUE_MS, 60}, END},
         {{0, 0, 0, 0, 0, 0, 0, 0}, 0}},
        {"summaries of long texts, quickly",
         {{F_PROMPT_TOKENS, 240000},
          {F_PROMPT_MEAN, 2000},
          {F_PREFILL_SHARE, 0.8},
          {F_PREFILL_MS, 400},
          {F_CACHED_TOKENS, 0},
          {F_HIT_RATE, 0},
          {F_PREFIX_SHARE, 0},
          {F_COMPARED_TOKENS, 240000},
          END},
         {{0, 0, 0, 0, 0, 0, 0, 0}, 0}},
        {"prompts with nothing in common",
         {{F_CACHED_TOKENS, 0}, {F_HIT_RATE, 0}, {F_PREFIX_SHARE, 0}, END},
         {{0, 0, 0, 0, 0, 0, 0, 0}, 0}},
        {"prefix caching off, nothing in common",
         {{F_PREFIX_CACHING, 0}, {F_HIT_RATE, 0}, {F_CACHED_TOKENS, 0}, {F_PREFIX_SHARE, 0.01}, END},
         {{0, 0, 0, 0, 0, 0, 0, 0}, 0}},
        {"chunked prefill off, short prompts",
         {{F_CHUNKED_PREFILL, 0}, {F_PREFILL_STEP_MS, 40}, END},
         {{0, 0, 0, 0, 0, 0, 0, 0}, 0}},
        {"nearly full KV, and nobody waits",
         {{F_KV_USAGE, 0.8}, {F_KV_USAGE_MAX, 0.95}, END},
         {{0, 0, 0, 0, 0, 0, 0, 0}, 0}},
        {"bfloat16 in large batches",
         {{F_WEIGHT_BITS, 16},
          {F_WEIGHT_BYTES, 270e6},
          {F_DECODE_STEP_TOKENS, 40},
          {F_DECODE_STEP_MS, 58},
          END},
         {{0, 0, 0, 0, 0, 0, 0, 0}, 0}},
        {"a small float32 model in the cache",
         {{F_WEIGHT_BITS, 32}, {F_WEIGHT_BYTES, 4e6}, {F_DECODE_STEP_TOKENS, 1}, END},
         {{0, 0, 0, 0, 0, 0, 0, 0}, 0}},
        {"one thread because others have the cores",
         {{F_THREADS, 1}, {F_CPU_OTHERS, 0.9}, {F_CPU_USED, 0.55}, END},
         {{0, 0, 0, 0, 0, 0, 0, 0}, 0}},
        {"a load generator on the same machine",
         {{F_CPU_OTHERS, 0.3}, {F_CPU_WAIT, 0.3}, END},
         {{0, 0, 0, 0, 0, 0, 0, 0}, 0}},
        {"a quiet hour",
         {{F_BUSY, 0.08}, {F_UTILIZATION, 0.05}, {F_REQUESTS, 20}, END},
         {{0, 0, 0, 0, 0, 0, 0, 0}, 0}},
    };
    for (size_t i = 0; i < sizeof servers / sizeof *servers; i++) {
        struct figures f = healthy();
        for (const struct setting *c = servers[i].changed; c->figure != F_WINDOW_S; c++)
            figures_set(&f, c->figure, c->v);
        struct advice a = judge(&f, &servers[i].wishes);
        if (a.n) print_message("%s:\n", servers[i].name);
        print(&a);
        assert_int_equal(a.n, 0);
        assert_true(a.traffic);
    }
}

/* One look since the start knows no gauges: who runs and who waits follow from the times of requests. Eight
 * streams that keep a device busy, each waiting a moment for a place in a step, are no reason for another. */
static void busy_by_one_look(void **state) {
    static const enum figure gauges[] = {F_RUNNING,    F_RUNNING_MAX, F_WAITING,      F_WAITING_MAX,
                                         F_KV_USAGE,   F_KV_USAGE_MAX, F_CPU_WAIT,    F_CPU_OTHERS,
                                         F_CPU_STEAL};
    struct figures f = healthy();
    for (size_t i = 0; i < sizeof gauges / sizeof *gauges; i++) f.has[gauges[i]] = false;
    PUT(&f, {F_WINDOW_S, 9}, {F_REQUESTS, 24}, {F_BUSY, 0.98}, {F_QUEUE_MS, 235}, {F_PREFILL_MS, 586},
        {F_DECODE_MS, 2115}, {F_DECODE_STEP_TOKENS, 7.5});
    assert_int_equal(judge(&f, NULL).n, 0);
    figures_set(&f, F_QUEUE_MS, 4000); /* ten wait */
    struct advice a = judge(&f, NULL);
    assert_int_equal(a.n, 1);
    assert_int_equal(a.verdicts[0].kind, VERDICT_MORE_DEVICES);
}

/* Memory full at low utilization, and the reverse. */
static void what_is_full(void **state) {
    struct figures f = healthy();
    assert_int_equal(judge(&f, NULL).bound, BOUND_NEITHER);
    PUT(&f, {F_KV_USAGE_MAX, 0.92}, {F_UTILIZATION, 0.35});
    assert_int_equal(judge(&f, NULL).bound, BOUND_MEMORY);
    PUT(&f, {F_KV_USAGE_MAX, 0.35}, {F_UTILIZATION, 0.9}, {F_BUSY, 0.95});
    assert_int_equal(judge(&f, NULL).bound, BOUND_COMPUTE);
    PUT(&f, {F_KV_USAGE_MAX, 0.95});
    assert_int_equal(judge(&f, NULL).bound, BOUND_BOTH);
    f.has[F_KV_USAGE_MAX] = false;
    assert_int_equal(judge(&f, NULL).bound, BOUND_UNKNOWN);
}

/* Money and tokens of a day, by hand: 22,000 tokens in 60 s; they are all of the 36,000 computed x 0.3 of the
 * work, which is done 0.55 of the time. */
static void costs_of_a_day(void **state) {
    struct figures f = healthy();
    struct wishes w = {.price = 2};
    PUT(&f, {F_CACHED_TOKENS, 0}, {F_FIELD_TOKENS, 22000});
    struct advice a = judge(&f, &w);
    const struct verdict *v = find(&a, VERDICT_CHANGING_FIELD);
    assert_non_null(v);
    assert_true(fabs(v->gain - 22000.0 / 36000 * 0.3) < 1e-9);
    assert_true(fabs(v->tokens_a_day - 22000.0 * 1440) < 1);
    assert_true(fabs(v->money_a_day - 48 * 0.55 * v->gain) < 1e-9);
}

/* Another server tells less: what it tells is used, and the rest is named as not seen. */
static void other_servers(void **state) {
    struct figures f = {.server = "http://x"};
    PUT(&f, {F_WINDOW_S, 60}, {F_REQUESTS, 100}, {F_PROMPT_TOKENS, 30000}, {F_OUTPUT_TOKENS, 10000},
        {F_PROMPT_MEAN, 300}, {F_OUTPUT_MEAN, 100}, {F_TPOT_P95, 30}, {F_QUEUE_MS, 4000}, {F_PREFILL_MS, 200},
        {F_DECODE_MS, 3000}, {F_RUNNING, 20}, {F_RUNNING_MAX, 24}, {F_WAITING, 10}, {F_WAITING_MAX, 20},
        {F_KV_USAGE, 0.96}, {F_KV_USAGE_MAX, 1}, {F_PREEMPTIONS, 30});
    struct advice a = judge(&f, NULL);
    assert_true(a.n && a.verdicts[0].kind == VERDICT_KV_POOL);
    assert_true(a.unseen[VERDICT_CPU_PATH] && a.unseen[VERDICT_CHANGING_FIELD] && !a.unseen[VERDICT_KV_POOL]);
    assert_int_equal(advise_missing(&f, VERDICT_CPU_PATH), F_PATH);
    memset(&f, 0, sizeof f);
    a = judge(&f, NULL);
    assert_true(!a.traffic && !a.n);
}

/* ---- whatever the figures are ---- */

static uint64_t seed = 88172645463325252u;

static double draw(void) { /* [0, 1); xorshift64 (Marsaglia, 2003) */
    seed ^= seed << 13;
    seed ^= seed >> 7;
    seed ^= seed << 17;
    return (double)(seed >> 11) / 9007199254740992.0;
}

static double draw_figure(enum figure i) {
    double u = draw();
    if (draw() < 0.1) return 0;
    switch (figure_infos[i].unit) {
    case UNIT_SHARE: return draw() < 0.1 ? 1 : u;
    case UNIT_FLAG: return u < 0.5;
    case UNIT_PATH: return floor(4 * u);
    case UNIT_CORES: return 8 * u;
    case UNIT_BYTES: return exp(30 * u);
    default: return draw() < 0.01 ? 1e300 : exp(12 * u - 2);
    }
}

static struct figures random_figures(void) {
    struct figures f = draw() < 0.5 ? healthy() : (struct figures){0};
    double share = draw();
    for (int i = 0; i < FIGURES; i++)
        if (draw() < share) figures_set(&f, (enum figure)i, draw_figure((enum figure)i));
    for (int i = 0; i < FIGURES; i++)
        if (draw() < 0.1 * share) f.has[i] = false;
    return f;
}

static struct wishes random_wishes(void) {
    struct wishes w = {0};
    if (draw() < 0.5) w.price = exp(6 * draw() - 2);
    if (draw() < 0.3) w.slo.ttft_ms = exp(8 * draw());
    if (draw() < 0.3) w.slo.tpot_ms = exp(6 * draw() - 1);
    if (draw() < 0.3) w.slo.e2e_ms = exp(10 * draw());
    return w;
}

static void check_texts(const struct figures *f, const struct wishes *w, const struct advice *a) {
    struct shown s = {.f = f, .w = w, .a = a, .f_before = f, .a_before = a};
    struct buf text = BUF_INIT, json = BUF_INIT;
    show_text(&s, &text);
    show_json(&s, &json);
    assert_true(buf_ok(&text) && buf_ok(&json) && json.data[json.len - 1] == '\n');
    assert_null(strstr(text.data, "nan"));
    const char *inf = strstr(text.data, "inf ");
    if (inf) print_message("%.80s\n", inf - text.data > 60 ? inf - 60 : text.data);
    assert_null(inf);
    json_t *root = json_loadb(json.data, json.len, JSON_REJECT_DUPLICATES, NULL);
    assert_non_null(root);
    assert_int_equal(json_array_size(json_object_get(root, "verdicts")), a->n);
    json_decref(root);
    buf_free(&text);
    buf_free(&json);
}

static void finite_in_order_and_without_contradiction(void **state) {
    static const enum verdict_kind apart[][2] = {
        {VERDICT_BATCH_LIMIT, VERDICT_BATCH_TOO_LARGE}, {VERDICT_KV_POOL, VERDICT_CONTEXT_RESERVED},
        {VERDICT_SLO_IMPOSSIBLE, VERDICT_MORE_DEVICES}, {VERDICT_CHUNKED_PREFILL_OFF, VERDICT_TOKEN_BUDGET},
        {VERDICT_QUEUE_LIMIT, VERDICT_MORE_DEVICES},    {VERDICT_PREFIX_CACHE_OFF, VERDICT_CACHE_TOO_SMALL},
        {VERDICT_LOW_TRAFFIC, VERDICT_MORE_DEVICES},    {VERDICT_LOW_TRAFFIC, VERDICT_BATCH_LIMIT},
    };
    size_t said[VERDICTS] = {0};
    for (int round = 0; round < 20000; round++) {
        struct figures f = random_figures();
        struct wishes w = random_wishes();
        struct advice a = judge(&f, &w);
        bool there[VERDICTS] = {false};
        for (size_t i = 0; i < a.n; i++) {
            const struct verdict *v = &a.verdicts[i];
            assert_true(isfinite(v->gain) && v->gain >= 0 && v->gain <= 1);
            assert_true(isfinite(v->tokens_a_day) && v->tokens_a_day >= 0);
            assert_true(isfinite(v->money_a_day) && v->money_a_day >= 0);
            assert_true(v->money_a_day <= 24 * w.price + 1e-9);
            assert_true(!i || a.verdicts[i - 1].gain >= v->gain);
            assert_true(*v->what && *v->expected && *v->attempt && *v->falsified);
            assert_false(there[v->kind]);
            there[v->kind] = true;
            said[v->kind]++;
            for (size_t k = 0; k < v->n_rests; k++) assert_true(f.has[v->rests[k]]);
        }
        for (size_t i = 0; i < sizeof apart / sizeof *apart; i++) {
            if (there[apart[i][0]] && there[apart[i][1]]) print(&a);
            assert_false(there[apart[i][0]] && there[apart[i][1]]);
        }
        assert_false(there[VERDICT_LOW_TRAFFIC] && a.n > 1);
        if (round % 20 == 0) check_texts(&f, &w, &a);
    }
    for (int k = 0; k < VERDICTS; k++) assert_true(said[k] > 0); /* the figures reach every branch */
}

/* More of what a verdict is about never makes it less. */
static void monotone(void **state) {
    static const struct {
        enum verdict_kind kind;
        enum figure driver;
    } laws[] = {
        {VERDICT_CHANGING_FIELD, F_FIELD_TOKENS}, {VERDICT_CUT_HISTORY, F_CUT_TOKENS},
        {VERDICT_CHANGING_ORDER, F_ORDER_TOKENS}, {VERDICT_CPU_PATH, F_PATH_BEST},
        {VERDICT_QUEUE_LIMIT, F_REFUSED_SHARE},   {VERDICT_CONNECTION_LIMIT, F_CONNECTIONS_REFUSED},
        {VERDICT_CLIENTS_LEAVE, F_LEFT_SHARE},    {VERDICT_FAILING_REQUESTS, F_FAILED_SHARE},
        {VERDICT_SLOW_READERS, F_BEHIND},         {VERDICT_CPU_STARVED, F_THROTTLED_SHARE},
        {VERDICT_CPU_STARVED, F_CPU_WAIT},        {VERDICT_LONG_ANSWERS, F_OUTPUT_BEYOND},
        {VERDICT_KV_POOL, F_RECOMPUTED_SHARE},    {VERDICT_BATCH_LIMIT, F_HELD_SEQS},
        {VERDICT_WEIGHT_FORMAT, F_WEIGHT_BITS},   {VERDICT_CACHE_TOO_SMALL, F_PREFIX_SHARE},
    };
    size_t tried = 0;
    for (int round = 0; round < 40000; round++) {
        struct figures f = random_figures();
        const enum figure driver = laws[round % (sizeof laws / sizeof *laws)].driver;
        const enum verdict_kind kind = laws[round % (sizeof laws / sizeof *laws)].kind;
        struct advice before = judge(&f, NULL);
        const struct verdict *a = find(&before, kind);
        if (!a || !f.has[driver]) continue;
        enum figure_unit unit = figure_infos[driver].unit;
        double more = f.v[driver] * (1 + draw());
        if (unit == UNIT_SHARE && more > 1) more = 1;
        if (unit == UNIT_PATH) more = fmin(3, f.v[driver] + 1);
        figures_set(&f, driver, more);
        struct advice after = judge(&f, NULL);
        const struct verdict *b = find(&after, kind);
        assert_non_null(b);
        if (b->gain < a->gain - 1e-9)
            print_message("%s: %s %g: gain %g, then %g\n", verdict_names[kind], figure_infos[driver].key,
                          more, a->gain, b->gain);
        assert_true(b->gain >= a->gain - 1e-9);
        tried++;
    }
    assert_true(tried > 500);
}

static void texts_of_figures(void **state) {
    char t[32];
    figure_text(F_BUSY, 0.5, t, sizeof t);
    assert_string_equal(t, "50 %");
    figure_text(F_PATH, 1, t, sizeof t);
    assert_string_equal(t, "avx2");
    figure_text(F_CHUNKED_PREFILL, 0, t, sizeof t);
    assert_string_equal(t, "off");
    for (int i = 0; i < FIGURES; i++) {
        assert_true(figure_infos[i].key && figure_infos[i].name);
        for (int k = 0; k < i; k++) assert_string_not_equal(figure_infos[i].key, figure_infos[k].key);
    }
    struct figures f = {0};
    figures_set(&f, F_BUSY, NAN);
    assert_false(f.has[F_BUSY]);
    figures_set(&f, F_BUSY, -1);
    assert_false(f.has[F_BUSY]);
    assert_true(figures_path_rank("amx") == 3 && figures_path_rank("sse") == -1);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(causes_are_named), cmocka_unit_test(healthy_servers_are_left_alone),
        cmocka_unit_test(busy_by_one_look),
        cmocka_unit_test(what_is_full),     cmocka_unit_test(costs_of_a_day),
        cmocka_unit_test(other_servers),    cmocka_unit_test(finite_in_order_and_without_contradiction),
        cmocka_unit_test(monotone),         cmocka_unit_test(texts_of_figures),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
