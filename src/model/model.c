#include "model/model_impl.h"

#include "base/buf.h"
#include "base/error.h"
#include "base/size.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Row panels: as many rows as keep the activations of a panel within this, but enough to reuse weights from
 * cache and no more than a panel can profit from. */
#define PANEL_BYTES    ((size_t)24 << 20)
#define PANEL_MIN_ROWS 32
#define PANEL_MAX_ROWS 512
#define PANEL_ROW_STEP 32

/* ---- sizes ---- */

/* Floats of one row of a panel. */
static size_t panel_width(const struct model_spec *s, enum panel p) {
    const struct model_latent *l = &s->latent;
    size_t q = s->n_heads * s->head_dim, kv = s->n_kv_heads * s->head_dim;
    size_t dense = model_has_dense(s) ? s->n_ff : 0;
    bool joined = s->post_norms || s->residual_scale != 1.0f || s->experts.n || s->encoder;
    switch (p) {
    case PANEL_X:
    case PANEL_POOLED:
    case PANEL_RUN_X:
    case PANEL_KEPT: return s->n_embd;
    case PANEL_MIXED: return size_max(s->n_embd, s->n_heads * model_value_dim(s));
    case PANEL_RUN_Q: return q;
    case PANEL_Q: return l->rank ? s->n_heads * size_max(l->key + l->n_rot, l->value) : q;
    case PANEL_Q_LATENT: return l->rank ? q : 0;
    case PANEL_Q_RANK: return l->q_rank;
    case PANEL_K: return kv;
    case PANEL_V: return l->rank ? 0 : kv;
    case PANEL_GATE:
    case PANEL_UP: return size_max(dense, s->experts.shared_ff);
    case PANEL_OUT: return joined ? s->n_embd : 0;
    case PANEL_ROUTER: return s->experts.n;
    case PANEL_SHARED_ROUTER: return s->experts.shared_ff ? 1 : 0;
    case PANEL_LOGITS: return s->n_vocab;
    case PANEL_SCORES: return s->n_labels;
    default: return s->ropes[p - PANEL_ROPE].n_rot;
    }
}

static size_t panel_rows(const struct plan *plan, enum panel p) {
    switch (p) {
    case PANEL_KEPT: return plan->max_kept_rows;
    case PANEL_LOGITS: return plan->max_logit_rows;
    case PANEL_POOLED: return plan->max_pool_rows;
    case PANEL_SCORES: return plan->pooling == MODEL_POOL_RANK ? plan->max_rows : 0;
    case PANEL_RUN_X:
    case PANEL_RUN_Q: return plan->run_rows;
    default: return p >= PANEL_ROPE ? plan->max_model_len : plan->max_rows;
    }
}

size_t model_panel_bytes(const struct model_spec *s, const struct plan *plan, enum panel p) {
    size_t bytes;
    if (!size_mul(panel_width(s, p), panel_rows(plan, p), &bytes) || !size_mul(bytes, sizeof(float), &bytes))
        return SIZE_MAX;
    return bytes;
}

struct backend_cpu_options model_cpu_options(const struct model_spec *s, size_t max_model_len,
                                             size_t max_batch_rows) {
    const struct model_experts *e = &s->experts;
    size_t width = e->n ? (2 * e->ff + s->n_embd) * sizeof(float) : 0; /* the backend's, of experts */
    size_t mixed = s->n_heads * (s->latent.rank ? s->latent.value : s->head_dim);
    size_t widest = size_max(size_max(s->n_embd, mixed), size_max(e->ff, e->shared_ff));
    widest = size_max(size_max(widest, s->latent.rank), s->latent.q_rank); /* heads' inputs and queries' */
    for (enum panel p = PANEL_X; p < PANEL_KEPT; p++) width += panel_width(s, p) * sizeof(float);
    size_t rows = PANEL_BYTES / width / PANEL_ROW_STEP * PANEL_ROW_STEP;
    rows = size_min(size_max(rows, PANEL_MIN_ROWS), PANEL_MAX_ROWS);
    return (struct backend_cpu_options){.max_rows = size_max(size_min(rows, max_batch_rows), 1),
                                        .max_width = model_has_dense(s) ? size_max(widest, s->n_ff) : widest,
                                        .max_positions = max_model_len ? max_model_len : s->context_len,
                                        .max_heads = s->n_heads,
                                        .max_head_dim = s->head_dim,
                                        .max_vocab = s->n_vocab,
                                        .max_experts = e->n,
                                        .max_experts_used = e->n_used,
                                        .max_expert_width = e->ff};
}

