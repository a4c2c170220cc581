/* The SentencePiece model file, tokenizer.model: a protocol buffer (sentencepiece_model.proto of the
 * reference). */
#ifndef TEXT_SENTENCEPIECE_H
#define TEXT_SENTENCEPIECE_H

#include "text/tokenizer.h"

#include <quire/error.h>

#include <stddef.h>

/* A BPE or unigram model. The bytes may go afterwards. BOS is added and EOS is not, as by its makers'
 * families; the caller may say otherwise with adds (may be NULL): add_bos, add_bos_unset, add_eos,
 * add_eos_unset are taken from it. QUIRE_EFORMAT naming the field, QUIRE_EUNSUPPORTED (other model types),
 * QUIRE_ENOMEM. */
int tokenizer_from_sentencepiece(const void *data, size_t n, const struct tokenizer_spec *adds,
                                 struct tokenizer **out, struct error *err);

#endif
