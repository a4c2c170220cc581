/* Families as data: how a family's metadata keys and tensor names map to the description of spec.h and to the
 * weights that the forward pass uses. */
#ifndef MODEL_FAMILY_H
#define MODEL_FAMILY_H

#include "model/spec.h"

/* Weights of a layer, then those of the whole model. A family may lack some. */
enum model_weight {
    W_ATTN_NORM,
    W_ATTN_Q, /* Q, K and V follow one another: one tensor may hold all three */
    W_ATTN_K,
    W_ATTN_V,
    W_ATTN_OUT,
    W_FFN_NORM,
    W_FFN_GATE, /* likewise gate and up */
    W_FFN_UP,
    W_FFN_DOWN,
    W_ATTN_Q_BIAS,
    W_ATTN_K_BIAS,
    W_ATTN_V_BIAS,
    W_ATTN_OUT_BIAS,
    W_FFN_GATE_BIAS,
    W_FFN_UP_BIAS,
    W_FFN_DOWN_BIAS,
    W_ATTN_Q_NORM,
    W_ATTN_K_NORM,
    W_ATTN_SINKS,
    W_ATTN_Q_A, /* of latent attention; its W_ATTN_K makes the row that is stored */
    W_ATTN_Q_A_NORM,
    W_ATTN_K_B, /* K and V follow one another */
    W_ATTN_V_B,
    W_ATTN_POST_NORM,
    W_FFN_POST_NORM,
    W_ROUTER,
    W_ROUTER_BIAS,
    W_ROUTER_CHOICE_BIAS,
    W_EXPERT_GATE,
    W_EXPERT_UP,
    W_EXPERT_DOWN,
    W_EXPERT_GATE_BIAS,
    W_EXPERT_UP_BIAS,
    W_EXPERT_DOWN_BIAS,
    W_SHARED_ROUTER,
    W_SHARED_GATE,
    W_SHARED_UP,
    W_SHARED_DOWN,
    W_ATTN_AFTER_NORM, /* of encoders: norms of what a block has been added to */
    W_ATTN_AFTER_NORM_BIAS,
    W_FFN_AFTER_NORM,
    W_FFN_AFTER_NORM_BIAS,
    W_LAYER_END,
    W_TOKEN_EMBD = W_LAYER_END,
    W_POSITION_EMBD,
    W_TYPE_EMBD,
    W_EMBD_NORM,
    W_EMBD_NORM_BIAS,
    W_HEAD, /* of cross-encoders */
    W_HEAD_BIAS,
    W_HEAD_OUT,
    W_HEAD_OUT_BIAS,
    W_OUTPUT_NORM,
    W_OUTPUT,
    W_ROPE_FREQS, /* these make tables of angles */
    W_ROPE_LONG,
    W_ROPE_SHORT,
    W_END
};

/* Sizes that shapes are made of. */
enum model_dim {
    D_NONE,
    D_ONE, /* as rows: the tensor is a vector */
    D_ROW, /* as rows: a matrix of one row */
    D_EMBD,
    D_FF,
    D_VOCAB,
    D_HEADS, /* these two count in elements: heads * head_dim */
    D_KV_HEADS,
    D_HEAD_DIM,
    D_HEAD_COUNT,
    D_ROT_PAIRS,
    D_EXPERTS,
    D_EXPERT_FF,
    D_SHARED_FF,
    D_CONTEXT,
    D_TYPES,
    D_LABELS,
    D_Q_RANK, /* of latent attention */
    D_LATENT,
    D_LATENT_ROW,
    D_LATENT_KEY,
    D_LATENT_VALUE,
    D_LATENT_QUERIES, /* these two of all heads */
    D_LATENT_VALUES
};

/* Layers that have a tensor. */
enum tensor_layers {
    IN_ALL,
    IN_DENSE,
    IN_ROUTED,
    IN_SHARED,   /* routed, with shared experts */
    IN_Q_RANK,   /* where queries are made from a latent */
    IN_Q_WHOLE,  /* where they are not */
    IN_KV_FUSED, /* where the matrices of keys and values are one tensor */
    IN_KV_APART
};

