/* What a model takes on this machine: its steps by designed mixes, then the API around them by a little load
 * on a server in this process. */
#include "cli/cli.h"

#include "base/clock.h"
#include "base/error.h"
#include "base/files.h"
#include "base/size.h"
#include "engine/meminfo.h"
#include "load/summary.h"
#include "model/spec.h"
#include "sim/calibrate.h"
#include "weights/weights.h"

#include <quire/stats.h>

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

#define KV_BYTES   (UINT64_C(1) << 30) /* for the measurements; what a server would take is worked out */
#define API_S      15                  /* of the limit, kept for the API */
#define SEQS_LEAST 128 /* so that steps of many sequences are measured, whatever is simulated then */

struct session_parts {
    struct loaded_model model;
    struct serve *server;
    struct drive *drive; /* reads the engine's steps */
    struct step_log steps, served; /* of mixes; that a server wrote out */
    size_t n_served;               /* loads */
    double served_cpu_s;
    struct target target;
    struct target_config config;
    const char *name; /* of the model in the API */
    char url[64];
    const volatile int *interrupted;
    uint64_t until_us; /* when all measuring ends */
    uint64_t salt;         /* of the next prompts */
    struct meminfo memory; /* before the model was opened */
    double memory_share;   /* 0: KV memory was given */
};

static double cpu_s(void) {
    struct rusage r;
    getrusage(RUSAGE_SELF, &r);
    return (double)(r.ru_utime.tv_sec + r.ru_stime.tv_sec) +
           (double)(r.ru_utime.tv_usec + r.ru_stime.tv_usec) / 1e6;
}

/* ---- the API ---- */

/* A closed loop of random prompts; what the client saw, and how the engine's own TTFT was on average.
 * QUIRE_ELIMIT: the time for measuring is over. */
static int probe(struct session_parts *p, uint32_t input, uint32_t output, size_t streams, size_t n,
                 uint64_t salt, struct summary *s, double *engine_ttft_ms, struct error *err) {
    struct workload_spec spec = {.name = "random",
                                 .kind = WORKLOAD_RANDOM,
                                 .input = {LENGTH_FIXED, input, 0},
                                 .output = {LENGTH_FIXED, output, 0},
                                 .prefix_groups = 1,
                                 .turns = 1,
                                 .ignore_eos = true};
    struct run_config c = {.target = &p->target,
                           .spec = &spec,
                           .concurrency = streams,
                           .max_active = streams,
                           .n_sessions = n,
                           .salt = salt,
                           .time_scale = 1,
                           .interval_s = 1,
                           .http = {.timeout_s = 600},
                           .interrupted = p->interrupted,
                           .end_us = p->until_us};
    const struct quire_hist *h = &quire_stats(p->model.engine)->ttft;
    double sum = atomic_load(&h->sum), count = (double)atomic_load(&h->n);
    struct run run = {0};
    int rc = run_perform(&c, &run, err);
    if (!rc) summarize(&run, 1, &(struct slo){0}, 0, false, s);
    if (!rc && run.interrupted) rc = error_set(err, QUIRE_ECANCELED, "interrupted");
    if (!rc && run.cut) rc = error_set(err, QUIRE_ELIMIT, "its time is over");
    if (!rc && (s->n_failed || !s->n_ok))
        rc = error_set(err, QUIRE_EINTERNAL, "%zu of %zu requests of the calibration failed: %s", s->n_failed,
                       s->n_requests, run.n_failures ? run.failures[0].example : "");
    *engine_ttft_ms = 1000 * (atomic_load(&h->sum) - sum) / fmax(1, (double)atomic_load(&h->n) - count);
    run_free(&run);
    return rc;
}

/* Milliseconds that a request of so many tokens is on its way before and behind the engine. Prompts that the
 * engine has in its cache tell the same in less time, so each is sent twice. */
static int outside(struct session_parts *p, uint32_t input, size_t n, double *ms, struct error *err) {
    struct summary s;
    double engine_ms, sum = 0;
    uint64_t salt = p->salt++;
    int rc = 0;
    for (int i = 0; i < 2 && !rc; i++) {
        rc = probe(p, input, 2, 1, n, salt, &s, &engine_ms, err);
        if (!rc) sum += s.ms[LATENCY_TTFT].mean - engine_ms;
    }
    *ms = fmax(0, sum / 2);
    return rc;
}

