#include "base/hash.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

static struct hash128 from_bytes(const unsigned char b[16]) {
    struct hash128 h = {0, 0};
    for (int i = 0; i < 8; i++) {
        h.lo |= (uint64_t)b[i] << (8 * i);
        h.hi |= (uint64_t)b[i + 8] << (8 * i);
    }
    return h;
}

static void assert_hash(const char *what, struct hash128 got, struct hash128 want) {
    if (!hash128_equal(got, want))
        fail_msg("%s: %016" PRIx64 " %016" PRIx64 ", wanted %016" PRIx64 " %016" PRIx64, what, got.lo, got.hi,
                 want.lo, want.hi);
}

/* The 64 vectors of the reference implementation (github.com/veorq/SipHash, vectors_sip128). */
static void siphash_has_the_reference_vectors(void **state) {
    const struct hash_secret secret = {0x0706050403020100, 0x0f0e0d0c0b0a0908};
    unsigned char data[65];
    FILE *f = fopen(TEST_DATA "/base/siphash128.txt", "r");
    assert_non_null(f);
    size_t n = 0;
    char line[64];
    for (; fscanf(f, "%63s", line) == 1; n++) {
        unsigned char want[16];
        for (int i = 0; i < 16; i++) assert_int_equal(sscanf(line + 2 * i, "%2hhx", &want[i]), 1);
        for (size_t shift = 0; shift < 2; shift++) { /* aligned or not */
            for (size_t i = 0; i < n; i++) data[shift + i] = (unsigned char)i;
            assert_hash(line, hash128_sip(secret, data + shift, n), from_bytes(want));
        }
    }
    assert_int_equal(n, 64);
    fclose(f);
}

static struct hash128 golden_bulk(size_t n) {
    unsigned char data[1000];
    for (size_t i = 0; i < n; i++) data[i] = (unsigned char)(i * 7 + i / 256);
    return hash128_bulk(data, n);
}

static struct hash128 compute(const char *name) {
    const struct hash_secret s = {0x0123456789abcdef, 0xfedcba9876543210};
    const struct hash128 id = {0x1111222233334444, 0x5555666677778888};
    const struct hash128 root = kv_root_key(s, id, "lora-1", "tenant 7");
    uint32_t tokens[16];
    for (uint32_t i = 0; i < 16; i++) tokens[i] = 100 + i;
    if (!strcmp(name, "root")) return kv_root_key(s, id, NULL, NULL);
    if (!strcmp(name, "root-empty")) return kv_root_key(s, id, "", "");
    if (!strcmp(name, "root-adapter")) return kv_root_key(s, id, "ab", NULL);
    if (!strcmp(name, "root-salt")) return kv_root_key(s, id, NULL, "ab");
    if (!strcmp(name, "root-both")) return root;
    if (!strcmp(name, "block-16")) return kv_block_key(s, root, tokens, 16);
    if (!strcmp(name, "block-3")) return kv_block_key(s, root, (uint32_t[]){1, 0xffffffff, 0}, 3);
    if (!strcmp(name, "block-0")) return kv_block_key(s, root, NULL, 0);
    if (!strncmp(name, "bulk-", 5)) return golden_bulk((size_t)atoi(name + 5));
    assert_string_equal(name, "text");
    struct hash_secret t = hash_secret_from_text("shared secret", 13);
    return (struct hash128){t.k0, t.k1};
}

/* Against tests/golden/base_golden.py: other processes and stored blocks depend on these values. */
static void keys_are_as_described(void **state) {
    FILE *f = fopen(TEST_DATA "/base/hash_keys.txt", "r");
    assert_non_null(f);
    char name[32];
    struct hash128 want;
    int n = 0;
    for (; fscanf(f, "%31s %" SCNx64 " %" SCNx64, name, &want.lo, &want.hi) == 3; n++)
        assert_hash(name, compute(name), want);
    assert_int_equal(n, 18);
    fclose(f);
}

static void roots_differ_in_every_part(void **state) {
    const struct hash_secret s = {1, 2}, other = {1, 3};
    const struct hash128 id = {3, 4}, other_id = {4, 3};
    const struct hash128 keys[] = {
        kv_root_key(s, id, NULL, NULL),     kv_root_key(s, id, "", NULL),
        kv_root_key(s, id, NULL, ""),       kv_root_key(s, id, "ab", "c"),
        kv_root_key(s, id, "a", "bc"),      kv_root_key(s, id, "abc", ""),
        kv_root_key(s, id, "abc", NULL),    kv_root_key(s, id, NULL, "abc"),
        kv_root_key(other, id, NULL, NULL), kv_root_key(s, other_id, NULL, NULL),
        kv_block_key(s, id, NULL, 0),
    };
    const size_t n = sizeof keys / sizeof keys[0];
    for (size_t i = 0; i < n; i++)
        for (size_t k = 0; k < i; k++)
            if (hash128_equal(keys[i], keys[k])) fail_msg("keys %zu and %zu are the same", k, i);
}

