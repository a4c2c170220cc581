/* Matrix products: against a double-precision product of the decoded weights with the inputs as packed, with
 * derived bounds; and law 1 as equality of bits. */
#include "check.h"

#include "kern/kern_block.h"
#include "kern/kern_half.h"
#include "kern/kern_ref.h"
#include "weights/tensor.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct problem {
    struct check *c;
    enum kern_format format, source; /* as used, and in the file */
    size_t rows, k, m, row_bytes, act_row_bytes, y_stride;
    enum fill fill;
    enum side side;
    struct kern_matrix w;
    struct guarded file, panels, acts, x, y, scratch;
    double largest;      /* of magnitudes of weights and inputs, at least 1 */
    double *want, *size; /* [m][rows]: the product, and the sum of magnitudes that bounds its error */
};

static const enum kern_format formats[] = {KERN_F32,   KERN_F16,     KERN_BF16,   KERN_Q4_0,   KERN_Q4_1,
                                           KERN_Q5_0,  KERN_Q5_1,    KERN_Q8_0,   KERN_Q2_K,   KERN_Q3_K,
                                           KERN_Q4_K,  KERN_Q5_K,    KERN_Q6_K,   KERN_IQ4_NL, KERN_IQ4_XS,
                                           KERN_MXFP4, KERN_F8_E4M3, KERN_F8_E5M2};

static bool is_float(enum kern_format f) {
    return !kern_is_block_format(f);
}

/* ---- weights ---- */

static void put_half(uint8_t *p, float x) {
    uint16_t h = kern_to_f16(x);
    memcpy(p, &h, 2);
}

/* Where the half-precision factors of a block are (MXFP4: its exponent), and how many bytes; the format
 * descriptions are in weights/decode.c. */
static uint8_t *factors_of(uint8_t *block, enum kern_format f, size_t bytes, size_t *n) {
    switch (f) {
    case KERN_MXFP4: *n = 1; return block;
    case KERN_Q4_1:
    case KERN_Q5_1:
    case KERN_Q4_K:
    case KERN_Q5_K: *n = 4; return block;
    case KERN_Q2_K: *n = 4; return block + bytes - 4;
    case KERN_Q3_K:
    case KERN_Q6_K: *n = 2; return block + bytes - 2;
    default: *n = 2; return block;
    }
}

/* Random bytes are valid quants and integer scales in all formats; the factors are set to sensible values. */
static void fill_block(struct check *c, uint8_t *block, enum kern_format f, size_t bytes, float scale) {
    size_t n;
    uint8_t *factors = factors_of(block, f, bytes, &n);
    for (size_t i = 0; i < bytes; i++) block[i] = (uint8_t)check_random(c);
    float d = check_uniform(c, -1.0f, 1.0f) * scale, m = check_uniform(c, -8.0f, 1.0f) * scale;
    if (n == 1)
        *factors = (uint8_t)(scale == 0.0f ? 0 : 128 + ilogb(scale) - (int)check_below(c, 3));
    else
        put_half(factors, d);
    if (n == 4) put_half(factors + 2, m);
}

/* All quants of a block, and its integer scales, at an end of their range. */
static void extreme_block(uint8_t *block, enum kern_format f, size_t bytes, int which) {
    size_t n;
    uint8_t kept[4], *factors = factors_of(block, f, bytes, &n);
    const uint8_t other = f == KERN_Q8_0 || f == KERN_Q6_K ? 0x80 : 0x77;
    memcpy(kept, factors, n);
    memset(block, which == 0 ? 0xff : which == 1 ? 0x00 : other, bytes);
    memcpy(factors, kept, n);
}

/* Floats that the product's type can hold: "wide" reaches 2^23, half only 2^16. */
static void fill_floats(struct problem *p, float *x, size_t n, enum fill fill) {
    check_fill(p->c, x, n, fill);
    if (fill == FILL_WIDE && (p->format == KERN_F16 || p->source == KERN_F16))
        for (size_t i = 0; i < n; i++) x[i] *= 0x1p-8f;
}

