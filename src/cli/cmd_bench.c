/* quire bench: the table of benchmarks, and `kernels`: the machine's limits and each kernel's share of them.
 */
#include "cli/bench.h"
#include "cli/commands.h"

#include "backend/cpu/cores.h"
#include "base/buf.h"
#include "base/error.h"
#include "base/files.h"
#include "bench/kernels.h"
#include "engine/meminfo.h"

#include <stdio.h>
#include <string.h>

struct bench_options {
    const char *cpu, *only, *json;
    int64_t threads;
    bool cores, limits;
};

#define AT(member) offsetof(struct bench_options, member)

static const struct option table[] = {
    {"limits", OPTION_BOOL, AT(limits), "What", NULL, "false", 0, 0, NULL, NULL,
     "Only the limits of the machine: reading from memory (2 GB too), multiplying."},
    {"cores", OPTION_BOOL, AT(cores), "What", NULL, "false", 0, 0, NULL, NULL,
     "Only how much of its cores this process has: what others on the same hardware leave."},
    {"only", OPTION_STRING, AT(only), "What", "TEXT", NULL, 0, 0, NULL, NULL,
     "Only kernels with this text in their name, in more shapes."},
    {"json", OPTION_STRING, AT(json), "What", "FILE", NULL, 0, 0, NULL, NULL,
     "The figures as JSON, too; docs/benchmarks.md says what the fields are."},
    {"threads", OPTION_INT, AT(threads), "Machine", "N", "0", 0, BENCH_MAX_THREADS, NULL, NULL,
     "Threads to measure with; 0 is the cores that the process may use."},
    {"cpu", OPTION_CHOICE, AT(cpu), "Machine", "ISA", NULL, 0, 0, "ref|avx2|avx512|amx", "QUIRE_CPU",
     "Highest instruction set to use; the best that the machine has if unset."},
    {0},
};

static const char ABOUT[] = "Measures what this machine can do at most, and every kernel beside it.";

static int measure(const struct bench_options *o, struct error *err) {
    struct buf json = BUF_INIT;
    FILE *file = NULL;
    struct meminfo memory = {0};
    const char *without_kernels = o->cores ? "--cores" : o->limits ? "--limits" : NULL;
    if (without_kernels && o->only)
        return error_set(err, QUIRE_EINVAL, "%s measures no kernel, so --only has nothing to choose from",
                         without_kernels);
    if (o->cores && o->limits)
        return error_set(err, QUIRE_EINVAL,
                         "--cores measures no limits, so it cannot be given with --limits");
    if (o->only && !*o->only) return error_set(err, QUIRE_EINVAL, "--only may not be empty");
    if (meminfo_read("", &memory)) return error_set(err, QUIRE_EIO, "/proc/meminfo cannot be read");
    int rc = file_open_result("--json", o->json, &file, err);
    if (rc) return rc;
    struct bench_kernels b = {.kern = kern_select(o->cpu),
                              .cpu_limit = o->cpu,
                              .cores_only = o->cores,
                              .limits_only = o->limits,
                              .only = o->only,
                              .n_threads = o->threads ? (size_t)o->threads : cores_available(),
                              .available_bytes = memory.available_bytes,
                              .out = stdout,
                              .json = file ? &json : NULL};
    if (b.n_threads > BENCH_MAX_THREADS) b.n_threads = BENCH_MAX_THREADS;
    rc = bench_kernels(&b, err);
    if (!rc && file) buf_putc(&json, '\n');
    if (!rc) rc = file_write_result(file, "--json", o->json, &json, err);
    if (file) fclose(file);
    buf_free(&json);
    return rc;
}

static int bench_kernels_command(int argc, char **argv) {
    struct bench_options o = {0};
    struct options_state *state = NULL;
    struct error err = {0};
    int n_args = 0,
        rc = cli_options("bench kernels", "[options]", ABOUT, table, argc, argv, &n_args, &o, &state);
    if (rc >= 0) return rc;
    rc = n_args ? error_set(&err, QUIRE_EINVAL, "\"%.60s\" is not an option (--only TEXT chooses kernels)",
                            argv[1])
                : measure(&o, &err);
    options_free(state);
    return rc ? cli_fail("bench kernels", &err) : EXIT_OK;
}

static const struct command benchmarks[] = {
    {"kernels", bench_kernels_command, "what this machine can do at most, and every kernel beside it",
     "[options]"},
    {"engine", bench_engine_command,
     "prefill and decode of a model in this process, beside the machine's limits", "MODEL [options]"},
    {"serve", bench_serve_command, "load on a server of OpenAI's API: latency, throughput, cost",
     "URL [options]"},
    {"ablation", bench_ablation_command, "what each step of serving gives: a server for each row",
     "MODEL [options]"},
    {"compare", bench_compare_command, "measurements beside each other", "A.json B.json ..."},
    {0},
};

int cmd_bench(int argc, char **argv) {
    static const struct command_table benchmark_table = {
        "quire bench", "benchmark", "", NULL, "quire bench NAME --help shows the options.\n", benchmarks};
    return commands_run(&benchmark_table, argc, argv);
}
