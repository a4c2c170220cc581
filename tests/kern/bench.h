/* Measuring: work run by a number of threads, and the limits of the machine to compare with. */
#ifndef TESTS_KERN_BENCH_H
#define TESTS_KERN_BENCH_H

#include "kern/kern.h"

/* One share of the work; called over and over. */
typedef void bench_work(void *ctx, size_t thread, size_t n_threads);

/* Processor seconds of the slowest thread in one round of all threads' shares, the best of several rounds. */
double bench_seconds(bench_work *work, void *ctx, size_t n_threads);

struct bench_limits {
    double read_bytes, fma_flops, int8_ops; /* per second */
};

/* What the instruction set of a table can do at most, measured by loops that do nothing else. 0 = not
 * measured. */
struct bench_limits bench_limits(enum kern_isa isa, size_t n_threads);

void bench_table(const struct kern *kern, const char *only_kernel);

/* limit_avx2.c, limit_avx512.c: n rounds of LIMIT_OPS independent instructions, and a sum over memory. A
 * multiply and an add count as 2. */
uint64_t limit_fma_avx2(uint64_t n, float *sink);
uint64_t limit_int8_avx2(uint64_t n, float *sink);
void limit_read_avx2(const void *p, size_t bytes, float *sink);
uint64_t limit_fma_avx512(uint64_t n, float *sink);
uint64_t limit_int8_avx512(uint64_t n, float *sink);
void limit_read_avx512(const void *p, size_t bytes, float *sink);

#endif
