#include "model/spec_impl.h"

#include "base/error.h"
#include "base/size.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

/* Ranges: far above any model there is, and low enough that products of a few of them fit size_t. */
#define MAX_FF    (1u << 20)
#define MAX_VOCAB (1u << 22)
#define MAX_HEADS 1024u

void spec_full_key(const struct spec_reader *r, const char *name, char key[SPEC_KEY_BYTES]) {
    snprintf(key, SPEC_KEY_BYTES, "%s.%s", r->family->name, name);
}

const char *spec_label(const struct spec_reader *r, const char *name, char key[SPEC_KEY_BYTES]) {
    char full[SPEC_KEY_BYTES];
    spec_full_key(r, name, full);
    const char *label = weights_label(r->w, full), *word = weights_key_name(r->w, full);
    if (label != full) return label;
    snprintf(key, SPEC_KEY_BYTES, "%s%.80s", word != full ? "config.json: " : "", word);
    return key;
}

bool spec_has(const struct spec_reader *r, const char *name) {
    char key[SPEC_KEY_BYTES];
    spec_full_key(r, name, key);
    return weights_meta(r->w, key) != NULL;
}

size_t spec_size(struct spec_reader *r, const char *name, uint64_t min, uint64_t max) {
    uint64_t v = min;
    char key[SPEC_KEY_BYTES];
    spec_full_key(r, name, key);
    if (!r->rc) r->rc = weights_get_u64(r->w, key, min, max, &v, r->err);
    return (size_t)v;
}

size_t spec_size_or(struct spec_reader *r, const char *name, uint64_t min, uint64_t max, size_t preset) {
    return spec_has(r, name) ? spec_size(r, name, min, max) : preset;
}

/* In [min, max]. */
double spec_float_or(struct spec_reader *r, const char *name, double min, double max, double preset) {
    double v = preset;
    char key[SPEC_KEY_BYTES];
    spec_full_key(r, name, key);
    if (r->rc || !spec_has(r, name)) return preset;
    r->rc = weights_get_f64(r->w, key, &v, r->err);
    if (!r->rc && !(v >= min && v <= max))
        r->rc = error_set(r->err, QUIRE_EFORMAT, "%s = %g: allowed are %g to %g", weights_label(r->w, key), v,
                          min, max);
    return v;
}

bool spec_bool_or(struct spec_reader *r, const char *name, bool preset) {
    bool v = preset;
    char key[SPEC_KEY_BYTES];
    spec_full_key(r, name, key);
    if (!r->rc && spec_has(r, name)) r->rc = weights_get_bool(r->w, key, &v, r->err);
    return v;
}

static void need_key(struct spec_reader *r, const char *name) {
    char key[SPEC_KEY_BYTES];
    if (!r->rc && !spec_has(r, name))
        r->rc = error_set(r->err, QUIRE_EFORMAT, "%s is missing", spec_label(r, name, key));
}

void spec_need(struct spec_reader *r, bool ok, const char *name, size_t value, const char *allowed) {
    char key[SPEC_KEY_BYTES];
    if (!r->rc && !ok)
        r->rc = error_set(r->err, QUIRE_EFORMAT, "%s = %zu: must be %s", spec_label(r, name, key), value,
                          allowed);
}

/* As spec_need; what is allowed names another key, as the file does. */
static void need_beside(struct spec_reader *r, bool ok, const char *name, size_t value, const char *allowed,
                        const char *other, const char *rest) {
    char key[SPEC_KEY_BYTES], text[2 * SPEC_KEY_BYTES];
    spec_full_key(r, other, key);
    snprintf(text, sizeof text, "%s%s%s", allowed, weights_key_name(r->w, key), rest);
    spec_need(r, ok, name, value, text);
}

/* ---- keys ---- */

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
static int check_keys(struct spec_reader *r) {
    size_t prefix = strlen(r->family->name);
    for (size_t i = 0; i < weights_n_meta(r->w); i++) {
        const struct meta *m = weights_meta_at(r->w, i);
        if (strncmp(m->key, r->family->name, prefix) || m->key[prefix] != '.') continue;
        const struct key_rule *rule = model_key_rule(r->family, m->key + prefix + 1);
        bool angles = r->family->no_rope && !strncmp(m->key + prefix + 1, "rope.", 5);
        if (!rule || angles)
            return error_set(r->err, QUIRE_EUNSUPPORTED,
                             "%s: not known to the %s family, so its effect would be lost",
                             weights_label(r->w, m->key), r->family->name);
        if (rule->use != KEY_ZERO && rule->use != KEY_ONE) continue;
        double v = scalar_value(r->w, m), allowed = rule->use == KEY_ONE;
        if (v != allowed)
            return error_set(r->err, QUIRE_EUNSUPPORTED,
                             "%s = %g: not supported for the %s family, only %g is",
                             weights_label(r->w, m->key), v, r->family->name, allowed);
    }
    return 0;
}

