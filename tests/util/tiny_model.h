/* A small random model of the llama family as GGUF, for tests of everything above the weights: byte for byte
 * what scripts/make_test_gguf.py writes for the same options (a test compares them). Greedy text from it
 * wanders over the vocabulary; its tokenizer is a byte-level BPE (ids 0..2 <|endoftext|> <|im_start|>
 * <|im_end|>, id 3 + b is byte b, then merges, then control tokens <|reserved_ID|>), its chat template
 * ChatML. */
#ifndef UTIL_TINY_MODEL_H
#define UTIL_TINY_MODEL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct tiny_model_options {
    unsigned n_layers, width, n_heads, n_kv_heads, head_dim, ff;
    unsigned n_vocab; /* at least 259 */
    unsigned context;
    /* GGUF type ids of the matrices, and of the embedding and output: F32 0, F16 1, BF16 30, Q4_0 2, Q4_1 3,
     * Q8_0 8, and, filled with random bits, Q2_K 10 ... Q6_K 14. Rows must be whole blocks (32; 256 for the K
     * types). */
    unsigned type;
    int embed_type;                 /* -1: as type */
    bool tied;                      /* no output.weight */
    unsigned sliding_window;        /* 0 = none */
    const char *rope_scaling;       /* NULL, "linear" or "yarn" */
    float rope_factor;              /* of rope_scaling */
    unsigned rope_original_context; /* of yarn and rope_freqs */
    bool rope_freqs;                /* rope_freqs.weight: Llama 3.1's divisors, factor 8 */
    float rope_base;
    const char *pre; /* tokenizer.ggml.pre */
    uint64_t seed;
};

/* 3 layers, width 96, 4 heads of 32, 2 KV heads, ff 160, 600 tokens, context 4096, F32, untied: 1.5 MB. */
struct tiny_model_options tiny_model_defaults(void);

/* The file in memory, malloc'd; NULL when the options are impossible. */
void *tiny_model_memory(const struct tiny_model_options *o, size_t *n);
/* 0, or -1 when the options are impossible or path cannot be written. */
int tiny_model_write(const char *path, const struct tiny_model_options *o);

#endif
