/* Law 1, a pairwise subset: each value of each setting meets each value of the others at least once or nearly
 * so, on small models of several kinds. The whole matrix is test_full_law1.c. */
#include "util_law1.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

static const struct law1_setup SETUPS[] = {
    {.budget = 16, .max_seqs = 16, .n_threads = 1, .cache = true, .tight = true},
    {.budget = 8192, .max_seqs = 64, .n_threads = 2, .cache = true},
    {.budget = 64, .max_seqs = 64, .n_threads = 4, .cache = false, .by_priority = true},
    {.budget = 300, .max_seqs = 8, .n_threads = 2, .cache = false, .tight = true},
    {.budget = 8192,
     .max_seqs = 24,
     .n_threads = 4,
     .cache = true,
     .unchunked = true,
     .tight = true,
     .by_priority = true},
    {.budget = 129, .max_seqs = 32, .n_threads = 1, .cache = true, .block_tokens = 32, .long_prefill = 37},
    {.budget = 8192, .max_seqs = 16, .n_threads = 2, .unchunked = true, .batch = true, .reserve = true},
    {.budget = 100, .max_seqs = 8, .n_threads = 1, .cache = true, .reserve = true},
    {.budget = 64, .max_seqs = 24, .n_threads = 2, .batch = true, .tight = true},
};

struct kind {
    const char *name;
    unsigned type, window;
    enum quire_dtype dtype;
    const char *cpu;
    uint64_t seed;
    unsigned setups; /* bit i: SETUPS[i] */
};

static const struct kind KINDS[] = {
    {"F32 float32", 0, 0, QUIRE_FLOAT32, NULL, 1, 0x1ff},
    {"Q4_1 bfloat16", 3, 0, QUIRE_BFLOAT16, NULL, 2, 0x1ff},
    {"Q8_0 float16, window 40", 8, 40, QUIRE_FLOAT16, NULL, 3, 0x1ff},
    {"F32 bfloat16, ref", 0, 0, QUIRE_BFLOAT16, "ref", 4, 0x19},
    {"Q4_1 float32, window 24, avx2", 3, 24, QUIRE_FLOAT32, "avx2", 5, 0x1b},
    {"Q8_0 bfloat16, ref", 8, 0, QUIRE_BFLOAT16, "ref", 6, 0x24},
};

/* Under a sanitizer a run costs some ten times as much: every second setup will do. */
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
enum { STRIDE = 2 };
#else
enum { STRIDE = 1 };
#endif

static void check_kind(const struct kind *k) {
    struct tiny_model_options o = tiny_model_defaults();
    o.n_layers = 2;
    o.width = 64;
    o.n_heads = 2;
    o.n_kv_heads = 1;
    o.ff = 96;
    o.n_vocab = 300;
    o.type = k->type;
    o.sliding_window = k->window;
    struct law1_model m = {.name = k->name,
                           .model = test_model_make(&o),
                           .n_vocab = o.n_vocab,
                           .max_prompt = 400,
                           .max_output = 96,
                           .tight_blocks = k->window ? 12 : 40,
                           .kv_floats = 2 * 2 * 32,
                           .dtype = k->dtype,
                           .cpu = k->cpu};
    law1_prepare(&m, k->seed);
    for (size_t i = 0; i < sizeof SETUPS / sizeof *SETUPS; i += STRIDE)
        if (k->setups >> i & 1) law1_check(&m, &SETUPS[i]);
    law1_free(&m);
}

/* Families whose layers differ: KV groups of several kinds, experts. */
static void check_family(const char *variant, unsigned type, size_t max_prompt, size_t tight_blocks,
                         size_t kv_floats) {
    struct law1_model m = {.name = variant,
                           .model = test_family_make(variant, type),
                           .n_vocab = 300,
                           .max_prompt = max_prompt,
                           .max_output = 96,
                           .tight_blocks = tight_blocks,
                           .kv_floats = kv_floats,
                           .dtype = QUIRE_BFLOAT16};
    law1_prepare(&m, 7);
    for (size_t i = 0; i < sizeof SETUPS / sizeof *SETUPS; i += STRIDE) law1_check(&m, &SETUPS[i]);
    law1_free(&m);
}

static void
test_windows_and_full(void **state) { /* 8 groups of a layer: one full, seven with a window of 40 */
    check_family("gemma3", 8, 200, 130, 2 * 32);
}

static void test_experts_and_sinks(void **state) { /* 2 groups of 2 layers */
    check_family("gpt-oss", 8, 400, 60, 2 * 2 * 2 * 32);
}

static void test_float(void **state) {
    check_kind(&KINDS[0]);
}
static void test_quantized(void **state) {
    check_kind(&KINDS[1]);
}
static void test_window(void **state) {
    check_kind(&KINDS[2]);
}
static void test_reference(void **state) {
    check_kind(&KINDS[3]);
}
static void test_avx2_window(void **state) {
    check_kind(&KINDS[4]);
}
static void test_quantized_reference(void **state) {
    check_kind(&KINDS[5]);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_float),
        cmocka_unit_test(test_quantized),
        cmocka_unit_test(test_window),
        cmocka_unit_test(test_reference),
        cmocka_unit_test(test_avx2_window),
        cmocka_unit_test(test_quantized_reference),
        cmocka_unit_test(test_windows_and_full),
        cmocka_unit_test(test_experts_and_sinks),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
