#include "util/tiny_encoder.h"
#include "util/tiny_parts.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { N_LAYERS = 2, WIDTH = TINY_ENCODER_WIDTH, FF = 160, N_HEADS = 4 };

struct shape {
    const char *variant;
    unsigned pooling, n_types; /* pooling: GGUF's; 0: the key is left out */
    int head;
};

static const struct shape SHAPES[] = {{"bert", 1, 2, 0}, {"cross", 4, 2, 1}, {"xlmr", 0, 1, 1}};
enum { N_SHAPES = sizeof SHAPES / sizeof SHAPES[0] };

static void add_metadata(struct gguf_build *b, const struct shape *s) {
    gguf_kv_str(b, "general.architecture", "bert");
    gguf_kv_str(b, "general.name", s->variant);
    gguf_kv_u32(b, "bert.block_count", N_LAYERS);
    gguf_kv_u32(b, "bert.context_length", TINY_ENCODER_CONTEXT);
    gguf_kv_u32(b, "bert.embedding_length", WIDTH);
    gguf_kv_u32(b, "bert.feed_forward_length", FF);
    gguf_kv_u32(b, "bert.attention.head_count", N_HEADS);
    gguf_kv_f32(b, "bert.attention.layer_norm_epsilon", 1e-5f);
    gguf_kv_bool(b, "bert.attention.causal", false);
    if (s->pooling) gguf_kv_u32(b, "bert.pooling_type", s->pooling);
}

struct writer {
    struct gguf_build *b;
    const struct tiny_model_options *o;
    const char *prefix;
};

/* A vector NAME.KIND of n elements. */
static void vector(const struct writer *w, const char *name, const char *kind, size_t n, double mean,
                   double std) {
    char full[96];
    snprintf(full, sizeof full, "%s%s.%s", w->prefix, name, kind);
    tiny_add_vector(w->b, w->o, full, n, mean, std);
}

static void norm(const struct writer *w, const char *name) {
    vector(w, name, "weight", WIDTH, 1, 0.1);
    vector(w, name, "bias", WIDTH, 0, 0.1);
}

static void table(const struct writer *w, const char *name, size_t rows, double std, unsigned type) {
    char full[96];
    snprintf(full, sizeof full, "%s%s.weight", w->prefix, name);
    tiny_add_matrices(w->b, w->o, full, 0, rows, WIDTH, std, type);
}

/* With a bias. gain: deviation of the product with an input of deviation 1. */
static void linear(const struct writer *w, const char *name, size_t rows, size_t cols, double gain) {
    char full[96];
    snprintf(full, sizeof full, "%s%s.weight", w->prefix, name);
    tiny_add_matrices(w->b, w->o, full, 0, rows, cols, gain / sqrt((double)cols), w->o->type);
    vector(w, name, "bias", rows, 0, 0.2);
}

static void add_layer(const struct writer *w) {
    linear(w, "attn_q", WIDTH, WIDTH, 2);
    linear(w, "attn_k", WIDTH, WIDTH, 2);
    linear(w, "attn_v", WIDTH, WIDTH, 1);
    linear(w, "attn_output", WIDTH, WIDTH, 1);
    norm(w, "attn_output_norm");
    linear(w, "ffn_up", FF, WIDTH, 2);
    linear(w, "ffn_down", WIDTH, FF, 1);
    norm(w, "layer_output_norm");
}

void *tiny_encoder_memory(const char *variant, unsigned type, uint64_t seed, size_t *n) {
    size_t i = 0;
    while (i < N_SHAPES && strcmp(SHAPES[i].variant, variant)) i++;
    if (i == N_SHAPES) return NULL;
    const struct shape *s = &SHAPES[i];
    struct tiny_model_options o = tiny_model_defaults();
    o.seed = seed;
    o.type = type;
    struct gguf_build b = gguf_build_new();
    struct writer w = {&b, &o, ""};
    add_metadata(&b, s);
    table(&w, "token_embd", TINY_ENCODER_VOCAB, 1, type);
    table(&w, "position_embd", TINY_ENCODER_CONTEXT, 0.5, 0);
    table(&w, "token_types", s->n_types, 0.5, 0);
    norm(&w, "token_embd_norm");
    for (unsigned layer = 0; layer < N_LAYERS; layer++) {
        char prefix[32];
        snprintf(prefix, sizeof prefix, "blk.%u.", layer);
        add_layer(&(struct writer){&b, &o, prefix});
    }
    if (s->head) {
        linear(&w, "cls", WIDTH, WIDTH, 1);
        linear(&w, "cls.output", 1, WIDTH, 2);
    }
    return gguf_build_finish(&b, n);
}

int tiny_encoder_write(const char *path, const char *variant, unsigned type, uint64_t seed) {
    size_t n;
    void *data = tiny_encoder_memory(variant, type, seed, &n);
    return gguf_build_write(path, data, n);
}
