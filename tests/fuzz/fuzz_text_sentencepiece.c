/* A SentencePiece model from fuzzed bytes and text put through it: one byte of text length, the text, the
 * model. What must hold: it is refused with a text or it is made; ids are in range, limits hold, content
 * gives no control token. */
#include "text/sentencepiece.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define MUST(x) ((x) ? (void)0 : (fprintf(stderr, "line %d: %s\n", __LINE__, #x), abort()))

static void check_text(const struct tokenizer *t, const char *text, size_t len) {
    struct token_buf ids = {0}, limited = {0};
    struct error err = {0};
    struct content_span all = {0, len};
    MUST(tokenizer_encode(t, text, len, TOKENIZE_SPECIAL | TOKENIZE_ADD, NULL, 0, 0, &ids, &err) == 0);
    for (size_t i = 0; i < ids.n; i++) MUST(ids.ids[i] < tokenizer_n_vocab(t));
    size_t max = 1 + len % (ids.n + 2);
    int rc = tokenizer_encode(t, text, len, TOKENIZE_SPECIAL | TOKENIZE_ADD, NULL, 0, max, &limited, &err);
    MUST((rc == 0 || rc == QUIRE_ELIMIT) && limited.n <= max);
    ids.n = 0;
    MUST(tokenizer_encode(t, text, len, TOKENIZE_SPECIAL, &all, 1, 0, &ids, &err) == 0);
    token_buf_free(&ids);
    token_buf_free(&limited);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    if (size == 0) return 0;
    size_t len = data[0] < size ? data[0] : size - 1;
    struct tokenizer *t;
    struct error err = {0};
    int rc = tokenizer_from_sentencepiece(data + 1 + len, size - 1 - len, NULL, &t, &err);
    if (rc) {
        MUST(rc == err.code && err.text[0] && !t);
        return 0;
    }
    check_text(t, (const char *)data + 1, len);
    tokenizer_free(t);
    return 0;
}
