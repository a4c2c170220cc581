/* A decoder or an encoder: one description for all families (spec.h) and one forward pass over a ragged
 * batch.
 *
 * Activations between operations are float32 in memory for every dtype, the residual stream too. dtype rounds
 * the inputs of products with unquantized weights, those weights, and K and V as stored.
 *
 * Knows weights and the backend; knows nothing of requests, time or sockets. */
#ifndef MODEL_MODEL_H
#define MODEL_MODEL_H

#include "backend/backend.h"
#include "model/spec.h"
#include "weights/weights.h"

#include <quire/error.h>

#include <stddef.h>
#include <stdint.h>

struct model;

struct model_options {
    enum backend_dtype dtype;
    size_t
        max_model_len; /* longest sequence; also fixes length-dependent RoPE scalings. 0 = the model's own */
    size_t max_logit_rows;      /* most rows of one model_logits call, <= the backend's max_rows */
    size_t max_kept_rows;       /* most logit rows of one batch */
    enum model_pooling pooling; /* not NONE: the model makes vectors, not logits, and the two are 0; the only
                                   use of an encoder */
    size_t max_pool_rows;       /* sequences that are gathered at a time */
    bool (*progress)(void *ctx, double done); /* while loading; may be NULL. false: QUIRE_ECANCELED */
    void *progress_ctx;
};

/* What a CPU backend must be opened with to run this model: row panels (as wide as the model's activations
 * allow, no wider than max_batch_rows) and the widths its scratch needs. n_threads and isa_limit are left to
 * the caller. max_model_len 0 = the model's own. */
struct backend_cpu_options model_cpu_options(const struct model_spec *spec, size_t max_model_len,
                                             size_t max_batch_rows);

/* Bytes a model will take, before anything is allocated. */
struct model_memory {
    uint64_t weights_bytes;    /* repacked weights */
    uint64_t activation_bytes; /* row-panel activations and logits */
};

int model_memory_plan(const struct weights *w, const struct model_spec *spec, struct backend *b,
                      const struct model_options *o, struct model_memory *out, struct error *err);

/* Loads and repacks; releases file pages as they are consumed. spec is copied; w may be closed afterwards. */
int model_load(const struct weights *w, const struct model_spec *spec, struct backend *b,
               const struct model_options *o, struct model **out, struct error *err);
void model_free(struct model *m); /* NULL allowed; the backend stays open */

const struct model_spec *model_spec(const struct model *m);

/* Identity of everything that decides bits: contents of the model file, kernel table, dtype, KV format, RoPE
 * length. Hex, 32 characters. */
const char *model_numerics_id(const struct model *m);

/* Computes all rows of the batch through all layers, in row panels, writing K and V, and keeps the final
 * normalised hidden rows of batch->logit_rows (no more than max_kept_rows). Panels run in row order, so a row
 * attends only to what an earlier or the same panel wrote. An encoder needs all rows of a sequence in one
 * batch, and takes those of long ones through each layer panel by panel.
 *
 * With pooling, what the rows of batch->seqs give is gathered in pool_row of each: a sequence may come in
 * several batches, in order from position 0 (MODEL_POOL_LAST: the last row is enough). */
void model_forward(struct model *m, struct backend_kv *kv, const struct batch *batch);

/* Floats of a sequence's vector; 0 without pooling. */
size_t model_vector_floats(const struct model_spec *s, enum model_pooling pooling);
/* The vectors, not normalised, of n sequences that have been gathered wholly, as [n][model_vector_floats].
 * rows: their pool rows; n_tokens: of each. */
void model_vectors(struct model *m, const uint32_t *rows, const uint32_t *n_tokens, size_t n, float *out);

/* Logits of kept rows [first, first + n), n <= max_logit_rows, into the model's own logits buffer
 * [n][n_vocab], which is returned and valid until the next call. */
struct backend_buffer *model_logits(struct model *m, size_t first, size_t n);

#endif