static bool is_f8(enum kern_format f) {
    return f == KERN_F8_E4M3 || f == KERN_F8_E5M2;
}

/* Finite 8-bit floats. */
static uint8_t float8(struct check *c, enum kern_format f, enum fill fill) {
    const uint8_t one = f == KERN_F8_E4M3 ? 0x38 : 0x3c, subnormals = f == KERN_F8_E4M3 ? 7 : 3,
                  largest = f == KERN_F8_E4M3 ? 0x7e : 0x7b;
    uint8_t sign = (uint8_t)(check_below(c, 2) << 7);
    switch (fill) {
    case FILL_ONES: return one;
    case FILL_ZERO: return sign;
    case FILL_DENORMAL: return (uint8_t)(sign | check_below(c, subnormals + 1u));
    default: return (uint8_t)(sign | check_below(c, largest + 1u));
    }
}

static void fill_weights(struct problem *p) {
    const struct tensor_type_info *info = tensor_type_info(p->source);
    static const float scales[FILLS] = {0.05f, 1.0f, 1.0f, 60000.0f / 8, 0x1p-22f, 0.0f};
    uint8_t *dst = p->file.data;
    size_t n_blocks = p->rows * p->k / info->block_elems;
    for (size_t b = 0; b < n_blocks; b++, dst += info->block_bytes) {
        float x;
        if (is_f8(p->source)) {
            *dst = float8(p->c, p->source, p->fill);
            continue;
        }
        if (is_float(p->source)) {
            fill_floats(p, &x, 1, p->fill == FILL_ALTERNATING ? FILL_NORMAL : p->fill);
            uint16_t h = p->source == KERN_F16 ? kern_to_f16(x) : kern_to_bf16(x);
            memcpy(dst, p->source == KERN_F32 ? (const void *)&x : &h, info->block_bytes);
            continue;
        }
        fill_block(p->c, dst, p->source, info->block_bytes, scales[p->fill]);
        if (p->fill == FILL_ONES) extreme_block(dst, p->source, info->block_bytes, (int)check_below(p->c, 3));
    }
}

/* ---- the expected product ---- */

/* Whether a table keeps such inputs as bfloat16 and not as float. */
static bool has_bf16_rows(const struct kern *k, enum kern_act act) {
    return act == KERN_ACT_BF16 && k->act_row_bytes(act, 64) == 128;
}

static void unpack_input(const struct problem *p, size_t i, double *x) {
    const char *row = (const char *)p->acts.data + i * p->act_row_bytes;
    for (size_t j = 0; j < p->k; j++) {
        if (p->w.mm->act == KERN_ACT_Q8) {
            const struct kern_act_block *b = (const struct kern_act_block *)row + j / KERN_BLOCK;
            x[j] = (double)b->scale * b->q[j % KERN_BLOCK];
        } else if (has_bf16_rows(p->c->kern, p->w.mm->act)) {
            x[j] = kern_from_bf16(((const uint16_t *)row)[j]);
        } else {
            x[j] = ((const float *)row)[j];
        }
    }
}

/* |d q| + |m| for each element: what rounding errors of d * isum + m * sum are relative to. */
static void magnitudes(const struct problem *p, const uint8_t *row, const float *decoded, double *size) {
    size_t unit = kern_unit_blocks(p->source);
    for (size_t j = 0; j < p->k; j++) size[j] = fabs((double)decoded[j]);
    if (is_float(p->format)) return;
    for (size_t b = 0; b < p->k / KERN_BLOCK; b++) {
        struct kern_block block;
        kern_block_read(&block, p->source, row + b / unit * kern_unit_bytes(p->source), b % unit);
        for (size_t i = 0; i < KERN_BLOCK; i++)
            size[b * KERN_BLOCK + i] =
                fabs((double)block.d[i / 16] * block.q[i]) + fabs((double)block.m[i / 16]);
    }
}

