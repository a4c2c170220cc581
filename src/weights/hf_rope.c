/* Rotary embeddings as config.json has them: rope_parameters (transformers 5), or rope_theta and rope_scaling
 * (before). Formulas: modeling_rope_utils.py of transformers; where GGUF has divisors as a tensor, they are
 * made here. */
#include "base/size.h"
#include "weights/hf_impl.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#define MAX_PAIRS 512

static bool is(const char *a, const char *b) {
    return !strcmp(a, b);
}

struct rope {
    const json_t *params; /* rope_parameters or rope_scaling, of layers with full attention; NULL = none */
    const char *type;
    double theta, factor;
    size_t n_rot, length, original; /* length: max_position_embeddings */
    bool has_original;
};

static void check_params(struct hf_reader *r, const json_t *params) {
    static const char *const known[] = {"rope_type",        "type",
                                        "rope_theta",       "partial_rotary_factor",
                                        "factor",           "original_max_position_embeddings",
                                        "attention_factor", "beta_fast",
                                        "beta_slow",        "mscale",
                                        "mscale_all_dim",   "truncate",
                                        "long_factor",      "short_factor",
                                        "low_freq_factor",  "high_freq_factor"};
    static const char *const of_temperature[] = {"llama_4_scaling_beta", "max_position_embeddings"};
    const char *key;
    json_t *v;
    json_object_foreach((json_t *)params, key, v) {
        bool found = json_is_null(v);
        for (size_t i = 0; i < sizeof known / sizeof *known; i++) found |= is(known[i], key);
        for (size_t i = 0; r->family->temperature && i < 2; i++) found |= is(of_temperature[i], key);
        found |= json_is_object(v) && (is(key, "full_attention") || is(key, "sliding_attention"));
        if (!found)
            hf_fail(r, QUIRE_EUNSUPPORTED,
                    "rope parameter \"%.64s\" is not known, so its effect would be lost", key);
    }
}

static const char *type_of(struct hf_reader *r, const json_t *params) {
    const json_t *v = hf_get(params, "rope_type");
    if (!v) v = hf_get(params, "type");
    if (v && !json_is_string(v)) hf_fail(r, QUIRE_EFORMAT, "rope_type must be a string");
    return json_is_string(v) ? json_string_value(v) : "default";
}

/* Of layers with a window, where they are given apart. */
static void read_local(struct hf_reader *r, const json_t *local, const struct rope *rope) {
    double theta = hf_key(r->family, "rope_local_base_freq") ? 10000 : rope->theta;
    theta = hf_real(r, r->config, "rope_local_base_freq", theta);
    theta = hf_real(r, local, "rope_theta", theta);
    if (local) {
        check_params(r, local);
        if (!is(type_of(r, local), "default"))
            hf_fail(r, QUIRE_EUNSUPPORTED,
                    "rope_parameters.sliding_attention.rope_type = \"%.32s\": only default is "
                    "supported",
                    type_of(r, local));
    }
    if (r->family->own_window_rope)
        hf_put_f64(r, "rope.freq_base_swa", "rope_local_base_freq", theta);
    else if (theta != rope->theta)
        hf_fail(r, QUIRE_EUNSUPPORTED,
                "rope_parameters: layers with a window have another rope_theta, which this family has not");
}

/* "rope_scaling.factor": a parameter's name as messages have it. */
#define NAME_BYTES 64
static const char *full_name(const struct hf_reader *r, const char *name, char out[NAME_BYTES]) {
    snprintf(out, NAME_BYTES, "%s.%s",
             hf_get(r->config, "rope_parameters") ? "rope_parameters" : "rope_scaling", name);
    return out;
}

static double positive(struct hf_reader *r, const json_t *params, const char *name, double preset) {
    const json_t *v = hf_get(params, name);
    double d = v ? json_number_value(v) : preset;
    char full[NAME_BYTES];
    if (!r->rc && !(d > 0 && d <= 1e6))
        hf_fail_value(r, QUIRE_EFORMAT, full_name(r, name, full), v,
                      "must be a number of more than 0 and at most 1e6");
    return d > 0 ? d : 1;
}

