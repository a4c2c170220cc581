/* A tokenizer.json from fuzzed bytes (up to the first NUL) and text (the rest) put through it. What must
 * hold: it is refused with a text or it is made; ids are in range, limits hold, content never gives a control
 * token but the one that the model has for what it does not know. */
#include "text/tokenizer_internal.h"
#include "text/tokenizer_json.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define MUST(x) ((x) ? (void)0 : (fprintf(stderr, "line %d: %s\n", __LINE__, #x), abort()))

static void check_text(const struct tokenizer *t, const char *text, size_t len) {
    struct token_buf ids = {0}, limited = {0};
    struct error err = {0};
    struct content_span all = {0, len}, part = {len / 3, len / 3};
    int rc = tokenizer_encode(t, text, len, TOKENIZE_SPECIAL | TOKENIZE_ADD, NULL, 0, 0, &ids, &err);
    MUST(rc == 0);
    for (size_t i = 0; i < ids.n; i++) MUST(ids.ids[i] < tokenizer_n_vocab(t));
    size_t max = 1 + len % (ids.n + 2);
    rc = tokenizer_encode(t, text, len, TOKENIZE_SPECIAL | TOKENIZE_ADD, NULL, 0, max, &limited, &err);
    MUST(rc == 0 || rc == QUIRE_ELIMIT);
    MUST(limited.n <= max);
    ids.n = 0;
    MUST(tokenizer_encode(t, text, len, TOKENIZE_SPECIAL, &part, 1, 0, &ids, &err) == 0);
    ids.n = 0;
    MUST(tokenizer_encode(t, text, len, TOKENIZE_SPECIAL, &all, 1, 0, &ids, &err) == 0);
    for (size_t i = 0; i < ids.n; i++) MUST(!tokenizer_is_control(t, ids.ids[i]) || ids.ids[i] == t->unk);
    token_buf_free(&ids);
    token_buf_free(&limited);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    const uint8_t *end = size ? memchr(data, 0, size) : NULL;
    size_t n = end ? (size_t)(end - data) : size;
    struct tokenizer *t;
    struct error err = {0};
    int rc = tokenizer_from_json((const char *)data, n, NULL, 0, &t, &err);
    if (rc) {
        MUST(rc == err.code && err.text[0] && !t);
        return 0;
    }
    if (end)
        check_text(t, (const char *)end + 1, size - n - 1);
    else
        check_text(t, "a <s> na\xc3\xafve \xff 12", 17);
    tokenizer_free(t);
    return 0;
}
