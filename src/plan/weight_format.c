#include "plan/weight_format.h"

#include "base/error.h"
#include "base/size.h"
#include "model/family.h"
#include "plan/names.h"
#include "weights/sketch.h"

#include <stdio.h>
#include <string.h>

/* Which of its layers a mixture keeps finer. */
enum finer {
    FINER_NONE,
    FINER_SPREAD, /* the first and the last eighth, and every third between */
    FINER_FIRST,  /* the first eighth; of attention's values the first four layers */
    FINER_MOST    /* of 3 bits: see type_of_q3_m */
};

struct weight_format {
    const char *name;
    enum tensor_type type, fine; /* of matrices; of those that are kept finer */
    enum finer finer;
};

/* The mixtures are those of llama.cpp's llama-quantize, as its documentation and output describe them;
 * tests/data/plan/quantized.json holds what it makes. */
static const struct weight_format FORMATS[] = {
    {"f32", TENSOR_F32, TENSOR_F32, FINER_NONE},          {"bf16", TENSOR_BF16, TENSOR_BF16, FINER_NONE},
    {"f16", TENSOR_F16, TENSOR_F16, FINER_NONE},          {"q8_0", TENSOR_Q8_0, TENSOR_Q8_0, FINER_NONE},
    {"q6_k", TENSOR_Q6_K, TENSOR_Q6_K, FINER_NONE},       {"q5_1", TENSOR_Q5_1, TENSOR_Q5_1, FINER_NONE},
    {"q5_k_m", TENSOR_Q5_K, TENSOR_Q6_K, FINER_SPREAD},   {"q5_k_s", TENSOR_Q5_K, TENSOR_Q5_K, FINER_NONE},
    {"q5_0", TENSOR_Q5_0, TENSOR_Q5_0, FINER_NONE},       {"q4_1", TENSOR_Q4_1, TENSOR_Q4_1, FINER_NONE},
    {"q4_k_m", TENSOR_Q4_K, TENSOR_Q6_K, FINER_SPREAD},   {"q4_k_s", TENSOR_Q4_K, TENSOR_Q5_K, FINER_FIRST},
    {"iq4_nl", TENSOR_IQ4_NL, TENSOR_IQ4_NL, FINER_NONE}, {"q4_0", TENSOR_Q4_0, TENSOR_Q4_0, FINER_NONE},
    {"q3_k_m", TENSOR_Q3_K, TENSOR_Q4_K, FINER_MOST},     {"q3_k_s", TENSOR_Q3_K, TENSOR_Q3_K, FINER_NONE},
};
#define N_FORMATS (sizeof FORMATS / sizeof *FORMATS)

static const char *name_at(size_t i) {
    return FORMATS[i].name;
}

int weight_format_find(const char *name, const struct weight_format **out, struct error *err) {
    size_t i;
    int rc = names_find("weight-format", name, name_at, N_FORMATS, &i, err);
    if (!rc) *out = &FORMATS[i];
    return rc;
}

const struct weight_format *weight_format_at(size_t i) {
    return i < N_FORMATS ? &FORMATS[i] : NULL;
}

const char *weight_format_name(const struct weight_format *f) {
    return f->name;
}

/* ---- the type of a tensor ---- */

static bool is_quantized(const struct weight_format *f) {
    return f->type != TENSOR_F32 && f->type != TENSOR_F16 && f->type != TENSOR_BF16;
}

static bool is_k_type(const struct weight_format *f) {
    return tensor_type_info(f->type)->block_elems == 256;
}

/* Rows that are no whole blocks take the next type that has smaller ones. */
static enum tensor_type for_rows(enum tensor_type type, size_t n) {
    if (n % tensor_type_info(type)->block_elems == 0) return type;
    switch (type) {
    case TENSOR_Q3_K: type = TENSOR_Q4_0; break;
    case TENSOR_Q4_K: type = TENSOR_Q5_0; break;
    case TENSOR_Q5_K: type = TENSOR_Q5_1; break;
    case TENSOR_Q6_K: type = TENSOR_Q8_0; break;
    default: break;
    }
    return n % tensor_type_info(type)->block_elems ? TENSOR_F16 : type;
}

static bool in_spread(size_t layer, size_t n_layers) {
    size_t eighth = n_layers / 8;
    return layer < eighth || layer >= 7 * n_layers / 8 || (layer - eighth) % 3 == 2;
}

static enum tensor_type type_of_values(const struct weight_format *f, const struct model_spec *s,
                                       size_t layer) {
    enum tensor_type type = f->type;
    if (f->finer == FINER_SPREAD && in_spread(layer, s->n_layers)) type = f->fine;
    if (f->finer == FINER_FIRST && layer < 4) type = f->fine;
    if (f->finer == FINER_MOST) type = layer < 2 ? TENSOR_Q5_K : TENSOR_Q4_K;
    if (f->type == TENSOR_IQ4_NL && s->n_heads / s->n_kv_heads >= 4) type = TENSOR_Q5_K;
    bool shared = !strcmp(s->family, "llama") && s->n_layers == 80 && s->n_heads != s->n_kv_heads;
    if (shared && (type == TENSOR_Q3_K || type == TENSOR_Q4_K)) type = TENSOR_Q5_K;
    return s->experts.n == 8 ? TENSOR_Q8_0 : type;
}

static enum tensor_type type_of_down(const struct weight_format *f, const struct model_spec *s,
                                     size_t layer) {
    if (f->finer == FINER_SPREAD) return in_spread(layer, s->n_layers) ? f->fine : f->type;
    if (f->finer == FINER_FIRST) return layer < s->n_layers / 8 ? f->fine : f->type;
    if (f->finer == FINER_MOST) return layer < s->n_layers / 16 ? TENSOR_Q5_K : TENSOR_Q4_K;
    return f->type;
}

