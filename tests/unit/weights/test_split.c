/* Models in several files: those of the gguf package (tests/golden/weights_split.py), and sets that do not
 * fit together. */
#include "util/alloc_fail.h"
#include "util/crc32.h"
#include "util/gguf_build.h"
#include "util_file.h"
#include "weights/check.h"
#include "weights/weights.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

enum { U16 = 2, I32 = 5 };

static char folder[FILE_FOLDER_BYTES];

static int make_folder(void **state) {
    file_folder_make(folder);
    return 0;
}

static int remove_folder(void **state) {
    file_folder_remove(folder);
    return 0;
}

/* A part of the golden set under another name. */
static void copy_part(unsigned part, const char *name) {
    char golden[64];
    size_t n;
    snprintf(golden, sizeof golden, "split-%05u-of-00003.gguf", part);
    uint8_t *data = file_data(golden, &n);
    file_put(folder, name, data, n);
    free(data);
}

static void copy_all(void) {
    copy_part(1, "m-00001-of-00003.gguf");
    copy_part(2, "m-00002-of-00003.gguf");
    copy_part(3, "m-00003-of-00003.gguf");
}

static const char *path_of(const char *name) {
    static char path[1024];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    return path;
}

static void drop(const char *name) {
    assert_int_equal(unlink(path_of(name)), 0);
}

/* at: what is opened; file: what the message begins with. */
static void expect_refused(const char *at, const char *file, int code, const char *text) {
    char path[1024];
    struct weights *w;
    struct error err = {0};
    snprintf(path, sizeof path, "%s", path_of(at));
    int rc = weights_open(path, &w, &err);
    if (rc != code || !strstr(err.text, text))
        fail_msg("%s: %d (%s), expected %d (%s)", at, rc, err.text, code, text);
    if (strncmp(err.text, path_of(file), strlen(path_of(file))))
        fail_msg("%s does not begin with %s", err.text, path_of(file));
    assert_null(w);
}

/* ---- sets of the package ---- */

static void expect_golden(const char *path) {
    struct weights *w;
    struct error err = {0};
    size_t n, i = 0, bytes = 0;
    int rc = weights_open(path, &w, &err);
    if (rc) fail_msg("%s: %s", path, err.text);
    char *text = (char *)file_data("split.txt", &n);
    for (char *line = strtok(text, "\n"); line; line = strtok(NULL, "\n"), i++) {
        unsigned part;
        uint32_t crc;
        char name[64];
        uint8_t data[256];
        size_t size;
        assert_int_equal(sscanf(line, "%u %63s %zu %x", &part, name, &size, &crc), 4);
        const struct tensor *t = weights_tensor_at(w, i);
        assert_string_equal(t->name, name);
        assert_ptr_equal(weights_tensor(w, name), t);
        assert_int_equal(t->file, part);
        assert_int_equal(t->bytes, size);
        assert_int_equal(weights_read(w, t, 0, size, data, &err), 0);
        assert_int_equal(crc32_of(data, size), crc);
        assert_memory_equal(t->data, data, size);
        bytes += size;
    }
    assert_int_equal(weights_n_tensors(w), i);
    assert_int_equal(weights_tensor_bytes(w), bytes);
    assert_int_equal(weights_n_files(w), 3);
    assert_int_equal(weights_file_bytes(w), 736 + 640 + 256);
    assert_int_equal(weights_bytes_of_file(w, 1), 640);
    assert_non_null(strstr(weights_path(w), "-00001-of-00003.gguf"));
    assert_non_null(strstr(weights_file_path(w, 2), "-00003-of-00003.gguf"));
    assert_non_null(weights_meta(w, "llama.block_count"));
    rc = check_gaps(w, &err);
    if (rc) fail_msg("%s", err.text);
    free(text);
    weights_close(w);
}

static void test_any_part_stands_for_all(void **state) {
    copy_all();
    expect_golden(path_of("m-00001-of-00003.gguf"));
    expect_golden(path_of("m-00002-of-00003.gguf"));
    expect_golden(path_of("m-00003-of-00003.gguf"));
    expect_golden(folder);
}

static void test_other_files_in_the_folder(void **state) {
    copy_all();
    file_put(folder, "config.json", "{}", 2);
    expect_golden(folder);
    copy_part(1, "m-00004-of-00003.gguf");
    expect_refused("", "m-00004-of-00003.gguf", QUIRE_EFORMAT, "part 4 of 3; parts are numbered 1 to 3");
    drop("m-00004-of-00003.gguf");
    copy_part(1, "n-00001-of-00003.gguf");
    expect_refused("", "", QUIRE_ENOTFOUND, "4 .gguf files");
    expect_golden(path_of("m-00001-of-00003.gguf"));
    drop("n-00001-of-00003.gguf");
    copy_part(1, "m-00001-of-00002.gguf");
    expect_refused("", "", QUIRE_ENOTFOUND, "4 .gguf files");
}

