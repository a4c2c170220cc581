#include "load/chunk.h"

#include <quire/error.h>

#include <string.h>

#define MAX_DEPTH 64

struct cursor {
    const char *p, *end;
    bool bad;
};

struct span {
    const char *p;
    size_t n;
};

static void space(struct cursor *c) {
    while (c->p < c->end && (*c->p == ' ' || *c->p == '\n' || *c->p == '\t' || *c->p == '\r')) c->p++;
}

/* The next character that is no space. Most often there is none before it. */
static inline char peek(struct cursor *c) {
    if (__builtin_expect(c->p < c->end && (unsigned char)*c->p > ' ', 1)) return *c->p;
    space(c);
    if (c->p < c->end) return *c->p;
    c->bad = true;
    return 0;
}

static inline bool take(struct cursor *c, char want) {
    if (peek(c) != want) return false;
    c->p++;
    return true;
}

static inline void expect(struct cursor *c, char want) {
    if (!take(c, want)) c->bad = true;
}

/* A string without its quotes. */
static struct span string(struct cursor *c) {
    struct span s = {0};
    expect(c, '"');
    if (c->bad) return s;
    s.p = c->p;
    while (c->p < c->end) {
        const char *quote = memchr(c->p, '"', (size_t)(c->end - c->p));
        if (!quote) break;
        const char *escape = memchr(c->p, '\\', (size_t)(quote - c->p));
        if (!escape) {
            s.n = (size_t)(quote - s.p);
            c->p = quote + 1;
            return s;
        }
        c->p = escape + 2; /* may pass the quote, or the end */
    }
    c->bad = true;
    return (struct span){0};
}

/* Passes a number or a literal. */
static void word(struct cursor *c) {
    const char *start = c->p;
    while (c->p < c->end && ((*c->p >= '0' && *c->p <= '9') || (*c->p >= 'a' && *c->p <= 'z') ||
                             *c->p == '-' || *c->p == '+' || *c->p == '.' || *c->p == 'E'))
        c->p++;
    if (c->p == start) c->bad = true;
}

/* Passes any value; brackets are counted, not matched by kind. */
static void skip(struct cursor *c) {
    unsigned depth = 0;
    do {
        char ch = peek(c);
        if (c->bad) return;
        if (ch == '"') {
            string(c);
        } else if (ch == '{' || ch == '[') {
            c->p++;
            if (++depth > MAX_DEPTH) c->bad = true;
        } else if (ch == '}' || ch == ']') {
            if (!depth) c->bad = true;
            depth--;
            c->p++;
        } else if (ch == ',' || ch == ':') {
            if (!depth) c->bad = true;
            c->p++;
        } else {
            word(c);
        }
    } while (!c->bad && depth);
}

/* The next member's name; false at the end of the object. *first: before the first. */
static bool member(struct cursor *c, bool *first, struct span *name) {
    if (c->bad) return false;
    if (*first) {
        expect(c, '{');
        *first = false;
        if (take(c, '}')) return false;
    } else {
        if (take(c, '}')) return false;
        expect(c, ',');
    }
    *name = string(c);
    expect(c, ':');
    return !c->bad;
}

static bool is(struct span s, const char *name) {
    return s.n == strlen(name) && !memcmp(s.p, name, s.n);
}

/* Passes a null if one is next. */
static bool null(struct cursor *c) {
    if (peek(c) != 'n') return false;
    word(c);
    return true;
}

/* A string or null; anything else is malformed. */
static struct span string_or_null(struct cursor *c) {
    return null(c) ? (struct span){0} : string(c);
}

static int64_t count_or_null(struct cursor *c) {
    if (null(c)) return -1;
    int64_t v = 0;
    const char *start = c->p;
    while (c->p < c->end && *c->p >= '0' && *c->p <= '9' && v < INT64_C(1) << 40)
        v = 10 * v + (*c->p++ - '0');
    if (c->p == start || (c->p < c->end && (*c->p == '.' || (*c->p >= '0' && *c->p <= '9')))) c->bad = true;
    return v;
}

/* `text` or `content`: a string is noted as the answer's text; null is none; a list (of parts) counts by
 * being there. */
