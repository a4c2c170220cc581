/* Reads Prometheus text (exposition format 0.0.4), sample by sample. */
#ifndef LOAD_PROMETHEUS_H
#define LOAD_PROMETHEUS_H

#include <stdbool.h>
#include <stddef.h>

struct prometheus_sample {     /* points into the text */
    const char *name, *labels; /* labels: what stands between the braces */
    size_t name_n, labels_n;
    double value; /* finite */
};

/* The sample at *p or behind it, with *p then behind it. Lines that are none, or whose value is not finite,
 * are skipped. False at the end. The text is NUL-terminated. */
bool prometheus_next(const char **p, struct prometheus_sample *out);
bool prometheus_is(const struct prometheus_sample *s, const char *name);
/* The value of a label without its escapes, NUL-terminated; false when there is none or it does not fit. */
bool prometheus_label(const struct prometheus_sample *s, const char *name, char *out, size_t size);

#endif
