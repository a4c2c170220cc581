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

#define ROPE_CHUNK_ROWS 256

/* ---- sizes ---- */

/* Floats of one row of a panel. */
static size_t panel_width(const struct model_spec *s, enum panel p) {
    size_t q = s->n_heads * s->head_dim, kv = s->n_kv_heads * s->head_dim;
    switch (p) {
    case PANEL_X:
    case PANEL_KEPT: return s->n_embd;
    case PANEL_MIXED: return size_max(s->n_embd, q);
    case PANEL_Q: return q;
    case PANEL_K:
    case PANEL_V: return kv;
    case PANEL_GATE:
    case PANEL_UP: return s->n_ff;
    case PANEL_LOGITS: return s->n_vocab;
    case PANEL_ROPE: return s->rope.n_rot;
    case PANEL_END: break;
    }
    return 0;
}

struct plan {
    size_t max_model_len, max_rows, max_logit_rows, max_kept_rows;
};

static size_t panel_rows(const struct plan *plan, enum panel p) {
    return p == PANEL_KEPT     ? plan->max_kept_rows
           : p == PANEL_LOGITS ? plan->max_logit_rows
           : p == PANEL_ROPE   ? plan->max_model_len
                               : plan->max_rows;
}

/* SIZE_MAX when it does not fit. */
static size_t panel_bytes(const struct model_spec *s, const struct plan *plan, enum panel p) {
    size_t bytes;
    if (!size_mul(panel_width(s, p), panel_rows(plan, p), &bytes) || !size_mul(bytes, sizeof(float), &bytes))
        return SIZE_MAX;
    return bytes;
}

struct backend_cpu_options model_cpu_options(const struct model_spec *s, size_t max_model_len,
                                             size_t max_batch_rows) {
    size_t width = 0;
    for (enum panel p = PANEL_X; p < PANEL_KEPT; p++) width += panel_width(s, p) * sizeof(float);
    size_t rows = PANEL_BYTES / width / PANEL_ROW_STEP * PANEL_ROW_STEP;
    rows = size_min(size_max(rows, PANEL_MIN_ROWS), PANEL_MAX_ROWS);
    return (struct backend_cpu_options){.max_rows = size_max(size_min(rows, max_batch_rows), 1),
                                        .max_width =
                                            size_max(size_max(s->n_embd, s->n_ff), s->n_heads * s->head_dim),
                                        .max_positions = max_model_len ? max_model_len : s->context_len,
                                        .max_heads = s->n_heads,
                                        .max_head_dim = s->head_dim,
                                        .max_vocab = s->n_vocab};
}

static int make_plan(const struct model_spec *s, const struct backend *b, const struct model_options *o,
                     struct plan *out, struct error *err) {
    *out = (struct plan){.max_model_len = o->max_model_len ? o->max_model_len : s->context_len,
                         .max_rows = b->max_rows,
                         .max_logit_rows = o->max_logit_rows,
                         .max_kept_rows = o->max_kept_rows};
    if (out->max_model_len > s->context_len)
        return error_param(err, QUIRE_EINVAL, "max-model-len",
                           "max-model-len %zu: the model's context length is %zu", out->max_model_len,
                           s->context_len);
    if (!out->max_logit_rows || out->max_logit_rows > out->max_rows || !out->max_kept_rows)
        return error_set(err, QUIRE_EINTERNAL, "logit rows %zu, kept rows %zu, panel rows %zu",
                         out->max_logit_rows, out->max_kept_rows, out->max_rows);
    return 0;
}

static struct backend_tensor describe_tensor(const struct tensor *t) {
    const struct tensor_type_info *type = tensor_type_info(t->type);
    return (struct backend_tensor){.name = t->name,
                                   .format = (uint32_t)t->type,
                                   .decode = type->decode,
                                   .block_elems = type->block_elems,
                                   .block_bytes = type->block_bytes,
                                   .rows = tensor_rows(t),
                                   .cols = t->dims[0],
                                   .row_bytes = t->row_bytes};
}

