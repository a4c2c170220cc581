#include "text/charsmap.h"

#include "base/error.h"

#include <string.h>

static uint32_t load_le(const uint8_t *p) {
    return p[0] | (uint32_t)p[1] << 8 | (uint32_t)p[2] << 16 | (uint32_t)p[3] << 24;
}

int charsmap_init(struct charsmap *m, const void *blob, size_t n, struct arena *arena, struct error *err) {
    const uint8_t *p = blob;
    *m = (struct charsmap){0};
    if (n == 0) return 0;
    uint32_t trie_bytes = n >= 4 ? load_le(p) : 0;
    if (n < 4 || trie_bytes == 0 || trie_bytes % 4 || trie_bytes > n - 4)
        return error_set(
            err, QUIRE_EFORMAT,
            "precompiled_charsmap: its trie has %u bytes, the whole has %zu; a multiple of 4 that "
            "fits is allowed",
            trie_bytes, n);
    size_t n_units = trie_bytes / 4, rest = n - 4 - trie_bytes;
    uint32_t *units = arena_array(arena, n_units, sizeof *units);
    uint8_t *texts = arena_zalloc(arena, rest + 1); /* ends with NUL whatever the file has */
    if (!units || !texts) return QUIRE_ENOMEM;
    for (size_t i = 0; i < n_units; i++) units[i] = load_le(p + 4 + 4 * i);
    if (rest) memcpy(texts, p + 4 + trie_bytes, rest);
    *m = (struct charsmap){units, n_units, texts, rest + 1};
    return 0;
}

static size_t offset_of(uint32_t unit) {
    return (size_t)(unit >> 10) << ((unit & 0x200) >> 6);
}

const uint8_t *charsmap_find(const struct charsmap *m, const uint8_t *s, size_t n, int shortest, size_t *used,
                             size_t *out_len) {
    const uint8_t *found = NULL;
    if (!m->units) return NULL;
    size_t at = offset_of(m->units[0]);
    for (size_t i = 0; i < n; i++) {
        if (shortest && s[i] == 0) break; /* the reference reads its input as a C string here */
        at ^= s[i];
        if (at >= m->n_units) break;
        uint32_t unit = m->units[at];
        if ((unit & 0x800000ffu) != s[i]) break;
        at ^= offset_of(unit);
        if (!(unit & 0x100) || at >= m->n_units) continue;
        size_t value = m->units[at] & 0x7fffffffu;
        if (value >= m->texts_bytes) continue;
        found = m->texts + value;
        *used = i + 1;
        if (shortest) break;
    }
    if (found) *out_len = strlen((const char *)found);
    return found;
}
