/* Arithmetic on plain pointers: one table of functions per instruction set.
 *
 * The C reference (kern_ref.c and the *_ref.c files) is the meaning of every entry and stays. kern_avx2.c and
 * kern_avx512.c fill the same table from shared templates (*.inc). kern_select() picks a table once, from
 * CPUID, XCR0 and an optional upper limit. Nothing here allocates, locks, starts threads or reads the
 * environment.
 *
 * Law 1 in this layer: each output row is a function of its own input row only, and its sums run in one order
 * whatever the number of rows in the call. Two tables may differ in bits; one table never does. */
#ifndef KERN_KERN_H
#define KERN_KERN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* ---- weight formats ---- */

/* Element formats of weights; values are GGUF's type ids, but for the last two, which GGUF does not have. */
enum kern_format {
    KERN_F32 = 0,
    KERN_F16 = 1,
    KERN_Q4_0 = 2,
    KERN_Q4_1 = 3,
    KERN_Q5_0 = 6,
    KERN_Q5_1 = 7,
    KERN_Q8_0 = 8,
    KERN_Q2_K = 10,
    KERN_Q3_K = 11,
    KERN_Q4_K = 12,
    KERN_Q5_K = 13,
    KERN_Q6_K = 14,
    KERN_IQ4_NL = 20,
    KERN_IQ4_XS = 23,
    KERN_BF16 = 30,
    KERN_MXFP4 = 39,
    KERN_F8_E4M3 = 62, /* finite only, one NaN: the OCP 8-bit floating point specification 1.0 */
    KERN_F8_E5M2 = 63,
    KERN_FORMAT_END = 64
};

/* How the input rows of a matrix product are stored. Products that share an input and an act kind share its
 * packed form. */
enum kern_act {
    KERN_ACT_F32,  /* as they are */
    KERN_ACT_F16,  /* rounded to IEEE half; how they are stored is the table's affair */
    KERN_ACT_BF16, /* rounded to bfloat16, nearest even; likewise */
    KERN_ACT_Q8,   /* per 32 elements int8 q and one float scale: x ~ scale * q; see kern_block.h */
    KERN_ACT_KINDS
};

/* Decodes n_blocks blocks of a weight format to float (weights/tensor.h has one for each format). */
typedef void kern_decode(float *dst, const void *src, size_t n_blocks);

struct kern_matrix; /* below */

/* One matrix-product family: what to do with weights of one format. */
struct kern_mm {
    const char *name; /* "q4_1 x q8, vnni" */
    enum kern_act act;
    size_t panel_rows; /* weight rows interleaved into one panel */
    size_t k_multiple; /* k must be a multiple of this */
    size_t (*panel_bytes)(const struct kern_matrix *w);
    /* Packs n_rows (1 .. panel_rows) file-format rows, row_bytes apart, into a panel. Rows missing to
     * panel_rows may hold anything: their outputs are never stored. */
    void (*pack)(const struct kern_matrix *w, void *panel, const void *rows, size_t row_bytes, size_t n_rows);
    /* Row r of a panel as float [k], for embedding look-up. */
    void (*unpack_row)(const struct kern_matrix *w, float *dst, const void *panel, size_t r);
    /* y[i * y_stride + j] (+)= sum_k act[i][k] * w[first_row + j][k], for i < m, j < n_panels * panel_rows
     * but only rows that exist. acts: packed rows, act_row_bytes apart. add: y is added to, else overwritten.
     * scratch: floats [kern_mm_scratch] of this thread. */
    void (*run)(const struct kern_matrix *w, float *y, size_t y_stride, size_t first_panel, size_t n_panels,
                const void *acts, size_t act_row_bytes, size_t m, bool add, float *scratch);
};

struct kern_matrix {
    const struct kern_mm *mm;
    enum kern_format format;         /* of the source */
    kern_decode *decode;             /* of the source format */
    size_t block_elems, block_bytes; /* of the source format */
    size_t rows, k;
    const void *panels; /* [ceil(rows / panel_rows)] of panel_bytes, 64-byte aligned */
};

/* ---- attention over paged KV ---- */

