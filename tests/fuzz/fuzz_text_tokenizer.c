/* A tokenizer made from fuzzed pieces, types and merges, and text put through it. What must hold: it is
 * refused with a text or it is made; ids are in range, their bytes are the text again, they are those of the
 * plainest way to merge, limits hold, and content never gives a control token. */
#include "text/pretok.h"
#include "text/tokenizer.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { MAX_PIECES = 256 + 255 + 255, MAX_MERGES = 255, MAX_NAIVE = 600 };

#define MUST(x) ((x) ? (void)0 : (fprintf(stderr, "line %d: %s\n", __LINE__, #x), abort()))

struct input {
    const uint8_t *p, *end;
};

static unsigned u8(struct input *in) {
    return in->p < in->end ? *in->p++ : 0;
}
static unsigned u16(struct input *in) {
    return u8(in) | u8(in) << 8;
}

struct fuzz {
    struct text_span pieces[MAX_PIECES], merges[MAX_MERGES];
    int32_t types[MAX_PIECES];
    size_t n_pieces, n_merges;
    uint16_t pairs[MAX_MERGES][3]; /* left, right, made */
    char *pool;                    /* what is put together */
    size_t used, cap;
    bool has_bytes; /* pieces 0 to 255 are those of the bytes */
};

static char *put(struct fuzz *f, const char *s, size_t n) {
    MUST(f->used + n <= f->cap);
    memcpy(f->pool + f->used, s, n);
    f->used += n;
    return f->pool + f->used - n;
}

/* The byte-level alphabet. */
static void put_byte_pieces(struct fuzz *f) {
    unsigned others = 0;
    for (unsigned b = 0; b < 256; b++) {
        bool plain = (b >= 0x21 && b <= 0x7e) || (b >= 0xa1 && b != 0xad);
        unsigned cp = plain ? b : 0x100 + others++;
        char utf8[2] = {(char)(0xc0 | cp >> 6), (char)(0x80 | (cp & 63))};
        if (cp < 0x80) utf8[0] = (char)cp;
        size_t n = cp < 0x80 ? 1 : 2;
        f->pieces[f->n_pieces++] = (struct text_span){put(f, utf8, n), n};
    }
}

static size_t find(const struct fuzz *f, const char *s, size_t n) {
    for (size_t i = 0; i < f->n_pieces; i++)
        if (f->pieces[i].len == n && !memcmp(f->pieces[i].data, s, n)) return i;
    return SIZE_MAX;
}

static void add_pieces(struct fuzz *f, struct input *in, bool any_type) {
    for (unsigned n = u8(in); n > 0 && in->p < in->end; n--) {
        unsigned type = u8(in), len = u8(in);
        if (len > (size_t)(in->end - in->p)) len = (unsigned)(in->end - in->p);
        f->types[f->n_pieces] = any_type ? (int32_t)(type % 8) : (int32_t)(1 + type % 5);
        f->pieces[f->n_pieces++] = (struct text_span){(const char *)in->p, len};
        in->p += len;
    }
}

/* Pairs of pieces; what they make is added, so that most lists are accepted. */
static void add_merges(struct fuzz *f, struct input *in) {
    for (unsigned n = u8(in); n > 0 && in->p < in->end && f->n_pieces; n--) {
        unsigned left = u16(in) % f->n_pieces, right = u16(in) % f->n_pieces;
        struct text_span a = f->pieces[left], b = f->pieces[right];
        if (a.len + b.len > 1000 || f->used + 2 * (a.len + b.len) + 1 > f->cap) continue;
        char *line = put(f, a.data, a.len);
        put(f, " ", 1);
        put(f, b.data, b.len);
        char *joined = put(f, a.data, a.len);
        put(f, b.data, b.len);
        size_t made = find(f, joined, a.len + b.len);
        if (made == SIZE_MAX) {
            made = f->n_pieces++;
            f->pieces[made] = (struct text_span){joined, a.len + b.len};
            f->types[made] = TOKEN_NORMAL;
        }
        f->pairs[f->n_merges][0] = (uint16_t)left;
        f->pairs[f->n_merges][1] = (uint16_t)right;
        f->pairs[f->n_merges][2] = (uint16_t)made;
        f->merges[f->n_merges++] = (struct text_span){line, a.len + b.len + 1};
    }
}

static size_t rank_of(const struct fuzz *f, uint32_t left, uint32_t right) {
    for (size_t r = 0; r < f->n_merges; r++)
        if (f->pairs[r][0] == left && f->pairs[r][1] == right) return r;
    return SIZE_MAX;
}

/* Merges a word the plainest way. Returns the number of ids. */
static size_t naive(const struct fuzz *f, const uint8_t *word, size_t n, uint32_t *ids) {
    static size_t ranks[MAX_NAIVE];
    for (size_t i = 0; i < n; i++) ids[i] = word[i];
    for (size_t i = 0; i < n; i++) ranks[i] = i + 1 < n ? rank_of(f, ids[i], ids[i + 1]) : SIZE_MAX;
    for (;;) {
        size_t best = 0;
        for (size_t i = 1; i < n; i++)
            if (ranks[i] < ranks[best]) best = i;
        if (ranks[best] == SIZE_MAX) return n;
        ids[best] = f->pairs[ranks[best]][2];
        memmove(ids + best + 1, ids + best + 2, (n - best - 2) * sizeof *ids);
        memmove(ranks + best + 1, ranks + best + 2, (n - best - 2) * sizeof *ranks);
        n--;
        ranks[best] = best + 1 < n ? rank_of(f, ids[best], ids[best + 1]) : SIZE_MAX;
        if (best > 0) ranks[best - 1] = rank_of(f, ids[best - 1], ids[best]);
    }
}

