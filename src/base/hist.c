#include "base/hist.h"

#include <assert.h>
#include <math.h>

const double HIST_TTFT_BOUNDS[22] = {0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1,  0.25,  0.5,   0.75,
                                     1.0,   2.5,   5.0,  7.5,  10.0, 20.0, 40.0, 80.0, 160.0, 640.0, 2560.0};
const double HIST_TOKEN_LATENCY_BOUNDS[19] = {0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2,  0.3,  0.4, 0.5,
                                              0.75, 1.0,   2.5,  5.0,   7.5, 10.0, 20.0, 40.0, 80.0};
const double HIST_REQUEST_LATENCY_BOUNDS[21] = {0.3,  0.5,   0.8,   1.0,   1.5,   2.0,    2.5,
                                                5.0,  10.0,  15.0,  20.0,  30.0,  40.0,   50.0,
                                                60.0, 120.0, 240.0, 480.0, 960.0, 1920.0, 7680.0};

void hist_init(struct quire_hist *h, const double *bounds, size_t n_bounds) {
    assert(n_bounds <= QUIRE_HIST_MAX_BUCKETS);
    h->bounds = bounds;
    h->n_bounds = n_bounds <= QUIRE_HIST_MAX_BUCKETS ? n_bounds : QUIRE_HIST_MAX_BUCKETS;
    for (size_t i = 0; i <= QUIRE_HIST_MAX_BUCKETS; i++) atomic_init(&h->counts[i], 0);
    atomic_init(&h->n, 0);
    atomic_init(&h->sum, 0.0);
}

void hist_add(struct quire_hist *h, double value) {
    if (isnan(value)) return; /* it would poison the sum for good */
    size_t i = 0;
    while (i < h->n_bounds && value > h->bounds[i]) i++; /* a bound belongs to its bucket, as in Prometheus */
    atomic_fetch_add_explicit(&h->counts[i], 1, memory_order_relaxed);
    atomic_fetch_add_explicit(&h->n, 1, memory_order_relaxed);
    double sum = atomic_load_explicit(&h->sum, memory_order_relaxed);
    while (!atomic_compare_exchange_weak_explicit(&h->sum, &sum, sum + value, memory_order_relaxed,
                                                  memory_order_relaxed)) {}
}