int model_memory_plan(const struct weights *w, const struct model_spec *spec, struct backend *b,
                      const struct model_options *o, struct model_memory *out, struct error *err) {
    struct plan plan;
    int rc = make_plan(spec, b, o, &plan, err);
    if (rc) return rc;
    const struct model_family *family = model_family(spec->family, strlen(spec->family));
    *out = (struct model_memory){0};
    for (size_t i = 0; i < weights_n_tensors(w); i++) {
        const struct tensor *t = weights_tensor_at(w, i);
        size_t layer;
        const struct tensor_rule *rule = model_tensor_rule(family, spec, t->name, &layer);
        size_t bytes = t->dims[0] * sizeof(float);
        if (rule->rows != D_ONE) {
            struct backend_tensor bt = describe_tensor(t);
            bytes = b->ops->matrix_bytes(b, &bt, o->dtype, err);
            if (!bytes) return err ? err->code : QUIRE_EUNSUPPORTED;
        }
        if (rule->weight != W_ROPE_FREQS) out->weights_bytes += bytes;
    }
    for (enum panel p = 0; p < PANEL_END; p++) {
        size_t bytes = panel_bytes(spec, &plan, p);
        if (bytes == SIZE_MAX || out->activation_bytes > UINT64_MAX / 2 - bytes)
            return error_set(err, QUIRE_ELIMIT, "activations are too large for this machine's addresses");
        out->activation_bytes += bytes;
    }
    return 0;
}

/* ---- loading ---- */

struct loader {
    struct model *m;
    const struct weights *w;
    const struct model_family *family;
    const struct model_options *o;
    struct error *err;
    float *factors; /* ROPE_FACTORS: [n_rot / 2] */
    struct buf identity;
};

static struct backend_buffer *new_buffer(struct loader *l, size_t bytes) {
    struct backend_buffer *buf = bytes == SIZE_MAX ? NULL : l->m->b->ops->buffer_alloc(l->m->b, bytes);
    if (!buf) error_set(l->err, QUIRE_ENOMEM, "no memory for %zu bytes of weights or activations", bytes);
    return buf;
}

/* A tensor as the backend reads it. */
struct source {
    const struct weights *w;
    const struct tensor *t;
    struct model_digest digest;
};

static int read_rows(void *ctx, size_t first, size_t n, void *dst, struct error *err) {
    struct source *s = ctx;
    size_t bytes = n * s->t->row_bytes;
    int rc = weights_read(s->w, s->t, first * s->t->row_bytes, bytes, dst, err);
    if (!rc) model_digest_add(&s->digest, first, dst, bytes);
    return rc;
}

static int read_vector(struct source *s, float *values, struct error *err) {
    const struct tensor_type_info *type = tensor_type_info(s->t->type);
    void *raw = malloc(s->t->bytes);
    int rc = raw ? read_rows(s, 0, 1, raw, err)
                 : error_set(err, QUIRE_ENOMEM, "tensor %s: out of memory", s->t->name);
    if (!rc) type->decode(values, raw, s->t->dims[0] / type->block_elems);
    free(raw);
    return rc;
}

static int load_vector(struct loader *l, struct source *s, const struct tensor_rule *rule,
                       struct weight *out) {
    size_t n = s->t->dims[0], bytes = n * sizeof(float);
    float *values = malloc(bytes);
    int rc = values ? read_vector(s, values, l->err)
                    : error_set(l->err, QUIRE_ENOMEM, "tensor %s: out of memory", s->t->name);
    if (!rc && rule->weight == W_ROPE_FREQS) {
        l->factors = values; /* used when the table is filled */
        return 0;
    }
    /* A scale of the logits is one of the rows that they are made from. */
    if (!rc && rule->weight == W_OUTPUT_NORM)
        for (size_t i = 0; i < n; i++) values[i] *= l->m->spec.logit_scale;
    if (!rc) {
        out->vector = new_buffer(l, bytes);
        rc = out->vector ? 0 : QUIRE_ENOMEM;
    }
    if (!rc) l->m->b->ops->upload(l->m->b, out->vector, 0, values, bytes);
    free(values);
    return rc;
}

