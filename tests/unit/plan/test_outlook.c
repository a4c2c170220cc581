/* What is planned is what an engine that is opened reports, byte for byte, over families and settings. */
#include "engine/outlook.h"
#include "util/tiny_encoder.h"
#include "util/tiny_family.h"
#include "util/tiny_model.h"
#include "weights/weights.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

struct setting {
    const char *name;
    size_t max_model_len, max_num_seqs, batched, block_tokens;
    uint64_t kv_bytes; /* 0: what the memory share leaves, of which full sequences need less */
    enum quire_dtype dtype;
    bool whole_prompts, pooling;
};

static const struct setting SETTINGS[] = {
    {"plain", 256, 8, 256, 16, 0, QUIRE_BFLOAT16, false, false},
    {"wide", 0, 4, 2048, 16, 64u << 20, QUIRE_BFLOAT16, false, false},
    {"large blocks", 200, 3, 512, 128, 16u << 20, QUIRE_FLOAT16, false, false},
    {"float32", 64, 64, 64, 32, 0, QUIRE_FLOAT32, false, false},
    {"whole prompts", 128, 2, 128, 64, 0, QUIRE_BFLOAT16, true, false},
    {"vectors", 96, 16, 300, 16, 8u << 20, QUIRE_FLOAT32, false, true},
};
#define N_SETTINGS (sizeof SETTINGS / sizeof *SETTINGS)

static struct quire_config config_of(const struct weights *w, const struct setting *s) {
    return (struct quire_config){.weights = w,
                                 .runner = s->pooling ? QUIRE_RUNNER_POOLING : QUIRE_RUNNER_AUTO,
                                 .dtype = s->dtype,
                                 .max_model_len = s->max_model_len,
                                 .max_num_seqs = s->max_num_seqs,
                                 .max_num_batched_tokens = s->batched,
                                 .block_tokens = s->block_tokens,
                                 .memory_share = 0.5,
                                 .kv_bytes = s->kv_bytes,
                                 .max_queue = 10,
                                 .n_threads = 2,
                                 .prefix_caching = true,
                                 .chunked_prefill = !s->whole_prompts};
}

static void check_rows(const char *model, const char *setting, const struct quire_memory_row *planned,
                       const struct quire_memory_row *real) {
    for (size_t i = 0; i < QUIRE_MEMORY_ROWS; i++)
        if (strcmp(planned[i].name, real[i].name) || planned[i].bytes != real[i].bytes ||
            strcmp(planned[i].detail, real[i].detail))
            fail_msg("%s, %s: planned %s %llu (%s), opened %s %llu (%s)", model, setting, planned[i].name,
                     (unsigned long long)planned[i].bytes, planned[i].detail, real[i].name,
                     (unsigned long long)real[i].bytes, real[i].detail);
}

/* Both refuse with the same words, or both give the same rows. */
static void check_setting(const char *model, const struct weights *w, const struct setting *s) {
    struct quire_config c = config_of(w, s);
    const struct outlook_device here = {0};
    struct quire_engine *e = NULL;
    struct outlook o;
    struct error planned = {0}, opened = {0};
    int rc = outlook_make(&c, &here, &o, &planned), real = quire_open(&c, &e, &opened);
    if (rc != real || strcmp(planned.text, opened.text))
        fail_msg("%s, %s: planned %d %s, opened %d %s", model, s->name, rc, planned.text, real, opened.text);
    if (!rc) {
        const struct quire_info *info = quire_info(e);
        check_rows(model, s->name, o.memory, info->memory);
        assert_int_equal(o.n_blocks, info->n_blocks);
        assert_int_equal(o.max_model_len, info->max_model_len);
        assert_int_equal(o.n_threads, info->n_threads);
        assert_string_equal(o.path, info->cpu_path);
    }
    quire_shutdown(e);
}

static void check_model(const char *name, void *data, size_t n) {
    struct weights *w = NULL;
    struct error err = {0};
    assert_non_null(data);
    if (weights_open_memory(data, n, &w, &err)) fail_msg("%s: %s", name, err.text);
    for (size_t i = 0; i < N_SETTINGS; i++) check_setting(name, w, &SETTINGS[i]);
    weights_close(w);
    free(data);
}

static void test_families(void **state) {
    enum { F32 = 0, Q8_0 = 8 };
    const char *const *variants = tiny_family_variants();
    for (size_t i = 0; variants[i]; i++) {
        size_t n = 0;
        void *data = tiny_family_memory(variants[i], i % 2 ? Q8_0 : F32, 5, &n);
        check_model(variants[i], data, n);
    }
}

