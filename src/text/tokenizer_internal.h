/* What a tokenizer is made of. tokenizer.c holds what all families share: the vocabulary's bytes, special
 * tokens, normalization, BOS and EOS, limits; a family makes the vocabulary and turns normalized text into
 * ids. */
#ifndef TEXT_TOKENIZER_INTERNAL_H
#define TEXT_TOKENIZER_INTERNAL_H

#include "base/arena.h"
#include "base/buf.h"
#include "text/bpe.h"
#include "text/normalize.h"
#include "text/pretok.h"
#include "text/tokenizer.h"
#include "text/tokenizer_sink.h"
#include "text/tokenizer_special.h"
#include "text/trie.h"

#define TEMPLATE_MAX 16

enum { TEMPLATE_FIRST = -1, TEMPLATE_SECOND = -2 }; /* items that stand for a text; others are ids */

struct token_template {
    int64_t items[TEMPLATE_MAX];
    size_t n;
};

/* Flags of a token of tokenizer.json. */
enum {
    ADDED = 1,
    ADDED_LSTRIP = 2,
    ADDED_RSTRIP = 4,
    ADDED_SINGLE_WORD = 8,
    ADDED_NORMALIZED = 16,
    IN_MODEL = 32 /* also in the model's own vocabulary */
};

/* What goes from the front of a whole text that is decoded. */
enum first_space {
    FIRST_KEPT,
    FIRST_SPACE,         /* one space */
    FIRST_SPACES,        /* all spaces */
    FIRST_PIECES_SPACES, /* all spaces of the first token, unless it is one that was added */
    FIRST_AS_PIECE       /* nothing: the first token is written as the vocabulary has it */
};

/* How pieces become text. */
enum piece_text {
    PIECE_PLAIN,
    PIECE_JOINED,    /* a space in front, and as the vocabulary has them, bytes too: tokenizer.json names no
                        decoder */
    PIECE_ALPHABET,  /* the byte-level alphabet */
    PIECE_METASPACE, /* U+2581 is a space */
    PIECE_WORDPIECE  /* a space in front, unless it begins with the continuation prefix, which goes */
};

/* What tokenizer.json says beyond the vocabulary. All memory is the loader's, copied where needed. */
struct tokenizer_pipeline {
    const struct tokenizer_family *family;
    const struct norm_step *norm, *prep; /* prep: what pre-tokenizers do to text before it is cut */
    size_t n_norm, n_prep;
    const struct pretok_step *chain;
    size_t n_chain;
    const uint8_t *flags;           /* [n_vocab] ADDED... */
    const struct text_span *merges; /* [2 * spec.n_merges] left, right */
    const double *scores;           /* [n_vocab] */
    bool byte_fallback, fuse_unk, ignore_merges;
    struct text_span continuation; /* WordPiece: what continuing pieces begin with */
    size_t max_word_chars;
    enum piece_text piece_text;
    enum first_space first_space;
    bool joins_marks; /* "a ." is decoded as "a." */
    struct token_template single, pair;
    struct text_span charsmap; /* of NORM_PRECOMPILED steps */
};

/* What one call of tokenizer_encode needs on the way; one thread's. */
struct tokenizer_scratch {
    struct bpe_scratch bpe;
    struct norm_scratch norm, prep;
    struct buf nodes; /* the unigram family's lattice */
};

struct tokenizer_family {
    const char *model; /* value of tokenizer.ggml.model */
    /* Fills in everything but family, arena and the BOS/EOS fields of a zeroed t. */
    int (*create)(struct tokenizer *t, const struct tokenizer_spec *spec, struct error *err);
    /* Encodes one word, as the pre-tokenizers cut it, of normalized text without special tokens. */
    int (*encode_word)(const struct tokenizer *t, const uint8_t *s, size_t n,
                       struct tokenizer_scratch *scratch, struct token_sink *sink);
    /* The id whose bytes these are, BPE_NONE if none. */
    uint32_t (*find)(const struct tokenizer *t, const uint8_t *bytes, size_t len);
};

