/* Vectors of sequences: as transformers gives them (tests/golden/model_encoders.py), the same bits whatever
 * else is in the batch (law 1), and what is refused. */
#include "util/tiny_encoder.h"
#include "util_engine.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { GOLDEN_SEED = 11, MAX_ENTRIES = 64, MAX_FLOATS = TINY_ENCODER_WIDTH, MAX_LEN = TINY_ENCODER_CONTEXT };

struct entry {
    char variant[24];
    uint32_t pooling, n_tokens, n_first, n_floats;
    float vector[MAX_FLOATS];
};

struct golden {
    struct entry entries[MAX_ENTRIES];
    uint32_t n;
};

static struct golden *golden_read(void) {
    struct golden *g = calloc(1, sizeof *g);
    FILE *f = fopen(TEST_DATA "/model/encoders.bin", "rb");
    char magic[4];
    assert_non_null(g);
    assert_non_null(f);
    assert_int_equal(fread(magic, 4, 1, f), 1);
    assert_memory_equal(magic, "QVE1", 4);
    assert_int_equal(fread(&g->n, 4, 1, f), 1);
    assert_in_range(g->n, 1, MAX_ENTRIES);
    for (uint32_t i = 0; i < g->n; i++) {
        struct entry *e = &g->entries[i];
        assert_int_equal(fread(e->variant, 24, 1, f), 1);
        assert_int_equal(fread(&e->pooling, 4, 4, f), 4);
        assert_in_range(e->n_floats, 1, MAX_FLOATS);
        assert_in_range(e->n_tokens, 1, MAX_LEN);
        assert_int_equal(fread(e->vector, 4, e->n_floats, f), e->n_floats);
    }
    fclose(f);
    return g;
}

static struct test_model model_of_type(const char *variant, unsigned type) {
    size_t n;
    bool decoder = !strcmp(variant, "qwen3");
    struct test_model m = {.data = decoder ? tiny_family_memory(variant, type, GOLDEN_SEED, &n)
                                           : tiny_encoder_memory(variant, type, GOLDEN_SEED, &n)};
    struct error err;
    assert_non_null(m.data);
    if (weights_open_memory(m.data, n, &m.weights, &err)) fail_msg("%s", err.text);
    m.bytes = test_make_bytes(TINY_ENCODER_VOCAB);
    return m;
}

static struct test_model model_of(const char *variant) {
    return model_of_type(variant, 0);
}

static struct quire_config config_of(const struct test_model *m, uint32_t pooling) {
    struct quire_config c = test_config(m);
    c.runner = QUIRE_RUNNER_POOLING;
    c.pooling = (enum quire_pooling)pooling;
    c.max_model_len = MAX_LEN;
    c.kv_bytes = (uint64_t)16 << 20;
    return c;
}

static const uint32_t *golden_tokens(void) {
    static uint32_t tokens[MAX_LEN];
    for (uint32_t i = 0; i < MAX_LEN; i++) tokens[i] = (i * i * 7 + i * 13 + 5) % TINY_ENCODER_VOCAB;
    return tokens;
}

static struct quire_stream *submit(struct quire_engine *e, const struct quire_request *r) {
    struct quire_stream *s;
    struct error err;
    if (quire_submit(e, r, &s, &err)) fail_msg("%s", err.text);
    return s;
}

/* Waits for the vector and closes the stream. */
static void take(struct quire_stream *s, float *out, size_t n_floats) {
    struct quire_event ev;
    size_t n;
    assert_null(quire_vector(s, &n));
    assert_int_equal(quire_wait(s, &ev, 120u * 1000000u), 1);
    assert_int_equal(ev.finish, QUIRE_STOP);
    assert_false(ev.has_token);
    const float *v = quire_vector(s, &n);
    assert_non_null(v);
    assert_int_equal(n, n_floats);
    memcpy(out, v, n * sizeof *v);
    quire_close(s);
}

static struct quire_request request_of(const struct entry *e) {
    return (struct quire_request){.prompt = golden_tokens(),
                                  .n_prompt = e->n_tokens,
                                  .pool = true,
                                  .raw_vector = true,
                                  .n_first = e->n_first};
}

/* ---- faithful ---- */

static bool same_model(const struct entry *a, const struct entry *b) {
    return !strcmp(a->variant, b->variant) && a->pooling == b->pooling;
}

