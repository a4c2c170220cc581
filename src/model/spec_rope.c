/* Rotary embeddings as a file describes them: base, scaling, and whether layers with a window have their own.
 */
#include "model/spec_impl.h"

#include "base/error.h"
#include "base/size.h"

#include <math.h>
#include <string.h>

static bool is(struct meta_str s, const char *name) {
    return s.len == strlen(name) && !memcmp(s.data, name, s.len);
}

/* Queries and keys both carry the factor, so scores carry its square (Ding et al. 2024, as Phi-3 has it). */
static double long_factor(const struct model_spec *s, const struct model_rope *rope) {
    double times = (double)s->context_len / (double)rope->original_context;
    return times > 1.0 ? sqrt(1.0 + log(times) / log((double)rope->original_context)) : 1.0;
}

static double yarn_mscale(double factor, double times) {
    return factor > 1.0 ? 0.1 * times * log(factor) + 1.0 : 1.0;
}

/* DeepSeek-V2's: the factor of queries and keys is one of all scores instead. GGUF has a tenth of what
 * config.json calls mscale_all_dim, and takes mscale to be the same, so that nothing is left for the angles.
 */
static void read_yarn_scores(struct spec_reader *r, struct model_spec *s, struct model_rope *rope) {
    double all = spec_float_or(r, "rope.scaling.yarn_log_multiplier", 0.0, 10.0, 0.0) / 0.1;
    double m = yarn_mscale(rope->factor, all);
    s->attn_scale = (float)(s->attn_scale * m * m);
    if (all != 0.0) rope->attn_factor = 1.0 / yarn_mscale(rope->factor, 1.0);
}

/* Ministral 3's: GGUF has mscale_all_dim itself, beside an mscale of 1. */
static void read_yarn_factor(struct spec_reader *r, struct model_rope *rope) {
    double all = spec_float_or(r, "rope.scaling.yarn_log_multiplier", 0.0, 10.0, 0.0);
    if (all != 0.0) rope->attn_factor = 1.0 / yarn_mscale(rope->factor, all);
}

/* Its queries grow with each step, which is the original context where nothing else is said. */
static void read_temperature(struct spec_reader *r, struct model_spec *s) {
    const char *key = "attention.temperature_length";
    size_t preset = s->ropes[0].original_context;
    s->attn_temperature = (float)spec_float_or(r, "attention.temperature_scale", 0.0, 10.0, 0.0);
    if (s->attn_temperature == 0.0f) return;
    s->temperature_step =
        preset ? spec_size_or(r, key, 1, SPEC_MAX_CONTEXT, preset) : spec_size(r, key, 1, SPEC_MAX_CONTEXT);
}

static void read_yarn(struct spec_reader *r, struct model_spec *s, struct model_rope *rope) {
    rope->scaling = ROPE_YARN;
    rope->fractional = !spec_bool_or(r, "rope.scaling.yarn_truncate", !r->family->yarn_fractional);
    rope->original_context = spec_size(r, "rope.scaling.original_context_length", 1, SPEC_MAX_CONTEXT);
    rope->attn_factor = 1.0;
    if (r->family->latent) read_yarn_scores(r, s, rope);
    if (r->family->temperature) read_yarn_factor(r, rope);
    rope->attn_factor *= spec_float_or(r, "rope.scaling.attn_factor", 1e-3, 1e3, 1.0);
    rope->attn_factor = spec_float_or(r, "rope.scaling.yarn_attn_factor", 1e-3, 1e3, rope->attn_factor);
    rope->ext_factor = spec_float_or(r, "rope.scaling.yarn_ext_factor", 0.0, 1.0, 1.0);
    rope->beta_fast = spec_float_or(r, "rope.scaling.yarn_beta_fast", 1e-3, 1e6, 32.0);
    rope->beta_slow = spec_float_or(r, "rope.scaling.yarn_beta_slow", 1e-3, 1e6, 1.0);
}

