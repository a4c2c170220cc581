#include "text/pretok.h"

#include "text/unicode.h"

#include <string.h>

/* Kind of the character at s[i], i < n, and its length. */
static inline unsigned kind_at(const uint8_t *s, size_t i, size_t n, size_t *len) {
    return unicode_entry_at(s + i, n - i, len) & 31u;
}

static inline bool is(unsigned kind, uint32_t set) {
    return set >> kind & 1;
}

/* Whether a character of the set starts at i. */
static inline bool at(const uint8_t *s, size_t i, size_t n, uint32_t set) {
    size_t len;
    return i < n && is(kind_at(s, i, n, &len), set);
}

/* End of the run of characters of the set from i on. */
static inline size_t run(const uint8_t *s, size_t i, size_t n, uint32_t set) {
    for (size_t len; i < n && is(kind_at(s, i, n, &len), set); i += len) {}
    return i;
}

static inline bool is_newline(uint8_t c) {
    return c == '\r' || c == '\n';
}

/* A run of white space from i on. */
struct space_run {
    size_t end;
    size_t last;          /* where its last character starts */
    size_t after_newline; /* end of its last CR or LF; 0 = none */
};

static inline struct space_run space_run(const uint8_t *s, size_t i, size_t n) {
    struct space_run r = {i, i, 0};
    for (size_t len; r.end < n && is(kind_at(s, r.end, n, &len), UNICODE_SPACE); r.end += len) {
        r.last = r.end;
        if (is_newline(s[r.end])) r.after_newline = r.end + 1;
    }
    return r;
}

/* \s+(?!\S)|\s+ : all of the run at the end of the text, else all but its last character, if that leaves any.
 */
static inline size_t split_spaces(struct space_run r, size_t i, bool at_end) {
    return at_end || r.last == i ? r.end : r.last;
}

/* GPT-2 (Radford et al. 2019):
 *     's|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+
 * within a text that ends at n or before a character of the barrier, which an earlier step has cut out. */
static inline size_t next_gpt2(const uint8_t *s, size_t i, size_t n, uint32_t barrier) {
    if (s[i] == '\'' && i + 1 < n) {
        uint8_t a = s[i + 1], b = i + 2 < n ? s[i + 2] : 0;
        if (a == 's' || a == 't' || a == 'm' || a == 'd') return i + 2;
        if ((a == 'r' && b == 'e') || (a == 'v' && b == 'e') || (a == 'l' && b == 'l')) return i + 3;
    }
    size_t len, j = i;
    unsigned kind = kind_at(s, i, n, &len);
    if (s[i] == ' ' && i + 1 < n) {
        unsigned after = kind_at(s, i + 1, n, &len);
        if (!is(after, UNICODE_SPACE | barrier)) {
            kind = after;
            j = i + 1;
        }
    }
    if (is(kind, UNICODE_LETTER)) return run(s, j, n, UNICODE_LETTER & ~barrier);
    if (is(kind, UNICODE_NUMBER)) return run(s, j, n, UNICODE_NUMBER & ~barrier);
    if (!is(kind, UNICODE_SPACE)) return run(s, j, n, UNICODE_OTHER & ~barrier);
    struct space_run r = space_run(s, i, n);
    return split_spaces(r, i, r.end == n || at(s, r.end, n, barrier));
}

static size_t next_plain_gpt2(const uint8_t *s, size_t i, size_t n) {
    return next_gpt2(s, i, n, 0);
}

/* Digits(individual_digits), then GPT-2. */
static size_t next_smollm(const uint8_t *s, size_t i, size_t n) {
    size_t len;
    if (is(kind_at(s, i, n, &len), UNICODE_NUMERIC)) return i + len;
    return next_gpt2(s, i, n, UNICODE_NUMERIC);
}

/* (?i:'s|'t|'re|'ve|'m|'ll|'d) : its end, or 0. Case folding makes the long s (U+017F) an s. */
static inline size_t contraction(const uint8_t *s, size_t i, size_t n) {
    if (s[i] != '\'' || i + 1 >= n) return 0;
    uint8_t a = s[i + 1] | 0x20, b = i + 2 < n ? s[i + 2] : 0;
    if (s[i + 1] < 0x80 && (a == 's' || a == 't' || a == 'm' || a == 'd')) return i + 2;
    if (s[i + 1] == 0xc5 && b == 0xbf) return i + 3;
    if (s[i + 1] >= 0x80 || b >= 0x80) return 0;
    b |= 0x20;
    return (a == 'r' && b == 'e') || (a == 'v' && b == 'e') || (a == 'l' && b == 'l') ? i + 3 : 0;
}

/* Llama 3 (max_digits 3) and Qwen 2 (1):
 *     (?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+
 *     |\s+(?!\S)|\s+ */