extern const struct tokenizer_family tokenizer_bytelevel, tokenizer_charbpe, tokenizer_unigram,
    tokenizer_wordpiece;

struct tokenizer {
    struct arena arena; /* all memory, this struct's too */
    const struct tokenizer_family *family;
    size_t n_vocab;
    uint8_t *types;    /* [n_vocab] enum token_type */
    uint8_t *bytes;    /* text of all tokens, one after the other; control tokens have none */
    uint32_t *offsets; /* [n_vocab + 1] into bytes */
    struct special_set specials;
    const struct special **by_id;  /* [specials.n] sorted by id */
    struct special_set normalized; /* those that are looked for after normalization */
    int64_t bos, eos;
    bool add_bos, add_eos;
    struct token_template single, pair; /* n 0: BOS and EOS as the flags say */
    enum first_space first_space;
    bool joins_marks;
    bool joined; /* PIECE_JOINED */

    const struct norm_step *norm, *prep;
    size_t n_norm, n_prep;
    struct charsmap charsmap;
    bool tracks_start; /* whether normalized text begins where the text does counts, and takes looking */
    const struct pretok *pretok; /* the named one, if the file names one */
    bool pre_overridden;
    const struct pretok_step *chain;
    size_t n_chain;

    /* The families' own. spelling: pieces as the model sees them, the same array as bytes where that is the
     * text. */
    uint8_t *spelling;
    uint32_t *spelling_offsets;
    struct bpe bpe;
    bool cut_at_spaces; /* no piece goes on over U+2581 after another character */
    struct trie trie;   /* unigram: pieces; wordpiece: those that begin a word; charbpe: frozen ones */
    struct trie tail;   /* wordpiece: those that go on; unigram: user-defined ones */
    double *scores;     /* unigram */
    double unk_score;
    bool single_precision, byte_fallback, fuse_unk;
    uint32_t unk; /* BPE_NONE: none */
    uint32_t fallback[256];
    size_t max_word_chars;
};

/* tokenizer_pieces.c: what families with plainly spelled pieces share. */

/* Fills in types, bytes, offsets, spelling, specials; unk and fallback. */
int pieces_init(struct tokenizer *t, const struct tokenizer_spec *spec, enum piece_text text,
                struct error *err);
/* Whether the model may encode text to it (not control, unknown, unused, byte or only added). */
bool piece_is_text(const struct tokenizer *t, const struct tokenizer_spec *spec, size_t id);
/* Copies the pipeline's normalizers and pre-tokenizers. */
int pipeline_init(struct tokenizer *t, const struct tokenizer_pipeline *p, struct error *err);
/* Where a token is looked for; and the second set of special tokens, once specials and norm are there. */
enum special_scope piece_scope(const struct tokenizer *t, const struct tokenizer_spec *spec, size_t id);
void special_flags(struct special *s, const struct tokenizer_spec *spec, size_t id);
int pieces_normalized(struct tokenizer *t, const struct tokenizer_spec *spec);
/* The piece of t->trie that these bytes are, BPE_NONE if none. */
uint32_t pieces_find(const struct tokenizer *t, const uint8_t *bytes, size_t len);
struct text_span piece_spelling(const struct tokenizer *t, uint32_t id);
/* A trie of the pieces with pick(id) true. */
int pieces_trie(struct tokenizer *t, struct trie *out, const struct tokenizer_spec *spec, size_t skip,
                bool (*pick)(const struct tokenizer *t, const struct tokenizer_spec *spec, size_t id));
/* The SentencePiece normalizer that spec asks for, as the only step. keep may be NULL. */
int sentencepiece_norm(struct tokenizer *t, const struct tokenizer_spec *spec, const struct trie *keep,
                       struct error *err);

#endif
