/* Routed experts. Rows are sent to their experts, the (row, expert) pairs sorted by expert, and the pairs of
 * one expert run as one matrix product, so that its weights are read once for all of them.
 *
 * A pair's place in that order is its slot. Slots run in waves of at most max_rows, which bounds the memory.
 * A slot's result depends on its row alone, and a row adds its results in ascending order of experts, so
 * neither the company of a row nor the cut into waves decides a bit. */
#include "backend/cpu/cpu.h"

#include "base/size.h"

#include <math.h>
#include <string.h>

/* The part of the scratch that is ours. */
struct routes {
    uint32_t *expert, *slot; /* [n_rows][n_used], ascending by expert */
    float *weight;           /* [n_rows][n_used] */
    uint32_t *row;           /* [n_rows * n_used] of each slot */
    uint32_t *first;         /* [n_experts + 1] first slot of each expert */
    uint32_t *next;          /* [n_experts] */
    struct expert_run *runs; /* [n_runs], see max_runs */
    float *gate, *up, *out;  /* [max_rows][width] of the slots of a wave */
};

/* Slots of one expert, no more than a tile. */
struct expert_run {
    uint32_t expert, first, n; /* first: within the wave */
};

/* Tiles hold 8 rows at least; each expert may begin one that is not full. */
static size_t max_runs(size_t n_experts, size_t max_rows) {
    return n_experts + max_rows / 8 + 1;
}

static void carve(size_t *at, size_t *here, size_t n, size_t elem_bytes) {
    size_t bytes;
    *here = *at;
    if (!size_mul(n, elem_bytes, &bytes) || !size_add(*at, bytes, at) ||
        !size_align_up(*at, MEMORY_ALIGN, at))
        *at = SIZE_MAX / 2;
}

static size_t lay_out(struct routes *r, char *base, const struct backend_cpu_options *o) {
    size_t at = 0, pairs, expert, slot, weight, row, first, next, runs, gate, up, out;
    if (!o->max_experts) return 0;
    pairs = o->max_rows * o->max_experts_used;
    carve(&at, &expert, pairs, sizeof *r->expert);
    carve(&at, &slot, pairs, sizeof *r->slot);
    carve(&at, &weight, pairs, sizeof *r->weight);
    carve(&at, &row, pairs, sizeof *r->row);
    carve(&at, &first, o->max_experts + 1, sizeof *r->first);
    carve(&at, &next, o->max_experts, sizeof *r->next);
    carve(&at, &runs, max_runs(o->max_experts, o->max_rows), sizeof *r->runs);
    carve(&at, &gate, o->max_rows * o->max_expert_width, sizeof(float));
    carve(&at, &up, o->max_rows * o->max_expert_width, sizeof(float));
    carve(&at, &out, o->max_rows * o->max_width, sizeof(float));
    if (!base) return at;
    *r = (struct routes){.expert = (uint32_t *)(void *)(base + expert),
                         .slot = (uint32_t *)(void *)(base + slot),
                         .weight = (float *)(void *)(base + weight),
                         .row = (uint32_t *)(void *)(base + row),
                         .first = (uint32_t *)(void *)(base + first),
                         .next = (uint32_t *)(void *)(base + next),
                         .runs = (struct expert_run *)(void *)(base + runs),
                         .gate = (float *)(void *)(base + gate),
                         .up = (float *)(void *)(base + up),
                         .out = (float *)(void *)(base + out)};
    return at;
}

size_t experts_bytes(const struct backend_cpu_options *o) {
    return lay_out(NULL, NULL, o);
}

struct experts_job {
    const struct cpu_backend *c;
    const struct backend_experts *e;
    const struct backend_input *input;
    const float *logits;
    float *y;
    struct routes r;
    size_t n_rows, width, expert_width; /* elements of a row, and of an expert's gate */
    size_t first_slot, n_slots, n_runs; /* the wave */
};

/* ---- routing ---- */