static float to_format(float x, enum kern_format f) {
    if (f == KERN_F16) return kern_from_f16(kern_to_f16(x));
    return f == KERN_BF16 ? kern_from_bf16(kern_to_bf16(x)) : x;
}

static void expect(struct problem *p) {
    const struct tensor_type_info *info = tensor_type_info(p->source);
    float *decoded = malloc(p->k * sizeof *decoded);
    double *size = malloc(p->k * sizeof *size), *x = malloc(p->m * p->k * sizeof *x);
    p->largest = 1.0;
    for (size_t i = 0; i < p->m; i++) unpack_input(p, i, x + i * p->k);
    for (size_t i = 0; i < p->m * p->k; i++) p->largest = fmax(p->largest, fabs(x[i]));
    for (size_t r = 0; r < p->rows; r++) {
        const uint8_t *row = (const uint8_t *)p->file.data + r * p->row_bytes;
        info->decode(decoded, row, p->k / info->block_elems);
        if (is_float(p->format))
            for (size_t j = 0; j < p->k; j++) decoded[j] = to_format(decoded[j], p->format);
        magnitudes(p, row, decoded, size);
        for (size_t j = 0; j < p->k; j++) p->largest = fmax(p->largest, size[j]);
        for (size_t i = 0; i < p->m; i++) {
            double want = 0.0, sum = 0.0;
            for (size_t j = 0; j < p->k; j++) {
                want += x[i * p->k + j] * decoded[j];
                sum += fabs(x[i * p->k + j]) * size[j];
            }
            p->want[i * p->rows + r] = want;
            p->size[i * p->rows + r] = sum;
        }
    }
    free(decoded);
    free(size);
    free(x);
}

/* The error bound of one output with S = the sum of magnitudes.
 * Each term is rounded at most 4 times before it is added to the sum of its output (5 for formats with a
 * scale of each half: product, up to 3 sums, factor), adding n terms one after another multiplies by at most
 * (1 + U)^n; the decoder that the expectation uses rounds twice: (n + 8) U S to first order. n: k for float
 * products, 2 a block for 8-bit ones. Results below 2^-126 lose up to 2^-149 each, in 8-bit products
 * multiplied by isum <= 2^21, in those of E4M3 by 2^8. */
static double bound(const struct problem *p, double size) {
    bool q8 = p->w.mm->act == KERN_ACT_Q8;
    double n = q8 ? 2.0 * (double)(p->k / KERN_BLOCK) : (double)p->k;
    /* the instruction takes smaller inputs and results for zero */
    if (has_bf16_rows(p->c->kern, p->w.mm->act))
        return (n + 8.0) * 1.01 * U * size + n * p->largest * 0x1p-125;
    double lost = q8 ? 0x1p-127 : p->format == KERN_F8_E4M3 ? 0x1p-141 : 0x1p-149;
    return (n + 8.0) * 1.01 * U * size + n * lost;
}

/* ---- set-up ---- */

static void setup(struct problem *p) {
    const struct tensor_type_info *info = tensor_type_info(p->source);
    const struct kern *kern = p->c->kern;
    const struct kern_mm *mm = &kern->mm[p->format];
    p->w = (struct kern_matrix){.mm = mm,
                                .format = p->source,
                                .decode = info->decode,
                                .block_elems = info->block_elems,
                                .block_bytes = info->block_bytes,
                                .rows = p->rows,
                                .k = p->k};
    p->row_bytes = p->k / info->block_elems * info->block_bytes;
    p->act_row_bytes = kern->act_row_bytes(mm->act, p->k);
    p->y_stride = p->rows + 3;
    size_t n_panels = (p->rows + mm->panel_rows - 1) / mm->panel_rows, panel_bytes = mm->panel_bytes(&p->w);
    p->file = guarded_new(p->rows * p->row_bytes, 1, p->side);
    p->panels = guarded_new(n_panels * panel_bytes, 64, p->side);
    p->acts = guarded_new(p->m * p->act_row_bytes, 64, p->side);
    p->x = guarded_new(p->k * sizeof(float), 4, p->side);
    p->y = guarded_new(((p->m - 1) * p->y_stride + p->rows) * sizeof(float), 4, p->side);
    p->scratch = guarded_new(kern_mm_scratch(p->k) * sizeof(float), 4, p->side);
    p->want = malloc(p->m * p->rows * sizeof(double));
    p->size = malloc(p->m * p->rows * sizeof(double));
    p->w.panels = p->panels.data;

    fill_weights(p);
    for (size_t i = 0; i < n_panels; i++) {
        size_t first = i * mm->panel_rows,
               n = p->rows - first < mm->panel_rows ? p->rows - first : mm->panel_rows;
        mm->pack(&p->w, (char *)p->panels.data + i * panel_bytes, (char *)p->file.data + first * p->row_bytes,
                 p->row_bytes, n);
    }
    for (size_t i = 0; i < p->m; i++) {
        fill_floats(p, p->x.data, p->k, p->fill);
        kern->act_pack[mm->act]((char *)p->acts.data + i * p->act_row_bytes, p->x.data, p->k);
    }
    expect(p);
}