/* Loads that are served in turn between mixes: a stream alone, some with prompts beside answers, many. */
static const struct {
    uint32_t input, output;
    size_t streams, n;
} served_loads[] = {{100, 40, 1, 1}, {64, 24, 3, 5}, {16, 16, 16, 16}};
#define N_SERVED (sizeof served_loads / sizeof *served_loads)

static int serve_some(void *ctx, struct error *err) {
    struct session_parts *p = ctx;
    const struct quire_info *info = quire_info(p->model.engine);
    size_t i = p->n_served % N_SERVED, streams = size_min(served_loads[i].streams, info->max_requests);
    uint32_t output = served_loads[i].output;
    uint32_t input = (uint32_t)size_min(served_loads[i].input, info->max_model_len / 2);
    struct summary s;
    double engine_ms, before = cpu_s();
    drive_forget(p->drive);
    int rc = probe(p, input, (uint32_t)size_min(output, info->max_model_len - input), streams,
                   size_min(served_loads[i].n, 4 * streams), p->salt++, &s, &engine_ms, err);
    p->served_cpu_s += cpu_s() - before;
    if (rc) return rc;
    p->n_served++;
    return step_log_keep(&p->served, p->drive, err);
}

/* Of the parts, each done in turn: how many, in *n_done. */
#define API_PARTS 3

static int measure_api(struct session_parts *p, struct calibration *c, int *n_done, struct error *err) {
    const struct quire_info *info = quire_info(p->model.engine);
    uint32_t small = 16, large = (uint32_t)size_min(600, info->max_model_len / 2);
    double few, many;
    int rc = 0;
    while (!rc && p->n_served < N_SERVED) rc = serve_some(p, err);
    if (!rc) rc = calibrate_served(&p->served, &c->steps, &c->gap_us, &c->row_us, err);
    if (rc) return rc;
    *n_done = 1;
    rc = outside(p, small, 12, &few, err);
    if (rc) return rc;
    c->request_us = fmax(0, 1000 * few);
    *n_done = 2;
    rc = outside(p, large, 4, &many, err);
    if (rc) return rc;
    *n_done = 3;
    c->prompt_token_us = large > small ? fmax(0, 1000 * (many - few)) / (double)(large - small) : 0;
    c->request_us = fmax(0, 1000 * few - c->prompt_token_us * small);
    return 0;
}

static int open_server(struct session_parts *p, struct log *log, struct error *err) {
    struct serve_config c;
    serve_config_init(&c);
    c.host = "127.0.0.1";
    c.port = 0;
    c.model_names = &p->name;
    c.n_model_names = 1;
    c.n_loops = 1;
    c.n_workers = 2;
    c.version = QUIRE_VERSION;
    c.log = log;
    int rc = serve_start(&c, &p->model.text, p->model.engine, &p->server, err);
    if (rc) return rc;
    snprintf(p->url, sizeof p->url, "http://127.0.0.1:%u", serve_port(p->server));
    double left_s = (double)(p->until_us - size_min(p->until_us, clock_us())) / 1e6;
    p->config = (struct target_config){.url = p->url, .http = {.timeout_s = fmax(1, left_s)}};
    return target_open(&p->config, &p->target, err);
}

/* What is measured of the API when the time is over stays; the rest is taken to be nothing. */
static int measure_api_in_time(struct session_parts *p, struct calibration *c, struct error *err) {
    int n_done = 0;
    int rc = measure_api(p, c, &n_done, err);
    bool over = rc && rc != QUIRE_ECANCELED && rc != QUIRE_ENOMEM && clock_us() >= p->until_us;
    if (over) *err = (struct error){0};
    c->measured_share = (p->steps.share + n_done / (double)API_PARTS) / 2;
    return over ? 0 : rc;
}

/* The template's own tokens; what remains unknown is simulated as if it were none, or like one message. */
static void learn_template(const struct session_parts *p, struct calibration *c) {
    size_t turns = template_tokens(&p->model.text, "suau");
    c->chat_tokens = template_tokens(&p->model.text, "u");
    c->chat_system_tokens = template_tokens(&p->model.text, "su");
    if (turns > c->chat_system_tokens && c->chat_system_tokens)
        c->chat_turn_tokens = turns - c->chat_system_tokens;
    else if ((turns = template_tokens(&p->model.text, "uau")) > c->chat_tokens)
        c->chat_turn_tokens = turns - c->chat_tokens;
}