int model_plan(const struct model_spec *s, const struct backend *b, const struct model_options *o,
               struct plan *out, struct error *err) {
    *out = (struct plan){.max_model_len = o->max_model_len ? o->max_model_len : s->context_len,
                         .max_rows = b->max_rows,
                         .max_logit_rows = o->max_logit_rows,
                         .max_kept_rows = o->max_kept_rows,
                         .max_pool_rows = o->max_pool_rows,
                         .pooling = o->pooling};
    if (out->max_model_len > s->context_len)
        return error_param(err, QUIRE_EINVAL, "max-model-len",
                           "max-model-len %zu: the model's context length is %zu", out->max_model_len,
                           s->context_len);
    if (s->encoder && out->max_model_len > out->max_rows) out->run_rows = out->max_model_len;
    if (out->pooling || s->encoder)
        return out->pooling && out->max_pool_rows && !out->max_logit_rows && !out->max_kept_rows &&
                       (out->pooling != MODEL_POOL_RANK || s->n_labels)
                   ? 0
                   : error_set(err, QUIRE_EINTERNAL, "pooling %d, pool rows %zu, logit rows %zu",
                               (int)out->pooling, out->max_pool_rows, out->max_logit_rows);
    if (!out->max_logit_rows || out->max_logit_rows > out->max_rows || !out->max_kept_rows)
        return error_set(err, QUIRE_EINTERNAL, "logit rows %zu, kept rows %zu, panel rows %zu",
                         out->max_logit_rows, out->max_kept_rows, out->max_rows);
    return 0;
}

bool model_skips(const struct model_options *o, enum model_weight w) {
    return o->pooling && w == W_OUTPUT;
}

size_t model_vector_floats(const struct model_spec *s, enum model_pooling pooling) {
    return pooling == MODEL_POOL_NONE ? 0 : pooling == MODEL_POOL_RANK ? s->n_labels : s->n_embd;
}

struct backend_tensor model_tensor_part(const struct model_spec *s, const struct tensor_rule *rule,
                                        const struct tensor *t, size_t part, size_t index,
                                        size_t *first_row) {
    enum tensor_type as = t->scale ? TENSOR_F32 : t->type;
    const struct tensor_type_info *type = tensor_type_info(as);
    size_t rows = model_dim(s, rule->rows), all = rows;
    for (size_t i = 0; i < 2; i++) all += model_dim(s, rule->more[i]);
    size_t first = index * all;
    for (size_t i = 0; i < part; i++) {
        first += rows;
        rows = model_dim(s, rule->more[i]);
    }
    *first_row = first;
    return (struct backend_tensor){.name = tensor_label(t),
                                   .format = (uint32_t)as,
                                   .decode = type->decode,
                                   .block_elems = type->block_elems,
                                   .block_bytes = type->block_bytes,
                                   .rows = rows,
                                   .cols = t->dims[0],
                                   .row_bytes = t->dims[0] / type->block_elems * type->block_bytes};
}

bool model_is_turned(const struct tensor_rule *rule, size_t part) {
    return rule->turned && !part;
}

