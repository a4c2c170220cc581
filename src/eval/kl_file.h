/* A file of reference distributions, mapped into memory. Little-endian:
 *
 *   struct kl_header         what was measured
 *   struct kl_row [n_rows]   row_bytes apart; the scored tokens of window 0, then of window 1, ... */
#ifndef EVAL_KL_FILE_H
#define EVAL_KL_FILE_H

#include "eval/kl_row.h"
#include "eval/windows.h"

#define KL_MAGIC   "QUIREKLD"
#define KL_VERSION 1

struct kl_header {
    char magic[8];
    uint32_t version, header_bytes;
    uint64_t n_vocab, row_bytes;
    uint64_t context, stride, bos; /* bos: 1 + its id; 0 = none */
    uint64_t text_tokens;
    uint64_t n_windows; /* complete ones */
    uint64_t n_rows;    /* of these */
    struct hash128 text, tokenizer, tokens;
    char model[128], dtype[16], cpu[16], numerics[40]; /* NUL-terminated */
};

struct kl_file {
    struct kl_header *header; /* the mapping */
    size_t bytes;
    size_t *first_row; /* [n windows of the plan + 1] */
    bool writable;
};

/* For all windows: takes the space on the disk. keep: what an earlier run wrote of the same reference stays.
 */
int kl_file_create(const char *path, const struct windows *w, const struct eval_context *c, bool keep,
                   struct kl_file *out, struct error *err);
/* Refuses, with the reason, what is not a reference or not of this text, tokenizer and window. *n_windows:
 * how many it has. */
int kl_file_open(const char *path, const struct windows *w, size_t n_vocab, struct kl_file *out,
                 size_t *n_windows, struct error *err);
struct kl_row *kl_file_row(const struct kl_file *f, size_t window, size_t row);
/* So many first windows are complete: writes that down and through. */
int kl_file_finish(struct kl_file *f, const char *path, size_t n_windows, struct error *err);
void kl_file_close(struct kl_file *f);

#endif
