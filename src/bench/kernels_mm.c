/* Matrix products and the packing of weights, for every format that the path has. */
#include "bench/bench.h"

#include "base/error.h"
#include "base/size.h"

#include <stdio.h>
#include <string.h>

struct shape {
    size_t rows, k;
};

/* Gate or up, and down, of a model of 1.5B and of one of 135M. */
static const struct shape UP_1500M = {8960, 1536}, DOWN_1500M = {1536, 8960}, UP_135M = {1536, 576},
                          DOWN_135M = {576, 1536};

enum { DIFFERENT_PANELS = 16, MANY_ROWS = 128 };

struct product {
    const struct kern_mm *mm;
    const struct tensor_type_info *type;
    struct kern_matrix w; /* one of n_matrices that lie one behind the other, like the layers of a model */
    size_t n_matrices, n_panels, panel_bytes;
    char *panels, *file; /* file: rows of the different panels */
    size_t file_row_bytes;
    char *acts;
    size_t act_row_bytes, m;
    void (*thread_begin)(void);
    float *y, *scratch;
    size_t scratch_floats; /* of a thread */
};

static void product_share(void *ctx, size_t thread, size_t n_threads) {
    const struct product *p = ctx;
    if (p->thread_begin) p->thread_begin(); /* the limits use tiles, too */
    size_t first = p->n_panels * thread / n_threads, end = p->n_panels * (thread + 1) / n_threads;
    for (size_t i = 0; i < p->n_matrices; i++) {
        struct kern_matrix w = p->w;
        w.panels = p->panels + i * p->n_panels * p->panel_bytes;
        p->mm->run(&w, p->y + first * p->mm->panel_rows, w.rows, first, end - first, p->acts,
                   p->act_row_bytes, p->m, false, p->scratch + thread * p->scratch_floats);
    }
}

static void set_rows(struct product *p, size_t n_panels) {
    p->n_panels = n_panels;
    p->w.rows = n_panels * p->mm->panel_rows;
}

static int product_new(struct bench *b, struct product *p, enum kern_format f, size_t k, struct error *err) {
    const struct tensor_type_info *type = tensor_type_info(f);
    *p = (struct product){
        .mm = &b->kern->mm[f], .type = type, .n_matrices = 1, .thread_begin = b->kern->thread_begin};
    p->w = (struct kern_matrix){.mm = p->mm,
                                .format = f,
                                .decode = type->decode,
                                .block_elems = type->block_elems,
                                .block_bytes = type->block_bytes,
                                .k = k};
    p->file_row_bytes = k / type->block_elems * type->block_bytes;
    p->act_row_bytes = b->kern->act_row_bytes(p->mm->act, k);
    p->panel_bytes = p->mm->panel_bytes(&p->w);
    set_rows(p, DIFFERENT_PANELS);
    size_t file_bytes = p->w.rows * p->file_row_bytes;
    p->file = bench_carve(b, file_bytes);
    p->scratch_floats = (kern_mm_scratch(k) + 15) & ~(size_t)15;
    p->scratch = bench_carve(b, b->n_threads * p->scratch_floats * sizeof(float));
    if (fill_blocks(&b->fill, p->file, file_bytes, type)) return QUIRE_OK;
    return error_set(err, QUIRE_EINTERNAL, "no usable weights of format %s can be made", type->name);
}

/* ---- packing ---- */

static void pack_panels(const struct product *p, size_t first, size_t end, char *file) {
    for (size_t i = first; i < end; i++)
        p->mm->pack(&p->w, p->panels + i * p->panel_bytes, file + i * p->mm->panel_rows * p->file_row_bytes,
                    p->file_row_bytes, p->mm->panel_rows);
}

static void pack_share(void *ctx, size_t thread, size_t n_threads) {
    const struct product *p = ctx;
    pack_panels(p, p->n_panels * thread / n_threads, p->n_panels * (thread + 1) / n_threads, p->file);
}

/* Rows of a file into panels, neither in a cache. */
static int bench_pack(struct bench *b, enum kern_format f, struct error *err) {
    struct product p;
    char name[64], shape[64];
    snprintf(name, sizeof name, "pack %s", b->kern->mm[f].name);
    if (!bench_wanted(b, name)) return QUIRE_OK;
    bench_clear(b);
    int rc = product_new(b, &p, f, UP_1500M.k, err);
    if (rc) return rc;
    size_t chunk_bytes = p.w.rows * p.file_row_bytes, panel_file_bytes = chunk_bytes / DIFFERENT_PANELS;
    p.panels = bench_carve(b, DIFFERENT_PANELS * p.panel_bytes);
    double start = bench_now();
    pack_panels(&p, 0, DIFFERENT_PANELS, p.file);
    double panel_s = bench_elapsed(start) / DIFFERENT_PANELS;
    size_t most = BENCH_SET_BYTES / (panel_file_bytes + p.panel_bytes);
    size_t n = (size_t)(BENCH_ROUND_SECONDS * (double)b->n_threads / panel_s) / DIFFERENT_PANELS;
    set_rows(&p, size_min(size_max(n, 1) * DIFFERENT_PANELS, most / DIFFERENT_PANELS * DIFFERENT_PANELS));
    char *chunk = p.file;
    p.file = bench_carve(b, p.n_panels * panel_file_bytes);
    p.panels = bench_carve(b, p.n_panels * p.panel_bytes);
    for (size_t i = 0; i < p.n_panels / DIFFERENT_PANELS; i++)
        memcpy(p.file + i * chunk_bytes, chunk, chunk_bytes);
    snprintf(shape, sizeof shape, "%zu x %zu", p.w.rows, p.w.k);
    struct bench_row row = {.kernel = name,
                            .shape = shape,
                            .calls = 1,
                            .bytes = (double)(p.n_panels * (panel_file_bytes + p.panel_bytes)),
                            .byte_limit = LIMIT_READ_94MB,
                            .op_limit = LIMITS};
    bench_measure(b, &row, pack_share, &p);
    return QUIRE_OK;
}

