#include "util/tiny_model.h"
#include "util/tiny_parts.h"
#include "util/gguf_build.h"
#include "util/tiny_quant.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { N_CONTROL = 3, N_FIXED = N_CONTROL + 256, TOKEN_NORMAL = 1, TOKEN_CONTROL = 3 };
enum { GGUF_I32 = 5, GGUF_STRING = 8 };

static const char *const CONTROL[N_CONTROL] = {"<|endoftext|>", "<|im_start|>", "<|im_end|>"};
static const char LETTERS[] = "etaoinshrdlucmfwypvbgkqjxz"; /* by frequency in English */
static const char CHAT_TEMPLATE[] =
    "{% for message in messages %}{{'<|im_start|>' + message['role'] + '\n' + message['content'] + "
    "'<|im_end|>' + '\n'}}"
    "{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}";

struct tiny_model_options tiny_model_defaults(void) {
    return (struct tiny_model_options){.n_layers = 3,
                                       .width = 96,
                                       .n_heads = 4,
                                       .n_kv_heads = 2,
                                       .head_dim = 32,
                                       .ff = 160,
                                       .n_vocab = 600,
                                       .context = 4096,
                                       .embed_type = -1,
                                       .rope_factor = 8,
                                       .rope_original_context = 512,
                                       .rope_base = 10000,
                                       .pre = "smollm",
                                       .seed = 1};
}

/* ---- tokenizer ---- */

/* GPT-2's printable character for a byte, as UTF-8. */
static void byte_piece(unsigned byte, char *out) {
    unsigned c = 0, n_others = 0;
    for (unsigned b = 0; b <= byte; b++) {
        bool plain = (b >= 33 && b < 127) || (b >= 161 && b < 173) || b >= 174;
        c = plain ? b : 256 + n_others++;
    }
    if (c < 0x80) {
        snprintf(out, 8, "%c", (char)c);
    } else {
        snprintf(out, 8, "%c%c", (char)(0xc0 | c >> 6), (char)(0x80 | (c & 63)));
    }
}

/* Merge of rank i as its two sides; false past the last: space + letter, letter + letter, then the two
 * together. */
static bool merge_at(unsigned i, char *left, char *right) {
    const char *space = "\xc4\xa0"; /* the character for the byte 32 */
    if (i < 26) {
        snprintf(left, 8, "%s", space);
        snprintf(right, 8, "%c", LETTERS[i]);
        return true;
    }
    i -= 26;
    unsigned a = i / 12 % 12, b = i % 12;
    if (i < 144) {
        snprintf(left, 8, "%c", LETTERS[a]);
        snprintf(right, 8, "%c", LETTERS[b]);
        return true;
    }
    snprintf(left, 8, "%s%c", space, LETTERS[a]);
    snprintf(right, 8, "%c%c", LETTERS[b], LETTERS[(a + b) % 12]);
    return i < 288;
}

static unsigned n_merges(unsigned n_vocab) {
    char left[8], right[8];
    unsigned n = 0;
    while (N_FIXED + n < n_vocab && merge_at(n, left, right)) n++;
    return n;
}

static void put_token(struct gguf_bytes *kv, unsigned id, unsigned merges) {
    char text[32], left[8], right[8];
    if (id < N_CONTROL) {
        snprintf(text, sizeof text, "%s", CONTROL[id]);
    } else if (id < N_FIXED) {
        byte_piece(id - N_CONTROL, text);
    } else if (id < N_FIXED + merges) {
        merge_at(id - N_FIXED, left, right);
        snprintf(text, sizeof text, "%s%s", left, right);
    } else {
        snprintf(text, sizeof text, "<|reserved_%u|>", id);
    }
    gguf_bytes_str(kv, text, strlen(text));
}

void tiny_add_tokenizer(struct gguf_build *b, const struct tiny_model_options *o) {
    unsigned merges = n_merges(o->n_vocab);
    gguf_kv_str(b, "tokenizer.ggml.model", "gpt2");
    gguf_kv_str(b, "tokenizer.ggml.pre", o->pre);
    gguf_kv_array(b, "tokenizer.ggml.tokens", GGUF_STRING, o->n_vocab);
    for (unsigned id = 0; id < o->n_vocab; id++) put_token(&b->kv, id, merges);
    gguf_kv_array(b, "tokenizer.ggml.token_type", GGUF_I32, o->n_vocab);
    for (unsigned id = 0; id < o->n_vocab; id++) {
        gguf_bytes_u32(&b->kv, id < N_CONTROL || id >= N_FIXED + merges ? TOKEN_CONTROL : TOKEN_NORMAL);
    }
    if (merges) gguf_kv_array(b, "tokenizer.ggml.merges", GGUF_STRING, merges);
    for (unsigned i = 0; i < merges; i++) {
        char left[8], right[8], text[24];
        merge_at(i, left, right);
        snprintf(text, sizeof text, "%s %s", left, right);
        gguf_bytes_str(&b->kv, text, strlen(text));
    }
    gguf_kv_u32(b, "tokenizer.ggml.bos_token_id", 1);
    gguf_kv_u32(b, "tokenizer.ggml.eos_token_id", 2);
    gguf_kv_u32(b, "tokenizer.ggml.unknown_token_id", 0);
    gguf_kv_u32(b, "tokenizer.ggml.padding_token_id", 2);
    gguf_kv_bool(b, "tokenizer.ggml.add_bos_token", false);
    gguf_kv_bool(b, "tokenizer.ggml.add_space_prefix", false);
    gguf_kv_str(b, "tokenizer.chat_template", CHAT_TEMPLATE);
}