static inline size_t next_llama3(const uint8_t *s, size_t i, size_t n, unsigned max_digits) {
    size_t end = contraction(s, i, n), len;
    if (end) return end;
    unsigned kind = kind_at(s, i, n, &len);
    if (is(kind, UNICODE_LETTER)) return run(s, i, n, UNICODE_LETTER);
    if (is(kind, UNICODE_NUMBER)) {
        end = i + len;
        for (unsigned k = 1; k < max_digits && at(s, end, n, UNICODE_NUMBER); k++) {
            kind_at(s, end, n, &len);
            end += len;
        }
        return end;
    }
    if (!is_newline(s[i]) && at(s, i + len, n, UNICODE_LETTER)) return run(s, i + len, n, UNICODE_LETTER);
    size_t j = s[i] == ' ' && at(s, i + 1, n, UNICODE_OTHER) ? i + 1 : i;
    if (j > i || is(kind, UNICODE_OTHER)) {
        end = run(s, j, n, UNICODE_OTHER);
        while (end < n && is_newline(s[end])) end++;
        return end;
    }
    struct space_run r = space_run(s, i, n);
    return r.after_newline ? r.after_newline : split_spaces(r, i, r.end == n);
}

static size_t next_llama_bpe(const uint8_t *s, size_t i, size_t n) {
    return next_llama3(s, i, n, 3);
}
static size_t next_qwen2(const uint8_t *s, size_t i, size_t n) {
    return next_llama3(s, i, n, 1);
}

/* [\p{P}$+<=>^~|] */
static inline bool is_cut(uint8_t c, unsigned kind) {
    return is(kind, UNICODE_PUNCTUATION) || c == '$' || c == '+' || c == '<' || c == '=' || c == '>' ||
           c == '^' || c == '~' || c == '|';
}

static inline bool cut_at(const uint8_t *s, size_t i, size_t n) {
    size_t len;
    return i < n && is_cut(s[i], kind_at(s, i, n, &len));
}

static inline bool is_digit(uint8_t c) {
    return c >= '0' && c <= '9';
}

static inline bool three_digits(const uint8_t *s, size_t i, size_t n) {
    return n - i >= 3 && is_digit(s[i]) && is_digit(s[i + 1]) && is_digit(s[i + 2]);
}

/* What GGUF writers mean by "default", four splits one after the other:
 *     [\p{P}$+<=>^~|]+     GPT-2's expression     \p{N}+     [0-9][0-9][0-9]
 * Contractions never match: the apostrophe is cut out first. */
static size_t next_default(const uint8_t *s, size_t i, size_t n) {
    size_t len, j = i;
    unsigned kind = kind_at(s, i, n, &len);
    if (is_cut(s[i], kind)) {
        while (cut_at(s, j, n)) {
            kind_at(s, j, n, &len);
            j += len;
        }
        return j;
    }
    if (s[i] == ' ' && i + 1 < n) {
        unsigned after = kind_at(s, i + 1, n, &len);
        if (is(after, UNICODE_NUMBER)) return i + 1;
        if (!is(after, UNICODE_SPACE) && !is_cut(s[i + 1], after)) {
            kind = after;
            j = i + 1;
        }
    }
    if (is(kind, UNICODE_LETTER)) return run(s, j, n, UNICODE_LETTER);
    if (is(kind, UNICODE_NUMBER)) {
        if (three_digits(s, i, n)) return i + 3;
        do {
            kind_at(s, j, n, &len);
            j += len;
        } while (at(s, j, n, UNICODE_NUMBER) && !three_digits(s, j, n));
        return j;
    }
    if (!is(kind, UNICODE_SPACE)) {
        while (at(s, j, n, UNICODE_OTHER) && !cut_at(s, j, n)) {
            kind_at(s, j, n, &len);
            j += len;
        }
        return j;
    }
    struct space_run r = space_run(s, i, n);
    return split_spaces(r, i, r.end == n || cut_at(s, r.end, n));
}

static const struct pretok pretoks[] = {
    {.name = "default", .next = next_default},
    {.name = "gpt-2", .aliases = (const char *const[]){"phi-2", NULL}, .next = next_plain_gpt2},
    {.name = "llama-bpe",
     .aliases = (const char *const[]){"llama3", "llama-v3", NULL},
     .next = next_llama_bpe,
     .ignore_merges = true,
     .add_bos = true},
    {.name = "qwen2", .next = next_qwen2, .nfc = true},
    {.name = "smollm", .aliases = (const char *const[]){"starcoder", NULL}, .next = next_smollm},
};

static bool equal(const char *a, const char *name, size_t len) {
    return strlen(a) == len && !memcmp(a, name, len);
}

const struct pretok *pretok_find(const char *name, size_t len) {
    for (size_t i = 0; i < sizeof pretoks / sizeof *pretoks; i++) {
        if (equal(pretoks[i].name, name, len)) return &pretoks[i];
        for (const char *const *a = pretoks[i].aliases; a && *a; a++)
            if (equal(*a, name, len)) return &pretoks[i];
    }
    return NULL;
}

const char *pretok_known_names(void) {
    return "default, gpt-2 (phi-2), llama-bpe (llama3, llama-v3), qwen2, smollm (starcoder)";
}
