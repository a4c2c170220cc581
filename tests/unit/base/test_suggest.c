/* Distances against values worked out by hand. */
#include "base/suggest.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

static const char *const names[] = {"temperature", "top_p", "top_k", "max_tokens", "max-num-seqs", "n"};

static const char *nearest(const char *name, size_t *distance) {
    struct suggestion s;
    suggest_init(&s, name, strlen(name));
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) suggest_offer(&s, names[i]);
    *distance = s.distance;
    return s.nearest;
}

static void test_near(void **state) {
    static const struct {
        const char *given, *nearest; /* NULL: none is near */
        size_t distance;
    } rows[] = {{"temprature", "temperature", 1},
                {"Temperature", "temperature", 1},
                {"top", NULL, SIZE_MAX}, /* 2 edits of 3 letters: more than half */
                {"top_q", "top_p", 1},
                {"max-tokens", "max_tokens", 0},
                {"max_num_seq", "max-num-seqs", 1},
                {"maxtokens", "max_tokens", 1},
                {"", NULL, SIZE_MAX},
                {"x", NULL, SIZE_MAX},
                {"temp", NULL, SIZE_MAX},
                {"entirely different", NULL, SIZE_MAX}};
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        size_t d;
        const char *got = nearest(rows[i].given, &d);
        if (!got != !rows[i].nearest || (got && strcmp(got, rows[i].nearest)) || d != rows[i].distance)
            fail_msg("%s: %s at %zu", rows[i].given, got ? got : "nothing", d);
    }
}

static void test_long_names(void **state) {
    (void)state;
    char name[4096];
    size_t d;
    memset(name, 'm', sizeof name - 1);
    name[sizeof name - 1] = 0;
    assert_null(nearest(name, &d));
    struct suggestion s;
    suggest_init(&s, "m", 1);
    suggest_offer(&s, name);
    assert_null(s.nearest);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_near), cmocka_unit_test(test_long_names)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
