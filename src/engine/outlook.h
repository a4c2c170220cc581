/* What an engine would take and hold, told without opening one: the plan that quire_open makes, by the same
 * code (plan.c), of a model of which no weight need be there and for a device that need not be here. */
#ifndef ENGINE_OUTLOOK_H
#define ENGINE_OUTLOOK_H

#include "backend/backend.h"
#include "engine/kv_table.h"
#include "model/spec.h"

#include <quire/quire.h>

/* What is planned for. All zero: this machine, as it is now, with the CPU's kernels. */
struct outlook_device {
    uint64_t memory_bytes; /* 0: as much as is available here now */
    const char *name;      /* of what has them, for messages */
    const struct backend
        *paper;             /* NULL: the CPU. Else a device of which only the functions for sizes are there */
    uint64_t context_bytes; /* of a paper device: what its driver takes of its memory */
};

struct outlook {
    struct model_spec spec;
    enum model_pooling pooling;
    struct quire_memory_row memory[QUIRE_MEMORY_ROWS]; /* as quire_info has them */
    uint64_t weights_bytes, kv_bytes, activation_bytes, buffer_bytes, rest_bytes;
    uint64_t fixed_bytes;                    /* all but KV that is in the device's memory */
    uint64_t available_bytes, allowed_bytes; /* memory there is; the part of it that may be taken */
    uint64_t taken_bytes;                    /* of fixed_bytes, taken already: allowed_bytes is without it */
    const char *limited_by;
    struct backend_kv_layout layout;
    enum backend_dtype dtype;
    size_t page_bytes, n_blocks,
        block_tokens; /* n_blocks: of KV, without the null block; 0: it does not fit */
    uint64_t
        room_blocks; /* that there is memory for: n_blocks, or more than max-num-seqs sequences can use */
    uint64_t block_cost_bytes; /* of a block and its share of the buffers */
    size_t max_model_len, max_num_seqs, max_num_batched_tokens, panel_rows;
    size_t longest;   /* sequence whose KV fits, at most max_model_len */
    const char *path; /* of kernels, "avx2" */
    size_t n_threads;
    struct kv_cache cache; /* windows and lengths, for outlook_blocks; there is no pool */
};

/* Fills *out; after QUIRE_ENOMEM too (it does not fit: the message says what would), but for n_blocks,
 * longest and memory. Errors as quire_open. */
int outlook_make(const struct quire_config *c, const struct outlook_device *device, struct outlook *out,
                 struct error *err);

/* The most blocks that a sequence of n_tokens holds at any time. */
size_t outlook_blocks(const struct outlook *o, size_t n_tokens);
/* The longest of n_seqs sequences of one length that n_blocks hold together, at most `most`; 0: none. */
size_t outlook_longest(const struct outlook *o, size_t n_blocks, size_t n_seqs, size_t most);

#endif
