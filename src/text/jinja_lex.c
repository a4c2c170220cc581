#include "text/jinja_lex.h"
#include "base/error.h"
#include "base/size.h"
#include "text/jinja_unicode.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MAX_BRACKETS 256

struct lexer {
    struct jinja_template *t;
    struct error *err;
    const char *s;
    size_t n, pos;
    struct jinja_token *tokens;
    size_t n_tokens, cap_tokens;
    bool line_starting; /* the last match ended with a newline */
    char closers[MAX_BRACKETS];
    size_t n_closers;
};

static const char *const token_names[] = {
    [JINJA_T_EOF] = "end of template",
    [JINJA_T_DATA] = "template text",
    [JINJA_T_BLOCK_BEGIN] = "{%",
    [JINJA_T_BLOCK_END] = "%}",
    [JINJA_T_VARIABLE_BEGIN] = "{{",
    [JINJA_T_VARIABLE_END] = "}}",
    [JINJA_T_NAME] = "name",
    [JINJA_T_STRING] = "string",
    [JINJA_T_INT] = "integer",
    [JINJA_T_FLOAT] = "float",
    [JINJA_T_ADD] = "+",
    [JINJA_T_SUB] = "-",
    [JINJA_T_DIV] = "/",
    [JINJA_T_FLOORDIV] = "//",
    [JINJA_T_MUL] = "*",
    [JINJA_T_MOD] = "%",
    [JINJA_T_POW] = "**",
    [JINJA_T_TILDE] = "~",
    [JINJA_T_LBRACKET] = "[",
    [JINJA_T_RBRACKET] = "]",
    [JINJA_T_LPAREN] = "(",
    [JINJA_T_RPAREN] = ")",
    [JINJA_T_LBRACE] = "{",
    [JINJA_T_RBRACE] = "}",
    [JINJA_T_EQ] = "==",
    [JINJA_T_NE] = "!=",
    [JINJA_T_GT] = ">",
    [JINJA_T_GE] = ">=",
    [JINJA_T_LT] = "<",
    [JINJA_T_LE] = "<=",
    [JINJA_T_ASSIGN] = "=",
    [JINJA_T_DOT] = ".",
    [JINJA_T_COLON] = ":",
    [JINJA_T_PIPE] = "|",
    [JINJA_T_COMMA] = ",",
    [JINJA_T_SEMICOLON] = ";",
};

const char *jinja_token_name(enum jinja_token_type type) {
    return token_names[type];
}

int jinja_syntax_error(const struct jinja_template *t, struct error *err, int code, uint32_t pos,
                       const char *fmt, ...) {
    char text[QUIRE_ERROR_TEXT_BYTES];
    va_list args;
    va_start(args, fmt);
    vsnprintf(text, sizeof text, fmt, args);
    va_end(args);
    struct jinja_place at = jinja_template_place(t, pos);
    return error_set(err, code, "chat template, line %zu, column %zu: %s", at.line, at.column, text);
}

int jinja_syntax_memory(const struct jinja_template *t, struct error *err) {
    if (t->arena.used_bytes > t->arena.limit_bytes / 2)
        return error_set(err, QUIRE_ELIMIT, "the chat template needs more than %zu MiB of memory",
                         t->arena.limit_bytes >> 20);
    return error_set(err, QUIRE_ENOMEM, "out of memory while reading the chat template");
}

static int fail(struct lexer *x, size_t pos, const char *what) {
    return jinja_syntax_error(x->t, x->err, QUIRE_EFORMAT, (uint32_t)pos, "%s", what);
}

static struct jinja_token *push(struct lexer *x, enum jinja_token_type type, size_t pos) {
    if (x->n_tokens == x->cap_tokens) {
        size_t cap = x->cap_tokens ? x->cap_tokens * 2 : 256;
        struct jinja_token *more = arena_array(&x->t->arena, cap, sizeof *more);
        if (!more) {
            jinja_syntax_memory(x->t, x->err);
            return NULL;
        }
        if (x->n_tokens) memcpy(more, x->tokens, x->n_tokens * sizeof *more);
        x->tokens = more;
        x->cap_tokens = cap;
    }
    struct jinja_token *tok = &x->tokens[x->n_tokens++];
    *tok = (struct jinja_token){.type = (uint8_t)type, .pos = (uint32_t)pos};
    return tok;
}

