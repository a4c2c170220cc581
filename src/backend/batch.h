/* The ragged batch of one step: rows of several sequences, prompt chunks and decode rows alike.
 * Self-contained: forward is a function of (batch, KV memory, weights). Built by the engine in fixed memory,
 * read by the backend. */
#ifndef BACKEND_BATCH_H
#define BACKEND_BATCH_H

#include <stddef.h>
#include <stdint.h>

#define BATCH_MAX_GROUPS 8

/* Rows [first_row, first_row + n_rows) belong to one sequence, in position order. Pages of a group:
 * table[g][i] holds logical positions [i * block_tokens, (i + 1) * block_tokens); entries a window no longer
 * needs are 0 (the null page). */
struct batch_seq {
    size_t first_row, n_rows;
    uint32_t first_position; /* logical position of first_row */
    const uint32_t *table[BATCH_MAX_GROUPS];
    /* For models that make a vector of a sequence: */
    uint32_t pool_row; /* where it is gathered */
    uint32_t n_first;  /* positions from here on have token type 1; 0 = none */
};

struct batch {
    size_t n_rows, n_seqs, n_logit_rows;
    uint32_t *token;    /* [n_rows] */
    uint32_t *position; /* [n_rows] */
    uint32_t *seq;      /* [n_rows] index into seqs */
    struct batch_seq *seqs;
    uint32_t *logit_rows; /* [n_logit_rows] ascending rows whose logits are wanted */
};

#endif
