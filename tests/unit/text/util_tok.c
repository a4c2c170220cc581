#include "util_tok.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

/* --- files --- */

static void read_file(const char *path, struct buf *out) {
    FILE *f = fopen(path, "rb");
    if (!f) fail_msg("cannot open %s", path);
    char part[65536];
    for (size_t n; (n = fread(part, 1, sizeof part, f)) > 0;) buf_append(out, part, n);
    fclose(f);
    assert_true(buf_ok(out));
}

struct reader {
    const char *data;
    size_t len, at;
};

static const char *take(struct reader *r, size_t n) {
    if (n > r->len - r->at) fail_msg("a test file is cut short at byte %zu", r->at);
    r->at += n;
    return r->data + r->at - n;
}

static uint64_t take_uint(struct reader *r, size_t n_bytes) {
    uint64_t v = 0;
    memcpy(&v, take(r, n_bytes), n_bytes);
    return v;
}

static struct text_span take_text(struct reader *r, size_t length_bytes) {
    size_t len = take_uint(r, length_bytes);
    return (struct text_span){take(r, len), len};
}

/* --- vocabularies --- */

static void *must(void *p) {
    assert_non_null(p);
    return p;
}

static void vocab_alloc(struct tok_vocab *v, size_t n_vocab, size_t n_merges) {
    *v = (struct tok_vocab){.n_vocab = n_vocab, .n_merges = n_merges};
    v->pieces = must(calloc(n_vocab + 1, sizeof *v->pieces));
    v->types = must(calloc(n_vocab + 1, sizeof *v->types));
    v->merges = must(calloc(n_merges + 1, sizeof *v->merges));
}

void tok_vocab_free(struct tok_vocab *v) {
    free(v->pieces);
    free(v->types);
    free(v->merges);
    buf_free(&v->text);
}

size_t tok_vocab_find(const struct tok_vocab *v, const char *piece) {
    for (size_t i = 0; i < v->n_vocab; i++)
        if (v->pieces[i].len == strlen(piece) && !memcmp(v->pieces[i].data, piece, strlen(piece))) return i;
    return SIZE_MAX;
}

static size_t find_normal(const struct tok_vocab *v, const size_t *sorted, size_t n, const char *p,
                          size_t len) {
    size_t lo = 0, hi = n;
    while (lo < hi) {
        size_t mid = lo + (hi - lo) / 2;
        struct text_span m = v->pieces[sorted[mid]];
        int order = memcmp(m.data, p, m.len < len ? m.len : len);
        if (!order) order = (m.len > len) - (m.len < len);
        if (!order) return sorted[mid];
        if (order < 0)
            lo = mid + 1;
        else
            hi = mid;
    }
    return SIZE_MAX;
}

static const struct tok_vocab *sorting;

static int by_piece(const void *a, const void *b) {
    struct text_span x = sorting->pieces[*(const size_t *)a], y = sorting->pieces[*(const size_t *)b];
    int order = memcmp(x.data, y.data, x.len < y.len ? x.len : y.len);
    return order ? order : (x.len > y.len) - (x.len < y.len);
}

/* All ways to make each piece, in the order of the merges given. */
static void expand_merges(struct tok_vocab *v, struct buf *text, size_t **offsets, size_t *n_out) {
    size_t *sorted = must(calloc(v->n_vocab, sizeof *sorted)), n = 0, cap = 1024;
    for (size_t i = 0; i < v->n_vocab; i++)
        if (v->types[i] == TOKEN_NORMAL) sorted[n++] = i;
    sorting = v;
    qsort(sorted, n, sizeof *sorted, by_piece);
    *offsets = must(malloc(cap * sizeof **offsets));
    *n_out = 0;
    for (size_t m = 0; m < v->n_merges; m++) {
        char piece[512];
        struct text_span line = v->merges[m];
        size_t left = (size_t)((const char *)memchr(line.data, ' ', line.len) - line.data),
               len = line.len - 1;
        memcpy(piece, line.data, left);
        memcpy(piece + left, line.data + left + 1, len - left);
        for (size_t i = 1; i < len; i++) {
            if (((unsigned char)piece[i] & 0xc0) == 0x80) continue;
            if (find_normal(v, sorted, n, piece, i) == SIZE_MAX) continue;
            if (find_normal(v, sorted, n, piece + i, len - i) == SIZE_MAX) continue;
            if (*n_out + 2 > cap) *offsets = must(realloc(*offsets, (cap *= 2) * sizeof **offsets));
            (*offsets)[(*n_out)++] = text->len;
            buf_append(text, piece, i);
            buf_putc(text, ' ');
            buf_append(text, piece + i, len - i);
        }
    }
    (*offsets)[*n_out] = text->len;
    free(sorted);
}

