#include "model/family.h"

#include "base/size.h"

#include <stdio.h>
#include <string.h>

#define COUNT(a) (sizeof(a) / sizeof((a)[0]))

/* ---- tensors ---- */

/* Names and shapes: the GGUF specification, "standardized tensor names", and what converters write. */
#define RULE(w, n, r, c)                                                                                     \
    { .weight = (w), .name = (n), .rows = (r), .cols = (c) }
#define RULE_WITH(w, n, r, c, ...)                                                                           \
    { .weight = (w), .name = (n), .rows = (r), .cols = (c), __VA_ARGS__ }

#define TENSORS_OF_MODEL                                                                                     \
    RULE(W_TOKEN_EMBD, "token_embd.weight", D_VOCAB, D_EMBD),                                                \
        RULE(W_OUTPUT_NORM, "output_norm.weight", D_ONE, D_EMBD),                                            \
        RULE_WITH(W_OUTPUT, "output.weight", D_VOCAB, D_EMBD, .optional = true),                             \
        RULE_WITH(W_ROPE_FREQS, "rope_freqs.weight", D_ONE, D_ROT_PAIRS, .optional = true),                  \
        RULE_WITH(W_ROPE_LONG, "rope_factors_long.weight", D_ONE, D_ROT_PAIRS, .optional = true),            \
        RULE_WITH(W_ROPE_SHORT, "rope_factors_short.weight", D_ONE, D_ROT_PAIRS, .optional = true)
#define ATTENTION                                                                                            \
    RULE(W_ATTN_Q, "attn_q.weight", D_HEADS, D_EMBD), RULE(W_ATTN_K, "attn_k.weight", D_KV_HEADS, D_EMBD),   \
        RULE(W_ATTN_V, "attn_v.weight", D_KV_HEADS, D_EMBD),                                                 \
        RULE(W_ATTN_OUT, "attn_output.weight", D_EMBD, D_HEADS)
#define ATTENTION_BIASES(is_optional)                                                                        \
    RULE_WITH(W_ATTN_Q_BIAS, "attn_q.bias", D_ONE, D_HEADS, .optional = (is_optional)),                      \
        RULE_WITH(W_ATTN_K_BIAS, "attn_k.bias", D_ONE, D_KV_HEADS, .optional = (is_optional)),               \
        RULE_WITH(W_ATTN_V_BIAS, "attn_v.bias", D_ONE, D_KV_HEADS, .optional = (is_optional))
#define QK_NORMS                                                                                             \
    RULE(W_ATTN_Q_NORM, "attn_q_norm.weight", D_ONE, D_HEAD_DIM),                                            \
        RULE(W_ATTN_K_NORM, "attn_k_norm.weight", D_ONE, D_HEAD_DIM)
#define NORMS                                                                                                \
    RULE(W_ATTN_NORM, "attn_norm.weight", D_ONE, D_EMBD), RULE(W_FFN_NORM, "ffn_norm.weight", D_ONE, D_EMBD)
#define POST_NORMS                                                                                           \
    RULE(W_ATTN_POST_NORM, "post_attention_norm.weight", D_ONE, D_EMBD),                                     \
        RULE(W_FFN_POST_NORM, "post_ffw_norm.weight", D_ONE, D_EMBD)
#define FEED_FORWARD                                                                                         \
    RULE_WITH(W_FFN_GATE, "ffn_gate.weight", D_FF, D_EMBD, .layers = IN_DENSE),                              \
        RULE_WITH(W_FFN_UP, "ffn_up.weight", D_FF, D_EMBD, .layers = IN_DENSE),                              \
        RULE_WITH(W_FFN_DOWN, "ffn_down.weight", D_EMBD, D_FF, .layers = IN_DENSE)
