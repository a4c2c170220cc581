#include "tiles.h"

#if defined(__x86_64__)
#include <math.h>
#include <signal.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <ucontext.h>

enum { TILES = 8, ROWS = 16, ROW_BYTES = 64 };

struct config {
    uint8_t palette, start_row, reserved[14];
    uint16_t row_bytes[16];
    uint8_t rows[16];
};

/* As the processor has them, for each thread. */
static _Thread_local struct {
    struct config config;
    uint8_t tile[TILES][ROWS][ROW_BYTES];
} state;

static void (*handle_other)(int signal);

/* An instruction with a VEX prefix of three bytes. */
struct instruction {
    unsigned prefix, opcode, mod, reg, rm, vvvv; /* prefix: 0 none, 1 66, 2 F3, 3 F2 */
    char *base;                                  /* of a memory operand, with its displacement */
    int64_t index;                               /* scaled; the stride of tile loads and stores */
    size_t bytes;
};

static int64_t general_register(const ucontext_t *u, unsigned r) {
    static const int at[16] = {REG_RAX, REG_RCX, REG_RDX, REG_RBX, REG_RSP, REG_RBP, REG_RSI, REG_RDI,
                               REG_R8,  REG_R9,  REG_R10, REG_R11, REG_R12, REG_R13, REG_R14, REG_R15};
    return u->uc_mcontext.gregs[at[r]];
}

/* SDM vol. 2, 2.1.5 and 2.3. p: from ModRM on. */
static void memory_operand(struct instruction *i, const ucontext_t *u, const uint8_t *p, unsigned x,
                           unsigned b) {
    const uint8_t *start = p++;
    unsigned base = i->rm, rip_relative = i->mod == 0 && i->rm == 5;
    int64_t address = 0;
    if (i->rm == 4) {
        unsigned sib = *p++, index = (sib >> 3 & 7) | x;
        base = sib & 7;
        if (index != 4) i->index = general_register(u, index) * (1 << (sib >> 6));
    }
    bool no_base = i->mod == 0 && base == 5;
    if (!no_base) address = general_register(u, base | b);
    int32_t far;
    if (i->mod == 1) {
        address += (int8_t)*p++;
    } else if (i->mod == 2 || no_base) {
        memcpy(&far, p, 4);
        address += far;
        p += 4;
    }
    i->bytes += (size_t)(p - start);
    if (rip_relative) address += u->uc_mcontext.gregs[REG_RIP] + (int64_t)i->bytes;
    i->base = (char *)address; /* NOLINT(performance-no-int-to-ptr) */
}

static bool decode(struct instruction *i, const ucontext_t *u, const uint8_t *p) {
    if (p[0] != 0xc4 || (p[1] & 0x9f) != 0x82 || p[2] & 0x84) return false; /* map 0F 38, W 0, L 0 */
    *i = (struct instruction){.prefix = p[2] & 3u,
                              .opcode = p[3],
                              .mod = p[4] >> 6,
                              .reg = p[4] >> 3 & 7u,
                              .rm = p[4] & 7u,
                              .vvvv = ~(unsigned)p[2] >> 3 & 15u,
                              .bytes = 4};
    if (i->mod == 3)
        i->bytes++;
    else
        memory_operand(i, u, p + 4, p[1] & 0x40 ? 0 : 8, p[1] & 0x20 ? 0 : 8);
    return true;
}

static unsigned rows_of(unsigned t) {
    return state.config.rows[t];
}
static unsigned bytes_of(unsigned t) {
    return state.config.row_bytes[t];
}
static uint32_t *words(unsigned t, unsigned row) {
    return (uint32_t *)(void *)state.tile[t][row];
}

static bool valid(unsigned t) {
    return t < TILES && state.config.palette == 1 && rows_of(t) && bytes_of(t) % 4 == 0;
}

static bool configure(const struct instruction *i) {
    struct config c;
    memcpy(&c, i->base, sizeof c);
    if (c.palette != 1 || c.start_row) return false;
    for (int t = 0; t < TILES; t++)
        if (c.rows[t] > ROWS || c.row_bytes[t] > ROW_BYTES || !c.rows[t] != !c.row_bytes[t]) return false;
    state.config = c;
    memset(state.tile, 0, sizeof state.tile);
    return true;
}

static bool zero_or_configure(const struct instruction *i) {
    if (i->mod != 3 && i->prefix == 0) return configure(i);
    if (i->mod != 3 || i->prefix != 3 || !valid(i->reg)) return false;
    memset(state.tile[i->reg], 0, sizeof state.tile[0]);
    return true;
}

