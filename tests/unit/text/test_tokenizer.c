/* What the header promises beside equal ids: refusals, special tokens and content, BOS and EOS, limits, any
 * bytes, memory that runs out, threads. */
#include "util_tok.h"

#include "util/alloc_fail.h"

#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define SPAN(s) ((struct text_span){s, sizeof(s) - 1})

/* --- a vocabulary by hand --- */

static const char *const base_pieces[] = {"a",   "b",    "c",      "ab",      "abc",
                                          "<s>", "</s>", "\u0120", "\u0120a", "<u>"};
static const int32_t base_types[] = {1, 1, 1, 1, 1, 3, 3, 1, 1, 4};
static const char *const base_merges[] = {"a b", "ab c", "\u0120 a"};

struct tiny {
    struct text_span pieces[16], merges[8];
    int32_t types[16];
    struct tokenizer_spec spec;
};

static void tiny_init(struct tiny *t) {
    *t = (struct tiny){0};
    for (size_t i = 0; i < 10; i++) {
        t->pieces[i] = (struct text_span){base_pieces[i], strlen(base_pieces[i])};
        t->types[i] = base_types[i];
    }
    for (size_t i = 0; i < 3; i++) t->merges[i] = (struct text_span){base_merges[i], strlen(base_merges[i])};
    t->spec = (struct tokenizer_spec){.model = SPAN("gpt2"),
                                      .pre = SPAN("gpt-2"),
                                      .pieces = t->pieces,
                                      .types = t->types,
                                      .n_vocab = 10,
                                      .merges = t->merges,
                                      .n_merges = 3,
                                      .bos = 5,
                                      .eos = 6,
                                      .unk = -1};
}

static void refused(const struct tokenizer_spec *spec, int code, const char *a, const char *b) {
    struct tokenizer *t = (struct tokenizer *)1;
    struct error err = {0};
    int rc = tokenizer_create(spec, &t, &err);
    if (rc != code || err.code != code) fail_msg("code %d (%s), wanted %d: %s", rc, err.text, code, a);
    assert_null(t);
    if (!strstr(err.text, a) || !strstr(err.text, b))
        fail_msg("\"%s\" lacks \"%s\" or \"%s\"", err.text, a, b);
    assert_null(strchr(err.text, '\n'));
}

static void test_refused_pre(void **state) {
    struct tiny t;
    tiny_init(&t);
    t.spec.pre = SPAN("zzz");
    refused(&t.spec, QUIRE_EUNSUPPORTED, "tokenizer.ggml.pre is \"zzz\"", "llama-bpe");
    refused(&t.spec, QUIRE_EUNSUPPORTED, "--tokenizer-pre", "smollm");
    t.spec.pre = (struct text_span){0};
    refused(&t.spec, QUIRE_EUNSUPPORTED, "tokenizer.ggml.pre is missing", "--tokenizer-pre");
    t.spec.pre = SPAN("");
    refused(&t.spec, QUIRE_EUNSUPPORTED, "tokenizer.ggml.pre is \"\"", "--tokenizer-pre");
    t.spec.pre_override = "nope";
    refused(&t.spec, QUIRE_EINVAL, "--tokenizer-pre nope", "qwen2");
    char longest[5000];
    memset(longest, 'z', sizeof longest);
    t.spec.pre_override = NULL;
    t.spec.pre = (struct text_span){longest, sizeof longest};
    refused(&t.spec, QUIRE_EUNSUPPORTED, "zzzz", "--tokenizer-pre");
    t.spec.pre_override = "llama3";
    struct tokenizer *made;
    assert_int_equal(tokenizer_create(&t.spec, &made, NULL), 0);
    assert_string_equal(tokenizer_pre(made), "llama-bpe");
    assert_true(tokenizer_pre_overridden(made));
    tokenizer_free(made);
}

