#include "weights/check.h"
#include "base/error.h"
#include "base/size.h"
#include "weights/half.h"
#include "weights/weights_impl.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- numbers ---- */

enum number {
    NO_FLOAT,
    BINARY64,
    BINARY32,
    BINARY16,
    BFLOAT16,
    E5M2,
    E4M3,     /* no infinity, one NaN of either sign; as a scale its sign has no meaning */
    E8M0,     /* an exponent: 255 is NaN */
    NIBBLES16 /* binary16 in the upper nibbles of four u16 */
};

/* Where a block has floats: n of them, one after the other. */
struct place {
    enum number number;
    uint8_t n, at;
};

/* As decode.c describes the formats; of those that it does not decode, the gguf package. */
static const struct place PLACES[TENSOR_TYPE_END] = {
    [TENSOR_F32] = {BINARY32, 1, 0},
    [TENSOR_F16] = {BINARY16, 1, 0},
    [TENSOR_BF16] = {BFLOAT16, 1, 0},
    [TENSOR_F8_E4M3] = {E4M3, 1, 0},
    [TENSOR_F8_E5M2] = {E5M2, 1, 0},
    [28] = {BINARY64, 1, 0},
    [TENSOR_Q4_0] = {BINARY16, 1, 0},
    [TENSOR_Q4_1] = {BINARY16, 2, 0},
    [TENSOR_Q5_0] = {BINARY16, 1, 0},
    [TENSOR_Q5_1] = {BINARY16, 2, 0},
    [TENSOR_Q8_0] = {BINARY16, 1, 0},
    [9] = {BINARY16, 2, 0}, /* Q8_1 */
    [TENSOR_Q2_K] = {BINARY16, 2, 80},
    [TENSOR_Q3_K] = {BINARY16, 1, 108},
    [TENSOR_Q4_K] = {BINARY16, 2, 0},
    [TENSOR_Q5_K] = {BINARY16, 2, 0},
    [TENSOR_Q6_K] = {BINARY16, 1, 208},
    [15] = {BINARY32, 1, 0}, /* Q8_K */
    [16] = {BINARY16, 1, 0}, /* IQ2_XXS */
    [17] = {BINARY16, 1, 0}, /* IQ2_XS */
    [18] = {BINARY16, 1, 0}, /* IQ3_XXS */
    [19] = {BINARY16, 1, 0}, /* IQ1_S */
    [TENSOR_IQ4_NL] = {BINARY16, 1, 0},
    [21] = {BINARY16, 1, 0}, /* IQ3_S */
    [22] = {BINARY16, 1, 0}, /* IQ2_S */
    [TENSOR_IQ4_XS] = {BINARY16, 1, 0},
    [29] = {NIBBLES16, 1, 48}, /* IQ1_M */
    [TENSOR_TQ1_0] = {BINARY16, 1, 52},
    [TENSOR_TQ2_0] = {BINARY16, 1, 64},
    [TENSOR_MXFP4] = {E8M0, 1, 0},
    [TENSOR_NVFP4] = {E4M3, 4, 0},
    [41] = {BINARY16, 1, 0}, /* Q1_0 */
    [42] = {BINARY16, 1, 0}, /* Q2_0 */
};

static uint64_t load(const uint8_t *p, size_t n) {
    uint64_t v = 0;
    for (size_t i = 0; i < n; i++) v |= (uint64_t)p[i] << (8 * i);
    return v;
}

/* IEEE formats: an exponent of ones, then nothing (infinity) or something. */
static void count(uint64_t bits, unsigned mantissa_bits, unsigned exponent_bits, struct float_faults *sum) {
    uint64_t ones = ((uint64_t)1 << exponent_bits) - 1;
    if ((bits >> mantissa_bits & ones) != ones) return;
    if (bits & (((uint64_t)1 << mantissa_bits) - 1))
        sum->n_nan++;
    else
        sum->n_inf++;
}

/* The largest exponents overflow only with large elements. */
static void count_exponent(const uint8_t *block, struct float_faults *sum) {
    float v[32];
    bool overflows = false;
    if (block[0] < 253) return;
    if (block[0] == 255) {
        sum->n_nan++;
        return;
    }
    tensor_type_info(TENSOR_MXFP4)->decode(v, block, 1);
    for (size_t i = 0; i < 32; i++) overflows |= !isfinite(v[i]);
    sum->n_inf += overflows;
}

/* The four upper nibbles, the lowest first. */
static uint64_t from_nibbles(const uint8_t *p) {
    uint64_t v = 0;
    for (unsigned i = 0; i < 4; i++) v |= (uint64_t)(p[2 * i + 1] >> 4) << (4 * i);
    return v;
}

