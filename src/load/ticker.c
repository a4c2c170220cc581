#include "load/ticker.h"

#include "base/clock.h"
#include "base/gauge.h"

#include <string.h>

#define EVERY_US 500000

void ticker_start(struct ticker *p, FILE *out, const char *title, uint64_t total, double duration_s) {
    *p = (struct ticker){.out = out, .title = title, .total = total, .duration_s = duration_s};
    p->start_us = p->last_us = clock_us();
}

void ticker_note(struct ticker *p, const struct answer *a, uint64_t due_us) {
    p->n++;
    p->n_failed += a->outcome != OUTCOME_OK && a->outcome != OUTCOME_CANCELED;
    if (a->first_us > due_us)
        p->recent_ms[p->n_recent++ % TICKER_RECENT] = (double)(a->first_us - due_us) / 1000;
}

static double recent_median(const struct ticker *p) {
    double sorted[TICKER_RECENT];
    size_t n = p->n_recent < TICKER_RECENT ? p->n_recent : TICKER_RECENT;
    memcpy(sorted, p->recent_ms, n * sizeof *sorted);
    stats_sort(sorted, n);
    return stats_quantile(sorted, n, 0.5);
}

static double share_done(const struct ticker *p, double passed_s) {
    double by_count = p->total ? (double)p->n / (double)p->total : 0;
    double by_time = p->duration_s > 0 ? passed_s / p->duration_s : 0;
    double share = by_count > by_time ? by_count : by_time;
    return share > 1 ? 1 : share;
}

void ticker_show(struct ticker *p, size_t active, uint64_t events, bool last) {
    uint64_t now = clock_us();
    if (!p->out) return;
    if (last) {
        fputs("\r\033[K", p->out);
        fflush(p->out);
        return;
    }
    if (now - p->last_us < EVERY_US) return;
    double passed = (double)(now - p->start_us) / 1e6, share = share_done(p, passed);
    double rate = (double)(events - p->last_events) * 1e6 / (double)(now - p->last_us);
    char cells[GAUGE_BYTES], left[16] = "-:--";
    if (share > 0.01) {
        unsigned s = (unsigned)(passed / share - passed + 0.5);
        snprintf(left, sizeof left, "%u:%02u", s / 60 % 10000, s % 60);
    }
    fprintf(p->out, "\r\033[K%s %s %llu done, %zu running", p->title, gauge_draw(cells, share),
            (unsigned long long)p->n, active);
    if (p->n_failed) fprintf(p->out, ", %llu failed", (unsigned long long)p->n_failed);
    fprintf(p->out, "  %.0f msg/s", rate);
    if (p->n_recent) fprintf(p->out, "  TTFT %.0f ms", recent_median(p));
    fprintf(p->out, "  ETA %s", left);
    fflush(p->out);
    p->last_us = now;
    p->last_events = events;
}
