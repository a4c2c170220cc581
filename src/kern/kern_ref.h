/* The C reference of every kernel (private to src/kern): what an entry of struct kern means. Sums are in
 * double, one rounding at the end. */
#ifndef KERN_KERN_REF_H
#define KERN_KERN_REF_H

#include "kern/kern.h"

/* act_ref.c */
size_t ref_act_row_bytes(enum kern_act kind, size_t k);
void ref_act_pack_f32(void *dst, const float *x, size_t k);
void ref_act_pack_f16(void *dst, const float *x, size_t k);
void ref_act_pack_bf16(void *dst, const float *x, size_t k);
void ref_act_pack_q8(void *dst, const float *x, size_t k);

/* mm_ref.c: a panel is one row as the file has it, or as f32, f16, bf16 */
size_t ref_mm_file_panel_bytes(const struct kern_matrix *w);
void ref_mm_file_pack(const struct kern_matrix *w, void *panel, const void *rows, size_t row_bytes,
                      size_t n_rows);
void ref_mm_file_unpack_row(const struct kern_matrix *w, float *dst, const void *panel, size_t r);
void ref_mm_file_run(const struct kern_matrix *w, float *y, size_t y_stride, size_t first_panel,
                     size_t n_panels, const void *acts, size_t act_row_bytes, size_t m, bool add,
                     float *scratch);
void ref_mm_q8_run(const struct kern_matrix *w, float *y, size_t y_stride, size_t first_panel,
                   size_t n_panels, const void *acts, size_t act_row_bytes, size_t m, bool add,
                   float *scratch);
size_t ref_mm_float_panel_bytes(const struct kern_matrix *w);
void ref_mm_float_pack(const struct kern_matrix *w, void *panel, const void *rows, size_t row_bytes,
                       size_t n_rows);
void ref_mm_float_unpack_row(const struct kern_matrix *w, float *dst, const void *panel, size_t r);
void ref_mm_float_run(const struct kern_matrix *w, float *y, size_t y_stride, size_t first_panel,
                      size_t n_panels, const void *acts, size_t act_row_bytes, size_t m, bool add,
                      float *scratch);

/* attn_ref.c */
void ref_attn_write_k_f32(void *chunk, size_t slot, size_t block_tokens, const float *k, size_t head_dim);
void ref_attn_write_k_f16(void *chunk, size_t slot, size_t block_tokens, const float *k, size_t head_dim);
void ref_attn_write_k_bf16(void *chunk, size_t slot, size_t block_tokens, const float *k, size_t head_dim);
void ref_attn_write_v_f32(void *chunk, size_t slot, const float *v, size_t head_dim);
void ref_attn_write_v_f16(void *chunk, size_t slot, const float *v, size_t head_dim);
void ref_attn_write_v_bf16(void *chunk, size_t slot, const float *v, size_t head_dim);
void ref_attn_read_k_f32(float *dst, const void *chunk, size_t slot, size_t head_dim);
void ref_attn_read_k_f16(float *dst, const void *chunk, size_t slot, size_t head_dim);
void ref_attn_read_k_bf16(float *dst, const void *chunk, size_t slot, size_t head_dim);
void ref_attn_read_v_f32(float *dst, const void *chunk, size_t slot, size_t head_dim);
void ref_attn_read_v_f16(float *dst, const void *chunk, size_t slot, size_t head_dim);
void ref_attn_read_v_bf16(float *dst, const void *chunk, size_t slot, size_t head_dim);
void ref_attn_partition_f32(const struct kern_attn_job *job);
void ref_attn_partition_f16(const struct kern_attn_job *job);
void ref_attn_partition_bf16(const struct kern_attn_job *job);
/* V is a part of K's row. */
void ref_attn_write_row_f32(void *chunk, size_t slot, size_t block_tokens, const float *k, size_t head_dim);
void ref_attn_write_row_f16(void *chunk, size_t slot, size_t block_tokens, const float *k, size_t head_dim);
void ref_attn_write_row_bf16(void *chunk, size_t slot, size_t block_tokens, const float *k, size_t head_dim);
void ref_attn_partition_rows_f32(const struct kern_attn_job *job);
void ref_attn_partition_rows_f16(const struct kern_attn_job *job);
void ref_attn_partition_rows_bf16(const struct kern_attn_job *job);
/* Attention that multiplies pairs of bfloat16 numbers: attn_bf16.inc, attn_amx.inc. Leaves the scores in
 * scratch. */
void ref_attn_write_k_pairs(void *chunk, size_t slot, size_t block_tokens, const float *k, size_t head_dim);
void ref_attn_write_v_pairs(void *chunk, size_t slot, const float *v, size_t head_dim);
void ref_attn_read_k_pairs(float *dst, const void *chunk, size_t slot, size_t head_dim);
void ref_attn_read_v_pairs(float *dst, const void *chunk, size_t slot, size_t head_dim);
void ref_attn_partition_pairs(const struct kern_attn_job *job);
void ref_attn_partition_tiles(const struct kern_attn_job *job);
void ref_attn_combine(float *out, const float *max, const float *sum, const float *acc, size_t stride,
                      size_t n_parts, float sink, size_t head_dim);

/* ops_ref.c */
void ref_rms_norm(float *y, const float *x, const float *w, size_t n, float eps);
void ref_layer_norm(float *y, const float *x, const float *w, const float *b, size_t n, float eps);
void ref_rope(float *x, const float *cos_sin, size_t n_rot, bool interleaved);
void ref_swiglu(float *y, const float *gate, const float *up, size_t n);
void ref_geglu(float *y, const float *gate, const float *up, size_t n);
void ref_swiglu_clamped(float *y, const float *gate, const float *up, size_t n, float alpha, float limit);
void ref_gelu(float *y, const float *x, size_t n);
void ref_soft_cap(float *y, float cap, size_t n);
void ref_add(float *y, const float *x, size_t n);
void ref_scale(float *y, float a, size_t n);
void ref_round_to(float *x, enum kern_act type, size_t n);
void ref_logits_scan(const float *x, size_t n, float *max, size_t *argmax, bool *finite);
double ref_log_sum_exp(const float *x, size_t n, float max);
double ref_softmax_terms(float *p, const float *x, size_t n, float max, float inv_temperature);

/* The tables. kern_table_avx512_bf16 differs from kern_table_avx512 in BF16 weights and attention over
 * bfloat16 only. */
extern const struct kern kern_table_ref, kern_table_avx2, kern_table_avx512, kern_table_avx512_bf16,
    kern_table_amx;

#endif
