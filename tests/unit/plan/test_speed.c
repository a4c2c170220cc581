/* The most streams within an SLO, of a player whose limit is known. */
#include "base/error.h"
#include "plan/forecast.h"
#include "plan/source.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

static const char CONFIG[] =
    "{\"architectures\":[\"LlamaForCausalLM\"],\"model_type\":\"llama\",\"hidden_size\":64,\"hidden_act\":"
    "\"silu\","
    "\"intermediate_size\":128,\"num_hidden_layers\":2,\"num_attention_heads\":4,\"num_key_value_heads\":2,"
    "\"vocab_size\":100,\"max_position_embeddings\":512,\"rms_norm_eps\":1e-5,\"tie_word_embeddings\":false}";

struct fake {
    size_t limit, n_calls, most; /* most: streams that were ever played */
    int rc;                      /* what it returns from the second call on */
};

static int play(void *ctx, const struct forecast *f, size_t n, struct forecast_speed *out,
                struct error *err) {
    struct fake *p = ctx;
    assert_true(n >= 1 && n <= f->concurrency);
    if (++p->n_calls > 1 && p->rc) return error_set(err, p->rc, "it does not go on");
    if (n > p->most) p->most = n;
    *out = (struct forecast_speed){.streams = n,
                                   .within_slo = n <= p->limit,
                                   .ttft_s = (double)n,
                                   .requests_per_s = (double)n / 4,
                                   .output_per_s = (double)n,
                                   .total_per_s = 2 * (double)n};
    return 0;
}

static int forecast_of(struct fake *p, size_t concurrency, size_t n_input, struct forecast *f,
                       struct error *err) {
    char path[64];
    struct plan_source s;
    snprintf(path, sizeof path, "/tmp/test_speed_%ld.json", (long)getpid());
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    fputs(CONFIG, file);
    fclose(file);
    int rc = plan_source_open(path, "bf16", &s, err);
    unlink(path);
    if (rc) return rc;
    struct quire_config c = {.weights = s.weights,
                             .max_num_seqs = concurrency,
                             .max_num_batched_tokens = 512,
                             .block_tokens = 16,
                             .memory_share = 0.9,
                             .n_threads = 1};
    struct forecast_player player = {.play = play, .ctx = p};
    struct forecast_ask ask = {.model = "a test",
                               .config = &c,
                               .device = {.memory_bytes = (uint64_t)4 << 30, .name = "a test"},
                               .player = &player,
                               .n_input = n_input,
                               .n_output = 10,
                               .rate = 10,
                               .price_per_hour = 3.6,
                               .concurrency = concurrency};
    rc = forecast_make(&ask, f, err);
    plan_source_close(&s);
    return rc;
}

/* Halving finds the limit, wherever it is, with a logarithm of the streams played. */
static void test_most_within_slo(void **state) {
    for (size_t most = 1; most <= 40; most += 13)
        for (size_t limit = 0; limit <= most + 1; limit++) {
            struct fake p = {.limit = limit};
            struct forecast f;
            struct error err = {0};
            if (forecast_of(&p, most, 100, &f, &err)) fail_msg("%s", err.text);
            size_t want = limit < 1 ? 1 : limit < most ? limit : most;
            assert_true(f.speed.known);
            assert_int_equal(f.speed.streams, want);
            assert_int_equal(f.speed.within_slo, limit > 0);
            assert_true(p.n_calls <= 2 + 6 && p.most == most);
        }
}

/* 10 requests/s of servers that do 2 (8 streams / 4 s) are 5; 3.6 an hour are 0.001 a second. */
static void test_what_follows(void **state) {
    struct fake p = {.limit = 8};
    struct forecast f;
    struct error err = {0};
    if (forecast_of(&p, 8, 100, &f, &err)) fail_msg("%s", err.text);
    assert_int_equal(p.n_calls, 1);
    assert_true(f.speed.replicas == 5);
    assert_float_equal(f.speed.cost_output, 1e6 * 0.001 / 8, 1e-6);
    assert_float_equal(f.speed.cost_total, 1e6 * 0.001 / 16, 1e-6);
}

/* An error of the player is the forecast's, at whichever call. */
static void test_errors_are_told(void **state) {
    struct fake p = {.limit = 3, .rc = QUIRE_ECANCELED};
    struct forecast f;
    struct error err = {0};
    assert_int_equal(forecast_of(&p, 16, 100, &f, &err), QUIRE_ECANCELED);
    assert_string_equal(err.text, "it does not go on");
    assert_int_equal(p.n_calls, 2);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_most_within_slo),
                                       cmocka_unit_test(test_what_follows),
                                       cmocka_unit_test(test_errors_are_told)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
