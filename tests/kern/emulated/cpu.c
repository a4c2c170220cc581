/* A processor that has everything, on one that has AVX2; QUIRE_EMULATED=avx512|avx512_bf16|amx in the
 * environment names the best table that it is for. */
#include "kern/cpu.h"
#include "../tiles.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { AVX512, AVX512_BF16, AMX, LEVELS };

static int level(void) {
    static const char *const names[LEVELS] = {"avx512", "avx512_bf16", "amx"};
    const char *name = getenv("QUIRE_EMULATED");
    if (!name) return AMX;
    for (int i = 0; i < LEVELS; i++)
        if (!strcmp(name, names[i])) return i;
    fprintf(stderr, "QUIRE_EMULATED=%s: unknown; allowed: avx512, avx512_bf16, amx\n", name);
    exit(2);
}

static bool has_avx2(void) {
    return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
}

/* Tile instructions trap from here on. */
static bool has_amx(void) {
    return has_avx2() && level() == AMX && tiles_emulate(NULL);
}

bool kern_cpu_has(enum kern_isa isa) {
    switch (isa) {
    case KERN_ISA_REF: return true;
    case KERN_ISA_AVX2:
    case KERN_ISA_AVX512: return has_avx2();
    case KERN_ISA_AMX: return has_amx();
    default: return false;
    }
}

bool cpu_has_bf16_dot(void) {
    return has_avx2() && level() >= AVX512_BF16;
}

bool cpu_has_fast_bf16_dot(void) {
    return cpu_has_bf16_dot();
}
