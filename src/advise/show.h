/* Advice for people and for programs. */
#ifndef ADVISE_SHOW_H
#define ADVISE_SHOW_H

#include "advise/gain.h"
#include "base/buf.h"

/* before: figures and advice of the window before, for the changes since; NULL without. title: NULL for none.
 */
struct shown {
    const char *title;
    const struct figures *f;
    const struct wishes *w;
    const struct advice *a;
    const struct figures *f_before;
    const struct advice *a_before;
    const struct gain_base *base; /* of the simulation; NULL: none was asked for */
};

void show_text(const struct shown *s, struct buf *out);
void show_json(const struct shown *s, struct buf *out); /* one object, with a newline */

#endif
