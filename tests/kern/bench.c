#include "bench.h"
#include "check.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static double now(clockid_t clock) {
    struct timespec t;
    clock_gettime(clock, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

struct team {
    bench_work *work;
    void *ctx;
    size_t n_threads;
    pthread_barrier_t barrier;
    bool stop;
    double seconds[64]; /* of each thread in this round */
};

struct member {
    struct team *team;
    size_t thread;
};

/* A thread's own processor time: kernels never wait, and others on the machine count less this way. */
static void timed_share(struct team *team, size_t thread) {
    double start = now(CLOCK_THREAD_CPUTIME_ID);
    team->work(team->ctx, thread, team->n_threads);
    team->seconds[thread] = now(CLOCK_THREAD_CPUTIME_ID) - start;
}

static void *member_main(void *arg) {
    struct member *m = arg;
    for (;;) {
        pthread_barrier_wait(&m->team->barrier);
        if (m->team->stop) return NULL;
        timed_share(m->team, m->thread);
        pthread_barrier_wait(&m->team->barrier);
    }
}

double bench_seconds(bench_work *work, void *ctx, size_t n_threads) {
    enum { MAX = 64 };
    struct team team = {.work = work, .ctx = ctx, .n_threads = n_threads};
    struct member members[MAX];
    pthread_t threads[MAX];
    pthread_barrier_init(&team.barrier, NULL, (unsigned)n_threads);
    for (size_t i = 1; i < n_threads; i++) {
        members[i] = (struct member){&team, i};
        pthread_create(&threads[i], NULL, member_main, &members[i]);
    }
    double best = 1e9, begin = now(CLOCK_MONOTONIC);
    for (int round = 0; round < 5 || (now(CLOCK_MONOTONIC) - begin < 0.4 && round < 100000); round++) {
        pthread_barrier_wait(&team.barrier);
        timed_share(&team, 0);
        pthread_barrier_wait(&team.barrier);
        double slowest = 0.0;
        for (size_t i = 0; i < n_threads; i++)
            if (team.seconds[i] > slowest) slowest = team.seconds[i];
        if (slowest < best) best = slowest;
    }
    team.stop = true;
    pthread_barrier_wait(&team.barrier);
    for (size_t i = 1; i < n_threads; i++) pthread_join(threads[i], NULL);
    pthread_barrier_destroy(&team.barrier);
    return best;
}

/* ---- limits ---- */

enum { READ_BYTES = 256 << 20, ROUNDS = 50000 };

struct limit_ctx {
    enum kern_isa isa;
    char *memory;
    uint64_t ops; /* of one thread */
    float sink[64][16];
};

static void read_work(void *ctx, size_t thread, size_t n_threads) {
    struct limit_ctx *c = ctx;
    size_t share = READ_BYTES / n_threads;
    (c->isa == KERN_ISA_AVX2 ? limit_read_avx2 : limit_read_avx512)(c->memory + thread * share, share,
                                                                    c->sink[thread]);
}
static void fma_work(void *ctx, size_t thread, size_t n_threads) {
    struct limit_ctx *c = ctx;
    uint64_t ops = (c->isa == KERN_ISA_AVX2 ? limit_fma_avx2 : limit_fma_avx512)(ROUNDS, c->sink[thread]);
    if (thread == 0) c->ops = ops;
}
static void int8_work(void *ctx, size_t thread, size_t n_threads) {
    struct limit_ctx *c = ctx;
    uint64_t ops = (c->isa == KERN_ISA_AVX2 ? limit_int8_avx2 : limit_int8_avx512)(ROUNDS, c->sink[thread]);
    if (thread == 0) c->ops = ops;
}

struct bench_limits bench_limits(enum kern_isa isa, size_t n_threads) {
    struct bench_limits l = {0};
    if (isa == KERN_ISA_REF) return l;
    struct limit_ctx c = {.isa = isa, .memory = aligned_alloc(64, READ_BYTES)};
    memset(c.memory, 1, READ_BYTES);
    double seconds = bench_seconds(read_work, &c, n_threads);
    l.read_bytes = READ_BYTES / seconds;
    seconds = bench_seconds(fma_work, &c, n_threads);
    l.fma_flops = (double)c.ops * (double)n_threads / seconds;
    seconds = bench_seconds(int8_work, &c, n_threads);
    l.int8_ops = (double)c.ops * (double)n_threads / seconds;
    free(c.memory);
    return l;
}

int bench_main(const char *only_table, const char *only_kernel) {
    static const char *const names[KERN_ISAS] = {"ref", "avx2", "avx512", "amx"};
    for (int i = 0; i < KERN_ISAS; i++) {
        const struct kern *k = kern_table((enum kern_isa)i);
        if (!k || (only_table ? strcmp(only_table, names[i]) != 0 : i == KERN_ISA_REF)) continue;
        bench_table(k, only_kernel);
    }
    return 0;
}