static void teardown(struct problem *p) {
    struct guarded *const all[] = {&p->file, &p->panels, &p->acts, &p->x, &p->y, &p->scratch};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) guarded_free(p->c, all[i]);
    free(p->want);
    free(p->size);
}

static size_t n_panels(const struct problem *p) {
    return (p->rows + p->w.mm->panel_rows - 1) / p->w.mm->panel_rows;
}

/* Rows [first, first + m) by panels [panel, panel + n) into y, where row `first` and the panel's first weight
 * row go. */
static void run(struct problem *p, float *y, size_t panel, size_t n, size_t first, size_t m, bool add) {
    p->w.mm->run(&p->w, y, p->y_stride, panel, n, (const char *)p->acts.data + first * p->act_row_bytes,
                 p->act_row_bytes, m, add, p->scratch.data);
}

/* ---- the checks ---- */

static void check_values(struct problem *p) {
    float *y = p->y.data;
    size_t bad = 0, outside = 0, bi = 0, br = 0;
    memset(y, 0xff, p->y.bytes);
    run(p, y, 0, n_panels(p), 0, p->m, false);
    for (size_t i = 0; i < p->m; i++) {
        for (size_t r = 0; r < p->rows; r++) {
            double want = p->want[i * p->rows + r], limit = bound(p, p->size[i * p->rows + r]);
            if (fabs(y[i * p->y_stride + r] - want) <= limit) continue;
            if (bad++ == 0) bi = i, br = r;
        }
        for (size_t r = p->rows; i + 1 < p->m && r < p->y_stride; r++)
            if (kern_float_bits(y[i * p->y_stride + r]) != 0xffffffffu) outside++;
    }
    check_that(p->c, bad == 0, "%zu of %zu wrong, first at row %zu, output %zu: %.9g, expected %.9g +- %.3g",
               bad, p->m * p->rows, bi, br, y[bi * p->y_stride + br], p->want[bi * p->rows + br],
               bound(p, p->size[bi * p->rows + br]));
    check_that(p->c, outside == 0, "wrote to %zu floats between rows", outside);
}

static bool rows_equal(const struct problem *p, const float *a, const float *b) {
    for (size_t i = 0; i < p->m; i++)
        if (!same_bits(a + i * p->y_stride, b + i * p->y_stride, p->rows * sizeof(float))) return false;
    return true;
}

/* Law 1: the bits of a row do not depend on the rows and panels of the call. */
static void check_splits(struct problem *p) {
    struct guarded other = guarded_new(p->y.bytes, 4, p->side);
    float *y = p->y.data, *z = other.data;
    size_t panel_rows = p->w.mm->panel_rows;
    for (size_t i = 0; i < p->m; i++) run(p, z + i * p->y_stride, 0, n_panels(p), i, 1, false);
    check_that(p->c, rows_equal(p, y, z), "m = %zu differs from single rows", p->m);

    memset(z, 0xff, other.bytes);
    for (size_t i = 0, n; i < p->m; i += n) {
        n = 1 + check_below(p->c, p->m - i);
        for (size_t j = 0, panels; j < n_panels(p); j += panels) {
            panels = 1 + check_below(p->c, n_panels(p) - j);
            run(p, z + i * p->y_stride + j * panel_rows, j, panels, i, n, false);
        }
    }
    check_that(p->c, rows_equal(p, y, z), "differs when split in rows and panels");
    guarded_free(p->c, &other);
}

