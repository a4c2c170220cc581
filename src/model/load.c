/* Loading: tensors to weights in the backend's layout, tables of angles, the numerics id. */
#include "model/model_impl.h"

#include "base/buf.h"
#include "base/error.h"
#include "base/size.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define ROPE_CHUNK_ROWS 256

struct loader {
    struct model *m;
    const struct weights *w;
    const struct model_family *family;
    const struct model_options *o;
    struct error *err;
    float *factors[W_END]; /* of ROPE_FACTORS and ROPE_LONG: [n_rot / 2] */
    struct buf identity;
};

static struct backend_buffer *new_buffer(struct loader *l, size_t bytes) {
    struct backend_buffer *buf = bytes == SIZE_MAX ? NULL : l->m->b->ops->buffer_alloc(l->m->b, bytes);
    if (!buf) error_set(l->err, QUIRE_ENOMEM, "no memory for %zu bytes of weights or activations", bytes);
    return buf;
}

/* A tensor as it is read, and the rows of it that one matrix is made from. */
struct source {
    const struct weights *w;
    const struct tensor *t;
    struct model_digest digest;
    float *scales; /* [n_scales], if the tensor has some: it is then read as float32 */
    size_t n_scales;
};
struct rows_source {
    struct source *s;
    size_t first;
};

static int read_stored(struct source *s, size_t first, size_t n, void *dst, struct error *err) {
    size_t bytes = n * s->t->row_bytes;
    int rc = weights_read(s->w, s->t, first * s->t->row_bytes, bytes, dst, err);
    if (!rc) model_digest_add(&s->digest, first, dst, bytes);
    return rc;
}

/* Rows as floats, times the scale of the tensor or of their expert. */
static int read_scaled(struct source *s, size_t first, size_t n, float *dst, struct error *err) {
    const struct tensor *t = s->t;
    const struct tensor_type_info *type = tensor_type_info(t->type);
    size_t cols = t->dims[0], per_scale = tensor_rows(t) / s->n_scales;
    void *raw = malloc(n * t->row_bytes);
    if (!raw) return error_set(err, QUIRE_ENOMEM, "tensor %s: out of memory", tensor_label(t));
    int rc = read_stored(s, first, n, raw, err);
    if (!rc) type->decode(dst, raw, n * cols / type->block_elems);
    for (size_t i = 0; i < n * cols && !rc; i++) dst[i] *= s->scales[(first + i / cols) / per_scale];
    free(raw);
    return rc;
}

static int read_rows(void *ctx, size_t first, size_t n, void *dst, struct error *err) {
    struct rows_source *r = ctx;
    first += r->first;
    return r->s->scales ? read_scaled(r->s, first, n, dst, err) : read_stored(r->s, first, n, dst, err);
}

static int read_vector(struct source *s, float *values, struct error *err) {
    const struct tensor_type_info *type = tensor_type_info(s->t->type);
    struct rows_source all = {.s = s};
    size_t n_rows = tensor_rows(s->t);
    void *raw = malloc(s->t->bytes);
    int rc = raw ? read_rows(&all, 0, n_rows, raw, err)
                 : error_set(err, QUIRE_ENOMEM, "tensor %s: out of memory", tensor_label(s->t));
    if (!rc) type->decode(values, raw, n_rows * s->t->dims[0] / type->block_elems);
    for (size_t i = 0; !rc && s->t->plus_one && i < n_rows * s->t->dims[0]; i++) values[i] += 1.0f;
    free(raw);
    return rc;
}

static int load_vector(struct loader *l, struct source *s, const struct tensor_rule *rule,
                       struct weight *out) {
    size_t n = tensor_rows(s->t) * s->t->dims[0], bytes = n * sizeof(float);
    float *values = malloc(bytes);
    int rc = values ? read_vector(s, values, l->err)
                    : error_set(l->err, QUIRE_ENOMEM, "tensor %s: out of memory", tensor_label(s->t));
    if (!rc && rule->weight >= W_ROPE_FREQS) {
        l->factors[rule->weight] = values; /* used when the table is filled */
        return 0;
    }
    /* A scale of the logits is one of the rows that they are made from. */
    if (!rc && rule->weight == W_OUTPUT_NORM && !l->m->pooling)
        for (size_t i = 0; i < n; i++) values[i] *= l->m->spec.logit_scale;
    if (!rc) {
        out->vector = new_buffer(l, bytes);
        rc = out->vector ? 0 : QUIRE_ENOMEM;
    }
    if (!rc) l->m->b->ops->upload(l->m->b, out->vector, 0, values, bytes);
    free(values);
    return rc;
}

