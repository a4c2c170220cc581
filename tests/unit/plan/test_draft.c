/* Models of which there is only config.json: every allocation failing once, and laws of formats. */
#include "plan/forecast.h"
#include "plan/source.h"
#include "plan/weight_format.h"
#include "util/alloc_fail.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

static const char CONFIG[] =
    "{\"architectures\":[\"MixtralForCausalLM\"],\"model_type\":\"mixtral\",\"hidden_size\":512,"
    "\"intermediate_size\":1024,\"num_hidden_layers\":8,\"num_attention_heads\":8,\"num_key_value_heads\":2,"
    "\"num_local_experts\":8,\"num_experts_per_tok\":2,\"vocab_size\":1000,\"max_position_embeddings\":512,"
    "\"tie_word_embeddings\":false}";

static const char *write_config(void) {
    static char path[64];
    snprintf(path, sizeof path, "/tmp/test_draft_%ld.json", (long)getpid());
    FILE *f = fopen(path, "w");
    assert_non_null(f);
    fputs(CONFIG, f);
    fclose(f);
    return path;
}

static struct quire_config config_of(const struct weights *w) {
    return (struct quire_config){.weights = w,
                                 .max_num_seqs = 4,
                                 .max_num_batched_tokens = 64,
                                 .block_tokens = 16,
                                 .memory_share = 0.9,
                                 .prefix_caching = true,
                                 .chunked_prefill = true,
                                 .n_threads = 1};
}

static int plan_it(const char *path, const char *format, struct forecast *f, struct error *err) {
    struct plan_source s;
    int rc = plan_source_open(path, format, &s, err);
    if (rc) return rc;
    struct quire_config c = config_of(s.weights);
    struct forecast_ask ask = {.model = path,
                               .config = &c,
                               .device = {.memory_bytes = (uint64_t)4 << 30, .name = "a test"},
                               .n_input = 100,
                               .n_output = 10,
                               .concurrency = 4};
    rc = forecast_make(&ask, f, err);
    plan_source_close(&s);
    return rc;
}

/* 2 bytes for each element of a matrix, 4 for those of vectors and of the router. */
static void test_sizes(void **state) {
    struct forecast f;
    struct error err = {0};
    const char *path = write_config();
    if (plan_it(path, "bf16", &f, &err)) fail_msg("%s", err.text);
    uint64_t embd = 512, ff = 1024, vocab = 1000, kv = 128, layers = 8;
    uint64_t experts = layers * 8 * 3 * embd * ff, attn = layers * (2 * embd * embd + 2 * embd * kv);
    uint64_t router = layers * 8 * embd, norms = (2 * layers + 1) * embd;
    assert_int_equal(f.n_params, experts + attn + router + norms + 2 * vocab * embd);
    assert_int_equal(f.n_params_used, f.n_params - experts * 6 / 8);
    assert_int_equal(f.tensor_bytes, 2 * (experts + attn + 2 * vocab * embd) + 4 * (router + norms));
    assert_int_equal(f.token_bytes, layers * 2 * kv * 2);
    assert_true(f.all_fit);
    unlink(path);
}

/* Formats are listed from the largest to the smallest. */
static void test_order(void **state) {
    const char *path = write_config();
    const struct weight_format *format;
    uint64_t before = UINT64_MAX;
    for (size_t i = 0; (format = weight_format_at(i)); i++) {
        struct plan_source s;
        struct error err = {0};
        if (plan_source_open(path, weight_format_name(format), &s, &err)) fail_msg("%s", err.text);
        assert_true(weights_tensor_bytes(s.weights) <= before);
        before = weights_tensor_bytes(s.weights);
        plan_source_close(&s);
    }
    unlink(path);
}

static void test_plain_bytes(void **state) {
    assert_true(weight_format_plain_bytes(70e9, 16) == 140e9);
    assert_true(weight_format_plain_bytes(70e9, 4) == 35e9);
}

/* Either the plan is complete, or it says that memory is out. */
static void test_every_allocation_failing(void **state) {
    const char *path = write_config();
    struct forecast whole, f;
    struct error err = {0};
    if (plan_it(path, "q4_k_m", &whole, &err)) fail_msg("%s", err.text);
    for (size_t n = 1;; n++) {
        struct error failed = {0};
        alloc_fail_at(n);
        int rc = plan_it(path, "q4_k_m", &f, &failed);
        alloc_fail_stop();
        if (!alloc_fail_hit()) break;
        if (rc)
            assert_int_equal(rc, QUIRE_ENOMEM);
        else
            assert_int_equal(f.o.weights_bytes, whole.o.weights_bytes);
        if (n > 60) n += n / 8; /* growing tables: the later ones are alike */
    }
    unlink(path);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_sizes), cmocka_unit_test(test_order),
                                       cmocka_unit_test(test_plain_bytes),
                                       cmocka_unit_test(test_every_allocation_failing)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
