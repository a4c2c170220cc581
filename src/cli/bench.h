/* The benchmarks of `quire bench`, each as a command of its own. */
#ifndef CLI_BENCH_H
#define CLI_BENCH_H

#include "cli/cli.h"
#include "load/load.h"

/* Options of every command that puts load on something: rows for a struct load_options, ended by one without
 * a name. */
extern const struct option load_option_table[];
#define LOAD_OPTION_ROWS 48 /* at most */
/* Writes the rows but those named in `without` (ended by NULL) into table, for values that begin with a
 * struct load_options; returns how many there are. */
size_t load_option_rows(struct option *table, const char *const *without);
/* What `quire bench serve` has when no option is given, but that progress is not shown. QUIRE_ENOMEM. */
int load_option_defaults(struct load_options *o, struct error *err);

int bench_serve_command(int argc, char **argv);
int bench_compare_command(int argc, char **argv);
int bench_engine_command(int argc, char **argv);
int bench_ablation_command(int argc, char **argv);

/* From here on SIGINT, SIGTERM and SIGHUP raise the flag that is returned; a second one ends the process. */
const volatile int *bench_catch_interrupts(void);

#endif
