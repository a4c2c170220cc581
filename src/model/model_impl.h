/* What the files of the model layer share. */
#ifndef MODEL_MODEL_IMPL_H
#define MODEL_MODEL_IMPL_H

#include "base/hash.h"
#include "model/family.h"
#include "model/model.h"

#include <stdatomic.h>

/* One weight: a matrix, a matrix for each expert or head, or a vector in a buffer; all NULL when the family
 * or the file has none. */
struct weight {
    struct backend_matrix *matrix, **each;
    size_t n_each;
    struct backend_buffer *vector;
};

/* Activations of one row panel, [max_rows][width] float; no bytes for what a family does not use. `mixed` is
 * the output of attention, `out` that of a block before it joins x. */
enum panel {
    PANEL_X,
    PANEL_MIXED,
    PANEL_Q,
    PANEL_K,
    PANEL_V,
    PANEL_Q_RANK,   /* of latent attention: what queries are made from, */
    PANEL_Q_LATENT, /* and queries of stored rows */
    PANEL_GATE,
    PANEL_UP,
    PANEL_OUT,
    PANEL_ROUTER,        /* [max_rows][experts.n] */
    PANEL_SHARED_ROUTER, /* [max_rows][1] */
    PANEL_KEPT,          /* [max_kept_rows][n_embd] */
    PANEL_LOGITS,        /* [max_logit_rows][n_vocab] */
    PANEL_POOLED,        /* [max_pool_rows][n_embd] */
    PANEL_SCORES,        /* [max_rows][n_labels] */
    PANEL_RUN_X,         /* [run_rows][n_embd], of a sequence that an encoder takes in several panels */
    PANEL_RUN_Q,
    PANEL_ROPE, /* [max_model_len][n_rot], for each of spec.ropes */
    PANEL_END = PANEL_ROPE + MODEL_ROPES
};

struct model {
    struct model_spec spec;
    struct backend *b;
    struct weight (*layers)[W_LAYER_END];
    struct weight global[W_END]; /* of the whole model: indices from W_LAYER_END on */
    struct backend_buffer *panels[PANEL_END];
    size_t max_model_len, max_logit_rows, max_kept_rows;
    enum model_pooling pooling;
    uint32_t *kept; /* [max_rows] rows to gather */
    char numerics_id[33];
};

/* What a model of this description and these options takes. */
struct plan {
    size_t max_model_len, max_rows, max_logit_rows, max_kept_rows, max_pool_rows, run_rows;
    enum model_pooling pooling;
};
int model_plan(const struct model_spec *s, const struct backend *b, const struct model_options *o,
               struct plan *out, struct error *err);
/* What the weights of w take on the device, by matrix_bytes. */
int model_weights_bytes(const struct weights *w, const struct model_spec *spec, struct backend *b,
                        const struct model_options *o, uint64_t *total, struct error *err);
/* Whether a weight is of no use: that of logits where there are none. */
bool model_skips(const struct model_options *o, enum model_weight w);
/* SIZE_MAX when it does not fit. */
size_t model_panel_bytes(const struct model_spec *s, const struct plan *plan, enum panel p);
/* Part `part` of a tensor, and that of expert or head `index`, as the backend wants it but for its rows,
 * which begin at *first_row of the tensor's. 0 and 0 for a plain matrix. */
struct backend_tensor model_tensor_part(const struct model_spec *s, const struct tensor_rule *rule,
                                        const struct tensor *t, size_t part, size_t index, size_t *first_row);
/* Whether it is to be turned around, and what it is then: floats. */
bool model_is_turned(const struct tensor_rule *rule, size_t part);
struct backend_tensor model_turned(const struct backend_tensor *t);

/* Angle per position of each pair, [n_rot / 2]. factors: per-pair divisors of ROPE_FACTORS and ROPE_LONG,
 * else NULL. length: the longest sequence, which ROPE_DYNAMIC depends on. */
void rope_frequencies(double *out, const struct model_rope *rope, const float *factors, size_t length);
/* Rows [first, first + n) of a table [n_positions][n_rot]: n_rot / 2 cosines, then the sines. */
void rope_fill(float *table, size_t first, size_t n, const struct model_rope *rope,
               const double *frequencies);

/* Hash of a tensor's bytes, as they are read: a sum over parts, each named by its first row, so that threads
 * may add theirs in any order. */
struct model_digest {
    _Atomic uint64_t hi, lo;
};
void model_digest_add(struct model_digest *d, size_t first, const void *rows, size_t bytes);

#endif
