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
    Q8_PANELS = 2,
    Q8_FLIP = 0x80, /* 8-bit weights are kept signed */
    REGISTERS = 16,
    K_AHEAD = 4,   /* attention: groups of tokens that memory is asked for ahead, if a tile has no more */
    V_TOKENS = 64, /* and tokens whose V is read for all of a head before the next */
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
    return f == KERN_Q8_0 || f == KERN_IQ4_NL || f == KERN_IQ4_XS;
}

/* KERN_MXFP4_VALUES and 12. */
#define UNSIGNED_MXFP4 12, 13, 14, 15, 16, 18, 20, 24, 12, 11, 10, 9, 8, 6, 4, 0

INLINE __m256i bits_of(__m256i x, int mask) {
    return _mm256_and_si256(x, _mm256_set1_epi8((char)mask));
}
#define SHL(x, n) _mm256_slli_epi32(x, n)
#define SHR(x, n) _mm256_srli_epi32(x, n)
#define OR(a, b)  _mm256_or_si256(a, b)
#define PLANE(n)  _mm256_loadu_si256((const void *)(src + (n)*VECTOR))

/* Group g (0 .. 7) of a block: quants without the bias taken off, or signed weights. Shifts are of words:
 * bits that come from another byte are masked away. See plane_encode. */
INLINE __m256i q8_group_3(const uint8_t *src, const int g) {
    if (g < 6) return bits_of(SHR(PLANE(g / 2), g % 2 ? 2 : 5), 7);
    if (g == 6) return OR(SHL(bits_of(PLANE(0), 3), 1), bits_of(SHR(PLANE(1), 1), 1));
    return OR(SHL(bits_of(PLANE(1), 1), 2), bits_of(PLANE(2), 3));
}

INLINE __m256i q8_group_5(const uint8_t *src, const int g) {
    if (g < 5) return bits_of(SHR(PLANE(g), 3), 31);
    if (g < 7) return OR(SHL(bits_of(PLANE(g - 5), 7), 2), bits_of(SHR(PLANE(g - 2), 1), 3));
    return OR(SHL(bits_of(PLANE(2), 7), 2), OR(SHL(bits_of(PLANE(3), 1), 1), bits_of(PLANE(4), 1)));
}

INLINE __m256i q8_group_6(const uint8_t *src, const int g) {
    src += g / 4 * 3 * VECTOR;
    if (g % 4 < 3) return bits_of(SHR(PLANE(g % 4), 2), 63);
    return OR(SHL(bits_of(PLANE(0), 3), 4), OR(SHL(bits_of(PLANE(1), 3), 2), bits_of(PLANE(2), 3)));
}

INLINE __m256i q8_group(enum kern_format f, const uint8_t *src, const int g) {
    const __m256i iq4 = _mm256_broadcastsi128_si256(_mm_setr_epi8(KERN_IQ4_VALUES)),
                  mxfp4 = _mm256_broadcastsi128_si256(_mm_setr_epi8(UNSIGNED_MXFP4));
    __m256i q;
    switch (n_planes(f)) {
    case 2: return bits_of(SHR(PLANE(g / 4), g % 4 * 2), 3);
    case 3: return q8_group_3(src, g);
    case 4:
        q = bits_of(g < 4 ? PLANE(g) : SHR(PLANE(g - 4), 4), 15);
        return has_table(f) ? _mm256_shuffle_epi8(f == KERN_MXFP4 ? mxfp4 : iq4, q) : q;
    case 5: return q8_group_5(src, g);
    case 6: return q8_group_6(src, g);
    default: return PLANE(g);
    }
}

/* What is taken from the unsigned weights of q8_group in sums: the bias of the format. That of Q5_1 and Q5_K,
 * which have none, is given back. */
INLINE int taken(enum kern_format f) {
    return f == KERN_MXFP4 ? 12 : n_planes(f) == 5 ? 16 : is_signed(f) ? 0 : quant_bias(f);
}

/* Products of 4 inputs with a group add up in 16-bit lanes, of which a row has two (words): vpmaddubsw gives
 * two products of an unsigned and a signed byte in each. The sums begin with what is to be taken from all
 * weights times the inputs of the lane, so at their end they are sums of (q - taken) * x; |x| <= 127 and
 *   halves, 8 products:  |q - 32| <= 32 of Q6_K make 32,512; less of Q2_K and Q3_K
 *   blocks, 16 products: |q - 16| <= 16 of 5 bits make 32,512; q <= 15 of 4 bits 30,480
 * fit. They may overflow on the way, which does no harm; no pair of products does: 2 * 63 * 127 = 16,002. */
INLINE __m256i q8_words(enum kern_format f, const struct kern_act_block *x, const int half) {
    __m256i w = _mm256_set1_epi32(x->words[half]);
    if (n_halves(f) == 1) w = _mm256_add_epi16(w, _mm256_set1_epi32(x->words[1]));
    return taken(f) == 12 ? _mm256_mullo_epi16(w, _mm256_set1_epi16(12))
                          : _mm256_slli_epi16(w, __builtin_ctz((unsigned)taken(f)));
}