static void count_block(const struct place *place, const uint8_t *block, struct float_faults *sum) {
    const uint8_t *p = block + place->at;
    for (size_t i = 0; i < place->n; i++) {
        switch (place->number) {
        case NO_FLOAT: break;
        case BINARY64: count(load(p + 8 * i, 8), 52, 11, sum); break;
        case BINARY32: count(load(p + 4 * i, 4), 23, 8, sum); break;
        case BINARY16: count(load(p + 2 * i, 2), 10, 5, sum); break;
        case BFLOAT16: count(load(p + 2 * i, 2), 7, 8, sum); break;
        case E5M2: count(p[i], 2, 5, sum); break;
        case E4M3: sum->n_nan += (p[i] & 0x7f) == 0x7f; break;
        case E8M0: count_exponent(block, sum); break;
        case NIBBLES16: count(from_nibbles(p), 10, 5, sum); break;
        }
    }
}

/* Numbers of plain arrays, eight bytes at a time: words without an exponent of ones, which is what nearly all
 * are, are passed over. Returns how many numbers that were. */
static size_t skip_finite(enum tensor_type type, const uint8_t *p, size_t n) {
    uint64_t ones = type == TENSOR_F32    ? 0x7f8000007f800000
                    : type == TENSOR_F16  ? 0x7c007c007c007c00
                    : type == TENSOR_BF16 ? 0x7f807f807f807f80
                                          : 0;
    uint64_t low = type == TENSOR_F32 ? 0x0000000100000001 : 0x0001000100010001;
    uint64_t top = type == TENSOR_F32 ? 0x8000000080000000 : 0x8000800080008000;
    size_t step = type == TENSOR_F32 ? 2 : 4, i = 0;
    if (!ones) return 0;
    for (; i + step <= n; i += step, p += 8) {
        uint64_t word;
        memcpy(&word, p, sizeof word);
        uint64_t missing = (word & ones) ^ ones; /* a lane of it is 0 where all bits are there */
        if ((missing - low) & ~missing & top) break;
    }
    return i;
}

void check_floats(enum tensor_type type, const void *blocks, size_t n_blocks, struct float_faults *sum) {
    size_t block_bytes = tensor_type_info(type)->block_bytes;
    const struct place *place = &PLACES[type];
    const uint8_t *p = blocks;
    if (place->number == NO_FLOAT) return;
    for (size_t i = 0; i < n_blocks; i++) {
        i += skip_finite(type, p + i * block_bytes, n_blocks - i);
        if (i < n_blocks) count_block(place, p + i * block_bytes, sum);
    }
}

/* ---- gaps ---- */

static int by_offset(const void *a, const void *b) {
    const struct tensor *x = *(const struct tensor *const *)a, *y = *(const struct tensor *const *)b;
    return x->data < y->data ? -1 : x->data > y->data;
}

/* Bytes [begin, end) of a file, between two things that have names. */
static int check_gap(const struct weights *file, size_t begin, size_t end, const char *after,
                     struct error *err) {
    uint8_t padding[4096];
    size_t n = end - begin, piece;
    if (n >= file->alignment)
        return error_set(err, QUIRE_EFORMAT, "%zu bytes at offset %zu, after %s, belong to no tensor", n,
                         begin, after);
    for (; begin < end; begin += piece) {
        piece = size_min(end - begin, sizeof padding);
        int rc = file_map_read(&file->map, begin, piece, padding, err);
        if (rc) return rc;
        for (size_t i = 0; i < piece; i++)
            if (padding[i])
                return error_set(err, QUIRE_EFORMAT,
                                 "byte %zu, in the padding after %s, is 0x%02x; padding is 0", begin + i,
                                 after, padding[i]);
    }
    return QUIRE_OK;
}

/* sorted: the tensors of a file. */
static int check_file(const struct weights *file, const struct tensor **sorted, size_t n, struct error *err) {
    char after[128] = "the tensor descriptions";
    size_t at = file->descriptions_end;
    qsort(sorted, n, sizeof *sorted, by_offset);
    for (size_t i = 0; i <= n; i++) {
        size_t next = i < n ? (size_t)((const uint8_t *)sorted[i]->data - file->map.base) : file->map.n;
        int rc = check_gap(file, at, next, after, err);
        if (rc) return rc;
        if (i == n) break;
        at = next + sorted[i]->bytes;
        snprintf(after, sizeof after, "tensor \"%s\"", sorted[i]->name);
    }
    return QUIRE_OK;
}

int check_gaps(const struct weights *w, struct error *err) {
    if (w->is_folder) return QUIRE_OK; /* the reader of safetensors refuses them */
    const struct tensor **sorted = calloc(w->n_tensors + 1, sizeof *sorted);
    int rc = sorted ? QUIRE_OK : error_set(err, QUIRE_ENOMEM, "out of memory");
    for (size_t f = 0; f < weights_n_files(w) && !rc; f++) {
        size_t n = 0;
        for (size_t i = 0; i < w->n_tensors; i++)
            if (w->tensors[i].file == f) sorted[n++] = &w->tensors[i];
        rc = check_file(weights_file(w, f), sorted, n, err);
        if (rc) error_prefix(err, "%s", weights_file_path(w, f));
    }
    free(sorted);
    return rc;
}
