/* The device seam: memory, threads and the fused operations that a decoder needs, behind one table of
 * functions.
 *
 * Buffers are opaque and live on the device; `float` activations are [rows][width], row-major. The model
 * walks a decoder through this table and knows no device; a device knows no model. Operations of one backend
 * run in the order they are called. On the CPU each returns when it is done; a device with streams may return
 * earlier and finish by `wait`. Sums within a row have one order (law 1); see kern/kern.h for the CPU's.
 *
 * A new device passes tests/unit/backend (conformance against the C reference). */
#ifndef BACKEND_BACKEND_H
#define BACKEND_BACKEND_H

#include "backend/batch.h"
#include "backend/sample.h"

#include <quire/error.h>

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct backend;
struct backend_buffer; /* device memory */
struct backend_matrix; /* a weight matrix in the device's own layout */
struct backend_kv;     /* the pool of KV pages, and its page layout: the backend's secret */

enum backend_dtype { BACKEND_BF16, BACKEND_F16, BACKEND_F32 };

/* A matrix as the model file has it: rows of blocks, in memory or still to be read. */
struct backend_tensor {
    const char *name;
    uint32_t format; /* GGUF type id */
    void (*decode)(float *dst, const void *src, size_t n_blocks);
    size_t block_elems, block_bytes;
    size_t rows, cols;
    size_t row_bytes;
    const void *data; /* host, rows row_bytes apart; or NULL: they are read */
    /* Copies rows [first, first + n) to dst. Called from compute threads, once for each row. */
    int (*read_rows)(void *ctx, size_t first, size_t n, void *dst, struct error *err);
    void *ctx;
};

/* One KV group: layers that share a block table. */
struct backend_kv_group {
    size_t n_layers, n_kv_heads, head_dim;
};

struct backend_kv_layout {
    size_t n_groups;
    struct backend_kv_group groups[BATCH_MAX_GROUPS];
    size_t block_tokens;
    enum backend_dtype dtype;
    bool rows; /* K only: V is a part of it, as attention says */
};

struct backend_attention {
    size_t group, layer; /* KV group, and index of the layer within it */
    size_t n_heads, n_kv_heads, head_dim;
    size_t value_dim; /* of V and of the result: head_dim, or with `rows` the first elements of K's row */
    float scale, soft_cap; /* soft_cap 0 = none */
    size_t window;         /* positions attended, the own one included; 0 = all */
    bool bidirectional;    /* a row attends to its whole sequence, whose rows are all in the batch and stored;
                              without a window */
    const struct backend_buffer *sinks; /* [n_heads] or NULL: one more score of each head, see kern.h */
};

struct backend_rope {
    const struct backend_buffer *table; /* [n_positions][n_rot]: n_rot / 2 cosines, then n_rot / 2 sines;
                                           NULL: nothing is rotated */
    size_t n_rot;
    bool interleaved; /* pairs (2i, 2i + 1) instead of (i, i + n_rot / 2) */
    bool behind;      /* rotated are the last n_rot elements of a head, and norms are of those before them */
    size_t q_dim;     /* elements of a query's head as it comes here; 0: head_dim */
    const struct backend_buffer *q_norm, *k_norm; /* RMS norm before the rotation, or NULL: of each head
                                                     [head_dim], or */
    bool norm_rows;                               /* of all heads together [n_heads * head_dim] */
    float norm_eps;
    float temperature;       /* queries at position p are multiplied by 1 + temperature * log(1 + */
    size_t temperature_step; /* floor(p / temperature_step)); temperature 0: they are not */
};

enum backend_activation {
    BACKEND_SWIGLU,
    BACKEND_GEGLU,          /* tanh form */
    BACKEND_SWIGLU_CLAMPED, /* GPT-OSS, see below and kern.h */
    BACKEND_GELU,           /* exact form, of x alone: there is no up */
    BACKEND_RELU            /* max(x, 0), likewise */
};
#define BACKEND_CLAMPED_ALPHA 1.702f
#define BACKEND_CLAMPED_LIMIT 7.0f

/* What a product multiplies, made from rows at hand on the way to its packed form. At most one of norm and up
 * is set. */
struct backend_input {
    const struct backend_buffer *x;    /* [n_rows][width] */
    const struct backend_buffer *norm; /* [width] or NULL: weights of an RMS norm that x goes through */
    float norm_eps;
    const struct backend_buffer *up; /* [n_rows][width] or NULL: the input is activation(x) * up, or with
                                        BACKEND_GELU and BACKEND_RELU, which have no up, activation(x) */
    enum backend_activation activation;
};

/* How a block's output x joins the rows it came from: y += scale * sigmoid(gate) * norm(x). */
struct backend_residual {
    const struct backend_buffer *norm; /* [width] or NULL: weights of an RMS norm */
    float norm_eps, scale;
    const struct backend_buffer *gate; /* [n_rows] or NULL */
};

/* A norm of rows: LayerNorm, or without a bias RMS norm. */
struct backend_norm {
    const struct backend_buffer *weight, *bias; /* [width] */
    float eps;
};

