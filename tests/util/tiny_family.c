#include "util/tiny_family.h"
#include "util/tiny_parts.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { N_VOCAB = 300, GGUF_BOOL = 7, MXFP4 = 39 };

/* Zero is "none" or "no" throughout. */
struct shape {
    const char *variant, *arch;
    const char *as; /* a variant that this one is like, but for what is said here */
    unsigned n_layers, ff, n_heads, n_kv_heads, head_dim, n_rot, window, pattern; /* 0: the presets below */
    bool tied, qkv_bias, qk_norm, qk_norm_rows, post_norms, no_pre_norms, fused;
    bool sinks, norm_by_other_name; /* the norm before the experts is called post_attention_norm */
    unsigned experts, experts_used, expert_ff, shared_ff;
    bool shared_router, expert_biases;
    unsigned expert_type; /* of the experts, whatever the other matrices are; 0 = as those */
    float rope_base, window_rope_base, attn_cap, final_cap;
    float attn_scale, embed_scale, residual_scale, logit_scale;
    const char *rope_scaling;
    float rope_factor;
    unsigned rope_original; /* of yarn, and of the divisors when `divisors` */
    bool divisors;
    unsigned kv_rank, q_rank, key, value; /* of latent attention; key without what is rotated */
    bool apart;                           /* keys' and values' matrices are two tensors */
    unsigned n_dense, shared_count, groups, groups_used, gating; /* of its experts */
    float weights_scale, yarn_log, temperature;
};

#define DEEPSEEK_SIZES                                                                                       \
    .kv_rank = 64, .key = 32, .n_rot = 16, .value = 24, .experts = 16, .expert_ff = 64, .n_dense = 1
#define DEEPSEEK_YARN(log) .rope_scaling = "yarn", .rope_factor = 32, .rope_original = 64, .yarn_log = (log)

static const struct shape SHAPES[] = {
    {.variant = "mistral3",
     .arch = "mistral3",
     .head_dim = 24,
     .rope_scaling = "yarn",
     .rope_factor = 8,
     .rope_original = 16,
     .yarn_log = 1,
     .temperature = 0.3f},
    {.variant = "qwen2", .arch = "qwen2", .head_dim = 24, .qkv_bias = true, .rope_base = 1e6f},
    {.variant = "qwen3", .arch = "qwen3", .qk_norm = true, .rope_base = 1e6f, .tied = true},
    {.variant = "gemma", .arch = "gemma", .tied = true},
    {.variant = "gemma2",
     .arch = "gemma2",
     .n_layers = 4,
     .tied = true,
     .post_norms = true,
     .window = 40,
     .attn_cap = 5,
     .final_cap = 3},
    {.variant = "gemma3",
     .arch = "gemma3",
     .n_layers = 8,
     .n_kv_heads = 1,
     .tied = true,
     .qk_norm = true,
     .post_norms = true,
     .window = 40,
     .rope_base = 1e6f,
     .window_rope_base = 10000,
     .rope_scaling = "linear",
     .rope_factor = 8},
    {.variant = "phi3", .arch = "phi3", .head_dim = 24, .fused = true, .window = 40},
    {.variant = "phi3-long",
     .arch = "phi3",
     .fused = true,
     .tied = true,
     .head_dim = 24,
     .n_rot = 18,
     .divisors = true,
     .rope_original = 64},
    {.variant = "mixtral",
     .arch = "llama",
     .head_dim = 24,
     .experts = 8,
     .experts_used = 2,
     .rope_base = 1e6f},
    {.variant = "qwen2moe",
     .arch = "qwen2moe",
     .head_dim = 24,
     .qkv_bias = true,
     .experts = 8,
     .experts_used = 3,
     .expert_ff = 64,
     .shared_ff = 192,
     .shared_router = true},
    {.variant = "qwen3moe",
     .arch = "qwen3moe",
     .qk_norm = true,
     .experts = 16,
     .experts_used = 4,
     .expert_ff = 64},
    {.variant = "gpt-oss",
     .arch = "gpt-oss",
     .n_layers = 4,
     .qkv_bias = true,
     .sinks = true,
     .norm_by_other_name = true,
     .window = 40,
     .experts = 8,
     .experts_used = 4,
     .expert_ff = 96,
     .expert_biases = true,
     .rope_base = 150000,
     .rope_scaling = "yarn",
     .rope_factor = 4,
     .rope_original = 64},
    {.variant = "gpt-oss-mxfp4", .as = "gpt-oss", .expert_type = MXFP4},
    {.variant = "olmo2",
     .arch = "olmo2",
     .head_dim = 24,
     .qk_norm_rows = true,
     .post_norms = true,
     .no_pre_norms = true},
    {.variant = "olmo3",
     .arch = "olmo2",
     .head_dim = 24,
     .n_layers = 5,
     .qk_norm_rows = true,
     .post_norms = true,
     .no_pre_norms = true,
     .window = 40,
     .pattern = 4,
     .rope_base = 500000,
     .rope_scaling = "yarn",
     .rope_factor = 4,
     .rope_original = 64},
    {.variant = "granite",
     .arch = "granite",
     .head_dim = 24,
     .tied = true,
     .attn_scale = 0.3f,
     .embed_scale = 3,
     .residual_scale = 0.4f,
     .logit_scale = 2},
    {.variant = "granitemoe",
     .arch = "granitemoe",
     .head_dim = 24,
     .experts = 8,
     .experts_used = 3,
     .shared_ff = 64,
     .attn_scale = 0.3f,
     .embed_scale = 3,
     .residual_scale = 0.4f,
     .logit_scale = 2},
    {.variant = "smollm3",
     .arch = "smollm3",
     .head_dim = 24,
     .n_layers = 5,
     .tied = true,
     .rope_base = 50000},
    {.variant = "deepseek2-lite",
     .arch = "deepseek2",
     DEEPSEEK_SIZES,
     .experts_used = 3,
     .gating = 1,
     .shared_count = 2},
    {.variant = "deepseek2",
     .arch = "deepseek2",
     DEEPSEEK_SIZES,
     .q_rank = 64,
     .apart = true,
     .experts_used = 3,
     .gating = 1,
     .shared_count = 1,
     .groups = 4,
     .groups_used = 2,
     .weights_scale = 4,
     DEEPSEEK_YARN(0.0707f)},
    {.variant = "deepseek3",
     .arch = "deepseek2",
     DEEPSEEK_SIZES,
     .q_rank = 64,
     .apart = true,
     .experts_used = 4,
     .gating = 2,
     .shared_count = 1,
     .groups = 4,
     .groups_used = 2,
     .weights_scale = 2.5f,
     DEEPSEEK_YARN(0.1f)},
    {.variant = "deepseek3-fused",
     .arch = "deepseek2",
     DEEPSEEK_SIZES,
     .experts_used = 4,
     .gating = 2,
     .shared_count = 1,
     .weights_scale = 2.5f},
};
enum { N_SHAPES = sizeof SHAPES / sizeof SHAPES[0] };

