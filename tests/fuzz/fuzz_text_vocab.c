/* The input is a vocab.txt and, behind two NULs, a tokenizer_config.json. What is accepted encodes. */
#include "text/vocab_txt.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void expect(int truth) {
    if (!truth) abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    struct tokenizer *t;
    struct token_buf ids = {0};
    struct error err = {0};
    const uint8_t *two = size ? memmem(data, size, "\0", 2) : NULL;
    size_t n = two ? (size_t)(two - data) : size;
    char *text = malloc(size + 1); /* exact lengths, for AddressSanitizer */
    expect(text != NULL);
    if (size) memcpy(text, data, size);
    int rc = tokenizer_from_vocab(text, n, two ? text + n + 2 : NULL, two ? size - n - 2 : 0, &t, &err);
    if (rc) {
        expect(rc < 0 && !t && err.code == rc && err.text[0]);
    } else {
        expect(!tokenizer_encode(t, text, n, TOKENIZE_SPECIAL | TOKENIZE_ADD, NULL, 0, 0, &ids, &err));
        for (size_t i = 0; i < ids.n; i++) expect(ids.ids[i] < tokenizer_n_vocab(t));
        struct buf back = BUF_INIT;
        tokenizer_decode(t, ids.ids, ids.n, size & 1, &back);
        expect(buf_ok(&back));
        buf_free(&back);
    }
    token_buf_free(&ids);
    tokenizer_free(t);
    free(text);
    return 0;
}
