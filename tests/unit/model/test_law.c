/* Law 1 at this level: the logits of a row depend on its sequence alone. Small seeded models of several
 * weight types run through random batches, cuts, panels, block sizes and thread counts, on every path; all
 * logits must have the bits of the sequence run alone in one piece. KV pages hold NaN before they are
 * written. */
#include "util_folder.h"
#include "util_session.h"

#include "util/tiny_family.h"
#include "util/tiny_model.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define N_SEQS 6
static const size_t LENGTHS[N_SEQS] = {301, 1, 17, 64, 130, 5};

static const char *const PATHS[] = {"ref", "avx2", "avx512"};

static uint32_t draw(uint64_t *state) {
    *state = *state * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(*state >> 33);
}

struct texts {
    uint32_t *tokens[N_SEQS];
    float *alone[N_SEQS]; /* [length][n_vocab] */
};

struct variant {
    size_t n_threads, max_rows, block_tokens, chunk; /* chunk 0: random */
    uint64_t seed;
};

static const struct variant VARIANTS[] = {
    {.n_threads = 1, .max_rows = 512, .block_tokens = 16, .chunk = 1, .seed = 1},
    {.n_threads = 2, .max_rows = 512, .block_tokens = 16, .chunk = 0, .seed = 2},
    {.n_threads = 4, .max_rows = 7, .block_tokens = 32, .chunk = 0, .seed = 3},
    {.n_threads = 4, .max_rows = 64, .block_tokens = 64, .chunk = 0, .seed = 4},
    {.n_threads = 3, .max_rows = 32, .block_tokens = 16, .chunk = 16, .seed = 5},
};

/* Random pages for each sequence; sequences advance by random cuts, in random company. */
static void run_together(struct session *s, const struct texts *t, const struct variant *v) {
    uint64_t seed = v->seed;
    struct session_seq seqs[N_SEQS];
    size_t n_vocab = s->spec->n_vocab, next = 0, left = 0;
    uint32_t *pages = malloc(s->n_pages * sizeof *pages);
    float *out[N_SEQS];
    assert_non_null(pages);
    for (size_t i = 0; i < s->n_pages; i++) pages[i] = (uint32_t)i;
    for (size_t i = s->n_pages - 1; i > 1; i--) {
        size_t j = 1 + draw(&seed) % i;
        uint32_t page = pages[i];
        pages[i] = pages[j];
        pages[j] = page;
    }
    for (size_t i = 0; i < N_SEQS; i++) {
        seqs[i] =
            (struct session_seq){.tokens = t->tokens[i], .n_tokens = LENGTHS[i], .table = pages + 1 + next};
        next += (LENGTHS[i] + v->block_tokens - 1) / v->block_tokens;
        out[i] = malloc(LENGTHS[i] * n_vocab * sizeof(float));
        left += LENGTHS[i];
    }
    assert_true(next < s->n_pages);
    while (left) {
        struct session_seq *chosen[N_SEQS];
        size_t n_rows[N_SEQS], n = 0;
        float *logits[N_SEQS];
        for (size_t k = 0, first = draw(&seed) % N_SEQS; k < N_SEQS; k++) {
            size_t i = (first + k) % N_SEQS, rest = LENGTHS[i] - seqs[i].computed;
            size_t want = v->chunk ? v->chunk : draw(&seed) % 3 == 0 ? 0 : 1 + draw(&seed) % 120;
            if (want > rest) want = rest;
            if (!want) continue;
            chosen[n] = &seqs[i];
            n_rows[n] = want;
            logits[n++] = out[i] + seqs[i].computed * n_vocab;
            left -= want;
        }
        if (n) session_step(s, chosen, n_rows, n, logits);
    }
    for (size_t i = 0; i < N_SEQS; i++) {
        if (memcmp(out[i], t->alone[i], LENGTHS[i] * n_vocab * sizeof(float)))
            fail_msg("path %s, variant %zu: sequence %zu differs", s->b->path, (size_t)v->seed, i);
        free(out[i]);
    }
    free(pages);
}

static void run_alone(struct weights *w, const char *path, enum backend_dtype dtype, struct texts *t) {
    struct session s;
    session_open(&s, w,
                 &(struct session_options){.path = path, .n_threads = 1, .dtype = dtype, .n_pages = 64});
    session_poison(&s);
    for (size_t i = 0; i < N_SEQS; i++) session_run(&s, t->tokens[i], LENGTHS[i], LENGTHS[i], t->alone[i]);
    session_close(&s);
}

