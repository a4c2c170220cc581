/* From a request's sampling parameters and its tokens so far to the sample_row of its next token. Counts for
 * the penalties are kept as tokens come, so a row costs nothing by the length of the text. */
#ifndef ENGINE_SAMPLER_H
#define ENGINE_SAMPLER_H

#include "backend/sample.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct sampler {
    struct sample_row row;       /* fixed parameters; counts, bans and mask are filled in by sampler_row */
    bool counting;               /* a penalty is on */
    struct sample_count *counts; /* [distinct tokens possible] */
    size_t n_counts;
    uint32_t *slots; /* [mask + 1] open addressing, 1 + index into counts; 0 = empty */
    size_t mask;
    uint32_t *bans; /* what ends an output: not before min_tokens tokens */
    size_t n_bans, min_tokens;
    uint32_t *allow; /* [ceil(n_vocab / 32)] filled by the constraint before each row; NULL = no constraint */
};

/* Slots for n distinct tokens: a power of two. */
size_t sampler_slots(size_t n);
/* One more token of the prompt or the output. */
void sampler_note(struct sampler *s, uint32_t token, bool in_prompt);
/* The row for output token number n_output (from 0) at `position` of the sequence. Pointers stay the
 * sampler's. */
void sampler_row(const struct sampler *s, size_t n_output, size_t position, struct sample_row *out);
/* The row that scores `target`. */
void sampler_score_row(uint32_t target, int n_top, struct sample_row *out);

#endif
