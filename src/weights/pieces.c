/* Reading tensors that a file does not have in one piece. */
#include "base/error.h"
#include "base/size.h"
#include "weights/weights_impl.h"

#include <string.h>

#define CHUNK_BYTES 4096

/* n bytes at an address of a file's mapping. */
static int read_from(const struct weights *w, unsigned file, const uint8_t *at, size_t n, void *dst,
                     struct error *err) {
    const struct file_map *map = &weights_file(w, file)->map;
    return file_map_read(map, (size_t)(at - map->base), n, dst, err);
}

/* Rows one after the other, as far as they lie so. at: bytes from the beginning of row r of a piece. Each of
 * these returns in *n how many bytes it has read of those it was asked for. */
static int read_rows(const struct weights *w, const struct tensor *t, const struct tensor_piece *piece,
                     size_t r, size_t at, size_t *n, uint8_t *dst, struct error *err) {
    const struct tensor_parts *p = t->parts;
    size_t n_rows = p->step == 1 ? p->n_rows - r : 1;
    *n = size_min(*n, n_rows * t->row_bytes - at);
    return read_from(w, piece->file, piece->data + (p->first + p->step * r) * t->row_bytes + at, *n, dst,
                     err);
}

/* Blocks of 32 elements: the file has 16 bytes of two elements each, the even one in the low bits, and the
 * scales (E8M0) in a tensor of their own; GGUF has the scale, then 16 bytes of which the low bits are
 * elements 0 to 15. Both formats: OCP Microscaling 1.0, the elements as E2M1. */
enum { MX_BYTES = 16, MX_BLOCK_BYTES = MX_BYTES + 1 };

static void mx_block(uint8_t dst[MX_BLOCK_BYTES], const uint8_t src[MX_BYTES], uint8_t scale) {
    dst[0] = scale;
    for (size_t i = 0; i < MX_BYTES; i++) {
        unsigned low = src[i / 2] >> 4 * (i % 2) & 15, high = src[MX_BYTES / 2 + i / 2] >> 4 * (i % 2) & 15;
        dst[1 + i] = (uint8_t)(low | high << 4);
    }
}

static int read_mxfp4(const struct weights *w, const struct tensor *t, const struct tensor_piece *piece,
                      size_t r, size_t at, size_t *n, uint8_t *dst, struct error *err) {
    const struct tensor_parts *p = t->parts;
    uint8_t blocks[CHUNK_BYTES], scales[CHUNK_BYTES / MX_BYTES];
    size_t per_row = t->row_bytes / MX_BLOCK_BYTES;
    size_t first = (p->first + p->step * r) * per_row + at / MX_BLOCK_BYTES;
    size_t count = size_min(size_min(*n, t->row_bytes - at) / MX_BLOCK_BYTES, sizeof scales);
    int rc = read_from(w, piece->file, piece->data + first * MX_BYTES, count * MX_BYTES, blocks, err);
    if (!rc) rc = read_from(w, piece->scales_file, piece->scales + first, count, scales, err);
    for (size_t i = 0; i < count && !rc; i++)
        mx_block(dst + i * MX_BLOCK_BYTES, blocks + i * MX_BYTES, scales[i]);
    *n = count * MX_BLOCK_BYTES;
    return rc;
}

static int read_elements(const struct weights *w, const struct tensor *t, const struct tensor_piece *piece,
                         size_t at, size_t *n, uint8_t *dst, struct error *err) {
    const struct tensor_parts *p = t->parts;
    uint8_t raw[CHUNK_BYTES];
    size_t size = tensor_type_info(t->type)->block_bytes, step = p->step * size;
    size_t count = size_min(size_min(*n, t->row_bytes - at) / size, sizeof raw / step);
    const uint8_t *from = piece->data + p->first * size + at / size * step;
    int rc = read_from(w, piece->file, from, (count - 1) * step + size, raw, err);
    for (size_t i = 0; i < count && !rc; i++) memcpy(dst + i * size, raw + i * step, size);
    *n = count * size;
    return rc;
}

