/* The AVX-512 table: F, BW, DQ, VL, VNNI and VBMI. */
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
    FILE_ROWS = 128,
    PREFETCH_BYTES = 2048,
    ACT_SPAN_BYTES = 256 * 1024,
    FLOAT_ROWS = 12,
    FLOAT_ROWS_FEW = 4, /* up to so many input rows, more panels at once */
    FLOAT_PANELS = 4,
    FLOAT_PANELS_MANY = 2,
    Q8_ROWS = 16,
    Q8_FLIP = 0, /* 8-bit weights are kept unsigned */
    REGISTERS = 32,
};

#include "kern/ops.inc"
#include "kern/attn.inc"
#include "kern/mm_float.inc"
#include "kern/mm_q8.inc"

/* What q8_unpack multiplies the quants by; it makes the bias 128 in all formats that have one. */
INLINE float q8_times(enum kern_format f) {
    return f == KERN_Q4_0 ? 16.0f : has_bit4(f) ? 8.0f : 1.0f;
}

/* The 8 groups of a block as unsigned bytes, times q8_times. */
INLINE void q8_unpack(enum kern_format f, __m512i q[8], const char *src) {
    const int n_vectors = f == KERN_Q8_0 ? 8 : 4;
    UNROLL for (int g = 0; g < n_vectors; g++) {
        __m512i x = _mm512_loadu_si512(src + g * VECTOR);
        if (f == KERN_Q8_0) {
            q[g] = x;
        } else if (f == KERN_Q4_0) {
            q[g] = _mm512_and_si512(_mm512_slli_epi16(x, 4), _mm512_set1_epi8((char)0xf0));
            q[g + 4] = _mm512_and_si512(x, _mm512_set1_epi8((char)0xf0));
        } else if (f == KERN_Q4_1) {
            q[g] = _mm512_and_si512(x, _mm512_set1_epi8(0x0f));
            q[g + 4] = _mm512_and_si512(_mm512_srli_epi16(x, 4), _mm512_set1_epi8(0x0f));
        } else {
            q[g] = _mm512_and_si512(_mm512_slli_epi16(x, 3), _mm512_set1_epi8(0x78));
            q[g + 4] = _mm512_and_si512(_mm512_srli_epi16(x, 1), _mm512_set1_epi8(0x78));
        }
    }
    if (!has_bit4(f)) return;
    __m512i bits = _mm512_loadu_si512(src + 4 * VECTOR); /* bit g becomes bit 7 of group g */
    UNROLL for (int g = 7; g >= 0; g--) {
        q[g] = _mm512_ternarylogic_epi32(q[g], bits, _mm512_set1_epi8((char)0x80), 0xf8); /* a | (b & c) */
        bits = _mm512_slli_epi16(bits, 1);
    }
}

INLINE vf q8_half(const void *p) {
    return _mm512_cvtph_ps(_mm256_loadu_si256(p));
}

/* NM input rows from i on by one panel. vpdpbusd adds 4 products of unsigned weight and signed input bytes to
 * each 32-bit lane: |isum| <= 32 * 255 * 127 < 2^21, exact in the integer and in its float. */
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
        __m512i q[8];
        q8_unpack(f, q, panel);
        vf d = q8_half(scales), m = has_m(f) ? q8_half(scales + LANES * 2) : vf_zero();
        if (q8_times(f) != 1.0f) d = vf_mul(d, vf_set(1.0f / q8_times(f)));
        UNROLL for (size_t a = 0; a < NM; a++) {
            const struct kern_act_block *block = (const struct kern_act_block *)(x + a * act_row_bytes);
            __m512i isum = has_m(f) ? _mm512_setzero_si512() : _mm512_set1_epi32(block->bias_sum);
            UNROLL for (int g = 0; g < 8; g++) {
                int32_t four;
                memcpy(&four, block->q + 4 * g, 4);
                isum = _mm512_dpbusd_epi32(isum, q[g], _mm512_set1_epi32(four));
            }
            vf ds = vf_mul(d, vf_set(block->scale));
            sum[a] = vf_fma(ds, _mm512_cvtepi32_ps(isum), sum[a]);
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

const struct kern kern_table_avx512 = {
    .name = "avx512",
    .isa = KERN_ISA_AVX512,
    .mm =
        {
            [KERN_F32] = FLOAT_FAMILY("f32, avx512", KERN_ACT_F32, f32_run),
            [KERN_F16] = FLOAT_FAMILY("f16, avx512", KERN_ACT_F16, f16_run),
            [KERN_BF16] = FLOAT_FAMILY("bf16, avx512", KERN_ACT_BF16, bf16_run),
            [KERN_Q4_0] = Q8_FAMILY("q4_0 x q8, vnni", q4_0_run),
            [KERN_Q4_1] = Q8_FAMILY("q4_1 x q8, vnni", q4_1_run),
            [KERN_Q5_0] = Q8_FAMILY("q5_0 x q8, vnni", q5_0_run),
            [KERN_Q5_1] = Q8_FAMILY("q5_1 x q8, vnni", q5_1_run),
            [KERN_Q8_0] = Q8_FAMILY("q8_0 x q8, vnni", q8_0_run),
            [KERN_Q2_K] = FILE_FAMILY("q2_k x f32, avx512"),
            [KERN_Q3_K] = FILE_FAMILY("q3_k x f32, avx512"),
            [KERN_Q4_K] = FILE_FAMILY("q4_k x f32, avx512"),
            [KERN_Q5_K] = FILE_FAMILY("q5_k x f32, avx512"),
            [KERN_Q6_K] = FILE_FAMILY("q6_k x f32, avx512"),
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
