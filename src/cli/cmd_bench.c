/* quire bench: the table of benchmarks, and `kernels`: the machine's limits and each kernel's share of them.
 */
#include "cli/bench.h"

#include "backend/cpu/cores.h"
#include "base/buf.h"
#include "base/error.h"
#include "base/files.h"
#include "base/suggest.h"
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

static const struct benchmark {
    const char *name;
    int (*run)(int argc, char **argv);
    const char *about;
} benchmarks[] = {
    {"kernels", bench_kernels_command, "what this machine can do at most, and every kernel beside it"},
    {"serve", bench_serve_command, "load on a server of OpenAI's API: latency, throughput, cost"},
    {"ablation", bench_ablation_command, "what each step of serving gives: a server for each row"},
    {"compare", bench_compare_command, "measurements of `serve` beside each other"},
};
#define N_BENCHMARKS (sizeof benchmarks / sizeof *benchmarks)

static int usage(FILE *out) {
    fprintf(out, "usage: quire bench kernels [options]\n       quire bench serve URL [options]\n"
                 "       quire bench compare A.json B.json ...\n\n");
    for (size_t i = 0; i < N_BENCHMARKS; i++)
        fprintf(out, "  %-8s %s\n", benchmarks[i].name, benchmarks[i].about);
    fprintf(out, "\nquire bench NAME --help shows the options.\n");
    return out == stdout ? EXIT_OK : EXIT_USAGE;
}

int cmd_bench(int argc, char **argv) {
    if (argc < 2) return usage(stderr);
    struct suggestion s;
    suggest_init(&s, argv[1], strlen(argv[1]));
    for (size_t i = 0; i < N_BENCHMARKS; i++) {
        if (!strcmp(argv[1], benchmarks[i].name)) return benchmarks[i].run(argc - 1, argv + 1);
        suggest_offer(&s, benchmarks[i].name);
    }
    for (int i = 1; i < argc; i++)
        if (!strcmp(argv[i], "--help") || !strcmp(argv[i], "-h")) return usage(stdout);
    fprintf(stderr, "quire bench: there is no benchmark \"%.60s\" (%s %s)\n", argv[1],
            s.nearest ? "did you mean" : "there are", s.nearest ? s.nearest : "kernels, serve, compare");
    return EXIT_USAGE;
}
