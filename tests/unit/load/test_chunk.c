/* Messages of answers as vLLM, SGLang, llama.cpp and OpenAI write them, and what is no message. */
#include "load/chunk.h"
#include "load/scrape.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <cmocka.h>

#include <quire/error.h>

static struct chunk read(const char *json) {
    struct chunk k;
    assert_int_equal(chunk_read(json, strlen(json), &k), 0);
    return k;
}

#define is(k, want) ((k).text_bytes == strlen(want) && !memcmp((k).text, want, (k).text_bytes))

static void content(void **state) {
    struct chunk k = read("{\"id\":\"cmpl-1\",\"choices\":[{\"index\":0,\"text\":\" a "
                          "\\\"b\\\"\\n\",\"finish_reason\":null}]}");
    assert_true(k.content && is(k, " a \\\"b\\\"\\n") && !*k.finish && !k.has_usage && !k.error);
    k = read("{\"choices\":[{\"delta\":{\"role\":\"assistant\",\"content\":\"\"},\"finish_reason\":null}],"
             "\"usage\":null}");
    assert_false(k.content); /* a role is no token */
    k = read("{\"choices\":[{\"delta\":{\"content\":null,\"reasoning_content\":\"hm\"}}]}");
    assert_true(k.content && !k.text);
    k = read("{\"choices\":[{\"delta\":{\"reasoning\":\"hm\"}}]}");
    assert_true(k.content);
    k = read("{\"choices\":[{\"delta\":{\"tool_calls\":[{\"index\":0,\"function\":{\"arguments\":\"{"
             "\\\"a\\\"\"}}]}}]}");
    assert_true(k.content);
    k = read("{\"choices\":[{\"delta\":{\"tool_calls\":[]}}]}");
    assert_false(k.content);
    k = read("{\"choices\":[{\"delta\":{\"tool_calls\":null,\"function_call\":null,\"refusal\":null}}]}");
    assert_false(k.content);
    k = read("{\"choices\":[{\"delta\":{},\"finish_reason\":\"tool_calls\",\"logprobs\":{\"content\":[{"
             "\"token\":\"x\"}]}}]}");
    assert_true(!k.content && !strcmp(k.finish, "tool_calls"));
    k = read("{\"choices\":[{\"message\":{\"content\":\"whole\"}},{\"message\":{\"content\":\"second\"}}]}");
    assert_true(is(k, "whole"));
    k = read("{\"choices\":[{\"text\":\""
             "\\\\"
             "\"}]}"); /* an escaped backslash ends nothing */
    assert_true(is(k, "\\\\"));
    k = read(" { \"choices\" : [ { \"text\" : \"x\" , \"a\" : [ { } , [ ] , -1.5e+3 , true ] } ] } ");
    assert_true(is(k, "x"));
    k = read("{}");
    assert_false(k.content);
}

static void usage(void **state) {
    struct chunk k =
        read("{\"choices\":[],\"usage\":{\"prompt_tokens\":12,\"total_tokens\":19,\"completion_tokens\":7,"
             "\"prompt_tokens_details\":{\"cached_tokens\":4}}}");
    assert_true(k.has_usage && k.prompt_tokens == 12 && k.completion_tokens == 7 && k.cached_tokens == 4);
    k = read("{\"usage\":{\"prompt_tokens\":0,\"completion_tokens\":1,\"prompt_tokens_details\":null}}");
    assert_true(k.prompt_tokens == 0 && k.cached_tokens == -1);
    k = read("{\"usage\":{\"prompt_tokens\":null}}");
    assert_true(k.has_usage && k.prompt_tokens == -1);
}

static void failures(void **state) {
    struct chunk k =
        read("{\"error\":{\"message\":\"too long\",\"type\":\"x\",\"param\":null,\"code\":400}}");
    assert_true(k.error && k.message_bytes == 8 && !memcmp(k.message, "too long", 8));
    k = read("{\"error\":\"plain\"}");
    assert_true(k.error && k.message_bytes == 5);
    k = read("{\"object\":\"error\",\"message\":\"old shape\",\"code\":404}");
    assert_true(k.error && k.message_bytes == 9);
    k = read("{\"object\":\"text_completion\",\"error\":null,\"message\":\"m\"}");
    assert_false(k.error);
}

