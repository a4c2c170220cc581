/* The table of commands. */
#include "cli/cli.h"

#include "base/error.h"
#include "base/suggest.h"

#include <stdio.h>
#include <string.h>

struct command {
    const char *name;
    int (*run)(int argc, char **argv);
    const char *about;
};

static const struct command commands[] = {
    {"serve", cmd_serve, "serve a model over an OpenAI-compatible API"},
    {"run", cmd_run, "one answer on the terminal"},
    {"chat", cmd_chat, "a conversation on the terminal, with a model or a server"},
    {"pull", cmd_pull, "fetch a model into the cache, by a known name or its id on a hub"},
    {"inspect", cmd_inspect, "what is in a model file, and whether it is whole"},
    {"plan", cmd_plan, "what a model needs, before anything is started"},
    {"bench", cmd_bench, "measure this machine, or any server under load"},
    {"simulate", cmd_simulate, "what a server would do under a load, in a fraction of the time"},
    {"tune", cmd_tune, "find the options with which a load gets the most under an SLO"},
    {"eval", cmd_eval, "measure how good a model's answers are"},
    {"advise", cmd_advise, "what to change first on a running server"},
};
#define N_COMMANDS (sizeof commands / sizeof *commands)

static void usage(FILE *out) {
    fprintf(out, "quire " QUIRE_VERSION
                 ": serve large language models from paged KV memory\n\nusage: quire COMMAND ...\n\n");
    for (size_t i = 0; i < N_COMMANDS; i++) fprintf(out, "  %-8s %s\n", commands[i].name, commands[i].about);
    fprintf(out, "\nquire COMMAND --help shows the options. quire --version prints the version.\n"
                 "Environment: QUIRE_CACHE (folder of fetched models), HF_ENDPOINT, HF_TOKEN (hub), "
                 "QUIRE_CPU (ref, avx2, avx512, amx: highest instruction "
                 "set to use).\n");
}

int main(int argc, char **argv) {
    if (argc < 2) {
        usage(stderr);
        return EXIT_USAGE;
    }
    if (!strcmp(argv[1], "--version") || !strcmp(argv[1], "version")) {
        puts("quire " QUIRE_VERSION);
        return EXIT_OK;
    }
    if (!strcmp(argv[1], "--help") || !strcmp(argv[1], "-h") || !strcmp(argv[1], "help")) {
        usage(stdout);
        return EXIT_OK;
    }
    for (size_t i = 0; i < N_COMMANDS; i++)
        if (!strcmp(argv[1], commands[i].name)) return commands[i].run(argc - 1, argv + 1);
    struct suggestion s;
    suggest_init(&s, argv[1], strlen(argv[1]));
    for (size_t i = 0; i < N_COMMANDS; i++) suggest_offer(&s, commands[i].name);
    if (s.nearest)
        fprintf(stderr, "quire: there is no command \"%.60s\" (did you mean %s?)\n", argv[1], s.nearest);
    else
        fprintf(stderr, "quire: there is no command \"%.60s\"; quire --help lists them\n", argv[1]);
    return EXIT_USAGE;
}

int cli_fail(const char *command, const struct error *err) {
    fprintf(stderr, "quire %s: %s\n", command, err->text);
    return err->code == QUIRE_EINVAL || err->code == QUIRE_ENOTFOUND || err->code == QUIRE_EUNSUPPORTED
               ? EXIT_USAGE
               : EXIT_FAILED;
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
