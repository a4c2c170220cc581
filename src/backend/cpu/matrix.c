/* Weight matrices: repacked, in parallel, into the panels that the kernel family of their format asks for. */
#include "backend/cpu/cpu.h"

#include "base/error.h"
#include "base/size.h"

#include <stdatomic.h>
#include <stdlib.h>

static const enum kern_format FORMAT_OF_DTYPE[] = {
    [BACKEND_BF16] = KERN_BF16, [BACKEND_F16] = KERN_F16, [BACKEND_F32] = KERN_F32};

/* The format that weights are kept in: their own if there are products for it. Floats, and what has only a
 * decoder (TQ1_0, TQ2_0, NVFP4), are kept as dtype. */
static enum kern_format kept_format(const struct kern *k, uint32_t format, enum backend_dtype dtype) {
    bool is_float = format == KERN_F32 || format == KERN_F16 || format == KERN_BF16;
    return is_float || !k->mm[format].run ? FORMAT_OF_DTYPE[dtype] : (enum kern_format)format;
}

/* Describes t as it will be used. The sizes it implies are checked: what fits the file fits size_t, but the
 * layout may be larger than the file's. */
static int describe(const struct cpu_backend *c, const struct backend_tensor *t, enum backend_dtype dtype,
                    struct kern_matrix *m, size_t *bytes, struct error *err) {
    if (t->format >= KERN_FORMAT_END || !t->decode)
        return error_set(err, QUIRE_EUNSUPPORTED, "tensor %s: format %u cannot be decoded", t->name,
                         (unsigned)t->format);
    const struct kern_mm *mm = &c->kern->mm[kept_format(c->kern, t->format, dtype)];
    if (!t->rows || !t->cols)
        return error_set(err, QUIRE_EFORMAT, "tensor %s: %zu x %zu is empty", t->name, t->rows, t->cols);
    if (t->cols % mm->k_multiple || t->cols % t->block_elems)
        return error_set(err, QUIRE_EUNSUPPORTED,
                         "tensor %s: rows of %zu elements; %s needs a multiple of %zu", t->name, t->cols,
                         mm->name, size_max(mm->k_multiple, t->block_elems));
    *m = (struct kern_matrix){.mm = mm,
                              .format = (enum kern_format)t->format,
                              .decode = t->decode,
                              .block_elems = t->block_elems,
                              .block_bytes = t->block_bytes,
                              .rows = t->rows,
                              .k = t->cols};
    size_t elems;
    if (size_mul(t->rows, t->cols, &elems) && elems <= SIZE_MAX / 64 &&
        size_mul(size_div_up(t->rows, mm->panel_rows), mm->panel_bytes(m), bytes) &&
        memory_slab_bytes(*bytes))
        return 0;
    return error_set(err, QUIRE_ELIMIT, "tensor %s: %zu x %zu is too large", t->name, t->rows, t->cols);
}

size_t cpu_matrix_bytes(struct backend *b, const struct backend_tensor *t, enum backend_dtype dtype,
                        struct error *err) {
    struct kern_matrix m;
    size_t bytes;
    return describe(cpu_of(b), t, dtype, &m, &bytes, err) ? 0 : memory_slab_bytes(bytes);
}

struct pack_job {
    const struct kern_matrix *m;
    char *panels;
    size_t panel_bytes;
    const struct backend_tensor *t;
    char *rows; /* [n_threads] of a panel's rows, when they are to be read */
    struct first_error failure;
};

/* The rows of a panel in memory; NULL when they could not be read, now or by another thread. */
static const void *panel_rows(struct pack_job *j, size_t first, size_t n, size_t thread) {
    if (j->t->data) return (const char *)j->t->data + first * j->t->row_bytes;
    char *rows = j->rows + thread * j->m->mm->panel_rows * j->t->row_bytes;
    struct error err = {0};
    if (atomic_load(&j->failure.status)) return NULL;
    int rc = j->t->read_rows(j->t->ctx, first, n, rows, &err);
    if (!rc) return rows;
    first_error_note(&j->failure, rc, &err);
    return NULL;
}

static void pack_panel(void *ctx, size_t panel, size_t thread) {
    struct pack_job *j = ctx;
    size_t first = panel * j->m->mm->panel_rows;
    size_t n = size_min(j->m->mm->panel_rows, j->t->rows - first);
    const void *rows = panel_rows(j, first, n, thread);
    if (rows) j->m->mm->pack(j->m, j->panels + panel * j->panel_bytes, rows, j->t->row_bytes, n);
}

/* Memory for rows that are read, for each thread. */
static int rows_alloc(const struct cpu_backend *c, struct pack_job *j, struct error *err) {
    size_t bytes;
    if (j->t->data) return 0;
    if (size_mul(j->m->mm->panel_rows * pool_threads(c->pool), j->t->row_bytes, &bytes))
        j->rows = malloc(bytes);
    return j->rows ? 0 : error_set(err, QUIRE_ENOMEM, "tensor %s: no memory to read it", j->t->name);
}

int cpu_matrix_load(struct backend *b, const struct backend_tensor *t, enum backend_dtype dtype,
                    struct backend_matrix **out, struct error *err) {
    struct cpu_backend *c = cpu_of(b);
    struct kern_matrix m;
    size_t bytes;
    int rc = describe(c, t, dtype, &m, &bytes, err);
    if (rc) return rc;
    struct backend_matrix *matrix = calloc(1, sizeof *matrix);
    if (matrix) matrix->block = memory_slab_alloc(&c->slabs, bytes);
    if (!matrix || !matrix->block.data) {
        free(matrix);
        return error_set(err, QUIRE_ENOMEM, "tensor %s: no memory for %zu bytes of weights", t->name, bytes);
    }
    struct pack_job job = {.m = &m,
                           .panels = matrix->block.data,
                           .panel_bytes = m.mm->panel_bytes(&m),
                           .t = t,
                           .failure = {.err = err}};
    rc = rows_alloc(c, &job, err);
    if (!rc) {
        pool_run(c->pool, size_div_up(m.rows, m.mm->panel_rows), pack_panel, &job);
        rc = atomic_load(&job.failure.status);
    }
    free(job.rows);
    if (rc) {
        cpu_matrix_free(b, matrix);
        return rc;
    }
    m.panels = matrix->block.data;
    matrix->m = m;
    *out = matrix;
    return 0;
}

void cpu_matrix_free(struct backend *b, struct backend_matrix *m) {
    if (!m) return;
    memory_slab_free(&cpu_of(b)->slabs, m->block);
    free(m);
}
