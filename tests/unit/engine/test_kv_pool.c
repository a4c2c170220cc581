/* The block pool: random operations against a naive model, and the rules that a reader would ask about. */
#include "kv_model.h"
#include "util_engine.h"

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

static void test_random_operations(void **state) {
    uint64_t seed = 20261129;
    uint8_t bytes[3000];
    for (int round = 0; round < 300; round++) {
        for (size_t i = 0; i < sizeof bytes; i++) bytes[i] = (uint8_t)test_random(&seed, 256);
        model_play(bytes, sizeof bytes);
    }
}

static struct kv_pool *make_pool(size_t n_blocks) {
    struct kv_pool *p;
    assert_int_equal(kv_pool_create(n_blocks + 1, 4, &p, NULL), 0);
    kv_pool_grow(p, n_blocks + 1);
    return p;
}

static const struct hash128 ROOT = {1, 1};

static uint32_t named(struct kv_pool *p, uint32_t token) {
    uint32_t tokens[4] = {token, token, token, token}, b = kv_pool_take(p);
    assert_int_not_equal(b, 0);
    kv_pool_fill(p, b, 4);
    assert_true(kv_pool_name(p, b, 0, ROOT, (struct hash128){token, 9}, tokens));
    return b;
}

static uint32_t find(const struct kv_pool *p, uint32_t token) {
    uint32_t tokens[4] = {token, token, token, token};
    return kv_pool_find(p, 0, ROOT, (struct hash128){token, 9}, tokens);
}

static void test_only_resident_blocks(void **state) {
    struct kv_pool *p;
    assert_int_equal(kv_pool_create(10, 4, &p, NULL), 0);
    assert_int_equal(kv_pool_take(p), 0);
    kv_pool_grow(p, 3); /* blocks 1 and 2 */
    assert_int_equal(kv_pool_take(p), 1);
    assert_int_equal(kv_pool_take(p), 2);
    assert_int_equal(kv_pool_take(p), 0);
    kv_pool_grow(p, 1000);
    for (uint32_t i = 3; i < 10; i++) assert_int_equal(kv_pool_take(p), i);
    assert_int_equal(kv_pool_take(p), 0);
    assert_null(kv_pool_check(p));
    kv_pool_free(p);
}

static void test_least_recently_used_goes_first(void **state) {
    struct kv_pool *p = make_pool(4);
    uint32_t b[4];
    for (uint32_t i = 0; i < 4; i++) b[i] = named(p, i);
    for (uint32_t i = 0; i < 4; i++) kv_pool_drop(p, b[3 - i]); /* 3 is the oldest, then 2, 1, 0 */
    kv_pool_hold(p, b[2]);                                      /* used again */
    kv_pool_drop(p, b[2]);
    const uint32_t order[] = {3, 1, 0, 2};
    for (int i = 0; i < 4; i++) {
        for (uint32_t t = 0; t < 4; t++) {
            bool gone = false;
            for (int j = 0; j < i; j++) gone |= order[j] == t;
            assert_int_equal(find(p, t), gone ? 0 : b[t]);
        }
        assert_int_equal(kv_pool_take(p), b[order[i]]);
    }
    assert_int_equal(kv_pool_stats(p)->evictions, 4);
    kv_pool_free(p);
}

/* A burst of prompts that are seen once must not push out a prefix that has been hit. */
static void test_proven_blocks_outlive_a_burst(void **state) {
    struct kv_pool *p = make_pool(8);
    uint32_t shared = named(p, 100);
    kv_pool_touch(p, shared);
    kv_pool_drop(p, shared);
    for (uint32_t i = 0; i < 50; i++) kv_pool_drop(p, named(p, i));
    assert_int_equal(find(p, 100), shared);
    assert_null(kv_pool_check(p));
    kv_pool_free(p);
}

/* ... but what was once popular may not hold the pool for ever. */
static void test_proven_blocks_are_bounded(void **state) {
    struct kv_pool *p = make_pool(8);
    for (uint32_t i = 0; i < 8; i++) {
        uint32_t b = named(p, i);
        kv_pool_touch(p, b);
        kv_pool_drop(p, b);
    }
    for (uint32_t i = 100; i < 104; i++) kv_pool_drop(p, named(p, i));
    for (uint32_t i = 0; i < 4; i++) assert_int_equal(find(p, i), 0);     /* the oldest had fallen back */
    for (uint32_t i = 4; i < 8; i++) assert_int_not_equal(find(p, i), 0); /* half stay */
    assert_null(kv_pool_check(p));
    kv_pool_free(p);
}

static void test_unkeyed_blocks_go_before_cached_ones(void **state) {
    struct kv_pool *p = make_pool(3);
    uint32_t a = named(p, 1), b = kv_pool_take(p), c = kv_pool_take(p);
    kv_pool_drop(p, a);
    kv_pool_drop(p, b);
    kv_pool_drop(p, c);
    assert_int_equal(kv_pool_take(p), c); /* warm */
    assert_int_equal(kv_pool_take(p), b);
    assert_int_equal(find(p, 1), a);
    assert_int_equal(kv_pool_take(p), a);
    assert_int_equal(find(p, 1), 0);
    kv_pool_free(p);
}

static void test_bad_sizes(void **state) {
    struct kv_pool *p;
    struct error err;
    assert_int_equal(kv_pool_create(0, 16, &p, &err), QUIRE_EINVAL);
    assert_int_equal(kv_pool_create(1, 16, &p, &err), QUIRE_EINVAL);
    assert_int_equal(kv_pool_create(16, 0, &p, &err), QUIRE_EINVAL);
    assert_int_equal(kv_pool_create(SIZE_MAX / 2, 16, &p, &err), QUIRE_EINVAL);
    assert_int_equal(kv_pool_create(16, 70000, &p, &err), QUIRE_EINVAL);
    assert_int_equal(kv_pool_bytes(SIZE_MAX / 8, 1000), 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_random_operations),
        cmocka_unit_test(test_only_resident_blocks),
        cmocka_unit_test(test_least_recently_used_goes_first),
        cmocka_unit_test(test_proven_blocks_outlive_a_burst),
        cmocka_unit_test(test_proven_blocks_are_bounded),
        cmocka_unit_test(test_unkeyed_blocks_go_before_cached_ones),
        cmocka_unit_test(test_bad_sizes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
