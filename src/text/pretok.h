/* Pre-tokenizers: how text is cut into the words that BPE merges within. A model file only names one
 * (tokenizer.ggml.pre); what the names mean is the regular expressions of the families' tokenizer.json, given
 * beside each scanner in pretok.c. They are run by scanners of our own, linear in the text, whose result
 * equals the reference's. */
#ifndef TEXT_PRETOK_H
#define TEXT_PRETOK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct pretok {
    const char *name;           /* the canonical one */
    const char *const *aliases; /* NULL-terminated, or NULL */
    /* End of the word that starts at i < n. The text is s[0 .. n), any bytes; each byte of an ill-formed
     * sequence is a character without properties. The result is in (i, n] and depends on s[i .. n) alone. */
    size_t (*next)(const uint8_t *s, size_t i, size_t n);
    bool nfc;           /* text is normalized first (Normalization Form C) */
    bool ignore_merges; /* a word that is a piece becomes it, whatever the merges say */
    bool add_bos;       /* BOS is the family's habit, where the file does not say */
};

/* By name or alias (not NUL-terminated); NULL if unknown. */
const struct pretok *pretok_find(const char *name, size_t len);

/* All canonical names and aliases, "a, b, c", for messages. */
const char *pretok_known_names(void);

#endif
