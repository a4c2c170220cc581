/* Request bodies against what is allowed: each row is a body and what must come of it. */
#include "serve/json_in.h"
#include "serve/request.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static const struct request_limits limits = {.n_vocab = 1000, .max_model_len = 512, .max_logprobs = 20};

#define C   REQUEST_COMPLETION
#define H   REQUEST_CHAT
#define E   REQUEST_EMBEDDING
#define K   REQUEST_RERANK
#define S   REQUEST_SCORE
#define MSG "\"messages\":[{\"role\":\"user\",\"content\":\"x\"}]"

struct refusal {
    enum request_kind kind;
    const char *body;
    const char *param; /* error.param; NULL: none */
    const char *says;  /* part of the text */
};

static const struct refusal refusals[] = {
    {C, "", NULL, "empty"},
    {C, "[1]", NULL, "must be a JSON object, not an array"},
    {C, "nul", NULL, "not valid JSON"},
    {C, "{\"prompt\":\"x\"} x", NULL, "not valid JSON"},
    {C, "{\"prompt\":\"x\",\"prompt\":\"y\"}", NULL, "duplicate"},
    {C, "{\"prompt\":\"\xff\"}", NULL, "not valid JSON"},
    {C, "{}", "prompt", "missing"},
    {C, "{\"prompt\":null}", "prompt", "missing"},
    {C, "{\"prompt\":7}", "prompt", "not an integer"},
    {C, "{\"prompt\":[]}", "prompt", "empty array"},
    {C, "{\"prompt\":[[]]}", "prompt", "empty array"},
    {C, "{\"prompt\":[1000]}", "prompt", "token id 1000; allowed is 0 to 999"},
    {C, "{\"prompt\":[-1]}", "prompt", "token id -1"},
    {C, "{\"prompt\":[1,\"a\"]}", "prompt", "token id"},
    {C, "{\"prompt\":[\"a\",1]}", "prompt", "mixes"},
    {C, "{\"prompt\":[1.5]}", "prompt", "token id"},
    {C, "{\"prompt\":\"x\",\"temperature\":NaN}", NULL, "not valid JSON"},
    {C, "{\"prompt\":\"x\",\"temperature\":1e999}", NULL, "not valid JSON"},
    {C, "{\"prompt\":\"x\",\"temperature\":-0.1}", "temperature", "allowed is from 0 to 2"},
    {C, "{\"prompt\":\"x\",\"temperature\":2.1}", "temperature", "2.1"},
    {C, "{\"prompt\":\"x\",\"temperature\":\"1\"}", "temperature", "not a string"},
    {C, "{\"prompt\":\"x\",\"temperature\":true}", "temperature", "not a boolean"},
    {C, "{\"prompt\":\"x\",\"top_p\":0}", "top_p", "more than 0"},
    {C, "{\"prompt\":\"x\",\"top_p\":1.01}", "top_p", "to 1"},
    {C, "{\"prompt\":\"x\",\"min_p\":1.5}", "min_p", "to 1"},
    {C, "{\"prompt\":\"x\",\"top_k\":-2}", "top_k", "allowed is -1"},
    {C, "{\"prompt\":\"x\",\"top_k\":1.5}", "top_k", "integer"},
    {C, "{\"prompt\":\"x\",\"presence_penalty\":1e308}", "presence_penalty", "allowed"},
    {C, "{\"prompt\":\"x\",\"repetition_penalty\":0}", "repetition_penalty", "more than 0"},
    {C, "{\"prompt\":\"x\",\"n\":0}", "n", "allowed is 1"},
    {C, "{\"prompt\":\"x\",\"n\":2147483647}", "n", "to 128"},
    {C, "{\"prompt\":\"x\",\"n\":99999999999999999999}", NULL, "not valid JSON"},
    {C, "{\"prompt\":\"x\",\"best_of\":2}", "best_of", "equal to n"},
    {C, "{\"prompt\":\"x\",\"max_tokens\":0}", "max_tokens", "allowed is 1"},
    {C, "{\"prompt\":\"x\",\"max_tokens\":-1}", "max_tokens", "allowed is 1"},
    {C, "{\"prompt\":\"x\",\"max_tokens\":16,\"max_completion_tokens\":3}", "max_completion_tokens",
     "differ"},
    {C, "{\"prompt\":\"x\",\"max_tokens\":2,\"min_tokens\":3}", "min_tokens", "more than max_tokens"},
    {C, "{\"prompt\":\"x\",\"stop\":\"\"}", "stop", "0 bytes"},
    {C, "{\"prompt\":\"x\",\"stop\":[1]}", "stop", "not an integer"},
    {C, "{\"prompt\":\"x\",\"stop_token_ids\":[1000]}", "stop_token_ids", "1000"},
    {C, "{\"prompt\":\"x\",\"stop_token_ids\":5}", "stop_token_ids", "array"},
    {C, "{\"prompt\":\"x\",\"logit_bias\":{\"1000\":1}}", "logit_bias", "1000"},
    {C, "{\"prompt\":\"x\",\"logit_bias\":{\"-1\":1}}", "logit_bias", "-1"},
    {C, "{\"prompt\":\"x\",\"logit_bias\":{\"AI\":1}}", "logit_bias", "AI"},
    {C, "{\"prompt\":\"x\",\"logit_bias\":{\"1.5\":1}}", "logit_bias", "1.5"},
    {C, "{\"prompt\":\"x\",\"logit_bias\":{\"5\":1e300}}", "logit_bias", "-100 to 100"},
    {C, "{\"prompt\":\"x\",\"logit_bias\":{\"05\":1}}", "logit_bias", "05"},
    {C, "{\"prompt\":\"x\",\"user\":5}", "user", "a string, not an integer"},
    {C, "{\"prompt\":\"x\",\"metadata\":[]}", "metadata", "an object, not an array"},
    {C, "{\"prompt\":\"x\",\"store\":\"no\"}", "store", "true or false"},
    {C, "{\"prompt\":\"x\",\"stream\":true,\"prompt_logprobs\":1}", "prompt_logprobs", "stream"},
    {C, "{\"prompt\":\"x\",\"model\":\"a\\u0000b\"}", "model", "NUL"},
    {C, "\xef\xbb\xbf{\"prompt\":\"x\"}", NULL, "byte order mark"},
    {REQUEST_TOKENIZE, "{\"prompt\":[\"x\"]}", "prompt", "must be a string"},
    {REQUEST_DETOKENIZE, "{\"tokens\":5}", "tokens", "array of token ids"},
    {H, "{" MSG ",\"tool_choice\":\"any\"}", "tool_choice", "any"},
    {C, "{\"prompt\":\"x\",\"logit_bias\":[]}", "logit_bias", "object"},
    {C, "{\"prompt\":\"x\",\"logprobs\":21}", "logprobs", "to 20"},
    {C, "{\"prompt\":\"x\",\"logprobs\":true}", "logprobs", "integer"},
    {C, "{\"prompt\":\"x\",\"prompt_logprobs\":-1}", "prompt_logprobs", "0 to 20"},
    {C, "{\"prompt\":\"x\",\"stream_options\":{}}", "stream_options", "needs"},
    {C, "{\"prompt\":\"x\",\"stream\":true,\"stream_options\":{\"x\":1}}", "stream_options", "unknown field"},
    {C, "{\"prompt\":\"x\",\"cache_salt\":\"\"}", "cache_salt", "0 bytes"},
    {C, "{\"prompt\":\"x\",\"priority\":1e10}", "priority", "allowed"},
    {C, "{\"prompt\":\"x\",\"suffix\":\"y\"}", "suffix", "not supported"},
    {C, "{\"prompt\":\"x\",\"temprature\":1}", "temprature", "did you mean \"temperature\""},
    {C, "{\"prompt\":\"x\",\"messages\":[]}", "messages", "unknown field \"messages\""},
    {C, "{\"prompt\":\"x\",\"guided_json\":{}}", "guided_json", "constrained"},
    {C, "{\"prompt\":\"x\",\"response_format\":{\"type\":\"json_object\"}}", "response_format", "text"},
    {C, "{\"prompt\":\"x\",\"response_format\":3}", "response_format", "text"},
    {H, "{}", "messages", "missing"},
    {H, "{\"messages\":[]}", "messages", "0 messages"},
    {H, "{\"messages\":{}}", "messages", "array"},
    {H, "{\"messages\":[1]}", "messages", "object"},
    {H, "{\"messages\":[{}]}", "messages", "role"},
    {H, "{\"messages\":[{\"role\":\"boss\",\"content\":\"x\"}]}", "messages", "boss"},
    {H, "{\"messages\":[{\"role\":\"user\"}]}", "messages", "content is missing"},
    {H, "{\"messages\":[{\"role\":\"user\",\"content\":5}]}", "messages", "an integer"},
    {H, "{\"messages\":[{\"role\":\"user\",\"content\":[{\"type\":\"image_url\"}]}]}", "messages",
     "image_url"},
    {H, "{\"messages\":[{\"role\":\"user\",\"content\":[{\"text\":\"x\"}]}]}", "messages", "type"},
    {H, "{" MSG ",\"top_logprobs\":3}", "top_logprobs", "logprobs"},
    {H, "{" MSG ",\"logprobs\":true,\"top_logprobs\":2147483647}", "top_logprobs", "to 20"},
    {H, "{" MSG ",\"tool_choice\":\"required\"}", "tool_choice", "enforced"},
    {H, "{" MSG ",\"tools\":[{}]}", "tools", "type"},
    {H, "{" MSG ",\"chat_template\":\"x\"}", "chat_template", "refused"},
    {H, "{" MSG ",\"chat_template_kwargs\":{\"messages\":[]}}", "chat_template_kwargs", "messages"},
    {H, "{" MSG ",\"continue_final_message\":true,\"add_generation_prompt\":true}", "continue_final_message",
     "exclude"},
    {H, "{" MSG ",\"echo\":true}", "echo", "unknown field \"echo\""},
    {H, "{" MSG ",\"functions\":[]}", "functions", "tools"},
    {E, "{}", "input", "missing"},
    {E, "{\"input\":3}", "input", "a string, an array of strings"},
    {E, "{\"input\":[\"a\",[1]]}", "input", "mixes"},
    {E, "{\"input\":[1000]}", "input", "token id 1000"},
    {E, "{\"input\":\"x\",\"encoding_format\":\"int8\"}", "encoding_format", "base64"},
    {E, "{\"input\":\"x\",\"dimensions\":0}", "dimensions", "allowed"},
    {E, "{\"input\":\"x\",\"truncate_prompt_tokens\":0}", "truncate_prompt_tokens", "-1 or at least 1"},
    {E, "{\"input\":\"x\",\"truncate_prompt_tokens\":513}", "truncate_prompt_tokens", "512"},
    {E, "{\"input\":\"x\",\"normalize\":1}", "normalize", "true or false"},
    {E, "{\"input\":\"x\",\"normalize\":true,\"use_activation\":false}", "use_activation",
     "normalize and use_activation"},
    {E, "{\"input\":\"x\",\"use_activation\":true,\"normalize\":false}", "normalize",
     "normalize and use_activation"},
    {E, "{\"input\":\"x\",\"top_p\":1}", "top_p", "unknown field"},
    {E, "{\"prompt\":\"x\"}", "prompt", "unknown field"},
    {K, "{\"documents\":[\"x\"]}", "query", "missing"},
    {K, "{\"query\":\"x\"}", "documents", "missing"},
    {K, "{\"query\":\"x\",\"documents\":\"y\"}", "documents", "an array of texts"},
    {K, "{\"query\":\"x\",\"documents\":[1]}", "documents", "documents[0]"},
    {K, "{\"query\":\"x\",\"documents\":[{\"text\":1}]}", "documents", "documents[0]"},
    {K, "{\"query\":\"x\",\"documents\":[{\"text\":\"a\",\"b\":1}]}", "documents", "documents[0]"},
    {K, "{\"query\":[\"x\"],\"documents\":[\"y\"]}", "query", "a string, not an array"},
    {K, "{\"query\":\"x\",\"documents\":[\"y\"],\"top_n\":-1}", "top_n", "allowed"},
    {S, "{\"text_1\":[\"a\",\"b\"],\"text_2\":[\"a\"]}", "text_1", "as many"},
    {S, "{\"text_1\":\"a\"}", "text_2", "missing"},
};

