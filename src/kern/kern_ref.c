#include "kern/kern_ref.h"

/* Products with rows kept as in the file, inputs quantized to 8 bits. */
#define Q8_FAMILY(label, multiple)                                                                           \
    {                                                                                                        \
        .name = label, .act = KERN_ACT_Q8, .panel_rows = 1, .k_multiple = multiple,                          \
        .panel_bytes = ref_mm_file_panel_bytes, .pack = ref_mm_file_pack,                                    \
        .unpack_row = ref_mm_file_unpack_row, .run = ref_mm_q8_run                                           \
    }
/* Products with rows kept as in the file, as float when used. */
#define FILE_FAMILY(label)                                                                                   \
    {                                                                                                        \
        .name = label, .act = KERN_ACT_F32, .panel_rows = 1, .k_multiple = 1,                                \
        .panel_bytes = ref_mm_file_panel_bytes, .pack = ref_mm_file_pack,                                    \
        .unpack_row = ref_mm_file_unpack_row, .run = ref_mm_file_run                                         \
    }
#define FLOAT_FAMILY(label, act_kind)                                                                        \
    {                                                                                                        \
        .name = label, .act = act_kind, .panel_rows = 1, .k_multiple = 1,                                    \
        .panel_bytes = ref_mm_float_panel_bytes, .pack = ref_mm_float_pack,                                  \
        .unpack_row = ref_mm_float_unpack_row, .run = ref_mm_float_run                                       \
    }

const struct kern kern_table_ref = {
    .name = "ref",
    .isa = KERN_ISA_REF,
    .mm =
        {
            [KERN_F32] = FLOAT_FAMILY("f32, ref", KERN_ACT_F32),
            [KERN_F16] = FLOAT_FAMILY("f16, ref", KERN_ACT_F16),
            [KERN_BF16] = FLOAT_FAMILY("bf16, ref", KERN_ACT_BF16),
            [KERN_F8_E4M3] = FILE_FAMILY("f8_e4m3 x f32, ref"),
            [KERN_F8_E5M2] = FILE_FAMILY("f8_e5m2 x f32, ref"),
            [KERN_Q4_0] = Q8_FAMILY("q4_0 x q8, ref", 32),
            [KERN_Q4_1] = Q8_FAMILY("q4_1 x q8, ref", 32),
            [KERN_Q5_0] = Q8_FAMILY("q5_0 x q8, ref", 32),
            [KERN_Q5_1] = Q8_FAMILY("q5_1 x q8, ref", 32),
            [KERN_Q8_0] = Q8_FAMILY("q8_0 x q8, ref", 32),
            [KERN_Q2_K] = Q8_FAMILY("q2_k x q8, ref", 256),
            [KERN_Q3_K] = Q8_FAMILY("q3_k x q8, ref", 256),
            [KERN_Q4_K] = Q8_FAMILY("q4_k x q8, ref", 256),
            [KERN_Q5_K] = Q8_FAMILY("q5_k x q8, ref", 256),
            [KERN_Q6_K] = Q8_FAMILY("q6_k x q8, ref", 256),
            [KERN_IQ4_NL] = Q8_FAMILY("iq4_nl x q8, ref", 32),
            [KERN_IQ4_XS] = Q8_FAMILY("iq4_xs x q8, ref", 256),
            [KERN_MXFP4] = Q8_FAMILY("mxfp4 x q8, ref", 32),
        },
    .act_row_bytes = ref_act_row_bytes,
    .act_pack =
        {
            [KERN_ACT_F32] = ref_act_pack_f32,
            [KERN_ACT_F16] = ref_act_pack_f16,
            [KERN_ACT_BF16] = ref_act_pack_bf16,
            [KERN_ACT_Q8] = ref_act_pack_q8,
        },
    .attn =
        {
            [KERN_KV_F32] = {.name = "f32",
                             .act = KERN_ACT_F32,
                             .elem_bytes = 4,
                             .write_k = ref_attn_write_k_f32,
                             .write_v = ref_attn_write_v_f32,
                             .read_k = ref_attn_read_k_f32,
                             .read_v = ref_attn_read_v_f32,
                             .partition = ref_attn_partition_f32},
            [KERN_KV_F16] = {.name = "f16",
                             .act = KERN_ACT_F32,
                             .elem_bytes = 2,
                             .write_k = ref_attn_write_k_f16,
                             .write_v = ref_attn_write_v_f16,
                             .read_k = ref_attn_read_k_f16,
                             .read_v = ref_attn_read_v_f16,
                             .partition = ref_attn_partition_f16},
            [KERN_KV_BF16] = {.name = "bf16",
                              .act = KERN_ACT_F32,
                              .elem_bytes = 2,
                              .write_k = ref_attn_write_k_bf16,
                              .write_v = ref_attn_write_v_bf16,
                              .read_k = ref_attn_read_k_bf16,
                              .read_v = ref_attn_read_v_bf16,
                              .partition = ref_attn_partition_bf16},
        },
    .attn_rows =
        {
            [KERN_KV_F32] = {.name = "f32 rows",
                             .act = KERN_ACT_F32,
                             .elem_bytes = 4,
                             .write_k = ref_attn_write_row_f32,
                             .read_k = ref_attn_read_v_f32,
                             .partition = ref_attn_partition_rows_f32},
            [KERN_KV_F16] = {.name = "f16 rows",
                             .act = KERN_ACT_F32,
                             .elem_bytes = 2,
                             .write_k = ref_attn_write_row_f16,
                             .read_k = ref_attn_read_v_f16,
                             .partition = ref_attn_partition_rows_f16},
            [KERN_KV_BF16] = {.name = "bf16 rows",
                              .act = KERN_ACT_F32,
                              .elem_bytes = 2,
                              .write_k = ref_attn_write_row_bf16,
                              .read_k = ref_attn_read_v_bf16,
                              .partition = ref_attn_partition_rows_bf16},
        },
    .attn_combine = ref_attn_combine,
    .rms_norm = ref_rms_norm,
    .layer_norm = ref_layer_norm,
    .rope = ref_rope,
    .swiglu = ref_swiglu,
    .geglu = ref_geglu,
    .swiglu_clamped = ref_swiglu_clamped,
    .gelu = ref_gelu,
    .soft_cap = ref_soft_cap,
    .add = ref_add,
    .scale = ref_scale,
    .round_to = ref_round_to,
    .logits_scan = ref_logits_scan,
    .log_sum_exp = ref_log_sum_exp,
    .softmax_terms = ref_softmax_terms,
};
