/* kern_check [--table ref|avx2|avx512|avx512_bf16|amx] [--seed N]: runs every kernel of every table that this
 * machine has against expectations in double precision.
 *
 * kern_check_emulated is the same with AVX-512 computed by AVX2 (emulated/). */
#include "check.h"
#include "tiles.h"

#include "kern/cpu.h"
#include "kern/kern_ref.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#ifndef KERN_CHECK_EMULATED
#define KERN_CHECK_EMULATED 0
#endif

static const char *const isa_names[KERN_ISAS] = {"ref", "avx2", "avx512", "amx"};

/* kern_table has one of the two for avx512, according to what is faster. */
static const struct kern *const tables[] = {&kern_table_ref, &kern_table_avx2, &kern_table_avx512,
                                            &kern_table_avx512_bf16, &kern_table_amx};
static const char *const table_names[] = {"ref", "avx2", "avx512", "avx512_bf16", "amx"};
enum { TABLES = sizeof tables / sizeof *tables };

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

/* Which instructions of a table are not the processor's. */
enum emulated { NONE, TILES, AVX512, AVX512_AND_TILES };
static const char *const emulated_names[] = {"", ", tile instructions emulated", ", AVX-512 emulated",
                                             ", AVX-512 and tile instructions emulated"};

static size_t check_table(const struct kern *kern, const char *name, uint64_t seed, enum emulated emulated) {
    struct check c = {.kern = kern, .what = "", .rng = seed};
    double start = seconds();
    running = &c;
    signal(SIGSEGV, on_fault);
    if (emulated == NONE || !tiles_emulate(on_fault)) signal(SIGILL, on_fault);
    if (kern->thread_begin) kern->thread_begin();
    check_select(&c);
    check_ops(&c);
    check_attn(&c);
    check_mm(&c);
    printf("%-11s %zu checks, %zu failed, %.1f s%s\n", name, c.n_checks, c.n_failed, seconds() - start,
           emulated_names[emulated]);
    return c.n_failed;
}

/* Whether a table can be checked here, and by what means. */
static bool can_check(const struct kern *k, enum emulated *emulated) {
    *emulated = NONE;
    if (k == &kern_table_avx512_bf16 && !cpu_has_bf16_dot()) return false;
    if (KERN_CHECK_EMULATED && k->isa >= KERN_ISA_AVX512) *emulated = AVX512;
    if (k->isa != KERN_ISA_AMX) return kern_cpu_has(k->isa);
    if (!KERN_CHECK_EMULATED && kern_cpu_has(KERN_ISA_AMX)) return true;
    *emulated = KERN_CHECK_EMULATED ? AVX512_AND_TILES : TILES;
    return kern_cpu_has(KERN_ISA_AVX512) && tiles_emulate(on_fault);
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
    bool known = !table;
    for (int i = 0; i < TABLES; i++) {
        enum emulated emulated;
        known |= table && !strcmp(table, table_names[i]);
        if (table ? strcmp(table, table_names[i]) != 0
                  : KERN_CHECK_EMULATED && tables[i]->isa < KERN_ISA_AVX512)
            continue;
        if (can_check(tables[i], &emulated))
            failed += check_table(tables[i], table_names[i], seed, emulated);
        else
            printf("%-11s skipped: this machine lacks it\n", table_names[i]);
    }
    if (!known) fprintf(stderr, "no table has the name %s\n", table);
    return failed ? 1 : known ? 0 : 2;
}
