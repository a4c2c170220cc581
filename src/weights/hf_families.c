/* The families as Hugging Face's configurations have them: names and presets of keys are those of the
 * configuration classes of transformers, versions 4 and 5. */
#include "weights/hf_impl.h"

#include <stdio.h>
#include <string.h>

#define COUNT(a) (sizeof(a) / sizeof((a)[0]))

/* ---- keys ---- */

/* Of every family. */
static const struct hf_key COMMON_KEYS[] = {
    {"num_hidden_layers", HF_SIZE, "block_count", 0},
    {"hidden_size", HF_SIZE, "embedding_length", 0},
    {"intermediate_size", HF_SIZE, "feed_forward_length", 0},
    {"vocab_size", HF_SIZE, "vocab_size", 0},
    {"num_attention_heads", HF_SIZE, "attention.head_count", 0},
    {"tie_word_embeddings", HF_OWN, NULL, 0},
    {"architectures", HF_OWN, NULL, 0},
    {"model_type", HF_OWN, NULL, 0},
    {"quantization_config", HF_OWN, NULL, 0},
    {"auto_map", HF_OWN, NULL, 0},
    {"is_encoder_decoder", HF_NONE, NULL, 0},
    {"add_cross_attention", HF_NONE, NULL, 0},
    {"cross_attention_hidden_size", HF_NONE, NULL, 0},
    {"pruned_heads", HF_NONE, NULL, 0},
    {"attn_implementation", HF_IGNORED, NULL, 0},
    {"bad_words_ids", HF_IGNORED, NULL, 0},
    {"begin_suppress_tokens", HF_IGNORED, NULL, 0},
    {"bos_token_id", HF_IGNORED, NULL, 0},
    {"cache_implementation", HF_IGNORED, NULL, 0},
    {"chunk_size_feed_forward", HF_IGNORED, NULL, 0},
    {"decoder_start_token_id", HF_IGNORED, NULL, 0},
    {"diversity_penalty", HF_IGNORED, NULL, 0},
    {"do_sample", HF_IGNORED, NULL, 0},
    {"dtype", HF_IGNORED, NULL, 0},
    {"early_stopping", HF_IGNORED, NULL, 0},
    {"encoder_no_repeat_ngram_size", HF_IGNORED, NULL, 0},
    {"eos_token_id", HF_IGNORED, NULL, 0},
    {"exponential_decay_length_penalty", HF_IGNORED, NULL, 0},
    {"finetuning_task", HF_IGNORED, NULL, 0},
    {"forced_bos_token_id", HF_IGNORED, NULL, 0},
    {"forced_eos_token_id", HF_IGNORED, NULL, 0},
    {"id2label", HF_IGNORED, NULL, 0},
    {"initializer_range", HF_IGNORED, NULL, 0},
    {"label2id", HF_IGNORED, NULL, 0},
    {"length_penalty", HF_IGNORED, NULL, 0},
    {"max_length", HF_IGNORED, NULL, 0},
    {"min_length", HF_IGNORED, NULL, 0},
    {"no_repeat_ngram_size", HF_IGNORED, NULL, 0},
    {"num_beam_groups", HF_IGNORED, NULL, 0},
    {"num_beams", HF_IGNORED, NULL, 0},
    {"num_return_sequences", HF_IGNORED, NULL, 0},
    {"output_attentions", HF_IGNORED, NULL, 0},
    {"output_hidden_states", HF_IGNORED, NULL, 0},
    {"output_scores", HF_IGNORED, NULL, 0},
    {"pad_token_id", HF_IGNORED, NULL, 0},
    {"prefix", HF_IGNORED, NULL, 0},
    {"problem_type", HF_IGNORED, NULL, 0},
    {"remove_invalid_values", HF_IGNORED, NULL, 0},
    {"repetition_penalty", HF_IGNORED, NULL, 0},
    {"return_dict", HF_IGNORED, NULL, 0},
    {"return_dict_in_generate", HF_IGNORED, NULL, 0},
    {"sep_token_id", HF_IGNORED, NULL, 0},
    {"suppress_tokens", HF_IGNORED, NULL, 0},
    {"task_specific_params", HF_IGNORED, NULL, 0},
    {"temperature", HF_IGNORED, NULL, 0},
    {"tf_legacy_loss", HF_IGNORED, NULL, 0},
    {"tie_encoder_decoder", HF_IGNORED, NULL, 0},
    {"tokenizer_class", HF_IGNORED, NULL, 0},
    {"top_k", HF_IGNORED, NULL, 0},
    {"top_p", HF_IGNORED, NULL, 0},
    {"torch_dtype", HF_IGNORED, NULL, 0},
    {"torchscript", HF_IGNORED, NULL, 0},
    {"transformers.js_config", HF_IGNORED, NULL, 0},
    {"transformers_version", HF_IGNORED, NULL, 0},
    {"typical_p", HF_IGNORED, NULL, 0},
    {"unk_token_id", HF_IGNORED, NULL, 0},
    {"unsloth_fixed", HF_IGNORED, NULL, 0},
    {"unsloth_version", HF_IGNORED, NULL, 0},
    {"use_bfloat16", HF_IGNORED, NULL, 0},
    {"use_cache", HF_IGNORED, NULL, 0},
};

static const struct hf_key DECODER_KEYS[] = {
    {"num_key_value_heads", HF_SIZE, "attention.head_count_kv", 0},
    {"head_dim", HF_SIZE, "attention.key_length", 0},
    {"rms_norm_eps", HF_REAL, "attention.layer_norm_rms_epsilon", 1e-6},
    {"hidden_act", HF_TEXT, "silu swish", 0},
    {"max_position_embeddings", HF_OWN, "context_length", 2048},
    {"rope_theta", HF_OWN, "rope.freq_base", 10000},
    {"rope_parameters", HF_OWN, NULL, 0},
    {"rope_scaling", HF_OWN, NULL, 0},
    {"partial_rotary_factor", HF_OWN, "rope.dimension_count", 0},
    {"original_max_position_embeddings", HF_OWN, "rope.scaling.original_context_length", 0},
    {"attention_bias", HF_BIAS, "attn_q.bias", 0},
    {"mlp_bias", HF_BIAS, "ffn_gate.bias", 0},
    {"rope_interleaved", HF_NONE, NULL, 0},
    {"use_mrope", HF_NONE, NULL, 0},
    {"lm_head_bias", HF_NONE, NULL, 0},
    {"use_bidirectional_attention", HF_NONE, NULL, 0},
    {"attention_dropout", HF_IGNORED, NULL, 0},
    {"embd_pdrop", HF_IGNORED, NULL, 0},
    {"ignore_keys_at_rope_validation", HF_IGNORED, NULL, 0},
    {"is_decoder", HF_IGNORED, NULL, 0},
    {"is_llama_config", HF_IGNORED, NULL, 0},
    {"max_sequence_length", HF_IGNORED, NULL, 0},
    {"mlp_dropout", HF_IGNORED, NULL, 0},
    {"output_router_logits", HF_IGNORED, NULL, 0},
    {"pretraining_tp", HF_IGNORED, NULL, 0}, /* cuts products into parts; they are the same */
    {"resid_pdrop", HF_IGNORED, NULL, 0},
    {"router_aux_loss_coef", HF_IGNORED, NULL, 0},
    {"router_jitter_noise", HF_IGNORED, NULL, 0}, /* in training only */
};

