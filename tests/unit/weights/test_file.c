/* Where a model file is found, and what happens when it changes while it is open. */
#include "util/gguf_build.h"
#include "util/tiny_model.h"
#include "util_file.h"
#include "weights/weights.h"

#include <fcntl.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

static char folder[FILE_FOLDER_BYTES];

static int make_folder(void **state) {
    file_folder_make(folder);
    return 0;
}

static int remove_folder(void **state) {
    file_folder_remove(folder);
    return 0;
}

static struct weights *open_tiny(uint8_t **data, size_t *n, char path[1024]) {
    struct tiny_model_options o = tiny_model_defaults();
    struct weights *w;
    struct error err = {0};
    o.n_layers = 1;
    *data = tiny_model_memory(&o, n);
    assert_non_null(*data);
    snprintf(path, 1024, "%s", file_put(folder, "tiny.gguf", *data, *n));
    int rc = weights_open(path, &w, &err);
    if (rc) fail_msg("%s", err.text);
    return w;
}

/* ---- finding ---- */

static void expect_refused(const char *path, int code, const char *text) {
    struct weights *w;
    struct error err = {0};
    int rc = weights_open(path, &w, &err);
    if (rc != code || !strstr(err.text, text))
        fail_msg("%s: %d (%s), expected %d (%s)", path, rc, err.text, code, text);
    if (strncmp(err.text, path, strlen(path))) fail_msg("%s does not begin with %s", err.text, path);
    assert_null(w);
}

static void test_folder(void **state) {
    char path[1024], named[1200], slash[1200];
    size_t n;
    uint8_t *data;
    struct weights *w;
    expect_refused(folder, QUIRE_ENOTFOUND, "no .gguf file and no config.json (it holds nothing)");
    file_put(folder, "README.md", "{}", 2);
    file_put(folder, "model.safetensors", "x", 1);
    file_put(folder, ".hidden.gguf", "x", 1);
    file_put(folder, ".gguf", "x", 1);
    expect_refused(folder, QUIRE_ENOTFOUND, "no .gguf file and no config.json (it holds README.md, model.safetensors)");
    weights_close(open_tiny(&data, &n, path));
    assert_int_equal(weights_open(folder, &w, NULL), 0);
    assert_string_equal(weights_path(w), path);
    weights_close(w);
    snprintf(slash, sizeof slash, "%s/", folder);
    assert_int_equal(weights_open(slash, &w, NULL), 0);
    assert_string_equal(weights_path(w), path);
    weights_close(w);
    file_put(folder, "another.gguf", data, n);
    expect_refused(folder, QUIRE_ENOTFOUND, "2 .gguf files (another.gguf, tiny.gguf): name one of them");
    for (int i = 0; i < 20; i++) {
        snprintf(named, sizeof named, "more-%02d.gguf", i);
        file_put(folder, named, "x", 1);
    }
    expect_refused(folder, QUIRE_ENOTFOUND, "22 .gguf files (another.gguf, more-00.gguf");
    expect_refused(folder, QUIRE_ENOTFOUND, "and 14 more)");
    free(data);
}

static void test_not_a_file(void **state) {
    char path[1024];
    snprintf(path, sizeof path, "%s/none.gguf", folder);
    expect_refused(path, QUIRE_ENOTFOUND, "No such file");
    snprintf(path, sizeof path, "%s/pipe.gguf", folder);
    assert_int_equal(mkfifo(path, 0600), 0);
    expect_refused(path, QUIRE_EIO, "not a regular file");
    expect_refused("/dev/null", QUIRE_EIO, "not a regular file");
    expect_refused("", QUIRE_ENOTFOUND, "");
    expect_refused(file_put(folder, "empty.gguf", "", 0), QUIRE_EFORMAT, "has 0 bytes");
    snprintf(path, sizeof path, "%s/empty.gguf/within", folder);
    expect_refused(path, QUIRE_ENOTFOUND, "Not a directory");
}