/* ---- products ---- */

/* Few input rows: matrices enough for a set beyond the caches. Many: one matrix. A slow path
 * gets fewer rows. */
static void choose_size(struct bench *b, struct product *p, size_t rows) {
    set_rows(p, DIFFERENT_PANELS);
    p->n_matrices = 1;
    product_share(p, 0, 1);
    double start = bench_now();
    product_share(p, 0, 1);
    double panel_s = bench_elapsed(start) / DIFFERENT_PANELS;
    size_t most = (size_t)(BENCH_ROUND_SECONDS * (double)b->n_threads / panel_s);
    size_t n_panels = size_div_up(rows, p->mm->panel_rows), set = n_panels * p->panel_bytes;
    if (most < n_panels)
        n_panels = size_min(size_max(most, size_max(b->n_threads, DIFFERENT_PANELS)), n_panels);
    set_rows(p, n_panels);
    if (p->m < MANY_ROWS)
        p->n_matrices = size_max(size_min(size_div_up(BENCH_SET_BYTES, set), most / n_panels), 1);
}

static void fill_panels(struct product *p, char *different) {
    for (size_t i = 0; i < p->n_matrices * p->n_panels; i++)
        memcpy(p->panels + i * p->panel_bytes, different + i % DIFFERENT_PANELS * p->panel_bytes,
               p->panel_bytes);
}

static void product_run(struct bench *b, struct product *p, size_t rows, size_t m) {
    char shape[64];
    size_t used = b->used;
    char *different = p->panels;
    p->m = m;
    p->y = bench_carve(b, m * size_max(rows + p->mm->panel_rows, DIFFERENT_PANELS * p->mm->panel_rows) * 4);
    choose_size(b, p, rows);
    p->panels = bench_carve(b, p->n_matrices * p->n_panels * p->panel_bytes);
    fill_panels(p, different);
    double weights = (double)(p->n_matrices * p->w.rows) * (double)p->w.k;
    snprintf(shape, sizeof shape, "%zu x %zu x %zu, %zu row%s", p->n_matrices, p->w.rows, p->w.k, m,
             m == 1 ? "" : "s");
    struct bench_row row = {.kernel = p->mm->name,
                            .shape = shape,
                            .calls = 1,
                            .bytes = (double)(p->n_matrices * p->n_panels) * (double)p->panel_bytes,
                            .ops = 2.0 * weights * (double)m,
                            .byte_limit = LIMIT_READ_94MB,
                            .op_limit = bench_op_limit(b, p->mm->act)};
    bench_measure(b, &row, product_share, p);
    p->panels = different;
    b->used = used;
}

static int bench_product(struct bench *b, enum kern_format f, struct shape s, const size_t *ms, size_t n_ms,
                         struct error *err) {
    struct product p;
    const struct kern_mm *mm = &b->kern->mm[f];
    if (s.k % mm->k_multiple || !bench_wanted(b, mm->name)) return QUIRE_OK;
    bench_clear(b);
    int rc = product_new(b, &p, f, s.k, err);
    if (rc) return rc;
    p.panels = bench_carve(b, DIFFERENT_PANELS * p.panel_bytes);
    pack_panels(&p, 0, DIFFERENT_PANELS, p.file);
    size_t max_m = ms[n_ms - 1];
    p.acts = bench_carve(b, (max_m + b->kern->act_rows_over) * p.act_row_bytes);
    float *x = bench_carve(b, s.k * sizeof *x);
    for (size_t i = 0; i < max_m; i++) {
        fill_floats(&b->fill, x, s.k);
        b->kern->act_pack[mm->act](p.acts + i * p.act_row_bytes, x, s.k);
    }
    for (size_t i = 0; i < n_ms; i++) product_run(b, &p, s.rows, ms[i]);
    return QUIRE_OK;
}

#define COUNT(array) (sizeof(array) / sizeof *(array))

/* What serving does most: one stream, eight, 32, and a prompt; a small model for three formats. */
static int bench_format(struct bench *b, enum kern_format f, struct error *err) {
    static const size_t usual[] = {1, 8, 32, 512}, few[] = {1, 32, 512},
                        all[] = {1, 2, 4, 8, 16, 32, 64, 128, 256, 512};
    bool small_too = f == KERN_Q4_1 || f == KERN_Q8_0 || f == KERN_BF16;
    int rc;
    if (!b->o->only) {
        rc = bench_product(b, f, UP_1500M, usual, COUNT(usual), err);
        if (!rc && small_too) rc = bench_product(b, f, UP_135M, few, COUNT(few), err);
    } else {
        rc = bench_product(b, f, UP_1500M, all, COUNT(all), err);
        if (!rc) rc = bench_product(b, f, DOWN_1500M, all, COUNT(all), err);
        if (!rc) rc = bench_product(b, f, UP_135M, all, COUNT(all), err);
        if (!rc) rc = bench_product(b, f, DOWN_135M, all, COUNT(all), err);
    }
    return rc ? rc : bench_pack(b, f, err);
}

int bench_products(struct bench *b, struct error *err) {
    int rc = QUIRE_OK;
    for (int f = 0; f < KERN_FORMAT_END && !rc; f++) {
        const struct tensor_type_info *type = tensor_type_info((uint32_t)f);
        if (b->kern->mm[f].run && type && type->decode) rc = bench_format(b, (enum kern_format)f, err);
    }
    return rc;
}