static double needed(struct hf_reader *r, const struct rope *rope, const char *name) {
    char full[NAME_BYTES];
    if (!hf_get(rope->params, name))
        hf_fail(r, QUIRE_EFORMAT, "%s is missing, which rope_type \"%s\" needs", full_name(r, name, full),
                rope->type);
    return positive(r, rope->params, name, 1);
}

/* ---- scalings ---- */

static void put_scaling(struct hf_reader *r, const struct rope *rope, const char *type) {
    hf_put_str(r, "rope.scaling.type", "rope_type", type);
    char full[NAME_BYTES];
    hf_put_f64(r, "rope.scaling.factor", full_name(r, "factor", full), rope->factor);
    hf_put_u64(r, "rope.scaling.original_context_length", "original_max_position_embeddings", rope->original);
}

static double mscale(double factor, double m) {
    return factor <= 1 ? 1 : 0.1 * m * log(factor) + 1;
}

/* GGUF's factor of attention comes on top of the one that YaRN has by itself; mscale_all_dim takes that away
 * from latent attention. */
static void read_yarn(struct hf_reader *r, struct rope *rope) {
    const json_t *p = rope->params;
    bool given = hf_get(p, "attention_factor") != NULL;
    double m = hf_real(r, p, "mscale", 0), all = hf_real(r, p, "mscale_all_dim", 0);
    if (!hf_get(p, "factor")) rope->factor = (double)rope->length / (double)rope->original;
    double attention = mscale(rope->factor, 1);
    if (given)
        attention = positive(r, p, "attention_factor", 1);
    else if (m != 0 && all != 0)
        attention = mscale(rope->factor, m) / mscale(rope->factor, all);
    char full[NAME_BYTES];
    put_scaling(r, rope, "yarn");
    if (r->family->latent) hf_put_f64(r, "rope.scaling.yarn_log_multiplier", "mscale_all_dim", 0.1 * all);
    double own = r->family->latent && all != 0 ? 1 : mscale(rope->factor, 1);
    hf_put_f64(r, "rope.scaling.attn_factor", full_name(r, "attention_factor", full), attention / own);
    hf_put_f64(r, "rope.scaling.yarn_beta_fast", full_name(r, "beta_fast", full),
               positive(r, p, "beta_fast", 32));
    hf_put_f64(r, "rope.scaling.yarn_beta_slow", full_name(r, "beta_slow", full),
               positive(r, p, "beta_slow", 1));
    hf_put_bool(r, "rope.scaling.yarn_truncate", "truncate", hf_flag(r, p, "truncate", true));
}

/* Of queries, which grow with each original_max_position_embeddings positions. */
static void read_temperature(struct hf_reader *r, const struct rope *rope) {
    static const char name[] = "llama_4_scaling_beta";
    const json_t *v = hf_get(rope->params, name);
    double beta = hf_real(r, rope->params, name, 0);
    char full[NAME_BYTES];
    full_name(r, name, full);
    if (!v)
        hf_fail(r, QUIRE_EFORMAT, "%s is missing", full);
    else if (!r->rc && !(beta >= 0 && beta <= 10))
        hf_fail_value(r, QUIRE_EFORMAT, full, v, "must be a number from 0 to 10");
    else if (!is(rope->type, "yarn"))
        hf_fail(r, QUIRE_EUNSUPPORTED, "%s: only supported with rope_type yarn", full);
    if (!r->rc) hf_put_f64(r, "attention.temperature_scale", full, beta);
}

/* Divisors: none for pairs that turn often, the factor for those that turn less than low times within the
 * original context, and between them a blend of both frequencies. */
static void read_llama3(struct hf_reader *r, const struct rope *rope) {
    double factor = needed(r, rope, "factor"), low = needed(r, rope, "low_freq_factor");
    double high = needed(r, rope, "high_freq_factor"), context = (double)rope->original;
    float divisors[MAX_PAIRS];
    if (!r->rc && high <= low)
        hf_fail(r, QUIRE_EFORMAT, "high_freq_factor = %g: must be more than low_freq_factor = %g", high, low);
    if (r->rc) return;
    for (size_t i = 0; i < rope->n_rot / 2; i++) {
        double wave = 2 * M_PI * pow(rope->theta, 2.0 * (double)i / (double)rope->n_rot);
        double smooth = fmin(fmax((context / wave - low) / (high - low), 0), 1);
        divisors[i] = (float)(1 / ((1 - smooth) / factor + smooth));
    }
    hf_put_vector(r, "rope_freqs.weight", "rope_type llama3", divisors, rope->n_rot / 2);
}