/* A path longer than a message: its end is shown, and what was wrong. */
static void test_long_path(void **state) {
    char path[1024];
    struct weights *w;
    struct error err = {0};
    snprintf(path, sizeof path, "%s/%0900d/last.gguf", folder, 0);
    assert_int_equal(weights_open(path, &w, &err), QUIRE_EIO);
    assert_non_null(strstr(err.text, "..."));
    assert_non_null(strstr(err.text, "last.gguf: cannot open"));
}

/* ---- inspecting ---- */

static void test_inspect(void **state) {
    struct gguf_build b = gguf_build_new();
    uint64_t dims = 256;
    size_t n;
    struct weights *w;
    struct error err = {0};
    gguf_tensor(&b, "odd", 21, 1, &dims, NULL, 110);
    uint8_t *data = gguf_build_finish(&b, &n);
    const char *path = file_put(folder, "iq3.gguf", data, n);
    assert_int_equal(weights_open(path, &w, &err), QUIRE_EUNSUPPORTED);
    assert_int_equal(weights_inspect(path, &w, &err), 0);
    const struct tensor *t = weights_tensor(w, "odd");
    assert_string_equal(tensor_type_info(t->type)->name, "IQ3_S");
    assert_int_equal(t->bytes, 110);
    weights_close(w);
    b = gguf_build_new();
    gguf_tensor(&b, "odd", 33, 1, &dims, NULL, 136); /* of a removed type, no size is known */
    free(data);
    data = gguf_build_finish(&b, &n);
    assert_int_equal(weights_inspect(file_put(folder, "removed.gguf", data, n), &w, &err),
                     QUIRE_EUNSUPPORTED);
    free(data);
}

/* ---- changing files ---- */

static void expect_data(const struct weights *w, const uint8_t *data, size_t n) {
    const struct tensor *last = weights_tensor_at(w, weights_n_tensors(w) - 1);
    size_t end = (size_t)(last->bytes + 31) / 32 * 32;
    const uint8_t *base = (const uint8_t *)last->data + end - n; /* the last tensor ends the file */
    for (size_t i = 0; i < weights_n_tensors(w); i++) {
        const struct tensor *t = weights_tensor_at(w, i);
        assert_memory_equal(t->data, data + ((const uint8_t *)t->data - base), t->bytes);
    }
}

/* Any part of any tensor reads as the file has it. */
static void test_read_gives_data(void **state) {
    char path[1024];
    uint8_t *data;
    size_t n;
    struct error err = {0};
    struct weights *w = open_tiny(&data, &n, path);
    expect_data(w, data, n);
    for (size_t i = 0; i < weights_n_tensors(w); i++) {
        const struct tensor *t = weights_tensor_at(w, i);
        size_t first = t->bytes / 3, part = i % 2 ? t->bytes - first : t->bytes / 2;
        uint8_t *got = malloc(t->bytes);
        assert_non_null(got);
        assert_int_equal(weights_read(w, t, first, part, got, &err), 0);
        assert_memory_equal(got, (const uint8_t *)t->data + first, part);
        assert_int_equal(weights_read(w, t, t->bytes, 0, got, &err), 0);
        free(got);
    }
    weights_close(w);
    free(data);
}

static void walk_metas(const struct weights *w, unsigned *sum) {
    for (size_t i = 0; i < weights_n_meta(w); i++) {
        const struct meta *m = weights_meta_at(w, i);
        for (size_t j = 0; m->strings && j < m->n; j++) {
            for (size_t k = 0; k < m->strings[j].len; k++)
                *sum = *sum * 31 + (unsigned char)m->strings[j].data[k];
        }
        if (m->type == META_ARRAY && m->elem == META_I32)
            *sum = *sum * 31 + (unsigned)meta_array_int(m, m->n - 1);
    }
}

/* The file is cut to nothing while it is open. */
static void test_shrunk_file(void **state) {
    char path[1024];
    uint8_t *data;
    size_t n;
    struct error err = {0};
    unsigned before = 0, after = 0;
    struct weights *w = open_tiny(&data, &n, path);
    const struct tensor *lost = weights_tensor(w, "output.weight");
    float row[96];
    walk_metas(w, &before);
    assert_int_equal(truncate(path, 0), 0);
    walk_metas(w, &after);
    assert_int_equal(before, after);
    assert_int_equal(weights_read(w, lost, 0, sizeof row, row, &err), QUIRE_EIO);
    assert_non_null(strstr(err.text, "tensor \"output.weight\": the file has shrunk"));
    assert_true(!strncmp(err.text, path, strlen(path)));
    weights_close(w);
    free(data);
}