#define EXPERTS                                                                                              \
    RULE_WITH(W_ROUTER, "ffn_gate_inp.weight", D_EXPERTS, D_EMBD, .layers = IN_ROUTED),                      \
        RULE_WITH(W_EXPERT_GATE, "ffn_gate_exps.weight", D_EXPERT_FF, D_EMBD, .layers = IN_ROUTED,           \
                  .each = EACH_EXPERT),                                                                      \
        RULE_WITH(W_EXPERT_UP, "ffn_up_exps.weight", D_EXPERT_FF, D_EMBD, .layers = IN_ROUTED,               \
                  .each = EACH_EXPERT),                                                                      \
        RULE_WITH(W_EXPERT_DOWN, "ffn_down_exps.weight", D_EMBD, D_EXPERT_FF, .layers = IN_ROUTED,           \
                  .each = EACH_EXPERT)
#define SHARED_EXPERTS                                                                                       \
    RULE_WITH(W_SHARED_GATE, "ffn_gate_shexp.weight", D_SHARED_FF, D_EMBD, .layers = IN_SHARED),             \
        RULE_WITH(W_SHARED_UP, "ffn_up_shexp.weight", D_SHARED_FF, D_EMBD, .layers = IN_SHARED),             \
        RULE_WITH(W_SHARED_DOWN, "ffn_down_shexp.weight", D_EMBD, D_SHARED_FF, .layers = IN_SHARED)

static const struct tensor_rule LLAMA_TENSORS[] = {
    TENSORS_OF_MODEL,
    ATTENTION,
    ATTENTION_BIASES(true),
    NORMS,
    FEED_FORWARD,
    EXPERTS,
    RULE_WITH(W_ATTN_OUT_BIAS, "attn_output.bias", D_ONE, D_EMBD, .optional = true),
    RULE_WITH(W_FFN_GATE_BIAS, "ffn_gate.bias", D_ONE, D_FF, .optional = true, .layers = IN_DENSE),
    RULE_WITH(W_FFN_UP_BIAS, "ffn_up.bias", D_ONE, D_FF, .optional = true, .layers = IN_DENSE),
    RULE_WITH(W_FFN_DOWN_BIAS, "ffn_down.bias", D_ONE, D_EMBD, .optional = true, .layers = IN_DENSE),
};

static const struct tensor_rule GRANITEMOE_TENSORS[] = {TENSORS_OF_MODEL, ATTENTION, NORMS, EXPERTS,
                                                        SHARED_EXPERTS};

static const struct tensor_rule QWEN2MOE_TENSORS[] = {
    TENSORS_OF_MODEL,
    ATTENTION,
    ATTENTION_BIASES(true),
    NORMS,
    EXPERTS,
    SHARED_EXPERTS,
    RULE_WITH(W_SHARED_ROUTER, "ffn_gate_inp_shexp.weight", D_ROW, D_EMBD, .layers = IN_SHARED),
};

static const struct tensor_rule QWEN3_TENSORS[] = {TENSORS_OF_MODEL, ATTENTION, QK_NORMS, NORMS,
                                                   FEED_FORWARD,     EXPERTS};

static const struct tensor_rule GEMMA_TENSORS[] = {TENSORS_OF_MODEL, ATTENTION, NORMS, FEED_FORWARD};
static const struct tensor_rule GEMMA2_TENSORS[] = {TENSORS_OF_MODEL, ATTENTION, NORMS, POST_NORMS,
                                                    FEED_FORWARD};
static const struct tensor_rule GEMMA3_TENSORS[] = {TENSORS_OF_MODEL, ATTENTION,   QK_NORMS, NORMS,
                                                    POST_NORMS,       FEED_FORWARD};

static const struct tensor_rule PHI3_TENSORS[] = {
    TENSORS_OF_MODEL,
    NORMS,
    RULE_WITH(W_ATTN_Q, "attn_qkv.weight", D_HEADS, D_EMBD, .more = {D_KV_HEADS, D_KV_HEADS}),
    RULE(W_ATTN_OUT, "attn_output.weight", D_EMBD, D_HEADS),
    RULE_WITH(W_FFN_GATE, "ffn_up.weight", D_FF, D_EMBD, .more = {D_FF}),
    RULE(W_FFN_DOWN, "ffn_down.weight", D_EMBD, D_FF),
};

