/* quire tune MODEL: the options with which a load gets the highest goodput under an SLO. */
#include "cli/bench.h"

#include "backend/cpu/cores.h"
#include "base/error.h"
#include "base/files.h"
#include "load/length.h"
#include "sim/calibration.h"
#include "tune/knobs.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define SERVER_ARGS 40
#define CONCURRENCY 8 /* where none is given */

struct tune_command {
    struct load_options load; /* first: its rows are shared */
    struct engine_options engine;
    const char *folder, *parameters, *command, *calibration, *config_out, *html_out;
    const char *budget;
    double calibrate_s, startup_s;
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
     "long-prefill-token-threshold, enable-prefix-caching, block-size, threads; all of them if unset."},
    {"budget", OPTION_STRING, AT(budget), "Search", "TIME", NULL, 0, 0, NULL, NULL,
     "Time for the search, as 90s, 20m or 2h; no run is begun that would not fit. No limit if unset."},
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
    {"config-out", OPTION_STRING, AT(config_out), "Report", "FILE", NULL, 0, 0, NULL, NULL,
     "Options for `quire serve --config`; config.yaml in the folder if unset."},
    {"html", OPTION_STRING, AT(html_out), "Report", "FILE", NULL, 0, 0, NULL, NULL,
     "One page with the steps, a heat map and curves; report.html in the folder if unset."},
};

static const char *const not_load[] = {"model",   "api-key",  "ca-cert", "insecure", "suite",
                                       "repeat",  "json",     "csv",     "html",     "label",
                                       "records", "progress", "price",   NULL};
static const char *const not_engine[] = {"seed", NULL};

static volatile int interrupted;

static void on_interrupt(int signal) {
    if (interrupted) _Exit(130); /* a second time: now; the server goes with us */
    interrupted = 1;
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
            if (!strcmp(knob_rows[k].name, engine[i].name)) {
                *knobs |= 1u << k;
                knob = true;
            }
        int rc = knob ? 0 : pass_on(t, &engine[i], err);
        if (rc) return rc;
    }
    return 0;
}

static int base_of(const struct tune_command *t, struct candidate *c, bool open_loop, struct error *err) {
    const struct engine_options *e = &t->engine;
    double streams = CONCURRENCY;
    const char *text = t->load.concurrency;
    if (text && (!number_read(text, strlen(text), 1, 4096, &streams) || streams != (double)(int)streams))
        return error_set(err, QUIRE_EINVAL,
                         "--concurrency is \"%.40s\"; one number from 1 to 4096 is allowed, to begin with",
                         text);
    *c = (struct candidate){{[KNOB_CONCURRENCY] = open_loop ? 0 : streams,
                             [KNOB_SEQS] = (double)e->max_num_seqs,
                             [KNOB_TOKENS] = (double)e->max_num_batched_tokens,
                             [KNOB_MEMORY] = e->memory_share,
                             [KNOB_CHUNK] = (double)e->long_prefill,
                             [KNOB_PREFIX] = e->prefix_caching,
                             [KNOB_BLOCK] = (double)e->block_size,
                             [KNOB_THREADS] = e->threads ? (double)e->threads : (double)cores_available()}};
    return 0;
}

/* One that was given, one that an earlier call has left in the folder, or a new one. */
static int get_calibration(const struct tune_command *t, const char *model, struct calibration *c,
                           struct error *err) {
    char path[1100];
    FILE *file;
    struct buf text = BUF_INIT;
    if (t->calibration) return calibration_read_all("--calibration", t->calibration, c, err);
    snprintf(path, sizeof path, "%s/calibration.json", t->folder);
    if (!access(path, R_OK)) return calibration_read(NULL, path, c, err);
    if (mkdir(t->folder, 0777) && errno != EEXIST)
        return error_set(err, QUIRE_EIO, "--folder %.200s cannot be made: %s", t->folder, strerror(errno));
    int rc = calibrate_model(model, &t->engine, t->calibrate_s, &interrupted, c, err);
    if (!rc) rc = file_open_result("--folder", path, &file, err);
    if (rc) return rc;
    calibration_write(c, &text);
    rc = file_write_result(file, "--folder", path, &text, err);
    fclose(file);
    buf_free(&text);
    return rc;
}

static int tune(struct tune_command *t, const char *model, const struct options_state *given,
                struct error *err) {
    const char *workload = t->load.workload;
    bool trace = workload && !strcmp(workload, "trace");
    struct calibration cal;
    struct slo slo;
    struct tune_options o = {.model = model,
                             .command = t->command,
                             .server_args = t->argv,
                             .folder = t->folder,
                             .parameters = t->parameters,
                             .config = t->config_out,
                             .html = t->html_out,
                             .load = t->load,
                             .kv_given = t->engine.kv_bytes > 0,
                             .open_loop = t->load.rate || (trace && !t->load.concurrency),
                             .startup_s = t->startup_s,
                             .repeats = t->repeats,
                             .most_runs = (size_t)t->runs,
                             .n_cores = cores_available(),
                             .interrupted = &interrupted};
    unsigned bits;
    if (!t->load.slo)
        return error_set(err, QUIRE_EINVAL, "which SLO? --slo ttft_p95=1000,tpot_p95=100 or some of it");
    int rc = slo_parse(t->load.slo, &slo, err);
    if (!rc) rc = knob_parse(t->parameters, &bits, err);
    if (!rc) rc = read_budget(t->budget, &o.budget_s, err);
    if (!rc) rc = server_args(t, given, &o.given, err);
    if (!rc) rc = base_of(t, &o.base, o.open_loop, err);
    if (rc) return rc;
    if (t->command && t->calibration)
        return error_set(err, QUIRE_EINVAL,
                         "--calibration is of a model; with --command nothing is simulated");
    if (!t->command && t->simulate) {
        rc = get_calibration(t, model, &cal, err);
        o.cal = &cal;
        size_t block_bytes = cal.kv_bytes_per_token * cal.block_tokens / (cal.n_groups ? cal.n_groups : 1);
        if (!rc && o.kv_given && block_bytes) cal.n_blocks = (size_t)t->engine.kv_bytes / block_bytes;
    }
    return rc ? rc : tune_run(&o, stdout, err);
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
