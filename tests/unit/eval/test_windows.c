#include "eval/windows.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

/* The loop of transformers' documentation (tests/golden/eval_golden.py). */
static void strides_are_those_of_transformers(void **state) {
    FILE *f = fopen(TEST_DATA "/eval/windows.txt", "r");
    size_t n_tokens, context, stride, n, n_cases = 0;
    assert_non_null(f);
    for (; fscanf(f, "%zu %zu %zu %zu", &n_tokens, &context, &stride, &n) == 4; n_cases++) {
        struct window *list;
        size_t got;
        struct error err;
        assert_int_equal(windows_plan(n_tokens, context, stride, &list, &got, &err), 0);
        assert_int_equal(got, n);
        for (size_t i = 0; i < n; i++) {
            struct window want;
            assert_int_equal(fscanf(f, "%zu %zu %zu", &want.begin, &want.n, &want.first), 3);
            assert_memory_equal(&list[i], &want, sizeof want);
        }
        free(list);
    }
    fclose(f);
    assert_int_equal(n_cases, 12);
}

/* llama-perplexity: as many whole windows as there are; of 512 tokens, those at 257 to 511 are scored. */
static void halves(void **state) {
    struct window *list;
    size_t n;
    struct error err = {0};
    assert_int_equal(windows_plan(1535, 512, 0, &list, &n, &err), 0);
    assert_int_equal(n, 2);
    for (size_t i = 0; i < 2; i++) {
        assert_int_equal(list[i].begin, 512 * i);
        assert_int_equal(list[i].n, 512);
        assert_int_equal(list[i].first, 257);
    }
    free(list);
    assert_int_equal(windows_plan(1024, 512, 0, &list, &n, &err), 0);
    free(list);
    assert_int_equal(windows_plan(1023, 512, 0, &list, &n, &err), QUIRE_EINVAL);
    assert_non_null(strstr(err.text, "1023 tokens, at least 1024"));
    assert_int_equal(windows_plan(1, 512, 512, &list, &n, &err), QUIRE_EINVAL);
    assert_non_null(strstr(err.text, "1 tokens, at least 2"));
}

/* Every token but the first is scored exactly once, whatever the stride. */
static void strides_score_everything_once(void **state) {
    for (size_t n_tokens = 2; n_tokens < 40; n_tokens++)
        for (size_t context = 2; context < 12; context++)
            for (size_t stride = 1; stride < context; stride++) {
                unsigned char times[40] = {0};
                struct window *list;
                size_t n;
                struct error err;
                assert_int_equal(windows_plan(n_tokens, context, stride, &list, &n, &err), 0);
                for (size_t i = 0; i < n; i++)
                    for (size_t k = list[i].first; k < list[i].n; k++) times[list[i].begin + k]++;
                for (size_t i = 0; i < n_tokens; i++) assert_int_equal(times[i], i > 0);
                free(list);
            }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(strides_are_those_of_transformers),
        cmocka_unit_test(halves),
        cmocka_unit_test(strides_score_everything_once),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
