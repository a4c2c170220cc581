/* The AVX-512 table: F, BW, DQ, VL, VNNI and VBMI. */
#include "kern/bf16_avx512.h"
#include "kern/kern_block.h"
#include "kern/kern_half.h"
#include "kern/kern_ref.h"
#include "kern/vec_avx512.h"

#include <math.h>

#define INLINE static inline __attribute__((always_inline))
#ifdef __clang__
#define UNROLL _Pragma("clang loop unroll(full)")
#else
#define UNROLL _Pragma("GCC unroll 16")
#endif

/* Tile sizes for 32 registers. */
enum {
    DECODE_CHUNK = 256, /* elements: a multiple of every format's block */
    PREFETCH_BYTES = 2048,
    ACT_SPAN_BYTES = 256 * 1024,
    FLOAT_ROWS = 12,
    FLOAT_ROWS_FEW = 4, /* up to so many input rows, more panels at once */
    FLOAT_PANELS = 4,
    FLOAT_PANELS_MANY = 2,
    Q8_ROWS = 16,
    Q8_PANELS = 1,
    Q8_FLIP = 0, /* 8-bit weights are kept unsigned */
    REGISTERS = 32,
    K_AHEAD = 0, /* see kern_avx2.c */
    V_TOKENS = KERN_ATTN_PARTITION,
};

/* BF16 weights in pairs of k, as a type of mm_float.inc. */
#define BF16_PAIRS KERN_FORMAT_END

#include "kern/ops.inc"
#include "kern/attn.inc"

/* ---- words of 4 bytes, one of each row ---- */

enum { VECTOR = LANES * 4 }; /* bytes */

typedef uint32_t vw __attribute__((vector_size(VECTOR)));
typedef int32_t vi __attribute__((vector_size(VECTOR)));

/* 16 bytes of each row, as 4 words. */
INLINE void load_words_16(vw w[4], const uint8_t *const row[LANES], size_t offset) {
    __m512i x[4];
    UNROLL for (int i = 0; i < 4; i++) { /* rows i, i + 4, i + 8, i + 12 */
        x[i] = _mm512_castsi128_si512(_mm_loadu_si128((const void *)(row[i] + offset)));
        x[i] = _mm512_inserti32x4(x[i], _mm_loadu_si128((const void *)(row[i + 4] + offset)), 1);
        x[i] = _mm512_inserti32x4(x[i], _mm_loadu_si128((const void *)(row[i + 8] + offset)), 2);
        x[i] = _mm512_inserti32x4(x[i], _mm_loadu_si128((const void *)(row[i + 12] + offset)), 3);
    }
    __m512i a = _mm512_unpacklo_epi32(x[0], x[1]), b = _mm512_unpackhi_epi32(x[0], x[1]);
    __m512i c = _mm512_unpacklo_epi32(x[2], x[3]), d = _mm512_unpackhi_epi32(x[2], x[3]);
    w[0] = (vw)_mm512_unpacklo_epi64(a, c);
    w[1] = (vw)_mm512_unpackhi_epi64(a, c);
    w[2] = (vw)_mm512_unpacklo_epi64(b, d);
    w[3] = (vw)_mm512_unpackhi_epi64(b, d);
}
INLINE void store_low_bytes(uint8_t *dst, vw w) {
    _mm_storeu_si128((void *)dst, _mm512_cvtepi32_epi8((__m512i)w));
}
INLINE void store_low_halves(uint8_t *dst, vw w) {
    _mm256_storeu_si256((void *)dst, _mm512_cvtepi32_epi16((__m512i)w));
}
INLINE vw load_low_bytes(const uint8_t *src) {
    return (vw)_mm512_cvtepu8_epi32(_mm_loadu_si128((const void *)src));
}
INLINE vf vf_from_int(vw w) {
    return _mm512_cvtepi32_ps((__m512i)w);
}

/* ---- multiplying ---- */

INLINE vf float_multiply_add(enum kern_format type, vf weight, vf x, vf sum) {
    return type == BF16_PAIRS ? vf_dot_bf16(weight, x, sum) : vf_fma(weight, x, sum);
}

