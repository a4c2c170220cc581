/* Normalizers: what happens to text before it is cut and encoded. A sequence of steps, each of which reads
 * one text and writes another; what they mean is the reference's (`tokenizers`, and for NORM_SENTENCEPIECE
 * `sentencepiece`). Bytes that are not UTF-8 pass unchanged. */
#ifndef TEXT_NORMALIZE_H
#define TEXT_NORMALIZE_H

#include "base/buf.h"
#include "text/charsmap.h"
#include "text/tokenizer.h"
#include "text/trie.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum norm_kind {
    NORM_NFC,
    NORM_NFD,
    NORM_NFKC,
    NORM_NFKD,
    NORM_LOWERCASE,
    NORM_STRIP_ACCENTS,
    NORM_BERT_CLEAN,
    NORM_BERT_CJK,
    NORM_BERT_ACCENTS, /* after NFD */
    NORM_NMT,
    NORM_PRECOMPILED,
    NORM_PREPEND,        /* text a */
    NORM_REPLACE,        /* a by b */
    NORM_REPLACE_SPACES, /* runs of at least min spaces by b */
    NORM_REPLACE_WHITE,  /* runs of white space by b */
    NORM_STRIP,
    NORM_PREFIX_SPACE,    /* a space in front, unless there is one */
    NORM_METASPACE,       /* spaces by a, and a in front as prefix says */
    NORM_METASPACE_WORDS, /* the same for each word between white space, which goes */
    NORM_SENTENCEPIECE
};

enum norm_prefix { PREFIX_NEVER, PREFIX_FIRST, PREFIX_ALWAYS };

struct norm_step {
    enum norm_kind kind;
    struct text_span a, b; /* owned by who made the step; a is not empty where it is looked for */
    size_t min;
    bool left, right; /* NORM_STRIP */
    enum norm_prefix prefix;
    const struct charsmap *charsmap;
    const struct trie *keep; /* NORM_SENTENCEPIECE: strings that no rule touches; NULL = none */
    bool squeeze;            /* NORM_SENTENCEPIECE: no space at the ends, no two in a row */
    bool suffix;             /* NORM_SENTENCEPIECE: the added space goes at the end */
};

struct norm_source { /* the bytes of the first text that a byte comes from */
    uint32_t start, end;
};

struct norm_text {
    struct buf text;
    struct norm_source *from; /* [text.len] if tracked */
    size_t from_cap;
    bool tracked;
};

struct norm_scratch { /* zero at first */
    struct norm_text v[2];
};
void norm_scratch_free(struct norm_scratch *s);

/* Runs the steps. *out and *out_len: the result, in s or, if nothing had to be done, the text itself.
 * at_start: the text begins where the whole begins (PREFIX_FIRST). from (may be NULL) gets where each byte is
 * from, or NULL if nothing was done; needs n < 2^32. False: no memory. */
bool norm_run(const struct norm_step *steps, size_t n_steps, const uint8_t *text, size_t n, bool at_start,
              struct norm_scratch *s, const uint8_t **out, size_t *out_len, const struct norm_source **from);

#endif