static void test_refusals(void **state) {
    (void)state;
    for (size_t i = 0; i < sizeof refusals / sizeof *refusals; i++) {
        const struct refusal *t = &refusals[i];
        struct request r;
        struct error err = {0};
        int rc = request_parse(t->kind, t->body, strlen(t->body), &limits, &r, &err);
        if (!rc) fail_msg("taken: %s", t->body);
        assert_int_equal(rc, err.code);
        if (!strstr(err.text, t->says))
            fail_msg("%s: \"%s\" does not say \"%s\"", t->body, err.text, t->says);
        if (!t->param != !err.param || (t->param && strcmp(t->param, err.param)))
            fail_msg("%s: names %s", t->body, err.param ? err.param : "nothing");
    }
}

static struct request taken(enum request_kind kind, const char *body) {
    struct request r;
    struct error err = {0};
    if (request_parse(kind, body, strlen(body), &limits, &r, &err)) fail_msg("%s: %s", body, err.text);
    return r;
}

static void test_defaults(void **state) {
    (void)state;
    struct request r = taken(C, "{\"prompt\":\"x\",\"max_tokens\":null,\"stop\":null}");
    assert_int_equal(r.sampling.max_tokens, 16);
    assert_true(r.sampling.temperature == 1 && r.sampling.top_p == 1 && r.sampling.n_logprobs == -1);
    assert_true(r.add_special_tokens && !r.stream && r.n == 1);
    request_free(&r);
    r = taken(H, "{" MSG "}");
    assert_false(r.has_max_tokens);
    assert_true(r.add_generation_prompt && !r.add_special_tokens);
    request_free(&r);
}

