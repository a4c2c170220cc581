/* Tensors as model files describe them, and the element formats they use. Ids below TENSOR_GGUF_END are GGUF's;
 * above are formats that GGUF does not have. */
#ifndef WEIGHTS_TENSOR_H
#define WEIGHTS_TENSOR_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum tensor_type {
    TENSOR_F32 = 0,
    TENSOR_F16 = 1,
    TENSOR_Q4_0 = 2,
    TENSOR_Q4_1 = 3,
    TENSOR_Q5_0 = 6,
    TENSOR_Q5_1 = 7,
    TENSOR_Q8_0 = 8,
    TENSOR_Q2_K = 10,
    TENSOR_Q3_K = 11,
    TENSOR_Q4_K = 12,
    TENSOR_Q5_K = 13,
    TENSOR_Q6_K = 14,
    TENSOR_IQ4_NL = 20,
    TENSOR_IQ4_XS = 23,
    TENSOR_BF16 = 30,
    TENSOR_MXFP4 = 39,
    TENSOR_GGUF_END = 60,
    TENSOR_F8_E4M3 = 62,
    TENSOR_F8_E5M2 = 63,
    TENSOR_TYPE_END = 64 /* ids are below this */
};

struct tensor_type_info {
    const char *name;   /* "Q4_1" */
    size_t block_elems; /* elements of a block; a row is a whole number of blocks. 0: an id that GGUF has
                           removed */
    size_t block_bytes;
    bool decodable;      /* false: known by name, refused with what to use instead */
    const char *instead; /* what to use when it is not decodable, for messages; else NULL */
    /* Decodes n_blocks blocks to float; NULL when not decodable. src need not be aligned. The C reference of
     * the format; see its description in decode.c. */
    void (*decode)(float *dst, const void *src, size_t n_blocks);
};

/* NULL for an unknown id. */
const struct tensor_type_info *tensor_type_info(uint32_t type);

#define TENSOR_MAX_DIMS 4

struct tensor {
    const char *name;
    enum tensor_type type;
    unsigned n_dims;
    size_t dims[TENSOR_MAX_DIMS]; /* dims[0] is the row length (contiguous); unused ones are 1 */
    const void *data; /* row r of a matrix is at data + r * row_bytes; see weights_read; aligned to 8 */
    size_t row_bytes, bytes;
};

static inline size_t tensor_rows(const struct tensor *t) {
    return t->dims[1] * t->dims[2] * t->dims[3];
}

/* Row r < tensor_rows(t) as float [dims[0]]; the type is decodable. */
void tensor_row_f32(float *dst, const struct tensor *t, size_t row);

#endif
