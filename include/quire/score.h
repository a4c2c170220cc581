/* Whole distributions of prompt tokens, for measurements in the engine's process. */
#ifndef QUIRE_SCORE_H
#define QUIRE_SCORE_H

#include <stddef.h>

/* Sees the distribution of every prompt token that is scored (so prompt log probabilities must be asked for):
 * the logits [n_vocab] that predict the token at `position`. Called on compute threads, for several positions
 * at the same time and in any order, once for each, before the stream's last event, which the reader must
 * outlive. It may not block, nor keep the logits. */
struct quire_score_reader {
    void (*read)(void *ctx, size_t position, const float *logits, size_t n_vocab);
    void *ctx;
};

#endif