enum backend_gating {
    BACKEND_GATE_SOFTMAX,  /* weights: softmax over all experts */
    BACKEND_GATE_SELECTED, /* softmax over the selected ones */
    BACKEND_GATE_SIGMOID   /* of each logit */
};

#define BACKEND_MAX_EXPERT_GROUPS 64

/* A layer's experts (Shazeer et al. 2017): each row goes to the n_used of the largest logits, the lower index
 * where two are equal. Experts of one kind have one shape and format.
 *
 * With a choice_bias, those of the largest weight plus bias (DeepSeek-V3, arXiv 2412.19437, section 2.1.2).
 * With groups, experts of consecutive numbers, only those of the n_groups_used groups that are best by the
 * sum of their group_best largest (DeepSeek-V2, arXiv 2405.04434, section 2.2.2: 1; V3: 2). */
struct backend_experts {
    size_t n_experts, n_used;
    size_t n_groups, n_groups_used, group_best; /* n_groups 0 or 1: none; it divides n_experts */
    const struct backend_buffer *choice_bias;   /* [n_experts] or NULL */
    enum backend_gating gating;
    bool normalise; /* the weights of a row are divided by their sum */
    float scale;    /* then multiplied by this */
    enum backend_activation activation;
    const struct backend_matrix *const *gate, *const *up, *const *down; /* [n_experts] */
    const struct backend_buffer *gate_bias, *up_bias, *down_bias;       /* [n_experts][rows] or NULL */
};

struct backend_ops {
    void (*close)(struct backend *b);

    /* ---- memory ---- */
    struct backend_buffer *(*buffer_alloc)(struct backend *b,
                                           size_t bytes); /* zeroed, resident; NULL: no memory */
    void (*buffer_free)(struct backend *b, struct backend_buffer *buf); /* NULL allowed */
    void (*upload)(struct backend *b, struct backend_buffer *dst, size_t offset, const void *src,
                   size_t bytes);
    void (*download)(struct backend *b, void *dst, const struct backend_buffer *src, size_t offset,
                     size_t bytes);
    /* The calling thread runs the operations from now on; it may be bound, as compute threads are. */
    void (*enter)(struct backend *b);
    /* Of threads and memory so far, for a log; "" = the system's. Valid until the next call. */
    const char *(*placement)(struct backend *b);
    void (*wait)(struct backend *b); /* all operations so far are done */
    /* Work on host memory, spread over the host's compute threads: fn(ctx, item) for each item, in any order.
     */
    void (*host_run)(struct backend *b, size_t n_items, void (*fn)(void *ctx, size_t item), void *ctx);
    /* The same over the rows of x [n_rows][width], which the host sees for the length of a call. */
    void (*read_rows)(struct backend *b, const struct backend_buffer *x, size_t n_rows, size_t width,
                      void (*fn)(void *ctx, size_t row, const float *values), void *ctx);

    /* ---- weights ---- */
    /* Bytes that matrix_load will take; 0 and err set when the format or shape is not supported. */
    size_t (*matrix_bytes)(struct backend *b, const struct backend_tensor *t, enum backend_dtype dtype,
                           struct error *err);
    /* Weights of so many bytes follow, by matrix_bytes and of vectors: room for them in one piece. Optional.
     */
    int (*weights_reserve)(struct backend *b, size_t bytes, struct error *err);
    /* Repacks into the device's layout, in parallel. dtype applies to unquantized formats only. */
    int (*matrix_load)(struct backend *b, const struct backend_tensor *t, enum backend_dtype dtype,
                       struct backend_matrix **out, struct error *err);
    void (*matrix_free)(struct backend *b, struct backend_matrix *m);

    /* ---- KV pages: page 0 is the null page, never handed out ---- */
    /* One size for all groups; 0: a block size or head size that the device does not take. */
    size_t (*kv_page_bytes)(struct backend *b, const struct backend_kv_layout *layout);
    /* Reserves address space for n_pages; pages become resident by kv_populate. */
    int (*kv_create)(struct backend *b, const struct backend_kv_layout *layout, size_t n_pages,
                     struct backend_kv **out, struct error *err);
    void (*kv_free)(struct backend *b, struct backend_kv *kv);
    /* Makes pages [first, first + n) resident; any thread. */
    int (*kv_populate)(struct backend *b, struct backend_kv *kv, size_t first, size_t n, struct error *err);
    /* Copies the first n_tokens slots of a page; slots behind them in dst hold anything afterwards. */
    void (*kv_copy)(struct backend *b, struct backend_kv *kv, size_t dst_page, size_t src_page,
                    size_t n_tokens);
    /* Canonical form of a page: for each layer of the group, K then V (with `rows` K alone) as float
     * [block_tokens][n_kv_heads][head_dim]. */
    size_t (*kv_export_bytes)(struct backend *b, const struct backend_kv *kv, size_t group);
    void (*kv_export)(struct backend *b, const struct backend_kv *kv, size_t group, size_t page, void *dst);
    void (*kv_import)(struct backend *b, struct backend_kv *kv, size_t group, size_t page, const void *src);

