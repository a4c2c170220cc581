/* Tensors against a family's rules: names, shapes, types, and none missing. */
#include "model/spec_impl.h"

#include "base/error.h"

#include <stdio.h>

static bool is_stacked(const struct tensor_rule *rule) {
    return rule->each == EACH_EXPERT || rule->each == EACH_HEAD;
}

void model_tensor_dims(const struct model_spec *s, const struct tensor_rule *rule,
                       size_t dims[TENSOR_MAX_DIMS]) {
    size_t n = tensor_rule_each(rule, s);
    dims[0] = model_dim(s, rule->cols);
    dims[1] = model_dim(s, rule->rows);
    dims[2] = dims[3] = 1;
    for (size_t i = 0; i < 2; i++) dims[1] += model_dim(s, rule->more[i]);
    if (is_stacked(rule)) dims[rule->rows == D_ONE ? 1 : 2] = n;
    if (rule->each == EACH_HEAD_ROWS) dims[1] *= n;
}

static int check_shape(const struct model_spec *s, const struct tensor_rule *rule, const struct tensor *t,
                       struct error *err) {
    bool vector = rule->rows == D_ONE, stacked = is_stacked(rule);
    size_t dims[TENSOR_MAX_DIMS];
    model_tensor_dims(s, rule, dims);
    if (t->dims[0] != dims[0] || t->dims[1] != dims[1] || t->dims[2] != dims[2] || t->dims[3] != dims[3])
        return error_set(err, QUIRE_EFORMAT,
                         stacked ? "tensor %s: shape %zu x %zu x %zu x %zu; must be %zu x %zu x %zu"
                                 : "tensor %s: shape %zu x %zu x %zu x %zu; must be %zu x %zu",
                         tensor_label(t), t->dims[0], t->dims[1], t->dims[2], t->dims[3], dims[0], dims[1],
                         dims[2]);
    const struct tensor_type_info *type = tensor_type_info(t->type);
    if (!type || !type->loadable)
        return error_set(err, QUIRE_EUNSUPPORTED, "tensor %s: type %s is not supported", tensor_label(t),
                         type ? type->name : "unknown");
    bool plain = t->type == TENSOR_F32 || t->type == TENSOR_F16 || t->type == TENSOR_BF16;
    if (vector && !plain)
        return error_set(err, QUIRE_EUNSUPPORTED, "tensor %s: type %s; a vector must be F32, F16 or BF16",
                         tensor_label(t), type->name);
    return 0;
}

bool model_layer_has(const struct model_spec *s, const struct tensor_rule *rule, size_t layer) {
    bool routed = s->layers[layer].routed;
    switch (rule->layers) {
    case IN_ALL: return true;
    case IN_DENSE: return !routed;
    case IN_ROUTED: return routed;
    case IN_SHARED: return routed && s->experts.shared_ff;
    case IN_Q_RANK: return s->latent.q_rank;
    case IN_Q_WHOLE: return !s->latent.q_rank;
    case IN_KV_FUSED: return s->latent.fused;
    case IN_KV_APART: return !s->latent.fused;
    }
    return false;
}

static int missing(const struct spec_reader *r, const char *name) {
    char theirs[2 * SPEC_KEY_BYTES];
    return error_set(r->err, QUIRE_EFORMAT, "tensor %s is missing",
                     weights_tensor_label(r->w, name, theirs, sizeof theirs));
}

static int check_present(const struct spec_reader *r, const struct model_spec *s) {
    for (size_t i = 0; i < r->family->n_tensors; i++) {
        const struct tensor_rule *rule = &r->family->tensors[i];
        bool of_layer = rule->weight < W_LAYER_END;
        for (size_t layer = 0; layer < (of_layer ? s->n_layers : 1); layer++) {
            char name[SPEC_KEY_BYTES];
            snprintf(name, sizeof name, "%s", rule->name);
            if (of_layer) snprintf(name, sizeof name, "blk.%zu.%s", layer, rule->name);
            if (!rule->optional && (!of_layer || model_layer_has(s, rule, layer)) &&
                !weights_tensor(r->w, name))
                return missing(r, name);
        }
    }
    return 0;
}

/* Why a tensor has no place in its layer. */
static const char *out_of_place(const struct tensor_rule *rule) {
    switch (rule->layers) {
    case IN_DENSE: return "not part of a layer with experts";
    case IN_SHARED: return "not part of a layer without shared experts";
    case IN_Q_RANK: return "not part of a model without attention.q_lora_rank";
    case IN_Q_WHOLE: return "not part of a model with attention.q_lora_rank";
    case IN_KV_FUSED: return "not part of a model that has attn_k_b, too";
    case IN_KV_APART: return "not part of a model that has attn_kv_b";
    default: return "not part of a layer without experts";
    }
}

int spec_check_tensors(const struct spec_reader *r, const struct model_spec *s) {
    for (size_t i = 0; i < weights_n_tensors(r->w); i++) {
        const struct tensor *t = weights_tensor_at(r->w, i);
        size_t layer;
        if (t->is_scale) continue;
        const struct tensor_rule *rule = model_tensor_rule(r->family, s, t->name, &layer);
        if (!rule)
            return error_set(r->err, QUIRE_EUNSUPPORTED, "tensor %s: not part of a %s model of %zu layers",
                             tensor_label(t), r->family->name, s->n_layers);
        if (rule->weight < W_LAYER_END && !model_layer_has(s, rule, layer))
            return error_set(r->err, QUIRE_EUNSUPPORTED, "tensor %s: %s", tensor_label(t),
                             out_of_place(rule));
        int rc = check_shape(s, rule, t, r->err);
        if (rc) return rc;
    }
    return check_present(r, s);
}
