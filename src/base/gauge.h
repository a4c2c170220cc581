/* The cells of a progress bar. */
#ifndef BASE_GAUGE_H
#define BASE_GAUGE_H

#include <stddef.h>

#define GAUGE_CELLS 24
#define GAUGE_BYTES (GAUGE_CELLS + 3)

/* "[###.....]" in out, which is returned. share: 0 to 1, of which whole cells are filled; others are taken as
 * the nearest of these, and what is no number as 0. */
const char *gauge_draw(char out[GAUGE_BYTES], double share);

#endif
