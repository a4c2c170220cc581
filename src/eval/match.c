#include "eval/match.h"

#include <string.h>

static bool is_blank(char c) {
    return c == ' ' || (c >= '\t' && c <= '\r');
}

static bool is_digit(char c) {
    return c >= '0' && c <= '9';
}

static bool is_punctuation(char c) {
    return (c >= '!' && c <= '/') || (c >= ':' && c <= '@') || (c >= '[' && c <= '`') ||
           (c >= '{' && c <= '~');
}

static struct text_span first_line(struct text_span t) {
    while (t.len && is_blank(*t.data)) {
        t.data++;
        t.len--;
    }
    const char *end = t.len ? memchr(t.data, '\n', t.len) : NULL;
    if (end) t.len = (size_t)(end - t.data);
    return t;
}

/* A digit, or a separator with digits around it: 1,234 and 0.5, but not "5." nor "a,5". */
static bool in_number(struct text_span t, size_t i) {
    if (is_digit(t.data[i])) return true;
    return (t.data[i] == ',' || t.data[i] == '.') && i && i + 1 < t.len && is_digit(t.data[i - 1]) &&
           is_digit(t.data[i + 1]);
}

static struct text_span last_number(struct text_span t, struct buf *memory) {
    size_t end = t.len;
    while (end && !is_digit(t.data[end - 1])) end--;
    size_t begin = end;
    while (begin && in_number(t, begin - 1)) begin--;
    if (begin < end && begin && t.data[begin - 1] == '-') begin--;
    for (size_t i = begin; i < end; i++)
        if (t.data[i] != ',') buf_putc(memory, t.data[i]);
    return (struct text_span){memory->data ? memory->data : "", memory->len};
}

struct text_span match_extract(struct text_span answer, enum eval_extract how, struct buf *memory) {
    if (how == EVAL_FIRST_LINE) return first_line(answer);
    return how == EVAL_LAST_NUMBER ? last_number(answer, memory) : answer;
}

static bool is_article(const char *word, size_t n) {
    return (n == 1 && *word == 'a') || (n == 2 && !memcmp(word, "an", 2)) ||
           (n == 3 && !memcmp(word, "the", 3));
}

static void put_word(struct buf *out, size_t start, const struct buf *word, enum eval_normalize how) {
    if (!word->len || (how == EVAL_LOOSE && is_article(word->data, word->len))) return;
    if (out->len > start) buf_putc(out, ' ');
    buf_append(out, word->data, word->len);
}

void match_normalize(struct text_span text, enum eval_normalize how, struct buf *out) {
    struct buf word = BUF_INIT;
    size_t start = out->len;
    if (how == EVAL_EXACT) {
        buf_append(out, text.data, text.len);
        return;
    }
    for (size_t i = 0; i < text.len; i++) {
        char c = text.data[i];
        if (is_blank(c)) {
            put_word(out, start, &word, how);
            buf_clear(&word);
        } else if (how == EVAL_SPACES) {
            buf_putc(&word, c);
        } else if (!is_punctuation(c)) {
            buf_putc(&word, c >= 'A' && c <= 'Z' ? (char)(c - 'A' + 'a') : c);
        }
    }
    put_word(out, start, &word, how);
    if (!buf_ok(&word)) out->failed = true;
    buf_free(&word);
}