static void test_refused_files(void **state) {
    struct tiny t;
    tiny_init(&t);
    t.spec.model = SPAN("rwkv");
    refused(&t.spec, QUIRE_EUNSUPPORTED, "tokenizer.ggml.model is \"rwkv\"", "gpt2");
    t.spec.model = (struct text_span){0};
    refused(&t.spec, QUIRE_EFORMAT, "tokenizer.ggml.model is missing", "gpt2");
    tiny_init(&t);
    t.spec.n_vocab = 0;
    refused(&t.spec, QUIRE_EFORMAT, "tokenizer.ggml.tokens", "missing");
    tiny_init(&t);
    t.spec.n_merges = 0;
    refused(&t.spec, QUIRE_EFORMAT, "tokenizer.ggml.merges", "missing");
    tiny_init(&t);
    t.spec.n_vocab = SIZE_MAX;
    refused(&t.spec, QUIRE_EFORMAT, "tokenizer.ggml.tokens", "2147483647");
    tiny_init(&t);
    t.spec.bos = 10;
    refused(&t.spec, QUIRE_EFORMAT, "tokenizer.ggml.bos_token_id is 10", "0 to 9");
    t.spec.bos = -2;
    refused(&t.spec, QUIRE_EFORMAT, "tokenizer.ggml.bos_token_id is -2", "0 to 9");
    tiny_init(&t);
    t.spec.eos = INT64_MAX;
    refused(&t.spec, QUIRE_EFORMAT, "tokenizer.ggml.eos_token_id", "0 to 9");
    tiny_init(&t);
    t.spec.unk = 1000;
    refused(&t.spec, QUIRE_EFORMAT, "tokenizer.ggml.unknown_token_id", "0 to 9");
    tiny_init(&t);
    t.types[2] = 0;
    refused(&t.spec, QUIRE_EFORMAT, "tokenizer.ggml.token_type[2] is 0", "1 to 6");
    t.types[2] = 7;
    refused(&t.spec, QUIRE_EFORMAT, "tokenizer.ggml.token_type[2] is 7", "1 to 6");
    t.types[2] = TOKEN_BYTE;
    refused(&t.spec, QUIRE_EFORMAT, "tokenizer.ggml.token_type[2] is 6", "byte");
    tiny_init(&t);
    t.pieces[4] = t.pieces[1];
    refused(&t.spec, QUIRE_EFORMAT, "tokenizer.ggml.tokens[1] and [4]", "\"b\"");
    tiny_init(&t);
    t.pieces[5] = t.pieces[1]; /* a control token spelled like a piece */
    refused(&t.spec, QUIRE_EFORMAT, "tokenizer.ggml.tokens[1] and [5]", "\"b\"");
}

static void test_refused_merges(void **state) {
    static const struct {
        struct text_span merge;
        const char *why;
    } bad[] = {{{"a", 1}, "space between"},
               {{"a b c", 5}, "space between"},
               {{" a", 2}, "space between"},
               {{"a ", 2}, "space between"},
               {{"", 0}, "space between"},
               {{" ", 1}, "space between"},
               {{NULL, 0}, "space between"},
               {{"a  b", 4}, "space between"},
               {{"a x", 3}, "not in tokenizer.ggml.tokens"},
               {{"x a", 3}, "not in"},
               {{"b c", 3}, "not in"},
               {{"a b", 3}, "twice"},
               {{"< s>", 4}, "not in"},
               {{"a\0 b", 4}, "not in"}};
    struct tiny t;
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        tiny_init(&t);
        t.merges[2] = bad[i].merge;
        refused(&t.spec, QUIRE_EFORMAT, "tokenizer.ggml.merges[2]", bad[i].why);
    }
    tiny_init(&t);
    t.types[4] = TOKEN_CONTROL; /* text must not merge into a control token */
    refused(&t.spec, QUIRE_EFORMAT, "tokenizer.ggml.merges[1]", "token_type says is not text");
    tiny_init(&t);
    t.types[0] = TOKEN_UNUSED;
    refused(&t.spec, QUIRE_EFORMAT, "tokenizer.ggml.merges[0]", "token_type says is not text");
}

/* --- encoding --- */