static void check_naive(const struct fuzz *f, const char *pre, const struct token_buf *got, const char *text,
                        size_t len) {
    static uint32_t ids[MAX_NAIVE];
    const struct pretok *p = pretok_find(pre, strlen(pre));
    size_t at = 0;
    struct pretok_walk w = {.steps = p->steps, .n_steps = p->n_steps, .s = (const uint8_t *)text, .n = len};
    for (size_t i, end; pretok_walk_next(&w, &i, &end);) {
        size_t n = naive(f, (const uint8_t *)text + i, end - i, ids);
        MUST(at + n <= got->n && !memcmp(got->ids + at, ids, n * sizeof *ids));
        at += n;
    }
    MUST(at == got->n);
}

static void check_bytes(const struct tokenizer *t, const struct token_buf *ids, const char *text, size_t len,
                        bool exact) {
    size_t at = 0;
    for (size_t i = 0, n; i < ids->n; i++) {
        MUST(ids->ids[i] < tokenizer_n_vocab(t));
        const uint8_t *bytes = tokenizer_bytes(t, ids->ids[i], true, &n);
        if (exact) MUST(n <= len - at && !memcmp(bytes, text + at, n));
        at += n;
    }
    if (exact) MUST(at == len);
}

static void check_text(const struct fuzz *f, const struct tokenizer *t, const char *pre, const char *text,
                       size_t len, size_t cut) {
    struct token_buf ids = {0}, limited = {0};
    struct error err = {0};
    bool exact = f->has_bytes && strcmp(pre, "qwen2");
    MUST(tokenizer_encode(t, text, len, 0, NULL, 0, 0, &ids, &err) == 0);
    check_bytes(t, &ids, text, len, exact);
    if (exact && strcmp(pre, "llama-bpe") && len <= MAX_NAIVE) check_naive(f, pre, &ids, text, len);

    size_t max = 1 + cut % (ids.n + 2);
    int rc = tokenizer_encode(t, text, len, 0, NULL, 0, max, &limited, &err);
    MUST(rc == (ids.n > max ? QUIRE_ELIMIT : 0) && limited.n == (rc ? 0 : ids.n));

    ids.n = 0;
    MUST(tokenizer_encode(t, text, len, TOKENIZE_SPECIAL, NULL, 0, 0, &ids, &err) == 0);
    check_bytes(t, &ids, text, len, exact);

    struct content_span all[2] = {{0, cut % (len + 1)}, {cut % (len + 1), len - cut % (len + 1)}};
    ids.n = 0;
    MUST(tokenizer_encode(t, text, len, TOKENIZE_SPECIAL, all, 2, 0, &ids, &err) == 0);
    check_bytes(t, &ids, text, len, exact);
    for (size_t i = 0; i < ids.n; i++) MUST(!tokenizer_is_control(t, ids.ids[i]));

    all[0] = (struct content_span){cut % (len + 1), (len - cut % (len + 1)) / 2};
    ids.n = 0;
    MUST(tokenizer_encode(t, text, len, TOKENIZE_SPECIAL | TOKENIZE_ADD, all, 1, 0, &ids, &err) == 0);
    token_buf_free(&ids);
    token_buf_free(&limited);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static const char *const pres[] = {"smollm", "gpt-2", "default", "llama-bpe", "qwen2", "nonsense"};
    static struct fuzz f;
    static char pool[1 << 20];
    struct input in = {data, data + size};
    f = (struct fuzz){.pool = pool, .cap = sizeof pool};
    const char *pre = pres[u8(&in) % 6];
    unsigned flags = u8(&in), cut = u16(&in);
    for (size_t i = 0; i < MAX_PIECES; i++) f.types[i] = TOKEN_NORMAL;
    f.has_bytes = flags & 1;
    if (f.has_bytes) put_byte_pieces(&f);
    add_pieces(&f, &in, flags & 2);
    add_merges(&f, &in);
    struct tokenizer_spec spec = {.model = {"gpt2", 4},
                                  .pre = {pre, strlen(pre)},
                                  .pieces = f.pieces,
                                  .types = flags & 4 ? NULL : f.types,
                                  .n_vocab = f.n_pieces,
                                  .merges = f.merges,
                                  .n_merges = f.n_merges,
                                  .bos = -1,
                                  .eos = -1,
                                  .unk = -1};
    if (flags & 8) {
        spec.bos = (int64_t)(cut % (f.n_pieces + 1)) - 1;
        spec.eos = (int64_t)(cut / 3 % (f.n_pieces + 2)) - 1;
        spec.add_bos = spec.add_eos = true;
    }
    struct tokenizer *t;
    struct error err = {0};
    int rc = tokenizer_create(&spec, &t, &err);
    if (rc) {
        MUST(rc == err.code && err.text[0] && !t);
        return 0;
    }
    size_t len = (size_t)(in.end - in.p);
    char *text = malloc(len + 1);
    MUST(text != NULL);
    if (len) memcpy(text, in.p, len);
    check_text(&f, t, pre, text, len, cut);
    free(text);
    tokenizer_free(t);
    return 0;
}