static void apply_variant(struct tok_vocab *v, const char *variant) {
    if (!strcmp(variant, "holes")) {
        static const char *const holes[] = {"\u0104", "\u0106", "\u0113", "\u00c0", "\u00f1", "\u00ff"};
        static const char *const names[] = {"[HOLE 4]",  "[HOLE 6]",  "[HOLE 13]",
                                            "[HOLE c0]", "[HOLE f1]", "[HOLE ff]"};
        for (size_t k = 0; k < 6; k++) {
            size_t i = tok_vocab_find(v, holes[k]);
            assert_true(i < v->n_vocab);
            v->pieces[i] = (struct text_span){names[k], strlen(names[k])};
            v->types[i] = TOKEN_UNUSED;
        }
    } else if (!strcmp(variant, "shuffled")) {
        uint64_t state = 4711;
        for (size_t i = v->n_merges - 1; i > 0; i--) {
            size_t k = tok_below(&state, i + 1);
            struct text_span m = v->merges[i];
            v->merges[i] = v->merges[k];
            v->merges[k] = m;
        }
    } else if (!strcmp(variant, "expanded")) {
        struct buf text = BUF_INIT;
        size_t *offsets, n;
        expand_merges(v, &text, &offsets, &n);
        assert_true(n > v->n_merges); /* else the variant would test nothing new */
        free(v->merges);
        v->merges = must(calloc(n, sizeof *v->merges));
        v->n_merges = n;
        size_t base = v->text.len, n_pieces = v->n_vocab;
        const char *old = v->text.data;
        buf_append(&v->text, text.data, text.len);
        for (size_t i = 0; i < n_pieces; i++) v->pieces[i].data = v->text.data + (v->pieces[i].data - old);
        for (size_t i = 0; i < n; i++)
            v->merges[i] = (struct text_span){v->text.data + base + offsets[i], offsets[i + 1] - offsets[i]};
        free(offsets);
        buf_free(&text);
    } else {
        assert_string_equal(variant, "plain");
    }
}

struct tok_vocab tok_vocab_small(const char *variant) {
    struct tok_vocab v;
    struct buf file = BUF_INIT;
    read_file(TEST_DATA "/tokenizer/vocab.bin", &file);
    struct reader r = {file.data, file.len, 0};
    assert_memory_equal(take(&r, 4), "QTOK", 4);
    size_t n_vocab = take_uint(&r, 4), n_merges = take_uint(&r, 4);
    vocab_alloc(&v, n_vocab, n_merges);
    assert_true(buf_reserve(&v.text, file.len + n_merges * 600)); /* so that it does not move */
    for (size_t i = 0; i < n_vocab; i++) {
        v.types[i] = (int32_t)take_uint(&r, 1);
        struct text_span piece = take_text(&r, 1);
        v.pieces[i] = (struct text_span){v.text.data + v.text.len, piece.len};
        buf_append(&v.text, piece.data, piece.len);
    }
    for (size_t i = 0; i < n_merges; i++) {
        size_t left = take_uint(&r, 2), right = take_uint(&r, 2), start = v.text.len;
        buf_append(&v.text, v.pieces[left].data, v.pieces[left].len);
        buf_putc(&v.text, ' ');
        buf_append(&v.text, v.pieces[right].data, v.pieces[right].len);
        v.merges[i] = (struct text_span){v.text.data + start, v.text.len - start};
    }
    assert_true(buf_ok(&v.text));
    buf_free(&file);
    apply_variant(&v, variant);
    return v;
}

/* GGUF value types (the specification: ggml/docs/gguf.md): sizes of scalars, 0 for strings and arrays. */
static size_t gguf_size(uint32_t type) {
    static const uint8_t size[13] = {1, 1, 2, 2, 4, 4, 4, 1, 0, 0, 8, 8, 8};
    if (type > 12) fail_msg("a GGUF value has type %u", type);
    return size[type];
}

static void gguf_skip(struct reader *r, uint32_t type, size_t n) {
    for (size_t i = 0; i < n && type == 8; i++) take_text(r, 8);
    if (type != 8) take(r, gguf_size(type) * n);
}

