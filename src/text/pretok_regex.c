/* Scanners of the regular expressions that tokenizer.json files hold, and of pre-tokenizers that are built
 * in. */
#include "text/pretok.h"

#include "text/pretok_scan.h"
#include "text/pretok_scanners.h"
#include "text/unicode_props.h"

#include <string.h>

/* GPT-2 (Radford et al. 2019):
 *     's|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+
 * within a text that ends at n or before a character of the barrier, which an earlier step has cut out. */
static inline size_t gpt2(const uint8_t *s, size_t i, size_t n, uint32_t barrier) {
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

size_t pretok_gpt2(const uint8_t *s, size_t i, size_t n) {
    return gpt2(s, i, n, 0);
}

/* Digits(individual_digits), then GPT-2. */
size_t pretok_smollm(const uint8_t *s, size_t i, size_t n) {
    size_t len;
    if (is(kind_at(s, i, n, &len), UNICODE_NUMERIC)) return i + len;
    return gpt2(s, i, n, UNICODE_NUMERIC);
}

/* (?i:'s|'t|'re|'ve|'m|'ll|'d) : its end, or 0. Case folding makes the long s (U+017F) an s; expressions that
 * spell out both cases do without it. */
static inline size_t contraction(const uint8_t *s, size_t i, size_t n, bool long_s) {
    if (i + 1 >= n || s[i] != '\'') return 0;
    uint8_t a = s[i + 1] | 0x20, b = i + 2 < n ? s[i + 2] : 0;
    if (s[i + 1] < 0x80 && (a == 's' || a == 't' || a == 'm' || a == 'd')) return i + 2;
    if (s[i + 1] == 0xc5 && b == 0xbf) return long_s ? i + 3 : 0;
    if (s[i + 1] >= 0x80 || b >= 0x80) return 0;
    b |= 0x20;
    return (a == 'r' && b == 'e') || (a == 'v' && b == 'e') || (a == 'l' && b == 'l') ? i + 3 : 0;
}

/* The expressions since GPT-4 are variations of one:
 *     (?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+
 *     |\s+(?!\S)|\s+ */
enum {
    FIRST_CONTRACTION = 1,
    LAST_CONTRACTION = 2,
    LONG_S = 4,
    CASED = 8,
    HAN = 16,
    SLASH = 32,
    NO_NEWLINES = 64
};

static inline size_t digits(const uint8_t *s, size_t i, size_t n, unsigned most) {
    size_t len;
    for (unsigned k = 0; k < most && i < n && is(kind_at(s, i, n, &len), UNICODE_NUMBER); k++) i += len;
    return i;
}

#define UPPERISH                                                                                             \
    (UNICODE_BIT(UNICODE_LU) | UNICODE_BIT(UNICODE_LT) | UNICODE_BIT(UNICODE_LM) | UNICODE_BIT(UNICODE_LO) | \
     UNICODE_MARK)
#define LOWERISH (UNICODE_BIT(UNICODE_LL) | UNICODE_BIT(UNICODE_LM) | UNICODE_BIT(UNICODE_LO) | UNICODE_MARK)

static inline bool is_han(const uint8_t *s, size_t i, size_t n) {
    size_t len = s[i] < 0xe2 ? 0 : utf8_sequence((const char *)s + i, n - i);
    return len && unicode_props(unicode_decode(s + i, len)) & PROP_HAN;
}

static inline bool at_cased(const uint8_t *s, size_t i, size_t n, uint32_t set, unsigned how, size_t *len) {
    return i < n && is(kind_at(s, i, n, len), set) && !(how & HAN && is_han(s, i, n));
}

/* From i on, U being UPPERISH and L LOWERISH: U*L+ first, else U+L*. Its end, or 0. *lower: whether the
 * first. */
static inline size_t cased_word(const uint8_t *s, size_t i, size_t n, unsigned how, bool *lower) {
    size_t len, end = i, back = 0; /* back: end of the last character of U that is of L too */
    for (; at_cased(s, end, n, UPPERISH, how, &len); end += len)
        if (at_cased(s, end, n, LOWERISH, how, &len)) back = end + len;
    size_t low = end;
    for (; at_cased(s, low, n, LOWERISH, how, &len); low += len) {}
    *lower = low > end || back;
    if (low > end) return low;
    if (back) return back;
    return end > i ? end : 0;
}

/* [^\r\n\p{L}\p{N}]?U*L+ | [^\r\n\p{L}\p{N}]?U+L* : its end, or 0. A mark may be the character in front. */
static inline size_t cased(const uint8_t *s, size_t i, size_t n, unsigned kind, size_t len, unsigned how) {
    bool fronted = !is(kind, UNICODE_LETTER | UNICODE_NUMBER) && !is_newline(s[i]);
    bool lower = false, lower_plain = false;
    size_t end = fronted && i + len < n ? cased_word(s, i + len, n, how, &lower) : 0;
    if (end && lower) return end;
    size_t plain = is(kind, UPPERISH | LOWERISH) ? cased_word(s, i, n, how, &lower_plain) : 0;
    if (plain && lower_plain) return plain;
    return end ? end : plain;
}

static inline size_t modern(const uint8_t *s, size_t i, size_t n, uint32_t letters, unsigned max_digits,
                            unsigned how) {
    size_t end, len;
    if (how & FIRST_CONTRACTION && (end = contraction(s, i, n, how & LONG_S))) return end;
    unsigned kind = kind_at(s, i, n, &len);
    if (how & HAN && is_han(s, i, n)) {
        for (end = i; end < n && is_han(s, end, n); end += utf8_sequence((const char *)s + end, n - end)) {}
        return end;
    }
    if (how & CASED) {
        end = cased(s, i, n, kind, len, how);
        if (end && how & LAST_CONTRACTION) {
            size_t after = contraction(s, end, n, how & LONG_S);
            if (after) return after;
        }
        if (end) return end;
    } else {
        if (!is(kind, UNICODE_LETTER | UNICODE_NUMBER) && !is_newline(s[i]) && at(s, i + len, n, letters))
            return run(s, i + len, n, letters);
        if (is(kind, letters)) return run(s, i, n, letters);
    }
    if (is(kind, UNICODE_NUMBER)) return digits(s, i, n, max_digits);
    uint32_t other = ~(letters | UNICODE_NUMBER | UNICODE_SPACE);
    size_t j = s[i] == ' ' && at(s, i + 1, n, other) ? i + 1 : i;
    if (j > i || is(kind, other)) {
        end = run(s, j, n, other);
        while (!(how & NO_NEWLINES) && end < n && (is_newline(s[end]) || (how & SLASH && s[end] == '/')))
            end++;
        return end;
    }
    struct space_run r = space_run(s, i, n);
    return r.after_newline ? r.after_newline : split_spaces(r, i, r.end == n);
}

#define MODERN(name, letters, max_digits, how)                                                               \
    size_t name(const uint8_t *s, size_t i, size_t n) {                                                      \
        return modern(s, i, n, letters, max_digits, how);                                                    \
    }
MODERN(pretok_llama3, UNICODE_LETTER, 3, FIRST_CONTRACTION | LONG_S)
MODERN(pretok_llama3_ascii, UNICODE_LETTER, 3, FIRST_CONTRACTION)
MODERN(pretok_qwen2, UNICODE_LETTER, 1, FIRST_CONTRACTION | LONG_S)
MODERN(pretok_qwen2_ascii, UNICODE_LETTER, 1, FIRST_CONTRACTION)
MODERN(pretok_digit_run, UNICODE_LETTER, UINT32_MAX, FIRST_CONTRACTION | LONG_S)
MODERN(pretok_seed_coder, UNICODE_LETTER, 1, FIRST_CONTRACTION | LONG_S | NO_NEWLINES)
MODERN(pretok_qwen35, UNICODE_LETTER | UNICODE_MARK, 1, FIRST_CONTRACTION | LONG_S)
MODERN(pretok_gpt4o, UNICODE_LETTER, 3, CASED | LAST_CONTRACTION | LONG_S | SLASH)
MODERN(pretok_tekken, UNICODE_LETTER, 1, CASED | SLASH)
MODERN(pretok_kimi, UNICODE_LETTER, 3, CASED | HAN | LAST_CONTRACTION | LONG_S)

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
size_t pretok_default(const uint8_t *s, size_t i, size_t n) {
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

/* The character at i and its end. */
static inline uint32_t char_at(const uint8_t *s, size_t i, size_t n, size_t *end) {
    size_t len = utf8_sequence((const char *)s + i, n - i);
    *end = i + (len ? len : 1);
    return len ? unicode_decode(s + i, len) : UINT32_MAX;
}

static inline size_t char_end(const uint8_t *s, size_t i, size_t n) {
    size_t len = utf8_sequence((const char *)s + i, n - i);
    return i + (len ? len : 1);
}

/* --- DeepSeek --- */

/* [!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~] */
static inline bool is_ascii_symbol(uint8_t c) {
    return (c >= '!' && c <= '/') || (c >= ':' && c <= '@') || (c >= '[' && c <= '`') ||
           (c >= '{' && c <= '~');
}

static inline bool is_ascii_letter(uint8_t c) {
    return (uint8_t)((c | 0x20) - 'a') < 26;
}

#define LETTER_MARK (UNICODE_LETTER | UNICODE_MARK)
#define SYMBOL      (UNICODE_PUNCTUATION | UNICODE_RANGE(UNICODE_SM, UNICODE_SO)) /* [\p{P}\p{S}] */

/* Whether pretok_deepseek3 has a match at i, which is not white space. */
static inline bool starts_deepseek3(const uint8_t *s, size_t i, size_t n) {
    size_t len;
    unsigned kind = kind_at(s, i, n, &len);
    if (is(kind, LETTER_MARK | SYMBOL)) return true;
    return at(s, i + len, n, LETTER_MARK); /* any other may stand in front of letters */
}

/*     [!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+|
 * ?[\p{P}\p{S}]+[\r\n]*
 *     |\s*[\r\n]+|\s+(?!\S)|\s+ */
size_t pretok_deepseek3(const uint8_t *s, size_t i, size_t n) {
    size_t len, end;
    unsigned kind = kind_at(s, i, n, &len);
    if (is_ascii_symbol(s[i]) && i + 1 < n && is_ascii_letter(s[i + 1])) {
        for (end = i + 1; end < n && is_ascii_letter(s[end]); end++) {}
        return end;
    }
    if (!is(kind, UNICODE_LETTER | SYMBOL) && !is_newline(s[i]) && at(s, i + len, n, LETTER_MARK))
        return run(s, i + len, n, LETTER_MARK);
    if (is(kind, LETTER_MARK)) return run(s, i, n, LETTER_MARK);
    size_t j = s[i] == ' ' && at(s, i + 1, n, SYMBOL) ? i + 1 : i;
    if (j > i || is(kind, SYMBOL)) {
        end = run(s, j, n, SYMBOL);
        while (end < n && is_newline(s[end])) end++;
        return end;
    }
    if (is(kind, UNICODE_SPACE)) {
        struct space_run r = space_run(s, i, n);
        return r.after_newline ? r.after_newline : split_spaces(r, i, r.end == n);
    }
    for (end = i + len; end < n; end += len) { /* what nothing matches */
        kind = kind_at(s, end, n, &len);
        if (is(kind, UNICODE_SPACE) || starts_deepseek3(s, end, n)) break;
    }
    return end;
}

/* [一-龥぀-ゟ゠-ヿ] */
static bool is_cjk_kana(uint32_t cp) {
    return (cp >= 0x4e00 && cp <= 0x9fa5) || (cp >= 0x3040 && cp <= 0x30ff);
}
/* [一-龥ࠀ-一가-퟿] */
static bool is_cjk_wide(uint32_t cp) {
    return (cp >= 0x800 && cp <= 0x9fa5) || (cp >= 0xac00 && cp <= 0xd7ff);
}
/* [^(\s|.,!?…。，、।۔،)] */
static bool is_bloom(uint32_t cp) {
    if (cp == UINT32_MAX) return true;
    if (UNICODE_SPACE >> (unicode_entry(cp) & 31) & 1) return false;
    switch (cp) {
    case '(':
    case '|':
    case '.':
    case ',':
    case '!':
    case '?':
    case ')':
    case 0x2026:
    case 0x3002:
    case 0xff0c:
    case 0x3001:
    case 0x0964:
    case 0x06d4:
    case 0x060c: return false;
    default: return true;
    }
}
static bool is_newline_cp(uint32_t cp) {
    return cp == '\r' || cp == '\n';
}

/* X+ : runs of a class, and what is between. */
static inline size_t class_runs(const uint8_t *s, size_t i, size_t n, bool (*in)(uint32_t)) {
    size_t end;
    bool inside = in(char_at(s, i, n, &end));
    for (size_t after; end < n && in(char_at(s, end, n, &after)) == inside; end = after) {}
    return end;
}

size_t pretok_cjk_kana(const uint8_t *s, size_t i, size_t n) {
    return class_runs(s, i, n, is_cjk_kana);
}
size_t pretok_cjk_wide(const uint8_t *s, size_t i, size_t n) {
    return class_runs(s, i, n, is_cjk_wide);
}

/* [\r\n] */
size_t pretok_newline(const uint8_t *s, size_t i, size_t n) {
    if (is_newline(s[i])) return i + 1;
    return class_runs(s, i, n, is_newline_cp);
}

/*  ?[^(\s|.,!?…。，、।۔،)]+ */
size_t pretok_bloom(const uint8_t *s, size_t i, size_t n) {
    size_t end, after;
    if (s[i] == ' ' && i + 1 < n && is_bloom(char_at(s, i + 1, n, &end)))
        return class_runs(s, i + 1, n, is_bloom);
    if (is_bloom(char_at(s, i, n, &end))) return class_runs(s, i, n, is_bloom);
    while (end < n && !is_bloom(char_at(s, end, n, &after))) { /* what nothing matches */
        if (s[end] == ' ' && after < n && is_bloom(char_at(s, after, n, &after))) break;
        end = char_end(s, end, n);
    }
    return end;
}

/* \s?X+ , X a set of kinds without white space, and what is between. */
static inline size_t spaced_runs(const uint8_t *s, size_t i, size_t n, uint32_t set) {
    size_t len, end;
    unsigned kind = kind_at(s, i, n, &len);
    if (is(kind, set)) return run(s, i, n, set);
    if (is(kind, UNICODE_SPACE) && at(s, i + len, n, set)) return run(s, i + len, n, set);
    for (end = i + len; end < n; end += len) {
        kind = kind_at(s, end, n, &len);
        if (is(kind, set) || (is(kind, UNICODE_SPACE) && at(s, end + len, n, set))) break;
    }
    return end;
}

/* [A-Za-z...]: the cased letters, as DeepSeek LLM's file lists them. */
struct code_range {
    uint32_t first, last;
};
static const struct code_range cased_letters[] = {
    {0x41, 0x5a},       {0x61, 0x7a},       {0xb5, 0xb5},       {0xc0, 0xd6},       {0xd8, 0xf6},
    {0xf8, 0x1ba},      {0x1bc, 0x1bf},     {0x1c4, 0x293},     {0x295, 0x2af},     {0x370, 0x373},
    {0x376, 0x376},     {0x377, 0x377},     {0x37b, 0x37d},     {0x37f, 0x37f},     {0x386, 0x386},
    {0x388, 0x38a},     {0x38c, 0x38c},     {0x38e, 0x3a1},     {0x3a3, 0x3f5},     {0x3f7, 0x481},
    {0x48a, 0x52f},     {0x531, 0x556},     {0x10a0, 0x10c5},   {0x13a0, 0x13f5},   {0x13f8, 0x13fd},
    {0x1c90, 0x1cba},   {0x1cbd, 0x1cbf},   {0x1d00, 0x1d2b},   {0x1d6b, 0x1d77},   {0x1d79, 0x1d9a},
    {0x1e00, 0x1f15},   {0x1f18, 0x1f1d},   {0x1f20, 0x1f45},   {0x1f48, 0x1f4d},   {0x1f50, 0x1f57},
    {0x1f59, 0x1f59},   {0x1f5b, 0x1f5b},   {0x1f5d, 0x1f5d},   {0x1f5f, 0x1f7d},   {0x1f80, 0x1fb4},
    {0x1fb6, 0x1fbc},   {0x1fbe, 0x1fbe},   {0x1fc2, 0x1fc4},   {0x1fc6, 0x1fcc},   {0x1fd0, 0x1fd3},
    {0x1fd6, 0x1fdb},   {0x1fe0, 0x1fec},   {0x1ff2, 0x1ff4},   {0x1ff6, 0x1ffc},   {0x2102, 0x2102},
    {0x2107, 0x2107},   {0x210a, 0x2113},   {0x2115, 0x2115},   {0x2119, 0x211d},   {0x2124, 0x2124},
    {0x2126, 0x2126},   {0x2128, 0x2128},   {0x212a, 0x212d},   {0x212f, 0x2134},   {0x2139, 0x2139},
    {0x213c, 0x213f},   {0x2145, 0x2149},   {0x214e, 0x214e},   {0x2183, 0x2183},   {0x2184, 0x2184},
    {0x2c00, 0x2c7b},   {0x2c7e, 0x2ce4},   {0x2ceb, 0x2cee},   {0x2cf2, 0x2cf2},   {0x2cf3, 0x2cf3},
    {0xa640, 0xa66d},   {0xa680, 0xa69b},   {0xa722, 0xa76f},   {0xa771, 0xa787},   {0xa78b, 0xa78e},
    {0xab70, 0xabbf},   {0xfb00, 0xfb06},   {0xfb13, 0xfb17},   {0xff21, 0xff3a},   {0xff41, 0xff5a},
    {0x10400, 0x1044f}, {0x104b0, 0x104d3}, {0x104d8, 0x104fb}, {0x10c80, 0x10cb2}, {0x10cc0, 0x10cf2},
    {0x118a0, 0x118df}, {0x1e900, 0x1e943}};
/* [!-/:-~ and their full-width forms, general quotation marks, CJK punctuation] */
static const struct code_range wide_symbols[] = {{0x21, 0x2f},     {0x3a, 0x7e},     {0x2018, 0x201f},
                                                 {0x3000, 0x3002}, {0xff01, 0xff0f}, {0xff1a, 0xff5e}};

static bool in_ranges(uint32_t cp, const struct code_range *r, size_t n) {
    size_t lo = 0, hi = n;
    while (lo < hi) {
        size_t mid = lo + (hi - lo) / 2;
        if (cp >= r[mid].first && cp <= r[mid].last) return true;
        if (cp < r[mid].first)
            hi = mid;
        else
            lo = mid + 1;
    }
    return false;
}
static bool is_cased_letter(uint32_t cp) {
    return in_ranges(cp, cased_letters, sizeof cased_letters / sizeof *cased_letters);
}
static bool is_wide_symbol(uint32_t cp) {
    return in_ranges(cp, wide_symbols, sizeof wide_symbols / sizeof *wide_symbols);
}

static inline bool is_space_cp(uint32_t cp) {
    return cp != UINT32_MAX && (UNICODE_SPACE >> (unicode_entry(cp) & 31) & 1);
}

/* \s?X+ , and what is between. X may hold white space (U+3000). */
static inline size_t spaced_class(const uint8_t *s, size_t i, size_t n, bool (*in)(uint32_t)) {
    size_t end, after;
    for (size_t at = i; at < n; at = end) {
        uint32_t cp = char_at(s, at, n, &end);
        bool starts = in(cp) || (is_space_cp(cp) && end < n && in(char_at(s, end, n, &after)));
        if (starts && at > i) return at;
        if (!starts) continue;
        size_t from = is_space_cp(cp) && end < n && in(char_at(s, end, n, &after)) ? end : at;
        return class_runs(s, from, n, in);
    }
    return n;
}
size_t pretok_spaced_cased(const uint8_t *s, size_t i, size_t n) {
    return spaced_class(s, i, n, is_cased_letter);
}
size_t pretok_spaced_symbols(const uint8_t *s, size_t i, size_t n) {
    return spaced_class(s, i, n, is_wide_symbol);
}

/* \s+$ : white space at the end, and what is before it. */
size_t pretok_last_space(const uint8_t *s, size_t i, size_t n) {
    size_t start = n;
    while (start > i) {
        size_t len = 1;
        while (len < 4 && start - len > i && (s[start - len] & 0xc0) == 0x80) len++;
        size_t end;
        if (!is_space_cp(char_at(s, start - len, n, &end)) || end != start) break;
        start -= len;
    }
    return start > i ? start : n;
}

size_t pretok_spaced_letters(const uint8_t *s, size_t i, size_t n) {
    return spaced_runs(s, i, n, UNICODE_LETTER);
}
size_t pretok_spaced_punctuation(const uint8_t *s, size_t i, size_t n) {
    return spaced_runs(s, i, n, UNICODE_PUNCTUATION);
}

/* X{1,most} , X a set of kinds, and what is between. */
static inline size_t counted(const uint8_t *s, size_t i, size_t n, uint32_t set, unsigned most) {
    size_t len, end = i;
    bool inside = at(s, i, n, set);
    for (unsigned k = 0; end < n && is(kind_at(s, end, n, &len), set) == inside && !(inside && k == most);
         k++)
        end += len;
    return end;
}

size_t pretok_number_3(const uint8_t *s, size_t i, size_t n) {
    return counted(s, i, n, UNICODE_NUMBER, 3);
}
size_t pretok_number_1(const uint8_t *s, size_t i, size_t n) {
    return counted(s, i, n, UNICODE_NUMBER, 1);
}
size_t pretok_numbers(const uint8_t *s, size_t i, size_t n) {
    return counted(s, i, n, UNICODE_NUMBER, UINT32_MAX);
}
size_t pretok_digits(const uint8_t *s, size_t i, size_t n) {
    return counted(s, i, n, UNICODE_NUMERIC, 1);
}
size_t pretok_digit_runs(const uint8_t *s, size_t i, size_t n) {
    return counted(s, i, n, UNICODE_NUMERIC, UINT32_MAX);
}

/* Digits behind a ByteLevel, which has made a character of each byte: those of the bytes B2, B3, B9 and BC to BE are
 * \u00b2 \u00b3 \u00b9 \u00bc \u00bd \u00be, numeric ones, whatever character the bytes are of. */
static bool byte_is_numeric(uint8_t b) {
    return (b >= '0' && b <= '9') || b == 0xb2 || b == 0xb3 || b == 0xb9 || (b >= 0xbc && b <= 0xbe);
}

size_t pretok_byte_digits(const uint8_t *s, size_t i, size_t n) {
    if (byte_is_numeric(s[i])) return i + 1;
    while (i < n && !byte_is_numeric(s[i])) i++;
    return i;
}

size_t pretok_byte_digit_runs(const uint8_t *s, size_t i, size_t n) {
    bool inside = byte_is_numeric(s[i]);
    while (i < n && byte_is_numeric(s[i]) == inside) i++;
    return i;
}

/* [0-9][0-9][0-9] */
size_t pretok_three_digits(const uint8_t *s, size_t i, size_t n) {
    if (three_digits(s, i, n)) return i + 3;
    for (i++; i < n && !three_digits(s, i, n); i++) {}
    return i;
}

/* [\p{P}\$\+<=>\^~\|`]+ */
size_t pretok_falcon(const uint8_t *s, size_t i, size_t n) {
    size_t len, end = i;
    unsigned kind = kind_at(s, i, n, &len);
    bool inside = is_cut(s[i], kind) || s[i] == '`';
    for (; end < n; end += len) {
        kind = kind_at(s, end, n, &len);
        if ((is_cut(s[end], kind) || s[end] == '`') != inside) break;
    }
    return end;
}
/* [\p{P}\$\+<=>\^~\|]+ */
size_t pretok_default_cut(const uint8_t *s, size_t i, size_t n) {
    size_t len, end = i;
    bool inside = cut_at(s, i, n);
    for (; end < n && cut_at(s, end, n) == inside; end += len) kind_at(s, end, n, &len);
    return end;
}

/* --- pre-tokenizers with names --- */

static inline unsigned props_at(const uint8_t *s, size_t i, size_t n, size_t *end) {
    uint32_t cp = char_at(s, i, n, end);
    if (cp == UINT32_MAX) return 0;
    return unicode_props(cp) | (UNICODE_SPACE >> (unicode_entry(cp) & 31) & 1) << 16;
}

enum { PROP_WHITE = 1 << 16 };

static inline size_t punctuation(const uint8_t *s, size_t i, size_t n, bool runs) {
    size_t end, after;
    bool inside = props_at(s, i, n, &end) & PROP_PUNCT;
    if (inside && !runs) return end;
    for (; end < n && (bool)(props_at(s, end, n, &after) & PROP_PUNCT) == inside; end = after) {}
    return end;
}
size_t pretok_punctuation(const uint8_t *s, size_t i, size_t n) {
    return punctuation(s, i, n, false);
}
size_t pretok_punctuation_runs(const uint8_t *s, size_t i, size_t n) {
    return punctuation(s, i, n, true);
}

size_t pretok_white_split(const uint8_t *s, size_t i, size_t n) {
    size_t end, after;
    unsigned white = props_at(s, i, n, &end) & PROP_WHITE;
    for (; end < n && (props_at(s, end, n, &after) & PROP_WHITE) == white; end = after) {}
    return end;
}

/* \w+|[^\w\s]+ */
size_t pretok_words(const uint8_t *s, size_t i, size_t n) {
    size_t end, after;
    unsigned class = props_at(s, i, n, &end) & (PROP_WORD | PROP_WHITE);
    for (; end < n && (props_at(s, end, n, &after) & (PROP_WORD | PROP_WHITE)) == class; end = after) {}
    return end;
}

size_t pretok_bert(const uint8_t *s, size_t i, size_t n) {
    size_t end, after;
    unsigned class = props_at(s, i, n, &end) & (PROP_PUNCT | PROP_WHITE);
    if (class & PROP_PUNCT) return end;
    for (; end < n && (props_at(s, end, n, &after) & (PROP_PUNCT | PROP_WHITE)) == class; end = after) {}
    return end;
}

/* --- by the text of the expression --- */

#define CONTRACTION_FOLDED "(?i:'s|'t|'re|'ve|'m|'ll|'d)"
#define CONTRACTION_SHORT  "'(?i:[sdmt]|ll|ve|re)"
#define CONTRACTION_ASCII  "(?:'[sS]|'[tT]|'[rR][eE]|'[vV][eE]|'[mM]|'[lL][lL]|'[dD])"
#define WORD               "|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|"
#define WORD_POSSESSIVE    "|[^\\r\\n\\p{L}\\p{N}]?+\\p{L}+|"
#define REST               "| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"
#define REST_POSSESSIVE    "| ?[^\\s\\p{L}\\p{N}]++[\\r\\n]*|\\s*[\\r\\n]|\\s+(?!\\S)|\\s+"
#define U                  "\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}"
#define L                  "\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}"
#define CASED_WORD(end)                                                                                      \
    "[^\\r\\n\\p{L}\\p{N}]?[" U "]*[" L "]+" end "|[^\\r\\n\\p{L}\\p{N}]?[" U "]+[" L "]*" end "|"
#define CASED_REST "| ?[^\\s\\p{L}\\p{N}]+[\\r\\n/]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"
#define NOT_HAN    "&&[^\\p{Han}]"

#define DEEPSEEK_LETTERS                                                                                     \
    "\134s?[A-Za-z\302\265\303\200-\303\226\303\230-\303\266\303\270-\306\272\306\274-\306\277\307\204-"     \
    "\312\223\312\225-\312\257\315\260-\315\263\315\266\315\267\315\273-\315\275\315\277\316\206\316\210"    \
    "-\316\212\316\214\316\216-\316\241\316\243-\317\265\317\267-\322\201\322\212-\324\257\324\261-"         \
    "\325\226\341\202\240-\341\203\205\341\216\240-\341\217\265\341\217\270-\341\217\275\341\262\220-"       \
    "\341\262\272\341\262\275-\341\262\277\341\264\200-\341\264\253\341\265\253-\341\265\267\341\265\271"    \
    "-\341\266\232\341\270\200-\341\274\225\341\274\230-\341\274\235\341\274\240-\341\275\205\341\275\210-"  \
    "\341\275\215\341\275\220-\341\275\227\341\275\231\341\275\233\341\275\235\341\275\237-"                 \
    "\341\275\275\341\276\200-\341\276\264\341\276\266-\341\276\274\341\276\276\341\277\202-"                \
    "\341\277\204\341\277\206-\341\277\214\341\277\220-\341\277\223\341\277\226"                             \
    "-\341\277\233\341\277\240-\341\277\254\341\277\262-\341\277\264\341\277\266-"                           \
    "\341\277\274\342\204\202\342\204\207\342\204\212-\342\204\223\342\204\225\342\204\231-"                 \
    "\342\204\235\342\204\244\342\204\246\342\204\250\342\204\252-\342\204\255\342\204\257-"                 \
    "\342\204\264\342\204\271\342\204\274-\342\204\277\342\205\205-"                                         \
    "\342\205\211\342\205\216\342\206\203\342\206\204\342\260\200"                                           \
    "-\342\261\273\342\261\276-\342\263\244\342\263\253-\342\263\256\342\263\262\342\263\263\352\231\200-"   \
    "\352\231\255\352\232\200-\352\232\233\352\234\242-\352\235\257\352\235\261-\352\236\207\352\236\213-"   \
    "\352\236\216\352\255\260-\352\256\277\357\254\200-\357\254\206\357\254\223-\357\254\227\357\274\241-"   \
    "\357\274\272\357\275\201-\357\275\232"                                                                  \
    "\360\220\220\200-\360\220\221\217\360\220\222\260-\360\220\223\223\360\220\223\230-"                    \
    "\360\220\223\273\360\220\262\200-\360\220\262\262\360\220\263\200-\360\220\263\262\360\221\242\240-"    \
    "\360\221\243\237\360\236\244\200-\360\236\245\203]+"

static const struct {
    const char *pattern;
    pretok_scanner *next;
} known[] = {
    {"'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+", pretok_gpt2},
    {"'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)", pretok_gpt2},
    {CONTRACTION_FOLDED WORD "\\p{N}{1,3}" REST, pretok_llama3},
    {CONTRACTION_SHORT WORD_POSSESSIVE "\\p{N}{1,3}" REST_POSSESSIVE, pretok_llama3},
    {CONTRACTION_ASCII WORD "\\p{N}{1,3}" REST, pretok_llama3_ascii},
    {CONTRACTION_FOLDED WORD "\\p{N}" REST, pretok_qwen2},
    {CONTRACTION_SHORT WORD_POSSESSIVE "\\p{N}" REST_POSSESSIVE, pretok_qwen2},
    {CONTRACTION_ASCII WORD "\\p{N}" REST, pretok_qwen2_ascii},
    {CONTRACTION_FOLDED WORD "\\p{N}+" REST, pretok_digit_run},
    {CONTRACTION_FOLDED WORD "\\p{N}{1}| ?[^\\s\\p{L}\\p{N}\\r\\n]+|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+",
     pretok_seed_coder},
    {CONTRACTION_FOLDED "|[^\\r\\n\\p{L}\\p{N}]?[\\p{L}\\p{M}]+|\\p{N}| ?[^\\s\\p{L}\\p{M}\\p{N}]+[\\r\\n]*"
                        "|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+",
     pretok_qwen35},
    {CASED_WORD(CONTRACTION_FOLDED "?") "\\p{N}{1,3}" CASED_REST, pretok_gpt4o},
    {CASED_WORD("") "\\p{N}" CASED_REST, pretok_tekken},
    {"[\\p{Han}]+|[^\\r\\n\\p{L}\\p{N}]?[" U NOT_HAN "]*[" L NOT_HAN "]+" CONTRACTION_FOLDED
     "?|[^\\r\\n\\p{L}\\p{N}]?[" U NOT_HAN "]+[" L NOT_HAN "]*" CONTRACTION_FOLDED "?|\\p{N}{1,3}" REST,
     pretok_kimi},
    {"[!\"#$%&'()*+,\\-./:;<=>?@\\[\\\\\\]^_`{|}~][A-Za-z]+|[^\\r\\n\\p{L}\\p{P}\\p{S}]?[\\p{L}\\p{M}]+"
     "| ?[\\p{P}\\p{S}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+",
     pretok_deepseek3},
    {"[\xe4\xb8\x80-\xe9\xbe\xa5\xe3\x81\x80-\xe3\x82\x9f\xe3\x82\xa0-\xe3\x83\xbf]+", pretok_cjk_kana},
    {"[\xe4\xb8\x80-\xe9\xbe\xa5\xe0\xa0\x80-\xe4\xb8\x80\xea\xb0\x80-\xed\x9f\xbf]+", pretok_cjk_wide},
    {"[\\r\\n]", pretok_newline},
    {"\\s?\\p{L}+", pretok_spaced_letters},
    {"\\s?\\p{P}+", pretok_spaced_punctuation},
    {" ?[^(\\s|.,!?\xe2\x80\xa6\xe3\x80\x82\xef\xbc\x8c\xe3\x80\x81\xe0\xa5\xa4\xdb\x94\xd8\x8c)]+",
     pretok_bloom},
    {DEEPSEEK_LETTERS, pretok_spaced_cased},
    {"\134s?[!-/"
     ":-~\357\274\201-\357\274\217\357\274\232-\357\275\236\342\200\230-\342\200\237\343\200\200-"
     "\343\200\202]+",
     pretok_spaced_symbols},
    {"\\s+$", pretok_last_space},
    {"\\p{N}{1,3}", pretok_number_3},
    {"\\p{N}", pretok_number_1},
    {"\\p{N}+", pretok_numbers},
    {"[0-9][0-9][0-9]", pretok_three_digits},
    {"[\\p{P}\\$\\+<=>\\^~\\|`]+", pretok_falcon},
    {"[\\p{P}\\$\\+<=>\\^~\\|]+", pretok_default_cut},
};

/* Copies the pattern with CR and LF, which some files have as they are, escaped. */
static size_t escape_newlines(const char *pattern, size_t len, char *out, size_t cap) {
    size_t n = 0;
    for (size_t i = 0; i < len; i++) {
        if (n + 2 > cap) return 0;
        if (is_newline((uint8_t)pattern[i])) {
            out[n++] = '\\';
            out[n++] = pattern[i] == '\r' ? 'r' : 'n';
        } else {
            out[n++] = pattern[i];
        }
    }
    return n;
}

static bool ends_with(const char *s, size_t n, const char *end) {
    return n >= strlen(end) && !memcmp(s + n - strlen(end), end, strlen(end));
}

pretok_scanner *pretok_of_regex(const char *pattern, size_t len, bool *total) {
    char escaped[1024];
    size_t n = escape_newlines(pattern, len, escaped, sizeof escaped);
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        if (strlen(known[i].pattern) == n && !memcmp(known[i].pattern, escaped, n)) {
            *total = ends_with(escaped, n, "|\\s+") && known[i].next != pretok_deepseek3;
            return known[i].next;
        }
    return NULL;
}