/* All entries of one model and pooling at once; marks them done. */
static double check_entries(const struct golden *g, uint32_t first, const char *cpu, bool *done) {
    struct test_model m = model_of(g->entries[first].variant);
    struct quire_config c = config_of(&m, g->entries[first].pooling);
    struct quire_stream *streams[MAX_ENTRIES];
    double worst = 0;
    c.cpu_limit = cpu;
    struct quire_engine *e = test_open(&c);
    for (uint32_t i = first; i < g->n; i++) {
        if (!same_model(&g->entries[i], &g->entries[first])) continue;
        struct quire_request r = request_of(&g->entries[i]);
        streams[i] = submit(e, &r);
        done[i] = true;
    }
    for (uint32_t i = first; i < g->n; i++) {
        const struct entry *want = &g->entries[i];
        float got[MAX_FLOATS];
        double largest = 0, difference = 0;
        if (!same_model(want, &g->entries[first])) continue;
        take(streams[i], got, want->n_floats);
        for (uint32_t k = 0; k < want->n_floats; k++) {
            largest = fmax(largest, fabs(want->vector[k]));
            difference = fmax(difference, fabs((double)got[k] - want->vector[k]));
        }
        if (!(difference <= 1e-4 * largest))
            fail_msg("%s, pooling %u, %u tokens, %s: off by %.3g of %.3g", want->variant, want->pooling,
                     want->n_tokens, cpu, difference, largest);
        worst = fmax(worst, difference / largest);
    }
    test_baseline(e, SIZE_MAX);
    quire_shutdown(e);
    test_model_free(&m);
    return worst;
}

static void faithful(void **state) {
    static const char *const paths[] = {"ref", "avx2", "avx512"};
    struct golden *g = golden_read();
    for (size_t p = 0; p < 3; p++) {
        bool done[MAX_ENTRIES] = {false};
        double worst = 0;
        for (uint32_t i = 0; i < g->n; i++)
            if (!done[i]) worst = fmax(worst, check_entries(g, i, paths[p], done));
        print_message("%s: largest relative difference from transformers: %.2e\n", paths[p], worst);
    }
    free(g);
}

/* ---- law 1 ---- */

enum { N_REQUESTS = 24 };

struct setting {
    size_t n_threads, budget, max_seqs, n_blocks;
    bool chunked, caching;
};

/* Requests of many lengths, in an order of the setting's own. */
static void run_setting(struct test_model *m, uint32_t pooling, enum quire_dtype dtype,
                        const struct setting *s, float (*out)[MAX_FLOATS], size_t *n_floats) {
    struct quire_config c = config_of(m, pooling);
    struct quire_stream *streams[N_REQUESTS];
    c.dtype = dtype;
    c.n_threads = s->n_threads;
    c.max_num_batched_tokens = s->budget;
    c.max_num_seqs = s->max_seqs;
    c.chunked_prefill = s->chunked;
    c.prefix_caching = s->caching;
    c.max_model_len = 600;
    c.kv_bytes = (uint64_t)s->n_blocks * 2 * 3 * 2 * 2 * 32 * 16 * 4;
    struct quire_engine *e = test_open(&c);
    *n_floats = quire_info(e)->vector_floats;
    for (size_t k = 0; k < N_REQUESTS; k++) {
        size_t i = k * (s->budget % 2 ? 7 : 5) % N_REQUESTS;
        struct quire_request r = {.prompt = golden_tokens() + i % 3 * 64,
                                  .n_prompt = i % 5 ? 1 + i * 25 : 1 + i,
                                  .pool = true,
                                  .n_first = i % 4};
        if (r.n_first > r.n_prompt) r.n_first = 0;
        streams[i] = submit(e, &r);
    }
    for (size_t i = 0; i < N_REQUESTS; i++) take(streams[i], out[i], *n_floats);
    test_baseline(e, N_REQUESTS);
    quire_shutdown(e);
}