/* ---- 8-bit floats: one of each row ---- */

/* The upper byte of a half-precision number. */
INLINE vf vf_load_e5m2(const char *src) {
    __m256i x = _mm256_cvtepu8_epi16(_mm_loadu_si128((const void *)src));
    return _mm512_cvtph_ps(_mm256_slli_epi16(x, 8));
}
/* A half-precision number but for the bias of the exponent, 7 instead of 15: the value / 256. All ones is
 * NaN.
 */
INLINE vf vf_load_e4m3(const char *src) {
    const __m256i sign_and_rest = _mm256_set1_epi16((short)0xbf80), rest = _mm256_set1_epi16(0x3f80);
    __m256i x = _mm256_cvtepi8_epi16(_mm_loadu_si128((const void *)src));
    x = _mm256_and_si256(_mm256_slli_epi16(x, 7), sign_and_rest);
    __mmask16 nan = _mm256_cmpeq_epi16_mask(_mm256_and_si256(x, rest), rest);
    return _mm512_cvtph_ps(_mm256_mask_mov_epi16(x, nan, _mm256_set1_epi16(0x7e00)));
}

#include "kern/mm_float.inc"

#include "kern/mm_pack.inc"
#include "kern/mm_bf16.inc"
#include "kern/attn_bf16.inc"
#include "kern/mm_q8.inc"

/* ---- the tile ---- */

/* What q8_unpack multiplies the quants by; it makes the bias 128 in all formats that have one. */
INLINE float q8_times(enum kern_format f) {
    switch (n_planes(f)) {
    case 3: return 32.0f;
    case 4: return f == KERN_Q4_0 ? 16.0f : 1.0f;
    case 5: return 8.0f;
    case 6: return 4.0f;
    default: return 1.0f;
    }
}

INLINE __m512i bits_of(__m512i x, int mask) {
    return _mm512_and_si512(x, _mm512_set1_epi8((char)mask));
}
/* a where the mask has ones, b elsewhere. Shifts are of words: bits that come from another byte are masked
 * away. */
INLINE __m512i bits_or(int mask, __m512i a, __m512i b) {
    return _mm512_ternarylogic_epi32(_mm512_set1_epi8((char)mask), a, b, 0xca);
}
#define SHL(x, n) _mm512_slli_epi32(x, n)
#define SHR(x, n) _mm512_srli_epi32(x, n)

INLINE void unpack_4(enum kern_format f, __m512i q[8], const __m512i p[8]) {
    const __m512i iq4 =
        _mm512_broadcast_i32x4(_mm_xor_si128(_mm_setr_epi8(KERN_IQ4_VALUES), _mm_set1_epi8((char)0x80)));
    const __m512i mxfp4 =
        _mm512_broadcast_i32x4(_mm_xor_si128(_mm_setr_epi8(KERN_MXFP4_VALUES), _mm_set1_epi8((char)0x80)));
    UNROLL for (int g = 0; g < 4; g++) {
        q[g] = f == KERN_Q4_0 ? bits_of(SHL(p[g], 4), 0xf0) : bits_of(p[g], 0x0f);
        q[g + 4] = f == KERN_Q4_0 ? bits_of(p[g], 0xf0) : bits_of(SHR(p[g], 4), 0x0f);
    }
    if (has_table(f))
        UNROLL for (int g = 0; g < 8; g++) q[g] = _mm512_shuffle_epi8(f == KERN_MXFP4 ? mxfp4 : iq4, q[g]);
}

