/* Byte pair encoding (Sennrich et al. 2016) over bytes or characters: a word's symbols are merged pair by
 * pair, always the pair of best rank and among equals the leftmost, until none is left that has a rank. Equal
 * to Hugging Face `tokenizers` BPE, also for lists of merges that no training would give. Knows ids and
 * bytes, not spellings.
 */
#ifndef TEXT_BPE_H
#define TEXT_BPE_H

#include "base/arena.h"
#include "text/tokenizer_sink.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define BPE_NONE UINT32_MAX

struct bpe_merge { /* left + right becomes id; its rank is its index */
    uint32_t left, right, id;
};

/* Open addressing, at most half full. */
struct bpe_pair_slot {
    uint32_t left, right, rank, id; /* all BPE_NONE = free */
};

struct bpe_word_slot {
    uint32_t tag; /* lower half of the bytes' hash */
    uint32_t id;  /* BPE_NONE = free */
};

/* Whether a piece's bytes, as a word, encode to it alone. Most words of ordinary text are pieces, and this saves
 * merging them. Found when such a word first comes: for all pieces it takes a good part of a start. */
enum bpe_whole { BPE_UNTRIED, BPE_WHOLE, BPE_IN_PARTS };

struct bpe {
    const struct bpe_pair_slot *pairs;
    const struct bpe_word_slot *words; /* the pieces by their bytes */
    uint8_t *whole;                    /* [n_vocab] enum bpe_whole; atomic, the rest is not written again */
    unsigned pair_shift, word_shift;   /* 64 - log2 of the number of slots */
    const uint8_t *bytes;              /* borrowed: the vocabulary's byte table */
    const uint32_t *offsets;
    size_t n_merges;
    size_t max_piece_bytes;
    uint32_t byte_id[256]; /* BPE_NONE: no piece; such bytes are dropped, as in the reference */
    bool ordered;          /* each piece is made only by merges that come before all merges that use it */
    bool chars;            /* symbols are characters; byte_id is of those of one byte */
    bool has_fallback;     /* a character without a piece is spelled by byte pieces */
    uint32_t fallback[256];
    bool lossless; /* each byte is in some symbol */
    uint32_t unk;  /* else it is this; BPE_NONE: it is dropped */
    bool fuse_unk;
};

struct bpe_config {
    const uint8_t *bytes; /* pieces: id is bytes[offsets[id] .. offsets[id + 1]); must outlive the bpe */
    const uint32_t *offsets;
    const bool *is_word; /* [n_vocab] whether the piece takes part: reachable from bytes */
    size_t n_vocab;      /* < 2^31 */
    const struct bpe_merge *merges;
    size_t n_merges;
    bool ignore_merges;       /* whatever is a piece is encoded as it */
    const uint32_t *ranks;    /* [n_merges] pairs may share one; NULL: the index is the rank */
    bool chars;               /* and these four: see struct bpe */
    const uint32_t *fallback; /* [256], or NULL */
    uint32_t unk;
    bool fuse_unk;
};

/* Tables are from the arena. QUIRE_ENOMEM, or QUIRE_EFORMAT if a pair is listed twice (*duplicate, the
 * second's rank). */
int bpe_init(struct bpe *b, const struct bpe_config *c, struct arena *arena, size_t *duplicate);

/* Memory for long words, kept from one to the next. Zero at first. */
struct bpe_scratch {
    uint32_t *symbols;
    size_t symbols_cap; /* in elements */
    uint32_t *buckets;
    size_t n_heaped; /* symbols merged without buckets so far, at most n_merges / 64 */
};
void bpe_scratch_free(struct bpe_scratch *s);

/* Encodes a word of n > 0 bytes. QUIRE_ELIMIT (the sink's, or a word of 2^32 - 1 bytes or more),
 * QUIRE_ENOMEM. */
int bpe_encode(const struct bpe *b, const uint8_t *word, size_t n, struct bpe_scratch *scratch,
               struct token_sink *sink);

/* The id of the piece with these bytes, or BPE_NONE. */
uint32_t bpe_find(const struct bpe *b, const uint8_t *word, size_t n);

/* The rank of a pair and what it becomes, or NULL. */
static inline const struct bpe_pair_slot *bpe_pair(const struct bpe *b, uint32_t left, uint32_t right) {
    uint64_t key = (uint64_t)left << 32 | right;
    size_t mask = SIZE_MAX >> b->pair_shift;
    for (size_t i = (key * 0x9e3779b97f4a7c15u) >> b->pair_shift;; i = (i + 1) & mask) {
        const struct bpe_pair_slot *s = &b->pairs[i];
        if (s->left == left && s->right == right) return s;
        if (s->rank == BPE_NONE) return NULL;
    }
}

/* The symbols that a word begins as, to ids (room for n). Returns their number. */
size_t bpe_symbols(const struct bpe *b, const uint8_t *word, size_t n, uint32_t *ids);

/* bpe_long.c: the same for words of many symbols. */
int bpe_encode_long(const struct bpe *b, const uint8_t *word, size_t n, struct bpe_scratch *scratch,
                    struct token_sink *sink);

#endif