struct tok_vocab tok_vocab_gguf(const char *path) {
    struct tok_vocab v = {0};
    read_file(path, &v.text);
    struct reader r = {v.text.data, v.text.len, 0};
    assert_memory_equal(take(&r, 4), "GGUF", 4);
    take(&r, 4 + 8);
    for (size_t n_keys = take_uint(&r, 8), i = 0; i < n_keys; i++) {
        struct text_span key = take_text(&r, 8);
        uint32_t type = (uint32_t)take_uint(&r, 4);
        size_t n = 1;
        if (type == 9) {
            type = (uint32_t)take_uint(&r, 4);
            n = take_uint(&r, 8);
        }
        bool tokens = key.len == 21 && !memcmp(key.data, "tokenizer.ggml.tokens", 21);
        bool merges = key.len == 21 && !memcmp(key.data, "tokenizer.ggml.merges", 21);
        if (tokens || merges) {
            struct text_span *spans = must(calloc(n + 1, sizeof *spans));
            for (size_t k = 0; k < n; k++) spans[k] = take_text(&r, 8);
            *(tokens ? &v.pieces : &v.merges) = spans;
            *(tokens ? &v.n_vocab : &v.n_merges) = n;
        } else if (key.len == 25 && !memcmp(key.data, "tokenizer.ggml.token_type", 25)) {
            v.types = must(malloc(n * 4 + 1));
            memcpy(v.types, take(&r, n * 4), n * 4);
        } else {
            gguf_skip(&r, type, n);
        }
    }
    return v;
}

struct tokenizer_spec tok_spec(const struct tok_vocab *v, const char *pre) {
    return (struct tokenizer_spec){.model = {"gpt2", 4},
                                   .pre = {pre, pre ? strlen(pre) : 0},
                                   .pieces = v->pieces,
                                   .types = v->types,
                                   .n_vocab = v->n_vocab,
                                   .merges = v->merges,
                                   .n_merges = v->n_merges,
                                   .bos = -1,
                                   .eos = -1,
                                   .unk = -1,
                                   .cls = -1,
                                   .sep = -1};
}

struct tokenizer *tok_create(const struct tok_vocab *v, const char *pre) {
    struct tokenizer_spec spec = tok_spec(v, pre);
    struct tokenizer *t;
    struct error err = {0};
    if (tokenizer_create(&spec, &t, &err)) fail_msg("%s", err.text);
    return t;
}

const char *tok_default_model(void) {
    static char path[4096];
    const char *model = getenv("QUIRE_TEST_MODEL"), *file = "SmolLM2-135M-Instruct.Q4_1.gguf";
    const char *cache = getenv("QUIRE_CACHE"), *xdg = getenv("XDG_CACHE_HOME"), *home = getenv("HOME");
    if (model && *model)
        snprintf(path, sizeof path, "%s", model);
    else if (cache && *cache)
        snprintf(path, sizeof path, "%s/%s", cache, file);
    else if (xdg && *xdg)
        snprintf(path, sizeof path, "%s/quire/%s", xdg, file);
    else
        snprintf(path, sizeof path, "%s/.cache/quire/%s", home ? home : "", file);
    return access(path, R_OK) ? NULL : path;
}

/* --- generators --- */

uint64_t tok_random(uint64_t *state) {
    uint64_t z = *state += 0x9e3779b97f4a7c15u;
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
    z = (z ^ z >> 27) * 0x94d049bb133111ebu;
    return z ^ z >> 31;
}

uint64_t tok_below(uint64_t *state, uint64_t n) {
    return tok_random(state) % n;
}

/* As UTF-8, also surrogates. */
static size_t encode_cp(uint32_t cp, char *out) {
    unsigned char *u = (unsigned char *)out;
    if (cp < 0x80) return u[0] = (unsigned char)cp, 1;
    size_t len = cp < 0x800 ? 2 : cp < 0x10000 ? 3 : 4;
    for (size_t i = len - 1; i > 0; i--, cp >>= 6) u[i] = (unsigned char)(0x80 | (cp & 63));
    u[0] = (unsigned char)((len == 2 ? 0xc0 : len == 3 ? 0xe0 : 0xf0) | cp);
    return len;
}

static void put_cp(struct buf *out, uint32_t cp) {
    char utf8[4];
    buf_append(out, utf8, encode_cp(cp, utf8));
}

