/* Word borders: spelled out, equal to those of Hugging Face `tokenizers` on random texts and all code points
 * (tests/golden/tokenizer_golden.py), and on bytes that are not UTF-8. */
#include "text/pretok.h"
#include "util_tok.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static const char *const names[] = {
    "default", "gpt-2",     "llama-bpe",   "qwen2",          "smollm",     "olmo",   "dbrx",
    "glm4",    "hunyuan",   "qwen35",      "bailingmoe",     "seed-coder", "gpt-4o", "tekken",
    "kimi-k2", "command-r", "deepseek-v3", "deepseek-coder", "falcon",     "bloom",  "viking"};

static const struct pretok *find(const char *name) {
    const struct pretok *p = pretok_find(name, strlen(name));
    if (!p) fail_msg("no pre-tokenizer %s", name);
    return p;
}

static struct pretok_walk walk(const struct pretok *p, const void *text, size_t n) {
    return (struct pretok_walk){.steps = p->steps, .n_steps = p->n_steps, .s = text, .n = n};
}

/* Words separated by "]". */
static void expect(const char *name, const char *text, const char *want) {
    const struct pretok *p = find(name);
    struct buf got = BUF_INIT;
    struct pretok_walk w = walk(p, text, strlen(text));
    for (size_t i, end, before = 0; pretok_walk_next(&w, &i, &end); before = end) {
        assert_true(i == before && end > i && end <= strlen(text));
        if (i) buf_putc(&got, ']');
        buf_append(&got, text + i, end - i);
    }
    assert_string_equal(got.data, want);
    buf_free(&got);
}

static void test_words(void **state) {
    expect("gpt-2", "They're I'LL 1234 x", "They]'re] I]']LL] 1234] x");
    expect("smollm", "They're I'LL 1234 x", "They]'re] I]']LL] ]1]2]3]4] x");
    expect("llama-bpe", "They're I'LL 1234 x", "They]'re] I]'LL] ]123]4] x");
    expect("qwen2", "They're I'LL 1234 x", "They]'re] I]'LL] ]1]2]3]4] x");
    expect("default", "They're I'LL 12345 x", "They]']re] I]']LL] ]123]45] x");
    expect("gpt-2", "a  b   \n c \n", "a] ] b]   \n] c] \n");
    expect("smollm", "a  7  b  ", "a]  ]7] ] b]  ");
    expect("llama-bpe", "a  b   \n c \n", "a] ] b]   \n] c] \n");
    expect("llama-bpe", "(a) $b,\r\n\n x", "(a])] $]b],\r\n\n] x");
    expect("llama-bpe", "it'\u017fa!'SA'Rea'r'lx", "it]'\u017f]a]!']SA]'Re]a]'r]'lx");
    expect("default", "a $5<=6 `x`", "a] ]$]5]<=]6] `]x]`");
}

static void test_names(void **state) {
    static const char *const aliases[][2] = {
        {"llama3", "llama-bpe"}, {"llama-v3", "llama-bpe"}, {"phi-2", "gpt-2"},    {"starcoder", "smollm"},
        {"mpt", "olmo"},         {"llama4", "gpt-4o"},      {"poro-chat", "bloom"}};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        assert_string_equal(find(names[i])->name, names[i]);
        assert_non_null(strstr(pretok_known_names(), names[i]));
    }
    for (size_t i = 0; i < sizeof aliases / sizeof *aliases; i++) {
        assert_string_equal(find(aliases[i][0])->name, aliases[i][1]);
    }
    assert_null(pretok_find("", 0));
    assert_null(pretok_find("gpt", 3));
    assert_null(pretok_find("gpt-22", 6));
    assert_null(pretok_find("GPT-2", 5));
    assert_non_null(pretok_find("gpt-2x", 5)); /* the length counts, not a NUL */
}

/* Expressions of tokenizer.json that are not a name's; the golden file has them by their place here. */
static const char *const patterns[] = {
#include "pretok_patterns.inc"
};
enum { N_PATTERNS = sizeof patterns / sizeof *patterns };

static const struct pretok *of_pattern(const struct tok_section *s) {
    static struct pretok_step step;
    static const struct pretok p = {.steps = &step, .n_steps = 1};
    size_t k = strtoul(s->pre, NULL, 10);
    assert_true(k < N_PATTERNS);
    bool total;
    step = (struct pretok_step){.next = pretok_of_regex(patterns[k], strlen(patterns[k]), &total)};
    assert_non_null(step.next);
    return &p;
}

