/* What the kernel checks share: tables under test, guarded buffers, random fills, and reporting. */
#ifndef TESTS_KERN_CHECK_H
#define TESTS_KERN_CHECK_H

#include "kern/kern.h"

#include <stdarg.h>

/* Unit roundoff of float: |fl(x) - x| <= U |x|. */
#define U 0x1p-24

struct check {
    const struct kern *kern; /* under test */
    const char *what;        /* kernel being checked, for messages */
    size_t n_checks, n_failed;
    uint64_t rng;
};

/* Counts one check; a failure is printed with the table, the kernel and the text (the first 20 of a run). */
void check_that(struct check *c, bool ok, const char *format, ...) __attribute__((format(printf, 3, 4)));

uint64_t check_random(struct check *c);
size_t check_below(struct check *c, size_t n); /* uniform in [0, n) */
float check_uniform(struct check *c, float low, float high);

/* Kinds of input. Each test uses all that make sense for it. */
enum fill { FILL_NORMAL, FILL_ONES, FILL_ALTERNATING, FILL_WIDE, FILL_DENORMAL, FILL_ZERO, FILLS };
extern const char *const fill_names[FILLS];
void check_fill(struct check *c, float *x, size_t n, enum fill fill);

/* Memory between two unreadable pages. At the back the buffer ends at the page (less what `align` takes); in
 * front it begins right behind one. Bytes of the buffer are 0xff (NaN) at first. */
struct guarded {
    void *data;
    size_t bytes;
    char *map;
    size_t map_bytes;
};
enum side { SIDE_BACK, SIDE_FRONT, SIDES };
struct guarded guarded_new(size_t bytes, size_t align, enum side side);
void guarded_free(struct check *c,
                  struct guarded *g); /* checks the bytes around the buffer that pages cannot guard */

bool same_bits(const void *a, const void *b, size_t bytes);

void check_mm(struct check *c);
void check_attn(struct check *c);
void check_ops(struct check *c);

#endif
