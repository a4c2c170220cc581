/* quire tune MODEL: the options with which a load gets the highest goodput under an SLO. */
#include "cli/bench.h"
#include "cli/tune_judge.h"

#include "backend/cpu/cores.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/files.h"
#include "load/length.h"
#include "sim/calibration.h"
#include "tune/knobs.h"

#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define SERVER_ARGS 40
#define CONCURRENCY 8 /* where none is given */

struct tune_command {
    struct load_options load; /* first: its rows are shared */
    struct engine_options engine;
    const char *folder, *parameters, *command, *calibration, *config_out, *html_out;
    const char *budget, *weights, *max_ppl_increase, *max_top1_drop;
    double calibrate_s, startup_s, quality_s, max_kl;
    int64_t repeats, runs;
    bool simulate;
    char args[SERVER_ARGS][256];
    const char *argv[SERVER_ARGS + 1];
    size_t n_args;
};

#define AT(member) offsetof(struct tune_command, member)

static const struct option own_rows[] = {
    {"folder", OPTION_STRING, AT(folder), "Search", "FOLDER", "quire-tune", 0, 0, NULL, NULL,
     "Where runs and results are kept. The same command again goes on from there."},
    {"parameters", OPTION_STRING, AT(parameters), "Search", "LIST", NULL, 0, 0, NULL, NULL,
     "What is tried: concurrency, max-num-seqs, max-num-batched-tokens, gpu-memory-utilization, "
     "long-prefill-token-threshold, enable-prefix-caching, block-size, threads, dtype, weights; all of them "
     "if "
     "unset."},
    {"weights", OPTION_STRING, AT(weights), "Search", "FILE,...", NULL, 0, 0, NULL, NULL,
     "Other forms of the same model to try, files, folders or names as MODEL: quantized otherwise, say."},
    {"budget", OPTION_STRING, AT(budget), "Search", "TIME", NULL, 0, 0, NULL, NULL,
     "Time for everything, calibration and the last two runs included, as 90s, 20m or 2h: what is running "
     "then "
     "is ended. No limit if unset."},
    {"runs", OPTION_INT, AT(runs), "Search", "N", "0", 0, 1000, NULL, NULL, "Most runs; 0 is no limit."},
    {"repeats", OPTION_INT, AT(repeats), "Search", "N", "2", 1, 8, NULL, NULL,
     "Runs of a candidate at most, while its interval does not separate from that of the best."},
    {"command", OPTION_STRING, AT(command), "Search", "TEXT", NULL, 0, 0, NULL, NULL,
     "Start this program with these arguments, cut at spaces, instead of `quire serve MODEL`. It gets the "
     "candidate's "
     "flags, and says \"ready URL\" on standard output."},
    {"startup-timeout", OPTION_FLOAT, AT(startup_s), "Search", "SECONDS", "600", 1, 86400, NULL, NULL,
     "A server that takes longer to be ready has failed."},
    {"simulate", OPTION_BOOL, AT(simulate), "Search", NULL, "true", 0, 0, NULL, NULL,
     "Calibrate the model first, and do not measure what the simulator rules out."},
    {"calibration", OPTION_STRING, AT(calibration), "Search", "FILE", NULL, 0, 0, NULL, NULL,
     "A calibration of `quire simulate --save` of this model on this machine."},
    {"calibrate-seconds", OPTION_FLOAT, AT(calibrate_s), "Search", "SECONDS", "45", 1, 3600, NULL, NULL,
     "How long the model's steps are measured for a calibration."},
    {"max-ppl-increase", OPTION_STRING, AT(max_ppl_increase), "Quality", "SHARE", "1%", 0, 0, NULL, NULL,
     "How much higher perplexity may be with another dtype or other weights: 1% or 0.01."},
    {"max-kl-increase", OPTION_FLOAT, AT(max_kl), "Quality", "NATS", "0.1", 0, 100, NULL, NULL,
     "How far its distributions may be from those of the defaults: mean KL divergence."},
    {"max-top1-drop", OPTION_STRING, AT(max_top1_drop), "Quality", "SHARE", "100%", 0, 0, NULL, NULL,
     "Of how many tokens its first choice may be another one than with the defaults."},
    {"quality-seconds", OPTION_FLOAT, AT(quality_s), "Quality", "SECONDS", "30", 1, 3600, NULL, NULL,
     "Most time for a look at answers, over as much of the built-in text of `quire eval` as it allows."},
    {"config-out", OPTION_STRING, AT(config_out), "Report", "FILE", NULL, 0, 0, NULL, NULL,
     "Options for `quire serve --config`; config.yaml in the folder if unset."},
    {"html", OPTION_STRING, AT(html_out), "Report", "FILE", NULL, 0, 0, NULL, NULL,
     "One page with the steps, a heat map and curves; report.html in the folder if unset."},
};

