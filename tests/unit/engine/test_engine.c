/* The engine on a tiny model, through quire.h: answers, ends, refusals, usage and figures. */
#include "util_engine.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static void test_smoke(void **state) {
    struct tiny_model_options o = tiny_model_defaults();
    struct test_model m = test_model_make(&o);
    struct quire_config c = test_config(&m);
    struct quire_engine *e = test_open(&c);
    uint32_t prompt[] = {5, 6, 7, 8, 9};
    struct quire_request q = {.prompt = prompt, .n_prompt = 5, .sampling = test_greedy(16)};
    struct test_result r[2];
    test_run(e, &q, 1, &m, r);
    for (size_t i = 0; i < r[0].n; i++) printf("%u ", r[0].tokens[i]);
    printf("\n");
    test_results_free(r, 1);
    test_baseline(e, 1);
    quire_shutdown(e);
    test_model_free(&m);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_smoke)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
