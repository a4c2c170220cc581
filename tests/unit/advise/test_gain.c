/* Gains by simulation with a player whose answers follow from a formula: the measured load is what is played,
 * at the speed that was measured; each verdict's change reaches the player, and what it answers is the gain.
 */
#include "advise/gain.h"
#include "advise/show.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

/* Steps of 20 ms and 2 ms for each sequence, and 0.5 ms for each prompt token that the cache does not have.
 */
struct fake {
    struct gain_load last;
    size_t n;
};

static int fake_play(void *ctx, const struct gain_load *l, struct gain_outcome *out, struct error *err) {
    struct fake *k = ctx;
    double n = l->in_flight > 0 ? fmin(l->in_flight, l->max_num_seqs) : 1;
    double cached = l->prefix_caching ? l->cached : 0;
    double prompt = 0.5e-3 * (l->input - cached), token = (20e-3 + 2e-3 * n) / n;
    double each = l->slow * (prompt + l->output * token);
    k->last = *l;
    k->n++;
    *out = (struct gain_outcome){.requests_per_s = l->rate > 0 ? l->rate : 1 / each,
                                 .output_per_s = l->output / each,
                                 .ttft_p95_ms = 1e3 * prompt,
                                 .tpot_p95_ms = 1e3 * token * n * l->slow,
                                 .itl_p99_ms = l->chunked_prefill ? 200 : 900,
                                 .step_s = each};
    return 0;
}

static struct gain_player player_of(struct fake *k) {
    return (struct gain_player){.source = "made-up.json",
                                .cpu_path = "avx2",
                                .n_threads = 2,
                                .max_model_len = 8192,
                                .play = fake_play,
                                .ctx = k};
}

/* 8 requests with the server, of 100 + 50 tokens, 40 of them cached; steps are as fast as the player's when
 * max_num_seqs is n. */
static struct figures busy_server(double n, double slow) {
    struct figures f = {.server = "http://x", .software = "quire", .is_quire = true};
    double each = slow * (0.5e-3 * 60 + 50 * (20e-3 + 2e-3 * n) / n), requests = 200;
    figures_set(&f, F_WINDOW_S, each * requests / 0.95);
    figures_set(&f, F_BUSY, 0.95);
    figures_set(&f, F_REQUESTS, requests);
    figures_set(&f, F_PROMPT_TOKENS, 100 * requests);
    figures_set(&f, F_CACHED_TOKENS, 40 * requests);
    figures_set(&f, F_OUTPUT_TOKENS, 50 * requests);
    figures_set(&f, F_PROMPT_MEAN, 100);
    figures_set(&f, F_OUTPUT_MEAN, 50);
    figures_set(&f, F_RUNNING, n);
    figures_set(&f, F_WAITING, 8 - n);
    figures_set(&f, F_MAX_NUM_SEQS, n);
    figures_set(&f, F_MAX_BATCHED_TOKENS, 2048);
    figures_set(&f, F_MAX_MODEL_LEN, 8192);
    figures_set(&f, F_KV_TOKENS, 20000);
    figures_set(&f, F_PREFIX_CACHING, 1);
    figures_set(&f, F_CHUNKED_PREFILL, 1);
    figures_set(&f, F_THREADS, 2);
    figures_set(&f, F_PATH, 1);
    return f;
}

static struct verdict *add(struct advice *a, enum verdict_kind kind, double gain,
                           struct verdict_change change) {
    struct verdict *v = &a->verdicts[a->n++];
    *v = (struct verdict){.kind = kind, .gain = gain, .change = change};
    snprintf(v->expected, sizeof v->expected, "by formula");
    return v;
}

static const struct verdict *find(const struct advice *a, enum verdict_kind kind) {
    for (size_t i = 0; i < a->n; i++)
        if (a->verdicts[i].kind == kind) return &a->verdicts[i];
    fail_msg("no %s", verdict_names[kind]);
    return NULL;
}

static void near(double a, double b) {
    if (!(fabs(a - b) < 1e-9 * fmax(1, fabs(b)))) fail_msg("%.12g is not %.12g", a, b);
}

