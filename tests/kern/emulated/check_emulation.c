/* The emulated instructions beside their definitions (Intel SDM, vol. 2) in C, lane by lane, on random and
 * special numbers: what SIMDe computes depends on its version. */
#include "kern/bf16_avx512.h"
#include "kern/kern_half.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

enum { N = 16, ROUNDS = 100000 };

static struct {
    float a[N], b[N], c[N], r[N];
    uint32_t i[N], j[N], k[N], s[N];
} t;

static uint64_t random_state = 1;
static uint32_t any(void) {
    random_state = random_state * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(random_state >> 32);
}

static uint32_t bits(float x) {
    uint32_t u;
    memcpy(&u, &x, 4);
    return u;
}
static float from_bits(uint32_t u) {
    float x;
    memcpy(&x, &u, 4);
    return x;
}

static float any_float(void) {
    static const uint32_t special[] = {
        0,          0x80000000, 1,          0x80000001, 0x7fffff,   0x800000,   0x7f800000, 0xff800000,
        0x7fc00001, 0xffc00002, 0x7f800001, 0xff812345, 0x7f7fffff, 0x3f800000, 0xbf800000, 0x43000000,
        0xc3150000, 0x33000000, 0xb3000000, 0x7f7fff80, 0x3f808000, 0x3f818000, 0x007fff80, 0x80ffffff};
    switch (any() % 3) {
    case 0: return from_bits(any());
    case 1: return from_bits(special[any() % (sizeof special / sizeof *special)]);
    default: return (float)(int32_t)any() / (float)(1u << any() % 31);
    }
}

static void expect(const char *what, int lane, bool right) {
    if (right) return;
    printf("FAIL %s, lane %d: a %a b %a c %a r %a, i %08x j %08x k %08x s %08x\n", what, lane, t.a[lane],
           t.b[lane], t.c[lane], t.r[lane], t.i[lane], t.j[lane], t.k[lane], t.s[lane]);
    exit(1);
}

static bool same(float a, float b) {
    return bits(a) == bits(b) || (isnan(a) && isnan(b));
}
static float flush(float x) {
    return fabsf(x) < 0x1p-126f ? copysignf(0.0f, x) : x;
}

