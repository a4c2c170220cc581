/* SentencePiece's compiled normalization rules (precompiled_charsmap): a double-array trie (Darts) from
 * strings to replacements. The bytes are the model file's; every index from them is checked. */
#ifndef TEXT_CHARSMAP_H
#define TEXT_CHARSMAP_H

#include "base/arena.h"

#include <quire/error.h>

#include <stddef.h>
#include <stdint.h>

struct charsmap {
    const uint32_t *units; /* [n_units], host byte order; NULL: no rules */
    size_t n_units;
    const uint8_t *texts; /* NUL-terminated replacements */
    size_t texts_bytes;
};

/* Copies into the arena. An empty blob: no rules. QUIRE_EFORMAT with the text of what is wrong, QUIRE_ENOMEM.
 */
int charsmap_init(struct charsmap *m, const void *blob, size_t n, struct arena *arena, struct error *err);

/* A rule that applies at s: its replacement (length in *out_len) and how many bytes it replaces in *used;
 * NULL if there is none. The longest rule, or the shortest, as `tokenizers` takes. */
const uint8_t *charsmap_find(const struct charsmap *m, const uint8_t *s, size_t n, int shortest, size_t *used,
                             size_t *out_len);

#endif
