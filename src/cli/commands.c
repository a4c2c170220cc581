#include "cli/commands.h"

#include "cli/cli.h"

#include "base/suggest.h"

#include <stdio.h>
#include <string.h>

static int widest(const struct command *c) {
    size_t n = 0;
    for (; c->name; c++)
        if (strlen(c->name) > n) n = strlen(c->name);
    return (int)n;
}

static int list(const struct command_table *t, FILE *out) {
    fputs(t->head, out);
    if (t->usage)
        fprintf(out, "usage: %s %s\n", t->program, t->usage);
    else
        for (const struct command *c = t->commands; c->name; c++)
            fprintf(out, "%s %s %s %s\n", c == t->commands ? "usage:" : "      ", t->program, c->name,
                    c->arguments);
    fputc('\n', out);
    for (const struct command *c = t->commands; c->name; c++)
        fprintf(out, "  %-*s %s\n", widest(t->commands), c->name, c->about);
    fprintf(out, "\n%s", t->tail);
    return out == stdout ? EXIT_OK : EXIT_USAGE;
}

int commands_run(const struct command_table *t, int argc, char **argv) {
    struct suggestion s;
    if (argc < 2) return list(t, stderr);
    suggest_init(&s, argv[1], strlen(argv[1]));
    for (const struct command *c = t->commands; c->name; c++) {
        if (!strcmp(argv[1], c->name)) return c->run(argc - 1, argv + 1);
        suggest_offer(&s, c->name);
    }
    for (int i = 1; i < argc; i++)
        if (!strcmp(argv[i], "--help") || !strcmp(argv[i], "-h") || (i == 1 && !strcmp(argv[i], "help")))
            return list(t, stdout);
    if (s.nearest)
        fprintf(stderr, "%s: there is no %s \"%.60s\" (did you mean %s?)\n", t->program, t->what, argv[1],
                s.nearest);
    else
        fprintf(stderr, "%s: there is no %s \"%.60s\"; %s --help lists them\n", t->program, t->what, argv[1],
                t->program);
    return EXIT_USAGE;
}