static int push_text(struct lexer *x, enum jinja_token_type type, size_t pos, const char *data, size_t len) {
    struct jinja_token *tok = push(x, type, pos);
    if (!tok) return QUIRE_ENOMEM;
    tok->text.data = data;
    tok->text.len = len;
    return 0;
}

static bool at(const struct lexer *x, size_t pos, const char *literal) {
    size_t n = strlen(literal);
    return n <= x->n - pos && memcmp(x->s + pos, literal, n) == 0;
}

/* End of the whitespace that starts at pos. */
static size_t skip_space(const struct lexer *x, size_t pos) {
    while (pos < x->n) {
        size_t len;
        if (x->s[pos] == ' ' || x->s[pos] == '\n') {
            pos++;
            continue;
        }
        if (!(jinja_unicode_props(jinja_utf8_get(x->s + pos, x->n - pos, &len)) & JINJA_IS_SPACE)) break;
        pos += len;
    }
    return pos;
}

/* Start of the whitespace that ends at end, not before start. */
static size_t skip_space_back(const struct lexer *x, size_t start, size_t end) {
    while (end > start) {
        size_t p = end - 1, len;
        while (p > start && ((unsigned char)x->s[p] & 0xc0) == 0x80) p--;
        if (!(jinja_unicode_props(jinja_utf8_get(x->s + p, end - p, &len)) & JINJA_IS_SPACE)) break;
        end = p;
    }
    return end;
}

/* Text in front of a tag: what `-` or lstrip_blocks leave of it. */
static int push_data(struct lexer *x, size_t start, size_t end, char sign, bool is_variable) {
    if (sign == '-') {
        end = skip_space_back(x, start, end);
    } else if (sign != '+' && !is_variable) {
        size_t line = end;
        while (line > start && x->s[line - 1] != '\n') line--;
        if ((line > start || x->line_starting) && skip_space(x, line) >= end) end = line;
    }
    return end > start ? push_text(x, JINJA_T_DATA, start, x->s + start, end - start) : 0;
}

/* The end of a tag at pos, by its closing pair: 0 if there is none; trim: takes one newline, as blocks and
 * comments do; plus: `+` may stand before it. */
static size_t tag_end(const struct lexer *x, size_t pos, const char *pair, bool trim, bool plus) {
    if (pos >= x->n) return 0;
    if (x->s[pos] == '-' && at(x, pos + 1, pair)) return skip_space(x, pos + 3);
    if (plus && x->s[pos] == '+' && at(x, pos + 1, pair)) return pos + 3;
    if (!at(x, pos, pair)) return 0;
    pos += 2;
    return trim && pos < x->n && x->s[pos] == '\n' ? pos + 1 : pos;
}

static void consume(struct lexer *x, size_t end) {
    x->line_starting = x->s[end - 1] == '\n';
    x->pos = end;
}

static char sign_at(const struct lexer *x, size_t pos) {
    return pos < x->n && (x->s[pos] == '-' || x->s[pos] == '+') ? x->s[pos] : 0;
}

static int lex_comment(struct lexer *x, size_t open) {
    for (size_t p = x->pos; p + 1 < x->n; p++) {
        const char *hit = memchr(x->s + p, '#', x->n - p);
        if (!hit) break;
        p = (size_t)(hit - x->s);
        if (!at(x, p, "#}")) continue;
        bool signed_end = p > x->pos && (x->s[p - 1] == '-' || x->s[p - 1] == '+');
        consume(x, tag_end(x, signed_end ? p - 1 : p, "#}", true, true));
        return 0;
    }
    return fail(x, open, "missing end of comment tag");
}

/* After `{%` at open: the end of `raw %}`, or 0 if this is another tag. */
static size_t raw_begin_end(const struct lexer *x, size_t open) {
    size_t p = skip_space(x, open + 2 + (sign_at(x, open + 2) != 0));
    if (!at(x, p, "raw")) return 0;
    return tag_end(x, skip_space(x, p + 3), "%}", false, false);
}

static int lex_raw(struct lexer *x, size_t open) {
    size_t start = x->pos;
    for (size_t p = start; p + 1 < x->n; p++) {
        const char *hit = memchr(x->s + p, '{', x->n - p);
        if (!hit) break;
        p = (size_t)(hit - x->s);
        if (!at(x, p, "{%")) continue;
        char sign = sign_at(x, p + 2);
        size_t q = skip_space(x, p + 2 + (sign != 0));
        if (!at(x, q, "endraw")) continue;
        size_t end = tag_end(x, skip_space(x, q + 6), "%}", true, true);
        if (!end) continue;
        JINJA_TRY(push_data(x, start, p, sign, false));
        consume(x, end);
        return 0;
    }
    return fail(x, open, "missing end of raw directive");
}

