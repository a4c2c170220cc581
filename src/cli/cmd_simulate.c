/* quire simulate MODEL|CALIBRATION.json: a load on the engine's scheduler in virtual time. */
#include "cli/bench.h"

#include "base/clock.h"
#include "base/error.h"
#include "base/size.h"
#include "load/compare.h"
#include "load/length.h"
#include "sim/compare.h"
#include "sim/scale.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct simulate_options {
    struct load_options load; /* first: its rows are shared */
    struct engine_options engine;
    const char *save, *compare, *replicas, *routing;
    double calibrate_s, startup_s, idle_s, good_share;
    bool wander;
};

#define AT(member) offsetof(struct simulate_options, member)

static const struct option own_rows[] = {
    {"save", OPTION_STRING, AT(save), "Simulation", "FILE", NULL, 0, 0, NULL, NULL,
     "Keep the calibration of MODEL in a file, to be given instead of it later."},
    {"calibrate-seconds", OPTION_FLOAT, AT(calibrate_s), "Simulation", "SECONDS", "45", 1, 3600, NULL, NULL,
     "How long the model's steps are measured; the API around them takes about 15 more. A busy machine may need longer: all of it ends after twice this and 30 seconds."},
    {"wander", OPTION_BOOL, AT(wander), "Simulation", NULL, "true", 0, 0, NULL, NULL,
     "The machine's speed wanders as it did while it was calibrated, and a load is played several times, each "
     "from another moment on; off: always its mean speed."},
    {"compare", OPTION_STRING, AT(compare), "Simulation", "FILE", NULL, 0, 0, NULL, NULL,
     "Reports of `quire bench serve --json` of the same load, separated by commas: the error of each figure "
     "beside the median of their repeats is told, and what is left of it at the speed that the steps had "
     "then."},
    {"replicas", OPTION_STRING, AT(replicas), "Replicas", "N", "1", 0, 0, NULL, NULL,
     "Servers side by side, or auto: the fewest that hold --slo, and what they need to grow and shrink with "
     "the load."},
    {"routing", OPTION_CHOICE, AT(routing), "Replicas", "HOW", "least-loaded", 0, 0,
     "round-robin|least-loaded", NULL, "Which replica gets a request."},
    {"startup", OPTION_FLOAT, AT(startup_s), "Replicas", "SECONDS", "-1", -1, 86400, NULL, NULL,
     "From wanting a replica to its being ready; -1 is what loading took when it was calibrated."},
    {"idle", OPTION_FLOAT, AT(idle_s), "Replicas", "SECONDS", "60", 0, 86400, NULL, NULL,
     "A replica that has not been needed for this long is stopped."},
    {"good-share", OPTION_FLOAT, AT(good_share), "Replicas", "SHARE", "0.95", 0.01, 1, NULL, NULL,
     "Of the requests, how many have to be within --slo."},
};

/* Of the load's rows, those that only a real server could answer; of the engine's, what the load has too. */
static const char *const not_load[] = {"model",   "api-key",  "temperature", "extra-body",
                                       "timeout", "progress", NULL};
static const char *const not_engine[] = {"seed", "cache-secret", "scheduling-policy", NULL};
/* Part of a calibration, so not to be changed beside one. */
static const char *const calibrated[] = {
    "dtype",         "threads",           "cpu",  "gpu-memory-utilization", "tokenizer", "tokenizer-pre",
    "chat-template", "generation-config", "save", "calibrate-seconds",      NULL};

static volatile int interrupted;

static void on_interrupt(int signal) {
    if (interrupted) _Exit(130); /* a second time: now */
    interrupted = 1;
}

/* ---- from options to a simulated server ---- */

static int engine_of(const struct simulate_options *o, const struct calibration *c, struct sim_options *out,
                     struct error *err) {
    const struct engine_options *e = &o->engine;
    size_t len = e->max_model_len ? (size_t)e->max_model_len : c->max_model_len;
    if (len > c->max_model_len)
        return error_set(err, QUIRE_EINVAL,
                         "--max-model-len is %zu, the calibration was made for at most %zu", len,
                         c->max_model_len);
    if (e->block_size & (e->block_size - 1))
        return error_set(err, QUIRE_EINVAL, "--block-size is %d; allowed are 16, 32, 64, 128 and 256",
                         (int)e->block_size);
    *out = (struct sim_options){.max_num_seqs = (size_t)e->max_num_seqs,
                                .max_num_batched_tokens = (size_t)e->max_num_batched_tokens,
                                .max_model_len = len,
                                .max_queue = (size_t)e->max_queue,
                                .long_prefill_threshold = (size_t)e->long_prefill,
                                .block_tokens = (size_t)e->block_size,
                                .n_groups = c->n_groups,
                                .prefix_caching = e->prefix_caching,
                                .chunked_prefill = e->chunked_prefill};
    for (size_t g = 0; g < c->n_groups; g++) out->window[g] = c->window[g] < len ? c->window[g] : 0;
    /* As many blocks as the memory had room for, no more than can be in use. */
    size_t bytes = c->kv_bytes_per_token * out->block_tokens / c->n_groups; /* of a block of one group */
    size_t room = e->kv_bytes ? (size_t)e->kv_bytes / size_max(1, bytes)
                              : c->n_blocks * c->block_tokens / out->block_tokens;
    size_t most = out->max_num_seqs * c->n_groups * size_div_up(len, out->block_tokens);
    out->n_blocks = size_max(2, size_min(room, most));
    return 0;
}

