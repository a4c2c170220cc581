/* Law 1 and the memory plan on a real model: the file that QUIRE_TEST_MODEL names, or the default model in
 * the cache of the user; skipped, and saying so, when there is none. */
#include "engine/meminfo.h"
#include "util_law1.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

static const char *model_path(char *buffer, size_t n) {
    const char *path = getenv("QUIRE_TEST_MODEL"), *home = getenv("HOME");
    if (path) return path;
    snprintf(buffer, n, "%s/.cache/quire/SmolLM2-135M-Instruct.Q4_1.gguf", home ? home : "");
    return access(buffer, R_OK) ? NULL : buffer;
}

static bool open_model(struct test_model *m) {
    char buffer[512];
    const char *path = model_path(buffer, sizeof buffer);
    struct error err;
    *m = (struct test_model){0};
    if (!path) {
        print_message("no model (QUIRE_TEST_MODEL, or `quire pull smollm2`): not checked\n");
        return false;
    }
    if (weights_open(path, &m->weights, &err)) fail_msg("%s: %s", path, err.text);
    return true;
}

static void test_law1(void **state) {
    static const struct law1_setup setups[] = {
        {.budget = 64, .max_seqs = 32, .n_threads = 2, .cache = true, .tight = true},
        {.budget = 8192, .max_seqs = 64, .n_threads = 1, .cache = true},
        {.budget = 512, .max_seqs = 64, .n_threads = 2, .cache = false, .tight = true, .by_priority = true},
    };
    struct law1_model m = {.name = "real model",
                           .n_vocab = 4000, /* of 49,152: the ids that requests use */
                           .max_prompt = 160,
                           .max_output = 40,
                           .tight_blocks = 17,
                           .dtype = QUIRE_BFLOAT16};
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
    print_message("under a sanitizer only the small models are checked\n");
    skip();
#endif
    if (!open_model(&m.model)) skip();
    struct quire_config c = test_config(&m.model);
    c.dtype = m.dtype;
    c.kv_bytes = (uint64_t)64 << 20;
    struct quire_engine *e = test_open(&c);
    m.kv_floats = quire_info(e)->kv_bytes_per_token / 2;
    m.model.bytes = test_make_bytes(quire_info(e)->n_vocab);
    quire_shutdown(e);
    law1_prepare(&m, 11);
    for (size_t i = 0; i < sizeof setups / sizeof *setups; i++) law1_check(&m, &setups[i]);
    law1_free(&m);
}

/* The plan's rows are what is resident in the end, and the engine opens in well under a second. */
static void test_plan_is_true(void **state) {
    struct test_model m;
    if (!open_model(&m)) skip();
    m.bytes = test_make_bytes(16);
    struct quire_config c = test_config(&m);
    struct timespec a, b;
    c.dtype = QUIRE_BFLOAT16;
    c.token_bytes = NULL;
    c.n_threads = 0;
    c.max_num_seqs = 64;
    c.max_num_batched_tokens = 8192;
    c.max_model_len = 0;
    c.kv_bytes = (uint64_t)512 << 20;
    clock_gettime(CLOCK_MONOTONIC, &a);
    struct quire_engine *e = test_open(&c);
    clock_gettime(CLOCK_MONOTONIC, &b);
    const struct quire_info *i = quire_info(e);
    uint32_t prompt[4000];
    for (uint32_t k = 0; k < 4000; k++) prompt[k] = 20 + k * 7 % 4000;
    struct quire_request q = {.prompt = prompt, .n_prompt = 700, .sampling = test_greedy(3)};
    struct quire_stream *s[4];
    struct quire_event ev;
    struct error err;
    q.sampling.n_prompt_logprobs = 5;
    for (int k = 0; k < 4; k++) {
        q.prompt = prompt + 700 * k;
        if (quire_submit(e, &q, &s[k], &err)) fail_msg("%s", err.text);
    }
    for (int k = 0; k < 4; k++) {
        do {
            assert_int_equal(quire_wait(s[k], &ev, 300000000), 1);
        } while (ev.finish == QUIRE_RUNNING);
        quire_close(s[k]);
    }
    for (int k = 0; k < 60000 && atomic_load(&quire_stats(e)->blocks_resident) < i->n_blocks; k++)
        nanosleep(&(struct timespec){0, 1000000}, NULL);
    assert_int_equal(atomic_load(&quire_stats(e)->blocks_resident), i->n_blocks);
    double resident = (double)meminfo_resident_bytes();
    for (int k = 0; k < QUIRE_MEMORY_ROWS; k++)
        printf("%-12s %8.1f MiB  %s\n", i->memory[k].name, (double)i->memory[k].bytes / (1 << 20),
               i->memory[k].detail);
    printf("resident     %8.1f MiB; opened in %.2f s\n", resident / (1 << 20),
           (double)(b.tv_sec - a.tv_sec) + (double)(b.tv_nsec - a.tv_nsec) * 1e-9);
    assert_true((double)i->memory[0].bytes <= 1.05 * (double)weights_tensor_bytes(m.weights));
    assert_true(i->memory[2].bytes + i->memory[3].bytes + i->memory[4].bytes <= (uint64_t)128 << 20);
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
    double total = (double)i->memory[5].bytes;
    assert_true(resident <= 1.02 * total);
    assert_true(resident >= 0.9 * total); /* nor is the plan a guess far too high */
#endif
    quire_shutdown(e);
    test_model_free(&m);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_plan_is_true), cmocka_unit_test(test_law1)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
