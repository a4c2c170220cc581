#include "base/suggest.h"

#include <stdint.h>
#include <string.h>

#define MAX_NAME_BYTES 63

static size_t min3(size_t a, size_t b, size_t c) {
    return a < b ? (a < c ? a : c) : b < c ? b : c;
}

static char plain(char c) {
    return c == '_' ? '-' : c;
}

/* Levenshtein distance, one row at a time. */
static size_t distance(const char *a, size_t n, const char *b, size_t m) {
    size_t row[MAX_NAME_BYTES + 1];
    for (size_t j = 0; j <= m; j++) row[j] = j;
    for (size_t i = 1; i <= n; i++) {
        size_t diagonal = row[0];
        row[0] = i;
        for (size_t j = 1; j <= m; j++) {
            size_t above = row[j];
            row[j] = min3(above + 1, row[j - 1] + 1, diagonal + (plain(a[i - 1]) != plain(b[j - 1])));
            diagonal = above;
        }
    }
    return row[m];
}

void suggest_init(struct suggestion *s, const char *name, size_t n) {
    *s = (struct suggestion){name, n, NULL, SIZE_MAX};
}

void suggest_offer(struct suggestion *s, const char *candidate) {
    size_t m = strlen(candidate);
    if (s->n > MAX_NAME_BYTES || m > MAX_NAME_BYTES) return;
    size_t d = distance(s->name, s->n, candidate, m);
    if (d >= s->distance || 2 * d > (s->n < m ? s->n : m)) return;
    s->nearest = candidate;
    s->distance = d;
}
