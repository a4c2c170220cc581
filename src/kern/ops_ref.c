#include "kern/kern_half.h"
#include "kern/kern_ref.h"

#include <math.h>

void ref_rms_norm(float *y, const float *x, const float *w, size_t n, float eps) {
    double sum = 0.0;
    for (size_t i = 0; i < n; i++) sum += (double)x[i] * x[i];
    double inverse = 1.0 / sqrt(sum / (double)n + eps);
    for (size_t i = 0; i < n; i++) y[i] = (float)(x[i] * inverse * w[i]);
}

void ref_layer_norm(float *y, const float *x, const float *w, const float *b, size_t n, float eps) {
    double sum = 0.0, squares = 0.0;
    for (size_t i = 0; i < n; i++) sum += x[i];
    double mean = sum / (double)n;
    for (size_t i = 0; i < n; i++) squares += (x[i] - mean) * (x[i] - mean);
    double inverse = 1.0 / sqrt(squares / (double)n + eps);
    for (size_t i = 0; i < n; i++) y[i] = (float)((x[i] - mean) * inverse * w[i] + b[i]);
}

void ref_rope(float *x, const float *cos_sin, size_t n_rot, bool interleaved) {
    size_t half = n_rot / 2;
    for (size_t i = 0; i < half; i++) {
        float *a = &x[interleaved ? 2 * i : i], *b = &x[interleaved ? 2 * i + 1 : i + half];
        double c = cos_sin[i], s = cos_sin[half + i], a0 = *a, b0 = *b;
        *a = (float)(a0 * c - b0 * s);
        *b = (float)(a0 * s + b0 * c);
    }
}

void ref_swiglu(float *y, const float *gate, const float *up, size_t n) {
    for (size_t i = 0; i < n; i++) y[i] = (float)(gate[i] / (1.0 + exp(-(double)gate[i])) * up[i]);
}

void ref_geglu(float *y, const float *gate, const float *up, size_t n) {
    for (size_t i = 0; i < n; i++) { /* (1 + tanh(z)) / 2 = 1 / (1 + exp(-2 z)) */
        double g = gate[i], z = sqrt(2.0 / M_PI) * (g + 0.044715 * g * g * g);
        y[i] = (float)(g / (1.0 + exp(-2.0 * z)) * up[i]);
    }
}

void ref_swiglu_clamped(float *y, const float *gate, const float *up, size_t n, float alpha, float limit) {
    for (size_t i = 0; i < n; i++) { /* NaN passes */
        double g = gate[i] > limit ? limit : gate[i];
        double u = up[i] > limit ? limit : up[i] < -limit ? -limit : up[i];
        y[i] = (float)(g / (1.0 + exp(-alpha * g)) * (u + 1.0));
    }
}

void ref_gelu(float *y, const float *x, size_t n) {
    for (size_t i = 0; i < n; i++) y[i] = (float)(0.5 * x[i] * erfc(-(double)x[i] / sqrt(2.0)));
}

void ref_soft_cap(float *y, float cap, size_t n) {
    for (size_t i = 0; i < n; i++) y[i] = (float)(cap * tanh((double)y[i] / cap));
}

void ref_add(float *y, const float *x, size_t n) {
    for (size_t i = 0; i < n; i++) y[i] += x[i];
}

void ref_scale(float *y, float a, size_t n) {
    for (size_t i = 0; i < n; i++) y[i] *= a;
}

void ref_round_to(float *x, enum kern_act type, size_t n) {
    if (type == KERN_ACT_BF16)
        for (size_t i = 0; i < n; i++) x[i] = kern_from_bf16(kern_to_bf16(x[i]));
    else if (type == KERN_ACT_F16)
        for (size_t i = 0; i < n; i++) x[i] = kern_from_f16(kern_to_f16(x[i]));
}

void ref_logits_scan(const float *x, size_t n, float *max, size_t *argmax, bool *finite) {
    *max = -INFINITY;
    *argmax = 0;
    *finite = true;
    for (size_t i = 0; i < n; i++) {
        if (!isfinite(x[i])) *finite = false;
        if (x[i] > *max) {
            *max = x[i];
            *argmax = i;
        }
    }
}

double ref_log_sum_exp(const float *x, size_t n, float max) {
    double sum = 0.0;
    for (size_t i = 0; i < n; i++) sum += exp((double)x[i] - max);
    return log(sum) + max;
}

double ref_softmax_terms(float *p, const float *x, size_t n, float max, float inv_temperature) {
    double sum = 0.0;
    for (size_t i = 0; i < n; i++) {
        p[i] = (float)exp(((double)x[i] - max) * inv_temperature);
        sum += p[i];
    }
    return sum;
}