static void read_scaling(struct spec_reader *r, struct model_spec *s, struct model_rope *rope) {
    struct meta_str type = {"none", 4};
    char key[SPEC_KEY_BYTES];
    spec_full_key(r, "rope.scaling.type", key);
    if (!r->rc && spec_has(r, "rope.scaling.type")) r->rc = weights_get_str(r->w, key, &type, r->err);
    if (r->rc) return;
    bool factors = weights_tensor(r->w, "rope_factors_long.weight") != NULL;
    bool dynamic = is(type, "dynamic");
    if (!is(type, "linear") && !is(type, "yarn") && !is(type, "none") && !dynamic &&
        !(factors && is(type, "longrope"))) {
        r->rc =
            error_set(r->err, QUIRE_EUNSUPPORTED, "%s = \"%.*s\": allowed are none, linear, dynamic, yarn%s",
                      key, (int)size_min(type.len, 64), type.data,
                      factors ? ", longrope" : " (longrope only with rope_factors_long.weight)");
        return;
    }
    double linear_factor = spec_float_or(r, "rope.scale_linear", 1e-3, 1e6, 1.0); /* older files */
    rope->factor = spec_float_or(r, "rope.scaling.factor", 1e-3, 1e6, linear_factor);
    bool linear = is(type, "linear") || (is(type, "none") && linear_factor != 1.0);
    rope->scaling = linear && rope->factor != 1.0 ? ROPE_LINEAR : ROPE_NONE;
    if (is(type, "yarn")) read_yarn(r, s, rope);
    if (!dynamic) return;
    rope->scaling = ROPE_DYNAMIC;
    rope->original_context = spec_size(r, "rope.scaling.original_context_length", 1, SPEC_MAX_CONTEXT);
    spec_need(r, rope->n_rot > 2, "rope.dimension_count", rope->n_rot,
              "more than 2 for this rope.scaling.type");
}

/* Divisors that come as tensors. */
static void read_factors(struct spec_reader *r, const struct model_spec *s, struct model_rope *rope) {
    const char *name = "rope_freqs.weight";
    bool freqs = weights_tensor(r->w, name) != NULL;
    bool longer = weights_tensor(r->w, "rope_factors_long.weight") != NULL;
    bool shorter = weights_tensor(r->w, "rope_factors_short.weight") != NULL;
    if (r->rc || (!freqs && !longer && !shorter)) return;
    if (!freqs) name = longer ? "rope_factors_long.weight" : "rope_factors_short.weight";
    if (rope->scaling != ROPE_NONE || (freqs && (longer || shorter)) || longer != shorter) {
        r->rc = error_set(r->err, QUIRE_EUNSUPPORTED, "%s: %s", name,
                          longer != shorter ? "rope_factors_long and rope_factors_short come together"
                                            : "cannot be combined with rope.scaling.type");
        return;
    }
    rope->scaling = freqs ? ROPE_FACTORS : ROPE_LONG;
    if (freqs) return;
    rope->original_context = spec_size(r, "rope.scaling.original_context_length", 2, SPEC_MAX_CONTEXT);
    if (r->rc) return;
    rope->attn_factor = spec_float_or(r, "rope.scaling.attn_factor", 1e-3, 1e3, long_factor(s, rope));
}

void spec_read_ropes(struct spec_reader *r, struct model_spec *s) {
    struct model_rope *rope = &s->ropes[0];
    s->n_ropes = 1;
    rope->interleaved = spec_bool_or(r, "rope.interleaved", r->family->rope_interleaved);
    rope->n_rot = spec_size_or(r, "rope.dimension_count", 2, SPEC_MAX_HEAD, s->head_dim);
    spec_need(r, rope->n_rot % 2 == 0 && rope->n_rot <= s->head_dim, "rope.dimension_count", rope->n_rot,
              "even and no larger than a head");
    rope->base = spec_float_or(r, "rope.freq_base", 1.0, 1e15, 10000.0);
    read_scaling(r, s, rope);
    read_factors(r, s, rope);
    if (r->family->temperature) read_temperature(r, s);
    if (!r->family->window_rope_plain) return;
    s->n_ropes = 2;
    double preset = r->family->window_rope_base ? r->family->window_rope_base : rope->base;
    s->ropes[1] = (struct model_rope){.interleaved = rope->interleaved,
                                      .n_rot = rope->n_rot,
                                      .base = spec_float_or(r, "rope.freq_base_swa", 1.0, 1e15, preset)};
}
