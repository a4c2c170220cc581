#include "text/trie.h"

#include "base/size.h"

#include <stdlib.h>
#include <string.h>

static int by_text(const void *a, const void *b) {
    const struct trie_entry *x = a, *y = b;
    int order = memcmp(x->text, y->text, size_min(x->len, y->len));
    if (order) return order;
    if (x->len != y->len) return x->len < y->len ? -1 : 1;
    return (x->value > y->value) - (x->value < y->value);
}

static size_t shared_prefix(const struct trie_entry *a, const struct trie_entry *b) {
    size_t n = size_min(a->len, b->len), i = 0;
    while (i < n && a->text[i] == b->text[i]) i++;
    return i;
}

struct range { /* entries whose first depth bytes are those of the node */
    uint32_t lo, hi;
};

static void fill(struct trie *t, const struct trie_entry *e, struct range *ranges, uint32_t *child,
                 uint8_t *label, uint32_t *value) {
    uint32_t n = 1, level_end = 1, depth = 0;
    for (uint32_t node = 0; node < t->n_nodes; node++) {
        if (node == level_end) {
            depth++;
            level_end = n;
        }
        struct range r = ranges[node];
        value[node] = TRIE_NONE;
        child[node] = n;
        for (; r.lo < r.hi && e[r.lo].len == depth; r.lo++)
            if (value[node] == TRIE_NONE) value[node] = e[r.lo].value;
        while (r.lo < r.hi) {
            uint32_t end = r.lo + 1;
            while (end < r.hi && e[end].text[depth] == e[r.lo].text[depth]) end++;
            label[n] = e[r.lo].text[depth];
            ranges[n++] = (struct range){r.lo, end};
            r.lo = end;
        }
    }
    child[t->n_nodes] = n;
}

int trie_init(struct trie *t, struct trie_entry *entries, size_t n, struct arena *arena) {
    *t = (struct trie){0};
    if (n) qsort(entries, n, sizeof *entries, by_text);
    size_t n_nodes = 1, bytes;
    for (size_t i = 0; i < n; i++)
        n_nodes += entries[i].len - (i ? shared_prefix(&entries[i - 1], &entries[i]) : 0);
    if (n_nodes >= TRIE_NONE || !size_mul(n_nodes, sizeof(struct range), &bytes)) return QUIRE_ENOMEM;
    struct range *ranges = malloc(bytes);
    uint32_t *child = arena_array(arena, n_nodes + 1, sizeof *child);
    uint32_t *value = arena_array(arena, n_nodes, sizeof *value);
    uint8_t *label = arena_alloc(arena, n_nodes);
    int rc = ranges && child && value && label ? 0 : QUIRE_ENOMEM;
    if (!rc) {
        t->n_nodes = n_nodes;
        t->child = child;
        t->value = value;
        t->label = label;
        label[0] = 0;
        ranges[0] = (struct range){0, (uint32_t)n};
        fill(t, entries, ranges, child, label, value);
        for (unsigned b = 0; b < 256; b++) t->root[b] = TRIE_NONE;
        for (uint32_t i = child[0]; i < child[1]; i++) t->root[label[i]] = i;
    }
    free(ranges);
    return rc;
}