/* ---- what was measured ---- */

static void machine_name(char *out, size_t size) {
    char line[256];
    FILE *f = fopen("/proc/cpuinfo", "r");
    snprintf(out, size, "unknown");
    while (f && fgets(line, sizeof line, f)) {
        char *value = strchr(line, ':');
        if (strncmp(line, "model name", 10) || !value) continue;
        value[strcspn(value, "\n")] = 0;
        snprintf(out, size, "%s", value + 2);
        break;
    }
    if (f) fclose(f);
}

/* Blocks that a server's share of the memory leaves room for. */
static size_t blocks_of(const struct session_parts *p, const struct quire_info *info) {
    const struct quire_memory_row *kv = &info->memory[1], *total = &info->memory[QUIRE_MEMORY_ROWS - 1];
    double allowed = p->memory_share * (double)p->memory.available_bytes;
    double rest = (double)(total->bytes - kv->bytes), page = (double)kv->bytes / (double)(info->n_blocks + 1);
    return p->memory_share > 0 && allowed > rest ? (size_t)fmin((allowed - rest) / page, 2e9)
                                                 : info->n_blocks;
}

/* While memory is made ready, steps would take longer than they do later. */
static void wait_for_memory(const struct session_parts *p) {
    const struct quire_stats *s = quire_stats(p->model.engine);
    struct timespec pause = {0, 20000000};
    for (int i = 0; i < 3000 && atomic_load(&s->blocks_resident) < quire_info(p->model.engine)->n_blocks; i++)
        nanosleep(&pause, NULL);
}

static int describe(const struct session_parts *p, const char *argument, struct calibration *c,
                    struct error *err) {
    const struct quire_info *info = quire_info(p->model.engine);
    struct model_spec spec;
    int rc = model_spec_read(p->model.weights, &spec, err);
    if (rc) return rc;
    const char *name = strrchr(argument, '/');
    snprintf(c->model, sizeof c->model, "%s", name && name[1] ? name + 1 : argument);
    snprintf(c->numerics_id, sizeof c->numerics_id, "%s", info->numerics_id);
    snprintf(c->family, sizeof c->family, "%s", info->family);
    snprintf(c->dtype, sizeof c->dtype, "%s", info->dtype_name);
    snprintf(c->cpu_path, sizeof c->cpu_path, "%s", info->cpu_path);
    machine_name(c->machine, sizeof c->machine);
    c->n_threads = info->n_threads;
    c->created_unix_s = (int64_t)time(NULL);
    c->tensor_bytes = weights_tensor_bytes(p->model.weights);
    c->max_model_len = info->max_model_len;
    c->block_tokens = info->block_tokens;
    c->n_blocks = blocks_of(p, info);
    c->kv_bytes_per_token = info->kv_bytes_per_token;
    c->n_groups = spec.n_kv_groups;
    for (size_t g = 0; g < c->n_groups; g++)
        c->window[g] = spec.kv_groups[g].window < info->max_model_len ? spec.kv_groups[g].window : 0;
    return 0;
}

/* Steps keep all threads at work, so a process that had less of the cores had to share them. */
static double share_of_cores(const struct session_parts *p, double seconds, size_t n_threads) {
    double busy_us = 0;
    for (size_t i = 0; i < p->steps.n; i++)
        busy_us += (double)(p->steps.steps[i].forward_us + p->steps.steps[i].sample_us);
    return busy_us > 0 ? seconds / (busy_us / 1e6 * (double)n_threads) : 0;
}

/* A machine that others use may need minutes for what takes a free one a minute. */
static double limit_of(double seconds) {
    return 2 * seconds + 30;
}

static void tell_limit(const struct calibration *c, double seconds) {
    if (c->measured_share > 1 - 1e-9) return;
    fprintf(stderr,
            "calibration: it ended at its limit of %.0f s with %.0f %% of what is to be measured; the steps got "
            "%.0f %% of their cores. What is simulated with it is rough: calibrate when the machine is free, or "
            "with more --calibrate-seconds\n",
            limit_of(seconds), 100 * c->measured_share, 100 * c->cpu_share);
}

