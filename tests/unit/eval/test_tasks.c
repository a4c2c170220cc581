/* Reading tasks, and when an answer counts. */
#include "eval/match.h"
#include "eval/task_file.h"
#include "util/alloc_fail.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static void refused(const char *text, int code, const char *words) {
    struct task_file f;
    struct error err = {0};
    assert_int_equal(task_file_read("t.jsonl", text, strlen(text), 0, &f, &err), code);
    if (!strstr(err.text, words)) fail_msg("\"%s\" lacks \"%s\"", err.text, words);
}

static void good_files(void **state) {
    static const char text[] =
        "{\"prompt\": \"a\", \"choices\": [\"x\", \"yy\"], \"answer\": 1}\r\n"
        "\n"
        "{\"id\": 7, \"prompt\": \"b\\u00e9\", \"answer\": \"c\", \"stop\": [\".\", \"\\n\"], "
        "\"max_tokens\": 3}\n"
        "{\"id\": \"q\", \"prompt\": \"b\", \"answer\": [\"\", \"d\"], \"stop\": \";\"}";
    struct task_file f;
    struct error err;
    assert_int_equal(task_file_read("t.jsonl", text, sizeof text - 1, 0, &f, &err), 0);
    assert_int_equal(f.n, 3);
    assert_string_equal(f.list[0].where, "t.jsonl:1");
    assert_string_equal(f.list[0].id, "1");
    assert_int_equal(f.list[0].n_choices, 2);
    assert_int_equal(f.list[0].right, 1);
    assert_int_equal(f.list[0].choices[1].len, 2);
    assert_string_equal(f.list[1].where, "t.jsonl:3");
    assert_string_equal(f.list[1].id, "7");
    assert_memory_equal(f.list[1].prompt.data, "b\xc3\xa9", 3);
    assert_int_equal(f.list[1].n_stop, 2);
    assert_int_equal(f.list[1].max_tokens, 3);
    assert_int_equal(f.list[2].n_accepted, 2);
    assert_int_equal(f.list[2].accepted[0].len, 0);
    assert_int_equal(f.list[2].stop[0].len, 1);
    task_file_free(&f);
    assert_int_equal(task_file_read("t.jsonl", text, sizeof text - 1, 1, &f, &err), 0);
    assert_int_equal(f.n, 1); /* the limit */
    task_file_free(&f);
}

static void bad_lines_are_named(void **state) {
    const char *good = "{\"prompt\": \"a\", \"answer\": \"b\"}\n";
    char text[1000], deep[200] = "{\"prompt\": \"a\", \"answer\": ";
    refused("", QUIRE_EINVAL, "t.jsonl has no tasks");
    refused("\n \n", QUIRE_EINVAL, "no tasks");
    snprintf(text, sizeof text, "%s{\"prompt\": \"a\", \"answer\": }", good);
    refused(text, QUIRE_EFORMAT, "t.jsonl:2: the line is not valid JSON: column");
    refused("[1]", QUIRE_EFORMAT, "t.jsonl:1: the line is not a JSON object");
    refused("{\"answer\": \"b\"}", QUIRE_EINVAL, "t.jsonl:1: prompt must be a string");
    refused("{\"prompt\": \"\", \"answer\": \"b\"}", QUIRE_EINVAL, "prompt must be");
    refused("{\"prompt\": \"a\"}", QUIRE_EINVAL, "answer must be");
    refused("{\"prompt\": \"a\", \"answer\": 3}", QUIRE_EINVAL, "answer must be a string, or up to 64");
    refused("{\"prompt\": \"a\", \"answer\": [\"b\", 3]}", QUIRE_EINVAL, "answer must be");
    refused("{\"prompt\": \"a\", \"anser\": \"b\"}", QUIRE_EINVAL, "anser is not a field");
    refused("{\"prompt\": \"a\", \"choices\": [\"b\"], \"answer\": 0}", QUIRE_EINVAL,
            "choices must be 2 to 64");
    refused("{\"prompt\": \"a\", \"choices\": [\"b\", \"\"], \"answer\": 0}", QUIRE_EINVAL, "not empty");
    refused("{\"prompt\": \"a\", \"choices\": [\"b\", \"c\"], \"answer\": 2}", QUIRE_EINVAL,
            "answer must be the index");
    refused("{\"prompt\": \"a\", \"choices\": [\"b\", \"c\"], \"answer\": -1}", QUIRE_EINVAL, "index");
    refused("{\"prompt\": \"a\", \"choices\": [\"b\", \"c\"], \"answer\": \"b\"}", QUIRE_EINVAL, "index");
    refused("{\"prompt\": \"a\", \"choices\": [\"b\", \"c\"], \"answer\": 0, \"stop\": \"x\"}", QUIRE_EINVAL,
            "absent");
    refused("{\"prompt\": \"a\", \"answer\": \"b\", \"max_tokens\": 0}", QUIRE_EINVAL, "max_tokens must be");
    refused("{\"prompt\": \"a\", \"answer\": \"b\", \"stop\": [\"\"]}", QUIRE_EINVAL, "stop must be");
    refused("{\"id\": 1.5, \"prompt\": \"a\", \"answer\": \"b\"}", QUIRE_EINVAL, "id must be");
    refused("{\"prompt\": \"a\", \"prompt\": \"b\", \"answer\": \"b\"}", QUIRE_EFORMAT, "duplicate");
    refused("{\"id\": 2, \"prompt\": \"a\", \"answer\": \"b\"}\n{\"prompt\": \"a\", \"answer\": \"b\"}",
            QUIRE_EINVAL, "t.jsonl:1 and t.jsonl:2 have the same id \"2\"");
    for (int i = 0; i < 50; i++) strcat(deep, "[");
    refused(deep, QUIRE_EFORMAT, "nested too deep");
}

