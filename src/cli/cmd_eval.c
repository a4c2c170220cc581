/* quire eval: perplexity, distance from a reference, tasks, needles, and whether one result is as good as
 * another. */
#include "cli/eval_options.h"

#include "base/error.h"
#include "base/suggest.h"

#include <stdio.h>
#include <string.h>

static int perplexity(int argc, char **argv) {
    return cmd_eval_windows(false, argc, argv);
}

static int kl(int argc, char **argv) {
    return cmd_eval_windows(true, argc, argv);
}

static int tasks(int argc, char **argv) {
    return cmd_eval_questions(false, argc, argv);
}

static int needle(int argc, char **argv) {
    return cmd_eval_questions(true, argc, argv);
}

static const struct {
    const char *name;
    int (*run)(int argc, char **argv);
    const char *about;
} evaluations[] = {
    {"perplexity", perplexity, "how well a model predicts a text"},
    {"kl", kl, "how far a model's distributions are from those of another one"},
    {"tasks", tasks, "multiple choice and exact match, from a file of tasks"},
    {"needle", needle, "a sentence to be found in a long text"},
    {"compare", cmd_eval_compare, "two results: is the second as good as the first?"},
};
#define N_EVALUATIONS (sizeof evaluations / sizeof *evaluations)

static int usage(FILE *out) {
    fprintf(out, "usage: quire eval EVALUATION ...\n\n");
    for (size_t i = 0; i < N_EVALUATIONS; i++)
        fprintf(out, "  %-11s %s\n", evaluations[i].name, evaluations[i].about);
    fprintf(out, "\nquire eval EVALUATION --help shows the options.\n");
    return out == stdout ? EXIT_OK : EXIT_USAGE;
}

int cmd_eval(int argc, char **argv) {
    if (argc < 2) return usage(stderr);
    for (size_t i = 0; i < N_EVALUATIONS; i++)
        if (!strcmp(argv[1], evaluations[i].name)) return evaluations[i].run(argc - 1, argv + 1);
    if (!strcmp(argv[1], "--help") || !strcmp(argv[1], "-h")) return usage(stdout);
    struct suggestion s;
    suggest_init(&s, argv[1], strlen(argv[1]));
    for (size_t i = 0; i < N_EVALUATIONS; i++) suggest_offer(&s, evaluations[i].name);
    if (s.nearest)
        fprintf(stderr, "quire eval: there is no evaluation \"%.60s\" (did you mean %s?)\n", argv[1],
                s.nearest);
    else
        fprintf(stderr, "quire eval: there is no evaluation \"%.60s\"; quire eval --help lists them\n",
                argv[1]);
    return EXIT_USAGE;
}
