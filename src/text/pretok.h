/* Pre-tokenizers: how text is cut into the words that a model encodes one by one. A GGUF file only names one
 * (tokenizer.ggml.pre); what the names mean is the regular expressions of the families' tokenizer.json, given
 * beside each scanner. tokenizer.json itself holds the expressions, of which those are known that scanners
 * exist for. Scanners are our own and linear in the text; their result equals the reference's. */
#ifndef TEXT_PRETOK_H
#define TEXT_PRETOK_H

#include "text/tokenizer.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* End of the piece that starts at i < n: a match of the step's expression, or the stretch up to the next one.
 * The text is s[0 .. n), any bytes; each byte of an ill-formed sequence is a character without properties.
 * The result is in (i, n] and depends on s[i .. n) alone. */
typedef size_t pretok_scanner(const uint8_t *s, size_t i, size_t n);

enum split_behavior { SPLIT_ISOLATED, SPLIT_REMOVED, SPLIT_WITH_PREVIOUS, SPLIT_WITH_NEXT, SPLIT_CONTIGUOUS };

struct pretok_step {
    pretok_scanner *next;     /* NULL: at occurrences of a string */
    bool drop_space;          /* pieces that begin with white space go */
    struct text_span literal; /* not empty */
    enum split_behavior behavior;
};

enum { PRETOK_MAX_STEPS = 8 };

struct pretok {
    const char *name;                /* the canonical one */
    const char *const *aliases;      /* NULL-terminated, or NULL */
    const struct pretok_step *steps; /* each cuts the pieces of the one before */
    size_t n_steps;
    bool nfc;           /* text is normalized first (Normalization Form C) */
    bool ignore_merges; /* a word that is a piece becomes it, whatever the merges say */
    bool add_bos;       /* BOS is the family's habit, where the file does not say */
};

/* By name or alias (not NUL-terminated); NULL if unknown. */
const struct pretok *pretok_find(const char *name, size_t len);

/* All canonical names and aliases, "a, b, c", for messages. */
const char *pretok_known_names(void);

/* The scanner of an expression as a Split of tokenizer.json writes it, NULL if it is not known. *total:
 * whether it matches everything, with no stretches between matches. */
pretok_scanner *pretok_of_regex(const char *pattern, size_t len, bool *total);

/* The scanners of other pre-tokenizers. */
pretok_scanner pretok_gpt2, pretok_digits, pretok_digit_runs, pretok_byte_digits, pretok_byte_digit_runs,
    pretok_punctuation, pretok_punctuation_runs, pretok_white_split, pretok_words, pretok_bert;

/* Walks through the words of a text. */
struct pretok_walk {
    const struct pretok_step *steps;
    size_t n_steps;
    const uint8_t *s;
    size_t i, n;
    size_t end[PRETOK_MAX_STEPS]; /* of the piece of each step that i is in; zero at first */
};

size_t pretok_literal_next(const struct pretok_step *step, const uint8_t *s, size_t i, size_t n);
bool pretok_dropped(const struct pretok_step *step, const uint8_t *s, size_t i, size_t n);

/* The next word: false at the end. */
static inline bool pretok_walk_next(struct pretok_walk *w, size_t *start, size_t *end) {
again:
    if (w->i >= w->n) return false;
    size_t limit = w->n;
    for (size_t k = 0; k < w->n_steps; k++) {
        const struct pretok_step *step = &w->steps[k];
        if (w->end[k] <= w->i) {
            w->end[k] =
                step->next ? step->next(w->s, w->i, limit) : pretok_literal_next(step, w->s, w->i, limit);
            if (step->drop_space || step->behavior == SPLIT_REMOVED)
                if (pretok_dropped(step, w->s, w->i, limit)) {
                    w->i = w->end[k];
                    goto again;
                }
        }
        limit = w->end[k];
    }
    *start = w->i;
    *end = w->i = limit;
    return true;
}

#endif