/* Rows as columns: decoded, since blocks lie along rows. */
static int load_turned(struct loader *l, const struct rows_source *rows, const struct backend_tensor *bt,
                       struct backend_matrix **out) {
    struct backend_tensor turned = model_turned(bt);
    size_t n_rows = bt->rows, n_cols = bt->cols;
    void *raw = malloc(n_rows * bt->row_bytes);
    float *values = malloc(n_rows * n_cols * sizeof *values), *row = malloc(n_cols * sizeof *row);
    int rc = raw && values && row
                 ? read_rows((void *)rows, 0, n_rows, raw, l->err)
                 : error_set(l->err, QUIRE_ENOMEM, "tensor %s: out of memory", tensor_label(rows->s->t));
    for (size_t r = 0; !rc && r < n_rows; r++) {
        bt->decode(row, (const char *)raw + r * bt->row_bytes, n_cols / bt->block_elems);
        for (size_t c = 0; c < n_cols; c++) values[c * n_rows + r] = row[c];
    }
    turned.data = values;
    if (!rc) rc = l->m->b->ops->matrix_load(l->m->b, &turned, l->o->dtype, out, l->err);
    free(raw);
    free(values);
    free(row);
    return rc;
}

/* index: of the expert or head. */
static int load_matrix(struct loader *l, struct source *s, const struct tensor_rule *rule, size_t part,
                       size_t index, struct backend_matrix **out) {
    struct rows_source rows = {.s = s};
    struct backend_tensor bt = model_tensor_part(&l->m->spec, rule, s->t, part, index, &rows.first);
    if (model_is_turned(rule, part)) return load_turned(l, &rows, &bt, out);
    bt.read_rows = read_rows;
    bt.ctx = &rows;
    return l->m->b->ops->matrix_load(l->m->b, &bt, l->o->dtype, out, l->err);
}

static int load_each(struct loader *l, struct source *s, const struct tensor_rule *rule, size_t part,
                     struct weight *out) {
    size_t n = tensor_rule_each(rule, &l->m->spec);
    int rc = 0;
    out->each = calloc(n, sizeof *out->each);
    if (!out->each) return error_set(l->err, QUIRE_ENOMEM, "tensor %s: out of memory", tensor_label(s->t));
    out->n_each = n;
    for (size_t i = 0; i < n && !rc; i++) rc = load_matrix(l, s, rule, part, i, &out->each[i]);
    return rc;
}

/* out: the first of the weights that share the tensor. */
static int load_matrices(struct loader *l, struct source *s, const struct tensor_rule *rule,
                         struct weight *out) {
    int rc = 0;
    for (size_t part = 0; part < tensor_rule_parts(rule) && !rc; part++)
        rc = rule->each == ONCE ? load_matrix(l, s, rule, part, 0, &out[part].matrix)
                                : load_each(l, s, rule, part, &out[part]);
    return rc;
}

static int read_scales(struct loader *l, struct source *s) {
    struct source scale = {.w = l->w, .t = s->t->scale};
    size_t n = s->t->scale->dims[0];
    float *scales = malloc(n * sizeof *scales);
    int rc = scales ? read_vector(&scale, scales, l->err)
                    : error_set(l->err, QUIRE_ENOMEM, "tensor %s: out of memory", tensor_label(s->t));
    s->scales = scales;
    s->n_scales = n;
    buf_append(&l->identity, scales, rc ? 0 : n * sizeof *scales);
    return rc;
}

