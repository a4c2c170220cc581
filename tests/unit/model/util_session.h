/* A loaded model with a backend and KV pages, and a way to run token sequences through it in any cut.
 * Failures fail the running test. */
#ifndef UTIL_SESSION_H
#define UTIL_SESSION_H

#include "model/model.h"
#include "weights/weights.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct session_options {
    const char *path; /* "ref", "avx2", "avx512" */
    size_t n_threads;
    enum backend_dtype dtype;
    size_t max_rows;     /* 0 = what model_cpu_options says */
    size_t block_tokens; /* 0 = 16 */
    size_t n_pages;
    size_t max_logit_rows;      /* 0 = 8 */
    size_t max_kept_rows;       /* 0 = 4096 */
    size_t max_model_len;       /* 0 = the model's own */
    enum model_pooling pooling; /* not NONE: session_vector, and no logits */
};

struct session {
    struct weights *w; /* the caller's */
    struct model_spec *spec;
    struct backend *b;
    struct model *m;
    struct backend_kv *kv;
    size_t block_tokens, n_pages, max_logit_rows;
};

void session_open(struct session *s, struct weights *w, const struct session_options *o);
void session_close(struct session *s);

bool session_has_path(const char *path); /* this machine can run it */
/* Fills all pages with NaN patterns. */
void session_poison(struct session *s);

/* A sequence with its pages. */
struct session_seq {
    const uint32_t *tokens;
    size_t n_tokens, computed;
    uint32_t *table; /* [ceil(n_tokens / block_tokens)], caller's; no zero; stands for a page of each group */
};

/* One step: n_rows[i] further tokens of seqs[i]. logits[i] (may be NULL): [n_rows[i]][n_vocab] of all those
 * rows. */
void session_step(struct session *s, struct session_seq *const *seqs, const size_t *n_rows, size_t n_seqs,
                  float *const *logits);
/* A whole sequence alone, at most chunk rows a step, on pages 1, 2, …; logits [n][n_vocab]. */
void session_run(struct session *s, const uint32_t *tokens, size_t n, size_t chunk, float *logits);

/* A whole sequence in one step, of a session with pooling; out: [model_vector_floats]. n_first: tokens of the
 * first of two texts, 0 = there is one. */
void session_vector(struct session *s, const uint32_t *tokens, size_t n, size_t n_first, float *out);

/* The default model's file, or NULL: QUIRE_TEST_MODEL, else where `quire pull` puts it. The result is in a
 * buffer that the next call overwrites. */
const char *session_real_model(void);

/* The metadata of a model that its forward pass needs, without its tokenizer. */
struct gguf_build;
void session_copy_metadata(struct gguf_build *b, const struct weights *w);
/* A float32 GGUF with the same model: tensors decoded by their formats' reference decoders. In memory; *n
 * bytes. */
void *session_dequantized(const struct weights *w, size_t *n);
void session_dequantized_free(void *data, size_t n);

#endif
