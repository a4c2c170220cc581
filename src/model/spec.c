#include "model/family.h"

#include "base/error.h"
#include "base/size.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

/* Ranges: far above any model there is, and low enough that products of a few of them fit size_t. */
#define MAX_EMBD    (1u << 17)
#define MAX_FF      (1u << 20)
#define MAX_VOCAB   (1u << 22)
#define MAX_HEADS   1024u
#define MAX_HEAD    1024u
#define HEAD_STEP   8 /* what attention kernels of all devices take */
#define MAX_CONTEXT (1u << 26)

#define KEY_BYTES 96

struct reader {
    const struct weights *w;
    const struct model_family *family;
    struct error *err;
    int rc; /* first failure; later reads do nothing */
};

static void full_key(const struct reader *r, const char *name, char key[KEY_BYTES]) {
    snprintf(key, KEY_BYTES, "%s.%s", r->family->name, name);
}

static bool has(const struct reader *r, const char *name) {
    char key[KEY_BYTES];
    full_key(r, name, key);
    return weights_meta(r->w, key) != NULL;
}

static size_t read_size(struct reader *r, const char *name, uint64_t min, uint64_t max) {
    uint64_t v = min;
    char key[KEY_BYTES];
    full_key(r, name, key);
    if (!r->rc) r->rc = weights_get_u64(r->w, key, min, max, &v, r->err);
    return (size_t)v;
}

static size_t read_size_or(struct reader *r, const char *name, uint64_t min, uint64_t max, size_t preset) {
    return has(r, name) ? read_size(r, name, min, max) : preset;
}

/* In [min, max]. */
static double read_float_or(struct reader *r, const char *name, double min, double max, double preset) {
    double v = preset;
    char key[KEY_BYTES];
    full_key(r, name, key);
    if (r->rc || !has(r, name)) return preset;
    r->rc = weights_get_f64(r->w, key, &v, r->err);
    if (!r->rc && !(v >= min && v <= max))
        r->rc = error_set(r->err, QUIRE_EFORMAT, "%s = %g: allowed are %g to %g", key, v, min, max);
    return v;
}

static void need_key(struct reader *r, const char *name) {
    if (!r->rc && !has(r, name))
        r->rc = error_set(r->err, QUIRE_EFORMAT, "%s.%s is missing", r->family->name, name);
}

static void need(struct reader *r, bool ok, const char *name, size_t value, const char *allowed) {
    if (!r->rc && !ok)
        r->rc = error_set(r->err, QUIRE_EFORMAT, "%s.%s = %zu: must be %s", r->family->name, name, value,
                          allowed);
}

/* ---- keys ---- */

static const struct key_rule *find_key(const struct model_family *f, const char *name) {
    for (size_t i = 0; i < f->n_keys; i++)
        if (!strcmp(f->keys[i].name, name)) return &f->keys[i];
    return NULL;
}

/* Value of a scalar number or boolean, for keys that must be neutral. NaN: not a number. */
static double scalar_value(const struct weights *w, const struct meta *m) {
    double v;
    bool flag;
    uint64_t u;
    if (m->type == META_BOOL) return weights_get_bool(w, m->key, &flag, NULL) ? NAN : flag;
    if (m->type == META_F32 || m->type == META_F64) return weights_get_f64(w, m->key, &v, NULL) ? NAN : v;
    return weights_get_u64(w, m->key, 0, UINT64_MAX, &u, NULL) ? NAN : (double)u;
}

/* Every key of the family's own must be one that the forward pass honours or may ignore: a key that changes
 * the arithmetic and is skipped would give a model that answers, wrongly. */
static int check_keys(struct reader *r) {
    size_t prefix = strlen(r->family->name);
    for (size_t i = 0; i < weights_n_meta(r->w); i++) {
        const struct meta *m = weights_meta_at(r->w, i);
        if (strncmp(m->key, r->family->name, prefix) || m->key[prefix] != '.') continue;
        const struct key_rule *rule = find_key(r->family, m->key + prefix + 1);
        if (!rule)
            return error_set(r->err, QUIRE_EUNSUPPORTED,
                             "%s: not known to the %s family, so its effect would be lost", m->key,
                             r->family->name);
        if (rule->use != KEY_ZERO && rule->use != KEY_ONE) continue;
        double v = scalar_value(r->w, m), allowed = rule->use == KEY_ONE;
        if (v != allowed)
            return error_set(r->err, QUIRE_EUNSUPPORTED,
                             "%s = %g: not supported for the %s family, only %g is", m->key, v,
                             r->family->name, allowed);
    }
    return 0;
}

/* ---- description ---- */

