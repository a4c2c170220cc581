/* The benchmarks of `quire bench`, each as a command of its own. */
#ifndef CLI_BENCH_H
#define CLI_BENCH_H

#include "cli/cli.h"

int bench_serve_command(int argc, char **argv);
int bench_compare_command(int argc, char **argv);

#endif
