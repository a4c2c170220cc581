#include "bench/limits.h"

#include <cpuid.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>

const struct limit_info limit_infos[LIMITS] = {
    [LIMIT_READ_16KB] = {"read_16kb", "read, 16 KB a thread", true},
    [LIMIT_READ_256KB] = {"read_256kb", "read, 256 KB a thread", true},
    [LIMIT_READ_94MB] = {"read_94mb", "read, 94 MB", true},
    [LIMIT_READ_2GB] = {"read_2gb", "read, 2 GB", true},
    [LIMIT_F32] = {"f32", "float32 multiply-add", false},
    [LIMIT_BF16_DOT] = {"bf16_dot", "bfloat16 dot", false},
    [LIMIT_INT8] = {"int8", "int8 dot", false},
    [LIMIT_AMX_BF16] = {"amx_bf16", "AMX bfloat16 tiles", false},
    [LIMIT_AMX_INT8] = {"amx_int8", "AMX int8 tiles", false},
};

/* ---- the processor ---- */

enum leaf { LEAF_7_EBX, LEAF_7_ECX, LEAF_7_EDX, LEAF_7_1_EAX, LEAVES };

static void read_leaves(uint32_t leaves[LEAVES]) {
    uint32_t eax, ebx, ecx, edx;
    memset(leaves, 0, LEAVES * sizeof *leaves);
    if (!__get_cpuid_count(7, 0, &eax, &ebx, &ecx, &edx)) return;
    leaves[LEAF_7_EBX] = ebx;
    leaves[LEAF_7_ECX] = ecx;
    leaves[LEAF_7_EDX] = edx;
    if (eax >= 1 && __get_cpuid_count(7, 1, &eax, &ebx, &ecx, &edx)) leaves[LEAF_7_1_EAX] = eax;
}

static bool has_avx512_bf16(void) {
    uint32_t leaves[LEAVES];
    read_leaves(leaves);
    return kern_cpu_has(KERN_ISA_AVX512) && leaves[LEAF_7_1_EAX] >> 5 & 1u;
}

void cpu_features(const char *names[CPU_FEATURES + 1]) {
    /* Intel SDM vol. 2A, CPUID; what the operating system does not save is left out. */
    static const struct {
        const char *name;
        enum leaf leaf;
        unsigned bit;
        enum kern_isa with; /* its registers */
    } rows[CPU_FEATURES] = {
        {"avx2", LEAF_7_EBX, 5, KERN_ISA_AVX2},           {"avx_vnni", LEAF_7_1_EAX, 4, KERN_ISA_AVX2},
        {"avx512f", LEAF_7_EBX, 16, KERN_ISA_AVX512},     {"avx512_vnni", LEAF_7_ECX, 11, KERN_ISA_AVX512},
        {"avx512vbmi", LEAF_7_ECX, 1, KERN_ISA_AVX512},   {"avx512_bf16", LEAF_7_1_EAX, 5, KERN_ISA_AVX512},
        {"avx512_fp16", LEAF_7_EDX, 23, KERN_ISA_AVX512}, {"amx_tile", LEAF_7_EDX, 24, KERN_ISA_AMX},
        {"amx_bf16", LEAF_7_EDX, 22, KERN_ISA_AMX},       {"amx_int8", LEAF_7_EDX, 25, KERN_ISA_AMX},
    };
    uint32_t leaves[LEAVES];
    size_t n = 0;
    read_leaves(leaves);
    for (size_t i = 0; i < CPU_FEATURES; i++)
        if (leaves[rows[i].leaf] >> rows[i].bit & 1u && kern_cpu_has(rows[i].with)) names[n++] = rows[i].name;
    names[n] = NULL;
}

void cpu_name(char name[64]) {
    uint32_t words[12] = {0};
    bool known = (unsigned)__get_cpuid_max(0x80000000u, NULL) >= 0x80000004u;
    for (unsigned i = 0; known && i < 3; i++)
        __get_cpuid(0x80000002u + i, &words[4 * i], &words[4 * i + 1], &words[4 * i + 2], &words[4 * i + 3]);
    char text[sizeof words + 1] = {0};
    memcpy(text, words, sizeof words);
    const char *start = text + strspn(text, " ");
    size_t n = strlen(start);
    while (n && start[n - 1] == ' ') n--;
    snprintf(name, 64, "%.*s", n ? (int)n : 7, n ? start : "unknown");
}

/* ---- measuring ---- */

struct loops {
    limit_read *read;
    limit_ops *f32, *int8;
};

static const struct loops *loops_of(const struct kern *kern) {
    static const struct loops base = {limit_read_base, limit_f32_base, limit_int8_base},
                              avx2 = {limit_read_avx2, limit_f32_avx2, limit_int8_avx2},
                              avx512 = {limit_read_avx512, limit_f32_avx512, limit_int8_avx512};
    return kern->isa >= KERN_ISA_AVX512 ? &avx512 : kern->isa >= KERN_ISA_AVX2 ? &avx2 : &base;
}

