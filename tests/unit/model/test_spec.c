/* Descriptions read from files: good ones by value, wrong ones by the message that names the key or tensor.
 */
#include "model/family.h"
#include "model/model_impl.h"
#include "util/gguf_build.h"
#include "util/tiny_encoder.h"
#include "util/tiny_family.h"
#include "weights/hf.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

/* A llama of one layer, 32 wide, 2 heads of 16, 1 KV head, ff 64, 8 tokens. A key or tensor named in
 * `without` is left out; extra() may add its own. */
struct file {
    const char *without, *arch;
    void (*extra)(struct gguf_build *b);
    uint64_t q_rows; /* 0 = as it should be */
    uint32_t norm_type;
};

static void put_u32(struct gguf_build *b, const struct file *f, const char *key, uint32_t v) {
    if (!f->without || strcmp(f->without, key)) gguf_kv_u32(b, key, v);
}

static void put_tensor(struct gguf_build *b, const struct file *f, const char *name, uint64_t cols,
                       uint64_t rows) {
    uint64_t dims[2] = {cols, rows};
    if (f->without && !strcmp(f->without, name)) return;
    if (rows == 1)
        gguf_tensor(b, name, f->norm_type, 1, dims, NULL, f->norm_type == 2 ? cols / 32 * 18 : cols * 4);
    else
        gguf_tensor(b, name, 0, 2, dims, NULL, cols * rows * 4);
}

static struct weights *open_file(const struct file *f, uint8_t **data) {
    struct gguf_build b = gguf_build_new();
    struct weights *w = NULL;
    struct error err = {0};
    size_t n;
    gguf_kv_str(&b, "general.architecture", f->arch ? f->arch : "llama");
    put_u32(&b, f, "llama.block_count", 1);
    put_u32(&b, f, "llama.context_length", 1000);
    put_u32(&b, f, "llama.embedding_length", 32);
    put_u32(&b, f, "llama.feed_forward_length", 64);
    put_u32(&b, f, "llama.attention.head_count", 2);
    put_u32(&b, f, "llama.attention.head_count_kv", 1);
    if (!f->without || strcmp(f->without, "llama.attention.layer_norm_rms_epsilon"))
        gguf_kv_f32(&b, "llama.attention.layer_norm_rms_epsilon", 1e-5f);
    if (f->extra) f->extra(&b);
    put_tensor(&b, f, "token_embd.weight", 32, 8);
    put_tensor(&b, f, "output_norm.weight", 32, 1);
    put_tensor(&b, f, "blk.0.attn_norm.weight", 32, 1);
    put_tensor(&b, f, "blk.0.attn_q.weight", 32, f->q_rows ? f->q_rows : 32);
    put_tensor(&b, f, "blk.0.attn_k.weight", 32, 16);
    put_tensor(&b, f, "blk.0.attn_v.weight", 32, 16);
    put_tensor(&b, f, "blk.0.attn_output.weight", 32, 32);
    put_tensor(&b, f, "blk.0.ffn_norm.weight", 32, 1);
    put_tensor(&b, f, "blk.0.ffn_gate.weight", 32, 64);
    put_tensor(&b, f, "blk.0.ffn_up.weight", 32, 64);
    put_tensor(&b, f, "blk.0.ffn_down.weight", 64, 32);
    *data = gguf_build_finish(&b, &n);
    if (weights_open_memory(*data, n, &w, &err)) fail_msg("%s", err.text);
    return w;
}

static struct model_spec read_good(struct file f) {
    uint8_t *data;
    struct weights *w = open_file(&f, &data);
    struct model_spec s;
    struct error err = {0};
    if (model_spec_read(w, &s, &err)) fail_msg("%s", err.text);
    weights_close(w);
    free(data);
    return s;
}

static void read_bad(struct file f, int code, const char *words) {
    uint8_t *data;
    struct weights *w = open_file(&f, &data);
    struct model_spec s;
    struct error err = {0};
    assert_int_equal(model_spec_read(w, &s, &err), code);
    if (!strstr(err.text, words)) fail_msg("\"%s\" does not say \"%s\"", err.text, words);
    weights_close(w);
    free(data);
}

