/* Prompts with a known fault: what is counted follows from how they are made. */
#include "serve/prompt_stats.h"

#include "util/alloc_fail.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

/* Tokens of a text number `text`: the same each time, and none is like another's (2^31 values). */
static size_t put(uint32_t *to, size_t at, unsigned text, size_t n) {
    uint64_t x = text * UINT64_C(0x9E3779B97F4A7C15) + 1;
    for (size_t i = 0; i < n; i++) {
        x = x * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
        to[at + i] = (uint32_t)(x >> 33);
    }
    return at + n;
}

static struct prompt_stats *fresh(void) {
    struct prompt_stats *p;
    struct error err;
    assert_int_equal(prompt_stats_new(&p, &err), 0);
    return p;
}

static struct prompt_figures figures(struct prompt_stats *p) {
    struct prompt_figures f;
    prompt_stats_read(p, &f);
    return f;
}

static uint64_t displaced(const struct prompt_figures *f) {
    return f->displaced_tokens[0] + f->displaced_tokens[1] + f->displaced_tokens[2];
}

/* A name of 3 to 9 tokens at the start, 600 tokens that stay, 40 that are new. */
static void changing_field(void **state) {
    for (size_t at = 0; at <= 100; at += 50) { /* tokens that stay in front of the name */
        struct prompt_stats *p = fresh();
        uint32_t t[1000];
        for (unsigned i = 0; i < 100; i++) {
            size_t n = put(t, 0, 1, at);
            n = put(t, n, 1000 + i, 3 + i % 7);
            n = put(t, n, 2, 600);
            n = put(t, n, 5000 + i, 40);
            prompt_stats_note(p, t, n, NULL);
        }
        struct prompt_figures f = figures(p);
        assert_int_equal(f.prompts, 100);
        assert_int_equal(f.displaced_prompts[PROMPT_FIELD], 99);
        assert_int_equal(f.displaced_prompts[PROMPT_CUT] + f.displaced_prompts[PROMPT_ORDER], 0);
        /* all of the 600 but the chunk in which the name ends; no more than there are */
        assert_in_range(f.displaced_tokens[PROMPT_FIELD], 99 * (600 - 2 * 64), 99 * 600);
        assert_int_equal(f.difference_tokens[PROMPT_FIELD], 99 * (at / 16 * 16));
        assert_int_equal(f.prefix_tokens, 99 * (at / 16 * 16));
        prompt_stats_free(p);
    }
}

/* What is as it should be: the same beginning and a new end; conversations that grow; nothing in common. */
static void healthy(void **state) {
    struct prompt_stats *p = fresh();
    uint32_t t[4000];
    for (unsigned i = 0; i < 100; i++) prompt_stats_note(p, t, put(t, put(t, 0, 1, 512), 100 + i, 90), NULL);
    struct prompt_figures f = figures(p);
    assert_int_equal(displaced(&f), 0);
    assert_int_equal(f.prefix_tokens, 99 * 512);
    for (unsigned user = 0; user < 5; user++)
        for (unsigned turns = 1; turns < 10; turns++) {
            size_t n = put(t, 0, 2, 200);
            for (unsigned k = 0; k < turns; k++) n = put(t, n, 10000 + 100 * user + k, 150);
            prompt_stats_note(p, t, n, NULL);
        }
    for (unsigned i = 0; i < 100; i++) prompt_stats_note(p, t, put(t, 0, 20000 + i, 300), NULL);
    for (unsigned i = 0; i < 20; i++) prompt_stats_note(p, t, put(t, 0, 3, 300), NULL); /* word for word */
    /* an end that all have in common, as templates make it */
    for (unsigned i = 0; i < 100; i++) prompt_stats_note(p, t, put(t, put(t, 0, 30000 + i, 300), 4, 8), NULL);
    f = figures(p);
    assert_int_equal(displaced(&f), 0);
    prompt_stats_free(p);
}

static void passages_and_histories(void **state) {
    struct prompt_stats *p = fresh();
    uint32_t t[8000];
    for (unsigned i = 0; i < 200; i++) { /* five passages, in an order drawn each time */
        unsigned passages[5] = {10, 11, 12, 13, 14};
        uint32_t draws[5];
        size_t n = put(t, 0, 1, 128);
        put(draws, 0, 7777 + i, 5);
        for (unsigned k = 0; k < 5; k++) {
            unsigned chosen = k + draws[k] % (5 - k), passage = passages[chosen];
            passages[chosen] = passages[k];
            n = put(t, n, passage, 300);
        }
        prompt_stats_note(p, t, put(t, n, 1000 + i, 30), NULL);
    }
    struct prompt_figures f = figures(p);
    assert_true(f.displaced_prompts[PROMPT_ORDER] > 50);
    assert_true(f.displaced_prompts[PROMPT_ORDER] >
                4 * (f.displaced_prompts[PROMPT_FIELD] + f.displaced_prompts[PROMPT_CUT]));
    prompt_stats_free(p);
    p = fresh();
    for (unsigned i = 0; i < 40; i++) { /* the last eight turns of a conversation, the oldest falls out */
        size_t n = put(t, 0, 1, 128);
        for (unsigned k = 0; k < 8; k++) n = put(t, n, 100 + i + k, 150);
        prompt_stats_note(p, t, n, NULL);
    }
    f = figures(p);
    assert_int_equal(f.displaced_prompts[PROMPT_CUT], 39);
    assert_int_equal(f.displaced_prompts[PROMPT_FIELD] + f.displaced_prompts[PROMPT_ORDER], 0);
    assert_in_range(f.displaced_tokens[PROMPT_CUT], 39 * (7 * 150 - 128), 39 * 7 * 150);
    prompt_stats_free(p);
}

