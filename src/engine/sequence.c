#include "engine/sequence.h"

void sequence_name_blocks(struct sequence *s, struct hash_secret secret, size_t block_tokens) {
    for (; (s->n_full + 1) * block_tokens <= s->n_known; s->n_full++)
        s->keys[s->n_full + 1] =
            kv_block_key(secret, s->keys[s->n_full], s->tokens + s->n_full * block_tokens, block_tokens);
}

void sequence_append(struct sequence *s, uint32_t token, struct hash_secret secret, size_t block_tokens) {
    s->tokens[s->n_known++] = token;
    sequence_name_blocks(s, secret, block_tokens);
}