static void malformed(void **state) {
    static const char *const wrong[] = {
        "",
        "x",
        "[]",
        "{",
        "{\"a\"}",
        "{\"a\":}",
        "{\"a\":1,}",
        "{\"choices\":1}",
        "{\"choices\":[1]}",
        "{\"choices\":[{\"text\":5}]}",
        "{\"usage\":5}",
        "{\"usage\":{\"prompt_tokens\":1.5}}",
        "{\"usage\":{\"prompt_tokens\":\"1\"}}",
        "{\"usage\":{\"prompt_tokens\":-1}}",
        "{\"a\":\"b}",
        "{\"a\":\"\\",
        "{\"a\":1} x",
        "{\"a\":[1,2}",
        "{\"choices\":[{\"delta\":[]}]}",
        "{\"usage\":{\"prompt_tokens\":99999999999999999999}}",
    };
    struct chunk k;
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        bool kinds =
            !strcmp(wrong[i], "{\"a\":[1,2}"); /* brackets of skipped members are counted, not told apart */
        int rc = chunk_read(wrong[i], strlen(wrong[i]), &k);
        if (rc != QUIRE_EFORMAT) print_message("%s: %d\n", wrong[i], rc);
        assert_true(kinds || rc == QUIRE_EFORMAT);
    }
    char deep[400] = "{\"a\":";
    memset(deep + 5, '[', 200);
    assert_int_equal(chunk_read(deep, 205, &k), QUIRE_EFORMAT);
    /* a prefix of a message is none */
    const char *whole = "{\"choices\":[{\"index\":0,\"text\":\"a\\\"b\",\"x\":{\"y\":[1,\"z\"]}}],\"usage\":{"
                        "\"prompt_tokens\":1}}";
    for (size_t n = 0; n < strlen(whole); n++) assert_int_equal(chunk_read(whole, n, &k), QUIRE_EFORMAT);
}

static void scraped(void **state) {
    struct scrape s;
    scrape_read(
        "# HELP vllm:num_requests_running 7\n# TYPE x gauge\nvllm:num_requests_running{a=\"}\\\"x "
        "1\",b=\"c\"} 3\n"
        "vllm:num_requests_running{engine=\"1\"} 4 1700000000\nvllm:num_requests_running_more 9\n"
        "vllm:kv_cache_usage_perc{engine=\"0\"} 0.25\nvllm:kv_cache_usage_perc{engine=\"1\"} 0.75\n"
        "vllm:num_preemptions_total 1e3\nvllm:num_requests_waiting NaN\nvllm:prefix_cache_hits_total{\n"
        "process_resident_memory_bytes 12",
        &s);
    assert_true(s.has[METRIC_RUNNING] && s.value[METRIC_RUNNING] == 7);
    assert_true(s.value[METRIC_KV_USAGE] == 0.5 && s.value[METRIC_PREEMPTIONS] == 1000);
    assert_true(s.has[METRIC_MEMORY_BYTES] && s.value[METRIC_MEMORY_BYTES] == 12);
    assert_false(s.has[METRIC_WAITING]);
    assert_false(s.has[METRIC_PREFIX_HITS]);
    assert_false(s.has[METRIC_QUEUE_SUM]);
    scrape_read("llamacpp:requests_processing 2\nsglang:token_usage 0.5\n", &s);
    assert_true(s.value[METRIC_RUNNING] == 2 && s.value[METRIC_KV_USAGE] == 0.5);
    scrape_read("<html>not found</html>", &s);
    for (int i = 0; i < METRICS; i++) assert_false(s.has[i]);
}

