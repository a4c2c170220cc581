#include "bench/engine_run.h"

#include "base/clock.h"
#include "base/error.h"
#include "base/size.h"
#include "base/stats.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

#define WARMUP_PROMPT   64
#define WARMUP_TOKENS   16
#define LONGEST_POINT_S 60.0 /* of prefill, of what was not asked for */
#define MEMORY_2GB      ((uint64_t)4 << 30)

/* ---- limits ---- */

static void report_nothing(void *ctx, enum bench_limit which, const struct limit *limit) {}

int engine_limits(const struct kern *kern, const char *cpu_limit, size_t n_threads, uint64_t available_bytes,
                  struct limit limits[LIMITS], struct error *err) {
    struct team *team = NULL;
    char *memory = mmap(NULL, LIMIT_MEMORY_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED)
        return error_set(err, QUIRE_ENOMEM, "%zu MiB of memory cannot be had", LIMIT_MEMORY_BYTES >> 20);
    memset(memory, 1, LIMIT_MEMORY_BYTES);
    int rc = team_start(&team, n_threads, err);
    struct limits_job job = {.kern = kern,
                             .cpu_limit = cpu_limit,
                             .with_2gb = available_bytes > MEMORY_2GB,
                             .available_bytes = available_bytes,
                             .memory = memory};
    if (!rc) limits_measure(team, &job, limits, report_nothing, NULL);
    team_stop(team);
    munmap(memory, LIMIT_MEMORY_BYTES);
    return rc;
}

/* What no cache holds is compared with reading 2 GB, where that was measured. */
enum bench_limit engine_memory_limit(const struct limit *limits, double bytes) {
    return bytes > 1.5 * (double)LIMIT_MEMORY_BYTES && limits[LIMIT_READ_2GB].per_s > 0 ? LIMIT_READ_2GB
                                                                                        : LIMIT_READ_94MB;
}

/* ---- figures ---- */

static bool counts(const struct quire_step *s, bool decode, size_t batch) {
    return decode ? !s->n_prefill_rows && s->n_decode_seqs == batch : s->n_prefill_rows && !s->n_decode_rows;
}

static void take_shares(struct engine_figures *f, double bytes, double ops, const struct engine_costs *c,
                        const struct limit *limits) {
    if (!limits || c->unknown || f->seconds <= 0 || !f->steps) return;
    double read = limits[engine_memory_limit(limits, bytes / (double)f->steps)].per_s;
    double compute = limits[c->ops_limit].per_s;
    if (read > 0) f->memory_share = bytes / f->seconds / read;
    if (compute > 0) f->arithmetic_share = ops / f->seconds / compute;
}

struct engine_figures engine_figures_of(const struct drive_step *steps, size_t n, bool decode, size_t batch,
                                        size_t most, const struct engine_costs *c,
                                        const struct limit *limits) {
    struct engine_figures f = {0};
    double bytes = 0, ops = 0;
    bool warm = !decode;
    for (size_t i = 0; i < n; i++) {
        const struct quire_step *s = &steps[i].step;
        if (!counts(s, decode, batch) || (decode && f.steps == most)) continue;
        if (!warm) {
            warm = true;
            continue;
        }
        uint64_t attended = s->prefill_attended + s->decode_attended;
        size_t rows = s->n_prefill_rows + s->n_decode_rows;
        uint64_t own = s->prepare_us + s->forward_us + s->sample_us;
        f.steps++;
        f.tokens += rows;
        f.seconds += (double)(i ? steps[i].end_us - steps[i - 1].end_us : own) / 1e6;
        f.prepare_s += (double)s->prepare_us / 1e6;
        f.forward_s += (double)s->forward_us / 1e6;
        f.sample_s += (double)s->sample_us / 1e6;
        bytes += c->weight_bytes + c->kv_bytes * (double)attended;
        ops += c->row_ops * (double)rows + c->logit_ops * (double)s->n_logit_rows +
               c->attended_ops * (double)attended;
    }
    if (f.seconds > 0) {
        f.tokens_per_s = (double)f.tokens / f.seconds;
        f.outside_share = fmax(0, 1 - f.forward_s / f.seconds);
    }
    take_shares(&f, bytes, ops, c, limits);
    return f;
}

