/* What the machine offers, and the choice of a table. Compiled without any instruction set flags. */
#include "kern/kern.h"
#include "kern/kern_ref.h"

#include <string.h>

#if defined(__x86_64__)
#include <cpuid.h>

/* Intel SDM vol. 1, 13.3: the state components that the operating system saves. */
#define XCR0_AVX    0x06u /* SSE, AVX */
#define XCR0_AVX512 0xe6u /* and opmask, ZMM_Hi256, Hi16_ZMM */
#define XCR0_AMX    0x60000u

static uint32_t read_xcr0(void) {
    uint32_t low, high;
    __asm__ volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
    return low;
}

struct cpu {
    bool is_amd;
    uint32_t leaf1_ecx, leaf7_ebx, leaf7_ecx, leaf7_edx, leaf7_1_eax, xcr0;
};

static struct cpu cpu_read(void) {
    struct cpu c = {0};
    uint32_t eax, ebx, ecx, edx;
    if (__get_cpuid(0, &eax, &ebx, &ecx, &edx))
        c.is_amd = ebx == signature_AMD_ebx && ecx == signature_AMD_ecx && edx == signature_AMD_edx;
    if (__get_cpuid(1, &eax, &ebx, &ecx, &edx)) c.leaf1_ecx = ecx;
    if (__get_cpuid_count(7, 0, &eax, &ebx, &ecx, &edx)) {
        c.leaf7_ebx = ebx;
        c.leaf7_ecx = ecx;
        c.leaf7_edx = edx;
    }
    if (__get_cpuid_count(7, 1, &eax, &ebx, &ecx, &edx)) c.leaf7_1_eax = eax;
    if (c.leaf1_ecx & bit_OSXSAVE) c.xcr0 = read_xcr0();
    return c;
}

static bool has_all(uint32_t word, uint32_t bits) {
    return (word & bits) == bits;
}

static bool has_avx2(const struct cpu *c) {
    return has_all(c->xcr0, XCR0_AVX) && has_all(c->leaf1_ecx, bit_AVX | bit_FMA | bit_F16C) &&
           has_all(c->leaf7_ebx, bit_AVX2);
}

static bool has_avx512(const struct cpu *c) {
    return has_avx2(c) && has_all(c->xcr0, XCR0_AVX512) &&
           has_all(c->leaf7_ebx, bit_AVX512F | bit_AVX512BW | bit_AVX512DQ | bit_AVX512VL) &&
           has_all(c->leaf7_ecx, bit_AVX512VNNI | bit_AVX512VBMI);
}

/* Linux (5.16 and later) keeps the tile registers from a process until it asks, for all of its threads: see
 * Documentation/arch/x86/xstate.rst. Asking again is harmless. By the instruction, since this layer has no
 * business with what else <unistd.h> offers. */
static bool tiles_permitted(void) {
    const long request_permission = 0x1023, tile_data = 18; /* ARCH_REQ_XCOMP_PERM, XFEATURE_XTILEDATA */
    long result = 158;                                      /* arch_prctl */
    __asm__ volatile("syscall"
                     : "+a"(result)
                     : "D"(request_permission), "S"(tile_data)
                     : "rcx", "r11", "memory");
    return result == 0;
}

static bool has_amx(const struct cpu *c) {
    const uint32_t amx_bf16 = 1u << 22, amx_tile = 1u << 24, amx_int8 = 1u << 25;
    return has_avx512(c) && has_all(c->xcr0, XCR0_AMX) &&
           has_all(c->leaf7_edx, amx_bf16 | amx_tile | amx_int8) && tiles_permitted();
}

/* vdpbf16ps does twice the work of a float multiply-add on AMD's processors, and no more than that on others.
 * Measuring it would make bits depend on the measurement. */
static bool has_fast_bf16_dot(void) {
    const uint32_t avx512_bf16 = 1u << 5;
    struct cpu c = cpu_read();
    return has_avx512(&c) && c.is_amd && has_all(c.leaf7_1_eax, avx512_bf16);
}

bool kern_cpu_has(enum kern_isa isa) {
    struct cpu c = cpu_read();
    switch (isa) {
    case KERN_ISA_REF: return true;
    case KERN_ISA_AVX2: return has_avx2(&c);
    case KERN_ISA_AVX512: return has_avx512(&c);
    case KERN_ISA_AMX: return has_amx(&c);
    default: return false;
    }
}
#else
static bool has_fast_bf16_dot(void) {
    return false;
}

bool kern_cpu_has(enum kern_isa isa) {
    return isa == KERN_ISA_REF;
}
#endif

const struct kern *kern_table(enum kern_isa isa) {
    static const struct kern *const tables[KERN_ISAS] = {
        [KERN_ISA_REF] = &kern_table_ref,
        [KERN_ISA_AVX2] = &kern_table_avx2,
        [KERN_ISA_AVX512] = &kern_table_avx512,
        [KERN_ISA_AMX] = &kern_table_amx,
    };
    if ((unsigned)isa >= KERN_ISAS || !kern_cpu_has(isa)) return NULL;
    if (isa == KERN_ISA_AVX512 && has_fast_bf16_dot()) return &kern_table_avx512_bf16;
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
