#include "kern/kern_block.h"
#include "kern/kern_half.h"
#include "kern/kern_ref.h"

#define CHUNK 256 /* elements: a multiple of every format's block */

/* ---- rows kept as the file has them ---- */

size_t ref_mm_file_panel_bytes(const struct kern_matrix *w) {
    return w->k / w->block_elems * w->block_bytes;
}

void ref_mm_file_pack(const struct kern_matrix *w, void *panel, const void *rows, size_t row_bytes,
                      size_t n_rows) {
    if (n_rows > 0) memcpy(panel, rows, ref_mm_file_panel_bytes(w));
}

void ref_mm_file_unpack_row(const struct kern_matrix *w, float *dst, const void *panel, size_t r) {
    w->decode(dst, panel, w->k / w->block_elems);
}

static void store(float *y, double sum, bool add) {
    *y = add ? (float)(*y + sum) : (float)sum;
}

/* y rows from one weight row as float [k] */
static void dot_rows(float *y, size_t y_stride, const float *weights, size_t k, const void *acts,
                     size_t act_row_bytes, size_t m, bool add) {
    for (size_t i = 0; i < m; i++) {
        const float *x = (const float *)((const char *)acts + i * act_row_bytes);
        double sum = 0.0;
        for (size_t j = 0; j < k; j++) sum += (double)x[j] * weights[j];
        store(&y[i * y_stride], sum, add);
    }
}

void ref_mm_file_run(const struct kern_matrix *w, float *y, size_t y_stride, size_t first_panel,
                     size_t n_panels, const void *acts, size_t act_row_bytes, size_t m, bool add,
                     float *scratch) {
    size_t panel_bytes = ref_mm_file_panel_bytes(w);
    for (size_t p = 0; p < n_panels; p++) {
        w->decode(scratch, (const char *)w->panels + (first_panel + p) * panel_bytes, w->k / w->block_elems);
        dot_rows(y + p, y_stride, scratch, w->k, acts, act_row_bytes, m, add);
    }
}

/* ---- block formats by 8-bit inputs ---- */

/* sum over half blocks of d * scale * sum(q * x) + m * scale * sum(x); the inner sums are exact integers.
 * factors: d[2], m[2] of each block. */
static double q8_dot(const float *q, const float *factors, const struct kern_act_block *x, size_t n_blocks) {
    double sum = 0.0;
    for (size_t b = 0; b < n_blocks; b++) {
        for (size_t half = 0; half < 2; half++) {
            int32_t isum = 0;
            for (size_t i = 16 * half; i < 16 * half + 16; i++)
                isum += (int32_t)q[b * KERN_BLOCK + i] * x[b].q[i];
            sum += (double)factors[4 * b + half] * x[b].scale * isum;
            sum += (double)factors[4 * b + 2 + half] * x[b].scale * (x[b].bias_half[half] / -128);
        }
    }
    return sum;
}

void ref_mm_q8_run(const struct kern_matrix *w, float *y, size_t y_stride, size_t first_panel,
                   size_t n_panels, const void *acts, size_t act_row_bytes, size_t m, bool add,
                   float *scratch) {
    size_t n_blocks = w->k / KERN_BLOCK, unit_blocks = kern_unit_blocks(w->format);
    float *q = scratch, *factors = scratch + w->k;
    for (size_t p = 0; p < n_panels; p++) {
        const char *src = (const char *)w->panels + (first_panel + p) * ref_mm_file_panel_bytes(w);
        for (size_t b = 0; b < n_blocks; b++) {
            struct kern_block block;
            kern_block_read(&block, w->format, src + b / unit_blocks * kern_unit_bytes(w->format),
                            b % unit_blocks);
            for (int i = 0; i < KERN_BLOCK; i++) q[b * KERN_BLOCK + i] = block.q[i];
            memcpy(&factors[4 * b], block.d, sizeof block.d);
            memcpy(&factors[4 * b + 2], block.m, sizeof block.m);
        }
        for (size_t i = 0; i < m; i++) {
            const void *x = (const char *)acts + i * act_row_bytes;
            store(&y[i * y_stride + p], q8_dot(q, factors, x, n_blocks), add);
        }
    }
}

/* ---- f32, f16 and bf16 weights, from any source format ---- */

static size_t elem_bytes(const struct kern_matrix *w) {
    return w->mm->act == KERN_ACT_F32 ? 4 : 2;
}

size_t ref_mm_float_panel_bytes(const struct kern_matrix *w) {
    return w->k * elem_bytes(w);
}

void ref_mm_float_pack(const struct kern_matrix *w, void *panel, const void *rows, size_t row_bytes,
                       size_t n_rows) {
    if (n_rows == 0) return;
    for (size_t j = 0; j < w->k; j += CHUNK) {
        float chunk[CHUNK];
        size_t n = w->k - j < CHUNK ? w->k - j : CHUNK;
        w->decode(chunk, (const char *)rows + j / w->block_elems * w->block_bytes, n / w->block_elems);
        for (size_t i = 0; i < n; i++) {
            uint16_t half = w->mm->act == KERN_ACT_F16 ? kern_to_f16(chunk[i]) : kern_to_bf16(chunk[i]);
            const void *src = w->mm->act == KERN_ACT_F32 ? (const void *)&chunk[i] : &half;
            memcpy((char *)panel + (j + i) * elem_bytes(w), src, elem_bytes(w));
        }
    }
}

void ref_mm_float_unpack_row(const struct kern_matrix *w, float *dst, const void *panel, size_t r) {
    for (size_t i = 0; i < w->k; i++) {
        uint16_t half;
        memcpy(&half, (const char *)panel + i * 2, 2);
        if (w->mm->act == KERN_ACT_F32)
            memcpy(&dst[i], (const char *)panel + i * 4, 4);
        else
            dst[i] = w->mm->act == KERN_ACT_F16 ? kern_from_f16(half) : kern_from_bf16(half);
    }
}

void ref_mm_float_run(const struct kern_matrix *w, float *y, size_t y_stride, size_t first_panel,
                      size_t n_panels, const void *acts, size_t act_row_bytes, size_t m, bool add,
                      float *scratch) {
    for (size_t p = 0; p < n_panels; p++) {
        const char *panel = (const char *)w->panels + (first_panel + p) * ref_mm_float_panel_bytes(w);
        ref_mm_float_unpack_row(w, scratch, panel, 0);
        dot_rows(y + p, y_stride, scratch, w->k, acts, act_row_bytes, m, add);
    }
}