static double median_of(const struct engine_point *k, size_t offset) {
    double v[ENGINE_REPEATS_MAX];
    for (size_t i = 0; i < k->n; i++) memcpy(&v[i], (const char *)&k->repeats[i] + offset, sizeof v[i]);
    stats_sort(v, k->n);
    return stats_quantile(v, k->n, 0.5);
}

static void sum_up(struct engine_point *k) {
#define MEDIAN(member) k->all.member = median_of(k, offsetof(struct engine_figures, member))
    k->all = (struct engine_figures){0};
    k->low = k->high = k->repeats[0].tokens_per_s;
    for (size_t i = 0; i < k->n; i++) {
        k->all.tokens += k->repeats[i].tokens;
        k->all.steps += k->repeats[i].steps;
        k->all.seconds += k->repeats[i].seconds;
        k->all.prepare_s += k->repeats[i].prepare_s;
        k->all.forward_s += k->repeats[i].forward_s;
        k->all.sample_s += k->repeats[i].sample_s;
        k->low = fmin(k->low, k->repeats[i].tokens_per_s);
        k->high = fmax(k->high, k->repeats[i].tokens_per_s);
    }
    MEDIAN(tokens_per_s);
    MEDIAN(outside_share);
    MEDIAN(memory_share);
    MEDIAN(arithmetic_share);
#undef MEDIAN
}

/* ---- what the engine can hold ---- */

/* 0, or a negative code with the number that is too much in err. */
static int check_fit(const struct engine_run *r, size_t batch, size_t context, size_t tokens,
                     struct error *err) {
    const struct quire_info *i = quire_info(r->engine);
    size_t length = context + tokens + 2, blocks = r->n_kv_groups * size_div_up(length, i->block_tokens);
    if (length > i->max_model_len)
        return error_set(
            err, QUIRE_EINVAL,
            "--context %zu with %zu more tokens is beyond the %zu of --max-model-len: at most %zu", context,
            tokens + 2, i->max_model_len, i->max_model_len > tokens + 2 ? i->max_model_len - tokens - 2 : 0);
    if (batch > r->max_num_seqs)
        return error_set(err, QUIRE_EINVAL, "--batch %zu is more than --max-num-seqs %zu", batch,
                         r->max_num_seqs);
    if (batch * blocks > i->n_blocks)
        return error_set(
            err, QUIRE_EINVAL,
            "--batch %zu at --context %zu needs %zu KV blocks, there are %zu: at most --batch %zu", batch,
            context, batch * blocks, i->n_blocks, i->n_blocks / blocks);
    return 0;
}

/* ---- the run ---- */

static int drive(struct engine_run *r, size_t batch, size_t context, size_t tokens, uint64_t seed,
                 bool cached, struct error *err) {
    struct drive_load l = {
        .n_seqs = batch, .n_prompt = context, .n_output = tokens, .seed = seed, .cached = cached};
    return drive_run(r->drive, r->engine, &l, r->interrupted, err);
}

/* On a busy machine it can happen that the sequences never are in one step: then there is no figure. */
static void keep(struct engine_run *r, struct engine_point *k) {
    size_t n;
    const struct drive_step *steps = drive_steps(r->drive, &n);
    struct engine_figures f =
        engine_figures_of(steps, n, k->decode, k->batch, r->tokens, &r->costs, r->limits);
    if (!f.steps) return;
    k->repeats[k->n++] = f;
    sum_up(k);
}

static size_t steps_seen(const struct engine_run *r, const struct engine_point *k) {
    size_t n;
    const struct drive_step *steps = drive_steps(r->drive, &n);
    return engine_figures_of(steps, n, true, k->batch, r->tokens, &r->costs, NULL).steps;
}

/* Where a step takes no longer than a submission (a small model), the first sequences end before the last
 * begin: then with longer answers, as far as they fit. */
static int drive_decode(struct engine_run *r, struct engine_point *k, uint64_t seed, struct error *err) {
    struct error ignored;
    for (size_t more = 0;; more = more ? 4 * more : r->tokens) {
        int rc = drive(r, k->batch, k->context, r->tokens + more + 2, seed, true, err);
        if (rc || 2 * steps_seen(r, k) >= r->tokens) return rc;
        if (check_fit(r, k->batch, k->context, r->tokens + (more ? 4 * more : r->tokens), &ignored)) return 0;
    }
}