/* The 8 groups of a block as unsigned bytes, times q8_times; values of a table plus 128. See plane_encode. */
INLINE void q8_unpack(enum kern_format f, __m512i q[8], const uint8_t *src) {
    __m512i p[8];
    UNROLL for (size_t i = 0; i < n_planes(f); i++) p[i] = _mm512_loadu_si512(src + i * VECTOR);
    switch (n_planes(f)) {
    case 2: UNROLL for (int g = 0; g < 8; g++) q[g] = bits_of(SHR(p[g / 4], 2 * (g % 4)), 3); break;
    case 3:
        UNROLL for (int g = 0; g < 6; g += 2) {
            q[g] = bits_of(p[g / 2], 0xe0);
            q[g + 1] = bits_of(SHL(p[g / 2], 3), 0xe0);
        }
        q[6] = bits_of(bits_or(0xc0, SHL(p[0], 6), SHL(p[1], 4)), 0xe0);
        q[7] = bits_of(bits_or(0x80, SHL(p[1], 7), SHL(p[2], 5)), 0xe0);
        break;
    case 4: unpack_4(f, q, p); break;
    case 5:
        UNROLL for (int g = 0; g < 5; g++) q[g] = bits_of(p[g], 0xf8);
        q[5] = bits_of(bits_or(0xe0, SHL(p[0], 5), SHL(p[3], 2)), 0xf8);
        q[6] = bits_of(bits_or(0xe0, SHL(p[1], 5), SHL(p[4], 2)), 0xf8);
        q[7] = bits_or(0x10, SHL(p[3], 4), SHL(p[4], 3));
        q[7] = bits_of(bits_or(0xe0, SHL(p[2], 5), q[7]), 0xf8);
        break;
    case 6:
        UNROLL for (int h = 0; h < 2; h++) {
            UNROLL for (int t = 0; t < 3; t++) q[4 * h + t] = bits_of(p[3 * h + t], 0xfc);
            q[4 * h + 3] = bits_or(0x30, SHL(p[3 * h + 1], 4), SHL(p[3 * h + 2], 2));
            q[4 * h + 3] = bits_of(bits_or(0xc0, SHL(p[3 * h], 6), q[4 * h + 3]), 0xfc);
        }
        break;
    default: UNROLL for (int g = 0; g < 8; g++) q[g] = p[g]; break;
    }
}

/* vpdpbusd adds 4 products of unsigned weight and signed input bytes to each 32-bit lane. */
INLINE __m512i q8_dot(__m512i isum, const __m512i *q, const int8_t *x, int n_groups) {
    UNROLL for (int g = 0; g < n_groups; g++) {
        int32_t four;
        memcpy(&four, x + 4 * g, 4);
        isum = _mm512_dpbusd_epi32(isum, q[g], _mm512_set1_epi32(four));
    }
    return isum;
}

/* Adds one row's block, given the sums of its products (high: of the second half, where halves have scales of
 * their own). |isum| <= 32 * 255 * 127 < 2^21, exact in the integer and in its float. */
INLINE vf q8_add_sums(enum kern_format f, vf sum, const struct q8_factors *c, __m512i low, __m512i high,
                      const struct kern_act_block *x) {
    if (n_halves(f) == 1) {
        sum = vf_fma(vf_mul(c->d[0], vf_set(x->scale)), _mm512_cvtepi32_ps(low), sum);
        return has_m(f) ? vf_fma(c->m[0], vf_set(x->scaled_sum), sum) : sum;
    }
    vf t = vf_mul(c->d[0], _mm512_cvtepi32_ps(low));
    t = vf_fma(c->d[1], _mm512_cvtepi32_ps(high), t);
    if (has_m(f)) UNROLL for (int h = 0; h < 2; h++) {
            t = vf_fma(c->m[h], _mm512_cvtepi32_ps(_mm512_set1_epi32(x->bias_half[h])), t);
        }
    return vf_fma(vf_set(x->scale), t, sum);
}

INLINE vf q8_add_block(enum kern_format f, vf sum, const struct q8_factors *c, const __m512i q[8],
                       const struct kern_act_block *x) {
    const bool biased = !has_m(f);
    if (n_halves(f) == 1) {
        __m512i isum = q8_dot(_mm512_set1_epi32(biased ? x->bias_sum : 0), q, x->q, 8);
        return q8_add_sums(f, sum, c, isum, isum, x);
    }
    __m512i low = q8_dot(_mm512_set1_epi32(biased ? x->bias_half[0] : 0), q, x->q, 4);
    __m512i high = q8_dot(_mm512_set1_epi32(biased ? x->bias_half[1] : 0), q + 4, x->q + 16, 4);
    return q8_add_sums(f, sum, c, low, high, x);
}

