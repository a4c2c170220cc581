/* What the parts of `bench kernels` share (private to src/bench). */
#ifndef BENCH_BENCH_H
#define BENCH_BENCH_H

#include "base/json_out.h"
#include "bench/fill.h"
#include "bench/kernels.h"
#include "bench/limits.h"

/* One mapping, touched before anything is measured, that every kernel's data is carved from. */
#define BENCH_MEMORY_BYTES ((size_t)384 << 20)
/* Bytes of a working set that no cache of a usual machine holds; compared with LIMIT_READ_94MB. */
#define BENCH_SET_BYTES LIMIT_MEMORY_BYTES

struct bench {
    const struct bench_kernels *o;
    const struct kern *kern;
    size_t n_threads;
    struct team *team;
    struct limit limits[LIMITS];
    struct json_out json;
    struct fill fill;
    char *map, *memory; /* memory: BENCH_MEMORY_BYTES of map, at a large page */
    size_t used, n_wanted;
    size_t n_apart; /* figures bound by memory whose threads did not run at once */
    bool counting;  /* only which kernels are wanted is to be found out */
};

/* Whether to measure the kernel of this name now. */
bool bench_wanted(struct bench *b, const char *kernel);

/* Aligned to 64; all that was carved before is free again after bench_clear. Plans are such that it never
 * runs out. */
void *bench_carve(struct bench *b, size_t bytes);
void bench_clear(struct bench *b);

/* Processor time of this thread; what has passed since, never nothing. */
double bench_now(void);
double bench_elapsed(double start);
/* A slow path is given less to do, so that a round takes no longer than this. */
#define BENCH_ROUND_SECONDS 0.06

struct bench_row {
    const char *kernel, *shape;
    double calls;      /* of a thread in a round; bytes and ops are of one call of all threads */
    double bytes, ops; /* ops 0: not counted */
    enum bench_limit byte_limit, op_limit; /* op_limit LIMITS: none */
};

/* Takes the time of the work and puts a row into the table and the JSON, with the share of the limit that
 * would take longest. */
void bench_measure(struct bench *b, const struct bench_row *r, team_work *work, void *ctx);

/* The faster of the limits that a product of this input can use on the path. */
enum bench_limit bench_op_limit(const struct bench *b, enum kern_act act);

int bench_products(struct bench *b, struct error *err); /* and packing */
void bench_attention(struct bench *b);
void bench_rows(struct bench *b);

#endif