static void read_factors(struct hf_reader *r, const struct rope *rope, const char *key, const char *name) {
    const json_t *list = hf_get(rope->params, key);
    size_t n = rope->n_rot / 2;
    float values[MAX_PAIRS];
    if (json_array_size(list) != n) {
        hf_fail(r, QUIRE_EFORMAT, "%s: must be a list of %zu numbers, one for each rotated pair", key, n);
        return;
    }
    for (size_t i = 0; i < n; i++) {
        double v = json_number_value(json_array_get(list, i));
        if (!(v > 1e-6 && v < 1e6))
            hf_fail(r, QUIRE_EFORMAT, "%s[%zu] must be a number from 1e-6 to 1e6", key, i);
        values[i] = (float)v;
    }
    hf_put_vector(r, name, key, values, n);
}

static void read_long(struct hf_reader *r, struct rope *rope) {
    double ratio = positive(r, rope->params, "factor", (double)rope->length / (double)rope->original);
    double attention = ratio > 1 ? sqrt(1 + log(ratio) / log((double)rope->original)) : 1;
    if (rope->original < 2) hf_fail(r, QUIRE_EFORMAT, "original_max_position_embeddings must be at least 2");
    attention = positive(r, rope->params, "attention_factor", attention);
    read_factors(r, rope, "long_factor", "rope_factors_long.weight");
    read_factors(r, rope, "short_factor", "rope_factors_short.weight");
    hf_put_u64(r, "rope.scaling.original_context_length", "original_max_position_embeddings", rope->original);
    char full[NAME_BYTES];
    hf_put_f64(r, "rope.scaling.attn_factor", full_name(r, "attention_factor", full), attention);
}

/* How long a sequence may be. Scalings by a factor extend max_position_embeddings, or the length that they
 * say was the original; the others keep it. */
static void put_length(struct hf_reader *r, const struct rope *rope) {
    double length = (double)rope->length;
    bool scaled = is(rope->type, "linear") || is(rope->type, "dynamic");
    if (scaled && !r->family->scaled_length) length *= rope->factor;
    if (is(rope->type, "yarn")) length = fmax(length, (double)rope->original * rope->factor);
    if (!r->rc && length < 1)
        hf_fail(r, QUIRE_EFORMAT, "max_position_embeddings = %zu: a scaling by %g leaves no position of it",
                rope->length, rope->factor);
    if (length > HF_MAX_LENGTH)
        hf_fail(r, QUIRE_EFORMAT,
                "max_position_embeddings: %.0f tokens after scaling; at most %u are allowed", length,
                HF_MAX_LENGTH);
    hf_put_u64(r, "context_length", "max_position_embeddings", r->rc ? 1 : (uint64_t)length);
}

static void read_scaling(struct hf_reader *r, struct rope *rope) {
    bool linear = is(rope->type, "linear"), dynamic = is(rope->type, "dynamic");
    bool yarn = is(rope->type, "yarn"), plain = is(rope->type, "default");
    if (r->family->latent && !yarn && !plain && hf_real(r, rope->params, "mscale_all_dim", 0) != 0)
        hf_fail(r, QUIRE_EUNSUPPORTED, "mscale_all_dim: only supported with rope_type yarn");
    if (linear || dynamic) {
        rope->factor = needed(r, rope, "factor");
        if (dynamic) rope->original = rope->length; /* what the reference counts from */
        put_scaling(r, rope, rope->type);
    } else if (yarn) {
        read_yarn(r, rope);
    } else if (is(rope->type, "llama3")) {
        read_llama3(r, rope);
    } else if (is(rope->type, "longrope") || is(rope->type, "su")) {
        read_long(r, rope);
    } else if (!plain) {
        hf_fail(r, QUIRE_EUNSUPPORTED,
                "rope_type = \"%.32s\": allowed are default, linear, dynamic, yarn, llama3, longrope",
                rope->type);
    }
}