/* general.file_type for a tensor type. */
static uint32_t file_type(unsigned type) {
    static const uint8_t types[] = {[0] = 0,   [1] = 1,   [2] = 2,   [3] = 3,   [8] = 7,  [10] = 10,
                                    [11] = 12, [12] = 15, [13] = 17, [14] = 18, [30] = 32};
    return types[type];
}

static void add_metadata(struct gguf_build *b, const struct tiny_model_options *o) {
    gguf_kv_str(b, "general.architecture", "llama");
    gguf_kv_str(b, "general.type", "model");
    gguf_kv_str(b, "general.name", "tiny");
    gguf_kv_u32(b, "general.file_type", file_type(o->type));
    gguf_kv_u32(b, "general.quantization_version", 2);
    gguf_kv_u32(b, "llama.block_count", o->n_layers);
    gguf_kv_u32(b, "llama.context_length", o->context);
    gguf_kv_u32(b, "llama.embedding_length", o->width);
    gguf_kv_u32(b, "llama.feed_forward_length", o->ff);
    gguf_kv_u32(b, "llama.attention.head_count", o->n_heads);
    gguf_kv_u32(b, "llama.attention.head_count_kv", o->n_kv_heads);
    gguf_kv_u32(b, "llama.attention.key_length", o->head_dim);
    gguf_kv_u32(b, "llama.attention.value_length", o->head_dim);
    gguf_kv_u32(b, "llama.rope.dimension_count", o->head_dim);
    gguf_kv_f32(b, "llama.rope.freq_base", o->rope_base);
    gguf_kv_f32(b, "llama.attention.layer_norm_rms_epsilon", 1e-5f);
    gguf_kv_u32(b, "llama.vocab_size", o->n_vocab);
    if (o->sliding_window) gguf_kv_u32(b, "llama.attention.sliding_window", o->sliding_window);
    if (o->rope_scaling) {
        gguf_kv_str(b, "llama.rope.scaling.type", o->rope_scaling);
        gguf_kv_f32(b, "llama.rope.scaling.factor", o->rope_factor);
        gguf_kv_u32(b, "llama.rope.scaling.original_context_length", o->rope_original_context);
    }
    tiny_add_tokenizer(b, o);
}

/* ---- tensors ---- */

/* Start of the stream of (seed, name): FNV-1a. */
static uint64_t stream_start(uint64_t seed, const char *name) {
    uint64_t state = 0xcbf29ce484222325u ^ seed;
    for (; *name; name++) state = (state ^ (uint8_t)*name) * 0x100000001b3u;
    return state;
}

/* Word i of a stream: SplitMix64 (Steele, Lea, Flood 2014). */
static uint64_t stream_at(uint64_t start, size_t i) {
    uint64_t z = start + (i + 1) * 0x9e3779b97f4a7c15u;
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
    z = (z ^ z >> 27) * 0x94d049bb133111ebu;
    return z ^ z >> 31;
}

/* Nearly normal, mean 0 and deviation 1: the sum of four uniform 16-bit integers. */
static double stream_normal(uint64_t start, size_t i) {
    uint64_t h = stream_at(start, i);
    int64_t sum = (int64_t)((h & 0xffff) + (h >> 16 & 0xffff) + (h >> 32 & 0xffff) + (h >> 48));
    return (double)(sum - 131070) / 37837.0;
}

void tiny_add_vector(struct gguf_build *b, const struct tiny_model_options *o, const char *name, size_t n,
                     double mean, double std) {
    uint64_t start = stream_start(o->seed, name), dims = n;
    struct gguf_bytes data = {0};
    for (size_t i = 0; i < n; i++) {
        float v = (float)(mean + std * stream_normal(start, i));
        gguf_bytes_put(&data, &v, sizeof v);
    }
    gguf_tensor(b, name, 0, 1, &dims, data.data, data.n);
    free(data.data);
}

static void fill_random(struct gguf_bytes *data, uint64_t start, unsigned type, size_t n_blocks, size_t bytes,
                        double std) {
    size_t total = n_blocks * bytes;
    for (size_t i = 0; data->n < total; i++) {
        uint64_t h = stream_at(start, i);
        size_t left = total - data->n;
        gguf_bytes_put(data, &h, left < sizeof h ? left : sizeof h);
    }
    tiny_quant_scale_random(data->data, type, n_blocks, std);
}

