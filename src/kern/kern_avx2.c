/* The AVX2 table: AVX2, FMA and F16C. */
#include "kern/kern_block.h"
#include "kern/kern_half.h"
#include "kern/kern_ref.h"
#include "kern/vec_avx2.h"

#include <math.h>

#define INLINE static inline __attribute__((always_inline))
#ifdef __clang__
#define UNROLL _Pragma("clang loop unroll(full)")
#else
#define UNROLL _Pragma("GCC unroll 16")
#endif

/* Tile sizes for 16 registers. */
enum {
    DECODE_CHUNK = 256, /* elements: a multiple of every format's block */
    PREFETCH_BYTES = 2048,
    ACT_SPAN_BYTES = 192 * 1024,
    FLOAT_ROWS = 6,
    FLOAT_ROWS_FEW = 3, /* up to so many input rows, more panels at once */
    FLOAT_PANELS = 4,
    FLOAT_PANELS_MANY = 2,
    Q8_ROWS = 4,
    Q8_FLIP = 0x80, /* 8-bit weights are kept signed */
    REGISTERS = 16,
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
    __m256i x[4];
    UNROLL for (int i = 0; i < 4; i++) /* rows i, i + 4 */
        x[i] = _mm256_loadu2_m128i((const void *)(row[i + 4] + offset), (const void *)(row[i] + offset));
    __m256i a = _mm256_unpacklo_epi32(x[0], x[1]), b = _mm256_unpackhi_epi32(x[0], x[1]);
    __m256i c = _mm256_unpacklo_epi32(x[2], x[3]), d = _mm256_unpackhi_epi32(x[2], x[3]);
    w[0] = (vw)_mm256_unpacklo_epi64(a, c);
    w[1] = (vw)_mm256_unpackhi_epi64(a, c);
    w[2] = (vw)_mm256_unpacklo_epi64(b, d);
    w[3] = (vw)_mm256_unpackhi_epi64(b, d);
}
INLINE void store_low_halves(uint8_t *dst, vw w) {
    w &= 0xffff;
    __m128i low = _mm256_castsi256_si128((__m256i)w), high = _mm256_extracti128_si256((__m256i)w, 1);
    _mm_storeu_si128((void *)dst, _mm_packus_epi32(low, high));
}
INLINE void store_low_bytes(uint8_t *dst, vw w) {
    w &= 0xff;
    __m128i low = _mm256_castsi256_si128((__m256i)w), high = _mm256_extracti128_si256((__m256i)w, 1);
    __m128i halves = _mm_packus_epi32(low, high);
    _mm_storel_epi64((void *)dst, _mm_packus_epi16(halves, halves));
}
INLINE vw load_low_bytes(const uint8_t *src) {
    return (vw)_mm256_cvtepu8_epi32(_mm_loadl_epi64((const void *)src));
}
INLINE vf vf_from_int(vw w) {
    return _mm256_cvtepi32_ps((__m256i)w);
}

INLINE vf float_multiply_add(enum kern_format type, vf weight, vf x, vf sum) {
    return vf_fma(weight, x, sum);
}

/* ---- 8-bit floats: one of each row ---- */

/* The upper byte of a half-precision number. */
INLINE vf vf_load_e5m2(const char *src) {
    __m128i x = _mm_cvtepu8_epi16(_mm_loadl_epi64((const void *)src));
    return _mm256_cvtph_ps(_mm_slli_epi16(x, 8));
}
/* A half-precision number but for the bias of the exponent, 7 instead of 15: the value / 256. All ones is
 * NaN.
 */
INLINE vf vf_load_e4m3(const char *src) {
    const __m128i sign_and_rest = _mm_set1_epi16((short)0xbf80), rest = _mm_set1_epi16(0x3f80);
    __m128i x = _mm_cvtepi8_epi16(_mm_loadl_epi64((const void *)src));
    x = _mm_and_si128(_mm_slli_epi16(x, 7), sign_and_rest);
    __m128i nan = _mm_cmpeq_epi16(_mm_and_si128(x, rest), rest);
    return _mm256_cvtph_ps(_mm_or_si128(x, nan));
}

#include "kern/mm_float.inc"

#include "kern/mm_pack.inc"
#include "kern/mm_q8.inc"

/* ---- the tile ---- */

/* Formats whose weights are unpacked as signed bytes, without a bias. */
INLINE bool is_signed(enum kern_format f) {
    return f == KERN_Q8_0 || has_table(f);
}

INLINE __m256i bits_of(__m256i x, int mask) {
    return _mm256_and_si256(x, _mm256_set1_epi8((char)mask));
}
#define SHL(x, n) _mm256_slli_epi32(x, n)
#define SHR(x, n) _mm256_srli_epi32(x, n)
#define OR(a, b)  _mm256_or_si256(a, b)
#define PLANE(n)  _mm256_loadu_si256((const void *)(src + (n)*VECTOR))

