/* Logits far out in texts of 16,384 and 32,768 tokens, with each scaling of rotary embeddings, against
 * transformers'. The golden file is made by tests/golden/model_long.py. */
#include "util_folder.h"
#include "util_session.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { N_ROWS = 16, CHUNK = 512 };

/* As row_of of the script. */
static size_t row_of(size_t i, size_t n) {
    return i * (n - 1) / (N_ROWS - 1) - (i % 2 ? 7 : 0);
}

static double log_sum(const float *x, size_t n) {
    double max = x[0], sum = 0;
    for (size_t i = 1; i < n; i++) max = fmax(max, x[i]);
    for (size_t i = 0; i < n; i++) sum += exp(x[i] - max);
    return log(sum) + max;
}

/* The largest difference as a share of the largest logit. */
static double distance(const struct folder_model *m, const float *logits) {
    double worst = 0, peak = 0;
    for (size_t i = 0; i < N_ROWS; i++) {
        size_t p = row_of(i, m->n_tokens);
        const float *x = logits + p * m->n_vocab, *want = m->rows + i * (1 + m->n_ids);
        worst = fmax(worst, fabs(log_sum(x, m->n_vocab) - want[0]));
        for (size_t k = 0; k < m->n_ids; k++) {
            double got = x[folder_id(p, k, m->n_vocab)];
            worst = fmax(worst, isfinite(got) ? fabs(got - want[1 + k]) : INFINITY);
            peak = fmax(peak, fabs(want[1 + k]));
        }
    }
    return worst / peak;
}

static double run(struct weights *w, const struct folder_model *m, const char *path) {
    struct session s;
    struct session_options o = {.path = path,
                                .n_threads = 2,
                                .dtype = BACKEND_F32,
                                .n_pages = m->n_tokens / 16 + 2,
                                .max_model_len = m->max_model_len};
    uint32_t *tokens = malloc(m->n_tokens * sizeof *tokens);
    float *logits = malloc((size_t)m->n_tokens * m->n_vocab * sizeof *logits);
    assert_true(tokens && logits);
    for (uint32_t i = 0; i < m->n_tokens; i++) tokens[i] = folder_token(i, m->n_vocab);
    session_open(&s, w, &o);
    session_run(&s, tokens, m->n_tokens, CHUNK, logits);
    session_close(&s);
    double d = distance(m, logits);
    free(tokens);
    free(logits);
    return d;
}

/* The fastest set of instructions that is here: the tables' meaning is the same for all of them. */
static void far_positions_agree_with_transformers(void **state) {
    const char *path = session_has_path("avx512") ? "avx512" : session_has_path("avx2") ? "avx2" : "ref";
    struct folder_models f;
    folder_models_open(&f, TEST_DATA "/model/long.bin", N_ROWS);
    assert_true(f.n >= 10);
    for (uint32_t i = 0; i < f.n; i++) {
        const struct folder_model *m = &f.models[i];
        char folder[FOLDER_PATH_BYTES];
        struct weights *w = NULL;
        struct error err = {0};
        folder_write(m, 1, folder);
        if (weights_open(folder, &w, &err)) fail_msg("%s: %s", m->variant, err.text);
        double d = run(w, m, path);
        print_message("%-18s %-6s %.1e of the largest logit\n", m->variant, path, d);
        if (!(d <= 1e-4)) fail_msg("%s: too far from transformers", m->variant);
        weights_close(w);
        folder_remove(folder);
    }
    folder_models_close(&f);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(far_positions_agree_with_transformers)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