const char *const *tiny_family_variants(void) {
    static const char *names[N_SHAPES + 1];
    for (size_t i = 0; i < N_SHAPES; i++) names[i] = SHAPES[i].variant;
    return names;
}

static const struct shape *find(const char *variant) {
    for (size_t i = 0; i < N_SHAPES; i++)
        if (!strcmp(SHAPES[i].variant, variant)) return &SHAPES[i];
    return NULL;
}

static struct shape complete(struct shape s) {
    if (s.as) {
        struct shape like = *find(s.as);
        like.variant = s.variant;
        like.expert_type = s.expert_type;
        s = like;
    }
    if (!s.n_layers) s.n_layers = 3;
    if (!s.ff) s.ff = 160;
    if (!s.n_heads) s.n_heads = 4;
    if (!s.n_kv_heads) s.n_kv_heads = 2;
    if (!s.head_dim) s.head_dim = 32;
    if (!s.n_rot) s.n_rot = s.head_dim;
    if (s.experts && !s.expert_ff) s.expert_ff = s.ff;
    if (s.shared_count) s.shared_ff = s.shared_count * s.expert_ff;
    if (s.rope_base == 0) s.rope_base = 10000;
    return s;
}

enum { WIDTH = 96, CONTEXT = 2048 };

/* ---- metadata ---- */

static const char *key_of(const struct shape *s, const char *name, char *key) {
    snprintf(key, 96, "%s.%s", s->arch, name);
    return key;
}

static void put_u32(struct gguf_build *b, const struct shape *s, const char *name, unsigned v) {
    char key[96];
    if (v) gguf_kv_u32(b, key_of(s, name, key), v);
}

static void put_f32(struct gguf_build *b, const struct shape *s, const char *name, float v) {
    char key[96];
    if (v != 0) gguf_kv_f32(b, key_of(s, name, key), v);
}

