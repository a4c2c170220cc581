/* Weight matrices: repacked, in parallel, into the panels that the kernel family of their format asks for. */
#include "backend/cpu/cpu.h"
#include "backend/cpu/places.h"

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

/* Rows are read so many bytes at a time: enough that a call costs nothing beside its bytes, few enough that
 * they are still in the cache of the core that packs them. */
#define READ_BYTES ((size_t)64 << 10)

/* And so much memory is made resident beyond a matrix, so that all threads have some of it to clear; but
 * where the next matrix is to be split among nodes, that decides where it comes from. */
#define AHEAD_BYTES ((size_t)16 << 20)

struct pack_job {
    const struct kern_matrix *m;
    char *panels;
    size_t panel_bytes, n_panels;
    const struct backend_tensor *t;
    size_t part_panels; /* read and packed at a time, the same on every machine: readers hash what comes */
    char *rows;         /* [n_threads] of a part's rows, when they are to be read */
    struct first_error failure;
};

/* The rows of a part in memory; NULL when they could not be read, now or by another thread. */
static const void *part_rows(struct pack_job *j, size_t first, size_t n, size_t thread) {
    if (j->t->data) return (const char *)j->t->data + first * j->t->row_bytes;
    char *rows = j->rows + thread * j->part_panels * j->m->mm->panel_rows * j->t->row_bytes;
    struct error err = {0};
    if (atomic_load(&j->failure.status)) return NULL;
    int rc = j->t->read_rows(j->t->ctx, first, n, rows, &err);
    if (!rc) return rows;
    first_error_note(&j->failure, rc, &err);
    return NULL;
}

static void pack_part(void *ctx, size_t part, size_t thread) {
    struct pack_job *j = ctx;
    size_t per_panel = j->m->mm->panel_rows, panel = part * j->part_panels, first = panel * per_panel;
    size_t n = size_min(j->part_panels * per_panel, j->t->rows - first);
    const char *rows = part_rows(j, first, n, thread);
    for (size_t row = 0; rows && row < n; row += per_panel, panel++)
        j->m->mm->pack(j->m, j->panels + panel * j->panel_bytes, rows + row * j->t->row_bytes,
                       j->t->row_bytes, size_min(per_panel, n - row));
}

/* Memory for rows that are read, for each thread. */
static int rows_alloc(const struct cpu_backend *c, struct pack_job *j, struct error *err) {
    size_t bytes;
    if (j->t->data) return 0;
    if (size_mul(j->part_panels * j->m->mm->panel_rows * pool_threads(c->pool), j->t->row_bytes, &bytes))
        j->rows = malloc(bytes);
    return j->rows ? 0 : error_set(err, QUIRE_ENOMEM, "tensor %s: no memory to read it", j->t->name);
}

int cpu_weights_reserve(struct backend *b, size_t bytes, struct error *err) {
    if (memory_slabs_reserve(&cpu_of(b)->slabs, bytes)) return 0;
    return error_set(err, QUIRE_ENOMEM, "no memory for %zu bytes of weights", bytes);
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
                           .n_panels = size_div_up(m.rows, m.mm->panel_rows),
                           .t = t,
                           .failure = {.err = err}};
    job.part_panels = size_max(1, READ_BYTES / (m.mm->panel_rows * t->row_bytes));
    job.part_panels = size_min(job.part_panels, job.n_panels);
    rc = rows_alloc(c, &job, err);
    if (!rc) {
        places_split(c->places, matrix->block.data, bytes);
        struct memory_span fresh =
            memory_slab_fresh(matrix->block, places_nodes(c->places) > 1 ? 0 : AHEAD_BYTES);
        rc = cpu_populate_run(c, fresh.data, fresh.bytes, size_div_up(job.n_panels, job.part_panels),
                              pack_part, &job);
        if (rc) error_set(err, rc, "tensor %s: the system has no more memory for weights", t->name);
        if (!rc) rc = atomic_load(&job.failure.status);
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