static const struct hf_key ENCODER_KEYS[] = {
    {"layer_norm_eps", HF_REAL, "attention.layer_norm_epsilon", 1e-12},
    {"hidden_act", HF_TEXT, "gelu", 0},
    {"max_position_embeddings", HF_OWN, "context_length", 512},
    {"type_vocab_size", HF_SIZE, "token_type_count", 2},
    {"position_embedding_type", HF_TEXT, "absolute", 0},
    {"is_decoder", HF_NONE, NULL, 0},
    {"sentence_transformers", HF_OWN, NULL, 0},
    {"sbert_ce_default_activation_function", HF_OWN, NULL, 0},
    {"attention_probs_dropout_prob", HF_IGNORED, NULL, 0},
    {"classifier_dropout", HF_IGNORED, NULL, 0},
    {"directionality", HF_IGNORED, NULL, 0},
    {"gradient_checkpointing", HF_IGNORED, NULL, 0},
    {"hidden_dropout_prob", HF_IGNORED, NULL, 0},
    {"model_max_length", HF_IGNORED, NULL, 0},
    {"num_labels", HF_IGNORED, NULL, 0}, /* as the head's tensor has it */
    {"output_past", HF_IGNORED, NULL, 0},
    {"pooler_fc_size", HF_IGNORED, NULL, 0}, /* these five describe a pooler of BERT that was never used */
    {"pooler_num_attention_heads", HF_IGNORED, NULL, 0},
    {"pooler_num_fc_layers", HF_IGNORED, NULL, 0},
    {"pooler_size_per_head", HF_IGNORED, NULL, 0},
    {"pooler_type", HF_IGNORED, NULL, 0},
};

#define WINDOW_KEY(preset)                                                                                   \
    { "sliding_window", HF_OWN, "attention.sliding_window", preset }
#define LAYER_KEYS(preset)                                                                                   \
    WINDOW_KEY(preset), {                                                                                    \
        "layer_types", HF_OWN, "attention.sliding_window_pattern", 0                                         \
    }
#define SWITCH_KEYS                                                                                          \
    LAYER_KEYS(4096), {"use_sliding_window", HF_OWN, NULL, 0}, {                                             \
        "max_window_layers", HF_OWN, NULL, 28                                                                \
    }
#define EXPERT_KEYS                                                                                          \
    {"num_local_experts", HF_SIZE, "expert_count", 0}, {                                                     \
        "num_experts_per_tok", HF_SIZE, "expert_used_count", 0                                               \
    }
#define QWEN_MOE_KEYS                                                                                        \
    SWITCH_KEYS, EXPERT_KEYS, {"num_experts", HF_SIZE, "expert_count", 0},                                   \
        {"moe_intermediate_size", HF_SIZE, "expert_feed_forward_length", 0},                                 \
        {"norm_topk_prob", HF_FLAG, "expert_weights_norm", 0}, {"decoder_sparse_step", HF_NUMBER, NULL, 1},  \
    {                                                                                                        \
        "mlp_only_layers", HF_NONE, NULL, 0                                                                  \
    }
#define GRANITE_KEYS                                                                                         \
    {"embedding_multiplier", HF_REAL, "embedding_scale", 1},                                                 \
        {"residual_multiplier", HF_REAL, "residual_scale", 1},                                               \
        {"attention_multiplier", HF_REAL, "attention.scale", 1}, {                                           \
        "logits_scaling", HF_REAL, "logit_scale", 1                                                          \
    }

static const struct hf_key MISTRAL_KEYS[] = {WINDOW_KEY(4096),
                                             {"num_key_value_heads", HF_SIZE, "attention.head_count_kv", 8},
                                             {"max_position_embeddings", HF_OWN, "context_length", 131072}};
static const struct hf_key MINISTRAL_KEYS[] = {LAYER_KEYS(4096),
                                               {"num_key_value_heads", HF_SIZE, "attention.head_count_kv", 8},
                                               {"max_position_embeddings", HF_OWN, "context_length", 32768}};
static const struct hf_key MINISTRAL3_KEYS[] = {
    WINDOW_KEY(0),
    {"head_dim", HF_SIZE, "attention.key_length", 128},
    {"num_key_value_heads", HF_SIZE, "attention.head_count_kv", 8},
    {"rms_norm_eps", HF_REAL, "attention.layer_norm_rms_epsilon", 1e-5},
    {"max_position_embeddings", HF_OWN, "context_length", 262144}};
static const struct hf_key YI_KEYS[] = {{"num_key_value_heads", HF_SIZE, "attention.head_count_kv", 4},
                                        {"max_position_embeddings", HF_OWN, "context_length", 4096},
                                        {"rope_theta", HF_OWN, "rope.freq_base", 5e6}};
static const struct hf_key MIXTRAL_KEYS[] = {
    WINDOW_KEY(0),
    {"num_local_experts", HF_SIZE, "expert_count", 8},
    {"num_experts_per_tok", HF_SIZE, "expert_used_count", 2},
    {"num_key_value_heads", HF_SIZE, "attention.head_count_kv", 8},
    {"rms_norm_eps", HF_REAL, "attention.layer_norm_rms_epsilon", 1e-5},
    {"max_position_embeddings", HF_OWN, "context_length", 131072},
    {"rope_theta", HF_OWN, "rope.freq_base", 1e6}};