static void check_add(struct problem *p) {
    struct guarded other = guarded_new(p->y.bytes, 4, p->side);
    float *y = p->y.data, *z = other.data;
    size_t bad = 0;
    for (size_t i = 0; i < p->m; i++)
        for (size_t r = 0; r < p->rows; r++) z[i * p->y_stride + r] = check_uniform(p->c, -1.0f, 1.0f);
    float *before = malloc(p->y.bytes);
    memcpy(before, z, p->y.bytes);
    run(p, z, 0, n_panels(p), 0, p->m, true);
    for (size_t i = 0; i < p->m; i++)
        for (size_t r = 0; r < p->rows; r++) {
            size_t j = i * p->y_stride + r;
            double sum =
                (double)before[j] + y[j]; /* two roundings at most, the reference's is of its exact sum */
            if (!(fabs(z[j] - sum) <= U * (fabs(sum) + fabs((double)y[j])) * 2.0)) bad++;
        }
    check_that(p->c, bad == 0, "add: %zu of %zu wrong", bad, p->m * p->rows);
    free(before);
    guarded_free(p->c, &other);
}

static void check_unpack(struct problem *p) {
    const struct tensor_type_info *info = tensor_type_info(p->source);
    struct guarded row = guarded_new(p->k * sizeof(float), 4, p->side);
    float *want = malloc(p->k * sizeof *want);
    size_t panel_rows = p->w.mm->panel_rows, bad = 0;
    for (size_t r = 0; r < p->rows; r++) {
        info->decode(want, (const char *)p->file.data + r * p->row_bytes, p->k / info->block_elems);
        if (is_float(p->format))
            for (size_t j = 0; j < p->k; j++) want[j] = to_format(want[j], p->format);
        p->w.mm->unpack_row(&p->w, row.data,
                            (const char *)p->panels.data + r / panel_rows * p->w.mm->panel_bytes(&p->w),
                            r % panel_rows);
        for (size_t j = 0; j < p->k; j++)
            if (((float *)row.data)[j] != want[j]) bad++;
    }
    check_that(p->c, bad == 0, "unpack_row: %zu elements differ from the decoder", bad);
    free(want);
    guarded_free(p->c, &row);
}

/* A row with a NaN or an infinity gives no finite output; the others do not change. */
static void check_not_finite(struct problem *p) {
    float *y = p->y.data, *before = malloc(p->y.bytes), *x = p->x.data;
    size_t bad = check_below(p->c, p->m), finite = 0;
    memcpy(before, y, p->y.bytes);
    fill_floats(p, x, p->k, p->fill);
    x[check_below(p->c, p->k)] = check_below(p->c, 2) ? NAN : INFINITY;
    p->c->kern->act_pack[p->w.mm->act]((char *)p->acts.data + bad * p->act_row_bytes, x, p->k);
    run(p, y, 0, n_panels(p), 0, p->m, false);
    for (size_t r = 0; r < p->rows; r++) finite += isfinite(y[bad * p->y_stride + r]) != 0;
    check_that(p->c, finite == 0, "%zu outputs of a row with NaN or inf are finite", finite);
    memcpy(y + bad * p->y_stride, before + bad * p->y_stride, p->rows * sizeof(float));
    check_that(p->c, rows_equal(p, y, before), "a NaN in row %zu changed other rows", bad);
    free(before);
}