static void test_golden(void **state) {
    static struct tok_golden g;
    struct tok_section s = {0};
    struct buf text = BUF_INIT;
    size_t n_sections = 0;
    tok_golden_open(&g, "pretok.golden");
    for (; tok_golden_next(&g, &s); n_sections++) {
        const struct pretok *p = strcmp(s.variant, "pattern") ? find(s.pre) : of_pattern(&s);
        uint64_t h = TOK_FNV_INIT;
        size_t n = 0, k = 0;
        while ((s.n_texts == 0 || n < s.n_texts) && tok_gen_next(&s.gen, &text)) {
            uint32_t *lengths = calloc(text.len + 1, sizeof *lengths);
            size_t n_words = 0;
            assert_non_null(lengths);
            struct pretok_walk w = walk(p, text.data, text.len);
            for (size_t i, end; pretok_walk_next(&w, &i, &end);) lengths[n_words++] = (uint32_t)(end - i);
            h = tok_fnv_ids(h, lengths, n_words);
            free(lengths);
            if (++n % s.per_digest) continue;
            if (k >= s.n_digests || h != s.digests[k])
                fail_msg("%s %s: texts %zu to %zu: other words", s.pre, s.what, n - s.per_digest, n - 1);
            k++;
            h = TOK_FNV_INIT;
        }
        if (n % s.per_digest) assert_true(h == s.digests[k++]);
        assert_int_equal(k, s.n_digests);
    }
    assert_int_equal(n_sections, 2 * (sizeof names / sizeof *names + N_PATTERNS));
    buf_free(&text);
    tok_golden_close(&g);
}

/* A stray byte is a character without properties, like one that is unassigned: the borders are the same. */
static void test_stray_bytes(void **state) {
    struct tok_golden g;
    tok_golden_open(&g, "nfc.golden");
    struct tok_gen gen = {
        .what = "random", .state = 77, .fragments = g.fragments, .n_fragments = g.n_fragments};
    struct buf text = BUF_INIT, stray = BUF_INIT, snowman = BUF_INIT;
    uint64_t random = 5;
    for (int round = 0; round < 4000; round++) {
        static const char bad[] = "\x80\xbf\xc0\xc1\xf5\xff\xfe\xf8";
        size_t *at = NULL; /* offset in snowman of each byte of stray */
        tok_gen_next(&gen, &text);
        buf_clear(&stray);
        buf_clear(&snowman);
        at = calloc(4 * text.len + 8, sizeof *at);
        assert_non_null(at);
        for (size_t i = 0; i < text.len; i++) {
            bool border = ((uint8_t)text.data[i] & 0xc0) != 0x80;
            if (border && tok_below(&random, 4) == 0) {
                at[stray.len] = snowman.len;
                buf_putc(&stray, bad[tok_below(&random, 8)]);
                buf_puts(&snowman, "\u0378");
            }
            at[stray.len] = snowman.len;
            buf_putc(&stray, text.data[i]);
            buf_putc(&snowman, text.data[i]);
        }
        at[stray.len] = snowman.len;
        for (size_t k = 0; k < sizeof names / sizeof *names; k++) {
            const struct pretok *p = find(names[k]);
            struct pretok_walk a = walk(p, stray.data, stray.len), b = walk(p, snowman.data, snowman.len);
            for (size_t i, j, start; pretok_walk_next(&a, &start, &i);) {
                assert_true(pretok_walk_next(&b, &start, &j));
                assert_int_equal(at[i], j);
            }
        }
        free(at);
    }
    buf_free(&text);
    buf_free(&stray);
    buf_free(&snowman);
    tok_golden_close(&g);
}

/* Never past the end, never standing still, never reading beyond (the sanitizer sees that), from any start.
 */
static void test_any_bytes(void **state) {
    struct tok_gen gen = {.what = "bytes", .state = 99};
    struct buf text = BUF_INIT;
    for (int round = 0; round < 600; round++) {
        tok_gen_next(&gen, &text);
        if (text.len == 0) continue;
        uint8_t *exact = malloc(text.len);
        assert_non_null(exact);
        memcpy(exact, text.data, text.len);
        for (size_t k = 0; k < sizeof names / sizeof *names; k++)
            for (size_t i = 0; i < text.len; i++) {
                size_t start, end, last = i;
                struct pretok_walk w = walk(find(names[k]), exact + i, text.len - i);
                for (; pretok_walk_next(&w, &start, &end); last = i + end)
                    assert_true(i + start == last && end > start);
                assert_int_equal(last, text.len);
            }
        free(exact);
    }
    buf_free(&text);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_words), cmocka_unit_test(test_names),
                                       cmocka_unit_test(test_golden), cmocka_unit_test(test_stray_bytes),
                                       cmocka_unit_test(test_any_bytes)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