static const char *const not_load[] = {"model",   "api-key",  "ca-cert", "insecure", "suite",
                                       "repeat",  "json",     "csv",     "html",     "label",
                                       "records", "progress", "price",   NULL};
static const char *const not_engine[] = {"seed", NULL};

static volatile int interrupted, halted; /* halted: what is a part of the budget, by an alarm, too */

static void on_interrupt(int signal) {
    if (interrupted) _Exit(130); /* a second time: now; the server goes with us */
    interrupted = halted = 1;
}

static void on_alarm(int signal) {
    halted = 1;
}

static bool named(const char *const *names, const char *name) {
    while (*names && strcmp(*names, name)) names++;
    return *names != NULL;
}

static size_t rows(struct option *table) {
    struct option engine[ENGINE_OPTION_ROWS];
    size_t n = load_option_rows(table, not_load), n_engine = engine_option_rows(engine, AT(engine));
    for (size_t i = 0; i < n_engine; i++)
        if (!named(not_engine, engine[i].name)) table[n++] = engine[i];
    memcpy(table + n, own_rows, sizeof own_rows);
    return n + sizeof own_rows / sizeof *own_rows;
}

/* ---- from the options to the search ---- */

static int read_budget(const char *text, double *out, struct error *err) {
    static const char units[] = "smh";
    static const double seconds[] = {1, 60, 3600};
    size_t n = text ? strlen(text) : 0;
    const char *unit = n ? strchr(units, text[n - 1]) : NULL;
    *out = 0;
    if (!text) return 0;
    if (!number_read(text, unit ? n - 1 : n, 1, 1e7, out))
        return error_set(err, QUIRE_EINVAL, "--budget is \"%.20s\"; a time like 90s, 20m or 2h is allowed",
                         text);
    *out *= unit ? seconds[unit - units] : 1;
    return 0;
}

static int add_arg(struct tune_command *t, const char *text, struct error *err) {
    if (strlen(text) >= sizeof t->args[0] || t->n_args == SERVER_ARGS)
        return error_set(err, QUIRE_EINVAL, "\"%.60s...\" is too long for an option of a server", text);
    memcpy(t->args[t->n_args], text, strlen(text) + 1);
    t->argv[t->n_args] = t->args[t->n_args];
    t->n_args++;
    return 0;
}

/* What was given of the engine's options goes to every server, but the knobs, which are the search's. */
static int pass_on(struct tune_command *t, const struct option *row, struct error *err) {
    char text[1024];
    const char *at = (const char *)t + row->offset;
    if (row->type == OPTION_BOOL)
        snprintf(text, sizeof text, "--%s%s", *(const bool *)at ? "" : "no-", row->name);
    else if (row->type == OPTION_INT)
        snprintf(text, sizeof text, "--%s=%lld", row->name, (long long)*(const int64_t *)(const void *)at);
    else if (row->type == OPTION_FLOAT)
        snprintf(text, sizeof text, "--%s=%.10g", row->name, *(const double *)(const void *)at);
    else
        snprintf(text, sizeof text, "--%s=%s", row->name, *(const char *const *)(const void *)at);
    return add_arg(t, text, err);
}

