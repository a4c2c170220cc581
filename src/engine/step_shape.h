/* What a planned step will compute, in figures: of the engine's own steps and of steps that are only played
 * through. Pure. */
#ifndef ENGINE_STEP_SHAPE_H
#define ENGINE_STEP_SHAPE_H

#include "base/size.h"
#include "engine/sequence.h"

#include <quire/step.h>

/* Adds the rows of a planned sequence, before they are committed. Rows of tokens that were generated come
 * behind those of the prompt. */
static inline void step_shape_add(struct quire_step *out, const struct sequence *seq) {
    size_t first = seq->n_computed, end = first + seq->n_scheduled;
    size_t split = size_max(first, size_min(end, seq->n_prompt));
    out->n_prefill_rows += split - first;
    out->n_decode_rows += end - split;
    *(split > first ? &out->n_prefill_seqs : &out->n_decode_seqs) += 1;
    out->prefill_attended += (uint64_t)(split - first) * (first + 1 + split) / 2;
    out->decode_attended += (uint64_t)(end - split) * (split + 1 + end) / 2;
}

#endif