static int load_tensor(struct loader *l, const struct tensor *t) {
    size_t layer;
    const struct tensor_rule *rule = model_tensor_rule(l->family, &l->m->spec, t->name, &layer);
    struct weight *out =
        rule->weight < W_LAYER_END ? &l->m->layers[layer][rule->weight] : &l->m->global[rule->weight];
    struct source source = {.w = l->w, .t = t};
    int rc = t->scale ? read_scales(l, &source) : 0;
    if (!rc)
        rc = rule->rows == D_ONE ? load_vector(l, &source, rule, out) : load_matrices(l, &source, rule, out);
    free(source.scales);
    struct hash128 h = {.hi = source.digest.hi, .lo = source.digest.lo};
    buf_printf(&l->identity, "%s %d %zu %zu %s", t->name, (int)t->type, t->dims[0], t->dims[1],
               t->plus_one ? "+1 " : "");
    buf_append(&l->identity, &h, sizeof h);
    return rc;
}

#define VECTOR_ALIGN 64 /* at most, of each */

static int reserve_weights(struct loader *l) {
    uint64_t bytes;
    size_t n;
    int rc = model_weights_bytes(l->w, &l->m->spec, l->m->b, l->o, &bytes, l->err);
    if (rc) return rc;
    if (!size_from_u64(bytes, &n) || !size_add(n, weights_n_tensors(l->w) * VECTOR_ALIGN, &n)) n = SIZE_MAX;
    return l->m->b->ops->weights_reserve(l->m->b, n, l->err);
}

static int load_tensors(struct loader *l) {
    uint64_t done = 0, total = weights_tensor_bytes(l->w);
    for (size_t i = 0; i < weights_n_tensors(l->w); i++) {
        const struct tensor *t = weights_tensor_at(l->w, i);
        size_t layer;
        bool skip = t->is_scale ||
                    model_skips(l->o, model_tensor_rule(l->family, &l->m->spec, t->name, &layer)->weight);
        int rc = skip ? 0 : load_tensor(l, t);
        if (rc) return rc;
        done += tensor_stored_bytes(t);
        if (l->o->progress && !l->o->progress(l->o->progress_ctx, (double)done / (double)total))
            return error_set(l->err, QUIRE_ECANCELED, "loading was given up");
    }
    return 0;
}

struct rope_job {
    float *table;
    size_t n_positions;
    const struct model_rope *rope;
    const double *frequencies;
};

static void rope_chunk(void *ctx, size_t item) {
    const struct rope_job *j = ctx;
    size_t first = item * ROPE_CHUNK_ROWS;
    rope_fill(j->table, first, size_min(ROPE_CHUNK_ROWS, j->n_positions - first), j->rope, j->frequencies);
}

/* The divisors that the angles of a table are made with, NULL if with none. */
static const float *factors_of(const struct loader *l, const struct model_rope *rope,
                               const struct plan *plan) {
    if (rope->scaling == ROPE_FACTORS) return l->factors[W_ROPE_FREQS];
    if (rope->scaling != ROPE_LONG) return NULL;
    return l->factors[plan->max_model_len > rope->original_context ? W_ROPE_LONG : W_ROPE_SHORT];
}

static int load_rope(struct loader *l, const struct plan *plan, size_t index) {
    struct model *m = l->m;
    size_t bytes = model_panel_bytes(&m->spec, plan, PANEL_ROPE + index);
    struct rope_job j = {.n_positions = plan->max_model_len, .rope = &m->spec.ropes[index]};
    size_t n_pairs = j.rope->n_rot / 2;
    double *frequencies = malloc(n_pairs * sizeof *frequencies);
    j.table = malloc(bytes);
    j.frequencies = frequencies;
    int rc = frequencies && j.table ? 0 : error_set(l->err, QUIRE_ENOMEM, "loading: out of memory");
    if (!rc) {
        rope_frequencies(frequencies, j.rope, factors_of(l, j.rope, plan), plan->max_model_len);
        m->b->ops->host_run(m->b, size_div_up(j.n_positions, ROPE_CHUNK_ROWS), rope_chunk, &j);
        m->b->ops->upload(m->b, m->panels[PANEL_ROPE + index], 0, j.table, bytes);
        buf_append(&l->identity, frequencies, n_pairs * sizeof *frequencies);
    }
    free(frequencies);
    free(j.table);
    return rc;
}

static const char *const DTYPE_NAMES[] = {
    [BACKEND_BF16] = "bfloat16", [BACKEND_F16] = "float16", [BACKEND_F32] = "float32"};