static struct token_buf encode(const struct tokenizer *t, const char *text, unsigned flags,
                               const struct content_span *content, size_t n_content) {
    struct token_buf ids = {0};
    struct error err = {0};
    if (tokenizer_encode(t, text, strlen(text), flags, content, n_content, 0, &ids, &err))
        fail_msg("%s", err.text);
    return ids;
}

static void expect_ids(const struct tokenizer *t, const char *text, unsigned flags, size_t n,
                       const uint32_t *want) {
    struct token_buf ids = encode(t, text, flags, NULL, 0);
    if (ids.n != n || (n && memcmp(ids.ids, want, n * sizeof *want)))
        fail_msg("\"%s\" flags %u: other ids", text, flags);
    token_buf_free(&ids);
}

#define IDS(...)                                                                                             \
    sizeof((uint32_t[]){__VA_ARGS__}) / 4, (uint32_t[]) {                                                    \
        __VA_ARGS__                                                                                          \
    }

static void test_special(void **state) {
    struct tiny v;
    struct tokenizer *t;
    tiny_init(&v);
    v.pieces[10] = SPAN("<");
    v.pieces[11] = SPAN("s");
    v.pieces[12] = SPAN(">");
    v.types[10] = v.types[11] = v.types[12] = TOKEN_NORMAL;
    v.spec.n_vocab = 13;
    assert_int_equal(tokenizer_create(&v.spec, &t, NULL), 0);
    expect_ids(t, "a<s>b", 0, IDS(0, 10, 11, 12, 1));
    expect_ids(t, "a<s>b", TOKENIZE_SPECIAL, IDS(0, 5, 1));
    expect_ids(t, "a<u>b", TOKENIZE_SPECIAL, IDS(0, 9, 1));
    expect_ids(t, "ab<s", TOKENIZE_SPECIAL, IDS(3, 10, 11));
    expect_ids(t, "<s>", TOKENIZE_SPECIAL, IDS(5));
    const struct content_span all = {0, 6};
    struct token_buf ids = encode(t, "<s><u>", TOKENIZE_SPECIAL, &all, 1);
    const uint32_t want[] = {10, 11, 12, 9};
    assert_int_equal(ids.n, 4);
    assert_memory_equal(ids.ids, want, sizeof want);
    token_buf_free(&ids);
    tokenizer_free(t);
}

static void test_bos_eos(void **state) {
    struct tiny v;
    struct tokenizer *t;
    tiny_init(&v);
    v.spec.add_bos = v.spec.add_eos = true;
    assert_int_equal(tokenizer_create(&v.spec, &t, NULL), 0);
    expect_ids(t, "ab", 0, IDS(3));
    expect_ids(t, "ab", TOKENIZE_ADD, IDS(5, 3, 6));
    expect_ids(t, "", TOKENIZE_ADD, IDS(5, 6));
    expect_ids(t, "", 0, 0, NULL);
    expect_ids(t, "<s>ab", TOKENIZE_ADD | TOKENIZE_SPECIAL, IDS(5, 3, 6));
    expect_ids(t, "<s><s>", TOKENIZE_ADD | TOKENIZE_SPECIAL, IDS(5, 5, 6));
    expect_ids(t, "a<s>", TOKENIZE_ADD | TOKENIZE_SPECIAL, IDS(5, 0, 5, 6));
    expect_ids(t, "</s>", TOKENIZE_ADD | TOKENIZE_SPECIAL, IDS(5, 6, 6));
    expect_ids(t, "<s>", TOKENIZE_ADD, IDS(5, 6)); /* not recognised; no piece has these bytes */
    const struct content_span all = {0, 3};
    struct token_buf ids =
        encode(t, "<s>a", TOKENIZE_ADD | TOKENIZE_SPECIAL, &all, 1); /* content cannot be the BOS */
    const uint32_t want[] = {5, 0, 6};
    assert_int_equal(ids.n, 3);
    assert_memory_equal(ids.ids, want, sizeof want);
    token_buf_free(&ids);
    assert_true(tokenizer_adds_bos(t));
    tokenizer_free(t);
    v.spec.bos = v.spec.eos = -1; /* nothing to add */
    assert_int_equal(tokenizer_create(&v.spec, &t, NULL), 0);
    expect_ids(t, "ab", TOKENIZE_ADD, IDS(3));
    assert_false(tokenizer_adds_bos(t));
    tokenizer_free(t);
    for (int llama = 0; llama < 2; llama++) { /* the file does not say: the family's habit */
        tiny_init(&v);
        v.spec.pre_override = llama ? "llama-bpe" : "gpt-2";
        v.spec.add_bos_unset = true;
        v.spec.add_bos = !llama;
        assert_int_equal(tokenizer_create(&v.spec, &t, NULL), 0);
        assert_int_equal(tokenizer_adds_bos(t), llama);
        tokenizer_free(t);
    }
}

