/* Angles of rotary embeddings (Su et al. 2021), with the scalings that extend a model's context: linear (Chen
 * et al. 2023), YaRN (Peng et al. 2023, section 3), and divisors given by the file. Computed in double. */
#include "model/model_impl.h"

#include <math.h>

/* Index, as a real number, of the pair that turns `rotations` times within the original context. */
static double yarn_pair(const struct model_rope *r, double rotations) {
    return (double)r->n_rot * log((double)r->original_context / (rotations * 2.0 * M_PI)) /
           (2.0 * log(r->base));
}

/* Share of interpolation in pair i: 0 for pairs that turn fast, 1 for those that turn slowly. */
static double yarn_ramp(const struct model_rope *r, size_t i) {
    double low = yarn_pair(r, r->beta_fast), high = yarn_pair(r, r->beta_slow);
    low = fmax(r->fractional ? low : floor(low), 0.0);
    high = fmin(r->fractional ? high : ceil(high), (double)r->n_rot - 1.0);
    if (high <= low) high = low + 0.001;
    double ramp = fmin(fmax(((double)i - low) / (high - low), 0.0), 1.0);
    return 1.0 - (1.0 - ramp) * r->ext_factor;
}

/* The base of dynamic scaling for sequences of up to length (bloc97 and emozilla 2023, as transformers has
 * it). */
static double dynamic_base(const struct model_rope *r, size_t length) {
    if (length <= r->original_context) return r->base;
    double times = (double)length / (double)r->original_context, n = (double)r->n_rot;
    return r->base * pow(r->factor * times - (r->factor - 1.0), n / (n - 2.0));
}

static double frequency(const struct model_rope *r, size_t i, const float *factors, size_t length) {
    double base = r->scaling == ROPE_DYNAMIC ? dynamic_base(r, length) : r->base;
    double f = pow(base, -2.0 * (double)i / (double)r->n_rot);
    switch (r->scaling) {
    case ROPE_DYNAMIC:
    case ROPE_NONE: return f;
    case ROPE_LINEAR: return f / r->factor;
    case ROPE_FACTORS:
    case ROPE_LONG: return f / factors[i];
    case ROPE_YARN: {
        double ramp = yarn_ramp(r, i);
        return f / r->factor * ramp + f * (1.0 - ramp);
    }
    }
    return f;
}

/* YaRN and LongRoPE sharpen attention by scaling queries and keys, here through the table. */
static double magnitude(const struct model_rope *r) {
    if (r->scaling == ROPE_LONG) return r->attn_factor;
    if (r->scaling != ROPE_YARN) return 1.0;
    bool scaled = r->ext_factor != 0.0 && r->factor > 1.0;
    return r->attn_factor * (scaled ? 0.1 * log(r->factor) + 1.0 : 1.0);
}

void rope_frequencies(double *out, const struct model_rope *rope, const float *factors, size_t length) {
    for (size_t i = 0; i < rope->n_rot / 2; i++) out[i] = frequency(rope, i, factors, length);
}

void rope_fill(float *table, size_t first, size_t n, const struct model_rope *rope,
               const double *frequencies) {
    size_t half = rope->n_rot / 2;
    double scale = magnitude(rope);
    for (size_t p = first; p < first + n; p++) {
        float *row = table + p * rope->n_rot;
        for (size_t i = 0; i < half; i++) {
            row[i] = (float)(cos((double)p * frequencies[i]) * scale);
            row[half + i] = (float)(sin((double)p * frequencies[i]) * scale);
        }
    }
}
