/* Where an encoder's ids go: a token_buf that may grow up to a limit. Internal to the tokenizers. */
#ifndef TEXT_TOKENIZER_SINK_H
#define TEXT_TOKENIZER_SINK_H

#include "text/tokenizer.h"

struct token_sink {
    struct token_buf *out;
    size_t limit;       /* out->n may not exceed it; SIZE_MAX = none */
    bool word_too_long; /* QUIRE_ELIMIT was for a single word, not for the number of ids */
};

/* Makes room for at least one more id. QUIRE_ELIMIT at the limit, QUIRE_ENOMEM. */
int token_sink_grow(struct token_sink *s);

static inline int token_sink_push(struct token_sink *s, uint32_t id) {
    struct token_buf *b = s->out;
    if (b->n >= b->cap || b->n >= s->limit) {
        int rc = token_sink_grow(s);
        if (rc) return rc;
    }
    b->ids[b->n++] = id;
    return 0;
}

#endif