/* The integer sum of a signed group: |w| by x with w's sign. A pair is up to 2 * 128 * 127 = 32,512. */
INLINE __m256i q8_signed(__m256i isum, __m256i weight, __m256i magnitude, __m256i input) {
    __m256i words = _mm256_maddubs_epi16(magnitude, _mm256_sign_epi8(input, weight));
    return _mm256_add_epi32(isum, _mm256_madd_epi16(words, _mm256_set1_epi16(1)));
}

/* Integer sums have no order that a compiler keeps: gathering products first, it runs out of registers. */
#define IN_ORDER(x) __asm__("" : "+x"(x))

/* Adds group g of NP panels by NM rows to the sums: words, or whole ones of signed weights. */
INLINE void q8_add_group(enum kern_format f, const size_t NM, const size_t NP,
                         __m256i sums[Q8_ROWS][Q8_PANELS], const uint8_t *const src[Q8_PANELS], const char *x,
                         size_t act_row_bytes, const int g) {
    __m256i q[Q8_PANELS], magnitude[Q8_PANELS];
    const bool first = !taken(f) && g % (8 / (int)n_halves(f)) == 0;
    UNROLL for (size_t s = 0; s < NP; s++) {
        q[s] = q8_group(f, src[s], g);
        if (is_signed(f)) magnitude[s] = _mm256_abs_epi8(q[s]);
    }
    UNROLL for (size_t a = 0; a < NM; a++) {
        int32_t four;
        memcpy(&four, x + a * act_row_bytes + 4 * g, 4);
        __m256i input = _mm256_set1_epi32(four);
        UNROLL for (size_t s = 0; s < NP; s++) {
            __m256i *sum = &sums[a][s];
            if (is_signed(f)) {
                *sum = q8_signed(g ? *sum : _mm256_setzero_si256(), q[s], magnitude[s], input);
            } else {
                __m256i products = _mm256_maddubs_epi16(q[s], input);
                *sum = first ? products : _mm256_add_epi16(*sum, products);
            }
            IN_ORDER(*sum);
        }
    }
}

/* Integer factors of half blocks as both words of a row. */
INLINE __m256i q8_word_factors(vw x) {
    return (__m256i)(x | x << 16);
}

/* Scales of the halves, and the minimums of Q2_K. */
INLINE void q8_half_scales(enum kern_format f, const uint8_t *scales, const size_t half, __m256i *scale,
                           __m256i *min) {
    vw x = load_low_bytes(scales + half * LANES);
    if (f == KERN_Q2_K) {
        *min = q8_word_factors(x >> 4);
        *scale = q8_word_factors(x & 15);
    } else {
        __m256i word = _mm256_srai_epi16(_mm256_slli_epi16((__m256i)x, 8), 8); /* a signed byte */
        *scale = q8_word_factors((vw)word & 0xffff);
    }
}

/* The block's sum of a format with a scale for each block. */
INLINE __m256i q8_block_sum(enum kern_format f, __m256i sum, const struct kern_act_block *x) {
    if (is_signed(f)) return sum;
    sum = _mm256_madd_epi16(sum, _mm256_set1_epi16(1));
    if (!has_m(f) || !taken(f)) return sum;
    return _mm256_sub_epi32(sum, _mm256_srai_epi32(_mm256_set1_epi32(x->bias_sum), 3)); /* 16 of 128 */
}

/* NM input rows by NP panels, one block: integer sums, in which the scales of half blocks are factors.
 * |isum| <= 32 * 32 * 127 * 128 < 2^24, exact in its float. */
INLINE void q8_block(enum kern_format f, const size_t NM, const size_t NP, __m256i isum[Q8_ROWS][Q8_PANELS],
                     const uint8_t *const src[Q8_PANELS], const uint8_t *const scales[Q8_PANELS],
                     const char *x, size_t act_row_bytes) {
    __m256i sums[Q8_ROWS][Q8_PANELS];
    UNROLL for (int g = 0; g < 8; g++) {
        const int half = g / 4;
        if (taken(f) && g % (8 / (int)n_halves(f)) == 0) UNROLL for (size_t a = 0; a < NM; a++) {
                __m256i w = q8_words(f, (const void *)(x + a * act_row_bytes), half);
                UNROLL for (size_t s = 0; s < NP; s++) sums[a][s] = w;
            }
        q8_add_group(f, NM, NP, sums, src, x, act_row_bytes, g);
        if (n_halves(f) == 2 && g % 4 == 3) UNROLL for (size_t s = 0; s < NP; s++) {
                __m256i scale, min;
                q8_half_scales(f, scales[s], (size_t)half, &scale, &min);
                UNROLL for (size_t a = 0; a < NM; a++) {
                    __m256i part = _mm256_madd_epi16(sums[a][s], scale);
                    isum[a][s] = half ? _mm256_add_epi32(isum[a][s], part) : part;
                }
            }
    }
    if (n_halves(f) == 1) UNROLL for (size_t a = 0; a < NM; a++) {
            UNROLL for (size_t s = 0; s < NP; s++) isum[a][s] =
                q8_block_sum(f, sums[a][s], (const void *)(x + a * act_row_bytes));
        }
}