static bool is_digit(const struct lexer *x, size_t pos, int base) {
    if (pos >= x->n) return false;
    char c = x->s[pos];
    if (base == 16) return (c >= '0' && c <= '9') || ((c | 32) >= 'a' && (c | 32) <= 'f');
    return c >= '0' && c < '0' + base;
}

/* End of digits with single underscores between them; pos if there are none. */
static size_t digits_end(const struct lexer *x, size_t pos, int base) {
    while (is_digit(x, pos, base) ||
           (x->s[pos] == '_' && is_digit(x, pos + 1, base) && is_digit(x, pos - 1, base)))
        pos++;
    return pos;
}

static size_t exponent_end(const struct lexer *x, size_t pos) {
    if (pos >= x->n || (x->s[pos] | 32) != 'e') return pos;
    size_t p = pos + 1 + (sign_at(x, pos + 1) != 0);
    return is_digit(x, p, 10) ? digits_end(x, p, 10) : pos;
}

static int lex_float(struct lexer *x, size_t end) {
    char text[64];
    size_t n = 0, start = x->pos;
    for (size_t i = start; i < end; i++) {
        if (x->s[i] == '_') continue;
        if (n + 1 >= sizeof text) return fail(x, start, "number is too long");
        text[n++] = x->s[i];
    }
    text[n] = '\0';
    struct jinja_token *tok = push(x, JINJA_T_FLOAT, start);
    if (!tok) return QUIRE_ENOMEM;
    tok->f = strtod(text, NULL);
    x->pos = end;
    return 0;
}

static int lex_int(struct lexer *x, size_t start, size_t end, int base) {
    int64_t value = 0;
    for (size_t i = start; i < end; i++) {
        char c = x->s[i];
        if (c == '_') continue;
        int digit = c <= '9' ? c - '0' : (c | 32) - 'a' + 10;
        if (__builtin_mul_overflow(value, base, &value) || __builtin_add_overflow(value, digit, &value))
            return fail(x, x->pos, "integer does not fit in 64 bits");
    }
    struct jinja_token *tok = push(x, JINJA_T_INT, x->pos);
    if (!tok) return QUIRE_ENOMEM;
    tok->i = value;
    x->pos = end;
    return 0;
}

static int lex_number(struct lexer *x) {
    size_t start = x->pos, whole = digits_end(x, start, 10), end = whole;
    if (start == 0 || x->s[start - 1] != '.') {
        if (whole < x->n && x->s[whole] == '.' && is_digit(x, whole + 1, 10))
            end = digits_end(x, whole + 1, 10);
        end = exponent_end(x, end);
        if (end > whole) return lex_float(x, end);
    }
    if (x->s[start] != '0') return lex_int(x, start, whole, 10);
    static const struct {
        char letter;
        int base;
    } bases[] = {{'b', 2}, {'o', 8}, {'x', 16}};
    for (size_t i = 0; i < 3; i++) {
        if (start + 1 >= x->n || (x->s[start + 1] | 32) != bases[i].letter) continue;
        size_t first = start + 2 + (start + 2 < x->n && x->s[start + 2] == '_');
        if (is_digit(x, first, bases[i].base))
            return lex_int(x, first, digits_end(x, first, bases[i].base), bases[i].base);
    }
    end = start + 1;
    while (end < x->n && (x->s[end] == '0' || (x->s[end] == '_' && is_digit(x, end + 1, 1)))) end++;
    return lex_int(x, start, end, 10);
}

static int lex_name(struct lexer *x) {
    size_t start = x->pos, p = start, len;
    bool valid = true;
    while (p < x->n) {
        uint32_t cp = jinja_utf8_get(x->s + p, x->n - p, &len);
        unsigned props = jinja_unicode_props(cp);
        if (!(props & (JINJA_IS_ID | JINJA_IS_ALPHA | JINJA_IS_NUMBER))) break;
        if (!(props & (p == start ? JINJA_IS_ID_START : JINJA_IS_ID))) valid = false;
        p += len;
    }
    if (!valid) return fail(x, start, "invalid character in identifier");
    JINJA_TRY(push_text(x, JINJA_T_NAME, start, x->s + start, p - start));
    x->pos = p;
    return 0;
}

