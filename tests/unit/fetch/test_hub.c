/* References, lists and choices of the hub client; tests/e2e/test_hub.py has the rest, over HTTP. */
#include "fetch/hub_impl.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static void ids(void **state) {
    static const char *const yes[] = {"a/b", "org/name:Q4_K_M", "org/name@main", "org/name:dir/file.gguf"};
    static const char *const no[] = {"a",     "a/",    "/a",    "./a/b",     "../a",
                                     "a/b/c", "a:b/c", "a@b/c", "a/b/c.gguf"};
    for (size_t i = 0; i < sizeof yes / sizeof *yes; i++) assert_true(hub_ref_is(yes[i]));
    for (size_t i = 0; i < sizeof no / sizeof *no; i++) assert_false(hub_ref_is(no[i]));
}

static void references(void **state) {
    struct hub_ref ref;
    struct error err;
    assert_int_equal(hub_ref_parse("Org-1/na.me_2@refs/pr/1:sub/x.gguf", &ref, &err), 0);
    assert_string_equal(ref.org, "Org-1");
    assert_string_equal(ref.name, "na.me_2");
    assert_string_equal(ref.revision, "refs/pr/1");
    assert_string_equal(ref.pick, "sub/x.gguf");
    assert_int_equal(hub_ref_parse("a/b", &ref, &err), 0);
    assert_string_equal(ref.revision, "main");
    assert_string_equal(ref.pick, "");
    static const char *const bad[] = {"a",      "a/",        "/b",      ".a/b",     "a/.b",
                                      "a/-b",   "a b/c",     "a/b:",    "a/b@",     "a/b@x y",
                                      "a/b:..", "a/b:/x",    "a/b:x/",  "a/b:x\\y", "ä/b",
                                      "a/b@:",  "a/b:x\x7f", "a/b@v..", "a/\nb",    "a/b:x\ny"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        assert_int_equal(hub_ref_parse(bad[i], &ref, &err), QUIRE_EINVAL);
        assert_non_null(strstr(err.text, " is no "));
    }
}

static int list_of(const char *const *names, size_t n, struct hub_repo *out) {
    struct buf json = BUF_INIT;
    struct error err;
    buf_puts(&json, "{\"sha\":\"0123456789\",\"siblings\":[");
    for (size_t i = 0; i < n; i++)
        buf_printf(&json, "%s{\"rfilename\":\"%s\",\"size\":%zu,\"blobId\":\"%040zu\"}", i ? "," : "",
                   names[i], i, i);
    buf_puts(&json, "]}");
    int rc = hub_list_parse(json.data, json.len, out, &err);
    buf_free(&json);
    return rc;
}

static void choices(void **state) {
    static const char *const names[] = {"m-00001-of-00002.gguf", "m-00002-of-00002.gguf",
                                        "n-00001-of-00002.gguf", "IQ4_XS/m-IQ4_XS.gguf",
                                        "imatrix.gguf",          "config.json"};
    struct hub_repo repo;
    struct hub_choice choice;
    struct error err;
    assert_int_equal(list_of(names, 6, &repo), 0);
    assert_int_equal(hub_pick(&repo, "iq4_xs", &choice, &err), 0);
    assert_int_equal(choice.n, 1);
    assert_string_equal(choice.gguf, "IQ4_XS/m-IQ4_XS.gguf");
    hub_choice_free(&choice);
    assert_int_equal(hub_pick(&repo, "m-00001-of-00002.gguf", &choice, &err), 0);
    assert_int_equal(choice.n, 2);
    assert_string_equal(choice.files[1]->path, "m-00002-of-00002.gguf");
    hub_choice_free(&choice);
    assert_int_equal(hub_pick(&repo, "n", &choice, &err), QUIRE_ENOTFOUND); /* its second part is missing */
    assert_non_null(strstr(err.text, "one of 2 parts, of which it holds 1"));
    assert_int_equal(hub_pick(&repo, "", &choice, &err), QUIRE_ENOTFOUND); /* several */
    assert_int_equal(hub_pick(&repo, "config.json", &choice, &err), QUIRE_ENOTFOUND);
    hub_list_free(&repo);
}

static void digests(void **state) {
    char path[] = "/tmp/quire-digest-XXXXXX", hex[DIGEST_HEX_BYTES];
    struct error err;
    int fd = mkstemp(path);
    assert_true(fd >= 0);
    FILE *f = fdopen(fd, "w");
    fputs("hello\n", f);
    fclose(f);
    assert_int_equal(digest_file(path, DIGEST_SHA256, hex, &err),
                     0); /* as sha256sum and git hash-object say */
    assert_string_equal(hex, "5891b5b522d5df086d0ff0b110fbd9d21bb4fc7163af34d08286a2e846f6be03");
    assert_int_equal(digest_file(path, DIGEST_GIT_BLOB, hex, &err), 0);
    assert_string_equal(hex, "ce013625030ba8dba906f756967f9e9ca394464a");
    remove(path);
    assert_int_equal(digest_file(path, DIGEST_SHA256, hex, &err), QUIRE_EIO);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(ids), cmocka_unit_test(references),
                                       cmocka_unit_test(choices), cmocka_unit_test(digests)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