static int read_replicas(const char *text, size_t *n, struct error *err) {
    double v;
    *n = 0;
    if (!strcmp(text, "auto")) return 0;
    if (!number_read(text, strlen(text), 1, SCALE_MOST, &v) || v != (double)(size_t)v)
        return error_set(err, QUIRE_EINVAL,
                         "--replicas is \"%.20s\"; a number from 1 to %d or auto is allowed", text,
                         SCALE_MOST);
    *n = (size_t)v;
    return 0;
}

static bool is_calibration(const char *argument) {
    size_t n = strlen(argument);
    return n > 5 && !strcmp(argument + n - 5, ".json");
}

static int get_calibration(const char *argument, const struct simulate_options *o,
                           const struct options_state *given, struct calibration *c, struct error *err) {
    for (const char *const *name = calibrated; is_calibration(argument) && *name; name++)
        if (options_given(given, *name))
            return error_set(err, QUIRE_EINVAL,
                             "--%s is for calibrating a model; %.200s is a calibration that has been made",
                             *name, argument);
    if (is_calibration(argument)) return calibration_read_all(NULL, argument, c, err);
    return calibrate_and_save(argument, &o->engine, o->calibrate_s, o->save, &interrupted, c, err);
}

/* ---- what is printed ---- */

#define UNSTEADY 0.1 /* from P10 to P90 */
#define SHARED   0.9 /* of the cores */

struct teller { /* a simulated server that says what it was at the end */
    struct sim_target target;
    struct performer inner;
    const struct simulate_options *o;
    double real_s, virtual_s;
};

static int describe(void *ctx, struct target *t, struct error *err) {
    struct teller *s = ctx;
    return s->inner.describe(s->inner.ctx, t, err);
}

static int perform(void *ctx, const struct run_config *config, struct run *run, struct error *err) {
    struct teller *s = ctx;
    uint64_t start = clock_us();
    int rc = s->inner.perform(s->inner.ctx, config, run, err);
    s->real_s += (double)(clock_us() - start) / 1e6;
    s->virtual_s += run->duration_s;
    return rc;
}

static bool again(void *ctx, const struct run *runs, size_t n) {
    struct teller *s = ctx;
    return s->inner.again(s->inner.ctx, runs, n);
}

static int conclude(void *ctx, const struct plan *p, FILE *out, struct error *err) {
    struct teller *s = ctx;
    const struct sim_outcome *all = &s->target.total;
    fprintf(out, "simulated: %.1f s in %.2f s, %llu steps, engines busy for %.1f s\n", s->virtual_s,
            s->real_s, (unsigned long long)all->n_steps, all->busy_us / 1e6);
    struct sim_load load = {&s->o->load, &s->target, &interrupted};
    return s->o->compare ? sim_compare(p, &load, s->o->compare, out, err) : 0;
}

static void print_calibration(const struct calibration *c) {
    printf("calibration: %s, %s, %s, %zu thread%s, %s\n", c->model, c->dtype, c->cpu_path, c->n_threads,
           c->n_threads == 1 ? "" : "s", c->machine);
    printf("  %-24s %8s %10s %10s %8s\n", "steps", "measured", "error P50", "error P95", "bias");
    for (int r = 0; r < STEP_REGIONS; r++) {
        const struct step_fit *f = &c->steps.fit[r];
        if (f->n)
            printf("  %-24s %8zu %8.1f %% %8.1f %% %+6.1f %%\n", step_region_names[r], f->n,
                   100 * f->median_error, 100 * f->p95_error, 100 * f->bias);
    }
    printf(
        "  a request takes %.2f ms and %.1f us a prompt token before the engine has it; a step takes %.0f us "
        "and %.0f us a token more while they are written out\n",
        c->request_us / 1000, c->prompt_token_us, c->gap_us, c->row_us);
    if (c->measured_share > 0 && c->measured_share < 1 - 1e-9)
        printf("  it ended at its time limit with %.0f %% of what is to be measured\n", 100 * c->measured_share);
    if (c->cpu_share > 0 && c->cpu_share < SHARED)
        printf("  other programs had the cores meanwhile: the steps got %.0f %% of them, and are as much too "
               "long; calibrate again when the machine is free\n",
               100 * c->cpu_share);
    if (c->steps.slow_high > 0)
        printf("  for seconds together steps took %.2f to %.2f times as long as in the mean (P10 to P90)%s\n",
               c->steps.slow_low, c->steps.slow_high,
               c->steps.slow_high - c->steps.slow_low > UNSTEADY
                   ? ": the machine's speed wanders, and so will what is measured beside a simulation"
                   : "");
}