/* Turns of a few words: what follows moves no further than behind a field that changes, but always by as much
 * and to the front. A field whose length changes moves it to and fro. */
static void short_turns_and_long_fields(void **state) {
    struct prompt_stats *p = fresh();
    uint32_t t[8000], length;
    for (unsigned i = 0; i < 40; i++) {
        size_t n = put(t, 0, 1, 128);
        for (unsigned k = 0; k < 20; k++) n = put(t, n, 100 + i + k, 40);
        prompt_stats_note(p, t, n, NULL);
    }
    struct prompt_figures f = figures(p);
    assert_int_equal(f.displaced_prompts[PROMPT_CUT], 39);
    assert_int_equal(f.displaced_prompts[PROMPT_FIELD] + f.displaced_prompts[PROMPT_ORDER], 0);
    prompt_stats_free(p);
    p = fresh();
    for (unsigned i = 0; i < 100; i++) {
        put(&length, 0, 555 + i, 1);
        prompt_stats_note(p, t, put(t, put(t, 0, 2000 + i, 10 + length % 12), 2, 600), NULL);
    }
    f = figures(p);
    assert_int_equal(f.displaced_prompts[PROMPT_FIELD], 99);
    prompt_stats_free(p);
}

/* Nobody learns by it whether another salt has sent the same text. */
static void salts(void **state) {
    struct prompt_stats *p = fresh();
    uint32_t t[1000];
    char salt[] = "a";
    for (unsigned i = 0; i < 20; i++, salt[0]++)
        prompt_stats_note(p, t, put(t, put(t, 0, 50 + i % 3, 5), 2, 600), salt);
    struct prompt_figures f = figures(p);
    assert_int_equal(displaced(&f) + f.prefix_tokens, 0);
    prompt_stats_note(p, t, put(t, put(t, 0, 99, 5), 2, 600), "a");
    f = figures(p);
    assert_true(f.displaced_tokens[PROMPT_FIELD] > 400);
    prompt_stats_free(p);
}

/* The table has one size: prompts without end, of any length, and it still counts. */
static void bounded(void **state) {
    struct prompt_stats *p = fresh();
    uint32_t *t = calloc(20000, sizeof *t);
    assert_non_null(t);
    for (unsigned i = 0; i < 600; i++) prompt_stats_note(p, t, put(t, 0, 100 + i, 20000), NULL);
    struct prompt_figures f = figures(p);
    assert_int_equal(f.tokens, 600 * PROMPT_STATS_TOKENS);
    assert_int_equal(displaced(&f) + f.prefix_tokens, 0);
    for (unsigned i = 0; i < 3; i++) prompt_stats_note(p, t, put(t, put(t, 0, 7000 + i, 4), 2, 600), NULL);
    f = figures(p);
    assert_int_equal(f.displaced_prompts[PROMPT_FIELD], 2);
    prompt_stats_note(p, t, 0, NULL);
    prompt_stats_note(p, t, 1, NULL);
    memset(t, 0, 20000 * sizeof *t);
    for (unsigned i = 0; i < 3; i++) prompt_stats_note(p, t, 20000, NULL); /* one token, over and over */
    assert_int_equal(figures(p).prompts, 600 + 3 + 1 + 3);
    free(t);
    prompt_stats_free(p);
    prompt_stats_note(NULL, NULL, 5, NULL);
    assert_int_equal(figures(NULL).prompts, 0);
    assert_true(prompt_stats_bytes() < 3u << 20);
}

static void open_and_free(void *ctx) {
    struct prompt_stats *p;
    struct error err = {0};
    int rc = prompt_stats_new(&p, &err);
    assert_true(!rc == !!p && (!rc || (rc == QUIRE_ENOMEM && *err.text)));
    prompt_stats_free(p);
}

static void failing_allocations(void **state) {
    assert_int_equal(alloc_fail_each(open_and_free, NULL), 2);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(changing_field), cmocka_unit_test(healthy), cmocka_unit_test(passages_and_histories), cmocka_unit_test(short_turns_and_long_fields),
        cmocka_unit_test(salts),          cmocka_unit_test(bounded), cmocka_unit_test(failing_allocations),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