/* Tokens that a converter called user-defined though they end turns. */
static void test_mistyped(void **state) {
    struct tok_vocab v = tok_vocab_small("plain");
    struct tokenizer_spec spec = tok_spec(&v, "gpt-2");
    struct tokenizer *t;
    size_t tool = tok_vocab_find(&v, "<tool_call>"), tag = tok_vocab_find(&v, "<|python_tag|>");
    spec.eos = (int64_t)tool;
    assert_int_equal(tokenizer_create(&spec, &t, NULL), 0);
    assert_true(tokenizer_is_control(t, (uint32_t)tool));
    assert_false(tokenizer_is_control(t, (uint32_t)tag)); /* it is visible in answers */
    const char *text = "<tool_call><|python_tag|></tool_call>";
    const struct content_span all = {0, strlen(text)};
    struct token_buf ids = encode(t, text, TOKENIZE_SPECIAL, &all, 1);
    size_t n_special = 0;
    for (size_t i = 0; i < ids.n; i++) {
        assert_int_not_equal(ids.ids[i], tool);
        assert_int_not_equal(ids.ids[i], tag);
        n_special += ids.ids[i] == tok_vocab_find(&v, "</tool_call>");
    }
    assert_int_equal(n_special, 1);
    token_buf_free(&ids);
    tokenizer_free(t);
    tok_vocab_free(&v);
}

static void test_lookups(void **state) {
    struct tok_vocab v = tok_vocab_small("plain");
    struct tokenizer *t = tok_create(&v, "smollm");
    const uint8_t *table;
    const uint32_t *offsets;
    size_t n;
    assert_int_equal(tokenizer_n_vocab(t), v.n_vocab);
    assert_int_equal(tokenizer_bos(t), -1);
    tokenizer_byte_table(t, &table, &offsets);
    assert_int_equal(offsets[0], 0);
    for (uint32_t id = 0; id < v.n_vocab; id++) {
        const uint8_t *bytes = tokenizer_bytes(t, id, false, &n);
        assert_int_equal(n, offsets[id + 1] - offsets[id]);
        assert_ptr_equal(bytes, table + offsets[id]);
        bool hidden =
            v.types[id] == TOKEN_CONTROL || v.types[id] == TOKEN_UNKNOWN || v.types[id] == TOKEN_UNUSED;
        assert_int_equal(n == 0, hidden);
        assert_int_equal(tokenizer_is_control(t, id), hidden && v.types[id] != TOKEN_UNUSED);
        bytes = tokenizer_bytes(t, id, true, &n);
        int64_t found = tokenizer_find(t, (const char *)bytes, n);
        assert_in_range(found, 0, v.n_vocab - 1);
        assert_true(found == id || v.types[found] == TOKEN_USER_DEFINED); /* "\n\n\n" is there twice */
        if (v.types[id] == TOKEN_NORMAL) continue;
        assert_int_equal(n, v.pieces[id].len);
        assert_memory_equal(bytes, v.pieces[id].data, n);
    }
    assert_int_equal(tokenizer_find(t, " the", 4), (int64_t)tok_vocab_find(&v, "\u0120the"));
    assert_int_equal(tokenizer_find(t, "", 0), -1);
    assert_int_equal(tokenizer_find(t, "no such piece", 13), -1);
    tokenizer_bytes(t, (uint32_t)v.n_vocab, true, &n);
    assert_int_equal(n, 0);
    tokenizer_bytes(t, UINT32_MAX, false, &n);
    assert_int_equal(n, 0);
    assert_false(tokenizer_is_control(t, UINT32_MAX));
    assert_false(tokenizer_pre_overridden(t));
    tokenizer_free(t);
    tokenizer_free(NULL);
    tok_vocab_free(&v);
}

