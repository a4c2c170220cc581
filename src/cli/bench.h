/* The benchmarks of `quire bench`, each as a command of its own. */
#ifndef CLI_BENCH_H
#define CLI_BENCH_H

#include "cli/cli.h"

int bench_serve_command(int argc, char **argv);
int bench_compare_command(int argc, char **argv);
int bench_ablation_command(int argc, char **argv);

/* From here on SIGINT, SIGTERM and SIGHUP raise the flag that is returned; a second one ends the process. */
const volatile int *bench_catch_interrupts(void);

#endif
