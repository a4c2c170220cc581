/* The forward pass against outside authorities on the default model: transformers' logits (float32) for the
 * model dequantized to float32, and llama.cpp's greedy text for the model as it is. Skipped when the model
 * file is not there. The golden files are made by tests/golden/model_logits.py,
 * model_greedy.py, model_tiny.py and model_families.py. */
#include "util_session.h"

#include "util/tiny_family.h"
#include "util/tiny_model.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#ifndef __has_feature
#define __has_feature(x) 0
#endif
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__) || __has_feature(address_sanitizer) ||     \
    __has_feature(thread_sanitizer)
#define SANITIZED 1
#else
#define SANITIZED 0
#endif

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

static struct weights *open_file(const char *path, const char *how) {
    struct weights *w;
    struct error err = {0};
    if (SANITIZED) {
        print_message("SKIPPED: a real model is too slow under a sanitizer; small ones take the same code\n");
        skip();
    }
    if (!path || !*path) {
        print_message("SKIPPED: the model is not there (%s)\n", how);
        skip();
    }
    if (weights_open(path, &w, &err)) fail_msg("%s", err.text);
    return w;
}

static struct weights *open_real(void) {
    return open_file(session_real_model(), "quire pull smollm2, or QUIRE_TEST_MODEL=FILE");
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

/* ---- llama.cpp's greedy text ---- */

struct greedy {
    size_t n_answers, n_misses, n_listed;
    double ours, theirs; /* summed distances of listed log probabilities from the exact model's */
};

/* One sequence, teacher-forced: s runs the quantized model, exact the dequantized one in float32. llama.cpp's
 * tokens are its most likely ones; where ours differs, the gap between its two most likely tokens must be
 * within the largest difference between the two programs at that position, taken over the tokens it lists. */
static void compare_sequence(struct session *s, struct session *exact, const uint32_t *tokens,
                             uint32_t n_prompt, uint32_t n_answer, const char **tops, struct greedy *g) {
    size_t n = n_prompt + n_answer - 1, n_vocab = s->spec->n_vocab;
    float *logits = malloc(n * n_vocab * sizeof *logits), *truth = malloc(n * n_vocab * sizeof *truth);
    assert_true(logits && truth);
    session_run(s, tokens, n, 512, logits);
    session_run(exact, tokens, n, 512, truth);
    for (size_t i = 0; i < n_answer; i++) {
        const float *x = logits + (n_prompt - 1 + i) * n_vocab, *t = truth + (n_prompt - 1 + i) * n_vocab;
        const uint32_t n_top = *(const uint32_t *)(const void *)*tops;
        const uint32_t *ids = (const uint32_t *)(const void *)(*tops + 4);
        const float *theirs = (const float *)(const void *)(ids + n_top);
        *tops += 4 + 8 * (size_t)n_top;
        double sum = log_sum(x, n_vocab), true_sum = log_sum(t, n_vocab), here = 0.0;
        for (size_t k = 0; k < n_top; k++) {
            double a = x[ids[k]] - sum, exact_a = t[ids[k]] - true_sum;
            here = fmax(here, fabs(a - theirs[k]));
            if (k >= 8) continue; /* positions weigh the same, however many tokens are listed */
            g->ours += fabs(a - exact_a);
            g->theirs += fabs(theirs[k] - exact_a);
            g->n_listed++;
        }
        g->n_answers++;
        size_t ours = argmax(x, n_vocab);
        if (ours == tokens[n_prompt + i]) continue;
        g->n_misses++;
        double gap = theirs[0] - theirs[1];
        if (gap > here)
            fail_msg("token %zu: %zu instead of %u, gap %.4f, largest difference %.4f", i, ours,
                     tokens[n_prompt + i], gap, here);
    }
    free(logits);
    free(truth);
}

static void check_greedy(struct weights *w, struct weights *f32, const char *path, enum backend_dtype dtype,
                         const char *data, size_t size) {
    struct session s, exact;
    struct greedy g = {0};
    uint32_t n_sequences, n[2];
    const char *at = data + 8;
    session_open(&s, w,
                 &(struct session_options){.path = path, .n_threads = 2, .dtype = dtype, .n_pages = 40});
    session_open(
        &exact, f32,
        &(struct session_options){.path = path, .n_threads = 2, .dtype = BACKEND_F32, .n_pages = 40});
    memcpy(&n_sequences, data + 4, 4);
    for (uint32_t i = 0; i < n_sequences; i++) {
        memcpy(n, at, sizeof n);
        const uint32_t *tokens = (const uint32_t *)(const void *)(at + 8);
        at += 8 + 4 * (size_t)(n[0] + n[1]);
        compare_sequence(&s, &exact, tokens, n[0], n[1], &at, &g);
    }
    assert_ptr_equal(at, data + size);
    double share = 1.0 - (double)g.n_misses / (double)g.n_answers, n_listed = (double)g.n_listed;
    print_message("%s, %s: %.2f %% of %zu greedy tokens of llama.cpp; mean distance of log probabilities "
                  "from the exact "
                  "model %.4f, llama.cpp's %.4f\n",
                  path, dtype == BACKEND_F32 ? "float32" : "bfloat16", 100.0 * share, g.n_answers,
                  g.ours / n_listed, g.theirs / n_listed);
    assert_true(share >= 0.99);
    assert_true(g.ours <= 1.1 * g.theirs); /* no further from the truth than the peer */
    session_close(&exact);
    session_close(&s);
}

static void check_greedy_file(struct weights *w, const char *golden) {
    struct weights *f32;
    struct error err = {0};
    size_t n, n_f32;
    char *data = read_file(golden, &n);
    assert_memory_equal(data, "QGR2", 4);
    void *f32_data = session_dequantized(w, &n_f32);
    if (weights_open_memory(f32_data, n_f32, &f32, &err)) fail_msg("%s", err.text);
    const char *const paths[] = {"avx2", "avx512", "ref"};
    for (size_t i = 0; i < (getenv("QUIRE_TEST_SLOW") ? 3 : 2); i++) {
        if (!session_has_path(paths[i])) continue;
        check_greedy(w, f32, paths[i], BACKEND_F32, data, n);
    }
    free(data);
    weights_close(f32);
    session_dequantized_free(f32_data, n_f32);
    weights_close(w);
}

static void greedy_text_agrees_with_llama_cpp(void **state) {
    check_greedy_file(open_real(), TEST_DATA "/model/greedy.bin");
}

/* The text model gemma-3-270m, Q4_K_M, SHA-256
 * a5fd3b62230aa5ec60212297dc9d20eaa70578ac519e00d93a17e44c087a6818. */
static void gemma3_agrees_with_llama_cpp(void **state) {
    check_greedy_file(open_file(getenv("QUIRE_TEST_GEMMA3"), "QUIRE_TEST_GEMMA3=FILE"),
                      TEST_DATA "/model/greedy_gemma3.bin");
}

/* ---- small models with one feature each ---- */

static const struct tiny_variant {
    uint64_t seed;
    bool tied, rope_freqs;
    const char *rope_scaling;
    unsigned sliding_window, n_kv_heads;
} TINY_VARIANTS[] = {{.seed = 1},
                     {.seed = 2, .tied = true},
                     {.seed = 3, .rope_scaling = "linear"},
                     {.seed = 4, .rope_scaling = "yarn"},
                     {.seed = 5, .rope_freqs = true},
                     {.seed = 6, .sliding_window = 40},
                     {.seed = 7, .n_kv_heads = 4}};
#define N_TINY (sizeof TINY_VARIANTS / sizeof TINY_VARIANTS[0])

static struct weights *open_tiny(const struct tiny_variant *v, uint32_t n_vocab, void **file) {
    struct tiny_model_options o = tiny_model_defaults();
    struct weights *w;
    struct error err = {0};
    size_t n;
    o.n_vocab = n_vocab;
    o.width = 128;
    o.context = 2048;
    o.rope_original_context = 64;
    o.rope_factor = v->rope_scaling ? 4.0f : 8.0f;
    o.rope_scaling = v->rope_scaling;
    o.rope_freqs = v->rope_freqs;
    o.tied = v->tied;
    o.sliding_window = v->sliding_window;
    if (v->n_kv_heads) o.n_kv_heads = v->n_kv_heads;
    o.seed = v->seed;
    *file = tiny_model_memory(&o, &n);
    assert_non_null(*file);
    if (weights_open_memory(*file, n, &w, &err)) fail_msg("%s", err.text);
    return w;
}

static void check_tiny(struct weights *w, const char *path, const uint32_t *head, const uint32_t *tokens,
                       const uint32_t *positions, const float *expected) {
    struct session s;
    session_open(
        &s, w, &(struct session_options){.path = path, .n_threads = 2, .dtype = BACKEND_F32, .n_pages = 40});
    float *logits = malloc((size_t)head[1] * head[2] * sizeof *logits);
    assert_non_null(logits);
    session_run(&s, tokens, head[1], 50, logits);
    for (uint32_t p = 0; p < head[3]; p++)
        for (uint32_t i = 0; i < head[2]; i++) {
            double got = logits[(size_t)positions[p] * head[2] + i], want = expected[(size_t)p * head[2] + i];
            if (!(fabs(got - want) <= 2e-4))
                fail_msg("%s: position %u, id %u: %g, transformers has %g", path, positions[p], i, got, want);
        }
    free(logits);
    session_close(&s);
}

static void features_agree_with_transformers(void **state) {
    size_t n;
    char *data = read_file(TEST_DATA "/model/tiny.bin", &n);
    assert_memory_equal(data, "QTG1", 4);
    uint32_t head[4]; /* variants, tokens, vocabulary, positions */
    memcpy(head, data + 4, sizeof head);
    const uint32_t *tokens = (const uint32_t *)(void *)(data + 20), *positions = tokens + head[1];
    const float *expected = (const float *)(const void *)(positions + head[3]);
    assert_int_equal(head[0], N_TINY);
    for (size_t v = 0; v < N_TINY; v++, expected += head[3] * head[2]) {
        void *file;
        struct weights *w = open_tiny(&TINY_VARIANTS[v], head[2], &file);
        const char *const paths[] = {"ref", "avx2", "avx512"};
        for (size_t i = 0; i < 3; i++)
            if (session_has_path(paths[i])) check_tiny(w, paths[i], head, tokens, positions, expected);
        weights_close(w);
        free(file);
    }
    free(data);
}

/* ---- a small model of each family ---- */

struct family_entry {
    char variant[24];
    uint32_t max_model_len, n_positions;
};

/* Largest difference over the kept positions, as a share of the largest logit. */
static double family_distance(struct weights *w, const char *path, const struct family_entry *e,
                              const uint32_t *tokens, size_t n_tokens, size_t n_vocab,
                              const uint32_t *positions, const float *expected) {
    struct session s;
    struct session_options o = {
        .path = path, .n_threads = 2, .dtype = BACKEND_F32, .n_pages = 40, .max_model_len = e->max_model_len};
    double worst = 0.0, largest = 0.0;
    size_t n = e->max_model_len && e->max_model_len < n_tokens ? e->max_model_len : n_tokens;
    session_open(&s, w, &o);
    float *logits = malloc(n * n_vocab * sizeof *logits);
    assert_non_null(logits);
    session_run(&s, tokens, n, 50, logits);
    for (size_t p = 0; p < e->n_positions; p++)
        for (size_t i = 0; i < n_vocab; i++) {
            double got = logits[positions[p] * n_vocab + i], want = expected[p * n_vocab + i];
            double distance = isfinite(got) ? fabs(got - want) : INFINITY;
            worst = fmax(worst, distance);
            largest = fmax(largest, fabs(want));
        }
    free(logits);
    session_close(&s);
    return worst / largest;
}

static void families_agree_with_transformers(void **state) {
    size_t n;
    char *data = read_file(TEST_DATA "/model/families.bin", &n), *at = data + 16;
    assert_memory_equal(data, "QTF1", 4);
    uint32_t head[3]; /* entries, tokens, vocabulary */
    memcpy(head, data + 4, sizeof head);
    const uint32_t *tokens = (const uint32_t *)(void *)at;
    at += 4 * head[1];
    for (uint32_t i = 0; i < head[0]; i++) {
        struct family_entry e;
        memcpy(&e, at, sizeof e);
        const uint32_t *positions = (const uint32_t *)(void *)(at + sizeof e);
        const float *expected = (const float *)(const void *)(positions + e.n_positions);
        at = (char *)(uintptr_t)(expected + (size_t)e.n_positions * head[2]);
        struct weights *w;
        struct error err = {0};
        size_t file_bytes;
        void *file = tiny_family_memory(e.variant, TENSOR_F32, 11, &file_bytes);
        if (!file) fail_msg("no variant %s", e.variant);
        if (weights_open_memory(file, file_bytes, &w, &err)) fail_msg("%s: %s", e.variant, err.text);
        const char *const paths[] = {"ref", "avx2", "avx512"};
        for (size_t p = 0; p < 3; p++) {
            if (!session_has_path(paths[p])) continue;
            double d = family_distance(w, paths[p], &e, tokens, head[1], head[2], positions, expected);
            print_message("%-10s %-6s %.1e of the largest logit\n", e.variant, paths[p], d);
            if (!(d <= 2e-5)) fail_msg("%s: too far from transformers", e.variant);
        }
        weights_close(w);
        free(file);
    }
    assert_ptr_equal(at, data + n);
    free(data);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(features_agree_with_transformers),
        cmocka_unit_test(families_agree_with_transformers),
        cmocka_unit_test(greedy_text_agrees_with_llama_cpp),
        cmocka_unit_test(gemma3_agrees_with_llama_cpp),
        cmocka_unit_test(logits_agree_with_transformers),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