/* RFC 8259, section 7. */
static void unescaped(void **state) {
    static const struct {
        const char *json, *text;
    } cases[] = {
        {"plain", "plain"},
        {"\\\"\\\\\\/\\b\\f\\n\\r\\t", "\"\\/\b\f\n\r\t"},
        {"\\u0041\\u00e9\\u20AC\\ud834\\udd1e", "A\xc3\xa9\xe2\x82\xac\xf0\x9d\x84\x9e"},
        {"\\ud834", "\xef\xbf\xbd"}, /* half a pair */
        {"\\ud834x", "\xef\xbf\xbdx"},
        {"\\udd1e\\ud834\\u0041", "\xef\xbf\xbd\xef\xbf\xbd"
                                  "A"},
        {"\xc3\xa9", "\xc3\xa9"},
    };
    char out[40];
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        size_t n = chunk_unescape(cases[i].json, strlen(cases[i].json), out, sizeof out);
        assert_int_equal(n, strlen(cases[i].text));
        assert_memory_equal(out, cases[i].text, n);
    }
    assert_int_equal(chunk_unescape("ab\\u00e9c", 9, out, 4), 4); /* fits */
    assert_int_equal(chunk_unescape("ab\\u00e9c", 9, out, 3), 2); /* never half a character */
}

static void same(const struct chunk *a, const struct chunk *b) {
    assert_true(a->content == b->content && a->text == b->text && a->text_bytes == b->text_bytes);
    assert_true(a->has_usage == b->has_usage && a->prompt_tokens == b->prompt_tokens &&
                a->completion_tokens == b->completion_tokens && a->cached_tokens == b->cached_tokens);
    assert_true(a->error == b->error && a->message == b->message && a->message_bytes == b->message_bytes);
    assert_string_equal(a->finish, b->finish);
}

/* The message as it was read in whole, whatever came before it. */
static void is_as_alone(const char *before, const char *json, size_t n) {
    struct chunk_pattern p = {.before = 0};
    struct chunk k, alone;
    chunk_read_next(&p, before, strlen(before), &k);
    int rc = chunk_read(json, n, &alone);
    assert_int_equal(chunk_read_next(&p, json, n, &k), rc);
    if (!rc) same(&k, &alone);
    buf_free(&p.last);
}

/* Every change of a byte, every byte left out and every one put in. */
static void alike(void **state) {
    static const char *const messages[] = {
        "{\"id\":\"a\",\"choices\":[{\"delta\":{\"content\":\" in\"},\"finish_reason\":null}]}",
        "{\"choices\":[{\"text\":\"x\\\"y\",\"finish_reason\":null}],\"usage\":null}",
        "{\"choices\":[{\"text\":\"a\"},{\"text\":\"b\"}]}",
        "{\"choices\":[{\"text\":\"a\"}],\"usage\":{\"prompt_tokens\":1,\"completion_tokens\":2}}",
        "{\"choices\":[{\"text\":\"a\",\"finish_reason\":\"stop\"}]}",
        "{\"choices\":[{\"text\":\"\"}]}",
        "{\"choices\":[{\"delta\":{\"reasoning\":\"a\"}}]}",
        "{\"error\":{\"message\":\"a\"}}",
        "{\"choices\":[{\"text\":\"a\"}],\"error\":\"b\"}",
    };
    static const char bytes[] = "\"\\,:{}[] anu1\n";
    for (size_t i = 0; i < sizeof messages / sizeof *messages; i++) {
        const char *m = messages[i];
        size_t n = strlen(m);
        for (size_t k = 0; k < sizeof messages / sizeof *messages; k++)
            is_as_alone(m, messages[k], strlen(messages[k]));
        for (size_t at = 0; at < n; at++) {
            char other[200];
            memcpy(other, m, at);
            memcpy(other + at, m + at + 1, n - at - 1);
            is_as_alone(m, other, n - 1);
            memcpy(other + at + 1, m + at + 1, n - at - 1);
            for (const char *b = bytes; *b; b++) {
                other[at] = *b;
                is_as_alone(m, other, n);
            }
            memcpy(other + at + 1, m + at, n - at);
            for (const char *b = bytes; *b; b++) {
                other[at] = *b;
                is_as_alone(m, other, n + 1);
            }
        }
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(alike),     cmocka_unit_test(content),   cmocka_unit_test(usage),
        cmocka_unit_test(failures),  cmocka_unit_test(malformed), cmocka_unit_test(scraped),
        cmocka_unit_test(unescaped),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