static int server_args(struct tune_command *t, const struct options_state *given, unsigned *knobs,
                       struct error *err) {
    struct option engine[ENGINE_OPTION_ROWS];
    size_t n = engine_option_rows(engine, AT(engine));
    *knobs = 0;
    for (size_t i = 0; i < n; i++) {
        bool knob = false;
        if (named(not_engine, engine[i].name) || !options_given(given, engine[i].name)) continue;
        for (int k = 0; k < KNOBS; k++)
            if (k != KNOB_WEIGHTS && !strcmp(knob_rows[k].name, engine[i].name)) {
                *knobs |= 1u << k;
                knob = true;
            }
        int rc = knob ? 0 : pass_on(t, &engine[i], err);
        if (rc) return rc;
    }
    return 0;
}

/* Its place among tune_dtypes; the engine's options know more names. */
static double dtype_of(const char *name) {
    if (!strcmp(name, "float16") || !strcmp(name, "half")) return 1;
    return strncmp(name, "float", 5) ? 0 : 2;
}

static int base_of(const struct tune_command *t, struct candidate *c, bool open_loop, struct error *err) {
    const struct engine_options *e = &t->engine;
    double streams = CONCURRENCY;
    const char *text = t->load.concurrency;
    if (text && (!number_read(text, strlen(text), 1, 4096, &streams) || streams != (double)(int)streams))
        return error_set(err, QUIRE_EINVAL,
                         "--concurrency is \"%.40s\"; one number from 1 to 4096 is allowed, to begin with",
                         text);
    if (e->max_num_batched_tokens < e->max_num_seqs)
        return error_set(
            err, QUIRE_EINVAL,
            "--max-num-batched-tokens is %lld, less than --max-num-seqs %lld: every running sequence takes a "
            "token a step",
            (long long)e->max_num_batched_tokens, (long long)e->max_num_seqs);
    *c = (struct candidate){{[KNOB_CONCURRENCY] = open_loop ? 0 : streams,
                             [KNOB_SEQS] = (double)e->max_num_seqs,
                             [KNOB_TOKENS] = (double)e->max_num_batched_tokens,
                             [KNOB_MEMORY] = e->memory_share,
                             [KNOB_CHUNK] = (double)e->long_prefill,
                             [KNOB_PREFIX] = e->prefix_caching,
                             [KNOB_BLOCK] = (double)e->block_size,
                             [KNOB_THREADS] = e->threads ? (double)e->threads : (double)cores_available(),
                             [KNOB_DTYPE] = dtype_of(e->dtype)}};
    return 0;
}

/* ---- the calibration ---- */

/* Whether it is of what is tuned; option: what named it, NULL: nothing is said. */
static int check_calibration(const struct judge_state *s, const struct candidate *base, const char *option,
                             const struct calibration *c, struct error *err) {
    const char *what = strcmp(c->family, s->family)                                 ? "model"
                       : c->tensor_bytes && c->tensor_bytes != s->tensor_bytes      ? "model"
                       : strcmp(c->dtype, tune_dtypes[(size_t)base->v[KNOB_DTYPE]]) ? "dtype"
                       : (double)c->n_threads != base->v[KNOB_THREADS]              ? "number of threads"
                                                                                    : NULL;
    if (!what) return 0;
    return error_set(err, QUIRE_EINVAL, "%s is of another %s: %.60s, %s, %zu thread%s", option, what,
                     c->model, c->dtype, c->n_threads, c->n_threads == 1 ? "" : "s");
}

/* Measures for a fifth of a budget at most, and gives up after a third: a busy machine takes long for what
 * has to be measured. QUIRE_ELIMIT then. */
