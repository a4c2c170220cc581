/* Folders of Hugging Face that are wrong: every fault is one line that names the file and the key. Those that
 * are right are compared with transformers in unit/model/test_folders.c. */
#include "util_file.h"

#include "util/alloc_fail.h"
#include "weights/hf.h"
#include "weights/weights.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

/* ---- safetensors ---- */

/* A file with this header and n_data bytes of data; malloc'd. */
static uint8_t *make_file(const char *header, size_t n_data, size_t *n) {
    uint64_t n_header = strlen(header);
    *n = 8 + n_header + n_data;
    uint8_t *file = calloc(1, *n);
    assert_non_null(file);
    memcpy(file, &n_header, 8);
    memcpy(file + 8, header, n_header);
    for (size_t i = 0; i < n_data; i++) file[8 + n_header + i] = (uint8_t)(i * 7);
    return file;
}

static void expect_error(int rc, const struct error *err, int code, const char *says) {
    if (rc != code || !strstr(err->text, says))
        fail_msg("%d (%s), expected %d (%s)", rc, err->text, code, says);
    assert_int_equal(err->code, code);
    assert_null(strchr(err->text, '\n'));
}

#define T(name, dtype, shape, begin, end)                                                                    \
    "\"" name "\":{\"dtype\":\"" dtype "\",\"shape\":" shape ",\"data_offsets\":[" begin "," end "]}"

static void tensors_as_described(void **state) {
    size_t n;
    struct error err = {0};
    struct weights *w = NULL;
    uint8_t got[8];
    uint8_t *file =
        make_file("{\"__metadata__\":{\"format\":\"pt\"}," T("b", "BF16", "[2,3]", "8", "20") "," T(
                      "a", "F32", "[2]", "0", "8") "," T("s", "F8_E5M2", "[]", "20", "21") "}   ",
                  21, &n);
    if (hf_open_tensors(file, n, &w, &err)) fail_msg("%s", err.text);
    assert_int_equal(weights_n_tensors(w), 3);
    const struct tensor *b = weights_tensor(w, "b"), *s = weights_tensor(w, "s");
    assert_true(b->type == TENSOR_BF16 && b->n_dims == 2 && b->dims[0] == 3 && b->dims[1] == 2);
    assert_true(b->row_bytes == 6 && b->bytes == 12);
    assert_true(s->type == TENSOR_F8_E5M2 && s->n_dims == 1 && s->dims[0] == 1 && s->bytes == 1);
    assert_int_equal(weights_read(w, b, 4, 8, got, &err), 0);
    assert_memory_equal(got, file + n - 21 + 12, 8);
    weights_close(w);
    free(file);
}