/* How often a tensor has its matrix or vector. */
enum tensor_each {
    ONCE,
    EACH_EXPERT,
    EACH_HEAD,
    EACH_HEAD_ROWS /* the rows of a head follow those of the one before, in one dimension */
};

struct tensor_rule {
    enum model_weight weight;
    const char *name; /* of a layer's: what follows "blk.N." */
    enum model_dim rows, cols;
    bool optional;
    enum tensor_layers layers;
    enum tensor_each each;
    bool turned; /* the weight is the file's rows as columns; of several in a tensor the first */
    enum model_dim
        more[2]; /* rows of the weights that follow `weight` in the same tensor, D_NONE = no more */
};

enum key_use {
    KEY_READ,   /* understood, see spec.c */
    KEY_ZERO,   /* allowed only when 0 or false: means something this family's forward pass does not do */
    KEY_ONE,    /* allowed only when 1 or true */
    KEY_IGNORED /* says nothing about the arithmetic */
};

struct key_rule {
    const char *name; /* what follows "FAMILY." */
    enum key_use use;
};

struct model_family {
    const char *name; /* general.architecture */
    const struct tensor_rule *tensors;
    size_t n_tensors;
    const struct key_rule *keys; /* beside the standard ones, which they override */
    size_t n_keys;
    enum backend_activation activation;
    bool rope_interleaved;
    bool post_norms, qk_norm_rows;
    bool encoder;            /* see model_spec */
    bool no_rope;            /* positions come from a table of embeddings */
    bool embed_by_width;     /* embeddings are multiplied by sqrt(n_embd) */
    size_t window_period;    /* with a window: every so many layers, the last attends to all; 0 = none does */
    double window_rope_base; /* preset for layers with a window; 0 = as the others, scaling and all */
    bool window_rope_plain;  /* those layers do without rope scaling */
    size_t no_rope_period;   /* every so many layers, the last rotates nothing; 0 = all rotate */
    size_t scaled_by_width[2]; /* models of so many layers scale scores by 1 / sqrt(n_embd / n_heads) */
    bool yarn_fractional;      /* see model_rope */
    enum backend_gating gating;
    bool normalise_experts;
    bool sigmoid_experts; /* a file may say that experts are weighed so */
    bool temperature;     /* a file may say that queries of later positions are multiplied */
    bool latent;          /* multi-head latent attention, see model_latent */
    float latent_norm_eps;
};

const struct model_family *model_family(const char *name, size_t len); /* NULL if unknown */
/* "llama, ..." for messages */
void model_family_names(char *out, size_t size);
#define MODEL_FAMILY_NAMES_BYTES 512

/* The rule of a key, given what follows "FAMILY."; NULL: unknown. */
const struct key_rule *model_key_rule(const struct model_family *family, const char *name);

size_t model_dim(const struct model_spec *spec, enum model_dim dim);
/* Matrices or vectors that a tensor has of each of its weights. */
size_t tensor_rule_each(const struct tensor_rule *rule, const struct model_spec *spec);
/* Weights in a tensor, 1 to 3. */
size_t tensor_rule_parts(const struct tensor_rule *rule);

/* Whether a layer has the tensors of a rule. */
bool model_layer_has(const struct model_spec *spec, const struct tensor_rule *rule, size_t layer);

/* The shape that a tensor must have, as in struct tensor. */
void model_tensor_dims(const struct model_spec *spec, const struct tensor_rule *rule,
                       size_t dims[TENSOR_MAX_DIMS]);

/* The rule of a tensor and its layer (0 for a weight of the whole model); NULL: not part of this family. */
const struct tensor_rule *model_tensor_rule(const struct model_family *family, const struct model_spec *spec,
                                            const char *name, size_t *layer);

#endif