static void blocks_differ_in_every_token(void **state) {
    const struct hash_secret s = {1, 2};
    const struct hash128 parent = {5, 6};
    uint32_t tokens[17] = {0};
    struct hash128 key = kv_block_key(s, parent, tokens, 16);
    for (size_t i = 0; i < 16; i++) {
        tokens[i] = 1;
        assert_false(hash128_equal(kv_block_key(s, parent, tokens, 16), key));
        tokens[i] = 0;
    }
    assert_true(hash128_equal(kv_block_key(s, parent, tokens, 16), key));
    assert_false(hash128_equal(kv_block_key(s, parent, tokens, 15), key));
    assert_false(hash128_equal(kv_block_key(s, parent, tokens, 17), key));
    assert_false(hash128_equal(kv_block_key(s, key, tokens, 16), key));
}

/* Each flipped bit, anywhere, changes about half of the output. */
static void bulk_mixes_every_bit(void **state) {
    enum { N = 200 };
    unsigned char data[N] = {0};
    for (size_t i = 0; i < N; i++) data[i] = (unsigned char)(i * 13);
    struct hash128 h = hash128_bulk(data, N);
    int least = 128, most = 0;
    long total = 0;
    for (size_t bit = 0; bit < 8 * N; bit++) {
        data[bit / 8] ^= (unsigned char)(1u << bit % 8);
        struct hash128 g = hash128_bulk(data, N);
        data[bit / 8] ^= (unsigned char)(1u << bit % 8);
        int changed = __builtin_popcountll(h.lo ^ g.lo) + __builtin_popcountll(h.hi ^ g.hi);
        least = changed < least ? changed : least;
        most = changed > most ? changed : most;
        total += changed;
    }
    assert_in_range(least, 35, 64);
    assert_in_range(most, 64, 93);
    assert_in_range(total / (8 * N), 62, 66);
}

static void bulk_sees_order_and_length(void **state) {
    unsigned char zeros[257] = {0}, swapped[64], long_swapped[128];
    for (size_t i = 0; i < 256; i++)
        assert_false(hash128_equal(hash128_bulk(zeros, i), hash128_bulk(zeros, i + 1)));
    for (size_t i = 0; i < 64; i++) swapped[i] = (unsigned char)(i / 8);
    struct hash128 h = hash128_bulk(swapped, 64);
    for (size_t i = 0; i < 64; i++) swapped[i] = (unsigned char)((i / 8) ^ 4); /* lanes change places */
    assert_false(hash128_equal(hash128_bulk(swapped, 64), h));
    for (size_t i = 0; i < 64; i++) swapped[i] = (unsigned char)((i / 8) ^ 2); /* neighbour lanes do */
    assert_false(hash128_equal(hash128_bulk(swapped, 64), h));
    for (size_t i = 0; i < 64; i++) swapped[i] = (unsigned char)((i / 8) ^ 1); /* words of a lane do */
    assert_false(hash128_equal(hash128_bulk(swapped, 64), h));
    for (size_t i = 0; i < 128; i++) long_swapped[i] = (unsigned char)(i / 8);
    h = hash128_bulk(long_swapped, 128);
    for (size_t i = 0; i < 128; i++) long_swapped[i] = (unsigned char)((i / 8) ^ 8); /* stripes do */
    assert_false(hash128_equal(hash128_bulk(long_swapped, 128), h));
}

static void secrets(void **state) {
    struct hash_secret a, b;
    assert_true(hash_secret_random(&a));
    assert_true(hash_secret_random(&b));
    assert_true(a.k0 != b.k0 && a.k1 != b.k1);
    a = hash_secret_from_text("one", 3);
    b = hash_secret_from_text("two", 3);
    assert_true(a.k0 != b.k0 && a.k1 != b.k1);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(siphash_has_the_reference_vectors),
        cmocka_unit_test(keys_are_as_described),
        cmocka_unit_test(roots_differ_in_every_part),
        cmocka_unit_test(blocks_differ_in_every_token),
        cmocka_unit_test(bulk_mixes_every_bit),
        cmocka_unit_test(bulk_sees_order_and_length),
        cmocka_unit_test(secrets),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
