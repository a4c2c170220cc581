/* Tokens that are found by their spelling in text, not by merging. Internal to the tokenizers. */
#ifndef TEXT_TOKENIZER_SPECIAL_H
#define TEXT_TOKENIZER_SPECIAL_H

#include "base/arena.h"
#include "text/normalize.h"
#include "text/tokenizer.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum special_scope {
    SPECIAL_NEVER,   /* is only looked up by name */
    SPECIAL_OUTSIDE, /* recognised where none of its bytes is content */
    SPECIAL_ANYWHERE /* recognised in content too */
};

struct special {
    const uint8_t *text;
    uint32_t len, id;
    enum special_scope scope;
    bool lstrip, rstrip; /* white space before or after it is part of it */
    bool single_word;    /* only where no word character is next to it */
};

struct special_set {
    struct special *v; /* [n] sorted by spelling */
    size_t n;
    size_t first[257];   /* those that begin with byte b: v[first[b]] .. v[first[b + 1]] */
    bool may_start[256]; /* some recognised one begins with b */
    uint8_t only_start;  /* if n_starts is 1: that byte */
    size_t n_starts;
};

/* Takes v, which must live as long as the set, and sorts it. Empty spellings are dropped. */
void special_set_init(struct special_set *s, struct special *v, size_t n);

/* The special with this spelling, or NULL. */
const struct special *special_find(const struct special_set *s, const uint8_t *text, size_t len);

/* Walks through a text from left to right. */
struct special_scan {
    const struct special_set *set;
    const uint8_t *text;
    size_t len;
    const struct content_span *content;
    size_t n_content, at_content;   /* spans before at_content end at or before the position */
    const struct norm_source *from; /* [len] where each byte is from; NULL: it is the text itself */
    size_t base;                    /* where the text that from is about begins among content's */
    size_t pos;                     /* where the search goes on */
    size_t taken;                   /* end of the match before, with its white space */
};

struct special_match {
    const struct special *special;
    size_t start, end; /* with the white space that belongs to it */
};

/* The next special: the leftmost, of those the longest. False: there are no more. */
bool special_next(struct special_scan *scan, struct special_match *m);

#endif