static void sizes_and_defaults(void **state) {
    struct model_spec s = read_good((struct file){0});
    assert_string_equal(s.family, "llama");
    assert_int_equal(s.n_layers, 1);
    assert_int_equal(s.n_vocab, 8);
    assert_int_equal(s.head_dim, 16);
    assert_int_equal(s.ropes[0].n_rot, 16);
    assert_true(s.ropes[0].interleaved && s.ropes[0].scaling == ROPE_NONE && s.ropes[0].base == 10000.0);
    assert_true(s.tied_output && s.attn_scale == 0.25f && s.norm_eps == 1e-5f);
    assert_int_equal(s.n_kv_groups, 1);
    assert_int_equal(s.kv_groups[0].window, 0);
    assert_int_equal(model_kv_bytes_per_token(&s, BACKEND_BF16), 1 * 2 * 16 * 2);
    assert_int_equal(model_kv_bytes_per_token(&s, BACKEND_F32), 1 * 2 * 16 * 4);
    struct backend_kv_layout l = model_kv_layout(&s, 32, BACKEND_F16);
    assert_true(l.n_groups == 1 && l.block_tokens == 32 && l.dtype == BACKEND_F16);
    assert_true(l.groups[0].n_layers == 1 && l.groups[0].n_kv_heads == 1 && l.groups[0].head_dim == 16);
}

static void missing_parts(void **state) {
    const char *const keys[] = {"llama.block_count",          "llama.context_length",
                                "llama.embedding_length",     "llama.feed_forward_length",
                                "llama.attention.head_count", "llama.attention.layer_norm_rms_epsilon"};
    for (size_t i = 0; i < 6; i++) {
        uint8_t *data;
        struct file f = {.without = keys[i]};
        struct weights *w = open_file(&f, &data);
        struct model_spec s;
        struct error err = {0};
        assert_true(model_spec_read(w, &s, &err) < 0);
        assert_non_null(strstr(err.text, keys[i]));
        weights_close(w);
        free(data);
    }
    const char *const tensors[] = {"token_embd.weight",       "output_norm.weight",  "blk.0.attn_norm.weight",
                                   "blk.0.attn_q.weight",     "blk.0.attn_k.weight", "blk.0.attn_v.weight",
                                   "blk.0.ffn_gate.weight",   "blk.0.ffn_up.weight", "blk.0.ffn_down.weight",
                                   "blk.0.attn_output.weight"};
    for (size_t i = 0; i < 10; i++)
        if (strcmp(tensors[i], "token_embd.weight"))
            read_bad((struct file){.without = tensors[i]}, QUIRE_EFORMAT, tensors[i]);
    read_bad((struct file){.without = "token_embd.weight"}, QUIRE_EFORMAT, "vocab_size");
}

static void no_epsilon_range(struct gguf_build *b) {
    gguf_kv_f32(b, "llama.rope.freq_base", 0.5f);
}
static void experts(struct gguf_build *b) {
    gguf_kv_u32(b, "llama.expert_count", 8);
}
static void no_experts(struct gguf_build *b) {
    gguf_kv_u32(b, "llama.expert_count", 0);
    gguf_kv_f32(b, "llama.logit_scale", 1.0f);
    gguf_kv_bool(b, "llama.attention.causal", true);
    gguf_kv_str(b, "llama.tensor_data_layout", "Meta AI original pth");
    gguf_kv_u32(b, "other.unknown", 3);
}
static void not_causal(struct gguf_build *b) {
    gguf_kv_bool(b, "llama.attention.causal", false);
}
static void unknown_key(struct gguf_build *b) {
    gguf_kv_u32(b, "llama.attention.twist", 1);
}
static void vocab_differs(struct gguf_build *b) {
    gguf_kv_u32(b, "llama.vocab_size", 9);
}
static void rot_odd(struct gguf_build *b) {
    gguf_kv_u32(b, "llama.rope.dimension_count", 7);
}
static void rot_wide(struct gguf_build *b) {
    gguf_kv_u32(b, "llama.rope.dimension_count", 18);
}
static void values_differ(struct gguf_build *b) {
    gguf_kv_u32(b, "llama.attention.key_length", 16);
    gguf_kv_u32(b, "llama.attention.value_length", 8);
}
static void odd_head(struct gguf_build *b) {
    gguf_kv_u32(b, "llama.attention.key_length", 20);
}
static void scaling_type(struct gguf_build *b) {
    gguf_kv_str(b, "llama.rope.scaling.type", "longrope");
}
static void yarn_lacks_length(struct gguf_build *b) {
    gguf_kv_str(b, "llama.rope.scaling.type", "yarn");
    gguf_kv_f32(b, "llama.rope.scaling.factor", 4.0f);
}
static void factor_range(struct gguf_build *b) {
    gguf_kv_str(b, "llama.rope.scaling.type", "linear");
    gguf_kv_f32(b, "llama.rope.scaling.factor", -1.0f);
}
static void heads_of_another_type(struct gguf_build *b) {
    gguf_kv_str(b, "llama.attention.key_length", "wide");
}
static void stray_tensor(struct gguf_build *b) {
    uint64_t dims[] = {16};
    gguf_tensor(b, "blk.0.attn_q_norm.weight", 0, 1, dims, NULL, 64);
}
static void stray_layer(struct gguf_build *b) {
    uint64_t dims[] = {32};
    gguf_tensor(b, "blk.1.attn_norm.weight", 0, 1, dims, NULL, 128);
}
static void odd_layer_number(struct gguf_build *b) {
    uint64_t dims[] = {32};
    gguf_tensor(b, "blk.00.attn_norm.weight", 0, 1, dims, NULL, 128);
}

