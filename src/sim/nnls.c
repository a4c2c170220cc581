#include "sim/nnls.h"

#include <math.h>
#include <string.h>

#define SWEEPS 50000
#define CLOSE  1e-13 /* of the values: a sweep that moves none further ends it */

void nnls_init(struct nnls *s, size_t n) {
    memset(s, 0, sizeof *s);
    s->n = n;
}

void nnls_add(struct nnls *s, const double *a, double b, double weight) {
    double w = weight * weight;
    for (size_t i = 0; i < s->n; i++) {
        if (a[i] == 0) continue;
        s->atb[i] += w * a[i] * b;
        for (size_t k = 0; k < s->n; k++) s->ata[i][k] += w * a[i] * a[k];
    }
}

/* Unknowns are in units of their column's length while the sweeps run. */
void nnls_solve(const struct nnls *s, double *x) {
    double scale[NNLS_MAX], moved = 1, largest = 1;
    for (size_t i = 0; i < s->n; i++) {
        scale[i] = s->ata[i][i] > 0 ? 1 / sqrt(s->ata[i][i]) : 0;
        x[i] = 0;
    }
    for (int sweep = 0; sweep < SWEEPS && moved > CLOSE * largest; sweep++) {
        moved = largest = 0;
        for (size_t i = 0; i < s->n; i++) {
            double gradient = -s->atb[i] * scale[i];
            for (size_t k = 0; k < s->n; k++) gradient += s->ata[i][k] * scale[i] * scale[k] * x[k];
            double next = scale[i] > 0 ? fmax(0, x[i] - gradient) : 0;
            moved = fmax(moved, fabs(next - x[i]));
            largest = fmax(largest, next);
            x[i] = next;
        }
    }
    for (size_t i = 0; i < s->n; i++) x[i] *= scale[i];
}
