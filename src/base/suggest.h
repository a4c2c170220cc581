/* "Did you mean ...?": the nearest of some known names to one that is not known. */
#ifndef BASE_SUGGEST_H
#define BASE_SUGGEST_H

#include <stddef.h>

struct suggestion {
    const char *name; /* what was given; not NUL-terminated */
    size_t n;
    const char *nearest; /* the nearest candidate so far, NULL if none is near enough */
    size_t distance;
};

void suggest_init(struct suggestion *s, const char *name, size_t n);

/* Near enough is within half of the shorter one's length (edit distance; '_' and '-' are equal; names of more
 * than 63 bytes are near nothing). Of equally near ones the first stays. candidate must outlive s. */
void suggest_offer(struct suggestion *s, const char *candidate);

#endif