static void add_scaling(struct gguf_build *b, const struct shape *s) {
    char key[96];
    if (s->rope_scaling) gguf_kv_str(b, key_of(s, "rope.scaling.type", key), s->rope_scaling);
    put_f32(b, s, "rope.scaling.factor", s->rope_factor);
    put_u32(b, s, "rope.scaling.original_context_length", s->rope_original);
    put_f32(b, s, "rope.scaling.yarn_log_multiplier", s->yarn_log);
    put_f32(b, s, "attention.temperature_scale", s->temperature);
    if (s->divisors)
        put_f32(b, s, "rope.scaling.attn_factor",
                (float)sqrt(1 + log((double)CONTEXT / s->rope_original) / log(s->rope_original)));
}

/* Head sizes: as stored where the matrices are apart, else those of queries and values. */
static void add_latent(struct gguf_build *b, const struct shape *s) {
    put_u32(b, s, "attention.kv_lora_rank", s->kv_rank);
    put_u32(b, s, "attention.q_lora_rank", s->q_rank);
    put_u32(b, s, "attention.head_count_kv", s->apart ? 1 : s->n_heads);
    put_u32(b, s, "attention.key_length", (s->apart ? s->kv_rank : s->key) + s->n_rot);
    put_u32(b, s, "attention.value_length", s->apart ? s->kv_rank : s->value);
    if (s->apart) {
        put_u32(b, s, "attention.key_length_mla", s->key + s->n_rot);
        put_u32(b, s, "attention.value_length_mla", s->value);
    }
    put_u32(b, s, "leading_dense_block_count", s->n_dense);
    put_u32(b, s, "expert_shared_count", s->shared_count);
    put_u32(b, s, "expert_gating_func", s->gating);
    put_u32(b, s, "expert_group_count", s->groups);
    put_u32(b, s, "expert_group_used_count", s->groups_used);
    put_f32(b, s, "expert_weights_scale", s->weights_scale);
    if (s->gating == 2) {
        char key[96];
        gguf_kv_bool(b, key_of(s, "expert_weights_norm", key), true);
    }
}

static void add_metadata(struct gguf_build *b, const struct shape *s) {
    char key[96];
    gguf_kv_str(b, "general.architecture", s->arch);
    gguf_kv_str(b, "general.name", s->variant);
    put_u32(b, s, "block_count", s->n_layers);
    put_u32(b, s, "context_length", CONTEXT);
    put_u32(b, s, "embedding_length", WIDTH);
    put_u32(b, s, "feed_forward_length", s->ff);
    put_u32(b, s, "vocab_size", N_VOCAB);
    put_u32(b, s, "attention.head_count", s->n_heads);
    if (s->kv_rank) {
        add_latent(b, s);
    } else {
        put_u32(b, s, "attention.head_count_kv", s->n_kv_heads);
        put_u32(b, s, "attention.key_length", s->head_dim);
        put_u32(b, s, "attention.value_length", s->head_dim);
    }
    put_f32(b, s, "attention.layer_norm_rms_epsilon", 1e-5f);
    put_u32(b, s, "attention.sliding_window", s->window);
    if (s->pattern) {
        gguf_kv_array(b, key_of(s, "attention.sliding_window_pattern", key), GGUF_BOOL, s->n_layers);
        for (unsigned i = 0; i < s->n_layers; i++)
            gguf_bytes_put(&b->kv, &(uint8_t){i % s->pattern < s->pattern - 1}, 1);
    }
    put_f32(b, s, "attention.scale", s->attn_scale);
    put_u32(b, s, "rope.dimension_count", s->n_rot);
    put_f32(b, s, "rope.freq_base", s->rope_base);
    put_f32(b, s, "rope.freq_base_swa", s->window_rope_base);
    add_scaling(b, s);
    put_f32(b, s, "attn_logit_softcapping", s->attn_cap);
    put_f32(b, s, "final_logit_softcapping", s->final_cap);
    put_f32(b, s, "embedding_scale", s->embed_scale);
    put_f32(b, s, "residual_scale", s->residual_scale);
    put_f32(b, s, "logit_scale", s->logit_scale);
    put_u32(b, s, "expert_count", s->experts);
    put_u32(b, s, "expert_used_count", s->experts_used);
    if (s->expert_ff != s->ff) put_u32(b, s, "expert_feed_forward_length", s->expert_ff);
    if (!s->shared_count) put_u32(b, s, "expert_shared_feed_forward_length", s->shared_ff);
}

/* ---- tensors ---- */

struct writer {
    struct gguf_build *b;
    const struct tiny_model_options *o;
    unsigned layer;
};

static const char *name_of(const struct writer *w, const char *rest, char *name) {
    snprintf(name, 96, "blk.%u.%s", w->layer, rest);
    return name;
}

