/* Opening what is evaluated, and ending early. */
#ifndef CLI_EVAL_RUN_H
#define CLI_EVAL_RUN_H

#include "cli/eval_options.h"

struct eval_run {
    struct loaded_model model;
    struct eval_local local;
    struct eval_remote remote;
    struct eval_context context;
    struct buf text;
};

/* Rows that every measurement has; returns how many. */
size_t eval_common_rows(struct option *table);
#define EVAL_COMMON_ROWS 2

/* From here on SIGINT and SIGTERM end a measurement early, and it keeps what it has. */
void eval_hold_signals(void);

/* Opens the model in this process; max_model_len, which comes from `flag`, and max_num_seqs are for where the
 * user has given none (0: the engine's defaults). */
int eval_run_open(struct eval_run *r, const char *argument, struct eval_options *o,
                  const struct options_state *given, size_t max_model_len, const char *flag,
                  size_t max_num_seqs, struct error *err);
/* A server instead: nothing is opened yet. Refuses flags that only a model in this process has. */
int eval_run_remote(struct eval_run *r, const char *url, const struct eval_options *o,
                    const struct options_state *given, struct error *err);
void eval_run_close(struct eval_run *r);

/* Reads --text, or takes the default text. */
int eval_run_text(struct eval_run *r, const char *path, struct eval_text *out, struct error *err);

/* The exit code for what an evaluation returned. */
int eval_exit(const char *command, int rc, const struct error *err);

#endif
