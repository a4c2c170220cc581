/* DeepSeek-V2 and V3: what their config.json says of latent attention, of groups of experts, and of layers
 * that are not the model's own. Meaning: modeling_deepseek_v2.py and modeling_deepseek_v3.py of transformers.
 */
#include "weights/hf_impl.h"

#include <string.h>

static uint64_t size_of(struct hf_reader *r, const char *name, uint64_t max) {
    return hf_size(r, r->config, name, 0, max, (uint64_t)hf_key(r->family, name)->preset);
}

/* Left out is the preset, null is none. */
static void read_query_rank(struct hf_reader *r) {
    const json_t *v = json_object_get(r->config, "q_lora_rank");
    if (v && json_is_null(v)) return;
    uint64_t rank = size_of(r, "q_lora_rank", UINT32_MAX);
    if (rank) hf_put_u64(r, "attention.q_lora_rank", "q_lora_rank", rank);
}

/* DeepSeek-V2 limits a token's experts to groups only if topk_method says so. */
static void read_groups(struct hf_reader *r) {
    const char *method = json_string_value(hf_get(r->config, "topk_method"));
    if (!r->family->sigmoid_router && !(method && !strcmp(method, "group_limited_greedy"))) return;
    hf_put_u64(r, "expert_group_count", "n_group", size_of(r, "n_group", UINT32_MAX));
    hf_put_u64(r, "expert_group_used_count", "topk_group", size_of(r, "topk_group", UINT32_MAX));
}

/* Layers behind the last that predict further tokens; the reference does not load them either. */
static void note_unused_layers(struct hf_reader *r) {
    if (!hf_key(r->family, "num_nextn_predict_layers")) return;
    r->n_unused = (size_t)size_of(r, "num_nextn_predict_layers", HF_MAX_LAYERS);
}

void hf_read_latent(struct hf_reader *r) {
    uint64_t key = size_of(r, "qk_nope_head_dim", UINT16_MAX),
             rot = size_of(r, "qk_rope_head_dim", UINT16_MAX);
    hf_put_u64(r, "attention.key_length", "qk_nope_head_dim + qk_rope_head_dim", key + rot);
    hf_put_u64(r, "expert_gating_func", "scoring_func", r->family->sigmoid_router ? 2 : 1);
    read_query_rank(r);
    read_groups(r);
    note_unused_layers(r);
}