/* The one NaN of E4M3 and one of E5M2 stay NaN. Repacks the first panel. */
static void check_f8_nan(struct problem *p) {
    if (!is_f8(p->format)) return;
    size_t panel_rows = p->w.mm->panel_rows, n = p->rows < panel_rows ? p->rows : panel_rows;
    float *y = p->y.data;
    ((uint8_t *)p->file.data)[p->k - 1] = check_below(p->c, 2) ? 0x7f : 0xff;
    p->w.mm->pack(&p->w, p->panels.data, p->file.data, p->row_bytes, n);
    run(p, y, 0, n_panels(p), 0, p->m, false);
    size_t numbers = 0;
    for (size_t i = 0; i < p->m; i++) numbers += !isnan(y[i * p->y_stride]);
    check_that(p->c, numbers == 0, "%zu outputs of a weight row with NaN are numbers", numbers);
}

static void check_memory(struct problem *p) {
    if (p->rows % 16 || p->k < 512) return; /* a panel is padded to 64 bytes */
    size_t packed = n_panels(p) * p->w.mm->panel_bytes(&p->w), file = p->rows * p->row_bytes;
    check_that(p->c,
               is_float(p->format) || (double)packed <= 1.05 * (double)file + 64.0 * (double)n_panels(p),
               "packed takes %zu bytes, file %zu", packed, file);
}

static void check_problem(struct check *c, enum kern_format format, enum kern_format source, size_t rows,
                          size_t k, size_t m, enum fill fill, enum side side) {
    struct problem p = {
        .c = c, .format = format, .source = source, .rows = rows, .k = k, .m = m, .fill = fill, .side = side};
    char what[128];
    snprintf(what, sizeof what, "mm %s (from %s) %zu x %zu, m = %zu, %s, guard %s", c->kern->mm[format].name,
             tensor_type_info(source)->name, rows, k, m, fill_names[fill],
             side == SIDE_BACK ? "behind" : "before");
    c->what = what;
    setup(&p);
    check_values(&p);
    check_splits(&p);
    check_add(&p);
    check_unpack(&p);
    check_memory(&p);
    check_not_finite(&p);
    check_f8_nan(&p);
    teardown(&p);
}

static void check_format(struct check *c, enum kern_format f) {
    const struct kern_mm *mm = &c->kern->mm[f];
    static const size_t row_counts[] = {1, 5, 16, 33, 40, 77};
    size_t unit = mm->k_multiple == 1 ? 1 : mm->k_multiple;
    for (size_t m = 1; m <= 17; m++) {
        size_t rows = row_counts[check_below(c, 6)],
               k = unit == 1 ? 1 + check_below(c, 100) : unit * (1 + check_below(c, 5));
        check_problem(c, f, f, rows, k, m, (enum fill)(m % FILLS), (enum side)(m % SIDES));
    }
    for (int fill = 0; fill < FILLS; fill++)
        check_problem(c, f, f, 35, unit == 1 ? 97 : 3 * unit, 7, (enum fill)fill, SIDE_BACK);
    check_problem(c, f, f, 48, unit == 256 ? 768 : 576, 64, FILL_NORMAL, SIDE_BACK);
    check_problem(c, f, f, 64, unit == 256 ? 512 : 96, 33, FILL_ONES, SIDE_FRONT);
    check_problem(c, f, f, 80, 1536, 64, FILL_WIDE, SIDE_FRONT);
    check_problem(c, f, f, 32, unit == 256 ? 4096 : 4160, 150, FILL_NORMAL,
                  SIDE_BACK); /* more than one span of rows */
}

/* ---- packing of inputs: to the bit as the reference, and the 8-bit one close to what it packs ---- */

static void check_quantized(struct check *c, const float *x, const struct kern_act_block *b, size_t k) {
    size_t bad = 0;
    for (size_t j = 0; j < k; j++) {
        const struct kern_act_block *block = &b[j / KERN_BLOCK];
        double error = fabs((double)x[j] - (double)block->scale * block->q[j % KERN_BLOCK]);
        double limit =
            block->scale * (0.5 + 130 * U); /* half a step; x / scale is rounded twice, up to 127 */
        if (!(error <= limit || (block->scale == 0.0f && fabsf(x[j]) < KERN_ACT_TINY))) bad++;
    }
    check_that(c, bad == 0, "%zu of %zu elements are off by more than half a step", bad, k);
}

