/* Multi-head latent attention as a file describes it. Files have one of two forms: head sizes as the model's
 * makers give them and the matrices of keys and values as one tensor, or (key_length_mla, value_length_mla)
 * head sizes as they are stored and two tensors, that of keys turned around. */
#include "model/spec_impl.h"

#include "base/error.h"

static void need_step(struct spec_reader *r, const char *name, size_t v) {
    spec_need(r, v % SPEC_HEAD_STEP == 0, name, v, "a multiple of 8");
}

/* What the stored form says a second time. */
static void check_stored(struct spec_reader *r, const struct model_spec *s, bool stored) {
    const struct model_latent *l = &s->latent;
    if (!stored) {
        spec_need(r, s->n_kv_heads == s->n_heads, "attention.head_count_kv", s->n_kv_heads,
                  "equal to attention.head_count");
        return;
    }
    size_t key = spec_size_or(r, "attention.key_length", 1, SPEC_MAX_HEAD, l->rank + l->n_rot);
    size_t value = spec_size_or(r, "attention.value_length", 1, SPEC_MAX_HEAD, l->rank);
    spec_need(r, key == l->rank + l->n_rot, "attention.key_length", key,
              "attention.kv_lora_rank and rope.dimension_count together");
    spec_need(r, value == l->rank, "attention.value_length", value, "equal to attention.kv_lora_rank");
    spec_need(r, s->n_kv_heads == 1 || s->n_kv_heads == s->n_heads, "attention.head_count_kv", s->n_kv_heads,
              "1");
}

void spec_read_latent(struct spec_reader *r, struct model_spec *s) {
    struct model_latent *l = &s->latent;
    bool stored = spec_has(r, "attention.key_length_mla");
    const char *key_name = stored ? "attention.key_length_mla" : "attention.key_length";
    const char *value_name = stored ? "attention.value_length_mla" : "attention.value_length";
    l->rank = spec_size(r, "attention.kv_lora_rank", 1, SPEC_MAX_HEAD);
    l->q_rank = spec_size_or(r, "attention.q_lora_rank", 0, SPEC_MAX_EMBD, 0);
    l->n_rot = spec_size(r, "rope.dimension_count", 2, SPEC_MAX_HEAD);
    size_t key = spec_size(r, key_name, 1, SPEC_MAX_HEAD);
    l->value = spec_size(r, value_name, 1, SPEC_MAX_HEAD);
    l->fused = !weights_tensor(r->w, "blk.0.attn_k_b.weight");
    l->norm_eps = r->family->latent_norm_eps;
    spec_need(r, key > l->n_rot, key_name, key, "more than rope.dimension_count");
    spec_need(r, l->rank + l->n_rot <= SPEC_MAX_HEAD, "attention.kv_lora_rank", l->rank,
              "at most 1024 with rope.dimension_count");
    need_step(r, "attention.kv_lora_rank", l->rank);
    need_step(r, "rope.dimension_count", l->n_rot);
    check_stored(r, s, stored);
    if (r->rc) return;
    l->key = key - l->n_rot;
    s->n_kv_heads = 1;
    s->head_dim = l->rank + l->n_rot;
}
