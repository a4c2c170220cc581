/* Matrix products, and embedding look-up, over packed weights. */
#include "backend/cpu/cpu.h"

#include "base/size.h"

#include <string.h>

/* Outputs of one product that share its input: Q, K and V are three. */
#define MATMUL_MAX_OUTPUTS 8

#define EMBED_ITEM_ROWS 8

struct matmul_output {
    const struct kern_matrix *w;
    float *y;
    const float *bias;
    size_t n_panels, panels_per_item, n_items; /* n_items: of one row tile */
};

struct matmul_job {
    const struct cpu_backend *c;
    struct matmul_output outputs[MATMUL_MAX_OUTPUTS];
    size_t n_outputs;
    const struct backend_input *input;
    size_t width, n_rows, rows_per_pack;
    enum kern_act act;
    size_t act_row_bytes;
    char *acts;
    size_t tile_rows, items_per_tile;
    bool add;
};

void cpu_activate(const struct cpu_backend *c, enum backend_activation activation, float *row,
                  const float *gate, const float *up, size_t width) {
    switch (activation) {
    case BACKEND_SWIGLU: c->kern->swiglu(row, gate, up, width); break;
    case BACKEND_GEGLU: c->kern->geglu(row, gate, up, width); break;
    case BACKEND_SWIGLU_CLAMPED:
        c->kern->swiglu_clamped(row, gate, up, width, BACKEND_CLAMPED_ALPHA, BACKEND_CLAMPED_LIMIT);
        break;
    case BACKEND_GELU: c->kern->gelu(row, gate, width); break;
    case BACKEND_RELU:
        for (size_t i = 0; i < width; i++) row[i] = gate[i] < 0 ? 0 : gate[i]; /* a NaN stays */
        break;
    }
}

const float *cpu_input_row(const struct cpu_backend *c, const struct backend_input *in, size_t width,
                           size_t i, size_t thread) {
    const float *x = cpu_f32(in->x) + i * width;
    float *row = cpu_thread_scratch(c, thread, c->at.row);
    if (in->norm) {
        c->kern->rms_norm(row, x, cpu_f32(in->norm), width, in->norm_eps);
        return row;
    }
    bool alone = in->activation == BACKEND_GELU || in->activation == BACKEND_RELU;
    if (!in->up && !alone) return x;
    cpu_activate(c, in->activation, row, x, in->up ? cpu_f32(in->up) + i * width : NULL, width);
    return row;
}

static void pack_rows(void *ctx, size_t item, size_t thread) {
    const struct matmul_job *j = ctx;
    size_t first = item * j->rows_per_pack, end = size_min(first + j->rows_per_pack, j->n_rows);
    for (size_t i = first; i < end; i++)
        j->c->kern->act_pack[j->act](j->acts + i * j->act_row_bytes,
                                     cpu_input_row(j->c, j->input, j->width, i, thread), j->width);
}

/* Which kernels' thread_begin this thread has been through. */
static _Thread_local const struct kern *begun;

void cpu_begin_kernels(const struct cpu_backend *c) {
    if (begun == c->kern) return;
    if (c->kern->thread_begin) c->kern->thread_begin();
    begun = c->kern;
}

static void run_item(void *ctx, size_t item, size_t thread) {
    const struct matmul_job *j = ctx;
    cpu_begin_kernels(j->c);
    size_t tile = item / j->items_per_tile, in_tile = item % j->items_per_tile;
    const struct matmul_output *o = j->outputs;
    while (in_tile >= o->n_items) in_tile -= o++->n_items;

    const struct kern_matrix *w = o->w;
    size_t first_panel = in_tile * o->panels_per_item;
    size_t n_panels = size_min(o->panels_per_item, o->n_panels - first_panel);
    size_t first_col = first_panel * w->mm->panel_rows;
    size_t n_cols = size_min(n_panels * w->mm->panel_rows, w->rows - first_col);
    size_t row = tile * j->tile_rows, m = size_min(j->tile_rows, j->n_rows - row);
    float *y = o->y + row * w->rows + first_col;
    w->mm->run(w, y, w->rows, first_panel, n_panels, j->acts + row * j->act_row_bytes, j->act_row_bytes, m,
               j->add, cpu_thread_scratch(j->c, thread, j->c->at.mm));
    if (!o->bias) return;
    for (size_t i = 0; i < m; i++) j->c->kern->add(y + i * w->rows, o->bias + first_col, n_cols);
}

