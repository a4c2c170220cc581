/* The run: the machine, its limits, then every kernel. */
#include "bench/kernels.h"
#include "bench/bench.h"
#include "bench/core_share.h"

#include "base/error.h"

#include <assert.h>
#include <math.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

/* ---- what the parts share ---- */

bool bench_wanted(struct bench *b, const char *kernel) {
    if (b->o->only && !strcasestr(kernel, b->o->only)) return false;
    b->n_wanted++;
    return !b->counting;
}

void *bench_carve(struct bench *b, size_t bytes) {
    size_t at = b->used;
    b->used += (bytes + 63) & ~(size_t)63;
    assert(b->used <= BENCH_MEMORY_BYTES);
    return b->memory + at;
}

void bench_clear(struct bench *b) {
    b->used = 0;
}

double bench_now(void) {
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

double bench_elapsed(double start) {
    return fmax(bench_now() - start, 1e-9);
}

enum bench_limit bench_op_limit(const struct bench *b, enum kern_act act) {
    bool tiles = b->kern->isa >= KERN_ISA_AMX;
    if (act == KERN_ACT_Q8) return tiles ? LIMIT_AMX_INT8 : LIMIT_INT8;
    if (act != KERN_ACT_BF16) return LIMIT_F32;
    if (tiles) return LIMIT_AMX_BF16;
    return b->limits[LIMIT_BF16_DOT].per_s > b->limits[LIMIT_F32].per_s ? LIMIT_BF16_DOT : LIMIT_F32;
}

/* ---- report ---- */

/* The limit that would take longest, and how many seconds. */
static double least_seconds(const struct bench *b, const struct bench_row *r, enum bench_limit *bound) {
    double reading = r->bytes / b->limits[r->byte_limit].per_s, computing = 0.0;
    if (r->op_limit < LIMITS) computing = r->ops / b->limits[r->op_limit].per_s;
    *bound = computing > reading ? r->op_limit : r->byte_limit;
    return fmax(computing, reading);
}

static void print_row(FILE *out, const struct bench_row *r, double seconds, double share, const char *limit,
                      bool doubtful) {
    char ops[32] = "";
    if (r->ops > 0) snprintf(ops, sizeof ops, "%.1f", r->ops / seconds * 1e-9);
    fprintf(out, "%-28s %-35s %10.*f %7.2f %8s %6.1f %% of %s%s\n", r->kernel, r->shape,
            seconds < 1e-4 ? 3 : 1, seconds * 1e6, r->bytes / seconds * 1e-9, ops, 100 * share, limit,
            doubtful ? " (apart)" : "");
    fflush(out);
}

void bench_measure(struct bench *b, const struct bench_row *r, team_work *work, void *ctx) {
    bool apart;
    double seconds = team_seconds(b->team, work, ctx, &apart) / r->calls;
    enum bench_limit bound;
    double share = least_seconds(b, r, &bound) / seconds;
    bool doubtful = apart && limit_infos[bound].is_read;
    b->n_apart += doubtful;
    print_row(b->o->out, r, seconds, share, limit_infos[bound].about, doubtful);
    json_out_obj(&b->json);
    json_out_put_str(&b->json, "kernel", r->kernel);
    json_out_put_str(&b->json, "shape", r->shape);
    json_out_put_f64(&b->json, "seconds", seconds);
    json_out_put_f64(&b->json, "bytes_per_s", r->bytes / seconds);
    json_out_put_f64(&b->json, "ops_per_s", r->ops > 0 ? r->ops / seconds : NAN); /* NaN becomes null */
    json_out_put_str(&b->json, "limit", limit_infos[bound].name);
    json_out_put_f64(&b->json, "share", share);
    json_out_put_bool(&b->json, "apart", apart);
    json_out_obj_end(&b->json);
}

static void report_limit(void *ctx, enum bench_limit which, const struct limit *l) {
    struct bench *b = ctx;
    const struct limit_info *info = &limit_infos[which];
    bool doubtful = l->apart && info->is_read;
    b->n_apart += doubtful;
    if (l->skipped)
        fprintf(b->o->out, "  %-24s skipped: %s\n", info->about, l->skipped);
    else
        fprintf(b->o->out, "  %-24s %8.1f %s%s\n", info->about, l->per_s * 1e-9,
                info->is_read ? "GB/s" : "GOP/s", doubtful ? " (apart)" : "");
    fflush(b->o->out);
    json_out_obj(&b->json);
    json_out_put_str(&b->json, "name", info->name);
    json_out_put_str(&b->json, "about", info->about);
    json_out_put_str(&b->json, "unit", info->is_read ? "bytes/s" : "ops/s");
    if (l->skipped) {
        json_out_put_str(&b->json, "skipped", l->skipped);
    } else {
        json_out_put_f64(&b->json, "value", l->per_s);
        json_out_put_bool(&b->json, "apart", l->apart);
    }
    json_out_obj_end(&b->json);
}

/* ---- the machine ---- */

/* Why a path cannot be chosen; NULL if it can. */
static const char *path_skipped(enum kern_isa isa) {
    if (kern_table(isa)) return NULL;
    return kern_cpu_has(isa) ? "this build has no such path" : "this machine lacks it";
}

static void report_paths(struct bench *b) {
    static const char *const names[KERN_ISAS] = {"ref", "avx2", "avx512", "amx"};
    const char *limit = b->o->cpu_limit;
    for (int i = 0; i < KERN_ISAS; i++) {
        const char *skipped = path_skipped((enum kern_isa)i);
        bool chosen = b->kern->isa == (enum kern_isa)i;
        fprintf(b->o->out, "  %-8s %s%s%s%s\n", names[i],
                chosen    ? "chosen"
                : skipped ? "skipped: "
                          : "available",
                skipped ? skipped : "", chosen && limit ? ", limited to " : "", chosen && limit ? limit : "");
        json_out_obj(&b->json);
        json_out_put_str(&b->json, "name", names[i]);
        json_out_put_str(&b->json, "state", chosen ? "chosen" : skipped ? "skipped" : "available");
        if (skipped) json_out_put_str(&b->json, "reason", skipped);
        json_out_obj_end(&b->json);
    }
}

static void report_machine(struct bench *b) {
    char name[64];
    const char *features[CPU_FEATURES + 1];
    FILE *out = b->o->out;
    struct json_out *j = &b->json;
    cpu_name(name);
    cpu_features(features);
    fprintf(out, "machine: %s, %zu thread%s\n ", name, b->n_threads, b->n_threads == 1 ? "" : "s");
    for (size_t i = 0; features[i]; i++) fprintf(out, " %s", features[i]);
    fprintf(out, "\n\npaths\n");
    json_out_key(j, "machine");
    json_out_obj(j);
    json_out_put_str(&b->json, "cpu", name);
    json_out_key(j, "features");
    json_out_arr(j);
    for (size_t i = 0; features[i]; i++) json_out_str(j, features[i]);
    json_out_arr_end(j);
    json_out_obj_end(j);
    json_out_put_u64(j, "threads", b->n_threads);
    json_out_put_str(&b->json, "path", b->kern->name);
    json_out_put_str(&b->json, "cpu_limit", b->o->cpu_limit);
    json_out_key(j, "paths");
    json_out_arr(j);
    report_paths(b);
    json_out_arr_end(j);
}

/* Whether the figures that follow are of whole cores. */
static int report_cores(struct bench *b, struct error *err) {
    struct core_share s;
    int rc = core_share_measure(b->team, &s, err);
    if (rc) return rc;
    fprintf(b->o->out,
            "\ncores: %.2f GHz, %.0f %% of their units free for this process (%.0f to %.0f %%)%s\n",
            s.clock_hz * 1e-9, 100 * s.median, 100 * s.low, 100 * s.high,
            s.low < CORE_SHARED_BELOW ? "; others use the same cores at times, and all figures vary" : "");
    json_out_key(&b->json, "cores");
    json_out_obj(&b->json);
    json_out_put_f64(&b->json, "clock_hz", s.clock_hz);
    json_out_put_f64(&b->json, "share", s.median);
    json_out_put_f64(&b->json, "share_p10", s.low);
    json_out_put_f64(&b->json, "share_p90", s.high);
    json_out_obj_end(&b->json);
    return QUIRE_OK;
}

/* ---- the run ---- */

static void measure_limits(struct bench *b) {
    struct limits_job job = {.kern = b->kern,
                             .cpu_limit = b->o->cpu_limit,
                             .with_2gb = b->o->limits_only,
                             .available_bytes = b->o->available_bytes,
                             .memory = b->memory};
    fprintf(b->o->out, "\nlimits, %zu thread%s, %s path\n", b->n_threads, b->n_threads == 1 ? "" : "s",
            b->kern->name);
    json_out_key(&b->json, "limits");
    json_out_arr(&b->json);
    limits_measure(b->team, &job, b->limits, report_limit, b);
    json_out_arr_end(&b->json);
}

static int each_kernel(struct bench *b, struct error *err) {
    int rc = bench_products(b, err);
    if (rc) return rc;
    bench_attention(b);
    bench_rows(b);
    return QUIRE_OK;
}

static int measure_kernels(struct bench *b, struct error *err) {
    json_out_key(&b->json, "kernels");
    json_out_arr(&b->json);
    if (!b->o->limits_only)
        fprintf(b->o->out, "\n%-28s %-35s %10s %7s %8s %8s\n", "kernel", "shape", "us", "GB/s", "GOP/s",
                "share");
    int rc = b->o->limits_only ? QUIRE_OK : each_kernel(b, err);
    json_out_arr_end(&b->json);
    return rc;
}

static int check_only(struct bench *b, struct error *err) {
    b->counting = true;
    int rc = each_kernel(b, err);
    b->counting = false;
    if (rc || b->n_wanted) return rc;
    return error_set(err, QUIRE_EINVAL, "no kernel of the %s path has \"%.60s\" in its name", b->kern->name,
                     b->o->only);
}

#define HUGE_BYTES ((size_t)2 << 20)
#define MAP_BYTES  (BENCH_MEMORY_BYTES + HUGE_BYTES)

/* With large pages where the system gives them, as weights and KV have. */
static int map_memory(struct bench *b, struct error *err) {
    if (b->o->available_bytes < MAP_BYTES)
        return error_set(err, QUIRE_ENOMEM, "%zu MiB of memory are needed, %llu MiB are available",
                         MAP_BYTES >> 20, (unsigned long long)(b->o->available_bytes >> 20));
    b->map = mmap(NULL, MAP_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (b->map == MAP_FAILED) {
        b->map = NULL;
        return error_set(err, QUIRE_ENOMEM, "%zu MiB of memory cannot be had", MAP_BYTES >> 20);
    }
    madvise(b->map, MAP_BYTES, MADV_HUGEPAGE);
    memset(b->map, 1, MAP_BYTES);
    b->memory = b->map + (HUGE_BYTES - (uintptr_t)b->map % HUGE_BYTES) % HUGE_BYTES;
    return QUIRE_OK;
}

int bench_kernels(const struct bench_kernels *o, struct error *err) {
    struct buf unwanted = BUF_INIT, *json = o->json ? o->json : &unwanted;
    struct bench b = {.o = o, .kern = o->kern, .n_threads = o->n_threads, .fill = {1}};
    int rc = o->only ? check_only(&b, err) : QUIRE_OK;
    if (!rc && !o->cores_only) rc = map_memory(&b, err);
    if (!rc) rc = team_start(&b.team, o->n_threads, err);
    if (rc) goto done;
    json_out_init(&b.json, json);
    json_out_obj(&b.json);
    json_out_put_u64(&b.json, "format", 1);
    report_machine(&b);
    rc = report_cores(&b, err);
    if (!rc && !o->cores_only) {
        measure_limits(&b);
        rc = measure_kernels(&b, err);
    }
    if (b.n_apart)
        fprintf(
            o->out,
            "\n(apart): the machine is busy and threads never ran at the same time; %zu figure%s bound by "
            "memory %s too high.\n",
            b.n_apart, b.n_apart == 1 ? "" : "s", b.n_apart == 1 ? "is" : "are");
    json_out_obj_end(&b.json);
    if (!rc && !buf_ok(json)) rc = error_set(err, QUIRE_ENOMEM, "no memory for the JSON");
done:
    team_stop(b.team);
    if (b.map) munmap(b.map, MAP_BYTES);
    buf_free(&unwanted);
    return rc;
}