void tiny_add_matrices(struct gguf_build *b, const struct tiny_model_options *o, const char *name, size_t n,
                       size_t rows, size_t cols, double std, unsigned type) {
    size_t elems = 1, bytes = 1;
    tiny_quant_block(type, &elems, &bytes);
    uint64_t start = stream_start(o->seed, name), dims[3] = {cols, rows, n};
    size_t total = (n ? n : 1) * rows * cols;
    struct gguf_bytes data = {0};
    if (tiny_quant_is_random(type)) {
        fill_random(&data, start, type, total / elems, bytes, std);
    } else {
        for (size_t i = 0; i < total; i += elems) {
            float values[32];
            uint8_t block[32 * 4];
            for (size_t j = 0; j < elems; j++) values[j] = (float)(std * stream_normal(start, i + j));
            tiny_quant(block, type, values, elems);
            gguf_bytes_put(&data, block, bytes);
        }
    }
    gguf_tensor(b, name, type, n ? 3 : 2, dims, data.data, data.n);
    free(data.data);
}

/* Divisors of Llama 3.1's rope scaling (factor 8, low 1, high 4), as converters write them. */
static void add_rope_freqs(struct gguf_build *b, const struct tiny_model_options *o) {
    struct gguf_bytes data = {0};
    double old = o->rope_original_context, pi = 3.141592653589793;
    for (unsigned i = 0; i < o->head_dim; i += 2) {
        double wavelen = 2 * pi * pow(o->rope_base, (double)i / o->head_dim), factor;
        if (wavelen < old / 4) {
            factor = 1;
        } else if (wavelen > old) {
            factor = 8;
        } else {
            double smooth = (old / wavelen - 1) / 3;
            factor = 1 / ((1 - smooth) / 8 + smooth);
        }
        float v = (float)factor;
        gguf_bytes_put(&data, &v, sizeof v);
    }
    uint64_t dims = data.n / 4;
    gguf_tensor(b, "rope_freqs.weight", 0, 1, &dims, data.data, data.n);
    free(data.data);
}

static void add_layer(struct gguf_build *b, const struct tiny_model_options *o, unsigned layer) {
    size_t q = (size_t)o->n_heads * o->head_dim, kv = (size_t)o->n_kv_heads * o->head_dim;
    double by_width = 1 / sqrt(o->width);
    struct {
        const char *name;
        size_t rows, cols; /* cols 0: a norm */
        double std;
    } const parts[] = {{"attn_norm", o->width, 0, 0.1},
                       {"attn_q", q, o->width, 2 / sqrt(o->width)},
                       {"attn_k", kv, o->width, 2 / sqrt(o->width)},
                       {"attn_v", kv, o->width, by_width},
                       {"attn_output", o->width, q, 1 / sqrt((double)q)},
                       {"ffn_norm", o->width, 0, 0.1},
                       {"ffn_gate", o->ff, o->width, 2 / sqrt(o->width)},
                       {"ffn_up", o->ff, o->width, by_width},
                       {"ffn_down", o->width, o->ff, 1 / sqrt(o->ff)}};
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) {
        char name[64];
        snprintf(name, sizeof name, "blk.%u.%s.weight", layer, parts[i].name);
        if (parts[i].cols) {
            tiny_add_matrices(b, o, name, 0, parts[i].rows, parts[i].cols, parts[i].std, o->type);
        } else {
            tiny_add_vector(b, o, name, parts[i].rows, 1, parts[i].std);
        }
    }
}

static unsigned embed_type(const struct tiny_model_options *o) {
    return o->embed_type < 0 ? o->type : (unsigned)o->embed_type;
}

static bool possible(const struct tiny_model_options *o) {
    size_t elems, embed_elems, bytes;
    if (!tiny_quant_block(o->type, &elems, &bytes) || !tiny_quant_block(embed_type(o), &embed_elems, &bytes))
        return false;
    if (!o->width || !o->ff || !o->n_heads || !o->n_kv_heads || !o->head_dim || o->n_vocab < N_FIXED)
        return false;
    return o->width % elems == 0 && o->width % embed_elems == 0 && o->ff % elems == 0 &&
           (size_t)o->n_heads * o->head_dim % elems == 0;
}

void *tiny_model_memory(const struct tiny_model_options *o, size_t *n) {
    if (!possible(o)) return NULL;
    struct gguf_build b = gguf_build_new();
    add_metadata(&b, o);
    tiny_add_matrices(&b, o, "token_embd.weight", 0, o->n_vocab, o->width, 1 / sqrt(o->width), embed_type(o));
    if (o->rope_freqs) add_rope_freqs(&b, o);
    for (unsigned i = 0; i < o->n_layers; i++) add_layer(&b, o, i);
    tiny_add_vector(&b, o, "output_norm.weight", o->width, 3, 0.3);
    if (!o->tied) {
        tiny_add_matrices(&b, o, "output.weight", 0, o->n_vocab, o->width, 1 / sqrt(o->width), embed_type(o));
    }
    return gguf_build_finish(&b, n);
}

int tiny_model_write(const char *path, const struct tiny_model_options *o) {
    size_t n;
    void *data = tiny_model_memory(o, &n);
    return gguf_build_write(path, data, n);
}
