#include "base/due.h"

#include <stdlib.h>

bool due_push(struct due_heap *h, uint64_t us, void *what) {
    if (h->n == h->cap) {
        size_t cap = h->cap ? 2 * h->cap : 256;
        struct due *v = realloc(h->v, cap * sizeof *v);
        if (!v) return false;
        h->v = v;
        h->cap = cap;
    }
    size_t i = h->n++;
    for (; i && h->v[(i - 1) / 2].us > us; i = (i - 1) / 2) h->v[i] = h->v[(i - 1) / 2];
    h->v[i] = (struct due){us, what};
    return true;
}

struct due due_pop(struct due_heap *h) {
    struct due top = h->v[0], last = h->v[--h->n];
    size_t i = 0, child;
    while ((child = 2 * i + 1) < h->n) {
        if (child + 1 < h->n && h->v[child + 1].us < h->v[child].us) child++;
        if (last.us <= h->v[child].us) break;
        h->v[i] = h->v[child];
        i = child;
    }
    h->v[i] = last;
    return top;
}

void due_free(struct due_heap *h) {
    free(h->v);
    *h = (struct due_heap){0};
}