/* ---- description ---- */

static void read_sizes(struct spec_reader *r, struct model_spec *s) {
    const struct tensor *embd = weights_tensor(r->w, "token_embd.weight");
    s->n_layers = spec_size(r, "block_count", 1, MODEL_MAX_LAYERS);
    s->context_len = spec_size(r, "context_length", 1, SPEC_MAX_CONTEXT);
    s->n_embd = spec_size(r, "embedding_length", 1, SPEC_MAX_EMBD);
    s->n_ff = spec_size(r, "feed_forward_length", 1, MAX_FF);
    s->n_vocab = embd ? embd->dims[1] : 0;
    s->n_vocab = spec_size_or(r, "vocab_size", 1, MAX_VOCAB, s->n_vocab);
    spec_need(r, s->n_vocab >= 1 && s->n_vocab <= MAX_VOCAB, "vocab_size", s->n_vocab, "1 to 4194304");
    s->n_heads = spec_size(r, "attention.head_count", 1, MAX_HEADS);
    s->n_kv_heads = spec_size_or(r, "attention.head_count_kv", 1, MAX_HEADS, s->n_heads);
    if (r->rc) return;
    if (r->family->latent) {
        spec_read_latent(r, s);
        return;
    }
    need_beside(r, s->n_kv_heads <= s->n_heads && s->n_heads % s->n_kv_heads == 0, "attention.head_count_kv",
                s->n_kv_heads, "a divisor of ", "attention.head_count", "");
    if (!spec_has(r, "attention.key_length"))
        need_beside(r, s->n_embd % s->n_heads == 0, "embedding_length", s->n_embd, "a multiple of ",
                    "attention.head_count", ", where the length of a head is not given");
    s->head_dim = spec_size_or(r, "attention.key_length", 1, SPEC_MAX_HEAD, s->n_embd / s->n_heads);
    spec_need(r, s->head_dim && s->head_dim <= SPEC_MAX_HEAD && s->head_dim % SPEC_HEAD_STEP == 0,
              "attention.key_length", s->head_dim, "a multiple of 8, at most 1024");
    size_t value = spec_size_or(r, "attention.value_length", 1, SPEC_MAX_HEAD, s->head_dim);
    need_beside(r, value == s->head_dim, "attention.value_length", value, "equal to ", "attention.key_length",
                "");
}

static size_t rows_of(const struct spec_reader *r, const char *name) {
    const struct tensor *t = weights_tensor(r->w, name);
    return t ? t->dims[1] : 0;
}

static void read_pooling(struct spec_reader *r, struct model_spec *s) {
    s->pooling = (enum model_pooling)spec_size_or(r, "pooling_type", 0, MODEL_POOL_END - 1, MODEL_POOL_NONE);
    s->encoder = r->family->encoder;
    s->n_token_types = s->encoder ? rows_of(r, "token_types.weight") : 0;
    s->n_labels = s->encoder ? rows_of(r, "cls.output.weight") : 0;
    s->relu_head = s->n_labels && spec_bool_or(r, "classifier.relu", false);
    spec_need(r, s->pooling != MODEL_POOL_RANK || s->n_labels, "pooling_type", s->pooling,
              "0 to 3 where there is no tensor cls.output.weight");
}

/* Factors and caps that families have in the arithmetic of Llama. */
static void read_factors(struct spec_reader *r, struct model_spec *s) {
    const struct model_family *f = r->family;
    bool wide = s->n_layers == f->scaled_by_width[0] || s->n_layers == f->scaled_by_width[1];
    double per_head = wide ? (double)s->n_embd / (double)s->n_heads : (double)s->head_dim;
    if (s->latent.rank) per_head = (double)(s->latent.key + s->latent.n_rot);
    s->attn_scale = (float)spec_float_or(r, "attention.scale", 0.0, 1e3, 1.0 / sqrt(per_head));
    if (s->attn_scale == 0.0f) s->attn_scale = (float)(1.0 / sqrt(per_head));
    s->attn_soft_cap = (float)spec_float_or(r, "attn_logit_softcapping", 0.0, 1e6, 0.0);
    s->final_soft_cap = (float)spec_float_or(r, "final_logit_softcapping", 0.0, 1e6, 0.0);
    s->embed_scale = f->embed_by_width ? (float)sqrt((double)s->n_embd) : 1.0f;
    s->embed_scale = (float)spec_float_or(r, "embedding_scale", 1e-6, 1e6, s->embed_scale);
    s->residual_scale = (float)spec_float_or(r, "residual_scale", 1e-6, 1e6, 1.0);
    s->logit_scale = (float)(1.0 / spec_float_or(r, "logit_scale", 1e-6, 1e6, 1.0)); /* Granite divides */
}

