/* quire pull NAME: a model into the cache; its path on standard output. */
#include "cli/cli.h"

#include "base/error.h"
#include "fetch/known.h"

#include <stdio.h>
#include <stdlib.h>

static const struct option table[] = {{0}};

int cmd_pull(int argc, char **argv) {
    int n = 0;
    char none;
    struct options_state *state = NULL;
    int rc = cli_options(
        "pull", "NAME | ORG/NAME[@REVISION][:FILE or QUANTIZATION]",
        "Fetches a model into the cache, checks its digests and prints its path: a known name, or "
        "an id on a hub\n(HF_ENDPOINT, with HF_TOKEN where it is set). What was interrupted goes on "
        "where it stopped.",
        table, argc, argv, &n, &none, &state);
    if (rc >= 0) return rc;
    options_free(state);
    struct error err = {0};
    char *path = NULL;
    if (n != 1) {
        fprintf(stderr,
                "usage: quire pull NAME | ORG/NAME[@REVISION][:FILE or QUANTIZATION]\nknown names:\n");
        for (const struct known_model *m = known_models; m->name; m++)
            fprintf(stderr, "  %-10s %s\n", m->name, m->about);
        return EXIT_USAGE;
    }
    if (model_pull(argv[1], &path, &err)) return cli_fail("pull", &err);
    puts(path);
    free(path);
    return EXIT_OK;
}