static int load_tensor(struct loader *l, const struct tensor *t) {
    size_t layer;
    const struct tensor_rule *rule = model_tensor_rule(l->family, &l->m->spec, t->name, &layer);
    struct weight *out =
        rule->weight < W_LAYER_END ? &l->m->layers[layer][rule->weight] : &l->m->global[rule->weight];
    struct source source = {.w = l->w, .t = t};
    int rc;
    if (rule->rows == D_ONE) {
        rc = load_vector(l, &source, rule, out);
    } else {
        struct backend_tensor bt = describe_tensor(t);
        bt.read_rows = read_rows;
        bt.ctx = &source;
        rc = l->m->b->ops->matrix_load(l->m->b, &bt, l->o->dtype, &out->matrix, l->err);
    }
    struct hash128 h = {.hi = source.digest.hi, .lo = source.digest.lo};
    buf_printf(&l->identity, "%s %d %zu %zu ", t->name, (int)t->type, t->dims[0], t->dims[1]);
    buf_append(&l->identity, &h, sizeof h);
    return rc;
}

static int load_tensors(struct loader *l) {
    uint64_t done = 0, total = weights_tensor_bytes(l->w);
    for (size_t i = 0; i < weights_n_tensors(l->w); i++) {
        const struct tensor *t = weights_tensor_at(l->w, i);
        int rc = load_tensor(l, t);
        if (rc) return rc;
        done += t->bytes;
        if (l->o->progress) l->o->progress(l->o->progress_ctx, (double)done / (double)total);
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

static int load_rope(struct loader *l, const struct plan *plan) {
    struct model *m = l->m;
    size_t bytes = panel_bytes(&m->spec, plan, PANEL_ROPE);
    struct rope_job j = {.n_positions = plan->max_model_len, .rope = &m->spec.rope};
    double *frequencies = malloc(m->spec.rope.n_rot / 2 * sizeof *frequencies);
    j.table = malloc(bytes);
    j.frequencies = frequencies;
    int rc = frequencies && j.table ? 0 : error_set(l->err, QUIRE_ENOMEM, "loading: out of memory");
    if (!rc) {
        rope_frequencies(frequencies, j.rope, l->factors);
        m->b->ops->host_run(m->b, size_div_up(j.n_positions, ROPE_CHUNK_ROWS), rope_chunk, &j);
        m->b->ops->upload(m->b, m->panels[PANEL_ROPE], 0, j.table, bytes);
    }
    free(frequencies);
    free(j.table);
    return rc;
}

static const char *const DTYPE_NAMES[] = {
    [BACKEND_BF16] = "bfloat16", [BACKEND_F16] = "float16", [BACKEND_F32] = "float32"};

/* What besides the tensors decides bits: the description, the kernels, the types, the length of the rotary
 * table where the angles depend on it (none of today's scalings does). */
static int identify(struct loader *l) {
    const struct model_spec *s = &l->m->spec;
    const struct model_rope *r = &s->rope;
    struct buf *id = &l->identity;
    buf_printf(id, "%s %zu %zu %zu %zu %zu %zu %zu %a %a %a %a %a %d %d;", s->family, s->n_layers, s->n_embd,
               s->n_ff, s->n_vocab, s->n_heads, s->n_kv_heads, s->head_dim, s->norm_eps, s->attn_scale,
               s->embed_scale, s->logit_scale, s->attn_soft_cap, s->tied_output, (int)s->activation);
    buf_printf(id, "rope %a %zu %d %d %a %zu %a %a %a %a;", r->base, r->n_rot, r->interleaved,
               (int)r->scaling, r->factor, r->original_context, r->attn_factor, r->beta_fast, r->beta_slow,
               r->ext_factor);
    for (size_t i = 0; i < s->n_layers; i++)
        buf_printf(id, "%zu %zu %zu;", s->layers[i].kv_group, s->layers[i].kv_layer, s->layers[i].window);
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
    int rc = make_plan(spec, b, o, &plan, err);
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
    m->layers = calloc(spec->n_layers, sizeof *m->layers);
    m->kept = calloc(plan.max_rows, sizeof *m->kept);
    if (!m->layers || !m->kept) rc = error_set(err, QUIRE_ENOMEM, "loading: out of memory");
    for (enum panel p = 0; p < PANEL_END && !rc; p++) {
        m->panels[p] = new_buffer(&l, panel_bytes(spec, &plan, p));
        if (!m->panels[p]) rc = QUIRE_ENOMEM;
    }
    if (!rc) rc = load_tensors(&l);
    if (!rc) rc = load_rope(&l, &plan);
    if (!rc) rc = identify(&l);
    buf_free(&l.identity);
    free(l.factors);
    if (rc)
        model_free(m);
    else
        *out = m;
    return rc;
}

static void free_weight(struct model *m, struct weight *w) {
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
