/* quire pull NAME: a known model into the cache; its path on standard output. */
#include "cli/cli.h"

#include "base/error.h"

#include <stdio.h>
#include <stdlib.h>

static const struct option table[] = {{0}};

int cmd_pull(int argc, char **argv) {
    int n = 0;
    char none;
    struct options_state *state = NULL;
    int rc = cli_options("pull", "NAME",
                         "Fetches a known model into the cache, checks its SHA-256 and prints its path.",
                         table, argc, argv, &n, &none, &state);
    if (rc >= 0) return rc;
    options_free(state);
    struct error err = {0};
    const struct known_model *m = n == 1 ? known_model_find(argv[1]) : NULL;
    if (!m) {
        fprintf(stderr,
                n == 1 ? "quire pull: there is no known model \"%s\"; known are:\n"
                       : "usage: quire pull NAME\n",
                argv[1]);
        for (m = known_models; m->name; m++) fprintf(stderr, "  %-10s %s\n", m->name, m->about);
        return EXIT_USAGE;
    }
    char *path = NULL;
    if (model_pull(m, &path, &err)) return cli_fail("pull", &err);
    puts(path);
    free(path);
    return EXIT_OK;
}