/* first_path: 0 for all paths of the machine. */
static void check_weights(struct weights *w, uint32_t n_vocab, enum backend_dtype dtype, size_t first_path) {
    struct texts t;
    uint64_t seed = 99;
    for (size_t i = 0; i < N_SEQS; i++) {
        t.tokens[i] = malloc(LENGTHS[i] * sizeof(uint32_t));
        t.alone[i] = malloc(LENGTHS[i] * n_vocab * sizeof(float));
        for (size_t k = 0; k < LENGTHS[i]; k++) t.tokens[i][k] = draw(&seed) % n_vocab;
    }
    for (size_t p = first_path; p < sizeof PATHS / sizeof PATHS[0]; p++) {
        if (!session_has_path(PATHS[p])) continue;
        run_alone(w, PATHS[p], dtype, &t);
        for (size_t v = 0; v < sizeof VARIANTS / sizeof VARIANTS[0]; v++) {
            struct session s;
            session_open(&s, w,
                         &(struct session_options){.path = PATHS[p],
                                                   .n_threads = VARIANTS[v].n_threads,
                                                   .dtype = dtype,
                                                   .max_rows = VARIANTS[v].max_rows,
                                                   .block_tokens = VARIANTS[v].block_tokens,
                                                   .n_pages = 64});
            session_poison(&s);
            run_together(&s, &t, &VARIANTS[v]);
            session_close(&s);
        }
    }
    for (size_t i = 0; i < N_SEQS; i++) {
        free(t.tokens[i]);
        free(t.alone[i]);
    }
}

/* Takes the file. */
static void check_file(void *file, size_t n, uint32_t n_vocab, enum backend_dtype dtype, size_t first_path) {
    struct weights *w;
    struct error err = {0};
    assert_non_null(file);
    if (weights_open_memory(file, n, &w, &err)) fail_msg("%s", err.text);
    check_weights(w, n_vocab, dtype, first_path);
    weights_close(w);
    free(file);
}

static void check(const struct tiny_model_options *o, enum backend_dtype dtype) {
    size_t n;
    void *file = tiny_model_memory(o, &n);
    check_file(file, n, o->n_vocab, dtype, 0);
}

static struct tiny_model_options small(unsigned type) {
    struct tiny_model_options o = tiny_model_defaults();
    o.n_layers = 2;
    o.n_vocab = 300;
    o.type = type;
    return o;
}

static void float32(void **state) {
    struct tiny_model_options o = small(TENSOR_F32);
    check(&o, BACKEND_F32);
}

static void bfloat16(void **state) {
    struct tiny_model_options o = small(TENSOR_BF16);
    o.tied = true;
    check(&o, BACKEND_BF16);
}

static void float16(void **state) {
    struct tiny_model_options o = small(TENSOR_F16);
    check(&o, BACKEND_F16);
}

static void q4_1_with_a_window(void **state) {
    struct tiny_model_options o = small(TENSOR_Q4_1);
    o.sliding_window = 100;
    check(&o, BACKEND_BF16);
}

static void q8_0_with_yarn(void **state) {
    struct tiny_model_options o = small(TENSOR_Q8_0);
    o.rope_scaling = "yarn";
    o.rope_factor = 4.0f;
    o.rope_original_context = 1024;
    check(&o, BACKEND_F32);
}

static void q4_k_with_divisors(void **state) {
    struct tiny_model_options o = small(TENSOR_Q4_K);
    o.width = 256;
    o.head_dim = 64;
    o.ff = 256;
    o.rope_freqs = true;
    o.rope_original_context = 1024;
    check(&o, BACKEND_BF16);
}

/* Each family in a quantized type and in a float type, in turn with the types of K and V. The reference path
 * is slow, and what it does not share with the others is tested above. */
static void families(void **state) {
    static const unsigned types[] = {TENSOR_Q8_0, TENSOR_BF16, TENSOR_Q4_1, TENSOR_F32};
    static const enum backend_dtype dtypes[] = {BACKEND_BF16, BACKEND_F16, BACKEND_F32};
    const char *const *variants = tiny_family_variants();
    for (size_t i = 0; variants[i]; i++)
        for (size_t k = 0; k < 2; k++) {
            size_t n;
            void *file = tiny_family_memory(variants[i], types[(2 * i + k) % 4], 5, &n);
            print_message("%s, type %u\n", variants[i], types[(2 * i + k) % 4]);
            check_file(file, n, 300, dtypes[(i + k) % 3], 1);
        }
}

/* What only folders have: tensors in parts and of several types, rotation of halves, dynamic scaling. */
static void folders(void **state) {
    static const char *const variants[] = {"mixtral", "gpt-oss-mxfp4", "llama-dtypes", "llama-dynamic",
                                           "deepseek3-fp8"};
    struct folder_models f;
    folder_models_open(&f, FOLDERS, 0);
    for (size_t i = 0; i < sizeof variants / sizeof *variants; i++) {
        const struct folder_model *m = folder_model(&f, variants[i]);
        char folder[FOLDER_PATH_BYTES];
        struct weights *w;
        struct error err = {0};
        folder_write(m, 1 + i % 2, folder);
        if (weights_open(folder, &w, &err)) fail_msg("%s", err.text);
        check_weights(w, m->n_vocab, i % 2 ? BACKEND_F32 : BACKEND_BF16, 1);
        weights_close(w);
        folder_remove(folder);
    }
    folder_models_close(&f);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(float32),        cmocka_unit_test(bfloat16),
        cmocka_unit_test(float16),        cmocka_unit_test(q4_1_with_a_window),
        cmocka_unit_test(q8_0_with_yarn), cmocka_unit_test(q4_k_with_divisors),
        cmocka_unit_test(families),       cmocka_unit_test(folders),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
