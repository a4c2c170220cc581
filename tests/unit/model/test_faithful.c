/* The forward pass against outside authorities on the default model: transformers' logits (float32) for the
 * model dequantized to float32, and llama.cpp's greedy text for the model as it is. Skipped when the model
 * file is not there. The golden files are made by tests/golden/model_logits.py and model_greedy.py. */
#include "util_session.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

struct golden {
    char *data;
    uint32_t n_positions, n_vocab, n_top, n_fixed;
    const uint32_t *tokens, *fixed;
    const char *rows;
    size_t row_bytes;
};

static char *read_file(const char *path, size_t *n) {
    FILE *f = fopen(path, "rb");
    assert_non_null(f);
    fseek(f, 0, SEEK_END);
    *n = (size_t)ftell(f);
    rewind(f);
    char *data = malloc(*n + 1);
    assert_non_null(data);
    assert_int_equal(fread(data, 1, *n, f), *n);
    fclose(f);
    data[*n] = '\0';
    return data;
}

static struct golden read_golden(void) {
    struct golden g = {0};
    size_t n;
    g.data = read_file(TEST_DATA "/model/logits.bin", &n);
    assert_memory_equal(g.data, "QLG1", 4);
    uint32_t head[4];
    memcpy(head, g.data + 4, sizeof head);
    g.n_positions = head[0];
    g.n_vocab = head[1];
    g.n_top = head[2];
    g.n_fixed = head[3];
    g.tokens = (const uint32_t *)(void *)(g.data + 20);
    g.fixed = g.tokens + g.n_positions;
    g.rows = (const char *)(g.fixed + g.n_fixed);
    g.row_bytes = 8 + 8 * (size_t)g.n_top + 4 * (size_t)g.n_fixed;
    assert_int_equal(n, (size_t)(g.rows - g.data) + g.n_positions * g.row_bytes);
    return g;
}

static double log_sum(const float *x, size_t n) {
    double max = x[0], sum = 0.0;
    for (size_t i = 1; i < n; i++) max = fmax(max, x[i]);
    for (size_t i = 0; i < n; i++) sum += exp(x[i] - max);
    return log(sum) + max;
}

static size_t argmax(const float *x, size_t n) {
    size_t best = 0;
    for (size_t i = 1; i < n; i++)
        if (x[i] > x[best]) best = i;
    return best;
}

/* Largest difference from the golden file; argmax must agree at every position. */
static double compare(const struct golden *g, const float *logits) {
    double worst = 0.0;
    for (size_t i = 0; i < g->n_positions; i++) {
        const float *x = logits + i * g->n_vocab;
        const char *row = g->rows + i * g->row_bytes;
        uint32_t id;
        float v;
        double sum;
        memcpy(&sum, row, 8);
        worst = fmax(worst, fabs(log_sum(x, g->n_vocab) - sum));
        for (size_t k = 0; k < g->n_top; k++) {
            memcpy(&id, row + 8 + 4 * k, 4);
            memcpy(&v, row + 8 + 4 * (g->n_top + k), 4);
            worst = fmax(worst, fabs((double)x[id] - v));
            if (!k) assert_int_equal(argmax(x, g->n_vocab), id);
        }
        for (size_t k = 0; k < g->n_fixed; k++) {
            memcpy(&v, row + 8 + 8 * g->n_top + 4 * k, 4);
            worst = fmax(worst, fabs((double)x[g->fixed[k]] - v));
        }
    }
    return worst;
}

static struct weights *open_real(void) {
    struct weights *w;
    struct error err = {0};
    const char *path = session_real_model();
    if (!path) {
        print_message(
            "SKIPPED: the default model is not there (quire pull smollm2, or QUIRE_TEST_MODEL=FILE)\n");
        skip();
    }
    if (weights_open(path, &w, &err)) fail_msg("%s", err.text);
    return w;
}

static void check_logits_on(const char *path, struct weights *f32, const struct golden *g) {
    struct session s;
    session_open(
        &s, f32,
        &(struct session_options){.path = path, .n_threads = 2, .dtype = BACKEND_F32, .n_pages = 40});
    assert_int_equal(s.spec->n_vocab, g->n_vocab);
    float *logits = malloc((size_t)g->n_positions * g->n_vocab * sizeof *logits);
    assert_non_null(logits);
    session_run(&s, g->tokens, g->n_positions, 512, logits);
    double worst = compare(g, logits);
    print_message("%s: largest difference from transformers over %u positions: %.2e\n", path, g->n_positions,
                  worst);
    assert_true(worst <= 1e-3);
    free(logits);
    session_close(&s);
}

static void logits_agree_with_transformers(void **state) {
    struct weights *real = open_real(), *f32;
    struct error err = {0};
    size_t n;
    void *data = session_dequantized(real, &n);
    weights_close(real);
    if (weights_open_memory(data, n, &f32, &err)) fail_msg("%s", err.text);
    struct golden g = read_golden();
    /* The reference path takes minutes on a real model; it is compared with the others by smaller tests. */
    const char *const paths[] = {"avx2", "avx512", "ref"};
    for (size_t i = 0; i < (getenv("QUIRE_TEST_SLOW") ? 3 : 2); i++)
        if (session_has_path(paths[i])) check_logits_on(paths[i], f32, &g);
    weights_close(f32);
    session_dequantized_free(data, n);
    free(g.data);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(logits_agree_with_transformers),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
