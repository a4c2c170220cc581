/* kern_check [--table ref|avx2|avx512|amx] [--seed N]: runs every kernel of every table that this machine has
 * against expectations in double precision. */
#include "check.h"
#include "tiles.h"

#include "kern/kern_ref.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

static const char *const isa_names[KERN_ISAS] = {"ref", "avx2", "avx512", "amx"};

/* For the signal handler: what is being checked. */
static const struct check *running;

static void say(const char *text) {
    if (write(STDOUT_FILENO, text, strlen(text)) < 0) _exit(3);
}

static void on_fault(int signal) {
    say("FAIL ");
    say(running->kern->name);
    say(" ");
    say(running->what);
    say(signal == SIGSEGV ? ": touched memory outside its buffers\n" : ": illegal instruction\n");
    _exit(1);
}

static double seconds(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

/* The names that kern_select knows, and that it never goes above the limit. */
static void check_select(struct check *c) {
    c->what = "kern_select";
    for (int i = 0; i < KERN_ISAS; i++) {
        const struct kern *k = kern_select(isa_names[i]);
        check_that(c, k && (int)k->isa <= i, "limit %s", isa_names[i]);
        if (k && kern_table((enum kern_isa)i))
            check_that(c, (int)k->isa == i, "limit %s gives %s", isa_names[i], k->name);
    }
    check_that(c, kern_select("sse9") == NULL, "an unknown name is accepted");
    check_that(c, kern_select(NULL) && kern_select(NULL) == kern_select(""), "no limit");
}

static size_t check_table(const struct kern *kern, uint64_t seed, bool emulated) {
    struct check c = {.kern = kern, .what = "", .rng = seed};
    double start = seconds();
    running = &c;
    signal(SIGSEGV, on_fault);
    if (!emulated) signal(SIGILL, on_fault);
    if (kern->thread_begin) kern->thread_begin();
    check_select(&c);
    check_ops(&c);
    check_attn(&c);
    check_mm(&c);
    printf("%-7s %zu checks, %zu failed, %.1f s%s\n", kern->name, c.n_checks, c.n_failed, seconds() - start,
           emulated ? ", tile instructions emulated" : "");
    return c.n_failed;
}

int main(int argc, char **argv) {
    const char *table = NULL;
    uint64_t seed = 1;
    for (int i = 1; i < argc; i++) {
        if (!strcmp(argv[i], "--table") && i + 1 < argc)
            table = argv[++i];
        else if (!strcmp(argv[i], "--seed") && i + 1 < argc)
            seed = strtoull(argv[++i], NULL, 10);
        else {
            fprintf(stderr, "usage: kern_check [--table NAME] [--seed N]\n");
            return 2;
        }
    }
    size_t failed = 0;
    for (int i = 0; i < KERN_ISAS; i++) {
        if (table && strcmp(table, isa_names[i]) != 0) continue;
        const struct kern *k = kern_table((enum kern_isa)i);
        if (k)
            failed += check_table(k, seed, false);
        else if (i == KERN_ISA_AMX && kern_table(KERN_ISA_AVX512) && tiles_emulate(on_fault))
            failed += check_table(&kern_table_amx, seed, true);
        else
            printf("%-7s skipped: %s\n", isa_names[i],
                   kern_cpu_has((enum kern_isa)i) ? "no such table in this build" : "this machine lacks it");
    }
    return failed ? 1 : 0;
}