static void check_law(const char *variant, unsigned type, uint32_t pooling, enum quire_dtype dtype) {
    static const struct setting settings[] = {{1, 600, 1, 100, false, false}, {2, 2048, 8, 600, true, true},
                                              {4, 601, 3, 100, true, true},   {2, 64, 8, 60, true, false},
                                              {1, 1000, 64, 300, true, true}, {3, 4095, 16, 90, false, true}};
    static float first[N_REQUESTS][MAX_FLOATS], again[N_REQUESTS][MAX_FLOATS];
    struct test_model m = model_of_type(variant, type);
    for (size_t k = 0; k < sizeof settings / sizeof *settings; k++) {
        size_t n = 0;
        run_setting(&m, pooling, dtype, &settings[k], k ? again : first, &n);
        for (size_t i = 0; k && i < N_REQUESTS; i++)
            if (memcmp(first[i], again[i], n * sizeof(float)))
                fail_msg("%s, pooling %u: request %zu has other bits under setting %zu", variant, pooling, i,
                         k);
    }
    test_model_free(&m);
}

static void law_of_encoders(void **state) {
    check_law("bert", 0, QUIRE_POOLING_MEAN, QUIRE_FLOAT32);
    check_law("bert", 8, QUIRE_POOLING_CLS, QUIRE_BFLOAT16); /* Q8_0 */
    check_law("cross", 0, QUIRE_POOLING_RANK, QUIRE_FLOAT16);
    check_law("xlmr", 0, QUIRE_POOLING_NONE, QUIRE_BFLOAT16);
}

static void law_of_decoders(void **state) {
    check_law("qwen3", 3, QUIRE_POOLING_LAST, QUIRE_BFLOAT16); /* Q4_1 */
    check_law("qwen3", 0, QUIRE_POOLING_MEAN, QUIRE_FLOAT32);
    check_law("qwen3", 0, QUIRE_POOLING_CLS, QUIRE_BFLOAT16);
}

/* ---- what is made of a vector ---- */

static void scaling(void **state) {
    struct test_model m = model_of("bert");
    struct quire_config c = config_of(&m, 0);
    float raw[MAX_FLOATS], unit[MAX_FLOATS], cut[20];
    double sum = 0, sum_cut = 0;
    c.matryoshka = true;
    struct quire_engine *e = test_open(&c);
    assert_int_equal(quire_info(e)->pooling, QUIRE_POOLING_MEAN); /* as the file says */
    assert_int_equal(quire_info(e)->vector_floats, TINY_ENCODER_WIDTH);
    struct quire_request r = {.prompt = golden_tokens(), .n_prompt = 30, .pool = true, .raw_vector = true};
    take(submit(e, &r), raw, MAX_FLOATS);
    r.raw_vector = false;
    take(submit(e, &r), unit, MAX_FLOATS);
    r.dimensions = 20;
    take(submit(e, &r), cut, 20);
    for (size_t i = 0; i < MAX_FLOATS; i++) sum += (double)raw[i] * raw[i];
    for (size_t i = 0; i < 20; i++) sum_cut += (double)raw[i] * raw[i];
    for (size_t i = 0; i < MAX_FLOATS; i++) assert_true(fabs(unit[i] - raw[i] / sqrt(sum)) < 1e-6);
    for (size_t i = 0; i < 20; i++) assert_true(fabs(cut[i] - raw[i] / sqrt(sum_cut)) < 1e-6);
    quire_shutdown(e);
    test_model_free(&m);

    m = model_of("cross");
    c = config_of(&m, 0);
    e = test_open(&c);
    assert_int_equal(quire_info(e)->vector_floats, 1);
    r = (struct quire_request){.prompt = golden_tokens(), .n_prompt = 30, .pool = true, .n_first = 9};
    take(submit(e, &r), unit, 1);
    r.raw_vector = true;
    take(submit(e, &r), raw, 1);
    assert_true(fabs(unit[0] - 1 / (1 + exp(-(double)raw[0]))) < 1e-6);
    r.n_first = 0; /* the types of tokens count */
    take(submit(e, &r), unit, 1);
    assert_true(fabs(unit[0] - raw[0]) > 1e-3);
    quire_shutdown(e);
    test_model_free(&m);
}

/* ---- refusals ---- */

static void refuses(struct quire_engine *e, struct quire_request r, int code, const char *param,
                    const char *words) {
    struct quire_stream *s;
    struct error err = {0};
    assert_int_equal(quire_submit(e, &r, &s, &err), code);
    if (param) assert_string_equal(err.param, param);
    if (!strstr(err.text, words)) fail_msg("\"%s\" says nothing of \"%s\"", err.text, words);
}