static void wrong_values(void **state) {
    read_good((struct file){.extra = no_experts});
    read_bad((struct file){.arch = "gpt-9"}, QUIRE_EUNSUPPORTED, "\"gpt-9\": known are llama");
    read_bad((struct file){.extra = no_epsilon_range}, QUIRE_EFORMAT, "llama.rope.freq_base = 0.5");
    read_bad((struct file){.extra = experts}, QUIRE_ENOTFOUND, "llama.expert_used_count");
    read_bad((struct file){.extra = not_causal}, QUIRE_EUNSUPPORTED, "llama.attention.causal = 0");
    read_bad((struct file){.extra = unknown_key}, QUIRE_EUNSUPPORTED, "llama.attention.twist");
    read_bad((struct file){.extra = vocab_differs}, QUIRE_EFORMAT, "token_embd.weight: shape 32 x 8");
    read_bad((struct file){.extra = rot_odd}, QUIRE_EFORMAT, "llama.rope.dimension_count = 7");
    read_bad((struct file){.extra = rot_wide}, QUIRE_EFORMAT, "llama.rope.dimension_count = 18");
    read_bad((struct file){.extra = values_differ}, QUIRE_EFORMAT, "llama.attention.value_length = 8");
    read_bad((struct file){.extra = odd_head}, QUIRE_EFORMAT, "llama.attention.key_length = 20");
    read_bad((struct file){.extra = scaling_type}, QUIRE_EUNSUPPORTED,
             "\"longrope\": allowed are none, linear, dynamic, yarn");
    read_bad((struct file){.extra = yarn_lacks_length}, QUIRE_ENOTFOUND, "original_context_length");
    read_bad((struct file){.extra = factor_range}, QUIRE_EFORMAT, "llama.rope.scaling.factor = -1");
    read_bad((struct file){.extra = heads_of_another_type}, QUIRE_EFORMAT, "llama.attention.key_length");
    read_bad((struct file){.extra = stray_tensor}, QUIRE_EUNSUPPORTED, "blk.0.attn_q_norm.weight");
    read_bad((struct file){.extra = stray_layer}, QUIRE_EUNSUPPORTED, "blk.1.attn_norm.weight");
    read_bad((struct file){.extra = odd_layer_number}, QUIRE_EUNSUPPORTED, "blk.00.attn_norm.weight");
    read_bad((struct file){.q_rows = 48}, QUIRE_EFORMAT, "blk.0.attn_q.weight: shape 32 x 48");
    read_bad((struct file){.norm_type = 2}, QUIRE_EUNSUPPORTED, "Q4_0; a vector must be F32");
}

static void window_key(struct gguf_build *b) {
    gguf_kv_u32(b, "llama.attention.sliding_window", 128);
}
static void wide_window_key(struct gguf_build *b) {
    gguf_kv_u32(b, "llama.attention.sliding_window", 4096);
}

static void windows(void **state) {
    struct model_spec s = read_good((struct file){.extra = window_key});
    assert_int_equal(s.kv_groups[0].window, 128);
    assert_int_equal(s.layers[0].window, 128);
    s = read_good((struct file){.extra = wide_window_key});
    assert_int_equal(s.layers[0].window, 0); /* wider than any sequence */
}

/* ---- families ---- */

static struct model_spec read_family(const char *variant) {
    size_t n;
    struct model_spec s;
    struct error err = {0};
    struct weights *w;
    void *data = tiny_family_memory(variant, 0, 1, &n);
    assert_non_null(data);
    if (weights_open_memory(data, n, &w, &err)) fail_msg("%s", err.text);
    if (model_spec_read(w, &s, &err)) fail_msg("%s: %s", variant, err.text);
    weights_close(w);
    free(data);
    return s;
}