static void bad_tensors(void **state) {
    static const struct {
        const char *header;
        size_t n_data;
        int code;
        const char *says;
    } cases[] = {
        {"[]", 0, QUIRE_EFORMAT, "its header: it must be a JSON object"},
        {"{\"a\":1", 0, QUIRE_EFORMAT, "its header: line 1"},
        {"{\"a\":1}", 0, QUIRE_EFORMAT, "tensor \"a\": its description must be an object"},
        {"{\"__metadata__\":[]}", 0, QUIRE_EFORMAT, "__metadata__ must be an object"},
        {"{\"__metadata__\":{\"k\":1}}", 0, QUIRE_EFORMAT, "__metadata__: \"k\" must be a string"},
        {"{" T("a", "F32", "[1]", "0", "4") "," T("a", "F32", "[1]", "4", "8") "}", 8, QUIRE_EFORMAT,
         "duplicate object key"},
        {"{" T("a", "F4", "[1]", "0", "4") "}", 4, QUIRE_EUNSUPPORTED, "dtype \"F4\" is not supported"},
        {"{\"a\":{\"shape\":[1],\"data_offsets\":[0,4]}}", 4, QUIRE_EFORMAT, "dtype must be a string"},
        {"{" T("a", "F32", "4", "0", "4") "}", 4, QUIRE_EFORMAT, "shape must be a list"},
        {"{" T("a", "F32", "[0]", "0", "0") "}", 0, QUIRE_EFORMAT,
         "shape[0] must be an integer of at least 1"},
        {"{" T("a", "F32", "[-1]", "0", "4") "}", 4, QUIRE_EFORMAT, "shape[0]"},
        {"{" T("a", "F32", "[1.5]", "0", "4") "}", 4, QUIRE_EFORMAT, "shape[0]"},
        {"{" T("a", "F32", "[9000000000000000000]", "0", "4") "}", 4, QUIRE_EFORMAT, "too large"},
        {"{" T("a", "F32", "[4294967296,4294967296]", "0", "4") "}", 4, QUIRE_EFORMAT, "too large"},
        {"{" T("a", "F32", "[1]", "0", "8") "}", 8, QUIRE_EFORMAT,
         "are 8 bytes, but its shape takes 4 as F32"},
        {"{" T("a", "F16", "[4]", "0", "4") "}", 4, QUIRE_EFORMAT, "takes 8 as F16"},
        {"{" T("a", "F32", "[2]", "0", "8") "}", 7, QUIRE_EFORMAT, "do not lie within the 7 bytes of data"},
        {"{" T("a", "F32", "[1]", "4", "0") "}", 8, QUIRE_EFORMAT, "do not lie within"},
        {"{" T("a", "F32", "[1]", "-4", "0") "}", 8, QUIRE_EFORMAT, "non-negative"},
        {"{" T("a", "F32", "[1]", "0", "4") "," T("b", "F32", "[1]", "2", "6") "}", 6, QUIRE_EFORMAT,
         "tensors \"a\" and \"b\" overlap"},
        {"{" T("a", "F32", "[1]", "0", "4") "," T("b", "F32", "[1]", "8", "12") "}", 12, QUIRE_EFORMAT,
         "the 4 bytes in front of tensor \"b\" belong to no tensor"},
        {"{" T("a", "F32", "[1]", "0", "4") "}", 5, QUIRE_EFORMAT, "the last 1 bytes of the file"},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4],\"x\":1}}", 4, QUIRE_EFORMAT,
         "the key \"x\" is unknown"},
        {"{" T("", "F32", "[1]", "0", "4") "}", 4, QUIRE_EFORMAT, "name has 0 bytes"},
        {"{" T("a\\u0001", "F32", "[1]", "0", "4") "}", 4, QUIRE_EFORMAT, "control character"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        size_t n;
        struct error err = {0};
        struct weights *w;
        uint8_t *file = make_file(cases[i].header, cases[i].n_data, &n);
        int rc = hf_open_tensors(file, n, &w, &err);
        expect_error(rc, &err, cases[i].code, cases[i].says);
        assert_null(w);
        free(file);
    }
}

static void bad_lengths(void **state) {
    struct error err = {0};
    struct weights *w;
    static uint8_t big[(16 << 20) + 64];
    uint64_t n = 100;
    memcpy(big, &n, 8);
    expect_error(hf_open_tensors(big, 9, &w, &err), &err, QUIRE_EFORMAT, "it has 9 bytes");
    expect_error(hf_open_tensors(big, 50, &w, &err), &err, QUIRE_EFORMAT, "its header takes 100 bytes");
    n = UINT64_MAX;
    memcpy(big, &n, 8);
    expect_error(hf_open_tensors(big, 50, &w, &err), &err, QUIRE_EFORMAT,
                 "its header takes 18446744073709551615");
    n = (16 << 20) + 1;
    memcpy(big, &n, 8);
    expect_error(hf_open_tensors(big, sizeof big, &w, &err), &err, QUIRE_ELIMIT, "at most 16777216 are read");
    memcpy(big, "version https", 13);
    expect_error(hf_open_tensors(big, 50, &w, &err), &err, QUIRE_EFORMAT, "Git LFS");
    memcpy(big, "GGUF", 4);
    expect_error(hf_open_tensors(big, 50, &w, &err), &err, QUIRE_EFORMAT, "GGUF file");
}

/* ---- JSON ---- */