static void read_sizes(struct reader *r, struct model_spec *s) {
    const struct tensor *embd = weights_tensor(r->w, "token_embd.weight");
    s->n_layers = read_size(r, "block_count", 1, MODEL_MAX_LAYERS);
    s->context_len = read_size(r, "context_length", 1, MAX_CONTEXT);
    s->n_embd = read_size(r, "embedding_length", 1, MAX_EMBD);
    s->n_ff = read_size(r, "feed_forward_length", 1, MAX_FF);
    s->n_vocab = embd ? embd->dims[1] : 0;
    s->n_vocab = read_size_or(r, "vocab_size", 1, MAX_VOCAB, s->n_vocab);
    need(r, s->n_vocab >= 1 && s->n_vocab <= MAX_VOCAB, "vocab_size", s->n_vocab, "1 to 4194304");
    s->n_heads = read_size(r, "attention.head_count", 1, MAX_HEADS);
    s->n_kv_heads = read_size_or(r, "attention.head_count_kv", 1, MAX_HEADS, s->n_heads);
    if (r->rc) return;
    need(r, s->n_kv_heads <= s->n_heads && s->n_heads % s->n_kv_heads == 0, "attention.head_count_kv",
         s->n_kv_heads, "a divisor of attention.head_count");
    if (!has(r, "attention.key_length"))
        need(r, s->n_embd % s->n_heads == 0, "embedding_length", s->n_embd,
             "a multiple of attention.head_count, or attention.key_length given");
    s->head_dim = read_size_or(r, "attention.key_length", 1, MAX_HEAD, s->n_embd / s->n_heads);
    need(r, s->head_dim && s->head_dim <= MAX_HEAD && s->head_dim % HEAD_STEP == 0, "attention.key_length",
         s->head_dim, "a multiple of 8, at most 1024");
    size_t value = read_size_or(r, "attention.value_length", 1, MAX_HEAD, s->head_dim);
    need(r, value == s->head_dim, "attention.value_length", value, "equal to attention.key_length");
}

static void read_scaling(struct reader *r, struct model_rope *rope) {
    struct meta_str type = {"none", 4};
    char key[KEY_BYTES];
    full_key(r, "rope.scaling.type", key);
    if (!r->rc && has(r, "rope.scaling.type")) r->rc = weights_get_str(r->w, key, &type, r->err);
    if (r->rc) return;
    bool linear = type.len == 6 && !memcmp(type.data, "linear", 6);
    bool yarn = type.len == 4 && !memcmp(type.data, "yarn", 4);
    bool none = type.len == 4 && !memcmp(type.data, "none", 4);
    if (!linear && !yarn && !none) {
        r->rc = error_set(r->err, QUIRE_EUNSUPPORTED, "%s = \"%.*s\": allowed are none, linear, yarn", key,
                          (int)size_min(type.len, 64), type.data);
        return;
    }
    double linear_factor = read_float_or(r, "rope.scale_linear", 1e-3, 1e6, 1.0); /* older files */
    if (none && linear_factor != 1.0) linear = true;
    rope->factor = read_float_or(r, "rope.scaling.factor", 1e-3, 1e6, linear_factor);
    if (rope->factor == 1.0) linear = false;
    rope->scaling = yarn ? ROPE_YARN : linear ? ROPE_LINEAR : ROPE_NONE;
    if (!yarn) return;
    rope->original_context = read_size(r, "rope.scaling.original_context_length", 1, MAX_CONTEXT);
    rope->attn_factor = read_float_or(r, "rope.scaling.attn_factor", 1e-3, 1e3, 1.0);
    rope->attn_factor = read_float_or(r, "rope.scaling.yarn_attn_factor", 1e-3, 1e3, rope->attn_factor);
    rope->ext_factor = read_float_or(r, "rope.scaling.yarn_ext_factor", 0.0, 1.0, 1.0);
    rope->beta_fast = read_float_or(r, "rope.scaling.yarn_beta_fast", 1e-3, 1e6, 32.0);
    rope->beta_slow = read_float_or(r, "rope.scaling.yarn_beta_slow", 1e-3, 1e6, 1.0);
}

static void read_rope(struct reader *r, struct model_spec *s) {
    struct model_rope *rope = &s->rope;
    rope->interleaved = r->family->rope_interleaved;
    rope->n_rot = read_size_or(r, "rope.dimension_count", 2, MAX_HEAD, s->head_dim);
    need(r, rope->n_rot % 2 == 0 && rope->n_rot <= s->head_dim, "rope.dimension_count", rope->n_rot,
         "even and no larger than attention.key_length");
    rope->base = read_float_or(r, "rope.freq_base", 1.0, 1e15, 10000.0);
    read_scaling(r, rope);
    if (r->rc || !weights_tensor(r->w, "rope_freqs.weight")) return;
    if (rope->scaling != ROPE_NONE)
        r->rc = error_set(r->err, QUIRE_EUNSUPPORTED,
                          "rope_freqs.weight: cannot be combined with rope.scaling.type");
    rope->scaling = ROPE_FACTORS;
}

/* All layers of today's families share one KV group. */
static void describe_layers(struct reader *r, struct model_spec *s) {
    size_t window = read_size_or(r, "attention.sliding_window", 0, UINT32_MAX, 0);
    if (window >= s->context_len) window = 0; /* no sequence is that long */
    s->n_kv_groups = 1;
    s->kv_groups[0] = (struct model_kv_group){.n_layers = s->n_layers, .window = window};
    for (size_t i = 0; i < s->n_layers; i++)
        s->layers[i] = (struct model_layer){.kv_layer = i, .window = window};
}