/* Every layer is in a group of its kind, once, and no group holds more than its page has room for. */
static void check_groups(const struct model_spec *s, size_t n_groups, size_t per_group) {
    bool taken[BATCH_MAX_GROUPS][MODEL_MAX_LAYERS] = {{false}};
    assert_int_equal(s->n_kv_groups, n_groups);
    for (size_t i = 0; i < s->n_layers; i++) {
        const struct model_layer *l = &s->layers[i];
        assert_true(l->kv_group < n_groups && l->kv_layer < s->kv_groups[l->kv_group].n_layers);
        assert_int_equal(s->kv_groups[l->kv_group].window, l->window);
        assert_false(taken[l->kv_group][l->kv_layer]);
        taken[l->kv_group][l->kv_layer] = true;
    }
    size_t most = 0, total = 0;
    for (size_t g = 0; g < n_groups; g++) {
        size_t n = s->kv_groups[g].n_layers;
        total += n;
        most = n > most ? n : most;
    }
    assert_int_equal(total, s->n_layers);
    assert_int_equal(most, per_group);
}

static void layers_of_two_kinds(void **state) {
    struct model_spec s = read_family("gemma3");
    for (size_t i = 0; i < 8; i++) assert_int_equal(s.layers[i].window, i == 5 ? 0 : 40);
    assert_true(s.layers[5].rope == 0 && s.layers[4].rope == 1);
    assert_true(s.ropes[0].base == 1e6 && s.ropes[0].scaling == ROPE_LINEAR && s.ropes[1].base == 10000.0 &&
                s.ropes[1].scaling == ROPE_NONE);
    assert_true(fabsf(s.embed_scale - sqrtf(96.0f)) < 1e-6f);
    check_groups(&s, 8, 1);
    s = read_family("gpt-oss");
    assert_true(s.layers[0].window == 40 && s.layers[1].window == 0 && s.layers[0].rope == 0);
    assert_true(s.layers[0].routed && s.experts.gating == BACKEND_GATE_SELECTED && s.ropes[0].fractional);
    check_groups(&s, 2, 2);
    s = read_family("olmo3"); /* the pattern is given layer by layer */
    assert_true(s.layers[3].window == 0 && s.layers[4].window == 40 && s.layers[4].rope == 1);
    check_groups(&s, 5, 1);
    s = read_family("smollm3");
    for (size_t i = 0; i < 5; i++) assert_int_equal(s.layers[i].rope, i == 3 ? MODEL_NO_ROPE : 0);
    check_groups(&s, 1, 5);
    s = read_family("qwen2moe");
    assert_true(!s.experts.normalise && s.experts.n == 8 && s.experts.n_used == 3 && s.experts.ff == 64 &&
                s.experts.shared_ff == 192);
}

/* Both forms of a file describe the same rows; a token takes one row a layer, whatever the number of heads.
 */
static void latent_attention(void **state) {
    static const char *const variants[] = {"deepseek2-lite", "deepseek3"};
    for (size_t i = 0; i < 2; i++) {
        struct model_spec s = read_family(variants[i]);
        assert_true(s.n_heads == 4 && s.n_kv_heads == 1 && s.head_dim == 64 + 16 && s.latent.rank == 64);
        assert_true(s.latent.key == 32 && s.latent.n_rot == 16 && s.latent.value == 24 &&
                    s.latent.fused == !i);
        assert_int_equal(s.latent.q_rank, i ? 64 : 0);
        assert_int_equal(model_kv_bytes_per_token(&s, BACKEND_BF16), s.n_layers * (64 + 16) * 2);
        assert_true(model_kv_layout(&s, 16, BACKEND_BF16).rows);
        assert_true(!s.layers[0].routed && s.layers[1].routed && s.layers[2].routed);
        assert_int_equal(s.experts.shared_ff, i ? 64 : 128);
        assert_int_equal(s.experts.gating, i ? BACKEND_GATE_SIGMOID : BACKEND_GATE_SOFTMAX);
        assert_int_equal(s.experts.group_best, i ? 2 : 0);
        assert_true(s.ropes[0].interleaved);
    }
    /* DeepSeek-V2's softmax_scale: 1 / sqrt(192) times the square of 0.1 * 0.707 * ln(40) + 1; here of
     * 48, 32. */
    struct model_spec s = read_family("deepseek2");
    double m = 0.1 * 0.707 * log(32.0) + 1.0;
    assert_true(fabs(s.attn_scale - m * m / sqrt(48.0)) < 1e-6);
    assert_true(fabs(s.ropes[0].attn_factor * (0.1 * log(32.0) + 1.0) - 1.0) < 1e-6);
}