static void norm(const struct writer *w, const char *rest, size_t n, double mean) {
    char name[96];
    tiny_add_vector(w->b, w->o, name_of(w, rest, name), n, mean, 0.1);
}

static void bias(const struct writer *w, const char *rest, size_t n) {
    char name[96];
    tiny_add_vector(w->b, w->o, name_of(w, rest, name), n, 0, 0.2);
}

/* gain: deviation of the product with an input of deviation 1. */
static void matrix(const struct writer *w, const char *rest, size_t rows, size_t cols, double gain) {
    char name[96];
    tiny_add_matrices(w->b, w->o, name_of(w, rest, name), 0, rows, cols, gain / sqrt((double)cols),
                      w->o->type);
}

static void each_expert(const struct writer *w, const struct shape *s, const char *rest, size_t rows,
                        size_t cols, double gain) {
    char name[96];
    tiny_add_matrices(w->b, w->o, name_of(w, rest, name), s->experts, rows, cols, gain / sqrt((double)cols),
                      s->expert_type ? s->expert_type : w->o->type);
}

static void each_head(const struct writer *w, const struct shape *s, const char *rest, size_t rows,
                      size_t cols) {
    char name[96];
    tiny_add_matrices(w->b, w->o, name_of(w, rest, name), s->n_heads, rows, cols, 1 / sqrt((double)cols),
                      w->o->type);
}

static void add_latent_attention(const struct writer *w, const struct shape *s) {
    size_t queries = s->n_heads * (s->key + s->n_rot);
    norm(w, "attn_norm.weight", WIDTH, 1);
    if (s->q_rank) {
        matrix(w, "attn_q_a.weight", s->q_rank, WIDTH, 1);
        norm(w, "attn_q_a_norm.weight", s->q_rank, 1);
    }
    matrix(w, s->q_rank ? "attn_q_b.weight" : "attn_q.weight", queries, s->q_rank ? s->q_rank : WIDTH, 1.5);
    matrix(w, "attn_kv_a_mqa.weight", s->kv_rank + s->n_rot, WIDTH, 1.5);
    norm(w, "attn_kv_a_norm.weight", s->kv_rank, 1);
    if (s->apart) {
        each_head(w, s, "attn_k_b.weight", s->kv_rank, s->key);
        each_head(w, s, "attn_v_b.weight", s->value, s->kv_rank);
    } else {
        matrix(w, "attn_kv_b.weight", s->n_heads * (s->key + s->value), s->kv_rank, 1.5);
    }
    matrix(w, "attn_output.weight", WIDTH, s->n_heads * s->value, 1);
}

static void add_attention(const struct writer *w, const struct shape *s) {
    size_t q = s->n_heads * s->head_dim, kv = s->n_kv_heads * s->head_dim;
    if (!s->no_pre_norms) norm(w, "attn_norm.weight", WIDTH, 1);
    if (s->fused) {
        matrix(w, "attn_qkv.weight", q + 2 * kv, WIDTH, 1.5);
    } else {
        matrix(w, "attn_q.weight", q, WIDTH, 2);
        matrix(w, "attn_k.weight", kv, WIDTH, 2);
        matrix(w, "attn_v.weight", kv, WIDTH, 1);
    }
    if (s->qkv_bias) {
        bias(w, "attn_q.bias", q);
        bias(w, "attn_k.bias", kv);
        bias(w, "attn_v.bias", kv);
    }
    if (s->qk_norm || s->qk_norm_rows) {
        norm(w, "attn_q_norm.weight", s->qk_norm_rows ? q : s->head_dim, 1.3);
        norm(w, "attn_k_norm.weight", s->qk_norm_rows ? kv : s->head_dim, 1.3);
    }
    if (s->sinks) norm(w, "attn_sinks.weight", s->n_heads, 1);
    matrix(w, "attn_output.weight", WIDTH, q, 1);
    if (s->sinks) bias(w, "attn_output.bias", WIDTH);
    if (s->post_norms) norm(w, "post_attention_norm.weight", WIDTH, 0.6);
}