static void read_sizes(struct hf_reader *r, struct rope *rope) {
    const json_t *c = r->config;
    size_t heads = (size_t)hf_size(r, c, "num_attention_heads", 1, 65536,
                                   (uint64_t)hf_key(r->family, "num_attention_heads")->preset);
    size_t width = (size_t)hf_size(r, c, "hidden_size", 1, 1u << 24, 0);
    const char *name = r->family->latent ? "qk_rope_head_dim" : "head_dim";
    size_t preset = (size_t)hf_key(r->family, name)->preset;
    if (!preset && heads) preset = width / heads;
    size_t head = (size_t)hf_size(r, c, name, 1, 2 * MAX_PAIRS, preset);
    double share = hf_real(r, c, "partial_rotary_factor", 1);
    share = hf_real(r, rope->params, "partial_rotary_factor", share);
    if (!r->rc && !(share > 0 && share <= 1))
        hf_fail(r, QUIRE_EFORMAT, "partial_rotary_factor = %g: must be more than 0 and at most 1", share);
    rope->n_rot = r->rc ? 2 : (size_t)((double)head * share);
    if (!r->rc && (!rope->n_rot || rope->n_rot % 2 || rope->n_rot > 2 * MAX_PAIRS))
        hf_fail(r, QUIRE_EFORMAT, "%s: %zu rotated elements of %zu; must be an even number from 2 to %d",
                name, rope->n_rot, head, 2 * MAX_PAIRS);
    rope->length = (size_t)hf_size(r, c, "max_position_embeddings", 1, HF_MAX_LENGTH,
                                   (uint64_t)hf_key(r->family, "max_position_embeddings")->preset);
    rope->original =
        (size_t)hf_size(r, rope->params, "original_max_position_embeddings", 1, HF_MAX_LENGTH, rope->length);
    rope->original =
        (size_t)hf_size(r, c, "original_max_position_embeddings", 1, HF_MAX_LENGTH, rope->original);
}

/* The object itself, or its part for layers with full attention; *local: for those with a window. */
static const json_t *find_params(struct hf_reader *r, const json_t **local) {
    const json_t *params = hf_get(r->config, "rope_parameters"), *full;
    if (!params) params = hf_get(r->config, "rope_scaling");
    if (params && !json_is_object(params)) {
        hf_fail(r, QUIRE_EFORMAT, "rope_parameters (rope_scaling) must be an object");
        return NULL;
    }
    if (params) check_params(r, params);
    *local = hf_get(params, "sliding_attention");
    full = hf_get(params, "full_attention");
    if (full) check_params(r, full);
    return full ? full : params;
}

void hf_read_rope(struct hf_reader *r) {
    const json_t *local = NULL;
    struct rope rope = {.factor = 1};
    rope.params = find_params(r, &local);
    rope.type = type_of(r, rope.params);
    rope.theta = hf_real(r, r->config, "rope_theta", hf_key(r->family, "rope_theta")->preset);
    rope.theta = hf_real(r, rope.params, "rope_theta", rope.theta);
    rope.factor = positive(r, rope.params, "factor", 1);
    if (!r->rc && !(rope.theta > 1 && rope.theta <= 1e15))
        hf_fail(r, QUIRE_EFORMAT, "rope_theta = %g: must be more than 1 and at most 1e15", rope.theta);
    read_sizes(r, &rope);
    if (r->rc) return;
    hf_put_f64(r, "rope.freq_base", "rope_theta", rope.theta);
    hf_put_u64(r, "rope.dimension_count", "partial_rotary_factor", rope.n_rot);
    bool pairs = r->family->latent && hf_flag(r, r->config, "rope_interleave", true);
    hf_put_bool(r, "rope.interleaved", "rope_interleave", pairs); /* else heads' halves */
    if (local || r->family->own_window_rope) read_local(r, local, &rope);
    read_scaling(r, &rope);
    if (r->family->temperature) read_temperature(r, &rope);
    put_length(r, &rope);
}