INLINE void unpack_3(__m256i q[4], const uint8_t *src, const int half) {
    if (half == 0) {
        UNROLL for (int g = 0; g < 4; g++) q[g] = bits_of(SHR(PLANE(g / 2), g % 2 ? 2 : 5), 7);
    } else {
        q[0] = bits_of(SHR(PLANE(2), 5), 7);
        q[1] = bits_of(SHR(PLANE(2), 2), 7);
        q[2] = OR(SHL(bits_of(PLANE(0), 3), 1), bits_of(SHR(PLANE(1), 1), 1));
        q[3] = OR(SHL(bits_of(PLANE(1), 1), 2), bits_of(PLANE(2), 3));
    }
}

INLINE void unpack_5(__m256i q[4], const uint8_t *src, const int half) {
    if (half == 0) {
        UNROLL for (int g = 0; g < 4; g++) q[g] = bits_of(SHR(PLANE(g), 3), 31);
    } else {
        q[0] = bits_of(SHR(PLANE(4), 3), 31);
        q[1] = OR(SHL(bits_of(PLANE(0), 7), 2), bits_of(SHR(PLANE(3), 1), 3));
        q[2] = OR(SHL(bits_of(PLANE(1), 7), 2), bits_of(SHR(PLANE(4), 1), 3));
        q[3] = OR(SHL(bits_of(PLANE(2), 7), 2), OR(SHL(bits_of(PLANE(3), 1), 1), bits_of(PLANE(4), 1)));
    }
}

/* Groups 4 * half .. 4 * half + 3 of a block: quants without the bias taken off, or signed weights. Shifts
 * are of words: bits that come from another byte are masked away. See plane_encode. */
INLINE void q8_unpack(enum kern_format f, __m256i q[4], const uint8_t *src, const int half) {
    const __m256i iq4 = _mm256_broadcastsi128_si256(_mm_setr_epi8(KERN_IQ4_VALUES)),
                  mxfp4 = _mm256_broadcastsi128_si256(_mm_setr_epi8(KERN_MXFP4_VALUES));
    switch (n_planes(f)) {
    case 2: UNROLL for (int g = 0; g < 4; g++) q[g] = bits_of(SHR(PLANE(half), 2 * g), 3); break;
    case 3: unpack_3(q, src, half); break;
    case 4:
        UNROLL for (int g = 0; g < 4; g++) {
            q[g] = bits_of(half ? SHR(PLANE(g), 4) : PLANE(g), 15);
            if (has_table(f)) q[g] = _mm256_shuffle_epi8(f == KERN_MXFP4 ? mxfp4 : iq4, q[g]);
        }
        break;
    case 5: unpack_5(q, src, half); break;
    case 6:
        UNROLL for (int t = 0; t < 3; t++) q[t] = bits_of(SHR(PLANE(3 * half + t), 2), 63);
        q[3] = OR(SHL(bits_of(PLANE(3 * half), 3), 4),
                  OR(SHL(bits_of(PLANE(3 * half + 1), 3), 2), bits_of(PLANE(3 * half + 2), 3)));
        break;
    default: UNROLL for (int g = 0; g < 4; g++) q[g] = PLANE(4 * half + g); break;
    }
}

/* 4 groups by the 16 inputs at x, added up in 32-bit lanes. vpmaddubsw adds 2 products of an unsigned and a
 * signed byte in a saturating 16-bit lane; |x| <= 127, so none of these saturates (limit 32,767):
 *   up to 5 bits: 4 groups of at most 2 * 31 * 127 make 31,496
 *   6 bits: 2 groups of 2 * 63 * 127 make 32,004
 *   signed: |w| <= 128 by x with w's sign, 2 * 128 * 127 = 32,512 for one group alone */
INLINE __m256i q8_dot(enum kern_format f, __m256i isum, const __m256i q[4], const int8_t *x) {
    const __m256i ones = _mm256_set1_epi16(1);
    const int together = is_signed(f) ? 1 : n_planes(f) == 6 ? 2 : 4;
    __m256i pairs = _mm256_setzero_si256();
    UNROLL for (int g = 0; g < 4; g++) {
        int32_t four;
        memcpy(&four, x + 4 * g, 4);
        __m256i input = _mm256_set1_epi32(four);
        __m256i products = is_signed(f)
                               ? _mm256_maddubs_epi16(_mm256_abs_epi8(q[g]), _mm256_sign_epi8(input, q[g]))
                               : _mm256_maddubs_epi16(q[g], input);
        pairs = g % together ? _mm256_add_epi16(pairs, products) : products;
        if (g % together == together - 1) isum = _mm256_add_epi32(isum, _mm256_madd_epi16(pairs, ones));
    }
    return isum;
}