static const struct tensor_rule GPT_OSS_TENSORS[] = {
    TENSORS_OF_MODEL,
    ATTENTION,
    ATTENTION_BIASES(false),
    EXPERTS,
    RULE(W_ATTN_OUT_BIAS, "attn_output.bias", D_ONE, D_EMBD),
    RULE(W_ATTN_SINKS, "attn_sinks.weight", D_ONE, D_HEAD_COUNT),
    RULE(W_ATTN_NORM, "attn_norm.weight", D_ONE, D_EMBD),
    RULE(W_FFN_NORM, "post_attention_norm.weight", D_ONE,
         D_EMBD), /* before the experts, whatever its name says */
    RULE(W_ROUTER_BIAS, "ffn_gate_inp.bias", D_ONE, D_EXPERTS),
    RULE_WITH(W_EXPERT_GATE_BIAS, "ffn_gate_exps.bias", D_ONE, D_EXPERT_FF, .each = EACH_EXPERT),
    RULE_WITH(W_EXPERT_UP_BIAS, "ffn_up_exps.bias", D_ONE, D_EXPERT_FF, .each = EACH_EXPERT),
    RULE_WITH(W_EXPERT_DOWN_BIAS, "ffn_down_exps.bias", D_ONE, D_EMBD, .each = EACH_EXPERT),
};

static const struct tensor_rule OLMO2_TENSORS[] = {
    TENSORS_OF_MODEL,
    ATTENTION,
    POST_NORMS,
    FEED_FORWARD,
    RULE(W_ATTN_Q_NORM, "attn_q_norm.weight", D_ONE, D_HEADS),
    RULE(W_ATTN_K_NORM, "attn_k_norm.weight", D_ONE, D_KV_HEADS),
};

static const struct tensor_rule DEEPSEEK2_TENSORS[] = {
    TENSORS_OF_MODEL,
    NORMS,
    RULE_WITH(W_ATTN_Q, "attn_q.weight", D_LATENT_QUERIES, D_EMBD, .layers = IN_Q_WHOLE),
    RULE_WITH(W_ATTN_Q_A, "attn_q_a.weight", D_Q_RANK, D_EMBD, .layers = IN_Q_RANK),
    RULE_WITH(W_ATTN_Q_A_NORM, "attn_q_a_norm.weight", D_ONE, D_Q_RANK, .layers = IN_Q_RANK),
    RULE_WITH(W_ATTN_Q, "attn_q_b.weight", D_LATENT_QUERIES, D_Q_RANK, .layers = IN_Q_RANK),
    RULE(W_ATTN_K, "attn_kv_a_mqa.weight", D_LATENT_ROW, D_EMBD),
    RULE(W_ATTN_K_NORM, "attn_kv_a_norm.weight", D_ONE, D_LATENT),
    RULE_WITH(W_ATTN_K_B, "attn_k_b.weight", D_LATENT, D_LATENT_KEY, .layers = IN_KV_APART,
              .each = EACH_HEAD),
    RULE_WITH(W_ATTN_V_B, "attn_v_b.weight", D_LATENT_VALUE, D_LATENT, .layers = IN_KV_APART,
              .each = EACH_HEAD),
    RULE_WITH(W_ATTN_K_B, "attn_kv_b.weight", D_LATENT_KEY, D_LATENT, .layers = IN_KV_FUSED,
              .more = {D_LATENT_VALUE}, .each = EACH_HEAD_ROWS, .turned = true),
    RULE(W_ATTN_OUT, "attn_output.weight", D_EMBD, D_LATENT_VALUES),
    FEED_FORWARD,
    EXPERTS,
    SHARED_EXPERTS,
    RULE_WITH(W_ROUTER_CHOICE_BIAS, "exp_probs_b.bias", D_ONE, D_EXPERTS, .optional = true,
              .layers = IN_ROUTED),
};

