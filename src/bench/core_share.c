#include "bench/core_share.h"
#include "bench/bench.h"

#include "base/error.h"
#include "base/stats.h"

#include <emmintrin.h>
#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <time.h>

#define UNROLL _Pragma("GCC unroll 16")

enum {
    SLICES = 64,         /* of each loop, by each thread */
    PAUSE_US = 10000,    /* between slices: others come and go in milliseconds and more */
    CHAINED = 800000,    /* instructions of a slice: 0.8 ms at 3 GHz */
    INDEPENDENT = 100000 /* rounds of UNITS */
};
#define CHAIN_CYCLES    3
#define UNITS           12 /* results on their way at a time: 2 units, up to 5 cycles each */
#define UNITS_PER_CYCLE 2

/* ---- the two loops, instructions a second ---- */

static double run_chained(void) {
    double start = bench_now();
    uint64_t x = (uint64_t)(start * 1e9) | 1u, factor = x;
    for (int i = 0; i < CHAINED; i++) {
        x *= factor;
        __asm__ volatile("" : "+r"(x)); /* nor may the compiler see through the chain */
    }
    return CHAINED / bench_elapsed(start);
}

static double run_independent(void) {
    double start = bench_now();
    __m128 x[UNITS], one = _mm_set1_ps(1.0f);
    __asm__ volatile("" : "+x"(one));
    UNROLL for (int i = 0; i < UNITS; i++) {
        x[i] = one;
        __asm__ volatile("" : "+x"(x[i])); /* else all are the same, and one is enough */
    }
    for (int r = 0; r < INDEPENDENT; r++) {
        UNROLL for (int i = 0; i < UNITS; i++) x[i] = _mm_mul_ps(x[i], one);
    }
    UNROLL for (int i = 0; i < UNITS; i++) __asm__ volatile("" : : "x"(x[i]));
    return (double)INDEPENDENT * UNITS / bench_elapsed(start);
}

/* ---- measuring ---- */

struct rates {
    double *chained, *independent; /* [threads][SLICES] */
};

static void take_slices(void *ctx, size_t thread, size_t n_threads) {
    const struct rates *r = ctx;
    for (size_t i = thread * SLICES; i < (thread + 1) * SLICES; i++) {
        r->chained[i] = run_chained();
        r->independent[i] = run_independent();
        nanosleep(&(struct timespec){.tv_nsec = PAUSE_US * 1000L}, NULL);
    }
}

struct core_share core_share_of(double *chained, double *independent, size_t n) {
    struct core_share s;
    for (size_t i = 0; i < n; i++) {
        chained[i] *= CHAIN_CYCLES; /* the clock */
        independent[i] = fmin(independent[i] / (UNITS_PER_CYCLE * chained[i]), 1.0);
    }
    stats_sort(chained, n);
    stats_sort(independent, n);
    s.clock_hz = chained[n / 2];
    s.median = independent[n / 2];
    s.low = independent[n / 10];
    s.high = independent[n - 1 - n / 10];
    return s;
}

int core_share_measure(struct team *team, struct core_share *out, struct error *err) {
    size_t n = team_threads(team) * SLICES;
    double *rates = calloc(2 * n, sizeof *rates);
    if (!rates) return error_set(err, QUIRE_ENOMEM, "no memory for %zu rates", 2 * n);
    struct rates r = {rates, rates + n};
    team_once(team, take_slices, &r);
    *out = core_share_of(r.chained, r.independent, n);
    free(rates);
    return QUIRE_OK;
}