static const struct hf_key QWEN2_KEYS[] = {SWITCH_KEYS,
                                           {"qkv_bias", HF_BIAS, "attn_q.bias", 1},
                                           {"num_key_value_heads", HF_SIZE, "attention.head_count_kv", 32},
                                           {"max_position_embeddings", HF_OWN, "context_length", 32768}};
static const struct hf_key QWEN3_KEYS[] = {SWITCH_KEYS,
                                           {"head_dim", HF_SIZE, "attention.key_length", 128},
                                           {"num_key_value_heads", HF_SIZE, "attention.head_count_kv", 32},
                                           {"max_position_embeddings", HF_OWN, "context_length", 32768}};
static const struct hf_key QWEN2MOE_KEYS[] = {
    QWEN_MOE_KEYS,
    {"qkv_bias", HF_BIAS, "attn_q.bias", 1},
    {"shared_expert_intermediate_size", HF_SIZE, "expert_shared_feed_forward_length", 5632},
    {"max_position_embeddings", HF_OWN, "context_length", 32768}};
static const struct hf_key QWEN3MOE_KEYS[] = {QWEN_MOE_KEYS,
                                              {"max_position_embeddings", HF_OWN, "context_length", 32768}};
#define GEMMA_KEYS                                                                                           \
    LAYER_KEYS(4096), {"hidden_activation", HF_TEXT, "gelu_pytorch_tanh", 0},                                \
        {"hidden_act", HF_TEXT, "gelu_pytorch_tanh", 0},                                                     \
        {"num_attention_heads", HF_SIZE, "attention.head_count", 8},                                         \
        {"num_key_value_heads", HF_SIZE, "attention.head_count_kv", 4},                                      \
        {"head_dim", HF_SIZE, "attention.key_length", 256}, {                                                \
        "query_pre_attn_scalar", HF_RSQRT, "attention.scale", 256                                            \
    }
/* hidden_act said "gelu" by mistake and always meant its approximation; so does transformers 5 read it. */
static const struct hf_key GEMMA_FIRST_KEYS[] = {
    {"hidden_act", HF_TEXT, "gelu gelu_pytorch_tanh", 0},
    {"hidden_activation", HF_TEXT, "gelu_pytorch_tanh", 0},
    {"num_attention_heads", HF_SIZE, "attention.head_count", 16},
    {"num_key_value_heads", HF_SIZE, "attention.head_count_kv", 16},
    {"head_dim", HF_SIZE, "attention.key_length", 256},
    {"max_position_embeddings", HF_OWN, "context_length", 8192}};
static const struct hf_key GEMMA2_KEYS[] = {
    GEMMA_KEYS,
    {"attn_logit_softcapping", HF_REAL, "attn_logit_softcapping", 0},
    {"final_logit_softcapping", HF_REAL, "final_logit_softcapping", 0},
    {"max_position_embeddings", HF_OWN, "context_length", 8192}};
static const struct hf_key GEMMA3_KEYS[] = {
    GEMMA_KEYS,
    {"attn_logit_softcapping", HF_REAL, "attn_logit_softcapping", 0},
    {"final_logit_softcapping", HF_REAL, "final_logit_softcapping", 0},
    {"vocab_size", HF_SIZE, "vocab_size", 262208},
    {"max_position_embeddings", HF_OWN, "context_length", 131072},
    {"sliding_window_pattern", HF_OWN, "attention.sliding_window_pattern", 0},
    {"rope_theta", HF_OWN, "rope.freq_base", 1e6},
    {"rope_local_base_freq", HF_OWN, "rope.freq_base_swa", 10000}};
static const struct hf_key PHI3_KEYS[] = {WINDOW_KEY(0),
                                          {"rms_norm_eps", HF_REAL, "attention.layer_norm_rms_epsilon", 1e-5},
                                          {"max_position_embeddings", HF_OWN, "context_length", 4096},
                                          {"full_attn_mod", HF_NUMBER, NULL, 1},
                                          {"interpolate_factor", HF_NUMBER, NULL, 1}};
static const struct hf_key OLMO2_KEYS[] = {
    {"rms_norm_eps", HF_REAL, "attention.layer_norm_rms_epsilon", 1e-5}};
static const struct hf_key OLMO3_KEYS[] = {
    LAYER_KEYS(4096), {"rms_norm_eps", HF_REAL, "attention.layer_norm_rms_epsilon", 1e-5}};
static const struct hf_key GRANITE_DENSE_KEYS[] = {GRANITE_KEYS};
static const struct hf_key GRANITEMOE_KEYS[] = {
    GRANITE_KEYS, EXPERT_KEYS, {"position_embedding_type", HF_TEXT, "rope", 0}};
static const struct hf_key GRANITE_SHARED_KEYS[] = {
    GRANITE_KEYS,
    EXPERT_KEYS,
    {"position_embedding_type", HF_TEXT, "rope", 0},
    {"shared_intermediate_size", HF_SIZE, "expert_shared_feed_forward_length", 0}};
static const struct hf_key SMOLLM3_KEYS[] = {{"use_sliding_window", HF_NONE, NULL, 0},
                                             {"sliding_window", HF_IGNORED, NULL, 0},
                                             {"max_window_layers", HF_IGNORED, NULL, 0},
                                             {"layer_types", HF_OWN, "attention.sliding_window_pattern", 0},
                                             {"no_rope_layers", HF_OWN, NULL, 0},
                                             {"no_rope_layer_interval", HF_NUMBER, NULL, 4},
                                             {"num_key_value_heads", HF_SIZE, "attention.head_count_kv", 4},
                                             {"max_position_embeddings", HF_OWN, "context_length", 32768},
                                             {"rope_theta", HF_OWN, "rope.freq_base", 2e6}};
static const struct hf_key GPT_OSS_KEYS[] = {
    LAYER_KEYS(128),
    EXPERT_KEYS,
    {"experts_per_token", HF_SIZE, "expert_used_count", 0},
    {"attention_bias", HF_BIAS, "attn_q.bias", 1},
    {"swiglu_limit", HF_NUMBER, NULL, 7},
    {"initial_context_length", HF_IGNORED, NULL, 0},
    {"head_dim", HF_SIZE, "attention.key_length", 64},
    {"num_key_value_heads", HF_SIZE, "attention.head_count_kv", 8},
    {"rms_norm_eps", HF_REAL, "attention.layer_norm_rms_epsilon", 1e-5},
    {"max_position_embeddings", HF_OWN, "context_length", 131072},
    {"rope_theta", HF_OWN, "rope.freq_base", 150000}};

