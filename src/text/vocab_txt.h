/* vocab.txt: BERT's WordPiece (Devlin et al. 2019), a piece a line, where there is no tokenizer.json. */
#ifndef TEXT_VOCAB_TXT_H
#define TEXT_VOCAB_TXT_H

#include "text/tokenizer.h"

#include <quire/error.h>

#include <stddef.h>

/* Makes the tokenizer that transformers makes of it (BertConverter). config: the text of
 * tokenizer_config.json, NULL if there is none: special tokens, added_tokens_decoder, do_lower_case,
 * strip_accents, tokenize_chinese_chars and do_basic_tokenize are read from it. Memory may go afterwards.
 * QUIRE_EFORMAT names line or key; QUIRE_EUNSUPPORTED; QUIRE_ENOMEM. */
int tokenizer_from_vocab(const char *text, size_t n, const char *config, size_t n_config,
                         struct tokenizer **out, struct error *err);

#endif