/* The configuration of DeepSeek-V3 as it is published, but for what says nothing here. */
static const char DEEPSEEK3[] =
    "{\"architectures\":[\"DeepseekV3ForCausalLM\"],\"attention_bias\":false,\"aux_loss_alpha\":0.001,"
    "\"ep_size\":1,\"first_k_dense_replace\":3,\"hidden_act\":\"silu\",\"hidden_size\":7168,"
    "\"intermediate_size\":18432,\"kv_lora_rank\":512,\"max_position_embeddings\":163840,"
    "\"moe_intermediate_size\":2048,\"moe_layer_freq\":1,\"n_group\":8,\"n_routed_experts\":256,"
    "\"n_shared_experts\":1,\"norm_topk_prob\":true,\"num_attention_heads\":128,\"num_experts_per_tok\":8,"
    "\"num_hidden_layers\":61,\"num_key_value_heads\":128,\"num_nextn_predict_layers\":1,"
    "\"q_lora_rank\":1536,\"qk_nope_head_dim\":128,\"qk_rope_head_dim\":64,\"rms_norm_eps\":1e-06,"
    "\"rope_scaling\":{\"beta_fast\":32,\"beta_slow\":1,\"factor\":40,\"mscale\":1.0,\"mscale_all_dim\":1.0,"
    "\"original_max_position_embeddings\":4096,\"type\":\"yarn\"},\"rope_theta\":10000,"
    "\"routed_scaling_factor\":2.5,\"scoring_func\":\"sigmoid\",\"seq_aux\":true,"
    "\"tie_word_embeddings\":false,\"topk_group\":4,\"topk_method\":\"noaux_tc\",\"v_head_dim\":128,"
    "\"vocab_size\":129280}";

/* 576 elements a layer and token (arXiv 2412.19437, section 4.2: d_c 512, d_h^R 64). */
static void the_published_deepseek3(void **state) {
    struct weights *w;
    struct model_spec s;
    struct error err = {0};
    if (hf_open_config(DEEPSEEK3, strlen(DEEPSEEK3), &w, &err)) fail_msg("%s", err.text);
    if (model_spec_describe(w, &s, &err)) fail_msg("%s", err.text);
    assert_true(s.head_dim == 576 && s.latent.key == 128 && s.latent.n_rot == 64 && s.latent.value == 128);
    assert_int_equal(model_kv_bytes_per_token(&s, BACKEND_BF16), 61 * 576 * 2);
    assert_true(s.context_len == 163840 && !s.layers[2].routed && s.layers[3].routed && s.latent.fused);
    assert_true(s.experts.n == 256 && s.experts.n_used == 8 && s.experts.n_groups == 8 &&
                s.experts.normalise && s.experts.n_groups_used == 4 && s.experts.group_best == 2 &&
                s.experts.scale == 2.5f);
    double m = 0.1 * log(40.0) + 1.0;
    assert_true(fabs(s.attn_scale - m * m / sqrt(192.0)) < 1e-7);
    assert_true(fabs(s.ropes[0].attn_factor * m - 1.0) < 1e-12 && s.ropes[0].interleaved);
    weights_close(w);
}

/* The file of a variant with u32 `key` changed. */
static void read_changed(const char *variant, const char *key, uint32_t v, int code, const char *words) {
    size_t n, n_key = strlen(key);
    uint8_t *data = tiny_family_memory(variant, 0, 1, &n), *at = data;
    struct weights *w;
    struct model_spec s;
    struct error err = {0};
    while (at + n_key < data + n && memcmp(at, key, n_key)) at++;
    memcpy(at + n_key + 4, &v, sizeof v); /* behind the type */
    assert_int_equal(weights_open_memory(data, n, &w, &err), 0);
    assert_int_equal(model_spec_read(w, &s, &err), code);
    if (!strstr(err.text, words)) fail_msg("\"%s\" does not say \"%s\"", err.text, words);
    weights_close(w);
    free(data);
}