static const struct hf_key DISTILBERT_KEYS[] = {
    {"type_vocab_size", HF_NONE, NULL, 0},
    {"sinusoidal_pos_embds", HF_IGNORED, NULL, 0}, /* how the table was filled before training */
    {"attention_dropout", HF_IGNORED, NULL, 0},
    {"dropout", HF_IGNORED, NULL, 0},
    {"qa_dropout", HF_IGNORED, NULL, 0},
    {"seq_classif_dropout", HF_IGNORED, NULL, 0},
    {"tie_weights_", HF_IGNORED, NULL, 0}};
static const struct hf_alias DISTILBERT_ALIASES[] = {{"dim", "hidden_size"},
                                                     {"hidden_dim", "intermediate_size"},
                                                     {"n_layers", "num_hidden_layers"},
                                                     {"n_heads", "num_attention_heads"},
                                                     {"activation", "hidden_act"},
                                                     {NULL, NULL}};
/* As its makers' code has them, and as transformers 5 writes them. */
static const struct hf_key NOMIC_KEYS[] = {{"hidden_act", HF_TEXT, "silu swiglu", 0},
                                           {"head_dim", HF_SIZE, "attention.key_length", 0},
                                           {"max_position_embeddings", HF_OWN, "context_length", 2048},
                                           {"rope_theta", HF_OWN, "rope.freq_base", 1000},
                                           {"rope_parameters", HF_OWN, NULL, 0},
                                           {"rope_scaling", HF_OWN, NULL, 0},
                                           {"rotary_emb_fraction", HF_NUMBER, NULL, 1},
                                           {"scale_attn_weights", HF_NUMBER, NULL, 1},
                                           {"rotary_emb_interleaved", HF_NONE, NULL, 0},
                                           {"rotary_emb_scale_base", HF_NONE, NULL, 0},
                                           {"rotary_scaling_factor", HF_NONE, NULL, 0},
                                           {"scale_attn_by_inverse_layer_idx", HF_NONE, NULL, 0},
                                           {"causal", HF_NONE, NULL, 0},
                                           {"prenorm", HF_NONE, NULL, 0},
                                           {"parallel_block", HF_NONE, NULL, 0},
                                           {"parallel_block_tied_norm", HF_NONE, NULL, 0},
                                           {"qkv_proj_bias", HF_NONE, NULL, 0},
                                           {"mlp_fc1_bias", HF_NONE, NULL, 0},
                                           {"mlp_fc2_bias", HF_NONE, NULL, 0},
                                           {"use_rms_norm", HF_NONE, NULL, 0},
                                           {"attn_pdrop", HF_IGNORED, NULL, 0},
                                           {"embd_pdrop", HF_IGNORED, NULL, 0},
                                           {"resid_pdrop", HF_IGNORED, NULL, 0},
                                           {"dense_seq_output", HF_IGNORED, NULL, 0},
                                           {"fused_bias_fc", HF_IGNORED, NULL, 0},
                                           {"fused_dropout_add_ln", HF_IGNORED, NULL, 0},
                                           {"ignore_keys_at_rope_validation", HF_IGNORED, NULL, 0},
                                           {"max_trained_positions", HF_IGNORED, NULL, 0},
                                           {"pad_vocab_size_multiple", HF_IGNORED, NULL, 0},
                                           {"reorder_and_upcast_attn", HF_IGNORED, NULL, 0},
                                           {"summary_activation", HF_IGNORED, NULL, 0},
                                           {"summary_first_dropout", HF_IGNORED, NULL, 0},
                                           {"summary_proj_to_labels", HF_IGNORED, NULL, 0},
                                           {"summary_type", HF_IGNORED, NULL, 0},
                                           {"summary_use_proj", HF_IGNORED, NULL, 0},
                                           {"use_flash_attn", HF_IGNORED, NULL, 0},
                                           {"use_xentropy", HF_IGNORED, NULL, 0}};
static const struct hf_alias NOMIC_ALIASES[] = {{"n_embd", "hidden_size"},
                                                {"n_inner", "intermediate_size"},
                                                {"n_layer", "num_hidden_layers"},
                                                {"n_head", "num_attention_heads"},
                                                {"n_positions", "max_position_embeddings"},
                                                {"layer_norm_epsilon", "layer_norm_eps"},
                                                {"activation_function", "hidden_act"},
                                                {"rotary_emb_base", "rope_theta"},
                                                {NULL, NULL}};

static const struct hf_names DISTILBERT_NAMES, NOMIC_NAMES, YI_NAMES;

/* DeepSeek-V2 and V3; what they have in common with others' names is checked, not read. */
#define LATENT_KEYS                                                                                          \
    {"kv_lora_rank", HF_SIZE, "attention.kv_lora_rank", 512}, {"q_lora_rank", HF_OWN, NULL, 1536},           \
        {"qk_nope_head_dim", HF_OWN, "attention.key_length", 128},                                           \
        {"qk_rope_head_dim", HF_OWN, "rope.dimension_count", 64},                                            \
        {"v_head_dim", HF_SIZE, "attention.value_length", 128}, {"qk_head_dim", HF_IGNORED, NULL, 0},        \
        {"head_dim", HF_IGNORED, NULL, 0}, {"moe_layer_freq", HF_NUMBER, NULL, 1},                           \
        {"attention_bias", HF_NONE, NULL, 0}, {"mlp_bias", HF_NONE, NULL, 0},                                \
        {"aux_loss_alpha", HF_IGNORED, NULL, 0}, {"seq_aux", HF_IGNORED, NULL, 0}, {                         \
        "ep_size", HF_IGNORED, NULL, 0                                                                       \
    }
static const struct hf_key DEEPSEEK2_KEYS[] = {
    LATENT_KEYS,
    {"n_routed_experts", HF_SIZE, "expert_count", 64},
    {"num_experts_per_tok", HF_SIZE, "expert_used_count", 0},
    {"n_shared_experts", HF_SIZE, "expert_shared_count", 2},
    {"moe_intermediate_size", HF_SIZE, "expert_feed_forward_length", 1407},
    {"first_k_dense_replace", HF_SIZE, "leading_dense_block_count", 0},
    {"routed_scaling_factor", HF_REAL, "expert_weights_scale", 1},
    {"norm_topk_prob", HF_NONE, NULL, 0},
    {"scoring_func", HF_TEXT, "softmax", 0},
    {"topk_method", HF_TEXT, "greedy group_limited_greedy", 0},
    {"n_group", HF_OWN, "expert_group_count", 0},
    {"topk_group", HF_OWN, "expert_group_used_count", 0}};