static void test_the_measured_load_at_its_speed(void **state) {
    struct fake k = {0};
    struct gain_player p = player_of(&k);
    struct figures f = busy_server(2, 1.7);
    struct advice a = {.traffic = true};
    struct gain_base base;
    struct error err;
    assert_int_equal(gain_simulate(&f, &p, &a, &base, &err), 0);
    assert_true(base.done);
    near(base.load.slow, 1.7);
    near(base.load.in_flight, 8);
    near(base.load.input, 100);
    near(base.load.cached, 40);
    near(base.load.output, 50);
    assert_true(base.load.rate == 0);
    figures_set(&f, F_BUSY, 0.3); /* and nobody waits: requests come by the clock */
    figures_set(&f, F_WAITING, 0);
    assert_int_equal(gain_simulate(&f, &p, &a, &base, &err), 0);
    near(base.load.rate, 200 / f.v[F_WINDOW_S]);
    assert_true(base.load.in_flight == 0);
}

/* 2 places become 8: a token takes 36 / 8 ms instead of 24 / 2. */
static void test_gain_is_what_was_played(void **state) {
    struct fake k = {0};
    struct gain_player p = player_of(&k);
    struct figures f = busy_server(2, 1);
    struct advice a = {.traffic = true};
    struct gain_base base;
    struct error err;
    double before = 30 + 50 * 24 / 2.0, after = 30 + 50 * 36 / 8.0;
    add(&a, VERDICT_MORE_DEVICES, 0.2, (struct verdict_change){0});
    add(&a, VERDICT_LONG_PROMPTS, 0.9, (struct verdict_change){.any = true, .input_factor = 0.5});
    add(&a, VERDICT_TOKEN_BUDGET, 0.8, (struct verdict_change){.any = true, .max_batched_tokens = 4096});
    add(&a, VERDICT_BATCH_LIMIT, 0.1, (struct verdict_change){.any = true, .max_num_seqs = 8});
    assert_int_equal(gain_simulate(&f, &p, &a, &base, &err), 0);
    near(find(&a, VERDICT_BATCH_LIMIT)->gain, 1 - after / before);
    near(find(&a, VERDICT_LONG_PROMPTS)->gain, 1 - (15 + 600.0) / before);
    near(find(&a, VERDICT_TOKEN_BUDGET)->gain, 0); /* the player says that it makes no difference */
    assert_true(!strncmp(find(&a, VERDICT_TOKEN_BUDGET)->expected, "no ", 3));
    assert_true(a.verdicts[0].kind == VERDICT_BATCH_LIMIT && a.verdicts[3].kind == VERDICT_TOKEN_BUDGET);
    const struct verdict *kept = find(&a, VERDICT_MORE_DEVICES);
    assert_true(!kept->simulated && !strcmp(kept->expected, "by formula"));
    near(kept->gain, 0.2);
}

static void test_changes_reach_the_player(void **state) {
    static const struct {
        struct verdict_change change;
        struct gain_load load; /* 0: as it was */
    } cases[] = {{{.any = true, .kv_factor = 2}, {.kv_tokens = 40000}},
                 {{.any = true, .output_factor = 0.5}, {.output = 25}},
                 {{.any = true, .step_factor = 0.5}, {.slow = 0.5}},
                 {{.any = true, .weight_factor = 0.53}, {.weight_factor = 0.53}},
                 {{.any = true, .replicas = 3}, {.replicas = 3}},
                 {{.any = true, .cached_share = 0.9}, {.cached = 90}},
                 {{.any = true, .cached_share = 7}, {.cached = 100}},
                 {{.any = true, .max_batched_tokens = 512}, {.max_batched_tokens = 512}}};
    struct figures f = busy_server(4, 1);
    struct error err;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct fake k = {0};
        struct gain_player p = player_of(&k);
        struct advice a = {.traffic = true};
        struct gain_base base;
        add(&a, VERDICT_KV_POOL, 0.1, cases[i].change);
        assert_int_equal(gain_simulate(&f, &p, &a, &base, &err), 0);
        const struct gain_load *want = &cases[i].load, *had = &base.load;
        near(k.last.kv_tokens, want->kv_tokens > 0 ? want->kv_tokens : had->kv_tokens);
        near(k.last.output, want->output > 0 ? want->output : had->output);
        near(k.last.slow, want->slow > 0 ? want->slow : had->slow);
        near(k.last.cached, want->cached > 0 ? want->cached : had->cached);
        near(k.last.max_batched_tokens,
             want->max_batched_tokens > 0 ? want->max_batched_tokens : had->max_batched_tokens);
        near(k.last.weight_factor, want->weight_factor > 0 ? want->weight_factor : 1);
        near(k.last.replicas, want->replicas > 0 ? want->replicas : 1);
        near(k.last.in_flight, 8);
    }
}