static void read_with_failures(void *ctx) {
    const char *text = ctx;
    struct task_file f;
    struct error err = {0};
    struct buf out = BUF_INIT;
    int rc = task_file_read("t.jsonl", text, strlen(text), 0, &f, &err);
    if (rc) {
        assert_int_equal(rc, QUIRE_ENOMEM);
        assert_non_null(strstr(err.text, "memory"));
        return;
    }
    match_normalize(f.list[0].prompt, EVAL_LOOSE, &out);
    if (buf_ok(&out)) assert_string_equal(out.data, "long word");
    buf_free(&out);
    task_file_free(&f);
}

static void memory_may_run_out(void **state) {
    char text[] = "{\"prompt\": \"A long word\", \"choices\": [\"x\", \"yy\"], \"answer\": 1}\n"
                  "{\"id\": 7, \"prompt\": \"b\", \"answer\": [\"c\", \"d\"], \"stop\": [\".\"]}";
    assert_true(alloc_fail_each(read_with_failures, text) > 3);
}

/* SQuAD's normalisation (tests/golden/eval_golden.py). */
static void loose_is_squads(void **state) {
    FILE *f = fopen(TEST_DATA "/eval/normalize.txt", "r");
    char line[200];
    size_t n = 0;
    assert_non_null(f);
    for (; fgets(line, sizeof line, f); n++) {
        char text[200], *bar = strrchr(line, '|');
        size_t len = 0;
        line[strcspn(line, "\n")] = 0;
        for (char *p = line; p < bar; p++) {
            if (*p == '\\') p++;
            text[len++] = (char)(p > line && p[-1] == '\\' ? *p == 'n' ? '\n' : *p == 't' ? '\t' : *p : *p);
        }
        struct buf out = BUF_INIT;
        match_normalize((struct text_span){text, len}, EVAL_LOOSE, &out);
        if (strcmp(out.data ? out.data : "", bar + 1)) fail_msg("%s: \"%s\"", line, out.data ? out.data : "");
        buf_free(&out);
    }
    fclose(f);
    assert_int_equal(n, 13);
}

static void extracted(const char *text, enum eval_extract how, const char *want) {
    struct buf memory = BUF_INIT;
    struct text_span got = match_extract((struct text_span){text, strlen(text)}, how, &memory);
    if (got.len != strlen(want) || memcmp(got.data, want, got.len))
        fail_msg("\"%s\": \"%.*s\", not \"%s\"", text, (int)got.len, got.data, want);
    buf_free(&memory);
}

static void parts_of_answers(void **state) {
    struct buf out = BUF_INIT;
    extracted(" \n first \nsecond", EVAL_FIRST_LINE, "first ");
    extracted("", EVAL_FIRST_LINE, "");
    extracted("so 3 + 4 is 7.", EVAL_LAST_NUMBER, "7");
    extracted("it costs $1,234.50 today", EVAL_LAST_NUMBER, "1234.50");
    extracted("x = -5", EVAL_LAST_NUMBER, "-5");
    extracted("1,2, 30", EVAL_LAST_NUMBER, "30");
    extracted("none", EVAL_LAST_NUMBER, "");
    extracted(" as it is ", EVAL_WHOLE, " as it is ");
    match_normalize((struct text_span){"  The \t end. \n", 13}, EVAL_SPACES, &out);
    assert_string_equal(out.data, "The end.");
    buf_clear(&out);
    match_normalize((struct text_span){" A ", 3}, EVAL_EXACT, &out);
    assert_string_equal(out.data, " A ");
    buf_free(&out);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(good_files),         cmocka_unit_test(bad_lines_are_named),
        cmocka_unit_test(memory_may_run_out), cmocka_unit_test(loose_is_squads),
        cmocka_unit_test(parts_of_answers),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