static const struct hf_key DEEPSEEK3_KEYS[] = {
    LATENT_KEYS,
    {"n_routed_experts", HF_SIZE, "expert_count", 256},
    {"num_experts_per_tok", HF_SIZE, "expert_used_count", 8},
    {"n_shared_experts", HF_SIZE, "expert_shared_count", 1},
    {"moe_intermediate_size", HF_SIZE, "expert_feed_forward_length", 2048},
    {"first_k_dense_replace", HF_SIZE, "leading_dense_block_count", 3},
    {"routed_scaling_factor", HF_REAL, "expert_weights_scale", 2.5},
    {"norm_topk_prob", HF_FLAG, "expert_weights_norm", 1},
    {"scoring_func", HF_TEXT, "sigmoid", 0},
    {"topk_method", HF_TEXT, "noaux_tc", 0},
    {"n_group", HF_OWN, "expert_group_count", 8},
    {"topk_group", HF_OWN, "expert_group_used_count", 4},
    {"rope_interleave", HF_OWN, "rope.interleaved", 1},
    {"num_nextn_predict_layers", HF_OWN, NULL, 1},
    {"max_position_embeddings", HF_OWN, "context_length", 4096}};

/* ---- families ---- */

#define FAMILY(a, t, m, f) .architecture = (a), .trunk = (t), .model_type = (m), .family = (f)
#define KEYS(a)            .keys = (a), .n_keys = COUNT(a)
#define ENCODER(a, m)      FAMILY(a, NULL, m, "bert"), .encoder = true
#define DISTILBERT         KEYS(DISTILBERT_KEYS), .aliases = DISTILBERT_ALIASES, .names = &DISTILBERT_NAMES
#define NOMIC                                                                                                \
    KEYS(NOMIC_KEYS), .aliases = NOMIC_ALIASES, .names = &NOMIC_NAMES, .encoder = true, .rotates = true
#define ROBERTA_HEAD .head = {"classifier.dense.", "classifier.out_proj."}

static const struct hf_family FAMILIES[] = {
    {FAMILY("LlamaForCausalLM", "LlamaModel", "llama", "llama")},
    {FAMILY("YiForCausalLM", "YiModel", "Yi", "llama"), KEYS(YI_KEYS), .names = &YI_NAMES},
    {FAMILY("MistralForCausalLM", "MistralModel", "mistral", "llama"), KEYS(MISTRAL_KEYS),
     .windows = WINDOWS_ALL},
    {FAMILY("Mistral3ForConditionalGeneration", NULL, "mistral3", "llama"), KEYS(MISTRAL_KEYS),
     .windows = WINDOWS_ALL, .text_config = "mistral"},
    {FAMILY("Mistral3ForConditionalGeneration", NULL, "mistral3", "mistral3"), KEYS(MINISTRAL3_KEYS),
     .windows = WINDOWS_ALL, .temperature = true, .text_config = "ministral3"},
    {FAMILY("Ministral3ForCausalLM", "Ministral3Model", "ministral3", "mistral3"), KEYS(MINISTRAL3_KEYS),
     .windows = WINDOWS_ALL, .temperature = true},
    {FAMILY("MinistralForCausalLM", "MinistralModel", "ministral", "llama"), KEYS(MINISTRAL_KEYS),
     .windows = WINDOWS_ALL},
    {FAMILY("MixtralForCausalLM", "MixtralModel", "mixtral", "llama"), KEYS(MIXTRAL_KEYS),
     .windows = WINDOWS_ALL},
    {FAMILY("Qwen2ForCausalLM", "Qwen2Model", "qwen2", "qwen2"), KEYS(QWEN2_KEYS), .windows = WINDOWS_UPPER,
     .window_switch = true},
    {FAMILY("Qwen2MoeForCausalLM", "Qwen2MoeModel", "qwen2_moe", "qwen2moe"), KEYS(QWEN2MOE_KEYS),
     .windows = WINDOWS_PERIOD, .window_switch = true},
    {FAMILY("Qwen3ForCausalLM", "Qwen3Model", "qwen3", "qwen3"), KEYS(QWEN3_KEYS), .windows = WINDOWS_UPPER,
     .window_switch = true},
    {FAMILY("Qwen3MoeForCausalLM", "Qwen3MoeModel", "qwen3_moe", "qwen3moe"), KEYS(QWEN3MOE_KEYS),
     .windows = WINDOWS_ALL, .window_switch = true},
    {FAMILY("GemmaForCausalLM", "GemmaModel", "gemma", "gemma"), KEYS(GEMMA_FIRST_KEYS), .tied = true,
     .norms_plus_one = true},
    {FAMILY("Gemma2ForCausalLM", "Gemma2Model", "gemma2", "gemma2"), KEYS(GEMMA2_KEYS),
     .windows = WINDOWS_PERIOD, .window_period = 2, .tied = true, .norms_plus_one = true,
     .post_attention_norm = true},
    {FAMILY("Gemma3ForCausalLM", "Gemma3TextModel", "gemma3_text", "gemma3"), KEYS(GEMMA3_KEYS),
     .windows = WINDOWS_PERIOD, .window_period = 6, .tied = true, .norms_plus_one = true,
     .post_attention_norm = true, .own_window_rope = true, .scaled_length = true},
    {FAMILY("Gemma3ForConditionalGeneration", NULL, "gemma3", "gemma3"), KEYS(GEMMA3_KEYS),
     .windows = WINDOWS_PERIOD, .window_period = 6, .tied = true, .norms_plus_one = true,
     .post_attention_norm = true, .own_window_rope = true, .scaled_length = true,
     .text_config = "gemma3_text"},
    {FAMILY("Phi3ForCausalLM", "Phi3Model", "phi3", "phi3"), KEYS(PHI3_KEYS), .windows = WINDOWS_ALL},
    {FAMILY("Olmo2ForCausalLM", "Olmo2Model", "olmo2", "olmo2"), KEYS(OLMO2_KEYS),
     .post_attention_norm = true},
    {FAMILY("Olmo3ForCausalLM", "Olmo3Model", "olmo3", "olmo2"), KEYS(OLMO3_KEYS), .windows = WINDOWS_PERIOD,
     .window_period = 4, .post_attention_norm = true},
    {FAMILY("GraniteForCausalLM", "GraniteModel", "granite", "granite"), KEYS(GRANITE_DENSE_KEYS)},
    {FAMILY("GraniteMoeForCausalLM", "GraniteMoeModel", "granitemoe", "granitemoe"), KEYS(GRANITEMOE_KEYS)},
    {FAMILY("GraniteMoeSharedForCausalLM", "GraniteMoeSharedModel", "granitemoeshared", "granitemoe"),
     KEYS(GRANITE_SHARED_KEYS)},
    {FAMILY("SmolLM3ForCausalLM", "SmolLM3Model", "smollm3", "smollm3"), KEYS(SMOLLM3_KEYS), .tied = true,
     .no_rope_layers = true},
    {FAMILY("GptOssForCausalLM", "GptOssModel", "gpt_oss", "gpt-oss"), KEYS(GPT_OSS_KEYS),
     .windows = WINDOWS_PERIOD, .window_period = 2, .post_attention_norm = true, .turned_experts = true},
    {FAMILY("DeepseekV2ForCausalLM", "DeepseekV2Model", "deepseek_v2", "deepseek2"), KEYS(DEEPSEEK2_KEYS),
     .latent = true},
    {FAMILY("DeepseekV3ForCausalLM", "DeepseekV3Model", "deepseek_v3", "deepseek2"), KEYS(DEEPSEEK3_KEYS),
     .latent = true, .sigmoid_router = true},
    {ENCODER("BertModel", "bert")},
    {ENCODER("BertForMaskedLM", "bert")},
    {ENCODER("BertForSequenceClassification", "bert"), .head = {"pooler.dense.", "classifier."}},
    {ENCODER("RobertaModel", "roberta"), .numbered_positions = true},
    {ENCODER("RobertaForMaskedLM", "roberta"), .numbered_positions = true},
    {ENCODER("RobertaForSequenceClassification", "roberta"), .numbered_positions = true, ROBERTA_HEAD},
    {ENCODER("XLMRobertaModel", "xlm-roberta"), .numbered_positions = true},
    {ENCODER("XLMRobertaForMaskedLM", "xlm-roberta"), .numbered_positions = true},
    {ENCODER("XLMRobertaForSequenceClassification", "xlm-roberta"), .numbered_positions = true, ROBERTA_HEAD},
    {ENCODER("CamembertModel", "camembert"), .numbered_positions = true},
    {ENCODER("CamembertForMaskedLM", "camembert"), .numbered_positions = true},
    {ENCODER("CamembertForSequenceClassification", "camembert"), .numbered_positions = true, ROBERTA_HEAD},
    {ENCODER("DistilBertModel", "distilbert"), DISTILBERT},
    {ENCODER("DistilBertForMaskedLM", "distilbert"), DISTILBERT},
    {ENCODER("DistilBertForSequenceClassification", "distilbert"), DISTILBERT,
     .head = {"pre_classifier.", "classifier."}, .relu_head = true},
    {FAMILY("NomicBertModel", NULL, "nomic_bert", "nomic-bert"), NOMIC},
    {FAMILY("NomicBertForMaskedLM", NULL, "nomic_bert", "nomic-bert"), NOMIC},
};