    /* ---- operations; x, y: [n_rows][width] float ---- */
    void (*embed)(struct backend *b, struct backend_buffer *y, const struct backend_matrix *table,
                  const uint32_t *tokens, size_t n_rows, float scale);
    /* y[i] = input · w[i]ᵀ for n_outputs matrices of one input, which is made once. add: y[i] is added to. */
    void (*matmul)(struct backend *b, struct backend_buffer *const *y, const struct backend_matrix *const *w,
                   const struct backend_buffer *const *bias, size_t n_outputs,
                   const struct backend_input *input, size_t n_rows, bool add);
    /* A product for each head: y = w[head] · x of as many elements as w has columns, and behind that the rest
     * of x's head. x: [n_rows][n_heads][x_dim], y: [n_rows][n_heads][rows of w + x_dim - columns]. The w have
     * one shape and format; y is not x. */
    void (*matmul_heads)(struct backend *b, struct backend_buffer *y, const struct backend_matrix *const *w,
                         size_t n_heads, const struct backend_buffer *x, size_t x_dim, size_t n_rows);
    /* y[row] = sum over the row's experts, in ascending order, of
     * weight * (down · (activation(gate · input) * (up · input))). logits: the router's, [n_rows][n_experts].
     * The cost follows the experts in use: rows are grouped by expert. y is not the input's x. */
    void (*experts)(struct backend *b, struct backend_buffer *y, const struct backend_experts *e,
                    const struct backend_buffer *logits, const struct backend_input *input, size_t n_rows);
    void (*residual)(struct backend *b, struct backend_buffer *y, const struct backend_buffer *x,
                     const struct backend_residual *r, size_t n_rows, size_t width);
    void (*normalise)(struct backend *b, struct backend_buffer *y, const struct backend_norm *norm,
                      size_t n_rows, size_t width);
    /* dst row dst_row = src rows [first_row, first_row + n_rows), added up one after the other from 0, or
     * with `add` from what is there: cut into several calls, a sum is the same bits. */
    void (*sum_rows)(struct backend *b, struct backend_buffer *dst, size_t dst_row,
                     const struct backend_buffer *src, size_t first_row, size_t n_rows, size_t width,
                     bool add);
    /* y = cap * tanh(y / cap) */
    void (*soft_cap)(struct backend *b, struct backend_buffer *y, float cap, size_t n_rows, size_t width);
    /* Norms and rotates q and k in place, then stores k and v of each row in its slot. v NULL with `rows`. */
    void (*rope_kv_write)(struct backend *b, struct backend_buffer *q, struct backend_buffer *k,
                          const struct backend_buffer *v, const struct backend_rope *rope,
                          const struct backend_attention *a, struct backend_kv *kv, const struct batch *batch,
                          size_t first_row, size_t n_rows);
    /* y: [n_rows][n_heads * value_dim], reading K and V only as stored. Where those are bfloat16, a device
     * may round queries and the terms of the softmax to it, too: all or none, as its numerics say. */
    void (*attention)(struct backend *b, struct backend_buffer *y, const struct backend_buffer *q,
                      const struct backend_attention *a, const struct backend_kv *kv,
                      const struct batch *batch, size_t first_row, size_t n_rows);
    /* dst row i = src row rows[i] */
    void (*gather_rows)(struct backend *b, struct backend_buffer *dst, size_t dst_row,
                        const struct backend_buffer *src, const uint32_t *rows, size_t n_rows, size_t width);
    /* Scores and sampling over logits [n_rows][n_vocab], which stay as they are; see sample.h. */
    void (*sample)(struct backend *b, const struct backend_buffer *logits, size_t n_rows, size_t n_vocab,
                   const struct sample_row *rows, struct sample_result *results);
};

struct backend {
    const struct backend_ops *ops;
    const char *name; /* "cpu" */
    const char *path; /* "avx512", ... */
    size_t n_threads;
    size_t max_rows; /* most rows in one call: the width of a row panel */
};

struct backend_cpu_options {
    size_t n_threads; /* 0 = cores available to the process (affinity and cgroup quota) */
    /* Where compute threads run. "node": where the machine has several memory nodes, each keeps to one of
     * them, and weights lie with the threads that read them; "core": besides, each has a CPU of its own; NULL
     * or "none": where the system likes. */
    const char *bind;
    const char *isa_limit; /* QUIRE_CPU's value or NULL */
    size_t max_rows;
    size_t max_width;                              /* widest row of any operation's input, for scratch */
    size_t max_positions, max_heads, max_head_dim; /* for attention scratch */
    size_t max_vocab;                              /* for sampling scratch */
    size_t max_experts, max_experts_used;          /* 0 = none */
    size_t max_expert_width;                       /* rows of an expert's gate */
    bool sizes_only; /* without scratch and threads, to ask matrix_bytes and kv_page_bytes */
};
int backend_cpu_open(const struct backend_cpu_options *options, struct backend **out, struct error *err);
/* Scratch memory it holds for these options (part of the memory plan). */
size_t backend_cpu_scratch_bytes(const struct backend_cpu_options *options);

/* The kernel table's identity: what, besides the model file, decides bits. Goes into the numerics id. */
const char *backend_numerics(const struct backend *b);

#endif