/* The n largest scores, ascending by index; n <= n_scores, of equals the lower index. */
static void select_largest(const float *scores, size_t n_scores, uint32_t *chosen, size_t n) {
    for (size_t i = 0; i < n; i++) {
        size_t best = SIZE_MAX, at = i;
        for (size_t e = 0, k = 0; e < n_scores; e++) {
            if (k < i && chosen[k] == e) {
                k++;
                continue;
            }
            if (best == SIZE_MAX || scores[e] > scores[best]) best = e;
        }
        for (; at && chosen[at - 1] > best; at--) chosen[at] = chosen[at - 1];
        chosen[at] = (uint32_t)best;
    }
}

/* Weights before they are divided or scaled are terms / total. Sigmoid: total 1. */
static double term_of(const struct backend_experts *e, float logit, float max) {
    return e->gating == BACKEND_GATE_SIGMOID ? 1.0 / (1.0 + exp(-(double)logit)) : exp((double)logit - max);
}

static float largest_logit(const struct experts_job *j, const float *logits, bool *finite) {
    float max;
    size_t argmax;
    j->c->kern->logits_scan(logits, j->e->n_experts, &max, &argmax, finite);
    return max;
}

static double total_of(const struct experts_job *j, const float *logits, float max, bool finite) {
    double total = 0.0;
    if (!finite) return NAN;
    if (j->e->gating == BACKEND_GATE_SIGMOID) return 1.0;
    for (size_t i = 0; i < j->e->n_experts; i++) total += exp((double)logits[i] - max);
    return total;
}

/* Experts of groups that are not among the best get the score -inf. */
static void limit_groups(const struct backend_experts *e, float *scores) {
    size_t n = e->n_experts / e->n_groups;
    float best[BACKEND_MAX_EXPERT_GROUPS] = {0};
    uint32_t chosen[BACKEND_MAX_EXPERT_GROUPS];
    for (size_t g = 0; g < e->n_groups; g++) {
        uint32_t top[2];
        select_largest(scores + g * n, n, top, e->group_best);
        for (size_t i = 0; i < e->group_best; i++) best[g] += scores[g * n + top[i]];
    }
    select_largest(best, e->n_groups, chosen, e->n_groups_used);
    for (size_t g = 0, k = 0; g < e->n_groups; g++) {
        if (k < e->n_groups_used && chosen[k] == g) {
            k++;
            continue;
        }
        for (size_t i = g * n; i < (g + 1) * n; i++) scores[i] = -INFINITY;
    }
}

/* What experts are chosen by, where that is not the logits: in this thread's scratch. */
static const float *scores_of(const struct experts_job *j, const float *logits, size_t thread) {
    const struct backend_experts *e = j->e;
    float *scores = cpu_thread_scratch(j->c, thread, j->c->at.row);
    bool groups = e->n_groups > 1, finite;
    if (!groups && !e->choice_bias) return logits;
    float max = largest_logit(j, logits, &finite);
    double total = total_of(j, logits, max, finite);
    for (size_t i = 0; i < e->n_experts; i++) {
        scores[i] = (float)(term_of(e, logits[i], max) / total);
        if (e->choice_bias) scores[i] += cpu_f32(e->choice_bias)[i];
    }
    if (groups) limit_groups(e, scores);
    return scores;
}

static void weigh(const struct experts_job *j, const float *logits, const uint32_t *chosen, float *weight) {
    const struct backend_experts *e = j->e;
    bool finite;
    float max = largest_logit(j, logits, &finite);
    double total = total_of(j, logits, max, finite), chosen_sum = 0.0;
    for (size_t i = 0; i < e->n_used; i++) chosen_sum += term_of(e, logits[chosen[i]], max);
    if (e->normalise || e->gating == BACKEND_GATE_SELECTED) total = finite ? chosen_sum : NAN;
    for (size_t i = 0; i < e->n_used; i++)
        weight[i] = (float)(term_of(e, logits[chosen[i]], max) / total * e->scale);
}

static void route_row(void *ctx, size_t row, size_t thread) {
    const struct experts_job *j = ctx;
    size_t n = j->e->n_used;
    const float *logits = j->logits + row * j->e->n_experts;
    uint32_t *chosen = j->r.expert + row * n;
    select_largest(scores_of(j, logits, thread), j->e->n_experts, chosen, n);
    weigh(j, logits, chosen, j->r.weight + row * n);
}