static void long_integers(void **state) {
    static const struct {
        const char *text;
        double value;
    } cases[] = {
        {"{\"a\":1000000000000000019884624838656}", 1e30}, /* as tokenizers without a limit have it */
        {"{\"a\":-1000000000000000019884624838656 }", -1e30},
        {"{\"x\":\"12345678901234567890\\\"1234567890123456789012\",\"a\":123456789012345678}",
         123456789012345678.0},
        {"{\"a\":9223372036854775807}", 9223372036854775807.0},
        {"{\"a\":9223372036854775808}", 9223372036854775808.0},
        {"{\"a\":1234567890123456789012.5e-3}", 1234567890123456789.0125},
        {"{\"a\":0.1234567890123456789012345}", 0.1234567890123456789012345},
        {"{\"a\":1e0000000000000000000000002}", 100}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct error err = {0};
        json_t *j;
        if (hf_json_parse(cases[i].text, strlen(cases[i].text), &j, &err)) fail_msg("%s", err.text);
        double v = json_number_value(json_object_get(j, "a"));
        assert_true(v / cases[i].value > 1 - 1e-15 && v / cases[i].value < 1 + 1e-15);
        if (i == 2) assert_int_equal(json_string_length(json_object_get(j, "x")), 43);
        json_decref(j);
    }
}

/* ---- config.json ---- */

#define SIZES                                                                                                \
    "\"hidden_size\":64,\"intermediate_size\":96,\"num_hidden_layers\":2,\"num_attention_heads\":4,"         \
    "\"num_key_value_heads\":2,\"vocab_size\":8,\"max_position_embeddings\":512"
#define CONFIG(architecture, more) "{\"architectures\":[\"" architecture "\"]," SIZES more "}"
#define LLAMA(more)                CONFIG("LlamaForCausalLM", more)
#define ROPE(more)                 LLAMA(",\"rope_scaling\":{" more "}")

#define QUANT(more) LLAMA(",\"quantization_config\":{" more "}")
#define FLOATS      ",\"format\":\"float-quantized\""
#define COMPRESSED(more, weights)                                                                            \
    QUANT("\"quant_method\":\"compressed-tensors\",\"config_groups\":{\"group_0\":{\"weights\":{" weights    \
          "}}}" more)