/* -(sum of minimums by the inputs of their halves) of Q2_K. */
INLINE __m256i q8_min_sum(enum kern_format f, const uint8_t *scales, const struct kern_act_block *x) {
    __m256i scale, min[2];
    UNROLL for (size_t half = 0; half < 2; half++) q8_half_scales(f, scales, half, &scale, &min[half]);
    return _mm256_add_epi32(_mm256_madd_epi16(min[0], _mm256_set1_epi32(x->words[0])),
                            _mm256_madd_epi16(min[1], _mm256_set1_epi32(x->words[1])));
}

/* Adds a block of one row and panel to its sum. */
INLINE vf q8_add_block(enum kern_format f, vf sum, __m256i isum, const struct q8_factors *c,
                       const uint8_t *scales, const struct kern_act_block *x) {
    vf scale = vf_set(x->scale);
    sum = vf_fma(vf_mul(c->d[0], scale), _mm256_cvtepi32_ps(isum), sum);
    if (f == KERN_Q2_K)
        return vf_fma(vf_mul(c->m[0], scale),
                      _mm256_cvtepi32_ps(_mm256_slli_epi32(q8_min_sum(f, scales, x), 7)), sum);
    return has_m(f) ? vf_fma(c->m[0], vf_set(x->scaled_sum), sum) : sum;
}

/* NM input rows from i on by NP panels from p on: an input that is broadcast serves all panels. Memory is
 * asked for whole units ahead; at the end of a panel its stream goes on NP panels later. */
INLINE void q8_tile(const struct kern_matrix *w, enum kern_format f, const size_t NM, const size_t NP,
                    const struct mm_out *out, const uint8_t *panel, size_t panel_bytes, size_t p,
                    const char *acts, size_t act_row_bytes, size_t i, bool first) {
    const size_t unit_blocks = kern_unit_blocks(f), unit_bytes = packed_unit_bytes(f),
                 ahead = (PREFETCH_BYTES + unit_bytes - 1) / unit_bytes;
    vf sum[Q8_ROWS][Q8_PANELS];
    UNROLL for (size_t a = 0; a < NM; a++) {
        UNROLL for (size_t s = 0; s < NP; s++) sum[a][s] = vf_zero();
    }
    const char *x = acts + i * act_row_bytes;
    for (size_t n = w->k / KERN_BLOCK / unit_blocks; n > 0; n--) {
        const uint8_t *next = panel + ahead * unit_bytes + (n > ahead ? 0 : (NP - 1) * panel_bytes);
        const uint8_t *head[Q8_PANELS], *planes[Q8_PANELS], *scales[Q8_PANELS];
        UNROLL for (size_t s = 0; s < NP; s++) {
            head[s] = panel + s * panel_bytes;
            if (first) q8_ask(next + s * panel_bytes, unit_blocks == 1 ? unit_bytes : head_bytes(f));
        }
        for (size_t b = 0; b < unit_blocks; b++) {
            __m256i isum[Q8_ROWS][Q8_PANELS];
            const size_t planes_at = head_bytes(f) + b * plane_bytes(f);
            UNROLL for (size_t s = 0; s < NP; s++) {
                planes[s] = head[s] + planes_at;
                scales[s] = head[s] + head_scales(f) + b * n_halves(f) * LANES;
                if (first && unit_blocks > 1) q8_ask(next + s * panel_bytes + planes_at, plane_bytes(f));
            }
            q8_block(f, NM, NP, isum, planes, scales, x, act_row_bytes);
            UNROLL for (size_t s = 0; s < NP; s++) {
                struct q8_factors unit = q8_unit_factors(f, head[s], 1.0f),
                                  c = n_halves(f) == 2 ? unit : q8_block_factors(f, head[s], b, &unit);
                UNROLL for (size_t a = 0; a < NM; a++) sum[a][s] = q8_add_block(
                    f, sum[a][s], isum[a][s], &c, scales[s], (const void *)(x + a * act_row_bytes));
            }
            x += sizeof(struct kern_act_block);
        }
        panel += unit_bytes;
    }
    UNROLL for (size_t a = 0; a < NM; a++) {
        UNROLL for (size_t s = 0; s < NP; s++) mm_store(out, i + a, p + s, sum[a][s]);
    }
}

#define TABLE_ISA  KERN_ISA_AVX2
#define TABLE_NAME "avx2"
#define TABLE_Q8   "avx2"

#define TABLE               kern_table_avx2
#define TABLE_BF16          FLOAT_FAMILY("bf16, " TABLE_NAME, KERN_ACT_BF16, bf16_run)
#define TABLE_ACT_BF16      act_pack_bf16
#define TABLE_ACT_ROW_BYTES ref_act_row_bytes
#include "kern/table.inc"
