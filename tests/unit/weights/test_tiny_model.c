/* The tiny model's maker against the gguf package's writer and quantizers (tests/golden/weights_tiny.py), and
 * what it writes, read back. */
#include "util/crc32.h"
#include "util/tiny_model.h"
#include "util_file.h"
#include "weights/weights.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static struct tiny_model_options options_of(const char *line, char scaling[16], size_t *n, uint32_t *crc) {
    struct tiny_model_options o = tiny_model_defaults();
    unsigned tied, freqs;
    unsigned long long seed;
    assert_int_equal(sscanf(line, "%u %u %u %u %u %u %d %u %u %15s %u %llu %zu %x", &o.width, &o.ff,
                            &o.head_dim, &o.n_layers, &o.n_vocab, &o.type, &o.embed_type, &tied,
                            &o.sliding_window, scaling, &freqs, &seed, n, crc),
                     14);
    o.tied = tied != 0;
    o.rope_freqs = freqs != 0;
    o.rope_scaling = strcmp(scaling, "none") ? scaling : NULL;
    o.seed = seed;
    return o;
}

static void test_same_as_package(void **state) {
    size_t n, n_lines = 0;
    char *text = (char *)file_data("tiny.txt", &n);
    for (char *line = strtok(text, "\n"); line; line = strtok(NULL, "\n"), n_lines++) {
        size_t expected, got;
        uint32_t crc;
        char scaling[16];
        struct tiny_model_options o = options_of(line, scaling, &expected, &crc);
        void *data = tiny_model_memory(&o, &got);
        assert_non_null(data);
        if (got != expected || crc32_of(data, got) != crc)
            fail_msg("%s: %zu bytes, crc %08x", line, got, crc32_of(data, got));
        free(data);
    }
    assert_int_equal(n_lines, 12);
    free(text);
}

/* Elements have about the deviation they are made with, in every format. */
static void test_spread(void **state) {
    static const unsigned types[] = {0, 1, 30, 2, 3, 8, 10, 11, 12, 13, 14};
    for (size_t i = 0; i < sizeof types / sizeof *types; i++) {
        struct tiny_model_options o = tiny_model_defaults();
        struct weights *w;
        struct error err = {0};
        size_t n;
        o.width = o.ff = 256;
        o.head_dim = 64;
        o.n_layers = 1;
        o.type = types[i];
        void *data = tiny_model_memory(&o, &n);
        assert_non_null(data);
        int rc = weights_open_memory(data, n, &w, &err);
        if (rc) fail_msg("%s", err.text);
        const struct tensor *t = weights_tensor(w, "blk.0.attn_v.weight"); /* deviation 1 / sqrt(256) */
        assert_int_equal(t->type, types[i]);
        float row[256];
        double sum = 0, squares = 0;
        for (size_t r = 0; r < tensor_rows(t); r++) {
            tensor_row_f32(row, t, r);
            for (size_t j = 0; j < 256; j++) {
                sum += row[j];
                squares += (double)row[j] * row[j];
            }
        }
        double count = (double)tensor_rows(t) * 256, mean = sum / count,
               std = sqrt(squares / count - mean * mean);
        if (fabs(mean) > 0.005 || std < 0.05 || std > 0.075)
            fail_msg("type %u: mean %g, deviation %g", types[i], mean, std);
        weights_close(w);
        free(data);
    }
}

static void test_tokenizer_metadata(void **state) {
    struct tiny_model_options o = tiny_model_defaults();
    struct weights *w;
    size_t n;
    void *data = tiny_model_memory(&o, &n);
    assert_int_equal(weights_open_memory(data, n, &w, NULL), 0);
    const struct meta *tokens = weights_meta(w, "tokenizer.ggml.tokens"),
                      *merges = weights_meta(w, "tokenizer.ggml.merges");
    const struct meta *types = weights_meta(w, "tokenizer.ggml.token_type");
    assert_int_equal(tokens->n, 600);
    assert_int_equal(types->n, 600);
    assert_int_equal(merges->n, 314);
    static const struct {
        size_t id;
        const char *piece;
        int type;
    } some[] = {{0, "<|endoftext|>", 3},
                {2, "<|im_end|>", 3},
                {3, "\xc4\x80", 1},
                {3 + ' ', "\xc4\xa0", 1},
                {3 + 'a', "a", 1},
                {3 + 255, "\xc3\xbf", 1},
                {259,
                 "\xc4\xa0"
                 "e",
                 1},
                {599, "<|reserved_599|>", 3}};
    for (size_t i = 0; i < sizeof some / sizeof *some; i++) {
        struct meta_str s = tokens->strings[some[i].id];
        assert_true(s.len == strlen(some[i].piece) && !memcmp(s.data, some[i].piece, s.len));
        assert_int_equal(meta_array_int(types, some[i].id), some[i].type);
    }
    weights_close(w);
    free(data);
}

static void test_impossible(void **state) {
    struct tiny_model_options o = tiny_model_defaults();
    size_t n;
    o.type = 12; /* blocks of 256 in rows of 96 */
    assert_null(tiny_model_memory(&o, &n));
    o = tiny_model_defaults();
    o.n_vocab = 258;
    assert_null(tiny_model_memory(&o, &n));
    o = tiny_model_defaults();
    o.embed_type = 99;
    assert_null(tiny_model_memory(&o, &n));
    assert_int_equal(tiny_model_write("/nonexistent/x.gguf", &(struct tiny_model_options){0}), -1);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_same_as_package),
        cmocka_unit_test(test_spread),
        cmocka_unit_test(test_tokenizer_metadata),
        cmocka_unit_test(test_impossible),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