/* Merges that make a user-defined token: then it is spelled in the byte-level alphabet. */
static void test_merged_user_token(void **state) {
    struct tiny v;
    struct tokenizer *t;
    size_t n;
    tiny_init(&v);
    v.types[8] = TOKEN_USER_DEFINED; /* Gthe-like: a space, then a */
    assert_int_equal(tokenizer_create(&v.spec, &t, NULL), 0);
    assert_memory_equal(tokenizer_bytes(t, 8, false, &n), " a", 2);
    assert_int_equal(n, 2);
    expect_ids(t, " a", 0, IDS(8));
    tokenizer_free(t);
}

static void test_limits(void **state) {
    struct tok_vocab v = tok_vocab_small("plain");
    struct tokenizer *t = tok_create(&v, "gpt-2");
    struct token_buf ids = {0};
    struct error err = {0};
    const char *text = "The ferry leaves the harbour at seven <s>";
    size_t len = strlen(text);
    assert_int_equal(tokenizer_encode(t, text, len, TOKENIZE_SPECIAL, NULL, 0, 0, &ids, &err), 0);
    size_t need = ids.n;
    for (size_t max = 1; max < need + 2; max++) {
        size_t before = ids.n;
        int rc = tokenizer_encode(t, text, len, TOKENIZE_SPECIAL, NULL, 0, max, &ids, &err);
        assert_int_equal(rc, max < need ? QUIRE_ELIMIT : 0);
        assert_int_equal(ids.n, rc ? before : before + need); /* appended, or as it was */
        if (rc) assert_non_null(strstr(err.text, "more than"));
    }
    assert_int_equal(tokenizer_encode(t, text, len, 0, NULL, 0, SIZE_MAX, &ids, &err), 0);
    /* a limit stops the work: one word that would make millions of ids, and as many words */
    size_t big = 20000000;
    char *letters = malloc(big);
    assert_non_null(letters);
    memset(letters, 'a', big);
    for (int words = 0; words < 2; words++) {
        for (size_t i = 0; words && i < big; i += 2) letters[i] = ' ';
        alloc_fail_at(SIZE_MAX);
        assert_int_equal(tokenizer_encode(t, letters, big, 0, NULL, 0, 1000, &ids, &err), QUIRE_ELIMIT);
        alloc_fail_stop();
        assert_in_range(alloc_fail_bytes(), 0, 100000);
    }
    free(letters);
    token_buf_free(&ids);
    tokenizer_free(t);
    tok_vocab_free(&v);
}

static void test_bad_content(void **state) {
    static const struct content_span bad[][2] = {{{4, 2}, {3, 1}},        {{0, 3}, {2, 1}},
                                                 {{0, 0}, {9, 0}},        {{0, 9}, {9, 0}},
                                                 {{1, SIZE_MAX}, {2, 1}}, {{SIZE_MAX, 1}, {0, 0}}};
    static const struct content_span good[2] = {{0, 4}, {4, 4}};
    struct tok_vocab v = tok_vocab_small("plain");
    struct tokenizer *t = tok_create(&v, "gpt-2");
    struct token_buf ids = {0};
    struct error err = {0};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        assert_int_equal(tokenizer_encode(t, "abcdefgh", 8, 1, bad[i], 2, 0, &ids, &err), QUIRE_EINVAL);
        assert_non_null(strstr(err.text, "content stretch"));
        assert_int_equal(ids.n, 0);
    }
    assert_int_equal(tokenizer_encode(t, "abcdefgh", 8, 1, good, 2, 0, &ids, &err), 0);
    token_buf_free(&ids);
    tokenizer_free(t);
    tok_vocab_free(&v);
}