/* The description by keys alone. */
static int describe(struct spec_reader *r, struct model_spec *out) {
    struct meta_str arch;
    const struct weights *w = r->w;
    struct error *err = r->err;
    int rc = weights_get_str(w, "general.architecture", &arch, err);
    if (rc) return rc;
    r->family = model_family(arch.data, arch.len);
    if (!r->family) {
        char known[MODEL_FAMILY_NAMES_BYTES];
        model_family_names(known, sizeof known);
        return error_set(err, QUIRE_EUNSUPPORTED, "general.architecture = \"%.*s\": known are %s",
                         (int)size_min(arch.len, 64), arch.data, known);
    }
    *out = (struct model_spec){.family = r->family->name,
                               .activation = r->family->activation,
                               .post_norms = r->family->post_norms,
                               .qk_norm_rows = r->family->qk_norm_rows,
                               .tied_output = !weights_tensor(w, "output.weight"),
                               .headless = weights_headless(w)};
    r->rc = check_keys(r);
    read_sizes(r, out);
    if (r->rc) return r->rc;
    const char *eps =
        r->family->encoder ? "attention.layer_norm_epsilon" : "attention.layer_norm_rms_epsilon";
    need_key(r, eps);
    out->norm_eps = (float)spec_float_or(r, eps, 0.0, 1.0, 0.0);
    read_pooling(r, out);
    read_factors(r, out);
    if (!r->family->no_rope) spec_read_ropes(r, out);
    spec_read_layers(r, out);
    return r->rc;
}

int model_spec_describe(const struct weights *w, struct model_spec *out, struct error *err) {
    struct spec_reader r = {.w = w, .err = err};
    return describe(&r, out);
}

int model_spec_read(const struct weights *w, struct model_spec *out, struct error *err) {
    struct spec_reader r = {.w = w, .err = err};
    int rc = describe(&r, out);
    if (!rc) rc = spec_check_tensors(&r, out);
    if (rc && weights_folder(w)) error_prefix(err, "%s", weights_folder(w));
    return rc;
}

enum model_pooling model_default_pooling(const struct model_spec *s, bool wanted) {
    if (s->pooling) return s->pooling;
    if (!s->encoder) return wanted || s->headless ? MODEL_POOL_LAST : MODEL_POOL_NONE;
    return s->n_labels ? MODEL_POOL_RANK : MODEL_POOL_CLS;
}

const char *model_pooling_name(enum model_pooling pooling) {
    static const char *const names[] = {[MODEL_POOL_NONE] = "none",
                                        [MODEL_POOL_MEAN] = "mean",
                                        [MODEL_POOL_CLS] = "cls",
                                        [MODEL_POOL_LAST] = "last",
                                        [MODEL_POOL_RANK] = "rank"};
    return names[pooling];
}

struct backend_kv_layout model_kv_layout(const struct model_spec *s, size_t block_tokens,
                                         enum backend_dtype dtype) {
    struct backend_kv_layout l = {.n_groups = s->n_kv_groups,
                                  .block_tokens = block_tokens,
                                  .dtype = dtype,
                                  .rows = s->latent.rank != 0};
    for (size_t g = 0; g < s->n_kv_groups; g++)
        l.groups[g] = (struct backend_kv_group){
            .n_layers = s->kv_groups[g].n_layers, .n_kv_heads = s->n_kv_heads, .head_dim = s->head_dim};
    return l;
}

size_t model_kv_bytes_per_token(const struct model_spec *s, enum backend_dtype dtype) {
    size_t layers = 0;
    for (size_t g = 0; g < s->n_kv_groups; g++) layers += s->kv_groups[g].n_layers;
    return layers * (s->latent.rank ? 1 : 2) * s->n_kv_heads * s->head_dim * (dtype == BACKEND_F32 ? 4 : 2);
}

bool model_has_dense(const struct model_spec *s) {
    for (size_t i = 0; i < s->n_layers; i++)
        if (!s->layers[i].routed) return true;
    return false;
}
