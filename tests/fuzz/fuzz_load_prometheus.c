/* Prometheus text: samples lie within the text, in order, at most one a line, with finite values; labels are
 * what stands between the braces; the scrape that sums them up is finite wherever single values are. */
#include "load/prometheus.h"
#include "load/scrape.h"

#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void require(bool holds, const char *what) {
    if (holds) return;
    fprintf(stderr, "violated: %s\n", what);
    abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

/* Written out again with escapes, the value of a label reads the same. */
static void check_label(const struct prometheus_sample *s, const char *name) {
    char value[64], line[256] = "m{", again[64];
    if (!prometheus_label(s, name, value, sizeof value)) return;
    size_t at = strlen(line);
    at += (size_t)snprintf(line + at, sizeof line - at, "%s=\"", name);
    for (const char *p = value; *p; p++) {
        if (*p == '\\' || *p == '"' || *p == '\n') line[at++] = '\\';
        line[at++] = *p == '\n' ? 'n' : *p;
    }
    snprintf(line + at, sizeof line - at, "\"} 1\n");
    struct prometheus_sample t;
    const char *p = line;
    require(prometheus_next(&p, &t) && t.value == 1, "the label's line is a sample");
    require(prometheus_label(&t, name, again, sizeof again) && !strcmp(again, value), "the same label");
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n) {
    char *text = malloc(n + 1);
    struct prometheus_sample s;
    struct scrape scrape;
    size_t lines = 1, samples = 0;
    if (!text) return 0;
    memcpy(text, data, n);
    text[n] = 0;
    for (const char *c = text; *c; c++) lines += *c == '\n';
    const char *end = text + strlen(text), *before = text;
    for (const char *p = text; prometheus_next(&p, &s); before = p) {
        samples++;
        require(p > before && p <= end, "it goes on");
        require(s.name >= before && s.name_n && s.name + s.name_n <= p, "the name lies within");
        require(s.labels >= s.name + s.name_n && s.labels + s.labels_n <= p, "the labels lie within");
        require(isfinite(s.value), "a finite value");
        require(!memchr(s.name, '\n', (size_t)(p - s.name) - (p[-1] == '\n')), "within one line");
        check_label(&s, "le");
        check_label(&s, "a");
    }
    require(samples <= lines, "one a line at most");
    scrape_read(text, &scrape);
    free(text);
    return 0;
}