/* --- any bytes --- */

static void check_round_trip(const struct tokenizer *t, const char *text, size_t len) {
    struct token_buf ids = {0};
    struct buf back = BUF_INIT;
    struct error err = {0};
    for (unsigned flags = 0; flags < 4; flags++) {
        ids.n = 0;
        buf_clear(&back);
        if (tokenizer_encode(t, text, len, flags, NULL, 0, 0, &ids, &err)) fail_msg("%s", err.text);
        for (size_t i = 0, n; i < ids.n; i++) {
            const uint8_t *bytes = tokenizer_bytes(t, ids.ids[i], true, &n);
            buf_append(&back, bytes, n);
        }
        assert_int_equal(back.len, len);
        if (len) assert_memory_equal(back.data, text, len);
    }
    token_buf_free(&ids);
    buf_free(&back);
}

static void test_any_bytes(void **state) {
    static const char *const pres[] = {"smollm", "llama-bpe", "gpt-2", "default"};
    struct tok_vocab v = tok_vocab_small("plain");
    struct buf text = BUF_INIT;
    for (size_t p = 0; p < 4; p++) {
        struct tokenizer *t = tok_create(&v, pres[p]);
        struct tok_gen gen = {.what = "bytes", .state = p};
        for (int i = 0; i < 4000; i++) {
            tok_gen_next(&gen, &text);
            check_round_trip(t, text.data, text.len);
        }
        uint64_t random = p;
        for (int i = 0; i < 40; i++) { /* long ones, and every byte */
            buf_clear(&text);
            for (size_t n = 0; n < 3000; n++) buf_putc(&text, (char)tok_below(&random, 256));
            check_round_trip(t, text.data, text.len);
        }
        for (int b = 0; b < 256; b++) {
            char one = (char)b;
            check_round_trip(t, &one, 1);
        }
        tokenizer_free(t);
    }
    buf_free(&text);
    tok_vocab_free(&v);
}

/* qwen2 normalizes: bytes come back in NFC, stray bytes as they are. */
static void test_qwen2_bytes(void **state) {
    struct tok_vocab v = tok_vocab_small("plain");
    struct tokenizer *t = tok_create(&v, "qwen2");
    struct token_buf ids = encode(t, "e\u0301 \xff\u0301 e\xcc", 0, NULL, 0);
    struct buf back = BUF_INIT;
    for (size_t i = 0, n; i < ids.n; i++) {
        const uint8_t *bytes = tokenizer_bytes(t, ids.ids[i], false, &n);
        buf_append(&back, bytes, n);
    }
    assert_string_equal(back.data, "\u00e9 \xff\u0301 e\xcc");
    buf_free(&back);
    token_buf_free(&ids);
    tokenizer_free(t);
    tok_vocab_free(&v);
}

/* One word of megabytes, merged by buckets and by a heap. Anything quadratic would not end. */
static void test_megabyte_words(void **state) {
    static const char *const variants[] = {"plain", "shuffled", "expanded"};
    size_t len = 1000000;
    char *text = malloc(len);
    assert_non_null(text);
    for (size_t k = 0; k < 3; k++) {
        struct tok_vocab v = tok_vocab_small(variants[k]);
        struct tokenizer *t = tok_create(&v, "gpt-2");
        uint64_t random = 3;
        for (int kind = 0; kind < 3; kind++) {
            struct token_buf ids = {0};
            for (size_t i = 0; i < len; i++)
                text[i] = kind == 0 ? 'a' : kind == 1 ? ' ' : (char)('a' + tok_below(&random, 26));
            assert_int_equal(tokenizer_encode(t, text, len, 0, NULL, 0, 0, &ids, NULL), 0);
            size_t total = 0;
            for (size_t i = 0, n; i < ids.n; i++) {
                const uint8_t *bytes = tokenizer_bytes(t, ids.ids[i], false, &n);
                assert_memory_equal(bytes, text + total, n);
                total += n;
            }
            assert_int_equal(total, len);
            token_buf_free(&ids);
        }
        tokenizer_free(t);
        tok_vocab_free(&v);
    }
    free(text);
}

