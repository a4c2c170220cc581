/* quire bench kernels: the machine's limits and each kernel's share of them. */
#include "cli/cli.h"

#include "backend/cpu/cores.h"
#include "base/buf.h"
#include "base/error.h"
#include "base/suggest.h"
#include "bench/kernels.h"
#include "engine/meminfo.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

struct bench_options {
    const char *cpu, *only, *json;
    int64_t threads;
    bool limits;
};

#define AT(member) offsetof(struct bench_options, member)

static const struct option table[] = {
    {"limits", OPTION_BOOL, AT(limits), "What", NULL, "false", 0, 0, NULL, NULL,
     "Only the limits of the machine: reading from memory (2 GB too), multiplying."},
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

static int usage(FILE *out) {
    fprintf(out,
            "usage: quire bench kernels [options]\n\n  kernels  %s\n\n"
            "quire bench kernels --help shows the options.\n",
            ABOUT);
    return out == stdout ? EXIT_OK : EXIT_USAGE;
}

/* Opened before anything is measured, and emptied only when there is something to put in. */
static int json_open(const char *path, FILE **out, struct error *err) {
    *out = path ? fopen(path, "ab") : NULL;
    if (!path || *out) return QUIRE_OK;
    return error_set(err, QUIRE_EINVAL, "--json %.200s cannot be written: %s", path, strerror(errno));
}

static int json_write(FILE *f, const char *path, const struct buf *json, struct error *err) {
    if (ftruncate(fileno(f), 0) && errno != EINVAL) goto fail; /* EINVAL: not a regular file */
    if (fwrite(json->data, 1, json->len, f) == json->len && putc('\n', f) != EOF && !fflush(f))
        return QUIRE_OK;
fail:
    return error_set(err, QUIRE_EIO, "--json %.200s cannot be written: %s", path, strerror(errno));
}

static int measure(const struct bench_options *o, struct error *err) {
    struct buf json = BUF_INIT;
    FILE *file = NULL;
    struct meminfo memory = {0};
    if (o->limits && o->only)
        return error_set(err, QUIRE_EINVAL,
                         "--limits measures no kernel, so --only has nothing to choose from");
    if (o->only && !*o->only) return error_set(err, QUIRE_EINVAL, "--only may not be empty");
    if (meminfo_read("", &memory)) return error_set(err, QUIRE_EIO, "/proc/meminfo cannot be read");
    int rc = json_open(o->json, &file, err);
    if (rc) return rc;
    struct bench_kernels b = {.kern = kern_select(o->cpu),
                              .cpu_limit = o->cpu,
                              .limits_only = o->limits,
                              .only = o->only,
                              .n_threads = o->threads ? (size_t)o->threads : cores_available(),
                              .available_bytes = memory.available_bytes,
                              .out = stdout,
                              .json = file ? &json : NULL};
    if (b.n_threads > BENCH_MAX_THREADS) b.n_threads = BENCH_MAX_THREADS;
    rc = bench_kernels(&b, err);
    if (!rc && file) rc = json_write(file, o->json, &json, err);
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

int cmd_bench(int argc, char **argv) {
    if (argc < 2) return usage(stderr);
    if (!strcmp(argv[1], "kernels")) return bench_kernels_command(argc - 1, argv + 1);
    for (int i = 1; i < argc; i++)
        if (!strcmp(argv[i], "--help") || !strcmp(argv[i], "-h")) return usage(stdout);
    struct suggestion s;
    suggest_init(&s, argv[1], strlen(argv[1]));
    suggest_offer(&s, "kernels");
    fprintf(stderr, "quire bench: there is no benchmark \"%.60s\" (%s kernels)\n", argv[1],
            s.nearest ? "did you mean" : "there is");
    return EXIT_USAGE;
}