static bool is_architecture(const struct hf_family *f, const char *name) {
    return !strcmp(f->architecture, name) || (f->trunk && !strcmp(f->trunk, name));
}

const struct hf_family *hf_family(const char *architecture, const char *model_type, const char *text_type) {
    const struct hf_family *first = NULL;
    for (size_t i = 0; i < COUNT(FAMILIES); i++) {
        const struct hf_family *f = &FAMILIES[i];
        if (!(architecture ? is_architecture(f, architecture) : !strcmp(f->model_type, model_type))) continue;
        if (!f->text_config || !text_type || !strcmp(f->text_config, text_type)) return f;
        if (!first) first = f;
    }
    return first;
}

void hf_text_types(const struct hf_family *family, char *out, size_t size) {
    size_t n = 0;
    out[0] = '\0';
    for (size_t i = 0; i < COUNT(FAMILIES) && n < size; i++)
        if (!strcmp(FAMILIES[i].architecture, family->architecture))
            n += (size_t)snprintf(out + n, size - n, "%s%s", n ? ", " : "", FAMILIES[i].text_config);
}

/* What an architecture's name has in front of "ForCausalLM", "Model", ... */
static size_t stem(const char *architecture) {
    const char *end = strstr(architecture, "For");
    if (!end) end = strstr(architecture, "Model");
    return end ? (size_t)(end - architecture) : strlen(architecture);
}

void hf_family_names(char *out, size_t size) {
    size_t n = 0;
    const char *last = "";
    out[0] = '\0';
    for (size_t i = 0; i < COUNT(FAMILIES) && n < size; i++) {
        const char *name = FAMILIES[i].architecture;
        bool again = stem(last) == stem(name) && !strncmp(last, name, stem(name));
        last = name;
        if (!again) n += (size_t)snprintf(out + n, size - n, "%s%.*s", i ? ", " : "", (int)stem(name), name);
    }
}

/* Tables of keys that apply to a family; what an earlier one has overrides a later one's. */
#define N_KEY_TABLES 3
struct key_table {
    const struct hf_key *keys;
    size_t n;
};

static void tables_of(const struct hf_family *family, struct key_table out[N_KEY_TABLES]) {
    out[0] = (struct key_table){family->keys, family->n_keys};
    out[1] = family->encoder ? (struct key_table){ENCODER_KEYS, COUNT(ENCODER_KEYS)}
                             : (struct key_table){DECODER_KEYS, COUNT(DECODER_KEYS)};
    out[2] = (struct key_table){COMMON_KEYS, COUNT(COMMON_KEYS)};
}

static const struct hf_key *find(const struct key_table *t, size_t n, const char *name) {
    for (size_t i = 0; i < n; i++)
        for (size_t k = 0; k < t[i].n; k++)
            if (!strcmp(t[i].keys[k].name, name)) return &t[i].keys[k];
    return NULL;
}

const struct hf_key *hf_key(const struct hf_family *family, const char *name) {
    struct key_table tables[N_KEY_TABLES];
    tables_of(family, tables);
    return find(tables, N_KEY_TABLES, name);
}

const struct hf_key *hf_key_at(const struct hf_family *family, size_t i) {
    struct key_table tables[N_KEY_TABLES];
    tables_of(family, tables);
    for (size_t t = 0, seen = 0; t < N_KEY_TABLES; t++)
        for (size_t k = 0; k < tables[t].n; k++)
            if (!find(tables, t, tables[t].keys[k].name) && seen++ == i) return &tables[t].keys[k];
    return NULL;
}