/* --- memory that runs out --- */

static void create_or_not(void *ctx) {
    struct tokenizer_spec spec = tok_spec(ctx, "llama-bpe");
    struct tokenizer *t;
    struct error err = {0};
    int rc = tokenizer_create(&spec, &t, &err);
    if (rc) {
        assert_int_equal(rc, QUIRE_ENOMEM);
        assert_non_null(strstr(err.text, "memory"));
        assert_null(t);
    }
    tokenizer_free(t);
}

static void encode_or_not(void *ctx) {
    static char text[20000];
    struct token_buf ids = {0};
    struct error err = {0};
    memset(text, 'z', sizeof text);
    memcpy(text, "e\u0301 <s> and", 12);
    memset(text + 200, ' ', 10);
    for (size_t i = 300; i < 6000; i += 100) text[i] = '.';
    int rc = tokenizer_encode(ctx, text, sizeof text, TOKENIZE_SPECIAL, NULL, 0, 0, &ids, &err);
    if (rc) {
        assert_int_equal(rc, QUIRE_ENOMEM);
        assert_non_null(strstr(err.text, "memory"));
        assert_int_equal(ids.n, 0);
    }
    token_buf_free(&ids);
}

static void test_no_memory(void **state) {
    struct tok_vocab v = tok_vocab_small("plain");
    assert_true(alloc_fail_each(create_or_not, &v) >= 8);
    struct tokenizer *t = tok_create(&v, "qwen2");
    assert_true(alloc_fail_each(encode_or_not, t) >= 4);
    tokenizer_free(t);
    tok_vocab_free(&v);
}

/* --- threads --- */

static void *encode_many(void *ctx) {
    struct tok_golden g;
    uint64_t *digest = malloc(sizeof *digest);
    tok_golden_open(&g, "nfc.golden");
    struct tok_gen gen = {
        .what = "random", .state = 12, .fragments = g.fragments, .n_fragments = g.n_fragments};
    struct token_buf ids = {0};
    struct buf text = BUF_INIT;
    *digest = TOK_FNV_INIT;
    for (int i = 0; i < 1000; i++) {
        tok_gen_next(&gen, &text);
        ids.n = 0;
        if (tokenizer_encode(ctx, text.data, text.len, 3, NULL, 0, 0, &ids, NULL)) break;
        *digest = tok_fnv_ids(*digest, ids.ids, ids.n);
    }
    token_buf_free(&ids);
    buf_free(&text);
    tok_golden_close(&g);
    return digest;
}

static void test_threads(void **state) {
    struct tok_vocab v = tok_vocab_small("plain");
    struct tokenizer *t = tok_create(&v, "qwen2");
    pthread_t threads[4];
    uint64_t *alone = encode_many(t);
    for (int i = 0; i < 4; i++) assert_int_equal(pthread_create(&threads[i], NULL, encode_many, t), 0);
    for (int i = 0; i < 4; i++) {
        void *digest;
        pthread_join(threads[i], &digest);
        assert_true(*(uint64_t *)digest == *alone);
        free(digest);
    }
    free(alone);
    tokenizer_free(t);
    tok_vocab_free(&v);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_refused_pre),    cmocka_unit_test(test_refused_files),
        cmocka_unit_test(test_refused_merges), cmocka_unit_test(test_special),
        cmocka_unit_test(test_bos_eos),        cmocka_unit_test(test_mistyped),
        cmocka_unit_test(test_lookups),        cmocka_unit_test(test_merged_user_token),
        cmocka_unit_test(test_limits),         cmocka_unit_test(test_bad_content),
        cmocka_unit_test(test_any_bytes),      cmocka_unit_test(test_qwen2_bytes),
        cmocka_unit_test(test_megabyte_words), cmocka_unit_test(test_no_memory),
        cmocka_unit_test(test_threads)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