static void test_numbers(void **state) {
    (void)state;
    struct request r =
        taken(C, "{\"prompt\":[1,2,3],\"top_k\":-1,\"n\":2.0,\"seed\":-5,\"max_completion_tokens\":3,"
                 "\"logit_bias\":{\"7\":-100},\"stop\":[\"a\",\"b\"],\"user\":\"u\",\"metadata\":{}}");
    assert_int_equal(r.prompts[0].n_ids, 3);
    assert_int_equal(r.n, 2);
    assert_int_equal((int64_t)r.sampling.seed, -5);
    assert_int_equal(r.sampling.max_tokens, 3);
    assert_int_equal(r.sampling.bias[0].token, 7);
    assert_int_equal(r.sampling.n_stop, 2);
    request_free(&r);
    r = taken(C, "{\"prompt\":[\"a\",\"b\"],\"echo\":true,\"max_tokens\":0,\"logprobs\":2}");
    assert_int_equal(r.n_prompts, 2);
    assert_int_equal(r.sampling.n_prompt_logprobs, 2);
    request_free(&r);
}

static void test_vectors(void **state) {
    (void)state;
    struct request r = taken(E, "{\"input\":[[1,2],[3]],\"encoding_format\":\"base64\",\"normalize\":false,"
                                "\"truncate_prompt_tokens\":-1,\"dimensions\":9,\"priority\":3}");
    assert_int_equal(r.n_prompts, 2);
    assert_int_equal(r.prompts[0].n_ids, 2);
    assert_true(r.base64 && r.raw_vectors && r.truncate_tokens == 0 && r.dimensions == 9 && r.priority == 3);
    request_free(&r);
    r = taken(K, "{\"query\":\"q\",\"documents\":[\"a\",{\"text\":\"bc\"}],\"top_n\":1}");
    assert_int_equal(r.n_queries, 1);
    assert_int_equal(r.n_prompts, 2);
    assert_int_equal(r.prompts[1].len, 2);
    assert_true(r.return_documents && r.top_n == 1 && r.truncate_tokens == SIZE_MAX && !r.raw_vectors);
    request_free(&r);
    r = taken(S, "{\"text_1\":[\"a\",\"b\"],\"text_2\":[\"c\",\"d\"]}");
    assert_true(r.n_queries == 2 && r.n_prompts == 2);
    request_free(&r);
}

