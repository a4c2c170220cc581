/* Stop strings against a naive search, over every way to cut a text into tokens; the event ring. */
#include "engine/ring.h"
#include "engine/stop.h"
#include "util_engine.h"

#include <pthread.h>
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { MAX_STOPS = 3, MAX_LEN = 16 };

struct stops {
    struct stop_string strings[MAX_STOPS];
    uint16_t borders[MAX_STOPS][MAX_LEN];
    char texts[MAX_STOPS][MAX_LEN];
    size_t n;
};

static void add_stop(struct stops *s, const char *text) {
    size_t i = s->n++;
    strcpy(s->texts[i], text);
    s->strings[i] = (struct stop_string){s->texts[i], strlen(text), s->borders[i], 0};
    stop_prepare(&s->strings[i]);
}

static struct stop_matcher start(struct stops *s) {
    for (size_t i = 0; i < s->n; i++) s->strings[i].matched = 0;
    return (struct stop_matcher){s->strings, s->n};
}

/* End of the first complete stop string and its length (the longest of those that end there); 0 if there is
 * none. */
static size_t naive_end(const struct stops *s, const char *text, size_t n, size_t *len) {
    for (size_t end = 1; end <= n; end++) {
        *len = 0;
        for (size_t i = 0; i < s->n; i++) {
            size_t k = strlen(s->texts[i]);
            if (k <= end && k > *len && !memcmp(text + end - k, s->texts[i], k)) *len = k;
        }
        if (*len) return end;
    }
    return 0;
}

/* Longest end of text[0 .. n) that begins a stop string. */
static size_t naive_held(const struct stops *s, const char *text, size_t n) {
    size_t most = 0;
    for (size_t i = 0; i < s->n; i++)
        for (size_t k = 1; k < strlen(s->texts[i]) && k <= n; k++)
            if (k > most && !memcmp(text + n - k, s->texts[i], k)) most = k;
    return most;
}

/* Feeds text cut after the bytes whose bit is set in cuts, and compares with the naive answers. */
static void check_split(struct stops *s, const char *text, size_t n, unsigned cuts) {
    struct stop_matcher m = start(s);
    struct stop_hit hit;
    size_t len, end = naive_end(s, text, n, &len), shown = 0;
    for (size_t from = 0, to; from < n; from = to) {
        to = from + 1;
        while (to < n && !(cuts >> (to - 1) & 1)) to++;
        bool hits = stop_feed(&m, (const uint8_t *)text + from, to - from, false, &hit);
        assert_int_equal(hits, end && end <= to);
        if (hits) {
            assert_int_equal(to - hit.n_after, end);
            assert_int_equal(s->strings[hit.which].len, len);
            assert_true(shown <= end - len); /* nothing of the stop string was shown */
            return;
        }
        assert_int_equal(stop_held(&m), naive_held(s, text, to));
        shown = to - stop_held(&m);
    }
    assert_int_equal(end, 0);
}

static void check_all_splits(struct stops *s, const char *text) {
    size_t n = strlen(text);
    for (unsigned cuts = 0; cuts < 1u << (n - 1); cuts++) check_split(s, text, n, cuts);
}

static void test_overlapping_prefixes(void **state) {
    struct stops s = {0};
    add_stop(&s, "aab");
    check_all_splits(&s, "aaab");
    check_all_splits(&s, "aaaaaabcc");
    check_all_splits(&s, "aacaaabb");
    check_all_splits(&s, "aa"); /* a false start at the end of the text */
    check_all_splits(&s, "ccaa");
}

static void test_first_complete_wins(void **state) {
    struct stops s = {0};
    add_stop(&s, "abcd");
    add_stop(&s, "bc");
    check_all_splits(&s, "xabcdx");
    struct stops t = {0};
    add_stop(&t, "bcd");
    add_stop(&t, "abcd"); /* both end at the same byte: the one that begins first */
    add_stop(&t, "d");
    check_all_splits(&t, "xxabcdx");
}

static void test_self_overlap(void **state) {
    struct stops s = {0};
    add_stop(&s, "abab");
    add_stop(&s, "aba");
    check_all_splits(&s, "aababab");
    struct stops t = {0};
    add_stop(&t, "aabaaa");
    check_all_splits(&t, "aabaabaaab");
}