const char *hf_key_name(const struct hf_family *family, const char *key) {
    size_t n = strlen(family->family);
    const struct hf_key *k;
    if (strncmp(key, family->family, n) || key[n] != '.') return NULL;
    for (size_t i = 0; (k = hf_key_at(family, i)); i++) {
        if (!k->key || strcmp(k->key, key + n + 1)) continue;
        for (const struct hf_alias *a = family->aliases; a && a->theirs; a++)
            if (!strcmp(a->name, k->name)) return a->theirs;
        return k->name;
    }
    return NULL;
}

/* ---- tensors ---- */

/* Of each decoder that has its products apart. */
#define DECODER_PRODUCTS                                                                                     \
    {"self_attn.q_proj.weight", "attn_q.weight", HF_SAME, NULL},                                             \
        {"self_attn.k_proj.weight", "attn_k.weight", HF_SAME, NULL},                                         \
        {"self_attn.v_proj.weight", "attn_v.weight", HF_SAME, NULL},                                         \
        {"self_attn.o_proj.weight", "attn_output.weight", HF_SAME, NULL},                                    \
        {"mlp.gate_proj.weight", "ffn_gate.weight", HF_SAME, NULL},                                          \
        {"mlp.up_proj.weight", "ffn_up.weight", HF_SAME, NULL}, {                                            \
        "mlp.down_proj.weight", "ffn_down.weight", HF_SAME, NULL                                             \
    }
/* Of a layer. What a family does not have is refused when its description is read. post_attention_layernorm
 * is one of two things; see hf_tensors.c. */
static const struct hf_name DECODER_LAYER[] = {
    DECODER_PRODUCTS,
    {"input_layernorm.weight", "attn_norm.weight", HF_SAME, NULL},
    {"pre_feedforward_layernorm.weight", "ffn_norm.weight", HF_SAME, NULL},
    {"post_feedforward_layernorm.weight", "post_ffw_norm.weight", HF_SAME, NULL},
    {"self_attn.qkv_proj.weight", "attn_qkv.weight", HF_SAME, NULL},
    {"self_attn.q_proj.bias", "attn_q.bias", HF_SAME, NULL},
    {"self_attn.k_proj.bias", "attn_k.bias", HF_SAME, NULL},
    {"self_attn.v_proj.bias", "attn_v.bias", HF_SAME, NULL},
    {"self_attn.o_proj.bias", "attn_output.bias", HF_SAME, NULL},
    {"self_attn.q_norm.weight", "attn_q_norm.weight", HF_SAME, NULL},
    {"self_attn.k_norm.weight", "attn_k_norm.weight", HF_SAME, NULL},
    {"self_attn.sinks", "attn_sinks.weight", HF_SAME, NULL},
    {"mlp.gate_up_proj.weight", "ffn_up.weight", HF_SAME, NULL},
    {"mlp.gate_proj.bias", "ffn_gate.bias", HF_SAME, NULL},
    {"mlp.up_proj.bias", "ffn_up.bias", HF_SAME, NULL},
    {"mlp.down_proj.bias", "ffn_down.bias", HF_SAME, NULL},
    {"mlp.gate.weight", "ffn_gate_inp.weight", HF_SAME, NULL},
    {"mlp.experts.*.gate_proj.weight", "ffn_gate_exps.weight", HF_EXPERT, NULL},
    {"mlp.experts.*.up_proj.weight", "ffn_up_exps.weight", HF_EXPERT, NULL},
    {"mlp.experts.*.down_proj.weight", "ffn_down_exps.weight", HF_EXPERT, NULL},
    {"mlp.shared_expert_gate.weight", "ffn_gate_inp_shexp.weight", HF_SAME, NULL},
    {"mlp.shared_expert.gate_proj.weight", "ffn_gate_shexp.weight", HF_SAME, NULL},
    {"mlp.shared_expert.up_proj.weight", "ffn_up_shexp.weight", HF_SAME, NULL},
    {"mlp.shared_expert.down_proj.weight", "ffn_down_shexp.weight", HF_SAME, NULL},
    /* DeepSeek */
    {"self_attn.q_a_proj.weight", "attn_q_a.weight", HF_SAME, NULL},
    {"self_attn.q_a_layernorm.weight", "attn_q_a_norm.weight", HF_SAME, NULL},
    {"self_attn.q_b_proj.weight", "attn_q_b.weight", HF_SAME, NULL},
    {"self_attn.kv_a_proj_with_mqa.weight", "attn_kv_a_mqa.weight", HF_SAME, NULL},
    {"self_attn.kv_a_layernorm.weight", "attn_kv_a_norm.weight", HF_SAME, NULL},
    {"self_attn.kv_b_proj.weight", "attn_kv_b.weight", HF_SAME, NULL},
    {"mlp.gate.e_score_correction_bias", "exp_probs_b.bias", HF_SAME, NULL},
    {"mlp.shared_experts.gate_proj.weight", "ffn_gate_shexp.weight", HF_SAME, NULL},
    {"mlp.shared_experts.up_proj.weight", "ffn_up_shexp.weight", HF_SAME, NULL},
    {"mlp.shared_experts.down_proj.weight", "ffn_down_shexp.weight", HF_SAME, NULL},
    /* Mixtral */
    {"block_sparse_moe.gate.weight", "ffn_gate_inp.weight", HF_SAME, NULL},
    {"block_sparse_moe.experts.*.w1.weight", "ffn_gate_exps.weight", HF_EXPERT, NULL},
    {"block_sparse_moe.experts.*.w3.weight", "ffn_up_exps.weight", HF_EXPERT, NULL},
    {"block_sparse_moe.experts.*.w2.weight", "ffn_down_exps.weight", HF_EXPERT, NULL},
    /* Granite */
    {"block_sparse_moe.router.layer.weight", "ffn_gate_inp.weight", HF_SAME, NULL},
    {"block_sparse_moe.input_linear.weight", "ffn_gate_exps.weight", HF_HALVES, "ffn_up_exps.weight"},
    {"block_sparse_moe.output_linear.weight", "ffn_down_exps.weight", HF_SAME, NULL},
    {"shared_mlp.input_linear.weight", "ffn_gate_shexp.weight", HF_HALVES, "ffn_up_shexp.weight"},
    {"shared_mlp.output_linear.weight", "ffn_down_shexp.weight", HF_SAME, NULL},
    /* GPT-OSS, and experts as transformers 5 keeps them in memory */
    {"mlp.router.weight", "ffn_gate_inp.weight", HF_SAME, NULL},
    {"mlp.router.bias", "ffn_gate_inp.bias", HF_SAME, NULL},
    {"mlp.experts.gate_up_proj_blocks", "ffn_gate_exps.weight", HF_MX_TURNS, "ffn_up_exps.weight"},
    {"mlp.experts.gate_up_proj_scales", NULL, HF_MX_SCALES, NULL},
    {"mlp.experts.gate_up_proj_bias", "ffn_gate_exps.bias", HF_BIAS_TURNS, "ffn_up_exps.bias"},
    {"mlp.experts.gate_up_proj", "ffn_gate_exps.weight", HF_HALVES, "ffn_up_exps.weight"},
    {"mlp.experts.down_proj_blocks", "ffn_down_exps.weight", HF_MX_BLOCKS, NULL},
    {"mlp.experts.down_proj_scales", NULL, HF_MX_SCALES, NULL},
    {"mlp.experts.down_proj_bias", "ffn_down_exps.bias", HF_SAME, NULL},
    {"mlp.experts.down_proj", "ffn_down_exps.weight", HF_SAME, NULL},
};
static const struct hf_name DECODER_MODEL[] = {{"embed_tokens.weight", "token_embd.weight", HF_SAME, NULL},
                                               {"norm.weight", "output_norm.weight", HF_SAME, NULL},
                                               {"lm_head.weight", "output.weight", HF_OUTPUT, NULL}};