static void read_text(struct cursor *c, struct chunk *out) {
    if (peek(c) == '[') {
        const char *start = c->p;
        skip(c);
        out->content |= c->p - start > 2;
        return;
    }
    struct span s = string_or_null(c);
    if (!s.n) return;
    out->content = true;
    if (out->text) return;
    out->text = s.p;
    out->text_bytes = s.n;
}

static void read_delta(struct cursor *c, struct chunk *out) {
    struct span name;
    bool first = true;
    if (null(c)) return;
    while (member(c, &first, &name)) {
        if (is(name, "content")) {
            read_text(c, out);
        } else if (is(name, "reasoning_content") || is(name, "reasoning") || is(name, "refusal")) {
            if (string_or_null(c).n) out->content = true;
        } else if (is(name, "tool_calls") || is(name, "function_call")) {
            peek(c);
            const char *start = c->p;
            skip(c);
            if (!c->bad && (*start == '[' || *start == '{') && c->p - start > 2) out->content = true;
        } else {
            skip(c);
        }
    }
}

static void read_choice(struct cursor *c, struct chunk *out) {
    struct span name;
    bool first = true;
    while (member(c, &first, &name)) {
        if (is(name, "text")) {
            read_text(c, out);
        } else if (is(name, "delta") || is(name, "message")) {
            read_delta(c, out);
        } else if (is(name, "finish_reason")) {
            struct span s = string_or_null(c);
            if (s.n >= sizeof out->finish) s.n = sizeof out->finish - 1;
            if (s.n) {
                memcpy(out->finish, s.p, s.n);
                out->finish[s.n] = 0;
            }
        } else {
            skip(c);
        }
    }
}

static void read_choices(struct cursor *c, struct chunk *out) {
    if (null(c)) return;
    expect(c, '[');
    if (take(c, ']')) return;
    do read_choice(c, out);
    while (!c->bad && take(c, ','));
    expect(c, ']');
}

static void read_cached(struct cursor *c, struct chunk *out) {
    struct span name;
    bool first = true;
    if (null(c)) return;
    while (member(c, &first, &name)) {
        if (is(name, "cached_tokens"))
            out->cached_tokens = count_or_null(c);
        else
            skip(c);
    }
}

static void read_usage(struct cursor *c, struct chunk *out) {
    struct span name;
    bool first = true;
    if (null(c)) return;
    out->has_usage = true;
    while (member(c, &first, &name)) {
        if (is(name, "prompt_tokens"))
            out->prompt_tokens = count_or_null(c);
        else if (is(name, "completion_tokens"))
            out->completion_tokens = count_or_null(c);
        else if (is(name, "prompt_tokens_details"))
            read_cached(c, out);
        else
            skip(c);
    }
}

static void note_message(struct cursor *c, struct chunk *out) {
    struct span s = string_or_null(c);
    out->message = s.p;
    out->message_bytes = s.n;
}

/* {"error": {"message": ...}} or {"error": "..."}. */
static void read_error(struct cursor *c, struct chunk *out) {
    struct span name;
    bool first = true;
    if (null(c)) return;
    out->error = true;
    if (peek(c) == '"') {
        note_message(c, out);
        return;
    }
    while (member(c, &first, &name)) {
        if (is(name, "message"))
            note_message(c, out);
        else
            skip(c);
    }
}

int chunk_read(const char *json, size_t n, struct chunk *out) {
    struct cursor c = {json, json + n, false};
    struct span name, message = {0};
    bool first = true, is_error = false;
    *out = (struct chunk){.prompt_tokens = -1, .completion_tokens = -1, .cached_tokens = -1};
    while (member(&c, &first, &name)) {
        if (is(name, "choices")) {
            read_choices(&c, out);
        } else if (is(name, "usage")) {
            read_usage(&c, out);
        } else if (is(name, "error")) {
            read_error(&c, out);
        } else if (is(name, "object") && peek(&c) == '"') {
            is_error = is(string(&c), "error"); /* older servers: {"object": "error", "message": ...} */
        } else if (is(name, "message") && peek(&c) == '"') {
            message = string(&c);
        } else {
            skip(&c);
        }
    }
    if (is_error && !out->error) {
        out->error = true;
        out->message = message.p;
        out->message_bytes = message.n;
    }
    space(&c);
    return c.bad || c.p != c.end ? QUIRE_EFORMAT : 0;
}

