#include "model/family.h"

#include "base/size.h"

#include <stdio.h>
#include <string.h>

/* Tensor names and shapes: the GGUF specification, "standardized tensor names". Query and key weights of the
 * llama family are stored with their rows permuted so that the pairs to be rotated lie next to each other;
 * those of other families lie half a head apart. */
static const struct tensor_rule LLAMA_TENSORS[] = {
    {W_ATTN_NORM, "attn_norm.weight", D_ONE, D_EMBD, false},
    {W_ATTN_Q, "attn_q.weight", D_HEADS, D_EMBD, false},
    {W_ATTN_K, "attn_k.weight", D_KV_HEADS, D_EMBD, false},
    {W_ATTN_V, "attn_v.weight", D_KV_HEADS, D_EMBD, false},
    {W_ATTN_OUT, "attn_output.weight", D_EMBD, D_HEADS, false},
    {W_FFN_NORM, "ffn_norm.weight", D_ONE, D_EMBD, false},
    {W_FFN_GATE, "ffn_gate.weight", D_FF, D_EMBD, false},
    {W_FFN_UP, "ffn_up.weight", D_FF, D_EMBD, false},
    {W_FFN_DOWN, "ffn_down.weight", D_EMBD, D_FF, false},
    {W_ATTN_Q_BIAS, "attn_q.bias", D_ONE, D_HEADS, true},
    {W_ATTN_K_BIAS, "attn_k.bias", D_ONE, D_KV_HEADS, true},
    {W_ATTN_V_BIAS, "attn_v.bias", D_ONE, D_KV_HEADS, true},
    {W_ATTN_OUT_BIAS, "attn_output.bias", D_ONE, D_EMBD, true},
    {W_FFN_GATE_BIAS, "ffn_gate.bias", D_ONE, D_FF, true},
    {W_FFN_UP_BIAS, "ffn_up.bias", D_ONE, D_FF, true},
    {W_FFN_DOWN_BIAS, "ffn_down.bias", D_ONE, D_EMBD, true},
    {W_TOKEN_EMBD, "token_embd.weight", D_VOCAB, D_EMBD, false},
    {W_OUTPUT_NORM, "output_norm.weight", D_ONE, D_EMBD, false},
    {W_OUTPUT, "output.weight", D_VOCAB, D_EMBD, true},
    {W_ROPE_FREQS, "rope_freqs.weight", D_ONE, D_ROT_PAIRS, true},
};

static const struct key_rule LLAMA_KEYS[] = {
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
    {"rope.scaling.finetuned", KEY_IGNORED},
    {"tensor_data_layout", KEY_IGNORED},
    {"attention.causal", KEY_ONE},
    {"logit_scale", KEY_ONE},
    {"embedding_scale", KEY_ONE},
    {"residual_scale", KEY_ONE},
    {"use_parallel_residual", KEY_ZERO},
    {"expert_count", KEY_ZERO},
    {"expert_used_count", KEY_ZERO},
    {"pooling_type", KEY_ZERO},
    {"attention.clamp_kqv", KEY_ZERO},
    {"attention.max_alibi_bias", KEY_ZERO},
    {"attn_logit_softcapping", KEY_ZERO},
    {"final_logit_softcapping", KEY_ZERO},
};

#define COUNT(a) (sizeof(a) / sizeof((a)[0]))

static const struct model_family FAMILIES[] = {
    {.name = "llama",
     .rope_interleaved = true,
     .activation = BACKEND_SWIGLU,
     .tensors = LLAMA_TENSORS,
     .n_tensors = COUNT(LLAMA_TENSORS),
     .keys = LLAMA_KEYS,
     .n_keys = COUNT(LLAMA_KEYS)},
    {.name = "qwen2",
     .activation = BACKEND_SWIGLU,
     .tensors = LLAMA_TENSORS,
     .n_tensors = COUNT(LLAMA_TENSORS),
     .keys = LLAMA_KEYS,
     .n_keys = COUNT(LLAMA_KEYS)},
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

size_t model_dim(const struct model_spec *s, enum model_dim dim) {
    switch (dim) {
    case D_ONE: return 1;
    case D_EMBD: return s->n_embd;
    case D_FF: return s->n_ff;
    case D_VOCAB: return s->n_vocab;
    case D_HEADS: return s->n_heads * s->head_dim;
    case D_KV_HEADS: return s->n_kv_heads * s->head_dim;
    case D_HEAD_DIM: return s->head_dim;
    case D_ROT_PAIRS: return s->rope.n_rot / 2;
    }
    return 0;
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