/* Slots by expert, then row: a counting sort. */
static void assign_slots(struct experts_job *j) {
    struct routes *r = &j->r;
    size_t n_used = j->e->n_used, n_pairs = j->n_rows * n_used;
    memset(r->first, 0, (j->e->n_experts + 1) * sizeof *r->first);
    for (size_t i = 0; i < n_pairs; i++) r->first[r->expert[i] + 1]++;
    for (size_t e = 0; e < j->e->n_experts; e++) {
        r->first[e + 1] += r->first[e];
        r->next[e] = r->first[e];
    }
    for (size_t i = 0; i < n_pairs; i++) {
        uint32_t slot = r->next[r->expert[i]]++;
        r->slot[i] = slot;
        r->row[slot] = (uint32_t)(i / n_used);
    }
}

/* ---- products ---- */

struct expert_output {
    const struct backend_matrix *const *w;
    const float *bias;
    float *y; /* [slot][rows] */
    size_t n_panels, panels_per_item, n_items;
};

struct products {
    const struct experts_job *j;
    struct expert_output outputs[2];
    size_t n_outputs, width, rows_per_pack, items_per_run, act_row_bytes;
    enum kern_act act;
    bool gated; /* the input is made of gate and up, else of the rows */
    char *acts;
};

static void pack_slots(void *ctx, size_t item, size_t thread) {
    const struct products *p = ctx;
    const struct experts_job *j = p->j;
    size_t end = size_min((item + 1) * p->rows_per_pack, j->n_slots);
    for (size_t i = item * p->rows_per_pack; i < end; i++) {
        const float *x;
        if (p->gated) {
            float *row = cpu_thread_scratch(j->c, thread, j->c->at.row);
            cpu_activate(j->c, j->e->activation, row, j->r.gate + i * p->width, j->r.up + i * p->width,
                         p->width);
            x = row;
        } else {
            x = cpu_input_row(j->c, j->input, p->width, j->r.row[j->first_slot + i], thread);
        }
        j->c->kern->act_pack[p->act](p->acts + i * p->act_row_bytes, x, p->width);
    }
}

static void run_product(void *ctx, size_t item, size_t thread) {
    const struct products *p = ctx;
    const struct experts_job *j = p->j;
    cpu_begin_kernels(j->c);
    const struct expert_run *run = &j->r.runs[item / p->items_per_run];
    const struct expert_output *o = p->outputs;
    size_t in_run = item % p->items_per_run;
    while (in_run >= o->n_items) in_run -= o++->n_items;

    const struct kern_matrix *w = &o->w[run->expert]->m;
    size_t first_panel = in_run * o->panels_per_item;
    size_t n_panels = size_min(o->panels_per_item, o->n_panels - first_panel);
    size_t first_col = first_panel * w->mm->panel_rows;
    size_t n_cols = size_min(n_panels * w->mm->panel_rows, w->rows - first_col);
    float *y = o->y + run->first * w->rows + first_col;
    w->mm->run(w, y, w->rows, first_panel, n_panels, p->acts + run->first * p->act_row_bytes,
               p->act_row_bytes, run->n, false, cpu_thread_scratch(j->c, thread, j->c->at.mm));
    if (!o->bias) return;
    const float *bias = o->bias + run->expert * w->rows + first_col;
    for (size_t i = 0; i < run->n; i++) j->c->kern->add(y + i * w->rows, bias, n_cols);
}

/* The wave's slots of each expert, in tiles whose packed inputs stay in cache. */
static void find_runs(struct experts_job *j, size_t act_row_bytes) {
    struct routes *r = &j->r;
    size_t tile = size_max(MATMUL_TILE_BYTES / act_row_bytes, 8), end = j->first_slot + j->n_slots;
    j->n_runs = 0;
    for (size_t e = 0; e < j->e->n_experts; e++) {
        size_t slot = size_max(r->first[e], j->first_slot), last = size_min(r->first[e + 1], end);
        while (slot < last) {
            size_t n = size_min(last - slot, tile);
            r->runs[j->n_runs++] = (struct expert_run){
                .expert = (uint32_t)e, .first = (uint32_t)(slot - j->first_slot), .n = (uint32_t)n};
            slot += n;
        }
    }
}

