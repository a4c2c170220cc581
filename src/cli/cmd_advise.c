/* quire advise: what to change first on a server. */
#include "cli/cli.h"

#include "advise/advise.h"
#include "base/error.h"
#include "cli/advise_player.h"

#include <signal.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

struct advise_command {
    struct advise_options a;
    struct engine_options engine; /* of --calibrate */
    const char *calibration, *calibrate, *save;
    double calibrate_s;
};

#define AT(member)  offsetof(struct advise_command, a.member)
#define OWN(member) offsetof(struct advise_command, member)
#define GAINS       "Gains by simulation"

static const struct option own_rows[] = {
    {"window", OPTION_FLOAT, AT(window_s), "Looking", "SECONDS", "10", 0, 86400, NULL, NULL,
     "How long to look at a server; 0 is one look at what it counts since its start."},
    {"watch", OPTION_BOOL, AT(watch), "Looking", NULL, "false", 0, 0, NULL, NULL,
     "Go on, a window after the other, and show what has changed."},
    {"rounds", OPTION_INT, AT(rounds), "Looking", "N", "0", 0, 1e9, NULL, NULL,
     "Windows of --watch; 0: until ctrl-C."},
    {"api-key", OPTION_STRING, AT(api_key), "Looking", "KEY", NULL, 0, 0, NULL, "QUIRE_API_KEY",
     "Key of the server."},
    {"ca-cert", OPTION_STRING, AT(ca_cert), "Looking", "FILE", NULL, 0, 0, NULL, NULL,
     "Authorities (PEM) that an https server's certificate must come from; those of the system if not "
     "given."},
    {"insecure", OPTION_BOOL, AT(insecure), "Looking", NULL, "false", 0, 0, NULL, NULL,
     "Accept any certificate of an https server."},
    {"timeout", OPTION_FLOAT, AT(timeout_s), "Looking", "SECONDS", "30", 0.1, 3600, NULL, NULL,
     "The server must answer within this time."},
    {"slo", OPTION_STRING, AT(slo), "Judging", "LIST", NULL, 0, 0, NULL, NULL,
     "What is wanted of the P95, in milliseconds: ttft:1000,tpot:50,e2e:30000 or some of them. A report has "
     "its own if "
     "it was measured with one."},
    {"price", OPTION_STRING, AT(price), "Judging", "P/h", NULL, 0, 0, NULL, NULL,
     "Price of the server for an hour, like 2.00/h: waste is then told in money a day, too."},
    {"calibration", OPTION_STRING, OWN(calibration), GAINS, "FILE,...", NULL, 0, 0, NULL, NULL,
     "Simulate the measured load with and without each change, with the step times in this file of `quire "
     "simulate MODEL --save FILE` (of several: the mean). Without it gains are estimates by formula."},
    {"calibrate", OPTION_STRING, OWN(calibrate), GAINS, "MODEL", NULL, 0, 0, NULL, NULL,
     "Measure the step times of this model on this machine first, in about a minute; a server that works "
     "here "
     "meanwhile slows both."},
    {"calibrate-seconds", OPTION_FLOAT, OWN(calibrate_s), GAINS, "SECONDS", "45", 1, 3600, NULL, NULL,
     "How long --calibrate measures the model's steps; the API around them takes about 15 more."},
    {"save", OPTION_STRING, OWN(save), GAINS, "FILE", NULL, 0, 0, NULL, NULL,
     "Keep what --calibrate has measured, for --calibration later."},
    {"json", OPTION_BOOL, AT(json), "Report", NULL, "false", 0, 0, NULL, NULL,
     "One JSON object a line instead of text; docs/advise.md says what the fields are."},
};
#define N_OWN_ROWS (sizeof own_rows / sizeof *own_rows)

static const char ABOUT[] =
    "Reads the metrics of a running server (Quire, vLLM, SGLang, llama.cpp), or a report of "
    "`quire bench serve --json`, and says what to change first.";

static volatile int interrupted;

static void on_interrupt(int signal) {
    if (interrupted) _Exit(130); /* a second time: now */
    interrupted = 1;
}

/* ---- where gains come from ---- */

/* Flags of the engine that --calibrate measures; the others stay at their defaults. */
static bool is_calibrated(const char *name) {
    return !strcmp(name, "dtype") || !strcmp(name, "threads");
}