static void test_encoders(void **state) {
    static const char *const variants[] = {"bert", "cross", "xlmr"};
    for (size_t i = 0; i < 3; i++) {
        size_t n = 0;
        void *data = tiny_encoder_memory(variants[i], 0, 5, &n);
        check_model(variants[i], data, n);
    }
}

static void test_formats(void **state) {
    static const unsigned types[] = {1, 30, 2, 3, 8, 12, 14};
    for (size_t i = 0; i < sizeof types / sizeof *types; i++) {
        struct tiny_model_options o = tiny_model_defaults();
        char name[32];
        size_t n;
        o.width = o.ff = 256;
        o.n_heads = 8;
        o.type = types[i];
        o.tied = i % 2;
        o.sliding_window = i == 4 ? 40 : 0;
        snprintf(name, sizeof name, "llama of type %u", types[i]);
        void *data = tiny_model_memory(&o, &n);
        check_model(name, data, n);
    }
}

/* ---- memory that is told ---- */

static struct weights *open_tiny(void **data) {
    const struct tiny_model_options o = tiny_model_defaults();
    struct weights *w = NULL;
    struct error err = {0};
    size_t n;
    *data = tiny_model_memory(&o, &n);
    assert_non_null(*data);
    assert_int_equal(weights_open_memory(*data, n, &w, &err), 0);
    return w;
}

/* The smallest memory that takes a plan takes it, one byte less does not; and what it refuses with is a
 * length that fits. */
static void test_least_memory(void **state) {
    void *data;
    struct weights *w = open_tiny(&data);
    const struct setting s = {"told", 2048, 8, 256, 16, 0, QUIRE_BFLOAT16, false, false};
    struct quire_config c = config_of(w, &s);
    struct outlook o;
    struct error err = {0};
    uint64_t low = 1 << 20, high = 1 << 30;
    c.memory_share = 1;
    while (low + 1 < high) {
        uint64_t mid = low + (high - low) / 2;
        const struct outlook_device d = {.memory_bytes = mid, .name = "a test"};
        *(outlook_make(&c, &d, &o, &err) ? &low : &high) = mid;
    }
    struct outlook_device d = {.memory_bytes = high, .name = "a test"};
    assert_int_equal(outlook_make(&c, &d, &o, &err), 0);
    assert_int_equal(o.longest, 2048);
    assert_int_equal(o.n_blocks, outlook_blocks(&o, 2048));
    assert_true(o.memory[5].bytes <= high);
    d.memory_bytes = low;
    assert_int_equal(outlook_make(&c, &d, &o, &err), QUIRE_ENOMEM);
    assert_string_equal(err.param, "max-model-len");
    assert_non_null(strstr(err.text, "a test"));
    size_t fits = 0;
    assert_int_equal(sscanf(strstr(err.text, "--max-model-len "), "--max-model-len %zu", &fits), 1);
    c.max_model_len = fits;
    assert_int_equal(outlook_make(&c, &d, &o, &err), 0);
    weights_close(w);
    free(data);
}

/* Twice the memory above what is fixed holds twice the blocks. */
static void test_room(void **state) {
    void *data;
    struct weights *w = open_tiny(&data);
    const struct setting s = {"told", 512, 2, 256, 16, 0, QUIRE_FLOAT32, false, false};
    struct quire_config c = config_of(w, &s);
    struct outlook o;
    struct error err = {0};
    struct outlook_device d = {.memory_bytes = (uint64_t)1 << 30, .name = "a test"};
    c.memory_share = 1;
    assert_int_equal(outlook_make(&c, &d, &o, &err), 0);
    assert_int_equal(o.n_blocks, 2 * 512 / 16);
    assert_true(o.room_blocks > o.n_blocks);
    uint64_t taken = (o.room_blocks + 1) * o.block_cost_bytes;
    assert_true(taken <= d.memory_bytes &&
                o.fixed_bytes + taken > d.memory_bytes - 2 * o.block_cost_bytes - ((uint64_t)1 << 20));
    assert_int_equal(outlook_longest(&o, o.n_blocks, 2, 512), 512);
    assert_int_equal(outlook_longest(&o, o.n_blocks, 4, 512), 256);
    assert_int_equal(outlook_longest(&o, 3, 4, 512), 0);
    weights_close(w);
    free(data);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_families), cmocka_unit_test(test_encoders),
                                       cmocka_unit_test(test_formats), cmocka_unit_test(test_least_memory),
                                       cmocka_unit_test(test_room)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
