/* The table of commands. */
#include "cli/cli.h"
#include "cli/commands.h"

#include "base/error.h"

#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static const struct command commands[] = {
    {"serve", cmd_serve, "serve a model over an OpenAI-compatible API", NULL},
    {"run", cmd_run, "one answer on the terminal", NULL},
    {"chat", cmd_chat, "a conversation on the terminal, with a model or a server", NULL},
    {"pull", cmd_pull, "fetch a model into the cache, by a known name or its id on a hub", NULL},
    {"inspect", cmd_inspect, "what is in a model file, and whether it is whole", NULL},
    {"plan", cmd_plan, "what a model needs, before anything is started", NULL},
    {"bench", cmd_bench, "measure this machine, or any server under load", NULL},
    {"simulate", cmd_simulate, "what a server would do under a load, in a fraction of the time", NULL},
    {"tune", cmd_tune, "find the options with which a load gets the most under an SLO", NULL},
    {"eval", cmd_eval, "measure how good a model's answers are", NULL},
    {"advise", cmd_advise, "what to change first on a running server", NULL},
    {0},
};

static const struct command_table command_table = {
    "quire",
    "command",
    "quire " QUIRE_VERSION ": serve large language models from paged KV memory\n\n",
    "COMMAND ...",
    "quire COMMAND --help shows the options. quire --version prints the version.\n"
    "Environment: QUIRE_CACHE (folder of fetched models), HF_ENDPOINT, HF_TOKEN (hub), "
    "QUIRE_CPU (ref, avx2, avx512, amx: highest instruction set to use).\n",
    commands,
};

/* What was to be read has not arrived. A reader who left, as of `quire ... | head`, has what they wanted. */
static bool output_lost(void) {
    struct stat st;
    bool lost = fflush(stdout) || ferror(stdout);
    return lost && !(!fstat(STDOUT_FILENO, &st) && (S_ISFIFO(st.st_mode) || S_ISSOCK(st.st_mode)));
}

int main(int argc, char **argv) {
    signal(SIGXFSZ, SIG_IGN); /* a limit on the size of files is an error of the write */
    if (argc > 1 && (!strcmp(argv[1], "--version") || !strcmp(argv[1], "version"))) {
        puts("quire " QUIRE_VERSION);
        return EXIT_OK;
    }
    int rc = commands_run(&command_table, argc, argv);
    if (!output_lost()) return rc;
    fprintf(stderr, "quire: standard output could not be written\n");
    return rc ? rc : EXIT_FAILED;
}

int cli_fail(const char *command, const struct error *err) {
    fprintf(stderr, "quire %s: %s\n", command, err->text);
    return err->code == QUIRE_EINVAL || err->code == QUIRE_ENOTFOUND || err->code == QUIRE_EUNSUPPORTED
               ? EXIT_USAGE
               : EXIT_FAILED;
}

enum log_level cli_log_level(const char *name) {
    return !strcmp(name, "debug")     ? LOG_DEBUG
           : !strcmp(name, "info")    ? LOG_INFO
           : !strcmp(name, "warning") ? LOG_WARN
                                      : LOG_ERROR;
}

int cli_refuse_server_options(const struct options_state *given, struct error *err) {
    static const char *const names[] = {"model", "ca-cert", "insecure"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (options_given(given, names[i]))
            return error_set(err, QUIRE_EINVAL, "--%s is for a server; it has no effect without a URL",
                             names[i]);
    return 0;
}

int cli_options(const char *command, const char *usage_line, const char *about, const struct option *table,
                int argc, char **argv, int *n_positional, void *values, struct options_state **state) {
    struct error err = {0};
    for (int i = 1; i < argc; i++) {
        if (!strcmp(argv[i], "--help") || !strcmp(argv[i], "-h")) {
            printf("usage: quire %s %s\n%s\n\n", command, usage_line, about);
            options_help(table, stdout);
            return EXIT_OK;
        }
        if (!strcmp(argv[i], "--help-markdown")) {
            options_markdown(table, stdout);
            return EXIT_OK;
        }
    }
    if (!options_parse(table, argc - 1, argv + 1, n_positional, values, stderr, state, &err)) return -1;
    fprintf(stderr, "quire %s: %s\n", command, err.text);
    return EXIT_USAGE;
}
