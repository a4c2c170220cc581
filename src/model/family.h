/* Families as data: how a family's metadata keys and tensor names map to the description of spec.h and to the
 * weights that the forward pass uses. */
#ifndef MODEL_FAMILY_H
#define MODEL_FAMILY_H

#include "model/spec.h"

/* Weights of a layer, then those of the whole model. A family may lack some. */
enum model_weight {
    W_ATTN_NORM,
    W_ATTN_Q,
    W_ATTN_K,
    W_ATTN_V,
    W_ATTN_OUT,
    W_FFN_NORM,
    W_FFN_GATE,
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
    W_LAYER_END,
    W_TOKEN_EMBD = W_LAYER_END,
    W_OUTPUT_NORM,
    W_OUTPUT,
    W_ROPE_FREQS,
    W_END
};

/* Sizes that shapes are made of. */
enum model_dim { D_ONE, D_EMBD, D_FF, D_VOCAB, D_HEADS, D_KV_HEADS, D_HEAD_DIM, D_ROT_PAIRS };

struct tensor_rule {
    enum model_weight weight;
    const char *name; /* of a layer's: what follows "blk.N." */
    enum model_dim rows,
        cols; /* rows D_ONE: a vector. D_HEADS and D_KV_HEADS count in elements: heads * head_dim */
    bool optional;
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
    bool rope_interleaved;
    enum backend_activation activation;
    const struct tensor_rule *tensors;
    size_t n_tensors;
    const struct key_rule *keys;
    size_t n_keys;
};

const struct model_family *model_family(const char *name, size_t len); /* NULL if unknown */
/* "llama, ..." for messages */
void model_family_names(char *out, size_t size);

size_t model_dim(const struct model_spec *spec, enum model_dim dim);

/* The rule of a tensor and its layer (0 for a weight of the whole model); NULL: not part of this family. */
const struct tensor_rule *model_tensor_rule(const struct model_family *family, const struct model_spec *spec,
                                            const char *name, size_t *layer);

#endif
