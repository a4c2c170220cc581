/* `quire bench kernels`: what the machine can do at most, and what each kernel of one path makes of it. */
#ifndef BENCH_KERNELS_H
#define BENCH_KERNELS_H

#include "base/buf.h"
#include "kern/kern.h"

#include <quire/error.h>

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

struct bench_kernels {
    const struct kern *kern; /* the path to measure */
    const char *cpu_limit;   /* the limit that chose it (--cpu, QUIRE_CPU); NULL if none was set */
    bool cores_only;  /* how much of its cores the process has (bench/core_share.h), and nothing else */
    bool limits_only; /* the limits, the one of a 2 GB working set too, and no kernel */
    const char *only; /* kernels whose name holds this text, with more shapes; NULL: all */
    size_t n_threads; /* at least 1, at most BENCH_MAX_THREADS */
    uint64_t available_bytes; /* memory that may be used */
    FILE *out;                /* the table, row by row as it is measured */
    struct buf *json;         /* the same as JSON (docs/benchmarks.md), complete on success; NULL: none */
};

#define BENCH_MAX_THREADS 256

/* Errors: QUIRE_EINVAL (no kernel has `only` in its name), QUIRE_ENOMEM, QUIRE_EIO (threads). */
int bench_kernels(const struct bench_kernels *o, struct error *err);

#endif