/* What besides the tensors and the angles decides bits: the description, the kernels, the types. */
static int identify(struct loader *l) {
    const struct model_spec *s = &l->m->spec;
    const struct model_experts *e = &s->experts;
    struct buf *id = &l->identity;
    buf_printf(id, "%s %zu %zu %zu %zu %zu %zu %zu;", s->family, s->n_layers, s->n_embd, s->n_ff, s->n_vocab,
               s->n_heads, s->n_kv_heads, s->head_dim);
    buf_printf(id, "%a %a %a %a %a %a %a %d %d %d %d;", s->norm_eps, s->attn_scale, s->embed_scale,
               s->logit_scale, s->residual_scale, s->attn_soft_cap, s->final_soft_cap, s->tied_output,
               s->post_norms, s->qk_norm_rows, (int)s->activation);
    buf_printf(id, "experts %zu %zu %zu %zu %d %d %a;", e->n, e->n_used, e->ff, e->shared_ff, (int)e->gating,
               e->normalise, e->scale);
    if (s->attn_temperature != 0.0f)
        buf_printf(id, "temperature %a %zu;", s->attn_temperature, s->temperature_step);
    if (e->n_groups) buf_printf(id, "groups %zu %zu %zu;", e->n_groups, e->n_groups_used, e->group_best);
    if (s->latent.rank)
        buf_printf(id, "latent %zu %zu %zu %zu %zu %a;", s->latent.rank, s->latent.q_rank, s->latent.key,
                   s->latent.n_rot, s->latent.value, s->latent.norm_eps);
    for (size_t i = 0; i < s->n_ropes; i++)
        buf_printf(id, "rope %zu %d %d %a;", s->ropes[i].n_rot, s->ropes[i].interleaved,
                   (int)s->ropes[i].scaling, s->ropes[i].attn_factor);
    for (size_t i = 0; i < s->n_layers; i++)
        buf_printf(id, "%zu %zu %zu;", s->layers[i].window, s->layers[i].rope, (size_t)s->layers[i].routed);
    if (l->m->pooling) buf_printf(id, "pooling %d;", (int)l->m->pooling);
    buf_printf(id, "%s;%s", DTYPE_NAMES[l->o->dtype], backend_numerics(l->m->b));
    if (!buf_ok(id)) return error_set(l->err, QUIRE_ENOMEM, "loading: out of memory");
    struct hash128 h = hash128_bulk(id->data, id->len);
    snprintf(l->m->numerics_id, sizeof l->m->numerics_id, "%016llx%016llx", (unsigned long long)h.hi,
             (unsigned long long)h.lo);
    return 0;
}

int model_load(const struct weights *w, const struct model_spec *spec, struct backend *b,
               const struct model_options *o, struct model **out, struct error *err) {
    struct plan plan;
    int rc = model_plan(spec, b, o, &plan, err);
    if (rc) return rc;
    struct model *m = calloc(1, sizeof *m);
    if (!m) return error_set(err, QUIRE_ENOMEM, "loading: out of memory");
    struct loader l = {.m = m,
                       .w = w,
                       .family = model_family(spec->family, strlen(spec->family)),
                       .o = o,
                       .err = err,
                       .identity = BUF_INIT};
    m->spec = *spec;
    m->b = b;
    m->max_model_len = plan.max_model_len;
    m->max_logit_rows = plan.max_logit_rows;
    m->max_kept_rows = plan.max_kept_rows;
    m->pooling = plan.pooling;
    m->layers = calloc(spec->n_layers, sizeof *m->layers);
    m->kept = calloc(plan.max_rows, sizeof *m->kept);
    if (!m->layers || !m->kept) rc = error_set(err, QUIRE_ENOMEM, "loading: out of memory");
    for (enum panel p = 0; p < PANEL_END && !rc; p++) {
        m->panels[p] = new_buffer(&l, model_panel_bytes(spec, &plan, p));
        if (!m->panels[p]) rc = QUIRE_ENOMEM;
    }
    if (!rc) rc = reserve_weights(&l);
    if (!rc) rc = load_tensors(&l);
    for (size_t i = 0; i < spec->n_ropes && !rc; i++) rc = load_rope(&l, &plan, i);
    if (!rc) rc = identify(&l);
    buf_free(&l.identity);
    for (size_t i = 0; i < W_END; i++) free(l.factors[i]);
    if (rc)
        model_free(m);
    else
        *out = m;
    return rc;
}
