/* Products of heads, each with a matrix of its own: what multi-head latent attention does to queries before
 * and to results after it (DeepSeek-V2, arXiv 2405.04434, section 2.1.2). */
#include "backend/cpu/cpu.h"

#include "base/size.h"

#include <string.h>

struct heads_job {
    const struct cpu_backend *c;
    const struct backend_matrix *const *w; /* of the wave's heads */
    const float *x;                        /* likewise */
    float *y;
    size_t n_rows, n_heads; /* of the wave */
    size_t x_row, y_row;    /* floats from one row to the next */
    size_t x_dim, y_dim;    /* of one head */
    enum kern_act act;
    size_t act_row_bytes, pairs_per_pack, panels_per_item, items_per_head;
    char *acts; /* [head][row] */
};

/* Pairs of a head and a row. */
static void pack_pairs(void *ctx, size_t item, size_t thread) {
    const struct heads_job *j = ctx;
    const struct kern_matrix *w = &j->w[0]->m;
    size_t first = item * j->pairs_per_pack, n = j->n_heads * j->n_rows;
    for (size_t i = first; i < size_min(first + j->pairs_per_pack, n); i++) {
        size_t head = i / j->n_rows, row = i % j->n_rows;
        const float *x = j->x + row * j->x_row + head * j->x_dim;
        float *y = j->y + row * j->y_row + head * j->y_dim;
        j->c->kern->act_pack[j->act](j->acts + i * j->act_row_bytes, x, w->k);
        memcpy(y + w->rows, x + w->k, (j->x_dim - w->k) * sizeof *y);
    }
}

static void run_head(void *ctx, size_t item, size_t thread) {
    const struct heads_job *j = ctx;
    size_t head = item / j->items_per_head, first = item % j->items_per_head * j->panels_per_item;
    const struct kern_matrix *w = &j->w[head]->m;
    size_t n_panels = size_min(j->panels_per_item, size_div_up(w->rows, w->mm->panel_rows) - first);
    float *y = j->y + head * j->y_dim + first * w->mm->panel_rows;
    cpu_begin_kernels(j->c);
    w->mm->run(w, y, j->y_row, first, n_panels, j->acts + head * j->n_rows * j->act_row_bytes,
               j->act_row_bytes, j->n_rows, false, cpu_thread_scratch(j->c, thread, j->c->at.mm));
}

/* As many heads at a time as have room for their packed inputs. */
static size_t heads_of_wave(const struct heads_job *j, size_t n_heads) {
    size_t most = 0;
    for (int act = 0; act < KERN_ACT_KINDS; act++)
        most = size_max(most, j->c->kern->act_row_bytes((enum kern_act)act, j->c->max_width));
    return size_min(size_max(most * j->c->max_rows / (j->n_rows * j->act_row_bytes), 1), n_heads);
}

void cpu_matmul_heads(struct backend *b, struct backend_buffer *y, const struct backend_matrix *const *w,
                      size_t n_heads, const struct backend_buffer *x, size_t x_dim, size_t n_rows) {
    struct cpu_backend *c = cpu_of(b);
    const struct kern_matrix *m = &w[0]->m;
    if (!n_rows || !n_heads) return;
    struct heads_job j = {.c = c,
                          .n_rows = n_rows,
                          .x_dim = x_dim,
                          .y_dim = m->rows + x_dim - m->k,
                          .act = m->mm->act,
                          .acts = c->scratch + c->at.acts};
    j.x_row = n_heads * j.x_dim;
    j.y_row = n_heads * j.y_dim;
    j.act_row_bytes = c->kern->act_row_bytes(j.act, m->k);
    j.pairs_per_pack = size_max(PACK_ITEM_ELEMS / m->k, 1);
    size_t n_panels = size_div_up(m->rows, m->mm->panel_rows), panel = m->mm->panel_bytes(m);
    size_t weight = size_div_up(n_rows, 4), total = n_heads * n_panels * panel * weight;
    size_t item = size_max(total / (pool_threads(c->pool) * MATMUL_ITEMS_PER_THREAD), MATMUL_ITEM_BYTES);
    j.panels_per_item = size_min(size_max(item / (panel * weight), 1), n_panels);
    j.items_per_head = size_div_up(n_panels, j.panels_per_item);
    size_t wave = heads_of_wave(&j, n_heads);
    for (size_t head = 0; head < n_heads; head += wave) {
        j.w = w + head;
        j.x = cpu_f32(x) + head * j.x_dim;
        j.y = cpu_f32(y) + head * j.y_dim;
        j.n_heads = size_min(wave, n_heads - head);
        pool_run_after(c->pool, size_div_up(j.n_heads * n_rows, j.pairs_per_pack), pack_pairs,
                       j.n_heads * j.items_per_head, run_head, &j);
    }
}