static int measure(struct session_parts *p, const char *argument, double seconds, size_t max_num_seqs,
                   struct log *log, struct calibration *c, struct error *err) {
    FILE *progress = isatty(STDERR_FILENO) ? stderr : NULL;
    struct calibrate_options o = {seconds, limit_of(seconds) - API_S, progress, p->interrupted, serve_some, p};
    int rc = describe(p, argument, c, err);
    if (!rc && quire_info(p->model.engine)->pooling)
        rc = error_set(err, QUIRE_EUNSUPPORTED, "%s makes vectors; text can be simulated", argument);
    if (!rc) wait_for_memory(p);
    p->until_us = clock_us() + (uint64_t)(limit_of(seconds) * 1e6);
    if (!rc) rc = open_server(p, log, err);
    if (!rc) rc = target_learn_tokens(&p->config, &p->target, false, err);
    double before = cpu_s();
    if (!rc) rc = calibrate_run(p->drive, p->model.engine, max_num_seqs, &o, &p->steps, err);
    if (!rc) c->cpu_share = share_of_cores(p, cpu_s() - before - p->served_cpu_s, c->n_threads);
    if (!rc && p->steps.n < STEP_LEAST && p->steps.share < 1)
        rc = error_set(err, QUIRE_ELIMIT,
                       "only %zu steps could be measured in %.0f s, %d are needed: the machine is too busy, or "
                       "too slow for --calibrate-seconds %g",
                       p->steps.n, limit_of(seconds) - API_S, STEP_LEAST, seconds);
    if (!rc) rc = step_model_fit(p->steps.steps, p->steps.end_us, p->steps.n, &c->steps, err);
    if (rc) return rc;
    learn_template(p, c);
    return measure_api_in_time(p, c, err);
}

int calibrate_model(const char *argument, const struct engine_options *given, double seconds,
                    const volatile int *interrupted, struct calibration *out, struct error *err) {
    struct session_parts p = {.name = argument, .interrupted = interrupted, .salt = 1000};
    struct engine_options o = *given;
    struct log log = {stderr, LOG_ERROR};
    uint64_t start = clock_us();
    *out = (struct calibration){0};
    o.max_num_seqs = o.max_num_seqs < SEQS_LEAST ? SEQS_LEAST : o.max_num_seqs;
    o.max_num_batched_tokens =
        o.max_num_batched_tokens < o.max_num_seqs ? o.max_num_seqs : o.max_num_batched_tokens;
    int rc = drive_create(CALIBRATE_MOST_STEPS, &p.drive, err);
    if (rc) return rc;
    o.step_reader = drive_reader(p.drive);
    if (!o.kv_bytes && !meminfo_read("", &p.memory)) {
        p.memory_share = o.memory_share;
        o.kv_bytes = (int64_t)size_min(KV_BYTES, p.memory.available_bytes / 4);
    }
    rc = loaded_model_open(argument, &o, &log, &p.model, err);
    if (!rc) {
        out->startup_s = (double)(clock_us() - start) / 1e6;
        rc = measure(&p, argument, seconds, (size_t)o.max_num_seqs, &log, out, err);
        if (!rc) tell_limit(out, seconds);
        target_free(&p.target);
        if (p.server) serve_stop(p.server, 1000);
        quire_shutdown(p.model.engine);
        p.model.engine = NULL;
        if (p.server) serve_free(p.server);
        loaded_model_close(&p.model);
    }
    step_log_free(&p.steps);
    step_log_free(&p.served);
    drive_free(p.drive);
    return rc;
}

int calibrate_and_save(const char *argument, const struct engine_options *o, double seconds, const char *save,
                       const volatile int *interrupted, struct calibration *out, struct error *err) {
    FILE *file = NULL;
    struct buf text = BUF_INIT;
    int rc = file_open_result("--save", save, &file, err);
    if (!rc) rc = calibrate_model(argument, o, seconds, interrupted, out, err);
    if (!rc) calibration_write(out, &text);
    if (!rc) rc = file_write_result(file, "--save", save, &text, err);
    if (file) fclose(file);
    buf_free(&text);
    return rc;
}
