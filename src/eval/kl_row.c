#include "eval/kl_row.h"

#include <math.h>

#define CODES 65535

size_t kl_row_bytes(size_t n_vocab) {
    return (sizeof(struct kl_row) + n_vocab * sizeof(uint16_t) + 7) & ~(size_t)7;
}

struct extent {
    float max, min;
    uint32_t top;
    double log_sum; /* of exp(logits) */
};

static struct extent extent_of(const float *x, size_t n) {
    struct extent e = {x[0], x[0], 0, 0};
    double sum = 0;
    for (size_t i = 1; i < n; i++) {
        if (x[i] > e.max) {
            e.max = x[i];
            e.top = (uint32_t)i;
        }
        if (x[i] < e.min) e.min = x[i];
    }
    for (size_t i = 0; i < n; i++) sum += (double)expf(x[i] - e.max);
    e.log_sum = (double)e.max + log(sum);
    return e;
}

void kl_row_encode(struct kl_row *row, uint32_t token, const float *logits, size_t n_vocab) {
    struct extent e = extent_of(logits, n_vocab);
    row->largest = (float)((double)e.max - e.log_sum);
    row->step = (e.max - e.min) / CODES;
    row->top = e.top;
    row->token = token;
    row->logprob = (float)((double)logits[token] - e.log_sum);
    row->zero = 0;
    float scale = row->step > 0 ? 1 / row->step : 0;
    for (size_t i = 0; i < n_vocab; i++) {
        float code = (e.max - logits[i]) * scale + 0.5f;
        row->codes[i] = code < CODES ? (uint16_t)code : CODES;
    }
}

/* exp(-step code) from two tables of 256 entries: each code is 256 high + low. */
struct powers {
    double high[256], low[256];
};

static void fill_powers(struct powers *p, double step) {
    for (int i = 0; i < 256; i++) {
        p->low[i] = exp(-step * i);
        p->high[i] = exp(-step * 256 * i);
    }
}

/* With e_i = exp(-step code_i), S = sum e_i, and q's log probability x_i - L:
 * sum e_i / S (-step code_i - log S - x_i + L) = sum e_i (-step code_i - x_i) / S - log S + L. */
struct kl_distance kl_row_distance(const struct kl_row *row, const float *logits, size_t n_vocab) {
    struct extent e = extent_of(logits, n_vocab);
    struct powers p;
    double sum = 0, weighted = 0, step = (double)row->step;
    fill_powers(&p, step);
    for (size_t i = 0; i < n_vocab; i++) {
        unsigned code = row->codes[i];
        double term = p.high[code >> 8] * p.low[code & 255];
        sum += term;
        weighted -= term * (step * code + (double)logits[i]);
    }
    return (struct kl_distance){(float)(weighted / sum - log(sum) + e.log_sum), e.top};
}