static int calibrate_within(const struct tune_command *t, const char *model, double budget_s,
                            struct calibration *c, struct error *err) {
    struct sigaction action = {.sa_handler = on_alarm, .sa_flags = SA_RESTART};
    double seconds = budget_s > 0 ? fmin(t->calibrate_s, fmax(1, budget_s / 5)) : t->calibrate_s;
    sigaction(SIGALRM, &action, NULL);
    if (budget_s > 0) alarm((unsigned)fmin(1e6, ceil(budget_s / 3)));
    int rc = calibrate_model(model, &t->engine, seconds, &halted, c, err);
    alarm(0);
    return rc == QUIRE_ECANCELED && !interrupted
               ? error_set(err, QUIRE_ELIMIT, "the calibration took more than a third of the budget")
               : rc;
}

/* One that was given, one that an earlier call has left in the folder, or a new one. */
static int get_calibration(const struct tune_command *t, const struct judge_state *s,
                           const struct tune_options *o, struct calibration *c, struct error *err) {
    char path[1100];
    FILE *file = NULL;
    struct buf text = BUF_INIT;
    int rc;
    if (t->calibration) {
        rc = calibration_read_all("--calibration", t->calibration, c, err);
        return rc ? rc : check_calibration(s, &o->base, "--calibration", c, err);
    }
    snprintf(path, sizeof path, "%s/calibration.json", t->folder);
    if (!access(path, R_OK) && !calibration_read(NULL, path, c, err) &&
        !check_calibration(s, &o->base, "it", c, err))
        return 0;
    *err = (struct error){0}; /* a new one replaces it */
    rc = calibrate_within(t, s->model, o->budget_s, c, err);
    if (!rc) rc = file_open_result("--folder", path, &file, err);
    if (rc) return rc;
    calibration_write(c, &text);
    rc = file_write_result(file, "--folder", path, &text, err);
    fclose(file);
    buf_free(&text);
    return rc;
}

/* ---- all ---- */

static int read_limits(const struct tune_command *t, struct tune_judge *j, struct error *err) {
    j->most_s = t->quality_s;
    j->limits.kl = t->max_kl;
    int rc = share_read("max-ppl-increase", t->max_ppl_increase, &j->limits.ppl_increase, err);
    return rc ? rc : share_read("max-top1-drop", t->max_top1_drop, &j->limits.top1, err);
}

/* What has no meaning for another server. */
static int check_command(const struct tune_command *t, const struct options_state *given, struct error *err) {
    static const char *const names[] = {"calibration",     "weights",       "max-ppl-increase",
                                        "max-kl-increase", "max-top1-drop", "quality-seconds"};
    for (size_t i = 0; t->command && i < sizeof names / sizeof *names; i++)
        if (options_given(given, names[i]))
            return error_set(
                err, QUIRE_EINVAL,
                "--%s is of a model; with --command nothing is simulated and no answers are looked at",
                names[i]);
    if (t->command && !t->command[strspn(t->command, " ")])
        return error_set(err, QUIRE_EINVAL, "--command names no program");
    return 0;
}

static int prepare(struct tune_command *t, const struct options_state *given, struct tune_options *o,
                   struct tune_judge *judge, struct error *err) {
    struct slo slo;
    if (!t->load.slo)
        return error_set(err, QUIRE_EINVAL, "which SLO? --slo ttft_p95=1000,tpot_p95=100 or some of it");
    int rc = slo_parse(t->load.slo, &slo, err);
    if (!rc) rc = read_budget(t->budget, &o->budget_s, err);
    if (!rc) rc = server_args(t, given, &o->given, err);
    if (!rc) rc = base_of(t, &o->base, o->open_loop, err);
    if (!rc) rc = read_limits(t, judge, err);
    return rc ? rc : check_command(t, given, err);
}

/* With the folder locked. */
static int search(struct tune_command *t, struct tune_options *o, struct judge_state *s, struct error *err) {
    struct calibration cal;
    int rc = tune_check(o, err);
    if (!rc && !t->command && t->simulate) {
        rc = get_calibration(t, s, o, &cal, err);
        o->cal = rc ? NULL : &cal;
        size_t block_bytes =
            rc ? 0 : cal.kv_bytes_per_token * cal.block_tokens / (cal.n_groups ? cal.n_groups : 1);
        if (o->kv_given && block_bytes) cal.n_blocks = (size_t)t->engine.kv_bytes / block_bytes;
        if (rc == QUIRE_ELIMIT) { /* without, more is measured */
            fprintf(stderr, "quire tune: %s; nothing is simulated\n", err->text);
            rc = 0;
        }
    }
    if (!rc) rc = tune_run(o, stdout, err);
    if (!rc) judge_clean(s);
    return rc;
}