/* ---- sets that do not fit together ---- */

static void test_missing_part(void **state) {
    copy_all();
    drop("m-00002-of-00003.gguf");
    const char *says = "missing: metadata key \"split.count\" of m-00001-of-00003.gguf is 3";
    expect_refused("m-00001-of-00003.gguf", "m-00002-of-00003.gguf", QUIRE_EFORMAT, says);
    expect_refused("m-00003-of-00003.gguf", "m-00002-of-00003.gguf", QUIRE_EFORMAT, says);
    expect_refused("", "m-00002-of-00003.gguf", QUIRE_EFORMAT, says);
    copy_part(2, "m-00002-of-00003.gguf");
    drop("m-00001-of-00003.gguf");
    says = "missing: the metadata of a split model is in its first part";
    expect_refused("m-00002-of-00003.gguf", "m-00001-of-00003.gguf", QUIRE_EFORMAT, says);
    expect_refused("", "m-00001-of-00003.gguf", QUIRE_EFORMAT, says);
    expect_refused("m-00001-of-00003.gguf", "m-00001-of-00003.gguf", QUIRE_ENOTFOUND, "No such file");
}

static void test_wrong_names(void **state) {
    copy_part(3, "m-00002-of-00003.gguf");
    copy_part(1, "m-00001-of-00003.gguf");
    copy_part(3, "m-00003-of-00003.gguf");
    expect_refused("m-00001-of-00003.gguf", "m-00002-of-00003.gguf", QUIRE_EFORMAT,
                   "metadata key \"split.no\" is 2; part 2 of 3 must have 1");
    copy_part(2, "m-00001-of-00003.gguf");
    expect_refused("m-00001-of-00003.gguf", "m-00001-of-00003.gguf", QUIRE_EFORMAT,
                   "metadata key \"split.no\" is 1; part 1 of 3 must have 0");
    copy_part(1, "m-00001-of-00002.gguf");
    expect_refused("m-00001-of-00002.gguf", "m-00001-of-00002.gguf", QUIRE_EFORMAT,
                   "metadata key \"split.count\" is 3; part 1 of 2 must have 2");
    copy_part(1, "plain.gguf");
    expect_refused("plain.gguf", "plain.gguf", QUIRE_EUNSUPPORTED,
                   "it must be named ...-00001-of-00003.gguf");
    copy_part(1, "m-00001-of-00001.gguf");
    expect_refused("m-00001-of-00001.gguf", "m-00001-of-00001.gguf", QUIRE_EUNSUPPORTED,
                   "\"split.count\" is 3");
    copy_part(1, "m-00000-of-00003.gguf");
    expect_refused("m-00000-of-00003.gguf", "m-00000-of-00003.gguf", QUIRE_EFORMAT, "part 0 of 3");
    copy_part(1, "m-00000-of-00000.gguf");
    expect_refused("m-00000-of-00000.gguf", "m-00000-of-00000.gguf", QUIRE_EFORMAT, "part 0 of 0");
}

/* A part with these keys (-1: none) and one tensor. */
static void put_part(const char *name, int no, int count, int n_tensors, const char *architecture,
                     const char *tensor) {
    struct gguf_build b = gguf_build_new();
    uint64_t dims = 8;
    size_t n;
    int values[2] = {no, count};
    for (size_t i = 0; i < 2; i++) {
        if (values[i] < 0) continue;
        gguf_kv(&b, i ? "split.count" : "split.no", U16);
        gguf_bytes_put(&b.kv, &(uint16_t){(uint16_t)values[i]}, 2);
    }
    if (n_tensors != -1) {
        gguf_kv(&b, "split.tensors.count", I32);
        gguf_bytes_u32(&b.kv, (uint32_t)n_tensors);
    }
    if (architecture) gguf_kv_str(&b, "general.architecture", architecture);
    gguf_tensor(&b, tensor, 0, 1, &dims, "0123456789abcdef0123456789abcdef", 32);
    uint8_t *data = gguf_build_finish(&b, &n);
    file_put(folder, name, data, n);
    free(data);
}

