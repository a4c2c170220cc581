/* Models in folders as transformers saves them: logits at every position of 512 tokens against transformers'
 * (float32), in one file or several. The golden file is made by
 * tests/golden/model_folders.py. */
#include "util_folder.h"
#include "util_session.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static const char *const PATHS[] = {"ref", "avx2", "avx512"};
#define N_PATHS (sizeof PATHS / sizeof PATHS[0])

static struct weights *open_folder(const char *variant, const char *folder) {
    struct weights *w = NULL;
    struct error err = {0};
    if (weights_open(folder, &w, &err)) fail_msg("%s: %s", variant, err.text);
    return w;
}

static float *run(struct weights *w, const struct folder_model *m, const char *path, char id[33]) {
    struct session s;
    struct session_options o = {
        .path = path, .n_threads = 2, .dtype = BACKEND_F32, .n_pages = 40, .max_model_len = m->max_model_len};
    uint32_t *tokens = malloc(m->n_tokens * sizeof *tokens);
    float *logits = malloc((size_t)m->n_tokens * m->n_vocab * sizeof *logits);
    assert_true(tokens && logits);
    for (uint32_t i = 0; i < m->n_tokens; i++) tokens[i] = folder_token(i, m->n_vocab);
    session_open(&s, w, &o);
    assert_int_equal(s.spec->n_vocab, m->n_vocab);
    session_run(&s, tokens, m->n_tokens, 100, logits);
    snprintf(id, 33, "%s", model_numerics_id(s.m));
    session_close(&s);
    free(tokens);
    return logits;
}

static double log_sum(const float *x, size_t n) {
    double max = x[0], sum = 0;
    for (size_t i = 1; i < n; i++) max = fmax(max, x[i]);
    for (size_t i = 0; i < n; i++) sum += exp(x[i] - max);
    return log(sum) + max;
}

/* The largest difference as a share of the largest logit, and the mean by squares as a share of theirs. */
static void compare(const struct folder_model *m, const float *logits, double *largest, double *mean) {
    double worst = 0, peak = 0, squares = 0, all = 0;
    for (size_t p = 0; p < m->n_tokens; p++) {
        const float *x = logits + p * m->n_vocab, *want = m->rows + p * (1 + m->n_ids);
        worst = fmax(worst, fabs(log_sum(x, m->n_vocab) - want[0]));
        for (size_t k = 0; k < m->n_ids; k++) {
            double got = x[folder_id(p, k, m->n_vocab)];
            double distance = isfinite(got) ? fabs(got - want[1 + k]) : INFINITY;
            worst = fmax(worst, distance);
            peak = fmax(peak, fabs(want[1 + k]));
            squares += distance * distance;
            all += (double)want[1 + k] * want[1 + k];
        }
    }
    *largest = worst / peak;
    *mean = sqrt(squares / all);
}

static void folders_agree_with_transformers(void **state) {
    struct folder_models f;
    folder_models_open(&f, FOLDERS, 0);
    for (uint32_t i = 0; i < f.n; i++) {
        const struct folder_model *m = &f.models[i];
        char folder[FOLDER_PATH_BYTES], id[33];
        folder_write(m, 1, folder);
        struct weights *w = open_folder(m->variant, folder);
        for (size_t p = 0; p < N_PATHS; p++) {
            double largest, mean;
            if (!session_has_path(PATHS[p])) continue;
            float *logits = run(w, m, PATHS[p], id);
            compare(m, logits, &largest, &mean);
            print_message("%-18s %-6s %.1e of the largest logit, mean %.1e\n", m->variant, PATHS[p], largest,
                          mean);
            /* Products with MXFP4 round their inputs to 8 bits. */
            if (!(strcmp(m->variant, "gpt-oss-mxfp4") ? largest <= 1e-4 : mean <= 1e-2))
                fail_msg("%s: too far from transformers", m->variant);
            free(logits);
        }
        weights_close(w);
        folder_remove(folder);
    }
    folder_models_close(&f);
}

/* Products with MXFP4 round their inputs to 8 bits, and that is the whole distance of such a model from
 * transformers' logits: with the same weights decoded to float32, exactly, and so with float32 inputs, none is
 * left. */
