/* The formulas of docs/eval.md. */
#ifndef EVAL_FIGURES_H
#define EVAL_FIGURES_H

#include <math.h>

struct perplexity {
    double value, error; /* error: one standard error, tokens taken as independent */
};

/* From the number of tokens, the sum of their -log p and that of its squares. */
static inline struct perplexity perplexity_of(double n, double nll, double squares) {
    double mean = n > 0 ? nll / n : 0, value = n > 0 ? exp(mean) : 0;
    double variance = n > 1 ? (squares / n - mean * mean) / (n - 1) : 0;
    return (struct perplexity){value, variance > 0 ? value * sqrt(variance) : 0};
}

#endif