#define BOTH(theirs, name)                                                                                   \
    {theirs ".weight", name ".weight", HF_SAME, NULL}, {                                                     \
        theirs ".bias", name ".bias", HF_SAME, NULL                                                          \
    }

static const struct hf_name ENCODER_LAYER[] = {
    BOTH("attention.self.query", "attn_q"),
    BOTH("attention.self.key", "attn_k"),
    BOTH("attention.self.value", "attn_v"),
    BOTH("attention.output.dense", "attn_output"),
    BOTH("attention.output.LayerNorm", "attn_output_norm"),
    BOTH("intermediate.dense", "ffn_up"),
    BOTH("output.dense", "ffn_down"),
    BOTH("output.LayerNorm", "layer_output_norm"),
};
static const struct hf_name ENCODER_MODEL[] = {
    {"embeddings.word_embeddings.weight", "token_embd.weight", HF_SAME, NULL},
    {"embeddings.position_embeddings.weight", "position_embd.weight", HF_POSITIONS, NULL},
    {"embeddings.token_type_embeddings.weight", "token_types.weight", HF_SAME, NULL},
    BOTH("embeddings.LayerNorm", "token_embd_norm"),
};

static const struct hf_names DECODER_NAMES = {.layer = "layers.",
                                              .of_layer = DECODER_LAYER,
                                              .n_of_layer = COUNT(DECODER_LAYER),
                                              .of_model = DECODER_MODEL,
                                              .n_of_model = COUNT(DECODER_MODEL)};
/* As Llama's, but for the names of the norms: those of its makers' code, before they turned to Llama's. */
static const struct hf_name YI_LAYER[] = {
    DECODER_PRODUCTS,
    {"ln1.weight", "attn_norm.weight", HF_SAME, NULL},
    {"ln2.weight", "ffn_norm.weight", HF_SAME, NULL},
};
static const struct hf_names YI_NAMES = {.layer = "layers.",
                                         .of_layer = YI_LAYER,
                                         .n_of_layer = COUNT(YI_LAYER),
                                         .of_model = DECODER_MODEL,
                                         .n_of_model = COUNT(DECODER_MODEL)};
static const struct hf_names ENCODER_NAMES = {.layer = "encoder.layer.",
                                              .of_layer = ENCODER_LAYER,
                                              .n_of_layer = COUNT(ENCODER_LAYER),
                                              .of_model = ENCODER_MODEL,
                                              .n_of_model = COUNT(ENCODER_MODEL)};

static const struct hf_name DISTILBERT_LAYER[] = {
    BOTH("attention.q_lin", "attn_q"),
    BOTH("attention.k_lin", "attn_k"),
    BOTH("attention.v_lin", "attn_v"),
    BOTH("attention.out_lin", "attn_output"),
    BOTH("sa_layer_norm", "attn_output_norm"),
    BOTH("ffn.lin1", "ffn_up"),
    BOTH("ffn.lin2", "ffn_down"),
    BOTH("output_layer_norm", "layer_output_norm"),
};
static const struct hf_names DISTILBERT_NAMES = {.layer = "transformer.layer.",
                                                 .of_layer = DISTILBERT_LAYER,
                                                 .n_of_layer = COUNT(DISTILBERT_LAYER),
                                                 .of_model = ENCODER_MODEL,
                                                 .n_of_model = COUNT(ENCODER_MODEL)};

static const struct hf_name NOMIC_LAYER[] = {
    {"attn.Wqkv.weight", "attn_qkv.weight", HF_SAME, NULL},
    {"attn.out_proj.weight", "attn_output.weight", HF_SAME, NULL},
    BOTH("norm1", "attn_output_norm"),
    {"mlp.fc11.weight", "ffn_up.weight", HF_SAME, NULL},
    {"mlp.fc12.weight", "ffn_gate.weight", HF_SAME, NULL},
    {"mlp.fc2.weight", "ffn_down.weight", HF_SAME, NULL},
    BOTH("norm2", "layer_output_norm"),
};
static const struct hf_name NOMIC_MODEL[] = {
    {"embeddings.word_embeddings.weight", "token_embd.weight", HF_SAME, NULL},
    {"embeddings.token_type_embeddings.weight", "token_types.weight", HF_SAME, NULL},
    BOTH("emb_ln", "token_embd_norm"),
};
static const struct hf_names NOMIC_NAMES = {.layer = "encoder.layers.",
                                            .of_layer = NOMIC_LAYER,
                                            .n_of_layer = COUNT(NOMIC_LAYER),
                                            .of_model = NOMIC_MODEL,
                                            .n_of_model = COUNT(NOMIC_MODEL)};

const struct hf_names *hf_names(const struct hf_family *family) {
    if (family->names) return family->names;
    return family->encoder ? &ENCODER_NAMES : &DECODER_NAMES;
}