/* One layer and KV head of one block: K as [block_tokens / 16][head_dim][16 tokens], V as
 * [block_tokens][head_dim], in the KV element type. Lanes run over tokens for the scores and over head_dim
 * for the weighted sum: no horizontal sums. Where a table multiplies pairs, they are next to each other: K as
 * [block_tokens / 16][head_dim / 2][16 tokens][2], V as [block_tokens / 2][head_dim][2 tokens].
 *
 * Where V is a part of K (multi-head latent attention, DeepSeek-V2, arXiv 2405.04434), both are one row of a
 * token, [block_tokens][head_dim], and V is its first value_dim elements; lanes run over elements for the
 * scores too, whose sums end in a fixed tree. */
#define KERN_KV_LANES 16
/* Softmax partitions: fixed spans of logical positions anchored at 0; each is reduced alone, then combined in
 * order. */
#define KERN_ATTN_PARTITION 256
#define KERN_ATTN_MAX_HEAD  1024 /* elements */

enum kern_kv { KERN_KV_F32, KERN_KV_F16, KERN_KV_BF16, KERN_KV_TYPES };

/* Queries of one KV head against one partition. */
struct kern_attn_job {
    /* [KERN_ATTN_PARTITION / block_tokens] chunks; those wholly masked may be NULL */
    const void *const *k, *const *v; /* the same where V is a part of K */
    size_t block_tokens;             /* a multiple of 16 that divides KERN_ATTN_PARTITION */
    size_t head_dim;                 /* a multiple of 8, at most KERN_ATTN_MAX_HEAD */
    size_t value_dim; /* elements of V: a multiple of 8, at most head_dim; equal to it where V is apart */
    const float *const *q;       /* [n_q] query vectors [head_dim] */
    const uint16_t *begin, *end; /* [n_q] attended slots of the partition: begin <= slot < end, begin < end */
    size_t n_q;
    float scale, soft_cap; /* soft_cap 0 = none: s = cap * tanh(s / cap) */
    float *max, *sum;      /* [n_q] out: largest score, sum of exp(score - max) */
    float *const *acc;     /* [n_q] out: unnormalised weighted sums [value_dim] */
    float *scratch;        /* floats [n_q * KERN_ATTN_PARTITION] */
};

struct kern_attn {
    const char *name; /* tells arithmetics of one KV type apart */
    enum kern_act
        act; /* what queries and softmax terms are rounded to before they are multiplied: F32, BF16 */
    size_t elem_bytes;
    /* Tokens of one chunk may be written at the same time. */
    void (*write_k)(void *chunk, size_t slot, size_t block_tokens, const float *k, size_t head_dim);
    void (*write_v)(void *chunk, size_t slot, const float *v, size_t head_dim);  /* NULL: V is a part of K */
    void (*read_k)(float *dst, const void *chunk, size_t slot, size_t head_dim); /* export */
    void (*read_v)(float *dst, const void *chunk, size_t slot, size_t head_dim); /* likewise */
    void (*partition)(const struct kern_attn_job *job);
};

/* ---- the table ---- */

enum kern_isa { KERN_ISA_REF, KERN_ISA_AVX2, KERN_ISA_AVX512, KERN_ISA_AMX, KERN_ISAS };

struct kern {
    const char *name; /* "ref", "avx2", "avx512", "amx" */
    enum kern_isa isa;

    /* What each thread has to do before its first mm.run or attn.partition, and again after other code of the
     * thread has used tile registers; NULL: nothing. Harmless when done more than once. */
    void (*thread_begin)(void);

    /* By format of the weight as it is to be used; run NULL = unknown format. */
    struct kern_mm mm[KERN_FORMAT_END];
    size_t (*act_row_bytes)(enum kern_act kind, size_t k); /* a multiple of 64 */
    /* Input rows of a call of mm.run that make up for what it does once a call; 0: it does nothing of the
     * kind. */
    size_t call_rows;
    /* mm.run may read so many rows behind the last input row: they must be readable, and mean nothing. */
    size_t act_rows_over;
    void (*act_pack[KERN_ACT_KINDS])(void *dst, const float *x, size_t k);

