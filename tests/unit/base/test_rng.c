#include "base/rng.h"

#include <math.h>
#include <string.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

/* Known answers of Random123 (kat_vectors, "philox4x32 10"): counter, key, result. */
static void philox_has_the_known_answers(void **state) {
    static const uint32_t rows[][10] = {
        {0, 0, 0, 0, 0, 0, 0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8},
        {0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff, 0x408f276d, 0x41c83b0e,
         0xa20bc7c6, 0x6d5451fd},
        {0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344, 0xa4093822, 0x299f31d0, 0xd16cfe09, 0x94fdcceb,
         0x5001e420, 0x24126ea1},
    };
    for (size_t i = 0; i < 3; i++) {
        const uint32_t *r = rows[i];
        struct rng_block b = rng_philox((uint64_t)r[5] << 32 | r[4], r[0], r[1], r[2], r[3]);
        assert_memory_equal(b.v, r + 6, 16);
    }
}

/* The words of a draw, as the header documents them: other processes must draw the same. */
static void uniform_is_53_bits_of_philox(void **state) {
    struct rng_block b = rng_philox(77, 3, 1000, 2, 0);
    double want = ldexp((double)(((uint64_t)b.v[1] << 32 | b.v[0]) >> 11), -53);
    assert_true(rng_uniform(77, 2, 1000, 3) == want);
}

static void uniform_is_uniform(void **state) {
    enum { N = 100000, BINS = 64 };
    int bins[BINS] = {0};
    double sum = 0, product = 0, before = 0.5;
    for (uint32_t i = 0; i < N; i++) {
        double u = rng_uniform(1234, 0, i, 0);
        assert_true(u >= 0 && u < 1);
        bins[(int)(u * BINS)]++;
        sum += u;
        product += (u - 0.5) * (before - 0.5);
        before = u;
    }
    double chi2 = 0, expected = (double)N / BINS;
    for (int i = 0; i < BINS; i++) chi2 += (bins[i] - expected) * (bins[i] - expected) / expected;
    assert_true(chi2 > 30 && chi2 < 110); /* 63 degrees of freedom: p about 1e-4 on either side */
    assert_true(fabs(sum / N - 0.5) < 0.005);
    assert_true(fabs(product / N) < 0.002);
}

static void every_argument_counts(void **state) {
    const double u = rng_uniform(1, 2, 3, 4);
    assert_true(u == rng_uniform(1, 2, 3, 4));
    assert_true(u != rng_uniform(2, 2, 3, 4) && u != rng_uniform((uint64_t)1 << 32 | 1, 2, 3, 4));
    assert_true(u != rng_uniform(1, 3, 3, 4) && u != rng_uniform(1, 2, 4, 4) && u != rng_uniform(1, 2, 3, 5));
    assert_true(rng_uniform(0, 1, 0, 0) != rng_uniform(0, 0, 1, 0));
    assert_true(rng_uniform(0, 0, 1, 0) != rng_uniform(0, 0, 0, 1));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(philox_has_the_known_answers),
        cmocka_unit_test(uniform_is_53_bits_of_philox),
        cmocka_unit_test(uniform_is_uniform),
        cmocka_unit_test(every_argument_counts),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
