/* One forward pass for all families: the decoder of Vaswani et al. 2017 as Llama has it (Touvron et al.
 * 2023), steered by the description in spec.h. */
#include "model/model_impl.h"

#include "base/size.h"

#include <assert.h>

struct pass {
    struct model *m;
    const struct backend_ops *ops;
    struct backend_kv *kv;
    const struct batch *batch;
    size_t first_row, n_rows; /* the panel */
};

static void product(struct pass *p, enum panel y, const struct weight *w, const struct weight *bias,
                    const struct backend_input *input, bool add) {
    p->ops->matmul(p->m->b, &p->m->panels[y], (const struct backend_matrix *const[]){w->matrix},
                   (const struct backend_buffer *const[]){bias->vector}, 1, input, p->n_rows, add);
}

static struct backend_input plain(const struct pass *p, enum panel x) {
    return (struct backend_input){.x = p->m->panels[x]};
}

static struct backend_input normalised(const struct pass *p, enum panel x, const struct weight *norm) {
    return (struct backend_input){
        .x = p->m->panels[x], .norm = norm->vector, .norm_eps = p->m->spec.norm_eps};
}

/* A block's output, in PANEL_OUT, joins the residual stream. */
static void join(struct pass *p, const struct weight *post_norm) {
    const struct model_spec *s = &p->m->spec;
    struct backend_residual r = {
        .norm = post_norm->vector, .norm_eps = s->norm_eps, .scale = s->residual_scale};
    p->ops->residual(p->m->b, p->m->panels[PANEL_X], p->m->panels[PANEL_OUT], &r, p->n_rows, s->n_embd);
}

/* A block's last product, and its way into the residual stream. */
static void finish(struct pass *p, const struct weight *w, const struct weight *bias,
                   const struct backend_input *input, const struct weight *post_norm) {
    if (!post_norm->vector && p->m->spec.residual_scale == 1.0f) {
        product(p, PANEL_X, w, bias, input, true);
        return;
    }
    product(p, PANEL_OUT, w, bias, input, false);
    join(p, post_norm);
}

static void attention_block(struct pass *p, size_t layer) {
    struct model *m = p->m;
    const struct model_spec *s = &m->spec;
    struct weight *w = m->layers[layer];
    struct backend_buffer **panels = m->panels;
    struct backend_input x = normalised(p, PANEL_X, &w[W_ATTN_NORM]), mixed = plain(p, PANEL_MIXED);
    p->ops->matmul(
        m->b, (struct backend_buffer *const[]){panels[PANEL_Q], panels[PANEL_K], panels[PANEL_V]},
        (const struct backend_matrix *const[]){w[W_ATTN_Q].matrix, w[W_ATTN_K].matrix, w[W_ATTN_V].matrix},
        (const struct backend_buffer *const[]){w[W_ATTN_Q_BIAS].vector, w[W_ATTN_K_BIAS].vector,
                                               w[W_ATTN_V_BIAS].vector},
        3, &x, p->n_rows, false);
    struct backend_attention a = {.group = s->layers[layer].kv_group,
                                  .layer = s->layers[layer].kv_layer,
                                  .n_heads = s->n_heads,
                                  .n_kv_heads = s->n_kv_heads,
                                  .head_dim = s->head_dim,
                                  .scale = s->attn_scale,
                                  .soft_cap = s->attn_soft_cap,
                                  .window = s->layers[layer].window,
                                  .sinks = w[W_ATTN_SINKS].vector};
    size_t angles = s->layers[layer].rope;
    struct backend_rope rope = {.table = angles == MODEL_NO_ROPE ? NULL : panels[PANEL_ROPE + angles],
                                .n_rot = s->ropes[0].n_rot,
                                .interleaved = s->ropes[0].interleaved,
                                .q_norm = w[W_ATTN_Q_NORM].vector,
                                .k_norm = w[W_ATTN_K_NORM].vector,
                                .norm_rows = s->qk_norm_rows,
                                .norm_eps = s->norm_eps};
    p->ops->rope_kv_write(m->b, panels[PANEL_Q], panels[PANEL_K], panels[PANEL_V], &rope, &a, p->kv, p->batch,
                          p->first_row, p->n_rows);
    p->ops->attention(m->b, panels[PANEL_MIXED], panels[PANEL_Q], &a, p->kv, p->batch, p->first_row,
                      p->n_rows);
    finish(p, &w[W_ATTN_OUT], &w[W_ATTN_OUT_BIAS], &mixed, &w[W_ATTN_POST_NORM]);
}

/* Gate and up of one input, and what they make together. */
static struct backend_input gate_and_up(struct pass *p, const struct backend_input *x,
                                        const struct weight *gate, const struct weight *gate_bias,
                                        const struct weight *up, const struct weight *up_bias) {
    struct model *m = p->m;
    struct backend_buffer **panels = m->panels;
    p->ops->matmul(m->b, (struct backend_buffer *const[]){panels[PANEL_GATE], panels[PANEL_UP]},
                   (const struct backend_matrix *const[]){gate->matrix, up->matrix},
                   (const struct backend_buffer *const[]){gate_bias->vector, up_bias->vector}, 2, x,
                   p->n_rows, false);
    return (struct backend_input){
        .x = panels[PANEL_GATE], .up = panels[PANEL_UP], .activation = m->spec.activation};
}

