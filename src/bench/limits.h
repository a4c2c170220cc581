/* The machine's limits, measured by loops that do nothing else. */
#ifndef BENCH_LIMITS_H
#define BENCH_LIMITS_H

#include "bench/team.h"
#include "kern/kern.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum bench_limit {
    LIMIT_READ_16KB,  /* a thread, over and over: in the first cache */
    LIMIT_READ_256KB, /* likewise: in the second */
    LIMIT_READ_94MB,  /* about the weights of a model of 135M: in the last cache of some machines */
    LIMIT_READ_2GB,
    LIMIT_F32,      /* multiply-add of floats, of the path */
    LIMIT_BF16_DOT, /* AVX-512 BF16 */
    LIMIT_INT8,     /* 8-bit products, of the path: VNNI, or the AVX2 or SSE2 instructions that serve */
    LIMIT_AMX_BF16, /* tiles, read from the first cache */
    LIMIT_AMX_INT8,
    LIMITS
};

struct limit_info {
    const char *name;  /* in JSON, "read_94mb" */
    const char *about; /* in the table */
    bool is_read;      /* bytes a second, else operations (a multiply and an add are 2) */
};
extern const struct limit_info limit_infos[LIMITS];

struct limit {
    double per_s;        /* 0 = not measured */
    bool apart;          /* see team_seconds */
    const char *skipped; /* why; a static string */
};

struct limits_job {
    const struct kern *kern;
    const char *cpu_limit; /* as in bench_kernels */
    bool with_2gb;
    uint64_t available_bytes;
    char *memory; /* LIMIT_MEMORY_BYTES, written to before */
};
#define LIMIT_MEMORY_BYTES ((size_t)94 << 20)

/* Calls report for each limit, in order, as it is known. */
void limits_measure(struct team *team, const struct limits_job *job, struct limit limits[LIMITS],
                    void (*report)(void *ctx, enum bench_limit which, const struct limit *limit), void *ctx);

/* Instruction sets of the processor that matter to these kernels, by the names Linux gives them. NULL after
 * the last. */
#define CPU_FEATURES 10
void cpu_features(const char *names[CPU_FEATURES + 1]);
void cpu_name(char name[64]);

/* limit_*.c: n rounds of independent instructions; returns the operations. sink [16] keeps the results alive.
 */
typedef uint64_t limit_ops(uint64_t n, float *sink);
/* Sums bytes, a multiple of 512, in order or in four streams by turns: machines differ in what is faster. */
typedef void limit_read(const void *p, size_t bytes, bool streams, float *sink);

limit_ops limit_f32_base, limit_int8_base;
limit_read limit_read_base;
limit_ops limit_f32_avx2, limit_int8_avx2;
limit_read limit_read_avx2;
limit_ops limit_f32_avx512, limit_int8_avx512;
limit_read limit_read_avx512;
limit_ops limit_bf16_avx512;
limit_ops limit_int8_amx, limit_bf16_amx;
bool limit_amx_permitted(void); /* asks the operating system for the tile registers (Linux 5.16) */

#endif