struct backend_tensor model_turned(const struct backend_tensor *t) {
    const struct tensor_type_info *type = tensor_type_info(TENSOR_F32);
    return (struct backend_tensor){.name = t->name,
                                   .format = TENSOR_F32,
                                   .decode = type->decode,
                                   .block_elems = type->block_elems,
                                   .block_bytes = type->block_bytes,
                                   .rows = t->cols,
                                   .cols = t->rows,
                                   .row_bytes = t->rows * sizeof(float)};
}

/* Bytes of all weights in a tensor; 0 and err set when the backend has no use for it. */
static uint64_t weight_bytes(const struct model_spec *s, struct backend *b, const struct tensor_rule *rule,
                             const struct tensor *t, enum backend_dtype dtype, struct error *err) {
    uint64_t total = 0;
    if (rule->rows == D_ONE) return t->dims[0] * t->dims[1] * sizeof(float);
    for (size_t part = 0; part < tensor_rule_parts(rule); part++) {
        size_t first;
        struct backend_tensor bt = model_tensor_part(s, rule, t, part, 0, &first);
        if (model_is_turned(rule, part)) bt = model_turned(&bt);
        size_t bytes = b->ops->matrix_bytes(b, &bt, dtype, err);
        if (!bytes) return 0;
        total += bytes;
    }
    return total * tensor_rule_each(rule, s);
}

int model_weights_bytes(const struct weights *w, const struct model_spec *spec, struct backend *b,
                        const struct model_options *o, uint64_t *total, struct error *err) {
    const struct model_family *family = model_family(spec->family, strlen(spec->family));
    *total = 0;
    for (size_t i = 0; i < weights_n_tensors(w); i++) {
        const struct tensor *t = weights_tensor_at(w, i);
        size_t layer;
        if (t->is_scale) continue;
        const struct tensor_rule *rule = model_tensor_rule(family, spec, t->name, &layer);
        uint64_t bytes = weight_bytes(spec, b, rule, t, o->dtype, err);
        if (!bytes) return err ? err->code : QUIRE_EUNSUPPORTED;
        if (rule->weight < W_ROPE_FREQS && !model_skips(o, rule->weight)) *total += bytes;
    }
    return 0;
}

int model_memory_plan(const struct weights *w, const struct model_spec *spec, struct backend *b,
                      const struct model_options *o, struct model_memory *out, struct error *err) {
    struct plan plan;
    int rc = model_plan(spec, b, o, &plan, err);
    if (rc) return rc;
    *out = (struct model_memory){0};
    if ((rc = model_weights_bytes(w, spec, b, o, &out->weights_bytes, err))) return rc;
    for (enum panel p = 0; p < PANEL_END; p++) {
        size_t bytes = model_panel_bytes(spec, &plan, p);
        if (bytes == SIZE_MAX || out->activation_bytes > UINT64_MAX / 2 - bytes)
            return error_set(err, QUIRE_ELIMIT, "activations are too large for this machine's addresses");
        out->activation_bytes += bytes;
    }
    return 0;
}

static void free_weight(struct model *m, struct weight *w) {
    for (size_t i = 0; i < w->n_each; i++) m->b->ops->matrix_free(m->b, w->each[i]);
    free(w->each);
    m->b->ops->matrix_free(m->b, w->matrix);
    m->b->ops->buffer_free(m->b, w->vector);
}

void model_free(struct model *m) {
    if (!m) return;
    for (size_t i = 0; m->layers && i < m->spec.n_layers; i++)
        for (size_t t = 0; t < W_LAYER_END; t++) free_weight(m, &m->layers[i][t]);
    for (size_t t = W_LAYER_END; t < W_END; t++) free_weight(m, &m->global[t]);
    for (enum panel p = 0; p < PANEL_END; p++) m->b->ops->buffer_free(m->b, m->panels[p]);
    free(m->layers);
    free(m->kept);
    free(m);
}

const struct model_spec *model_spec(const struct model *m) {
    return &m->spec;
}

const char *model_numerics_id(const struct model *m) {
    return m->numerics_id;
}