static void run_products(struct experts_job *j, struct products *p) {
    size_t total = 0;
    p->j = j;
    p->act = p->outputs[0].w[0]->m.mm->act;
    p->act_row_bytes = j->c->kern->act_row_bytes(p->act, p->width);
    p->rows_per_pack = size_max(PACK_ITEM_ELEMS / p->width, 1);
    p->acts = j->c->scratch + j->c->at.acts;
    find_runs(j, p->act_row_bytes);
    for (size_t i = 0; i < p->n_outputs; i++) {
        const struct kern_matrix *w = &p->outputs[i].w[0]->m;
        p->outputs[i].n_panels = size_div_up(w->rows, w->mm->panel_rows);
        total += j->n_runs * p->outputs[i].n_panels * w->mm->panel_bytes(w);
    }
    size_t item = size_max(total / (pool_threads(j->c->pool) * MATMUL_ITEMS_PER_THREAD), MATMUL_ITEM_BYTES);
    p->items_per_run = 0;
    for (size_t i = 0; i < p->n_outputs; i++) {
        struct expert_output *o = &p->outputs[i];
        const struct kern_matrix *w = &o->w[0]->m;
        o->panels_per_item = size_max(item / w->mm->panel_bytes(w), 1);
        o->n_items = size_div_up(o->n_panels, o->panels_per_item);
        p->items_per_run += o->n_items;
    }
    pool_run_after(j->c->pool, size_div_up(j->n_slots, p->rows_per_pack), pack_slots,
                   j->n_runs * p->items_per_run, run_product, p);
}

static const float *bias_of(const struct backend_buffer *buf) {
    return buf ? cpu_f32(buf) : NULL;
}

static void add_row(void *ctx, size_t row, size_t thread) {
    const struct experts_job *j = ctx;
    const struct routes *r = &j->r;
    for (size_t i = row * j->e->n_used; i < (row + 1) * j->e->n_used; i++) {
        size_t slot = r->slot[i] - j->first_slot; /* wraps around for slots of earlier waves */
        if (slot >= j->n_slots) continue;
        j->c->kern->scale(r->out + slot * j->width, r->weight[i], j->width);
        j->c->kern->add(j->y + row * j->width, r->out + slot * j->width, j->width);
    }
}

static void run_wave(struct experts_job *j) {
    const struct backend_experts *e = j->e;
    struct expert_output gate = {.w = e->gate, .bias = bias_of(e->gate_bias), .y = j->r.gate};
    struct expert_output up = {.w = e->up, .bias = bias_of(e->up_bias), .y = j->r.up};
    struct expert_output down = {.w = e->down, .bias = bias_of(e->down_bias), .y = j->r.out};
    struct products first = {.outputs = {gate, up}, .n_outputs = 2, .width = j->width};
    if (gate.w[0]->m.mm->act == up.w[0]->m.mm->act) {
        run_products(j, &first);
    } else { /* each needs its own form of the input */
        first.n_outputs = 1;
        run_products(j, &first);
        struct products second = {.outputs = {up}, .n_outputs = 1, .width = j->width};
        run_products(j, &second);
    }
    struct products last = {.outputs = {down}, .n_outputs = 1, .width = j->expert_width, .gated = true};
    run_products(j, &last);
    pool_run(j->c->pool, j->n_rows, add_row, j);
}

void cpu_experts(struct backend *b, struct backend_buffer *y, const struct backend_experts *e,
                 const struct backend_buffer *logits, const struct backend_input *input, size_t n_rows) {
    struct cpu_backend *c = cpu_of(b);
    struct experts_job j = {.c = c,
                            .e = e,
                            .input = input,
                            .logits = cpu_f32(logits),
                            .y = cpu_f32(y),
                            .n_rows = n_rows,
                            .width = e->gate[0]->m.k,
                            .expert_width = e->gate[0]->m.rows};
    lay_out(&j.r, c->scratch + c->at.experts, &c->limits);
    memset(j.y, 0, n_rows * j.width * sizeof *j.y);
    pool_run(c->pool, n_rows, route_row, &j);
    assign_slots(&j);
    for (size_t n_pairs = n_rows * e->n_used; j.first_slot < n_pairs; j.first_slot += j.n_slots) {
        j.n_slots = size_min(n_pairs - j.first_slot, c->max_rows);
        run_wave(&j);
    }
}
