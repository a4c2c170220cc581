/* A processor that has everything, on one that has AVX2. */
#include "kern/cpu.h"
#include "../tiles.h"

static bool has_avx2(void) {
    return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
}

/* Tile instructions trap from here on. */
static bool has_amx(void) {
    return has_avx2() && tiles_emulate(NULL);
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
    return has_avx2();
}

bool cpu_has_fast_bf16_dot(void) {
    return has_avx2();
}
