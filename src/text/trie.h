/* A trie over bytes: which of a set of strings begin at a place of a text. Immutable once made. */
#ifndef TEXT_TRIE_H
#define TEXT_TRIE_H

#include "base/arena.h"
#include "text/tokenizer.h"

#include <stddef.h>
#include <stdint.h>

#define TRIE_NONE UINT32_MAX

/* Nodes are numbered breadth first, so the children of one are neighbours, ascending by label. */
struct trie {
    const uint32_t *child; /* [n_nodes + 1] children of node i are child[i] .. child[i + 1] */
    const uint8_t *label;  /* [n_nodes] the byte that leads here */
    const uint32_t *value; /* [n_nodes] TRIE_NONE: no string ends here */
    size_t n_nodes;
    uint32_t root[256]; /* child of the root by byte, TRIE_NONE = none */
};

struct trie_entry {
    const uint8_t *text;
    uint32_t len; /* > 0 */
    uint32_t value;
};

/* Sorts entries; of equal strings that of the lowest value counts. Texts may go afterwards; memory is the
 * arena's. QUIRE_ENOMEM. */
int trie_init(struct trie *t, struct trie_entry *entries, size_t n, struct arena *arena);

/* Child of a node that is not the root. */
static inline uint32_t trie_step(const struct trie *t, uint32_t node, uint8_t byte) {
    uint32_t lo = t->child[node], hi = t->child[node + 1];
    while (hi - lo > 8) {
        uint32_t mid = lo + (hi - lo) / 2;
        if (t->label[mid] <= byte)
            lo = mid;
        else
            hi = mid;
    }
    for (; lo < hi; lo++)
        if (t->label[lo] == byte) return lo;
    return TRIE_NONE;
}

/* The longest string that begins at text (n bytes): its value and length, or TRIE_NONE. */
static inline uint32_t trie_longest(const struct trie *t, const uint8_t *text, size_t n, size_t *len) {
    uint32_t best = TRIE_NONE, node = n ? t->root[text[0]] : TRIE_NONE;
    *len = 0;
    for (size_t i = 1; node != TRIE_NONE; i++) {
        if (t->value[node] != TRIE_NONE) {
            best = t->value[node];
            *len = i;
        }
        if (i >= n) break;
        node = trie_step(t, node, text[i]);
    }
    return best;
}

#endif