static void feed_forward_block(struct pass *p, size_t layer) {
    struct weight *w = p->m->layers[layer];
    struct backend_input x = normalised(p, PANEL_X, &w[W_FFN_NORM]);
    struct backend_input gated =
        gate_and_up(p, &x, &w[W_FFN_GATE], &w[W_FFN_GATE_BIAS], &w[W_FFN_UP], &w[W_FFN_UP_BIAS]);
    finish(p, &w[W_FFN_DOWN], &w[W_FFN_DOWN_BIAS], &gated, &w[W_FFN_POST_NORM]);
}

/* What every row passes, beside its own experts; a gate of the row's may scale it. */
static void shared_experts(struct pass *p, struct weight *w, const struct backend_input *x) {
    const struct model_spec *s = &p->m->spec;
    struct backend_buffer **panels = p->m->panels;
    const struct weight none = {0};
    struct backend_input gated = gate_and_up(p, x, &w[W_SHARED_GATE], &none, &w[W_SHARED_UP], &none);
    if (!w[W_SHARED_ROUTER].matrix) {
        product(p, PANEL_OUT, &w[W_SHARED_DOWN], &none, &gated, true);
        return;
    }
    product(p, PANEL_SHARED_ROUTER, &w[W_SHARED_ROUTER], &none, x, false);
    product(p, PANEL_MIXED, &w[W_SHARED_DOWN], &none, &gated, false);
    struct backend_residual r = {.scale = 1.0f, .gate = panels[PANEL_SHARED_ROUTER]};
    p->ops->residual(p->m->b, panels[PANEL_OUT], panels[PANEL_MIXED], &r, p->n_rows, s->n_embd);
}

static void experts_block(struct pass *p, size_t layer) {
    struct model *m = p->m;
    const struct model_experts *e = &m->spec.experts;
    struct weight *w = m->layers[layer];
    struct backend_input x = normalised(p, PANEL_X, &w[W_FFN_NORM]);
    struct backend_experts experts = {.n_experts = e->n,
                                      .n_used = e->n_used,
                                      .gating = e->gating,
                                      .normalise = e->normalise,
                                      .scale = e->scale,
                                      .activation = m->spec.activation,
                                      .gate = (const struct backend_matrix *const *)w[W_EXPERT_GATE].experts,
                                      .up = (const struct backend_matrix *const *)w[W_EXPERT_UP].experts,
                                      .down = (const struct backend_matrix *const *)w[W_EXPERT_DOWN].experts,
                                      .gate_bias = w[W_EXPERT_GATE_BIAS].vector,
                                      .up_bias = w[W_EXPERT_UP_BIAS].vector,
                                      .down_bias = w[W_EXPERT_DOWN_BIAS].vector};
    product(p, PANEL_ROUTER, &w[W_ROUTER], &w[W_ROUTER_BIAS], &x, false);
    p->ops->experts(m->b, m->panels[PANEL_OUT], &experts, m->panels[PANEL_ROUTER], &x, p->n_rows);
    if (w[W_SHARED_GATE].matrix) shared_experts(p, w, &x);
    join(p, &w[W_FFN_POST_NORM]);
}

/* Copies the panel's rows whose logits are wanted behind those kept so far. */
static size_t keep_rows(struct pass *p, size_t n_kept) {
    const struct batch *batch = p->batch;
    size_t n = 0;
    for (size_t i = n_kept; i < batch->n_logit_rows; i++) {
        size_t row = batch->logit_rows[i];
        if (row >= p->first_row + p->n_rows) break;
        p->m->kept[n++] = (uint32_t)(row - p->first_row);
    }
    p->ops->gather_rows(p->m->b, p->m->panels[PANEL_KEPT], n_kept, p->m->panels[PANEL_X], p->m->kept, n,
                        p->m->spec.n_embd);
    return n_kept + n;
}

void model_forward(struct model *m, struct backend_kv *kv, const struct batch *batch) {
    const struct model_spec *s = &m->spec;
    struct pass p = {.m = m, .ops = m->b->ops, .kv = kv, .batch = batch};
    size_t n_kept = 0;
    assert(batch->n_logit_rows <= m->max_kept_rows);
    for (; p.first_row < batch->n_rows; p.first_row += p.n_rows) {
        p.n_rows = size_min(m->b->max_rows, batch->n_rows - p.first_row);
        p.ops->embed(m->b, m->panels[PANEL_X], m->global[W_TOKEN_EMBD].matrix, batch->token + p.first_row,
                     p.n_rows, s->embed_scale);
        for (size_t layer = 0; layer < s->n_layers; layer++) {
            attention_block(&p, layer);
            if (s->layers[layer].routed)
                experts_block(&p, layer);
            else
                feed_forward_block(&p, layer);
        }
        n_kept = keep_rows(&p, n_kept);
    }
}

struct backend_buffer *model_logits(struct model *m, size_t first, size_t n) {
    struct weight *output = &m->global[m->spec.tied_output ? W_TOKEN_EMBD : W_OUTPUT], none = {0};
    struct pass p = {.m = m, .ops = m->b->ops, .n_rows = n};
    assert(n <= m->max_logit_rows && first + n <= m->max_kept_rows);
    for (size_t i = 0; i < n; i++) m->kept[i] = (uint32_t)(first + i);
    p.ops->gather_rows(m->b, m->panels[PANEL_MIXED], 0, m->panels[PANEL_KEPT], m->kept, n, m->spec.n_embd);
    struct backend_input kept = normalised(&p, PANEL_MIXED, &m->global[W_OUTPUT_NORM]);
    product(&p, PANEL_LOGITS, output, &none, &kept, false);
    float cap = m->spec.final_soft_cap;
    if (cap > 0.0f) p.ops->soft_cap(m->b, m->panels[PANEL_LOGITS], cap, n, m->spec.n_vocab);
    return m->panels[PANEL_LOGITS];
}