static void bad_configs(void **state) {
    static const struct {
        const char *text;
        int code;
        const char *says;
    } cases[] = {
        {"{", QUIRE_EFORMAT, "line 1"},
        {"{}", QUIRE_EFORMAT, "config.json: architectures is missing"},
        {"{\"architectures\":[\"A\",\"B\"]}", QUIRE_EFORMAT, "must be a list of one name"},
        {CONFIG("FalconForCausalLM", ""), QUIRE_EUNSUPPORTED,
         "config.json: architectures = \"FalconForCausalLM\": known are those of Llama, "},
        {"{\"model_type\":\"falcon\"}", QUIRE_EUNSUPPORTED, "model_type = \"falcon\""},
        {LLAMA(",\"num_hidden_layers\":3"), QUIRE_EFORMAT, "duplicate"},
        {LLAMA(",\"surprise\":1"), QUIRE_EUNSUPPORTED,
         "config.json: surprise: not known for LlamaForCausalLM, so its effect would be lost"},
        {LLAMA(",\"hidden_act\":\"gelu\""), QUIRE_EUNSUPPORTED, "hidden_act = \"gelu\""},
        {LLAMA(",\"rms_norm_eps\":\"x\""), QUIRE_EFORMAT, "rms_norm_eps = \"x\": must be a finite number"},
        {LLAMA(",\"head_dim\":-8"), QUIRE_EFORMAT, "head_dim = -8: must be an integer from 0"},
        {LLAMA(",\"head_dim\":1.5"), QUIRE_EFORMAT, "head_dim = 1.5"},
        {LLAMA(",\"is_encoder_decoder\":true"), QUIRE_EUNSUPPORTED, "is_encoder_decoder = true"},
        {QUANT("\"quant_method\":\"gptq\",\"bits\":4"), QUIRE_EUNSUPPORTED,
         "quantization_config.quant_method = \"gptq\": only fp8 and compressed-tensors are supported here; "
         "use the "
         "model's unquantized safetensors, or a GGUF file"},
        {QUANT("\"bits\":4"), QUIRE_EUNSUPPORTED, "quantization_config.quant_method = (nothing): only fp8"},
        {QUANT("\"quant_method\":\"fp8\",\"surprise\":1"), QUIRE_EUNSUPPORTED,
         "quantization_config.surprise = 1: not known"},
        {QUANT("\"quant_method\":\"fp8\",\"fmt\":\"e3m4\""), QUIRE_EUNSUPPORTED, "fmt = \"e3m4\""},
        {QUANT("\"quant_method\":\"fp8\",\"weight_block_size\":[128]"), QUIRE_EUNSUPPORTED,
         "weight_block_size = [128]: must be two integers"},
        {QUANT("\"quant_method\":\"fp8\",\"weight_block_size\":[128,8]"), QUIRE_EUNSUPPORTED, "[128,8]"},
        {COMPRESSED("", ""), QUIRE_EUNSUPPORTED,
         "quantization_config.format = (nothing): only float-quantized"},
        {COMPRESSED(",\"format\":\"pack-quantized\"", ""), QUIRE_EUNSUPPORTED,
         "quantization_config.format = \"pack-quantized\": only float-quantized"},
        {COMPRESSED(FLOATS ",\"kv_cache_scheme\":{\"num_bits\":8}", ""), QUIRE_EUNSUPPORTED,
         "kv_cache_scheme = "},
        {COMPRESSED(FLOATS, "\"num_bits\":4"), QUIRE_EUNSUPPORTED,
         "quantization_config.config_groups.weights.num_bits = 4: only 8"},
        {COMPRESSED(FLOATS, "\"num_bits\":8,\"type\":\"int\""), QUIRE_EUNSUPPORTED, "type = \"int\""},
        {COMPRESSED(FLOATS, "\"num_bits\":8,\"strategy\":\"group\",\"group_size\":128"), QUIRE_EUNSUPPORTED,
         "strategy = \"group\""},
        {COMPRESSED(FLOATS, "\"num_bits\":8,\"symmetric\":false"), QUIRE_EUNSUPPORTED, "symmetric = false"},
        {LLAMA(",\"rope_theta\":0"), QUIRE_EFORMAT, "rope_theta = 0"},
        {ROPE("\"rope_type\":\"mrope\""), QUIRE_EUNSUPPORTED, "rope_type = \"mrope\": allowed are default"},
        {ROPE("\"rope_type\":\"linear\""), QUIRE_EFORMAT,
         "factor is missing, which rope_type \"linear\" needs"},
        {ROPE("\"rope_type\":\"linear\",\"factor\":-2"), QUIRE_EFORMAT, "factor = -2"},
        {ROPE("\"rope_type\":\"linear\",\"factor\":2,\"mrope_section\":[1]"), QUIRE_EUNSUPPORTED,
         "rope parameter \"mrope_section\" is not known"},
        {ROPE("\"rope_type\":\"llama3\",\"factor\":8,\"low_freq_factor\":4,\"high_freq_factor\":4"),
         QUIRE_EFORMAT, "high_freq_factor = 4: must be more than"},
        {ROPE("\"rope_type\":\"longrope\",\"long_factor\":[1],\"short_factor\":[1]"), QUIRE_EFORMAT,
         "long_factor: must be a list of 8 numbers"},
        {ROPE("\"rope_type\":\"dynamic\",\"factor\":1e6"), QUIRE_EFORMAT,
         "max_position_embeddings: 512000000 tokens"},
        {LLAMA(",\"rope_scaling\":7"), QUIRE_EFORMAT, "must be an object"},
        {LLAMA(",\"partial_rotary_factor\":0.2"), QUIRE_EFORMAT, "3 rotated elements of 16"},
        {CONFIG("Qwen2ForCausalLM", ",\"use_sliding_window\":true,\"layer_types\":[\"full_attention\"]"),
         QUIRE_EFORMAT, "layer_types: must be a list of 2"},
        {CONFIG("Qwen2ForCausalLM",
                ",\"use_sliding_window\":true,\"layer_types\":[\"full_attention\",\"x\"]"),
         QUIRE_EUNSUPPORTED, "layer_types[1] = \"x\""},
        {CONFIG("Qwen3MoeForCausalLM", ",\"decoder_sparse_step\":2"), QUIRE_EUNSUPPORTED,
         "decoder_sparse_step = 2"},
        {CONFIG("Qwen3MoeForCausalLM", ",\"mlp_only_layers\":[0]"), QUIRE_EUNSUPPORTED,
         "mlp_only_layers = [0]"},
        {CONFIG("Qwen3MoeForCausalLM", ",\"num_experts\":4,\"num_local_experts\":8"), QUIRE_EFORMAT,
         "contradicts another key"},
        {CONFIG("SmolLM3ForCausalLM", ",\"no_rope_layers\":[1,0]"), QUIRE_EUNSUPPORTED, "no_rope_layers[1]"},
        {CONFIG("Gemma3ForConditionalGeneration", ""), QUIRE_EFORMAT, "text_config must be an object"},
        {CONFIG("Mistral3ForConditionalGeneration", ",\"text_config\":{\"model_type\":\"mistral4\"}"),
         QUIRE_EUNSUPPORTED,
         "text_config.model_type = \"mistral4\": not supported for Mistral3ForConditionalGeneration, only "
         "mistral, ministral3 is"},
        {CONFIG("Ministral3ForCausalLM", ""), QUIRE_EFORMAT, "rope_scaling.llama_4_scaling_beta is missing"},
        {CONFIG("Ministral3ForCausalLM", ",\"rope_parameters\":{\"llama_4_scaling_beta\":11}"), QUIRE_EFORMAT,
         "rope_parameters.llama_4_scaling_beta = 11: must be a number from 0 to 10"},
        {CONFIG("Ministral3ForCausalLM", ",\"rope_parameters\":{\"llama_4_scaling_beta\":0.1}"),
         QUIRE_EUNSUPPORTED, "rope_parameters.llama_4_scaling_beta: only supported with rope_type yarn"},
        {CONFIG("LlamaForCausalLM", ",\"rope_parameters\":{\"llama_4_scaling_beta\":0.1}"),
         QUIRE_EUNSUPPORTED, "rope parameter \"llama_4_scaling_beta\" is not known"},
        {CONFIG("GemmaForCausalLM", ",\"hidden_act\":\"silu\""), QUIRE_EUNSUPPORTED, "hidden_act = \"silu\""},
        {CONFIG("DeepseekV2ForCausalLM", ",\"norm_topk_prob\":true"), QUIRE_EUNSUPPORTED,
         "norm_topk_prob = true"},
        {CONFIG("DeepseekV2ForCausalLM", ",\"topk_method\":\"noaux_tc\""), QUIRE_EUNSUPPORTED,
         "topk_method = \"noaux_tc\": not supported for DeepseekV2ForCausalLM, only greedy "
         "group_limited_greedy is"},
        {CONFIG("DeepseekV3ForCausalLM", ",\"scoring_func\":\"softmax\""), QUIRE_EUNSUPPORTED,
         "scoring_func = \"softmax\""},
        {CONFIG("DeepseekV3ForCausalLM", ",\"moe_layer_freq\":2"), QUIRE_EUNSUPPORTED, "moe_layer_freq = 2"},
        {CONFIG("DeepseekV3ForCausalLM", ",\"attention_bias\":true"), QUIRE_EUNSUPPORTED,
         "attention_bias = true"},
        {CONFIG("DeepseekV3ForCausalLM", ",\"qk_rope_head_dim\":7"), QUIRE_EFORMAT,
         "qk_rope_head_dim: 7 rotated elements"},
        {CONFIG("DeepseekV3ForCausalLM",
                ",\"rope_scaling\":{\"type\":\"linear\",\"factor\":2,\"mscale_all_dim\":1}"),
         QUIRE_EUNSUPPORTED, "mscale_all_dim: only supported with rope_type yarn"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct error err = {0};
        struct weights *w;
        int rc = hf_open_config(cases[i].text, strlen(cases[i].text), &w, &err);
        expect_error(rc, &err, cases[i].code, cases[i].says);
        assert_null(w);
    }
}

static uint64_t key(const struct weights *w, const char *name) {
    uint64_t v = 0;
    struct error err = {0};
    if (weights_get_u64(w, name, 0, UINT64_MAX, &v, &err)) fail_msg("%s", err.text);
    return v;
}

/* Presets, both spellings, and what keys are called in messages. */
static void configs_as_meant(void **state) {
    struct error err = {0};
    struct weights *w;
    uint64_t v;
    double d;
    const char *gemma =
        "{\"architectures\":[\"Gemma3ForConditionalGeneration\"],\"vision_config\":{},\"text_config\":"
        "{\"hidden_size\":2560,\"intermediate_size\":10240,\"model_type\":\"gemma3_text\","
        "\"num_hidden_layers\":34,\"rope_scaling\":{\"factor\":8.0,\"rope_type\":\"linear\"},"
        "\"sliding_window\":1024}}"; /* as a published one has it */
    if (hf_open_config(gemma, strlen(gemma), &w, &err)) fail_msg("%s", err.text);
    assert_int_equal(key(w, "gemma3.context_length"), 131072);
    assert_int_equal(key(w, "gemma3.attention.head_count"), 8);
    assert_int_equal(key(w, "gemma3.attention.key_length"), 256);
    assert_int_equal(key(w, "gemma3.vocab_size"), 262208);
    assert_int_equal(key(w, "gemma3.attention.sliding_window"), 1024);
    assert_int_equal(weights_meta(w, "gemma3.attention.sliding_window_pattern")->n, 34);
    assert_int_equal(weights_get_f64(w, "gemma3.rope.freq_base", &d, &err), 0);
    assert_true(d == 1e6);
    assert_int_equal(weights_get_f64(w, "gemma3.rope.freq_base_swa", &d, &err), 0);
    assert_true(d == 10000);
    assert_int_equal(weights_get_u64(w, "gemma3.block_count", 1, 10, &v, &err), QUIRE_EFORMAT);
    assert_non_null(strstr(err.text, "config.json: num_hidden_layers"));
    weights_close(w);

    const char *llama =
        LLAMA(",\"auto_map\":{\"AutoModel\":\"evil.py\"},\"_private\":1,\"sliding_window\":null");
    if (hf_open_config(llama, strlen(llama), &w, &err)) fail_msg("%s", err.text);
    assert_int_equal(weights_n_notices(w), 1);
    assert_non_null(strstr(weights_notice(w, 0), "auto_map is ignored"));
    assert_string_equal(weights_label(w, "llama.embedding_length"), "config.json: hidden_size");
    weights_close(w);
}

/* ---- folders ---- */

static char folder[FILE_FOLDER_BYTES];

static int make_folder(void **state) {
    file_folder_make(folder);
    return 0;
}

static int drop_folder(void **state) {
    file_folder_remove(folder);
    return 0;
}

static void put_text(const char *name, const char *text) {
    file_put(folder, name, text, strlen(text));
}

static void put_tensors(const char *name, const char *header, size_t n_data) {
    size_t n;
    uint8_t *file = make_file(header, n_data, &n);
    file_put(folder, name, file, n);
    free(file);
}

static void expect_folder(int code, const char *says) {
    struct error err = {0};
    struct weights *w;
    int rc = weights_open(folder, &w, &err);
    expect_error(rc, &err, code, says);
    assert_non_null(strstr(err.text, folder));
    assert_null(w);
}

#define A "model.layers.0.self_attn.q_proj.weight"
#define B "model.layers.0.self_attn.k_proj.weight"

static void indexes(void **state) {
    const char *one = "model-1.safetensors", *two = "model-2.safetensors",
               *index = "model.safetensors.index.json";
    put_text("config.json", LLAMA(",\"tie_word_embeddings\":true"));
    expect_folder(QUIRE_ENOTFOUND, "holds neither model.safetensors nor model.safetensors.index.json");
    put_text("pytorch_model.bin", "");
    expect_folder(QUIRE_ENOTFOUND, "pytorch_model.bin is not read");
    put_text(index, "{}");
    expect_folder(QUIRE_EFORMAT, "model.safetensors.index.json: weight_map must be an object");
    put_text(index, "{\"weight_map\":{\"" A "\":\"../"
                    "x.safetensors\"}}");
    expect_folder(QUIRE_EFORMAT, "is \"../x.safetensors\"; it must be the name of a .safetensors file");
    put_text(index, "{\"weight_map\":{\"" A "\":\"/etc/passwd\"}}");
    expect_folder(QUIRE_EFORMAT, "/etc/passwd");
    put_text(index, "{\"weight_map\":{\"" A "\":7}}");
    expect_folder(QUIRE_EFORMAT, "must be the name");
    put_text(index, "{\"weight_map\":{\"" A "\":\"model-1.safetensors\",\"" B "\":\"model-2.safetensors\"}}");
    expect_folder(QUIRE_EFORMAT, "model-1.safetensors: cannot open");
    put_tensors(one, "{" T(A, "F32", "[1]", "0", "4") "}", 4);
    put_tensors(two, "{" T(A, "F32", "[1]", "0", "4") "}", 4);
    expect_folder(QUIRE_EFORMAT,
                  "tensor \"" A "\" is in model-2.safetensors, but weight_map says model-1.safetensors");
    put_tensors(two, "{" T("x", "F32", "[1]", "0", "4") "}", 4);
    expect_folder(QUIRE_EFORMAT, "model-2.safetensors holds tensor \"x\", which weight_map has not");
    put_tensors(two, "{}", 0);
    expect_folder(QUIRE_EFORMAT, "weight_map: tensor \"" B "\" is not in model-2.safetensors");
    put_tensors(two, "{" T(B, "F32", "[1]", "0", "4") "}", 3);
    expect_folder(QUIRE_EFORMAT, "model-2.safetensors: tensor \"" B "\": data_offsets");
    put_tensors(two, "{" T(B, "F32", "[1]", "0", "4") "}", 4);
    struct weights *w;
    struct error err = {0};
    if (weights_open(folder, &w, &err)) fail_msg("%s", err.text);
    assert_int_equal(weights_n_files(w), 2);
    assert_string_equal(weights_tensor(w, "blk.0.attn_q.weight")->label, A);
    weights_close(w);
    char path[FILE_FOLDER_BYTES + 32];
    snprintf(path, sizeof path, "%s/%s", folder, one);
    expect_error(weights_open(path, &w, &err), &err, QUIRE_EFORMAT,
                 "a safetensors file: name the folder that it is in");
}

#define E(i, p) "model.layers.0.mlp.experts." i "." p "_proj.weight"

static void wrong_tensors(void **state) {
    static const struct {
        const char *config, *header;
        size_t n_data;
        int code;
        const char *says;
    } cases[] = {
        {CONFIG("Qwen3MoeForCausalLM", ",\"tie_word_embeddings\":true"),
         "{" T(E("0", "up"), "F32", "[1]", "0", "4") "," T(E("2", "up"), "F32", "[1]", "4", "8") "}", 8,
         QUIRE_EFORMAT, "that of expert 1 is missing"},
        {CONFIG("Qwen3MoeForCausalLM", ",\"tie_word_embeddings\":true"),
         "{" T(E("0", "up"), "F32", "[1]", "0", "4") "," T(E("1", "up"), "F32", "[2]", "4", "12") "}", 12,
         QUIRE_EFORMAT, "another shape or dtype than that of expert 0"},
        {LLAMA(",\"attention_bias\":true,\"tie_word_embeddings\":true"),
         "{" T("norm.weight", "F32", "[1]", "0", "4") "}", 4, QUIRE_EFORMAT,
         "attention_bias is true, but tensor \"model.layers.0.self_attn.q_proj.bias\" is missing"},
        {LLAMA(",\"tie_word_embeddings\":true"),
         "{" T("model.layers.0.self_attn.q_proj.bias", "F32", "[1]", "0", "4") "}", 4, QUIRE_EFORMAT,
         "attention_bias is false, but tensor"},
        {LLAMA(""), "{" T("model.embed_tokens.weight", "F32", "[1]", "0", "4") "}", 4, QUIRE_EFORMAT,
         "tie_word_embeddings is false, but tensor \"lm_head.weight\" is missing"},
        {QUANT("\"quant_method\":\"fp8\""), "{" T(A, "F8_E4M3", "[2,2]", "0", "4") "}", 4, QUIRE_EFORMAT,
         "its scales are missing"},
        {QUANT("\"quant_method\":\"fp8\""),
         "{" T(A, "F8_E4M3", "[2,2]", "0", "4") "," T(A "_scale", "F32", "[3]", "4", "16") "}", 16,
         QUIRE_EFORMAT, "it or its scales have a shape or dtype that quantization_config does not give"},
        {QUANT("\"quant_method\":\"fp8\""),
         "{" T(A, "F8_E4M3", "[4,1]", "0", "4") "," T(A "_scale", "F8_E4M3", "[1]", "4", "5") "}", 5,
         QUIRE_EFORMAT, "a shape or dtype that quantization_config does not give"},
        {LLAMA(""), "{" T(A "_scale_inv", "F32", "[1]", "0", "4") "}", 4, QUIRE_EUNSUPPORTED,
         "weights with scales are not supported"},
        {LLAMA(",\"tie_word_embeddings\":true"),
         "{" T("norm.weight", "F32", "[1]", "0", "4") "," T("model.norm.weight", "F32", "[1]", "4", "8") "}",
         8, QUIRE_EFORMAT, "tensor \"output_norm.weight\" occurs more than once"},
        {CONFIG("GptOssForCausalLM", ""),
         "{" T("model.layers.0.mlp.experts.gate_up_proj", "F32", "[1,2,3]", "0", "24") "}", 24, QUIRE_EFORMAT,
         "its columns must come in pairs"},
        {CONFIG("GptOssForCausalLM", ""),
         "{" T("model.layers.0.mlp.experts.gate_up_proj_blocks", "U8", "[1,2,1,16]", "0", "32") "}", 32,
         QUIRE_EFORMAT, "its scales are missing"},
        {CONFIG("GptOssForCausalLM", ""),
         "{" T("model.layers.0.mlp.experts.gate_up_proj_blocks", "U8", "[1,2,1,16]", "0",
               "32") "," T("model.layers.0.mlp.experts.gate_up_proj_scales", "U8", "[1,2,2]", "32", "36") "}",
         36, QUIRE_EFORMAT, "not MXFP4's"},
        {CONFIG("GraniteMoeForCausalLM", ""),
         "{" T("model.layers.0.block_sparse_moe.input_linear.weight", "F32", "[1,3,2]", "0", "24") "}", 24,
         QUIRE_EFORMAT, "two halves"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        put_text("config.json", cases[i].config);
        put_tensors("model.safetensors", cases[i].header, cases[i].n_data);
        expect_folder(cases[i].code, cases[i].says);
    }
}

static void open_or_fail_cleanly(void *ctx) {
    struct error err = {0};
    struct weights *w;
    int rc = weights_open(ctx, &w, &err);
    if (rc && rc != QUIRE_ENOMEM) fail_msg("%d: %s", rc, err.text);
    assert_true((rc == 0) == (w != NULL));
    weights_close(w);
}

static void out_of_memory(void **state) {
    put_text("config.json",
             CONFIG("Qwen3MoeForCausalLM",
                    ",\"tie_word_embeddings\":true,\"rope_scaling\":{\"rope_type\":\"llama3\",\"factor\":8,"
                    "\"low_freq_factor\":1,\"high_freq_factor\":4}"));
    put_text("model.safetensors.index.json", "{\"weight_map\":{\"" E("0", "up") "\":\"a.safetensors\",\"" E(
                                                 "1", "up") "\":\"b.safetensors\"}}");
    put_tensors("a.safetensors", "{" T(E("0", "up"), "F32", "[1]", "0", "4") "}", 4);
    put_tensors("b.safetensors", "{" T(E("1", "up"), "F32", "[1]", "0", "4") "}", 4);
    assert_true(alloc_fail_each(open_or_fail_cleanly, folder) > 20);
}

#define IN_FOLDER(test) cmocka_unit_test_setup_teardown(test, make_folder, drop_folder)

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(tensors_as_described),
        cmocka_unit_test(bad_tensors),
        cmocka_unit_test(bad_lengths),
        cmocka_unit_test(bad_configs),
        cmocka_unit_test(long_integers),
        cmocka_unit_test(configs_as_meant),
        IN_FOLDER(indexes),
        IN_FOLDER(wrong_tensors),
        IN_FOLDER(out_of_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
