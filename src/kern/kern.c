/* The choice of a table. Compiled without any instruction set flags. */
#include "kern/cpu.h"
#include "kern/kern_ref.h"

#include <string.h>

const struct kern *kern_table(enum kern_isa isa) {
    static const struct kern *const tables[KERN_ISAS] = {
        [KERN_ISA_REF] = &kern_table_ref,
        [KERN_ISA_AVX2] = &kern_table_avx2,
        [KERN_ISA_AVX512] = &kern_table_avx512,
        [KERN_ISA_AMX] = &kern_table_amx,
    };
    if ((unsigned)isa >= KERN_ISAS || !kern_cpu_has(isa)) return NULL;
    if (isa == KERN_ISA_AVX512 && cpu_has_fast_bf16_dot()) return &kern_table_avx512_bf16;
    return tables[isa];
}

const struct kern *kern_select(const char *limit) {
    static const char *const names[KERN_ISAS] = {"ref", "avx2", "avx512", "amx"};
    int isa = KERN_ISAS - 1;
    if (limit && *limit)
        while (isa >= 0 && strcmp(limit, names[isa]) != 0) isa--;
    for (; isa >= 0; isa--) {
        const struct kern *k = kern_table((enum kern_isa)isa);
        if (k) return k;
    }
    return NULL;
}

size_t kern_mm_scratch(size_t max_k) {
    return max_k + max_k / 8 + 4; /* a row as the reference reads it, and d and m of its half blocks */
}
