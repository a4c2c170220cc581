/* What a tokenizer is made of. tokenizer.c holds what all families share: the vocabulary's bytes, special
 * tokens, BOS and EOS, limits; a family (byte-level BPE is the first) makes the vocabulary and turns ordinary
 * text into ids. */
#ifndef TEXT_TOKENIZER_INTERNAL_H
#define TEXT_TOKENIZER_INTERNAL_H

#include "base/arena.h"
#include "base/buf.h"
#include "text/bpe.h"
#include "text/pretok.h"
#include "text/tokenizer.h"
#include "text/tokenizer_sink.h"
#include "text/tokenizer_special.h"

/* What one call of tokenizer_encode needs on the way; one thread's. */
struct tokenizer_scratch {
    struct bpe_scratch bpe;
    struct buf text;
};

struct tokenizer_family {
    const char *model; /* value of tokenizer.ggml.model */
    /* Fills in everything but family, arena and the BOS/EOS fields of a zeroed t. */
    int (*create)(struct tokenizer *t, const struct tokenizer_spec *spec, struct error *err);
    /* Encodes text without special tokens. */
    int (*encode)(const struct tokenizer *t, const uint8_t *text, size_t len,
                  struct tokenizer_scratch *scratch, struct token_sink *sink);
    /* The id whose bytes these are, BPE_NONE if none. */
    uint32_t (*find)(const struct tokenizer *t, const uint8_t *bytes, size_t len);
};

extern const struct tokenizer_family tokenizer_bytelevel;

struct tokenizer {
    struct arena arena; /* all memory, this struct's too */
    const struct tokenizer_family *family;
    size_t n_vocab;
    uint8_t *types;    /* [n_vocab] enum token_type */
    uint8_t *bytes;    /* text of all tokens, one after the other; control tokens have none */
    uint32_t *offsets; /* [n_vocab + 1] into bytes */
    struct special_set specials;
    const struct special **by_id; /* [specials.n] sorted by id */
    int64_t bos, eos;
    bool add_bos, add_eos;
    const struct pretok *pretok;
    bool pre_overridden;
    struct bpe bpe;
};

#endif
