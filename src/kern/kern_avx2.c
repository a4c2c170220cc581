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
    FILE_ROWS = 128,
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

#include "kern/ops.inc"
#include "kern/attn.inc"
#include "kern/mm_float.inc"
#include "kern/mm_q8.inc"

/* Groups 4 * half .. 4 * half + 3 of a block: quants without the bias taken off, signed weights for Q8_0. */
INLINE void q8_unpack(enum kern_format f, __m256i q[4], const char *src, const int half) {
    const __m256i low = _mm256_set1_epi8(15), bit4 = _mm256_set1_epi8(16);
    UNROLL for (int g = 0; g < 4; g++) {
        if (f == KERN_Q8_0) {
            q[g] = _mm256_loadu_si256((const void *)(src + (4 * half + g) * VECTOR));
            continue;
        }
        __m256i x = _mm256_loadu_si256((const void *)(src + g * VECTOR));
        q[g] = _mm256_and_si256(half ? _mm256_srli_epi16(x, 4) : x, low);
    }
    if (!has_bit4(f)) return;
    __m256i bits =
        _mm256_loadu_si256((const void *)(src + 4 * VECTOR)); /* bit g of these is bit 4 of group g */
    if (half) {                                               /* bits 4 .. 7: the first is in place */
        UNROLL for (int g = 0; g < 4; g++) {
            q[g] = _mm256_or_si256(q[g], _mm256_and_si256(bits, bit4));
            bits = _mm256_srli_epi16(bits, 1);
        }
    } else { /* bits 3, 2, 1, 0, one step to the left each */
        UNROLL for (int g = 3; g >= 0; g--) {
            bits = _mm256_slli_epi16(bits, 1);
            q[g] = _mm256_or_si256(q[g], _mm256_and_si256(bits, bit4));
        }
    }
}

/* 4 groups by the 16 inputs at x, added up in 32-bit lanes. vpmaddubsw adds 2 products of an unsigned and a
 * signed byte in a saturating 16-bit lane; |x| <= 127, so none of these saturates (limit 32,767): 4 bits: 4
 * groups of 2 * 15 * 127 make 15,240 5 bits: 4 groups of 2 * 31 * 127 make 31,496 8 bits: |w| <= 128 by x
 * with w's sign, 2 * 128 * 127 = 32,512 for one group alone */
INLINE __m256i q8_dot(enum kern_format f, __m256i isum, const __m256i q[4], const int8_t *x) {
    const __m256i ones = _mm256_set1_epi16(1);
    __m256i pairs = _mm256_setzero_si256();
    UNROLL for (int g = 0; g < 4; g++) {
        int32_t four;
        memcpy(&four, x + 4 * g, 4);
        __m256i input = _mm256_set1_epi32(four);
        if (f == KERN_Q8_0) {
            __m256i products = _mm256_maddubs_epi16(_mm256_abs_epi8(q[g]), _mm256_sign_epi8(input, q[g]));
            isum = _mm256_add_epi32(isum, _mm256_madd_epi16(products, ones));
        } else {
            __m256i products = _mm256_maddubs_epi16(q[g], input);
            pairs = g == 0 ? products : _mm256_add_epi16(pairs, products);
        }
    }
    return f == KERN_Q8_0 ? isum : _mm256_add_epi32(isum, _mm256_madd_epi16(pairs, ones));
}

/* -bias * sum of the inputs, from -128 * sum: exact. */
INLINE __m256i q8_bias(enum kern_format f, int32_t bias_sum) {
    if (f == KERN_Q4_0) return _mm256_srai_epi32(_mm256_set1_epi32(bias_sum), 4);
    if (f == KERN_Q5_0) return _mm256_srai_epi32(_mm256_set1_epi32(bias_sum), 3);
    return _mm256_setzero_si256();
}

INLINE vf q8_half(const void *p) {
    return _mm256_cvtph_ps(_mm_loadu_si128(p));
}

/* NM input rows from i on by one panel; a block's quants are taken in halves, which leaves registers for NM
 * sums. */
INLINE void q8_tile(const struct kern_matrix *w, enum kern_format f, const size_t NM,
                    const struct mm_out *out, const char *panel, size_t p, const char *acts,
                    size_t act_row_bytes, size_t i) {
    size_t n_blocks = w->k / KERN_BLOCK;
    vf sum[Q8_ROWS];
    UNROLL for (size_t a = 0; a < NM; a++) sum[a] = vf_zero();
    acts += i * act_row_bytes;
    for (size_t b = 0; b < n_blocks; b++, panel += q8_block_bytes(f)) {
        const char *scales = panel + q8_quant_bytes(f);
        q8_prefetch(f, panel);
        const char *x = acts + b * sizeof(struct kern_act_block);
        __m256i isum[Q8_ROWS], q[4];
        UNROLL for (int half = 0; half < 2; half++) {
            q8_unpack(f, q, panel, half);
            UNROLL for (size_t a = 0; a < NM; a++) {
                const struct kern_act_block *block = (const struct kern_act_block *)(x + a * act_row_bytes);
                if (half == 0) isum[a] = q8_bias(f, block->bias_sum);
                isum[a] = q8_dot(f, isum[a], q, block->q + 16 * half);
            }
        }
        vf d = q8_half(scales), m = has_m(f) ? q8_half(scales + LANES * 2) : vf_zero();
        UNROLL for (size_t a = 0; a < NM; a++) {
            const struct kern_act_block *block = (const struct kern_act_block *)(x + a * act_row_bytes);
            vf ds = vf_mul(d, vf_set(block->scale));
            sum[a] = vf_fma(ds, _mm256_cvtepi32_ps(isum[a]), sum[a]);
            if (has_m(f)) sum[a] = vf_fma(m, vf_set(block->scaled_sum), sum[a]);
        }
    }
    UNROLL for (size_t a = 0; a < NM; a++) mm_store(out, i + a, p, sum[a]);
}

