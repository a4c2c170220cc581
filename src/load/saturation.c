#include "load/saturation.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#define REQUESTS_LEAST 20
#define T_LEAST        4
#define UNSENT_SHARE   0.05

static int by_due(const void *a, const void *b) {
    const struct record *const *x = a, *const *y = b;
    return ((*x)->due_us > (*y)->due_us) - ((*x)->due_us < (*y)->due_us);
}

static int by_end(const void *a, const void *b) {
    const struct record *const *x = a, *const *y = b;
    return ((*x)->end_us > (*y)->end_us) - ((*x)->end_us < (*y)->end_us);
}

struct growth {
    double slope, t, mean;
};

static struct growth grow(const double *x, const double *y, size_t n) {
    struct growth g = {0};
    stats_slope(x, y, n, &g.slope, &g.t);
    for (size_t i = 0; i < n; i++) g.mean += y[i] / (double)n;
    return g;
}

static bool judge(const struct run *run, struct summary *s) {
    size_t n = run->n, kept = 0, ended = 0;
    const struct record **due = calloc(n, sizeof *due), **end = calloc(n, sizeof *end);
    double *x = calloc(n, sizeof *x), *flight = calloc(n, sizeof *flight), *xt = calloc(n, sizeof *xt),
           *ttft = calloc(n, sizeof *ttft);
    bool found = false;
    if (!due || !end || !x || !flight || !xt || !ttft) goto out;
    for (size_t i = 0; i < n; i++) due[i] = end[i] = &run->records[i];
    qsort(due, n, sizeof *due, by_due);
    qsort(end, n, sizeof *end, by_end);
    for (size_t i = 0; i < n; i++) {
        while (ended < n && end[ended]->end_us <= due[i]->due_us) ended++;
        x[i] = (double)due[i]->due_us / 1e6;
        flight[i] = (double)i - (double)ended;
        double v = record_ms(due[i], LATENCY_TTFT);
        if (due[i]->outcome != OUTCOME_OK || isnan(v)) continue;
        xt[kept] = x[i];
        ttft[kept++] = v;
    }
    double window = x[n - 1] - x[0];
    if (window <= 0 || kept < REQUESTS_LEAST) goto out;
    struct growth f = grow(x, flight, n), t = grow(xt, ttft, kept);
    double offered = (double)(n - 1) / window, answered = 0;
    for (size_t i = 0; i < n; i++) answered += end[i]->end_us <= due[n - 1]->due_us;
    answered /= window;
    found = f.t > T_LEAST && t.t > T_LEAST && f.slope * window > f.mean / 2 && f.slope * window > 4 &&
            t.slope * window > t.mean / 2 && answered < 0.95 * offered;
    if (found)
        snprintf(
            s->saturated, sizeof s->saturated,
            "requests came at %.3g/s and were answered at %.3g/s: those in flight grew by %.3g and TTFT by "
            "%.3g ms each second",
            offered, answered, f.slope, t.slope);
out:
    free(due);
    free(end);
    free(x);
    free(flight);
    free(xt);
    free(ttft);
    return found;
}

void saturation_find(const struct run *runs, size_t n, struct summary *s) {
    for (size_t r = 0; r < n; r++)
        if (runs[r].n >= REQUESTS_LEAST && judge(&runs[r], s)) return;
    double due = (double)(s->n_requests + s->n_canceled + s->n_unsent);
    if ((double)s->n_unsent > UNSENT_SHARE * due)
        snprintf(s->saturated, sizeof s->saturated,
                 "%llu of the %.0f requests that were due were never sent, for want of a free stream",
                 (unsigned long long)s->n_unsent, due);
}
