/* Charts as inline SVG, 400 units wide: about a phone's width, so that their text stays legible there.
 * Colours are CSS classes (s0 to s5 for series) of the page around them. */
#ifndef LOAD_SVG_H
#define LOAD_SVG_H

#include "base/buf.h"

#include <stdbool.h>
#include <stddef.h>

#define SVG_COLORS 6

struct series {
    char name[80];
    double *x, *y; /* n points in the order of the line */
    size_t n;
    bool wide;  /* drawn broad and pale, so that what lies on it stays visible */
    bool marks; /* a dot at each point, with its values as a tooltip */
};

struct chart {
    const char *title, *x_label, *y_label;
    double x_max, y_max;   /* 0: from the data */
    double line_y;         /* a dashed line across, 0: none */
    const char *line_name; /* what it says */
    bool x_log; /* x on a logarithmic axis where it spans more than a factor of 20; x must be above 0 */
};

/* A <figure> with title, chart and legend. Series without points are left out; with none at all nothing is
 * drawn. */
void svg_lines(struct buf *out, const struct chart *c, const struct series *series, size_t n);

struct bar {
    const char *name;
    double value;
};
/* Horizontal bars with their values. */
void svg_bars(struct buf *out, const char *title, const char *unit, const struct bar *bars, size_t n);

void html_text(struct buf *out, const char *s); /* escaped */

#endif
