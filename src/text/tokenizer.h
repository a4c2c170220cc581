/* Bytes to token ids and back. Immutable once made; may be used from any thread.
 *
 * Byte-level BPE (Radford et al. 2019; Sennrich et al. 2016), BPE over characters and unigram models as
 * SentencePiece has them (Kudo and Richardson 2018; Kudo 2018), WordPiece (Schuster and Nakajima 2012).
 * Equal, id for id, to Hugging Face `tokenizers`, or for models of SentencePiece to `sentencepiece`. Encoding
 * is linear (up to a logarithm) in its input. */
#ifndef TEXT_TOKENIZER_H
#define TEXT_TOKENIZER_H

#include "base/buf.h"

#include <quire/error.h>

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct tokenizer;

struct text_span {
    const char *data; /* not NUL-terminated */
    size_t len;
};

/* Token types, as GGUF has them. */
enum token_type {
    TOKEN_NORMAL = 1,
    TOKEN_UNKNOWN = 2,
    TOKEN_CONTROL = 3,
    TOKEN_USER_DEFINED = 4,
    TOKEN_UNUSED = 5,
    TOKEN_BYTE = 6
};

/* What a model file says about its tokenizer. All memory is the caller's and may go once tokenizer_create
 * returns. */
struct tokenizer_spec {
    struct text_span model;   /* tokenizer.ggml.model: "gpt2" is byte-level BPE, "llama" SentencePiece's BPE,
                                 "t5" its unigram model, "bert" WordPiece */
    struct text_span pre;     /* tokenizer.ggml.pre; data NULL when the key is absent */
    const char *pre_override; /* --tokenizer-pre NAME; NULL = none */
    const struct text_span *pieces; /* [n_vocab], byte-level alphabet */
    const int32_t *types;           /* [n_vocab] enum token_type; NULL = all normal */
    size_t n_vocab;
    const struct text_span *merges; /* [n_merges] "left right", best first */
    size_t n_merges;
    int64_t bos, eos, unk; /* ids, -1 = none */
    bool add_bos, add_eos;
    bool add_bos_unset; /* the file has no add_bos_token: as the family does (Llama 3 adds), add_bos is not
                           read */
    bool add_eos_unset; /* the same for add_eos_token */

    /* The rest is for "llama", "t5" and "bert". */
    const float *scores;   /* [n_vocab] tokenizer.ggml.scores; NULL = none ("llama" and "t5" need them) */
    int64_t cls, sep;      /* "bert": ids in front of and after each text, -1 = those of [CLS] and [SEP]; with
                              sep, BOS and EOS around each text, others join pairs as RoBERTa does */
    bool no_space_prefix;  /* add_space_prefix is false: no space is put in front of a text */
    bool squeeze_spaces;   /* remove_extra_whitespaces */
    bool space_suffix;     /* the added space goes at the end */
    bool no_byte_fallback; /* byte pieces are not used */
    struct text_span charsmap;    /* precompiled_charsmap; len 0 = none */
    bool keep_case, keep_accents; /* "bert": no lower-casing, no stripping of accents */

    const struct tokenizer_pipeline *pipeline; /* what tokenizer.json says instead; NULL from other callers */
};

/* Refuses an unknown or absent pre-tokenizer with key, value and the override flag; pieces or merges that
 * contradict each other, ids out of range, duplicate pieces: QUIRE_EFORMAT naming the key.
 *
 * A user-defined token that is BOS or EOS, or has the shape of a turn marker (<|...|>, also with full-width
 * bars), is kept out of content like a control token: converters are known to mistype these, and content must
 * not forge a turn. */
int tokenizer_create(const struct tokenizer_spec *spec, struct tokenizer **out, struct error *err);
void tokenizer_free(struct tokenizer *t); /* NULL allowed */

struct token_buf {
    uint32_t *ids;
    size_t n, cap;
};
void token_buf_free(struct token_buf *b);

/* A stretch of text that came from outside (a message's content): special tokens are not recognised in it. */
struct content_span {
    size_t start, len; /* bytes of the text */
};