/* Cuts each output's panels into items of about equal work: enough of them to even out the threads. */
static void divide(struct matmul_job *j) {
    j->tile_rows = size_max(MATMUL_TILE_BYTES / j->act_row_bytes, 8);
    if (j->c->kern->call_rows) /* a multiple of them */
        j->tile_rows = size_div_up(j->tile_rows, j->c->kern->call_rows) * j->c->kern->call_rows;
    j->tile_rows = size_min(j->n_rows, j->tile_rows);
    size_t weight = size_div_up(j->tile_rows, 4), total = 0;
    for (size_t i = 0; i < j->n_outputs; i++) {
        const struct kern_matrix *w = j->outputs[i].w;
        total += j->outputs[i].n_panels * w->mm->panel_bytes(w) * weight;
    }
    size_t item = size_max(total / (pool_threads(j->c->pool) * MATMUL_ITEMS_PER_THREAD), MATMUL_ITEM_BYTES);
    j->items_per_tile = 0;
    for (size_t i = 0; i < j->n_outputs; i++) {
        struct matmul_output *o = &j->outputs[i];
        size_t panel = o->w->mm->panel_bytes(o->w) * weight;
        o->panels_per_item = size_max(item / panel, 1);
        o->n_items = size_div_up(o->n_panels, o->panels_per_item);
        j->items_per_tile += o->n_items;
    }
}

/* The outputs whose weights take this kind of input. */
static void run_kind(struct matmul_job *j) {
    j->act_row_bytes = j->c->kern->act_row_bytes(j->act, j->width);
    j->rows_per_pack = size_max(PACK_ITEM_ELEMS / j->width, 1);
    divide(j);
    pool_run_after(j->c->pool, size_div_up(j->n_rows, j->rows_per_pack), pack_rows,
                   size_div_up(j->n_rows, j->tile_rows) * j->items_per_tile, run_item, j);
}

void cpu_matmul(struct backend *b, struct backend_buffer *const *y, const struct backend_matrix *const *w,
                const struct backend_buffer *const *bias, size_t n_outputs, const struct backend_input *input,
                size_t n_rows, bool add) {
    struct cpu_backend *c = cpu_of(b);
    if (!n_rows || !n_outputs) return;
    struct matmul_job j = {.c = c,
                           .input = input,
                           .width = w[0]->m.k,
                           .n_rows = n_rows,
                           .acts = c->scratch + c->at.acts,
                           .add = add};
    for (int act = 0; act < KERN_ACT_KINDS; act++) {
        j.n_outputs = 0;
        j.act = (enum kern_act)act;
        for (size_t i = 0; i < n_outputs; i++) {
            const struct kern_matrix *m = &w[i]->m;
            if (m->mm->act != j.act) continue;
            j.outputs[j.n_outputs++] =
                (struct matmul_output){.w = m,
                                       .y = cpu_f32(y[i]),
                                       .bias = bias && bias[i] ? cpu_f32(bias[i]) : NULL,
                                       .n_panels = size_div_up(m->rows, m->mm->panel_rows)};
            if (j.n_outputs < MATMUL_MAX_OUTPUTS) continue;
            run_kind(&j);
            j.n_outputs = 0;
        }
        if (j.n_outputs) run_kind(&j);
    }
}

struct embed_job {
    const struct cpu_backend *c;
    const struct kern_matrix *table;
    float *y;
    const uint32_t *tokens;
    size_t n_rows;
    float scale;
};

static void embed_rows(void *ctx, size_t item, size_t thread) {
    const struct embed_job *j = ctx;
    const struct kern_matrix *w = j->table;
    size_t first = item * EMBED_ITEM_ROWS, end = size_min(first + EMBED_ITEM_ROWS, j->n_rows);
    for (size_t i = first; i < end; i++) {
        size_t row = j->tokens[i];
        float *y = j->y + i * w->k;
        if (row >= w->rows) { /* checked by the engine; a wrong id must not read outside */
            memset(y, 0, w->k * sizeof *y);
            continue;
        }
        const char *panel = (const char *)w->panels + row / w->mm->panel_rows * w->mm->panel_bytes(w);
        w->mm->unpack_row(w, y, panel, row % w->mm->panel_rows);
        if (j->scale != 1.0f) j->c->kern->scale(y, j->scale, w->k);
    }
}

void cpu_embed(struct backend *b, struct backend_buffer *y, const struct backend_matrix *table,
               const uint32_t *tokens, size_t n_rows, float scale) {
    struct embed_job j = {.c = cpu_of(b),
                          .table = &table->m,
                          .y = cpu_f32(y),
                          .tokens = tokens,
                          .n_rows = n_rows,
                          .scale = scale};
    pool_run(j.c->pool, size_div_up(n_rows, EMBED_ITEM_ROWS), embed_rows, &j);
}