static void random_text(struct tok_gen *g, struct buf *out) {
    for (uint64_t n = 1 + tok_below(&g->state, 24); n > 0; n--) {
        uint64_t kind = tok_below(&g->state, 16);
        if (kind < 12 || kind == 14) {
            struct text_span f = g->fragments[tok_below(&g->state, g->n_fragments)];
            for (uint64_t k = kind == 14 ? 1 + tok_below(&g->state, 90) : 1; k > 0; k--)
                buf_append(out, f.data, f.len);
        } else if (kind == 12) {
            uint32_t c = (uint32_t)tok_below(&g->state, 0x110000);
            put_cp(out, c >= 0xd800 && c < 0xe000 ? ' ' : c);
        } else if (kind == 13) {
            put_cp(out, 0x20 + (uint32_t)tok_below(&g->state, 0x2fe0));
        } else {
            for (uint64_t k = 1 + tok_below(&g->state, 100); k > 0; k--)
                put_cp(out, 'a' + (uint32_t)tok_below(&g->state, 26));
        }
    }
}

static void random_marks(struct tok_gen *g, struct buf *out) {
    for (uint64_t n = 1 + tok_below(&g->state, 12); n > 0; n--) {
        put_cp(out, 0x41 + (uint32_t)tok_below(&g->state, 0x3a));
        uint64_t marks = tok_below(&g->state, 8) == 0 ? tok_below(&g->state, 60) : tok_below(&g->state, 5);
        while (marks-- > 0) put_cp(out, 0x300 + (uint32_t)tok_below(&g->state, 0x70));
    }
}

static void random_bytes(struct tok_gen *g, struct buf *out) {
    static const uint32_t below[3] = {0x800, 0x10000, 0x110000};
    for (uint64_t n = 1 + tok_below(&g->state, 20); n > 0; n--) {
        uint64_t kind = tok_below(&g->state, 6);
        if (kind == 0)
            buf_putc(out, (char)tok_below(&g->state, 256));
        else if (kind == 1)
            buf_putc(out, (char)(0x80 + tok_below(&g->state, 64)));
        else if (kind == 2)
            buf_putc(out, (char)(0xc0 + tok_below(&g->state, 64)));
        else if (kind == 3)
            buf_putc(out, (char)(0x20 + tok_below(&g->state, 95)));
        else {
            char utf8[4];
            size_t len = encode_cp((uint32_t)tok_below(&g->state, below[tok_below(&g->state, 3)]), utf8);
            buf_append(out, utf8, kind == 4 ? len : tok_below(&g->state, len + 1));
        }
    }
}

static void letters(struct tok_gen *g, struct buf *out, const char *alphabet, size_t n_letters,
                    size_t letter_bytes, size_t n) {
    for (size_t i = 0; i < n; i++)
        buf_append(out, alphabet + tok_below(&g->state, n_letters) * letter_bytes, letter_bytes);
}

static void repeat(struct buf *out, const char *s, size_t n) {
    for (size_t i = 0; i < n; i++) buf_puts(out, s);
}

static bool long_word(struct tok_gen *g, struct buf *out) {
    switch (g->step++) {
    case 0: repeat(out, "a", 5000); return true;
    case 1:
        repeat(out, "ab", 3000);
        buf_puts(out, "a");
        return true;
    case 2: letters(g, out, "abc", 3, 1, 20000); return true;
    case 3: letters(g, out, "etaoin", 6, 1, 700); return true;
    case 4: letters(g, out, "etaoinshrdlu", 12, 1, 9000); return true;
    case 5: letters(g, out, "我们今天去市场买水果中文没有空格", 16, 3, 4000); return true;
    case 6:
        repeat(out, "=", 4001);
        repeat(out, "-", 300);
        return true;
    case 7: repeat(out, " ", 6007); return true;
    default: return false;
    }
}

/* The next of the code points that are tried, from c on. */
static uint32_t tried_cp(uint32_t c) {
    for (; c < 0x110000; c++) {
        if (c >= 0xd800 && c < 0xe000) c = 0xe000;
        if (c < 0x40000 || (c >= 0xe0000 && c < 0xf0000) || c % 16 == 0) return c;
    }
    return c;
}

static bool code_points(struct tok_gen *g, struct buf *out) {
    if (g->step == 0) g->first_cp = tried_cp(g->cp);
    uint32_t c = g->first_cp;
    if (c >= 0x110000) return false;
    for (int i = 0; i < 256 && c < 0x110000; i++, c = tried_cp(c + 1)) {
        if (g->step == 0)
            buf_putc(out, 'a'), put_cp(out, c), buf_putc(out, 'b');
        else if (g->step == 1)
            buf_putc(out, ' '), put_cp(out, c);
        else
            buf_putc(out, '\n'), put_cp(out, c), buf_putc(out, '\''), put_cp(out, c),
                buf_puts(out, "l\u0301");
    }
    g->step = (g->step + 1) % 3;
    if (g->step == 0) g->cp = c;
    return true;
}