/* The result of x, lane n of which is to be y, to the bit but for which NaN it is; or to the bit. */
#define FLOATS(x, y)                                                                                         \
    do {                                                                                                     \
        vf_store(t.r, x);                                                                                    \
        for (int n = 0; n < N; n++) expect(#x, n, same(t.r[n], y));                                          \
    } while (0)
#define WORDS(x, y)                                                                                          \
    do {                                                                                                     \
        _mm512_storeu_si512(t.s, x);                                                                         \
        for (int n = 0; n < N; n++) expect(#x, n, t.s[n] == (uint32_t)(y));                                  \
    } while (0)
#define EXACT(x, y) WORDS(_mm512_castps_si512(x), bits(y))
#define MASK(x, y)                                                                                           \
    do {                                                                                                     \
        uint32_t m = x;                                                                                      \
        for (int n = 0; n < N; n++) expect(#x, n, (m >> n & 1) == (y));                                      \
    } while (0)

/* ---- definitions ---- */

static float scaled(float a, float b) {
    if (isnan(b)) return b;
    if (!isinf(b)) return ldexpf(a, (int)floorf(fmaxf(-1000.0f, fminf(1000.0f, b))));
    if (isnan(a)) return b > 0.0f ? b : 0.0f;
    if (b > 0.0f) return a == 0.0f ? NAN : copysignf(b, a);
    return isinf(a) ? NAN : copysignf(0.0f, a);
}

/* a - floor(a), rounded down, so less than 1; the sign of a zero may be either. */
static float reduced(float a) {
    double exact = isinf(a) ? 0.0 : (double)a - floorf(a); /* or 1 where it is nearly that */
    float r = (float)exact;
    return r > exact || r == 1.0f ? nextafterf(r, 0.0f) : r;
}

static float dot_bf16(float sum, uint32_t x, uint32_t y) {
    for (int shift = 16; shift >= 0; shift -= 16)
        sum = flush(fmaf(flush(from_bits(x >> shift << 16)), flush(from_bits(y >> shift << 16)), flush(sum)));
    return sum;
}

static uint32_t dot_4(uint32_t sum, uint32_t x, uint32_t y) {
    for (int shift = 0; shift < 32; shift += 8)
        sum += (uint32_t)((int)(x >> shift & 255) * (int8_t)(y >> shift));
    return sum;
}

static uint16_t to_bf16(float x) {
    return isnan(x) ? (uint16_t)(bits(x) >> 16 | 0x40) : kern_to_bf16(flush(x));
}

static uint8_t byte_of(const uint32_t *words, int n) {
    return (uint8_t)(words[n / 4] >> n % 4 * 8);
}
static uint32_t shuffled(int n) { /* 4 bytes */
    uint32_t word = 0;
    for (int m = 4 * n; m < 4 * n + 4; m++) {
        uint8_t index = byte_of(t.j, m);
        if (index < 128) word |= (uint32_t)byte_of(t.i, m / 16 * 16 + index % 16) << m % 4 * 8;
    }
    return word;
}

/* ---- the instructions ---- */

static void check_arithmetic(vf a, vf b, vf c) {
    EXACT(vf_max(a, b), t.a[n] > t.b[n] ? t.a[n] : t.b[n]);
    EXACT(vf_min(a, b), t.a[n] < t.b[n] ? t.a[n] : t.b[n]);
    EXACT(vf_abs(a), from_bits(bits(t.a[n]) & 0x7fffffff));
    FLOATS(vf_add(a, b), t.a[n] + t.b[n]);
    FLOATS(vf_sub(a, b), t.a[n] - t.b[n]);
    FLOATS(vf_mul(a, b), t.a[n] * t.b[n]);
    FLOATS(vf_div(a, b), t.a[n] / t.b[n]);
    FLOATS(vf_fma(a, b, c), fmaf(t.a[n], t.b[n], t.c[n]));
    FLOATS(vf_fnma(a, b, c), fmaf(-t.a[n], t.b[n], t.c[n]));
    FLOATS(vf_round(a), rintf(t.a[n]));
    FLOATS(vf_ldexp(a, b), scaled(t.a[n], t.b[n]));
    vf_store(t.r, _mm512_reduce_ps(a, _MM_FROUND_TO_NEG_INF | _MM_FROUND_NO_EXC));
    for (int n = 0; n < N; n++)
        expect("reduce", n, t.r[n] == reduced(t.a[n]) || (isnan(t.r[n]) && isnan(t.a[n])));
}

static void check_masks(vf a, vf b, vf c) {
    const int low = (int)(any() % 17), high = (int)(any() % 17);
    MASK(vf_less(a, b), t.a[n] < t.b[n]);
    MASK(vf_equal(a, b), t.a[n] == t.b[n]);
    MASK(_mm512_cmp_ps_mask(a, b, _CMP_UNORD_Q), isnan(t.a[n]) || isnan(t.b[n]));
    const uint16_t *h = (const uint16_t *)t.i, *g = (const uint16_t *)t.j;
    uint32_t equal = _mm512_cmpeq_epi16_mask(_mm512_loadu_si512(t.i), _mm512_loadu_si512(t.j));
    for (int n = 0; n < 2 * N; n++) expect("cmpeq_epi16", n / 2, (equal >> n & 1) == (h[n] == g[n]));
    EXACT(vf_keep(a, (size_t)low, (size_t)high, b), n >= low && n < high ? t.a[n] : t.b[n]);
    EXACT(vf_select_less(a, b, c, a), t.a[n] < t.b[n] ? t.c[n] : t.a[n]);
}

static void check_lanes(vf a, __m512i i, __m512i j, __m512i k) {
    const int in_use = (int)(any() % 9);
    EXACT(vf_swap_pairs(a), t.a[n ^ 1]);
    EXACT(vf_load_pairs(t.a, (size_t)in_use), n / 2 < in_use ? t.a[n / 2] : 0.0f);
    EXACT(vf_even_signs(), n % 2 ? 0.0f : -0.0f);
    WORDS(_mm512_shuffle_epi8(i, j), shuffled(n));
    WORDS(_mm512_unpacklo_epi32(i, j), (n % 2 ? t.j : t.i)[n / 4 * 4 + n % 4 / 2]);
    WORDS(_mm512_unpackhi_epi32(i, j), (n % 2 ? t.j : t.i)[n / 4 * 4 + n % 4 / 2 + 2]);
    WORDS(_mm512_unpacklo_epi64(i, j), (n % 4 / 2 ? t.j : t.i)[n / 4 * 4 + n % 2]);
    WORDS(_mm512_unpackhi_epi64(i, j), (n % 4 / 2 ? t.j : t.i)[n / 4 * 4 + n % 2 + 2]);
    WORDS(_mm512_ternarylogic_epi32(i, j, k, 0xca), (t.i[n] & t.j[n]) | (~t.i[n] & t.k[n]));
    WORDS(_mm512_inserti32x4(i, _mm_loadu_si128((const void *)t.k), 2), n / 4 == 2 ? t.k[n % 4] : t.i[n]);
    WORDS(_mm512_slli_epi32(i, 5), t.i[n] << 5);
    WORDS(_mm512_srli_epi32(i, 5), t.i[n] >> 5);
    WORDS(_mm512_dpbusd_epi32(i, j, k), dot_4(t.i[n], t.j[n], t.k[n]));
}

static void check_conversions(vf a, vf b, vf c, __m512i i, __m512i j) {
    FLOATS(vf_round_f16(a), kern_from_f16(kern_to_f16(t.a[n])));
    EXACT(vf_round_bf16(a), kern_from_bf16(kern_to_bf16(t.a[n])));
    WORDS(_mm512_cvtepu16_epi32(round_bf16_16(a)), to_bf16(t.a[n]));
    WORDS(round_bf16_32(a, b), (uint32_t)to_bf16((n < 8 ? t.a : t.b)[n % 8 * 2 + 1]) << 16 |
                                   to_bf16((n < 8 ? t.a : t.b)[n % 8 * 2]));
    FLOATS(vf_dot_bf16((vf)i, (vf)j, c), dot_bf16(t.c[n], t.i[n], t.j[n]));
    WORDS(_mm512_cvtepu16_epi32(_mm512_cvtepi32_epi16(i)), t.i[n] & 0xffff);
    WORDS(_mm512_cvtepu8_epi32(_mm512_cvtepi32_epi8(i)), t.i[n] & 0xff);
    WORDS(_mm512_cvtps_epi32(a), fabsf(t.a[n]) < 0x1p31f ? (int32_t)rintf(t.a[n]) : INT32_MIN);
    FLOATS(_mm512_cvtepi32_ps(i), (float)(int32_t)t.i[n]);
}

int main(void) {
    if (!__builtin_cpu_supports("avx2") || !__builtin_cpu_supports("fma")) {
        puts("skipped: this machine lacks AVX2");
        return 0;
    }
    for (int round = 0; round < ROUNDS; round++) {
        for (int n = 0; n < N; n++) {
            t.a[n] = any_float(), t.b[n] = any_float(), t.c[n] = any_float();
            t.i[n] = any(), t.j[n] = any(), t.k[n] = any();
            if (any() % 4 == 0)
                t.j[n] ^= (t.j[n] ^ t.i[n]) & (any() % 2 ? 0xffff0000 : 0xffff); /* halves alike */
        }
        vf a = vf_load(t.a), b = vf_load(t.b), c = vf_load(t.c);
        __m512i i = _mm512_loadu_si512(t.i), j = _mm512_loadu_si512(t.j), k = _mm512_loadu_si512(t.k);
        check_arithmetic(a, b, c);
        check_masks(a, b, c);
        check_lanes(a, i, j, k);
        check_conversions(a, b, c, i, j);
    }
    puts("emulated AVX-512 instructions are as defined");
    return 0;
}
