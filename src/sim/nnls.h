/* Non-negative least squares. */
#ifndef SIM_NNLS_H
#define SIM_NNLS_H

#include <stddef.h>

#define NNLS_MAX 32 /* unknowns */

/* The normal equations of weighted rows: add what has been measured, then solve. */
struct nnls {
    size_t n;
    double ata[NNLS_MAX][NNLS_MAX], atb[NNLS_MAX];
};

void nnls_init(struct nnls *s, size_t n); /* n <= NNLS_MAX */
/* A row a [n] with its value b, both times weight. */
void nnls_add(struct nnls *s, const double *a, double b, double weight);
/* x [n] >= 0 that minimises |A x - b|, by coordinate descent (the problem is convex, so it converges; Franc,
 * Hlavac and Navara, "Sequential coordinate-wise algorithm for the non-negative least squares problem",
 * 2005). Columns without values get 0. */
void nnls_solve(const struct nnls *s, double *x);

#endif
