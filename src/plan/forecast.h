/* `quire plan`: what a model needs, before anything is started. Memory is the engine's own plan
 * (engine/outlook.h), so that it is what `quire serve` reports; what follows from it is here. */
#ifndef PLAN_FORECAST_H
#define PLAN_FORECAST_H

#include "base/buf.h"
#include "engine/outlook.h"

#include <quire/error.h>
#include <quire/quire.h>

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct forecast_ask {
    const char *model;                 /* as it was named */
    const char *weight_format;         /* of a description of weights that are not there; NULL: they are */
    const struct quire_config *config; /* weights and limits, as quire_open would get them */
    struct outlook_device device;
    size_t concurrency; /* sequences at once; 0: max_num_seqs, and that all have KV is not asked for */
};

/* Layers that share a block table, as formula: bytes of a token = layers x chunks x heads x head_dim x bytes
 * of an element. Chunks are K and V, or with latent attention the one row that holds both. */
struct forecast_group {
    const char *kind; /* "MHA", "GQA", "MQA", "MLA" */
    size_t n_chunks;
    size_t n_layers, n_heads, n_kv_heads, head_dim, window; /* window 0: full attention */
    uint64_t token_bytes;
};

struct forecast {
    struct outlook o;
    struct error refusal;             /* code 0: the engine would start */
    uint64_t n_params, n_params_used; /* used: of a token, with experts */
    uint64_t tensor_bytes;            /* in the model's files */
    struct forecast_group groups[BATCH_MAX_GROUPS];
    size_t n_groups, elem_bytes;
    uint64_t token_bytes;    /* KV of a token, by formula, while no window is full */
    uint64_t sequence_bytes; /* KV of a sequence of max_model_len, in blocks */
    size_t concurrency;
    bool all_fit;          /* concurrency sequences of max_model_len have KV at the same time */
    uint64_t wanted_bytes; /* their KV */
    double n_fit;          /* sequences of max_model_len that memory has room for */
    size_t longest;        /* that concurrency sequences can have; 0: none */
};

/* Errors as quire_open, but that it does not fit is no error: it is in the forecast. */
int forecast_make(const struct forecast_ask *ask, struct forecast *out, struct error *err);

/* Whether n sequences of max_model_len have KV at the same time, where an engine would start. */
bool forecast_holds(const struct outlook *o, size_t n);

void forecast_text(const struct forecast_ask *ask, const struct forecast *f, struct buf *out);
void forecast_json(const struct forecast_ask *ask, const struct forecast *f, struct buf *out);

#endif
