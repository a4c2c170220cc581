/* What makes one decoder differ from another, as data. A family is a row of the table in family.c: how its
 * metadata keys and tensor names map to this description. The forward pass reads only this. */
#ifndef MODEL_SPEC_H
#define MODEL_SPEC_H

#include "backend/backend.h"
#include "weights/weights.h"

#include <quire/error.h>

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum rope_scaling {
    ROPE_NONE,
    ROPE_LINEAR,
    ROPE_DYNAMIC, /* a larger base, by the length that the model is opened with (NTK) */
    ROPE_YARN,
    ROPE_FACTORS, /* per-pair divisors from a tensor (Llama 3.x) */
    ROPE_LONG     /* one set of divisors for models opened with a length beyond the original context, one for
                     others (LongRoPE, Ding et al. 2024) */
};

struct model_rope {
    double base;
    size_t n_rot;
    bool interleaved;
    enum rope_scaling scaling;
    double factor;                           /* linear, dynamic, yarn */
    size_t original_context;                 /* dynamic, yarn, long */
    double attn_factor;                      /* yarn, long: scales queries and keys */
    double beta_fast, beta_slow, ext_factor; /* yarn (Peng et al. 2023) */
    bool fractional;                         /* yarn: the ramp's ends are not rounded to pairs */
};

/* Multi-head latent attention (DeepSeek-V2, arXiv 2405.04434, section 2.1): keys and values of all heads are
 * products of one latent row, and keys have a rotated part that all heads share. The latent and the rotated
 * part are what is stored, as the row of one KV head; what makes a head's keys is multiplied into its
 * queries, and what makes its values is applied to what it has gathered. */
struct model_latent {
    size_t rank;       /* elements of the latent; 0: there is none */
    size_t q_rank;     /* of that which queries are made from; 0: from the stream itself */
    size_t key, n_rot; /* elements of a head's query: not rotated, and behind them rotated */
    size_t value;      /* elements of a head's value */
    bool fused;        /* the matrices of keys and values are one tensor */
    float norm_eps;    /* of the latents' norms */
};

struct model_kv_group {
    size_t n_layers;
    size_t window; /* 0 = full attention; else positions kept */
};

#define MODEL_ROPES   2 /* of layers with full attention; of those with a window */
#define MODEL_NO_ROPE MODEL_ROPES

struct model_layer {
    size_t kv_group, kv_layer; /* group, and index of the layer within it */
    size_t window;             /* 0 = full */
    size_t rope;               /* index into ropes, or MODEL_NO_ROPE */
    bool routed;               /* experts in place of one feed-forward block */
};

struct model_experts {
    size_t n, n_used, ff;                       /* n 0 = none; ff: width of one */
    size_t shared_ff;                           /* width of those that every row passes, 0 = none */
    size_t n_groups, n_groups_used, group_best; /* see backend_experts */
    enum backend_gating gating;
    bool normalise;
    float scale;
};

/* How a sequence becomes one vector; GGUF's values. */
enum model_pooling {
    MODEL_POOL_NONE,
    MODEL_POOL_MEAN,
    MODEL_POOL_CLS, /* the first token's */
    MODEL_POOL_LAST,
    MODEL_POOL_RANK, /* the first token's through the head of a cross-encoder: scores */
    MODEL_POOL_END
};

#define MODEL_MAX_LAYERS 512

struct model_spec {
    const char *family; /* row of the table, "llama" */
    size_t n_layers, n_embd, n_ff, n_vocab, n_heads, n_kv_heads, head_dim, context_len;
    float norm_eps;
    float attn_scale;                               /* usually 1 / sqrt(head_dim) */
    float embed_scale, logit_scale, residual_scale; /* 1 when unused */
    float attn_soft_cap, final_soft_cap;            /* 0 when unused */
    float attn_temperature;                         /* queries of later positions grow, see backend_rope; */
    size_t temperature_step;                        /* 0 when unused (Ministral 3, as Llama 4 before it) */
    bool tied_output, post_norms;
    bool headless;     /* a decoder whose matrix for logits is not there: it makes vectors only */
    bool qk_norm_rows; /* norms of queries and keys run over all heads of a row */
    bool encoder; /* rows attend to their whole sequence; blocks take the stream as it is, which is normalised
                     (LayerNorm) when they have been added. It has no logits */
    size_t n_token_types, n_labels; /* of encoders; labels 0: no head */
    bool relu_head;                 /* between a head's layers; else tanh */
    enum model_pooling pooling;     /* as the file says, NONE: it does not */
    enum backend_activation activation;
    struct model_experts experts;
    struct model_latent latent; /* then n_kv_heads is 1 and head_dim that of the stored row */
    struct model_rope ropes[MODEL_ROPES];
    size_t n_ropes;
    size_t n_kv_groups;
    struct model_kv_group kv_groups[BATCH_MAX_GROUPS];
    struct model_layer layers[MODEL_MAX_LAYERS];
};

/* Reads and checks the description: every number ranged, every tensor present with the right shape. Errors
 * name the key or tensor, its value and what is allowed; an unknown architecture lists the known ones. */
int model_spec_read(const struct weights *w, struct model_spec *out, struct error *err);
/* The same of the keys alone, to look at files whose tensors may not be usable. */
int model_spec_describe(const struct weights *w, struct model_spec *out, struct error *err);

/* What a model makes when nothing else is asked for: NONE: text; else what its file says, or scores with a
 * head, the first token's vector for other encoders and the last one's for decoders. wanted: vectors, in any
 * case. */
enum model_pooling model_default_pooling(const struct model_spec *spec, bool wanted);
const char *model_pooling_name(enum model_pooling pooling); /* "none", "mean", ... */

/* Elements of what a head gathers, as attention has it. */
static inline size_t model_value_dim(const struct model_spec *s) {
    return s->latent.rank ? s->latent.rank : s->head_dim;
}
/* Experts are not all of the layers: some have one feed-forward block. */
bool model_has_dense(const struct model_spec *spec);

/* KV bytes of one token over all groups, and of one page; see backend_kv_layout. */
struct backend_kv_layout model_kv_layout(const struct model_spec *spec, size_t block_tokens,
                                         enum backend_dtype dtype);
size_t model_kv_bytes_per_token(const struct model_spec *spec, enum backend_dtype dtype);

#endif