#define LAYER_NORM(w, n) RULE(w, n ".weight", D_ONE, D_EMBD), RULE(w##_BIAS, n ".bias", D_ONE, D_EMBD)
#define HEAD(w, n, r)                                                                                        \
    RULE_WITH(w, n ".weight", r, D_EMBD, .optional = true),                                                  \
        RULE_WITH(w##_BIAS, n ".bias", D_ONE, r, .optional = true)

static const struct tensor_rule BERT_TENSORS[] = {
    RULE(W_TOKEN_EMBD, "token_embd.weight", D_VOCAB, D_EMBD),
    RULE(W_POSITION_EMBD, "position_embd.weight", D_CONTEXT, D_EMBD),
    RULE_WITH(W_TYPE_EMBD, "token_types.weight", D_TYPES, D_EMBD, .optional = true),
    LAYER_NORM(W_EMBD_NORM, "token_embd_norm"),
    ATTENTION,
    ATTENTION_BIASES(false),
    RULE(W_ATTN_OUT_BIAS, "attn_output.bias", D_ONE, D_EMBD),
    LAYER_NORM(W_ATTN_AFTER_NORM, "attn_output_norm"),
    RULE(W_FFN_UP, "ffn_up.weight", D_FF, D_EMBD),
    RULE(W_FFN_UP_BIAS, "ffn_up.bias", D_ONE, D_FF),
    RULE(W_FFN_DOWN, "ffn_down.weight", D_EMBD, D_FF),
    RULE(W_FFN_DOWN_BIAS, "ffn_down.bias", D_ONE, D_EMBD),
    LAYER_NORM(W_FFN_AFTER_NORM, "layer_output_norm"),
    HEAD(W_HEAD, "cls", D_EMBD),
    HEAD(W_HEAD_OUT, "cls.output", D_LABELS),
};

/* BERT with rotary embeddings and SwiGLU, without biases (Nussbaum et al. 2024). */
static const struct tensor_rule NOMIC_BERT_TENSORS[] = {
    RULE(W_TOKEN_EMBD, "token_embd.weight", D_VOCAB, D_EMBD),
    RULE_WITH(W_TYPE_EMBD, "token_types.weight", D_TYPES, D_EMBD, .optional = true),
    LAYER_NORM(W_EMBD_NORM, "token_embd_norm"),
    RULE_WITH(W_ATTN_Q, "attn_qkv.weight", D_HEADS, D_EMBD, .more = {D_KV_HEADS, D_KV_HEADS}),
    RULE(W_ATTN_OUT, "attn_output.weight", D_EMBD, D_HEADS),
    LAYER_NORM(W_ATTN_AFTER_NORM, "attn_output_norm"),
    FEED_FORWARD,
    LAYER_NORM(W_FFN_AFTER_NORM, "layer_output_norm"),
};

/* ---- keys ---- */

static const struct key_rule STANDARD_KEYS[] = {
    {"block_count", KEY_READ},
    {"context_length", KEY_READ},
    {"embedding_length", KEY_READ},
    {"feed_forward_length", KEY_READ},
    {"vocab_size", KEY_READ},
    {"attention.head_count", KEY_READ},
    {"attention.head_count_kv", KEY_READ},
    {"attention.key_length", KEY_READ},
    {"attention.value_length", KEY_READ},
    {"attention.layer_norm_rms_epsilon", KEY_READ},
    {"attention.sliding_window", KEY_READ},
    {"attention.sliding_window_pattern", KEY_READ},
    {"attention.scale", KEY_READ},
    {"rope.dimension_count", KEY_READ},
    {"rope.freq_base", KEY_READ},
    {"rope.scale_linear", KEY_READ},
    {"rope.scaling.type", KEY_READ},
    {"rope.scaling.factor", KEY_READ},
    {"rope.scaling.original_context_length", KEY_READ},
    {"rope.scaling.attn_factor", KEY_READ},
    {"rope.scaling.yarn_attn_factor", KEY_READ},
    {"rope.scaling.yarn_ext_factor", KEY_READ},
    {"rope.scaling.yarn_beta_fast", KEY_READ},
    {"rope.scaling.yarn_beta_slow", KEY_READ},
    {"rope.scaling.yarn_truncate", KEY_READ},
    {"rope.interleaved", KEY_READ},
    {"rope.scaling.finetuned", KEY_IGNORED},
    {"tensor_data_layout", KEY_IGNORED},
    {"attention.causal", KEY_ONE},
    {"logit_scale", KEY_ONE},
    {"embedding_scale", KEY_ONE},
    {"residual_scale", KEY_ONE},
    {"use_parallel_residual", KEY_ZERO},
    {"expert_count", KEY_ZERO},
    {"expert_used_count", KEY_ZERO},
    {"pooling_type", KEY_READ},
    {"attention.clamp_kqv", KEY_ZERO},
    {"attention.max_alibi_bias", KEY_ZERO},
    {"attn_logit_softcapping", KEY_ZERO},
    {"final_logit_softcapping", KEY_ZERO},
};

#define EXPERT_KEYS                                                                                          \
    {"expert_count", KEY_READ}, {"expert_used_count", KEY_READ}, {"expert_feed_forward_length", KEY_READ},   \
        {"expert_gating_func", KEY_READ}, {"expert_weights_norm", KEY_READ}, {                               \
        "expert_weights_scale", KEY_READ                                                                     \
    }

static const struct key_rule EXPERTS_KEYS[] = {EXPERT_KEYS};
static const struct key_rule MISTRAL3_KEYS[] = {EXPERT_KEYS,
                                                {"attention.temperature_scale", KEY_READ},
                                                {"attention.temperature_length", KEY_READ},
                                                {"rope.scaling.yarn_log_multiplier", KEY_READ}};
static const struct key_rule SHARED_KEYS[] = {EXPERT_KEYS, {"expert_shared_feed_forward_length", KEY_READ}};
static const struct key_rule GEMMA_KEYS[] = {{"rope.freq_base_swa", KEY_READ},
                                             {"attn_logit_softcapping", KEY_READ},
                                             {"final_logit_softcapping", KEY_READ}};
#define GRANITE_KEYS_OF_ALL                                                                                  \
    {"logit_scale", KEY_READ}, {"embedding_scale", KEY_READ}, {                                              \
        "residual_scale", KEY_READ                                                                           \
    }
static const struct key_rule GRANITE_KEYS[] = {GRANITE_KEYS_OF_ALL};
static const struct key_rule GRANITEMOE_KEYS[] = {
    EXPERT_KEYS, {"expert_shared_feed_forward_length", KEY_READ}, GRANITE_KEYS_OF_ALL};

static const struct key_rule DEEPSEEK2_KEYS[] = {EXPERT_KEYS,
                                                 {"expert_shared_count", KEY_READ},
                                                 {"expert_group_count", KEY_READ},
                                                 {"expert_group_used_count", KEY_READ},
                                                 {"leading_dense_block_count", KEY_READ},
                                                 {"attention.kv_lora_rank", KEY_READ},
                                                 {"attention.q_lora_rank", KEY_READ},
                                                 {"attention.key_length_mla", KEY_READ},
                                                 {"attention.value_length_mla", KEY_READ},
                                                 {"attention.sliding_window", KEY_ZERO},
                                                 {"rope.scaling.yarn_log_multiplier", KEY_READ},
                                                 {"nextn_predict_layers", KEY_ZERO}};

static const struct key_rule BERT_KEYS[] = {{"attention.layer_norm_epsilon", KEY_READ},
                                            {"attention.layer_norm_rms_epsilon", KEY_ZERO},
                                            {"attention.causal", KEY_ZERO},
                                            {"token_type_count", KEY_IGNORED}, /* as the tensor has it */
                                            {"classifier.output_labels", KEY_IGNORED},
                                            {"classifier.relu", KEY_READ}}; /* of folders */

/* ---- families ---- */

#define TENSORS(a) .tensors = (a), .n_tensors = COUNT(a)
#define KEYS(a)    .keys = (a), .n_keys = COUNT(a)

/* Where rotated pairs are neighbours (rope_interleaved), converters have permuted the rows of query and key
 * weights; elsewhere a pair's halves lie half a head apart. */
static const struct model_family FAMILIES[] = {
    {.name = "llama",
     TENSORS(LLAMA_TENSORS),
     KEYS(EXPERTS_KEYS),
     .rope_interleaved = true,
     .normalise_experts = true},
    {.name = "mistral3",
     TENSORS(LLAMA_TENSORS),
     KEYS(MISTRAL3_KEYS),
     .rope_interleaved = true,
     .normalise_experts = true,
     .temperature = true},
    {.name = "qwen2", TENSORS(LLAMA_TENSORS)},
    {.name = "qwen2moe", TENSORS(QWEN2MOE_TENSORS), KEYS(SHARED_KEYS)},
    {.name = "qwen3", TENSORS(QWEN3_TENSORS)},
    {.name = "qwen3moe", TENSORS(QWEN3_TENSORS), KEYS(EXPERTS_KEYS), .normalise_experts = true},
    {.name = "gemma", TENSORS(GEMMA_TENSORS), .activation = BACKEND_GEGLU, .embed_by_width = true},
    {.name = "gemma2",
     TENSORS(GEMMA2_TENSORS),
     KEYS(GEMMA_KEYS),
     .activation = BACKEND_GEGLU,
     .post_norms = true,
     .embed_by_width = true,
     .window_period = 2,
     .scaled_by_width = {46}}, /* 27B */
    {.name = "gemma3",
     TENSORS(GEMMA3_TENSORS),
     KEYS(GEMMA_KEYS),
     .activation = BACKEND_GEGLU,
     .post_norms = true,
     .embed_by_width = true,
     .window_period = 6,
     .window_rope_base = 10000.0,
     .window_rope_plain = true,
     .scaled_by_width = {62}}, /* 27B */
    {.name = "phi3", TENSORS(PHI3_TENSORS)},
    {.name = "gpt-oss",
     TENSORS(GPT_OSS_TENSORS),
     KEYS(EXPERTS_KEYS),
     .activation = BACKEND_SWIGLU_CLAMPED,
     .window_period = 2,
     .yarn_fractional = true,
     .gating = BACKEND_GATE_SELECTED},
    {.name = "olmo2",
     TENSORS(OLMO2_TENSORS),
     .post_norms = true,
     .qk_norm_rows = true,
     .window_period = 4,
     .window_rope_plain = true},
    {.name = "granite", TENSORS(LLAMA_TENSORS), KEYS(GRANITE_KEYS), .rope_interleaved = true},
    {.name = "granitemoe",
     TENSORS(GRANITEMOE_TENSORS),
     KEYS(GRANITEMOE_KEYS),
     .rope_interleaved = true,
     .gating = BACKEND_GATE_SELECTED},
    {.name = "smollm3", TENSORS(LLAMA_TENSORS), .rope_interleaved = true, .no_rope_period = 4},
    {.name = "deepseek2",
     TENSORS(DEEPSEEK2_TENSORS),
     KEYS(DEEPSEEK2_KEYS),
     .rope_interleaved = true, /* as their makers have them, nothing permuted */
     .sigmoid_experts = true,
     .latent = true,
     .latent_norm_eps = 1e-6f},
    {.name = "bert",
     TENSORS(BERT_TENSORS),
     KEYS(BERT_KEYS),
     .activation = BACKEND_GELU,
     .encoder = true,
     .no_rope = true},
    {.name = "nomic-bert", TENSORS(NOMIC_BERT_TENSORS), KEYS(BERT_KEYS), .encoder = true},
};

const struct model_family *model_family(const char *name, size_t len) {
    for (size_t i = 0; i < COUNT(FAMILIES); i++)
        if (strlen(FAMILIES[i].name) == len && !memcmp(FAMILIES[i].name, name, len)) return &FAMILIES[i];
    return NULL;
}

void model_family_names(char *out, size_t size) {
    size_t n = 0;
    out[0] = '\0';
    for (size_t i = 0; i < COUNT(FAMILIES) && n < size; i++)
        n += (size_t)snprintf(out + n, size - n, "%s%s", i ? ", " : "", FAMILIES[i].name);
}

static const struct key_rule *find_key(const struct key_rule *keys, size_t n, const char *name) {
    for (size_t i = 0; i < n; i++)
        if (!strcmp(keys[i].name, name)) return &keys[i];
    return NULL;
}

const struct key_rule *model_key_rule(const struct model_family *family, const char *name) {
    const struct key_rule *rule = find_key(family->keys, family->n_keys, name);
    return rule ? rule : find_key(STANDARD_KEYS, COUNT(STANDARD_KEYS), name);
}

size_t model_dim(const struct model_spec *s, enum model_dim dim) {
    switch (dim) {
    case D_NONE: return 0;
    case D_ONE:
    case D_ROW: return 1;
    case D_EMBD: return s->n_embd;
    case D_FF: return s->n_ff;
    case D_VOCAB: return s->n_vocab;
    case D_HEADS: return s->n_heads * s->head_dim;
    case D_KV_HEADS: return s->n_kv_heads * s->head_dim;
    case D_HEAD_DIM: return s->head_dim;
    case D_HEAD_COUNT: return s->n_heads;
    case D_ROT_PAIRS: return s->ropes[0].n_rot / 2;
    case D_EXPERTS: return s->experts.n;
    case D_EXPERT_FF: return s->experts.ff;
    case D_SHARED_FF: return s->experts.shared_ff;
    case D_CONTEXT: return s->context_len;
    case D_TYPES: return s->n_token_types;
    case D_LABELS: return s->n_labels;
    case D_Q_RANK: return s->latent.q_rank;
    case D_LATENT: return s->latent.rank;
    case D_LATENT_ROW: return s->latent.rank + s->latent.n_rot;
    case D_LATENT_KEY: return s->latent.key;
    case D_LATENT_VALUE: return s->latent.value;
    case D_LATENT_QUERIES: return s->n_heads * (s->latent.key + s->latent.n_rot);
    case D_LATENT_VALUES: return s->n_heads * s->latent.value;
    }
    return 0;
}

size_t tensor_rule_each(const struct tensor_rule *rule, const struct model_spec *s) {
    return rule->each == ONCE ? 1 : rule->each == EACH_EXPERT ? s->experts.n : s->n_heads;
}

size_t tensor_rule_parts(const struct tensor_rule *rule) {
    return rule->more[0] == D_NONE ? 1 : rule->more[1] == D_NONE ? 2 : 3;
}

/* "blk.12.rest": layer and rest. Digits as a converter writes them: no leading zero. */
static const char *split_layer(const char *name, size_t n_layers, size_t *layer) {
    if (strncmp(name, "blk.", 4)) return NULL;
    const char *s = name + 4;
    size_t v = 0;
    if (*s == '0' && s[1] != '.') return NULL;
    for (; *s >= '0' && *s <= '9'; s++) {
        v = v * 10 + (size_t)(*s - '0');
        if (v >= n_layers) return NULL;
    }
    if (s == name + 4 || *s != '.') return NULL;
    *layer = v;
    return s + 1;
}

const struct tensor_rule *model_tensor_rule(const struct model_family *family, const struct model_spec *spec,
                                            const char *name, size_t *layer) {
    *layer = 0;
    const char *rest = split_layer(name, spec->n_layers, layer);
    for (size_t i = 0; i < family->n_tensors; i++) {
        const struct tensor_rule *r = &family->tensors[i];
        bool of_layer = r->weight < W_LAYER_END;
        if (of_layer != (rest != NULL)) continue;
        if (!strcmp(r->name, rest ? rest : name)) return r;
    }
    return NULL;
}