/* Every thread has its own results, on cache lines of its own. */
struct read_job {
    limit_read *read;
    const char *memory;
    size_t bytes, times; /* of all threads together */
    bool streams;
};

static void read_share(void *ctx, size_t thread, size_t n_threads) {
    const struct read_job *j = ctx;
    float sink[16];
    size_t share = j->bytes / n_threads / 512 * 512;
    for (size_t i = 0; i < j->times; i++) j->read(j->memory + thread * share, share, j->streams, sink);
    volatile float keep = sink[0];
    (void)keep;
}

static struct limit read_per_s(struct team *team, limit_read *read, const char *memory, size_t bytes,
                               size_t times) {
    size_t n_threads = team_threads(team), done = bytes / n_threads / 512 * 512 * n_threads * times;
    struct read_job j = {read, memory, bytes, times, false};
    struct limit best = {.apart = true};
    for (int i = 0; i < 4 || (best.apart && i < 12); i++) { /* what others on the machine do comes and goes */
        j.streams = i % 2;
        struct limit l = {0};
        l.per_s = (double)done / team_seconds(team, read_share, &j, &l.apart);
        l.apart = l.apart && times == 1; /* threads do not share the caches that are read over and over */
        if (l.apart == best.apart ? l.per_s > best.per_s : best.apart) best = l;
    }
    return best;
}

struct ops_job {
    limit_ops *run;
    uint64_t n, done; /* rounds, operations of one thread */
};

static void ops_share(void *ctx, size_t thread, size_t n_threads) {
    struct ops_job *j = ctx;
    float sink[16];
    uint64_t done = j->run(j->n, sink);
    volatile float keep = sink[0];
    (void)keep;
    if (thread == 0) j->done = done;
}

static struct limit ops_per_s(struct team *team, limit_ops *run) {
    struct ops_job j = {.run = run, .n = 40000};
    struct limit l = {0};
    double seconds = team_seconds(team, ops_share, &j, &l.apart);
    l.per_s = (double)j.done * (double)team_threads(team) / seconds;
    return l;
}

/* 12 MiB in all by each thread: a round is long enough to be timed. */
static struct limit read_cached(struct team *team, const struct limits_job *job, limit_read *read,
                                size_t bytes) {
    return read_per_s(team, read, job->memory, bytes * team_threads(team), ((size_t)12 << 20) / bytes);
}

static struct limit read_2gb(struct team *team, const struct limits_job *job, limit_read *read) {
    const size_t bytes = (size_t)2 << 30;
    if (!job->with_2gb) return (struct limit){.skipped = "only with --limits"};
    if (job->available_bytes < bytes + (bytes >> 2)) return (struct limit){.skipped = "not enough memory"};
    char *p = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (p == MAP_FAILED) return (struct limit){.skipped = "not enough memory"};
    madvise(p, bytes, MADV_HUGEPAGE);
    memset(p, 1, bytes);
    struct limit l = read_per_s(team, read, p, bytes, 1);
    munmap(p, bytes);
    return l;
}

static const char *amx_skipped(const struct limits_job *job) {
    if (!kern_cpu_has(KERN_ISA_AMX)) return "this machine lacks it";
    if (job->cpu_limit && strcmp(job->cpu_limit, "amx") != 0) return "above the limit set";
    return limit_amx_permitted() ? NULL : "the operating system does not permit it";
}

static const char *bf16_skipped(const struct limits_job *job) {
    if (!has_avx512_bf16()) return "this machine lacks it";
    return job->kern->isa < KERN_ISA_AVX512 ? "above the limit set" : NULL;
}

static struct limit measure(struct team *team, const struct limits_job *job, enum bench_limit which) {
    const struct loops *loops = loops_of(job->kern);
    const char *skipped = NULL;
    limit_ops *run = NULL;
    switch (which) {
    case LIMIT_READ_16KB: return read_cached(team, job, loops->read, (size_t)16 << 10);
    case LIMIT_READ_256KB: return read_cached(team, job, loops->read, (size_t)256 << 10);
    case LIMIT_READ_94MB: return read_per_s(team, loops->read, job->memory, LIMIT_MEMORY_BYTES, 1);
    case LIMIT_READ_2GB: return read_2gb(team, job, loops->read);
    case LIMIT_F32: run = loops->f32; break;
    case LIMIT_INT8: run = loops->int8; break;
    case LIMIT_BF16_DOT:
        skipped = bf16_skipped(job);
        run = limit_bf16_avx512;
        break;
    default: skipped = amx_skipped(job); run = which == LIMIT_AMX_BF16 ? limit_bf16_amx : limit_int8_amx;
    }
    return skipped ? (struct limit){.skipped = skipped} : ops_per_s(team, run);
}

void limits_measure(struct team *team, const struct limits_job *job, struct limit limits[LIMITS],
                    void (*report)(void *ctx, enum bench_limit which, const struct limit *limit), void *ctx) {
    for (enum bench_limit i = 0; i < LIMITS; i++) {
        limits[i] = measure(team, job, i);
        report(ctx, i, &limits[i]);
    }
}