static void add_experts(const struct writer *w, const struct shape *s) {
    char name[96];
    size_t n = s->experts;
    tiny_add_matrices(w->b, w->o, name_of(w, "ffn_gate_inp.weight", name), 0, n, WIDTH, 1.5 / sqrt(WIDTH), 0);
    each_expert(w, s, "ffn_gate_exps.weight", s->expert_ff, WIDTH, 2);
    each_expert(w, s, "ffn_up_exps.weight", s->expert_ff, WIDTH, 2);
    each_expert(w, s, "ffn_down_exps.weight", WIDTH, s->expert_ff, 1);
    if (s->gating == 2) bias(w, "exp_probs_b.bias", n);
    if (s->expert_biases) {
        bias(w, "ffn_gate_inp.bias", n);
        tiny_add_matrices(w->b, w->o, name_of(w, "ffn_gate_exps.bias", name), 0, n, s->expert_ff, 0.2, 0);
        tiny_add_matrices(w->b, w->o, name_of(w, "ffn_up_exps.bias", name), 0, n, s->expert_ff, 0.2, 0);
        tiny_add_matrices(w->b, w->o, name_of(w, "ffn_down_exps.bias", name), 0, n, WIDTH, 0.2, 0);
    }
    if (!s->shared_ff) return;
    if (s->shared_router)
        tiny_add_vector(w->b, w->o, name_of(w, "ffn_gate_inp_shexp.weight", name), WIDTH, 0, 0.1);
    matrix(w, "ffn_gate_shexp.weight", s->shared_ff, WIDTH, 2);
    matrix(w, "ffn_up_shexp.weight", s->shared_ff, WIDTH, 1);
    matrix(w, "ffn_down_shexp.weight", WIDTH, s->shared_ff, 1);
}

static void add_feed_forward(const struct writer *w, const struct shape *s) {
    const char *name = s->norm_by_other_name ? "post_attention_norm.weight" : "ffn_norm.weight";
    if (!s->no_pre_norms) norm(w, name, WIDTH, 1);
    if (s->experts && w->layer >= s->n_dense) {
        add_experts(w, s);
    } else if (s->fused) {
        matrix(w, "ffn_up.weight", 2 * s->ff, WIDTH, 1.5);
        matrix(w, "ffn_down.weight", WIDTH, s->ff, 1);
    } else {
        matrix(w, "ffn_gate.weight", s->ff, WIDTH, 2);
        matrix(w, "ffn_up.weight", s->ff, WIDTH, 1);
        matrix(w, "ffn_down.weight", WIDTH, s->ff, 1);
    }
    if (s->post_norms) norm(w, "post_ffw_norm.weight", WIDTH, 0.6);
}

/* Divisors that grow with the pair, and some below 1. */
static void add_divisors(struct gguf_build *b, const struct shape *s, const char *name, float first,
                         float step) {
    float values[128];
    uint64_t n = s->n_rot / 2;
    for (size_t i = 0; i < n; i++) values[i] = first + step * (float)i;
    gguf_tensor(b, name, 0, 1, &n, values, n * sizeof *values);
}

void *tiny_family_memory(const char *variant, unsigned type, uint64_t seed, size_t *n) {
    const struct shape *found = find(variant);
    if (!found) return NULL;
    const struct shape s = complete(*found);
    struct tiny_model_options o = tiny_model_defaults();
    o.n_vocab = N_VOCAB;
    o.seed = seed;
    o.type = type;
    struct gguf_build b = gguf_build_new();
    add_metadata(&b, &s);
    tiny_add_tokenizer(&b, &o);
    double embed = s.embed_scale != 0 ? 1 / s.embed_scale : 1; /* deviation of what enters the layers */
    if (!strncmp(s.arch, "gemma", 5)) embed = 1 / sqrt(WIDTH);
    tiny_add_matrices(&b, &o, "token_embd.weight", 0, N_VOCAB, WIDTH, embed, type);
    if (s.divisors) {
        add_divisors(&b, &s, "rope_factors_long.weight", 1, 1.5f);
        add_divisors(&b, &s, "rope_factors_short.weight", 0.9f, 0.1f);
    }
    for (unsigned layer = 0; layer < s.n_layers; layer++) {
        struct writer w = {.b = &b, .o = &o, .layer = layer};
        if (s.kv_rank)
            add_latent_attention(&w, &s);
        else
            add_attention(&w, &s);
        add_feed_forward(&w, &s);
    }
    tiny_add_vector(&b, &o, "output_norm.weight", WIDTH, 1.5 / (s.tied ? embed * sqrt(WIDTH) : 1), 0.1);
    if (!s.tied) tiny_add_matrices(&b, &o, "output.weight", 0, N_VOCAB, WIDTH, 1 / sqrt(WIDTH), type);
    return gguf_build_finish(&b, n);
}

int tiny_family_write(const char *path, const char *variant, unsigned type, uint64_t seed) {
    size_t n;
    void *data = tiny_family_memory(variant, type, seed, &n);
    return gguf_build_write(path, data, n);
}
