#include "weights/tensor.h"
#include "weights/decode.h"

#define DECODED(name, elems, bytes, decode)                                                                  \
    { name, elems, bytes, true, NULL, decode }
#define KNOWN(name, elems, bytes, instead)                                                                   \
    { name, elems, bytes, false, instead, NULL }
#define REMOVED(name, instead)                                                                               \
    { name, 0, 0, false, "it was removed from GGUF; " instead, NULL }

/* Ids, names and sizes as in the GGUF specification and ggml; names of 8-bit floats as in safetensors. */
static const struct tensor_type_info TYPES[] = {
    [TENSOR_F32] = DECODED("F32", 1, 4, decode_f32),
    [TENSOR_F16] = DECODED("F16", 1, 2, decode_f16),
    [TENSOR_Q4_0] = DECODED("Q4_0", 32, 18, decode_q4_0),
    [TENSOR_Q4_1] = DECODED("Q4_1", 32, 20, decode_q4_1),
    [4] = REMOVED("Q4_2", "use Q4_0 or Q4_K"),
    [5] = REMOVED("Q4_3", "use Q4_1 or Q4_K"),
    [TENSOR_Q5_0] = DECODED("Q5_0", 32, 22, decode_q5_0),
    [TENSOR_Q5_1] = DECODED("Q5_1", 32, 24, decode_q5_1),
    [TENSOR_Q8_0] = DECODED("Q8_0", 32, 34, decode_q8_0),
    [9] = KNOWN("Q8_1", 32, 36, "it is a format of activations; use Q8_0"),
    [TENSOR_Q2_K] = DECODED("Q2_K", 256, 84, decode_q2_k),
    [TENSOR_Q3_K] = DECODED("Q3_K", 256, 110, decode_q3_k),
    [TENSOR_Q4_K] = DECODED("Q4_K", 256, 144, decode_q4_k),
    [TENSOR_Q5_K] = DECODED("Q5_K", 256, 176, decode_q5_k),
    [TENSOR_Q6_K] = DECODED("Q6_K", 256, 210, decode_q6_k),
    [15] = KNOWN("Q8_K", 256, 292, "it is a format of activations; use Q8_0"),
    [16] = KNOWN("IQ2_XXS", 256, 66, "use Q2_K"),
    [17] = KNOWN("IQ2_XS", 256, 74, "use Q2_K"),
    [18] = KNOWN("IQ3_XXS", 256, 98, "use Q3_K"),
    [19] = KNOWN("IQ1_S", 256, 50, "use Q2_K"),
    [TENSOR_IQ4_NL] = DECODED("IQ4_NL", 32, 18, decode_iq4_nl),
    [21] = KNOWN("IQ3_S", 256, 110, "use Q3_K"),
    [22] = KNOWN("IQ2_S", 256, 82, "use Q2_K"),
    [TENSOR_IQ4_XS] = DECODED("IQ4_XS", 256, 136, decode_iq4_xs),
    [24] = KNOWN("I8", 1, 1, "use F32, F16 or BF16"),
    [25] = KNOWN("I16", 1, 2, "use F32, F16 or BF16"),
    [26] = KNOWN("I32", 1, 4, "use F32, F16 or BF16"),
    [27] = KNOWN("I64", 1, 8, "use F32, F16 or BF16"),
    [28] = KNOWN("F64", 1, 8, "use F32"),
    [29] = KNOWN("IQ1_M", 256, 56, "use Q2_K"),
    [TENSOR_BF16] = DECODED("BF16", 1, 2, decode_bf16),
    [31] = REMOVED("Q4_0_4_4", "use Q4_0"),
    [32] = REMOVED("Q4_0_4_8", "use Q4_0"),
    [33] = REMOVED("Q4_0_8_8", "use Q4_0"),
    [TENSOR_TQ1_0] = DECODED("TQ1_0", 256, 54, decode_tq1_0),
    [TENSOR_TQ2_0] = DECODED("TQ2_0", 256, 66, decode_tq2_0),
    [36] = REMOVED("IQ4_NL_4_4", "use Q4_0"),
    [37] = REMOVED("IQ4_NL_4_8", "use Q4_0"),
    [38] = REMOVED("IQ4_NL_8_8", "use Q4_0"),
    [TENSOR_MXFP4] = DECODED("MXFP4", 32, 17, decode_mxfp4),
    [TENSOR_NVFP4] = DECODED("NVFP4", 64, 36, decode_nvfp4),
    [41] = KNOWN("Q1_0", 128, 18, "use Q2_K"),
    [42] = KNOWN("Q2_0", 64, 18, "use Q2_K"),
    [TENSOR_U8] = KNOWN("U8", 1, 1, "use F32, F16 or BF16"),
    [TENSOR_F8_E4M3] = DECODED("F8_E4M3", 1, 1, decode_f8_e4m3),
    [TENSOR_F8_E5M2] = DECODED("F8_E5M2", 1, 1, decode_f8_e5m2),
};

_Static_assert(sizeof TYPES / sizeof *TYPES <= TENSOR_TYPE_END, "ids stay below TENSOR_TYPE_END");

const struct tensor_type_info *tensor_type_info(uint32_t type) {
    if (type >= sizeof TYPES / sizeof *TYPES) return NULL;
    return TYPES[type].name ? &TYPES[type] : NULL;
}

void tensor_row_f32(float *dst, const struct tensor *t, size_t row) {
    const struct tensor_type_info *info = tensor_type_info(t->type);
    info->decode(dst, (const unsigned char *)t->data + row * t->row_bytes, t->dims[0] / info->block_elems);
}
