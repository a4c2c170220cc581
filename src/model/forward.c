/* One forward pass for all families: the decoder of Vaswani et al. 2017 as Llama has it (Touvron et al.
 * 2023), and the encoder as BERT has it (Devlin et al. 2019), steered by the description in spec.h. */
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

/* Of experts or heads. */
static const struct backend_matrix *const *matrices(const struct weight *w) {
    return (const struct backend_matrix *const *)w->each;
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

/* In place, if there is such a norm. */
static void normalise(struct pass *p, const struct weight *norm, const struct weight *bias) {
    const struct model_spec *s = &p->m->spec;
    struct backend_norm n = {.weight = norm->vector, .bias = bias->vector, .eps = s->norm_eps};
    if (n.weight) p->ops->normalise(p->m->b, p->m->panels[PANEL_X], &n, p->n_rows, s->n_embd);
}

static struct backend_attention attention_of(const struct pass *p, size_t layer) {
    const struct model_spec *s = &p->m->spec;
    return (struct backend_attention){.group = s->layers[layer].kv_group,
                                      .layer = s->layers[layer].kv_layer,
                                      .n_heads = s->n_heads,
                                      .n_kv_heads = s->n_kv_heads,
                                      .head_dim = s->head_dim,
                                      .value_dim = model_value_dim(s),
                                      .scale = s->attn_scale,
                                      .soft_cap = s->attn_soft_cap,
                                      .window = s->layers[layer].window,
                                      .bidirectional = s->encoder,
                                      .sinks = p->m->layers[layer][W_ATTN_SINKS].vector};
}

static void heads_product(struct pass *p, enum panel y, const struct weight *w, enum panel x, size_t x_dim) {
    struct model *m = p->m;
    p->ops->matmul_heads(m->b, m->panels[y], matrices(w), m->spec.n_heads, m->panels[x], x_dim, p->n_rows);
}

/* Queries, from the stream or from a latent of their own, and the row that keys and values are made from. */
static void project_latent(struct pass *p, const struct weight *w, const struct backend_input *x) {
    struct model *m = p->m;
    struct backend_buffer **panels = m->panels;
    const struct weight none = {0};
    bool ranked = m->spec.latent.q_rank;
    p->ops->matmul(
        m->b, (struct backend_buffer *const[]){panels[ranked ? PANEL_Q_RANK : PANEL_Q], panels[PANEL_K]},
        (const struct backend_matrix *const[]){w[ranked ? W_ATTN_Q_A : W_ATTN_Q].matrix, w[W_ATTN_K].matrix},
        NULL, 2, x, p->n_rows, false);
    if (!ranked) return;
    struct backend_input q = normalised(p, PANEL_Q_RANK, &w[W_ATTN_Q_A_NORM]);
    q.norm_eps = m->spec.latent.norm_eps;
    product(p, PANEL_Q, &w[W_ATTN_Q], &none, &q, false);
}

static void project_heads(struct pass *p, const struct weight *w, const struct backend_input *x) {
    struct model *m = p->m;
    struct backend_buffer **panels = m->panels;
    p->ops->matmul(
        m->b, (struct backend_buffer *const[]){panels[PANEL_Q], panels[PANEL_K], panels[PANEL_V]},
        (const struct backend_matrix *const[]){w[W_ATTN_Q].matrix, w[W_ATTN_K].matrix, w[W_ATTN_V].matrix},
        (const struct backend_buffer *const[]){w[W_ATTN_Q_BIAS].vector, w[W_ATTN_K_BIAS].vector,
                                               w[W_ATTN_V_BIAS].vector},
        3, x, p->n_rows, false);
}

/* Queries, keys and values of the panel; the last two are stored. */
static void project(struct pass *p, size_t layer) {
    struct model *m = p->m;
    const struct model_spec *s = &m->spec;
    struct weight *w = m->layers[layer];
    struct backend_buffer **panels = m->panels;
    struct backend_input x = normalised(p, PANEL_X, &w[W_ATTN_NORM]);
    bool latent = s->latent.rank;
    if (latent)
        project_latent(p, w, &x);
    else
        project_heads(p, w, &x);
    struct backend_attention a = attention_of(p, layer);
    size_t angles = s->layers[layer].rope;
    struct backend_rope rope = {.table = angles == MODEL_NO_ROPE ? NULL : panels[PANEL_ROPE + angles],
                                .n_rot = s->ropes[0].n_rot,
                                .interleaved = s->ropes[0].interleaved,
                                .behind = latent,
                                .q_dim = latent ? s->latent.key + s->latent.n_rot : 0,
                                .q_norm = w[W_ATTN_Q_NORM].vector,
                                .k_norm = w[W_ATTN_K_NORM].vector,
                                .norm_rows = s->qk_norm_rows,
                                .norm_eps = latent ? s->latent.norm_eps : s->norm_eps,
                                .temperature = s->attn_temperature,
                                .temperature_step = s->temperature_step};
    p->ops->rope_kv_write(m->b, panels[PANEL_Q], panels[PANEL_K], latent ? NULL : panels[PANEL_V], &rope, &a,
                          p->kv, p->batch, p->first_row, p->n_rows);
    if (latent) heads_product(p, PANEL_Q_LATENT, &w[W_ATTN_K_B], PANEL_Q, rope.q_dim);
}

static void attend(struct pass *p, size_t layer) {
    struct model *m = p->m;
    struct weight *w = m->layers[layer];
    struct backend_attention a = attention_of(p, layer);
    bool latent = m->spec.latent.rank;
    struct backend_input mixed = plain(p, latent ? PANEL_Q : PANEL_MIXED);
    p->ops->attention(m->b, m->panels[PANEL_MIXED], m->panels[latent ? PANEL_Q_LATENT : PANEL_Q], &a, p->kv,
                      p->batch, p->first_row, p->n_rows);
    if (latent) heads_product(p, PANEL_Q, &w[W_ATTN_V_B], PANEL_MIXED, a.value_dim);
    finish(p, &w[W_ATTN_OUT], &w[W_ATTN_OUT_BIAS], &mixed, &w[W_ATTN_POST_NORM]);
    normalise(p, &w[W_ATTN_AFTER_NORM], &w[W_ATTN_AFTER_NORM_BIAS]);
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
    struct backend_input x = normalised(p, PANEL_X, &w[W_FFN_NORM]), hidden;
    if (w[W_FFN_GATE].matrix) {
        hidden = gate_and_up(p, &x, &w[W_FFN_GATE], &w[W_FFN_GATE_BIAS], &w[W_FFN_UP], &w[W_FFN_UP_BIAS]);
    } else {
        product(p, PANEL_UP, &w[W_FFN_UP], &w[W_FFN_UP_BIAS], &x, false);
        hidden = plain(p, PANEL_UP);
        hidden.activation = p->m->spec.activation;
    }
    finish(p, &w[W_FFN_DOWN], &w[W_FFN_DOWN_BIAS], &hidden, &w[W_FFN_POST_NORM]);
    normalise(p, &w[W_FFN_AFTER_NORM], &w[W_FFN_AFTER_NORM_BIAS]);
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
                                      .n_groups = e->n_groups,
                                      .n_groups_used = e->n_groups_used,
                                      .group_best = e->group_best,
                                      .choice_bias = w[W_ROUTER_CHOICE_BIAS].vector,
                                      .gating = e->gating,
                                      .normalise = e->normalise,
                                      .scale = e->scale,
                                      .activation = m->spec.activation,
                                      .gate = matrices(&w[W_EXPERT_GATE]),
                                      .up = matrices(&w[W_EXPERT_UP]),
                                      .down = matrices(&w[W_EXPERT_DOWN]),
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

/* ---- vectors ---- */

static void copy_row(struct pass *p, size_t pool_row, size_t row) {
    p->ops->gather_rows(p->m->b, p->m->panels[PANEL_POOLED], pool_row, p->m->panels[PANEL_X],
                        &(uint32_t){(uint32_t)row}, 1, p->m->spec.n_embd);
}

/* What the panel's rows [row, row + n) give to their sequence's vector. */
static void pool_rows(struct pass *p, const struct batch_seq *seq, size_t row, size_t n) {
    struct model *m = p->m;
    bool begins = p->batch->position[p->first_row + row] == 0;
    switch (m->pooling) {
    case MODEL_POOL_MEAN:
        p->ops->sum_rows(m->b, m->panels[PANEL_POOLED], seq->pool_row, m->panels[PANEL_X], row, n,
                         m->spec.n_embd, !begins);
        break;
    case MODEL_POOL_LAST: copy_row(p, seq->pool_row, row + n - 1); break;
    default:
        if (begins) copy_row(p, seq->pool_row, row);
    }
}

static void pool_panel(struct pass *p) {
    const struct batch *batch = p->batch;
    for (size_t row = 0, n; row < p->n_rows; row += n) {
        const struct batch_seq *seq = &batch->seqs[batch->seq[p->first_row + row]];
        n = size_min(seq->first_row + seq->n_rows - p->first_row, p->n_rows) - row;
        pool_rows(p, seq, row, n);
    }
}

/* PANEL_MIXED to PANEL_SCORES. */
static void score_rows(struct pass *p) {
    struct weight *w = p->m->global;
    struct backend_input x = plain(p, PANEL_MIXED);
    if (w[W_HEAD].matrix) {
        product(p, PANEL_OUT, &w[W_HEAD], &w[W_HEAD_BIAS], &x, false);
        x = plain(p, PANEL_OUT);
        if (p->m->spec.relu_head)
            x.activation = BACKEND_RELU;
        else
            p->ops->soft_cap(p->m->b, p->m->panels[PANEL_OUT], 1.0f, p->n_rows, p->m->spec.n_embd); /* tanh */
    }
    product(p, PANEL_SCORES, &w[W_HEAD_OUT], &w[W_HEAD_OUT_BIAS], &x, false);
}

static void take_vectors(struct pass *p, const uint32_t *rows, const uint32_t *n_tokens, float *out) {
    struct model *m = p->m;
    size_t width = model_vector_floats(&m->spec, m->pooling);
    bool rank = m->pooling == MODEL_POOL_RANK;
    p->ops->gather_rows(m->b, m->panels[PANEL_MIXED], 0, m->panels[PANEL_POOLED], rows, p->n_rows,
                        m->spec.n_embd);
    if (rank) score_rows(p);
    p->ops->download(m->b, out, m->panels[rank ? PANEL_SCORES : PANEL_MIXED], 0,
                     p->n_rows * width * sizeof *out);
    for (size_t i = 0; i < p->n_rows && m->pooling == MODEL_POOL_MEAN; i++)
        for (size_t k = 0; k < width; k++) out[i * width + k] /= (float)n_tokens[i];
}

void model_vectors(struct model *m, const uint32_t *rows, const uint32_t *n_tokens, size_t n, float *out) {
    struct pass p = {.m = m, .ops = m->b->ops};
    size_t width = model_vector_floats(&m->spec, m->pooling);
    for (size_t first = 0; first < n; first += p.n_rows) {
        p.n_rows = size_min(m->b->max_rows, n - first);
        take_vectors(&p, rows + first, n_tokens + first, out + first * width);
    }
}

/* ---- panels ---- */

/* Rows of a table by numbers in m->kept, added to PANEL_X. */
static void add_embedding(struct pass *p, const struct weight *table, const uint32_t *rows) {
    struct backend_residual r = {.scale = 1.0f};
    p->ops->embed(p->m->b, p->m->panels[PANEL_OUT], table->matrix, rows, p->n_rows, 1.0f);
    p->ops->residual(p->m->b, p->m->panels[PANEL_X], p->m->panels[PANEL_OUT], &r, p->n_rows,
                     p->m->spec.n_embd);
}

static void embed(struct pass *p) {
    struct model *m = p->m;
    const struct batch *b = p->batch;
    struct weight *w = m->global;
    p->ops->embed(m->b, m->panels[PANEL_X], w[W_TOKEN_EMBD].matrix, b->token + p->first_row, p->n_rows,
                  m->spec.embed_scale);
    if (w[W_TYPE_EMBD].matrix) {
        for (size_t i = 0; i < p->n_rows; i++) {
            size_t row = p->first_row + i, n_first = b->seqs[b->seq[row]].n_first;
            m->kept[i] = n_first && b->position[row] >= n_first && m->spec.n_token_types > 1;
        }
        add_embedding(p, &w[W_TYPE_EMBD], m->kept);
    }
    if (w[W_POSITION_EMBD].matrix) add_embedding(p, &w[W_POSITION_EMBD], b->position + p->first_row);
    normalise(p, &w[W_EMBD_NORM], &w[W_EMBD_NORM_BIAS]);
}

/* After the last layer. */
static void end_panel(struct pass *p, size_t *n_kept) {
    const struct weight none = {0};
    if (!p->m->pooling) {
        *n_kept = keep_rows(p, *n_kept);
        return;
    }
    normalise(p, &p->m->global[W_OUTPUT_NORM], &none);
    pool_panel(p);
}

static void end_layer(struct pass *p, size_t layer) {
    attend(p, layer);
    if (p->m->spec.layers[layer].routed)
        experts_block(p, layer);
    else
        feed_forward_block(p, layer);
}

/* Rows of whole sequences from p->first_row on: as many as one panel holds, or one sequence that is longer.
 */
static size_t run_length(const struct pass *p) {
    const struct batch *b = p->batch;
    size_t n = 0;
    for (size_t i = b->seq[p->first_row]; i < b->n_seqs; n += b->seqs[i++].n_rows)
        if (n && n + b->seqs[i].n_rows > p->m->b->max_rows) break;
    return n;
}

/* The panel's rows from a buffer of the run's, or to it. */
static void move_rows(struct pass *p, enum panel dst, size_t dst_row, enum panel src, size_t src_row,
                      size_t width) {
    for (size_t i = 0; i < p->n_rows; i++) p->m->kept[i] = (uint32_t)(src_row + i);
    p->ops->gather_rows(p->m->b, p->m->panels[dst], dst_row, p->m->panels[src], p->m->kept, p->n_rows, width);
}

/* A sequence of several panels, layer by layer: all of its keys and values are stored before any row reads
 * them. */
static void run_long(struct pass *p, size_t n_run, size_t *n_kept) {
    const struct model_spec *s = &p->m->spec;
    size_t first = p->first_row, q_width = s->n_heads * s->head_dim, steps = 2 * s->n_layers;
    for (size_t step = 0; step < steps; step++) {
        size_t layer = step / 2;
        for (size_t at = 0; at < n_run; at += p->n_rows) {
            p->first_row = first + at;
            p->n_rows = size_min(p->m->b->max_rows, n_run - at);
            if (step)
                move_rows(p, PANEL_X, 0, PANEL_RUN_X, at, s->n_embd);
            else
                embed(p);
            if (step % 2 == 0) {
                project(p, layer);
                move_rows(p, PANEL_RUN_Q, at, PANEL_Q, 0, q_width);
            } else {
                move_rows(p, PANEL_Q, 0, PANEL_RUN_Q, at, q_width);
                end_layer(p, layer);
                if (step + 1 == steps) end_panel(p, n_kept);
            }
            if (step == 0 || step % 2) move_rows(p, PANEL_RUN_X, at, PANEL_X, 0, s->n_embd);
        }
    }
    p->first_row = first;
    p->n_rows = n_run;
}

static void run_panel(struct pass *p, size_t *n_kept) {
    embed(p);
    for (size_t layer = 0; layer < p->m->spec.n_layers; layer++) {
        project(p, layer);
        end_layer(p, layer);
    }
    end_panel(p, n_kept);
}

void model_forward(struct model *m, struct backend_kv *kv, const struct batch *batch) {
    struct pass p = {.m = m, .ops = m->b->ops, .kv = kv, .batch = batch};
    size_t n_kept = 0;
    assert(batch->n_logit_rows <= m->max_kept_rows);
    for (; p.first_row < batch->n_rows; p.first_row += p.n_rows) {
        p.n_rows = m->spec.encoder ? run_length(&p) : size_min(m->b->max_rows, batch->n_rows - p.first_row);
        if (p.n_rows > m->b->max_rows)
            run_long(&p, p.n_rows, &n_kept);
        else
            run_panel(&p, &n_kept);
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
