/* quire eval: perplexity, distance from a reference, tasks, needles, and whether one result is as good as
 * another. */
#include "cli/commands.h"
#include "cli/eval_options.h"

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

static const struct command evaluations[] = {
    {"perplexity", perplexity, "how well a model predicts a text", NULL},
    {"kl", kl, "how far a model's distributions are from those of another one", NULL},
    {"tasks", tasks, "multiple choice and exact match, from a file of tasks", NULL},
    {"needle", needle, "a sentence to be found in a long text", NULL},
    {"compare", cmd_eval_compare, "two results: is the second as good as the first?", NULL},
    {0},
};

int cmd_eval(int argc, char **argv) {
    static const struct command_table table = {
        "quire eval", "evaluation", "", "EVALUATION ...", "quire eval EVALUATION --help shows the options.\n",
        evaluations};
    return commands_run(&table, argc, argv);
}