/* 8-bit inputs. */
#define Q8_FAMILY(label, run_function)                                                                       \
    {                                                                                                        \
        .name = label, .act = KERN_ACT_Q8, .panel_rows = LANES, .k_multiple = KERN_BLOCK,                    \
        .panel_bytes = q8_panel_bytes, .pack = q8_pack, .unpack_row = q8_unpack_row, .run = run_function     \
    }
#define FLOAT_FAMILY(label, act_kind, run_function)                                                          \
    {                                                                                                        \
        .name = label, .act = act_kind, .panel_rows = LANES, .k_multiple = 1,                                \
        .panel_bytes = float_panel_bytes, .pack = float_pack, .unpack_row = float_unpack_row,                \
        .run = run_function                                                                                  \
    }
#define FILE_FAMILY(label)                                                                                   \
    {                                                                                                        \
        .name = label, .act = KERN_ACT_F32, .panel_rows = LANES, .k_multiple = DECODE_CHUNK,                 \
        .panel_bytes = file_panel_bytes, .pack = file_pack, .unpack_row = file_unpack_row, .run = file_run   \
    }

const struct kern kern_table_avx2 = {
    .name = "avx2",
    .isa = KERN_ISA_AVX2,
    .mm =
        {
            [KERN_F32] = FLOAT_FAMILY("f32, avx2", KERN_ACT_F32, f32_run),
            [KERN_F16] = FLOAT_FAMILY("f16, avx2", KERN_ACT_F16, f16_run),
            [KERN_BF16] = FLOAT_FAMILY("bf16, avx2", KERN_ACT_BF16, bf16_run),
            [KERN_Q4_0] = Q8_FAMILY("q4_0 x q8, avx2", q4_0_run),
            [KERN_Q4_1] = Q8_FAMILY("q4_1 x q8, avx2", q4_1_run),
            [KERN_Q5_0] = Q8_FAMILY("q5_0 x q8, avx2", q5_0_run),
            [KERN_Q5_1] = Q8_FAMILY("q5_1 x q8, avx2", q5_1_run),
            [KERN_Q8_0] = Q8_FAMILY("q8_0 x q8, avx2", q8_0_run),
            [KERN_Q2_K] = FILE_FAMILY("q2_k x f32, avx2"),
            [KERN_Q3_K] = FILE_FAMILY("q3_k x f32, avx2"),
            [KERN_Q4_K] = FILE_FAMILY("q4_k x f32, avx2"),
            [KERN_Q5_K] = FILE_FAMILY("q5_k x f32, avx2"),
            [KERN_Q6_K] = FILE_FAMILY("q6_k x f32, avx2"),
        },
    .act_row_bytes = ref_act_row_bytes,
    .act_pack =
        {
            [KERN_ACT_F32] = ref_act_pack_f32,
            [KERN_ACT_F16] = act_pack_f16,
            [KERN_ACT_BF16] = act_pack_bf16,
            [KERN_ACT_Q8] = act_pack_q8,
        },
    .attn =
        {
            [KERN_KV_F32] = {.elem_bytes = 4,
                             .write_k = ref_attn_write_k_f32,
                             .write_v = ref_attn_write_v_f32,
                             .read_k = ref_attn_read_k_f32,
                             .read_v = ref_attn_read_v_f32,
                             .partition = partition_f32},
            [KERN_KV_F16] = {.elem_bytes = 2,
                             .write_k = ref_attn_write_k_f16,
                             .write_v = write_v_f16,
                             .read_k = ref_attn_read_k_f16,
                             .read_v = ref_attn_read_v_f16,
                             .partition = partition_f16},
            [KERN_KV_BF16] = {.elem_bytes = 2,
                              .write_k = ref_attn_write_k_bf16,
                              .write_v = write_v_bf16,
                              .read_k = ref_attn_read_k_bf16,
                              .read_v = ref_attn_read_v_bf16,
                              .partition = partition_bf16},
        },
    .attn_combine = attn_combine,
    .rms_norm = rms_norm,
    .rope = rope,
    .swiglu = swiglu,
    .geglu = geglu,
    .swiglu_clamped = swiglu_clamped,
    .soft_cap = soft_cap,
    .add = add,
    .scale = scale,
    .round_to = round_to,
    .logits_scan = logits_scan,
    .log_sum_exp = log_sum_exp,
    .softmax_terms = softmax_terms,
};