/* Whether a packed row is what the reference has, or that in bfloat16. */
static bool same_row(const struct check *c, enum kern_act kind, const void *row, const void *ref_row,
                     size_t k) {
    size_t bytes = c->kern->act_row_bytes(kind, k), zeros = 0;
    if (!has_bf16_rows(c->kern, kind)) return same_bits(row, ref_row, bytes);
    const uint16_t *a = row;
    for (size_t i = 0; i < k; i++)
        if ((uint32_t)a[i] << 16 != kern_float_bits(((const float *)ref_row)[i])) return false;
    for (size_t i = k; i < bytes / sizeof *a; i++) zeros += a[i] == 0;
    return zeros == bytes / sizeof *a - k;
}

static void check_act_pack(struct check *c, enum kern_act kind, size_t k, enum fill fill, enum side side) {
    static const char *const names[] = {"f32", "f16", "bf16", "q8"};
    const struct kern *ref = kern_table(KERN_ISA_REF);
    size_t bytes = c->kern->act_row_bytes(kind, k);
    struct guarded x = guarded_new(k * sizeof(float), 4, side), a = guarded_new(bytes, 64, side);
    char *want = malloc(ref->act_row_bytes(kind, k)), what[64];
    snprintf(what, sizeof what, "act_pack %s, k = %zu, %s", names[kind], k, fill_names[fill]);
    c->what = what;
    check_fill(c, x.data, k, fill);
    c->kern->act_pack[kind](a.data, x.data, k);
    ref->act_pack[kind](want, x.data, k);
    check_that(c, bytes % 64 == 0, "a row is %zu bytes", bytes);
    check_that(c, same_row(c, kind, a.data, want, k), "differs from the reference");
    if (kind == KERN_ACT_Q8) check_quantized(c, x.data, a.data, k);

    ((float *)x.data)[check_below(c, k)] = check_below(c, 2) ? NAN : -INFINITY;
    c->kern->act_pack[kind](a.data, x.data, k);
    ref->act_pack[kind](want, x.data, k);
    check_that(c, same_row(c, kind, a.data, want, k), "differs from the reference on NaN or infinity");
    free(want);
    guarded_free(c, &x);
    guarded_free(c, &a);
}

void check_mm(struct check *c) {
    for (int kind = 0; kind < KERN_ACT_KINDS; kind++)
        for (int fill = 0; fill < FILLS; fill++)
            for (size_t k = 32; k <= 576; k += 32)
                check_act_pack(c, (enum kern_act)kind, kind == KERN_ACT_Q8 ? k : k - k / 32, (enum fill)fill,
                               (enum side)(k / 32 % SIDES));
    for (size_t i = 0; i < sizeof formats / sizeof *formats; i++) check_format(c, formats[i]);
    if (c->kern == &kern_table_avx512_bf16) { /* the machine has both */
        c->kern = &kern_table_avx512;
        check_act_pack(c, KERN_ACT_BF16, 97, FILL_WIDE, SIDE_BACK);
        check_format(c, KERN_BF16);
        c->kern = &kern_table_avx512_bf16;
    }
    /* unquantized weights from another source format */
    check_problem(c, KERN_BF16, KERN_F32, 33, 576, 5, FILL_NORMAL, SIDE_BACK);
    check_problem(c, KERN_F16, KERN_BF16, 33, 96, 5, FILL_NORMAL, SIDE_BACK);
    check_problem(c, KERN_F32, KERN_F16, 33, 96, 5, FILL_WIDE, SIDE_BACK);
    check_problem(c, KERN_F32, KERN_Q4_1, 33, 576, 5, FILL_NORMAL, SIDE_BACK);
    check_problem(c, KERN_F32, KERN_Q6_K, 33, 768, 5, FILL_NORMAL, SIDE_BACK);
}
