/* How much of the cores that it runs on the process has.
 *
 * A virtual machine's core is often one of two hardware threads of a real one, and somebody else's work on
 * the other half takes instruction slots and caches that no figure of the system shows: neither load nor
 * steal time rise. It halves code that keeps the execution units busy, as products do, and leaves code that
 * waits alone. So two loops take turns: a chain of integer multiplications, each waiting 3 cycles for the one
 * before, tells the clock; independent SSE multiplications, 2 a cycle on the processors that Quire meets
 * (Intel since Haswell, AMD since Zen; A. Fog, "Instruction tables"), tell what is left of the units. The
 * share is what was reached of those 2. */
#ifndef BENCH_CORE_SHARE_H
#define BENCH_CORE_SHARE_H

#include "bench/team.h"

#include <stddef.h>

struct core_share {
    double median, low, high; /* 1 = whole cores; low and high: one in ten was outside on either side */
    double clock_hz;          /* median */
};

#define CORE_SHARED_BELOW 0.9 /* of `low`: the loops themselves vary by a few percent */

/* Takes about a second. Processor time is measured, so work of this system's does not count, only of others
 * below it. Errors: QUIRE_ENOMEM. */
int core_share_measure(struct team *team, struct core_share *out, struct error *err);

/* The figures of n pairs of rates: chained instructions a second, independent ones a second. Reorders both.
 */
struct core_share core_share_of(double *chained, double *independent, size_t n);

#endif