static void test_keys(void **state) {
    const char *one = "x-00001-of-00002.gguf", *two = "x-00002-of-00002.gguf";
    struct weights *w;
    put_part(one, 0, 2, 2, "llama", "a");
    put_part(two, 1, 2, 2, NULL, "b");
    assert_int_equal(weights_open(path_of(two), &w, NULL), 0);
    weights_close(w);
    put_part(two, 1, 2, 2, "llama", "b");
    assert_int_equal(weights_open(path_of(two), &w, NULL), 0);
    weights_close(w);
    put_part(two, 1, 2, 2, "qwen2", "b");
    expect_refused(one, two, QUIRE_EFORMAT,
                   "\"general.architecture\" is \"qwen2\", but \"llama\" in the first");
    put_part(two, 1, 2, 2, NULL, "a");
    expect_refused(one, two, QUIRE_EFORMAT, "tensor \"a\" is in x-00001-of-00002.gguf too");
    put_part(two, 1, 2, 3, NULL, "b");
    expect_refused(one, two, QUIRE_EFORMAT, "\"split.tensors.count\" is 3; part 2 of 2 must have 2");
    put_part(two, 1, 3, 2, NULL, "b");
    expect_refused(one, two, QUIRE_EFORMAT, "\"split.count\" is 3; part 2 of 2 must have 2");
    put_part(two, -1, 2, 2, NULL, "b");
    expect_refused(one, two, QUIRE_EFORMAT, "\"split.no\" is missing; by its name this is part 2 of 2");
    put_part(two, 1, -1, 2, NULL, "b");
    expect_refused(one, two, QUIRE_EFORMAT, "\"split.count\" is missing");
    put_part(two, 1, 2, -1, NULL, "b");
    expect_refused(one, two, QUIRE_EFORMAT, "\"split.tensors.count\" is missing");
    put_part(two, 1, 2, -2, NULL, "b");
    expect_refused(one, two, QUIRE_EFORMAT, "\"split.tensors.count\"");
    put_part(two, 1, 2, 3, NULL, "b");
    put_part(one, 0, 2, 3, "llama", "a");
    expect_refused(one, one, QUIRE_EFORMAT, "\"split.tensors.count\" is 3, but the 2 parts hold 2 tensors");
    put_part(one, 0, 2, -1, "llama", "a");
    expect_refused(two, one, QUIRE_EFORMAT, "\"split.tensors.count\" is missing");
    put_part(one, -1, -1, -1, "llama", "a");
    expect_refused(two, one, QUIRE_EFORMAT, "\"split.count\" is missing; by its name this is part 1 of 2");
}

/* A whole model may be named as the only part. */
static void test_one_of_one(void **state) {
    struct weights *w;
    put_part("y-00001-of-00001.gguf", -1, -1, -1, "llama", "a");
    assert_int_equal(weights_open(folder, &w, NULL), 0);
    weights_close(w);
    put_part("y-00001-of-00001.gguf", 0, 1, 1, "llama", "a");
    assert_int_equal(weights_open(folder, &w, NULL), 0);
    assert_int_equal(weights_n_files(w), 1);
    weights_close(w);
    put_part("y-0001-of-0002.gguf", -1, -1, -1, "llama", "a"); /* not so many digits: a name like any other */
    assert_int_equal(weights_open(path_of("y-0001-of-0002.gguf"), &w, NULL), 0);
    weights_close(w);
}

static void test_damaged_part(void **state) {
    struct weights *w;
    struct error err = {0};
    uint8_t data[256];
    copy_all();
    assert_int_equal(truncate(path_of("m-00002-of-00003.gguf"), 600), 0);
    expect_refused("m-00001-of-00003.gguf", "m-00002-of-00003.gguf", QUIRE_EFORMAT, "complete?");
    copy_all();
    assert_int_equal(weights_open(folder, &w, &err), 0);
    assert_int_equal(truncate(path_of("m-00003-of-00003.gguf"), 0), 0);
    const struct tensor *lost = weights_tensor(w, "tensor.6"), *kept = weights_tensor(w, "tensor.5");
    assert_int_equal(weights_read(w, kept, 0, kept->bytes, data, &err), 0);
    assert_int_equal(weights_read(w, lost, 0, lost->bytes, data, &err), QUIRE_EIO);
    assert_true(
        !strncmp(err.text, path_of("m-00003-of-00003.gguf"), strlen(path_of("m-00003-of-00003.gguf"))));
    assert_non_null(strstr(err.text, "tensor \"tensor.6\": the file has shrunk"));
    weights_close(w);
}

static void open_or_fail_cleanly(void *ctx) {
    struct weights *w;
    struct error err = {0};
    int rc = weights_open(ctx, &w, &err);
    if (rc) assert_int_equal(rc, QUIRE_ENOMEM);
    if (rc) assert_null(w);
    weights_close(w);
}

static void test_each_allocation_fails(void **state) {
    copy_all();
    assert_true(alloc_fail_each(open_or_fail_cleanly, (void *)path_of("m-00002-of-00003.gguf")) > 20);
}

#define IN_FOLDER(test) cmocka_unit_test_setup_teardown(test, make_folder, remove_folder)

int main(void) {
    const struct CMUnitTest tests[] = {
        IN_FOLDER(test_any_part_stands_for_all),
        IN_FOLDER(test_other_files_in_the_folder),
        IN_FOLDER(test_missing_part),
        IN_FOLDER(test_wrong_names),
        IN_FOLDER(test_keys),
        IN_FOLDER(test_one_of_one),
        IN_FOLDER(test_damaged_part),
        IN_FOLDER(test_each_allocation_fails),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
