/* What the tokenizer tests share: vocabularies, the generators of tests/golden/tokenizer_golden.py, its
 * golden files. Any failure to read ends the test. */
#ifndef UTIL_TOK_H
#define UTIL_TOK_H

#include "base/buf.h"
#include "text/tokenizer.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct tok_vocab {
    struct text_span *pieces, *merges;
    int32_t *types;
    size_t n_vocab, n_merges;
    struct buf text; /* what the spans point into */
    size_t *at;      /* while reading: offsets into text */
};

/* The small vocabulary of tests/data/tokenizer, or a variant of it: "plain", "holes", "shuffled", "expanded".
 */
struct tok_vocab tok_vocab_small(const char *variant);
/* The vocabulary of a GGUF file. */
struct tok_vocab tok_vocab_gguf(const char *path);
void tok_vocab_free(struct tok_vocab *v);
size_t tok_vocab_find(const struct tok_vocab *v, const char *piece); /* SIZE_MAX: none */

/* One of tests/data/tokenizer/kinds: a tokenizer.json or a SentencePiece model. */
struct tokenizer *tok_open_kind(const char *name);
void tok_read_kind(const char *name, struct buf *out);

/* A spec of v with no BOS and EOS. pre may be NULL. */
struct tokenizer_spec tok_spec(const struct tok_vocab *v, const char *pre);
struct tokenizer *tok_create(const struct tok_vocab *v, const char *pre);

/* Path of the default model's file if there is one, else NULL. */
const char *tok_default_model(void);

/* SplitMix64. */
uint64_t tok_random(uint64_t *state);
uint64_t tok_below(uint64_t *state, uint64_t n);

/* Generated texts of the kinds that the golden files name. */
struct tok_gen {
    const char *what; /* "random", "added", "code points", "long words", "marks", "bytes" */
    uint64_t state;
    const struct text_span *fragments;
    size_t n_fragments;
    uint32_t cp, first_cp; /* code points: next one, first of the current 256 */
    unsigned step;
};
bool tok_gen_next(struct tok_gen *g, struct buf *out); /* false: there are no more */

#define TOK_FNV_INIT 0xcbf29ce484222325u
uint64_t tok_fnv_ids(uint64_t h, const uint32_t *ids, size_t n);
uint64_t tok_fnv_bytes(uint64_t h, const char *bytes, size_t n);

/* Golden files. */
struct tok_case {
    unsigned flags;
    struct text_span text;
    struct content_span content[8];
    size_t n_content;
    uint32_t ids[4096];
    size_t n_ids;
};

struct tok_section {
    char pre[32], variant[32], what[32];
    size_t n_cases; /* what is "": cases, to be read with tok_golden_case */
    struct tok_gen gen;
    size_t n_texts, per_digest, n_digests; /* n_texts 0: all that gen makes */
    uint64_t *digests;
};

struct tok_golden {
    struct buf data;
    size_t at;
    struct text_span fragments[512];
    size_t n_fragments;
};

void tok_golden_open(struct tok_golden *g, const char *name);
void tok_golden_close(struct tok_golden *g);
bool tok_golden_next(struct tok_golden *g, struct tok_section *s); /* frees the digests of the one before */
void tok_golden_case(struct tok_golden *g, struct tok_case *c);

#endif
