#include "kern/kern_block.h"
#include "kern/kern_half.h"
#include "kern/kern_ref.h"

#include <math.h>

/* F32, F16 and BF16 rows are all float [k], zero-padded to 64 bytes, rounded to the type's precision: the
 * products widen weights to float, and no conversion of the inputs is left in them. */
size_t ref_act_row_bytes(enum kern_act kind, size_t k) {
    size_t bytes = kind == KERN_ACT_Q8 ? k / KERN_BLOCK * sizeof(struct kern_act_block) : k * sizeof(float);
    return (bytes + 63) & ~(size_t)63;
}

static float *pad_row(void *dst, size_t k) {
    float *row = dst;
    for (size_t i = k; i < ref_act_row_bytes(KERN_ACT_F32, k) / sizeof(float); i++) row[i] = 0.0f;
    return row;
}

void ref_act_pack_f32(void *dst, const float *x, size_t k) {
    memcpy(pad_row(dst, k), x, k * sizeof *x);
}

void ref_act_pack_f16(void *dst, const float *x, size_t k) {
    float *row = pad_row(dst, k);
    for (size_t i = 0; i < k; i++) row[i] = kern_from_f16(kern_to_f16(x[i]));
}

void ref_act_pack_bf16(void *dst, const float *x, size_t k) {
    float *row = pad_row(dst, k);
    for (size_t i = 0; i < k; i++) row[i] = kern_from_bf16(kern_to_bf16(x[i]));
}

static void pack_block(struct kern_act_block *b, const float *x) {
    float largest = 0.0f;
    bool finite = true;
    for (int i = 0; i < KERN_BLOCK; i++) {
        finite = finite && isfinite(x[i]);
        largest = fmaxf(largest, fabsf(x[i]));
    }
    memset(b, 0, sizeof *b);
    if (!finite) b->scale = b->scaled_sum = NAN;
    if (!finite || largest < KERN_ACT_TINY) return;

    float inverse = 127.0f / largest;
    int sum[2] = {0, 0}, odd[2] = {0, 0};
    for (int i = 0; i < KERN_BLOCK; i++) {
        b->q[i] = (int8_t)nearbyintf(x[i] * inverse); /* to even, the default rounding mode */
        sum[i / 16] += b->q[i];
        if (i & 2) odd[i / 16] += b->q[i];
    }
    b->scale = largest / 127.0f;
    b->scaled_sum = b->scale * (float)(sum[0] + sum[1]);
    b->bias_sum = -128 * (sum[0] + sum[1]);
    b->bias_half[0] = -128 * sum[0];
    b->bias_half[1] = -128 * sum[1];
    for (int half = 0; half < 2; half++) b->words[half] = kern_act_words(sum[half] - odd[half], odd[half]);
}

void ref_act_pack_q8(void *dst, const float *x, size_t k) {
    struct kern_act_block *blocks = dst;
    size_t n_blocks = k / KERN_BLOCK, used = n_blocks * sizeof *blocks;
    for (size_t i = 0; i < n_blocks; i++) pack_block(&blocks[i], x + i * KERN_BLOCK);
    memset((char *)dst + used, 0, ref_act_row_bytes(KERN_ACT_Q8, k) - used);
}