static bool load_or_store(const struct instruction *i) {
    if (i->mod == 3 || i->rm != 4 || !valid(i->reg)) return false;
    if (i->prefix != 2) memset(state.tile[i->reg], 0, sizeof state.tile[0]);
    for (unsigned r = 0; r < rows_of(i->reg); r++) {
        char *p = i->base + (int64_t)r * i->index;
        if (i->prefix == 2)
            memcpy(p, state.tile[i->reg][r], bytes_of(i->reg));
        else
            memcpy(state.tile[i->reg][r], p, bytes_of(i->reg));
    }
    return true;
}

static int32_t dot_4(uint32_t a, uint32_t b, bool a_signed, bool b_signed) {
    int32_t sum = 0;
    for (int n = 0; n < 32; n += 8) {
        int32_t x = a >> n & 255, y = b >> n & 255;
        sum += (a_signed ? (int8_t)x : x) * (b_signed ? (int8_t)y : y);
    }
    return sum;
}

static float flush(float x) {
    return fabsf(x) < 0x1p-126f ? copysignf(0.0f, x) : x;
}
static float bf16(uint32_t low_half) {
    uint32_t u = low_half << 16;
    float x;
    memcpy(&x, &u, 4);
    return flush(x);
}
static float flushed_fma(float a, float b, float c) {
    return flush(fmaf(a, b, c));
}

/* Sums of even and odd products are added to each other, then to the tile. */
static void multiply_bf16(unsigned sum, unsigned a, unsigned b, unsigned row, unsigned column) {
    float even = 0.0f, odd = 0.0f, old;
    for (unsigned k = 0; k < rows_of(b); k++) {
        uint32_t x = words(a, row)[k], y = words(b, k)[column];
        even = flushed_fma(bf16(x), bf16(y), even);
        odd = flushed_fma(bf16(x >> 16), bf16(y >> 16), odd);
    }
    memcpy(&old, &words(sum, row)[column], 4);
    old = flush(flush(old) + flush(even + odd));
    memcpy(&words(sum, row)[column], &old, 4);
}

static bool multiply(const struct instruction *i) {
    unsigned sum = i->reg, a = i->rm, b = i->vvvv;
    if (i->mod != 3 || !valid(sum) || !valid(a) || !valid(b) || sum == a || sum == b || a == b) return false;
    if (rows_of(sum) != rows_of(a) || bytes_of(sum) != bytes_of(b) || bytes_of(a) != 4 * rows_of(b))
        return false;
    for (unsigned r = 0; r < rows_of(sum); r++) {
        for (unsigned c = 0; c < bytes_of(sum) / 4; c++) {
            if (i->opcode == 0x5c)
                multiply_bf16(sum, a, b, r, c);
            else
                for (unsigned k = 0; k < rows_of(b); k++)
                    words(sum, r)[c] +=
                        (uint32_t)dot_4(words(a, r)[k], words(b, k)[c], i->prefix >= 2, i->prefix & 1);
        }
    }
    return true;
}

static bool execute(const struct instruction *i) {
    switch (i->opcode) {
    case 0x49: return zero_or_configure(i);
    case 0x4b: return i->prefix && load_or_store(i);
    case 0x5c: return i->prefix == 2 && multiply(i);
    case 0x5e: return multiply(i); /* signed inputs with F3 and F2, signed weights with 66 and F2 */
    default: return false;
    }
}

/* Tile instructions often follow each other; one trap then does for all of them. */
static void on_illegal(int signal, siginfo_t *info, void *context) {
    ucontext_t *u = context;
    struct instruction i;
    greg_t *at = &u->uc_mcontext.gregs[REG_RIP];
    size_t done = 0;
    while (decode(&i, u, (const uint8_t *)*at)) { /* NOLINT(performance-no-int-to-ptr) */
        if (!execute(&i)) break;
        *at += (int64_t)i.bytes;
        done++;
    }
    if (done) return; /* if the next one is not right, it traps itself */
    if (handle_other) handle_other(signal);
    abort();
}

bool tiles_emulate(void (*other)(int signal)) {
    struct sigaction action = {.sa_sigaction = on_illegal, .sa_flags = SA_SIGINFO | SA_NODEFER};
    if (other) handle_other = other;
    return sigaction(SIGILL, &action, NULL) == 0;
}

#else
bool tiles_emulate(void (*other)(int signal)) {
    return false;
}
#endif