/* The text model of one that also sees, and a file of the same family. */
static void queries_that_grow(void **state) {
    static const char config[] =
        "{\"architectures\":[\"Mistral3ForConditionalGeneration\"],\"model_type\":\"mistral3\",\"text_"
        "config\":"
        "{\"model_type\":\"ministral3\",\"head_dim\":128,\"hidden_size\":3072,\"intermediate_size\":9216,"
        "\"max_position_embeddings\":262144,\"num_attention_heads\":32,\"num_hidden_layers\":26,"
        "\"num_key_value_heads\":8,\"rope_parameters\":{\"beta_fast\":32,\"beta_slow\":1,\"factor\":16,"
        "\"llama_4_scaling_beta\":0.1,\"mscale\":1,\"mscale_all_dim\":1,"
        "\"original_max_position_embeddings\":16384,\"rope_theta\":1000000,\"rope_type\":\"yarn\"},"
        "\"sliding_window\":null,\"vocab_size\":131072}}";
    struct weights *w;
    struct error err = {0};
    struct model_spec s;
    if (hf_open_config(config, strlen(config), &w, &err)) fail_msg("%s", err.text);
    if (model_spec_describe(w, &s, &err)) fail_msg("%s", err.text);
    assert_true(!strcmp(s.family, "mistral3") && s.context_len == 262144 && s.n_kv_groups == 1);
    assert_true(s.attn_temperature == 0.1f && s.temperature_step == 16384);
    assert_true(fabs(s.ropes[0].attn_factor * (0.1 * log(16.0) + 1.0) - 1.0) < 1e-12);
    weights_close(w);

    s = read_family("mistral3");
    assert_true(s.attn_temperature == 0.3f && s.temperature_step == 16);
    assert_true(fabs(s.ropes[0].attn_factor * (0.1 * log(8.0) + 1.0) - 1.0) < 1e-6);
    uint32_t huge;
    memcpy(&huge, &(float){1e9f}, sizeof huge);
    read_changed("mistral3", "mistral3.attention.temperature_scale", huge, QUIRE_EFORMAT,
                 "mistral3.attention.temperature_scale = 1e+09: allowed are 0 to 10");
}

static void wrong_latents(void **state) {
    read_changed("deepseek3", "deepseek2.attention.kv_lora_rank", 60, QUIRE_EFORMAT, "a multiple of 8");
    read_changed("deepseek3", "deepseek2.attention.kv_lora_rank", 1016, QUIRE_EFORMAT, "at most 1024");
    read_changed("deepseek3", "deepseek2.attention.kv_lora_rank", 72, QUIRE_EFORMAT,
                 "attention.key_length = 80");
    read_changed("deepseek3", "deepseek2.attention.value_length_mla", 32, QUIRE_EFORMAT,
                 "attn_v_b.weight: shape");
    read_changed("deepseek3", "deepseek2.rope.dimension_count", 48, QUIRE_EFORMAT,
                 "attention.key_length_mla = 48: must be more than");
    read_changed("deepseek2-lite", "deepseek2.attention.head_count_kv", 2, QUIRE_EFORMAT,
                 "equal to attention.head_count");
    read_changed("deepseek3", "deepseek2.expert_group_count", 5, QUIRE_EFORMAT, "a divisor of expert_count");
    read_changed("deepseek3", "deepseek2.expert_group_count", 16, QUIRE_EFORMAT, "a divisor of expert_count");
    read_changed("deepseek3", "deepseek2.expert_group_used_count", 5, QUIRE_EFORMAT, "1 to 4");
    read_changed("deepseek3", "deepseek2.expert_used_count", 9, QUIRE_EFORMAT, "expert_group_used_count = 2");
    read_changed("deepseek3", "deepseek2.expert_gating_func", 4, QUIRE_EFORMAT, "2 (sigmoid)");
    read_changed("deepseek3", "deepseek2.leading_dense_block_count", 2, QUIRE_EUNSUPPORTED,
                 "not part of a layer without experts");
    read_changed("deepseek3-fused", "deepseek2.leading_dense_block_count", 0, QUIRE_EUNSUPPORTED,
                 "not part of a layer with experts");
}