/* As many rows at once as there are whole ones: a row of the file has something of each. */
static int read_columns(const struct weights *w, const struct tensor *t, const struct tensor_piece *piece,
                        size_t r, size_t at, size_t *n, uint8_t *dst, struct error *err) {
    const struct tensor_parts *p = t->parts;
    uint8_t raw[CHUNK_BYTES];
    size_t size = tensor_type_info(t->type)->block_bytes, step = p->step * size;
    size_t rows = at ? 1 : size_min(size_min(*n / t->row_bytes, p->n_rows - r), sizeof raw / step);
    if (!rows) rows = 1;
    size_t count = size_min(*n, t->row_bytes - at) / size; /* of each row; all of it if there are several */
    int rc = 0;
    for (size_t c = 0; c < count && !rc; c++) {
        const uint8_t *from = piece->data + (at / size + c) * p->stride_bytes + p->first * size + r * step;
        rc = read_from(w, piece->file, from, (rows - 1) * step + size, raw, err);
        for (size_t i = 0; i < rows && !rc; i++)
            memcpy(dst + i * t->row_bytes + c * size, raw + i * step, size);
    }
    *n = rows > 1 ? rows * t->row_bytes : count * size;
    return rc;
}

enum { SCALED_ELEMS = 8192, SCALED_BLOCKS = SCALED_ELEMS / PIECES_MIN_BLOCK + 2 };

/* The scales of columns [first, first + n) of row r. */
static int read_scales(const struct weights *w, const struct tensor *t, const struct tensor_piece *piece,
                       size_t r, size_t first, size_t n, float scales[SCALED_BLOCKS], struct error *err) {
    const struct tensor_scales *s = &t->parts->scaled;
    const struct tensor_type_info *type = tensor_type_info(s->type);
    size_t begin = first / s->cols, count = (first + n - 1) / s->cols + 1 - begin;
    uint8_t raw[SCALED_BLOCKS * 4];
    const uint8_t *from = piece->scales + (r / s->rows * s->per_row + begin) * type->block_bytes;
    int rc = read_from(w, piece->scales_file, from, count * type->block_bytes, raw, err);
    if (!rc) type->decode(scales, raw, count);
    return rc;
}

/* Elements times the scale of their block, as float32 multiplies them. */
static int read_scaled(const struct weights *w, const struct tensor *t, const struct tensor_piece *piece,
                       size_t r, size_t at, size_t *n, uint8_t *dst, struct error *err) {
    const struct tensor_scales *s = &t->parts->scaled;
    const struct tensor_type_info *type = tensor_type_info(s->elem);
    uint8_t raw[SCALED_ELEMS];
    float values[SCALED_ELEMS], scales[SCALED_BLOCKS];
    size_t first = at / sizeof *values;
    size_t count = size_min(size_min(*n, t->row_bytes - at) / sizeof *values, SCALED_ELEMS);
    const uint8_t *from = piece->data + r * t->dims[0] + first; /* a byte each */
    int rc = read_from(w, piece->file, from, count, raw, err);
    if (!rc) rc = read_scales(w, t, piece, r, first, count, scales, err);
    *n = count * sizeof *values;
    if (rc) return rc;
    type->decode(values, raw, count);
    for (size_t i = 0; i < count; i++) values[i] *= scales[(first + i) / s->cols - first / s->cols];
    memcpy(dst, values, *n);
    return 0;
}

int pieces_read(const struct weights *w, const struct tensor *t, size_t offset, size_t n, void *dst,
                struct error *err) {
    const struct tensor_parts *p = t->parts;
    uint8_t *out = dst;
    int rc = 0;
    for (size_t done = 0, got; done < n && !rc; done += got) {
        size_t row = (offset + done) / t->row_bytes, at = (offset + done) % t->row_bytes;
        const struct tensor_piece *piece = &p->pieces[row / p->n_rows];
        got = n - done;
        switch (p->kind) {
        case PIECES_ROWS: rc = read_rows(w, t, piece, row % p->n_rows, at, &got, out + done, err); break;
        case PIECES_MXFP4: rc = read_mxfp4(w, t, piece, row % p->n_rows, at, &got, out + done, err); break;
        case PIECES_COLUMNS:
            rc = read_columns(w, t, piece, row % p->n_rows, at, &got, out + done, err);
            break;
        case PIECES_ELEMENTS: rc = read_elements(w, t, piece, at, &got, out + done, err); break;
        case PIECES_SCALED: rc = read_scaled(w, t, piece, row % p->n_rows, at, &got, out + done, err); break;
        }
    }
    return rc;
}
