/* AMX tiles (Intel SDM vol. 1, chapter 18), by inline assembly: compilers' intrinsics do not all say which
 * memory they read. A 2 x 2 block of products with its four operand tiles read from the first cache in each
 * round: what a kernel needs at least. */
#include "bench/limits.h"

#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#if defined(__x86_64__)

enum { TILE_ROWS = 16, TILE_ROW_BYTES = 64, TILE_BYTES = TILE_ROWS * TILE_ROW_BYTES };
#define ARCH_REQ_XCOMP_PERM 0x1023
#define XFEATURE_XTILEDATA  18

struct tile_config {
    uint8_t palette, start_row, reserved[14];
    uint16_t row_bytes[16];
    uint8_t rows[16];
};
_Static_assert(sizeof(struct tile_config) == 64, "as LDTILECFG reads it");

bool limit_amx_permitted(void) {
    return kern_cpu_has(KERN_ISA_AMX) && !syscall(SYS_arch_prctl, ARCH_REQ_XCOMP_PERM, XFEATURE_XTILEDATA);
}

static void tiles_begin(void) {
    struct tile_config config = {.palette = 1};
    for (int i = 0; i < 8; i++) {
        config.row_bytes[i] = TILE_ROW_BYTES;
        config.rows[i] = TILE_ROWS;
    }
    __asm__ volatile(
        "ldtilecfg %0\n\ttilezero %%tmm0\n\ttilezero %%tmm1\n\ttilezero %%tmm2\n\ttilezero %%tmm3"
        :
        : "m"(config));
}

static void tiles_end(float *sink) {
    _Alignas(64) float tile[TILE_BYTES / sizeof(float)];
    __asm__ volatile("tilestored %%tmm0, (%0,%1,1)\n\ttilerelease"
                     :
                     : "r"(tile), "r"((size_t)TILE_ROW_BYTES)
                     : "memory");
    memcpy(sink, tile, 16 * sizeof *sink);
}

/* Four operand tiles at `operands`, one behind the other; tmm0 to tmm3 are the sums. */
#define ROUNDS(product, n, operands)                                                                         \
    __asm__ volatile("1:\n\t"                                                                                \
                     "tileloadd (%1,%2,1), %%tmm4\n\t"                                                       \
                     "tileloadd 2048(%1,%2,1), %%tmm6\n\t" product " %%tmm6, %%tmm4, %%tmm0\n\t"             \
                     "tileloadd 1024(%1,%2,1), %%tmm5\n\t" product " %%tmm6, %%tmm5, %%tmm1\n\t"             \
                     "tileloadd 3072(%1,%2,1), %%tmm7\n\t" product " %%tmm7, %%tmm4, %%tmm2\n\t" product     \
                     " %%tmm7, %%tmm5, %%tmm3\n\t"                                                           \
                     "dec %0\n\t"                                                                            \
                     "jnz 1b"                                                                                \
                     : "+r"(n)                                                                               \
                     : "r"(operands), "r"((size_t)TILE_ROW_BYTES)                                            \
                     : "cc", "memory")

uint64_t limit_int8_amx(uint64_t n, float *sink) {
    _Alignas(64) uint8_t operands[4 * TILE_BYTES];
    uint64_t left = n;
    memset(operands, 1, sizeof operands);
    tiles_begin();
    ROUNDS("tdpbusd", left, operands);
    tiles_end(sink);
    return n * 4 * TILE_ROWS * TILE_ROWS * TILE_ROW_BYTES * 2;
}

uint64_t limit_bf16_amx(uint64_t n, float *sink) {
    _Alignas(64) uint16_t operands[4 * TILE_BYTES / 2];
    uint64_t left = n;
    for (size_t i = 0; i < sizeof operands / sizeof *operands; i++) operands[i] = 0x3a83; /* about 0.001 */
    tiles_begin();
    ROUNDS("tdpbf16ps", left, operands);
    tiles_end(sink);
    return n * 4 * TILE_ROWS * TILE_ROWS * (TILE_ROW_BYTES / 2) * 2;
}

#else
bool limit_amx_permitted(void) {
    return false;
}
#endif
