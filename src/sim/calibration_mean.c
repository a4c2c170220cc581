/* Several calibrations as one. */
#include "sim/calibration.h"

#include "base/error.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

void calibration_slow(struct calibration *c, double factor) {
    for (size_t i = 0; i < STEP_TERMS; i++) {
        c->steps.forward_us[i] *= factor;
        c->steps.rest_us[i] *= factor;
    }
    c->gap_us *= factor;
    c->row_us *= factor;
}

/* What differs, or NULL. */
static const char *difference(const struct calibration *a, const struct calibration *b) {
    if (strcmp(a->numerics_id, b->numerics_id)) return "numerics_id";
    if (strcmp(a->dtype, b->dtype)) return "dtype";
    if (strcmp(a->cpu_path, b->cpu_path)) return "cpu_path";
    if (strcmp(a->machine, b->machine)) return "machine";
    if (a->n_threads != b->n_threads) return "n_threads";
    if (a->block_tokens != b->block_tokens) return "block_tokens";
    if (a->kv_bytes_per_token != b->kv_bytes_per_token) return "kv_bytes_per_token";
    if (a->n_groups != b->n_groups || memcmp(a->window, b->window, sizeof a->window)) return "windows";
    return NULL;
}

/* A prompt of 100 tokens beside 8 answers: what calibrations are called slow or fast by. */
static double typical_us(const struct calibration *c) {
    struct quire_step s = {.n_prefill_rows = 100,
                           .n_prefill_seqs = 1,
                           .n_decode_rows = 8,
                           .n_decode_seqs = 8,
                           .n_logit_rows = 9,
                           .prefill_attended = 5050,
                           .decode_attended = 1000};
    step_model_time(&c->steps, &s);
    return fmax(1, (double)s.forward_us);
}

static void add(double *sum, double v, double share) {
    *sum += share * v;
}

static void add_fit(struct step_fit *sum, const struct step_fit *f, double n_all) {
    double share = n_all > 0 ? (double)f->n / n_all : 0;
    add(&sum->median_error, f->median_error, share);
    add(&sum->p95_error, f->p95_error, share);
    add(&sum->bias, f->bias, share);
    sum->n += f->n;
}

static void mean(const struct calibration *v, size_t n, struct calibration *out) {
    struct step_model *m = &out->steps;
    double share = 1.0 / (double)n;
    *out = v[0];
    *m = (struct step_model){0};
    out->request_us = out->prompt_token_us = out->gap_us = out->row_us = out->startup_s = 0;
    out->cpu_share = out->measured_share = 0;
    for (size_t i = 0; i < n; i++) {
        for (size_t k = 0; k < STEP_TERMS; k++) {
            add(&m->forward_us[k], v[i].steps.forward_us[k], share);
            add(&m->rest_us[k], v[i].steps.rest_us[k], share);
        }
        add(&out->request_us, v[i].request_us, share);
        add(&out->prompt_token_us, v[i].prompt_token_us, share);
        add(&out->gap_us, v[i].gap_us, share);
        add(&out->row_us, v[i].row_us, share);
        add(&out->cpu_share, v[i].cpu_share, share);
        add(&out->measured_share, v[i].measured_share, share);
        add(&out->startup_s, v[i].startup_s, share);
        if (v[i].max_model_len < out->max_model_len) out->max_model_len = v[i].max_model_len;
        if (v[i].n_blocks < out->n_blocks) out->n_blocks = v[i].n_blocks;
    }
    for (size_t r = 0; r < STEP_REGIONS; r++) {
        double n_all = 0;
        for (size_t i = 0; i < n; i++) n_all += (double)v[i].steps.fit[r].n;
        for (size_t i = 0; i < n; i++) add_fit(&m->fit[r], &v[i].steps.fit[r], n_all);
    }
}

/* All moments of all, each as slow as it was beside the mean of all. */
static void join_wanders(const struct calibration *v, size_t n, struct calibration *out) {
    for (size_t i = 0; i < n; i++)
        wander_join(&out->steps.wander, &v[i].steps.wander, typical_us(&v[i]) / typical_us(out));
}

/* From the slowest moments of the slowest to the fastest of the fastest. */
static void spread(const struct calibration *v, size_t n, struct calibration *out) {
    for (size_t i = 0; i < n; i++) {
        double level = typical_us(&v[i]) / typical_us(out);
        double low = level * (v[i].steps.slow_low > 0 ? v[i].steps.slow_low : 1);
        double high = level * (v[i].steps.slow_high > 0 ? v[i].steps.slow_high : 1);
        out->steps.slow_low = i ? fmin(out->steps.slow_low, low) : low;
        out->steps.slow_high = i ? fmax(out->steps.slow_high, high) : high;
    }
}

int calibration_read_all(const char *option, const char *paths, struct calibration *out, struct error *err) {
    struct calibration v[CALIBRATIONS_MAX];
    size_t n = 0;
    for (const char *at = paths; *at;) {
        char path[4096];
        size_t len = strcspn(at, ",");
        if (n == CALIBRATIONS_MAX || len >= sizeof path)
            return error_set(err, QUIRE_EINVAL, "\"%.60s\": up to %d calibrations make one", paths,
                             CALIBRATIONS_MAX);
        snprintf(path, sizeof path, "%.*s", (int)len, at);
        int rc = calibration_read(option, path, &v[n], err);
        const char *other = rc ? NULL : difference(&v[0], &v[n]);
        if (rc) return rc;
        if (other)
            return error_set(err, QUIRE_EINVAL,
                             "%.200s is no calibration of the same as the first: its %s is another", path,
                             other);
        n++;
        at += len + (at[len] == ',');
    }
    if (!n) return error_set(err, QUIRE_EINVAL, "no calibration is named");
    if (n == 1)
        *out = v[0];
    else {
        mean(v, n, out);
        spread(v, n, out);
        join_wanders(v, n, out);
    }
    return 0;
}