/* \xNN, \uNNNN, \UNNNNNNNN after the letter at *p: the code point, *p behind it; UINT32_MAX if malformed. */
static uint32_t hex_escape(const struct lexer *x, size_t *p, size_t end, size_t n) {
    uint32_t cp = 0;
    if (n > end - *p) return UINT32_MAX;
    for (size_t i = 0; i < n; i++, ++*p) {
        if (!is_digit(x, *p, 16)) return UINT32_MAX;
        char c = x->s[*p];
        cp = cp << 4 | (uint32_t)(c <= '9' ? c - '0' : (c | 32) - 'a' + 10);
    }
    return cp;
}

/* The escape behind the backslash at *p - 1; appends to out, as Python's unicode_escape codec. */
static int unescape(struct lexer *x, size_t *p, size_t end, char **out) {
    static const char plain[] = "\\\\''\"\"a\ab\bf\fn\nr\rt\tv\v";
    char c = x->s[(*p)++];
    uint32_t cp;
    if (c == '\n') return 0;
    for (const char *e = plain; *e; e += 2)
        if (*e == c) {
            *(*out)++ = e[1];
            return 0;
        }
    if (c >= '0' && c <= '7') {
        cp = (uint32_t)(c - '0');
        for (int i = 0; i < 2 && *p < end && is_digit(x, *p, 8); i++)
            cp = cp << 3 | (uint32_t)(x->s[(*p)++] - '0');
    } else if (c == 'x' || c == 'u' || c == 'U') {
        cp = hex_escape(x, p, end, c == 'x' ? 2 : c == 'u' ? 4 : 8);
        if (cp > 0x10ffff) return fail(x, *p, "malformed \\x, \\u or \\U escape in a string");
        if (cp >= 0xd800 && cp < 0xe000) return fail(x, *p, "surrogates cannot be written in a string");
    } else if (c == 'N') {
        return jinja_syntax_error(x->t, x->err, QUIRE_EUNSUPPORTED, (uint32_t)*p,
                                  "\\N{...} escapes are not supported");
    } else if ((unsigned char)c < 0x80) { /* an unknown escape stands for itself */
        *(*out)++ = '\\';
        *(*out)++ = c;
        return 0;
    } else { /* the codec sees such a character as an escape of its own, whose backslash is now taken */
        size_t len;
        cp = jinja_utf8_get(x->s + *p - 1, end - (*p - 1), &len);
        *p += len - 1;
        *out += sprintf(*out, cp < 0x100 ? "\\x%02x" : cp < 0x10000 ? "\\u%04x" : "\\U%08x", cp);
        return 0;
    }
    *out += jinja_utf8_put(cp, *out);
    return 0;
}

static int lex_string(struct lexer *x) {
    size_t start = x->pos, end = start + 1;
    char quote = x->s[start];
    bool escapes = false;
    for (; end < x->n && x->s[end] != quote; end++)
        if (x->s[end] == '\\') escapes = true, end++;
    if (end >= x->n) return fail(x, start, "unexpected character: a string that is not closed");
    if (!escapes) {
        JINJA_TRY(push_text(x, JINJA_T_STRING, start, x->s + start + 1, end - start - 1));
    } else {
        char *data = arena_alloc(&x->t->arena, 5 * (end - start)); /* an escape grows to 5 times at most */
        if (!data) return jinja_syntax_memory(x->t, x->err);
        char *out = data;
        for (size_t p = start + 1; p < end;) {
            if (x->s[p] != '\\') {
                *out++ = x->s[p++];
                continue;
            }
            p++;
            JINJA_TRY(unescape(x, &p, end, &out));
        }
        JINJA_TRY(push_text(x, JINJA_T_STRING, start, data, (size_t)(out - data)));
    }
    x->pos = end + 1;
    return 0;
}

