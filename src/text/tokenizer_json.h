/* Hugging Face's tokenizer.json. */
#ifndef TEXT_TOKENIZER_JSON_H
#define TEXT_TOKENIZER_JSON_H

#include "text/tokenizer.h"

#include <quire/error.h>

#include <stddef.h>

/* Makes the tokenizer that tokenizer.json describes: models BPE (byte-level and with byte fallback), Unigram
 * and WordPiece, with the normalizers, pre-tokenizers, decoders and post-processors of the served families;
 * regular expressions are those that scanners exist for (text/pretok.h). Without a decoder the text of tokens
 * is what the vocabulary has, joined with spaces, but for byte-level models, whose tokens are their bytes.
 * config is the text of tokenizer_config.json (NULL if there is none): bos_token, eos_token, add_bos_token
 * and add_eos_token are read from it. truncation and padding are the caller's business and not read. Memory
 * may go afterwards. QUIRE_EFORMAT and QUIRE_EUNSUPPORTED name the key and the value; QUIRE_ENOMEM. */
int tokenizer_from_json(const char *json, size_t n, const char *config, size_t n_config,
                        struct tokenizer **out, struct error *err);

#endif