/* Overwritten in place after opening: the parsed description is still that of the old file. */
static void test_rewritten_file(void **state) {
    char path[1024];
    uint8_t *data;
    size_t n;
    unsigned before = 0, after = 0;
    struct weights *w = open_tiny(&data, &n, path);
    walk_metas(w, &before);
    int fd = open(path, O_WRONLY);
    uint8_t *noise = malloc(n);
    assert_non_null(noise);
    memset(noise, 0xff, n);
    assert_int_equal(pwrite(fd, noise, n, 0), n);
    close(fd);
    walk_metas(w, &after);
    assert_int_equal(before, after);
    weights_close(w);
    free(noise);
    free(data);
}

/* A vocabulary entry of more than INT_MAX bytes in a file that is as long (a hole, so it takes no disk
 * space). */
static void test_huge_string(void **state) {
    struct gguf_build b = gguf_build_new();
    struct weights *w;
    struct error err = {0};
    size_t n;
    gguf_kv_array(&b, "tokenizer.ggml.tokens", 8, 1);
    gguf_bytes_u64(&b.kv, (1ull << 31) + 1);
    uint8_t *data = gguf_build_finish(&b, &n);
    const char *path = file_put(folder, "huge.gguf", data, n);
    free(data);
    assert_int_equal(truncate(path, 3ll << 30), 0);
    assert_int_equal(weights_open(path, &w, &err), QUIRE_ELIMIT);
    assert_non_null(
        strstr(err.text, "\"tokenizer.ggml.tokens\": a string of the array ends at offset 2147483"));
    assert_non_null(strstr(err.text, "at most 1073741824 bytes of metadata"));
}

/* A header of several megabytes is read piece by piece. */
static void test_long_header(void **state) {
    struct gguf_build b = gguf_build_new();
    struct weights *w;
    struct error err = {0};
    size_t n;
    uint64_t dims = 8;
    const uint32_t n_tokens = 200000;
    gguf_kv_array(&b, "tokenizer.ggml.tokens", 8, n_tokens);
    for (uint32_t i = 0; i < n_tokens; i++) {
        char token[32];
        snprintf(token, sizeof token, "token %u", i);
        gguf_bytes_str(&b.kv, token, strlen(token));
    }
    gguf_tensor(&b, "t", 0, 1, &dims, "0123456789abcdef0123456789abcdef", 32);
    uint8_t *data = gguf_build_finish(&b, &n);
    assert_true(n > 3 << 20);
    int rc = weights_open(file_put(folder, "long.gguf", data, n), &w, &err);
    if (rc) fail_msg("%s", err.text);
    const struct meta *tokens = weights_meta(w, "tokenizer.ggml.tokens");
    assert_int_equal(tokens->n, n_tokens);
    for (uint32_t i = 0; i < n_tokens; i += 997) {
        char token[32];
        snprintf(token, sizeof token, "token %u", i);
        assert_int_equal(tokens->strings[i].len, strlen(token));
        assert_memory_equal(tokens->strings[i].data, token, strlen(token));
    }
    assert_memory_equal(weights_tensor(w, "t")->data, "0123456789abcdef0123456789abcdef", 32);
    weights_close(w);
    free(data);
}

#define IN_FOLDER(test) cmocka_unit_test_setup_teardown(test, make_folder, remove_folder)

int main(void) {
    const struct CMUnitTest tests[] = {
        IN_FOLDER(test_folder),         IN_FOLDER(test_not_a_file),      IN_FOLDER(test_long_path),
        IN_FOLDER(test_inspect),        IN_FOLDER(test_read_gives_data), IN_FOLDER(test_shrunk_file),
        IN_FOLDER(test_rewritten_file), IN_FOLDER(test_huge_string),     IN_FOLDER(test_long_header),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