static void test_latencies(void **state) {
    struct fake k = {0};
    struct gain_player p = player_of(&k);
    struct figures f = busy_server(8, 1);
    struct advice a = {.traffic = true};
    struct gain_base base;
    struct error err;
    figures_set(&f, F_CHUNKED_PREFILL, 0);
    add(&a, VERDICT_BATCH_TOO_LARGE, 0.1, (struct verdict_change){.any = true, .max_num_seqs = 4});
    add(&a, VERDICT_CHUNKED_PREFILL_OFF, 0.1, (struct verdict_change){.any = true, .chunked_prefill = true});
    assert_int_equal(gain_simulate(&f, &p, &a, &base, &err), 0);
    near(find(&a, VERDICT_BATCH_TOO_LARGE)->gain, 1 - 28 / 36.0);
    near(find(&a, VERDICT_CHUNKED_PREFILL_OFF)->gain, 1 - 200 / 900.0);
}

static void test_what_is_not_simulated(void **state) {
    struct fake k = {0};
    struct gain_player p = player_of(&k);
    struct advice a = {.traffic = true};
    struct gain_base base;
    struct error err;
    struct figures few = busy_server(4, 1), slow = busy_server(4, 80), other = few, threads = few, path = few;
    add(&a, VERDICT_BATCH_LIMIT, 0.3, (struct verdict_change){.any = true, .max_num_seqs = 8});
    figures_set(&few, F_REQUESTS, 2);
    assert_int_equal(gain_simulate(&few, &p, &a, &base, &err), 0);
    assert_true(!base.done && strstr(base.why_not, "too few requests") && !a.verdicts[0].simulated);
    assert_int_equal(gain_simulate(&slow, &p, &a, &base, &err), 0);
    assert_true(!base.done && strstr(base.why_not, "nothing like"));
    other.is_quire = false;
    assert_int_equal(gain_simulate(&other, &p, &a, &base, &err), QUIRE_EINVAL);
    assert_non_null(strstr(err.text, "no Quire server"));
    figures_set(&threads, F_THREADS, 3);
    assert_int_equal(gain_simulate(&threads, &p, &a, &base, &err), QUIRE_EINVAL);
    assert_non_null(strstr(err.text, "--threads 2, the server has 3"));
    figures_set(&path, F_PATH, 0);
    assert_int_equal(gain_simulate(&path, &p, &a, &base, &err), QUIRE_EINVAL);
    assert_non_null(strstr(err.text, "on the CPU path avx2, the server runs on ref"));
    near(a.verdicts[0].gain, 0.3);
}

/* What is shown says which is which. */
static void test_shown(void **state) {
    struct fake k = {0};
    struct gain_player p = player_of(&k);
    struct figures f = busy_server(2, 1);
    struct advice a = {.traffic = true};
    struct gain_base base;
    struct error err;
    struct wishes w = {0};
    struct buf text = BUF_INIT, json = BUF_INIT;
    add(&a, VERDICT_BATCH_LIMIT, 0.1, (struct verdict_change){.any = true, .max_num_seqs = 8});
    add(&a, VERDICT_MORE_DEVICES, 0.05, (struct verdict_change){0});
    assert_int_equal(gain_simulate(&f, &p, &a, &base, &err), 0);
    struct shown shown = {.f = &f, .w = &w, .a = &a, .base = &base};
    show_text(&shown, &text);
    show_json(&shown, &json);
    assert_non_null(
        strstr(text.data, "simulated: requests of 100 and 50 tokens, 40 % of a prompt cached, 8 in flight"));
    assert_non_null(strstr(text.data, "expected  simulated: "));
    assert_non_null(strstr(text.data, "expected  estimate: by formula"));
    assert_non_null(strstr(json.data, "\"gain_from\":\"simulation\""));
    assert_non_null(strstr(json.data, "\"gain_from\":\"estimate\""));
    assert_non_null(strstr(json.data, "\"source\":\"made-up.json\""));
    buf_free(&text);
    buf_free(&json);
    shown.base = NULL;
    show_text(&shown, &text);
    assert_null(strstr(text.data, "simulated: requests"));
    buf_free(&text);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_the_measured_load_at_its_speed), cmocka_unit_test(test_gain_is_what_was_played),
        cmocka_unit_test(test_changes_reach_the_player),       cmocka_unit_test(test_latencies),
        cmocka_unit_test(test_what_is_not_simulated),          cmocka_unit_test(test_shown)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