static int tune(struct tune_command *t, const char *model, const struct options_state *given,
                struct error *err) {
    bool trace = t->load.workload && !strcmp(t->load.workload, "trace");
    struct judge_state s = {
        .model = model, .folder = t->folder, .engine = &t->engine, .interrupted = &interrupted};
    struct tune_judge judge = {.look = judge_look, .ctx = &s};
    const char *weights[TUNE_WEIGHTS_MAX];
    char *text = NULL;
    int lock = -1;
    struct tune_options o = {.model = model,
                             .weights = weights,
                             .command = t->command,
                             .server_args = t->argv,
                             .folder = t->folder,
                             .parameters = t->parameters,
                             .config = t->config_out,
                             .html = t->html_out,
                             .load = t->load,
                             .kv_given = t->engine.kv_bytes > 0,
                             .open_loop = t->load.rate || (trace && !t->load.concurrency),
                             .start_us = clock_us(),
                             .startup_s = t->startup_s,
                             .repeats = t->repeats,
                             .most_runs = (size_t)t->runs,
                             .n_cores = cores_available(),
                             .judge = model ? &judge : NULL,
                             .interrupted = &interrupted};
    int rc = prepare(t, given, &o, &judge, err);
    s.dtype = tune_dtypes[rc ? 0 : (size_t)o.base.v[KNOB_DTYPE]];
    unsigned bits;
    if (!rc && model) rc = judge_list(model, t->weights, &text, weights, &o.n_weights, err);
    if (!rc) rc = knob_choose(&o, &bits, err);
    if (!rc && model) rc = judge_forms(&s, weights, o.n_weights, err);
    if (!rc) rc = tune_folder_open(t->folder, &lock, err);
    if (!rc) rc = search(t, &o, &s, err);
    if (lock >= 0) close(lock);
    free(text);
    return rc;
}

static const char ABOUT[] =
    "Starts servers of MODEL with different options, puts a load on each and finds the highest goodput under "
    "--slo: one "
    "parameter at a time, each beside the best before it. Writes options for `quire serve --config`.";

int cmd_tune(int argc, char **argv) {
    struct tune_command *t = calloc(1, sizeof *t);
    struct option table[LOAD_OPTION_ROWS + ENGINE_OPTION_ROWS + sizeof own_rows / sizeof *own_rows + 1] = {0};
    struct sigaction action = {.sa_handler = on_interrupt}, ignore = {.sa_handler = SIG_IGN};
    struct options_state *state = NULL;
    struct error err = {0};
    int n = 0;
    if (!t) return EXIT_FAILED;
    rows(table);
    int rc = cli_options("tune", "MODEL [options]", ABOUT, table, argc, argv, &n, t, &state);
    if (rc >= 0) {
        free(t);
        return rc;
    }
    sigaction(SIGINT, &action, NULL);
    sigaction(SIGTERM, &action, NULL);
    sigaction(SIGPIPE, &ignore, NULL);
    t->load.has_temperature = options_given(state, "temperature");
    t->load.has_turns = options_given(state, "turns");
    if (n > 1)
        rc = error_set(&err, QUIRE_EINVAL, "one model is tuned, \"%.60s\" is one too many", argv[2]);
    else if (!n == !t->command)
        rc = error_set(
            &err, QUIRE_EINVAL,
            n ? "give a model or a --command, not both"
              : "which model? quire tune MODEL --slo ... [options], or --command TEXT for another server");
    else
        rc = tune(t, n ? argv[1] : NULL, state, &err);
    options_free(state);
    free(t);
    return rc ? cli_fail("tune", &err) : EXIT_OK;
}