/* -bias * sum of the inputs, from -128 * sum: exact. */
INLINE __m256i q8_bias(enum kern_format f, int32_t bias_sum) {
    __m256i x = _mm256_set1_epi32(bias_sum);
    switch (is_signed(f) ? 0 : quant_bias(f)) {
    case 4: return _mm256_srai_epi32(x, 5);
    case 8: return _mm256_srai_epi32(x, 4);
    case 16: return _mm256_srai_epi32(x, 3);
    case 32: return _mm256_srai_epi32(x, 2);
    default: return _mm256_setzero_si256();
    }
}

/* A block of a row so far: the integer sum, or the float sum of its halves. */
union q8_part {
    __m256i isum;
    vf t;
};

INLINE void q8_add_half(enum kern_format f, union q8_part *part, const struct q8_factors *c,
                        const __m256i q[4], const struct kern_act_block *x, const int half) {
    if (n_halves(f) == 1) {
        if (half == 0) part->isum = q8_bias(f, x->bias_sum);
        part->isum = q8_dot(f, part->isum, q, x->q + 16 * half);
        return;
    }
    vf sum = _mm256_cvtepi32_ps(q8_dot(f, q8_bias(f, x->bias_half[half]), q, x->q + 16 * half));
    part->t = half == 0 ? vf_mul(c->d[0], sum) : vf_fma(c->d[1], sum, part->t);
}

INLINE vf q8_add_block(enum kern_format f, vf sum, union q8_part part, const struct q8_factors *c,
                       const struct kern_act_block *x) {
    if (n_halves(f) == 1) {
        sum = vf_fma(vf_mul(c->d[0], vf_set(x->scale)), _mm256_cvtepi32_ps(part.isum), sum);
        return has_m(f) ? vf_fma(c->m[0], vf_set(x->scaled_sum), sum) : sum;
    }
    if (has_m(f)) UNROLL for (int h = 0; h < 2; h++) {
            part.t = vf_fma(c->m[h], _mm256_cvtepi32_ps(_mm256_set1_epi32(x->bias_half[h])), part.t);
        }
    return vf_fma(vf_set(x->scale), part.t, sum);
}

/* NM input rows from i on by one panel; a block's quants are taken in halves, which leaves registers for NM
 * sums. */
INLINE void q8_tile(const struct kern_matrix *w, enum kern_format f, const size_t NM,
                    const struct mm_out *out, const uint8_t *panel, size_t p, const char *acts,
                    size_t act_row_bytes, size_t i) {
    const size_t unit_blocks = kern_unit_blocks(f);
    vf sum[Q8_ROWS];
    UNROLL for (size_t a = 0; a < NM; a++) sum[a] = vf_zero();
    const char *x = acts + i * act_row_bytes;
    for (size_t n = w->k / KERN_BLOCK / unit_blocks; n > 0; n--) {
        const uint8_t *head = panel;
        q8_prefetch(head, head_bytes(f));
        struct q8_factors unit = q8_unit_factors(f, head, 1.0f);
        panel += head_bytes(f);
        for (size_t b = 0; b < unit_blocks; b++) {
            struct q8_factors c = q8_block_factors(f, head, b, &unit);
            union q8_part part[Q8_ROWS];
            q8_prefetch(panel, plane_bytes(f));
            UNROLL for (int half = 0; half < 2; half++) {
                __m256i q[4];
                q8_unpack(f, q, panel, half);
                UNROLL for (size_t a = 0; a < NM; a++) q8_add_half(
                    f, &part[a], &c, q, (const struct kern_act_block *)(x + a * act_row_bytes), half);
            }
            UNROLL for (size_t a = 0; a < NM; a++) sum[a] =
                q8_add_block(f, sum[a], part[a], &c, (const struct kern_act_block *)(x + a * act_row_bytes));
            panel += plane_bytes(f);
            x += sizeof(struct kern_act_block);
        }
    }
    UNROLL for (size_t a = 0; a < NM; a++) mm_store(out, i + a, p, sum[a]);
}

#define TABLE_ISA  KERN_ISA_AVX2
#define TABLE_NAME "avx2"
#define TABLE_Q8   "avx2"

#define TABLE               kern_table_avx2
#define TABLE_BF16          FLOAT_FAMILY("bf16, " TABLE_NAME, KERN_ACT_BF16, bf16_run)
#define TABLE_ACT_BF16      act_pack_bf16
#define TABLE_ACT_ROW_BYTES ref_act_row_bytes
#include "kern/table.inc"
