/* What the commands of quire eval share. */
#ifndef CLI_EVAL_OPTIONS_H
#define CLI_EVAL_OPTIONS_H

#include "cli/cli.h"
#include "eval/eval.h"

/* The exit codes of `compare`, besides those of every command; an interrupted run has 128 + the signal. */
enum { EXIT_WORSE = 3, EXIT_UNCLEAR = 4, EXIT_INTERRUPTED = 128 + 2 };

struct eval_options {
    struct engine_options engine;
    /* every measurement */
    const char *json;
    bool resume;
    /* texts */
    const char *text;
    int64_t context, stride, max_windows;
    const char *save, *reference;
    /* questions */
    const char *file, *normalize, *extract, *lengths, *depths;
    int64_t limit, max_tokens, task_seed, repeats;
    double temperature;
    bool chat;
    /* servers */
    const char *api_key, *served_name, *ca_cert;
    int64_t concurrency;
    bool insecure;
    double timeout_s;
    /* compare */
    const char *max_ppl_increase, *max_accuracy_drop, *max_top1_drop;
    double max_kl_increase;
    int64_t resamples;
};

int cmd_eval_windows(bool kl, int argc, char **argv);
int cmd_eval_questions(bool needle, int argc, char **argv);
int cmd_eval_compare(int argc, char **argv);

#endif
