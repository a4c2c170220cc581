/* Tokens that are found by their spelling in text, not by merging. Internal to the tokenizers. */
#ifndef TEXT_TOKENIZER_SPECIAL_H
#define TEXT_TOKENIZER_SPECIAL_H

#include "base/arena.h"
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
    size_t n_content, at_content; /* spans before at_content end at or before the position */
};

/* The first special at or after *pos, the longest there; *pos becomes its start. NULL: none up to the end.
 * Positions may only rise from call to call. */
const struct special *special_next(struct special_scan *scan, size_t *pos);

#endif