static void rows(struct option *table) {
    struct option engine[ENGINE_OPTION_ROWS];
    size_t n = N_OWN_ROWS, n_engine = engine_option_rows(engine, OWN(engine));
    memcpy(table, own_rows, sizeof own_rows);
    for (size_t i = 0; i < n_engine; i++) {
        if (!is_calibrated(engine[i].name)) continue;
        table[n] = engine[i];
        table[n++].group = GAINS;
    }
}

static int default_engine(struct engine_options *e, struct error *err) {
    struct option table[ENGINE_OPTION_ROWS + 1] = {0};
    struct options_state *state = NULL;
    int n;
    engine_option_rows(table, 0);
    int rc = options_parse(table, 0, NULL, &n, e, NULL, &state, err);
    options_free(state);
    return rc;
}

static int get_player(const struct advise_command *c, struct advise_player *p, struct error *err) {
    int rc = c->calibration ? calibration_read_all("--calibration", c->calibration, &p->cal, err)
                            : calibrate_and_save(c->calibrate, &c->engine, c->calibrate_s, c->save,
                                                 &interrupted, &p->cal, err);
    if (!rc) advise_player_init(p, c->calibration ? c->calibration : "--calibrate", &interrupted);
    return rc;
}

static int run(struct advise_command *c, struct error *err) {
    struct sigaction action = {.sa_handler = on_interrupt}, ignore = {.sa_handler = SIG_IGN};
    struct advise_player player;
    sigaction(SIGINT, &action, NULL);
    sigaction(SIGTERM, &action, NULL);
    sigaction(SIGPIPE, &ignore, NULL);
    if (c->calibration || c->calibrate) {
        int rc = get_player(c, &player, err);
        if (rc) return rc;
        c->a.player = &player.player;
    }
    return advise_run(&c->a, &interrupted, stdout, err);
}

/* What has no effect is not taken. */
static int check_given(const struct options_state *state, const struct advise_command *c, struct error *err) {
    static const char *const of_servers[] = {"window", "watch", "rounds", "ca-cert", "insecure", "timeout"};
    static const char *const of_calibrating[] = {"calibrate-seconds", "save", "dtype", "threads"};
    for (size_t i = 0; i < sizeof of_servers / sizeof *of_servers; i++)
        if (options_given(state, of_servers[i]) && !advise_is_url(c->a.source))
            return error_set(err, QUIRE_EINVAL,
                             "--%s is for a server's URL; \"%.200s\" is taken for a report", of_servers[i],
                             c->a.source);
    for (size_t i = 0; i < sizeof of_calibrating / sizeof *of_calibrating; i++)
        if (options_given(state, of_calibrating[i]) && !c->calibrate)
            return error_set(err, QUIRE_EINVAL, "--%s is for --calibrate MODEL", of_calibrating[i]);
    if (c->calibration && c->calibrate)
        return error_set(err, QUIRE_EINVAL, "--calibration and --calibrate: one of them is enough");
    if (options_given(state, "rounds") && !c->a.watch)
        return error_set(err, QUIRE_EINVAL, "--rounds is for --watch");
    return 0;
}

int cmd_advise(int argc, char **argv) {
    struct advise_command c = {0};
    struct option table[N_OWN_ROWS + ENGINE_OPTION_ROWS + 1] = {0};
    struct options_state *state = NULL;
    struct error err = {0};
    int n = 0, rc = default_engine(&c.engine, &err);
    if (rc) return cli_fail("advise", &err);
    rows(table);
    rc = cli_options("advise", "URL | report.json [options]", ABOUT, table, argc, argv, &n, &c, &state);
    if (rc >= 0) return rc;
    if (n != 1) {
        rc = error_set(&err, QUIRE_EINVAL,
                       n ? "one server or report is looked at, \"%.60s\" is one too many"
                         : "which server or report? quire advise URL | report.json [options]%s",
                       n ? argv[2] : "");
    } else {
        c.a.source = argv[1];
        rc = check_given(state, &c, &err);
        if (!rc) rc = run(&c, &err);
    }
    options_free(state);
    return rc ? cli_fail("advise", &err) : EXIT_OK;
}