/* Prompts first; then the same ones, found in the prefix cache (if it is on), so that decoding begins at
 * once. */
static int repeat_point(struct engine_run *r, struct engine_point *prefill, struct engine_point *decode,
                        uint64_t seed, struct error *err) {
    int rc = drive(r, prefill->batch, prefill->context, 1, seed, false, err);
    if (rc) return rc;
    keep(r, prefill);
    rc = drive_decode(r, decode, seed, err);
    if (!rc) keep(r, decode);
    return rc;
}

static void leave_out(struct engine_run *r, size_t batch, size_t context, const char *why) {
    size_t n = strlen(r->note);
    snprintf(r->note + n, sizeof r->note - n, "%s%zux%zu (%s)",
             n ? ", " : "left out, batch x context: ", batch, context, why);
}

static int measure_point(struct engine_run *r, size_t batch, size_t context, struct error *err) {
    struct engine_point *prefill = &r->points[r->n_points], *decode = prefill + 1;
    *prefill = (struct engine_point){.batch = batch, .context = context};
    *decode = (struct engine_point){.decode = true, .batch = batch, .context = context};
    r->n_points += 2;
    int rc = 0;
    for (size_t i = 0; i < r->repeats && !rc; i++) {
        if (r->progress)
            fprintf(r->progress, "\r\033[Kbatch %zu, context %zu: %zu of %zu", batch, context, i + 1,
                    r->repeats);
        rc = repeat_point(r, prefill, decode, r->seed + 1000 * r->n_points + i, err);
    }
    if (r->progress) fprintf(r->progress, "\r\033[K");
    if (prefill->n) engine_line(r, prefill, r->out);
    if (decode->n) engine_line(r, decode, r->out);
    if (!rc && decode->n < r->repeats)
        leave_out(r, batch, context, "not all were decoded together each time");
    return rc;
}

static double prefill_rate(const struct engine_run *r) {
    double rate = 0;
    for (size_t i = 0; i < r->n_points; i++)
        if (!r->points[i].decode) rate = fmax(rate, r->points[i].all.tokens_per_s);
    return rate;
}

static int measure(struct engine_run *r, struct error *err) {
    int rc = 0;
    for (size_t c = 0; c < r->n_contexts && !rc; c++)
        for (size_t b = 0; b < r->n_batches && !rc; b++) {
            size_t batch = (size_t)r->batches[b], context = (size_t)r->contexts[c];
            struct error ignored;
            double rate = prefill_rate(r),
                   takes = rate > 0 ? (double)(batch * context * r->repeats) / rate : 0;
            if (!r->chosen && check_fit(r, batch, context, r->tokens, &ignored))
                leave_out(r, batch, context, "does not fit");
            else if (!r->chosen && takes > LONGEST_POINT_S)
                leave_out(r, batch, context, "would take more than a minute");
            else
                rc = measure_point(r, batch, context, err);
        }
    return rc;
}

int engine_check(const struct engine_run *r, struct error *err) {
    int rc = 0;
    if (2 * r->n_batches * r->n_contexts > ENGINE_POINTS_MAX)
        return error_set(err, QUIRE_EINVAL, "%zu points are to be measured, at most %d can be",
                         r->n_batches * r->n_contexts, ENGINE_POINTS_MAX / 2);
    for (size_t c = 0; c < r->n_contexts && r->chosen && !rc; c++)
        for (size_t b = 0; b < r->n_batches && !rc; b++)
            rc = check_fit(r, (size_t)r->batches[b], (size_t)r->contexts[c], r->tokens, err);
    return rc;
}

int engine_run(struct engine_run *r, struct error *err) {
    int rc = 0;
    r->created_unix_s = clock_unix_s();
    size_t room = quire_info(r->engine)->max_model_len;
    if (room > WARMUP_PROMPT + WARMUP_TOKENS)
        rc = drive(r, 1, WARMUP_PROMPT, WARMUP_TOKENS, r->seed, false, err);
    if (!rc) {
        engine_head(r->out);
        rc = measure(r, err);
    }
    if (rc == QUIRE_ECANCELED) {
        snprintf(r->ended, sizeof r->ended, "interrupted");
        rc = 0;
    }
    if (*r->note) fprintf(r->out, "note: %s\n", r->note);
    return rc;
}
