/* Adding to a fixed-bucket histogram (struct quire_hist of <quire/stats.h>). Many writers, readers at any time. */
#ifndef BASE_HIST_H
#define BASE_HIST_H

#include <quire/stats.h>

void hist_init(struct quire_hist *h, const double *bounds, size_t n_bounds); /* bounds: static, ascending */
void hist_add(struct quire_hist *h, double value);

/* Upper bounds that vLLM's metrics of the same names have. */
extern const double HIST_TTFT_BOUNDS[22], HIST_TOKEN_LATENCY_BOUNDS[19], HIST_REQUEST_LATENCY_BOUNDS[21];

#endif
