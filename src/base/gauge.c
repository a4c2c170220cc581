#include "base/gauge.h"

#include <string.h>

const char *gauge_draw(char out[GAUGE_BYTES], double share) {
    size_t full = share >= 1 ? GAUGE_CELLS : share > 0 ? (size_t)(share * GAUGE_CELLS) : 0;
    out[0] = '[';
    memset(out + 1, '#', full);
    memset(out + 1 + full, '.', GAUGE_CELLS - full);
    out[GAUGE_CELLS + 1] = ']';
    out[GAUGE_CELLS + 2] = 0;
    return out;
}
