/* Law 1, the whole matrix, on small models of every kind and every kernel
 * path that this machine has, prompts of up to 2,000 tokens (400 on the reference path). Minutes, so not
 * among the quick tests. */
#include "kern/kern.h"
#include "util_law1.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

static const size_t BUDGETS[] = {16, 100, 512, 8192}, THREADS[] = {1, 2, 4};

/* Budgets, cache and pool all with all; thread counts and the rest turn with `turn`, so that over the kinds
 * of one path each meets each. */
static void check_matrix(struct law1_model *m, size_t turn) {
    for (size_t b = 0; b < 4; b++) {
        for (size_t bits = 0; bits < 4; bits++) {
            size_t k = b + bits + turn;
            struct law1_setup s = {.budget = BUDGETS[b],
                                   .max_seqs = BUDGETS[b] < 64 ? 16 : 64,
                                   .n_threads = THREADS[k % 3],
                                   .cache = bits & 1,
                                   .tight = bits >> 1,
                                   .by_priority = k / 3 % 2,
                                   .block_tokens = k % 4 == 3 ? 32 : 16,
                                   .long_prefill = b == 2 && k % 2 ? 77 : 0,
                                   .unchunked = b == 3 && k % 2};
            law1_check(m, &s);
        }
    }
}

static void check_kind(unsigned type, unsigned window, enum quire_dtype dtype, const char *cpu,
                       size_t max_prompt, uint64_t seed) {
    static const char *const types[] = {[0] = "F32", [3] = "Q4_1", [8] = "Q8_0"};
    char name[64];
    struct tiny_model_options o = tiny_model_defaults();
    o.n_layers = 2;
    o.width = 64;
    o.n_heads = 2;
    o.n_kv_heads = 1;
    o.ff = 96;
    o.n_vocab = 300;
    o.type = type;
    o.sliding_window = window;
    snprintf(name, sizeof name, "%s dtype %d window %u", types[type], (int)dtype, window);
    struct law1_model m = {.name = name,
                           .model = test_model_make(&o),
                           .n_vocab = o.n_vocab,
                           .max_prompt = max_prompt,
                           .max_output = 200,
                           .tight_blocks = window ? 16 : (max_prompt + 432) / 16 + 6,
                           .kv_floats = 2 * 2 * 32,
                           .dtype = dtype,
                           .cpu = cpu};
    law1_prepare(&m, seed);
    check_matrix(&m, seed);
    law1_free(&m);
}

static void check_path(enum kern_isa isa, const char *cpu, size_t max_prompt) {
    static const enum quire_dtype dtypes[] = {QUIRE_BFLOAT16, QUIRE_FLOAT16, QUIRE_FLOAT32};
    static const unsigned types[] = {0, 3, 8};
    if (!kern_table(isa)) {
        print_message("this machine has no %s: not checked\n", cpu);
        skip();
    }
    for (size_t i = 0; i < 3; i++)
        for (size_t k = 0; k < 3; k++)
            check_kind(types[i], (i + k) % 3 == 1 ? 50 : 0, dtypes[k], cpu, max_prompt, 3 * i + k);
}

static void test_ref(void **state) {
    check_path(KERN_ISA_REF, "ref", 400);
}
static void test_avx2(void **state) {
    check_path(KERN_ISA_AVX2, "avx2", 2000);
}
static void test_avx512(void **state) {
    check_path(KERN_ISA_AVX512, "avx512", 2000);
}
static void test_amx(void **state) {
    check_path(KERN_ISA_AMX, "amx", 2000);
}

/* One argument: which of the tests ("test_avx*"). */
int main(int argc, char **argv) {
    if (argc > 1) cmocka_set_test_filter(argv[1]);
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_ref), cmocka_unit_test(test_avx2),
                                       cmocka_unit_test(test_avx512), cmocka_unit_test(test_amx)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