static void too_many_used(struct gguf_build *b) {
    gguf_kv_u32(b, "llama.expert_count", 8);
    gguf_kv_u32(b, "llama.expert_used_count", 9);
}
static void sigmoid_gating(struct gguf_build *b) {
    gguf_kv_u32(b, "llama.expert_count", 8);
    gguf_kv_u32(b, "llama.expert_used_count", 2);
    gguf_kv_u32(b, "llama.expert_gating_func", 2);
}
static void dense_tensors(struct gguf_build *b) {
    gguf_kv_u32(b, "llama.expert_count", 8);
    gguf_kv_u32(b, "llama.expert_used_count", 2);
}
static void stray_experts(struct gguf_build *b) {
    uint64_t dims[] = {32, 8};
    gguf_tensor(b, "blk.0.ffn_gate_inp.weight", 0, 2, dims, NULL, 32 * 8 * 4);
}
static void short_pattern(struct gguf_build *b) {
    gguf_kv_u32(b, "llama.attention.sliding_window", 128);
    gguf_kv_array(b, "llama.attention.sliding_window_pattern", 7, 2);
    gguf_bytes_put(&b->kv, (const uint8_t[]){1, 0}, 2);
}
static void soft_cap(struct gguf_build *b) {
    gguf_kv_f32(b, "llama.final_logit_softcapping", 30.0f);
}
static void one_set_of_factors(struct gguf_build *b) {
    uint64_t dims[] = {8};
    gguf_tensor(b, "rope_factors_long.weight", 0, 1, dims, NULL, 32);
}

static void wrong_families(void **state) {
    read_bad((struct file){.extra = too_many_used}, QUIRE_EFORMAT, "llama.expert_used_count");
    read_bad((struct file){.extra = sigmoid_gating}, QUIRE_EFORMAT,
             "llama.expert_gating_func = 2: must be 1");
    read_bad((struct file){.extra = dense_tensors}, QUIRE_EUNSUPPORTED,
             "blk.0.ffn_gate.weight: not part of a layer with experts");
    read_bad((struct file){.extra = stray_experts}, QUIRE_EUNSUPPORTED,
             "blk.0.ffn_gate_inp.weight: not part of a layer without experts");
    read_bad((struct file){.extra = short_pattern}, QUIRE_EFORMAT,
             "llama.attention.sliding_window_pattern: 2 values of type bool");
    read_bad((struct file){.extra = soft_cap}, QUIRE_EUNSUPPORTED, "llama.final_logit_softcapping = 30");
    read_bad((struct file){.extra = one_set_of_factors}, QUIRE_EUNSUPPORTED, "come together");
}

/* ---- angles ---- */

static void angles(void **state) {
    struct model_rope r = {.base = 10000.0, .n_rot = 64, .scaling = ROPE_NONE};
    double plain[32], f[32];
    float factors[32], table[3 * 64];
    rope_frequencies(plain, &r, NULL, 100);
    assert_true(plain[0] == 1.0 && fabs(plain[16] - 0.01) < 1e-15);
    rope_fill(table, 0, 3, &r, plain);
    assert_true(table[0] == 1.0f && table[32] == 0.0f);
    assert_true(table[2 * 64 + 16] == (float)cos(0.02) && table[2 * 64 + 48] == (float)sin(0.02));

    r.scaling = ROPE_LINEAR;
    r.factor = 4.0;
    rope_frequencies(f, &r, NULL, 100);
    for (size_t i = 0; i < 32; i++) assert_true(fabs(f[i] - plain[i] / 4.0) < 1e-15);

    r.scaling = ROPE_DYNAMIC; /* as it is up to the original length; test_folders.c has what lies beyond */
    r.original_context = 100;
    rope_frequencies(f, &r, NULL, 100);
    assert_memory_equal(f, plain, sizeof f);
    rope_frequencies(f, &r, NULL, 101);
    assert_true(f[0] == 1.0 && f[1] < plain[1] && f[31] < plain[31]);

    r.scaling = ROPE_FACTORS;
    for (size_t i = 0; i < 32; i++) factors[i] = 1.0f + (float)i;
    rope_frequencies(f, &r, factors, 100);
    for (size_t i = 0; i < 32; i++) assert_true(fabs(f[i] - plain[i] / (1.0 + (double)i)) < 1e-15);
}

/* transformers 4.44, _compute_yarn_parameters: head_dim 64, base 10000, factor 4, original context 2048;
 * pairs 0, 10, 16, 20 and 31, and the attention factor. */
static void yarn_angles(void **state) {
    struct model_rope r = {.base = 10000.0,
                           .n_rot = 64,
                           .scaling = ROPE_YARN,
                           .factor = 4.0,
                           .original_context = 2048,
                           .attn_factor = 1.0,
                           .beta_fast = 32.0,
                           .beta_slow = 1.0,
                           .ext_factor = 1.0};
    const struct {
        size_t pair;
        double frequency;
    } expected[] = {{0, 1.0},
                    {10, 0.049745574593544006},
                    {16, 0.005384615156799555},
                    {20, 0.0009730085730552673},
                    {31, 3.333803761051968e-05}};
    double f[32];
    float table[64];
    rope_frequencies(f, &r, NULL, 100);
    for (size_t i = 0; i < sizeof expected / sizeof expected[0]; i++)
        assert_true(fabs(f[expected[i].pair] - expected[i].frequency) < 2e-7 * expected[i].frequency);
    rope_fill(table, 0, 1, &r, f);
    assert_true(fabs(table[0] - 1.138629436111989) < 1e-6);
}