static void print_scale(const struct scale_answer *a, const struct simulate_options *o, double startup_s) {
    printf("\nreplicas for %.1f %% of the requests within --slo %s (routing %s)\n", 100 * o->good_share,
           o->load.slo, o->routing);
    printf("  always up       %zu, %.3f replica hours; %.1f %% are within\n", a->n_fixed,
           a->fixed_replica_s / 3600, 100 * a->fixed_share);
    printf("  one replica     holds it with %zu requests in flight\n", a->load);
    if (a->grows)
        printf("  growing         %zu in reserve (start-up %.1f s, stopped after %.0f s), %zu at most, %.3f "
               "replica hours; "
               "%.1f %% are within\n",
               a->reserve, startup_s, o->idle_s, a->most_up, a->grown_replica_s / 3600, 100 * a->grown_share);
    else
        printf("  growing         does not hold it with a start-up of %.1f s, whatever is in reserve\n",
               startup_s);
}

static int simulate(const struct simulate_options *o, const struct calibration *c, struct error *err) {
    struct teller s = {.o = o, .target = {.model = c->model, .steady = !o->wander}};
    struct sim_config *config = &s.target.config;
    size_t n;
    int rc = read_replicas(o->replicas, &n, err);
    if (!rc) rc = engine_of(o, c, &config->engine, err);
    if (rc) return rc;
    config->clock = calibration_clock(c);
    config->cal = c;
    config->fleet =
        (struct sim_fleet){.n_replicas = n,
                           .routing = strcmp(o->routing, "round-robin") ? SIM_LEAST_LOADED : SIM_ROUND_ROBIN,
                           .startup_s = o->startup_s < 0 ? c->startup_s : o->startup_s,
                           .idle_s = o->idle_s};
    print_calibration(c);
    if (!n) {
        struct scale_answer a;
        config->fleet.n_replicas = 1;
        rc = sim_scale(&s.target, &o->load, o->good_share, &interrupted, &a, err);
        if (rc) return rc;
        print_scale(&a, o, config->fleet.startup_s);
        config->fleet.growing = false;
        config->fleet.n_replicas = a.n_fixed;
    }
    bool measured;
    s.inner = sim_performer(&s.target);
    struct performer performer = {describe, perform, conclude, again, &s};
    return load_perform(&o->load, &performer, &interrupted, stdout, &measured, err);
}

/* ---- the command ---- */

static const char ABOUT[] = "Plays a load through the engine's scheduler in virtual time, with step times of "
                            "a one-minute calibration of MODEL on "
                            "this machine. What is reported is what `quire bench serve` reports.";

static size_t rows(struct option *table) {
    struct option engine[ENGINE_OPTION_ROWS];
    size_t n = load_option_rows(table, not_load), n_engine = engine_option_rows(engine, AT(engine));
    for (size_t i = 0; i < n_engine; i++) {
        const char *const *w = not_engine;
        while (*w && strcmp(*w, engine[i].name)) w++;
        if (!*w) table[n++] = engine[i];
    }
    memcpy(table + n, own_rows, sizeof own_rows);
    return n + sizeof own_rows / sizeof *own_rows;
}

static int run(int argc, char **argv, int n, struct simulate_options *o, const struct options_state *given,
               struct error *err) {
    struct sigaction action = {.sa_handler = on_interrupt}, ignore = {.sa_handler = SIG_IGN};
    struct calibration c;
    if (n != 1)
        return error_set(err, QUIRE_EINVAL,
                         n ? "one model is simulated, \"%.60s\" is one too many"
                           : "which model? quire simulate MODEL|CALIBRATION.json [options]%s",
                         n ? argv[2] : "");
    o->load.has_turns = options_given(given, "turns");
    o->engine.policy = "fcfs";
    sigaction(SIGINT, &action, NULL);
    sigaction(SIGTERM, &action, NULL);
    sigaction(SIGPIPE, &ignore, NULL);
    int rc = get_calibration(argv[1], o, given, &c, err);
    return rc ? rc : simulate(o, &c, err);
}

int cmd_simulate(int argc, char **argv) {
    struct simulate_options o = {0};
    struct option table[LOAD_OPTION_ROWS + ENGINE_OPTION_ROWS + sizeof own_rows / sizeof *own_rows + 1] = {0};
    struct options_state *state = NULL;
    struct error err = {0};
    int n = 0;
    rows(table);
    int rc = cli_options("simulate", "MODEL|CALIBRATION.json[,...] [options]", ABOUT, table, argc, argv, &n,
                         &o, &state);
    if (rc >= 0) return rc;
    rc = run(argc, argv, n, &o, state, &err);
    options_free(state);
    return rc ? cli_fail("simulate", &err) : EXIT_OK;
}