static void refuses_to_open(struct quire_config c, int code, const char *param, const char *words) {
    struct quire_engine *e;
    struct error err = {0};
    assert_int_equal(quire_open(&c, &e, &err), code);
    assert_string_equal(err.param, param);
    if (!strstr(err.text, words)) fail_msg("\"%s\" says nothing of \"%s\"", err.text, words);
}

static void refusals(void **state) {
    struct test_model m = model_of("bert"), decoder = model_of("qwen3");
    struct quire_config c = config_of(&m, 0), d = config_of(&decoder, 0);
    struct quire_request r = {.prompt = golden_tokens(), .n_prompt = 30, .pool = true};
    struct quire_request text = {.prompt = golden_tokens(), .n_prompt = 30, .sampling = test_greedy(4)};
    struct quire_engine *e = test_open(&c);
    refuses(e, text, QUIRE_EUNSUPPORTED, NULL, "encoder");
    r.dimensions = 97;
    refuses(e, r, QUIRE_EINVAL, "dimensions", "have 96");
    r.dimensions = 32;
    refuses(e, r, QUIRE_EUNSUPPORTED, "dimensions", "Matryoshka");
    r.dimensions = 0;
    r.n_first = 31;
    refuses(e, r, QUIRE_EINVAL, "n_first", "30 tokens");
    r.n_first = 0;
    r.n_prompt = 0;
    refuses(e, r, QUIRE_EINVAL, "prompt", "no tokens");
    r.n_prompt = 30;
    quire_shutdown(e);
    c.runner = QUIRE_RUNNER_GENERATE;
    refuses_to_open(c, QUIRE_EUNSUPPORTED, "runner", "encoder");
    c.runner = QUIRE_RUNNER_AUTO;
    c.pooling = QUIRE_POOLING_RANK;
    refuses_to_open(c, QUIRE_EUNSUPPORTED, "pooling-type", "0 output labels");
    c.pooling = QUIRE_POOLING_NONE;
    c.long_prefill_threshold = 64;
    refuses_to_open(c, QUIRE_EINVAL, "long-prefill-token-threshold", "in one step");

    e = test_open(&d);
    assert_int_equal(quire_info(e)->pooling, QUIRE_POOLING_LAST);
    refuses(e, text, QUIRE_EUNSUPPORTED, NULL, "runner generate");
    quire_shutdown(e);
    d.runner = QUIRE_RUNNER_AUTO;
    e = test_open(&d);
    assert_int_equal(quire_info(e)->pooling, QUIRE_POOLING_NONE);
    refuses(e, r, QUIRE_EUNSUPPORTED, NULL, "runner pooling");
    quire_shutdown(e);
    d.runner = QUIRE_RUNNER_GENERATE;
    d.pooling = QUIRE_POOLING_MEAN;
    refuses_to_open(d, QUIRE_EINVAL, "pooling-type", "runner pooling");
    test_model_free(&m);
    test_model_free(&decoder);
}

/* Cancelled while they wait or run: nothing stays behind. */
static void cancels(void **state) {
    struct test_model m = model_of("bert");
    struct quire_config c = config_of(&m, 0);
    struct quire_stream *streams[64];
    struct quire_event ev;
    size_t n;
    c.max_num_seqs = 2;
    c.kv_bytes = (uint64_t)2 << 20; /* each takes most of the blocks */
    struct quire_engine *e = test_open(&c);
    struct quire_request r = {.prompt = golden_tokens(), .n_prompt = 1200, .pool = true};
    for (size_t i = 0; i < 64; i++) streams[i] = submit(e, &r);
    for (size_t i = 0; i < 64; i++)
        if (i % 4) quire_cancel(streams[i]);
    for (size_t i = 0; i < 64; i++) {
        assert_int_equal(quire_wait(streams[i], &ev, 120u * 1000000u), 1);
        if (i % 4 == 0) assert_int_equal(ev.finish, QUIRE_STOP);
        assert_true((quire_vector(streams[i], &n) != NULL) == (ev.finish == QUIRE_STOP));
        quire_close(streams[i]);
    }
    test_baseline(e, 64);
    quire_shutdown(e);
    test_model_free(&m);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(faithful), cmocka_unit_test(law_of_encoders), cmocka_unit_test(law_of_decoders),
        cmocka_unit_test(scaling),  cmocka_unit_test(refusals),        cmocka_unit_test(cancels),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