static int balance(struct lexer *x, char c) {
    if (c == '(' || c == '[' || c == '{') {
        if (x->n_closers == MAX_BRACKETS)
            return jinja_syntax_error(x->t, x->err, QUIRE_ELIMIT, (uint32_t)x->pos,
                                      "brackets are nested too deeply");
        x->closers[x->n_closers++] = c == '(' ? ')' : c == '[' ? ']' : '}';
    } else if (c == ')' || c == ']' || c == '}') {
        char expected = x->n_closers ? x->closers[x->n_closers - 1] : 0;
        if (!expected)
            return jinja_syntax_error(x->t, x->err, QUIRE_EFORMAT, (uint32_t)x->pos, "unexpected '%c'", c);
        if (expected != c)
            return jinja_syntax_error(x->t, x->err, QUIRE_EFORMAT, (uint32_t)x->pos,
                                      "unexpected '%c', expected '%c'", c, expected);
        x->n_closers--;
    }
    return 0;
}

static int lex_operator(struct lexer *x) {
    size_t best_len = 0;
    int best = 0;
    for (int type = JINJA_T_ADD; type <= JINJA_T_SEMICOLON; type++) {
        size_t len = strlen(token_names[type]);
        if (len > best_len && at(x, x->pos, token_names[type])) best = type, best_len = len;
    }
    if (!best_len) {
        size_t len;
        uint32_t cp = jinja_utf8_get(x->s + x->pos, x->n - x->pos, &len);
        return jinja_syntax_error(x->t, x->err, QUIRE_EFORMAT, (uint32_t)x->pos,
                                  "unexpected character U+%04X '%.*s'", cp, (int)len, x->s + x->pos);
    }
    if (best_len == 1) JINJA_TRY(balance(x, x->s[x->pos]));
    if (!push(x, (enum jinja_token_type)best, x->pos)) return QUIRE_ENOMEM;
    x->pos += best_len;
    return 0;
}

/* Tokens of one {% %} or {{ }}, whose opening is already taken. */
static int lex_tag(struct lexer *x, bool block) {
    while (x->pos < x->n) {
        size_t end = x->n_closers ? 0 : tag_end(x, x->pos, block ? "%}" : "}}", block, block);
        if (end) {
            if (!push(x, block ? JINJA_T_BLOCK_END : JINJA_T_VARIABLE_END, x->pos)) return QUIRE_ENOMEM;
            consume(x, end);
            return 0;
        }
        size_t after = skip_space(x, x->pos);
        unsigned char c = (unsigned char)x->s[x->pos];
        if (after > x->pos) {
            x->pos = after;
        } else if (c >= '0' && c <= '9') {
            JINJA_TRY(lex_number(x));
        } else if (c == '_' || ((c | 32) >= 'a' && (c | 32) <= 'z') || c >= 0x80) {
            size_t before = x->pos;
            JINJA_TRY(lex_name(x));
            if (x->pos == before) JINJA_TRY(lex_operator(x));
        } else if (c == '\'' || c == '"') {
            JINJA_TRY(lex_string(x));
        } else {
            JINJA_TRY(lex_operator(x));
        }
    }
    return 0; /* the parser complains about the missing end */
}

/* From x->pos to behind the next tag's opening and all of that tag. */
static int lex_next(struct lexer *x) {
    size_t open = x->pos;
    for (;; open++) {
        const char *hit = memchr(x->s + open, '{', x->n - open);
        if (!hit || hit + 1 == x->s + x->n) {
            size_t start = x->pos;
            x->pos = x->n;
            return push_text(x, JINJA_T_DATA, start, x->s + start, x->n - start);
        }
        open = (size_t)(hit - x->s);
        if (x->s[open + 1] == '{' || x->s[open + 1] == '%' || x->s[open + 1] == '#') break;
    }
    char kind = x->s[open + 1], sign = sign_at(x, open + 2);
    JINJA_TRY(push_data(x, x->pos, open, sign, kind == '{'));
    size_t raw = kind == '%' ? raw_begin_end(x, open) : 0;
    consume(x, raw ? raw : open + 2 + (sign != 0));
    if (raw) return lex_raw(x, open);
    if (kind == '#') return lex_comment(x, open);
    if (!push(x, kind == '%' ? JINJA_T_BLOCK_BEGIN : JINJA_T_VARIABLE_BEGIN, open)) return QUIRE_ENOMEM;
    return lex_tag(x, kind == '%');
}

int jinja_lex(struct jinja_template *t, struct jinja_token **tokens, struct error *err) {
    struct lexer x = {.t = t, .err = err, .s = t->source, .n = t->source_len, .line_starting = true};
    while (x.pos < x.n) JINJA_TRY(lex_next(&x));
    if (!push(&x, JINJA_T_EOF, x.n)) return QUIRE_ENOMEM;
    *tokens = x.tokens;
    return 0;
}