static void test_random_texts(void **state) {
    uint64_t random = 3;
    for (int round = 0; round < 400; round++) {
        struct stops s = {0};
        char text[12] = {0};
        size_t n = 1 + test_random(&random, 11), n_stops = 1 + test_random(&random, MAX_STOPS);
        for (size_t i = 0; i < n; i++) text[i] = (char)('a' + test_random(&random, 2));
        for (size_t i = 0; i < n_stops; i++) {
            char stop[8] = {0};
            for (size_t k = 1 + test_random(&random, 6); k--;)
                stop[k] = (char)('a' + test_random(&random, 2));
            if (*stop) add_stop(&s, stop);
        }
        if (s.n) check_all_splits(&s, text);
    }
}

static void test_muted_pieces(void **state) {
    struct stops s = {0};
    struct stop_hit hit;
    add_stop(&s, "aa");
    struct stop_matcher m = start(&s);
    assert_false(stop_feed(&m, (const uint8_t *)"aaa", 3, true, &hit)); /* min_tokens not reached */
    assert_int_equal(stop_held(&m), 1);
    assert_true(
        stop_feed(&m, (const uint8_t *)"ab", 2, false, &hit)); /* begins in the muted piece, ends here */
    assert_int_equal(hit.n_after, 1);
    m = start(&s);
    assert_false(
        stop_feed(&m, (const uint8_t *)"aa", 2, true, &hit)); /* passed over, and yet half of the next */
    assert_int_equal(stop_held(&m), 1);
    assert_true(stop_feed(&m, (const uint8_t *)"a", 1, false, &hit));
}

static void test_no_stops(void **state) {
    struct stop_matcher m = {0};
    struct stop_hit hit;
    assert_false(stop_feed(&m, (const uint8_t *)"abc", 3, false, &hit));
    assert_int_equal(stop_held(&m), 0);
}

/* ---- ring ------------------------------------------------------------------------------------------------
 */

struct ring_test {
    struct ring ring;
    uint32_t n;
};

static void *produce(void *arg) {
    struct ring_test *t = arg;
    for (uint32_t i = 0; i < t->n;) {
        bool last = i + 1 == t->n;
        if (!last && !ring_has_room(&t->ring)) {
            sched_yield();
            continue;
        }
        struct ring_event *e = ring_slot(&t->ring);
        e->chosen.token = i;
        e->n_top = 2;
        e->top[0].token = i + 1;
        e->top[1].token = i + 2;
        e->finish = last;
        ring_push(&t->ring);
        i++;
    }
    return NULL;
}

static void test_ring_passes_everything_in_order(void **state) {
    struct ring_test t = {.n = 20000};
    t.ring.stride = ring_stride(2);
    t.ring.capacity = ring_capacity(16, 2);
    assert_true(t.ring.capacity >= 16);
    t.ring.slots = calloc(t.ring.capacity, t.ring.stride);
    assert_non_null(t.ring.slots);
    pthread_t thread;
    assert_int_equal(pthread_create(&thread, NULL, produce, &t), 0);
    for (uint32_t i = 0; i < t.n; i++) {
        const struct ring_event *e;
        while (!(e = ring_front(&t.ring))) sched_yield();
        assert_int_equal(e->chosen.token, i);
        assert_int_equal(e->top[1].token, i + 2);
        assert_int_equal(e->finish, i + 1 == t.n);
        ring_pop(&t.ring);
    }
    assert_null(ring_front(&t.ring));
    pthread_join(thread, NULL);
    free(t.ring.slots);
}

static void test_ring_keeps_a_slot_for_the_last_event(void **state) {
    struct ring r = {.stride = ring_stride(0), .capacity = 4};
    r.slots = calloc(4, r.stride);
    assert_non_null(r.slots);
    for (int i = 0; i < 3; i++) {
        assert_true(ring_has_room(&r));
        ring_slot(&r)->finish = 0;
        ring_push(&r);
    }
    assert_false(ring_has_room(&r));
    ring_slot(&r)->finish = 1;
    ring_push(&r);
    for (int i = 0; i < 4; i++) {
        assert_int_equal(ring_front(&r)->finish, i == 3);
        ring_pop(&r);
    }
    assert_null(ring_front(&r));
    free(r.slots);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_overlapping_prefixes),
        cmocka_unit_test(test_first_complete_wins),
        cmocka_unit_test(test_self_overlap),
        cmocka_unit_test(test_random_texts),
        cmocka_unit_test(test_muted_pieces),
        cmocka_unit_test(test_no_stops),
        cmocka_unit_test(test_ring_passes_everything_in_order),
        cmocka_unit_test(test_ring_keeps_a_slot_for_the_last_event),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
