/* One distribution over the vocabulary, as it is kept in a reference file, and the distance of another from
 * it.
 *
 * Kept: the largest log probability, then for each token (largest - its log probability) / step, rounded, in
 * 16 bits; step is the range / 65535. So a log probability is off by at most range / 131070, and after the
 * distribution has been normalised again the divergence between a model and itself is about step^2 / 24: 1e-8
 * for a range of 40 nats. */
#ifndef EVAL_KL_ROW_H
#define EVAL_KL_ROW_H

#include <stddef.h>
#include <stdint.h>

struct kl_row {
    float largest, step; /* nats */
    uint32_t top;        /* the most likely token, the lowest id among equals */
    uint32_t token;      /* the text's */
    float logprob;       /* of the text's token, as the model gave it */
    uint32_t zero;
    uint16_t codes[]; /* [n_vocab] */
};

size_t kl_row_bytes(size_t n_vocab); /* a multiple of 8 */
void kl_row_encode(struct kl_row *row, uint32_t token, const float *logits, size_t n_vocab);

struct kl_distance {
    float kl; /* sum over the vocabulary of p (log p - log q), p the row, q the logits' distribution; nats */
    uint32_t top; /* the most likely token of q */
};
struct kl_distance kl_row_distance(const struct kl_row *row, const float *logits, size_t n_vocab);

#endif