enum {
    /* spellings of control and user-defined tokens become those tokens */
    TOKENIZE_SPECIAL = 1,
    /* BOS and EOS are added as the model file says; no second BOS if the text already begins with it */
    TOKENIZE_ADD = 2
};

/* Appends ids to *out. content (ascending, not overlapping; may be NULL) marks stretches where
 * TOKENIZE_SPECIAL does not apply to control tokens: a special token is recognised only where all its bytes
 * are outside. Merging does not stop at a stretch's border, so ids otherwise equal those of the whole text.
 * Any bytes are accepted, also invalid UTF-8 (each byte of an invalid sequence is a character of its own).
 * max_tokens: QUIRE_ELIMIT as soon as more are needed (0 = no limit), or if a single word has 2^32 - 1 bytes
 * or more. QUIRE_ENOMEM. After an error *out is as it was.
 *
 * The ids' bytes are the text again, with two exceptions, both the reference's: qwen2 normalizes to NFC
 * first, and a byte for which the vocabulary has no piece is dropped (SmolLM2 lacks 21: 13 that UTF-8 never
 * uses, 6 control characters, and F1 and F2, which begin characters that Unicode has not assigned). */
int tokenizer_encode(const struct tokenizer *t, const char *text, size_t len, unsigned flags,
                     const struct content_span *content, size_t n_content, size_t max_tokens,
                     struct token_buf *out, struct error *err);

size_t tokenizer_n_vocab(const struct tokenizer *t);
int64_t tokenizer_bos(const struct tokenizer *t);
int64_t tokenizer_eos(const struct tokenizer *t);
bool tokenizer_is_control(const struct tokenizer *t, uint32_t id);
bool tokenizer_adds_bos(const struct tokenizer *t);   /* with TOKENIZE_ADD */
const char *tokenizer_pre(const struct tokenizer *t); /* canonical name, whatever alias the file has */
bool tokenizer_pre_overridden(const struct tokenizer *t);
/* The id whose spelling this is, or -1: of control and user-defined tokens as the file has it, else as text,
 * not in the byte-level alphabet (" the", not "Gthe" with a dotted G). */
int64_t tokenizer_find(const struct tokenizer *t, const char *piece, size_t len);

/* How many ids TOKENIZE_ADD puts in front of a text and after it. */
void tokenizer_n_added(const struct tokenizer *t, size_t *before, size_t *after);

/* Where the appended ids of two texts are, counted from the first of them. */
struct token_pair {
    size_t n_first; /* those of the first text, with what is added: token type 0 */
    size_t first_at, first_len, second_at, second_len; /* of the texts alone */
};

/* As tokenizer_encode with TOKENIZE_ADD, of two texts as a cross-encoder is given them; nothing in them is a
 * special token. QUIRE_EUNSUPPORTED if the model says nothing about pairs. */
int tokenizer_encode_pair(const struct tokenizer *t, struct text_span first, struct text_span second,
                          size_t max_tokens, struct token_buf *out, struct token_pair *pair,
                          struct error *err);

/* Bytes of a token as text: the spelling of a control (or unknown or unused) token only if with_special, else
 * none. An id out of range has none. Owned by t. */
const uint8_t *tokenizer_bytes(const struct tokenizer *t, uint32_t id, bool with_special, size_t *len);

/* Appends the text of a whole sequence of ids to *out, as the reference decodes it: the space that encoding
 * puts in front is dropped, WordPiece joins its words with spaces, and ill-formed UTF-8 becomes U+FFFD
 * (text/detokenizer.h). Where ids go on from others (an answer after its prompt) nothing is dropped: their
 * text is that of tokenizer_bytes. */
void tokenizer_decode(const struct tokenizer *t, const uint32_t *ids, size_t n, bool with_special,
                      struct buf *out);

/* The bytes of all ids in one array, control tokens empty: id i is bytes[offsets[i] .. offsets[i + 1]). Owned
 * by t. */
void tokenizer_byte_table(const struct tokenizer *t, const uint8_t **bytes, const uint32_t **offsets);

#endif
