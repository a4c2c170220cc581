/* quire advise: what to change first on a server. */
#include "cli/cli.h"

#include "advise/advise.h"
#include "base/error.h"

#include <signal.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#define AT(member) offsetof(struct advise_options, member)

static const struct option table[] = {
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
    {"json", OPTION_BOOL, AT(json), "Report", NULL, "false", 0, 0, NULL, NULL,
     "One JSON object a line instead of text; docs/advise.md says what the fields are."},
    {0},
};

static const char ABOUT[] =
    "Reads the metrics of a running server (Quire, vLLM, SGLang, llama.cpp), or a report of "
    "`quire bench serve --json`, and says what to change first.";

static volatile int interrupted;

static void on_interrupt(int signal) {
    if (interrupted) _Exit(130); /* a second time: now */
    interrupted = 1;
}

static int run(const struct advise_options *o, struct error *err) {
    struct sigaction action = {.sa_handler = on_interrupt}, ignore = {.sa_handler = SIG_IGN};
    sigaction(SIGINT, &action, NULL);
    sigaction(SIGTERM, &action, NULL);
    sigaction(SIGPIPE, &ignore, NULL);
    return advise_run(o, &interrupted, stdout, err);
}

/* What has no effect is not taken. */
static int check_given(const struct options_state *state, const struct advise_options *o, struct error *err) {
    static const char *const of_servers[] = {"window", "watch", "rounds", "ca-cert", "insecure", "timeout"};
    for (size_t i = 0; i < sizeof of_servers / sizeof *of_servers; i++)
        if (options_given(state, of_servers[i]) && !advise_is_url(o->source))
            return error_set(err, QUIRE_EINVAL,
                             "--%s is for a server's URL; \"%.200s\" is taken for a report", of_servers[i],
                             o->source);
    if (options_given(state, "rounds") && !o->watch)
        return error_set(err, QUIRE_EINVAL, "--rounds is for --watch");
    return 0;
}

int cmd_advise(int argc, char **argv) {
    struct advise_options o = {0};
    struct options_state *state = NULL;
    struct error err = {0};
    int n = 0,
        rc = cli_options("advise", "URL | report.json [options]", ABOUT, table, argc, argv, &n, &o, &state);
    if (rc >= 0) return rc;
    if (n != 1) {
        rc = error_set(&err, QUIRE_EINVAL,
                       n ? "one server or report is looked at, \"%.60s\" is one too many"
                         : "which server or report? quire advise URL | report.json [options]%s",
                       n ? argv[2] : "");
    } else {
        o.source = argv[1];
        rc = check_given(state, &o, &err);
        if (!rc) rc = run(&o, &err);
    }
    options_free(state);
    return rc ? cli_fail("advise", &err) : EXIT_OK;
}
