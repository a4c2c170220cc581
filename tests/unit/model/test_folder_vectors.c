/* Encoders and decoders without an output matrix in folders as transformers saves them: vectors and scores
 * against transformers' (float32). The golden file is made by tests/golden/model_folder_vectors.py, which
 * also says what it holds. */
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
enum { MAX_TOKENS = 320, MAX_FLOATS = 64, N_PAGES = 40 };

static char *read_golden(size_t *n) {
    FILE *f = fopen(TEST_DATA "/model/folder_vectors.bin", "rb");
    assert_non_null(f);
    fseek(f, 0, SEEK_END);
    *n = (size_t)ftell(f);
    rewind(f);
    char *data = malloc(*n);
    assert_non_null(data);
    assert_int_equal(fread(data, 1, *n, f), *n);
    fclose(f);
    assert_memory_equal(data, "QHV1", 4);
    return data;
}

/* The model whose description is at `at`, and the rest of it: its entries. */
static const char *model_at(const char *at, struct folder_model *m, uint32_t *n_entries) {
    memcpy(m, at, 24 + 8);
    memcpy(&m->n_vocab, at + 32, 4);
    memcpy(n_entries, at + 36, 4);
    m->config = at + 40;
    m->header = m->config + m->n_config;
    return m->header + m->n_header;
}

struct entry {
    uint32_t pooling, n_tokens, n_first, n_floats;
    const float *vector;
};

static const char *entry_at(const char *at, struct entry *e) {
    memcpy(e, at, 16);
    assert_in_range(e->n_tokens, 1, MAX_TOKENS);
    assert_in_range(e->n_floats, 1, MAX_FLOATS);
    e->vector = (const float *)(const void *)(at + 16);
    return at + 16 + e->n_floats * sizeof(float);
}

/* The largest difference as a share of the largest number. */
static double distance(struct weights *w, const struct entry *e, const char *path, uint32_t n_vocab) {
    uint32_t tokens[MAX_TOKENS];
    float got[MAX_FLOATS];
    double worst = 0, largest = 0;
    struct session s;
    struct session_options o = {.path = path,
                                .n_threads = 2,
                                .dtype = BACKEND_F32,
                                .n_pages = N_PAGES,
                                .pooling = (enum model_pooling)e->pooling};
    for (uint32_t i = 0; i < e->n_tokens; i++) tokens[i] = folder_token(i, n_vocab);
    session_open(&s, w, &o);
    assert_int_equal(model_vector_floats(s.spec, o.pooling), e->n_floats);
    session_vector(&s, tokens, e->n_tokens, e->n_first, got);
    session_close(&s);
    for (uint32_t i = 0; i < e->n_floats; i++) {
        double d = isfinite(got[i]) ? fabs((double)got[i] - e->vector[i]) : INFINITY;
        worst = fmax(worst, d);
        largest = fmax(largest, fabs(e->vector[i]));
    }
    return worst / largest;
}

static void vectors_agree_with_transformers(void **state) {
    size_t n;
    uint32_t n_models, n_entries;
    char *data = read_golden(&n);
    const char *at = data + 8;
    memcpy(&n_models, data + 4, 4);
    for (uint32_t i = 0; i < n_models; i++) {
        struct folder_model m = {0};
        struct weights *w = NULL;
        struct error err = {0};
        char folder[FOLDER_PATH_BYTES];
        double worst = 0;
        at = model_at(at, &m, &n_entries);
        folder_write(&m, 1 + i % 2, folder);
        if (weights_open(folder, &w, &err)) fail_msg("%s: %s", m.variant, err.text);
        for (uint32_t k = 0; k < n_entries; k++) {
            struct entry e;
            at = entry_at(at, &e);
            for (size_t p = 0; p < N_PATHS; p++)
                if (session_has_path(PATHS[p])) worst = fmax(worst, distance(w, &e, PATHS[p], m.n_vocab));
        }
        print_message("%-18s %.1e of the largest number\n", m.variant, worst);
        if (!(worst <= 1e-4)) fail_msg("%s: too far from transformers", m.variant);
        weights_close(w);
        folder_remove(folder);
    }
    assert_ptr_equal(at, data + n);
    free(data);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(vectors_agree_with_transformers),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