/* ---- alike ---- */

static bool alike(const struct chunk_pattern *p, const char *json, size_t n) {
    if (!p->after || n <= p->before + p->after || memcmp(json, p->last.data, p->before)) return false;
    const char *text = json + p->before, *end = json + n - p->after;
    if (memcmp(end, p->last.data + p->last.len - p->after, p->after)) return false;
    for (; text < end; text++) /* it is short, and with an escape it may end elsewhere */
        if (*text == '"' || *text == '\\') return false;
    return true;
}

/* Without text, or with what ends an answer, there is nothing that would come again. */
static void keep(struct chunk_pattern *p, const char *json, size_t n, const struct chunk *k) {
    p->before = p->after = 0;
    if (!k->text || k->error || k->has_usage || *k->finish) return;
    buf_clear(&p->last);
    buf_append(&p->last, json, n);
    if (!buf_ok(&p->last)) return;
    p->before = (size_t)(k->text - json);
    p->after = n - p->before - k->text_bytes;
    p->meaning = *k;
}

int chunk_read_next(struct chunk_pattern *p, const char *json, size_t n, struct chunk *out) {
    if (alike(p, json, n)) {
        *out = p->meaning;
        out->text = json + p->before;
        out->text_bytes = n - p->before - p->after;
        return 0;
    }
    int rc = chunk_read(json, n, out);
    if (!rc) keep(p, json, n, out);
    return rc;
}

/* ---- text ---- */

/* Four hexadecimal digits; -1: not so. */
static int32_t hex4(const char *s, const char *end) {
    int32_t v = 0;
    if (end - s < 4) return -1;
    for (int i = 0; i < 4; i++) {
        int c = s[i] | 0x20;
        if (!(c >= '0' && c <= '9') && !(c >= 'a' && c <= 'f')) return -1;
        v = v * 16 + (c <= '9' ? c - '0' : c - 'a' + 10);
    }
    return v;
}

/* The character of \uXXXX, or of two such for one above U+FFFF; *s is behind the first \u, and moved on. */
static uint32_t escaped_character(const char **s, const char *end) {
    int32_t high = hex4(*s, end), low;
    if (high < 0) return 0xfffd;
    *s += 4;
    if (high < 0xd800 || high > 0xdfff) return (uint32_t)high;
    if (high > 0xdbff || end - *s < 6 || (*s)[0] != '\\' || (*s)[1] != 'u') return 0xfffd;
    low = hex4(*s + 2, end);
    if (low < 0xdc00 || low > 0xdfff) return 0xfffd;
    *s += 6;
    return 0x10000 + ((uint32_t)(high - 0xd800) << 10) + (uint32_t)(low - 0xdc00);
}

static size_t put_character(uint32_t c, char *out) {
    if (c < 0x80) {
        out[0] = (char)c;
        return 1;
    }
    size_t n = c < 0x800 ? 2 : c < 0x10000 ? 3 : 4;
    for (size_t i = n; i-- > 1; c >>= 6) out[i] = (char)(0x80 | (c & 0x3f));
    out[0] = (char)((n == 2 ? 0xc0 : n == 3 ? 0xe0 : 0xf0) | c);
    return n;
}

size_t chunk_unescape(const char *json, size_t n, char *out, size_t cap) {
    static const char from[] = "bfnrt", to[] = "\b\f\n\r\t";
    const char *s = json, *end = json + n;
    size_t len = 0;
    while (s < end) {
        char text[4];
        size_t k = 1;
        text[0] = *s++;
        if (text[0] == '\\' && s < end) {
            const char *known = memchr(from, *s, sizeof from - 1);
            char c = *s++;
            text[0] = known ? to[known - from] : c;
            if (c == 'u') k = put_character(escaped_character(&s, end), text);
        }
        if (len + k > cap) break;
        memcpy(out + len, text, k);
        len += k;
    }
    return len;
}
