/* What the machine offers: CPUID, XCR0 and the system's permission. */
#include "kern/cpu.h"

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
 * Documentation/arch/x86/xstate.rst. Asking again is harmless. */
static bool tiles_permitted(void) {
    const long arch_prctl = 158, request_permission = 0x1023, tile_data = 18; /* ARCH_REQ_XCOMP_PERM */
    long status;
    __asm__ volatile("syscall"
                     : "=a"(status)
                     : "a"(arch_prctl), "D"(request_permission), "S"(tile_data)
                     : "rcx", "r11", "memory");
    return status == 0;
}

static bool has_bf16_dot(const struct cpu *c) {
    const uint32_t avx512_bf16 = 1u << 5;
    return has_avx512(c) && has_all(c->leaf7_1_eax, avx512_bf16);
}

static bool has_amx(const struct cpu *c) {
    const uint32_t amx_bf16 = 1u << 22, amx_tile = 1u << 24, amx_int8 = 1u << 25;
    return has_bf16_dot(c) && has_all(c->xcr0, XCR0_AMX) &&
           has_all(c->leaf7_edx, amx_bf16 | amx_tile | amx_int8) && tiles_permitted();
}

bool cpu_has_bf16_dot(void) {
    struct cpu c = cpu_read();
    return has_bf16_dot(&c);
}

/* vdpbf16ps does twice the work of a float multiply-add on AMD's processors, and no more than that on others.
 * Measuring it would make bits depend on the measurement. */
bool cpu_has_fast_bf16_dot(void) {
    struct cpu c = cpu_read();
    return c.is_amd && has_bf16_dot(&c);
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
bool cpu_has_bf16_dot(void) {
    return false;
}

bool cpu_has_fast_bf16_dot(void) {
    return false;
}

bool kern_cpu_has(enum kern_isa isa) {
    return isa == KERN_ISA_REF;
}
#endif
