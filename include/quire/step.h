/* What one step of the engine computed and how long it took, for measurements in the engine's process. */
#ifndef QUIRE_STEP_H
#define QUIRE_STEP_H

#include <stddef.h>
#include <stdint.h>

struct quire_step {
    size_t n_prefill_rows, n_decode_rows; /* tokens computed: of prompts; generated before */
    size_t n_prefill_seqs, n_decode_seqs; /* with rows in the step; one with prompt rows is of the former */
    uint64_t prefill_attended, decode_attended; /* positions that the rows may attend to, summed: a row at
                                                   position p has p + 1, windows not considered */
    size_t n_logit_rows;                        /* rows that were taken through the vocabulary */
    size_t n_running, n_waiting;                /* sequences, once the step was planned */
    /* planning and building the batch; the model with its passes over the vocabulary; sampling and
     * delivering. Their sum is the step */
    uint64_t prepare_us, forward_us, sample_us;
};

/* Sees every step. Called on the engine thread when the step's results have been delivered: it must not
 * block. */
struct quire_step_reader {
    void (*read)(void *ctx, const struct quire_step *step);
    void *ctx;
};

#endif
