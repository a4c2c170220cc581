/* Tensors as model files describe them, and the element formats they use. Ids below TENSOR_GGUF_END are
 * GGUF's; above are formats that GGUF does not have. */
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
    TENSOR_TQ1_0 = 34,
    TENSOR_TQ2_0 = 35,
    TENSOR_MXFP4 = 39,
    TENSOR_NVFP4 = 40,
    TENSOR_GGUF_END = 60,
    TENSOR_U8 = 61, /* bytes that other tensors are made of */
    TENSOR_F8_E4M3 = 62,
    TENSOR_F8_E5M2 = 63,
    TENSOR_TYPE_END = 64 /* ids are below this */
};

struct tensor_type_info {
    const char *name;   /* "Q4_1" */
    size_t block_elems; /* elements of a block; a row is a whole number of blocks. 0: an id that GGUF has
                           removed */
    size_t block_bytes;
    bool loadable;       /* false: known by name, refused with what to use instead */
    const char *instead; /* what to use when it is not loadable, for messages; else NULL */
    /* Decodes n_blocks blocks to float; NULL for those that are not loadable. src need not be aligned. The C
     * reference of the format; see its description in decode.c. */
    void (*decode)(float *dst, const void *src, size_t n_blocks);
};

/* NULL for an unknown id. */
const struct tensor_type_info *tensor_type_info(uint32_t type);

#define TENSOR_MAX_DIMS 4

/* A tensor that its file does not have in one piece: what each expert has, or what is mixed with another's.
 * Piece p holds rows [p * n_rows, (p + 1) * n_rows). */
enum tensor_pieces {
    PIECES_ROWS,     /* row r of a piece is the file's row first + step * r, counted from data */
    PIECES_MXFP4,    /* likewise, with the blocks' scales apart; see pieces.c */
    PIECES_ELEMENTS, /* n_rows is 1: element i is the file's element first + step * i */
    PIECES_COLUMNS,  /* element c of row r is element first + step * r of the file's row c */
    PIECES_SCALED    /* likewise rows, of floats: the file's elements times the scale of their block */
};

/* Of PIECES_SCALED: blocks of rows x cols elements have a scale each, in rows of per_row. */
struct tensor_scales {
    enum tensor_type elem, type; /* of the file's elements and of the scales: float types, a value each */
    size_t rows, cols, per_row;
};

struct tensor_piece {
    const uint8_t *data, *scales; /* addresses in the mappings of files */
    unsigned file, scales_file;
};

struct tensor_parts {
    enum tensor_pieces kind;
    size_t n_rows, first, step;
    size_t stride_bytes; /* PIECES_COLUMNS: from a row of the file to the next */
    struct tensor_scales scaled;
    size_t stored_bytes; /* in files, if that is not the tensor's bytes; else 0 */
    size_t n;
    struct tensor_piece pieces[];
};

#define TENSOR_IN_MEMORY (~0u)

struct tensor {
    const char *name;
    const char *label; /* what the file calls it, if that is not its name; else NULL */
    enum tensor_type type;
    unsigned n_dims;
    size_t dims[TENSOR_MAX_DIMS]; /* dims[0] is the row length (contiguous); unused ones are 1 */
    const void *data; /* row r of a matrix is at data + r * row_bytes; see weights_read. NULL if in parts */
    const struct tensor_parts *parts; /* or NULL */
    size_t row_bytes, bytes;
    unsigned file; /* of a model in several: which, from 0; TENSOR_IN_MEMORY: made from metadata */
    bool plus_one; /* what is stored is the difference from 1 */
    const struct tensor *scale; /* F32, one number or one for each of dims[2]: what the elements are to be
                                   multiplied by; or NULL. See gguf_scales.c */
    bool is_scale;              /* of another tensor, or of its inputs: no weight of its own */
};

/* For messages. */
static inline const char *tensor_label(const struct tensor *t) {
    return t->label ? t->label : t->name;
}

/* As files have it. */
static inline enum tensor_type tensor_stored_type(const struct tensor *t) {
    return t->parts && t->parts->kind == PIECES_SCALED ? t->parts->scaled.elem : t->type;
}
static inline size_t tensor_stored_bytes(const struct tensor *t) {
    return t->parts && t->parts->stored_bytes ? t->parts->stored_bytes : t->bytes;
}

static inline size_t tensor_rows(const struct tensor *t) {
    return t->dims[1] * t->dims[2] * t->dims[3];
}

/* Row r < tensor_rows(t) as float [dims[0]]; the type has a decoder, and the tensor is in one part. */
void tensor_row_f32(float *dst, const struct tensor *t, size_t row);

#endif