/* ---- encoders ---- */

/* The file with the first `from` replaced by `to`, of the same length; n: of both. */
static int read_encoder(const char *variant, const char *from, const char *to, size_t n, struct model_spec *s,
                        struct error *err) {
    size_t n_bytes, i = 0;
    struct weights *w;
    char *data = tiny_encoder_memory(variant, 0, 1, &n_bytes);
    assert_non_null(data);
    while (from && i + n <= n_bytes && memcmp(data + i, from, n)) i++;
    assert_true(i + n <= n_bytes);
    if (from) memcpy(data + i, to, n);
    if (weights_open_memory(data, n_bytes, &w, err)) fail_msg("%s", err->text);
    int rc = model_spec_read(w, s, err);
    weights_close(w);
    free(data);
    return rc;
}

static void bad_encoder(const char *from, const char *to, size_t n, int code, const char *says) {
    struct model_spec s;
    struct error err = {0};
    assert_int_equal(read_encoder("cross", from, to, n, &s, &err), code);
    if (!strstr(err.text, says)) fail_msg("\"%s\" does not say \"%s\"", err.text, says);
}

static void encoders(void **state) {
    struct model_spec s;
    struct error err = {0};
    assert_int_equal(read_encoder("bert", NULL, NULL, 0, &s, &err), 0);
    assert_true(s.encoder && !s.n_ropes && s.pooling == MODEL_POOL_MEAN && !s.n_labels &&
                s.n_token_types == 2);
    assert_int_equal(s.n_kv_groups, 1);
    assert_int_equal(s.kv_groups[0].n_layers, 1); /* whatever their number */
    assert_true(s.layers[1].kv_layer == 0 && s.layers[1].rope == MODEL_NO_ROPE);
    assert_int_equal(read_encoder("xlmr", NULL, NULL, 0, &s, &err), 0);
    assert_true(!s.pooling && s.n_labels == 1 && s.n_token_types == 1);
    assert_int_equal(model_default_pooling(&s, false), MODEL_POOL_RANK);
#define BAD(from, to, code, says) bad_encoder(from, to, sizeof(to) - 1, code, says)
    BAD("bert.attention.causal\7\0\0\0\0", "bert.attention.causal\7\0\0\0\1", QUIRE_EUNSUPPORTED,
        "bert.attention.causal = 1");
    BAD("bert.pooling_type\4\0\0\0\4", "bert.pooling_type\4\0\0\0\5", QUIRE_EFORMAT, "bert.pooling_type");
    BAD("bert.pooling_type", "bert.rooling_type", QUIRE_EUNSUPPORTED, "bert.rooling_type");
    BAD("bert.pooling_type", "bert.rope.1234567", QUIRE_EUNSUPPORTED, "bert.rope.1234567");
    BAD("bert.attention.layer_norm_epsilon", "xert.attention.layer_norm_epsilon", QUIRE_EFORMAT,
        "bert.attention.layer_norm_epsilon is missing");
    BAD("position_embd.weight", "position_embe.weight", QUIRE_EUNSUPPORTED, "position_embe.weight");
    BAD("cls.output.weight", "clt.output.weight", QUIRE_EFORMAT, "pooling_type = 4");
    BAD("blk.0.ffn_up.bias", "blk.0.ffn_xx.bias", QUIRE_EUNSUPPORTED, "blk.0.ffn_xx.bias");
    BAD("blk.0.attn_output_norm.bias", "blk.0.attn_output_norm.bixx", QUIRE_EUNSUPPORTED, "bixx");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(encoders),
        cmocka_unit_test(sizes_and_defaults),
        cmocka_unit_test(missing_parts),
        cmocka_unit_test(wrong_values),
        cmocka_unit_test(windows),
        cmocka_unit_test(layers_of_two_kinds),
        cmocka_unit_test(wrong_families),
        cmocka_unit_test(latent_attention),
        cmocka_unit_test(queries_that_grow),
        cmocka_unit_test(wrong_latents),
        cmocka_unit_test(the_published_deepseek3),
        cmocka_unit_test(angles),
        cmocka_unit_test(yarn_angles),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