static void mxfp4_differs_by_rounded_inputs_alone(void **state) {
    struct folder_models f;
    folder_models_open(&f, FOLDERS, 0);
    const struct folder_model *m = folder_model(&f, "gpt-oss-mxfp4");
    char folder[FOLDER_PATH_BYTES], id[33];
    folder_write(m, 1, folder);
    struct weights *w = open_folder(m->variant, folder), *f32;
    struct error err = {0};
    size_t n_bytes;
    void *data = session_dequantized(w, &n_bytes);
    if (weights_open_memory(data, n_bytes, &f32, &err)) fail_msg("%s", err.text);
    for (size_t p = 0; p < N_PATHS; p++) {
        double largest, mean;
        if (!session_has_path(PATHS[p])) continue;
        float *logits = run(f32, m, PATHS[p], id);
        compare(m, logits, &largest, &mean);
        print_message("%s as float32, %-6s %.1e of the largest logit, mean %.1e\n", m->variant, PATHS[p],
                      largest, mean);
        if (!(largest <= 1e-4)) fail_msg("%s as float32: too far from transformers", m->variant);
        free(logits);
    }
    weights_close(f32);
    session_dequantized_free(data, n_bytes);
    weights_close(w);
    folder_remove(folder);
    folder_models_close(&f);
}

/* In which file tensors lie does not change a bit. */
static void files_do_not_matter(void **state) {
    static const char *const variants[] = {
        "mixtral",      "gpt-oss",       "gpt-oss-mxfp4",       "granitemoeshared",
        "llama-dtypes", "deepseek3-fp8", "qwen3moe-fp8-channel"};
    struct folder_models f;
    folder_models_open(&f, FOLDERS, 0);
    for (size_t i = 0; i < sizeof variants / sizeof *variants; i++) {
        const struct folder_model *m = folder_model(&f, variants[i]);
        float *logits[2];
        char folder[FOLDER_PATH_BYTES], id[33];
        for (size_t k = 0; k < 2; k++) {
            folder_write(m, k ? 3 : 1, folder);
            struct weights *w = open_folder(m->variant, folder);
            assert_int_equal(weights_n_files(w), k ? 3 : 1);
            logits[k] = run(w, m, NULL, id);
            weights_close(w);
            folder_remove(folder);
        }
        assert_memory_equal(logits[0], logits[1], (size_t)m->n_tokens * m->n_vocab * sizeof(float));
        free(logits[0]);
        free(logits[1]);
    }
    folder_models_close(&f);
}

/* What a tensor in parts holds does not depend on how it is read: whole, or from block to block in any cut.
 */
static void check_cuts(const struct weights *w, const struct tensor *t, size_t *n_in_parts) {
    size_t block = tensor_type_info(t->type)->block_bytes;
    uint8_t *whole = malloc(t->bytes), *cut = malloc(t->bytes);
    struct error err = {0};
    assert_true(whole && cut);
    assert_int_equal(weights_read(w, t, 0, t->bytes, whole, &err), 0);
    for (size_t step = 1; step < 2000; step = step * 3 + 1) {
        memset(cut, 0xa5, t->bytes);
        for (size_t at = 0, n; at < t->bytes; at += n) {
            n = t->bytes - at < step * block ? t->bytes - at : step * block;
            assert_int_equal(weights_read(w, t, at, n, cut + at, &err), 0);
        }
        assert_memory_equal(cut, whole, t->bytes);
    }
    *n_in_parts += 1;
    free(whole);
    free(cut);
}

static void parts_in_any_cut(void **state) {
    static const char *const variants[] = {"mixtral",          "gpt-oss",       "gpt-oss-mxfp4",
                                           "granitemoeshared", "deepseek3-fp8", "qwen3moe-fp8-channel",
                                           "llama-fp8-tensor", "qwen3-fp8"};
    struct folder_models f;
    folder_models_open(&f, FOLDERS, 0);
    for (size_t i = 0; i < sizeof variants / sizeof *variants; i++) {
        const struct folder_model *m = folder_model(&f, variants[i]);
        char folder[FOLDER_PATH_BYTES];
        size_t n = 0;
        folder_write(m, 2, folder);
        struct weights *w = open_folder(m->variant, folder);
        for (size_t k = 0; k < weights_n_tensors(w); k++)
            if (weights_tensor_at(w, k)->parts) check_cuts(w, weights_tensor_at(w, k), &n);
        assert_true(n >= 4);
        weights_close(w);
        folder_remove(folder);
    }
    folder_models_close(&f);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(folders_agree_with_transformers),
        cmocka_unit_test(mxfp4_differs_by_rounded_inputs_alone),
        cmocka_unit_test(files_do_not_matter),
        cmocka_unit_test(parts_in_any_cut),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
