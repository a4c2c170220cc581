/* Ids equal those of Hugging Face `tokenizers` (tests/golden/tokenizer_golden.py): chosen texts, every code
 * point in three places, random texts, words of thousands of symbols; for each pre-tokenizer and for odd
 * lists of merges. */
#include "util_tok.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static void encode(const struct tokenizer *t, const char *text, size_t len, unsigned flags,
                   const struct content_span *content, size_t n_content, struct token_buf *out) {
    struct error err = {0};
    out->n = 0;
    if (tokenizer_encode(t, text, len, flags, content, n_content, 0, out, &err)) fail_msg("%s", err.text);
}

/* Whether the ids' bytes are the text; special tokens by their spelling. */
static bool round_trips(const struct tokenizer *t, const struct token_buf *ids, const char *text,
                        size_t len) {
    size_t at = 0;
    for (size_t i = 0; i < ids->n; i++) {
        size_t n;
        const uint8_t *bytes = tokenizer_bytes(t, ids->ids[i], true, &n);
        if (n > len - at || memcmp(bytes, text + at, n)) return false;
        at += n;
    }
    return at == len;
}

static void check_cases(struct tok_golden *g, const struct tok_section *s, const struct tokenizer *t,
                        bool full) {
    struct tok_case *c = calloc(1, sizeof *c);
    struct token_buf ids = {0};
    assert_non_null(c);
    for (size_t i = 0; i < s->n_cases; i++) {
        tok_golden_case(g, c);
        encode(t, c->text.data, c->text.len, c->flags, c->content, c->n_content, &ids);
        bool same = ids.n == c->n_ids && (ids.n == 0 || !memcmp(ids.ids, c->ids, ids.n * sizeof *ids.ids));
        if (!same) fail_msg("%s: case %zu \"%.*s\": other ids", s->pre, i, (int)c->text.len, c->text.data);
        if (full && strcmp(s->pre, "qwen2") && !round_trips(t, &ids, c->text.data, c->text.len))
            fail_msg("%s: case %zu \"%.*s\": bytes differ", s->pre, i, (int)c->text.len, c->text.data);
    }
    token_buf_free(&ids);
    free(c);
}

static void check_digests(struct tok_section *s, const struct tokenizer *t) {
    struct buf text = BUF_INIT;
    struct token_buf ids = {0};
    uint64_t h = TOK_FNV_INIT;
    size_t n = 0, k = 0;
    while ((s->n_texts == 0 || n < s->n_texts) && tok_gen_next(&s->gen, &text)) {
        encode(t, text.data, text.len, 0, NULL, 0, &ids);
        h = tok_fnv_ids(h, ids.ids, ids.n);
        if (++n % s->per_digest) continue;
        if (k >= s->n_digests || h != s->digests[k])
            fail_msg("%s %s %s: texts %zu to %zu: other ids", s->pre, s->variant, s->what, n - s->per_digest,
                     n - 1);
        k++;
        h = TOK_FNV_INIT;
    }
    if (n % s->per_digest) {
        if (h != s->digests[k]) fail_msg("%s %s %s: last texts: other ids", s->pre, s->variant, s->what);
        k++;
    }
    assert_int_equal(k, s->n_digests);
    buf_free(&text);
    token_buf_free(&ids);
}

static void test_small(void **state) {
    struct tok_golden g;
    struct tok_section s = {0};
    size_t n_sections = 0;
    tok_golden_open(&g, "small.golden");
    while (tok_golden_next(&g, &s)) {
        struct tok_vocab v = tok_vocab_small(s.variant);
        struct tokenizer *t = tok_create(&v, s.pre);
        if (s.what[0])
            check_digests(&s, t);
        else
            check_cases(&g, &s, t, true);
        tokenizer_free(t);
        tok_vocab_free(&v);
        n_sections++;
    }
    assert_int_equal(n_sections, 5 * 4 + 3 * 2);
    tok_golden_close(&g);
}

static void test_default_model(void **state) {
    const char *path = tok_default_model();
    struct tok_golden g;
    struct tok_section s = {0};
    if (!path) skip();
    struct tok_vocab v = tok_vocab_gguf(path);
    assert_int_equal(v.n_vocab, 49152);
    assert_int_equal(v.n_merges, 48900);
    tok_golden_open(&g, "smollm2.golden");
    while (tok_golden_next(&g, &s)) {
        struct tokenizer *t = tok_create(&v, s.pre);
        if (s.what[0])
            check_digests(&s, t);
        else
            check_cases(&g, &s, t, false); /* the vocabulary lacks some bytes */
        tokenizer_free(t);
    }
    tok_golden_close(&g);
    tok_vocab_free(&v);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_small), cmocka_unit_test(test_default_model)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
