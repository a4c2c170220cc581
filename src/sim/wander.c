#include "sim/wander.h"

#include "base/rng.h"

#include <math.h>
#include <string.h>

#define GOLDEN 0.6180339887498949

static uint16_t thousandths(double slow) {
    return (uint16_t)lround(1000 * fmin(WANDER_SLOWEST / 1000.0, fmax(WANDER_FASTEST / 1000.0, slow)));
}

static double slow_of(const struct wander *w, size_t i) {
    return w->slow[i] / 1000.0;
}

/* ---- making ---- */

struct maker {
    struct wander *w;
    double left_us, work_us; /* of the moment that is being filled */
};

static void fill(struct maker *m, double took_us, double mean_us) {
    while (m->w->n < WANDER_MOST && took_us >= m->left_us) {
        double part = m->left_us / took_us;
        m->work_us += part * mean_us;
        m->w->slow[m->w->n++] = thousandths(m->work_us > 0 ? m->w->moment_us / m->work_us : 1);
        took_us -= m->left_us;
        mean_us -= part * mean_us;
        m->left_us = m->w->moment_us;
        m->work_us = 0;
    }
    m->left_us -= took_us;
    m->work_us += mean_us;
}

void wander_make(const double *took_us, const double *mean_us, size_t n, struct wander *out) {
    double all = 0;
    for (size_t i = 0; i < n; i++) all += took_us[i];
    *out = (struct wander){.moment_us = WANDER_BIN_US};
    while (all / out->moment_us > WANDER_MOST) out->moment_us *= 2;
    struct maker m = {out, out->moment_us, 0};
    for (size_t i = 0; i < n; i++) fill(&m, took_us[i], mean_us[i]);
    if (out->n < WANDER_LEAST) *out = (struct wander){0};
}

/* ---- joining ---- */

/* Two moments become one: as long as both, with the work of both. */
static void coarsen(struct wander *w) {
    for (size_t i = 0; i < w->n / 2; i++)
        w->slow[i] = thousandths(2 / (1 / slow_of(w, 2 * i) + 1 / slow_of(w, 2 * i + 1)));
    w->n /= 2;
    w->moment_us *= 2;
}

void wander_join(struct wander *to, const struct wander *other, double level) {
    struct wander from = *other;
    if (!from.n) return;
    if (!to->n) to->moment_us = from.moment_us;
    for (size_t i = 0; i < from.n; i++) from.slow[i] = thousandths(level * slow_of(&from, i));
    while (to->moment_us < from.moment_us) coarsen(to);
    while (from.moment_us < to->moment_us) coarsen(&from);
    while (to->n + from.n > WANDER_MOST) {
        coarsen(to);
        coarsen(&from);
    }
    memcpy(to->slow + to->n, from.slow, from.n * sizeof *from.slow);
    to->n += from.n;
}

/* ---- playing ---- */

static double work_of_all(const struct wander *w) {
    double all = 0;
    for (size_t i = 0; i < w->n; i++) all += w->moment_us / slow_of(w, i);
    return all;
}

double wander_time(const struct wander *w, double at_us, double work_us) {
    if (!w->n) return work_us;
    double length = (double)w->n * w->moment_us, took = 0;
    double at = fmod(at_us, length), work = work_us;
    size_t i = (size_t)(at / w->moment_us) % w->n;
    double left = fmax(0, (double)(i + 1) * w->moment_us - at); /* of this moment */
    for (size_t n = 0; work * slow_of(w, i) > left; n++) {
        if (n == w->n) { /* longer than all moments together */
            double all = work_of_all(w), rounds = floor(work / all);
            work -= rounds * all;
            took += rounds * length;
            if (work * slow_of(w, i) <= left) break;
        }
        work -= left / slow_of(w, i);
        took += left;
        i = (i + 1) % w->n;
        left = w->moment_us;
    }
    return took + fmax(0, work) * slow_of(w, i);
}

double wander_start_us(const struct wander *w, uint64_t seed, uint64_t draw, uint32_t member) {
    double share = rng_uniform(seed, member, 0, 0x77616e64) + GOLDEN * (double)draw;
    return (share - floor(share)) * (double)w->n * w->moment_us;
}