static const char *content(const struct request *r, size_t i) {
    return json_string_value(json_object_get(json_array_get(r->messages, i), "content"));
}

static void test_message_shapes(void **state) {
    (void)state;
    struct request r =
        taken(H, "{\"messages\":[{\"role\":\"system\",\"content\":[{\"type\":\"text\",\"text\":\"S\"}]},"
                 "{\"role\":\"user\",\"content\":[{\"type\":\"text\",\"text\":\"A\"},{\"type\":\"text\","
                 "\"text\":\"B\"}]},"
                 "{\"role\":\"assistant\",\"content\":null,\"tool_calls\":[{\"id\":\"c\",\"type\":"
                 "\"function\",\"function\":"
                 "{\"name\":\"w\",\"arguments\":\"{\\\"c\\\":\\\"Oslo\\\"}\"}}]},"
                 "{\"role\":\"assistant\",\"tool_calls\":[{\"function\":{\"name\":\"w\",\"arguments\":\"not "
                 "json\"}}]},"
                 "{\"role\":\"tool\",\"tool_call_id\":\"c\",\"content\":\"sun\"}]}");
    assert_string_equal(content(&r, 0), "S");
    assert_string_equal(content(&r, 1), "AB");
    assert_string_equal(content(&r, 2), "");
    assert_string_equal(content(&r, 3), "");
    json_t *call = json_array_get(json_object_get(json_array_get(r.messages, 2), "tool_calls"), 0);
    json_t *args = json_object_get(json_object_get(call, "function"), "arguments");
    assert_string_equal(json_string_value(json_object_get(args, "c")), "Oslo");
    call = json_array_get(json_object_get(json_array_get(r.messages, 3), "tool_calls"), 0);
    assert_string_equal(json_string_value(json_object_get(json_object_get(call, "function"), "arguments")),
                        "not json");
    request_free(&r);
}