/* ---- tensors ---- */

static int check_shape(const struct model_spec *s, const struct tensor_rule *rule, const struct tensor *t,
                       struct error *err) {
    size_t cols = model_dim(s, rule->cols), rows = model_dim(s, rule->rows);
    if (t->dims[0] != cols || t->dims[1] != rows || t->dims[2] != 1 || t->dims[3] != 1)
        return error_set(err, QUIRE_EFORMAT, "tensor %s: shape %zu x %zu x %zu x %zu; must be %zu x %zu",
                         t->name, t->dims[0], t->dims[1], t->dims[2], t->dims[3], cols, rows);
    const struct tensor_type_info *type = tensor_type_info(t->type);
    if (!type || !type->decodable)
        return error_set(err, QUIRE_EUNSUPPORTED, "tensor %s: type %s is not supported", t->name,
                         type ? type->name : "unknown");
    bool plain = t->type == TENSOR_F32 || t->type == TENSOR_F16 || t->type == TENSOR_BF16;
    if (rule->rows == D_ONE && !plain)
        return error_set(err, QUIRE_EUNSUPPORTED, "tensor %s: type %s; a vector must be F32, F16 or BF16",
                         t->name, type->name);
    return 0;
}

static int check_present(const struct weights *w, const struct model_family *f, const struct model_spec *s,
                         struct error *err) {
    for (size_t i = 0; i < f->n_tensors; i++) {
        const struct tensor_rule *rule = &f->tensors[i];
        bool of_layer = rule->weight < W_LAYER_END;
        for (size_t layer = 0; layer < (of_layer ? s->n_layers : 1); layer++) {
            char name[KEY_BYTES];
            snprintf(name, sizeof name, "%s", rule->name);
            if (of_layer) snprintf(name, sizeof name, "blk.%zu.%s", layer, rule->name);
            if (!rule->optional && !weights_tensor(w, name))
                return error_set(err, QUIRE_EFORMAT, "tensor %s is missing", name);
        }
    }
    return 0;
}

static int check_tensors(const struct weights *w, const struct model_family *f, const struct model_spec *s,
                         struct error *err) {
    for (size_t i = 0; i < weights_n_tensors(w); i++) {
        const struct tensor *t = weights_tensor_at(w, i);
        size_t layer;
        const struct tensor_rule *rule = model_tensor_rule(f, s, t->name, &layer);
        if (!rule)
            return error_set(err, QUIRE_EUNSUPPORTED, "tensor %s: not part of a %s model of %zu layers",
                             t->name, f->name, s->n_layers);
        int rc = check_shape(s, rule, t, err);
        if (rc) return rc;
    }
    return check_present(w, f, s, err);
}

int model_spec_read(const struct weights *w, struct model_spec *out, struct error *err) {
    struct meta_str arch;
    int rc = weights_get_str(w, "general.architecture", &arch, err);
    if (rc) return rc;
    struct reader r = {.w = w, .err = err, .family = model_family(arch.data, arch.len)};
    if (!r.family) {
        char known[128];
        model_family_names(known, sizeof known);
        return error_set(err, QUIRE_EUNSUPPORTED, "general.architecture = \"%.*s\": known are %s",
                         (int)size_min(arch.len, 64), arch.data, known);
    }
    *out = (struct model_spec){.family = r.family->name,
                               .activation = r.family->activation,
                               .embed_scale = 1.0f,
                               .logit_scale = 1.0f,
                               .tied_output = !weights_tensor(w, "output.weight")};
    r.rc = check_keys(&r);
    read_sizes(&r, out);
    if (r.rc) return r.rc;
    need_key(&r, "attention.layer_norm_rms_epsilon");
    out->norm_eps = (float)read_float_or(&r, "attention.layer_norm_rms_epsilon", 0.0, 1.0, 0.0);
    out->attn_scale = (float)(1.0 / sqrt((double)out->head_dim));
    read_rope(&r, out);
    describe_layers(&r, out);
    if (r.rc) return r.rc;
    return check_tensors(w, r.family, out, err);
}

struct backend_kv_layout model_kv_layout(const struct model_spec *s, size_t block_tokens,
                                         enum backend_dtype dtype) {
    struct backend_kv_layout l = {.n_groups = s->n_kv_groups, .block_tokens = block_tokens, .dtype = dtype};
    for (size_t g = 0; g < s->n_kv_groups; g++)
        l.groups[g] = (struct backend_kv_group){
            .n_layers = s->kv_groups[g].n_layers, .n_kv_heads = s->n_kv_heads, .head_dim = s->head_dim};
    return l;
}

size_t model_kv_bytes_per_token(const struct model_spec *s, enum backend_dtype dtype) {
    size_t layers = 0;
    for (size_t g = 0; g < s->n_kv_groups; g++) layers += s->kv_groups[g].n_layers;
    return layers * 2 * s->n_kv_heads * s->head_dim * (dtype == BACKEND_F32 ? 4 : 2);
}