bool tok_gen_next(struct tok_gen *g, struct buf *out) {
    buf_clear(out);
    if (!strcmp(g->what, "code points")) return code_points(g, out);
    if (!strcmp(g->what, "long words")) return long_word(g, out);
    if (!strcmp(g->what, "random")) return random_text(g, out), true;
    if (!strcmp(g->what, "marks")) return random_marks(g, out), true;
    assert_string_equal(g->what, "bytes");
    return random_bytes(g, out), true;
}

static uint64_t fnv_step(uint64_t h, unsigned byte) {
    return (h ^ byte) * 0x100000001b3u;
}

uint64_t tok_fnv_ids(uint64_t h, const uint32_t *ids, size_t n) {
    for (size_t i = 0; i < n; i++)
        h = fnv_step(fnv_step(fnv_step(h, ids[i] & 255), ids[i] >> 8 & 255), ids[i] >> 16 & 255);
    return fnv_step(h, 0xff);
}

uint64_t tok_fnv_bytes(uint64_t h, const char *bytes, size_t n) {
    for (size_t i = 0; i < n; i++) h = fnv_step(fnv_step(fnv_step(h, (unsigned char)bytes[i]), 0), 0);
    return fnv_step(h, 0xff);
}

/* --- golden files --- */

void tok_golden_open(struct tok_golden *g, const char *name) {
    char path[4096];
    *g = (struct tok_golden){0};
    snprintf(path, sizeof path, "%s/tokenizer/%s", TEST_DATA, name);
    read_file(path, &g->data);
    struct reader r = {g->data.data, g->data.len, 0};
    assert_memory_equal(take(&r, 5), "QGLDF", 5);
    g->n_fragments = take_uint(&r, 4);
    assert_in_range(g->n_fragments, 1, 512);
    for (size_t i = 0; i < g->n_fragments; i++) g->fragments[i] = take_text(&r, 4);
    g->at = r.at;
}

void tok_golden_close(struct tok_golden *g) {
    buf_free(&g->data);
}

static void take_name(struct reader *r, char out[32]) {
    struct text_span s = take_text(r, 4);
    assert_in_range(s.len, 0, 31);
    snprintf(out, 32, "%.*s", (int)s.len, s.data);
}

bool tok_golden_next(struct tok_golden *g, struct tok_section *s) {
    struct reader r = {g->data.data, g->data.len, g->at};
    free(s->digests);
    *s = (struct tok_section){0};
    char kind = *take(&r, 1);
    if (kind == 'E') return false;
    take_name(&r, s->pre);
    take_name(&r, s->variant);
    if (kind == 'C') {
        s->n_cases = take_uint(&r, 4);
    } else {
        assert_int_equal(kind, 'D');
        take_name(&r, s->what);
        s->gen = (struct tok_gen){.what = s->what, .fragments = g->fragments, .n_fragments = g->n_fragments};
        s->gen.state = take_uint(&r, 8);
        s->n_texts = take_uint(&r, 4);
        s->per_digest = take_uint(&r, 4);
        s->n_digests = take_uint(&r, 4);
        s->digests = must(malloc(s->n_digests * 8 + 1));
        memcpy(s->digests, take(&r, s->n_digests * 8), s->n_digests * 8);
    }
    g->at = r.at;
    return true;
}

void tok_golden_case(struct tok_golden *g, struct tok_case *c) {
    struct reader r = {g->data.data, g->data.len, g->at};
    c->flags = (unsigned)take_uint(&r, 1);
    c->text = take_text(&r, 4);
    c->n_content = take_uint(&r, 1);
    assert_in_range(c->n_content, 0, 8);
    for (size_t i = 0; i < c->n_content; i++) {
        c->content[i].start = take_uint(&r, 2);
        c->content[i].len = take_uint(&r, 2);
    }
    c->n_ids = take_uint(&r, 4);
    assert_in_range(c->n_ids, 0, 4096);
    for (size_t i = 0; i < c->n_ids; i++) c->ids[i] = (uint32_t)take_uint(&r, 2);
    g->at = r.at;
}