static enum tensor_type type_of_output(const struct weight_format *f, const struct model_spec *s) {
    if (s->experts.n == 8 && (f->type == TENSOR_Q3_K || f->type == TENSOR_Q4_K || f->type == TENSOR_IQ4_NL))
        return TENSOR_Q5_K;
    return f->finer == FINER_MOST ? f->fine : f->type;
}

static enum tensor_type type_of_matrix(const struct weight_format *f, const struct model_spec *s,
                                       const struct tensor_rule *rule, size_t layer, bool has_output) {
    switch (rule->weight) {
    case W_TOKEN_EMBD:
        if (has_output || s->encoder) return f->type;
        /* fall through */
    case W_OUTPUT: return f->type == TENSOR_Q8_0 ? TENSOR_Q8_0 : TENSOR_Q6_K;
    case W_ATTN_V: return type_of_values(f, s, layer);
    case W_ATTN_K: return s->experts.n == 8 ? TENSOR_Q8_0 : f->type;
    case W_ATTN_Q: /* all three in one */
        if (rule->more[0] == D_NONE || !is_k_type(f)) return f->type;
        return f->finer == FINER_SPREAD ? (f->type == TENSOR_Q4_K ? TENSOR_Q5_K : TENSOR_Q6_K)
               : f->finer == FINER_MOST ? TENSOR_Q4_K
                                        : f->type;
    case W_ATTN_OUT: return type_of_output(f, s);
    case W_FFN_DOWN:
    case W_EXPERT_DOWN:
    case W_SHARED_DOWN: return type_of_down(f, s, layer);
    default: return f->type;
    }
}

/* Vectors, the router and small tables stay float32. */
static enum tensor_type type_of(const struct weight_format *f, const struct model_spec *s,
                                const struct tensor_rule *rule, size_t layer, const size_t dims[],
                                bool has_output) {
    bool plain = rule->rows == D_ONE || rule->rows == D_ROW || rule->weight == W_ROUTER ||
                 rule->weight == W_POSITION_EMBD || rule->weight == W_TYPE_EMBD;
    if (plain) return TENSOR_F32;
    if (!is_quantized(f)) return f->type;
    return for_rows(type_of_matrix(f, s, rule, layer, has_output), dims[0]);
}

/* ---- models ---- */

static int add(const struct weight_format *f, const struct model_spec *s, const struct tensor_rule *rule,
               size_t layer, const char *name, const size_t dims[TENSOR_MAX_DIMS], bool has_output,
               struct weights *w, struct error *err) {
    return sketch_add(w, name, type_of(f, s, rule, layer, dims, has_output), dims, err);
}

static int finish(int rc, struct weights *w, struct weights **out, struct error *err) {
    if (!rc) rc = sketch_end(w, err);
    if (rc)
        weights_close(w);
    else
        *out = w;
    return rc;
}

int weight_format_apply(const struct weight_format *f, const struct weights *like,
                        const struct model_spec *spec, struct weights **out, struct error *err) {
    const struct model_family *family = model_family(spec->family, strlen(spec->family));
    bool has_output = weights_tensor(like, "output.weight") != NULL;
    struct weights *w = NULL;
    *out = NULL;
    int rc = sketch_begin(like, &w, err);
    for (size_t i = 0; !rc && i < weights_n_tensors(like); i++) {
        const struct tensor *t = weights_tensor_at(like, i);
        size_t layer;
        const struct tensor_rule *rule = model_tensor_rule(family, spec, t->name, &layer);
        if (t->file != TENSOR_IN_MEMORY)
            rc = rule->weight >= W_ROPE_FREQS
                     ? sketch_add(w, t->name, t->type, t->dims, err)
                     : add(f, spec, rule, layer, t->name, t->dims, has_output, w, err);
    }
    return finish(rc, w, out, err);
}

static int draft_rule(const struct weight_format *f, const struct weights *config, const struct model_spec *s,
                      const struct tensor_rule *rule, struct weights *w, struct error *err) {
    bool of_layer = rule->weight < W_LAYER_END, has_output = sketch_expects(config, "output.weight");
    size_t dims[TENSOR_MAX_DIMS];
    int rc = 0;
    model_tensor_dims(s, rule, dims);
    for (size_t layer = 0; !rc && layer < (of_layer ? s->n_layers : 1); layer++) {
        char name[96];
        snprintf(name, sizeof name, "%s", rule->name);
        if (of_layer) snprintf(name, sizeof name, "blk.%zu.%s", layer, rule->name);
        if (rule->optional && !sketch_expects(config, name)) continue;
        if (of_layer && !model_layer_has(s, rule, layer)) continue;
        rc = add(f, s, rule, layer, name, dims, has_output, w, err);
    }
    return rc;
}

int weight_format_draft(const struct weight_format *f, const struct weights *config, struct weights **out,
                        struct error *err) {
    struct model_spec s;
    struct weights *w = NULL;
    *out = NULL;
    int rc = model_spec_describe(config, &s, err);
    if (rc) return error_prefix(err, "%s", weights_path(config));
    const struct model_family *family = model_family(s.family, strlen(s.family));
    if (s.encoder) {
        s.n_token_types = sketch_token_types(config);
        s.n_labels = sketch_labels(config);
    }
    rc = sketch_begin(config, &w, err);
    for (size_t i = 0; !rc && i < family->n_tensors; i++)
        if (family->tensors[i].weight < W_ROPE_FREQS)
            rc = draft_rule(f, config, &s, &family->tensors[i], w, err);
    return finish(rc, w, out, err);
}
