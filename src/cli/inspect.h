/* quire inspect: what a model file holds, gathered once and then written for people or as JSON. */
#ifndef CLI_INSPECT_H
#define CLI_INSPECT_H

#include "base/buf.h"
#include "cli/cli.h"
#include "model/model.h"
#include "weights/check.h"

/* By the tensors' names. */
enum tensor_class {
    CLASS_EMBEDDING,
    CLASS_ATTENTION,
    CLASS_FFN,
    CLASS_EXPERTS,
    CLASS_ROUTER,
    CLASS_NORMS,
    CLASS_OUTPUT,
    CLASS_OTHER,
    CLASS_END
};
extern const char *const tensor_class_names[CLASS_END];

struct inspect_sum {
    size_t n_tensors;
    uint64_t n_elements, bytes;
};

/* 0 = the file does not say. */
struct inspect_sizes {
    uint64_t layers, width, heads, kv_heads, head_size, ff, vocabulary, context;
    uint64_t experts, experts_used, expert_ff, shared_ff;
};

#define INSPECT_REASONS 8

struct inspection {
    struct loaded_model model; /* path, weights and tokenizer; weights NULL: nothing could be read */
    struct meta_str family, name;
    struct inspect_sizes sizes;
    struct model_spec *spec; /* NULL: not of a known family */
    struct inspect_sum classes[CLASS_END][TENSOR_TYPE_END], total;
    uint64_t active;       /* elements that one token is multiplied with */
    uint64_t loaded_bytes; /* weights in memory; 0 = unknown */

    size_t n_reasons; /* why it cannot be served */
    struct error reasons[INSPECT_REASONS];

    struct meta_str tokenizer, pre; /* kind, or a folder's file; data NULL = none */
    size_t n_tokens;

    struct buf template_text; /* of a folder: what template points to */
    struct meta_str template; /* data NULL = none */
    char template_sha256[65];
    size_t probe_bytes, probe_tokens; /* of a short conversation; tokens 0 without a tokenizer */
    struct error template_error;      /* code 0: it renders */

    bool checked;
    struct error gaps;           /* code 0: none */
    struct float_faults *faults; /* [n_tensors] once checked */
    size_t n_bad_tensors;
};

/* Everything but the check. Failures are those of weights_inspect, except that a file of a kind that is not
 * supported is a reason. inspection_free in any case. */
int inspection_read(const char *argument, struct inspection *out, struct error *err);
/* Reads all tensors with n_threads. A fault of the file is no failure: see inspection_broken. */
int inspection_check(struct inspection *i, size_t n_threads, struct error *err);
void inspection_free(struct inspection *i);

/* Whether the file is malformed or was found damaged, and by what. */
bool inspection_broken(const struct inspection *i, struct error *err);

enum tensor_class tensor_class_of(const char *name);
/* KV bytes of a sequence of n tokens: layers with a window hold no more than that. */
uint64_t inspection_kv_bytes(const struct model_spec *s, uint64_t n_tokens, enum backend_dtype dtype);
/* An id that the file gives under tokenizer.ggml.NAME_token_id, and how the file spells it. */
bool inspection_special(const struct inspection *i, const char *name, uint64_t *id,
                        struct meta_str *spelling);
extern const char *const inspection_specials[]; /* ended by NULL */
const char *rope_scaling_name(enum rope_scaling scaling);

void inspection_text(const struct inspection *i, struct buf *out);
void inspection_json(const struct inspection *i, struct buf *out);

#endif