/* NM input rows from i on by one panel. */
INLINE void q8_tile(const struct kern_matrix *w, enum kern_format f, const size_t NM, const size_t NP,
                    const struct mm_out *out, const uint8_t *panel, size_t panel_bytes, size_t p,
                    const char *acts, size_t act_row_bytes, size_t i, bool first) {
    const size_t unit_blocks = kern_unit_blocks(f);
    vf sum[Q8_ROWS];
    UNROLL for (size_t a = 0; a < NM; a++) sum[a] = vf_zero();
    const char *x = acts + i * act_row_bytes;
    for (size_t n = w->k / KERN_BLOCK / unit_blocks; n > 0; n--) {
        const uint8_t *head = panel;
        q8_prefetch(head, head_bytes(f));
        struct q8_factors unit = q8_unit_factors(f, head, 1.0f / q8_times(f));
        panel += head_bytes(f);
        for (size_t b = 0; b < unit_blocks; b++) {
            struct q8_factors c = q8_block_factors(f, head, b, &unit);
            __m512i q[8];
            q8_prefetch(panel, plane_bytes(f));
            q8_unpack(f, q, panel);
            UNROLL for (size_t a = 0; a < NM; a++) sum[a] =
                q8_add_block(f, sum[a], &c, q, (const struct kern_act_block *)(x + a * act_row_bytes));
            panel += plane_bytes(f);
            x += sizeof(struct kern_act_block);
        }
    }
    UNROLL for (size_t a = 0; a < NM; a++) mm_store(out, i + a, p, sum[a]);
}

#define TABLE_ISA  KERN_ISA_AVX512
#define TABLE_NAME "avx512"
#define TABLE_Q8   "vnni"

#define TABLE               kern_table_avx512
#define TABLE_BF16          FLOAT_FAMILY("bf16, " TABLE_NAME, KERN_ACT_BF16, bf16_run)
#define TABLE_ACT_BF16      act_pack_bf16
#define TABLE_ACT_ROW_BYTES ref_act_row_bytes
#include "kern/table.inc"

#define TABLE kern_table_avx512_bf16
#define TABLE_BF16                                                                                           \
    {                                                                                                        \
        .name = "bf16, avx512_bf16", .act = KERN_ACT_BF16, .panel_rows = LANES, .k_multiple = 1,             \
        .panel_bytes = bf16_dot_panel_bytes, .pack = bf16_dot_pack, .unpack_row = bf16_dot_unpack_row,       \
        .run = bf16_dot_run                                                                                  \
    }
#define TABLE_ACT_BF16      bf16_dot_act_pack
#define TABLE_ACT_ROW_BYTES bf16_dot_act_row_bytes
#define TABLE_ATTN_BF16     PAIRS_ATTN("bf16 pairs", pairs_partition)
#include "kern/table.inc"

#include "kern/mm_amx.inc"

#include "kern/attn_amx.inc"

#undef TABLE_ISA
#undef TABLE_NAME
#undef TABLE_Q8
#define TABLE_ISA  KERN_ISA_AMX
#define TABLE_NAME "amx"
#define TABLE_Q8   "amx"

#define TABLE kern_table_amx
#define TABLE_BF16                                                                                           \
    {                                                                                                        \
        .name = "bf16, amx", .act = KERN_ACT_BF16, .panel_rows = LANES, .k_multiple = 1,                     \
        .panel_bytes = amx_bf16_panel_bytes, .pack = amx_bf16_pack, .unpack_row = bf16_dot_unpack_row,       \
        .run = amx_bf16_run                                                                                  \
    }
#define TABLE_ACT_BF16      bf16_dot_act_pack
#define TABLE_ACT_ROW_BYTES bf16_dot_act_row_bytes
#define TABLE_ATTN_BF16     PAIRS_ATTN("bf16 tiles", amx_partition)
#define TABLE_Q8_RUN(run)   amx_q8_run
#define TABLE_MORE          .call_rows = 64, .act_rows_over = AMX_ROWS - 1, .thread_begin = amx_thread_begin,
#include "kern/table.inc"