static void test_depth(void **state) {
    (void)state;
    char deep[200001];
    struct request r;
    struct error err = {0};
    memset(deep, '[', 100000);
    memset(deep + 100000, ']', 100000);
    assert_int_equal(request_parse(H, deep, 200000, &limits, &r, &err), QUIRE_ELIMIT);
    assert_non_null(strstr(err.text, "too deep"));
    const char *quoted =
        "{\"prompt\":\"[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[\\\"[\"}";
    r = taken(C, quoted);
    request_free(&r);
}

static void test_too_many_values(void **state) {
    (void)state;
    size_t n = 2 * (size_t)JSON_IN_MAX_VALUES + 64;
    char *body = malloc(n);
    assert_non_null(body);
    size_t len = (size_t)snprintf(body, n, "{\"prompt\":[5");
    while (len < n - 3) body[len++] = ',', body[len++] = '5';
    memcpy(body + len, "]}", 2);
    struct request r;
    struct error err = {0};
    assert_int_equal(request_parse(C, body, len + 2, &limits, &r, &err), QUIRE_ELIMIT);
    assert_non_null(strstr(err.text, "too many values"));
    free(body);
}

/* Tools that may not be called are not shown; what is only needed until submission can be let go. */
static void test_tools_and_forgetting(void **state) {
    static const char tool[] = ",\"tools\":[{\"type\":\"function\",\"function\":{\"name\":\"f\"}}]";
    char body[512];
    (void)state;
    snprintf(body, sizeof body, "{" MSG "%s,\"model\":\"m\",\"stop\":\"x\",\"stop_token_ids\":[7]}", tool);
    struct request r = taken(H, body);
    assert_non_null(r.tools);
    request_forget(&r);
    assert_null(r.messages);
    assert_string_equal(r.model, "m");
    assert_int_equal(r.sampling.stop_token_ids[0], 7);
    request_free(&r);
    snprintf(body, sizeof body, "{" MSG "%s,\"tool_choice\":\"none\"}", tool);
    r = taken(H, body);
    assert_null(r.tools);
    request_free(&r);
    snprintf(body, sizeof body, "{\"tool_choice\":\"none\"%s," MSG "}", tool); /* in any order */
    r = taken(H, body);
    assert_null(r.tools);
    request_free(&r);
}

/* Every field of the table names its endpoints and says what is allowed. */
static void test_table(void **state) {
    (void)state;
    for (const struct request_field *f = request_fields; f->name; f++) {
        assert_true(f->kinds != 0);
        assert_non_null(f->help);
        for (const struct request_field *g = request_fields; g < f; g++)
            assert_string_not_equal(f->name, g->name);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_refusals),
                                       cmocka_unit_test(test_defaults),
                                       cmocka_unit_test(test_numbers),
                                       cmocka_unit_test(test_vectors),
                                       cmocka_unit_test(test_message_shapes),
                                       cmocka_unit_test(test_depth),
                                       cmocka_unit_test(test_table),
                                       cmocka_unit_test(test_too_many_values),
                                       cmocka_unit_test(test_tools_and_forgetting)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