    struct kern_attn attn[KERN_KV_TYPES];
    struct kern_attn attn_rows[KERN_KV_TYPES]; /* V is a part of K's row */
    /* out [head_dim] = the n_parts partitions combined in order and normalised; out is not part of acc.
     * Part i: max[i], sum[i], acc + i * stride. sink: one more score, after the last part, that takes weight
     * and adds nothing (attention sinks, Xiao et al. 2024); -INFINITY = none. */
    void (*attn_combine)(float *out, const float *max, const float *sum, const float *acc, size_t stride,
                         size_t n_parts, float sink, size_t head_dim);

    /* y = x / sqrt(mean(x^2) + eps) * w (Zhang and Sennrich 2019) */
    void (*rms_norm)(float *y, const float *x, const float *w, size_t n, float eps);
    /* y = (x - mean(x)) / sqrt(variance(x) + eps) * w + b (Ba et al. 2016); y may be x */
    void (*layer_norm)(float *y, const float *x, const float *w, const float *b, size_t n, float eps);
    /* Rotates pairs of one head in place (Su et al. 2021).
     * interleaved: pairs (2i, 2i + 1), else (i, i + n_rot / 2). Elements from n_rot on stay.
     * cos_sin: [n_rot / 2] cosines then [n_rot / 2] sines of this position. */
    void (*rope)(float *x, const float *cos_sin, size_t n_rot, bool interleaved);
    /* y = silu(gate) * up (Shazeer 2020) */
    void (*swiglu)(float *y, const float *gate, const float *up, size_t n);
    /* y = gelu(gate) * up, gelu(g) = g / 2 * (1 + tanh(sqrt(2 / pi) * (g + 0.044715 g^3)))
     * (Hendrycks and Gimpel 2016; Shazeer 2020) */
    void (*geglu)(float *y, const float *gate, const float *up, size_t n);
    /* y = g * sigmoid(alpha * g) * (u + 1), g = min(gate, limit), u = up within [-limit, limit] (GPT-OSS
     * model card, 2025) */
    void (*swiglu_clamped)(float *y, const float *gate, const float *up, size_t n, float alpha, float limit);
    /* y = x * P(X <= x) for a normal X: the exact form (Hendrycks and Gimpel 2016) */
    void (*gelu)(float *y, const float *x, size_t n);
    /* y = cap * tanh(y / cap) */
    void (*soft_cap)(float *y, float cap, size_t n);
    void (*add)(float *y, const float *x, size_t n); /* y += x */
    void (*scale)(float *y, float a, size_t n);
    /* Rounds to bf16 or f16 precision in place; F32: nothing. */
    void (*round_to)(float *x, enum kern_act type, size_t n);

    /* ---- over the vocabulary ---- */
    /* Largest logit, its lowest index, and whether all are finite. NaN is never the largest; where all are
     * NaN or -inf, max is -inf and argmax 0. */
    void (*logits_scan)(const float *x, size_t n, float *max, size_t *argmax, bool *finite);
    /* log(sum(exp(x - max))) + max in double, summed in a fixed order; -inf adds exactly nothing. */
    double (*log_sum_exp)(const float *x, size_t n, float max);
    /* p[i] = exp((x[i] - max) * inv_temperature); returns their sum (fixed order). p may be x. */
    double (*softmax_terms)(float *p, const float *x, size_t n, float max, float inv_temperature);
};

/* Tables that this build has, NULL if the machine or system lacks the instruction set. "avx512" has another
 * product of BF16 weights and attention over bfloat16, by name and by bits, where the processor's instruction
 * for it is fast. */
const struct kern *kern_table(enum kern_isa isa);
/* The best table of this machine, no better than `limit` ("ref", "avx2", "avx512", "amx"; NULL or "" = no
 * limit). NULL when the name is unknown. An "amx" limit gives the best table up to it. */
const struct kern *kern_select(const char *limit);
/* Whether the processor and the operating system offer this instruction set. */
bool kern_cpu_has(enum kern_isa isa);

/* Floats of scratch that mm.run needs per thread, for the widest k of a model, in any table. */
size_t kern_mm_scratch(size_t max_k);

#endif
